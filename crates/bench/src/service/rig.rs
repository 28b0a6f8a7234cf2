//! A device, its server and a client, all in this process; the image is temporary.

use super::watchers::{Watchers, Watching};
use crate::BenchError;
use remap_ssd_device::{Device, DeviceConfig, Setting};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_nvme::auth::{Credentials, Hash, HostKeys, Keyring, Keys, Secret, TlsKey};
use remap_ssd_nvme::controller::{Latency, Subsystem};
use remap_ssd_nvme::tcp::client::{Client, Options};
use remap_ssd_nvme::tcp::server::{ConnectionLabel, Log, Server, Stopper};
use remap_ssd_nvme::tcp::target::{Allowed, Port};
use remap_ssd_service::Writeback;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-00000062656e";

/// Proofs required of hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Protection {
    /// They connect with TLS, with their own key.
    pub tls: bool,
    /// They authenticate with DH-HMAC-CHAP, with their own secret.
    pub chap: bool,
}

impl Protection {
    /// Keys of our host, and the server's keys; neither if no proof is required.
    fn keys(self, hostnqn: &str) -> (HostKeys, Option<Arc<Keyring>>) {
        // Fixed keys: only this process can connect.
        let secret = Secret::new(Some(Hash::Sha256), &[1; 32]).expect("32 bytes for SHA-256");
        let tls = TlsKey::new(Some(Hash::Sha256), &[2; 32]).expect("32 bytes for SHA-256");

        // The text of a file of keys, so that the bench uses the same path as a service.
        let mut line = hostnqn.to_owned();
        let mut known = HostKeys::default();
        if self.tls {
            line.push_str(&format!(" {}", *tls.reveal()));
            known.tls = Some(Arc::new(tls));
        }
        if self.chap {
            line.push_str(&format!(" {}", *secret.reveal()));
            known.credentials = Some(Arc::new(Credentials {
                host: secret,
                controller: None,
            }));
        }
        let keys = (self != Self::default()).then(|| Keys::parse(&line).expect("a line in order"));
        (known, keys.map(|keys| Arc::new(Keyring::new(keys))))
    }
}

/// The served device and its protection.
#[derive(Clone, Copy)]
pub(crate) struct Served<'a> {
    /// Size of the device in bytes.
    pub bytes: u64,
    /// True if the device deduplicates writes.
    pub dedup: bool,
    /// Completion of commands: at once, or with flash latencies.
    pub latency: Latency,
    /// Folder of its image; in memory if none.
    pub dir: Option<&'a Path>,
    /// Proofs required of hosts.
    pub protection: Protection,
    /// Observers during the measurement.
    pub watching: Watching,
    /// Settings other than those of a normal served device.
    pub set: &'a [Setting],
}

struct Quiet;

impl Log for Quiet {
    fn connection(&self, _: &ConnectionLabel<'_>, _: &str) {}
    fn server(&self, _: &str) {}
}

/// A served device, with a connected host.
pub(crate) struct Rig {
    /// The connected host.
    pub client: Client,
    address: SocketAddr,
    options: Options,
    /// Configuration of the device.
    pub config: DeviceConfig,
    watchers: Option<Watchers>,
    stopper: Stopper,
    server: Option<JoinHandle<std::io::Result<()>>>,
    _writeback: Option<Writeback>,
    _image: Option<TempDir>,
}

impl Rig {
    /// Creates a device and serves it.
    ///
    /// # Errors
    /// An impossible device, or no room for it.
    pub(crate) fn new(served: &Served<'_>) -> Result<Self, BenchError> {
        let config = DeviceConfig::for_service(served.bytes, SchemeKind::default(), served.dedup)
            .and_then(|config| config.with(served.set))
            .map_err(BenchError::impossible)?;
        config.check().map_err(BenchError::impossible)?;

        let image = served.dir.map(folder_in).transpose()?;
        let device = match &image {
            Some(dir) => Device::create_in_folder(dir.path(), config.clone(), None)
                .map_err(BenchError::failed)?,
            None => Device::in_memory(config.clone()).map_err(BenchError::failed)?,
        };

        let mut subsystem = Subsystem::new(device, NQN, &[]).map_err(BenchError::failed)?;
        subsystem.set_latency(served.latency);
        if image.is_none() {
            subsystem = subsystem.in_memory();
        }
        let subsystem = Arc::new(subsystem);
        let start = |dir: &TempDir| Writeback::start(dir.path(), Arc::downgrade(&subsystem));
        let writeback = image.as_ref().map(start).transpose();
        let writeback = writeback.map_err(BenchError::failed)?;

        let options = Options {
            subnqn: Some(NQN.into()),
            ..Options::default()
        };
        let (known, keyring) = served.protection.keys(&options.hostnqn);
        let options = options.with_keys(known);
        let allowed = Allowed {
            anybody: true,
            ..Allowed::default()
        };
        let port = Port::new(subsystem.clone(), allowed).authenticated(keyring);
        let server = Server::bind((Ipv4Addr::LOCALHOST, 0).into(), port, Box::new(Quiet))
            .map_err(BenchError::failed)?;
        let (address, stopper) = (
            server.address().map_err(BenchError::failed)?,
            server.stopper().map_err(BenchError::failed)?,
        );
        let roster = server.roster();
        let watchers = Watchers::start(served.watching, &subsystem, Instant::now(), roster)?;
        let server = Some(std::thread::spawn(|| server.run()));

        // Last, so that an earlier error leaves no connection.
        let client = Client::connect(address, options.clone()).map_err(BenchError::failed)?;
        Ok(Self {
            client,
            address,
            options,
            config,
            watchers,
            stopper,
            server,
            _writeback: writeback,
            _image: image,
        })
    }
}

/// A folder that is removed with this value.
fn folder_in(dir: &Path) -> Result<TempDir, BenchError> {
    tempfile::Builder::new()
        .prefix("remap-ssd-bench-")
        .tempdir_in(dir)
        .map_err(|error| BenchError::failed(format_args!("{}: {error}", dir.display())))
}

impl Rig {
    /// Time to connect another host with both queues.
    ///
    /// # Errors
    /// It cannot connect.
    pub(crate) fn connecting(&self) -> Result<Duration, BenchError> {
        let began = Instant::now();
        let client = Client::connect(self.address, self.options.clone());
        let took = began.elapsed();
        client.map(|_| took).map_err(BenchError::failed)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // Before the server stops: they read its device until they are dropped.
        drop(self.watchers.take());
        self.stopper.stop();
        // Its clients have already received the error.
        let _ = self.server.take().map(JoinHandle::join);
    }
}
