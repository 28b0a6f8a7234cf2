//! The supervisor of the service, systemd as a rule: the socket that it passes, and what it is told.
//!
//! Invariants: without a supervisor nothing happens; READY is sent only when hosts can connect;
//! WATCHDOG is sent only by a service whose device has just been free for a turn; a socket that is
//! not understood is refused, since hosts would wait behind it. Absent: signals (`fronts`), and who
//! may connect (`access`).

use crate::failure::Failure;
use listenfd::ListenFd;
use remap_ssd_nvme::controller::Subsystem;
use sd_notify::NotifyState;
use std::net::TcpListener;
use std::time::{Duration, Instant};

/// The socket for NVMe/TCP that was passed (`LISTEN_FDS`), if any. It stays open at the supervisor
/// while this program is replaced, so that hosts find the port open. `chosen`: there are addresses to
/// listen at already.
///
/// # Errors
/// What was passed is something else, or more than one, or not all that is to be listened on.
pub fn passed_socket(chosen: bool) -> Result<Option<TcpListener>, Failure> {
    let mut passed = ListenFd::from_env();
    // More than one would leave the others unanswered.
    if passed.len() > 1 {
        return Err(Failure::failed(format_args!(
            "{} sockets were passed: one is enough, for NVMe/TCP",
            passed.len()
        )));
    }
    if chosen && passed.len() > 0 {
        return Err(Failure::usage(
            "--listen: a socket was passed to listen on; leave the option out, or do not pass the socket",
        ));
    }
    let wrong = |error| Failure::about("the socket that was passed", error);
    let socket = passed.take_tcp_listener(0).map_err(wrong)?;

    if let Some(socket) = &socket {
        // A socket that does not listen would never accept anybody, and hosts would wait behind it.
        let accepts = rustix::net::sockopt::socket_acceptconn(socket);
        if !accepts.map_err(|error| wrong(error.into()))? {
            return Err(Failure::failed(
                "the socket that was passed does not listen",
            ));
        }
        // A supervisor may have used it without blocking; the server waits in `accept`.
        socket.set_nonblocking(false).map_err(wrong)?;
    }
    Ok(socket)
}

/// Who started the service and waits for what it says (`NOTIFY_SOCKET`).
pub struct Supervisor {
    is_there: bool,
    watchdog: Option<Watchdog>,
}

/// How often the service must say that it is alive.
struct Watchdog {
    every: Duration,
    last: Instant,
}

impl Supervisor {
    /// As the environment has it.
    pub fn from_env() -> Self {
        let is_there = std::env::var_os("NOTIFY_SOCKET").is_some();
        // Twice in the time that is allowed.
        let every = sd_notify::watchdog_enabled().filter(|_| is_there);
        let watchdog = every.map(|allowed| Watchdog {
            every: allowed / 2,
            last: Instant::now(),
        });
        Self { is_there, watchdog }
    }

    /// Whether somebody supervises the service at all.
    pub fn is_there(&self) -> bool {
        self.is_there
    }

    /// How long the service may wait for something before it has to call `alive`.
    pub fn patience(&self, most: Duration) -> Duration {
        self.watchdog.as_ref().map_or(most, |watchdog| {
            let left = watchdog.every.saturating_sub(watchdog.last.elapsed());
            most.min(left)
        })
    }

    /// Says that the service is alive when it is time to, after a turn of the device: if that hangs,
    /// nothing is said.
    pub fn alive(&mut self, subsystem: &Subsystem) {
        let Some(watchdog) = &mut self.watchdog else {
            return;
        };
        if watchdog.last.elapsed() < watchdog.every {
            return;
        }
        watchdog.last = Instant::now();

        // Proof of life is a turn at the device: a thread that merely runs proves nothing.
        drop(subsystem.device());
        if !subsystem.is_broken() {
            say(&[NotifyState::Watchdog]);
        }
    }
}

/// Tells the supervisor that hosts can connect.
pub fn ready() {
    say(&[NotifyState::Ready]);
}

/// Keys and names are about to be loaded again; `ready` follows.
pub fn reloading() {
    // systemd wants to know when, to tell it from the reload before.
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        say(&[NotifyState::Reloading, now]);
    }
}

/// Tells the supervisor that the service ends.
pub fn stopping() {
    say(&[NotifyState::Stopping]);
}

/// Nobody hears it if there is no supervisor.
fn say(what: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(what) {
        tracing::warn!("the supervisor does not hear this service: {error}");
    }
}
