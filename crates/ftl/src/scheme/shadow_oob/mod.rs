//! Copyless Copy (HPCC'19 §II): the LPNs that share a page stand in DRAM, in a *shadow* of its OOB.
//!
//! A page counts its LPNs with n bits, and its shadow names those that the OOB does not, up to
//! 2^n - 1 in all (`count_max`). A remap is a store to DRAM and nothing else. When power fails, a
//! capacitor has energy for so many flash pages (`energy_pages`), and the shadows are programmed to
//! flash that has been kept erased for them (`saved`). What recovery reads is flash alone.
//!
//! DRAM is words of the NVRAM image without NVRAM's costs: `log_bytes` of entries. As everywhere,
//! L2P and counts are not saved but follow from OOBs, tails and entries, so that a mapping needs an
//! entry only where no OOB tells of it.
//!
//! Order at power-on: 1. reserved flash is opened: erased, and its heads  2. the entries in force
//! are put into DRAM
//! 3. the device is *armed*, after everything  4. new entries (fence)  5. what was saved before is
//!    erased, after everything. Cut before 3: nothing is saved, and what was saved before counts.
//!    After 3: what is in DRAM is saved, which is all; and what was saved before says nothing
//!    newer.
//!
//! Invariants: while armed, every remapped LPN has an entry in DRAM, and the reserved flash has
//! room for all slots; while not, every one has a saved entry, and none is made. A slot is used
//! again only after it has been zeroed, which waits for what superseded its entry. Absent: what
//! happens when power fails (`saved`).

mod saved;

use super::log_entry::{LogEntry, UNNUMBERED};
use crate::clock::WsnClock;
use crate::config::Config;
use crate::contract::{
    FlashNeed, GroupInfo, Inspect, LookAhead, OwnerRef, Ownership, Persist, Recover, Remapping,
    SchemeSpec, Usage,
};
use crate::core::Core;
use crate::ended::Ended;
use crate::error::{ConfigError, RecoveryError};
use crate::guard::{Guard, Guards};
use crate::kind::{Medium, SchemeFacts, SchemeKey};
use crate::layout::Layout;
use crate::stats::{Demotion, SchemeCounters};
use crate::superblock::{Stream, SuperblockState, Superblocks};
use crate::tables::Tables;
use crate::witnesses::Witnesses;
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_media::{After, ClearId, Geometry, Media, Oob, Ppn, Purpose, SbId};
use saved::{Reserve, SLOT_WORDS, SavedPage};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const ENERGY_PAGES: SchemeKey = SchemeKey {
    name: "energy_pages",
    unit: "pages",
    default: 0,
    least: 0,
    most: u32::MAX as u64,
    about: "Flash pages that the capacitor programs when power fails; 0 is as many as its DRAM fills.",
};

/// The scheme as the catalogue lists it.
pub const SPEC: SchemeSpec = SchemeSpec {
    check,
    flash_need,
    nvram_words: words,
    ..SchemeSpec::new(
        SchemeFacts {
            name: "shadow-oob",
            spans_all_dies: true,
            medium: Medium::Flash,
            // `UnsharedRenewed`: of remaps that stay in force, some were made to pages that are
            // older than what their LPNs had before.
            guards: &[
                Guard::CapacitorEnergy,
                Guard::ArmedLast,
                Guard::UnsharedRenewed,
            ],
            keys: &[&ENERGY_PAGES],
            ..SchemeFacts::DURABLE
        },
        |config, geometry| Box::new(ShadowOob::new(config, geometry)),
    )
};

/// Sweeping pays only if more than one slot in so many is gained.
const STALE_SHARE: usize = 20;
/// So large a share of the slots is gained at a time.
const SWEPT_SHARE: usize = 64;
/// The slot of an entry that is on flash only.
const SAVED: u32 = u32::MAX;
/// The LPN of an entry that is being dropped; LPNs have 31 bits.
const DROPPED: u32 = u32::MAX;

/// An entry, and its slot. There are as many as remaps, and they are gone through often.
#[derive(Clone, Copy)]
struct EntryTag {
    slot: u32,
    lpn: u32,
    /// 42 bits of sequence number above 21 of page offset.
    place: u64,
}

