//! One connection's thread: it reads available input, has it executed, sends the results at once,
//! and sleeps until more arrives or a completion is due. With emulated latency it ends the sleep
//! slightly early, and spins.
//!
//! Invariants: responses that need not wait for the disk are sent before the thread waits for it; a
//! host that does not read, or does not complete what it began to send, is dropped. Absent: the
//! meaning of PDUs (`target`).

use super::deadlines::{Deadlines, TICK, Tick};
use super::log::{ConnectionLabel, Ordinary};
use super::wake::{self, Waker};
use super::{FINISH_WITHIN, ServerState, socket};
use crate::Escaped;
use crate::controller::Latency;
use crate::tcp::buffer::Buffer;
use crate::tcp::entrance::{self, Beginning, TurnedAway};
use crate::tcp::patience::Patient;
use crate::tcp::roster::Entered;
use crate::tcp::socket::Socket;
use crate::tcp::target::{Connection, End, Output, PDU_BYTES_MAX, canonical};
use crate::tcp::wording;
use std::io::{self, ErrorKind, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Sleeping ends this long before a completion is due: about the system's wake-up latency, which on
/// Linux is reduced by a request.
const SPIN_NS: u64 = if cfg!(target_os = "linux") {
    8_000
} else {
    60_000
};
/// Time for a host to read its answers once the service ends.
const DRAIN_WITHIN: Duration = Duration::from_secs(1);
/// Buffer size of a connection without a queue: ICReq and Connect.
const SMALL_BUFFER: usize = 4096;

/// A connection with its socket.
struct Session<'a> {
    shared: &'a ServerState,
    number: u64,
    peer: SocketAddr,
    connection: &'a mut Connection,
    is_named: bool,
    /// True if its queue may be used.
    is_admitted: bool,
    deadlines: Deadlines,
    stop_at: Option<Instant>,
    /// Its entry in the roster, once its queue may be used.
    seat: Option<Entered>,
    buffer: Buffer,
    out: Output,
    stream: Socket,
    /// Used by others to wake the thread when memory is available.
    waker: Arc<Waker>,
    woken: Option<UnixStream>,
}

/// Result of one round of receiving.
struct ReceiveRound {
    consumed: usize,
    sent: bool,
}

impl ServerState {
    /// Serves a connection until it ends, and logs the end.
    pub(super) fn serve(self: &Arc<Self>, stream: TcpStream, peer: SocketAddr, number: u64) {
        let began = Instant::now();
        let local = stream.local_addr().map_or(peer, canonical);
        let waker = Arc::<Waker>::default();
        let mut connection = Connection::new(self.port.clone(), peer, local)
            .numbered(number)
            .waking_by({
                let waker = waker.clone();
                Arc::new(move || waker.wake())
            })
            .ending_when({
                let shared = self.clone();
                move || shared.stop.load(Ordering::Relaxed) || shared.half_open.has_ended(number)
            });

        let result = match self.begin(stream) {
            Ok(Beginning::Open(socket, proven)) => {
                connection.prove(proven);
                let mut session = Session::new(self, socket, peer, number, &mut connection);
                session.waker = waker;
                let result = session.run();
                // Before the host sees the end of its connection: its next action may rely on its
                // queues having no effect any more.
                session.connection.end();
                session.stream.finish();
                // The half-open list may have its own handle.
                let _ = session.stream.tcp().shutdown(Shutdown::Both);
                result
            }
            // Already logged.
            Ok(Beginning::TurnedAway(turned_away)) => {
                self.half_open.remove(number);
                return self.log_turned_away(&turned_away, number, peer);
            }
            Ok(Beginning::Ended(reason)) => Ok(reason.into()),
            Err(error) => Err(error),
        };

        self.half_open.remove(number);
        self.log_end(&connection, result, began.elapsed(), number, peer);
    }

    /// Waits for a connection's first byte, and performs the handshake if it begins with TLS.
    fn begin(&self, stream: TcpStream) -> io::Result<Beginning> {
        socket::prepare(&stream)?;
        entrance::begin(self.entrance.as_ref(), stream, &self.limits, || {
            self.stop.load(Ordering::Relaxed)
        })
    }

    /// Logs and counts a connection refused before NVMe/TCP.
    fn log_turned_away(&self, turned_away: &TurnedAway, number: u64, peer: SocketAddr) {
        self.roster.refuse(turned_away.kind);
        let host = Some(turned_away.hostnqn.as_str()).filter(|host| !host.is_empty());
        let label = ConnectionLabel {
            number,
            peer,
            host: host.map(Escaped::name),
        };
        let text = wording::turned_away(turned_away);
        self.log.notice(self.now(), "tls", &label, &text);
    }

