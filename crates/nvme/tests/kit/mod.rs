//! A server on the loopback for one test.

#![allow(dead_code)]

#[path = "../../../media/tests/kit/numbers.rs"]
pub mod numbers;
pub mod raw;
pub mod specified;

use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_nvme::auth::{Hash, Keyring, Keys, Secret};
use remap_ssd_nvme::controller::{NamespaceSpec, Rights, Subsystem};
use remap_ssd_nvme::tcp::client::{Client, Options};
use remap_ssd_nvme::tcp::roster::Roster;
use remap_ssd_nvme::tcp::server::{ConnectionLabel, Limits, Log, Server, Stopper};
use remap_ssd_nvme::tcp::target::{Allowed, AllowedHost, Port, Who};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub const NQN: &str = "nqn.2026-11.test:remap-ssd";

/// Log lines of a server.
#[derive(Clone, Default)]
pub struct Lines(pub Arc<Mutex<Vec<String>>>);

impl Log for Lines {
    fn connection(&self, connection: &ConnectionLabel<'_>, text: &str) {
        let line = format!("{text} {connection}");
        self.0.lock().expect("nothing fails here").push(line);
    }
    fn server(&self, text: &str) {
        self.0.lock().expect("nothing fails here").push(text.into());
    }
}

/// A secret of 32 ascending bytes.
pub fn secret(first: u8) -> Secret {
    let bytes: Vec<u8> = (first..first + 32).collect();
    Secret::new(Some(Hash::Sha256), &bytes).expect("a length that goes with the hash")
}

/// A keyring with these lines.
pub fn keyring(text: &str) -> Arc<Keyring> {
    Arc::new(Keyring::new(Keys::parse(text).expect("lines in order")))
}

/// A list of hosts by name, with their rights.
pub fn allowed(hosts: &[(&str, &str)]) -> Allowed {
    let host = |(name, rights): &(&str, &str)| AllowedHost {
        who: Who::Name((*name).into()),
        rights: Rights::parse(rights).expect("rights"),
    };
    Allowed {
        anybody: false,
        hosts: hosts.iter().map(host).collect(),
    }
}

pub struct Rig {
    pub address: SocketAddr,
    /// All addresses it listens on.
    pub addresses: Vec<SocketAddr>,
    pub lines: Lines,
    pub subsystem: Arc<Subsystem>,
    pub port: Arc<Port>,
    pub roster: Arc<Roster>,
    stopper: Stopper,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

pub fn device(bytes: u64, dedup: bool) -> Device {
    Device::format(DeviceConfig::for_service(bytes, SchemeKind::RemapSsd, dedup).expect("possible"))
        .expect("possible")
}

/// A subsystem over a device.
pub fn subsystem(device: Device, namespaces: &[NamespaceSpec]) -> Subsystem {
    Subsystem::new(device, NQN, namespaces).expect("possible")
}

/// A server that has not started yet: without options, for every host, on one free port.
pub struct Setup {
    subsystem: Subsystem,
    addresses: Vec<SocketAddr>,
    limits: Limits,
    keyring: Option<Arc<Keyring>>,
    allowed: Allowed,
}

impl Setup {
    pub fn of(subsystem: Subsystem) -> Self {
        Self {
            subsystem,
            addresses: vec![(Ipv4Addr::LOCALHOST, 0).into()],
            limits: Limits::default(),
            keyring: None,
            allowed: Allowed {
                anybody: true,
                ..Allowed::default()
            },
        }
    }

    pub fn limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Only for hosts with these keys.
    pub fn keyring(self, keyring: &Arc<Keyring>) -> Self {
        let keyring = Some(keyring.clone());
        Self { keyring, ..self }
    }

    /// Only for hosts on a list, by name, with their rights.
    pub fn hosts(self, hosts: &[(&str, &str)]) -> Self {
        let allowed = allowed(hosts);
        Self { allowed, ..self }
    }

    /// At these addresses, each of which is a portal.
    pub fn at(self, addresses: Vec<SocketAddr>) -> Self {
        Self { addresses, ..self }
    }

    pub fn start(self) -> Rig {
        let subsystem = Arc::new(self.subsystem);
        let port = Port::new(subsystem.clone(), self.allowed).authenticated(self.keyring);
        let lines = Lines::default();
        let log = Box::new(lines.clone());
        let server = Server::bind_since(Instant::now(), &self.addresses, port, log, self.limits)
            .expect("a free port");
        let (addresses, stopper) = (
            server.addresses().expect("bound"),
            server.stopper().expect("bound"),
        );
        let (port, roster) = (server.port(), server.roster());
        let thread = Some(std::thread::spawn(|| server.run()));
        Rig {
            address: addresses[0],
            addresses,
            lines,
            subsystem,
            port,
            roster,
            stopper,
            thread,
        }
    }
}

impl Rig {
    pub fn new() -> Self {
        Self::with(device(32 << 20, false), &[])
    }

    pub fn with(device: Device, namespaces: &[NamespaceSpec]) -> Self {
        Self::of(subsystem(device, namespaces))
    }

    pub fn of(subsystem: Subsystem) -> Self {
        Setup::of(subsystem).start()
    }

    pub fn limited(limits: Limits) -> Self {
        let subsystem = subsystem(device(32 << 20, false), &[]);
        Setup::of(subsystem).limits(limits).start()
    }

    /// Only for hosts with these keys.
    pub fn guarded(keyring: &Arc<Keyring>, limits: Limits) -> Self {
        let subsystem = subsystem(device(32 << 20, false), &[]);
        let setup = Setup::of(subsystem).limits(limits);
        setup.keyring(keyring).start()
    }

    /// With this number of portals.
    pub fn with_portals(count: usize) -> Self {
        let subsystem = subsystem(device(32 << 20, false), &[]);
        let addresses = vec![(Ipv4Addr::LOCALHOST, 0).into(); count];
        Setup::of(subsystem).at(addresses).start()
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address, Options::default()).expect("it listens")
    }

    /// A client of a namespace.
    pub fn client_of(&self, nsid: u32) -> Client {
        let options = Options {
            nsid,
            ..Options::default()
        };
        Client::connect(self.address, options).expect("it listens")
    }

    /// Returns true if a line of the log contains all of these parts.
    pub fn has_logged(&self, parts: &[&str]) -> bool {
        let lines = self.lines.0.lock().expect("nothing fails here");
        let has = |line: &String| parts.iter().all(|part| line.contains(part));
        lines.iter().any(has)
    }

    /// Waits for a line of the log that contains all of these parts.
    pub fn logged(&self, parts: &[&str]) {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let lines = self.lines.0.lock().expect("nothing fails here").clone();
            if lines
                .iter()
                .any(|line| parts.iter().all(|part| line.contains(part)))
            {
                return;
            }
            assert!(Instant::now() < until, "{parts:?} in {lines:#?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends the service, which must not have failed; so does the end of a test.
    pub fn stop(self) {}

    /// Ends a service whose device has failed; returns the reason.
    pub fn failed(mut self) -> std::io::Error {
        self.stopper.stop();
        let ended = self.thread.take().expect("running").join();
        let ended = ended.expect("no thread panicked");
        ended.expect_err("the device has failed")
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        self.stopper.stop();
        let ended = thread.join();
        // A test that fails has its own message.
        if !std::thread::panicking() {
            ended
                .expect("no thread panicked")
                .expect("the device works");
        }
    }
}
