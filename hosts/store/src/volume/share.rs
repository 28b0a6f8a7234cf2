//! Sharing between files: lists of byte ranges become lists of remaps.
//!
//! Invariants: the ranges of a list take effect in order. Whole pages become one list of remaps,
//! which the disk has outstanding together; partial pages are copied in their turn, after the
//! remaps before them. In a list of remaps no page is a source and later a target: so if the disk
//! refuses one, which may leave any part of the list done, the whole list can be redone in order by
//! reading and writing. A range that changes a source of an earlier one of the list begins a new
//! list; a range that overlaps itself is copied. Neither happens in a checkpoint.
//!
//! Flag 0: the source keeps its pages. A log may still be read while it is being checkpointed, and
//! recovery needs it. Absent: atomic remaps. SQLite's checkpoints and journals do not need them.

use super::bytes::PAGE;
use super::space::Extent;
use super::state::VolumeState;
use crate::{FileId, Share, StoreError};
use remap_ssd_device::{Disk, DiskRemap, PageRanges};
use remap_ssd_media::geometry::PAGE_BYTES;
use std::collections::{HashMap, HashSet};

/// Maximum pages of one remap; longer ones are split.
const REMAP_PAGES_MAX: u64 = 1 << 20;
/// Bytes copied per step.
const COPY_BYTES: u64 = 1 << 20;

/// A list of remaps being gathered.
#[derive(Default)]
struct Batch {
    remaps: Vec<DiskRemap>,
    /// Per remap, its source file and its target file.
    files: Vec<[FileId; 2]>,
    /// Source pages.
    sources: PageRanges,
    /// New ends of files that grow when the remaps are done.
    ends: HashMap<FileId, u64>,
}

impl Batch {
    /// True if a remap changes a source of the list, which the list could not read again then.
    fn is_in_the_way_of(&self, remap: &DiskRemap) -> bool {
        let end = remap.target + u64::from(remap.pages);
        self.sources.meets(remap.target, end)
    }

    fn add(&mut self, remap: DiskRemap, files: [FileId; 2]) {
        let end = remap.source + u64::from(remap.pages);
        self.sources.add(remap.source, end);
        self.remaps.push(remap);
        self.files.push(files);
    }
}

impl<D: Disk> VolumeState<D> {
    /// Shares a list of ranges in one change of the volume.
    pub(super) fn share_all(&mut self, shares: &[Share]) -> Result<(), StoreError> {
        let changed: HashSet<FileId> = shares.iter().map(|share| share.to).collect();
        self.change(changed, |state| state.share_in_turn(shares))
    }

    fn share_in_turn(&mut self, shares: &[Share]) -> Result<(), StoreError> {
        self.make_room(shares)?;

        let mut batch = Batch::default();
        // Ranges of no bytes share nothing.
        for share in shares.iter().filter(|share| share.bytes > 0) {
            // A range may read what an earlier one of this list put after the end.
            let size = self
                .size(share.from)?
                .max(batch.ends.get(&share.from).copied().unwrap_or(0));
            let there = share
                .from_offset
                .checked_add(share.bytes)
                .is_some_and(|end| end <= size);

            // Ranges before an invalid one are done.
            if !there {
                self.perform(&mut batch)?;
                return Err(StoreError::Range {
                    offset: share.from_offset,
                    bytes: share.bytes,
                    size,
                });
            }
            let known = self
                .size(share.to)?
                .max(batch.ends.get(&share.to).copied().unwrap_or(0));

            // The gap between the end and the range must be zeroed before the range is.
            if share.to_offset > known {
                self.perform(&mut batch)?;
                self.reach(share.to, share.to_offset, 0)?;
            }
            self.add(&mut batch, share)?;
        }
        self.perform(&mut batch)
    }

    /// Allocates room for the whole list: one claim per file, not one per range.
    fn make_room(&mut self, shares: &[Share]) -> Result<(), StoreError> {
        let mut ends: HashMap<FileId, u64> = HashMap::new();
        for share in shares {
            let range = |size| StoreError::Range {
                offset: share.to_offset,
                bytes: share.bytes,
                size,
            };
            let end = share
                .to_offset
                .checked_add(share.bytes)
                .ok_or_else(|| range(0))?;
            let known = ends.entry(share.to).or_default();
            *known = end.max(*known);
        }

        // One claim per file: each is a flush.
        for (file, end) in ends {
            let size = self.size(file)?;
            // Only room: a range that begins at the present end leaves no gap.
            self.reach(file, size, end.saturating_sub(size))?;
        }
        Ok(())
    }

    /// Adds a range: its whole pages to the remaps; partial pages are copied at once.
    fn add(&mut self, batch: &mut Batch, share: &Share) -> Result<(), StoreError> {
        let Share {
            from,
            from_offset,
            to,
            to_offset,
            bytes,
        } = *share;
        if from_offset % PAGE != to_offset % PAGE {
            self.perform(batch)?;
            return self.copy(share, || {
                format!("the ranges are not aligned to {PAGE} bytes in the same way")
            });
        }

        // All of it is read before any of it is written: sharing whole pages first would change the
        // bytes that the tail reads.
        if from == to && from_offset.abs_diff(to_offset) < bytes {
            self.perform(batch)?;
            return self.copy(share, || {
                "a range that overlaps itself is not shared".into()
            });
        }

        let head = (from_offset.next_multiple_of(PAGE) - from_offset).min(bytes);
        let whole = (bytes - head) / PAGE * PAGE;
        let tail = bytes - head - whole;
        let part = |at: u64, bytes: u64| Share {
            from_offset: from_offset + at,
            to_offset: to_offset + at,
            bytes,
            ..*share
        };

        // Partial pages are copied in their turn, after the remaps before them.
        let why = || format!("a part of a page of {PAGE} bytes cannot be shared");
        if head > 0 {
            self.perform(batch)?;
            self.copy(&part(0, head), why)?;
        }
        if whole > 0 {
            // On either side the pages may be in several extents: one range becomes several remaps.
            let sources = self.places(from, (from_offset + head) / PAGE, whole / PAGE)?;
            let targets = self.places(to, (to_offset + head) / PAGE, whole / PAGE)?;
            for remap in remaps(&sources, &targets) {
                if batch.is_in_the_way_of(&remap) {
                    self.perform(batch)?;
                }
                batch.add(remap, [from, to]);
            }
            let end = batch.ends.entry(to).or_default();
            *end = (to_offset + head + whole).max(*end);
        }
        if tail > 0 {
            self.perform(batch)?;
            self.copy(&part(head + whole, tail), why)?;
        }
        Ok(())
    }

