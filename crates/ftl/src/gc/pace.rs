//! Scheduling of garbage collection: ahead of need in paced steps, at once when the host waits, and
//! in idle time.
//!
//! Invariant: a job gains space (its victim has garbage, and its references' entries fit into the
//! reserve), or is a refresh for which there is room. Absent: the choices (`policy`, `refresh`, `room`), and
//! how pages move (`relocate`).

use super::job::{GcJob, STRETCH};
use crate::contract::{CopiesOf, OwnerLookup, OwnerRef};
use crate::core::Core;
use crate::error::Contradiction;
use crate::error::Refusal;
use crate::ftl::Ftl;
use crate::policy::{GcPolicy, VictimCandidate, least_worn};
use crate::superblock::{RegionPeak, Stream, Superblock, SuperblockState, Superblocks};
use remap_ssd_media::{Purpose, SbId};
use std::cell::Cell;
use std::ops::Range;

/// Collections between two checks of wear, on devices that are not tiny.
const WEAR_PERIOD: u64 = 16;
/// Returns true if a closed superblock holds data that is collected: no log, and no data of a static SLC cache, which is
/// folded. Collecting a superblock of a dynamic one gains what it can hold with all bits.
fn holds_collected(blocks: &Superblocks, sb: &Superblock) -> bool {
    match sb.stream {
        Stream::Log => false,
        Stream::Slc => blocks.is_slc_dynamic(),
        _ => true,
    }
}

/// How much faster than the host collection runs when the pool is empty: one more than this.
const CATCH_UP: u64 = 8;
/// Searches for a victim per superblock written by the host, if none is worth collecting.
const LOOKS: u32 = 64;

/// The dead share of a superblock that is collected in idle time for an SLC cache.
const GARBAGE_FOR_CACHE: f64 = 0.5;

