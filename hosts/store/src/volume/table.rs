//! This process's cache of the table of files: one slot each, with the generation at which it was
//! read.
//!
//! Invariants: a cached slot is valid while the generation is the one at which it was read. A slot
//! whose page cannot be read or is invalid is damaged, and records why: the files in other slots
//! can be used, but nothing can be allocated, since the pages that it claims are unknown. Files
//! that claim the same page (left by two holders of the volume unaware of each other) are not
//! opened, since the page's owner is not known; other files can be used, and a page that any file
//! claims is not allocated. Deleting all of them but one makes that one consistent as far as the
//! table tells. A disk that cannot be reached damages nothing: that is an error of the call, or a
//! file would seem not to exist. Absent: changing anything (`change.rs`).

use super::format::{Inode, Page, Superblock};
use super::space::{self, Extent};
use crate::StoreError;
use remap_ssd_device::Disk;
use remap_ssd_media::geometry::PAGE_BYTES;
use std::collections::BTreeSet;

/// Slots read by one command: 1 MiB.
const SLOTS_AT_ONCE: u32 = 256;

/// The content of a slot.
#[derive(Clone, Debug)]
pub(super) enum SlotContent {
    Free,
    File(Inode),
    /// Unknown: a message that names the page and the reason.
    Damaged(String),
}

/// The cached slots.
pub(super) struct Table {
    slots: Vec<Slot>,
    /// Pairs of slots whose files claim one page, and the page; `None` if slots have changed since
    /// it was computed.
    conflicts: Option<Vec<(u32, u32, u64)>>,
    /// Slots with the record of a branch whose pages its parent has taken over: no files.
    merged: Vec<u32>,
}

struct Slot {
    /// The generation at which it was read.
    seen: Option<u64>,
    content: SlotContent,
}

impl Table {
    /// Creates an empty cache.
    pub(super) fn new(superblock: &Superblock) -> Self {
        Self {
            slots: (0..superblock.slots)
                .map(|_| Slot {
                    seen: None,
                    content: SlotContent::Free,
                })
                .collect(),
            conflicts: None,
            merged: Vec::new(),
        }
    }

    /// Invalidates all slots.
    pub(super) fn forget(&mut self) {
        self.slots.iter_mut().for_each(|slot| slot.seen = None);
    }

    /// The content of a slot at a generation, read if necessary.
    pub(super) fn slot<D: Disk>(
        &mut self,
        disk: &mut D,
        superblock: &Superblock,
        generation: u64,
        slot: u32,
    ) -> Result<&SlotContent, StoreError> {
        let known = self.slots.get_mut(slot as usize).ok_or(StoreError::Gone)?;
        // A slot read at this generation is valid.
        if known.seen != Some(generation) {
            self.conflicts = None;
            let mut page = [0; PAGE_BYTES];
            let read = read_page(disk, superblock.page_of(slot), &mut page)?;
            // A page that could not be read is tried again: the connection may have been down.
            known.seen = read.is_ok().then_some(generation);
            known.content = content(superblock, slot, read.map(|()| &page));
        }
        Ok(&known.content)
    }

    /// Reads every slot that is not valid at a generation.
    pub(super) fn load<D: Disk>(
        &mut self,
        disk: &mut D,
        superblock: &Superblock,
        generation: u64,
    ) -> Result<(), StoreError> {
        for first in (0..superblock.slots).step_by(SLOTS_AT_ONCE as usize) {
            let slots = first..superblock.slots.min(first + SLOTS_AT_ONCE);
            let range = slots.start as usize..slots.end as usize;
            if self.slots[range.clone()]
                .iter()
                .all(|slot| slot.seen == Some(generation))
            {
                continue;
            }

            // One command reads many slots.
            let mut bytes = vec![0; range.len() * PAGE_BYTES];
            if disk.read(superblock.page_of(first), &mut bytes).is_err() {
                // One of the pages failed: read them one by one.
                for slot in slots {
                    self.slot(disk, superblock, generation, slot)?;
                }
                continue;
            }
            self.conflicts = None;
            for (slot, page) in slots.zip(bytes.as_chunks::<PAGE_BYTES>().0) {
                let known = &mut self.slots[slot as usize];
                known.content = content(superblock, slot, Ok::<_, D::Error>(page));
                known.seen = Some(generation);
            }
        }

        if self.conflicts.is_none() {
            self.leave_out_merged();
            let claimed = self
                .files()
                .flat_map(|(slot, inode)| inode.extents.iter().map(move |extent| (*extent, slot)));
            self.conflicts = Some(space::conflicts(claimed.collect()));
        }
        Ok(())
    }

