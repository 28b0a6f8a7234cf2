//! The supervisor of the service, usually systemd: the socket that it passes, and notifications to
//! it.
//!
//! Invariants: without a supervisor nothing happens; READY is sent only when hosts can connect;
//! WATCHDOG is sent only after the device's lock could be taken; an unusable socket is refused,
//! since hosts would hang on it. Absent: signals, and who may connect (`access`).

use crate::error::ServiceError;
use listenfd::ListenFd;
use remap_ssd_nvme::controller::Subsystem;
use sd_notify::NotifyState;
use std::net::TcpListener;
use std::time::{Duration, Instant};

/// Takes the passed socket for NVMe/TCP (`LISTEN_FDS`), if any. The supervisor keeps it open while
/// this program is replaced, so that hosts find the port open. `chosen`: there are listening
/// addresses in the description.
///
/// # Errors
/// The socket is of another kind, there is more than one, or there are listening addresses as well.
pub(crate) fn passed_socket(chosen: bool) -> Result<Option<TcpListener>, ServiceError> {
    let mut passed = ListenFd::from_env();
    // More than one would leave the others unanswered.
    if passed.len() > 1 {
        return Err(ServiceError::failed(format_args!(
            "{} sockets were passed: one is enough, for NVMe/TCP",
            passed.len()
        )));
    }
    if chosen && passed.len() > 0 {
        return Err(ServiceError::usage(
            "--listen: a socket was passed to listen on; leave the option out, or do not pass the socket",
        ));
    }
    let wrong = |error| ServiceError::about("the socket that was passed", error);
    let socket = passed.take_tcp_listener(0).map_err(wrong)?;

    if let Some(socket) = &socket {
        // A socket that does not listen would never accept a host, and hosts would hang.
        let accepts = rustix::net::sockopt::socket_acceptconn(socket);
        if !accepts.map_err(|error| wrong(error.into()))? {
            return Err(ServiceError::failed(
                "the socket that was passed does not listen",
            ));
        }
        // The supervisor may have made it non-blocking; the server blocks in `accept`.
        socket.set_nonblocking(false).map_err(wrong)?;
    }
    Ok(socket)
}

/// The supervisor that started the service and expects notifications (`NOTIFY_SOCKET`), if any.
#[derive(Clone)]
pub(crate) struct Supervisor {
    is_there: bool,
    watchdog: Option<Watchdog>,
}

/// Interval of the watchdog notifications.
#[derive(Clone)]
struct Watchdog {
    every: Duration,
    last: Instant,
}

impl Supervisor {
    /// From the environment, if `supervised`.
    pub(crate) fn from_env(supervised: bool) -> Self {
        let is_there = supervised && std::env::var_os("NOTIFY_SOCKET").is_some();
        // Twice per watchdog timeout.
        let every = sd_notify::watchdog_enabled().filter(|_| is_there);
        let watchdog = every.map(|allowed| Watchdog {
            every: allowed / 2,
            last: Instant::now(),
        });
        Self { is_there, watchdog }
    }

    /// Maximum wait before `alive` must be called.
    pub(crate) fn patience(&self, most: Duration) -> Duration {
        self.watchdog.as_ref().map_or(most, |watchdog| {
            let left = watchdog.every.saturating_sub(watchdog.last.elapsed());
            most.min(left)
        })
    }

    /// Sends a due watchdog notification, after taking the device's lock: if that hangs, none is
    /// sent.
    pub(crate) fn alive(&mut self, subsystem: &Subsystem) {
        let Some(watchdog) = &mut self.watchdog else {
            return;
        };
        if watchdog.last.elapsed() < watchdog.every {
            return;
        }
        watchdog.last = Instant::now();

        // Proof of life is taking the device's lock: a running thread proves nothing.
        drop(subsystem.device());
        if !subsystem.is_broken() {
            self.say(&[NotifyState::Watchdog]);
        }
    }

    /// Notifies the supervisor that hosts can connect.
    pub(crate) fn ready(&self) {
        self.say(&[NotifyState::Ready]);
    }

    /// Notifies the supervisor of a reload; `ready` follows.
    pub(crate) fn reloading(&self) {
        // systemd requires the time, to distinguish reloads.
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            self.say(&[NotifyState::Reloading, now]);
        }
    }

    /// Notifies the supervisor that the service is stopping.
    pub(crate) fn stopping(&self) {
        self.say(&[NotifyState::Stopping]);
    }

    /// Without a supervisor it has no effect.
    fn say(&self, what: &[NotifyState<'_>]) {
        if !self.is_there {
            return;
        }
        if let Err(error) = sd_notify::notify(what) {
            tracing::warn!("the supervisor does not hear this service: {error}");
        }
    }
}
