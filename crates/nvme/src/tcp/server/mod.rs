//! Sockets, threads and the clock around the target.
//!
//! ```text
//! half_open  connections without a queue, or not authenticated
//! session    one connection's thread
//! deadlines  waits of a connection, and their deadlines
//! socket     socket options, and waiting
//! wake       wakes a thread that waits for its socket
//! log        log lines at a bounded rate
//! ```
//! One thread per connection. Invariants: a host that has not connected a queue, or has not
//! authenticated where it must, is half open: it gets a small buffer and little time; with TLS,
//! decrypted plaintext counts as arrived; connections and their memory are bounded, per host and in
//! total. A host is declared silent only after everything it has sent was processed. Refusals and
//! drops are logged with the reason. Absent: the text of log lines (`wording`).

mod deadlines;
mod half_open;
mod log;
mod session;
mod socket;
mod wake;

pub use super::limits::{Limits, MEMORY_BYTES_DEFAULT, MEMORY_BYTES_MIN};
pub use log::{ConnectionLabel, Log};

use super::entrance::Entrance;
use super::roster::Roster;
use super::target::{Port, canonical};
use crate::Escaped;
use crate::spec::fabrics::DISCOVERY_NQN;
use deadlines::TICK;
use half_open::{HalfOpen, HalfOpenConnections};
use log::RateLimitedLog;
use std::io;
use std::net::{Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Time for commands in progress when the service ends.
const FINISH_WITHIN: Duration = Duration::from_secs(3);

/// A server that listens for hosts and serves them.
pub struct Server {
    /// Never empty: a server listens on at least one address.
    listeners: Vec<TcpListener>,
    shared: Arc<ServerState>,
}

/// State shared by all threads of a server.
struct ServerState {
    port: Arc<Port>,
    limits: Limits,
    log: RateLimitedLog,
    stop: AtomicBool,
    /// Times are counted from here.
    epoch: Instant,
    threads: AtomicUsize,
    /// Number of connections accepted; gives each its number.
    accepted: AtomicU64,
    roster: Arc<Roster>,
    half_open: HalfOpenConnections,
    /// For connections that begin with TLS; `None` without keys.
    entrance: Option<Entrance>,
}

/// Stops a server, from any thread.
#[derive(Clone)]
pub struct Stopper(Arc<ServerState>, Vec<SocketAddr>);

impl Stopper {
    /// Stops accepting connections; commands in progress are finished.
    pub fn stop(&self) {
        self.0.stop.store(true, Ordering::SeqCst);
        // Wakes the listeners.
        for address in &self.1 {
            let _ = TcpStream::connect_timeout(address, Duration::from_millis(200));
        }
    }
}

impl Server {
    /// Listens on an address; connections are served by `run`.
    ///
    /// # Errors
    /// The address is in use, or the system's reason.
    pub fn bind(address: SocketAddr, port: Port, log: Box<dyn Log>) -> io::Result<Self> {
        Self::on(
            Instant::now(),
            bound(&[address])?,
            port,
            log,
            Limits::default(),
        )
    }

    /// Like `bind`, with other limits, on several addresses, with times counted from `epoch`: all services of a
    /// device share one clock.
    ///
    /// # Errors
    /// As `bind`; the message begins with the address.
    pub fn bind_since(
        epoch: Instant,
        addresses: &[SocketAddr],
        port: Port,
        log: Box<dyn Log>,
        limits: Limits,
    ) -> io::Result<Self> {
        Self::on(epoch, bound(addresses)?, port, log, limits)
    }

    /// Uses listening, blocking sockets, with times counted from `epoch`.
    ///
    /// # Errors
    /// There is no socket, or OpenSSL cannot be initialized.
    pub fn on(
        epoch: Instant,
        listeners: Vec<TcpListener>,
        port: Port,
        log: Box<dyn Log>,
        limits: Limits,
    ) -> io::Result<Self> {
        if listeners.is_empty() {
            return Err(io::Error::other("there is no address to listen on"));
        }

        // Portals are known before the first connection, so that discovery lists them all.
        for listener in &listeners {
            port.subsystem()
                .add_portal(canonical(listener.local_addr()?));
        }
        let subsystems = || vec![port.subsystem().nqn().to_owned(), DISCOVERY_NQN.to_owned()];
        let entrance = port
            .keyring()
            .map(|keyring| Entrance::new(keyring.clone(), subsystems()))
            .transpose()?;

        let shared = ServerState {
            port: Arc::new(port.shared(limits.shares())),
            half_open: HalfOpenConnections::new(limits.half_open),
            limits,
            log: RateLimitedLog::new(log),
            stop: AtomicBool::new(false),
            epoch,
            threads: AtomicUsize::new(0),
            accepted: AtomicU64::new(0),
            roster: Arc::default(),
            entrance,
        };

        Ok(Self {
            listeners,
            shared: Arc::new(shared),
        })
    }

    /// The address it listens on, or the first of several.
    ///
    /// # Errors
    /// The system's reason.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listeners[0].local_addr()
    }

    /// All addresses it listens on.
    ///
    /// # Errors
    /// The system's reason.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.listeners.iter().map(TcpListener::local_addr).collect()
    }

    /// State shared by all its connections, including access rules.
    pub fn port(&self) -> Arc<Port> {
        self.shared.port.clone()
    }

    /// Connected hosts, and refusals.
    pub fn roster(&self) -> Arc<Roster> {
        self.shared.roster.clone()
    }

    /// A handle to stop it.
    ///
    /// # Errors
    /// The system's reason.
    pub fn stopper(&self) -> io::Result<Stopper> {
        let mut addresses = self.addresses()?;
        // A socket that listens on any address cannot be connected to by that address: use loopback
        // to wake it.
        for address in &mut addresses {
            if address.ip().is_unspecified() {
                address.set_ip(if address.is_ipv4() {
                    [127, 0, 0, 1].into()
                } else {
                    Ipv6Addr::LOCALHOST.into()
                });
            }
        }
        Ok(Stopper(self.shared.clone(), addresses))
    }

    /// Serves until stopped; on return all connections have ended.
    ///
    /// # Errors
    /// The firmware or the disk under it has failed.
    pub fn run(self) -> io::Result<()> {
        let stopper = self.stopper()?;
        let Self { listeners, shared } = self;

        let mut others = listeners.into_iter();

        // The first listener uses the caller's thread, so that one address needs no other.
        let first = others.next().expect("there is one");
        std::thread::scope(|scope| {
            for listener in others {
                let accept = || shared.accept_all(listener, &stopper);
                let name = "nvme/tcp".to_owned();
                let spawned = std::thread::Builder::new()
                    .name(name)
                    .spawn_scoped(scope, accept);
                if let Err(error) = spawned {
                    // Stop the listeners already running, or the scope would wait for them.
                    stopper.stop();
                    return Err(error);
                }
            }
            shared.accept_all(first, &stopper);
            Ok(())
        })?;

        // Wait for threads blocked in the kernel no longer than commands may take.
        let until = Instant::now() + FINISH_WITHIN + TICK;
        while shared.threads.load(Ordering::SeqCst) > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }

        if shared.port.subsystem().is_broken() {
            Err(io::Error::other(
                "the firmware or the disk under it has failed",
            ))
        } else {
            Ok(())
        }
    }
}

