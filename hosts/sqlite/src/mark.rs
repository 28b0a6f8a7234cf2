//! The mark that identifies a page carrying the header of its frame.
//!
//! ```text
//! page ......................... | 24 bytes: header of the frame | 8 bytes: mark |
//! ```
//!
//! A page whose last 32 bytes are zero has room for the 24 bytes that SQLite writes before each
//! page of a write-ahead log. Page and header are then one page of the device, and a checkpoint
//! shares it with the database unchanged. Reading such a page, from the log or the database, yields
//! the zeroes that SQLite wrote.
//!
//! Invariant: a mark belongs to a store, so that a page keeps its meaning in any file of the store.
//! A user of a database cannot make SQLite write a page that ends in a volume's mark, since the
//! mark is unknown to users; by accident it is one page in 2^64.
//!
//! Absent: the choice of pages that get one (`wal`).

use xxhash_rust::xxh3::xxh3_64;

/// Size of a frame's header in SQLite's format.
pub(crate) const HEADER_BYTES: usize = 24;
/// Size of a stamp at the end of a page.
pub(crate) const STAMP_BYTES: usize = 32;

/// The mark of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark([u8; 8]);

impl Mark {
    /// The mark of the store with this identity.
    pub(crate) fn of(identity: &[u8; 16]) -> Self {
        Self(xxh3_64(identity).to_le_bytes())
    }

    /// Returns true if a page ends in zeroes where a stamp would be.
    pub(crate) fn has_room(page: &[u8]) -> bool {
        page.last_chunk::<STAMP_BYTES>()
            .is_some_and(|tail| *tail == [0; STAMP_BYTES])
    }

    /// Writes a header into the end of a page.
    ///
    /// # Panics
    /// The page is shorter than a stamp.
    pub(crate) fn stamp(self, page: &mut [u8], header: &[u8; HEADER_BYTES]) {
        let tail = page
            .last_chunk_mut::<STAMP_BYTES>()
            .expect("a page is longer than a stamp");
        tail[..HEADER_BYTES].copy_from_slice(header);
        tail[HEADER_BYTES..].copy_from_slice(&self.0);
    }

    /// The header that a page carries.
    pub(crate) fn header(self, page: &[u8]) -> Option<[u8; HEADER_BYTES]> {
        let tail = page.last_chunk::<STAMP_BYTES>()?;
        let (header, mark) = tail.split_first_chunk::<HEADER_BYTES>()?;
        (mark == self.0).then_some(*header)
    }

    /// Replaces the stamp of a page, if any, by the original zeroes. Returns the header.
    pub(crate) fn strip(self, page: &mut [u8]) -> Option<[u8; HEADER_BYTES]> {
        let header = self.header(page)?;
        page.last_chunk_mut::<STAMP_BYTES>()?.fill(0);
        Some(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_comes_off_as_it_went_on() {
        let mark = Mark::of(&[7; 16]);
        let mut page = vec![0; 4096];
        page[..100].fill(9);
        let clean = page.clone();
        assert!(Mark::has_room(&page));
        assert_eq!(mark.strip(&mut page), None);

        mark.stamp(&mut page, &[5; HEADER_BYTES]);
        assert_eq!(Mark::of(&[8; 16]).header(&page), None, "another store's");
        assert_eq!(mark.strip(&mut page), Some([5; HEADER_BYTES]));
        assert_eq!(page, clean);
    }
}