    /// Takes branches that a cut left between the two records of their merge for what they are: no
    /// files, since their parents have their pages.
    fn leave_out_merged(&mut self) {
        let merged: BTreeSet<u64> = self
            .files()
            .map(|(_, inode)| inode.lineage.merged)
            .filter(|birth| *birth != 0)
            .collect();
        if merged.is_empty() {
            return;
        }
        for (slot, known) in (0..).zip(&mut self.slots) {
            if matches!(&known.content, SlotContent::File(inode) if merged.contains(&inode.birth)) {
                known.content = SlotContent::Free;
                self.merged.push(slot);
            }
        }
    }

    /// Slots whose records are to be removed because their branches were merged.
    pub(super) fn take_merged(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.merged)
    }

    /// Finds a file by its birth.
    pub(super) fn find_birth(&self, birth: u64) -> Option<(u32, &Inode)> {
        self.files().find(|(_, inode)| inode.birth == birth)
    }

    /// Invalidates a slot.
    pub(super) fn forget_slot(&mut self, slot: u32) {
        self.slots[slot as usize].seen = None;
    }

    /// Caches content written to a slot.
    pub(super) fn set(&mut self, slot: u32, content: SlotContent, generation: u64) {
        self.conflicts = None;
        self.slots[slot as usize] = Slot {
            seen: Some(generation),
            content,
        };
    }

    /// Slots valid at one generation become valid at another one: only this process has changed the
    /// volume.
    pub(super) fn move_on(&mut self, from: u64, to: u64) {
        self.slots
            .iter_mut()
            .filter(|slot| slot.seen == Some(from))
            .for_each(|slot| slot.seen = Some(to));
    }

    /// All cached files.
    pub(super) fn files(&self) -> impl Iterator<Item = (u32, &Inode)> {
        (0..)
            .zip(&self.slots)
            .filter_map(|(slot, known)| match &known.content {
                SlotContent::File(inode) => Some((slot, inode)),
                _ => None,
            })
    }

    /// Finds a file by name.
    pub(super) fn find(&self, name: &str) -> Option<(u32, &Inode)> {
        self.files().find(|(_, inode)| inode.name == name)
    }

    /// Why there is no file of a name: none has it, or a damaged record may be its own. Treating a
    /// hot journal as absent would leave a database torn.
    pub(super) fn missing(&self, name: &str) -> StoreError {
        match self.damaged_slots().next() {
            Some(why) => {
                StoreError::Damaged(format!("{why}; it is unknown whether that is {name}"))
            }
            None => StoreError::NotFound(name.into()),
        }
    }

    /// The slots without a file.
    pub(super) fn free_slots(&self) -> impl Iterator<Item = u32> {
        (0..)
            .zip(&self.slots)
            .filter(|(_, known)| matches!(known.content, SlotContent::Free))
            .map(|(slot, _)| slot)
    }

    /// Descriptions of all damage.
    pub(super) fn damage(&self) -> Vec<String> {
        let slots = self.damaged_slots().map(str::to_owned);
        slots.chain(self.conflict_sentences(|_| true)).collect()
    }

    /// Number of files that cannot be opened: those with a damaged record, and those that claim a
    /// page of another one.
    pub(super) fn damaged_files(&self) -> u64 {
        let conflicts = self.conflicts.iter().flatten();
        let in_conflict: BTreeSet<u32> = conflicts.flat_map(|(a, b, _)| [*a, *b]).collect();
        (self.damaged_slots().count() + in_conflict.len()) as u64
    }

    /// Fails if the file of a slot claims a page that another one claims.
    pub(super) fn check_alone(&self, slot: u32) -> Result<(), StoreError> {
        let mut sentences = self.conflict_sentences(|of| of == slot);
        sentences
            .next()
            .map_or(Ok(()), |why| Err(StoreError::Damaged(why)))
    }

    fn conflict_sentences(&self, concerns: impl Fn(u32) -> bool) -> impl Iterator<Item = String> {
        let name = |slot: u32| match &self.slots[slot as usize].content {
            SlotContent::File(inode) => inode.name.as_str(),
            _ => "",
        };
        self.conflicts
            .iter()
            .flatten()
            .filter(move |(a, b, _)| concerns(*a) || concerns(*b))
            .map(move |(a, b, page)| {
                format!(
                    "page {page} of the volume is claimed by two files, {} and {}: neither is opened until \
                     the other one is deleted",
                    name(*a),
                    name(*b)
                )
            })
    }

    fn damaged_slots(&self) -> impl Iterator<Item = &str> {
        self.slots.iter().filter_map(|known| match &known.content {
            SlotContent::Damaged(why) => Some(why.as_str()),
            _ => None,
        })
    }

    /// The parts of a file's extents that no other file claims.
    pub(super) fn claimed_alone(&self, slot: u32, extents: &[Extent]) -> Vec<Extent> {
        let others: Vec<Extent> = self
            .files()
            .filter(|(other, _)| *other != slot)
            .flat_map(|(_, inode)| inode.extents.iter().copied())
            .collect();
        space::unclaimed(extents, &others)
    }

    /// The pages that no file claims.
    ///
    /// # Errors
    /// A record is damaged: the pages that it claims are unknown.
    pub(super) fn free_runs(&self, superblock: &Superblock) -> Result<Vec<Extent>, StoreError> {
        // A damaged record may claim any page, so none can be given away.
        if let Some(why) = self.damaged_slots().next() {
            return Err(StoreError::Damaged(format!(
                "{why}; until then nothing can be allocated in this volume"
            )));
        }
        let claimed = self
            .files()
            .flat_map(|(_, inode)| inode.extents.iter().copied())
            .collect();
        let (first, end) = (superblock.first_data_page(), superblock.pages);
        Ok(space::free_runs(claimed, first, end))
    }
}

