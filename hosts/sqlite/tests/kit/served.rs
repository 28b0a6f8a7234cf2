//! A device in memory, served by this process.

use super::disks::config;
use super::engine::{Db, Failure};
use remap_ssd_device::Device;
use remap_ssd_nvme::controller::Subsystem;
use remap_ssd_nvme::tcp::client::{Client, Options};
use remap_ssd_nvme::tcp::roster::Roster;
use remap_ssd_nvme::tcp::server::{ConnectionLabel, Log, Server, Stopper};
use remap_ssd_nvme::tcp::target::{Allowed, Port};
use remap_ssd_store::{NewVolume, Processes, Volume};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

/// A port that is free.
pub const ANY_PORT: &str = "127.0.0.1:0";

struct Quiet;

impl Log for Quiet {
    fn connection(&self, _: &ConnectionLabel<'_>, _: &str) {}
    fn server(&self, _: &str) {}
}

/// A served device, which can be taken offline.
pub struct Served {
    /// Its name. Processes that use volumes would take devices of the same name for one.
    pub nqn: String,
    pub address: SocketAddr,
    subsystem: Arc<Subsystem>,
    server: Option<Running>,
}

struct Running {
    roster: Arc<Roster>,
    stopper: Stopper,
    thread: JoinHandle<()>,
}

impl Served {
    pub fn new(address: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let nqn = format!("nqn.2026-11.test:remap-ssd:{}:{number}", std::process::id());
        let device = Device::in_memory(config()).expect("room for it");
        let subsystem = Subsystem::new(device, &nqn, &[]);

        let mut served = Self {
            nqn,
            address: address.parse().expect("an address"),
            subsystem: Arc::new(subsystem.expect("possible")),
            server: None,
        };
        served.begin();
        served
    }

    pub fn with_volume(address: &str) -> Self {
        let served = Self::new(address);
        let new = NewVolume::default();
        Volume::create(served.disk(), &Processes::local(), &new, &mut |_, _| {})
            .expect("it is blank");
        served
    }

    /// Listens, at the same address as before.
    pub fn begin(&mut self) {
        let allowed = Allowed {
            anybody: true,
            ..Allowed::default()
        };
        let port = Port::new(Arc::clone(&self.subsystem), allowed);
        let server = Server::bind(self.address, port, Box::new(Quiet)).expect("a free port");
        self.address = server.address().expect("it is bound");
        self.server = Some(Running {
            roster: server.roster(),
            stopper: server.stopper().expect("it is bound"),
            thread: std::thread::spawn(|| server.run().expect("the device works")),
        });
    }

    /// Ends all connections and stops listening.
    pub fn end(&mut self) {
        if let Some(server) = self.server.take() {
            server.stopper.stop();
            server.thread.join().expect("it ends");
        }
    }

    /// The connections to it.
    pub fn roster(&self) -> &Roster {
        &self.server.as_ref().expect("it listens").roster
    }

    pub fn disk(&self) -> Client {
        Client::connect(self.address, Options::default()).expect("it serves")
    }

    pub fn uri(&self) -> String {
        format!("file:app.db?vfs=remap&device={}", self.address)
    }

    pub fn open(&self) -> Result<Db, Failure> {
        Db::open(&self.uri())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.end();
    }
}
