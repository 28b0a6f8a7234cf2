//! Local logs on flash without NVRAM, which FAST'21 §4.6 considers and rejects.
//!
//! Entries are collected by superblock in DRAM protected by a capacitor. A superblock with a page's
//! worth of entries has them programmed to a page of its own (`group_log`). If the cache is full,
//! the superblock with the most entries does so, however few they are. With many superblocks and a
//! small capacitor the pages are mostly empty: this is the write amplification of the paper's
//! argument, and the space on flash is consumed by pages, not by entries.
//!
//! The DRAM is part of the NVRAM image, without NVRAM's costs, like FLog's buffers: the capacitor
//! is assumed to work.
//!
//! Invariants: an entry is in the cache, or in a page of its superblock's group that was programmed
//! after it; a slot of the cache is reused only after it has been zeroed. Absent: pages on flash
//! (`group_log`).

use super::device_log;
use super::group_log::{self, DESTAGES, GroupLog, LogShape, keep_valid};
use super::log_entry::LogEntry;
use super::remap_ssd::append_in_force;
use crate::config::Config;
use crate::config::guard::{Guard, Guards};
use crate::config::kind::{HostBytes, Medium, SchemeFacts, SchemeKey};
use crate::config::layout::NvramLayout;
use crate::contract::{
    FlashNeed, GroupInfo, Inspect, LookAhead, OwnerLookup, OwnerRef, Ownership, Persist, Recover,
    Remapping, SchemeSpec, Usage,
};
use crate::core::Core;
use crate::error::Contradiction;
use crate::error::RecoveryError;
use crate::mapping::ended::EndedFilters;
use crate::mapping::tables::Tables;
use crate::recovery::witnesses::Witnesses;
use crate::scheme::entry::RmmEntry;
use crate::stats::{Demotion, SchemeCounters};
use crate::superblock::Superblocks;
use remap_ssd_media::slab::prefetch;
use remap_ssd_media::{After, ClearId, Geometry, Media, Ppn, Purpose, SbId};
use std::collections::VecDeque;

/// Number of pages that the capacitor can save.
const CACHE_PAGES: SchemeKey = SchemeKey {
    name: "cache_pages",
    unit: "pages",
    default: 64,
    least: 1,
    most: 1 << 16,
    about: "Pages' worth of entries cached under its capacitor.",
};

/// The scheme's declaration for the catalogue.
pub(super) const SPEC: SchemeSpec = SchemeSpec {
    check: |config, _| device_log::check(config, 8 * 3 * 16),
    flash_need,
    nvram_words: |config, _| cache_words(config),
    ..SchemeSpec::new(
        SchemeFacts {
            name: "local-flash",
            spans_all_dies: true,
            medium: Medium::Flash,
            guards: &[
                Guard::GroupPageAfterEntries,
                Guard::RewriteWaits,
                Guard::StaleGroupPages,
            ],
            keys: &[&CACHE_PAGES],
            counters: group_log::COUNTERS,
            host_bytes_per_page: HostBytes {
                dedup: 30,
                plain: 3,
            },
            ..SchemeFacts::DURABLE
        },
        |config, geometry| Box::new(LocalFlash::new(config, geometry)),
    )
};

/// Words of a slot of the cache.
const SLOT_WORDS: usize = 2;
/// Rewriting groups pays only if it gains more than one page in this many.
const GAIN_SHARE: usize = 20;
/// Look-ahead distance in remaps.
const AHEAD: usize = 16;
/// Remaps refused between two checks of whether rewriting pays.
const PATIENCE: u32 = 256;

/// A cached entry and its slot.
#[derive(Clone, Copy)]
struct CachedEntry {
    slot: u32,
    entry: RmmEntry,
}

pub(super) struct LocalFlash {
    guards: Guards,
    base: usize,
    /// Pages of the log that the host's remaps may fill.
    host_pages: usize,
    log: GroupLog,
    /// Cached entries of each superblock, oldest first; and their numbers, which are scanned often.
    cached: Vec<Vec<CachedEntry>>,
    counts: Vec<u32>,
    /// Empty slots, longest free first, with the zeroing to wait for.
    free: VecDeque<(u32, ClearId)>,
    slots: u32,
    free_min: usize,
    /// Slots that recovery found filled with entries that do not count.
    stale: Vec<u32>,
    /// Refusals left before the log is checked again.
    refusals_left: u32,
    all: Vec<RmmEntry>,
    kept: Vec<[u64; 2]>,
    released: Vec<CachedEntry>,
}

fn slots(config: &Config) -> usize {
    config.own(&CACHE_PAGES) as usize * LogShape::slots(config)
}

