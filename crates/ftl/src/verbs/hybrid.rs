//! Blocks in order, for hybrid mapping (Copyless Copy §II).
//!
//! Pages written by the host are appended to its own superblock and listed in the extension of
//! their blocks. Only a page that begins a block, and the pages that continue it, go to the
//! superblock of blocks in order. A block is put in order there in one of three ways, as in the
//! hybrid mappings that Copyless Copy cites:
//! - *switch*: the host wrote all of its pages in order. Nothing is copied.
//! - *partial merge*: the host wrote the first half or more, then began another block. The rest is
//!   copied after it.
//! - *full merge*: all pages are copied, because the extension is full and this block has most of
//!   it, or because the block's superblock is collected.
//!
//! In Copyless Copy the destinations are extension entries that name the source's page. A merge
//! gives every page of its block a place of its own: the place exists, filled or not, so sharing
//! would save nothing. Pages shared with other LPNs stay shared among those, and with the block too
//! if its superblock is collected.
//!
//! Order: a merge moves pages like garbage collection (`gc`), and removes no witness.
//! 1. the page at its new place, with a new number as if it were written (and after an atomic
//!    command's commit, like any copy)
//! 2. the erase of the old one, or the release of the entry that was its witness.
//!
//! Cut before 1: the old witness of the LPN is in force. After: the copy is, with the same content,
//! whatever happens to the other.
//!
//! Invariant: after a command, the extension has at most `Config::extension_entries` entries, plus
//! at most a block's pages: those of the block being written in order, and of a barely started one
//! before it. Absent: the table (`block_map`), which superblock is collected (`gc`).

use crate::config::guard::Guard;
use crate::contract::OwnerRef;
use crate::core::Core;
use crate::dedup::PageLookup;
use crate::error::Refusal;
use crate::ftl::Ftl;
use crate::gc::job::{GcJob, LivePage, NONE, ORDERED};
use crate::mapping::Mapping;
use crate::mapping::block_map::BlockInOrder;
use crate::superblock::{AllocatedPage, Stream};
use remap_ssd_media::{Lpn, Oob, Ppn, Purpose, SbId, SecondOwner, StoredPage};
use std::collections::BTreeMap;

/// Content of a page that fills the place of an unmapped one.
const PAD: &[u8] = b"pad";

/// The remapped owners of a victim's pages, by page.
struct SharedOwners {
    sb: SbId,
    owners: BTreeMap<u32, Vec<OwnerRef>>,
}

impl Ftl {
    /// Puts blocks in order until `entries` more pages fit in the extension.
    #[cold]
    pub(crate) fn make_extension_room(&mut self, entries: u32) -> Result<(), Refusal> {
        let limit = self.core.config.extension_entries();
        // A block that is put in order leaves the extension, unless blocks fail.
        let mut rounds = 2 * self.core.tables.map.blocks().blocks();
        while self.entries_taken() + entries > limit && rounds > 0 {
            rounds -= 1;
            self.end_write();
            self.make_page_room()?;
            // The block being written leaves the extension on completion, so it is the last choice.
            let written = self.run.map(|run| run.block);
            let Some(block) = self
                .core
                .tables
                .map
                .blocks()
                .fullest(written)
                .map(|(block, _)| block)
                .or(written)
            else {
                break;
            };

            self.merge(block, None, true)?;
        }

        Ok(())
    }

    /// Extension entries, not counting the pages of the block that is being written in order.
    fn entries_taken(&self) -> u32 {
        let blocks = self.core.tables.map.blocks();
        let written = self
            .run
            .map_or(0, |run| run.next.min(blocks.entries_of(run.block)));
        blocks.entries() - written
    }

