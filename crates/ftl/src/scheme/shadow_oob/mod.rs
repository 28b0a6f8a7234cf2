//! Copyless Copy (HPCC'19 §II): the LPNs that share a page are in DRAM, in a *shadow* of its OOB.
//!
//! A page counts its LPNs with n bits, and its shadow names those that the OOB does not, up to
//! 2^n - 1 in total (`count_max`). A remap is just a store to DRAM. When power fails, a capacitor
//! has the energy to program `energy_pages` flash pages, and the shadows are programmed to flash
//! kept erased for them (`saved`). Recovery reads only flash.
//!
//! DRAM is part of the NVRAM image, without NVRAM's costs: `log_bytes` of entries. As in all
//! schemes, L2P and counts are not saved but follow from OOBs, tails and entries, so a mapping
//! needs an entry only if no OOB names it.
//!
//! Order at power-on: 1. reserved flash is opened: erased, and its heads  2. the entries in force
//! are stored in DRAM  3. the device is *armed*, after everything  4. new entries (fence)  5. the
//! pages saved before are erased, after everything. Cut before 3: nothing is saved, and the pages
//! saved before count. After 3: DRAM is saved, and it is complete; the pages saved before have
//! nothing newer.
//!
//! Invariants: while armed, every remapped LPN has an entry in DRAM, and the reserved flash has
//! room for all slots; while not armed, every one has a saved entry, and no entry is added. A slot
//! is reused only after it has been zeroed, which waits for everything that superseded its entry.
//! Absent: the saving after a power failure (`saved`).

mod arm;
mod reclaim;
mod recover;
mod saved;

use super::log_entry::LogEntry;
use super::room::references_beyond;
use crate::config::Config;
use crate::config::guard::{Guard, Guards};
use crate::config::kind::{Medium, SchemeFacts, SchemeKey};
use crate::config::layout::NvramLayout;
use crate::contract::{
    CopiesOf, FlashNeed, GroupInfo, Inspect, LookAhead, OwnerLookup, OwnerRef, Ownership, Persist,
    Remapping, SchemeSpec, Usage,
};
use crate::core::Core;
use crate::error::ConfigError;
use crate::error::Contradiction;
use crate::mapping::ended::EndedFilters;
use crate::mapping::tables::Tables;
use crate::stats::{Demotion, SchemeCounters};
use crate::superblock::Superblocks;
use recover::LogSuperblocks;
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_media::{After, ClearId, Geometry, Lpn, Media, Ppn, Purpose, SbId};
use saved::{ReservedFlash, SLOT_WORDS};
use std::collections::{BTreeSet, VecDeque};

const ENERGY_PAGES: SchemeKey = SchemeKey {
    name: "energy_pages",
    unit: "pages",
    default: 0,
    least: 0,
    most: u32::MAX as u64,
    about: "Flash pages that the capacitor programs when power fails; 0 is as many as its DRAM fills.",
};

