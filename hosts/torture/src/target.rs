//! The disk over NVMe/TCP, at a loopback address.
//!
//! While a workload runs, all changes by its hosts' commands are recorded: submissions on arrival,
//! completions right before they are sent. A cut is served in the same way, at the same address and
//! with the same name, as a device that was power-cycled. The workload's commands may fail or be
//! late (`faults`). Invariants: one disk at a time is served, and all its connections end before
//! the next one is; hosts' writes change only this process's memory. Absent: the effect of a cut
//! (`cut`), and file systems.

use crate::array::DiskGeometry;
use crate::child::Environment;
use crate::contents::{ContentId, Contents, ZEROES};
use crate::error::TortureError;
use crate::faults::FaultModel;
use crate::firmware::broken;
use crate::marks::MarkPipe;
use crate::record::Recorder;
use crate::served::MARKS;
use remap_ssd_device::{Device, DeviceConfig, Lpn, SERVICE_BYTES_MIN};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_media::Payload;
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_nvme::controller::{self, NamespaceSpec, NewContent, Subsystem, Ticket};
use remap_ssd_nvme::tcp::server::{ConnectionLabel, Limits, Log, Server, Stopper};
use remap_ssd_nvme::tcp::target::{Allowed, Port};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;
use tempfile::TempDir;

/// NQN of the subsystem, the same for all disks of a campaign; `$NQN` of commands.
const NQN: &str = "nqn.2026-11.remap-ssd:torture";

/// An address at which disks are served one after the other.
pub(crate) struct Target {
    listener: TcpListener,
    address: SocketAddr,
    shape: DiskGeometry,
    scratch: TempDir,
}

/// A disk being served.
pub(crate) struct Serving {
    stopper: Stopper,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// Discards log messages about hosts.
struct Silent;

impl Log for Silent {
    fn connection(&self, _: &ConnectionLabel<'_>, _: &str) {}
    fn server(&self, _: &str) {}
}

impl Target {
    /// Binds an address for disks of this size, without serving one yet.
    ///
    /// # Errors
    /// The system's reason.
    pub(crate) fn new(shape: DiskGeometry) -> Result<Self, TortureError> {
        shape.require_device_blocks("a disk over NVMe/TCP")?;
        let scratch = tempfile::Builder::new()
            .prefix("remap-ssd-torture-")
            .tempdir()?;
        // Open for the whole campaign, so that all its disks have one address.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        Ok(Self {
            listener,
            address,
            shape,
            scratch,
        })
    }

    /// Environment variables for commands.
    pub(crate) fn environment(&self) -> Environment {
        let texts = [
            ("ADDRESS", self.address.to_string()),
            ("TRADDR", self.address.ip().to_string()),
            ("TRSVCID", self.address.port().to_string()),
            ("NQN", NQN.to_owned()),
        ];
        let texts = texts.map(|(name, text)| (name, text.into()));
        let marks = ("MARKS", self.marks().into_os_string());
        texts.into_iter().chain([marks]).collect()
    }

    /// Path of the marks: a pipe for those of a workload, a file with those before the cut for a
    /// check.
    pub(crate) fn marks(&self) -> PathBuf {
        self.scratch.path().join(MARKS)
    }

    /// Serves a device until the result is dropped. Then all connections end; a host that connects
    /// waits until the next device is served.
    ///
    /// # Errors
    /// The system's reason.
    pub(crate) fn serve(&self, device: Device) -> Result<Serving, TortureError> {
        self.serve_subsystem(self.subsystem(device)?)
    }

    /// Like `serve`, for a workload: hosts' changes are recorded, and commands may fail.
    ///
    /// # Errors
    /// The system's reason.
    pub(crate) fn serve_workload(
        &self,
        device: Device,
        observer: &Observer,
        faults: &Arc<FaultModel>,
    ) -> Result<Serving, TortureError> {
        // Even without faults: a write that may fail is not executed in parts, so the recording has
        // the host's commands.
        let subsystem = self
            .subsystem(device)?
            .observed(Box::new(observer.clone()))
            .with_faults(faults.clone());
        self.serve_subsystem(subsystem)
    }

    fn subsystem(&self, device: Device) -> Result<Subsystem, TortureError> {
        // A volatile write cache, during the workload and after it: changes reported to the observer
        // can be lost in the cuts.
        let disk = NamespaceSpec {
            pages: (self.shape.bytes() / PAGE_BYTES as u64) as u32,
            lba_shift: self.shape.block_bytes.trailing_zeros() as u8,
        };
        Subsystem::new(device, NQN, &[disk]).map_err(broken)
    }

