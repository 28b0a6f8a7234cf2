//! Relocation of a victim's pages, one stretch at a time.
//!
//! Each stretch is processed in passes, so that the tables of the next pages are prefetched while
//! one is processed: collect the pages with owners, resolve their owners, place the pages, rewrite
//! the other references.
//!
//! Invariant: each page moves with all of its owners. Absent: scheduling (`pace`).

use super::job::{GcJob, LivePage, NONE, STRETCH};
use crate::config::EntrySize;
use crate::config::guard::Guard;
use crate::contract::{OwnerRef, Remapping};
use crate::dedup::Fingerprint;
use crate::error::{LOST, Refusal};
use crate::ftl::Ftl;
use crate::records::dealloc::DeallocLog;
use crate::superblock::{AllocatedPage, Stream};
use remap_ssd_media::{After, Lpn, Ppn, Purpose, SbId, SecondOwner, StoredPage};

/// Maximum span of the pages that are copied as one row, including the first and the last.
const ROW_SPAN: u32 = 64;

impl Ftl {
    pub(crate) fn move_stretch(&mut self, job: &mut GcJob) -> Result<(), Refusal> {
        let end = (job.next + STRETCH).min(self.core.blocks.extent(job.sb));
        let mut live = std::mem::take(&mut self.gc.live);
        let mut owners = std::mem::take(&mut self.gc.owners);
        let mut heads = std::mem::take(&mut self.gc.heads);
        self.find_live(job, end, &mut live);
        self.resolve_remapped(job, end, &mut owners, &mut heads);

        let mut result = Ok(());
        let mut rest = live.as_slice();
        while let (Some(page), Ok(())) = (rest.first(), &result) {
            let mut moved = self.move_row(job.sb, rest);
            if moved == 0 {
                result = self.move_page(
                    job.sb,
                    page,
                    &owners,
                    heads[(page.offset - job.next) as usize],
                    0,
                );
                moved = 1;
            }
            rest = &rest[moved..];
        }

        // Even after a failure: the tables already name the new places of the pages that moved.
        self.scheme.issue(&mut self.core);
        (self.gc.live, self.gc.owners, self.gc.heads) = (live, owners, heads);

        // A failed stretch is processed again from its start; pages that have moved have no owner
        // there any more.
        if result.is_ok() {
            let start = job.next;
            job.late
                .retain(|owner| !(start..end).contains(&owner.offset));
            job.next = end;
            job.seen = job.seen.max(end);
            self.look_at_stretch(job);
        }

        result
    }

    /// Passes 1 and 2: pages with owners, and whether the OOB's owner is one of them.
    fn find_live(&mut self, job: &GcJob, end: u32, live: &mut Vec<LivePage>) {
        live.clear();
        let core = &self.core;
        let first = core.geometry.page(job.sb, job.next);
        core.tables
            .counts
            .each_owned(first, end - job.next, |index, count| {
                let ppn = Ppn(first.0 + index);
                let oob = core.media.oob(ppn);
                core.tables.map.prefetch(oob.lpn());
                live.push(LivePage {
                    offset: job.next + index,
                    oob,
                    owns: false,
                    alone: count == 1,
                });
                if let (Some(dedup), Some(identity)) = (&self.dedup, core.media.identity(ppn)) {
                    dedup.prefetch_line(&Fingerprint::Identity(identity));
                }
            });

        // Prefetches the tables' lines for the next pass: otherwise each lookup would wait for
        // memory.
        for owner in &job.refs[(job.next / STRETCH) as usize] {
            core.tables.map.prefetch(owner.lpn);
        }

        // `is_written_at`, not the OOB alone: if the LPN has been written elsewhere since, the
        // OOB's owner is stale.
        let base = core.geometry.page(job.sb, 0).0;
        for page in live {
            page.owns = core
                .tables
                .map
                .is_written_at(page.oob.lpn(), Ppn(base + page.offset));
        }
    }

