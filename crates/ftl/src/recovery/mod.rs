//! Recovery from media alone (FAST'21 §4.5), in named steps.
//!
//! 0. `RemapScheme::power_lost`: the work that a capacitor's energy did when power failed, applied
//!    to the state left by the cut. It is the only step that no cut can leave half done.
//! 1. `read_lives`, `read_heads`: which superblocks hold data, and since when. `note_dead_pages`: the aborted commands that
//!    have witnesses in the others.
//! 2. `read_pages`: mappings made by writes, from the tails of closed superblocks and the OOB areas
//!    of the others. `read_bitmaps`, `read_deallocations`: deallocated LPNs. `read_buffer`: pages that were not on
//!    flash yet.
//! 3. `RemapScheme::replay`: mappings made by remaps.
//! 4. `count`: RC, live pages and remapped LPNs follow from L2P.
//! 5. `resume`: streams continue where they stopped, and the decisions of recovery are made
//!    durable: first the pages of LPNs in doubt, then the replacements of damaged records. Or
//!    `open_as_it_is`, if the sequence numbers are used up.
//!
//! An unreadable witness leaves an LPN in doubt if all other witnesses of the LPN are older; reads
//! of it return a media error. For every LPN the newest witness wins; of two with the same number,
//! the one in the younger superblock. The result for a command that was never acknowledged becomes
//! permanent. Invariant: nothing is written between steps 0 and 5, and step 5 writes nothing that
//! steps 1 to 4 would not find again.

mod doubts;
mod flash;
pub(crate) mod witnesses;
mod word_lines;

use crate::clock::WSN_END;
use crate::config::Config;
use crate::config::guard::Guard;
use crate::config::layout::DEALLOC_WORDS;
use crate::core::Core;
use crate::error::{LOST, RecoveryError, Refusal};
use crate::ftl::Ftl;
use crate::records::dealloc::{DeallocLog, DeallocRecord};
use crate::records::files::FileMapScan;
use crate::records::newest::{NumberedRange, newest_of};
use crate::recovery::witnesses::{RecoveryReport, Witnesses};
use crate::superblock::SuperblockState;
use crate::verbs::hybrid::find_blocks;
use remap_ssd_media::{After, Lpn, Media, Ppn, Purpose, SbId};
use std::collections::BTreeSet;

/// Prefetch distance, in records.
const AHEAD: usize = 16;

/// A bitmap of deallocations that cannot be read.
struct LostBitmap {
    chunk: u32,
    wsn: u64,
    page: Ppn,
}

impl Ftl {
    /// Rebuilds everything from the persistent state.
    ///
    /// # Errors
    /// Why the device cannot be opened. The media is dropped; take a snapshot first if it matters.
    pub fn recover(media: Media, config: Config) -> Result<(Self, RecoveryReport), RecoveryError> {
        let mut ftl = Self::assemble(media, config)?;
        let mut witnesses = Witnesses::new(ftl.core.geometry, &ftl.core.tables.map);
        witnesses.report.saved_pages = ftl.scheme.power_lost(&mut ftl.core.media)?;

        // The aborted numbers come before any witness: each witness is checked against them at
        // once.
        flash::read_lives(&mut ftl.core, &mut witnesses)?;
        let aborted = ftl
            .atomic_slot
            .read_back(&mut ftl.core.media)
            .map_err(|word| RecoveryError::NvramDamaged { word })?;
        witnesses.aborted(aborted);

        flash::read_heads(&mut ftl.core, &mut witnesses)?;
        flash::note_dead_pages(&mut ftl.core, &mut witnesses);
        let open = flash::read_pages(&mut ftl.core, &mut witnesses);
        let bitmaps_lost = read_bitmaps(&mut ftl.core, &mut witnesses);
        let unknown = read_deallocations(&mut ftl.core, &mut ftl.dealloc, &mut witnesses)?;
        let buffered = ftl.read_buffer(&mut witnesses)?;
        ftl.scheme.replay(&mut ftl.core, &mut witnesses)?;

        // All witnesses are known now, so the LPNs that damaged records may concern can be
        // determined.
        witnesses.resolve_doubts(&ftl.core.config, &mut ftl.core.tables.map);
        if let Some(lost) = bitmaps_lost.iter().find(|lost| {
            witnesses.may_be_in(&ftl.core.config, &ftl.core.tables.map, lost.chunk, lost.wsn)
        }) {
            return Err(RecoveryError::BitmapDamaged { page: lost.page.0 });
        }
        ftl.resume_buffer(buffered, &witnesses);
        // If the newest of these concerns no LPN, none of them does.
        let unknown = unknown.into_iter().max_by_key(|(_, wsn)| *wsn);
        if let Some((word, _)) = unknown.filter(|(_, wsn)| {
            witnesses.may_have_been_mapped(&ftl.core.config, &ftl.core.tables.map, *wsn)
        }) {
            return Err(RecoveryError::NvramDamaged { word });
        }

        let found = ftl.files.read_back(&mut ftl.core.media);

        // Such a number cannot be from this device, and does not fit the fields of later records.
        if witnesses.newest() >= WSN_END {
            return Err(RecoveryError::Foreign(
                "a sequence number has more than 42 bits".into(),
            ));
        }
        count(&mut ftl.core, &mut witnesses);
        let (mut ftl, mut report) = ftl.resume(witnesses, open, &found)?;
        ftl.load_mapping_cache(&mut report);
        Ok((ftl, report))
    }