    /// Logs and counts the end of a connection.
    fn log_end(
        &self,
        connection: &Connection,
        result: io::Result<String>,
        lasted: Duration,
        number: u64,
        peer: SocketAddr,
    ) {
        let label = label(connection, number, peer);
        let queue = connection
            .connected()
            .map(|(association, qid)| wording::queue(association, qid));

        // In this order: hosts that never authenticated, those refused, and those served.
        if !connection.is_admitted()
            && let Some(queue) = &queue
        {
            let reason = connection.authentication_failure();
            self.roster
                .refuse(reason.unwrap_or(wording::NOT_AUTHENTICATED));
            let text = wording::unauthenticated(queue, reason, result);
            return self.log.notice(self.now(), "authentication", &label, &text);
        }

        if let Some(refused) = connection.refused() {
            self.roster.refuse(refused.refusal.why);
            let text = wording::refusal(refused);
            return self.log.notice(self.now(), "connect", &label, &text);
        }

        // An error is the server's decision; any other end is the host's.
        if result.is_err() {
            self.roster.drop_one();
        }
        match (queue, result) {
            (Some(queue), result) => {
                let is_by_host = result.is_ok();
                let reason = result.unwrap_or_else(|error| format!("dropped: {error}"));
                let seconds = lasted.as_secs_f64();
                let event = Ordinary {
                    kind: if is_by_host { "ended" } else { "dropped queue" },
                    text: format!("{queue} ended after {seconds:.1} s: {reason}"),
                    is_detail: is_by_host,
                };
                self.log.ordinary(self.now(), &label, &event);
            }
            // Without a queue any stranger can cause these lines, so their rate is lower.
            (None, Ok(reason)) => {
                let text = format!("ended without a queue: {reason}");
                self.log.notice(self.now(), "unconnected", &label, &text);
            }
            (None, Err(error)) => {
                let text = format!("dropped: {error}");
                self.log.notice(self.now(), "dropped", &label, &text);
            }
        }
    }
}

/// Label of a connection in log lines.
fn label(connection: &Connection, number: u64, peer: SocketAddr) -> ConnectionLabel<'_> {
    let connected = connection
        .connected()
        .map(|(association, _)| association.hostnqn());
    let refused = connection.refused().map(|refused| refused.host.as_str());
    let host = connected.or(refused).filter(|host| !host.is_empty());
    ConnectionLabel {
        number,
        peer,
        host: host.map(Escaped::name),
    }
}

impl<'a> Session<'a> {
    fn new(
        shared: &'a ServerState,
        stream: Socket,
        peer: SocketAddr,
        number: u64,
        connection: &'a mut Connection,
    ) -> Self {
        Self {
            shared,
            number,
            peer,
            connection,
            is_named: false,
            is_admitted: false,
            deadlines: Deadlines::new(shared.now()),
            stop_at: None,
            seat: None,
            buffer: Buffer::new(SMALL_BUFFER),
            out: Output::default(),
            stream,
            waker: Arc::default(),
            woken: None,
        }
    }

    /// Serves the connection until it ends; returns the reason.
    fn run(&mut self) -> io::Result<String> {
        // Only emulated latency needs wake-ups to the microsecond.
        if self.shared.port.subsystem().latency() == Latency::Emulated {
            socket::request_prompt_wakeups();
        }

        loop {
            let now = self.shared.now();
            let ReceiveRound { consumed, sent } = match self.receive(now)? {
                Ok(progress) => progress,
                Err(end) => return Ok(wording::end(end)),
            };

            if !self.is_admitted {
                self.note_admission(now);
            }

            // PDUs that wait until completions are due are complete.
            let has_more = self.buffer.has_more();
            let is_partial = has_more && self.connection.next_deadline().is_none();
            self.deadlines
                .note_partial(now, is_partial && consumed == 0);
            if self.deadlines.is_tick_due(now)
                && let Some(why) = self.tick()?
            {
                return Ok(why);
            }

            // The buffer may hold more PDUs than one call handles.
            if (consumed > 0 || sent) && (has_more || self.connection.can_resume()) {
                continue;
            }

            if self.must_stop() {
                return Ok("the service ends".into());
            }
            if self.out.is_empty() && !self.wait_and_read()? {
                return Ok("its host closed the connection".into());
            }
        }
    }