const _: () = assert!(size_of::<EntryTag>() == 16);

impl EntryTag {
    fn new(slot: u32, lpn: u32, offset: u32, wsn: u64) -> Self {
        Self {
            slot,
            lpn,
            place: wsn << 21 | u64::from(offset),
        }
    }
    fn offset(&self) -> u32 {
        self.place as u32 & 0x1f_ffff
    }
    fn wsn(&self) -> u64 {
        self.place >> 21
    }
}

/// An unreadable page of the reserved flash, and the generation of the pages around it.
struct Unreadable {
    page: u32,
    generation: Option<u64>,
}

/// Superblocks of stream Log that power-on found.
#[derive(Default)]
struct LogSuperblocks {
    /// What was saved last, or nothing that counts, is in them.
    saved: Vec<SbId>,
    outdated: Vec<SbId>,
    /// Erased but for their heads.
    empty: Vec<SbId>,
}

pub(super) struct ShadowOob {
    guards: Guards,
    geometry: Geometry,
    reserve: Reserve,
    /// Whether DRAM will be saved at a power loss.
    armed: bool,
    found: LogSuperblocks,
    /// Entries by the superblock that they name a page of. Of several with one LPN and offset the
    /// last is the newest.
    tags: Vec<Vec<EntryTag>>,
    /// Slots that hold nothing, longest free first, with the zeroing to wait for.
    free: VecDeque<(u32, ClearId)>,
    /// LPNs remapped to pages of the superblock that has the most: collecting it takes so many
    /// slots.
    fullest: u32,
    /// Stale entries below which it is not worth looking for them.
    reclaim_pays_from: usize,
    /// Entries that may not be in force.
    doubtful: Vec<u32>,
}

fn reserve(config: &Config, geometry: &Geometry, base: usize) -> Reserve {
    Reserve::new(config, geometry, base)
}

/// Words of DRAM that the capacitor keeps.
pub(super) fn words(config: &Config, geometry: &Geometry) -> usize {
    reserve(config, geometry, 0).words()
}

/// Superblocks of the reserved flash.
pub(super) fn flash_need(config: &Config, geometry: &Geometry) -> FlashNeed {
    reserve(config, geometry, 0).flash_need()
}

pub(super) fn check(config: &Config, geometry: &Geometry) -> Result<(), ConfigError> {
    const LEAST: u64 = 16 * 16;
    if !(LEAST..=(1 << 30) * 16).contains(&config.log_bytes) {
        return Err(ConfigError(format!(
            "log_bytes = {} must be {LEAST} to 16 GiB of DRAM",
            config.log_bytes
        )));
    }

    let needed = reserve(config, geometry, 0).energy_needed();
    let energy_pages = config.own(&ENERGY_PAGES);
    let enough = energy_pages == 0 || energy_pages >= u64::from(needed);
    if !enough && config.guards.has(Guard::CapacitorEnergy) {
        return Err(ConfigError(format!(
            "energy_pages = {} cannot save the {} bytes of DRAM that log_bytes says: use at least {needed}, or 0 for as \
             many as that takes",
            energy_pages, config.log_bytes
        )));
    }

    Ok(())
}

impl ShadowOob {
    /// No entries, and nothing reserved yet.
    pub fn new(config: &Config, geometry: &Geometry) -> Self {
        let reserve = reserve(config, geometry, Layout::new(config, geometry).scheme);
        Self {
            guards: config.guards,
            geometry: *geometry,
            reserve,
            armed: false,
            found: LogSuperblocks::default(),
            tags: vec![Vec::new(); geometry.superblocks() as usize],
            free: (0..reserve.slots as u32)
                .map(|slot| (slot, ClearId::default()))
                .collect(),
            fullest: 0,
            reclaim_pays_from: 0,
            doubtful: Vec::new(),
        }
    }

    fn used(&self) -> usize {
        self.reserve.slots - self.free.len()
    }

