//! WAL-SSD: a log page's OOB names its future home before the remap is requested.
//!
//! A page written for a home (`Ftl::write_for`) names it as the second LPN of its OOB. Remapping
//! the home to the page then changes no reverse mapping, and one *commit record* in NVRAM makes a
//! whole command durable: a hint alone does not show whether the remap was ever issued. The record
//! names LPNs, not pages: target, source, length, number. It refers to the newest page that was
//! written under the source for that home before the record.
//!
//! Garbage collection gives a page that its home owns a new witness (`Ftl::move_pair`): the copy
//! names both owners with a new number, or the home alone. So a record is needed until the
//! superblock of its pages is erased, or until none of its homes has such a page any more. If the
//! log is full and no record can be released, remaps become copies.
//!
//! Invariants: of a page's owners one is in its OOB by a write, the other is its home; every home
//! that depends on a record has one in the group of the page's superblock; a slot is zeroed before
//! it is reused. Absent: remaps to LPNs other than the home (the core copies), and per-page
//! metadata in NVRAM.

mod check;
mod record;
mod recover;

use crate::config::Config;
use crate::config::guard::{Guard, Guards};
use crate::config::kind::SchemeFacts;
use crate::config::layout::NvramLayout;
use crate::contract::{
    LookAhead, OwnerLookup, OwnerRef, Ownership, Persist, Remapping, SchemeSpec,
};
use crate::core::Core;
use crate::error::ConfigError;
use crate::mapping::ended::EndedFilters;
use crate::mapping::tables::Tables;
use crate::stats::{Demotion, SchemeCounters, Stats};
use record::{CommitRecord, OpenCommit, SLOT_WORDS};
use remap_ssd_media::{After, ClearId, Geometry, Media, Ppn, Purpose, SbId};
use std::collections::VecDeque;

/// The scheme's declaration for the catalogue.
pub(super) const SPEC: SchemeSpec = SchemeSpec::new(
    SchemeFacts {
        name: "wal-ssd",
        hints: true,
        needs_pages: Some("names a page's second owner in the page"),
        guards: &[
            Guard::HomesRenewed,
            Guard::RecordBeforeReclaim,
            Guard::RecordNewest,
        ],
        ..SchemeFacts::DURABLE
    },
    |config, geometry| Box::new(Wal::new(config, geometry)),
)
.with_nvram_log()
.with_check(|config, _| check(config));

/// Records of the smallest log.
const SLOTS_MIN: usize = 8;

#[derive(Clone, Copy)]
struct StoredCommit {
    commit: CommitRecord,
    places: u32,
}

pub(super) struct Wal {
    guards: Guards,
    lpns: u32,
    base: usize,
    records: Vec<Option<StoredCommit>>,
    groups: Vec<Vec<u32>>,
    free: VecDeque<(u32, ClearId)>,
    run: Option<OpenCommit>,
    /// Remaps to refuse before the next sweep for unneeded records, and the number that the last
    /// sweep set.
    patience: u32,
    patience_next: u32,
    /// Records that recovery could not read.
    damaged: Vec<u32>,
}

pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    let least = SLOTS_MIN * SLOT_WORDS * 8;
    if config.log_bytes < least as u64 {
        return Err(ConfigError(format!(
            "log_bytes = {} is too small for a log of commit records: use at least {least}",
            config.log_bytes
        )));
    }
    Ok(())
}

impl Wal {
    pub(super) fn new(config: &Config, geometry: &Geometry) -> Self {
        let slots = (config.log_bytes / (8 * SLOT_WORDS as u64)) as u32;
        Self {
            guards: config.guards,
            lpns: config.lpns,
            base: NvramLayout::new(config, geometry).scheme,
            records: vec![None; slots as usize],
            groups: vec![Vec::new(); geometry.superblocks() as usize],
            free: (0..slots).map(|slot| (slot, ClearId::default())).collect(),
            run: None,
            patience: 0,
            patience_next: 1,
            damaged: Vec::new(),
        }
    }

