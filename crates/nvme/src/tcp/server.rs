//! Sockets, threads and the clock around the target.
//!
//! One thread a connection: it reads what is there, has it executed, sends what came of it at once, and sleeps until more
//! arrives or a completion is due. With emulated latency it stops sleeping a little before, and spins.
//! Invariants: a host that has not connected a queue holds a small buffer and only so long; a host that does not read is
//! dropped; the number of connections is bounded, and the oldest that have not connected make room for new ones.

use super::buffer::Buffer;
use super::notice::{Notices, more};
use super::target::{Connection, End, Output, PDU_BYTES_MAX, Port, Refused, canonical};
use crate::Escaped;
use crate::controller::Latency;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How often the clock alone is a reason to look.
const TICK: Duration = Duration::from_millis(250);
/// How long in-flight commands may take when the service ends.
const FINISH_WITHIN: Duration = Duration::from_secs(3);
/// Sleeping ends this much before a completion is due: about what the system takes to wake a thread, and on Linux it is
/// asked not to take longer than it must.
const SPIN_NS: u64 = if cfg!(target_os = "linux") { 8_000 } else { 60_000 };
/// Buffer of a connection without a queue: ICReq and Connect.
const SMALL_BUFFER: usize = 4096;

/// What a server tells of itself. What peers name is escaped, and lines that peers can cause at will are few (`notice`).
pub trait Log: Send + Sync + 'static {
    /// One line about a connection.
    fn connection(&self, peer: SocketAddr, text: &str);
    /// One line about the server itself.
    fn server(&self, text: &str);
}

/// What peers may take of the server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections that have connected a queue.
    pub connected: usize,
    /// Connections that have not; the oldest of them make room for new ones.
    pub half_open: usize,
    /// How long a connection may take to connect a queue.
    pub connect_within: Duration,
    /// How long a host may take to read the next bytes of what it asked for.
    pub send_within: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connected: 512,
            half_open: 64,
            connect_within: Duration::from_secs(5),
            send_within: Duration::from_secs(10),
        }
    }
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
}