    /// Superblocks for what the capacitor would save; `false` if there are not enough.
    fn reserve_flash(&mut self, core: &mut Core) -> bool {
        let kept_free = 1 + core.config.gc_opens() as u32;
        let (wanted, least) = self.reserve.room_needed(&core.geometry);
        // Nothing is open in this stream while the device runs: reserved flash is filled when power
        // has failed, by `saved`.
        core.blocks.close_log();
        let room = |core: &Core, area: &[SbId]| {
            area.iter()
                .map(|sb| core.blocks.get(*sb).capacity)
                .sum::<u32>()
        };

        while room(core, &self.found.empty) < wanted
            && self.found.empty.len() < self.reserve.superblocks_max
        {
            // Collection comes first: without it no remap would help either.
            if core.blocks.free() <= kept_free
                || !core
                    .blocks
                    .open_next(&mut core.media, Stream::Log, &mut core.clock)
            {
                break;
            }
            self.found
                .empty
                .push(core.blocks.open(Stream::Log).expect("just opened").sb);
            core.blocks.close_log();
        }

        room(core, &self.found.empty) >= least
    }

    /// From now on DRAM counts: all entries are in it, and there is flash to save them to.
    #[cold]
    fn arm(&mut self, core: &mut Core) -> bool {
        // Of earlier generations, so they say nothing; their flash may be needed below.
        for sb in std::mem::take(&mut self.found.outdated) {
            core.blocks.erase(&mut core.media, sb, &mut core.clock);
        }
        let entries: usize = self.tags.iter().map(Vec::len).sum();
        if entries > self.free.len() || !self.reserve_flash(core) {
            return false;
        }

        // 1. heads and erases of the reserved flash; where it is; the entries  2. the generation,
        // after everything. Cut before 2: what was saved before counts. A device that was armed too
        // early would save to flash that is not erased, or whose head is not there, or not all
        // entries.
        let words = self
            .found
            .empty
            .iter()
            .map(|sb| u64::from(sb.0) + 1)
            .chain(std::iter::repeat(0));
        for (index, word) in (0..self.reserve.superblocks_max).zip(words) {
            core.media.store_capacitor(
                self.reserve.area_word(index),
                &[word],
                Purpose::Meta,
                After::NOTHING,
            );
        }

        // All anew, into slots that are zero: an entry that was saved has none yet.
        for sb in 0..self.tags.len() {
            for at in 0..self.tags[sb].len() {
                let tag = self.tags[sb][at];
                let ppn = core.geometry.page(SbId(sb as u32), tag.offset());
                let entry = Remapping {
                    lpn: tag.lpn,
                    ppn,
                    wsn: tag.wsn(),
                    source: None,
                    atomic: None,
                };
                self.tags[sb][at].slot =
                    self.store(&core.blocks, &mut core.media, &entry, Purpose::Meta);
            }
        }

        let generation = core.clock.tick();
        let after = core.config.guards.waits(Guard::ArmedLast, After::ALL);

        core.media
            .store_capacitor(self.reserve.base, &[generation], Purpose::Meta, after);
        // New entries after the generation: one that came first would not be saved, but
        // acknowledged.
        core.media.fence();
        self.armed = true;
        self.found.empty.clear();
        // Last: until the device is armed they are all that tells of these remaps. An erase waits
        // for everything.
        for sb in std::mem::take(&mut self.found.saved) {
            core.blocks.erase(&mut core.media, sb, &mut core.clock);
        }

        true
    }

    /// Puts an entry into the slot that has been free longest.
    fn store(
        &mut self,
        blocks: &Superblocks,
        media: &mut Media,
        entry: &Remapping,
        purpose: Purpose,
    ) -> u32 {
        let (slot, clear) = self.free.pop_front().expect("a slot was secured");
        // 1. zeroes, and the page  2. the entry's words. DRAM keeps both or, of an entry that was
        // being written, one: its torn bit is missing then.
        let after = After::clear(clear).and(
            self.guards
                .waits(Guard::EntryAfterPage, After::page(entry.ppn)),
        );
        let word = self.reserve.slot_word(slot);
        media.store_capacitor(
            word,
            &LogEntry::of(blocks, media.geometry(), entry).words(),
            purpose,
            after,
        );
        slot
    }