    /// Executes the PDUs in the buffer, and sends the answers.
    fn receive(&mut self, now: u64) -> io::Result<Result<ReceiveRound, End>> {
        // Due completions first: they are older than the commands executed now.
        self.connection.due(now, &mut self.out);
        let calculations = self.connection.calculations();
        let received = self
            .connection
            .receive(now, self.buffer.filled(), &mut self.out);
        if self.connection.calculations() != calculations {
            let after = self.shared.now();
            self.deadlines.excuse(after, after.saturating_sub(now));
        }
        let mut sent = self.send()?;

        // Responses that need not wait for the disk have been sent.
        if self.connection.is_awaiting_sync() {
            self.connection.acknowledge_synced(&mut self.out);
            sent |= self.send()?;
        }
        if sent {
            // The host has taken its answers: release spare memory before the next command.
            self.connection.release_spare(false, &mut self.out);
        }
        self.note_times(now);

        Ok(received.map(|consumed| {
            self.buffer.consume(consumed);
            ReceiveRound { consumed, sent }
        }))
    }

    /// Sends all pending output; `false` if there was none.
    fn send(&mut self) -> io::Result<bool> {
        if self.out.is_empty() {
            return Ok(false);
        }
        // Stop waiting for a host that is gone, or does not read while the service ends.
        let (connection, shared) = (&*self.connection, self.shared);
        let stop_at = &mut self.stop_at;
        let mut gives_up = || {
            let stops = shared.stop.load(Ordering::Relaxed);
            let until =
                stops.then(|| *stop_at.get_or_insert_with(|| Instant::now() + FINISH_WITHIN));
            let drained =
                until.is_some_and(|until| Instant::now() + FINISH_WITHIN > until + DRAIN_WITHIN);
            drained || connection.must_go_on().is_err()
        };

        let within = shared.limits.send_within;
        let mut patient = Patient::new(&mut self.stream, within, &mut gives_up);
        self.out.write_to(&mut patient)?;
        // With TLS, written bytes may still be on their way into the socket.
        patient.flush()?;
        self.deadlines.note_busy(shared.now());
        Ok(true)
    }

    /// Records the duration of the commands executed since `began`.
    #[inline]
    fn note_times(&self, began: u64) {
        if self.connection.executed().is_empty() {
            return;
        }

        // One reading of the clock for all commands of the round.
        let took_ns = self.shared.now().saturating_sub(began);
        let telemetry = self.shared.port.subsystem().telemetry();
        let commands = self.connection.executed().observe(telemetry, took_ns);
        if let Some(seat) = &self.seat {
            seat.commands(commands);
        }
    }

    /// Gives a connection whose queue may be used from now on a large buffer and an entry in the
    /// roster.
    fn note_admission(&mut self, now: u64) {
        // Its Connect has not arrived, or was refused.
        let Some(association) = self.connection.association() else {
            return;
        };
        let Some((_, qid)) = self.connection.connected() else {
            return;
        };

        // The name is known before it is verified: a line about a displaced connection may use it.
        if !self.is_named {
            self.is_named = true;
            let half_open = &self.shared.half_open;
            half_open.set_host(self.number, association.hostnqn());
        }
        if !self.connection.is_admitted() {
            return;
        }

        // From here on the connection counts for its host, has a buffer for whole transfers, and is
        // listed.
        self.is_admitted = true;
        self.buffer.grow(2 * PDU_BYTES_MAX);
        self.shared.half_open.remove(self.number);

        let tls = self.connection.proven();
        let text = wording::connected(association, qid, tls, self.connection.proof());
        let label = label(self.connection, self.number, self.peer);
        // A host that uses the device has one line: that of its first queue for commands.
        let is_detail = qid != 1;
        let event = Ordinary {
            kind: if is_detail {
                "connected queue"
            } else {
                "connected"
            },
            text,
            is_detail,
        };
        self.shared.log.ordinary(self.shared.now(), &label, &event);

        let roster = &self.shared.roster;
        self.seat = Some(roster.enter(self.number, self.peer, qid, association, now));
    }

