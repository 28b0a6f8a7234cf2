//! PebbleSSD (MEMSYS'17 §4.2.1): the P2L table is in NVRAM and is updated in place.
//!
//! Each flash page has `degree` slots of 8 bytes at an address that follows from its number. Its
//! OOB names the LPN it was written for, as usual; a slot names another LPN that was remapped to
//! it. A remap is one atomic store. A page whose slots are all taken is copied instead (P-type
//! remapping: the degree is bounded).
//!
//! A slot stores the number of its remap as an age: the distance from the `base` of the
//! superblock's room. The base is in the room's head, one word per superblock, with the incarnation
//! of the slots. A page is also copied if its room is older than an age can express (2^32 numbers,
//! 16 TiB of writes). GC's entries get new numbers if theirs are older than the base: a reference
//! in force has the newest number of its LPN, so it may get a newer one.
//!
//! Invariants: a remapped LPN in force has a slot of its page; a slot that is not empty is
//! overwritten only by a newer entry of its own LPN, or after the witness that superseded its entry
//! is durable; no slot is used before it has been zeroed since the room's last incarnation. Absent:
//! L2P in NVRAM. The paper's device keeps it there; its stores are charged, but recovery uses OOBs
//! and slots.

mod check;
mod recover;

use crate::clock::WsnClock;
use crate::config::Config;
use crate::config::guard::{Guard, Guards};
use crate::config::kind::{HostBytes, Medium, SchemeFacts, SchemeKey};
use crate::config::layout::NvramLayout;
use crate::contract::{
    LookAhead, OwnerLookup, OwnerRef, Ownership, Persist, Remapping, SchemeSpec,
};
use crate::core::Core;
use crate::error::ConfigError;
use crate::mapping::ended::EndedFilters;
use crate::mapping::tables::Tables;
use crate::stats::{Counter, Demotion, SchemeCounters};
use crate::superblock::Superblocks;
use bitfield_struct::bitfield;
use remap_ssd_media::{After, ClearId, Geometry, Lpn, Media, Ppn, Purpose, SbId};

const COUNTERS: &[&str] = &["slots_reused", "slot_clears"];
/// Slots whose superseded entry was overwritten.
const SLOTS_REUSED: Counter = Counter::named("slots_reused", COUNTERS);
/// Rooms zeroed when their superblock was erased.
const SLOT_CLEARS: Counter = Counter::named("slot_clears", COUNTERS);

/// Slots per page. Reference counters have four bits, and the page's first owner has no slot.
const DEGREE: SchemeKey = SchemeKey {
    name: "degree",
    unit: "",
    default: 2,
    least: 1,
    most: 14,
    about: "LPNs that may be remapped to a flash page at a time: its slots in NVRAM.",
};

/// The scheme's declaration for the catalogue.
pub(super) const SPEC: SchemeSpec = SchemeSpec {
    check,
    nvram_words,
    tables_bytes,
    ..SchemeSpec::new(
        SchemeFacts {
            name: "pebble",
            needs_pages: Some("keeps a table of pages in NVRAM"),
            medium: Medium::Tables,
            // A word of L2P and one of P2L: "the write and remap commands always update [both]
            // tables together".
            table_store_bytes: L2P_WORD_BYTES + 8,
            guards: &[Guard::SlotReuse],
            keys: &[&DEGREE],
            counters: COUNTERS,
            host_bytes_per_page: HostBytes {
                dedup: 10,
                plain: 0,
            },
            ..SchemeFacts::DURABLE
        },
        |config, geometry| Box::new(Pebble::new(config, geometry)),
    )
};

/// Number of ages that a slot can express.
const AGES: u64 = 1 << 32;
/// Bytes of an L2P entry (MEMSYS'17 §6.5).
const L2P_BYTES: u64 = 4;
/// Bytes stored when the mapping of a page changes: a word of L2P.
const L2P_WORD_BYTES: u32 = 8;

/// The head of a superblock's room.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
struct RoomHead {
    valid: bool,
    /// Incarnation of the superblock that the slots belong to.
    #[bits(21)]
    incarnation: u32,
    /// Sequence number of age 0.
    #[bits(42)]
    base: u64,
}

/// A slot; empty if all zeroes.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
struct OwnerSlot {
    valid: bool,
    /// LPN that was remapped to this page.
    #[bits(31)]
    lpn: Lpn,
    /// Sequence number of the remap minus the room's base.
    #[bits(32)]
    age: u32,
}

/// The slots of one superblock.
#[derive(Clone, Copy, Default)]
struct SlotRoom {
    /// Sequence number of age 0, once the head is stored.
    base: Option<u64>,
    /// The zeroing that its first entry must wait for.
    clear: ClearId,
    taken: u32,
}