    fn append(
        &mut self,
        blocks: &Superblocks,
        media: &mut Media,
        entry: &Remapping,
        purpose: Purpose,
    ) {
        let slot = self.store(blocks, media, entry, purpose);
        let (sb, offset) = (
            media.geometry().superblock(entry.ppn),
            media.geometry().offset(entry.ppn),
        );
        self.tags[sb.0 as usize].push(EntryTag::new(slot, entry.lpn, offset, entry.wsn));
    }

    /// Zeroes a slot, after what superseded its entry, and frees it.
    fn release(&mut self, media: &mut Media, slot: u32) {
        // It is on flash only, and goes with its superblock.
        if slot == SAVED {
            return;
        }
        let after = self.guards.waits(Guard::ClearWaits, After::ALL);
        let clear = media.clear_capacitor(self.reserve.slot_word(slot), SLOT_WORDS, after);
        self.free.push_back((slot, clear));
    }

    /// Drops the entries of a superblock that are not in force, and all but the newest of one
    /// mapping. Only those whose remap may have ended are looked up in L2P.
    fn sweep(&mut self, tables: &mut Tables, media: &mut Media, sb: SbId) {
        const AHEAD: usize = 24;
        let mut tags = std::mem::take(&mut self.tags[sb.0 as usize]);
        let mut doubtful = std::mem::take(&mut self.doubtful);
        let ended = tables.ended.of(sb);
        doubtful.extend(
            (0..)
                .zip(&tags)
                .filter(|(_, tag)| ended.may_have_ended(tag.lpn))
                .map(|(at, _): (u32, _)| at),
        );

        // Newest first: an LPN once seen is hidden, so that an older entry of the same mapping is
        // not in force.
        for index in (0..doubtful.len()).rev() {
            if let Some(next) = index.checked_sub(AHEAD) {
                tables.map.prefetch(tags[doubtful[next] as usize].lpn);
            }
            let tag = &mut tags[doubtful[index] as usize];
            if tables.is_in_force(tag.lpn, tables.geometry.page(sb, tag.offset()), tag.wsn()) {
                tables.map.hide_remapped(tag.lpn);
            } else {
                self.release(media, tag.slot);
                tag.lpn = DROPPED;
            }
        }

        for at in doubtful.drain(..) {
            let lpn = tags[at as usize].lpn;
            if lpn != DROPPED {
                tables.map.mark_remapped(lpn);
            }
        }

        tags.retain(|tag| tag.lpn != DROPPED);
        tables.ended.start_over(sb);
        (self.tags[sb.0 as usize], self.doubtful) = (tags, doubtful);
    }

    fn has_room(&self, entries: usize) -> bool {
        // Collecting the fullest superblock takes a slot for each of its references.
        self.free.len() >= self.fullest as usize + entries
    }

    /// Frees the slots of stale entries where there are many of them.
    #[cold]
    fn make_room(&mut self, core: &mut Core, entries: usize) -> bool {
        let stale = self
            .used()
            .saturating_sub(core.blocks.remapped_total() as usize);
        if stale < self.reclaim_pays_from {
            return false;
        }

        self.fullest = core.blocks.remapped_max() + 1;

        if self.has_room(entries) {
            return true;
        }
        if stale * STALE_SHARE > self.reserve.slots {
            core.stats.metadata_gc_runs += 1;
            self.sweep_best(&mut core.tables, &core.blocks, &mut core.media, entries);
        }

        let found = self.has_room(entries);
        self.reclaim_pays_from = if found {
            0
        } else {
            stale + self.reserve.slots / STALE_SHARE + 1
        };

        found
    }

    /// Sweeps the superblocks with the most stale entries until there is room, and some more.
    fn sweep_best(
        &mut self,
        tables: &mut Tables,
        blocks: &Superblocks,
        media: &mut Media,
        entries: usize,
    ) {
        // More than needed, so that the next look is not at the next remap.
        let some_more = self.reserve.slots / SWEPT_SHARE;
        let stale_of = |tags: &Vec<EntryTag>, sb: u32| {
            tags.len()
                .saturating_sub(blocks.owners(SbId(sb)).remapped as usize)
        };

        let mut worst: Vec<(usize, u32)> = self
            .tags
            .iter()
            .zip(0..)
            .map(|(tags, sb)| (stale_of(tags, sb), sb))
            .collect();
        worst.sort_unstable_by_key(|(stale, sb)| (std::cmp::Reverse(*stale), *sb));

        for (_, sb) in worst.into_iter().take_while(|(stale, _)| *stale > 0) {
            if self.has_room(entries + some_more) {
                break;
            }
            self.sweep(tables, media, SbId(sb));
        }
    }