    fn serve_subsystem(&self, subsystem: Subsystem) -> Result<Serving, TortureError> {
        let anybody = Allowed {
            anybody: true,
            hosts: Vec::new(),
        };

        let server = Server::on(
            Instant::now(),
            vec![self.listener.try_clone()?],
            Port::new(Arc::new(subsystem), anybody),
            Box::new(Silent),
            Limits::default(),
        )?;

        let stopper = server.stopper()?;
        let thread = std::thread::Builder::new()
            .name("torture target".into())
            .spawn(|| server.run())?;
        Ok(Serving {
            stopper,
            thread: Some(thread),
        })
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            // A failed device has already reported that to its hosts.
            let _ = thread.join();
        }
    }
}

/// Creates a new device for a disk of this size. Its firmware is not under test: it only stores
/// bytes.
///
/// # Errors
/// There is no such device.
pub(crate) fn empty_device(shape: DiskGeometry) -> Result<Device, TortureError> {
    // Devices have a minimum size; the namespace has the disk's own.
    let bytes = shape.bytes().max(SERVICE_BYTES_MIN);
    let config = DeviceConfig::for_service(bytes, SchemeKind::default(), false).map_err(broken)?;
    Device::in_memory(config).map_err(broken)
}

/// Creates a device with these contents.
///
/// # Errors
/// There is no such device, or the contents cannot be read.
pub(crate) fn device_with(
    shape: DiskGeometry,
    contents: &Contents,
    blocks: &[ContentId],
) -> Result<Device, TortureError> {
    let mut device = empty_device(shape)?;
    device.keep_time(false);

    let block_bytes = shape.block_bytes as usize;
    let mut bytes = [0; PAGE_BYTES];
    for (lpn, page) in (0..).map(Lpn).zip(blocks.chunks(PAGE_BYTES / block_bytes)) {
        // A new device reads as zeroes.
        if page.iter().all(|id| *id == ZEROES) {
            continue;
        }
        for (id, into) in page.iter().zip(bytes.chunks_mut(block_bytes)) {
            contents.get(*id, into)?;
        }
        let written = device.write(0, lpn, &Payload::Bytes(&bytes)).result;
        written.map_err(|refusal| broken(format_args!("{refusal:?}")))?;
    }
    Ok(device)
}

/// Records hosts' changes; clones share one recording.
#[derive(Clone)]
pub(crate) struct Observer(Arc<Observed>);

struct Observed {
    recorder: Arc<Recorder>,
    /// Held while an entry is added: marks in the pipe by then come first.
    pipe: Mutex<Pipe>,
}

struct Pipe {
    marks: MarkPipe,
    /// First failure to record.
    failure: Option<io::Error>,
}

impl Observer {
    pub(crate) fn new(recorder: Arc<Recorder>, marks: MarkPipe) -> Self {
        let failure = None;
        Self(Arc::new(Observed {
            recorder,
            pipe: Mutex::new(Pipe { marks, failure }),
        }))
    }

    /// Records the marks now in the pipe.
    pub(crate) fn take_marks(&self) {
        drop(self.after_marks());
    }

    /// Takes the failure that invalidates the recording, if any.
    pub(crate) fn take_failure(&self) -> Option<TortureError> {
        let failure = self.after_marks().failure.take();
        failure.map(TortureError::Scratch)
    }

    /// Records the marks now in the pipe; while the guard is held, no other entry is recorded.
    fn after_marks(&self) -> MutexGuard<'_, Pipe> {
        let mut pipe = self.0.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        match pipe.marks.take() {
            Ok(lines) => self.0.recorder.mark(&lines),
            Err(error) => drop(pipe.failure.get_or_insert(error)),
        }
        pipe
    }

    fn submit(&self, submit: impl FnOnce(&Recorder) -> io::Result<u32>) -> Ticket {
        let mut pipe = self.after_marks();
        match submit(&self.0.recorder) {
            Ok(entry) => Ticket(entry),
            // The run ends with this error; entries recorded until then do not matter.
            Err(error) => {
                pipe.failure.get_or_insert(error);
                Ticket(u32::MAX)
            }
        }
    }
}

impl controller::Observer for Observer {
    fn begun(&self) -> Ticket {
        self.submit(Recorder::submit_flush)
    }

    fn changed(&self, offset: u64, content: NewContent<'_>, through: bool) -> Ticket {
        self.submit(|recorder| match content {
            NewContent::Zeroes(len) => recorder.submit_zero(offset, len, through),
            NewContent::Bytes(bytes) => recorder.submit_write(offset, bytes, through),
        })
    }

    fn ended(&self, Ticket(entry): Ticket) {
        let mut pipe = self.after_marks();
        if let Err(error) = self.0.recorder.done(entry) {
            pipe.failure.get_or_insert(error);
        }
    }
}

#[cfg(test)]
mod tests;
