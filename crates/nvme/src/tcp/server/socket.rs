//! Socket options, and waiting for a socket or a time.
//!
//! Absent: reading and writing.

use super::deadlines::TICK;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;
use std::io;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// TCP keep-alive: idle time, number of probes, interval.
const KEEPALIVE: (Duration, u32, Duration) = (Duration::from_secs(60), 4, Duration::from_secs(15));

/// Socket options: no delay, time-outs so that the thread can do other work, and keep-alive probes.
pub(super) fn prepare(stream: &TcpStream) -> io::Result<()> {
    // An answer is sent whole at once; waiting to fill a packet would only delay it.
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(TICK))?;
    stream.set_read_timeout(Some(TICK))?;

    // A crashed host machine sends nothing: the probes detect that.
    let (after, probes, interval) = KEEPALIVE;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, after)?;
    sockopt::set_tcp_keepcnt(stream, probes)?;
    sockopt::set_tcp_keepintvl(stream, interval)?;
    Ok(())
}

/// Returns true if there is something to read.
pub(super) fn has_arrived(stream: &TcpStream) -> bool {
    let mut fds = [PollFd::new(stream, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Returns true if the peer has closed the connection, even with bytes left to read.
pub(super) fn is_closed_by_peer(stream: &TcpStream) -> bool {
    // On other systems `poll` has no such event, so only a reset shows.
    #[cfg(target_os = "linux")]
    let events = PollFlags::RDHUP;
    #[cfg(not(target_os = "linux"))]
    let events = PollFlags::empty();

    let mut fds = [PollFd::new(stream, events)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Waits up to `wait_ns` for input, or for the full time if `for_input` is false; `true` if there
/// is input.
pub(super) fn wait(stream: &TcpStream, for_input: bool, wait_ns: u64) -> bool {
    let events = if for_input {
        PollFlags::IN
    } else {
        PollFlags::empty()
    };
    let mut fds = [PollFd::new(stream, events)];
    let timeout = Timespec {
        tv_sec: (wait_ns / 1_000_000_000) as i64,
        tv_nsec: (wait_ns % 1_000_000_000) as i64,
    };

    match poll(&mut fds, Some(&timeout)) {
        Ok(0) => false,
        Ok(_) if for_input => true,
        // The peer is gone, or the call failed: it would return at once again.
        Ok(_) | Err(_) => {
            std::thread::sleep(Duration::from_millis(1));
            false
        }
    }
}

/// Waits up to `wait_ns` for input on `stream`, if `for_input`, or on `woken`.
pub(super) fn wait_for_either(
    stream: &TcpStream,
    for_input: bool,
    woken: Option<&UnixStream>,
    wait_ns: u64,
) {
    let events = if for_input {
        PollFlags::IN
    } else {
        PollFlags::empty()
    };

    let mut fds = vec![PollFd::new(stream, events)];
    fds.extend(woken.map(|woken| PollFd::new(woken, PollFlags::IN)));
    let timeout = Timespec {
        tv_sec: (wait_ns / 1_000_000_000) as i64,
        tv_nsec: (wait_ns % 1_000_000_000) as i64,
    };

    // An early end is harmless: the caller checks everything again.
    let _ = poll(&mut fds, Some(&timeout));
}

/// Requests exact wake-ups of this thread, instead of up to 50 µs late.
pub(super) fn request_prompt_wakeups() {
    #[cfg(target_os = "linux")]
    // If that is impossible, completions are only late.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}
