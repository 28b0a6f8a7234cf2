//! PebbleSSD (MEMSYS'17 §4.2.1): the table from physical to logical pages lies in NVRAM and is
//! updated in place.
//!
//! Each flash page has `degree` slots of 8 bytes at a place that follows from its number. The LPN
//! that the page was written for stands in its OOB as ever; a slot names one more, that it was
//! remapped to. A remap is one atomic store. A page whose slots are all taken is copied instead
//! (P-type remapping: the degree is bounded).
//!
//! A slot tells the number of its remap as an age: how far it is above the `base` of the
//! superblock's room. The base stands in the room's head, one word a superblock, with the
//! incarnation that the slots are of. A page whose room is older than an age can tell (2^32
//! numbers, 16 TiB of writes) is copied too. GC's entries get new numbers if theirs are older than
//! the base: a reference in force has the newest number of its LPN, and may as well have a newer
//! one.
//!
//! Invariants: a remapped LPN in force has a slot of its page that says so; a slot that is not
//! empty is overwritten only by a newer entry of its own LPN, or after what superseded its entry is
//! durable; no slot is used before it has been zeroed since the room's last incarnation. Absent:
//! L2P in NVRAM. The paper's device keeps it there; its stores are charged, but recovery takes OOBs
//! and slots.

mod check;
mod recover;

use crate::clock::WsnClock;
use crate::config::Config;
use crate::contract::{
    LookAhead, OwnerLookup, OwnerRef, Ownership, Persist, Remapping, SchemeSpec,
};
use crate::core::Core;
use crate::ended::EndedFilters;
use crate::error::ConfigError;
use crate::guard::{Guard, Guards};
use crate::kind::{HostBytes, Medium, SchemeFacts, SchemeKey};
use crate::layout::NvramLayout;
use crate::stats::{Counter, Demotion, SchemeCounters};
use crate::superblock::Superblocks;
use crate::tables::Tables;
use bitfield_struct::bitfield;
use remap_ssd_media::{After, ClearId, Geometry, Lpn, Media, Ppn, Purpose, SbId};

const COUNTERS: &[&str] = &["slots_reused", "slot_clears"];
/// Slots whose superseded entry was overwritten.
const SLOTS_REUSED: Counter = Counter::named("slots_reused", COUNTERS);
/// Rooms of slots cleared when their superblock was erased.
const SLOT_CLEARS: Counter = Counter::named("slot_clears", COUNTERS);

/// Slots a page. Reference counters have four bits, and the page's first owner has no slot.
const DEGREE: SchemeKey = SchemeKey {
    name: "degree",
    unit: "",
    default: 2,
    least: 1,
    most: 14,
    about: "LPNs that may be remapped to a flash page at a time: its slots in NVRAM.",
};