impl Ftl {
    /// Superblocks that may be collected and have at least a fraction `share` of garbage. Those
    /// with less garbage than `least`, which may rise during the iteration, may be skipped.
    pub(super) fn candidates<'a>(
        &'a self,
        share: f64,
        least: &'a Cell<u32>,
    ) -> impl Iterator<Item = VictimCandidate> + 'a {
        let blocks = &self.core.blocks;
        let copies = self
            .scheme
            .references_without_room(&self.core.tables, blocks);

        // The most selective check first: copies and the other checks only reduce the garbage.
        let may_be_wanted = |id: &SbId| {
            let sb = blocks.get(*id);
            self.hybrid || sb.capacity.saturating_sub(blocks.owners(*id).live) >= least.get()
        };
        blocks
            .regions()
            .enumerate()
            .filter(move |(region, (superblocks, changes))| {
                self.hybrid
                    || self.may_have_candidate(
                        *region,
                        superblocks.clone(),
                        *changes,
                        share,
                        least.get(),
                    )
            })
            .flat_map(|(_, (superblocks, _))| superblocks.map(SbId))
            .filter(may_be_wanted)
            .filter_map(move |id| self.candidate(id, blocks.get(id), copies.as_ref(), share))
    }

    /// Returns true if a region may have a candidate with this much garbage. Uses the cached
    /// maximum if the region has not changed.
    fn may_have_candidate(
        &self,
        region: usize,
        superblocks: Range<u32>,
        changes: u64,
        share: f64,
        least: u32,
    ) -> bool {
        let peak = self.gc.peaks.of(region, changes).unwrap_or_else(|| {
            let peak = self.peak_of(superblocks);
            self.gc.peaks.saw(region, changes, peak);
            peak
        });

        // Rounding must not exclude a superblock that `candidate` accepts.
        peak.most >= Some(least) && peak.share >= share * (1.0 - 1e-9)
    }

    /// The most garbage of the closed superblocks among these, in pages and as a fraction. Ignores
    /// references that must be copied: they only reduce it.
    fn peak_of(&self, superblocks: Range<u32>) -> RegionPeak {
        let blocks = &self.core.blocks;
        let mut peak = RegionPeak::default();
        for id in superblocks.map(SbId) {
            let sb = blocks.get(id);
            if sb.state == SuperblockState::Closed && holds_collected(blocks, sb) {
                let garbage = sb.capacity.saturating_sub(blocks.owners(id).live);
                peak.most = peak.most.max(Some(garbage));
                peak.share = peak
                    .share
                    .max(f64::from(garbage) / f64::from(sb.capacity.max(1)));
            }
        }
        peak
    }

    /// Checks that no region taken for unchanged has more garbage than its cached maximum.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn check_peaks(&self) -> Result<(), Contradiction> {
        for (region, (superblocks, changes)) in self.core.blocks.regions().enumerate() {
            let Some(seen) = self.gc.peaks.of(region, changes) else {
                continue;
            };
            let now = self.peak_of(superblocks);
            if now.most > seen.most || now.share > seen.share {
                return Err(Contradiction(format!(
                    "region {region} has {now:?}, remembered is {seen:?}"
                )));
            }
        }
        Ok(())
    }

    /// A superblock as a candidate, if it is closed, holds data and can be filled again. Collecting
    /// a worn superblock would free no space, so it keeps its contents.
    pub(crate) fn candidate(
        &self,
        id: SbId,
        sb: &Superblock,
        copies: Option<&CopiesOf<'_>>,
        share: f64,
    ) -> Option<VictimCandidate> {
        let blocks = &self.core.blocks;
        let is_data = sb.state == SuperblockState::Closed && holds_collected(blocks, sb);
        if !is_data || blocks.is_in_last_cycle(id) || blocks.listing_doubts.contains(&id) {
            return None;
        }

        // A reference that must be copied takes a page, like another page with an owner. If
        // references must be copied, blocks merged or word lines filled up, collecting must still
        // gain a page.
        let copies = copies.map_or(0, |of| of(id));
        let owned = blocks.owners(id).live;
        let (live, gains) = if self.hybrid {
            let live = self.core.tables.map.blocks().cost(id, owned) + copies;
            (live, live <= sb.capacity)
        } else {
            let live = owned + copies;
            let pads = self.gc.pads_most;
            let gains = live == 0 || live + pads < sb.capacity;
            (live, gains || (copies == 0 && pads == 0))
        };

        let candidate = VictimCandidate {
            sb: id,
            capacity: sb.capacity,
            live,
            erases: sb.life.incarnation(),
            opened: sb.opened,
        };
        let is_worth_it = f64::from(candidate.garbage()) >= share * f64::from(sb.capacity);
        (gains && is_worth_it).then_some(candidate)
    }

    fn choose_victim(&mut self, host_waits: bool) -> Option<VictimCandidate> {
        // Wear levelling costs copies and gains no space, so wear is checked only once per period.
        // A tiny device would be worn unevenly within 16 collections.
        let least = Cell::new(0);
        let period = WEAR_PERIOD.min(u64::from(self.core.geometry.superblocks()) / 4);
        if self.core.stats.gc_runs >= self.gc.runs_at_wear_check + period {
            self.gc.runs_at_wear_check = self.core.stats.gc_runs;
            let blocks = &self.core.blocks;
            let total: u64 = blocks
                .iter()
                .filter(|(id, _)| !blocks.slc.area.has(*id))
                .map(|(_, sb)| u64::from(sb.life.incarnation()))
                .sum();
            let superblocks = self.core.geometry.superblocks() - blocks.slc.area.superblocks();
            let mean = total as f64 / f64::from(superblocks);
            if let Some(worn) = least_worn(
                self.candidates(0.0, &least),
                mean,
                self.core.config.wear_gap,
            ) {
                self.core.stats.wear_runs += 1;
                return Some(worn);
            }
        }

        if host_waits {
            GcPolicy::victim_in_need(self.candidates(0.0, &least), &least)
        } else {
            self.victim_ahead(self.core.config.gc_garbage)
        }
    }

    /// A superblock that is worth collecting before space is needed: at least this share of it is dead.
    fn victim_ahead(&self, share: f64) -> Option<VictimCandidate> {
        let least = Cell::new(0);
        let config = &self.core.config;
        let (policy, choices) = (config.gc_policy, config.gc_choices);
        let now = self.core.clock.now();
        policy.victim(self.candidates(share, &least), &least, choices, now)
    }

    /// Starts a job if there is space to gain. `host_waits`: the host needs free superblocks now;
    /// otherwise they are made ahead of need.
    fn begin_job(&mut self, host_waits: bool) -> bool {
        let Some(victim) = self.choose_victim(host_waits) else {
            return false;
        };
        self.begin_job_on_victim(&victim);
        true
    }

    fn begin_job_on_victim(&mut self, victim: &VictimCandidate) {
        let gain = victim.garbage().max(1) * self.offsets_a_page(victim.sb);
        self.begin_job_on(victim.sb, gain);
    }

    /// Starts a collection in idle time, if a dynamic SLC cache would take more superblocks than are free and one is half dead:
    /// then moving its pages costs at most one program for each page of the cache's new room in the full mode.
    fn begin_job_for_cache(&mut self) -> bool {
        let victim = match self.core.blocks.lacks_slc_room() {
            true => self.victim_ahead(GARBAGE_FOR_CACHE),
            false => None,
        };
        victim
            .as_ref()
            .map(|victim| self.begin_job_on_victim(victim))
            .is_some()
    }

    /// A job's steps go through offsets. In SLC mode its pages end at a fraction of them, so they are spread over as many more
    /// pages of the host.
    pub(super) fn offsets_a_page(&self, sb: SbId) -> u32 {
        match self.core.blocks.is_slc(sb) {
            true => self.core.geometry.word_line().bits,
            false => 1,
        }
    }

    /// Starts a job on a closed superblock.
    pub(crate) fn begin_job_on(&mut self, sb: SbId, gain: u32) {
        let stretches = self.collection_steps() as usize;
        let mut scanned = std::mem::take(&mut self.gc.scanned);
        scanned.clear();
        self.core.media.begin_lookup();
        self.scheme.owners(OwnerLookup {
            tables: &self.core.tables,
            media: &mut self.core.media,
            clock: &mut self.core.clock,
            sb,
            out: &mut scanned,
        });
        self.core.media.end_lookup();

        // Sorted by stretch once, so that `resolve_remapped` reads only the list of its stretch.
        let mut refs: Vec<Vec<OwnerRef>> = vec![Vec::new(); stretches];

        for owner in &scanned {
            refs[(owner.offset / STRETCH) as usize].push(*owner);
        }
        self.gc.scanned = scanned;

        // The victim may have been filled after a fold began a word line, and made way. While a job runs, its victim is closed.
        let first = self.core.geometry.page(sb, 0);
        let Core { blocks, media, .. } = &mut self.core;
        blocks.fill_before_copies(media, first);

        let job = GcJob {
            sb,
            refreshes: false,
            makes_room: false,
            merged: false,
            next: 0,
            seen: 0,
            gain,
            refs,
            late: Vec::new(),
        };

        self.look_at_stretch(&job);
        self.gc.job = Some(job);
    }

    /// Called before a host page is programmed: does that page's share of collection, so that the
    /// victim is empty when the host has used the space that collecting it gains.
    #[inline]
    pub(crate) fn pace(&mut self) -> Result<(), Refusal> {
        // An earlier step may have been refused with its job half done; with `gc_at_once` a job is
        // never left unfinished.
        if self.core.config.gc_at_once && self.gc.job.is_some() {
            return self.finish_job();
        }

        let Some(job) = &self.gc.job else {
            let is_short = self.core.blocks.free() <= self.gc_start
                && self.core.clock.now() >= self.gc.look_again;
            if is_short || self.wants_refresh() || self.wants_fold() {
                return self.begin_pace(is_short);
            }
            return Ok(());
        };

        // A stretch is due each time the host has programmed `pages of the stretch * gain / pages of
        // a superblock` pages. So the job's last stretch comes when the host has used the job's gain.
        // Multiplied out, since the quotient is rarely an integer; the rest is the next job's.
        let (sb, next, gain) = (job.sb, job.next, job.gain);
        self.gc.credit += self.credit_of_a_page();
        self.work_off(sb, next, gain)
    }

    /// Called after a page has been read, while a job runs for which a refresh waits.
    pub(super) fn pace_read(&mut self) -> Result<(), Refusal> {
        match &self.gc.job {
            // A read takes no space: it moves one page, not as many as gain one.
            Some(job) if job.makes_room && !self.core.config.gc_at_once => {
                let (sb, next, gain) = (job.sb, job.next, job.gain);
                self.gc.credit += u64::from(gain);
                self.work_off(sb, next, gain)
            }
            _ => self.pace(),
        }
    }

    /// Does a stretch of the current job, which is at page `next` of its victim `sb`, if the credit pays for it.
    #[inline]
    fn work_off(&mut self, sb: SbId, next: u32, gain: u32) -> Result<(), Refusal> {
        let pages = STRETCH.min(self.core.blocks.extent(sb) - next);
        let price = u64::from(pages) * u64::from(gain);
        if self.gc.credit >= price {
            // At most one more stretch: the rest of a victim with little to gain is no debt.
            self.gc.credit = (self.gc.credit - price).min(price);
            self.step_job()?;
        } else {
            self.look_at_pages();
        }

        Ok(())
    }

    /// Credit for each page that the host programs. One page of work per page of gain would hold the
    /// pool wherever it is, and rounding and pages that are no data let it drift; so collection is
    /// faster by the host's own pace for each eighth of the watermark that is missing.
    #[inline]
    fn credit_of_a_page(&self) -> u64 {
        let pages = u64::from(self.core.geometry.pages_per_superblock());
        let missing = self.gc_start.saturating_sub(self.core.blocks.free());
        pages + pages * u64::from(missing) * CATCH_UP / u64::from(self.gc_start)
    }

    #[cold]
    pub(super) fn begin_pace(&mut self, is_short: bool) -> Result<(), Refusal> {
        if !self.begin_refresh() && !self.begin_fold(is_short) {
            let begins = is_short && self.begin_job(false);
            if is_short && !begins {
                // Only overwriting makes a superblock worth collecting; a search for every page
                // would be the slowest part of a write.
                self.gc.look_again = self.core.clock.now()
                    + u64::from(self.core.geometry.pages_per_superblock() / LOOKS);
            }
            if !begins && !self.begin_room() {
                return Ok(());
            }
        }
        if self.core.config.gc_at_once {
            return self.finish_job();
        }
        self.gc.credit += self.credit_of_a_page();
        Ok(())
    }

    /// Collects whole victims until more than the reserve is free.
    #[cold]
    pub(crate) fn collect_now(&mut self) -> Result<(), Refusal> {
        // Each round frees a superblock or fails. The bound covers victims whose blocks all fail at
        // their erase: they gain nothing, and the host must not wait forever.
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

    /// Empties the victim of the current job.
    pub(crate) fn finish_job(&mut self) -> Result<(), Refusal> {
        while self.gc.job.is_some() {
            self.step_job()?;
        }
        Ok(())
    }

    /// Maximum number of steps that collect a victim. Steps of stretches without valid pages take no time, but the last
    /// one erases the victim: more of them in a row get nowhere.
    pub fn collection_steps(&self) -> u32 {
        self.core.geometry.pages_per_superblock().div_ceil(STRETCH)
    }

    /// Does one step of collection in idle time; returns false if there is nothing to do.
    pub fn background(&mut self) -> bool {
        self.end_write();

        // Collection programs pages and takes numbers: here it could only fail.
        if self.is_read_only() || self.core.media.broken().is_some() {
            return false;
        }
        if self.gc.job.is_none() && !self.begin_idle_job() {
            return false;
        }
        // Entries that earlier steps have changed may leave the mapping cache.
        self.make_cache_room().is_ok() && self.step_job().is_ok()
    }

    /// Starts a job ahead of need: a refresh if it has its turn, else a collection if space is short or a refresh
    /// or a dynamic SLC cache lacks room.
    fn begin_idle_job(&mut self) -> bool {
        let is_short = self.core.blocks.free() <= self.gc_start;
        self.begin_idle_refresh()
            || (is_short && (self.begin_job(false) || self.begin_idle_refresh()))
            || self.begin_idle_fold()
            || self.begin_job_for_cache()
            || self.begin_room()
    }

    /// Moves one stretch of the victim, and erases the victim after the last.
    fn step_job(&mut self) -> Result<(), Refusal> {
        let Some(mut job) = self.gc.job.take() else {
            return Ok(());
        };
        if self.gives_way(&job) {
            self.give_up_fold(&job);
            return Ok(());
        }
        let programs = self.core.stats.gc_programs;
        // Blocks first: pages moved by a merge are garbage when the stretches are processed.
        let merged = if self.hybrid {
            self.merge_victim(&mut job)
        } else {
            Ok(())
        };

        let result = merged.and_then(|()| self.move_stretch(&mut job));
        self.core.read_missed(Purpose::Gc);
        let programs = self.core.stats.gc_programs - programs;
        if job.refreshes {
            self.core.stats.refresh_programs += programs;
        }
        let blocks = &mut self.core.blocks;
        if blocks.is_slc(job.sb) {
            blocks.slc.note_folded(job.sb, programs);
        }
        if result.is_err() || job.next < blocks.extent(job.sb) {
            self.gc.job = Some(job);
            return result;
        }

        self.core
            .blocks
            .erase(&mut self.core.media, job.sb, &mut self.core.clock);
        self.scheme.forget(
            &mut self.core.media,
            &mut self.core.tables.ended,
            &mut self.core.stats.scheme,
            job.sb,
        );
        if let Some(dedup) = &mut self.dedup {
            let first = self.core.geometry.page(job.sb, 0).0 as usize;
            dedup.erased(first..first + self.core.geometry.pages_per_superblock() as usize);
        }

        if let Some(refresh) = &mut self.gc.refresh {
            refresh.erased(&self.core.geometry, job.sb);
        }

        self.core.stats.gc_runs += 1;
        self.core.stats.refresh_runs += u64::from(job.refreshes);
        Ok(())
    }

    /// No space can be gained any more, and recovery may need what is left: makes the device
    /// read-only.
    #[cold]
    pub(crate) fn end_of_life(&mut self) -> Refusal {
        self.read_only = true;
        Refusal::ReadOnly
    }
}
