//! Socket options, and waiting for a socket or a time.
//!
//! Absent: what is read and written.

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

    // A host whose machine has gone down says nothing: the probes find out.
    let (after, probes, interval) = KEEPALIVE;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, after)?;
    sockopt::set_tcp_keepcnt(stream, probes)?;
    sockopt::set_tcp_keepintvl(stream, interval)?;
    Ok(())
}

/// Whether there is something to read.
pub(super) fn has_arrived(stream: &TcpStream) -> bool {
    let mut fds = [PollFd::new(stream, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Whether the peer has closed the connection, even if there are bytes left to read.
pub(super) fn is_closed_by_peer(stream: &TcpStream) -> bool {
    // Elsewhere only a connection that was reset shows: poll has no such event.
    #[cfg(target_os = "linux")]
    let events = PollFlags::RDHUP;
    #[cfg(not(target_os = "linux"))]
    let events = PollFlags::empty();

    let mut fds = [PollFd::new(stream, events)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Waits up to `wait_ns` for input, or for the time alone if `for_input` is false; `true` if there
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
        // The peer has gone, or the call failed: it would return at once again.
        Ok(_) | Err(_) => {
            std::thread::sleep(Duration::from_millis(1));
            false
        }
    }
}

/// Waits up to `wait_ns` for input on the first, if that is wanted, or on the second.
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
    // An early end is harmless: the caller looks at everything again.
    let _ = poll(&mut fds, Some(&timeout));
}

/// Asks the system to wake this thread when it wants to be woken, and not up to 50 µs later.
pub(super) fn request_prompt_wakeups() {
    #[cfg(target_os = "linux")]
    // Where that is impossible completions are late, no more.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}