/// Reads the page of a record; the inner result is an error of this page alone.
///
/// # Errors
/// The disk cannot be reached.
fn read_page<D: Disk>(
    disk: &mut D,
    place: u64,
    page: &mut Page,
) -> Result<Result<(), D::Error>, StoreError> {
    let Err(error) = disk.read(place, page) else {
        return Ok(Ok(()));
    };

    // If a superblock can be read, the disk is reachable. The connection may have been down
    // briefly: retry once.
    let reached = disk.read(0, page).is_ok() || disk.read(1, page).is_ok();
    if !reached {
        return Err(StoreError::disk(error));
    }
    Ok(disk.read(place, page))
}

fn content<E: std::error::Error>(
    superblock: &Superblock,
    slot: u32,
    page: Result<&Page, E>,
) -> SlotContent {
    let damaged = |why: &dyn std::fmt::Display| {
        let place = superblock.page_of(slot);
        SlotContent::Damaged(format!(
            "page {place} of the volume, which describes a file, is damaged: {why}"
        ))
    };
    match page.map(|page| Inode::decode(page, superblock, slot)) {
        Ok(Ok(Some(inode))) => SlotContent::File(inode),
        Ok(Ok(None)) => SlotContent::Free,
        Ok(Err(why)) => damaged(&why),
        Err(error) => damaged(&error),
    }
}