fn host_pages(config: &Config) -> usize {
    (config.log_bytes as usize / ((LogShape::slots(config) + 1) * 16)).max(1)
}

fn shape(config: &Config, geometry: &Geometry) -> LogShape {
    // When the host's pages are full, the cached entries may take a page for each superblock.
    let flushed = slots(config).min(geometry.superblocks() as usize);
    LogShape::new(config, geometry, host_pages(config) + flushed)
}

/// Superblocks of flash that the log needs.
pub(super) fn flash_need(config: &Config, geometry: &Geometry) -> FlashNeed {
    shape(config, geometry).superblocks(config, geometry)
}

/// Words that the capacitor saves.
pub(super) fn cache_words(config: &Config) -> usize {
    slots(config) * SLOT_WORDS
}

impl LocalFlash {
    /// An empty cache and an empty log.
    pub(super) fn new(config: &Config, geometry: &Geometry) -> Self {
        let slots = slots(config) as u32;
        Self {
            guards: config.guards,
            base: NvramLayout::new(config, geometry).scheme,
            host_pages: host_pages(config),
            log: GroupLog::new(shape(config, geometry), config, geometry),
            cached: vec![Vec::new(); geometry.superblocks() as usize],
            counts: vec![0; geometry.superblocks() as usize],
            free: (0..slots).map(|slot| (slot, ClearId::default())).collect(),
            slots,
            free_min: (slots as usize / 32).clamp(1, 64),
            stale: Vec::new(),
            refusals_left: 0,
            all: Vec::new(),
            kept: Vec::new(),
            released: Vec::new(),
        }
    }

    fn word(&self, slot: u32) -> usize {
        self.base + slot as usize * SLOT_WORDS
    }

    fn capacity(&self) -> u64 {
        (self.host_pages * self.log.slots()) as u64
    }

    fn append(
        &mut self,
        blocks: &Superblocks,
        media: &mut Media,
        remapping: &Remapping,
        purpose: Purpose,
    ) {
        let (slot, clear) = self
            .free
            .pop_front()
            .expect("a slot of the cache was secured");

        // 1. zeroes, and the page  2. the entry's words. The capacitor saves both words or, of an
        // entry that was being written, only one: its torn bit is then missing.
        let after = After::clear(clear).and(
            self.guards
                .waits(Guard::EntryAfterPage, After::page(remapping.ppn)),
        );

        media.store_capacitor(
            self.word(slot),
            &LogEntry::of(blocks, media.geometry(), remapping).words(),
            purpose,
            after,
        );

        let entry = RmmEntry::of(remapping, media.geometry().offset(remapping.ppn));
        let sb = media.geometry().superblock(remapping.ppn).0 as usize;
        self.cached[sb].push(CachedEntry { slot, entry });
        self.counts[sb] += 1;
    }

    /// Zeroes slots and appends them to the free list.
    fn release(&mut self, media: &mut Media, cached: &[CachedEntry]) {
        let after = self.guards.waits(Guard::ClearWaits, After::ALL);
        // At the end, so that the zeroing is long complete when a new entry that waits for it takes
        // the slot.
        for CachedEntry { slot, .. } in cached {
            let clear = media.clear_capacitor(self.word(*slot), SLOT_WORDS, after);
            self.free.push_back((*slot, clear));
        }
    }

    /// The superblock with the most cached entries, the first of several.
    fn fullest(&self) -> Option<SbId> {
        let most = self.counts.iter().copied().max().filter(|most| *most > 0)?;
        self.counts
            .iter()
            .position(|count| *count == most)
            .map(|sb| SbId(sb as u32))
    }

    /// Makes room for one more page of the host in the log; the reserve's pages are for garbage
    /// collection.
    fn make_page_room(&mut self, core: &mut Core) -> bool {
        if self.log.pages() < self.host_pages {
            return true;
        }
        // Checking whether rewriting pays scans all groups, so it is not done for each of many
        // refused remaps.
        if self.refusals_left > 0 {
            self.refusals_left -= 1;
            return false;
        }

        let pays = self
            .log
            .gains_more_than(&core.blocks, self.log.pages() / GAIN_SHARE);
        while pays && self.log.pages() >= self.host_pages {
            if !self.log.rewrite_best(core) {
                break;
            }
        }

        let found = self.log.pages() < self.host_pages;
        self.refusals_left = if found { 0 } else { PATIENCE };
        found
    }

