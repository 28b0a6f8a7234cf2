//! FLog: one device-wide log of remaps on flash, the common solution before Remap-SSD.
//!
//! Entries gather in DRAM that a capacitor protects and are programmed a page at a time, striped
//! over the dies of superblocks of their own. The log is capped. Finding the owners of a victim's
//! pages means reading all of it, and so does reclaiming it: read all, rewrite what is valid, erase
//! (FAST'21 §3.3, §5.1).
//!
//! Invariants: an entry is in one of the two buffers or in a durable log page; a buffer is reused
//! only after its page is durable. Absent: per-superblock structure on the medium (`index` is the
//! simulator's, its cost is the scan's).

use super::index::OwnerIndex;
use super::log_entry::{ENTRIES_PER_PAGE, LogEntry};
use super::log_pages;
use crate::config::Config;
use crate::contract::{
    FlashNeed, Inspect, LookAhead, OwnerLookup, Ownership, Persist, Recover, Remapping, SchemeSpec,
    Usage,
};
use crate::core::Core;
use crate::ended::Ended;
use crate::error::{ConfigError, RecoveryError};
use crate::guard::Guard;
use crate::kind::{Hue, Medium, SchemeFacts};
use crate::layout::Layout;
use crate::stats::{Demotion, SchemeCounters};
use crate::superblock::{Open, Stream, Superblocks};
use crate::tables::Tables;
use crate::witnesses::Witnesses;
use remap_ssd_media::{
    After, ClearId, Geometry, Media, MediaError, Oob, Ppn, Purpose, SbId, Stored,
};
use std::collections::BTreeSet;
use zerocopy::{FromBytes, IntoBytes};

/// The scheme as the catalogue lists it.
pub const SPEC: SchemeSpec = SchemeSpec {
    check,
    flash_need,
    nvram_words: |_, _| BUFFER_WORDS,
    ..SchemeSpec::new(
        SchemeFacts {
            name: "flog",
            spans_all_dies: true,
            medium: Medium::Flash,
            hue: Some(Hue::Orange),
            ..SchemeFacts::DURABLE
        },
        |config, geometry| Box::new(FLog::new(config, geometry)),
    )
};

const PAGE_BYTES: u64 = remap_ssd_media::geometry::PAGE_BYTES as u64;
/// Pages of the smallest log; a smaller cap fills its pages partly.
const PAGES_MIN: u64 = 8;
/// Two buffers of one page each.
pub(super) const BUFFER_WORDS: usize = 2 * ENTRIES_PER_PAGE * 2;
/// Reclaiming pays only if more than one entry in so many is invalid.
const INVALID_SHARE: u64 = 20;

pub(super) struct FLog {
    base: usize,
    /// Entries of a log page.
    slots: usize,
    pages_max: usize,
    pages: Vec<Ppn>,
    superblocks: Vec<SbId>,
    /// Buffer being filled, and its entries.
    buffer: usize,
    buffered: usize,
    clears: [ClearId; 2],
    /// What recovery found in the buffers.
    saved: Vec<u64>,
    /// There was no flash space at recovery: the buffers stay as they are, and no entry is added.
    stuck: bool,
    /// Superblocks of the log in which recovery found entries of aborted commands.
    aborted: BTreeSet<SbId>,
    index: OwnerIndex,
    fullest: u32,
    reclaim_pays_from: u64,
}

fn shape(config: &Config) -> (usize, usize) {
    let pages = (config.log_bytes / PAGE_BYTES).max(PAGES_MIN);
    let slots = (config.log_bytes / 16 / pages).clamp(2, ENTRIES_PER_PAGE as u64);
    (pages as usize, slots as usize)
}

/// Superblocks of a full log; as many again are needed while it is rewritten.
pub(super) fn flash_need(config: &Config, geometry: &Geometry) -> FlashNeed {
    let held = superblocks_needed(config, geometry);
    FlashNeed { held, spare: held }
}

fn superblocks_needed(config: &Config, geometry: &Geometry) -> u32 {
    u32::try_from(shape(config).0)
        .unwrap_or(u32::MAX / 4)
        .div_ceil(config.data_pages(geometry))
        + 1
}

pub(super) fn check(config: &Config, _: &Geometry) -> Result<(), ConfigError> {
    if config.log_bytes < PAGES_MIN * 32 {
        let least = PAGES_MIN * 32;
        return Err(ConfigError(format!(
            "log_bytes = {} is too small for a log: use at least {least}",
            config.log_bytes
        )));
    }
    Ok(())
}

