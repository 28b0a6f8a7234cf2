//! A header with its records, in memory: the layout that SQLite sees.
//!
//! ```text
//! header's sector | record | record | ..  | gap | tail
//! ```
//!
//! Invariants: records are whole; bytes written after the last one are the tail: an incomplete
//! record, or the super-journal's name. Bytes of a header's sector after SQLite's 28, and a gap,
//! read as zeroes.
//!
//! Absent: the images (`images.rs`).

use super::layout::{
    Head, Header, JournalGeometry, PAGE, Page, RecordEntry, RecordPlace, SlotPart, tail_check,
};

/// A segment of a journal: a header and its records.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    /// Number of the segment, from 0.
    pub number: u32,
    /// The header that SQLite writes, as it is.
    pub header: Header,
    /// Page and sector size of the segment.
    pub shape: JournalGeometry,
    /// Nonce of the transaction, which tells it from earlier ones.
    pub nonce: u64,
    /// SQLite's offset of the segment, in bytes.
    pub offset: u64,
    /// Its offset in the store's file.
    pub at: u64,
    /// Its records, in the order in which SQLite wrote them.
    pub entries: Vec<RecordEntry>,
    /// SQLite's offset of the tail. Undefined if the tail is empty.
    pub tail_at: u64,
    /// Bytes after the last record.
    pub tail: Vec<u8>,
    /// The part of the tail that the last sync made durable.
    pub synced_part: SlotPart,
    /// Number of entries in the store.
    pub entries_stored: usize,
    /// True if it has changed since metadata page 0 was written.
    pub changed: bool,
    /// True if some version of metadata page 0 is in the store.
    pub is_stored: bool,
}

/// A part of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The sector of the header, from this byte on.
    Header(usize),
    /// A record, from this byte of it on.
    Record(usize, usize),
    Behind,
}

impl Segment {
    /// Creates a segment without records.
    pub(super) fn new(header: Header, shape: JournalGeometry, nonce: u64) -> Self {
        Self {
            number: 0,
            header,
            shape,
            nonce,
            offset: 0,
            at: 0,
            entries: Vec::new(),
            tail_at: 0,
            tail: Vec::new(),
            synced_part: SlotPart::default(),
            entries_stored: 0,
            changed: true,
            is_stored: false,
        }
    }

    /// Creates the segment after this one.
    pub(super) fn next(&self, header: Header) -> Self {
        let (number, offset, at) = (
            self.number + 1,
            self.next_offset(),
            self.at + self.bytes_stored(),
        );
        Self {
            number,
            offset,
            at,
            ..Self::new(header, self.shape, self.nonce)
        }
    }

    /// Creates a segment from its stored head, without records yet.
    pub(super) fn stored(head: &Head, at: u64) -> Self {
        Self {
            number: head.segment,
            offset: head.offset,
            at,
            changed: false,
            is_stored: true,
            ..Self::new(head.header, head.shape, head.nonce)
        }
    }

    /// Identifies a record of this segment.
    pub(super) fn place(&self, index: usize) -> RecordPlace {
        RecordPlace {
            nonce: self.nonce,
            segment: self.number,
            index,
        }
    }

    /// SQLite's offset of the first record.
    pub(super) fn records_at(&self) -> u64 {
        self.offset + self.shape.sector()
    }

    /// SQLite's offset after the last record.
    pub(super) fn records_end(&self) -> u64 {
        self.records_at() + self.entries.len() as u64 * self.shape.record_bytes()
    }

    /// SQLite's offset of the end.
    pub(super) fn end(&self) -> u64 {
        if self.tail.is_empty() {
            self.records_end()
        } else {
            self.tail_at + self.tail.len() as u64
        }
    }

    /// SQLite's offset of the next header.
    pub(super) fn next_offset(&self) -> u64 {
        self.end().next_multiple_of(self.shape.sector())
    }

    /// `next_offset` if the tail were truncated at an offset first.
    pub(super) fn next_offset_if_cut(&self, offset: u64) -> u64 {
        // A tail that begins after the cut is gone whole.
        let end = if self.tail_at < offset {
            self.end().min(offset)
        } else {
            self.records_end()
        };
        end.next_multiple_of(self.shape.sector())
    }

    /// Returns true if these bytes of the database belong to a page whose image is not yet counted
    /// in the store's metadata.
    pub(super) fn has_unstored_image_of(&self, offset: u64, bytes: u64) -> bool {
        let unstored = &self.entries[self.entries_stored.min(self.entries.len())..];
        // A slot holds parts of several small pages: any of them may be this one.
        if !self.shape.has_images() {
            return !unstored.is_empty();
        }
        let page = self.shape.slot_bytes() as u64;
        unstored.iter().any(|entry| {
            // SQLite numbers pages from 1.
            let number = u64::from(u32::from_be_bytes(entry.page));
            number * page > offset && (number.saturating_sub(1)) * page < offset + bytes
        })
    }

    /// Offset of a slot in the store's file.
    pub(super) fn slot_at(&self, index: usize) -> u64 {
        self.at + self.shape.slot_at(index)
    }

