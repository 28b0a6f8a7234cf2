//! Writing to a peer that may stop reading.
//!
//! The socket's send time-out expires now and then, and this module decides whether to go on
//! waiting. A peer must take `STEP_BYTES`, or everything, within the limit: one that takes a byte
//! now and then is dropped too. Absent: what is written.

use std::io::{self, ErrorKind, IoSlice, Write};
use std::time::{Duration, Instant};

/// What a peer must take within the limit.
const STEP_BYTES: usize = 64 << 10;

/// A socket that is written to as long as its peer reads.
pub(super) struct Patient<'a, W> {
    socket: &'a mut W,
    within: Duration,
    /// When the wait for the next step began, if there is one.
    since: Option<Instant>,
    taken: usize,
}

impl<'a, W: Write> Patient<'a, W> {
    pub fn new(socket: &'a mut W, within: Duration) -> Self {
        Self {
            socket,
            within,
            since: None,
            taken: 0,
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
                    self.taken += written;
                    // The clock runs only while something waits to be written, and starts again
                    // after each step.
                    if written < wanted && self.since.is_none_or(|_| self.taken >= STEP_BYTES) {
                        (self.since, self.taken) = (Some(Instant::now()), 0);
                    }
                    return Ok(written);
                }

                // The socket's time-out is only an occasion to look at the clock.
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    if self.since.get_or_insert_with(Instant::now).elapsed() >= self.within {
                        return Err(io::Error::new(
                            ErrorKind::TimedOut,
                            "its host does not read what it asked for",
                        ));
                    }
                }
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

    /// Takes this many bytes, one in a millisecond.
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
        let error = Patient::new(&mut trickle, within)
            .write_all(&[0; 100])
            .expect_err("it stops");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(
            (within..10 * within).contains(&began.elapsed()),
            "{:?}",
            began.elapsed()
        );
    }
}