    /// Pass 3: the remapped owners in force, each once, chained by page with the oldest first.
    fn resolve_remapped(
        &mut self,
        job: &GcJob,
        end: u32,
        // Each owner with the index of the next one in its page's chain.
        owners: &mut Vec<(OwnerRef, u32)>,
        heads: &mut Vec<u32>,
    ) {
        owners.clear();
        heads.clear();
        heads.resize((end - job.next) as usize, NONE);
        let core = &mut self.core;
        let late = job
            .late
            .iter()
            .filter(|owner| (job.next..end).contains(&owner.offset));
        let known = job.refs[(job.next / STRETCH) as usize].iter();

        // Newest first; an LPN is hidden once found, so that an older entry of the same mapping is
        // not counted twice.
        for owner in known.chain(late).rev() {
            let ppn = core.geometry.page(job.sb, owner.offset);
            if core.tables.is_in_force(owner.lpn, ppn, owner.wsn) {
                core.tables.map.hide_remapped(owner.lpn);
                let head = &mut heads[(owner.offset - job.next) as usize];
                owners.push((*owner, *head));
                *head = (owners.len() - 1) as u32;
            }
        }

        owners
            .iter()
            .for_each(|(owner, _)| core.tables.map.mark_remapped(owner.lpn));
    }

    /// Passes 4 and 5 for the first pages of a list whose only owner is the OOB's, if the media are
    /// sound: as many as fit in one row. Returns their number.
    #[inline]
    fn move_row(&mut self, sb: SbId, pages: &[LivePage]) -> usize {
        let core = &mut self.core;
        let first = core.geometry.page(sb, 0);
        let page_at = |page: &LivePage| Ppn(first.0 + page.offset);
        let end = pages[0].offset + ROW_SPAN;
        let is_single = |page: &&LivePage| {
            page.owns & page.alone & (page.offset < end) && !core.media.is_meta(page_at(page))
        };
        let len = pages
            .iter()
            .take(core.geometry.dies().max(core.geometry.stripe()) as usize)
            .take_while(is_single)
            .count();

        // A row is copied and accounted as a unit. Features that handle single pages (table stores,
        // survival, second owners, fences and faults) need the path page by page. The result must
        // be the same.
        let unwatched = core.table_bytes == 0
            && !core.blocks.is_by_lpn()
            && core.survival.is_none()
            && !core.config.scheme.uses_hints();
        let alike = core.config.entry == EntrySize::Bytes16 && unwatched && core.media.is_sound();
        if len == 0 || !alike {
            return 0;
        }

        let Some((taken, len)) = core.blocks.take_row(core.config.gc_stream(0), len as u32) else {
            return 0;
        };
        let (pages, to) = (&pages[..len as usize], taken.ppn());
        core.stats.gc_programs += u64::from(len);
        let copies = pages
            .iter()
            .map(|page| (page_at(page), page.oob.with_incarnation(taken.incarnation)));
        core.media.copy_row(taken.slot, copies, taken.after);

        // The list has all pages with owners between the first and the last, so those without
        // owners in between may be set to 0 as well.
        let (begin, end) = (page_at(&pages[0]), page_at(&pages[pages.len() - 1]));
        core.tables
            .counts
            .set_all(begin, end.0 - begin.0 + 1, false);
        core.tables.counts.set_all(to, len, true);
        core.blocks.move_owned(sb, taken.sb, len);
        for (index, page) in pages.iter().enumerate() {
            core.tables
                .map
                .set_written(page.oob.lpn(), Ppn(to.0 + index as u32));
        }

        if let Some(dedup) = &mut self.dedup {
            for (index, page) in pages.iter().enumerate() {
                dedup.moved(&core.media, page_at(page), Ppn(to.0 + index as u32));
            }
        }

        pages.len()
    }

    /// Passes 4 and 5 for one page: a new place, one owner in its OOB, entries for the others.
    #[inline]
    pub(crate) fn move_page(
        &mut self,
        sb: SbId,
        page: &LivePage,
        owners: &[(OwnerRef, u32)],
        first: u32,
        zone: usize,
    ) -> Result<(), Refusal> {
        let from = self.core.geometry.page(sb, page.offset);
        if first != NONE {
            return self.move_shared(sb, page, owners, first, zone);
        }

        // More owners counted than found would mean a lost mapping: the victim is erased after
        // this.
        assert!(
            page.owns && self.core.tables.counts.get(from) == 1,
            "owners found and counted of {from:?}"
        );
        let lpn = page.oob.lpn();
        if !lpn.is_below(self.core.config.lpns) && !self.core.media.is_readable(from) {
            if lpn >= self.core.config.translation_lpn(0) {
                self.core.lose_translation_page(lpn);
                return Ok(());
            }
            return self.renew_bitmap(lpn);
        }

        // The page keeps the home it is meant for; whether it was ever shared with it is irrelevant
        // now.
        let to = self.copy_moved(
            (
                page.oob.lpn(),
                page.oob.wsn(),
                page.oob.second().with_owns(false),
            ),
            from,
            zone,
        )?;

        self.core
            .move_page((sb, from), (to.sb, to.ppn()), page.oob.lpn(), false);
        if let Some(dedup) = &mut self.dedup {
            dedup.moved(&self.core.media, from, to.ppn());
        }

        Ok(())
    }

