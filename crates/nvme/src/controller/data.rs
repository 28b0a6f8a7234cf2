//! The data of one command, in transit between host and device.
//!
//! The device takes and puts them front to back, at most a page at a time, each byte once. Their
//! location is up to the transport: in a received PDU, in a buffer to send, in the memory of a
//! guest. Invariant: the slice returned by `take` does not change while it is used; memory that the
//! host may write concurrently has to be copied first. Absent: the amount of data (`Transfer` tells
//! it beforehand).

/// Access to the data of one command in the memory of a transport.
pub trait HostData {
    /// The next bytes from the host, at most a page; fewer than `len` if there are no more.
    fn take(&mut self, len: usize) -> &[u8];
    /// Appends bytes for the host. After a failed command the caller must discard them.
    fn put(&mut self, bytes: &[u8]);
    /// Appends `len` zero bytes for the host.
    fn put_zeroes(&mut self, len: usize);
    /// Returns true if the next `len` bytes from the host are there, so that `take` cannot fail.
    fn holds(&self, _len: usize) -> bool {
        false
    }
}

/// Data contiguous in memory.
#[derive(Debug)]
pub struct InMemory<'a> {
    /// Bytes from the host that the device has not taken yet.
    pub from_host: &'a [u8],
    /// Buffer to which bytes for the host are appended.
    pub to_host: &'a mut Vec<u8>,
}

impl HostData for InMemory<'_> {
    fn take(&mut self, len: usize) -> &[u8] {
        let (taken, rest) = self.from_host.split_at(len.min(self.from_host.len()));
        self.from_host = rest;
        taken
    }
    fn put(&mut self, bytes: &[u8]) {
        self.to_host.extend_from_slice(bytes);
    }
    fn put_zeroes(&mut self, len: usize) {
        self.to_host.resize(self.to_host.len() + len, 0);
    }
    fn holds(&self, len: usize) -> bool {
        self.from_host.len() >= len
    }
}

/// Takes all data of the host, for commands whose data are a list.
pub(super) fn take_all(data: &mut dyn HostData, bytes: usize) -> Vec<u8> {
    let mut all = Vec::with_capacity(bytes);
    while all.len() < bytes {
        // No more at a time: a transport need not have more than a page contiguous.
        let piece = data.take((bytes - all.len()).min(remap_ssd_media::geometry::PAGE_BYTES));
        if piece.is_empty() {
            break;
        }
        all.extend_from_slice(piece);
    }
    all
}
