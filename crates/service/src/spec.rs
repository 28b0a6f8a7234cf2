//! A device to serve, and how, as plain data.
//!
//! Fields have the names of the options of `remap-ssd serve`, which error messages use as well.
//! Absent: checks of fields that need files, names or the device, which `Service::open` makes.

use crate::address::ListenAt;
use crate::error::ServiceError;
use crate::log::LogLevel;
use crate::shape::Shape;
use remap_ssd_nvme::controller::{CACHE_BYTES_MIN, Latency};
use remap_ssd_nvme::tcp::server::{MEMORY_BYTES_DEFAULT, MEMORY_BYTES_MIN};
use remap_ssd_nvme::tcp::target::Advertised;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// Where the device's data are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backing {
    /// In the folder of an image that [`image::create`](crate::image::create) made.
    Image(PathBuf),
    /// In memory, in a new device of this many bytes, lost when the service ends.
    Memory(u64),
}

impl Backing {
    /// The folder, if it is an image.
    pub(crate) fn dir(&self) -> Option<&PathBuf> {
        match self {
            Self::Image(dir) => Some(dir),
            Self::Memory(_) => None,
        }
    }
}

/// A device to serve: [`Spec::image`] or [`Spec::memory`] with what differs from the defaults.
#[derive(Clone)]
pub struct Spec {
    /// The device's data.
    pub backing: Backing,
    /// Shape of a new device in memory; for an image, what it must be.
    pub shape: Shape,

    /// Addresses for NVMe/TCP. If there are none, 127.0.0.1:4420, unless `fuse` or `vfio_user` is
    /// given.
    pub listen: Vec<ListenAt>,
    /// Empty folder in which the namespaces appear as files, by FUSE.
    pub fuse: Option<PathBuf>,
    /// Socket to create for vfio-user.
    pub vfio_user: Option<PathBuf>,
    /// Address of the operators' HTTP server.
    pub http: Option<SocketAddr>,
    /// File of the token that HTTP verbs need. Required for addresses other than loopback; only
    /// with `http`.
    pub http_token: Option<PathBuf>,
    /// Address that discovery announces to hosts, where it differs from `listen`.
    pub advertise: Option<Advertised>,
    /// Memory for the buffers of NVMe/TCP connections, in bytes, at least
    /// [`MEMORY_BYTES_MIN`](remap_ssd_nvme::tcp::server::MEMORY_BYTES_MIN).
    pub memory_limit: u64,
    /// Take a listening socket from the program's supervisor (`LISTEN_FDS`), and notify it
    /// (`NOTIFY_SOCKET`), as systemd expects of a service. Open it once, before other threads
    /// start.
    pub supervised: bool,

    /// File of the keys that hosts must prove.
    pub keys: Option<PathBuf>,
    /// The only hosts to accept: an address, a network, a DNS name or an NQN, and
    /// ` namespaces=1:rw,2:ro` after it if not all. If empty, all.
    pub allow: Vec<String>,
    /// Listen on addresses other than loopback without keys; not with `keys`.
    pub insecure: bool,

    /// When commands complete.
    pub latency: Latency,
    /// New file to record all commands in.
    pub record: Option<PathBuf>,
    /// Size of a volatile write cache in bytes, at least
    /// [`CACHE_BYTES_MIN`](remap_ssd_nvme::controller::CACHE_BYTES_MIN).
    pub volatile_cache: Option<u64>,
    /// Seed for the losses of that cache in [`Handle::cut_power`](crate::Handle::cut_power); a
    /// random one otherwise. Only with `volatile_cache`: a device's own volatile write buffer is lost as a whole.
    pub cut_seed: Option<u64>,
    /// Log level that operators can read and change over HTTP.
    pub log: Arc<dyn LogLevel>,
}

impl Spec {
    /// Checks the fields that would have no effect, or another effect than requested.
    ///
    /// # Errors
    /// The first of them.
    pub(crate) fn check(&self) -> Result<(), ServiceError> {
        let wrong = [
            (
                self.http_token.is_some() && self.http.is_none(),
                "--http-token: only with --http".to_owned(),
            ),
            (
                self.insecure && self.keys.is_some(),
                "--insecure: not with --keys".to_owned(),
            ),
            (
                self.cut_seed.is_some() && self.volatile_cache.is_none(),
                "--cut-seed: only with --volatile-cache".to_owned(),
            ),
            (
                self.memory_limit < MEMORY_BYTES_MIN as u64,
                format!("--memory-limit: at least {} MiB", MEMORY_BYTES_MIN >> 20),
            ),
            (
                self.volatile_cache
                    .is_some_and(|bytes| bytes < CACHE_BYTES_MIN),
                format!("--volatile-cache: at least {} KiB", CACHE_BYTES_MIN >> 10),
            ),
        ];
        match wrong.into_iter().find(|(is_wrong, _)| *is_wrong) {
            Some((_, why)) => Err(ServiceError::Usage(why)),
            None => Ok(()),
        }
    }

    /// Checks the fields that would have no effect without NVMe/TCP.
    ///
    /// # Errors
    /// The first of them.
    pub(crate) fn check_without_tcp(&self) -> Result<(), ServiceError> {
        let given = [
            (self.advertise.is_some(), "--advertise"),
            (self.keys.is_some(), "--keys"),
            (!self.allow.is_empty(), "--allow"),
            (self.insecure, "--insecure"),
        ];
        match given.into_iter().find(|(is_given, _)| *is_given) {
            Some((_, option)) => Err(ServiceError::usage(format_args!(
                "{option}: only with NVMe/TCP (--listen)"
            ))),
            None => Ok(()),
        }
    }

    /// Serves the image in a folder.
    pub fn image(dir: impl Into<PathBuf>) -> Self {
        Self::of(Backing::Image(dir.into()))
    }

    /// Serves a new device in memory, of this many bytes.
    pub fn memory(bytes: u64) -> Self {
        Self::of(Backing::Memory(bytes))
    }

    /// Serves a device with all defaults: NVMe/TCP on the loopback, at full speed.
    pub(crate) fn of(backing: Backing) -> Self {
        Self {
            backing,
            shape: Shape::default(),
            listen: Vec::new(),
            fuse: None,
            vfio_user: None,
            http: None,
            http_token: None,
            advertise: None,
            memory_limit: MEMORY_BYTES_DEFAULT as u64,
            supervised: false,
            keys: None,
            allow: Vec::new(),
            insecure: false,
            latency: Latency::None,
            record: None,
            volatile_cache: None,
            cut_seed: None,
            log: Arc::new(()),
        }
    }
}
