//! The unit that is being put together: pages with new contents, over the contents that the unit has had.
//!
//! Invariants: a page that is neither written, copied nor zeroed keeps its content; only a unit whose pages all come from
//! unmapped units, or are zeroed, counts as zeroes. Absent: the commands, and where units are.

use super::identity::{Parts, ZEROES, part_of};
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_media::{ContentMode, PageView, Payload};
use std::ops::Range;

/// Stands for a page whose bytes are in the buffer, and for contents that are not stored.
const STORED: u64 = 1;

/// Pages of one unit.
pub(super) struct UnitAssembly {
    /// Pages of a unit.
    len: u32,
    /// The pages that are there, with their identities; of bytes, whether they are zeroes.
    parts: Parts,
    /// The unit's bytes; empty if contents are identities.
    bytes: Box<[u8]>,
}

/// The bytes of a page in its unit.
pub(super) fn bytes_of(place: u32) -> Range<usize> {
    let start = place as usize * PAGE_BYTES;
    start..start + PAGE_BYTES
}

impl UnitAssembly {
    pub(super) fn new(len: u32, mode: ContentMode) -> Self {
        let bytes = match mode {
            ContentMode::Bytes => len as usize * PAGE_BYTES,
            ContentMode::Identity | ContentMode::None => 0,
        };
        Self {
            len,
            parts: Parts::default(),
            bytes: vec![0; bytes].into(),
        }
    }

    /// Begins another unit.
    pub(super) fn clear(&mut self) {
        self.parts = Parts::default();
    }

    /// Number of pages that are there.
    pub(super) fn count(&self) -> u32 {
        self.parts.count()
    }

    /// Adds a page that the host writes.
    pub(super) fn write(&mut self, place: u32, payload: &Payload<'_>) {
        match payload {
            Payload::Identity(identity) => self.parts.set(place, *identity),
            Payload::Bytes(bytes) => {
                // Without contents there is no room for them.
                if !self.bytes.is_empty() {
                    self.bytes[bytes_of(place)].copy_from_slice(bytes);
                }
                self.parts.set(place, STORED);
            }
        }
    }

    /// Adds a page that is only counted: of a read.
    pub(super) fn mark(&mut self, place: u32) {
        self.parts.set(place, STORED);
    }

    /// Adds a page of zeroes.
    pub(super) fn zero(&mut self, place: u32) {
        self.parts.set(place, ZEROES);
        if !self.bytes.is_empty() {
            self.bytes[bytes_of(place)].fill(0);
        }
    }

    /// Adds page `from` of another unit, or of this one as it was.
    pub(super) fn copy(&mut self, place: u32, unit: PageView<'_>, from: u32) {
        match unit {
            PageView::Zeroes => self.zero(place),
            PageView::Bytes(bytes) => {
                self.bytes[bytes_of(place)].copy_from_slice(&bytes[bytes_of(from)]);
                self.parts.set(place, STORED);
            }
            PageView::Identity(identity) => self.parts.set(place, part_of(identity, from)),
            PageView::Unknown => self.parts.set(place, part_of(STORED, from)),
        }
    }

    /// The unit with these pages over what it was; true if all of it is zeroes.
    pub(super) fn over(&mut self, before: PageView<'_>) -> (Payload<'_>, bool) {
        let was = match before {
            PageView::Zeroes => ZEROES,
            PageView::Identity(identity) => identity,
            PageView::Unknown | PageView::Bytes(_) => STORED,
        };
        let identity = self.parts.over(was, self.len);
        let is_zeroes = identity == ZEROES;
        if self.bytes.is_empty() {
            return (Payload::Identity(identity), is_zeroes);
        }

        for place in (0..self.len).filter(|place| !self.parts.has(*place)) {
            let page = &mut self.bytes[bytes_of(place)];
            match before {
                PageView::Bytes(bytes) => page.copy_from_slice(&bytes[bytes_of(place)]),
                _ => page.fill(0),
            }
        }
        (Payload::Bytes(&self.bytes), is_zeroes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(fill: [u8; 4]) -> Vec<u8> {
        fill.into_iter()
            .flat_map(|byte| [byte; PAGE_BYTES])
            .collect()
    }

    #[test]
    fn pages_that_are_not_written_keep_their_bytes() {
        let mut unit_of = UnitAssembly::new(4, ContentMode::Bytes);
        unit_of.write(1, &Payload::Bytes(&[9; PAGE_BYTES]));
        unit_of.copy(3, PageView::Bytes(&unit([5, 6, 7, 8])), 0);
        let before = unit([1, 2, 3, 4]);
        let (merged, is_zeroes) = unit_of.over(PageView::Bytes(&before));
        assert_eq!(merged, Payload::Bytes(&unit([1, 9, 3, 5])));
        assert!(!is_zeroes);

        // Over an unmapped unit the others are zeroes, not what the last unit had there.
        unit_of.clear();
        unit_of.zero(1);
        assert_eq!(unit_of.count(), 1);
        let (merged, is_zeroes) = unit_of.over(PageView::Zeroes);
        assert_eq!((merged, is_zeroes), (Payload::Bytes(&unit([0; 4])), true));
        let (_, is_zeroes) = unit_of.over(PageView::Bytes(&before));
        assert!(!is_zeroes);
    }
}