/// Binds listening sockets. An error begins with its address.
fn bound(addresses: &[SocketAddr]) -> io::Result<Vec<TcpListener>> {
    let bind = |address: &SocketAddr| {
        let about = |error: io::Error| io::Error::new(error.kind(), format!("{address}: {error}"));
        TcpListener::bind(address).map_err(about)
    };
    addresses.iter().map(bind).collect()
}

/// Decrements when dropped, even by a panic.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ServerState {
    /// Accepts connections until the server is stopped or the device has failed, which then stops
    /// all addresses.
    fn accept_all(self: &Arc<Self>, listener: TcpListener, stopper: &Stopper) {
        while !self.stop.load(Ordering::SeqCst) {
            let (stream, peer) = match listener.accept() {
                Ok((stream, peer)) => (stream, canonical(peer)),
                Err(error) => {
                    // For example, no file descriptors are left: the listener itself still works.
                    self.log.cannot_accept(self.now(), &error);
                    std::thread::sleep(Duration::from_millis(50));
                    continue;
                }
            };

            // This may be the connection by which `stop` wakes the listener.
            if self.stop.load(Ordering::SeqCst) {
                return;
            }

            // Numbered before it is admitted, so that a refusal is logged with a number too.
            let number = self.accepted.fetch_add(1, Ordering::Relaxed) + 1;
            self.roster.accept();
            if self.admit(&stream, peer, number) {
                self.start(stream, peer, number);
            }

            // Closed, so that hosts are refused at once instead of waiting for an answer in vain.
            if self.port.subsystem().is_broken() {
                drop(listener);
                return stopper.stop();
            }
        }
    }

    fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// Decides whether an accepted connection may go on; it is then half open, and may displace an
    /// older one.
    fn admit(&self, stream: &TcpStream, peer: SocketAddr, number: u64) -> bool {
        if !self.port.allowed().address(peer.ip()) {
            self.roster.refuse("this address is not allowed");
            let label = ConnectionLabel {
                number,
                peer,
                host: None,
            };
            let text = "refused: this address is not allowed";
            self.log.notice(self.now(), "address", &label, text);
            return false;
        }

        // A second handle, so that another thread can shut the connection down.
        let handle = match stream.try_clone() {
            Ok(handle) => handle,
            Err(error) => {
                self.log.cannot_accept(self.now(), &error);
                return false;
            }
        };
        let displaced = self.half_open.add(HalfOpen {
            number,
            peer,
            host: None,
            stream: handle,
        });

        if let Some(displaced) = displaced {
            // Its own thread notices the end, and releases its resources.
            let _ = displaced.stream.shutdown(Shutdown::Both);
            self.roster.drop_one();
            let label = ConnectionLabel {
                number: displaced.number,
                peer: displaced.peer,
                host: displaced.host.as_deref().map(Escaped::name),
            };
            let text = "dropped: it had connected no queue, and others wanted its place";
            self.log.notice(self.now(), "half open", &label, text);
        }
        true
    }

    /// Starts a connection's thread.
    fn start(self: &Arc<Self>, stream: TcpStream, peer: SocketAddr, number: u64) {
        // Counted before the thread runs: a wait for all threads must include one about to start.
        self.threads.fetch_add(1, Ordering::SeqCst);
        let spawned = std::thread::Builder::new()
            .name(format!("nvme {peer}"))
            // One thread per connection, so stacks add up.
            .stack_size(512 << 10)
            .spawn({
                let shared = self.clone();
                move || {
                    let _one = Counted(&shared.threads);
                    shared.serve(stream, peer, number);
                }
            });

        if let Err(error) = spawned {
            self.threads.fetch_sub(1, Ordering::SeqCst);
            self.half_open.remove(number);
            self.log.cannot_accept(self.now(), &error);
        }
    }
}