    /// The part at an offset, which is in this segment or after it.
    pub(super) fn part(&self, offset: u64) -> Part {
        let Some(within) = offset.checked_sub(self.records_at()) else {
            return Part::Header((offset - self.offset) as usize);
        };
        let index = (within / self.shape.record_bytes()) as usize;
        if index < self.entries.len() {
            return Part::Record(index, (within % self.shape.record_bytes()) as usize);
        }
        Part::Behind
    }

    /// Returns true if the tail has pages of its own.
    pub(super) fn tail_has_pages(&self) -> bool {
        self.shape.tail_has_pages(self.tail.len())
    }

    /// Offset of these in the store's file: the place of the next slot. Small-page bytes are in the
    /// tail first and in the slot later, at the same place.
    pub(super) fn tail_pages_at(&self) -> u64 {
        self.slot_at(self.entries.len())
    }

    /// Bytes of the store's file that it occupies.
    fn bytes_stored(&self) -> u64 {
        if self.tail_has_pages() {
            return self.tail_pages_at() + self.tail.len().next_multiple_of(PAGE) as u64 - self.at;
        }
        let slot = self.shape.slot_bytes() as u64;
        // Without records there is only metadata page 0.
        self.entries
            .len()
            .checked_sub(1)
            .map_or(PAGE as u64, |last| self.shape.slot_at(last) + slot)
    }

    /// The first metadata page: the head of the segment.
    pub(super) fn metadata(&self) -> Page {
        let outside = self.tail_has_pages();
        let head = Head {
            header: self.header,
            nonce: self.nonce,
            segment: self.number,
            shape: self.shape,
            records: self.entries.len() as u32,
            offset: self.offset,
            tail_at: self.tail_at,
            tail_bytes: self.tail.len() as u32,
            tail_check: if outside {
                tail_check(self.nonce, self.number, &self.tail)
            } else {
                0
            },
            tail: if outside {
                Vec::new()
            } else {
                self.tail.clone()
            },
            part: self.synced_part,
        };

        head.put(&self.entries)
    }

    /// Records that everything is durable. A tail that becomes a slot is rewritten at its place, so
    /// its durable part must be found if the rewrite is lost.
    pub(super) fn note_sync(&mut self) {
        if !self.shape.has_images() && self.tail_at == self.records_end() {
            let (index, bytes) = (self.entries.len() as u32, self.tail.len() as u32);
            self.synced_part = SlotPart {
                index,
                bytes,
                check: tail_check(self.nonce, self.number, &self.tail),
            };
        }
    }

    /// Writes after the last record.
    pub(super) fn put_tail(&mut self, offset: u64, data: &[u8]) {
        if self.tail.is_empty() {
            self.tail_at = offset;
        } else if offset < self.tail_at {
            let gap = (self.tail_at - offset) as usize;
            self.tail.splice(..0, std::iter::repeat_n(0, gap));
            self.tail_at = offset;
        }
        let at = (offset - self.tail_at) as usize;
        let end = at + data.len();
        if end > self.tail.len() {
            self.tail.resize(end, 0);
        }
        self.tail[at..end].copy_from_slice(data);
        self.changed = true;
    }

    /// Takes the first record from the tail, if it is complete: page number, image and checksum.
    pub(super) fn take_record(&mut self) -> Option<Vec<u8>> {
        let bytes = self.shape.record_bytes() as usize;
        // Records are contiguous: bytes after a gap stay in the tail.
        if self.tail.len() < bytes || self.tail_at != self.records_end() {
            return None;
        }
        self.tail_at += bytes as u64;
        let rest = self.tail.split_off(bytes);
        Some(std::mem::replace(&mut self.tail, rest))
    }

    /// Sets a record at this index, the next one or an earlier one. Returns its image.
    pub(super) fn set_record(&mut self, index: usize, mut record: Vec<u8>) -> Vec<u8> {
        let frame = self.shape.frame_bytes();
        let sum = record.split_off(record.len() - frame);
        let image = record.split_off(frame);
        let four = |bytes: &[u8]| bytes.try_into().unwrap_or_default();
        let entry = RecordEntry::new(four(&record), four(&sum), &image, self.place(index));

        match self.entries.get_mut(index) {
            Some(old) => *old = entry,
            None => self.entries.push(entry),
        }
        // The store may have an older one at this index.
        self.entries_stored = self.entries_stored.min(index);
        self.changed = true;
        image
    }

    /// Builds the record of an image.
    pub(super) fn record(&self, index: usize, image: &[u8]) -> Vec<u8> {
        let (frame, entry) = (self.shape.frame_bytes(), &self.entries[index]);
        [&entry.page[..frame], image, &entry.sum[..frame]].concat()
    }

    /// Truncates the tail at an offset.
    pub(super) fn cut_tail(&mut self, offset: u64) {
        self.tail
            .truncate(offset.saturating_sub(self.tail_at) as usize);
        self.changed = true;
    }

    /// Removes the records from this one on, and sets the tail.
    pub(super) fn cut_records(&mut self, index: usize, tail: Vec<u8>) {
        self.entries.truncate(index);
        self.entries_stored = self.entries_stored.min(index);
        (self.tail_at, self.tail) = (self.records_end(), tail);
        self.changed = true;
    }
}