/// DRAM state of the scheme.
pub(super) struct Pebble {
    guards: Guards,
    /// First word of the heads, and of the slots.
    heads: usize,
    slots: usize,
    degree: usize,
    rooms: Vec<SlotRoom>,
    table_bytes: TableBytes,
    /// Unreadable at recovery: slots without an entry, and heads of rooms.
    damaged: Vec<usize>,
    headless: Vec<SbId>,
}

/// Bytes of the two tables.
#[derive(Clone, Copy)]
struct TableBytes {
    l2p: u64,
    p2l: u64,
}

impl TableBytes {
    fn of(config: &Config, geometry: &Geometry) -> Self {
        let lpns = u64::from(config.lpns) + u64::from(config.internal_lpns());
        Self {
            l2p: lpns * L2P_BYTES,
            p2l: nvram_words(config, geometry) as u64 * 8,
        }
    }
}

/// Words of the scheme's region: heads and slots.
pub(super) fn nvram_words(config: &Config, geometry: &Geometry) -> usize {
    geometry.superblocks() as usize + geometry.pages() as usize * config.own(&DEGREE) as usize
}

/// Bytes of NVRAM for both tables.
pub(super) fn tables_bytes(config: &Config, geometry: &Geometry) -> u64 {
    let TableBytes { l2p, p2l } = TableBytes::of(config, geometry);
    l2p + p2l
}

pub(super) fn check(config: &Config, geometry: &Geometry) -> Result<(), ConfigError> {
    let TableBytes { l2p, p2l } = TableBytes::of(config, geometry);
    if config.log_bytes < l2p + p2l {
        return Err(ConfigError(format!(
            "log_bytes = {} is too small for both mapping tables in NVRAM, {l2p} bytes for L2P and {p2l} for P2L at \
             degree {}: use at least {} bytes",
            config.log_bytes,
            config.own(&DEGREE),
            l2p + p2l
        )));
    }

    Ok(())
}

impl Pebble {
    pub(super) fn new(config: &Config, geometry: &Geometry) -> Self {
        let heads = NvramLayout::new(config, geometry).scheme;
        Self {
            guards: config.guards,
            heads,
            slots: heads + geometry.superblocks() as usize,
            degree: config.own(&DEGREE) as usize,
            rooms: vec![SlotRoom::default(); geometry.superblocks() as usize],
            table_bytes: TableBytes::of(config, geometry),
            damaged: Vec::new(),
            headless: Vec::new(),
        }
    }

    fn head_word(&self, sb: SbId) -> usize {
        self.heads + sb.0 as usize
    }

    /// First slot of a page.
    fn slot_word(&self, ppn: Ppn) -> usize {
        self.slots + ppn.0 as usize * self.degree
    }

    /// Chooses a slot of a page for another entry, and returns the constraint for overwriting it. A
    /// slot that already names `lpn` is preferred. `reuse`: slots with superseded entries may be
    /// taken.
    fn choose(
        &self,
        tables: &Tables,
        media: &mut Media,
        ppn: Ppn,
        lpn: Option<Lpn>,
        reuse: bool,
    ) -> Option<(usize, After)> {
        let (mut empty, mut stale) = (None, None);
        let first = self.slot_word(ppn);
        for at in first..first + self.degree {
            // The content of a damaged slot is unknown: it is left alone.
            let Ok(word) = media.load(at) else {
                continue;
            };
            if word == 0 {
                empty = empty.or(Some(at));
                continue;
            }

            let slot = OwnerSlot::from_bits(word);
            // In force; or an older entry of the same mapping, while the newer one may belong to an
            // aborted command.
            if !reuse || tables.map.is_remapped_at(slot.lpn(), ppn) {
                continue;
            }
            if lpn == Some(slot.lpn()) {
                // The store is atomic and newer, of the same LPN: no cut can lose both.
                return Some((at, self.entry_after(tables.geometry, ppn)));
            }

            stale = stale.or(Some((at, slot.lpn())));
        }

        // An empty slot avoids the wait for the witness that superseded an old entry.
        let empty = empty.map(|at| (at, self.entry_after(tables.geometry, ppn)));
        empty.or_else(|| stale.map(|(at, old)| (at, self.superseded(tables, ppn, old))))
    }

    /// Constraint: nothing is stored in a room before its slots are zero.
    fn zeroed(&self, sb: SbId) -> After {
        self.guards.waits(
            Guard::SegmentZeroed,
            After::clear(self.rooms[sb.0 as usize].clear),
        )
    }