impl FLog {
    pub fn new(config: &Config, geometry: &Geometry) -> Self {
        let (pages_max, slots) = shape(config);
        Self {
            base: Layout::new(config, geometry).scheme,
            slots,
            pages_max,
            pages: Vec::new(),
            superblocks: Vec::new(),
            buffer: 0,
            buffered: 0,
            clears: [ClearId::default(); 2],
            saved: Vec::new(),
            stuck: false,
            aborted: BTreeSet::new(),
            index: OwnerIndex::new(geometry),
            fullest: 0,
            reclaim_pays_from: 0,
        }
    }

    fn capacity(&self) -> u64 {
        (self.pages_max * self.slots) as u64
    }
    fn entries(&self) -> u64 {
        (self.pages.len() * self.slots + self.buffered) as u64
    }
    fn word(&self, buffer: usize, slot: usize) -> usize {
        self.base + (buffer * ENTRIES_PER_PAGE + slot) * 2
    }
    /// All pages are read, and all entries gone through. Both published platforms (FAST'21's
    /// emulator and simulator) charge the second like the scan of a log in NVRAM.
    fn charge_scan(&self, media: &mut Media) {
        media.charge_flash_scan(self.pages.len(), Purpose::Gc);
        media.charge_loads(2 * self.pages.len() * self.slots, Purpose::Gc);
    }

    /// Can a log page be programmed now, and GC still open a superblock in each of its zones?
    fn page_is_secured(&self, blocks: &Superblocks, config: &Config) -> bool {
        blocks.room(Stream::Log) > 1 || blocks.free() > 1 + config.gc_opens() as u32
    }

    fn append(&mut self, core: &mut Core, remapping: &Remapping, purpose: Purpose) {
        let after = After::clear(self.clears[self.buffer]).and(
            core.config
                .guards
                .waits(Guard::EntryAfterPage, After::page(remapping.ppn)),
        );
        let at = self.word(self.buffer, self.buffered);
        core.media.store_capacitor(
            at,
            &LogEntry::of(&core.blocks, core.geometry, remapping).words(),
            purpose,
            after,
        );

        self.buffered += 1;
        self.index.push(&mut core.tables, &core.blocks, remapping);
        // Now and not at the next entry: `admit` secured a page for this one.
        if self.buffered == self.slots {
            self.flush(core);
        }
    }

    /// Programs the full buffer as a log page and goes on in the other one.
    fn flush(&mut self, core: &mut Core) {
        let at = self.word(self.buffer, 0);
        let mut words: Vec<u64> = Vec::with_capacity(self.buffered * 2);
        let mut damaged = Vec::new();
        // A damaged slot keeps its place as zeroes, so that what is rebuilt goes where it was.
        for at in (at..at + self.buffered * 2).step_by(2) {
            match [core.media.load(at), core.media.load(at + 1)] {
                [Ok(first), Ok(second)] => words.extend([first, second]),
                found => {
                    damaged.push((words.len(), found));
                    words.extend([0, 0]);
                }
            }
        }
        if !damaged.is_empty() {
            self.make_up_for(
                &core.tables,
                &core.blocks,
                &mut core.media,
                &mut words,
                &damaged,
            );
        }

        // 1. the entries, and so the pages they name  2. the log page  3. zeroes in the buffer.
        let page = self.program(core, &words);
        self.clears[self.buffer] =
            core.media
                .clear_capacitor(at, ENTRIES_PER_PAGE * 2, After::page(page));
        self.buffer ^= 1;
        self.buffered = 0;
    }

    /// Rebuilds buffered entries with unreadable words from the tables; zeroes stay where an entry
    /// is no longer in force. Several may fit what can be read, since those of an atomic command
    /// have one number: the one that is nowhere else in the log is meant.
    #[cold]
    fn make_up_for(
        &self,
        tables: &Tables,
        blocks: &Superblocks,
        media: &mut Media,
        words: &mut [u64],
        damaged: &[(usize, [Result<u64, MediaError>; 2])],
    ) {
        // Which entries are elsewhere in the log is only known from reading it.
        self.charge_scan(media);
        let mut logged: BTreeSet<[u64; 2]> = words
            .chunks_exact(2)
            .map(|entry| [entry[0], entry[1]])
            .collect();
        for bytes in self
            .pages
            .iter()
            .filter_map(|page| media.meta_uncharged(*page).ok())
        {
            let (entries, _) = bytes.as_chunks::<16>();
            logged.extend(
                entries
                    .iter()
                    .map(|entry| -> [u64; 2] { zerocopy::transmute!(*entry) }),
            );
        }

        for &(slot, found) in damaged {
            let [first, second] =
                found.map(|word| word.map(|word| LogEntry::from_words([word, word])));
            let fits = |known: &Remapping| {
                first.map_or(true, |first| first.wsn() == known.wsn)
                    && second.map_or(true, |second| {
                        (second.lpn(), second.ppn()) == (known.lpn, known.ppn.0)
                    })
                    && tables.is_in_force(known.lpn, known.ppn, known.wsn)
                    && !logged.contains(&LogEntry::of(blocks, tables.geometry, known).words())
            };
            if let Some(meant) = self
                .index
                .iter(tables.geometry)
                .filter(fits)
                .max_by_key(|known| known.wsn)
            {
                let meant = LogEntry::of(blocks, tables.geometry, &meant).words();
                words[slot..slot + 2].copy_from_slice(&meant);
                logged.insert(meant);
            }
        }
    }