    /// Periodic checks: returns a reason to end the connection, if there is one.
    fn tick(&mut self) -> io::Result<Option<String>> {
        if self.shared.port.subsystem().is_broken() {
            return Ok(Some("the device has failed".into()));
        }

        let now = self.shared.now();
        // Judged only if no input is waiting, since arrived data count as heard.
        match self.deadlines.begin_tick(now, self.has_arrived()) {
            Tick::Judge => {}
            Tick::PutOff => return Ok(None),
            Tick::AfterPause => {
                self.connection.begin_anew(now);
                return Ok(None);
            }
        }

        if let Err(end) = self.connection.tick(now, &mut self.out) {
            return Ok(Some(wording::end(end)));
        }
        let limits = &self.shared.limits;
        match self.deadlines.expired(self.connection, limits, now) {
            Some(why) => Err(io::Error::other(why)),
            None => Ok(None),
        }
    }

    /// Returns true if there is something to read, already decrypted or in the socket.
    fn has_arrived(&self) -> bool {
        self.stream.has_buffered() || socket::has_arrived(self.stream.tcp())
    }

    /// Returns true if the service ends, and the commands in progress have finished or had their
    /// time.
    fn must_stop(&mut self) -> bool {
        if !self.shared.stop.load(Ordering::Relaxed) {
            return false;
        }
        // Since the stop was first noticed, so that commands in progress have their time.
        let until = *self
            .stop_at
            .get_or_insert_with(|| Instant::now() + FINISH_WITHIN);
        self.connection.is_idle() || Instant::now() > until
    }

    /// Waits for input, a due completion or the next tick, and reads available input; `false` at
    /// the end of the stream.
    fn wait_and_read(&mut self) -> io::Result<bool> {
        let next_deadline = self.connection.next_deadline();
        if self.connection.waits_for_others() {
            return self.wait_for_memory(next_deadline);
        }

        if self.buffer.is_full() {
            // The buffer holds less than a PDU, or PDUs that wait until completions are due.
            let until = next_deadline.ok_or_else(|| io::Error::other("a PDU that does not end"))?;
            self.sleep(until, false);
            return Ok(true);
        }

        // Without completions to send later, wait in the socket read itself.
        match next_deadline {
            Some(until) if !self.sleep(until, true) => Ok(true),
            _ => self.read(),
        }
    }

    /// Like `wait_and_read`, while commands wait for memory held by others.
    fn wait_for_memory(&mut self, next_deadline: Option<u64>) -> io::Result<bool> {
        // Memory unused by this connection may be just what another one waits for, and vice versa.
        self.connection.release_spare(true, &mut self.out);

        // Checked after the wake-up socket exists, so that no wake-up is missed. Without file
        // descriptors it is checked at every tick.
        if self.woken.is_none() {
            self.woken = self.waker.open().ok();
        }
        let can_resume = self.connection.can_resume() && next_deadline.is_none();

        let for_input = !self.buffer.is_full();
        let has_input = for_input && self.stream.has_buffered();
        let until_due = next_deadline.map(|until| until.saturating_sub(self.shared.now()));
        let tick_ns = TICK.as_nanos() as u64;
        let wait_ns = until_due.unwrap_or(tick_ns).min(tick_ns);
        if !can_resume && !has_input {
            let woken = self.woken.as_ref();
            socket::wait_for_either(self.stream.tcp(), for_input, woken, wait_ns);
        }
        self.woken.iter_mut().for_each(wake::take);

        if for_input && !can_resume && self.has_arrived() {
            return self.read();
        }
        Ok(true)
    }

    /// Sleeps until there is input (if `for_input`), a completion is due at `until`, or the next
    /// tick; `true` if there is input.
    fn sleep(&self, until: u64, for_input: bool) -> bool {
        if for_input && self.stream.has_buffered() {
            return true;
        }

        // Sleep a little shorter and spin for the rest: the system does not wake threads to the
        // microsecond.
        let wait_ns = until
            .saturating_sub(self.shared.now())
            .saturating_sub(SPIN_NS)
            .min(TICK.as_nanos() as u64);

        if socket::wait(self.stream.tcp(), for_input, wait_ns) {
            return true;
        }
        while wait_ns == 0 && self.shared.now() < until {
            std::hint::spin_loop();
        }
        false
    }

    /// Reads available input; `false` at the end of the stream.
    fn read(&mut self) -> io::Result<bool> {
        match self.buffer.read(&mut self.stream) {
            Ok(bytes) => Ok(bytes > 0),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                // Nothing arrived for a tick: the host is idle, so release its spare buffers.
                self.connection.release_spare(true, &mut self.out);
                Ok(true)
            }
            // A signal, or the process was resumed: the connection is unaffected.
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error),
        }
    }
}
