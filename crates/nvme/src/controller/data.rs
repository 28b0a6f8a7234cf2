//! The data of one command on their way between host and device.
//!
//! The device takes and puts them front to back, a page or less at a time, each byte once. Where
//! they are is the transport's business: in a PDU that was received, in a buffer that will be sent,
//! in the memory of a guest. Invariant: what `take` shows does not change while it is looked at;
//! memory that the host may write to meanwhile has to be copied first. Absent: how much a command
//! moves (`Transfer` says that beforehand).

/// Where the data of one command lie: memory of a transport.
pub trait HostData {
    /// The next bytes that the host sends, at most a page of them; fewer than `len` if there are no
    /// more.
    fn take(&mut self, len: usize) -> &[u8];
    /// The next bytes for the host. After a command that failed they are to be forgotten.
    fn put(&mut self, bytes: &[u8]);
    /// So many zeroes for the host.
    fn put_zeroes(&mut self, len: usize);
}

/// Data that are in memory in one piece.
#[derive(Debug)]
pub struct InMemory<'a> {
    /// What the host sent and the device has not taken.
    pub from_host: &'a [u8],
    /// What the device puts is appended here.
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
}

/// All that the host sends, for commands whose data are a list.
pub(super) fn take_all(data: &mut dyn HostData, bytes: usize) -> Vec<u8> {
    let mut all = Vec::with_capacity(bytes);
    while all.len() < bytes {
        // Not more at once: a transport need not have more than a page in one piece.
        let piece = data.take((bytes - all.len()).min(remap_ssd_media::geometry::PAGE_BYTES));
        if piece.is_empty() {
            break;
        }
        all.extend_from_slice(piece);
    }
    all
}