    fn program(&mut self, core: &mut Core, words: &[u64]) -> Ppn {
        loop {
            let Some(taken) = core.blocks.take(Stream::Log) else {
                log_pages::close(core);
                let opened = core
                    .blocks
                    .open_next(&mut core.media, Stream::Log, &mut core.clock);
                assert!(opened, "a superblock for the log was secured");
                self.superblocks
                    .push(core.blocks.open(Stream::Log).expect("just opened").sb);
                continue;
            };

            core.stats.meta_programs += 1;
            core.stats.log_programs += 1;
            let (page, oob) = (
                taken.ppn(),
                taken.oob(Oob::LOG, self.pages.len() as u64 + 1),
            );
            // The fence: the buffer's stores come before their page. A cut that left the page alone
            // would also leave entries whose pages are not there.
            let stored = Stored::Meta(words.as_bytes().into());
            if core
                .media
                .program(
                    page,
                    oob,
                    stored,
                    Purpose::Meta,
                    taken.after.and(After::FENCE),
                )
                .is_ok()
            {
                self.pages.push(page);
                return page;
            }

            let (sb, offset) = (core.geometry.superblock(page), core.geometry.offset(page));
            core.blocks
                .fail_block(&mut core.media, sb, core.geometry.die_of_offset(offset));
        }
    }

    fn has_room(&self, blocks: &Superblocks, config: &Config, entries: u64) -> bool {
        // What stays free is for collection: the fullest superblock's references, and the page that
        // gathers them.
        self.entries() + entries + u64::from(self.fullest) + self.slots as u64 <= self.capacity()
            && self.page_is_secured(blocks, config)
    }

    #[cold]
    fn make_room(&mut self, core: &mut Core, may_reclaim: bool) -> bool {
        let invalid = self.entries().saturating_sub(core.blocks.remapped_total());
        // The last look found too little to gain. Only more invalid entries can change that.
        if invalid < self.reclaim_pays_from {
            return false;
        }

        self.fullest = core.blocks.remapped_max() + 1;
        if self.has_room(&core.blocks, &core.config, 1) {
            return true;
        }

        // Old and new log exist side by side until the new one is durable.
        let pays = invalid * INVALID_SHARE > self.entries()
            && core.blocks.free()
                > self.superblocks_of_valid(&core.config, &core.blocks, core.geometry);
        if may_reclaim && pays {
            self.reclaim(core, false);
        }

        if self.has_room(&core.blocks, &core.config, 1) {
            return true;
        }
        if may_reclaim {
            // Not before another page of entries has become invalid: refusals must stay cheap.
            let invalid = self.entries().saturating_sub(core.blocks.remapped_total());
            self.reclaim_pays_from = invalid + self.slots as u64;
        }

        false
    }

    /// Reads all, writes what is valid to new superblocks, erases the old ones. After a power cut,
    /// a superblock that has just been begun is gone on with: rewriting that is cut again and again
    /// must not begin one each time. None that has entries of aborted commands is: they are what
    /// rewriting gets rid of.
    fn reclaim(&mut self, core: &mut Core, continue_open: bool) {
        core.stats.metadata_gc_runs += 1;
        self.charge_scan(&mut core.media);
        self.index.drop_ended(&mut core.tables);
        let is_continued = |open: &&Open| {
            continue_open && open.next * 2 < open.end && !self.aborted.contains(&open.sb)
        };
        let begun = core
            .blocks
            .open(Stream::Log)
            .filter(is_continued)
            .map(|open| open.sb);
        if begun.is_none() {
            core.blocks.close_log();
        }

        let old: Vec<SbId> = self
            .superblocks
            .extract_if(.., |sb| Some(*sb) != begun)
            .collect();
        self.pages
            .retain(|page| Some(core.geometry.superblock(*page)) == begun);
        self.program_index(core);

        // 1. the new log (each page after the entries it holds)  2. zeroes in the buffer, erases of
        // the old log.
        for buffer in if self.stuck {
            vec![0, 1]
        } else {
            vec![self.buffer]
        } {
            let at = self.word(buffer, 0);
            self.clears[buffer] = core
                .media
                .clear_capacitor(at, ENTRIES_PER_PAGE * 2, After::ALL);
        }

        self.stuck = false;
        self.buffer ^= 1;
        self.buffered = 0;
        for sb in old {
            core.blocks.erase(&mut core.media, sb, &mut core.clock);
        }
    }

