//! Writing images to the store: shared where the database has the same bytes, else written.
//!
//! Invariant: an image is compared with the database's page before it is shared, so that it is
//! right even if SQLite has changed the database since. Images are gathered, so that a transaction
//! makes a few calls to the store, not one per page.

use super::Journal;
use super::layout::{PAGE, RecordEntry, RecordPlace, entries_of, place_of_entry};
use remap_ssd_store::{Share, StoreError};
use std::collections::HashSet;

/// Maximum number of gathered images.
pub(super) const BATCH: usize = 64;
/// Maximum bytes of the database per read, and maximum size of an unneeded gap read with them.
const READ_BYTES: u64 = 1 << 20;
const GAP_BYTES: u64 = 1 << 16;

/// A pending image: its key, and the page's offset in the database.
#[derive(Clone, Copy)]
struct Candidate {
    key: (usize, usize),
    from: u64,
}

impl Journal {
    /// Reads the image of a record.
    pub(super) fn image(&self, segment: usize, index: usize) -> Result<Vec<u8>, StoreError> {
        if let Some(image) = self.pending.get(&(segment, index)) {
            return Ok(image.clone());
        }
        let known = &self.segments[segment];
        let at = known.slot_at(index);
        let mut image = vec![0; known.shape.slot_bytes()];
        self.store.read(self.file, at, &mut image)?;
        // Checked at each read, not only at opening: no other bytes may get into a database.
        if !self.is_image(&known.entries[index], known.place(index), &mut image) {
            let found = format!(
                "the image at byte {at} of a rollback journal is not the one that was journalled"
            );
            return Err(StoreError::Damaged(found));
        }
        Ok(image)
    }

    /// Returns true if this is the image of an entry. Strips the stamp of the database's page.
    pub(super) fn is_image(
        &self,
        entry: &RecordEntry,
        place: RecordPlace,
        image: &mut [u8],
    ) -> bool {
        entry.fits(image, place)
            || self.stamps && self.mark.strip(image).is_some() && entry.fits(image, place)
    }

    /// Writes the gathered images to the store.
    pub(super) fn write_pending(&mut self) -> Result<(), StoreError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.unsynced = true;
        let (equal, others) = self.equal_in_database()?;
        let shared: HashSet<(usize, usize)> = equal.iter().map(|candidate| candidate.key).collect();
        self.store.share_all(&self.shares(equal))?;
        self.write_images(&shared)?;