    fn resume(
        mut self,
        witnesses: Witnesses,
        open: Vec<SbId>,
        files: &FileMapScan,
    ) -> Result<(Self, RecoveryReport), RecoveryError> {
        if self.core.clock.is_used_up() {
            return self.open_as_it_is(witnesses, files);
        }

        let Witnesses {
            mut report,
            mut relocated,
            lost,
            recorded,
            damaged_lives,
            aborted_seen,
            aborted_pages,
            aborted_words,
            ..
        } = witnesses;

        if self.hybrid {
            find_blocks(&mut self.core);
        }
        // Before anything is programmed: pages for doubts go where the host's stream stopped.
        flash::resume_streams(&mut self.core, &open);
        flash::heal_lives(&mut self.core, &damaged_lives);

        let lost = sorted_below(lost, self.core.config.lpns);
        report.lost = lost.len() as u64;
        // A record made now would be newer than the page that marks the LPN as lost.
        relocated.retain(|(lpn, _)| lost.binary_search(lpn).is_err());

        // 1. pages that mark the LPNs in doubt, or records of the doubts  2. the replacements of the
        // damaged words, after everything. Cut between: the words are still damaged, and recovery
        // finds the same doubt, or the page or record, which is newer.
        let recorded = sorted_below(recorded, self.core.config.lpns);
        let waiting = self
            .keep_doubts(&lost, &recorded)
            .map_err(|_| RecoveryError::NoSpace)?;

        self.files.repair(&mut self.core.media, files);
        self.atomic_slot.resume(
            &mut self.core.media,
            &mut self.core.tables.aborted,
            aborted_seen,
            &aborted_words,
        );
        self.open_writes.resume(&mut self.core.media);
        report.aborted = self.core.tables.aborted.len() as u64;

        // Bitmaps take host pages, which would trigger collection. The scheme cannot move
        // references before its own `resume`.
        self.paused = true;
        let flushed = self
            .keep_relocated(relocated)
            .map_err(|_| RecoveryError::NoSpace)?;
        self.paused = false;

        if !self.scheme.resume(&mut self.core) {
            return Err(RecoveryError::NoSpace);
        }
        // Collection works now, so the remaining doubts get their pages.
        self.settle_doubts(&waiting, flushed)
            .map_err(|_| RecoveryError::NoSpace)?;

        // Half of the list is kept free for future cuts; moving pages at every power-on would waste
        // flash.
        if self.atomic_slot.is_crowded(&self.core.tables.aborted) && self.unreadable.is_empty() {
            self.drop_aborted(aborted_pages);
        }
        self.relearn_identities();
        self.core.fill_lines();
        Ok((self, report))
    }

    /// Step 5 if the sequence numbers are used up: the device is read-only, and recovery takes no
    /// number. So it can be opened any number of times with the same result.
    fn open_as_it_is(
        mut self,
        witnesses: Witnesses,
        files: &FileMapScan,
    ) -> Result<(Self, RecoveryReport), RecoveryError> {
        if self.hybrid {
            find_blocks(&mut self.core);
        }

        let Witnesses {
            mut report,
            lost,
            aborted_seen,
            aborted_words,
            ..
        } = witnesses;
        let lpns = self.core.config.lpns;

        self.unreadable
            .extend(lost.into_iter().filter(|lpn| lpn.is_below(lpns)));
        report.lost = self.unreadable.len() as u64;
        self.files.repair(&mut self.core.media, files);

        // Damaged words stay: no page can be programmed to record the doubt.
        if self.unreadable.is_empty() {
            self.atomic_slot.resume(
                &mut self.core.media,
                &mut self.core.tables.aborted,
                aborted_seen,
                &aborted_words,
            );
            if !self.scheme.resume(&mut self.core) {
                return Err(RecoveryError::NoSpace);
            }
        } else {
            self.core.tables.aborted = aborted_seen;
        }

        report.aborted = self.core.tables.aborted.len() as u64;
        Ok((self, report))
    }

