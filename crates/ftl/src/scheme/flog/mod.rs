//! FLog: one device-wide log of remaps on flash, the usual solution before Remap-SSD.
//!
//! Entries are collected in DRAM protected by a capacitor and programmed a page at a time, striped
//! over the dies of superblocks of their own. The size of the log is limited. Finding the owners of
//! a victim's pages means reading all of it, and so does reclaiming it: read all, rewrite the valid
//! entries, erase (FAST'21 §3.3, §5.1).
//!
//! Invariants: an entry is in one of the two buffers or in a durable log page; a buffer is reused
//! only after its page is durable. Absent: per-superblock structure on the medium (`index` belongs
//! to the simulator; its cost is the scan's).

mod reclaim;
mod recover;

use crate::config::Config;
use crate::contract::{
    FlashNeed, Inspect, LookAhead, OwnerLookup, Ownership, Persist, Remapping, SchemeSpec, Usage,
};
use crate::core::Core;
use crate::ended::EndedFilters;
use crate::error::ConfigError;
use crate::guard::Guard;
use crate::kind::{Hue, Medium, SchemeFacts};
use crate::layout::NvramLayout;
use crate::scheme::index::OwnerIndex;
use crate::scheme::log_entry::{ENTRIES_PER_PAGE, LogEntry};
use crate::scheme::log_pages;
use crate::stats::{Demotion, SchemeCounters};
use crate::superblock::{Stream, Superblocks};
use crate::tables::Tables;
use remap_ssd_media::{After, ClearId, Geometry, Media, Oob, Ppn, Purpose, SbId, StoredPage};
use std::collections::BTreeSet;
use zerocopy::IntoBytes;

/// The scheme's declaration for the catalogue.
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
/// Pages of the smallest log; a smaller limit leaves its pages partly filled.
const PAGES_MIN: u64 = 8;
/// Two buffers of one page each.
pub(super) const BUFFER_WORDS: usize = 2 * ENTRIES_PER_PAGE * 2;
/// Reclaiming pays only if more than one entry in this many is invalid.
const INVALID_SHARE: u64 = 20;

pub(super) struct FLog {
    base: usize,
    /// Entries per log page.
    slots: usize,
    pages_max: usize,
    pages: Vec<Ppn>,
    superblocks: Vec<SbId>,
    /// Index of the buffer being filled, and its number of entries.
    buffer: usize,
    buffered: usize,
    clears: [ClearId; 2],
    /// Entries that recovery found in the buffers.
    saved: Vec<u64>,
    /// There was no flash space for a page, at recovery or since: the buffers keep their contents,
    /// and no entry is added.
    stuck: bool,
    /// Log superblocks in which recovery found entries of aborted commands.
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

/// Superblocks of a full log; rewriting it needs as many again.
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
            base: NvramLayout::new(config, geometry).scheme,
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
    /// Charges reading all pages and scanning all entries. Both published platforms (FAST'21's
    /// emulator and simulator) charge the latter like a scan of a log in NVRAM.
    fn charge_scan(&self, media: &mut Media) {
        media.charge_flash_scan(self.pages.len(), Purpose::Gc);
        media.charge_loads(2 * self.pages.len() * self.slots, Purpose::Gc);
    }

    /// Returns true if a log page can be programmed now and GC can still open a superblock in each
    /// of its zones.
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
        // Now, not at the next entry: `admit` reserved a page for this one.
        if self.buffered == self.slots {
            self.flush(core);
        }
    }

    /// Programs the full buffer as a log page and switches to the other buffer.
    fn flush(&mut self, core: &mut Core) {
        let at = self.word(self.buffer, 0);
        let mut words: Vec<u64> = Vec::with_capacity(self.buffered * 2);
        let mut damaged = Vec::new();
        // A damaged slot keeps its place as zeroes; the rebuilt entry goes there.
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
        // Without a page the entries stay in the buffer, protected by the capacitor.
        let Some(page) = self.program(core, &words) else {
            self.stuck = true;
            return;
        };
        self.clears[self.buffer] =
            core.media
                .clear_capacitor(at, ENTRIES_PER_PAGE * 2, After::page(page));
        self.buffer ^= 1;
        self.buffered = 0;
    }

    /// Programs a log page. Returns `None` if no superblock can be opened: the reserved page is
    /// lost if blocks fail, or if a free superblock wears out when it is opened.
    #[must_use]
    fn program(&mut self, core: &mut Core, words: &[u64]) -> Option<Ppn> {
        loop {
            let Some(taken) = core.blocks.take(Stream::Log) else {
                log_pages::close(core);
                let opened = core
                    .blocks
                    .open_next(&mut core.media, Stream::Log, &mut core.clock);
                if !opened {
                    return None;
                }
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
            // The fence: the buffer's stores come before their page. If only the page survived a
            // cut, it could hold entries whose pages do not exist.
            let stored = StoredPage::Meta(words.as_bytes().into());
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
                return Some(page);
            }

            let (sb, offset) = (core.geometry.superblock(page), core.geometry.offset(page));
            core.blocks
                .fail_block(&mut core.media, sb, core.geometry.die_of_offset(offset));
        }
    }

    fn has_room(&self, blocks: &Superblocks, config: &Config, entries: u64) -> bool {
        // Free space is left for collection: the fullest superblock's references, and the page that
        // collects them.
        self.entries() + entries + u64::from(self.fullest) + self.slots as u64 <= self.capacity()
            && self.page_is_secured(blocks, config)
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
        // Collection may use the space that hosts leave free: no reserve here.
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
        // A single superblock cannot be reduced, and rewriting needs a page now.
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

    fn forget(
        &mut self,
        _: &mut Media,
        ended: &mut EndedFilters,
        _: &mut SchemeCounters,
        sb: SbId,
    ) {
        self.index.forget(sb);
        ended.start_over(sb);
        self.reclaim_pays_from = 0;
    }
}

impl Inspect for FLog {
    fn usage(&self, blocks: &Superblocks) -> Usage {
        Usage {
            capacity_bytes: self.capacity() * 16,
            used_bytes: self.entries() * 16,
            valid_bytes: blocks.remapped_total() * 16,
            entry_room_bytes: self.capacity() * 16,
            // The space that `admit` leaves free: the fullest superblock's entries, and the page
            // being collected.
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
