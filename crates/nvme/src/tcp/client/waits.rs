//! Waits for a socket, unaffected by signals.
//!
//! The system does not resume a wait on a socket with a time-out after a signal, even if the
//! handler was installed with `SA_RESTART` (signal(7)). Profilers, interval timers and garbage
//! collectors send thousands of signals per second.
//!
//! Invariants: a signal is not a failure and does not prolong a wait, whose duration is measured by
//! a clock. Absent: the reasons for waiting.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Writes all bytes. Signals neither fail nor prolong it: the peer must take something within the
/// socket's time-out.
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
            // Everything is taken; with TLS, some bytes may not be in the socket yet.
            match stream.flush() {
                Ok(()) => return Ok(()),
                Err(error) => Err(error),
            }
        };

        match result {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(taken) => (sent, interrupted) = (sent + taken, None),
            // The socket's time-out restarts after each signal.
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

/// Waits until something has arrived, or the connection has ended; `false` if `timeout` since
/// `began` expires first.
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
        // A time too long for the kernel's type means no limit.
        let left = Timespec::try_from(left).ok();
        match poll(&mut fds, left.as_ref()) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
}

/// The error after a time-out of the target.
pub(super) fn no_answer(what: &str, timeout: Duration) -> io::Error {
    let why = format!("{what} by the target within {} s", timeout.as_secs_f64());
    io::Error::new(io::ErrorKind::TimedOut, why)
}

/// Returns true if a socket's time-out has expired, or a wait ended early.
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

    /// A stream whose every write is interrupted.
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
