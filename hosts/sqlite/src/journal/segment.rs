//! A header with its records, in memory: what SQLite has where.
//!
//! ```text
//! header's sector | record | record | ..  | gap | tail
//! ```
//!
//! Invariants: records are whole; what SQLite wrote behind the last one is the tail: a record that
//! is not complete yet, the super-journal's name. Bytes of a header's sector behind SQLite's 28,
//! and a gap, read as zeroes.
//!
//! Absent: the images (`images.rs`).

use super::layout::{
    Head, Header, JournalGeometry, PAGE, Page, RecordEntry, RecordPlace, SlotPart, tail_check,
};

/// A segment of a journal: a header and its records.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Number of the segment, from 0.
    pub number: u32,
    /// The header that SQLite writes, as it is.
    pub header: Header,
    /// Page and sector size of the segment.
    pub shape: JournalGeometry,
    /// Nonce of the transaction, which tells it from earlier ones.
    pub nonce: u64,
    /// Offset at which SQLite has it, in bytes.
    pub offset: u64,
    /// Where it is in the store's file.
    pub at: u64,
    /// Its records, in the order in which SQLite wrote them.
    pub entries: Vec<RecordEntry>,
    /// Where SQLite has the tail. Means nothing if that is empty.
    pub tail_at: u64,
    /// Bytes behind the last record.
    pub tail: Vec<u8>,
    /// What the last sync made durable of the tail.
    pub synced_part: SlotPart,
    /// Entries that the store has.
    pub entries_stored: usize,
    /// Something has changed since metadata page 0 was written.
    pub changed: bool,
    /// Metadata page 0 is in the store, in one version or another.
    pub is_stored: bool,
}

/// A part of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The sector of the header, from this byte on.
    Header(usize),
    /// A record, from this byte of it on.
    Record(usize, usize),
    Behind,
}

