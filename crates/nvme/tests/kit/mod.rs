//! A server on the loopback for one test.

#![allow(dead_code)]

#[path = "../../../media/tests/kit/numbers.rs"]
pub mod numbers;
pub mod raw;
pub mod specified;

use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_nvme::auth::{Hash, Keyring, Keys, Secret};
use remap_ssd_nvme::controller::{Health, Latency, NamespaceSpec, Rights, Subsystem};
use remap_ssd_nvme::tcp::client::{Client, Options};
use remap_ssd_nvme::tcp::roster::Roster;
use remap_ssd_nvme::tcp::server::{ConnectionLabel, Limits, Log, Server, Stopper};
use remap_ssd_nvme::tcp::target::{Allowed, AllowedHost, Port, Who};
use std::net::SocketAddr;
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

fn anybody() -> Allowed {
    Allowed {
        anybody: true,
        ..Allowed::default()
    }
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

impl Rig {
    pub fn with(device: Device, namespaces: &[NamespaceSpec], latency: Latency) -> Self {
        Self::limited(device, namespaces, latency, Limits::default())
    }

    pub fn limited(
        device: Device,
        namespaces: &[NamespaceSpec],
        latency: Latency,
        limits: Limits,
    ) -> Self {
        let subsystem = Subsystem::new(device, NQN, namespaces, latency, true, Health::default())
            .expect("possible");
        Self::serving(
            "127.0.0.1:0".parse().expect("an address"),
            subsystem,
            limits,
        )
    }

    /// With a volatile write cache of `bytes` bytes.
    pub fn caching(device: Device, bytes: u64) -> Self {
        let subsystem = Subsystem::new(device, NQN, &[], Latency::None, false, Health::default())
            .expect("possible");
        Self::serving(
            "127.0.0.1:0".parse().expect("an address"),
            subsystem.with_cache(bytes),
            Limits::default(),
        )
    }

    /// At a given address, with identifiers of one incarnation.
    pub fn at(address: SocketAddr, device: Device, incarnation: u64) -> Self {
        let subsystem = Subsystem::new(device, NQN, &[], Latency::None, true, Health::default())
            .expect("possible");
        Self::serving(
            address,
            subsystem.of_incarnation(incarnation),
            Limits::default(),
        )
    }

    /// Only for hosts with these keys.
    pub fn guarded(keyring: &Arc<Keyring>, limits: Limits) -> Self {
        Self::guarding(device(32 << 20, false), Latency::None, keyring, limits)
    }

    /// Like `guarded`, with another device.
    pub fn guarding(
        device: Device,
        latency: Latency,
        keyring: &Arc<Keyring>,
        limits: Limits,
    ) -> Self {
        let subsystem =
            Subsystem::new(device, NQN, &[], latency, true, Health::default()).expect("possible");
        let address = "127.0.0.1:0".parse().expect("an address");
        Self::serving_to(address, subsystem, limits, Some(keyring.clone()), anybody())
    }

    /// For hosts on a list, by name, with their rights.
    pub fn listing(device: Device, namespaces: &[NamespaceSpec], hosts: &[(&str, &str)]) -> Self {
        let subsystem = Subsystem::new(
            device,
            NQN,
            namespaces,
            Latency::None,
            true,
            Health::default(),
        )
        .expect("possible");
        let address = "127.0.0.1:0".parse().expect("an address");
        Self::serving_to(address, subsystem, Limits::default(), None, allowed(hosts))
    }

    /// Serves the caller's subsystem, for hosts on a list.
    pub fn of_listing(subsystem: Subsystem, hosts: &[(&str, &str)]) -> Self {
        let address = "127.0.0.1:0".parse().expect("an address");
        Self::serving_to(address, subsystem, Limits::default(), None, allowed(hosts))
    }

    /// Like `of_listing`, with limits.
    pub fn of_listing_within(subsystem: Subsystem, hosts: &[(&str, &str)], limits: Limits) -> Self {
        let address = "127.0.0.1:0".parse().expect("an address");
        Self::serving_to(address, subsystem, limits, None, allowed(hosts))
    }

    /// Serves the caller's subsystem.
    pub fn of(subsystem: Subsystem) -> Self {
        let address = "127.0.0.1:0".parse().expect("an address");
        Self::serving(address, subsystem, Limits::default())
    }

    /// With `count` portals.
    pub fn with_portals(count: usize) -> Self {
        let device = device(32 << 20, false);
        let subsystem = Subsystem::new(device, NQN, &[], Latency::None, true, Health::default())
            .expect("possible");
        let addresses = vec!["127.0.0.1:0".parse().expect("an address"); count];
        Self::serving_at(&addresses, subsystem, Limits::default(), None, anybody())
    }

    pub fn serving(address: SocketAddr, subsystem: Subsystem, limits: Limits) -> Self {
        Self::serving_to(address, subsystem, limits, None, anybody())
    }

    fn serving_to(
        address: SocketAddr,
        subsystem: Subsystem,
        limits: Limits,
        keyring: Option<Arc<Keyring>>,
        allowed: Allowed,
    ) -> Self {
        Self::serving_at(&[address], subsystem, limits, keyring, allowed)
    }

    fn serving_at(
        addresses: &[SocketAddr],
        subsystem: Subsystem,
        limits: Limits,
        keyring: Option<Arc<Keyring>>,
        allowed: Allowed,
    ) -> Self {
        let subsystem = Arc::new(subsystem);
        let port = Port::new(subsystem.clone(), allowed).authenticated(keyring);
        let lines = Lines::default();
        let log = Box::new(lines.clone());
        let server =
            Server::bind_since(Instant::now(), addresses, port, log, limits).expect("a free port");
        let (addresses, stopper) = (
            server.addresses().expect("bound"),
            server.stopper().expect("bound"),
        );
        let (port, roster) = (server.port(), server.roster());
        let thread = Some(std::thread::spawn(|| server.run()));
        Self {
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

    pub fn new() -> Self {
        Self::with(device(32 << 20, false), &[], Latency::None)
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address, Options::default()).expect("it listens")
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

    /// Ends the service, which must not have failed.
    pub fn stop(mut self) {
        self.stopper.stop();
        self.thread
            .take()
            .expect("running")
            .join()
            .expect("no thread panicked")
            .expect("the device works");
    }
}
