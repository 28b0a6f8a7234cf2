//! vfio-user: a virtual machine monitor connects, maps the guest's memory and forwards the guest's
//! accesses.
//!
//! One monitor at a time; when it disconnects, the function is reset and the next one may connect.
//! Invariants: an invalid message is answered with an error or ends the connection, with no other
//! effect; the socket of a killed server is removed, one in use is not; only its owner may connect,
//! unless the owner changes the file's permissions.

use crate::function::Function;
use crate::library_panics;
use crate::pci::{BAR_BYTES, CONFIG_BYTES, VECTORS};
use remap_ssd_nvme::Escaped;
use remap_ssd_nvme::controller::Subsystem;
use remap_ssd_nvme::tcp::notice::{Notices, Pace, more};
use rustix::fs::{Mode, fchmod};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_EVENTFD, VFIO_IRQ_INFO_NORESIZE, VFIO_IRQ_SET_ACTION_TRIGGER,
    VFIO_IRQ_SET_DATA_EVENTFD, VFIO_IRQ_SET_DATA_NONE, VFIO_PCI_BAR0_REGION_INDEX,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_ERR_IRQ_INDEX, VFIO_PCI_MSIX_IRQ_INDEX,
    VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS, VFIO_REGION_INFO_FLAG_READ,
    VFIO_REGION_INFO_FLAG_WRITE, vfio_region_info,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, IrqInfo, Server, ServerBackend, ServerRegion};

/// Why the socket cannot be created, with advice.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// Another process listens at the path.
    #[error("the socket is in use; stop what serves it, or choose another")]
    Busy,
    /// Something other than a socket is at the path.
    #[error("a file that is not a socket has this name; remove it, or choose another name")]
    NoSocket,
    /// The system refused an operation.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Receives log lines of a service.
type Log = Box<dyn Fn(&str) + Send>;

/// The file of a socket; removed when dropped.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A bound socket to which a monitor can connect, and wait for the function.
pub struct Bound {
    socket: OwnedFd,
    file: SocketFile,
}

impl Bound {
    /// Listens for a virtual machine monitor.
    ///
    /// # Errors
    /// The reason, with advice.
    pub fn bind(path: &Path) -> Result<Self, ServiceError> {
        make_way(path)?;
        private_listener(path)
    }

    /// Serves from now on; times count from `epoch`. `log` gets a line for each connection and
    /// disconnection.
    ///
    /// # Errors
    /// The system's reason.
    pub fn start(
        self,
        subsystem: &Arc<Subsystem>,
        epoch: Instant,
        log: Log,
    ) -> Result<Service, ServiceError> {
        let server = Server::from_owned_fd(self.socket, true, interrupts(), regions());
        // Complete before its thread starts: if that fails, it is dropped, which closes the function.
        let service = Service {
            function: Function::start(subsystem, epoch)?,
            stop: Arc::default(),
            file: self.file,
        };

        // It blocks in the library and cannot be interrupted: after `close` it finds a closed
        // function.
        std::thread::Builder::new()
            .name("vfio-user".into())
            .spawn({
                let (mut backend, stop) =
                    (Backend(service.function.handle()), service.stop.clone());
                move || listen(&server, &mut backend, &stop, &log, epoch)
            })?;
        Ok(service)
    }
}

/// A function served on a socket.
pub struct Service {
    function: Function,
    stop: Arc<AtomicBool>,
    file: SocketFile,
}

struct Backend(Function);

impl Service {
    /// Listens for a virtual machine monitor; times count from `epoch`. `log` gets a line for each
    /// connection and disconnection.
    ///
    /// # Errors
    /// The reason, with advice.
    pub fn start(
        subsystem: &Arc<Subsystem>,
        path: &Path,
        epoch: Instant,
        log: Log,
    ) -> Result<Self, ServiceError> {
        Bound::bind(path)?.start(subsystem, epoch, log)
    }

