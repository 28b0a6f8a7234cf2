//! Garbage collection: pages with owners move away, then the victim is erased.
//!
//! In passes over a stretch of pages, so that the tables of the next pages are fetched while one is handled:
//! collect the pages with owners, resolve who owns them, place them, rewrite the other references.
//!
//! Order: 1. the pages at their new place, each with one owner in its OOB  2. entries of the other owners, each after
//! the pages it names  3. the victim is marked dead, after everything  4. erases  5. its entries are released.
//! Cut before 3: the victim is a witness as before, and says the same as the copies. After 3: the copies do.
//!
//! Invariants: a job gains space (its victim has garbage, and its references' entries fit into the reserve); the
//! pages of the victim that the host remaps onto while the job runs are in `late`. Absent: the choices (`policy`).

use crate::command::Refusal;
use crate::config::EntrySize;
use crate::dealloc::DeallocLog;
use crate::dedup::Fingerprint;
use crate::ftl::Ftl;
use crate::guard::Guard;
use crate::policy::{Candidate, GcPolicy, least_worn};
use crate::scheme::{OwnerRef, Remapping};
use crate::superblock::{State, Stream, Taken};
use remap_ssd_media::{After, Oob, OpKind, Ppn, Purpose, SbId, Second, Stored};

/// Pages of a stretch.
pub const STRETCH: u32 = 256;
/// Pages among which those lie that are copied as one row.
const ROW_SPAN: u32 = 64;
/// Pages whose owners' mappings are asked for at once: as many cache lines as can be on the way.
const SEEN_AT_ONCE: u32 = 16;
/// What a page holds whose data could not be read when it had to move: reads of it are media errors.
pub const LOST: &[u8] = b"lost";
/// Collections between two looks at wear, on devices that are not tiny.
const WEAR_PERIOD: u64 = 16;
/// Looks for a victim while the host writes a superblock, where none is worth it.
const LOOKS: u32 = 64;
/// No owner follows.
pub(crate) const NONE: u32 = u32::MAX;
/// The zone of blocks that are put in order, under hybrid mapping.
pub(crate) const ORDERED: usize = 1;

/// A victim being emptied.
pub struct Job {
    pub(crate) sb: SbId,
    /// Hybrid mapping: the victim's blocks are in order elsewhere.
    pub(crate) merged: bool,
    /// Next page offset to look at.
    next: u32,
    /// Page offset up to which the owners' mappings have been asked for.
    seen: u32,
    /// Pages gained per collection, for pacing.
    gain: u32,
    /// Remapped owners by stretch.
    pub(crate) refs: Vec<Vec<OwnerRef>>,
    /// Owners that came while the job ran.
    pub(crate) late: Vec<OwnerRef>,
}

/// A page with owners.
pub(crate) struct Live {
    pub(crate) offset: u32,
    /// What it says of itself: an owner, and its extension.
    pub(crate) oob: Oob,
    /// Is the owner that the OOB names still one?
    pub(crate) owns: bool,
    /// Has it one owner?
    pub(crate) alone: bool,
}

/// GC state and scratch buffers.
#[derive(Default)]
pub struct Gc {
    job: Option<Job>,
    credit: u64,
    /// Nothing was worth collecting: the number from which on it may be.
    look_again: u64,
    runs_at_wear_check: u64,
    live: Vec<Live>,
    owners: Vec<(OwnerRef, u32)>,
    heads: Vec<u32>,
    scanned: Vec<OwnerRef>,
}