impl Segment {
    /// A segment that has no records yet.
    pub fn new(header: Header, shape: JournalGeometry, nonce: u64) -> Self {
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

    /// The one behind this one.
    pub fn next(&self, header: Header) -> Self {
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

    /// One of which the store has everything but the records.
    pub fn stored(head: &Head, at: u64) -> Self {
        Self {
            number: head.segment,
            offset: head.offset,
            at,
            changed: false,
            is_stored: true,
            ..Self::new(head.header, head.shape, head.nonce)
        }
    }

    /// Which record of which transaction.
    pub fn place(&self, index: usize) -> RecordPlace {
        RecordPlace {
            nonce: self.nonce,
            segment: self.number,
            index,
        }
    }

    /// Where SQLite has the first record.
    pub fn records_at(&self) -> u64 {
        self.offset + self.shape.sector()
    }

    /// Where SQLite has the end of the last record.
    pub fn records_end(&self) -> u64 {
        self.records_at() + self.entries.len() as u64 * self.shape.record_bytes()
    }

    /// Where SQLite has the end.
    pub fn end(&self) -> u64 {
        if self.tail.is_empty() {
            self.records_end()
        } else {
            self.tail_at + self.tail.len() as u64
        }
    }

    /// Where SQLite has the next header.
    pub fn next_offset(&self) -> u64 {
        self.end().next_multiple_of(self.shape.sector())
    }

    /// The same if its tail were cut off at an offset first.
    pub fn next_offset_if_cut(&self, offset: u64) -> u64 {
        // A tail that begins behind the cut is gone whole.
        let end = if self.tail_at < offset {
            self.end().min(offset)
        } else {
            self.records_end()
        };
        end.next_multiple_of(self.shape.sector())
    }

    /// Whether these bytes of the database belong to a page whose image the store's metadata does
    /// not count yet.
    pub fn has_unstored_image_of(&self, offset: u64, bytes: u64) -> bool {
        let unstored = &self.entries[self.entries_stored.min(self.entries.len())..];
        // Slots hold parts of several small pages: any of them may have this one.
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

    /// Where a slot is in the store's file.
    pub fn slot_at(&self, index: usize) -> u64 {
        self.at + self.shape.slot_at(index)
    }

    /// What SQLite has at an offset, which is in this segment or behind it.
    pub fn part(&self, offset: u64) -> Part {
        let Some(within) = offset.checked_sub(self.records_at()) else {
            return Part::Header((offset - self.offset) as usize);
        };
        let index = (within / self.shape.record_bytes()) as usize;
        if index < self.entries.len() {
            return Part::Record(index, (within % self.shape.record_bytes()) as usize);
        }
        Part::Behind
    }

    /// Whether the tail has pages of its own.
    pub fn tail_has_pages(&self) -> bool {
        self.shape.tail_has_pages(self.tail.len())
    }

    /// Where these are in the store's file: at the place of the next slot. SQLite's bytes as they
    /// come are in the tail first and in the slot then, at the same place.
    pub fn tail_pages_at(&self) -> u64 {
        self.slot_at(self.entries.len())
    }

    /// Bytes of the store's file that it takes.
    fn bytes_stored(&self) -> u64 {
        if self.tail_has_pages() {
            return self.tail_pages_at() + self.tail.len().next_multiple_of(PAGE) as u64 - self.at;
        }
        let slot = self.shape.slot_bytes() as u64;
        // Without records only metadata page 0 is there.
        self.entries
            .len()
            .checked_sub(1)
            .map_or(PAGE as u64, |last| self.shape.slot_at(last) + slot)
    }

    /// The first metadata page: the head of the segment.
    pub fn metadata(&self) -> Page {
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

    /// Notes that everything is durable. A tail that becomes a slot is written again at its place,
    /// so that what is durable of it now must be found if that is lost.
    pub fn note_sync(&mut self) {
        if !self.shape.has_images() && self.tail_at == self.records_end() {
            let (index, bytes) = (self.entries.len() as u32, self.tail.len() as u32);
            self.synced_part = SlotPart {
                index,
                bytes,
                check: tail_check(self.nonce, self.number, &self.tail),
            };
        }
    }

    /// Writes behind the last record.
    pub fn put_tail(&mut self, offset: u64, data: &[u8]) {
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

    /// Takes the first record out of the tail, if one is complete there: its page number, image and
    /// checksum.
    pub fn take_record(&mut self) -> Option<Vec<u8>> {
        let bytes = self.shape.record_bytes() as usize;
        // Records follow one another without gaps: what is behind one stays in the tail.
        if self.tail.len() < bytes || self.tail_at != self.records_end() {
            return None;
        }
        self.tail_at += bytes as u64;
        let rest = self.tail.split_off(bytes);
        Some(std::mem::replace(&mut self.tail, rest))
    }

    /// Notes a record at this index, the next one or an earlier one. Answers its image.
    pub fn set_record(&mut self, index: usize, mut record: Vec<u8>) -> Vec<u8> {
        let frame = self.shape.frame_bytes();
        let sum = record.split_off(record.len() - frame);
        let image = record.split_off(frame);
        let four = |bytes: &[u8]| bytes.try_into().unwrap_or_default();
        let entry = RecordEntry::new(four(&record), four(&sum), &image, self.place(index));

        match self.entries.get_mut(index) {
            Some(old) => *old = entry,
            None => self.entries.push(entry),
        }
        // The store may have an older one under this index.
        self.entries_stored = self.entries_stored.min(index);
        self.changed = true;
        image
    }

    /// The record around an image.
    pub fn record(&self, index: usize, image: &[u8]) -> Vec<u8> {
        let (frame, entry) = (self.shape.frame_bytes(), &self.entries[index]);
        [&entry.page[..frame], image, &entry.sum[..frame]].concat()
    }

    /// Takes away what the tail has from an offset on.
    pub fn cut_tail(&mut self, offset: u64) {
        self.tail
            .truncate(offset.saturating_sub(self.tail_at) as usize);
        self.changed = true;
    }

    /// Takes away the records from this one on; this becomes the tail.
    pub fn cut_records(&mut self, index: usize, tail: Vec<u8>) {
        self.entries.truncate(index);
        self.entries_stored = self.entries_stored.min(index);
        (self.tail_at, self.tail) = (self.records_end(), tail);
        self.changed = true;
    }
}
