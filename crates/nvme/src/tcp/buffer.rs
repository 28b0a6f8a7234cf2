//! Bytes received from a socket and not consumed yet.
//!
//! Invariant: the bytes are contiguous. Absent: their meaning.

use std::io::{self, Read};

/// A buffer of a fixed size.
pub(super) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buffer {
    pub(super) fn new(size: usize) -> Self {
        Self {
            bytes: vec![0; size],
            start: 0,
            end: 0,
        }
    }
    pub(super) fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }
    pub(super) fn consume(&mut self, len: usize) {
        self.start += len;
        // An empty buffer starts at the front again, so that moving bytes stays rare.
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }
    /// Returns true if unconsumed bytes are left.
    pub(super) fn has_more(&self) -> bool {
        self.start < self.end
    }
    /// Returns true if it is full of unconsumed data.
    pub(super) fn is_full(&self) -> bool {
        self.start == 0 && self.end == self.bytes.len()
    }
    pub(super) fn grow(&mut self, size: usize) {
        self.bytes.resize(size, 0);
    }
    /// Reads available bytes; 0 at the end of the stream. A signal ends the wait early, as the
    /// socket's time-out does: a caller that waits longer checks its clock and reads again.
    ///
    /// # Errors
    /// The system's reason, with `WouldBlock` instead of `Interrupted`. A connection reset is not
    /// an error, but the end of the stream.
    pub(super) fn read(&mut self, stream: &mut impl Read) -> io::Result<usize> {
        // At the end of the buffer a partial PDU moves to the front, to stay contiguous.
        if self.end == self.bytes.len() {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }

        match stream.read(&mut self.bytes[self.end..]) {
            Ok(read) => {
                self.end += read;
                Ok(read)
            }
            // A host that is gone has reset its connection; treat that as the end.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(0),
            // The system does not resume a read on a socket with a time-out (signal(7)). Waiting
            // again here would never end if signals come faster than the time-out.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream of single bytes, with a signal before each.
    struct Interrupted {
        left: Vec<u8>,
        is_interrupted: bool,
    }

    impl Read for Interrupted {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.is_interrupted ^= true;
            if self.is_interrupted {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let Some(byte) = self.left.pop() else {
                return Ok(0);
            };
            into[0] = byte;
            Ok(1)
        }
    }

    #[test]
    fn a_signal_is_an_occasion_to_look_at_the_clock_and_loses_nothing() {
        let mut stream = Interrupted {
            left: vec![3, 2, 1],
            is_interrupted: false,
        };
        let mut buffer = Buffer::new(16);
        let mut waits = 0;
        loop {
            match buffer.read(&mut stream) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    waits += 1;
                }
            }
        }
        assert_eq!((buffer.filled(), waits), (&[1, 2, 3][..], 4));
    }
}
