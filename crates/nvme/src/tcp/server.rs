//! Sockets, threads and the clock around the target.
//!
//! One thread a connection: it reads what is there, has it executed, sends what came of it at once, and sleeps until
//! more arrives or a completion is due. With emulated latency it stops sleeping a little before, and spins. Invariants:
//! a host that has not connected a queue, or has not authenticated where it must, is half open: it gets a small buffer and
//! little time; a host that does not read, or does not finish what it began to send, is dropped; connections and their
//! memory are bounded, per host and in all; the oldest half-open connections make room for new ones, those of the address
//! with the most first. A host is declared silent only when everything it has sent was processed. Refusals and drops are
//! logged with the reason, at a bounded rate. Absent: the words of the log (`wording`).

use super::buffer::Buffer;
use super::notice::{Notices, Pace, more};
use super::patience::Patient;
use super::quota::Shares;
use super::roster::{Entered, Roster, Seated};
use super::target::{Connection, Output, PDU_BYTES_MAX, Port, canonical};
use super::wording;
use crate::auth::Proof;
use crate::controller::{Association, Latency};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;
use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often the clock alone is a reason to look.
const TICK: Duration = Duration::from_millis(250);
/// Ticks in a row for which judgement is put off because something has just arrived.
const TICKS_SKIPPED_MAX: u32 = 40;
/// TCP keep-alive: idle time, number of probes, interval.
const KEEPALIVE: (Duration, u32, Duration) = (Duration::from_secs(60), 4, Duration::from_secs(15));
/// How long in-flight commands may take when the service ends.
const FINISH_WITHIN: Duration = Duration::from_secs(3);
/// Sleeping ends this much before a completion is due: about what the system takes to wake a thread, and on Linux it is
/// asked not to take longer than it must.
const SPIN_NS: u64 = if cfg!(target_os = "linux") {
    8_000
} else {
    60_000
};
/// Buffer of a connection without a queue: ICReq and Connect.
const SMALL_BUFFER: usize = 4096;

/// Where a server logs. Text from peers is escaped, and lines that peers can cause at will are rate-limited (`notice`).
pub trait Log: Send + Sync + 'static {
    /// One line about a connection.
    fn connection(&self, peer: SocketAddr, text: &str);
    /// One line about the server itself.
    fn server(&self, text: &str);
}

/// Memory for connections, unless said otherwise.
pub const MEMORY_BYTES_DEFAULT: usize = 512 << 20;
/// The least that serves a host with an admin queue, an I/O queue and large commands.
pub const MEMORY_BYTES_MIN: usize = 16 << 20;

/// What peers may take of the server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections that have connected a queue.
    pub connected: usize,
    /// Connections of one host, by its name.
    pub connected_of_host: usize,
    /// Connections of one address.
    pub connected_of_address: usize,
    /// Connections without a queue, or not authenticated where they must be; the oldest of them make room for new ones.
    /// One address may have three quarters of them.
    pub half_open: usize,
    /// Memory of all connections: buffers, unsent output, partly received data. One host may use half of it.
    pub memory_bytes: usize,
    /// How long a connection may take to connect a queue.
    pub connect_within: Duration,
    /// How long it may take from its beginning to authenticate, where it must.
    pub authenticate_within: Duration,
    /// Time for a host to read the next 64 KiB of output, or the rest.
    pub send_within: Duration,
    /// Time for a host to send requested data, or the rest of a PDU.
    pub data_within: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connected: 512,
            connected_of_host: 192,
            connected_of_address: 448,
            half_open: 64,
            memory_bytes: MEMORY_BYTES_DEFAULT,
            connect_within: Duration::from_secs(5),
            authenticate_within: Duration::from_secs(30),
            send_within: Duration::from_secs(10),
            data_within: Duration::from_secs(30),
        }
    }
}

