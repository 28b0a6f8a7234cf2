//! FLog: the device-wide log on flash.
//!
//! Entries are collected in DRAM protected by a capacitor and programmed a page at a time, striped
//! over the dies of superblocks of their own. The size of the log is limited.
//!
//! Invariants: an entry is in one of the two buffers or in a durable log page; a buffer is reused
//! only after its page is durable. Absent: when the log is reclaimed (`device_log`).

mod reclaim;
mod recover;

use crate::config::Config;
use crate::config::guard::Guard;
use crate::config::kind::{Hue, Medium, SchemeFacts};
use crate::config::layout::NvramLayout;
use crate::contract::{FlashNeed, Remapping, SchemeSpec};
use crate::core::Core;
use crate::error::Contradiction;
use crate::mapping::tables::Tables;
use crate::scheme::device_log::{self, DeviceLog, LogMedium};
use crate::scheme::index::OwnerIndex;
use crate::scheme::log_entry::{ENTRIES_PER_PAGE, LogEntry};
use crate::scheme::log_pages;
use crate::superblock::{Stream, Superblocks};
use remap_ssd_media::{After, ClearId, Geometry, Media, Oob, Ppn, Purpose, SbId, StoredPage};
use std::collections::BTreeSet;
use zerocopy::IntoBytes;

/// The scheme's declaration for the catalogue.
pub(super) const SPEC: SchemeSpec = SchemeSpec {
    check: |config, _| device_log::check(config, PAGES_MIN * 32),
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
        |config, geometry| {
            Box::new(DeviceLog::new(
                FLog::new(config, geometry),
                config,
                geometry,
            ))
        },
    )
};

const PAGE_BYTES: u64 = remap_ssd_media::geometry::PAGE_BYTES as u64;
/// Pages of the smallest log; a smaller limit leaves its pages partly filled.
const PAGES_MIN: u64 = 8;
/// Two buffers of one page each.
pub(super) const BUFFER_WORDS: usize = 2 * ENTRIES_PER_PAGE * 2;

pub(super) struct FLog {
    base: usize,
    /// Entries per log page.
    slots: usize,
    pages_max: usize,
    /// Superblocks that collection may open.
    gc_opens: u32,
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

impl FLog {
    pub(super) fn new(config: &Config, geometry: &Geometry) -> Self {
        let (pages_max, slots) = shape(config);
        Self {
            base: NvramLayout::new(config, geometry).scheme,
            slots,
            pages_max,
            gc_opens: config.gc_opens() as u32,
            pages: Vec::new(),
            superblocks: Vec::new(),
            buffer: 0,
            buffered: 0,
            clears: [ClearId::default(); 2],
            saved: Vec::new(),
            stuck: false,
            aborted: BTreeSet::new(),
        }
    }

    fn word(&self, buffer: usize, slot: usize) -> usize {
        self.base + (buffer * ENTRIES_PER_PAGE + slot) * 2
    }

    /// Returns true if a log page can be programmed now and GC can still open a superblock in each
    /// of its zones.
    fn page_is_secured(&self, blocks: &Superblocks) -> bool {
        blocks.room(Stream::Log) > 1 || blocks.free() > 1 + self.gc_opens
    }

    /// Returns true if a host's entry leaves the reserve free.
    fn fits(&self, fullest: u32) -> bool {
        self.entries() + 1 + self.reserve(fullest) <= self.capacity()
    }

    /// Programs the full buffer as a log page and switches to the other buffer.
    fn flush(&mut self, core: &mut Core, index: &OwnerIndex) {
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
                index,
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
}

impl LogMedium for FLog {
    fn capacity(&self) -> u64 {
        (self.pages_max * self.slots) as u64
    }

    fn entries(&self) -> u64 {
        (self.pages.len() * self.slots + self.buffered) as u64
    }

    fn slots(&self) -> usize {
        self.slots
    }

    /// The fullest superblock's references, and the page that collects them.
    fn reserve(&self, fullest: u32) -> u64 {
        u64::from(fullest) + self.slots as u64
    }

    /// Charges reading all pages and scanning all entries. Both published platforms (FAST'21's
    /// emulator and simulator) charge the latter like a scan of a log in NVRAM.
    fn charge_scan(&self, media: &mut Media) {
        media.charge_flash_scan(self.pages.len(), Purpose::Gc);
        media.charge_loads(2 * self.pages.len() * self.slots, Purpose::Gc);
    }

    fn is_stuck(&self) -> bool {
        self.stuck
    }

    fn has_slot(&self, core: &Core, fullest: u32) -> bool {
        // This entry would fill the buffer, and a full buffer is programmed at once.
        let page_needed = self.buffered + 1 == self.slots;
        self.fits(fullest) && (!page_needed || self.page_is_secured(&core.blocks))
    }

    fn has_room(&self, core: &Core, fullest: u32) -> bool {
        self.fits(fullest) && self.page_is_secured(&core.blocks)
    }

    fn has_room_to_move(&self, core: &Core) -> bool {
        self.entries() < self.capacity() && self.page_is_secured(&core.blocks) && !self.stuck
    }

    fn room_to_move(&self, blocks: &Superblocks) -> u64 {
        if self.stuck {
            return 0;
        }
        // As in `page_is_secured`, before each page: collection opens superblocks in between.
        let spare = blocks.free().saturating_sub(1 + 2 * self.gc_opens);
        let pages = u64::from(blocks.room(Stream::Log))
            + blocks.free_pages(spare as usize, self.pages_max as u64);
        let entries = pages.saturating_sub(1) * self.slots as u64;
        let entries = entries.saturating_sub(self.buffered as u64);
        entries.min(self.capacity().saturating_sub(self.entries()))
    }

    fn can_reclaim(&self, core: &Core) -> bool {
        // The old and the new log coexist until the new one is durable.
        core.blocks.free() > self.superblocks_of_valid(&core.config, &core.blocks, core.geometry)
    }

    fn append(&mut self, core: &mut Core, index: &OwnerIndex, next: &Remapping, purpose: Purpose) {
        let after = After::clear(self.clears[self.buffer]).and(
            core.config
                .guards
                .waits(Guard::EntryAfterPage, After::page(next.ppn)),
        );
        let at = self.word(self.buffer, self.buffered);
        core.media.store_capacitor(
            at,
            &LogEntry::of(&core.blocks, core.geometry, next).words(),
            purpose,
            after,
        );

        self.buffered += 1;
        // Now, not at the next entry: `admit` reserved a page for this one.
        if self.buffered == self.slots {
            self.flush(core, index);
        }
    }

    fn reclaim(&mut self, core: &mut Core, index: &mut OwnerIndex) {
        self.rewrite(core, index, false);
    }

    fn give_back(&mut self, core: &mut Core, index: &mut OwnerIndex) -> bool {
        let before = self.superblocks.len();
        // A single superblock cannot be reduced, and rewriting needs a page now.
        if before < 2 || !self.page_is_secured(&core.blocks) {
            return false;
        }
        self.rewrite(core, index, true);
        self.superblocks.len() < before
    }

    fn check(
        &self,
        index: &OwnerIndex,
        tables: &Tables,
        _: &Superblocks,
        _: &Media,
    ) -> Result<(), Contradiction> {
        index.check_ended_noticed(tables)
    }
}