    /// Records sources of relocations whose only witness is the entry's flag, since the entry will
    /// eventually be recycled. Until then nothing may be reclaimed. Returns the halves of the log
    /// that bitmaps replace.
    fn keep_relocated(&mut self, relocated: Vec<(Lpn, u64)>) -> Result<Vec<usize>, Refusal> {
        let mut sources: Vec<Lpn> = relocated.iter().map(|(lpn, _)| *lpn).collect();
        sources.sort_unstable();
        sources.dedup();
        let keeps = self.core.config.guards.has(Guard::RelocatedSources);
        let runs: Vec<(Lpn, u32)> = if keeps {
            sources
                .chunk_by(|a, b| a.offset(1) == *b)
                .map(|run| (run[0], run.len() as u32))
                .collect()
        } else {
            Vec::new()
        };

        if self.dealloc.is_interrupted() || self.dealloc.room() < runs.len() {
            // The bitmaps cover them all.
            let interrupted = self.dealloc.is_interrupted();
            runs.iter()
                .flat_map(|(lpn, len)| Lpn::range(*lpn, *len))
                .for_each(|lpn| self.dealloc.touch(lpn));
            let full = self.program_bitmaps()?;
            return Ok(if interrupted { vec![0, 1] } else { vec![full] });
        }

        for (lpn, len) in runs {
            // The record's number is newer than the entry's: the LPN has no newer witness, or it
            // would not be in the list.
            let wsn = self.core.clock.tick();
            self.dealloc.append(
                &mut self.core.media,
                lpn,
                len,
                wsn,
                Purpose::Meta,
                After::NOTHING,
            );
        }

        Ok(Vec::new())
    }

    /// Called when the list of aborted commands is crowded: collects the pages that carry their
    /// numbers, so that the next power-on can drop the numbers. NVRAM words have been zeroed
    /// before.
    ///
    /// Superblocks are collected as by garbage collection, or reclaimed as by their log, with the
    /// same crash arguments. A later atomic command enters the slot only after the last "dead" mark
    /// (every store precedes the slot's fence), so a cut leaves its number and those that could not
    /// be dropped: no number is added before the old witnesses are gone.
    fn drop_aborted(&mut self, pages: BTreeSet<SbId>) {
        self.scheme.drop_aborted(&mut self.core);
        // Superblocks that moving a victim's pages may open. Fewer are free only near the end of
        // the device's life, and those are reserved for recovery: then the numbers stay, and
        // `atomic` bounds how many there are.
        let kept_free = self.core.geometry.groups() * self.core.config.gc_opens() as u32;
        for sb in pages {
            // An abandoned superblock is filled no further.
            self.core.fill_lines();
            let blocks = &mut self.core.blocks;
            let entry = blocks.get(sb);
            // Dead already: only its erase is missing.
            if entry.state == SuperblockState::Free {
                if !entry.life.clean() && !blocks.is_in_last_cycle(sb) {
                    blocks.erase(&mut self.core.media, sb, &mut self.core.clock);
                }
                continue;
            }
            let can_go = matches!(entry.state, SuperblockState::Open | SuperblockState::Closed)
                && !blocks.is_in_last_cycle(sb);
            let live = blocks.owners(sb).live;
            let moved = if self.hybrid {
                self.core.tables.map.blocks().cost(sb, live)
            } else {
                live
            };

            let copies = self
                .scheme
                .references_without_room(&self.core.tables, &self.core.blocks);
            let needed = moved + copies.map_or(0, |of| of(sb)) + self.gc.pads_most;
            let blocks = &mut self.core.blocks;
            if !can_go || needed > blocks.get(sb).capacity || blocks.free() <= kept_free {
                continue;
            }

            // A partly filled superblock gets no tail.
            blocks.abandon(sb);
            self.begin_job_on(sb, 1);
            if self.finish_job().is_err() {
                return;
            }
        }
    }

    /// Reads every mapped page once; returns the number of unreadable ones. For inspection.
    pub fn scrub(&mut self) -> u64 {
        let mut unreadable = 0;
        for lpn in Lpn::range(Lpn::ZERO, self.core.config.lpns) {
            unreadable += u64::from(self.read(lpn).is_err());
            self.core.media.ops.clear();
        }
        unreadable
    }
}