    /// Is a superblock erased but for its head?
    fn is_empty(blocks: &Superblocks, media: &Media, sb: SbId) -> bool {
        let head = blocks.get(sb).head;
        (0..media.geometry().pages_per_superblock())
            .all(|offset| offset == head || !media.is_programmed(media.geometry().page(sb, offset)))
    }

    /// The pages saved in a superblock, by generation.
    fn read_saved(
        &self,
        blocks: &Superblocks,
        media: &mut Media,
        witnesses: &mut Witnesses,
        sb: SbId,
        pages: &mut BTreeMap<u64, Vec<SavedPage>>,
        unreadable: &mut Vec<Unreadable>,
    ) -> Option<u64> {
        let start = unreadable.len();
        let superblock = *blocks.get(sb);
        // A block that failed once is never erased again, and keeps what tore then.
        let failed = superblock.bad | superblock.failing;

        let mut newest = None;
        for offset in 0..media.geometry().pages_per_superblock() {
            let page = media.geometry().page(sb, offset);
            // A bad block is not erased any more: what an earlier life tore there stays, and says
            // nothing.
            let is_bad = superblock.bad >> media.geometry().die_of_offset(offset) & 1 == 1;
            if is_bad || !media.is_programmed(page) || offset == superblock.head {
                continue;
            }

            witnesses.report.log_pages += 1;
            match media.read_meta(page, Purpose::Meta) {
                Ok(Some((oob, bytes))) => {
                    let present = oob.incarnation() == superblock.life.incarnation() & 63;
                    if let Some(saved) =
                        SavedPage::decode(&bytes).filter(|_| oob.lpn() == Oob::LOG && present)
                    {
                        newest = newest.max(Some(saved.of.generation()));
                        pages.entry(saved.of.generation()).or_default().push(saved);
                    }
                }
                Ok(None) => {}
                // A program that failed, or an erase that was cut.
                Err(_) if failed >> media.geometry().die_of_offset(offset) & 1 == 1 => {}
                Err(_) if Self::is_spoiled(media.geometry(), media, page) => {}
                Err(_) => unreadable.push(Unreadable {
                    page: page.0,
                    generation: None,
                }),
            }
        }

        // The pages of one superblock are of one generation: it is erased before it is reserved
        // again.
        unreadable[start..]
            .iter_mut()
            .for_each(|at| at.generation = newest);
        newest
    }

    /// Is no page of this block readable?
    fn is_spoiled(geometry: Geometry, media: &Media, page: Ppn) -> bool {
        let (sb, die) = (
            geometry.superblock(page),
            geometry.die_of_offset(geometry.offset(page)),
        );
        let mut pages = (0..geometry.pages_per_block())
            .map(|row| geometry.page(sb, row * geometry.dies() + die));
        pages.all(|page| media.is_programmed(page) && !media.is_readable(page))
    }
}

impl Persist for ShadowOob {
    fn admit(&mut self, core: &mut Core, ppn: Ppn, may_reclaim: bool) -> Result<(), Demotion> {
        if core.blocks.remapped_total() as f64 >= core.config.watermark * self.reserve.slots as f64
        {
            return Err(Demotion::Watermark);
        }
        let armed = self.armed || (may_reclaim && self.arm(core));
        if !armed {
            return Err(Demotion::NvramFull);
        }

        self.fullest = self
            .fullest
            .max(core.blocks.owners(core.geometry.superblock(ppn)).remapped + 1);
        if self.has_room(1) || (may_reclaim && self.make_room(core, 1)) {
            Ok(())
        } else {
            Err(Demotion::NvramFull)
        }
    }

    fn persist(&mut self, core: &mut Core, remapping: &Remapping, purpose: Purpose) {
        self.append(&core.blocks, &mut core.media, remapping, purpose);
    }