        let written = (self.pending.len() - shared.len()) as u64;
        self.counters.images_copied += shared.len() as u64;
        self.counters.images_not_equal += others;
        self.counters.images_not_shareable += written - others;
        self.pending.clear();
        Ok(())
    }

    /// Finds the images that the database has, and counts pages that differ. Pages close to each
    /// other are read together.
    fn equal_in_database(&self) -> Result<(Vec<Candidate>, u64), StoreError> {
        let Some(database) = self.database else {
            return Ok((Vec::new(), 0));
        };
        let mut candidates: Vec<Candidate> = self
            .pending
            .keys()
            .filter_map(|&key| self.candidate(key))
            .collect();
        // By place, so that one call reads neighbours.
        candidates.sort_unstable_by_key(|candidate| candidate.from);

        let slot = self.segments[0].shape.slot_bytes() as u64;
        let (mut equal, mut others) = (Vec::new(), 0);
        let mut rest = &candidates[..];
        while let Some(first) = rest.first() {
            let begin = first.from;
            let mut end = begin + slot;
            let near = |candidate: &&Candidate| {
                let next = candidate.from + slot;
                let together = candidate.from <= end + GAP_BYTES && next - begin <= READ_BYTES;
                end = if together { next } else { end };
                together
            };
            let (run, others_later) = rest.split_at(rest.iter().take_while(near).count());
            rest = others_later;

            let mut bytes = vec![0; (end - begin) as usize];
            let there = self.store.read(database, begin, &mut bytes)?;
            for candidate in run {
                let at = (candidate.from - begin) as usize;
                match bytes[..there].get(at..at + slot as usize) {
                    Some(page) if self.is_equal(page, &self.pending[&candidate.key]) => {
                        equal.push(*candidate)
                    }
                    Some(_) => others += 1,
                    None => {} // After its end.
                }
            }
        }
        Ok((equal, others))
    }

    /// Locates an image's page in the database.
    fn candidate(&self, key: (usize, usize)) -> Option<Candidate> {
        let segment = &self.segments[key.0];
        let number = u32::from_be_bytes(segment.entries[key.1].page).checked_sub(1)?;
        let from = u64::from(number) * segment.shape.slot_bytes() as u64;
        segment
            .shape
            .has_images()
            .then_some(Candidate { key, from })
    }

    /// Returns true if SQLite would read a page of the database as this image.
    fn is_equal(&self, page: &[u8], image: &[u8]) -> bool {
        if page == image {
            return true;
        }
        let mut page = page.to_vec();
        self.stamps && self.mark.strip(&mut page).is_some() && page == image
    }

    /// Builds the shares, in the order of the slots; consecutive pages are merged.
    fn shares(&self, mut equal: Vec<Candidate>) -> Vec<Share> {
        equal.sort_unstable_by_key(|candidate| candidate.key);
        let mut shares: Vec<Share> = Vec::new();
        let Some(from) = self.database else {
            return shares;
        };

        for Candidate {
            key,
            from: from_offset,
        } in equal
        {
            let segment = &self.segments[key.0];
            let (to_offset, bytes) = (segment.slot_at(key.1), segment.shape.slot_bytes() as u64);
            match shares.last_mut() {
                Some(last)
                    if last.from_offset + last.bytes == from_offset
                        && last.to_offset + last.bytes == to_offset =>
                {
                    last.bytes += bytes;
                }
                _ => shares.push(Share {
                    from,
                    from_offset,
                    to: self.file,
                    to_offset,
                    bytes,
                }),
            }
        }
        shares
    }

    /// Writes all images except `shared`; consecutive ones by one call.
    fn write_images(&self, shared: &HashSet<(usize, usize)>) -> Result<(), StoreError> {
        let mut rows: Vec<(u64, Vec<u8>)> = Vec::new();
        for (key, image) in self.pending.iter().filter(|(key, _)| !shared.contains(key)) {
            let at = self.segments[key.0].slot_at(key.1);
            match rows.last_mut() {
                Some((first, bytes)) if *first + bytes.len() as u64 == at => {
                    bytes.extend_from_slice(image)
                }
                _ => rows.push((at, image.clone())),
            }
        }
        rows.iter()
            .try_for_each(|(at, bytes)| self.store.write(self.file, *at, bytes))
    }

    /// Writes the changed part of a segment's metadata: the tail, the further pages, page 0.
    pub(super) fn write_metadata(&mut self, index: usize) -> Result<(), StoreError> {
        let segment = &self.segments[index];
        if !segment.changed {
            return Ok(());
        }
        self.unsynced = true;
        let mut written = 1;
        if segment.tail_has_pages() {
            let mut pages = segment.tail.clone();
            pages.resize(pages.len().next_multiple_of(PAGE), 0);
            self.store
                .write(self.file, segment.tail_pages_at(), &pages)?;
            written += pages.len() / PAGE;
        }

        let records = segment.entries.len();
        let (last, _) = place_of_entry(records.saturating_sub(1));
        // Pages with no new entries are not rewritten.
        let (first, _) = place_of_entry(segment.entries_stored);
        // Page 0, which counts the entries of all others, comes last.
        for number in (first.max(1)..=last).rev() {
            let mut page = [0; PAGE];
            let here = entries_of(number);
            for (which, entry) in segment.entries[here.start..here.end.min(records)]
                .iter()
                .enumerate()
            {
                entry.put(&mut page, number, which);
            }
            self.store.write(
                self.file,
                segment.at + segment.shape.metadata_at(number),
                &page,
            )?;
            written += 1;
        }
        self.store
            .write(self.file, segment.at, &segment.metadata())?;

        let segment = &mut self.segments[index];
        (segment.entries_stored, segment.changed, segment.is_stored) = (records, false, true);
        self.counters.metadata_pages += written as u64;
        Ok(())
    }
}