    /// Programs a page with a superblock's oldest cached entries that are in force. Returns false
    /// if the log has no room.
    fn flush(&mut self, core: &mut Core, sb: SbId) -> bool {
        let cached = &self.cached[sb.0 as usize];
        // The oldest ones: in a group, a later page means newer entries.
        let count = cached.len().min(self.log.slots());
        self.all.clear();
        self.kept.clear();
        self.all
            .extend(cached[..count].iter().map(|cached| cached.entry));
        keep_valid(&mut core.tables, sb, &self.all, &mut self.kept);

        if !self.kept.is_empty() {
            if !self.log.secure(core, 1) || !self.log.append(core, sb, &self.kept) {
                return false;
            }
            core.stats.scheme.add(DESTAGES, 1);
        }

        // 1. the entries, each after the page it names  2. their page on flash, after all stores
        // 3. zeroes in the slots, after everything, including the witnesses that made the other
        // entries invalid. Cut before 2 or during it: the capacitor saved the entries. Between 2
        // and 3: both have the same content.
        let mut released = std::mem::take(&mut self.released);
        released.extend(self.cached[sb.0 as usize].drain(..count));
        self.counts[sb.0 as usize] -= count as u32;
        self.release(&mut core.media, &released);
        released.clear();

        self.released = released;
        true
    }

    /// Flushes until more than `free` slots are free; returns false if that is impossible.
    fn make_slots(&mut self, core: &mut Core, free: usize) -> bool {
        while self.free.len() <= free {
            let Some(sb) = self.fullest() else {
                return false;
            };
            if !self.make_page_room(core) || !self.flush(core, sb) {
                return false;
            }
        }
        true
    }
}

impl Persist for LocalFlash {
    fn admit(&mut self, core: &mut Core, ppn: Ppn, may_reclaim: bool) -> Result<(), Demotion> {
        if core.blocks.remapped_total() as f64 >= core.config.watermark * self.capacity() as f64 {
            return Err(Demotion::Watermark);
        }

        let sb = core.geometry.superblock(ppn);
        if self.log.is_numbered_out(sb) {
            return Err(Demotion::NvramFull);
        }

        let has_page = self.cached[sb.0 as usize].len() >= self.log.slots();
        if self.free.len() > self.free_min && !has_page {
            return Ok(());
        }

        // No slot is released during a command that a cut may undo: its entry would be in force
        // again. The prepared slots suffice.
        let room = if may_reclaim {
            let sb = if has_page { Some(sb) } else { self.fullest() };
            self.make_page_room(core) && sb.is_some_and(|sb| self.flush(core, sb))
        } else {
            !self.free.is_empty()
        };

        if room {
            Ok(())
        } else {
            Err(Demotion::NvramFull)
        }
    }

    fn persist(&mut self, core: &mut Core, remapping: &Remapping, purpose: Purpose) {
        self.append(&core.blocks, &mut core.media, remapping, purpose);
    }

    fn persist_moved(&mut self, core: &mut Core, remapping: &Remapping) -> bool {
        let sb = core.geometry.superblock(remapping.ppn);
        if self.cached[sb.0 as usize].len() >= self.log.slots() {
            self.flush(core, sb);
        }
        // Not limited to the host's pages: collection may use the reserve's, or its victim would
        // never be empty.
        while self.free.is_empty() {
            match self.fullest() {
                Some(sb) if self.flush(core, sb) => {}
                _ => return false,
            }
        }
        self.append(&core.blocks, &mut core.media, remapping, Purpose::Gc);
        true
    }

    fn prepare(&mut self, core: &mut Core, entries: u32) {
        self.make_slots(core, entries as usize);
    }

    fn give_back(&mut self, core: &mut Core) -> bool {
        self.log.give_back(core)
    }
}

impl Ownership for LocalFlash {
    fn owners(&mut self, lookup: OwnerLookup) {
        let OwnerLookup {
            tables,
            media,
            clock,
            sb,
            out,
        } = lookup;

        self.log.charge_read(media, sb);
        self.all.clear();
        let readable = self.log.read(media, sb, &mut self.all);
        self.all
            .extend(self.cached[sb.0 as usize].iter().map(|cached| cached.entry));
        // L2P replaces the unreadable page, with new numbers: a readable one must not count as
        // newer.
        if !readable {
            append_in_force(tables, clock, sb, &mut self.all);
        }
        out.extend(self.all.iter().map(OwnerRef::of));
    }

    fn forget(
        &mut self,
        media: &mut Media,
        ended: &mut EndedFilters,
        _: &mut SchemeCounters,
        sb: SbId,
    ) {
        self.log.forget(media.geometry(), sb);
        let mut cached = std::mem::take(&mut self.cached[sb.0 as usize]);
        self.counts[sb.0 as usize] = 0;
        ended.start_over(sb);
        self.release(media, &cached);
        cached.clear();
        self.cached[sb.0 as usize] = cached;

        // Its pages are garbage now, which may have made room.
        self.refusals_left = 0;
    }
}