    /// Does the gathered remaps, then sets the new sizes.
    fn perform(&mut self, batch: &mut Batch) -> Result<(), StoreError> {
        let Batch {
            remaps,
            files,
            ends,
            ..
        } = std::mem::take(batch);
        if !remaps.is_empty() {
            let pages = remaps.iter().map(|remap| u64::from(remap.pages)).sum();
            // A disk that refuses may have done any part: redoing all of it by copying gives the
            // same result.
            match self.disk.remap_all(&remaps) {
                Ok(()) => {
                    self.statistics.pages_shared += pages;
                    self.follow(&remaps, &files)?;
                }
                Err(error) => {
                    self.copy_pages(&remaps)?;
                    self.statistics.copied(pages, || error.to_string());
                }
            }
        }

        // Set only now: the data after the old end is complete.
        for (file, end) in ends {
            if end > self.size(file)? {
                self.coordination.set_size(file.slot, file.birth, end);
            }
        }
        Ok(())
    }

    /// Applies remaps done by the disk to the cache.
    fn follow(&mut self, remaps: &[DiskRemap], files: &[[FileId; 2]]) -> Result<(), StoreError> {
        let mut epochs = HashMap::new();
        for (remap, files) in remaps.iter().zip(files) {
            // Each file's word is read once, however many remaps it has.
            for file in files {
                if !epochs.contains_key(file) {
                    epochs.insert(*file, self.epoch(*file));
                }
            }
            let [from, to] = files.map(|file| epochs[&file]);
            self.cache
                .share(remap.source, remap.target, remap.pages.into(), from, to);
        }
        Ok(())
    }

    /// Does remaps by reading and writing.
    pub(super) fn copy_pages(&mut self, remaps: &[DiskRemap]) -> Result<(), StoreError> {
        let mut buffer = vec![0; COPY_BYTES as usize];
        let at_once = COPY_BYTES / PAGE;
        for remap in remaps {
            for first in (0..u64::from(remap.pages)).step_by(at_once as usize) {
                let pages = at_once.min(u64::from(remap.pages) - first);
                let bytes = &mut buffer[..pages as usize * PAGE_BYTES];

                // The cached target is stale.
                self.cache
                    .forget(remap.target + first..remap.target + first + pages);
                self.disk
                    .read(remap.source + first, bytes)
                    .map_err(StoreError::disk)?;
                self.disk
                    .write(remap.target + first, bytes)
                    .map_err(StoreError::disk)?;
            }
        }
        Ok(())
    }

    /// Copies a range: as a whole if source and target overlap, else in steps.
    fn copy(&mut self, share: &Share, why: impl FnOnce() -> String) -> Result<(), StoreError> {
        // An overlapping range is read as a whole before it is written.
        let overlap =
            share.from == share.to && share.from_offset.abs_diff(share.to_offset) < share.bytes;
        let step = if overlap {
            share.bytes
        } else {
            share.bytes.min(COPY_BYTES)
        };

        let mut buffer = vec![0; step as usize];
        let written = self.statistics.pages_written;
        let mut done = 0;
        while done < share.bytes {
            let bytes = &mut buffer[..step.min(share.bytes - done) as usize];
            let read = self.read(share.from, share.from_offset + done, bytes)?;
            if read < bytes.len() {
                let size = self.size(share.from)?;
                return Err(StoreError::Range {
                    offset: share.from_offset,
                    bytes: share.bytes,
                    size,
                });
            }
            self.write(share.to, share.to_offset + done, bytes)?;
            done += bytes.len() as u64;
        }

        // Counted as copied, not as written by the host.
        let pages = self.statistics.pages_written - written;
        self.statistics.pages_written = written;
        self.statistics.copied(pages, why);
        Ok(())
    }
}

/// The remaps between two lists of extents of the same length.
pub(super) fn remaps(sources: &[Extent], targets: &[Extent]) -> Vec<DiskRemap> {
    let mut remaps = Vec::new();
    let (mut sources, mut targets) = (sources.iter().copied(), targets.iter().copied());
    let (mut source, mut target) = (sources.next(), targets.next());

    // Runs are cut where either side ends, and at the maximum length of a command.
    while let (Some(from), Some(to)) = (source.as_mut(), target.as_mut()) {
        let pages = from.pages.min(to.pages).min(REMAP_PAGES_MAX);
        let remap = DiskRemap {
            target: to.first,
            source: from.first,
            pages: pages as u32,
            relocate: false,
            atomic: false,
        };
        remaps.push(remap);

        for place in [&mut *from, &mut *to] {
            (place.first, place.pages) = (place.first + pages, place.pages - pages);
        }
        if from.pages == 0 {
            source = sources.next();
        }
        if target.is_some_and(|to| to.pages == 0) {
            target = targets.next();
        }
    }
    remaps
}
