//! A device, its server and a client, all in this process; the image goes when they do.

use super::watchers::{Watchers, Watching};
use crate::failure::Failure;
use crate::service::writeback::Writeback;
use remap_ssd_device::{Device, DeviceConfig, Setting};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_nvme::auth::{Credentials, Hash, HostKeys, Keyring, Keys, Secret, TlsKey};
use remap_ssd_nvme::controller::{Health, Latency, Subsystem};
use remap_ssd_nvme::tcp::client::{Client, Options};
use remap_ssd_nvme::tcp::server::{ConnectionLabel, Log, Server, Stopper};
use remap_ssd_nvme::tcp::target::{Allowed, Port};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-00000062656e";

/// What hosts must prove before they are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protection {
    /// They connect by TLS, with a key of theirs.
    pub tls: bool,
    /// They authenticate by DH-HMAC-CHAP, with a secret of theirs.
    pub chap: bool,
}

impl Protection {
    /// What a host of ours knows, and the server's keys; none of both if nothing is to be proven.
    fn keys(self, hostnqn: &str) -> (HostKeys, Option<Arc<Keyring>>) {
        // Fixed keys: nobody but this process can connect.
        let secret = Secret::new(Some(Hash::Sha256), &[1; 32]).expect("32 bytes for SHA-256");
        let tls = TlsKey::new(Some(Hash::Sha256), &[2; 32]).expect("32 bytes for SHA-256");

        // The same text as in a file of keys, so that the bench goes the way that a service goes.
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

/// What is served: which device, protected by what.
#[derive(Clone, Copy, Debug)]
pub struct Served<'a> {
    /// Size of the device in bytes.
    pub bytes: u64,
    /// Whether the device deduplicates what is written.
    pub dedup: bool,
    /// When completions are due: at once, or as on flash.
    pub latency: Latency,
    /// Where its image is; in memory if nowhere.
    pub dir: Option<&'a Path>,
    /// What hosts must prove before they are served.
    pub protection: Protection,
    /// Who looks at it meanwhile.
    pub watching: Watching,
    /// What is otherwise than in a device made for service.
    pub set: &'a [Setting],
}

struct Quiet;

impl Log for Quiet {
    fn connection(&self, _: &ConnectionLabel<'_>, _: &str) {}
    fn server(&self, _: &str) {}
}

/// A served device, with a host that is connected to it.
pub struct Rig {
    /// The host that is connected to it.
    pub client: Client,
    address: SocketAddr,
    options: Options,
    /// What the device was made from.
    pub config: DeviceConfig,
    watchers: Option<Watchers>,
    stopper: Stopper,
    server: Option<JoinHandle<std::io::Result<()>>>,
    _writeback: Option<Writeback>,
    _image: Option<TempDir>,
}

impl Rig {
    /// Makes a device and serves it.
    ///
    /// # Errors
    /// It cannot be, or there is no room for it.
    pub fn new(served: &Served<'_>) -> Result<Self, Failure> {
        let config = DeviceConfig::for_service(served.bytes, SchemeKind::default(), served.dedup)
            .and_then(|config| config.with(served.set))
            .map_err(Failure::usage)?;
        config.check().map_err(Failure::usage)?;

        // The image goes with this value.
        let image = match served.dir {
            Some(dir) => {
                let made = tempfile::Builder::new()
                    .prefix("remap-ssd-bench-")
                    .tempdir_in(dir);
                Some(made.map_err(|error| Failure::about(dir.display(), error))?)
            }
            None => None,
        };
        let device = match &image {
            Some(dir) => Device::create_in_folder(dir.path(), config.clone(), None)
                .map_err(Failure::failed)?,
            None => Device::in_memory(config.clone()).map_err(Failure::failed)?,
        };

        let subsystem = Subsystem::new(
            device,
            NQN,
            &[],
            served.latency,
            image.is_some(),
            Health::default(),
        );
        let subsystem = Arc::new(subsystem.map_err(Failure::failed)?);
        let start = |dir: &TempDir| Writeback::start(dir.path(), Arc::downgrade(&subsystem));
        let writeback = image.as_ref().map(start).transpose()?;

        let options = Options {
            subnqn: Some(NQN.into()),
            ..Options::default()
        };
        let (known, keyring) = served.protection.keys(&options.hostnqn);
        let options = options.with_keys(known);
        let port = Port::new(
            subsystem.clone(),
            Allowed {
                anybody: true,
                ..Allowed::default()
            },
        )
        .authenticated(keyring);
        let server = Server::bind((Ipv4Addr::LOCALHOST, 0).into(), port, Box::new(Quiet))
            .map_err(Failure::failed)?;
        let (address, stopper) = (
            server.address().map_err(Failure::failed)?,
            server.stopper().map_err(Failure::failed)?,
        );
        let roster = server.roster();
        let watchers = Watchers::start(served.watching, &subsystem, roster, Instant::now())?;
        let server = Some(std::thread::spawn(|| server.run()));

        // Last, so that a failure before leaves no connection.
        let client = Client::connect(address, options.clone()).map_err(Failure::failed)?;
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

impl Rig {
    /// How long another host takes to connect, both queues.
    ///
    /// # Errors
    /// It cannot connect.
    pub fn connecting(&self) -> Result<Duration, Failure> {
        let began = Instant::now();
        let client = Client::connect(self.address, self.options.clone());
        let took = began.elapsed();
        client.map(|_| took).map_err(Failure::failed)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // Before the server stops: they look at its device for as long as they live.
        drop(self.watchers.take());
        self.stopper.stop();
        // What it failed with, its clients have been told.
        let _ = self.server.take().map(JoinHandle::join);
    }
}