struct Shared {
    port: Arc<Port>,
    limits: Limits,
    log: Box<dyn Log>,
    notices: Notices,
    stop: AtomicBool,
    epoch: Instant,
    connected: AtomicUsize,
    threads: AtomicUsize,
    half_open: Mutex<VecDeque<(u64, TcpStream)>>,
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
        Self::listen(Instant::now(), address, port, log, Limits::default())
    }

    /// As `bind`, with times that count from `epoch`: services of one device have one clock.
    ///
    /// # Errors
    /// As `bind`.
    pub fn bind_since(epoch: Instant, address: SocketAddr, port: Port, log: Box<dyn Log>) -> io::Result<Self> {
        Self::listen(epoch, address, port, log, Limits::default())
    }

    /// As `bind`, with other limits.
    ///
    /// # Errors
    /// As `bind`.
    pub fn bind_with(address: SocketAddr, port: Port, log: Box<dyn Log>, limits: Limits) -> io::Result<Self> {
        Self::listen(Instant::now(), address, port, log, limits)
    }

    fn listen(epoch: Instant, address: SocketAddr, port: Port, log: Box<dyn Log>, limits: Limits) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let shared = Shared {
            port: Arc::new(port),
            limits,
            log,
            notices: Notices::default(),
            stop: AtomicBool::new(false),
            epoch,
            connected: AtomicUsize::new(0),
            threads: AtomicUsize::new(0),
            half_open: Mutex::default(),
        };
        Ok(Self { listener, shared: Arc::new(shared) })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system's reason.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
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
                std::net::Ipv6Addr::LOCALHOST.into()
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
                    // Out of descriptors, say: the listener is not at fault.
                    self.shared.cannot_accept(&error);
                    std::thread::sleep(Duration::from_millis(50));
                    continue;
                }
            };
            if self.shared.stop.load(Ordering::SeqCst) {
                break;
            }
            number += 1;
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
        match self.shared.port.subsystem().is_broken() {
            true => Err(io::Error::other("the firmware or the disk under it has failed")),
            false => Ok(()),
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

    /// A line that peers can cause at will, unless there were many of its kind.
    fn notice(&self, kind: &'static str, peer: SocketAddr, text: &str) {
        if let Some(left_out) = self.notices.admit(kind, self.now()) {
            self.log.connection(peer, &format!("{text}{}", more(left_out)));
        }
    }

    fn cannot_accept(&self, error: &io::Error) {
        if let Some(left_out) = self.notices.admit("accept", self.now()) {
            self.log.server(&format!("a connection could not be accepted: {error}{}", more(left_out)));
        }
    }

    fn admit(&self, stream: &TcpStream, peer: SocketAddr, number: u64) -> bool {
        if !self.port.allowed().address(peer.ip()) {
            self.notice("address", peer, "refused: this address is not allowed");
            return false;
        }
        let connected = self.connected.load(Ordering::SeqCst);
        if connected >= self.limits.connected {
            self.notice("limit", peer, &format!("refused: {connected} queues are connected, and there may be no more"));
            return false;
        }
        let handle = match stream.try_clone() {
            Ok(handle) => handle,
            Err(error) => {
                self.cannot_accept(&error);
                return false;
            }
        };
        let mut half_open = self.half_open.lock().expect("nothing under this lock can fail");
        half_open.push_back((number, handle));
        if half_open.len() > self.limits.half_open
            && let Some((_, oldest)) = half_open.pop_front()
        {
            let _ = oldest.shutdown(Shutdown::Both);
            drop(half_open);
            self.notice("half open", peer, "it takes the place of the oldest that has connected no queue");
        }
        true
    }

    /// Gives a connection a thread of its own.
    fn start(self: &Arc<Self>, stream: TcpStream, peer: SocketAddr, number: u64) {
        self.threads.fetch_add(1, Ordering::SeqCst);
        let spawned = std::thread::Builder::new().name(format!("nvme {peer}")).stack_size(512 << 10).spawn({
            let shared = self.clone();
            move || {
                let _one = Counted(&shared.threads);
                shared.serve(stream, peer, number);
            }
        });
        if let Err(error) = spawned {
            self.threads.fetch_sub(1, Ordering::SeqCst);
            self.no_longer_half_open(number);
            self.cannot_accept(&error);
        }
    }

    fn no_longer_half_open(&self, number: u64) {
        let mut half_open = self.half_open.lock().expect("nothing under this lock can fail");
        half_open.retain(|(other, _)| *other != number);
    }

    fn serve(&self, stream: TcpStream, peer: SocketAddr, number: u64) {
        let began = Instant::now();
        let local = stream.local_addr().map_or(peer, canonical);
        let mut connection = Connection::new(self.port.clone(), peer, local);
        let result = self.converse(stream, peer, number, &mut connection);
        self.no_longer_half_open(number);
        let queue = connection.connected().map(|(association, qid)| {
            let kind = if association.is_discovery() { "discovery" } else { "queue" };
            format!("{kind} {qid} of {}", Escaped::name(association.hostnqn()))
        });
        match (queue, connection.refused(), result) {
            (_, Some(refused), _) => self.notice("connect", peer, &refusal(refused)),
            (Some(queue), None, result) => {
                let seconds = began.elapsed().as_secs_f64();
                let why = result.unwrap_or_else(|error| format!("dropped: {error}"));
                self.log.connection(peer, &format!("{queue} ended after {seconds:.1} s: {why}"));
            }
            (None, None, Ok(why)) => self.notice("unconnected", peer, &format!("ended without a queue: {why}")),
            (None, None, Err(error)) => self.notice("dropped", peer, &format!("dropped: {error}")),
        }
    }

    /// Until either end has had enough; why it ended.
    fn converse(
        &self,
        mut stream: TcpStream,
        peer: SocketAddr,
        number: u64,
        connection: &mut Connection,
    ) -> io::Result<String> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(self.limits.send_within))?;
        stream.set_read_timeout(Some(TICK))?;
        let emulated = self.port.subsystem().latency() == Latency::Emulated;
        if emulated {
            wake_me_in_time();
        }
        let mut counted = None;
        let mut buffer = Buffer::new(SMALL_BUFFER);
        let mut out = Output::default();
        let began = Instant::now();
        let mut next_tick = self.now();
        let mut stopping: Option<Instant> = None;
        loop {
            let now = self.now();
            connection.due(now, &mut out);
            if now >= next_tick {
                // Who was not listened to, since this thread waited for something else, was not silent.
                let listened = now - next_tick < TICK.as_nanos() as u64;
                next_tick = now + TICK.as_nanos() as u64;
                if listened && let Err(end) = connection.tick(now, &mut out) {
                    return Ok(why(end));
                }
                if self.port.subsystem().is_broken() {
                    return Ok("the device has failed".into());
                }
                if connection.connected().is_none() && began.elapsed() > self.limits.connect_within {
                    return Err(io::Error::other("no queue was connected in time"));
                }
            }
            let received = connection.receive(now, buffer.filled(), &mut out);
            let sent = !out.is_empty();
            if sent {
                out.write_to(&mut stream)?;
            }
            let consumed = match received {
                Ok(consumed) => consumed,
                Err(end) => {
                    let _ = stream.shutdown(Shutdown::Both);
                    return Ok(why(end));
                }
            };
            buffer.consume(consumed);
            if counted.is_none()
                && let Some((association, qid)) = connection.connected()
            {
                self.connected.fetch_add(1, Ordering::SeqCst);
                counted = Some(Counted(&self.connected));
                self.no_longer_half_open(number);
                buffer.grow(2 * PDU_BYTES_MAX);
                let kind = if association.is_discovery() { "discovery" } else { "queue" };
                let host = Escaped::name(association.hostnqn());
                self.log.connection(peer, &format!("{kind} {qid} connected by {host}"));
            }
            if (consumed > 0 || sent) && buffer.has_more() {
                // There may have been more than was to be answered at once.
                continue;
            }
            if self.stop.load(Ordering::Relaxed) {
                let until = *stopping.get_or_insert_with(|| Instant::now() + FINISH_WITHIN);
                if connection.is_idle() || Instant::now() > until {
                    return Ok("the service ends".into());
                }
            }
            if buffer.is_full() {
                // What is there is less than a PDU, or waits for completions to be due.
                if connection.next_deadline().is_none() {
                    return Err(io::Error::other("a PDU that does not end"));
                }
                self.sleep(&stream, connection, false);
                continue;
            }
            // With nothing to be sent later the socket itself is waited for.
            if connection.next_deadline().is_none() || self.sleep(&stream, connection, true) {
                match buffer.read(&mut stream) {
                    Ok(0) => return Ok("its host closed the connection".into()),
                    Ok(_) => {}
                    Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// Sleeps until there is input, a completion is due, or it is time to look; `true` if there is input.
    fn sleep(&self, stream: &TcpStream, connection: &Connection, input: bool) -> bool {
        let now = self.now();
        let until = connection.next_deadline().unwrap_or(u64::MAX);
        let wait = until.saturating_sub(now).saturating_sub(SPIN_NS).min(TICK.as_nanos() as u64);
        let mut fds = [PollFd::new(stream, if input { PollFlags::IN } else { PollFlags::empty() })];
        let timeout = Timespec { tv_sec: (wait / 1_000_000_000) as i64, tv_nsec: (wait % 1_000_000_000) as i64 };
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => {}
            Ok(_) if input => return true,
            Ok(_) | Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
        while wait == 0 && self.now() < until {
            std::hint::spin_loop();
        }
        false
    }
}

/// Asks the system to wake this thread when it wants to be woken, and not up to 50 µs later.
fn wake_me_in_time() {
    #[cfg(target_os = "linux")]
    // Where that is impossible completions are late, no more.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

fn why(end: End) -> String {
    match end {
        End::Closed => "closed".into(),
        End::Refused => "refused".into(),
        End::Reset => "its controller was reset".into(),
        End::Dead => "nothing was heard from its host".into(),
        End::Fatal(fault) => format!("protocol error: {:?} at byte {}", fault.error, fault.at),
    }
}

fn refusal(refused: &Refused) -> String {
    let Refused { qid, host, subsystem, refusal } = refused;
    let (host, subsystem) = (Escaped::name(host), Escaped::name(subsystem));
    format!("refused: queue {qid} of {subsystem} for {host}: {}", refusal.why)
}