    fn persist_moved(&mut self, core: &mut Core, remapping: &Remapping) -> bool {
        // An entry in DRAM that will not be saved is none.
        if !self.armed || self.free.is_empty() {
            return false;
        }
        self.append(&core.blocks, &mut core.media, remapping, Purpose::Gc);
        true
    }

    fn references_without_room(&self, _: &Tables, blocks: &Superblocks, sb: SbId) -> u32 {
        let references = blocks.owners(sb).remapped;
        if self.armed {
            references.saturating_sub(self.free.len() as u32)
        } else {
            references
        }
    }

    fn prepare(&mut self, core: &mut Core, entries: u32) {
        // Each may also make the fullest superblock fuller.
        let entries = 2 * entries as usize;
        if (self.armed || self.arm(core)) && !self.has_room(entries) {
            self.make_room(core, entries);
        }
    }
}

impl Ownership for ShadowOob {
    fn owners(
        &mut self,
        _: &Tables,
        _: &mut Media,
        _: &mut WsnClock,
        sb: SbId,
        out: &mut Vec<OwnerRef>,
    ) {
        let owner = |tag: &EntryTag| OwnerRef {
            offset: tag.offset(),
            lpn: tag.lpn,
            wsn: tag.wsn(),
            source: None,
        };
        out.extend(self.tags[sb.0 as usize].iter().map(owner));
    }

    fn forget(&mut self, media: &mut Media, ended: &mut Ended, _: &mut SchemeCounters, sb: SbId) {
        for tag in std::mem::take(&mut self.tags[sb.0 as usize]) {
            self.release(media, tag.slot);
        }
        ended.start_over(sb);
        self.reclaim_pays_from = 0;
    }
}

impl Recover for ShadowOob {
    fn power_lost(&mut self, media: &mut Media) -> Result<u64, RecoveryError> {
        self.reserve.save(self.guards, media)
    }

    fn replay(&mut self, core: &mut Core, witnesses: &mut Witnesses) -> Result<(), RecoveryError> {
        let is_log = |stream, state| {
            stream == Stream::Log
                && matches!(state, SuperblockState::Open | SuperblockState::Closed)
        };
        let logs = core
            .blocks
            .iter()
            .filter(|(_, sb)| is_log(sb.stream, sb.state));
        let logs: Vec<SbId> = logs.map(|(id, _)| id).collect();

        let (mut pages, mut filled, mut unreadable) = (BTreeMap::new(), Vec::new(), Vec::new());
        for sb in logs {
            let newest = self.read_saved(
                &core.blocks,
                &mut core.media,
                witnesses,
                sb,
                &mut pages,
                &mut unreadable,
            );
            match newest {
                Some(generation) => filled.push((generation, sb)),
                None if Self::is_empty(&core.blocks, &core.media, sb) => self.found.empty.push(sb),
                None => self.found.outdated.push(sb),
            }
        }

        // What was saved last is all that was in DRAM then. An earlier one says nothing newer.
        let newest = pages.pop_last();
        let last = newest.as_ref().map(|(last, _)| *last);
        // What cannot be read is of the generation of the pages around it; alone, it may be of the
        // last one.
        if let Some(at) = unreadable
            .iter()
            .find(|at| at.generation.is_none() || at.generation == last)
        {
            return Err(RecoveryError::SavedDamaged { page: at.page });
        }

        let Some((last, pages)) = newest else {
            return Ok(());
        };
        witnesses.saw(last);
        for (generation, sb) in filled {
            let list = if generation == last {
                &mut self.found.saved
            } else {
                &mut self.found.outdated
            };
            list.push(sb);
        }

        for words in pages.iter().flat_map(|page| &page.entries) {
            let entry = LogEntry::from_words(*words);
            let intact = entry.is_intact() || !core.config.guards.has(Guard::TornBits);
            if words[0] == UNNUMBERED {
                witnesses.doubt(entry.lpn(), u64::MAX);
            } else if intact && entry.is_current(&core.blocks, core.geometry) {
                let (ppn, lpn, wsn) = (Ppn(entry.ppn()), entry.lpn(), entry.wsn());
                if !witnesses.remap(core, lpn, ppn, wsn, None) {
                    continue; // It is not armed with again.
                }
                let tag = EntryTag::new(SAVED, lpn, core.geometry.offset(ppn), wsn);
                self.tags[core.geometry.superblock(ppn).0 as usize].push(tag);
            }
        }

        self.tags
            .iter_mut()
            .for_each(|tags| tags.sort_by_key(EntryTag::wsn));
        Ok(())
    }