    /// Constraint of an entry in an empty slot: its page, and the zeroing of the room.
    fn entry_after(&self, geometry: Geometry, ppn: Ppn) -> After {
        let after = self.zeroed(geometry.superblock(ppn));
        after.and(self.guards.waits(Guard::EntryAfterPage, After::page(ppn)))
    }

    /// Constraint for overwriting the stale entry of `old`.
    fn superseded(&self, tables: &Tables, ppn: Ppn, old: Lpn) -> After {
        if !self.guards.has(Guard::SlotReuse) {
            return self.entry_after(tables.geometry, ppn);
        }

        // 1. the witness in force of the old LPN: the page written for it, or a store (an entry, a
        // record of a deallocation; the commit, for an atomic command)  2. the new entry. Cut
        // before 2: the old entry still exists, and may be the newest durable one. The fence covers
        // the old entry too, and so the page.
        let written = old
            .is_below(tables.map.len())
            .then(|| tables.map.get(old))
            .flatten()
            .filter(|mapping| !mapping.remapped);
        written.map_or(After::FENCE, |mapping| {
            After::FENCE.and(After::page(mapping.ppn))
        })
    }

    /// Stores the head of a superblock's room with this `base` (age 0), unless it has one; returns
    /// its base.
    fn open_room(
        &mut self,
        blocks: &Superblocks,
        media: &mut Media,
        sb: SbId,
        base: u64,
        purpose: Purpose,
    ) -> u64 {
        if let Some(base) = self.rooms[sb.0 as usize].base {
            return base;
        }

        // 1. zeroes in all slots  2. the head  3. entries (fence). Cut before 2: the head, if any,
        // is of an earlier incarnation and no slot counts. A head that landed first would vouch for
        // the slots of that incarnation.
        let after = self.zeroed(sb);
        let incarnation = blocks.get(sb).life.incarnation();
        let head = RoomHead::new()
            .with_valid(true)
            .with_incarnation(incarnation)
            .with_base(base);
        media.store(self.head_word(sb), head.into(), purpose, after);
        media.fence();

        self.rooms[sb.0 as usize].base = Some(base);
        base
    }

    /// Stores an entry in the chosen slot; returns false if its age cannot be expressed.
    fn fill(
        &mut self,
        core: &mut Core,
        (at, after): (usize, After),
        remapping: &Remapping,
        purpose: Purpose,
    ) -> bool {
        let sb = core.geometry.superblock(remapping.ppn);
        let base = self.open_room(&core.blocks, &mut core.media, sb, remapping.wsn, purpose);
        let Ok(age) = u32::try_from(remapping.wsn - base) else {
            return false;
        };
        match core.media.load(at) {
            Ok(0) => self.rooms[sb.0 as usize].taken += 1,
            _ => core.stats.scheme.add(SLOTS_REUSED, 1),
        }

        // 1. the page  2. the entry, atomically. An entry that landed before its page would name
        // the page programmed there next.
        let slot = OwnerSlot::new()
            .with_valid(true)
            .with_lpn(remapping.lpn)
            .with_age(age);
        core.media.store_record(at, &[slot.into()], purpose, after);

        // L2P of the target, and of the source if it loses the page.
        core.charge_tables(
            remapping.ppn,
            L2P_WORD_BYTES * (1 + u32::from(remapping.source.is_some())),
            purpose,
        );
        true
    }

    fn is_too_old(&self, wsn: u64, sb: SbId) -> bool {
        // Two numbers of slack: the entry's own, and that of a head being stored.
        self.rooms[sb.0 as usize]
            .base
            .is_some_and(|base| wsn + 2 - base >= AGES)
    }

    /// Appends the owners in the slots of one page, the newest last.
    fn push_page(
        offset: u32,
        base: u64,
        slots: impl Iterator<Item = u64>,
        out: &mut Vec<OwnerRef>,
    ) {
        let first = out.len();
        out.extend(slots.filter(|word| *word != 0).map(|word| {
            let slot = OwnerSlot::from_bits(word);
            OwnerRef {
                offset,
                lpn: slot.lpn(),
                wsn: base + u64::from(slot.age()),
                source: None,
            }
        }));

        // Slots are reused in place, so they are not ordered by age. The contract requires the
        // newest last.
        if out.len() > first + 1 {
            out[first..].sort_unstable_by_key(|owner| owner.wsn);
        }
    }
}