impl Limits {
    fn shares(&self) -> Shares {
        Shares {
            connections: self.connected,
            connections_of_host: self.connected_of_host,
            connections_of_address: self.connected_of_address,
            memory_bytes: self.memory_bytes,
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
    threads: AtomicUsize,
    roster: Arc<Roster>,
    half_open: Mutex<VecDeque<HalfOpen>>,
}

/// Lifetime of a connection without a queue.
struct HalfOpen {
    number: u64,
    peer: SocketAddr,
    stream: TcpStream,
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
        Self::listen(epoch, address, port, log, limits)
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
        Self::listen(Instant::now(), address, port, log, limits)
    }

    fn listen(
        epoch: Instant,
        address: SocketAddr,
        port: Port,
        log: Box<dyn Log>,
        limits: Limits,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let shared = Shared {
            port: Arc::new(port.shared(limits.shares())),
            limits,
            log,
            notices: Notices::default(),
            stop: AtomicBool::new(false),
            epoch,
            threads: AtomicUsize::new(0),
            roster: Arc::default(),
            half_open: Mutex::default(),
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
                    // For example, no file descriptors are left: the listener itself still works.
                    self.shared.cannot_accept(&error);
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

    /// Logs a line that peers can cause at will, at a bounded rate.
    fn notice(&self, kind: &'static str, peer: SocketAddr, text: &str) {
        self.write(kind, Pace::SELDOM, peer, text);
    }

    /// Logs an ordinary event of a connection: hosts have many queues, so the rate is higher.
    fn ordinary(&self, kind: &'static str, peer: SocketAddr, text: &str) {
        self.write(kind, Pace::OFTEN, peer, text);
    }

    fn write(&self, kind: &'static str, pace: Pace, peer: SocketAddr, text: &str) {
        if let Some(left_out) = self.notices.admit(kind, pace, self.now()) {
            self.log
                .connection(peer, &format!("{text}{}", more(left_out)));
        }
    }

    fn cannot_accept(&self, error: &io::Error) {
        if let Some(left_out) = self.notices.admit("accept", Pace::SELDOM, self.now()) {
            self.log.server(&format!(
                "a connection could not be accepted: {error}{}",
                more(left_out)
            ));
        }
    }

    fn half_open(&self) -> MutexGuard<'_, VecDeque<HalfOpen>> {
        self.half_open
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn admit(&self, stream: &TcpStream, peer: SocketAddr, number: u64) -> bool {
        if !self.port.allowed().address(peer.ip()) {
            self.roster.refuse("this address is not allowed");
            self.notice("address", peer, "refused: this address is not allowed");
            return false;
        }
        let handle = match stream.try_clone() {
            Ok(handle) => handle,
            Err(error) => {
                self.cannot_accept(&error);
                return false;
            }
        };
        let displaced = {
            let mut half_open = self.half_open();
            half_open.push_back(HalfOpen {
                number,
                peer,
                stream: handle,
            });
            self.displaced(&mut half_open)
        };
        if let Some(HalfOpen { peer, stream, .. }) = displaced {
            let _ = stream.shutdown(Shutdown::Both);
            self.roster.drop_one();
            self.notice(
                "half open",
                peer,
                "dropped: it had connected no queue, and others wanted its place",
            );
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
            self.no_longer_half_open(number);
            self.cannot_accept(&error);
        }
    }

    /// The connection to drop if there are too many: the oldest of the address with the most.
    fn displaced(&self, half_open: &mut VecDeque<HalfOpen>) -> Option<HalfOpen> {
        let mut of_address = HashMap::<IpAddr, usize>::new();
        for one in half_open.iter() {
            *of_address.entry(one.peer.ip()).or_default() += 1;
        }
        let (address, most) = of_address.into_iter().max_by_key(|(_, count)| *count)?;
        if half_open.len() <= self.limits.half_open
            && most <= (self.limits.half_open * 3).div_ceil(4)
        {
            return None;
        }
        let oldest = half_open.iter().position(|one| one.peer.ip() == address)?;
        half_open.remove(oldest)
    }

    fn no_longer_half_open(&self, number: u64) {
        self.half_open().retain(|one| one.number != number);
    }

    fn serve(&self, stream: TcpStream, peer: SocketAddr, number: u64) {
        let began = Instant::now();
        let local = stream.local_addr().map_or(peer, canonical);
        let mut connection = Connection::new(self.port.clone(), peer, local);
        let result = self.converse(stream, peer, number, &mut connection);
        self.no_longer_half_open(number);
        self.log_end(&connection, result, began.elapsed(), number, peer);
    }

    /// Logs and counts how a connection ended.
    fn log_end(
        &self,
        connection: &Connection,
        result: io::Result<String>,
        lasted: Duration,
        number: u64,
        peer: SocketAddr,
    ) {
        let queue = connection
            .connected()
            .map(|(association, qid)| wording::queue(association, qid));
        if !connection.is_admitted()
            && let Some(queue) = &queue
        {
            let reason = connection.unproven();
            self.roster
                .refuse(reason.unwrap_or(wording::NOT_AUTHENTICATED));
            let text = wording::unproven(queue, reason, result, number);
            return self.notice("authentication", peer, &text);
        }

        if let Some(refused) = connection.refused() {
            self.roster.refuse(refused.refusal.why);
            return self.notice("connect", peer, &wording::refusal(refused));
        }

        if result.is_err() {
            self.roster.drop_one();
        }
        match (queue, result) {
            (Some(queue), result) => {
                let reason = result.unwrap_or_else(|error| format!("dropped: {error}"));
                let seconds = lasted.as_secs_f64();
                let text = format!("{queue} ended after {seconds:.1} s: {reason}");
                self.ordinary("ended", peer, &text);
            }
            (None, Ok(reason)) => {
                let text = format!("ended without a queue: {reason}");
                self.notice("unconnected", peer, &text);
            }
            (None, Err(error)) => self.notice("dropped", peer, &format!("dropped: {error}")),
        }
    }

    /// Serves a connection until it ends; returns why it ended.
    fn converse(
        &self,
        mut stream: TcpStream,
        peer: SocketAddr,
        number: u64,
        connection: &mut Connection,
    ) -> io::Result<String> {
        prepare(&stream)?;
        if self.port.subsystem().latency() == Latency::Emulated {
            wake_me_in_time();
        }

        let mut is_admitted = false;
        let mut buffer = Buffer::new(SMALL_BUFFER);
        let mut out = Output::default();
        let mut waits = Waits::new(self.now());
        let mut stopping: Option<Instant> = None;
        let mut seat: Option<Entered> = None;
        loop {
            let now = self.now();
            connection.due(now, &mut out);
            let received = connection.receive(now, buffer.filled(), &mut out);
            let mut sent = self.send(&mut out, &mut stream)?;

            // Responses that need not wait for the disk have been sent.
            if connection.owes() {
                connection.settle(&mut out);
                sent |= self.send(&mut out, &mut stream)?;
            }
            if sent {
                connection.sent(false, &mut out);
            }
            self.note_times(connection, now, seat.as_deref());

            let consumed = match received {
                Ok(consumed) => consumed,
                Err(end) => {
                    let _ = stream.shutdown(Shutdown::Both);
                    return Ok(wording::end(end));
                }
            };
            buffer.consume(consumed);

            if !is_admitted
                && connection.is_admitted()
                && let Some((association, qid)) = connection.connected()
            {
                is_admitted = true;
                buffer.grow(2 * PDU_BYTES_MAX);
                self.greet(association, qid, connection.proof(), peer, number);
                seat = connection
                    .association()
                    .map(|association| self.roster.enter(number, peer, qid, association, now));
            }

            let whole = buffer.has_more() && connection.next_deadline().is_some();
            waits.note(now, consumed > 0 || whole || !buffer.has_more());
            if now >= waits.next_tick
                && let Some(why) = self.tick(connection, &mut waits, &stream, &mut out)?
            {
                return Ok(why);
            }

            if (consumed > 0 || sent) && buffer.has_more() {
                // More PDUs may be waiting in the buffer than one call handles.
                continue;
            }

            if self.stop.load(Ordering::Relaxed) {
                let until = *stopping.get_or_insert_with(|| Instant::now() + FINISH_WITHIN);
                if connection.is_idle() || Instant::now() > until {
                    return Ok("the service ends".into());
                }
            }

            if !out.is_empty() {
                continue;
            }

            if buffer.is_full() {
                // The buffer holds less than a PDU, or PDUs that wait for completions to be due.
                if connection.next_deadline().is_none() {
                    return Err(io::Error::other("a PDU that does not end"));
                }
                self.sleep(&stream, connection, false);
                continue;
            }

            // Without completions to send later, wait in the socket read itself.
            if (connection.next_deadline().is_none() || self.sleep(&stream, connection, true))
                && !read(&mut buffer, &mut stream, connection, &mut out)?
            {
                return Ok("its host closed the connection".into());
            }
        }
    }

    /// Counts what was executed and sent since `began`.
    #[inline]
    fn note_times(&self, connection: &Connection, began: u64, seat: Option<&Seated>) {
        if connection.executed().is_empty() {
            return;
        }
        let took_ns = self.now().saturating_sub(began);
        let telemetry = self.port.subsystem().telemetry();
        let commands = connection.executed().observe(telemetry, took_ns);
        if let Some(seat) = seat {
            seat.commands(commands);
        }
    }

    /// Logs that a queue was connected.
    fn greet(
        &self,
        association: &Association,
        qid: u16,
        proof: Option<Proof>,
        peer: SocketAddr,
        number: u64,
    ) {
        self.no_longer_half_open(number);
        let text = wording::connected(association, qid, proof);
        self.ordinary("connected", peer, &text);
    }

    /// Sends all there is; `false` if there was nothing.
    fn send(&self, out: &mut Output, stream: &mut TcpStream) -> io::Result<bool> {
        if out.is_empty() {
            return Ok(false);
        }
        out.write_to(&mut Patient::new(stream, self.limits.send_within))?;
        Ok(true)
    }

    /// Periodic checks: returns why the connection must end, if it must. Data that arrived in time counts as in time,
    /// however late it is read.
    fn tick(
        &self,
        connection: &mut Connection,
        waits: &mut Waits,
        stream: &TcpStream,
        out: &mut Output,
    ) -> io::Result<Option<String>> {
        if self.port.subsystem().is_broken() {
            return Ok(Some("the device has failed".into()));
        }
        let now = self.now();
        waits.next_tick = now + TICK.as_nanos() as u64;
        if has_arrived(stream) && waits.skipped < TICKS_SKIPPED_MAX {
            waits.skipped += 1;
            return Ok(None);
        }

        let passed =
            |since: u64, limit: Duration| u128::from(now.saturating_sub(since)) > limit.as_nanos();
        waits.skipped = 0;
        if let Err(end) = connection.tick(now, out) {
            return Ok(Some(wording::end(end)));
        }
        if connection.connected().is_none() && passed(waits.began, self.limits.connect_within) {
            return Err(io::Error::other("no queue was connected in time"));
        }
        if !connection.is_admitted() && passed(waits.began, self.limits.authenticate_within) {
            return Err(io::Error::other("there was no proof in time"));
        }
        if waits
            .partial_since
            .is_some_and(|since| passed(since, self.limits.data_within))
        {
            return Err(io::Error::other("the rest of a PDU did not come in time"));
        }
        if connection
            .waits_for_data_since()
            .is_some_and(|since| passed(since, self.limits.data_within))
        {
            return Err(io::Error::other(
                "data that its host was asked for did not come in time",
            ));
        }
        Ok(None)
    }

    /// Sleeps until there is input, a completion is due, or it is time to look; `true` if there is input.
    fn sleep(&self, stream: &TcpStream, connection: &Connection, input: bool) -> bool {
        let now = self.now();
        let until = connection.next_deadline().unwrap_or(u64::MAX);
        let wait = until
            .saturating_sub(now)
            .saturating_sub(SPIN_NS)
            .min(TICK.as_nanos() as u64);
        let mut fds = [PollFd::new(
            stream,
            if input {
                PollFlags::IN
            } else {
                PollFlags::empty()
            },
        )];
        let timeout = Timespec {
            tv_sec: (wait / 1_000_000_000) as i64,
            tv_nsec: (wait % 1_000_000_000) as i64,
        };
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

/// What a connection has been waiting for, and since when.
struct Waits {
    began: u64,
    next_tick: u64,
    /// Ticks in a row at which something had just arrived.
    skipped: u32,
    /// Since when the buffer has held an incomplete PDU.
    partial_since: Option<u64>,
}

impl Waits {
    fn new(now: u64) -> Self {
        Self {
            began: now,
            next_tick: now,
            skipped: 0,
            partial_since: None,
        }
    }

    fn note(&mut self, now: u64, goes_on: bool) {
        self.partial_since = if goes_on {
            None
        } else {
            Some(self.partial_since.unwrap_or(now))
        };
    }
}

/// Socket options: no delay, time-outs so that the thread can do other work, and keep-alive probes.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(TICK))?;
    stream.set_read_timeout(Some(TICK))?;
    let (after, probes, interval) = KEEPALIVE;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, after)?;
    sockopt::set_tcp_keepcnt(stream, probes)?;
    sockopt::set_tcp_keepintvl(stream, interval)?;
    Ok(())
}

/// Whether there is something to read.
fn has_arrived(stream: &TcpStream) -> bool {
    let mut fds = [PollFd::new(stream, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Asks the system to wake this thread when it wants to be woken, and not up to 50 µs later.
fn wake_me_in_time() {
    #[cfg(target_os = "linux")]
    // Where that is impossible completions are late, no more.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

/// Reads what has arrived; `false` at the end of the stream.
fn read(
    buffer: &mut Buffer,
    stream: &mut TcpStream,
    connection: &mut Connection,
    out: &mut Output,
) -> io::Result<bool> {
    match buffer.read(stream) {
        Ok(bytes) => Ok(bytes > 0),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            connection.sent(true, out);
            Ok(true)
        }
        Err(error) => Err(error),
    }
}