/// The scheme as the catalogue lists it.
pub const SPEC: SchemeSpec = SchemeSpec {
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

/// Ages that a slot can tell.
const AGES: u64 = 1 << 32;
/// Bytes of an L2P entry (MEMSYS'17 §6.5).
const L2P_BYTES: u64 = 4;
/// Stored when the mapping of a page changes: a word of L2P.
const L2P_WORD_BYTES: u32 = 8;

/// The head of a superblock's room.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
struct RoomHead {
    valid: bool,
    /// The superblock's incarnation that the slots are of.
    #[bits(21)]
    incarnation: u32,
    /// Sequence number of age 0.
    #[bits(42)]
    base: u64,
}

/// A slot; all zeroes is an empty one.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
struct OwnerSlot {
    valid: bool,
    /// LPN that was remapped to this page.
    #[bits(31)]
    lpn: Lpn,
    /// Sequence number of the remap less the room's base.
    #[bits(32)]
    age: u32,
}

/// The slots of one superblock.
#[derive(Clone, Copy, Default)]
struct SlotRoom {
    /// Sequence number of age 0, once the head is written.
    base: Option<u64>,
    /// The zeroing that its first entry waits for.
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
    /// Unreadable at recovery: slots that hold nothing, and heads of rooms.
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
        let lpns = u64::from(config.lpns) + u64::from(config.chunks());
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

/// NVRAM that both tables take.
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
    pub fn new(config: &Config, geometry: &Geometry) -> Self {
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

    /// A slot of a page for one more entry, and what overwriting it must wait for. `lpn`: the slot
    /// that names it already is the first choice. `reuse`: may a slot be taken whose entry has been
    /// superseded?
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
            // What a damaged slot says nobody knows: it stays as it is.
            let Ok(word) = media.load(at) else {
                continue;
            };
            if word == 0 {
                empty = empty.or(Some(at));
                continue;
            }

            let slot = OwnerSlot::from_bits(word);
            // In force; or an older entry of the same mapping, while the newer one may be of an
            // aborted command.
            if !reuse || tables.map.is_remapped_at(slot.lpn(), ppn) {
                continue;
            }
            if lpn == Some(slot.lpn()) {
                // The store is atomic and says something newer of the same LPN: no cut can lose
                // either.
                return Some((at, self.entry_after(tables.geometry, ppn)));
            }

            stale = stale.or(Some((at, slot.lpn())));
        }

        // An empty slot costs no wait for what superseded an old entry.
        let empty = empty.map(|at| (at, self.entry_after(tables.geometry, ppn)));
        empty.or_else(|| stale.map(|(at, old)| (at, self.superseded(tables, ppn, old))))
    }

    /// Nothing is stored to a room before its slots are zero.
    fn zeroed(&self, sb: SbId) -> After {
        self.guards.waits(
            Guard::SegmentZeroed,
            After::clear(self.rooms[sb.0 as usize].clear),
        )
    }

    /// What an entry in an empty slot waits for: its page, and the zeroing of the room.
    fn entry_after(&self, geometry: Geometry, ppn: Ppn) -> After {
        let after = self.zeroed(geometry.superblock(ppn));
        after.and(self.guards.waits(Guard::EntryAfterPage, After::page(ppn)))
    }

    /// What overwriting the stale entry of `old` waits for.
    fn superseded(&self, tables: &Tables, ppn: Ppn, old: Lpn) -> After {
        if !self.guards.has(Guard::SlotReuse) {
            return self.entry_after(tables.geometry, ppn);
        }

        // 1. the witness in force of the old LPN: the page written for it, or a store (an entry, a
        // record of a deallocation; the commit, if it is of an atomic command)  2. the new entry.
        // Cut before 2: the old entry is still there, and it may be the newest durable one. The
        // fence covers the old entry too, and so the page.
        let written = old
            .is_below(tables.map.len())
            .then(|| tables.map.get(old))
            .flatten()
            .filter(|mapping| !mapping.remapped);
        written.map_or(After::FENCE, |mapping| {
            After::FENCE.and(After::page(mapping.ppn))
        })
    }

    /// Age 0 of a superblock's room is `base`, if the room has no head yet.
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
        // is of an earlier incarnation and no slot counts. A head that came first would vouch for
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

    /// Stores an entry in the slot chosen; `false` if its age cannot be told.
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

        // 1. the page  2. the entry, whole or not at all. An entry before its page would name
        // whatever is programmed there next.
        let slot = OwnerSlot::new()
            .with_valid(true)
            .with_lpn(remapping.lpn)
            .with_age(age);
        core.media.store_record(at, &[slot.into()], purpose, after);

        // L2P of the target, and of the source if that loses the page.
        core.charge_tables(
            remapping.ppn,
            L2P_WORD_BYTES * (1 + u32::from(remapping.source.is_some())),
            purpose,
        );
        true
    }

    fn is_too_old(&self, wsn: u64, sb: SbId) -> bool {
        // Two numbers of slack: the entry's own, and that of a head on the way.
        self.rooms[sb.0 as usize]
            .base
            .is_some_and(|base| wsn + 2 - base >= AGES)
    }

    /// Appends the owners that the slots of one page name, the newest last.
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

        // Slots are reused in place, so their order says nothing. The contract wants the newest
        // last.
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
        // An atomic command overwrites nothing: what it supersedes counts again if it is aborted.
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

        // A reference may be older than the room that it comes to, and ages are not negative. In
        // force it is the newest of its LPN, so a new number changes nothing.
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

        // 1. "dead", which is after all that took this superblock's place  2. zeroes. Cut between:
        // the head is of an incarnation that does not count, and recovery zeroes the slots before
        // they are used again.
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

/// A slot could not be read: appends each remapped LPN of the superblock, as L2P has it. All get
/// new numbers, those with a readable slot too: it may be older than the one that cannot be read.
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
