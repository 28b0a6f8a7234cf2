//! The disk behind NVMe/TCP, at an address of this machine that nobody else reaches.
//!
//! While a workload runs, all that its hosts' commands change is recorded: submissions when they
//! arrive, completions right before they are sent. A cut is served in the same way, from the same
//! address and under the same name, as a device that has lost its power and is on again.
//! Invariants: one disk at a time is served, and all connections to it end before the next one is;
//! whatever hosts send, only this process's memory is written. Absent: what a cut leaves (`cut`),
//! and file systems.

use crate::array::{DiskGeometry, MARKS};
use crate::child::Environment;
use crate::contents::{ContentId, Contents, ZEROES};
use crate::error::TortureError;
use crate::firmware::broken;
use crate::marks::MarkPipe;
use crate::record::Recorder;
use remap_ssd_device::{Device, DeviceConfig, Lpn, SERVICE_BYTES_MIN};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_media::Payload;
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_nvme::controller::{
    Health, Latency, NamespaceSpec, NewContent, Subsystem, Ticket, Witness,
};
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

/// An address at which one disk after the other is served.
pub(crate) struct Target {
    listener: TcpListener,
    address: SocketAddr,
    shape: DiskGeometry,
    scratch: TempDir,
}

/// A disk while it is served.
pub(crate) struct Serving {
    stopper: Stopper,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// Hosts that come and go are not worth a word.
struct Silent;

impl Log for Silent {
    fn connection(&self, _: &ConnectionLabel<'_>, _: &str) {}
    fn server(&self, _: &str) {}
}

impl Target {
    /// An address for disks of this size, at which none is served yet.
    ///
    /// # Errors
    /// The system's reason.
    pub fn new(shape: DiskGeometry) -> Result<Self, TortureError> {
        let scratch = tempfile::Builder::new()
            .prefix("remap-ssd-torture-")
            .tempdir()?;
        // Open as long as the campaign lasts, so that all its disks have one address.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        Ok(Self {
            listener,
            address,
            shape,
            scratch,
        })
    }

    /// What commands know of it.
    pub fn environment(&self) -> Environment {
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

    /// Where a workload writes its marks, and a check reads those before the cut.
    pub fn marks(&self) -> PathBuf {
        self.scratch.path().join(MARKS)
    }

    /// Serves a device until what is returned is dropped. Then all connections end; a host that
    /// connects waits until the next device is served.
    ///
    /// # Errors
    /// The system's reason.
    pub fn serve(
        &self,
        device: Device,
        witness: Option<Box<dyn Witness>>,
    ) -> Result<Serving, TortureError> {
        // A volatile write cache, in the workload's run and after it: what a witness is told of is
        // lost in the cuts.
        let disk = NamespaceSpec {
            pages: (self.shape.bytes() / PAGE_BYTES as u64) as u32,
            lba_shift: self.shape.block_bytes.trailing_zeros() as u8,
        };
        let (latency, health) = (Latency::None, Health::default());
        let subsystem = Subsystem::new(device, NQN, &[disk], latency, true, health);
        let mut subsystem = subsystem.map_err(broken)?;
        if let Some(witness) = witness {
            subsystem = subsystem.witnessed(witness);
        }

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
            // A device that has failed has told its hosts so.
            let _ = thread.join();
        }
    }
}

/// A new device for a disk of this size. Its firmware is not what is tested: it only has the bytes.
///
/// # Errors
/// There is no such device.
pub(crate) fn empty_device(shape: DiskGeometry) -> Result<Device, TortureError> {
    // Devices have a least size; the namespace on it has the disk's own.
    let bytes = shape.bytes().max(SERVICE_BYTES_MIN);
    let config = DeviceConfig::for_service(bytes, SchemeKind::default(), false).map_err(broken)?;
    Device::in_memory(config).map_err(broken)
}

/// A device that has these contents.
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

/// Records what hosts do; clones are the same one.
#[derive(Clone)]
pub(crate) struct Observer(Arc<Observed>);

struct Observed {
    recorder: Arc<Recorder>,
    /// Held while an entry is added: what is in the pipe by then comes first.
    pipe: Mutex<Pipe>,
}

struct Pipe {
    marks: MarkPipe,
    /// Why something could not be recorded first.
    failure: Option<io::Error>,
}

impl Observer {
    pub fn new(recorder: Arc<Recorder>, marks: MarkPipe) -> Self {
        let failure = None;
        Self(Arc::new(Observed {
            recorder,
            pipe: Mutex::new(Pipe { marks, failure }),
        }))
    }

    /// Records the marks that are there.
    pub fn take_marks(&self) {
        drop(self.after_marks());
    }