    fn resume(&mut self, core: &mut Core) -> bool {
        for index in 0..self.tags.len() as u32 {
            self.sweep(&mut core.tables, &mut core.media, SbId(index));
        }
        core.blocks.close_log();
        // Without flash to reserve, the saved entries go on counting, and nothing is remapped
        // before there is some.
        if !core.clock.is_used_up() {
            self.arm(core);
        }
        true
    }
}

impl Inspect for ShadowOob {
    fn usage(&self, blocks: &Superblocks) -> Usage {
        Usage {
            capacity_bytes: self.reserve.slots as u64 * 16,
            used_bytes: self.used() as u64 * 16,
            valid_bytes: blocks.remapped_total() * 16,
            power_loss_pages: self.reserve.energy().into(),
            reserved_bytes: self.reserve.superblocks_max as u64
                * u64::from(self.geometry.pages_per_superblock())
                * PAGE_BYTES as u64,
            ..Usage::default()
        }
    }

    fn check(&self, tables: &Tables, blocks: &Superblocks, media: &Media) -> Result<(), String> {
        let mut slots: BTreeSet<u32> = self.free.iter().map(|(slot, _)| *slot).collect();
        for (index, tags) in self.tags.iter().enumerate() {
            for tag in tags {
                let ppn = tables.geometry.page(SbId(index as u32), tag.offset());
                let entry = Remapping {
                    lpn: tag.lpn,
                    ppn,
                    wsn: tag.wsn(),
                    source: None,
                    atomic: None,
                };

                let in_force = tables.map.is_remapped_at(tag.lpn, ppn);
                if !in_force && !tables.ended.of(SbId(index as u32)).may_have_ended(tag.lpn) {
                    return Err(format!("an entry for LPN {} ended unnoticed", tag.lpn));
                }

                if (tag.slot == SAVED) == self.armed {
                    return Err(format!(
                        "the entry of LPN {} is not where it should be",
                        tag.lpn
                    ));
                }

                let word = self
                    .reserve
                    .slot_word(if self.armed { tag.slot } else { 0 });
                let stored = [media.peek(word), media.peek(word + 1)];

                if self.armed
                    && (stored != LogEntry::of(blocks, tables.geometry, &entry).words()
                        || !slots.insert(tag.slot))
                {
                    return Err(format!(
                        "slot {} does not say what is known of it",
                        tag.slot
                    ));
                }
            }
        }

        if slots.len() != self.reserve.slots {
            return Err(format!(
                "{} slots of {} are known",
                slots.len(),
                self.reserve.slots
            ));
        }

        let mut known: Vec<BTreeSet<(u32, u32)>> = Vec::with_capacity(self.tags.len());
        known.extend(
            self.tags
                .iter()
                .map(|tags| tags.iter().map(|tag| (tag.lpn, tag.offset())).collect()),
        );

        for lpn in 0..tables.map.len() {
            let Some(mapping) = tables.map.get(lpn).filter(|mapping| mapping.remapped) else {
                continue;
            };
            let sb = tables.geometry.superblock(mapping.ppn);
            if !known[sb.0 as usize].contains(&(lpn, tables.geometry.offset(mapping.ppn))) {
                return Err(format!(
                    "LPN {lpn} is remapped to {:?} and no entry says so",
                    mapping.ppn
                ));
            }
        }

        Ok(())
    }

    fn describe(&self, sb: SbId) -> Option<GroupInfo> {
        let entries = self.tags[sb.0 as usize].len() as u32;
        Some(GroupInfo {
            entries,
            pages: entries.into(),
            ..GroupInfo::default()
        })
    }
}

impl LookAhead for ShadowOob {}