    fn word(&self, slot: u32) -> usize {
        self.base + slot as usize * SLOT_WORDS
    }

    /// The superblocks of pages that homes may have through this record. A page with a newer number
    /// of its own does not need it.
    fn needed_in(
        tables: &Tables,
        media: &Media,
        commit: CommitRecord,
    ) -> impl Iterator<Item = SbId> {
        commit.pairs().filter_map(move |(home, lpn)| {
            let ppn = tables.map.get(home).filter(|mapping| mapping.remapped)?.ppn;
            let oob = media.oob(ppn);
            (oob.lpn() == lpn && oob.wsn() < commit.wsn()).then(|| tables.geometry.superblock(ppn))
        })
    }

    /// Releases slots; adjacent ones are zeroed together.
    fn release(&mut self, media: &mut Media, mut slots: Vec<u32>) {
        slots.sort_unstable();
        // 1. the witnesses that replace the records  2. zeroes. Cut between: both are valid.
        let after = self.guards.waits(Guard::ClearWaits, After::ALL);
        for run in slots.chunk_by(|a, b| a + 1 == *b) {
            let clear = media.clear(self.word(run[0]), run.len() * SLOT_WORDS, after);
            for &slot in run {
                self.records[slot as usize] = None;
                self.free.push_back((slot, clear));
            }
        }
    }

    /// Releases the records that none of their homes needs.
    #[cold]
    fn sweep(&mut self, tables: &Tables, media: &mut Media, stats: &mut Stats) {
        stats.metadata_gc_runs += 1;
        let used = self.records.len() - self.free.len();
        media.charge_loads(used * SLOT_WORDS, Purpose::Gc);
        let is_needed = |record: &StoredCommit| {
            Self::needed_in(tables, media, record.commit)
                .next()
                .is_some()
        };

        let gone: Vec<u32> = (0..self.records.len() as u32)
            .filter(|slot| {
                self.records[*slot as usize]
                    .as_ref()
                    .is_some_and(|record| !is_needed(record))
            })
            .collect();
        if !gone.is_empty() {
            let records = &self.records;
            // The groups first, while the records to be released can still be looked up.
            for group in &mut self.groups {
                group.retain(|slot| {
                    records[*slot as usize].is_some_and(|record| is_needed(&record))
                });
            }
        }

        // Each sweep that finds few slots doubles the refusals before the next one, so that a log
        // full of needed records costs little.
        let worth_it = gone.len() * 16 >= self.records.len();
        self.patience_next = if worth_it {
            1
        } else {
            (self.patience_next * 2).min(1 << 16)
        };

        self.patience = self.patience_next;
        self.release(media, gone);
    }

    fn start(
        &mut self,
        geometry: Geometry,
        media: &Media,
        remapping: &Remapping,
        purpose: Purpose,
    ) {
        let (slot, clear) = self.free.pop_front().expect("a slot was secured");
        let commit = CommitRecord::new()
            .with_torn_first(true)
            .with_len(1)
            .with_wsn(remapping.wsn)
            .with_torn_second(true)
            .with_target(remapping.lpn)
            .with_source(media.oob(remapping.ppn).lpn());
        let sb = geometry.superblock(remapping.ppn);

        self.run = Some(OpenCommit {
            commit,
            slot,
            clear,
            sb,
            pages: (remapping.ppn, remapping.ppn),
            purpose,
        });
    }
}

impl Persist for Wal {
    fn admit(&mut self, core: &mut Core, _: Ppn, may_reclaim: bool) -> Result<(), Demotion> {
        if !self.free.is_empty() {
            return Ok(());
        }

        if may_reclaim && self.patience == 0 {
            // 1. the open record  2. zeroes in the slots of older records of its homes, which by
            // the tables are no longer needed. With 2 first, a cut in between would leave these
            // homes without a witness.
            if core.config.guards.has(Guard::RecordBeforeReclaim) {
                self.issue(core);
            }
            self.sweep(&core.tables, &mut core.media, &mut core.stats);
        }

        self.patience = self.patience.saturating_sub(1);
        if self.free.is_empty() {
            Err(Demotion::NvramFull)
        } else {
            Ok(())
        }
    }