/// The scheme's declaration for the catalogue.
pub(super) const SPEC: SchemeSpec = SchemeSpec {
    check,
    flash_need,
    nvram_words: words,
    ..SchemeSpec::new(
        SchemeFacts {
            name: "shadow-oob",
            spans_all_dies: true,
            medium: Medium::Flash,
            // `UnsharedRenewed`: among remaps that stay in force, some are to pages older than the
            // LPN's previous mapping.
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

/// Sweeping pays only if it gains more than one slot in this many.
const STALE_SHARE: usize = 20;
/// Fraction of the slots gained at a time, as a divisor.
const SWEPT_SHARE: usize = 64;
/// The slot of an entry that is only on flash.
const SAVED: u32 = u32::MAX;
/// The LPN of an entry that is being dropped; valid LPNs have 31 bits.
const DROPPED: Lpn = Lpn(u32::MAX);

/// An entry and its slot. There are as many as remaps, and they are scanned often.
#[derive(Clone, Copy)]
struct EntryTag {
    slot: u32,
    lpn: Lpn,
    /// 42 bits of sequence number above 21 bits of page offset.
    place: u64,
}

const _: () = assert!(size_of::<EntryTag>() == 16);

impl EntryTag {
    fn new(slot: u32, lpn: Lpn, offset: u32, wsn: u64) -> Self {
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

pub(super) struct ShadowOob {
    guards: Guards,
    geometry: Geometry,
    reserve: ReservedFlash,
    /// Pages may have many owners, so collection may gather more in a superblock than there is room for.
    many_owners: bool,
    /// True if DRAM will be saved at a power loss.
    armed: bool,
    found: LogSuperblocks,
    /// Entries by the superblock of their page. Of several with the same LPN and offset the last is
    /// the newest.
    tags: Vec<Vec<EntryTag>>,
    /// Empty slots, longest free first, with the zeroing to wait for.
    free: VecDeque<(u32, ClearId)>,
    /// Largest number of LPNs remapped to pages of one superblock: the slots that collecting it
    /// takes.
    fullest: u32,
    /// Number of stale entries below which searching for them does not pay.
    reclaim_pays_from: usize,
    /// Entries that may not be in force.
    doubtful: Vec<u32>,
}

fn reserve(config: &Config, geometry: &Geometry, base: usize) -> ReservedFlash {
    ReservedFlash::new(config, geometry, base)
}

/// Words of DRAM that the capacitor saves.
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
    pub(super) fn new(config: &Config, geometry: &Geometry) -> Self {
        let reserve = reserve(config, geometry, NvramLayout::new(config, geometry).scheme);
        Self {
            guards: config.guards,
            geometry: *geometry,
            reserve,
            many_owners: config.has_many_owners(),
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

    /// The superblock of a page is about to have one more remapped LPN, by a host or by collection.
    fn expect_one_more(&mut self, core: &Core, ppn: Ppn) {
        let sb = core.geometry.superblock(ppn);
        self.fullest = self.fullest.max(core.blocks.owners(sb).remapped + 1);
    }

    fn used(&self) -> usize {
        self.reserve.slots - self.free.len()
    }

    /// Stores an entry in the slot that has been free longest.
    fn store(
        &mut self,
        blocks: &Superblocks,
        media: &mut Media,
        entry: &Remapping,
        purpose: Purpose,
    ) -> u32 {
        let (slot, clear) = self.free.pop_front().expect("a slot was secured");

        // 1. zeroes, and the page  2. the entry's words. DRAM keeps both or, of an entry that was
        // being written, only one: its torn bit is then missing.
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

    /// Zeroes a slot, after everything that superseded its entry, and frees it.
    fn release(&mut self, media: &mut Media, slot: u32) {
        // It is only on flash, and disappears with its superblock.
        if slot == SAVED {
            return;
        }
        let after = self.guards.waits(Guard::ClearWaits, After::ALL);
        let clear = media.clear_capacitor(self.reserve.slot_word(slot), SLOT_WORDS, after);
        self.free.push_back((slot, clear));
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

        self.expect_one_more(core, ppn);
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
        // An entry in DRAM that will not be saved does not count.
        if !self.armed || self.free.is_empty() {
            return false;
        }
        if self.many_owners {
            self.expect_one_more(core, remapping.ppn);
        }
        self.append(&core.blocks, &mut core.media, remapping, Purpose::Gc);
        true
    }

    fn references_without_room<'a>(
        &'a self,
        tables: &'a Tables,
        blocks: &'a Superblocks,
    ) -> Option<CopiesOf<'a>> {
        let room = if self.armed {
            self.free.len() as u32
        } else {
            0
        };
        if self.many_owners {
            return Some(references_beyond(room.into(), tables, blocks));
        }
        Some(Box::new(move |sb| {
            blocks.owners(sb).remapped.saturating_sub(room)
        }))
    }

    fn prepare(&mut self, core: &mut Core, entries: u32) {
        // Each may also raise the fullest superblock's count.
        let entries = 2 * entries as usize;
        if (self.armed || self.arm(core)) && !self.has_room(entries) {
            self.make_room(core, entries);
        }
    }
}

impl Ownership for ShadowOob {
    fn owners(&mut self, lookup: OwnerLookup) {
        let OwnerLookup { sb, out, .. } = lookup;

        let owner = |tag: &EntryTag| OwnerRef {
            offset: tag.offset(),
            lpn: tag.lpn,
            wsn: tag.wsn(),
            source: None,
        };
        out.extend(self.tags[sb.0 as usize].iter().map(owner));
    }

    fn forget(
        &mut self,
        media: &mut Media,
        ended: &mut EndedFilters,
        _: &mut SchemeCounters,
        sb: SbId,
    ) {
        for tag in std::mem::take(&mut self.tags[sb.0 as usize]) {
            self.release(media, tag.slot);
        }
        ended.start_over(sb);
        self.reclaim_pays_from = 0;
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

    fn check(
        &self,
        tables: &Tables,
        blocks: &Superblocks,
        media: &Media,
    ) -> Result<(), Contradiction> {
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
                    return Err(Contradiction(format!(
                        "an entry for LPN {} ended unnoticed",
                        tag.lpn
                    )));
                }

                if (tag.slot == SAVED) == self.armed {
                    return Err(Contradiction(format!(
                        "the entry of LPN {} is not where it should be",
                        tag.lpn
                    )));
                }

                let word = self
                    .reserve
                    .slot_word(if self.armed { tag.slot } else { 0 });
                let stored = [media.peek(word), media.peek(word + 1)];

                if self.armed
                    && (stored != LogEntry::of(blocks, tables.geometry, &entry).words()
                        || !slots.insert(tag.slot))
                {
                    return Err(Contradiction(format!(
                        "slot {} does not say what is known of it",
                        tag.slot
                    )));
                }
            }
        }

        if slots.len() != self.reserve.slots {
            return Err(Contradiction(format!(
                "{} slots of {} are known",
                slots.len(),
                self.reserve.slots
            )));
        }

        let mut known: Vec<BTreeSet<(Lpn, u32)>> = Vec::with_capacity(self.tags.len());
        known.extend(
            self.tags
                .iter()
                .map(|tags| tags.iter().map(|tag| (tag.lpn, tag.offset())).collect()),
        );

        for lpn in Lpn::range(Lpn::ZERO, tables.map.len()) {
            let Some(mapping) = tables.map.get(lpn).filter(|mapping| mapping.remapped) else {
                continue;
            };
            let sb = tables.geometry.superblock(mapping.ppn);
            if !known[sb.0 as usize].contains(&(lpn, tables.geometry.offset(mapping.ppn))) {
                return Err(Contradiction(format!(
                    "LPN {lpn} is remapped to {:?} and no entry says so",
                    mapping.ppn
                )));
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