    /// Programs all entries of the index.
    fn program_index(&mut self, core: &mut Core) {
        // Taken out while `program` needs the rest of `self`; the entries themselves do not change.
        let index = std::mem::take(&mut self.index);
        let mut words = Vec::with_capacity(self.slots * 2);
        for (sb, entries) in index.lists() {
            let (base, incarnation) = (
                core.geometry.page(sb, 0).0,
                core.blocks.get(sb).life.incarnation(),
            );
            for entry in entries {
                let ppn = Ppn(base + entry.offset);
                words.extend(LogEntry::new_in(incarnation, entry.wsn, entry.lpn, ppn).words());
                if words.len() == self.slots * 2 {
                    self.program(core, &words);
                    words.clear();
                }
            }
        }

        if !words.is_empty() {
            self.program(core, &words);
        }

        self.index = index;
    }

    /// `false` for an entry of an aborted command.
    fn add_witness(&mut self, core: &mut Core, witnesses: &mut Witnesses, words: [u64; 2]) -> bool {
        let entry = LogEntry::from_words(words);
        if entry.is_intact() && entry.is_current(&core.blocks, core.geometry) {
            let ppn = Ppn(entry.ppn());
            if !witnesses.remap(core, entry.lpn(), ppn, entry.wsn(), None) {
                return false;
            }
            let remapping = Remapping {
                lpn: entry.lpn(),
                ppn,
                wsn: entry.wsn(),
                source: None,
                atomic: None,
            };
            self.index.push_unchecked(core.geometry, &remapping);
        }

        true
    }

    /// Superblocks that rewriting the log may open.
    fn superblocks_of_valid(
        &self,
        config: &Config,
        blocks: &Superblocks,
        geometry: Geometry,
    ) -> u32 {
        let pages = blocks.remapped_total().div_ceil(self.slots as u64) as u32 + 1;
        pages.div_ceil(config.data_pages(&geometry)) + 1
    }
}

impl Persist for FLog {
    fn admit(&mut self, core: &mut Core, ppn: Ppn, may_reclaim: bool) -> Result<(), Demotion> {
        if core.blocks.remapped_total() as f64 >= core.config.watermark * self.capacity() as f64 {
            return Err(Demotion::Watermark);
        }
        if self.stuck {
            return Err(Demotion::NvramFull);
        }

        self.fullest = self
            .fullest
            .max(core.blocks.owners(core.geometry.superblock(ppn)).remapped + 1);

        // This entry would fill the buffer, and a full buffer is programmed at once.
        let page_needed = self.buffered + 1 == self.slots;
        let fits =
            self.entries() + 1 + u64::from(self.fullest) + self.slots as u64 <= self.capacity();
        if fits && (!page_needed || self.page_is_secured(&core.blocks, &core.config))
            || self.make_room(core, may_reclaim)
        {
            Ok(())
        } else {
            Err(Demotion::NvramFull)
        }
    }

    fn persist(&mut self, core: &mut Core, remapping: &Remapping, purpose: Purpose) {
        self.append(core, remapping, purpose);
    }

    fn persist_moved(&mut self, core: &mut Core, remapping: &Remapping) -> bool {
        // Collection may spend what hosts leave: no reserve here.
        if self.entries() + 1 > self.capacity()
            || !self.page_is_secured(&core.blocks, &core.config)
            || self.stuck
        {
            return false;
        }
        self.append(core, remapping, Purpose::Gc);
        true
    }

    fn give_back(&mut self, core: &mut Core) -> bool {
        let before = self.superblocks.len();
        // One superblock cannot become fewer, and rewriting needs a page now.
        if before < 2 || !self.page_is_secured(&core.blocks, &core.config) {
            return false;
        }
        self.reclaim(core, true);
        self.superblocks.len() < before
    }
}