    /// Rewrites an unreadable bitmap of deallocations: the tables still have its content.
    #[cold]
    fn renew_bitmap(&mut self, lpn: Lpn) -> Result<(), Refusal> {
        loop {
            self.core.fill_lines();
            let Some(taken) = self.core.blocks.take(self.core.config.gc_stream(0)) else {
                self.open_for_gc(0)?;
                continue;
            };

            self.core.stats.meta_programs += 1;
            let bitmap = DeallocLog::bitmap(
                &self.core.config,
                &self.core.tables,
                self.buffer.as_deref(),
                lpn.offset_from(self.core.config.bitmap_lpn(0)),
            );
            let oob = taken.oob(lpn, self.core.clock.tick());

            // As in a flush: 1. everything issued before  2. the bitmap. It must not be newer than
            // a write it reflects.
            let after = taken.after.and(After::ALL);
            if self
                .core
                .media
                .program(
                    taken.ppn(),
                    oob,
                    StoredPage::Meta(bitmap.into()),
                    Purpose::Gc,
                    after,
                )
                .is_ok()
            {
                self.core.programmed(taken.ppn(), Purpose::Gc);
                self.core.relink(lpn, taken.ppn(), false);
                return Ok(());
            }

            self.core.fail_block_of(taken.ppn());
        }
    }

    /// Moves a page with remapped owners.
    fn move_shared(
        &mut self,
        sb: SbId,
        page: &LivePage,
        owners: &[(OwnerRef, u32)],
        first: u32,
        zone: usize,
    ) -> Result<(), Refusal> {
        let from = self.core.geometry.page(sb, page.offset);
        let next = |index: &u32| Some(owners[*index as usize].1).filter(|next| *next != NONE);
        let chain = std::iter::successors(Some(first), next).map(|index| owners[index as usize].0);
        if self.core.config.scheme.uses_hints() {
            return self.move_pair(sb, page, chain);
        }
        if !self.core.config.scheme.facts().owners_move {
            return self.move_without_owners(sb, page, chain);
        }

        // The oldest owner goes into the OOB: entries count only if they are newer than the page
        // they name.
        let primary = if page.owns {
            (page.oob.lpn(), page.oob.wsn())
        } else {
            let oldest = chain
                .clone()
                .min_by_key(|owner| owner.wsn)
                .expect("the chain has a first");
            (oldest.lpn, oldest.wsn)
        };

        // An LPN may be in the OOB and in an entry, if it was remapped to its own page.
        let others = chain.filter(|owner| owner.lpn != primary.0);
        let found = 1 + others.clone().count() as u32;

        assert_eq!(
            found,
            self.core.tables.counts.get(from),
            "owners found and counted of {from:?}"
        );

        let kept_apart = self.core.config.gc_policy.zone(found);
        self.core.stats.gc_zoned += u64::from(kept_apart > 0);
        let taken = self.copy_moved(
            (primary.0, primary.1, SecondOwner::NONE),
            from,
            zone.max(kept_apart),
        )?;
        let to = taken.ppn();

        self.core
            .move_page((sb, from), (taken.sb, to), primary.0, !page.owns);
        // Entries keep the numbers of their remaps: the move is not a new witness of these LPNs,
        // and must not win over one issued in between.
        for owner in others {
            let remapping = Remapping {
                lpn: owner.lpn,
                ppn: to,
                wsn: owner.wsn,
                source: owner.source,
                atomic: None,
            };
            if !self.core.config.guards.has(Guard::OtherReferences)
                || self.scheme.persist_moved(&mut self.core, &remapping)
            {
                self.core.move_reference(from, to, owner.lpn);
            } else {
                // No room for an entry: the owner gets its own copy, from the old place, which is
                // still readable.
                self.core.stats.gc_copies += 1;
                let copy = self.copy_moved((owner.lpn, owner.wsn, SecondOwner::NONE), from, 0)?;
                self.core.split_reference(from, to, copy.ppn(), owner.lpn);
            }
        }

        if let Some(dedup) = &mut self.dedup {
            dedup.moved(&self.core.media, from, to);
        }

        Ok(())
    }