    /// Allocates the next page for the host: in order if it begins a block or continues the current
    /// one.
    // Not inlined: page-mapped devices never call it, and their programs are shorter without it.
    #[inline(never)]
    pub(crate) fn take_in_order(&mut self, lpn: Lpn) -> Result<AllocatedPage, Refusal> {
        if self.paused {
            return self.take_host_page(lpn, None);
        }
        let (block, index) = self.core.tables.map.blocks().split(lpn);
        if index > 0
            && self
                .run
                .is_none_or(|run| (run.block, run.next) != (block, index))
        {
            return self.take_host_page(lpn, None);
        }

        // Collection may end the current block.
        self.pace()?;
        if self
            .run
            .is_none_or(|run| (run.block, run.next) != (block, index))
        {
            if index > 0 {
                return self.take_host_page(lpn, None);
            }
            // A block begins. The previous one is completed first: its pages must be consecutive.
            self.end_run()?;
            let pages = self.core.tables.map.blocks().pages_of(block);
            let start = self.room_in_order(pages, true)?;
            self.run = Some(BlockInOrder {
                block,
                start,
                next: 0,
            });
        }
        match self.core.blocks.take(Stream::Gc) {
            Some(taken) => Ok(taken),
            None => {
                // A superblock with bad blocks may be full before the block is complete.
                self.run = None;
                self.take_host_page(lpn, None)
            }
        }
    }

    /// Notes a page written by the host if it is the next one of the current block.
    pub(crate) fn written_in_order(&mut self, lpn: Lpn, ppn: Ppn) {
        let Some(run) = &mut self.run else { return };
        let blocks = self.core.tables.map.blocks();
        if blocks.split(lpn) != (run.block, run.next) {
            return;
        }

        if blocks.place(run.start, run.next) != Some(ppn) {
            // A program failed: the pages are elsewhere.
            self.run = None;
            return;
        }

        run.next += 1;
        let BlockInOrder { block, start, next } = *run;
        if next == blocks.pages_of(block) {
            self.core.stats.merges_switch += 1;
            put_in_order(&mut self.core, block, start);
            self.run = None;
        }
    }

    /// Ends the block that is being written in order: completes it or, if most of it is missing,
    /// leaves its pages in the extension.
    fn end_run(&mut self) -> Result<(), Refusal> {
        let Some(run) = self.run else { return Ok(()) };
        // Copying more than was written costs more than keeping these pages in the extension.
        if 2 * run.next < self.core.tables.map.blocks().pages_of(run.block) {
            self.run = None;
            return Ok(());
        }
        self.complete_run(None).map(drop)
    }

    /// Copies the rest of the block that is being written in order. Returns false if a program
    /// failed.
    fn complete_run(&mut self, shared: Option<&SharedOwners>) -> Result<bool, Refusal> {
        let Some(BlockInOrder { block, start, next }) = self.run.take() else {
            return Ok(false);
        };
        let pages = self.core.tables.map.blocks().mapped_len(block);
        let whole = self.fill(block, start, next, pages, shared)?;
        self.core.stats.merges_partial += 1;
        put_in_order(&mut self.core, block, start);
        Ok(whole)
    }

    /// Puts a block in order. `shared`: the owners of the victim's pages, from garbage collection.
    fn merge(
        &mut self,
        block: u32,
        shared: Option<&SharedOwners>,
        may_collect: bool,
    ) -> Result<(), Refusal> {
        if self.run.is_some_and(|run| run.block == block) && self.complete_run(shared)? {
            return Ok(());
        }

        self.end_run()?;
        let pages = self.core.tables.map.blocks().mapped_len(block);

        // Each failed round has lost a block of the superblock, so the loop ends.
        for _ in 0..self.core.geometry.dies() {
            let start = self.room_in_order(pages, may_collect)?;
            let whole = self.fill(block, start, 0, pages, shared)?;
            put_in_order(&mut self.core, block, start);
            if whole {
                break;
            }
        }

        self.core.stats.merges_full += 1;
        Ok(())
    }