impl Ownership for FLog {
    fn owners(&mut self, lookup: OwnerLookup) {
        self.charge_scan(lookup.media);
        self.index.owners(lookup.sb, lookup.out);
    }

    fn forget(&mut self, _: &mut Media, ended: &mut Ended, _: &mut SchemeCounters, sb: SbId) {
        self.index.forget(sb);
        ended.start_over(sb);
        self.reclaim_pays_from = 0;
    }
}

impl Recover for FLog {
    fn replay(&mut self, core: &mut Core, witnesses: &mut Witnesses) -> Result<(), RecoveryError> {
        // Oldest superblock first, so that pages and the index are in the order in which they were
        // written.
        for sb in core.blocks.logs_by_age() {
            self.superblocks.push(sb);
            let found = log_pages::read(
                &core.blocks,
                &mut core.media,
                core.config.guards,
                sb,
                &mut witnesses.report.log_pages,
            );
            // Its entries may be the newest of any LPN; nothing else has them.
            if let Some(page) = found.lost {
                return Err(RecoveryError::LogDamaged { page: page.0 });
            }
            for at in found.pages {
                self.pages.push(at.page);
                for entry in at.bytes.chunks_exact(16) {
                    let first = u64::read_from_bytes(&entry[..8]).expect("8 bytes");
                    let second = u64::read_from_bytes(&entry[8..]).expect("8 bytes");
                    if !self.add_witness(core, witnesses, [first, second]) {
                        self.aborted.insert(sb);
                    }
                }
            }
        }

        let mut saved: Vec<[u64; 2]> = Vec::new();
        for word in (self.base..self.base + BUFFER_WORDS).step_by(2) {
            let words = [core.media.load(word), core.media.load(word + 1)];
            let [Ok(first), Ok(second)] = words else {
                LogEntry::doubt(&core.blocks, &core.config, witnesses, words)
                    .map_err(|_| RecoveryError::NvramDamaged { word })?;
                continue;
            };
            if first | second != 0 {
                saved.push([first, second]);
            }
        }

        // Those of aborted commands are left out of what goes to flash: the numbers die with the
        // buffers.
        saved.retain(|words| self.add_witness(core, witnesses, *words));
        self.saved = saved.concat();
        Ok(())
    }

    fn resume(&mut self, core: &mut Core) -> bool {
        self.fullest = core.blocks.remapped_max();
        self.index.sort();

        // What the capacitor saved goes to flash; its page may have been programmed before: twice
        // says the same.
        let saved = std::mem::take(&mut self.saved);
        // The buffers outlive power as they are. Nothing is lost; remaps are refused until there is
        // space.
        if core.clock.is_used_up() || !self.page_is_secured(&core.blocks, &core.config) {
            self.stuck = !saved.is_empty();
            return true;
        }

        // Cuts during reclaiming leave both logs, each time one more. Rewriting all is the only way
        // back.
        let crowded =
            self.superblocks.len() > superblocks_needed(&core.config, &core.geometry) as usize;
        if crowded || self.pages.len() + 2 > self.pages_max {
            self.reclaim(core, true);
        } else {
            for words in saved.chunks(self.slots * 2) {
                self.program(core, words);
            }
        }

        // 1. the pages of what was saved  2. zeroes, after everything. Cut between: both say the
        // same.
        self.clears = [0, 1].map(|buffer| {
            core.media
                .clear_capacitor(self.word(buffer, 0), ENTRIES_PER_PAGE * 2, After::ALL)
        });

        true
    }

    fn drop_aborted(&mut self, core: &mut Core) {
        self.aborted.retain(|sb| self.superblocks.contains(sb));
        if !self.aborted.is_empty()
            && core.blocks.free()
                > self.superblocks_of_valid(&core.config, &core.blocks, core.geometry)
        {
            self.reclaim(core, true);
        }
    }
}

impl Inspect for FLog {
    fn usage(&self, blocks: &Superblocks) -> Usage {
        Usage {
            capacity_bytes: self.capacity() * 16,
            used_bytes: self.entries() * 16,
            valid_bytes: blocks.remapped_total() * 16,
            entry_room_bytes: self.capacity() * 16,
            // What `admit` leaves: the fullest superblock's entries, and a page that is being
            // gathered.
            gc_reserve_bytes: (u64::from(self.fullest) + self.slots as u64) * 16,
            ..Usage::default()
        }
    }

    fn check(&self, tables: &Tables, _: &Superblocks, _: &Media) -> Result<(), String> {
        self.index.check(tables)?;
        self.index.check_ended_noticed(tables)
    }
}

impl LookAhead for FLog {}
