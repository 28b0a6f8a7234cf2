//! Bytes that have arrived on a socket and have not been used.
//!
//! Invariant: what is there is in one piece. Absent: what it means.

use std::io::{self, Read};

/// A buffer of a fixed size.
pub(super) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buffer {
    pub fn new(size: usize) -> Self {
        Self {
            bytes: vec![0; size],
            start: 0,
            end: 0,
        }
    }
    pub fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }
    pub fn consume(&mut self, len: usize) {
        self.start += len;
        // Once empty it begins at the front again, so that moving bytes stays rare.
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }
    /// Whether bytes are left that were not taken yet.
    pub fn has_more(&self) -> bool {
        self.start < self.end
    }
    /// Whether it is full of unused data.
    pub fn is_full(&self) -> bool {
        self.start == 0 && self.end == self.bytes.len()
    }
    pub fn grow(&mut self, size: usize) {
        self.bytes.resize(size, 0);
    }
    /// Reads what is there; 0 at the end.
    ///
    /// # Errors
    /// The system's reason, a connection that was reset not among them.
    pub fn read(&mut self, stream: &mut impl Read) -> io::Result<usize> {
        // At the end of the buffer the rest of a PDU moves to the front: a PDU is in one piece.
        if self.end == self.bytes.len() {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        match stream.read(&mut self.bytes[self.end..]) {
            Ok(read) => {
                self.end += read;
                Ok(read)
            }
            // A host that is gone has reset its connection, which is an end as good as any.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(0),
            Err(error) => Err(error),
        }
    }
}
