//! Blocks in order, under hybrid mapping (Copyless Copy §II).
//!
//! The host's pages go to its own superblock, one after the other, and into the extension of their
//! blocks; but a page that begins a block, and those that follow it, go to the superblock of blocks
//! in order. A block comes in order there in one of three ways, as in the hybrid mappings that
//! Copyless Copy cites:
//! - *switch*: the host wrote all of its pages in order. Nothing is copied.
//! - *partial merge*: it wrote the first half or more, then began another block. The rest is copied
//!   behind it.
//! - *full merge*: all pages are copied, because the extension is full and this block has most of
//!   it, or because the superblock that the block is in is collected.
//!
//! Copyless Copy's destinations are entries of the extension that name the source's page. A merge
//! gives every page of its block a place of its own: the place is there, filled or not, so that to
//! share goes on would save nothing. What other LPNs share with the block's pages stays shared
//! among them, and with the block too, where its superblock is collected.
//!
//! Order: a merge moves pages as garbage collection does (`gc`), and takes no witness away.
//! 1. the page at its new place, with a new number as if it were written (and after an atomic
//!    command's commit, as any copy)
//! 2. whatever erases the old one, or releases the entry that spoke for it.
//!
//! Cut before 1: what the LPN had speaks for it. After: the copy does, of the same content,
//! whatever becomes of the other.
//!
//! Invariant: after a command, the extension has at most `Config::extension_entries` entries, and
//! at most a block's pages besides: those of the block being written in order, and of one before it
//! that was hardly begun. Absent: the table (`block_map`), which superblock is collected (`gc`).

use crate::block_map::BlockInOrder;
use crate::contract::OwnerRef;
use crate::dedup::PageLookup;
use crate::error::Refusal;
use crate::ftl::Ftl;
use crate::gc::job::{GcJob, LivePage, NONE, ORDERED};
use crate::guard::Guard;
use crate::mapping::Mapping;
use crate::superblock::{AllocatedPage, Stream};
use remap_ssd_media::{Lpn, Oob, Ppn, Purpose, SbId, SecondOwner, StoredPage};
use std::collections::BTreeMap;

/// What a page holds that keeps the place of an unmapped one.
const PAD: &[u8] = b"pad";

/// The remapped owners of a victim's pages, by page.
struct SharedOwners {
    sb: SbId,
    owners: BTreeMap<u32, Vec<OwnerRef>>,
}