impl Recover for LocalFlash {
    fn replay(&mut self, core: &mut Core, witnesses: &mut Witnesses) -> Result<(), RecoveryError> {
        self.log.replay(core, witnesses)?;
        // The contents of the slots determine which are free, not the constructor's assumption.
        self.free.clear();
        for slot in 0..self.slots {
            let word = self.word(slot);
            let words = [core.media.load(word), core.media.load(word + 1)];
            let [Ok(first), Ok(second)] = words else {
                LogEntry::doubt(&core.blocks, &core.config, witnesses, words)
                    .map_err(|_| RecoveryError::NvramDamaged { word })?;
                self.stale.push(slot);
                continue;
            };

            if first | second == 0 {
                self.free.push_back((slot, ClearId::default()));
                continue;
            }

            let entry = LogEntry::from_words([first, second]);
            let intact = entry.is_intact() || !core.config.guards.has(Guard::TornBits);
            if !intact || !entry.is_current(&core.blocks, core.geometry) {
                self.stale.push(slot);
                continue;
            }

            let ppn = Ppn(entry.ppn());
            let remapping = Remapping {
                lpn: entry.lpn(),
                ppn,
                wsn: entry.wsn(),
                source: None,
                atomic: None,
            };
            if !witnesses.remap(core, entry.lpn(), ppn, entry.wsn(), None) {
                self.stale.push(slot);
                continue;
            }
            let entry = RmmEntry::of(&remapping, core.geometry.offset(ppn));
            self.cached[core.geometry.superblock(ppn).0 as usize].push(CachedEntry { slot, entry });
        }

        self.cached
            .iter_mut()
            .for_each(|cached| cached.sort_by_key(|cached| cached.entry.wsn()));
        self.counts = self
            .cached
            .iter()
            .map(|cached| cached.len() as u32)
            .collect();
        Ok(())
    }

    fn resume(&mut self, core: &mut Core) -> bool {
        for slot in std::mem::take(&mut self.stale) {
            let clear = core.media.clear_capacitor(
                self.word(slot),
                SLOT_WORDS,
                core.config.guards.after_doubts(),
            );
            self.free.push_back((slot, clear));
        }
        true
    }
}

impl Inspect for LocalFlash {
    fn usage(&self, blocks: &Superblocks) -> Usage {
        let cached = u64::from(self.slots) - self.free.len() as u64;
        Usage {
            capacity_bytes: self.capacity() * 16,
            entry_room_bytes: self.capacity() * 16,
            used_bytes: (self.log.pages() * self.log.slots()) as u64 * 16 + cached * 16,
            valid_bytes: blocks.remapped_total() * 16,
            ..Usage::default()
        }
    }

    fn check(&self, tables: &Tables, _: &Superblocks, media: &Media) -> Result<(), Contradiction> {
        let cached: usize = self.cached.iter().map(Vec::len).sum();
        if !self.counts.iter().eq(self
            .cached
            .iter()
            .map(|cached| cached.len() as u32)
            .collect::<Vec<_>>()
            .iter())
        {
            return Err(Contradiction("cached entries are counted wrongly".into()));
        }

        if cached + self.free.len() != self.slots as usize {
            return Err(Contradiction(format!(
                "{cached} cached entries and {} free slots of {}",
                self.free.len(),
                self.slots
            )));
        }

        let known = |cached: &CachedEntry| (cached.entry.target(), cached.entry.offset());
        self.log.check(tables, media, |sb| {
            self.cached[sb.0 as usize].iter().map(known).collect()
        })
    }

    fn describe(&self, sb: SbId) -> Option<GroupInfo> {
        let (entries, flash_pages) = (
            self.cached[sb.0 as usize].len() as u32,
            self.log.pages_of(sb) as u32,
        );
        Some(GroupInfo {
            segments: Vec::new(),
            entries,
            pages: entries.into(),
            flash_pages,
        })
    }
}

impl LookAhead for LocalFlash {
    #[inline]
    fn look_ahead(&self, media: &Media, ppn: Ppn) {
        let cached = &self.cached[media.geometry().superblock(ppn).0 as usize];
        prefetch(cached, cached.len().wrapping_sub(1));
        if let Some((slot, _)) = self.free.get(AHEAD) {
            media.prefetch_word(self.word(*slot));
        }
    }
}