    /// Only the home may get a page, and only from the LPN that the page was written under. Then
    /// one record identifies the page for recovery: the newest one of that LPN.
    fn admit_remap(
        &mut self,
        core: &mut Core,
        next: &Remapping,
        may_reclaim: bool,
    ) -> Result<(), Demotion> {
        let oob = core.media.oob(next.ppn);
        if oob.second().lpn() != Some(next.lpn)
            || !core.tables.map.is_written_at(oob.lpn(), next.ppn)
        {
            return Err(Demotion::Unhinted);
        }

        if self
            .run
            .as_ref()
            .is_some_and(|run| run.extended(core.geometry, &core.media, next).is_some())
        {
            Ok(())
        } else {
            self.admit(core, next.ppn, may_reclaim)
        }
    }

    fn persist(&mut self, core: &mut Core, remapping: &Remapping, purpose: Purpose) {
        if let Some(run) = &mut self.run
            && let Some((commit, pages)) = run.extended(core.geometry, &core.media, remapping)
        {
            (run.commit, run.pages) = (commit, pages);
            return;
        }
        self.issue(core);
        self.start(core.geometry, &core.media, remapping, purpose);
    }

    fn persist_moved(&mut self, _: &mut Core, _: &Remapping) -> bool {
        unreachable!("a page with two owners names both when it moves");
    }

    fn issue(&mut self, core: &mut Core) {
        let Some(run) = self.run.take() else { return };

        // 1. the pages, and those between them  2. zeroes in the slot  3. the record. Cut during 3:
        // a torn bit is missing and the remap did not happen. After 3: it happened as a whole.
        let mut after = After::clear(run.clear);
        if core.config.guards.has(Guard::EntryAfterPage) {
            // Including the pages in between: `After::pages` takes a range, and other commands'
            // pages in it only lengthen the wait.
            let count = run.pages.1.0 - run.pages.0.0 + 1;
            after = after.and(After::pages(run.pages.0, count as u16));
        }

        core.media
            .store_record(self.word(run.slot), &run.commit.words(), run.purpose, after);

        self.records[run.slot as usize] = Some(StoredCommit {
            commit: run.commit,
            places: 1,
        });
        self.groups[run.sb.0 as usize].push(run.slot);
    }
}

impl Ownership for Wal {
    /// The homes are in the OOBs, which GC reads together with the pages.
    fn owners(&mut self, lookup: OwnerLookup) {
        let OwnerLookup {
            tables,
            media,
            sb,
            out,
            ..
        } = lookup;

        // Without numbers: the core checks L2P for whether a home has its page, and gives the copy
        // a new number.
        for offset in 0..tables.geometry.pages_per_superblock() {
            let second = media.oob(tables.geometry.page(sb, offset)).second();
            if let Some(lpn) = second.lpn().filter(|lpn| lpn.is_below(self.lpns)) {
                out.push(OwnerRef {
                    offset,
                    lpn,
                    wsn: 0,
                    source: None,
                });
            }
        }
    }

    fn forget(
        &mut self,
        media: &mut Media,
        _: &mut EndedFilters,
        _: &mut SchemeCounters,
        sb: SbId,
    ) {
        let mut gone = Vec::new();
        for slot in std::mem::take(&mut self.groups[sb.0 as usize]) {
            let record = self.records[slot as usize]
                .as_mut()
                .expect("a record in a group is in use");
            // After a recovery a record may be needed in several superblocks, once for each one
            // with a home's page.
            record.places -= 1;
            if record.places == 0 {
                gone.push(slot);
            }
        }
        self.release(media, gone);
    }
}

impl LookAhead for Wal {}