    /// Moves pages of a block to their places in order. Returns false if a program failed.
    fn fill(
        &mut self,
        block: u32,
        start: Ppn,
        from: u32,
        to: u32,
        shared: Option<&SharedOwners>,
    ) -> Result<bool, Refusal> {
        for index in from..to {
            let blocks = self.core.tables.map.blocks();
            let (place, lpn) = (
                blocks.place(start, index),
                blocks.first_lpn(block).offset(index),
            );
            if self.core.blocks.next_page(Stream::Gc).is_none() {
                return Ok(true); // A superblock with bad blocks: the rest stays where it is.
            }
            if self.core.blocks.next_page(Stream::Gc) != place {
                return Ok(false);
            }

            self.core.stats.merge_programs += 1;
            let programmed = match self.core.tables.map.get(lpn) {
                // An LPN in doubt that recovery has not marked yet keeps its number.
                Some(mapping) if self.core.tables.doubtful.binary_search(&lpn).is_err() => {
                    self.move_in_order(lpn, mapping, shared)?;
                    self.core.tables.map.get(lpn).map(|mapping| mapping.ppn)
                }
                _ => pad(&mut self.core),
            };

            if programmed != place {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Moves one page to the next place in order.
    fn move_in_order(
        &mut self,
        lpn: Lpn,
        mapping: Mapping,
        shared: Option<&SharedOwners>,
    ) -> Result<(), Refusal> {
        let from = mapping.ppn;
        let (sb, offset) = (
            self.core.geometry.superblock(from),
            self.core.geometry.offset(from),
        );
        let alone = self.core.tables.counts.get(from) == 1;
        let oob = self.core.media.oob(from);
        // If its owners are known, all references move with it; it keeps its number, so that their
        // entries stay newer.
        let shared = shared.filter(|shared| shared.sb == sb && !alone && !mapping.remapped);
        if let Some(shared) = shared {
            let page = LivePage {
                offset,
                oob,
                owns: true,
                alone,
            };
            let known = shared.owners.get(&offset).into_iter().flatten();
            let in_force =
                known.filter(|owner| self.core.tables.is_in_force(owner.lpn, from, owner.wsn));
            let chain = in_force
                .zip(0..)
                .map(|(owner, at): (_, u32)| (*owner, at.checked_sub(1).unwrap_or(NONE)));
            let chain: Vec<(OwnerRef, u32)> = chain.collect();
            return self.move_page(sb, &page, &chain, chain.len() as u32 - 1, ORDERED);
        }

        // A new number. An LPN that shared another's page needs it: the page's own number is older
        // than the remap, and than the LPN's mapping before it. The others get one so that recovery
        // finds the block in order, not its earlier pages.
        let wsn = if mapping.remapped && !self.core.config.guards.has(Guard::UnsharedRenewed) {
            oob.wsn()
        } else {
            self.core.clock.tick()
        };

        self.core.stats.merge_unshared += u64::from(!alone);
        let to = self
            .copy_moved((lpn, wsn, SecondOwner::NONE), from, ORDERED)?
            .ppn();
        self.core.relink(lpn, to, false);
        if let Some(dedup) = &mut self.dedup {
            if alone {
                dedup.moved(&self.core.media, from, to)
            } else {
                dedup.copied(
                    from,
                    to,
                    PageLookup {
                        media: &self.core.media,
                        counts: &self.core.tables.counts,
                    },
                )
            }
        }
        Ok(())
    }

    /// Ensures that `pages` pages can be programmed in order; returns the first.
    fn room_in_order(&mut self, pages: u32, may_collect: bool) -> Result<Ppn, Refusal> {
        loop {
            let Some((sb, skipped, has_holes)) = self
                .core
                .blocks
                .open(Stream::Gc)
                .map(|open| (open.sb, open.skipped, !open.holes.is_empty()))
            else {
                if may_collect && !self.paused {
                    self.make_page_room()?;
                }
                if self.core.blocks.open(Stream::Gc).is_none() {
                    self.open_for_gc(ORDERED)?;
                }
                continue;
            };

            let order = self.core.blocks.order(sb);
            let left = self.core.blocks.left(Stream::Gc);
            if order.skipped != skipped {
                self.close(Stream::Gc); // A program failed since it was opened: what follows would be out of order.
            } else if has_holes {
                self.core.stats.merge_programs += 1;
                pad(&mut self.core);
            } else if left >= pages || is_fresh(&self.core, sb, left) {
                // The order is recorded before the first page is programmed: places are computed
                // from it.
                let Some(start) = self.core.blocks.next_page(Stream::Gc) else {
                    self.close(Stream::Gc);
                    continue;
                };
                self.core.tables.map.blocks_mut().set_order(sb, order);
                return Ok(start);
            } else if left > 0 {
                self.core.stats.merge_programs += 1;
                pad(&mut self.core);
            } else {
                self.close(Stream::Gc);
            }
        }
    }

    /// Merges the blocks that have their base in the victim.
    pub(crate) fn merge_victim(&mut self, job: &mut GcJob) -> Result<(), Refusal> {
        if std::mem::replace(&mut job.merged, true) {
            return Ok(());
        }

        let shared = shared_in(&mut self.core, job);
        for block in self.core.tables.map.blocks().based_in(job.sb) {
            let is_there = self
                .core
                .tables
                .map
                .blocks()
                .base(block)
                .is_some_and(|at| self.core.geometry.superblock(at) == job.sb);
            // Checked for each block: an earlier merge may have completed a run in the victim.
            if is_there && let Err(refusal) = self.merge(block, Some(&shared), false) {
                job.merged = false;
                return Err(refusal);
            }
        }

        self.scheme.issue(&mut self.core);
        Ok(())
    }
}

fn put_in_order(core: &mut Core, block: u32, start: Ppn) {
    core.tables.map.blocks_mut().set_in_order(block, start);
}

/// Programs a pad in the place of an unmapped page; returns its place unless the program
/// failed.
fn pad(core: &mut Core) -> Option<Ppn> {
    let taken = core.blocks.take(Stream::Gc)?;
    core.stats.gc_programs += 1;
    core.stats.merge_pads += 1;
    let oob = taken.oob(Oob::PAD, core.clock.tick());
    let stored = StoredPage::Meta(PAD.into());
    match core
        .media
        .program(taken.ppn(), oob, stored, Purpose::Gc, taken.after)
    {
        Ok(()) => Some(taken.ppn()),
        Err(_) => {
            core.fail_block_of(taken.ppn());
            None
        }
    }
}

/// Returns true if an open superblock is empty. With bad blocks it may have fewer pages than a
/// block.
fn is_fresh(core: &Core, sb: SbId, left: u32) -> bool {
    left > 0 && left == core.blocks.get(sb).capacity
}

/// The remapped owners of the victim's pages that are in force, each once.
fn shared_in(core: &mut Core, job: &GcJob) -> SharedOwners {
    let mut owners = BTreeMap::<u32, Vec<OwnerRef>>::new();
    // Newest first; an LPN is hidden once found, so that an older entry of the same mapping is
    // not counted twice.
    for owner in job.refs.iter().flatten().chain(&job.late).rev() {
        if core.tables.is_in_force(
            owner.lpn,
            core.geometry.page(job.sb, owner.offset),
            owner.wsn,
        ) {
            core.tables.map.hide_remapped(owner.lpn);
            owners.entry(owner.offset).or_default().push(*owner);
        }
    }

    owners
        .values()
        .flatten()
        .for_each(|owner| core.tables.map.mark_remapped(owner.lpn));
    SharedOwners { sb: job.sb, owners }
}

/// Recovery: a block's base is where most of its pages are in order. The first place of a block
/// in order holds its first page, or a pad.
pub(crate) fn find_blocks(core: &mut Core) {
    let ordered = core.blocks.iter().filter(|(_, sb)| sb.stream == Stream::Gc);
    for sb in ordered.map(|(id, _)| id).collect::<Vec<SbId>>() {
        core.tables
            .map
            .blocks_mut()
            .set_order(sb, core.blocks.order(sb));
    }

    for block in 0..core.tables.map.blocks().blocks() {
        let blocks = core.tables.map.blocks();
        let first = blocks.first_lpn(block);
        // Each page in order votes for the base it implies. Pages of an earlier order are
        // outvoted; a wrong result costs copies, never data.
        let mut votes = BTreeMap::<u32, u32>::new();
        for index in 0..blocks.pages_of(block) {
            let Some(ppn) = core
                .tables
                .map
                .get(first.offset(index))
                .map(|mapping| mapping.ppn)
            else {
                continue;
            };
            let is_ordered = core.blocks.get(core.geometry.superblock(ppn)).stream == Stream::Gc;
            let base = if is_ordered {
                blocks.base_for(index, ppn)
            } else {
                None
            };
            if let Some(base) = base {
                *votes.entry(base.0).or_default() += 1;
            }
        }
        let begins = |base: &u32| {
            let lpn = core.media.oob(Ppn(*base)).lpn();
            core.media.is_programmed(Ppn(*base)) && (lpn == first || lpn == Oob::PAD)
        };
        let found = votes
            .into_iter()
            .filter(|(base, _)| begins(base))
            .max_by_key(|(_, votes)| *votes);
        if let Some((base, _)) = found {
            core.tables.map.blocks_mut().set_in_order(block, Ppn(base));
        }
    }
}
