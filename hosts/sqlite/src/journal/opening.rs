//! Reading a journal of another connection, as far as it is valid.
//!
//! Invariant: a journal ends before the first invalid part. An incomplete journal is no error:
//! before its sync has returned any part of it may be missing.

use super::layout::{
    HEADER_BYTES, Head, PAGE, Page, RecordEntry, SlotPart, entries_of, tail_check,
};
use super::segment::Segment;
use super::{Journal, Standing};
use remap_ssd_store::StoreError;

/// Bytes of images per read.
const READ_BYTES: usize = 1 << 20;

impl Journal {
    /// Ensures that the cached state is valid; `anew` if another process may have ended the
    /// journal, or begun one.
    pub(super) fn know(&mut self, anew: bool) -> Result<(), StoreError> {
        if self.standing == Standing::Owned || self.standing == Standing::Opened && !anew {
            return Ok(());
        }
        let mut page: Box<Page> = Box::new([0; PAGE]);
        self.store.read(self.file, 0, &mut page[..])?;
        let now = Head::get(&page)
            .is_some_and(|head| head.segment == 0)
            .then_some(page);

        // The page has the nonce and the count: if it is unchanged, everything is.
        if self.standing == Standing::Unknown || now != self.first {
            self.forget();
            self.first = now;
        }
        Ok(())
    }

    /// Takes the journal over in its present state.
    pub(super) fn own(&mut self) -> Result<(), StoreError> {
        if self.standing == Standing::Owned {
            return Ok(());
        }
        self.know(true)?;
        if self.standing == Standing::Unknown {
            self.load()?;
        }
        if !self.segments.is_empty() {
            self.standing = Standing::Owned;
            // Its owner may have synced it.
            self.ever_synced = true;
        }
        Ok(())
    }

    /// Reads bytes of the first header before the rest is loaded.
    pub(super) fn read_unopened(&self, offset: u64, into: &mut [u8]) -> usize {
        if let Some(first) = &self.first {
            let at = offset as usize;
            into.copy_from_slice(&first[..HEADER_BYTES][at..at + into.len()]);
        }
        into.len()
    }

    /// Loads all segments reachable from metadata page 0.
    pub(super) fn load(&mut self) -> Result<(), StoreError> {
        let mut segments: Vec<Segment> = Vec::new();
        let mut next = self.first.clone();
        while let Some(page) = next.take() {
            let Some(head) = Head::get(&page) else { break };
            // A segment is valid only if it is exactly the expected one (4 in `mod.rs`).
            let expected = segments.last().map(|last| last.next(head.header));
            let (at, follows) = expected.map_or((0, head.offset == 0), |expected| {
                let same = (
                    expected.number,
                    expected.offset,
                    expected.nonce,
                    expected.shape,
                );
                (
                    expected.at,
                    same == (head.segment, head.offset, head.nonce, head.shape),
                )
            });
            if !follows {
                break;
            }

            let mut segment = Segment::stored(&head, at);
            let is_whole = self.load_records(&mut segment, &page, head.records as usize)?;
            let is_whole = is_whole && self.load_tail(&mut segment, &head)?;
            if !is_whole {
                self.load_part(&mut segment, &head.part)?;
            }
            segment.entries_stored = segment.entries.len();
            let behind = segment.next(head.header).at;
            segments.push(segment);
            // After an incomplete segment nothing is valid.
            if is_whole {
                let mut page: Box<Page> = Box::new([0; PAGE]);
                self.store.read(self.file, behind, &mut page[..])?;
                next = Some(page);
            }
        }
        self.segments = segments;
        self.standing = Standing::Opened;
        Ok(())
    }

    /// Loads a segment's records up to the first invalid one. Returns true if all are valid.
    fn load_records(
        &mut self,
        segment: &mut Segment,
        first: &Page,
        records: usize,
    ) -> Result<bool, StoreError> {
        let mut page = *first;
        for number in 0.. {
            let entries = entries_of(number);
            if entries.start >= records {
                break;
            }
            if number > 0 {
                page = [0; PAGE];
                self.store.read(
                    self.file,
                    segment.at + segment.shape.metadata_at(number),
                    &mut page,
                )?;
            }

            let here = entries.start..entries.end.min(records);
            let entries: Vec<RecordEntry> = (0..here.len())
                .map(|which| RecordEntry::get(&page, number, which))
                .collect();
            if !self.load_images(segment, &entries)? {
                self.counters.images_bad += 1;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Loads the entries of one metadata page up to the first invalid image. Their slots are
    /// contiguous.
    fn load_images(
        &self,
        segment: &mut Segment,
        entries: &[RecordEntry],
    ) -> Result<bool, StoreError> {
        let slot = segment.shape.slot_bytes();
        let mut bytes = Vec::new();

        for entries in entries.chunks(READ_BYTES / slot) {
            bytes.resize(entries.len() * slot, 0);
            let there = self.store.read(
                self.file,
                segment.slot_at(segment.entries.len()),
                &mut bytes,
            )?;

            for (entry, image) in entries.iter().zip(bytes[..there].chunks_exact_mut(slot)) {
                if !self.is_image(entry, segment.place(segment.entries.len()), image) {
                    return Ok(false);
                }
                segment.entries.push(*entry);
            }

            if there < bytes.len() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Loads a segment's tail. Returns true if it is valid.
    fn load_tail(&self, segment: &mut Segment, head: &Head) -> Result<bool, StoreError> {
        let bytes = head.tail_bytes as usize;
        let tail = if head.tail.len() < bytes {
            self.read_tail(segment, bytes, head.tail_check)?
        } else {
            Some(head.tail.clone())
        };
        let Some(tail) = tail else { return Ok(false) };
        (segment.tail_at, segment.tail) = (head.tail_at, tail);
        Ok(true)
    }

    /// Loads the part of the invalid slot that the last sync made durable.
    fn load_part(&self, segment: &mut Segment, part: &SlotPart) -> Result<(), StoreError> {
        if part.index as usize == segment.entries.len()
            && let Some(tail) = self.read_tail(segment, part.bytes as usize, part.check)?
        {
            (segment.tail_at, segment.tail) = (segment.records_end(), tail);
        }
        Ok(())
    }

    /// Reads a tail after the last slot; `None` if its check does not match.
    fn read_tail(
        &self,
        segment: &Segment,
        bytes: usize,
        check: u64,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        // The length comes from the disk: no more is allocated than the file can hold.
        if bytes as u64 > self.store.size(self.file)? {
            return Ok(None);
        }
        let mut tail = vec![0; bytes];
        let there = self
            .store
            .read(self.file, segment.tail_pages_at(), &mut tail)?;
        Ok(
            (there == bytes && tail_check(segment.nonce, segment.number, &tail) == check)
                .then_some(tail),
        )
    }
}