impl Persist for Pebble {
    fn admit(&mut self, core: &mut Core, ppn: Ppn, may_reclaim: bool) -> Result<(), Demotion> {
        if self.is_too_old(core.clock.now(), core.geometry.superblock(ppn)) {
            return Err(Demotion::NvramFull);
        }
        // An atomic command overwrites nothing: entries it supersedes count again if it is aborted.
        self.choose(&core.tables, &mut core.media, ppn, None, may_reclaim)
            .map(drop)
            .ok_or(Demotion::DegreeFull)
    }

    fn persist(&mut self, core: &mut Core, remapping: &Remapping, purpose: Purpose) {
        let reuse = remapping.atomic.is_none();
        let place = self
            .choose(
                &core.tables,
                &mut core.media,
                remapping.ppn,
                Some(remapping.lpn),
                reuse,
            )
            .expect("a slot was secured");
        assert!(
            self.fill(core, place, remapping, purpose),
            "the room is young enough"
        );
    }

    fn persist_moved(&mut self, core: &mut Core, remapping: &Remapping) -> bool {
        let sb = core.geometry.superblock(remapping.ppn);
        if self.is_too_old(core.clock.now(), sb) {
            return false;
        }
        let Some(place) = self.choose(&core.tables, &mut core.media, remapping.ppn, None, false)
        else {
            return false;
        };

        // A reference may be older than its new room, and ages are not negative. In force it is the
        // newest of its LPN, so a new number changes nothing.
        let base = self.rooms[sb.0 as usize].base.unwrap_or(core.clock.now());
        let wsn = if remapping.wsn < base {
            core.clock.tick()
        } else {
            remapping.wsn
        };
        self.open_room(&core.blocks, &mut core.media, sb, base, Purpose::Gc);
        self.fill(core, place, &Remapping { wsn, ..*remapping }, Purpose::Gc)
    }
}

impl Ownership for Pebble {
    fn owners(&mut self, lookup: OwnerLookup) {
        let OwnerLookup {
            tables,
            media,
            clock,
            sb,
            out,
        } = lookup;

        let SlotRoom {
            base: Some(base),
            taken,
            ..
        } = self.rooms[sb.0 as usize]
        else {
            return;
        };

        // Rooms without entries cost no read: most superblocks have none.
        if taken == 0 {
            return;
        }

        let geometry = tables.geometry;
        let pages = || (0..geometry.pages_per_superblock()).map(|at| (at, geometry.page(sb, at)));
        let live = pages()
            .filter(|(_, ppn)| !tables.counts.is_zero(*ppn))
            .count();
        media.charge_loads(live * self.degree, Purpose::Gc);

        let mut lost = false;
        for (offset, ppn) in pages().filter(|(_, ppn)| !tables.counts.is_zero(*ppn)) {
            let at = self.slot_word(ppn);
            match media.words() {
                Some(words) => Self::push_page(
                    offset,
                    base,
                    words[at..at + self.degree].iter().copied(),
                    out,
                ),
                None => {
                    let slots = (at..at + self.degree).map(|at| {
                        media.load(at).unwrap_or_else(|_| {
                            lost = true;
                            0
                        })
                    });
                    Self::push_page(offset, base, slots, out);
                }
            }
        }

        if lost {
            append_in_force(tables, clock, sb, out);
        }
    }

    fn forget(
        &mut self,
        media: &mut Media,
        _: &mut EndedFilters,
        counters: &mut SchemeCounters,
        sb: SbId,
    ) {
        let room = &mut self.rooms[sb.0 as usize];
        if room.base.is_none() {
            return; // Still zero, or being zeroed.
        }

        // 1. "dead", which waits for everything that supersedes this superblock's contents
        // 2. zeroes. Cut between: the head's incarnation does not count, and recovery zeroes the
        // slots before they are reused.
        let after = self.guards.waits(Guard::ClearWaits, After::FENCE);

        let len = media.geometry().pages_per_superblock() as usize * self.degree;
        *room = SlotRoom {
            clear: media.clear(self.slots + sb.0 as usize * len, len, after),
            ..SlotRoom::default()
        };

        counters.add(SLOT_CLEARS, 1);
    }
}

impl LookAhead for Pebble {
    #[inline]
    fn look_ahead(&self, media: &Media, ppn: Ppn) {
        media.prefetch_word(self.slot_word(ppn));
    }
}

/// After an unreadable slot: appends each remapped LPN of the superblock, according to L2P. All get
/// new numbers, even those with a readable slot, which may be older than the unreadable one.
#[cold]
fn append_in_force(tables: &Tables, clock: &mut WsnClock, sb: SbId, out: &mut Vec<OwnerRef>) {
    for (lpn, offset) in tables.remapped_in(sb) {
        out.push(OwnerRef {
            offset,
            lpn,
            wsn: clock.tick(),
            source: None,
        });
    }
}