    /// Ends after commands in progress, and gives the device back.
    ///
    /// # Errors
    /// The service had failed.
    pub fn close(mut self) -> io::Result<()> {
        if self.end() {
            Ok(())
        } else {
            Err(io::Error::other("a thread of the service has failed"))
        }
    }

    fn end(&mut self) -> bool {
        if self.stop.swap(true, Ordering::SeqCst) {
            return true;
        }

        // The device first: the library's thread cannot be interrupted, and may never end.
        let well = self.function.close();
        // Wakes it if it waits for a monitor.
        let _ = UnixStream::connect(&self.file.0);
        well
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.end();
    }
}

fn listen(server: &Server, backend: &mut Backend, stop: &AtomicBool, log: &Log, epoch: Instant) {
    let notices = Notices::default();
    let notice = |kind: &'static str, text: &str| {
        if let Some(left_out) = notices.admit(kind, Pace::SELDOM, epoch.elapsed().as_nanos() as u64)
        {
            log(&format!("{text}{}", more(left_out)));
        }
    };

    while !stop.load(Ordering::SeqCst) {
        // The library requires well-formed messages: others end this connection.
        let ended = catch_unwind(AssertUnwindSafe(|| {
            library_panics::library(|| server.run(backend))
        }));
        let was_library = library_panics::was_library();

        if stop.load(Ordering::SeqCst) {
            return;
        }

        // After any end: the next monitor must not find memory or interrupts of this one.
        backend.gone();
        match ended {
            Ok(Ok(())) => notice("gone", "the virtual machine has gone"),
            Ok(Err(vfio_user::Error::SocketAccept(error))) => {
                log(&format!("no client can connect any more: {error}"));
                return;
            }
            Ok(Err(error)) => notice(
                "dropped",
                &format!("dropped: {}", Escaped::text(&error.to_string())),
            ),
            Err(_) if was_library => notice("malformed", "dropped: a malformed message"),
            Err(_) => notice(
                "failed",
                "dropped: this program has failed at a message, see above",
            ),
        }
    }
}

/// Creates a listening socket that only its owner can connect to, from the start.
fn private_listener(path: &Path) -> Result<Bound, ServiceError> {
    let owner = Mode::RUSR | Mode::WUSR;

    let made = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    );
    let socket = made.map_err(io::Error::from)?;

    // 1. On Linux the file gets the socket's mode, minus the umask.
    let _ = fchmod(&socket, owner);

    let address = SocketAddrUnix::new(path).map_err(io::Error::from)?;
    bind(&socket, &address).map_err(|error| match io::Error::from(error) {
        error if error.kind() == ErrorKind::AddrInUse => ServiceError::Busy,
        error => ServiceError::Io(error),
    })?;
    let file = SocketFile(path.into());

    // 2. On other systems the mode is set here, before the socket listens.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(owner.bits()))?;
    rustix::net::listen(&socket, 16).map_err(io::Error::from)?;

    Ok(Bound { socket, file })
}

/// Removes a socket that is not in use.
fn make_way(path: &Path) -> Result<(), ServiceError> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.into()),
        Ok(found) if !found.file_type().is_socket() => Err(ServiceError::NoSocket),
        // Only connecting tells a socket in use from one of a killed server.
        Ok(_) => match UnixStream::connect(path) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                Ok(std::fs::remove_file(path)?)
            }
            _ => Err(ServiceError::Busy),
        },
    }
}

/// All regions of a PCI device; unsupported ones have size 0.
fn regions() -> Vec<ServerRegion> {
    let region = |index: u32| {
        let size = match index {
            VFIO_PCI_BAR0_REGION_INDEX => BAR_BYTES,
            VFIO_PCI_CONFIG_REGION_INDEX => CONFIG_BYTES,
            _ => 0,
        };

        let access = VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
        let region_info = vfio_region_info {
            argsz: size_of::<vfio_region_info>() as u32,
            flags: if size > 0 { access } else { 0 },
            index,
            size,
            ..vfio_region_info::default()
        };

        ServerRegion {
            region_info,
            sparse_areas: Vec::new(),
            mmap_fd: None,
        }
    };

    (0..VFIO_PCI_NUM_REGIONS).map(region).collect()
}

