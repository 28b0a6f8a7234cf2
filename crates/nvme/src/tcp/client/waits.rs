//! Waiting for a socket, whatever signals the process gets meanwhile.
//!
//! A socket with a time-out is not waited for again after a signal, even if its handler was
//! installed with `SA_RESTART` (signal(7)). Profilers, interval timers and garbage collectors send
//! thousands of signals a second.
//!
//! Invariants: a signal is no failure, and prolongs no wait: how long one lasts is read from a
//! clock. Absent: which wait is for what.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Writes all of it. Signals are no failure, and prolong nothing: the peer must take something
/// within the time that the socket has for it.
pub(super) fn write_all(
    stream: &mut impl Write,
    bytes: &[u8],
    timeout: Duration,
) -> io::Result<()> {
    let mut sent = 0;
    let mut interrupted: Option<Instant> = None;
    loop {
        let result = if sent < bytes.len() {
            stream.write(&bytes[sent..])
        } else {
            // All of it is taken; with TLS, some may not be in the socket.
            match stream.flush() {
                Ok(()) => return Ok(()),
                Err(error) => Err(error),
            }
        };
        match result {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(taken) => (sent, interrupted) = (sent + taken, None),
            // The socket's time-out begins again after each signal.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                if interrupted.get_or_insert_with(Instant::now).elapsed() >= timeout {
                    return Err(no_answer("nothing was read", timeout));
                }
            }
            Err(error) if would_block(&error) => {
                return Err(no_answer("nothing was read", timeout));
            }
            Err(error) => return Err(error),
        }
    }
}

/// Waits until something has arrived, or the connection has ended; `false` if the time since
/// `began` is up before that.
pub(super) fn arrives_within(
    stream: &TcpStream,
    began: Instant,
    timeout: Duration,
) -> io::Result<bool> {
    let mut fds = [PollFd::new(stream, PollFlags::IN)];
    loop {
        let Some(left) = timeout.checked_sub(began.elapsed()) else {
            return Ok(false);
        };
        // A time that the kernel's type has no room for is without end.
        let left = Timespec::try_from(left).ok();
        match poll(&mut fds, left.as_ref()) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
}

/// The error after a time in which the target did nothing.
pub(super) fn no_answer(what: &str, timeout: Duration) -> io::Error {
    let why = format!("{what} by the target within {} s", timeout.as_secs_f64());
    io::Error::new(io::ErrorKind::TimedOut, why)
}

/// Whether a socket's time-out is over, or a wait ended early.
pub(super) fn would_block(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// Takes bytes in pieces, or is interrupted.
    struct Interrupted {
        taken: Vec<u8>,
        random: Xoshiro256PlusPlus,
    }

    impl Write for Interrupted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.random.random_bool(0.5) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let len = self.random.random_range(1..=bytes.len());
            self.taken.extend_from_slice(&bytes[..len]);
            Ok(len)
        }

        fn flush(&mut self) -> io::Result<()> {
            if self.random.random_bool(0.5) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            Ok(())
        }
    }

    #[test]
    fn what_is_written_between_signals_is_complete_and_in_order() {
        let bytes: Vec<u8> = (0..10_000_u32).map(|at| (at % 251) as u8).collect();
        for seed in 0..50 {
            let mut stream = Interrupted {
                taken: Vec::new(),
                random: Xoshiro256PlusPlus::seed_from_u64(seed),
            };
            write_all(&mut stream, &bytes, Duration::from_secs(30)).expect("only signals came");
            assert_eq!(stream.taken, bytes, "seed {seed}");
        }
    }

    /// Is interrupted whenever it is written to.
    struct AlwaysInterrupted;

    impl Write for AlwaysInterrupted {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::Interrupted.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_peer_that_reads_nothing_is_given_up_however_many_signals_come() {
        let error = write_all(&mut AlwaysInterrupted, &[0], Duration::from_millis(20))
            .expect_err("nothing was taken");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("within 0.02 s"), "{error}");
    }
}