    /// Why the record is of no use, if it is.
    pub fn take_failure(&self) -> Option<TortureError> {
        let failure = self.after_marks().failure.take();
        failure.map(TortureError::Scratch)
    }

    /// The marks that are there are recorded; as long as it is held, nothing else is.
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
            // The run ends with this reason; what is recorded until then does not matter.
            Err(error) => {
                pipe.failure.get_or_insert(error);
                Ticket(u32::MAX)
            }
        }
    }
}

impl Witness for Observer {
    fn flush(&self) -> Ticket {
        self.submit(Recorder::submit_flush)
    }

    fn changed(&self, offset: u64, content: NewContent<'_>, through: bool) -> Ticket {
        self.submit(|recorder| match content {
            NewContent::Zeroes(len) => recorder.submit_zero(offset, len, through),
            NewContent::Bytes(bytes) => recorder.submit_write(offset, bytes, through),
        })
    }

    fn completed(&self, Ticket(entry): Ticket) {
        let mut pipe = self.after_marks();
        if let Err(error) = self.0.recorder.done(entry) {
            pipe.failure.get_or_insert(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cut::{DiskState, Lost};
    use crate::record::{About, Event, Recording};
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;
    use remap_ssd_nvme::spec::command::{RwCdw12, Sqe};
    use remap_ssd_nvme::spec::opcode::{admin, io as opcode};
    use remap_ssd_nvme::tcp::client::{Call, Client, Options, entry};
    use std::fs::OpenOptions;
    use std::io::Write;

    const BLOCK: usize = 512;
    const SHAPE: DiskGeometry = DiskGeometry {
        block_bytes: BLOCK as u32,
        blocks: 2048,
    };

    /// A disk that is recorded, and a host that is connected to it.
    struct Bench {
        recorder: Arc<Recorder>,
        observer: Observer,
        target: Target,
        serving: Serving,
        client: Client,
    }

    impl Bench {
        fn new() -> Self {
            let target = Target::new(SHAPE).unwrap();
            let recorder = Arc::new(Recorder::new(SHAPE).unwrap());
            let marks = MarkPipe::new(&target.marks()).unwrap();
            let observer = Observer::new(recorder.clone(), marks);
            let device = empty_device(SHAPE).unwrap();
            let serving = target.serve(device, Some(Box::new(observer.clone())));
            let serving = serving.unwrap();
            let client = Client::connect(target.address, Options::default()).unwrap();
            Self {
                recorder,
                observer,
                target,
                serving,
                client,
            }
        }

        fn mark(&self, text: &str) {
            let mut pipe = OpenOptions::new().append(true).open(self.target.marks());
            pipe.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
        }

        fn entry(&self, opcode: u8, slba: u64, blocks: u16, fua: bool) -> Sqe {
            let mut sqe = self.client.rw(opcode, slba, blocks - 1);
            sqe.cdw12 = RwCdw12::from_bits(sqe.cdw12).with_fua(fua).into_bits();
            sqe
        }

        fn call(&mut self, sqe: Sqe, send: &[u8]) {
            let receive = 0;
            let call = Call { sqe, send, receive };
            self.client.queue(|io| io.call("it", &call)).unwrap();
        }

        fn finish(self) -> Recording {
            drop(self.client);
            drop(self.serving);
            assert!(self.observer.take_failure().is_none());
            self.recorder.finish(About::default())
        }
    }

    /// First byte of a block that has lost everything that it may lose.
    fn worst(recording: &Recording, block: u64) -> u8 {
        let state = DiskState::at(recording, recording.events.len());
        let versions = state.pending.get(&block).map_or(0, Vec::len) as u32;
        let blocks = state.after(&[Lost { block, versions }]);
        let mut bytes = [0; BLOCK];
        let contents = &recording.contents;
        contents.get(blocks[block as usize], &mut bytes).unwrap();
        bytes[0]
    }

    #[test]
    fn what_a_host_sends_is_recorded_as_what_it_is() {
        let mut bench = Bench::new();
        bench.client.write(3, &[1; 2 * BLOCK]).unwrap();
        bench.mark("written\n");
        bench.client.flush().unwrap();
        bench.mark("flushed\n");
        let write = bench.entry(opcode::WRITE, 9, 1, true);
        bench.call(write, &[2; BLOCK]);
        let zeroes = bench.entry(opcode::WRITE_ZEROES, 16, 8, false);
        bench.call(zeroes, &[]);
        let zeroes = bench.entry(opcode::WRITE_ZEROES, 24, 8, true);
        bench.call(zeroes, &[]);
        bench.client.trim(32, 8).unwrap();

        let recording = bench.finish();
        let write = |block, words, through| Event::Write {
            block,
            words,
            through,
        };
        let zero = |block| Event::Zero { block, count: 8 };
        let wanted = [
            write(3, 0..2, false),
            Event::Done(0),
            Event::Mark(0),
            Event::Flush,
            Event::Done(3),
            Event::Mark(1),
            write(9, 2..3, true),
            Event::Done(6),
            zero(16),
            Event::Done(8),
            write(24, 3..11, true),
            Event::Done(10),
            zero(32),
            Event::Done(12),
        ];
        assert_eq!(recording.events, wanted);
        assert_eq!(recording.words[3..], [ZEROES; 8]);
        assert_eq!(recording.marks, ["written", "flushed"]);
    }

    // A mark comes before everything that its writer does next, also if nobody has looked at the
    // pipe for long.
    #[test]
    fn every_mark_has_its_place_between_the_commands() {
        let mut bench = Bench::new();
        for number in 0..50u8 {
            bench.client.write(number.into(), &[number; BLOCK]).unwrap();
            bench.mark(&format!("{number}\n"));
        }
        bench.observer.take_marks();

        let recording = bench.finish();
        assert_eq!(recording.events.len(), 150);
        for (number, events) in (0..).zip(recording.events.chunks(3)) {
            assert_eq!(events[2], Event::Mark(number), "{events:?}");
        }
    }

    #[test]
    fn what_a_host_has_formatted_does_not_come_back() {
        let mut bench = Bench::new();
        bench.client.write(3, &[1; BLOCK]).unwrap();
        bench.client.flush().unwrap();
        bench.client.write(3, &[2; BLOCK]).unwrap();
        let call = Call {
            sqe: entry(admin::FORMAT, 1),
            send: &[],
            receive: 0,
        };
        bench.client.admin(|queue| queue.call("it", &call)).unwrap();

        let recording = bench.finish();
        let state = DiskState::at(&recording, recording.events.len());
        assert!(state.pending.is_empty() && state.durable.iter().all(|id| *id == ZEROES));
    }

    #[test]
    fn what_a_read_with_fua_has_returned_is_durable() {
        let mut bench = Bench::new();
        bench.client.write(3, &[1; BLOCK]).unwrap();
        bench.client.write(4, &[2; BLOCK]).unwrap();
        let sqe = bench.entry(opcode::READ, 3, 1, true);
        let call = Call {
            sqe,
            send: &[],
            receive: BLOCK,
        };
        let answer = bench.client.queue(|io| io.call("it", &call)).unwrap();
        assert_eq!(answer.data, [1; BLOCK]);

        let recording = bench.finish();
        assert_eq!([3, 4].map(|block| worst(&recording, block)), [1, 0]);
    }

    // A host that sends a flush before it has the answer to its write may lose the write.
    #[test]
    fn a_flush_covers_what_was_answered_before_it_was_sent() {
        let mut bench = Bench::new();
        let write = bench.entry(opcode::WRITE, 3, 1, false);
        let flush = entry(opcode::FLUSH, 1);
        let calls = [(write, &[1; BLOCK][..]), (flush, &[])].map(|(sqe, send)| Call {
            sqe,
            send,
            receive: 0,
        });
        bench.client.queue(|io| io.calls(&calls)).unwrap();
        bench.client.write(5, &[2; BLOCK]).unwrap();
        bench.client.flush().unwrap();
        bench.client.write(5, &[3; BLOCK]).unwrap();

        let recording = bench.finish();
        let at = |event: Event| recording.events.iter().position(|one| *one == event);
        let flush = at(Event::Flush).unwrap();
        let answered = at(Event::Done(flush as u32)).unwrap();
        assert!(
            DiskState::at(&recording, answered + 1)
                .pending
                .contains_key(&3)
        );
        assert_eq!(worst(&recording, 3), 1);
        assert_eq!(worst(&recording, 5), 2);
    }

    #[test]
    fn a_host_that_switches_the_cache_off_loses_nothing_any_more() {
        let mut bench = Bench::new();
        let switch = |client: &mut Client, on: u32| {
            let mut sqe = entry(admin::SET_FEATURES, 0);
            (sqe.cdw10, sqe.cdw11) = (6, on);
            let call = Call {
                sqe,
                send: &[],
                receive: 0,
            };
            client.admin(|queue| queue.call("it", &call)).unwrap();
        };
        assert_eq!(bench.client.controller().vwc & 1, 1);
        bench.client.write(3, &[1; BLOCK]).unwrap();
        switch(&mut bench.client, 0);
        bench.client.write(4, &[2; BLOCK]).unwrap();
        bench.client.trim(4, 1).unwrap();
        bench.client.write(5, &[3; BLOCK]).unwrap();
        switch(&mut bench.client, 1);
        bench.client.write(5, &[4; BLOCK]).unwrap();

        let recording = bench.finish();
        let found = [3, 4, 5].map(|block| worst(&recording, block));
        assert_eq!(found, [1, 2, 3]);
    }

    // Long enough that the data are asked for, and come in parts; the last is no whole page.
    #[test]
    fn a_long_write_is_completed_as_a_whole() {
        let mut bench = Bench::new();
        let data: Vec<u8> = (0..1023u32)
            .flat_map(|block| [(block % 251) as u8 + 1; BLOCK])
            .collect();
        let write = bench.entry(opcode::WRITE, 8, 1023, true);
        bench.call(write, &data);

        let recording = bench.finish();
        let writes = |event: &Event| matches!(event, Event::Write { through: true, .. });
        let count = recording.events.iter().filter(|one| writes(one)).count();
        assert!(count > 1, "{:?}", recording.events);
        // All are submitted before the first is completed.
        assert!(recording.events[..count].iter().all(writes));
        assert_eq!(recording.events.len(), 2 * count);
        for block in 0..1023 {
            assert_eq!(worst(&recording, 8 + block), (block % 251) as u8 + 1);
        }
    }

    #[test]
    fn copies_and_remaps_are_what_they_leave_in_their_blocks() {
        let mut bench = Bench::new();
        bench.client.write(0, &[1; 16 * BLOCK]).unwrap();
        bench.client.write(16, &[0; 8 * BLOCK]).unwrap();
        bench.client.copy(0, 100, 3).unwrap();
        bench.client.copy(8, 64, 8).unwrap();
        bench.client.remap(0, 80, 8, true, false).unwrap();
        bench.client.remap(8, 88, 8, false, false).unwrap();
        bench.client.flush().unwrap();
        // Of several blocks each may be lost: what cannot be atomic is refused.
        assert!(bench.client.remap(8, 96, 8, false, true).is_err());

        let recording = bench.finish();
        let found = [0, 8, 16, 64, 80, 88, 99, 100, 102, 103].map(|at| worst(&recording, at));
        assert_eq!(found, [0, 1, 0, 1, 1, 1, 0, 1, 1, 0]);
    }

    // Two hosts with the same blocks: what the record says was written last is what they read.
    #[test]
    fn commands_of_several_hosts_have_the_order_that_the_device_has() {
        let mut bench = Bench::new();
        let address = bench.target.address;
        std::thread::scope(|scope| {
            for seed in 0..3 {
                scope.spawn(move || {
                    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
                    let mut client = Client::connect(address, Options::default()).unwrap();
                    for _ in 0..150 {
                        let (slba, blocks) =
                            (random.random_range(0..32), random.random_range(1..80));
                        let data = vec![random.random(); blocks * BLOCK];
                        match random.random_range(0..8u32) {
                            0 => client.flush().unwrap(),
                            1 => client.trim(slba, blocks as u64).unwrap(),
                            2 => client.copy(slba, 64 + slba, 8).unwrap(),
                            3 => client.write_through(slba, &data).unwrap(),
                            _ => client.write(slba, &data).unwrap(),
                        }
                    }
                });
            }
        });
        let read = bench.client.read(0, 160).unwrap();

        let recording = bench.finish();
        let newest = DiskState::at(&recording, recording.events.len()).after(&[]);
        for (block, (id, read)) in newest.iter().zip(read.chunks(BLOCK)).enumerate() {
            let mut bytes = [0; BLOCK];
            recording.contents.get(*id, &mut bytes).unwrap();
            assert_eq!(bytes, read, "block {block}");
        }
    }

    #[test]
    fn a_disk_that_is_served_again_has_what_was_put_on_it_and_the_same_address() {
        let target = Target::new(SHAPE).unwrap();
        let contents = Contents::new(BLOCK).unwrap();
        for byte in [7, 8] {
            let mut blocks = vec![ZEROES; SHAPE.blocks as usize];
            blocks[9] = contents.put(&[byte; BLOCK]).unwrap();
            let device = device_with(SHAPE, &contents, &blocks).unwrap();
            let _serving = target.serve(device, None).unwrap();

            let mut client = Client::connect(target.address, Options::default()).unwrap();
            assert_eq!({ client.namespace().nsze }, SHAPE.blocks);
            let found = client.read(8, 3).unwrap();
            assert_eq!([0, BLOCK, 2 * BLOCK].map(|at| found[at]), [0, byte, 0]);
        }
    }
}