/// Reads the bitmaps: each set bit is an LPN deallocated with the bitmap's number. Returns the
/// bitmaps that cannot be read.
fn read_bitmaps(core: &mut Core, witnesses: &mut Witnesses) -> Vec<LostBitmap> {
    let mut lost = Vec::new();
    for chunk in 0..core.config.chunks() {
        let Some(mapping) = core.tables.map.get(core.config.bitmap_lpn(chunk)) else {
            continue;
        };
        witnesses.report.bitmap_pages += 1;

        let page = core
            .media
            .read_meta(mapping.ppn, Purpose::Meta)
            .ok()
            .flatten();
        let Some((oob, bits)) = page.filter(|(_, bits)| &bits[..] != LOST) else {
            lost.push(LostBitmap {
                chunk,
                wsn: core.media.oob(mapping.ppn).wsn(),
                page: mapping.ppn,
            });
            continue;
        };

        let first = Lpn(chunk * crate::config::CHUNK_LPNS);
        for (byte, bits) in bits.iter().enumerate() {
            let mut bits = *bits;
            while bits != 0 {
                let lpn = first.offset(byte as u32 * 8 + bits.trailing_zeros());
                bits &= bits - 1;
                if lpn.is_below(core.config.lpns) {
                    witnesses.deallocation(&core.blocks, &mut core.tables.map, lpn, oob.wsn());
                }
            }
        }
    }
    lost
}

/// Reads the deallocation records. Returns the words and numbers of those whose LPNs cannot be
/// read.
fn read_deallocations(
    core: &mut Core,
    dealloc: &mut DeallocLog,
    witnesses: &mut Witnesses,
) -> Result<Vec<(usize, u64)>, RecoveryError> {
    witnesses.report.nvram_bytes += (core.layout.scheme - core.layout.atomic) as u64 * 8;
    let mut records = dealloc.read_back(&mut core.media);
    records.intact.retain(|DeallocRecord { wsn, at, .. }| {
        witnesses.saw(*wsn);
        // Its slot will be reused, so its words are zeroed; the number stays in the list as
        // long as they might be read.
        let is_aborted = witnesses.is_aborted(*wsn);
        if is_aborted {
            witnesses.zero(*at..*at + DEALLOC_WORDS);
        }
        !is_aborted
    });

    // Only the newest deallocation of an LPN can win: each LPN is considered once, not once per
    // record.
    for NumberedRange { lpns, wsn } in newest_of(records.intact_ranges()) {
        for lpn in Lpn::between(lpns) {
            witnesses.deallocation(&core.blocks, &mut core.tables.map, lpn, wsn);
        }
    }

    for (first, len, from, to) in records.between {
        witnesses.doubt_deallocation(first, len, from, to);
    }

    for (first, len, wsn) in records.doubts {
        match wsn {
            Some(wsn) => witnesses.doubt_recorded(first, len, wsn),
            None => witnesses.doubt_all(first, len, u64::MAX),
        }
    }
    doubts::read_lists(core, witnesses, records.doubt_pages)?;

    Ok(records.unknown)
}

/// Step 4: computes the tables that follow from L2P.
fn count(core: &mut Core, witnesses: &mut Witnesses) {
    witnesses.resolve_relocated(&core.tables.map);
    for lpn in Lpn::range(Lpn::ZERO, core.tables.map.len()) {
        let ahead = lpn.offset(AHEAD as u32).min(Lpn(core.tables.map.len() - 1));
        if let Some(ahead) = core.tables.map.get(ahead) {
            core.tables.counts.prefetch(ahead.ppn);
        }

        let Some(mapping) = core.tables.map.get(lpn) else {
            continue;
        };
        witnesses.report.mapped += 1;
        let count = core.tables.counts.add(mapping.ppn);
        core.blocks.gain(
            core.geometry.superblock(mapping.ppn),
            count == 1,
            mapping.remapped,
        );
    }

    // Numbers continue above all that were found, including aborted ones: a number used twice
    // would make two witnesses equal.
    if core.config.guards.has(Guard::TimeResumes) {
        core.clock.resume_after(witnesses.newest());
    }
}

/// The LPNs of the host, each once, in ascending order.
fn sorted_below(mut lpns: Vec<Lpn>, end: u32) -> Vec<Lpn> {
    lpns.sort_unstable();
    lpns.dedup();
    lpns.retain(|lpn| lpn.is_below(end));
    lpns
}
