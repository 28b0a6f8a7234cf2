//! Sockets, threads and the clock around the target.
//!
//! ```text
//! limits     what peers may take
//! half_open  connections without a queue that may be used
//! session    one connection's thread
//! deadlines  what a connection may wait for, and how long
//! socket     socket options, and waiting
//! wake       wakes a thread that waits for its socket
//! log        log lines at a bounded rate
//! ```
//! One thread a connection. Invariants: a host that has not connected a queue, or has not
//! authenticated where it must, is half open: it gets a small buffer and little time; with TLS,
//! plaintext that was decrypted counts as arrived; connections and their memory are bounded, per
//! host and in all. A host is declared silent only when everything it has sent was processed.
//! Refusals and drops are logged with the reason. Absent: the words of the log (`wording`).

mod deadlines;
mod half_open;
mod limits;
mod log;
mod session;
mod socket;
mod wake;

pub use limits::{Limits, MEMORY_BYTES_DEFAULT, MEMORY_BYTES_MIN};
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

/// How long in-flight commands may take when the service ends.
const FINISH_WITHIN: Duration = Duration::from_secs(3);

/// A server that listens for hosts and serves them.
pub struct Server {
    /// Never empty: a server listens at one address at least.
    listeners: Vec<TcpListener>,
    shared: Arc<ServerState>,
}

/// What all threads of a server share.
struct ServerState {
    port: Arc<Port>,
    limits: Limits,
    log: RateLimitedLog,
    stop: AtomicBool,
    /// Times are counted from here.
    epoch: Instant,
    threads: AtomicUsize,
    /// Connections accepted, which numbers them.
    accepted: AtomicU64,
    roster: Arc<Roster>,
    half_open: HalfOpenConnections,
    /// For connections that begin with TLS, if there are keys.
    entrance: Option<Entrance>,
}

/// Stops a server from any thread.
#[derive(Clone)]
pub struct Stopper(Arc<ServerState>, Vec<SocketAddr>);

impl Stopper {
    /// No new connections; commands under way are finished.
    pub fn stop(&self) {
        self.0.stop.store(true, Ordering::SeqCst);
        // Wakes the listeners.
        for address in &self.1 {
            let _ = TcpStream::connect_timeout(address, Duration::from_millis(200));
        }
    }
}

impl Server {
    /// Listens at an address; nobody is served before `run`.
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

    /// As `bind_with`, at several addresses, with times counted from `epoch`: all services of a
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

    /// As `bind`, with other limits.
    ///
    /// # Errors
    /// As `bind`.
    pub fn bind_with(
        address: SocketAddr,
        port: Port,
        log: Box<dyn Log>,
        limits: Limits,
    ) -> io::Result<Self> {
        Self::on(Instant::now(), bound(&[address])?, port, log, limits)
    }

    /// On sockets that listen already and block, with times counted from `epoch`.
    ///
    /// # Errors
    /// There is no socket, or OpenSSL cannot be set up.
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

        // Portals are known before the first connection, so that discovery names them all.
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

    /// Where it listens, or the first of several addresses.
    ///
    /// # Errors
    /// The system's reason.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listeners[0].local_addr()
    }

    /// All addresses where it listens.
    ///
    /// # Errors
    /// The system's reason.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.listeners.iter().map(TcpListener::local_addr).collect()
    }

    /// What all its connections know: who may connect, among it.
    pub fn port(&self) -> Arc<Port> {
        self.shared.port.clone()
    }

    /// Who is connected, and what was refused.
    pub fn roster(&self) -> Arc<Roster> {
        self.shared.roster.clone()
    }

    /// Something to stop it with.
    ///
    /// # Errors
    /// The system's reason.
    pub fn stopper(&self) -> io::Result<Stopper> {
        let mut addresses = self.addresses()?;
        // A socket that listens at any address is reached at none: the one that wakes it is this
        // machine's.
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

    /// Serves until stopped; all connections have ended then.
    ///
    /// # Errors
    /// The firmware or the disk under it has failed.
    pub fn run(self) -> io::Result<()> {
        let stopper = self.stopper()?;
        let Self { listeners, shared } = self;

        let mut others = listeners.into_iter();

        // The caller's thread takes the first, so that one address needs no other.
        let first = others.next().expect("there is one");
        std::thread::scope(|scope| {
            for listener in others {
                let accept = || shared.accept_all(listener, &stopper);
                let name = "nvme/tcp".to_owned();
                let spawned = std::thread::Builder::new()
                    .name(name)
                    .spawn_scoped(scope, accept);
                if let Err(error) = spawned {
                    // Those that listen already must end too, or the scope would wait for them.
                    stopper.stop();
                    return Err(error);
                }
            }
            shared.accept_all(first, &stopper);
            Ok(())
        })?;

        // Threads that sit in the kernel are not waited for longer than commands may take.
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

/// Sockets that listen at these addresses. An error begins with its address.
fn bound(addresses: &[SocketAddr]) -> io::Result<Vec<TcpListener>> {
    let bind = |address: &SocketAddr| {
        let about = |error: io::Error| io::Error::new(error.kind(), format!("{address}: {error}"));
        TcpListener::bind(address).map_err(about)
    };
    addresses.iter().map(bind).collect()
}

/// Counts down when dropped, by a panic too.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ServerState {
    /// Accepts connections until the server is stopped or the device has failed, and then at no
    /// address any more.
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

            // This may be the connection that `stop` has made to wake the listener.
            if self.stop.load(Ordering::SeqCst) {
                return;
            }

            // Numbered before it is admitted, so that a line about a refusal has a number too.
            let number = self.accepted.fetch_add(1, Ordering::Relaxed) + 1;
            self.roster.accept();
            if self.admit(&stream, peer, number) {
                self.start(stream, peer, number);
            }

            // Closed, so that hosts are refused at once instead of waiting for an answer that does
            // not come.
            if self.port.subsystem().is_broken() {
                drop(listener);
                return stopper.stop();
            }
        }
    }

    fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// Whether an accepted connection may go on; it is half open then, and an older one may have to
    /// make room for it.
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

        // A second handle, with which another thread can shut the connection down.
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
            // Its own thread finds the end, and gives back what it holds.
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

    /// Gives a connection a thread of its own.
    fn start(self: &Arc<Self>, stream: TcpStream, peer: SocketAddr, number: u64) {
        // Counted before the thread runs: whoever waits for all threads must not miss one that is
        // about to begin.
        self.threads.fetch_add(1, Ordering::SeqCst);
        let spawned = std::thread::Builder::new()
            .name(format!("nvme {peer}"))
            // A thread for each connection, so that stacks add up.
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