impl Ftl {
    /// Closed superblocks that hold data and can be filled again. Collecting one that is worn out would give no space
    /// back: it keeps what it holds.
    fn candidates(&self) -> impl Iterator<Item = Candidate> + '_ {
        let core = &self.core;
        let closed = core
            .blocks
            .iter()
            .filter(|(_, sb)| sb.state == State::Closed && sb.stream != Stream::Log);
        closed
            .filter(|(_, sb)| !core.blocks.is_in_last_cycle(sb))
            .filter_map(|(id, sb)| {
                // A reference that must be copied takes a page, like one more page with an owner.
                let copies = self.scheme.unplaceable(core, id);
                let live = match self.hybrid {
                    false => core.blocks.owners(id).live + copies,
                    true => core.map.blocks().cost(id, core.blocks.owners(id).live) + copies,
                };
                (copies == 0 && !self.hybrid || live < sb.capacity + u32::from(self.hybrid))
                    .then_some(Candidate {
                        sb: id,
                        capacity: sb.capacity,
                        live,
                        erases: sb.life.incarnation(),
                        opened: sb.opened,
                    })
            })
    }

    /// Those worth collecting before space is needed.
    fn candidates_ahead(&self) -> impl Iterator<Item = Candidate> + '_ {
        let share = self.core.config.gc_garbage;
        self.candidates().filter(move |candidate| {
            f64::from(candidate.garbage()) >= share * f64::from(candidate.capacity)
        })
    }

    fn choose_victim(&mut self, host_waits: bool) -> Option<Candidate> {
        let period = WEAR_PERIOD.min(u64::from(self.core.geometry.superblocks()) / 4);
        if self.core.stats.gc_runs >= self.gc.runs_at_wear_check + period {
            self.gc.runs_at_wear_check = self.core.stats.gc_runs;
            let total: u64 = self
                .core
                .blocks
                .iter()
                .map(|(_, sb)| u64::from(sb.life.incarnation()))
                .sum();
            let mean = total as f64 / f64::from(self.core.geometry.superblocks());
            if let Some(worn) = least_worn(self.candidates(), mean, self.core.config.wear_gap) {
                self.core.stats.wear_runs += 1;
                return Some(worn);
            }
        }
        match host_waits {
            false => self
                .core
                .config
                .gc_policy
                .victim(self.candidates_ahead(), self.core.wsn),
            true => GcPolicy::victim_in_need(self.candidates()),
        }
    }

    /// Starts a job if there is something to gain; `host_waits` for free superblocks, or they are made ahead of need.
    fn begin_job(&mut self, host_waits: bool) -> bool {
        let Some(victim) = self.choose_victim(host_waits) else {
            return false;
        };
        self.begin_job_on(victim.sb, victim.garbage().max(1));
        true
    }

    /// Starts a job on a closed superblock.
    pub(crate) fn begin_job_on(&mut self, sb: SbId, gain: u32) {
        let stretches = self.core.geometry.pages_per_superblock().div_ceil(STRETCH) as usize;
        let mut scanned = std::mem::take(&mut self.gc.scanned);
        scanned.clear();
        self.core
            .media
            .charge(OpKind::LookupBegin, 0, Purpose::Gc, After::NOTHING);
        self.scheme.owners(&mut self.core, sb, &mut scanned);
        self.core
            .media
            .charge(OpKind::LookupEnd, 0, Purpose::Gc, After::NOTHING);
        let mut refs: Vec<Vec<OwnerRef>> = vec![Vec::new(); stretches];
        for owner in &scanned {
            refs[(owner.offset / STRETCH) as usize].push(*owner);
        }
        self.gc.scanned = scanned;
        let job = Job {
            sb,
            merged: false,
            next: 0,
            seen: 0,
            gain,
            refs,
            late: Vec::new(),
        };
        self.look_at_stretch(&job);
        self.gc.job = Some(job);
        self.gc.credit = 0;
    }

    /// Before a host page is programmed: collects as much as that page is worth, so that the victim is empty when
    /// the host has used what collecting it gains.
    #[inline]
    pub(crate) fn pace(&mut self) -> Result<(), Refusal> {
        if self.core.config.gc_at_once && self.gc.job.is_some() {
            return self.finish_job();
        }
        let Some(job) = &self.gc.job else {
            if self.core.blocks.free() <= self.gc_start && self.core.wsn >= self.gc.look_again {
                return self.begin_pace();
            }
            return Ok(());
        };
        self.gc.credit += u64::from(self.core.geometry.pages_per_superblock());
        let price = u64::from(STRETCH) * u64::from(job.gain);
        if self.gc.credit >= price {
            self.gc.credit -= price;
            self.step_job()?;
        } else {
            self.look_at_pages();
        }
        Ok(())
    }

    #[cold]
    fn begin_pace(&mut self) -> Result<(), Refusal> {
        if !self.begin_job(false) {
            // Only overwriting makes a superblock worth it; looking at all of them for every page would be the slowest
            // part of a write.
            self.gc.look_again =
                self.core.wsn + u64::from(self.core.geometry.pages_per_superblock() / LOOKS);
            return Ok(());
        }
        if self.core.config.gc_at_once {
            self.finish_job()
        } else {
            Ok(())
        }
    }

    /// Asks for the mappings of a few more pages of the next stretch: all at once would be more than can be on the way.
    #[inline]
    fn look_at_pages(&mut self) {
        let (core, Some(job)) = (&self.core, &mut self.gc.job) else {
            return;
        };
        let end = (job.next + STRETCH).min(core.geometry.pages_per_superblock());
        if job.seen >= end {
            return;
        }
        let (first, len) = (
            core.geometry.page(job.sb, job.seen),
            SEEN_AT_ONCE.min(end - job.seen),
        );
        core.counts.each_owned(first, len, |index, _| {
            core.map
                .prefetch(core.media.oob(Ppn(first.0 + index)).lpn())
        });
        job.seen += len;
    }

    /// Collects whole victims until more than the reserve is free.
    #[cold]
    pub(crate) fn collect_now(&mut self) -> Result<(), Refusal> {
        let mut rounds = 2 * self.core.geometry.superblocks();
        while self.core.blocks.free() <= self.reserve {
            if rounds == 0 {
                return Err(self.end_of_life());
            }
            rounds -= 1;
            if self.gc.job.is_none() && !self.begin_job(true) {
                if self.scheme.give_back(&mut self.core) {
                    continue;
                }
                return Err(self.end_of_life());
            }
            self.finish_job()?;
        }
        Ok(())
    }

    /// Empties the victim of the job under way.
    pub(crate) fn finish_job(&mut self) -> Result<(), Refusal> {
        while self.gc.job.is_some() {
            self.step_job()?;
        }
        Ok(())
    }

    /// One step of collection in idle time; `false` if there is nothing to do.
    pub fn background(&mut self) -> bool {
        self.end_write();
        if self.is_read_only() || self.core.media.broken().is_some() {
            return false;
        }
        if self.gc.job.is_none()
            && (self.core.blocks.free() > self.gc_start || !self.begin_job(false))
        {
            return false;
        }
        self.step_job().is_ok()
    }

    /// Moves one stretch of the victim, and erases the victim after the last.
    fn step_job(&mut self) -> Result<(), Refusal> {
        let Some(mut job) = self.gc.job.take() else {
            return Ok(());
        };
        let merged = if self.hybrid {
            self.merge_victim(&mut job)
        } else {
            Ok(())
        };
        let result = merged.and_then(|()| self.move_stretch(&mut job));
        if result.is_err() || job.next < self.core.geometry.pages_per_superblock() {
            self.gc.job = Some(job);
            return result;
        }
        self.core
            .blocks
            .erase(&mut self.core.media, job.sb, &mut self.core.wsn);
        self.scheme.forget(&mut self.core, job.sb);
        if let Some(dedup) = &mut self.dedup {
            let first = self.core.geometry.page(job.sb, 0).0 as usize;
            dedup.erased(first..first + self.core.geometry.pages_per_superblock() as usize);
        }
        self.core.stats.gc_runs += 1;
        Ok(())
    }

    fn move_stretch(&mut self, job: &mut Job) -> Result<(), Refusal> {
        let end = (job.next + STRETCH).min(self.core.geometry.pages_per_superblock());
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
        self.scheme.issue(&mut self.core);
        (self.gc.live, self.gc.owners, self.gc.heads) = (live, owners, heads);
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

    /// Asks for what the next stretch's pages say of themselves, while the host goes on.
    fn look_at_stretch(&self, job: &Job) {
        let pages = STRETCH.min(self.core.geometry.pages_per_superblock() - job.next);
        self.core
            .media
            .prefetch_run(self.core.geometry.page(job.sb, job.next), pages);
    }

    /// Passes 1 and 2: pages with owners, and whether the OOB's owner is one of them.
    fn find_live(&mut self, job: &Job, end: u32, live: &mut Vec<Live>) {
        live.clear();
        let core = &self.core;
        let first = core.geometry.page(job.sb, job.next);
        core.counts
            .each_owned(first, end - job.next, |index, count| {
                let ppn = Ppn(first.0 + index);
                let oob = core.media.oob(ppn);
                core.map.prefetch(oob.lpn());
                live.push(Live {
                    offset: job.next + index,
                    oob,
                    owns: false,
                    alone: count == 1,
                });
                if let (Some(dedup), Some(identity)) = (&self.dedup, core.media.identity(ppn)) {
                    dedup.prefetch_line(&Fingerprint::Identity(identity));
                }
            });
        for owner in &job.refs[(job.next / STRETCH) as usize] {
            core.map.prefetch(owner.lpn);
        }
        let base = core.geometry.page(job.sb, 0).0;
        for page in live {
            page.owns = core
                .map
                .is_written_at(page.oob.lpn(), Ppn(base + page.offset));
        }
    }

    /// Pass 3: the remapped owners that are still owners, each once, chained by page with the oldest first.
    fn resolve_remapped(
        &mut self,
        job: &Job,
        end: u32,
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
        // Newest first; an LPN once seen is hidden, so that an older entry of the same mapping does not count twice.
        for owner in known.chain(late).rev() {
            let ppn = core.geometry.page(job.sb, owner.offset);
            if core.is_in_force(owner.lpn, ppn, owner.wsn) {
                core.map.hide_remapped(owner.lpn);
                let head = &mut heads[(owner.offset - job.next) as usize];
                owners.push((*owner, *head));
                *head = (owners.len() - 1) as u32;
            }
        }
        owners
            .iter()
            .for_each(|(owner, _)| core.map.mark_remapped(owner.lpn));
    }

    /// Passes 4 and 5 for the first pages of a list that have nobody but their OOB's owner, while nothing can go wrong:
    /// as many as go to one row; how many that were.
    #[inline]
    fn move_row(&mut self, sb: SbId, pages: &[Live]) -> usize {
        let core = &mut self.core;
        let first = core.geometry.page(sb, 0);
        let page_at = |page: &Live| Ppn(first.0 + page.offset);
        let end = pages[0].offset + ROW_SPAN;
        let is_single = |page: &&Live| {
            page.owns & page.alone & (page.offset < end) && !core.media.is_meta(page_at(page))
        };
        let len = pages
            .iter()
            .take(core.geometry.dies() as usize)
            .take_while(is_single)
            .count();
        let unwatched =
            core.table_bytes == 0 && core.survival.is_none() && !core.config.scheme.uses_hints();
        let alike = core.config.entry == EntrySize::Bytes16 && unwatched && core.media.is_plain();
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
        let (begin, end) = (page_at(&pages[0]), page_at(&pages[pages.len() - 1]));
        core.counts.set_all(begin, end.0 - begin.0 + 1, false);
        core.counts.set_all(to, len, true);
        core.blocks.move_owned(sb, taken.sb, len);
        for (index, page) in pages.iter().enumerate() {
            core.map
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
        page: &Live,
        owners: &[(OwnerRef, u32)],
        first: u32,
        zone: usize,
    ) -> Result<(), Refusal> {
        let from = self.core.geometry.page(sb, page.offset);
        if first != NONE {
            return self.move_shared(sb, page, owners, first, zone);
        }
        assert!(
            page.owns && self.core.counts.get(from) == 1,
            "owners found and counted of {from:?}"
        );
        if page.oob.lpn() >= self.core.config.lpns && !self.core.media.is_readable(from) {
            return self.renew_bitmap(page.oob.lpn());
        }
        // A home that the page is meant for goes with it; whether it had come there once does not matter any more.
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

    /// A bitmap of deallocations that has become unreadable: the tables still know its content.
    #[cold]
    fn renew_bitmap(&mut self, lpn: u32) -> Result<(), Refusal> {
        loop {
            let Some(taken) = self.core.blocks.take(self.core.config.gc_stream(0)) else {
                self.open_for_gc(0)?;
                continue;
            };
            self.core.stats.meta_programs += 1;
            let bitmap = DeallocLog::bitmap(&self.core, lpn - self.core.config.lpns);
            let oob = taken.oob(lpn, self.core.tick());
            // As in a flush: 1. everything issued before  2. the bitmap. It must not be newer than a write it knows of.
            let after = taken.after.and(After::ALL);
            if self
                .core
                .media
                .program(
                    taken.ppn(),
                    oob,
                    Stored::Meta(bitmap.into()),
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

    /// A page with remapped owners.
    fn move_shared(
        &mut self,
        sb: SbId,
        page: &Live,
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
        if !self.scheme.owners_move() {
            return self.move_without_owners(sb, page, chain);
        }
        // The oldest owner goes into the OOB: entries count only if they are newer than the page they name.
        let primary = match page.owns {
            true => (page.oob.lpn(), page.oob.wsn()),
            false => {
                let oldest = chain
                    .clone()
                    .min_by_key(|owner| owner.wsn)
                    .expect("the chain has a first");
                (oldest.lpn, oldest.wsn)
            }
        };
        let others = chain.filter(|owner| owner.lpn != primary.0);
        let found = 1 + others.clone().count() as u32;
        assert_eq!(
            found,
            self.core.counts.get(from),
            "owners found and counted of {from:?}"
        );
        let kept_apart = self.core.config.gc_policy.zone(found);
        self.core.stats.gc_zoned += u64::from(kept_apart > 0);
        let taken = self.copy_moved(
            (primary.0, primary.1, Second::NONE),
            from,
            zone.max(kept_apart),
        )?;
        let to = taken.ppn();
        self.core
            .move_page((sb, from), (taken.sb, to), primary.0, !page.owns);
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
                self.core.stats.gc_copies += 1;
                let copy = self.copy_moved((owner.lpn, owner.wsn, Second::NONE), from, 0)?;
                self.core.split_reference(from, to, copy.ppn(), owner.lpn);
            }
        }
        if let Some(dedup) = &mut self.dedup {
            dedup.moved(&self.core.media, from, to);
        }
        Ok(())
    }

    /// A page that its home has, by a commit record, and perhaps the LPN that it was written under: its copy names both,
    /// as of now. The number of the write would be too old for the home, which may have been written after it.
    ///
    /// Cut before the copy is durable: the record speaks for the page where it was. After: the copy does, and the record is
    /// not needed for it. With command atomicity the copy waits for the stores before, so for the command's end.
    #[cold]
    fn move_pair(
        &mut self,
        sb: SbId,
        page: &Live,
        mut home: impl Iterator<Item = OwnerRef>,
    ) -> Result<(), Refusal> {
        let from = self.core.geometry.page(sb, page.offset);
        let owner = home.next().expect("the chain has a first");
        assert!(home.next().is_none(), "a page has one home: {from:?}");
        let wsn = match self.core.config.guards.has(Guard::HomesRenewed) {
            true => self.core.tick(),
            false => page.oob.wsn(),
        };
        if !page.owns {
            let taken = self.copy_moved((owner.lpn, wsn, Second::NONE), from, 0)?;
            self.core
                .move_page((sb, from), (taken.sb, taken.ppn()), owner.lpn, true);
            return Ok(());
        }
        let zone = self.core.config.gc_policy.zone(2);
        self.core.stats.gc_zoned += u64::from(zone > 0);
        let taken = self.copy_moved(
            (page.oob.lpn(), wsn, Second::of(owner.lpn, true)),
            from,
            zone,
        )?;
        self.core
            .move_page((sb, from), (taken.sb, taken.ppn()), page.oob.lpn(), false);
        self.core.move_reference(from, taken.ppn(), owner.lpn);
        Ok(())
    }

    /// A page whose remapped owners nobody can name: it goes with the OOB's owner, if that one is left, and the others
    /// lose what they had.
    #[cold]
    fn move_without_owners(
        &mut self,
        sb: SbId,
        page: &Live,
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

    /// Copies a page into GC's own superblock of a zone.
    #[inline(always)]
    pub(crate) fn copy_moved(
        &mut self,
        (lpn, wsn, second): (u32, u64, Second),
        from: Ppn,
        zone: usize,
    ) -> Result<Taken, Refusal> {
        loop {
            let Some(taken) = self.core.blocks.take(self.core.config.gc_stream(zone)) else {
                self.open_for_gc(zone)?;
                continue;
            };
            self.core.stats.gc_programs += 1;
            let oob = taken.oob(lpn, wsn).with_second(second);
            // With command atomicity, a copy may carry the number of a command under way: the slot must say so first.
            let after = match self.core.config.entry {
                EntrySize::Bytes16 => taken.after,
                EntrySize::Bytes24 => taken.after.and(After::FENCE),
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
        match self
            .core
            .blocks
            .open_worn(&mut self.core.media, stream, wear, &mut self.core.wsn)
        {
            true => Ok(()),
            false => Err(self.end_of_life()),
        }
    }

    /// Closes a stream's full superblock; the first one that was in its last cycle is remembered.
    #[cold]
    pub(crate) fn close(&mut self, stream: Stream) {
        self.core.blocks.close(&mut self.core.media, stream);
        if self.core.blocks.blocks_worn > 0 && self.first_retired.is_none() {
            self.first_retired = Some(self.core.stats.host_writes);
        }
    }

    /// No space can be gained any more, and what is left of it recovery may need: nothing is written from now on.
    #[cold]
    pub(crate) fn end_of_life(&mut self) -> Refusal {
        self.read_only = true;
        Refusal::ReadOnly
    }

    /// A remap onto a page of the victim must not be missed by the job under way.
    #[inline]
    pub(crate) fn note_remap(&mut self, remapping: &Remapping) {
        if let Some(job) = &mut self.gc.job
            && self.core.geometry.superblock(remapping.ppn) == job.sb
        {
            let offset = self.core.geometry.offset(remapping.ppn);
            let Remapping {
                lpn, wsn, source, ..
            } = *remapping;
            job.late.push(OwnerRef {
                offset,
                lpn,
                wsn,
                source,
            });
        }
    }
}
