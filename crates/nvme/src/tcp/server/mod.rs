//! Sockets, threads and the clock around the target.
//!
//! ```text
//! limits     what peers may take
//! half_open  connections without a queue that may be used
//! session    one connection's thread
//! deadlines  what a connection may wait for, and how long
//! socket     socket options, and waiting
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
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long in-flight commands may take when the service ends.
const FINISH_WITHIN: Duration = Duration::from_secs(3);

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
}

/// What all threads of a server share.
struct Shared {
    port: Arc<Port>,
    limits: Limits,
    log: RateLimitedLog,
    stop: AtomicBool,
    /// Times are counted from here.
    epoch: Instant,
    threads: AtomicUsize,
    roster: Arc<Roster>,
    half_open: HalfOpenConnections,
    /// For connections that begin with TLS, if there are keys.
    entrance: Option<Entrance>,
}

/// Stops a server.
#[derive(Clone)]
pub struct Stopper(Arc<Shared>, SocketAddr);

impl Stopper {
    /// No new connections; commands under way are finished.
    pub fn stop(&self) {
        self.0.stop.store(true, Ordering::SeqCst);
        // Wakes the listener.
        let _ = TcpStream::connect_timeout(&self.1, Duration::from_millis(200));
    }
}

impl Server {
    /// Listens at an address.
    ///
    /// # Errors
    /// The address is in use, or the system's reason.
    pub fn bind(address: SocketAddr, port: Port, log: Box<dyn Log>) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        Self::on(Instant::now(), listener, port, log, Limits::default())
    }

    /// As `bind_with`, with times counted from `epoch`: all services of a device share one clock.
    ///
    /// # Errors
    /// As `bind`.
    pub fn bind_since(
        epoch: Instant,
        address: SocketAddr,
        port: Port,
        log: Box<dyn Log>,
        limits: Limits,
    ) -> io::Result<Self> {
        Self::on(epoch, TcpListener::bind(address)?, port, log, limits)
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
        Self::on(
            Instant::now(),
            TcpListener::bind(address)?,
            port,
            log,
            limits,
        )
    }

    /// On a socket that listens already and blocks, with times counted from `epoch`.
    ///
    /// # Errors
    /// OpenSSL cannot be set up.
    pub fn on(
        epoch: Instant,
        listener: TcpListener,
        port: Port,
        log: Box<dyn Log>,
        limits: Limits,
    ) -> io::Result<Self> {
        let subsystems = || vec![port.subsystem().nqn().to_owned(), DISCOVERY_NQN.to_owned()];
        let entrance = port
            .keyring()
            .map(|keyring| Entrance::new(keyring.clone(), subsystems()))
            .transpose()?;

        let shared = Shared {
            port: Arc::new(port.shared(limits.shares())),
            half_open: HalfOpenConnections::new(limits.half_open),
            limits,
            log: RateLimitedLog::new(log),
            stop: AtomicBool::new(false),
            epoch,
            threads: AtomicUsize::new(0),
            roster: Arc::default(),
            entrance,
        };

        Ok(Self {
            listener,
            shared: Arc::new(shared),
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system's reason.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
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
        let mut address = self.address()?;
        if address.ip().is_unspecified() {
            address.set_ip(if address.is_ipv4() {
                [127, 0, 0, 1].into()
            } else {
                Ipv6Addr::LOCALHOST.into()
            });
        }
        Ok(Stopper(self.shared.clone(), address))
    }

    /// Serves until stopped; all connections have ended then.
    ///
    /// # Errors
    /// The firmware or the disk under it has failed.
    pub fn run(self) -> io::Result<()> {
        let mut number = 0;
        while !self.shared.stop.load(Ordering::SeqCst) {
            let (stream, peer) = match self.listener.accept() {
                Ok((stream, peer)) => (stream, canonical(peer)),
                Err(error) => {
                    // For example, no file descriptors are left: the listener itself still works.
                    self.shared.log.cannot_accept(self.shared.now(), &error);
                    std::thread::sleep(Duration::from_millis(50));
                    continue;
                }
            };

            if self.shared.stop.load(Ordering::SeqCst) {
                break;
            }

            number += 1;
            self.shared.roster.accept();
            if self.shared.admit(&stream, peer, number) {
                self.shared.start(stream, peer, number);
            }
            if self.shared.port.subsystem().is_broken() {
                break;
            }
        }

        drop(self.listener);
        let until = Instant::now() + FINISH_WITHIN + TICK;
        while self.shared.threads.load(Ordering::SeqCst) > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }

        if self.shared.port.subsystem().is_broken() {
            Err(io::Error::other(
                "the firmware or the disk under it has failed",
            ))
        } else {
            Ok(())
        }
    }
}

/// Counts down when dropped, by a panic too.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Shared {
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
        self.threads.fetch_add(1, Ordering::SeqCst);
        let spawned = std::thread::Builder::new()
            .name(format!("nvme {peer}"))
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