impl Ftl {
    /// Puts blocks in order until so many more pages can be elsewhere.
    #[cold]
    pub(crate) fn make_extension_room(&mut self, entries: u32) -> Result<(), Refusal> {
        let limit = self.core.config.extension_entries();
        // A block that is put in order leaves the extension, unless blocks fail.
        let mut rounds = 2 * self.core.tables.map.blocks().blocks();
        while self.entries_taken() + entries > limit && rounds > 0 {
            rounds -= 1;
            self.end_write();
            self.make_page_room()?;
            // The block that is being written leaves the extension by itself when it is complete,
            // so it is the last choice.
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

    /// Entries of the extension, but for the pages of the block that is being written in order.
    fn entries_taken(&self) -> u32 {
        let blocks = self.core.tables.map.blocks();
        let written = self
            .run
            .map_or(0, |run| run.next.min(blocks.entries_of(run.block)));
        blocks.entries() - written
    }

    /// The next page for the host: in order, where it begins a block or goes on with the one that
    /// was begun.
    // Apart: a device that maps by page never comes here, and its programs are shorter without it.
    #[inline(never)]
    pub(crate) fn take_in_order(&mut self, lpn: Lpn) -> Result<AllocatedPage, Refusal> {
        if self.paused {
            return self.take_host_page();
        }
        let (block, index) = self.core.tables.map.blocks().split(lpn);
        if index > 0
            && self
                .run
                .is_none_or(|run| (run.block, run.next) != (block, index))
        {
            return self.take_host_page();
        }

        // Collecting may end the block that was begun.
        self.pace()?;
        if self
            .run
            .is_none_or(|run| (run.block, run.next) != (block, index))
        {
            if index > 0 {
                return self.take_host_page();
            }
            // A block begins. What was begun before it is completed first: its pages follow each
            // other, and nothing may come between.
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
                // A superblock with bad blocks may end before the block does.
                self.run = None;
                self.take_host_page()
            }
        }
    }

    /// The host has written a page; is it the next one of the block?
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
            self.put_in_order(block, start);
            self.run = None;
        }
    }

    /// The block that is being written in order ends: it is completed, or if most of it is missing,
    /// its pages stay elsewhere.
    fn end_run(&mut self) -> Result<(), Refusal> {
        let Some(run) = self.run else { return Ok(()) };
        // Copying more than was written would cost more than leaving these pages in the extension.
        if 2 * run.next < self.core.tables.map.blocks().pages_of(run.block) {
            self.run = None;
            return Ok(());
        }
        self.complete_run(None).map(drop)
    }

    /// Copies the rest of the block that is being written in order; `false` if a program failed
    /// meanwhile.
    fn complete_run(&mut self, shared: Option<&SharedOwners>) -> Result<bool, Refusal> {
        let Some(BlockInOrder { block, start, next }) = self.run.take() else {
            return Ok(false);
        };
        let pages = self.core.tables.map.blocks().mapped_len(block);
        let whole = self.fill(block, start, next, pages, shared)?;
        self.core.stats.merges_partial += 1;
        self.put_in_order(block, start);
        Ok(whole)
    }

    /// Puts a block in order. Garbage collection names the owners of the victim's pages.
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

        // Each round that fails has lost a block of the superblock, so it ends.
        for _ in 0..self.core.geometry.dies() {
            let start = self.room_in_order(pages, may_collect)?;
            let whole = self.fill(block, start, 0, pages, shared)?;
            self.put_in_order(block, start);
            if whole {
                break;
            }
        }

        self.core.stats.merges_full += 1;
        Ok(())
    }

    fn put_in_order(&mut self, block: u32, start: Ppn) {
        self.core.tables.map.blocks_mut().set_in_order(block, start);
    }

    /// Moves pages of a block to where they are in order; `false` if a program failed meanwhile.
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
                // What recovery has not marked yet keeps its number.
                Some(mapping) if self.core.tables.doubtful.binary_search(&lpn).is_err() => {
                    self.move_in_order(lpn, mapping, shared)?;
                    self.core.tables.map.get(lpn).map(|mapping| mapping.ppn)
                }
                _ => self.pad(),
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
        // All references go with it if somebody knows them, and it keeps its number, so that their
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

        // A new number. What had another LPN's page needs it: the page's own is older than the
        // remap, and than what the LPN had before it. The others get one so that recovery finds the
        // block in order, and not what its pages were before.
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

    /// A page in the place of one that is not mapped; where it is, unless its program failed.
    fn pad(&mut self) -> Option<Ppn> {
        let taken = self.core.blocks.take(Stream::Gc)?;
        self.core.stats.gc_programs += 1;
        self.core.stats.merge_pads += 1;
        let oob = taken.oob(Oob::PAD, self.core.clock.tick());
        let stored = StoredPage::Meta(PAD.into());
        match self
            .core
            .media
            .program(taken.ppn(), oob, stored, Purpose::Gc, taken.after)
        {
            Ok(()) => Some(taken.ppn()),
            Err(_) => {
                self.core.fail_block_of(taken.ppn());
                None
            }
        }
    }

    /// Makes sure that so many pages can be programmed in order; the first of them.
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
                self.pad();
            } else if left >= pages || self.is_fresh(sb, left) {
                // The order is noted before the first page is in place: places are computed from
                // it.
                let Some(start) = self.core.blocks.next_page(Stream::Gc) else {
                    self.close(Stream::Gc);
                    continue;
                };
                self.core.tables.map.blocks_mut().set_order(sb, order);
                return Ok(start);
            } else if left > 0 {
                self.core.stats.merge_programs += 1;
                self.pad();
            } else {
                self.close(Stream::Gc);
            }
        }
    }

    /// Is an open superblock empty? One with bad blocks may have fewer pages than a block.
    fn is_fresh(&self, sb: SbId, left: u32) -> bool {
        left > 0 && left == self.core.blocks.get(sb).capacity
    }

    /// Collects the blocks that are in the victim.
    pub(crate) fn merge_victim(&mut self, job: &mut GcJob) -> Result<(), Refusal> {
        if std::mem::replace(&mut job.merged, true) {
            return Ok(());
        }

        let shared = self.shared_in(job);
        for block in self.core.tables.map.blocks().based_in(job.sb) {
            let is_there = self
                .core
                .tables
                .map
                .blocks()
                .base(block)
                .is_some_and(|at| self.core.geometry.superblock(at) == job.sb);
            // Again for each block: an earlier merge may have completed a run that was in the
            // victim.
            if is_there && let Err(refusal) = self.merge(block, Some(&shared), false) {
                job.merged = false;
                return Err(refusal);
            }
        }

        self.scheme.issue(&mut self.core);
        Ok(())
    }

    /// The remapped owners of the victim's pages that are still owners, each once.
    fn shared_in(&mut self, job: &GcJob) -> SharedOwners {
        let (core, mut owners) = (&mut self.core, BTreeMap::<u32, Vec<OwnerRef>>::new());
        // Newest first; an LPN once seen is hidden, so that an older entry of the same mapping does
        // not count twice.
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

    /// Recovery: the base of each block is where most of its pages are in order. Where a block is
    /// in order its first place has its first page, or a pad.
    pub(crate) fn find_blocks(&mut self) {
        let core = &mut self.core;
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
            // Each page in order names the base that it would have. Pages of an earlier order are
            // outvoted, and what is wrong here costs copies, never data.
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
                let is_ordered =
                    core.blocks.get(core.geometry.superblock(ppn)).stream == Stream::Gc;
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
}
