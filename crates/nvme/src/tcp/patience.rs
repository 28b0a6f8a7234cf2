//! Writing to a peer that may stop reading.
//!
//! The socket's send time-out expires now and then, and this module decides whether to go on
//! waiting. A peer must take `STEP_BYTES`, or everything, within the limit: one that takes a byte
//! now and then is dropped too. Invariant: time in which this process did not run is not charged to
//! the peer. Absent: the bytes written.

use std::io::{self, ErrorKind, IoSlice, Write};
use std::time::{Duration, Instant};

/// Bytes that a peer must take within the limit.
const STEP_BYTES: usize = 64 << 10;
/// The socket's time-out is far shorter: a longer gap means that this process was stopped.
const PAUSE: Duration = Duration::from_secs(2);

/// A writer that waits as long as its peer reads.
pub(super) struct Patient<'a, W> {
    socket: &'a mut W,
    wait: Wait,
    /// Returns true to give up waiting for the peer.
    gives_up: &'a mut dyn FnMut() -> bool,
}

/// Measures the wait for a peer.
struct Wait {
    within: Duration,
    /// Start of the wait for the next step, if there is one.
    since: Option<Instant>,
    /// Last reading of the clock.
    looked: Instant,
    taken: usize,
}

impl Wait {
    fn new(within: Duration, now: Instant) -> Self {
        Self {
            within,
            since: None,
            looked: now,
            taken: 0,
        }
    }

    /// Notes bytes taken by the peer; `waits` if some are left.
    fn note_taken(&mut self, now: Instant, bytes: usize, waits: bool) {
        self.taken += bytes;
        self.looked = now;
        // The clock runs only while something waits to be written, and restarts after each step.
        if waits && self.since.is_none_or(|_| self.taken >= STEP_BYTES) {
            (self.since, self.taken) = (Some(now), 0);
        }
    }

    /// Notes that nothing was taken; returns true if the peer's time is up.
    fn is_over(&mut self, now: Instant) -> bool {
        let gap = now.saturating_duration_since(self.looked);
        self.looked = now;
        let since = self.since.get_or_insert(now);
        if gap > PAUSE {
            *since += gap;
        }
        now.saturating_duration_since(*since) >= self.within
    }
}

impl<'a, W: Write> Patient<'a, W> {
    pub(super) fn new(
        socket: &'a mut W,
        within: Duration,
        gives_up: &'a mut dyn FnMut() -> bool,
    ) -> Self {
        Self {
            socket,
            wait: Wait::new(within, Instant::now()),
            gives_up,
        }
    }

    fn written(
        &mut self,
        wanted: usize,
        mut write: impl FnMut(&mut W) -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            match write(self.socket) {
                Ok(written) => {
                    let waits = written < wanted;
                    if waits && (self.gives_up)() {
                        return Err(ErrorKind::TimedOut.into());
                    }
                    if waits {
                        self.wait.note_taken(Instant::now(), written, waits);
                    } else {
                        self.wait.taken += written;
                    }
                    return Ok(written);
                }

                // The socket's time-out is only an occasion to check the clock.
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    if self.wait.is_over(Instant::now()) || (self.gives_up)() {
                        return Err(io::Error::new(
                            ErrorKind::TimedOut,
                            "its host does not read what it asked for",
                        ));
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl<W: Write> Write for Patient<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written(bytes.len(), |socket| socket.write(bytes))
    }
    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let wanted = slices.iter().map(|slice| slice.len()).sum();
        self.written(wanted, |socket| socket.write_vectored(slices))
    }
    fn flush(&mut self) -> io::Result<()> {
        self.written(0, |socket| socket.flush().map(|()| 0))
            .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes this many bytes, one per millisecond.
    struct Trickle(usize);

    impl Write for Trickle {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            std::thread::sleep(Duration::from_millis(1));
            self.0 = self.0.checked_sub(1).ok_or(ErrorKind::WouldBlock)?;
            Ok(1)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_peer_that_takes_nothing_is_waited_for_once_and_no_longer() {
        let began = Instant::now();
        let (mut trickle, within) = (Trickle(3), Duration::from_millis(50));
        let error = Patient::new(&mut trickle, within, &mut || false)
            .write_all(&[0; 100])
            .expect_err("it stops");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(
            (within..10 * within).contains(&began.elapsed()),
            "{:?}",
            began.elapsed()
        );
    }

    #[test]
    fn a_peer_is_not_judged_for_a_time_in_which_the_process_was_stopped() {
        let (mut now, second) = (Instant::now(), Duration::from_secs(1));
        let mut wait = Wait::new(10 * second, now);
        assert!(!wait.is_over(now));
        for _ in 0..20 {
            now += second / 4;
            assert!(!wait.is_over(now), "five seconds");
        }

        now += 3600 * second;
        assert!(!wait.is_over(now), "stopped for an hour");
        for quarter in 1..=20 {
            now += second / 4;
            assert_eq!(wait.is_over(now), quarter == 20, "{quarter}");
        }
    }

    #[test]
    fn a_signal_does_not_end_a_write_and_a_peer_that_is_given_up_does() {
        struct Interrupted(bool);
        impl Write for Interrupted {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                let first = std::mem::replace(&mut self.0, false);
                Err(if first {
                    ErrorKind::Interrupted
                } else {
                    ErrorKind::WouldBlock
                }
                .into())
            }
        }

        let (mut socket, within) = (Interrupted(true), Duration::from_secs(3600));
        let ended = Patient::new(&mut socket, within, &mut || true).flush();
        assert_eq!(
            ended.map_err(|error| error.kind()),
            Err(ErrorKind::TimedOut)
        );
        assert!(!socket.0, "it was tried again");
    }
}
