//! Output in order, in reused buffers.
//!
//! Small answers share a buffer; a delayed answer stays in its own. Invariant: spare buffers are
//! few and of ordinary size. Absent: the socket's time-outs.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};

/// Capacity that a buffer is shrunk to.
const SHRUNK_BYTES: usize = 4 << 10;
/// Maximum number and total size of spare buffers.
const SPARE_MAX: usize = 64;
const SPARE_BYTES_MAX: usize = 2 << 20;
/// Maximum buffers per system call.
const SLICES: usize = 64;

/// Bytes to send, in reused buffers.
#[derive(Debug, Default)]
pub struct Output {
    full: VecDeque<Vec<u8>>,
    open: Vec<u8>,
    full_bytes: usize,
    spare: Vec<Vec<u8>>,
    spare_bytes: usize,
}

impl Output {
    /// Number of bytes to send.
    pub fn len(&self) -> usize {
        self.full_bytes + self.open.len()
    }
    /// Returns true if there is no output.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Discards all output.
    pub(super) fn clear(&mut self) {
        self.open.clear();
        (self.full, self.full_bytes) = (VecDeque::new(), 0);
    }

    pub(super) fn open_is_empty(&self) -> bool {
        self.open.is_empty()
    }
    pub(super) fn open_len(&self) -> usize {
        self.open.len()
    }
    /// Bytes in full and in spare buffers.
    pub(super) fn whole_bytes(&self) -> usize {
        self.full_bytes + self.spare_bytes
    }
    pub(super) fn release(&mut self) {
        (self.spare, self.spare_bytes) = (Vec::new(), 0);
        self.open.shrink_to(SHRUNK_BYTES);
    }

    /// The buffer being filled.
    pub(super) fn open(&mut self) -> &mut Vec<u8> {
        &mut self.open
    }

    pub(super) fn spare(&mut self) -> Vec<u8> {
        let spare = self.spare.pop().unwrap_or_default();
        self.spare_bytes -= spare.capacity();
        spare
    }

    /// Appends a complete buffer.
    pub(super) fn push(&mut self, bytes: Vec<u8>) {
        // Earlier output goes first, so the open buffer is closed.
        if !self.open.is_empty() {
            let next = self.spare();
            let open = std::mem::replace(&mut self.open, next);
            self.full_bytes += open.len();
            self.full.push_back(open);
        }
        self.full_bytes += bytes.len();
        self.full.push_back(bytes);
    }

    /// Writes all output, and keeps a few buffers for reuse.
    ///
    /// # Errors
    /// The system's reason.
    pub fn write_to(&mut self, socket: &mut impl Write) -> io::Result<()> {
        // Only small answers, in one buffer: one write, and the buffer is reused.
        if self.full.is_empty() {
            socket.write_all(&self.open)?;
            self.open.clear();
            return Ok(());
        }

        let last = std::mem::take(&mut self.open);
        self.push(last);
        let mut written = 0;
        while let Some(first) = self.full.front() {
            // Remove buffers sent completely; `written` counts the bytes sent of the first
            // remaining one.
            if written >= first.len() {
                written -= first.len();
                let done = self.full.pop_front().unwrap_or_default();
                self.keep(done);
                continue;
            }

            // The unsent rest of the first buffer, then as many buffers as one call takes.
            let mut slices = [IoSlice::new(&[]); SLICES];
            let mut count = 0;
            for (slice, bytes) in slices.iter_mut().zip(&self.full) {
                *slice = IoSlice::new(&bytes[if count == 0 { written } else { 0 }..]);
                count += 1;
            }

            match socket.write_vectored(&slices[..count]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => written += sent,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }

        self.full_bytes = 0;
        Ok(())
    }

    fn keep(&mut self, mut bytes: Vec<u8>) {
        let capacity = bytes.capacity();
        // More would only keep the memory of a past peak.
        if self.spare.len() < SPARE_MAX
            && capacity > 0
            && self.spare_bytes + capacity <= SPARE_BYTES_MAX
        {
            bytes.clear();
            self.spare_bytes += capacity;
            self.spare.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a few bytes at a time.
    struct Slow(Vec<u8>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(3);
            self.0.extend(&bytes[..taken]);
            Ok(taken)
        }
        fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            let all: Vec<u8> = slices
                .iter()
                .flat_map(|slice| slice.iter().copied())
                .collect();
            self.write(&all)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn everything_is_written_in_order_however_slowly_it_is_taken() {
        let mut out = Output::default();
        let mut slow = Slow(Vec::new());
        let mut expected: Vec<u8> = Vec::new();
        for round in 0..5u8 {
            for piece in 0..100u8 {
                let bytes = vec![round ^ piece; usize::from(piece % 7)];
                expected.extend(&bytes);
                if piece % 3 == 0 {
                    out.push(bytes)
                } else {
                    out.open().extend(bytes)
                }
            }
            assert_eq!(out.len(), expected.len() - slow.0.len());
            out.write_to(&mut slow).expect("taken");
            assert!(out.is_empty() && slow.0 == expected, "round {round}");
        }
    }
}