/// All interrupt types of a PCI device; unsupported ones have count 0.
fn interrupts() -> Vec<IrqInfo> {
    let irq = |index: u32| match index {
        VFIO_PCI_MSIX_IRQ_INDEX => IrqInfo {
            index,
            flags: VFIO_IRQ_INFO_EVENTFD | VFIO_IRQ_INFO_NORESIZE,
            count: VECTORS.into(),
        },

        // Required by monitors, but never triggered.
        VFIO_PCI_ERR_IRQ_INDEX => IrqInfo {
            index,
            flags: VFIO_IRQ_INFO_EVENTFD,
            count: 1,
        },

        _ => IrqInfo {
            index,
            flags: 0,
            count: 0,
        },
    };

    (0..VFIO_PCI_NUM_IRQS).map(irq).collect()
}

impl Backend {
    /// Handles the disconnection of the monitor, whose memory is gone.
    fn gone(&mut self) {
        self.0.reset();
        self.0.clear_vectors();
        self.0.unmap(None);
    }
}

impl ServerBackend for Backend {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        library_panics::ours(|| match region {
            VFIO_PCI_CONFIG_REGION_INDEX => self.0.config_read(offset, data),
            VFIO_PCI_BAR0_REGION_INDEX => self.0.bar_read(offset, data),
            _ => data.fill(0),
        });
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        library_panics::ours(|| match region {
            VFIO_PCI_CONFIG_REGION_INDEX => self.0.config_write(offset, data),
            VFIO_PCI_BAR0_REGION_INDEX => self.0.bar_write(offset, data),
            _ => {}
        });
        Ok(())
    }

    fn dma_map(
        &mut self,
        flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        fd: Option<File>,
    ) -> io::Result<()> {
        // Memory without a file cannot be shared, so the device cannot access it.
        library_panics::ours(|| match fd {
            Some(file) => self.0.map(
                address,
                size,
                file,
                offset,
                flags.contains(DmaMapFlags::WRITE),
            ),
            None => Ok(()),
        })
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, address: u64, size: u64) -> io::Result<()> {
        let all = flags.contains(DmaUnmapFlags::UNMAP_ALL);
        library_panics::ours(|| self.0.unmap(if all { None } else { Some((address, size)) }));
        Ok(())
    }

    fn reset(&mut self) -> io::Result<()> {
        library_panics::ours(|| self.0.reset());
        Ok(())
    }

    fn set_irqs(
        &mut self,
        index: u32,
        flags: u32,
        start: u32,
        count: u32,
        fds: Vec<File>,
    ) -> io::Result<()> {
        if index != VFIO_PCI_MSIX_IRQ_INDEX || flags & VFIO_IRQ_SET_ACTION_TRIGGER == 0 {
            // Other interrupts do not exist, and masking is done by the monitor.
            return Ok(());
        }

        library_panics::ours(|| {
            // A count of 0 turns interrupts off (VFIO_DEVICE_SET_IRQS).
            if count == 0 {
                self.0.clear_vectors();
            } else if flags & VFIO_IRQ_SET_DATA_EVENTFD != 0 {
                let count = count.min(VECTORS.into()) as usize;

                // A vector without a descriptor loses its previous one.
                let files = fds
                    .into_iter()
                    .map(Some)
                    .chain(std::iter::repeat_with(|| None));
                self.0.set_vectors(start, files.take(count));
            } else if flags & VFIO_IRQ_SET_DATA_NONE != 0 {
                self.0.trigger(start, count);
            }
        });
        Ok(())
    }
}