    /// Moves a page that its home owns by a commit record, and perhaps also the LPN it was written
    /// under. Its copy names both, with a new number: the number of the write would be too old for
    /// the home, which may have been written after it.
    ///
    /// Cut before the copy is durable: the record is the witness, for the page at its old place.
    /// After: the copy is, and the record is not needed for it. With command atomicity the copy
    /// waits for the stores before it, and so for the command's end.
    #[cold]
    fn move_pair(
        &mut self,
        sb: SbId,
        page: &LivePage,
        mut home: impl Iterator<Item = OwnerRef>,
    ) -> Result<(), Refusal> {
        let from = self.core.geometry.page(sb, page.offset);
        let owner = home.next().expect("the chain has a first");
        assert!(home.next().is_none(), "a page has one home: {from:?}");

        let wsn = if self.core.config.guards.has(Guard::HomesRenewed) {
            self.core.clock.tick()
        } else {
            page.oob.wsn()
        };

        // The LPN that it was written under has other data by now: the home is the only owner.
        if !page.owns {
            let taken = self.copy_moved((owner.lpn, wsn, SecondOwner::NONE), from, 0)?;
            self.core
                .move_page((sb, from), (taken.sb, taken.ppn()), owner.lpn, true);
            return Ok(());
        }

        let zone = self.core.config.gc_policy.zone(2);
        self.core.stats.gc_zoned += u64::from(zone > 0);
        let taken = self.copy_moved(
            (page.oob.lpn(), wsn, SecondOwner::of(owner.lpn, true)),
            from,
            zone,
        )?;
        self.core
            .move_page((sb, from), (taken.sb, taken.ppn()), page.oob.lpn(), false);
        self.core.move_reference(from, taken.ppn(), owner.lpn);

        Ok(())
    }

    /// Moves a page whose remapped owners the scheme cannot find: the OOB's owner keeps it, if it
    /// still owns it, and the others lose their mappings.
    #[cold]
    fn move_without_owners(
        &mut self,
        sb: SbId,
        page: &LivePage,
        others: impl Iterator<Item = OwnerRef>,
    ) -> Result<(), Refusal> {
        for owner in others {
            self.core.unlink(owner.lpn);
            self.core.stats.lost_references += 1;
        }
        if page.owns {
            self.move_page(sb, page, &[], NONE, 0)
        } else {
            Ok(())
        }
    }

    /// Copies a page into GC's superblock of a zone.
    #[inline(always)]
    pub(crate) fn copy_moved(
        &mut self,
        (lpn, wsn, second): (Lpn, u64, SecondOwner),
        from: Ppn,
        zone: usize,
    ) -> Result<AllocatedPage, Refusal> {
        loop {
            let stream = self.core.config.gc_stream(zone);
            let Some(taken) = self.core.blocks.take_for(stream, lpn) else {
                self.open_for_gc(zone)?;
                continue;
            };

            self.core.stats.gc_programs += 1;
            let oob = taken.oob(lpn, wsn).with_second(second);

            // With command atomicity, a copy may carry the number of a command in progress, which must be recorded
            // first; or a new number, with which it counts although the command may not. A copy with its page's own
            // number does neither: it waits for its page, and that for the record.
            let from_oob = self.core.media.oob(from);
            let is_own = from_oob.lpn() == lpn && from_oob.wsn() == wsn;
            let config = &self.core.config;
            let waits = config.entry == EntrySize::Bytes24
                || (config.untorn_bytes > 0
                    && !is_own
                    && config.guards.has(Guard::MovedAfterWrites));
            let after = if waits {
                taken.after.and(After::FENCE)
            } else {
                taken.after
            };

            if self
                .core
                .media
                .copy(from, taken.slot, oob, LOST, Purpose::Gc, after)
                .is_ok()
            {
                self.core.programmed(taken.ppn(), Purpose::Gc);
                return Ok(taken);
            }

            self.core.fail_block_of(taken.ppn());
        }
    }

    #[cold]
    pub(crate) fn open_for_gc(&mut self, zone: usize) -> Result<(), Refusal> {
        let (stream, wear) = (
            self.core.config.gc_stream(zone),
            self.core.config.gc_policy.wear(zone),
        );
        self.close(stream);
        if self
            .core
            .blocks
            .open_worn(&mut self.core.media, stream, wear, &mut self.core.clock)
        {
            Ok(())
        } else {
            Err(self.end_of_life())
        }
    }

    /// Closes a stream's full superblock; records the time of the first one in its last cycle.
    #[cold]
    pub(crate) fn close(&mut self, stream: Stream) {
        self.core.blocks.close(&mut self.core.media, stream);

        if self.core.blocks.blocks_worn > 0 && self.first_retired.is_none() {
            self.first_retired = Some(self.core.stats.host_writes);
        }
    }
}
