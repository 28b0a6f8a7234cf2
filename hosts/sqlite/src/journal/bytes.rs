//! Conversion between SQLite's bytes and records.
//!
//! Invariant: only the last segment changes, except for the headers of the others: each segment
//! begins where the previous one ends.

use super::Journal;
use super::images::BATCH;
use super::layout::{HEADER_BYTES, Header};
use super::segment::Part;
use remap_ssd_store::StoreError;

impl Journal {
    /// The header that begins at an offset, if any: SQLite writes it whole, at the next sector,
    /// with the same sizes.
    pub(super) fn next_header(&self, offset: u64, data: &[u8]) -> Option<Header> {
        let header = data.first_chunk::<HEADER_BYTES>()?;
        let (first, last) = (self.segments.first()?, self.segments.last()?);
        let behind = offset >= last.records_end() && offset == last.next_offset_if_cut(offset);
        // Bytes 20 to 27 are the sizes of sector and page, which are equal in all headers of a
        // journal.
        (behind && header[20..] == first.header[20..]).then_some(*header)
    }

    pub(super) fn begin_segment(&mut self, offset: u64, header: &Header) {
        let Some(last) = self.segments.last_mut() else {
            return;
        };
        last.cut_tail(offset);
        let next = last.next(*header);
        self.segments.push(next);
    }

    /// Writes the first of these bytes. Returns their number.
    pub(super) fn write_part(&mut self, offset: u64, data: &[u8]) -> Result<usize, StoreError> {
        let (index, limit) = self.segment_at(offset).ok_or_else(|| misplaced(offset))?;
        let is_last = index + 1 == self.segments.len();

        let segment = &mut self.segments[index];
        let len = data.len().min(limit);
        match segment.part(offset) {
            Part::Header(at) => {
                let len = len.min(segment.shape.sector() as usize - at);
                let end = (at + len).min(HEADER_BYTES);
                if at < end {
                    segment.header[at..end].copy_from_slice(&data[..end - at]);
                    segment.changed = true;
                }
                Ok(len)
            }

            // Later segments begin where this one ends.
            _ if !is_last => Err(misplaced(offset)),

            Part::Record(record, at) => {
                let len = len.min(segment.shape.record_bytes() as usize - at);
                // A record's check covers all of it: a partial write rewrites the whole record.
                let mut bytes = {
                    let image = self.image(index, record)?;
                    self.segments[index].record(record, &image)
                };
                bytes[at..at + len].copy_from_slice(&data[..len]);
                self.set_record(record, bytes)?;
                Ok(len)
            }

            Part::Behind => {
                let record = segment.shape.record_bytes();
                // Not beyond the end of this record, so that a complete one becomes an entry before
                // the next begins.
                let within = (offset - segment.records_at()) % record;
                let len = len.min((record - within) as usize);
                segment.put_tail(offset, &data[..len]);
                while let Some(bytes) = self.segments[index].take_record() {
                    let next = self.segments[index].entries.len();
                    self.set_record(next, bytes)?;
                }
                Ok(len)
            }
        }
    }

    /// Sets a record of the last segment.
    fn set_record(&mut self, record: usize, bytes: Vec<u8>) -> Result<(), StoreError> {
        let last = self.segments.len() - 1;
        let image = self.segments[last].set_record(record, bytes);
        self.pending.insert((last, record), image);
        if self.pending.len() >= BATCH {
            self.write_pending()
        } else {
            Ok(())
        }
    }

    /// Reads the first of these bytes, all of which exist. Returns their number.
    pub(super) fn read_part(&mut self, offset: u64, into: &mut [u8]) -> Result<usize, StoreError> {
        let Some((index, limit)) = self.segment_at(offset) else {
            return Ok(self.read_unopened(offset, into));
        };

        let segment = &self.segments[index];
        let len = into.len().min(limit);
        match segment.part(offset) {
            Part::Header(at) => {
                let len = len.min(segment.shape.sector() as usize - at);
                // After SQLite's 28 bytes the rest of the sector is zero.
                let bytes = segment.header.get(at..).unwrap_or(&[]);
                let known = bytes.len().min(len);
                into[..known].copy_from_slice(&bytes[..known]);
                Ok(len)
            }
            Part::Record(record, at) => self.read_record(index, record, at, &mut into[..len]),
            Part::Behind => {
                let gap = segment.tail_at.saturating_sub(offset).min(len as u64) as usize;
                let skip = offset.saturating_sub(segment.tail_at) as usize;
                let bytes = segment.tail.get(skip..).unwrap_or(&[]);
                let known = bytes.len().min(len - gap);
                into[gap..gap + known].copy_from_slice(&bytes[..known]);
                Ok(len)
            }
        }
    }

    /// Reads part of a record. The image is read only if needed.
    fn read_record(
        &mut self,
        segment: usize,
        index: usize,
        at: usize,
        into: &mut [u8],
    ) -> Result<usize, StoreError> {
        let known = &self.segments[segment];
        let (frame, slot) = (known.shape.frame_bytes(), known.shape.slot_bytes());
        let entry = known.entries[index];
        let mut part = |bytes: &[u8]| {
            let len = into.len().min(bytes.len());
            into[..len].copy_from_slice(&bytes[..len]);
            Ok(len)
        };

        if at < frame {
            part(&entry.page[at..])
        } else if at < frame + slot {
            part(&self.image(segment, index)?[at - frame..])
        } else {
            part(&entry.sum[at - frame - slot..])
        }
    }

    /// Offset in the store's file of exactly these bytes, if they are an image.
    pub(super) fn origin_of(&self, offset: u64, bytes: usize) -> Option<u64> {
        let (index, _) = self.segment_at(offset)?;
        let segment = &self.segments[index];
        let shape = segment.shape;
        match segment.part(offset) {
            Part::Record(record, at)
                if shape.has_images()
                    && (at, bytes) == (shape.frame_bytes(), shape.slot_bytes()) =>
            {
                // A pending image is not in the store: it cannot be shared yet.
                (!self.pending.contains_key(&(index, record))).then(|| segment.slot_at(record))
            }
            _ => None,
        }
    }

    /// The segment of an offset, and the number of bytes up to the next one.
    fn segment_at(&self, offset: u64) -> Option<(usize, usize)> {
        let next = self
            .segments
            .partition_point(|segment| segment.offset <= offset);
        let limit = self
            .segments
            .get(next)
            .map_or(usize::MAX, |segment| (segment.offset - offset) as usize);
        Some((next.checked_sub(1)?, limit))
    }
}

/// Error for bytes at a place where a journal has none.
fn misplaced(offset: u64) -> StoreError {
    StoreError::Disk(format!("byte {offset} of a rollback journal was written out of turn").into())
}
