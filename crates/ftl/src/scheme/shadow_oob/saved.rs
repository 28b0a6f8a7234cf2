//! Saving the entries in DRAM with the capacitor's energy, to flash kept erased for them.
//!
//! The routine runs after a power failure, on the state left by the cut, before anything else. Its
//! input is DRAM: the location of the reserved flash, and the entries. It programs them page by
//! page, as far as the energy lasts, and DRAM loses its contents. Nothing can interrupt it: power
//! has already failed. (If the process dies during it, with the device in a folder, it starts again
//! and skips the pages already programmed.)
//!
//! Invariants: reserved flash is erased except for its heads as long as the device is armed;
//! nothing is saved if the device is not armed. Absent: which entries exist (the scheme's), and
//! reading the saved pages (the scheme's replay).

use super::ENERGY_PAGES;
use crate::config::Config;
use crate::config::guard::{Guard, Guards};
use crate::config::layout::LIFE_WORDS;
use crate::contract::FlashNeed;
use crate::dies::DieMask;
use crate::error::RecoveryError;
use crate::scheme::log_entry::UNNUMBERED;
use crate::superblock::SuperblockHead;
use crate::superblock::life::{Life, LifeRecord, LoadedLife};
use bitfield_struct::bitfield;
use remap_ssd_media::{After, Geometry, Media, Oob, Purpose, SbId, StoredPage};
use std::collections::BTreeSet;
use zerocopy::{FromBytes, IntoBytes};

/// Entries in a saved page, besides its header.
const ENTRIES_MAX: usize = remap_ssd_media::geometry::PAGE_BYTES / 16 - 1;
/// A budget needs several pages to show its effect: with few bytes, pages are filled partly.
const PAGES_MIN: usize = 8;
/// Number of blocks that may fail during the saving.
const FAILURES: u32 = 3;
/// Words of an entry in DRAM.
pub(super) const SLOT_WORDS: usize = 2;

/// First word of a saved page.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub(super) struct SavedOf {
    /// Number with which the device was armed: the newest generation counts.
    #[bits(42)]
    pub generation: u64,
    #[bits(22)]
    __: u32,
}

/// Second word of a saved page.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub(super) struct SavedPlace {
    /// Index of the page among those saved, from 0.
    pub number: u32,
    /// Number of pages to be saved.
    pub pages: u32,
}

/// Contents of a saved page.
pub(super) struct SavedPage {
    pub of: SavedOf,
    pub place: SavedPlace,
    pub entries: Vec<[u64; 2]>,
}

impl SavedPage {
    fn encode(&self) -> Box<[u8]> {
        let mut bytes = Vec::with_capacity(16 * (1 + self.entries.len()));
        bytes.extend_from_slice([self.of.into_bits(), self.place.into_bits()].as_bytes());
        bytes.extend_from_slice(self.entries.as_bytes());
        bytes.into()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let pairs: Vec<[u64; 2]> = bytes
            .as_chunks::<8>()
            .0
            .as_chunks::<2>()
            .0
            .iter()
            .map(|pair| pair.map(u64::from_le_bytes))
            .collect();
        let ([of, place], entries) = pairs.split_first()?;
        Some(Self {
            of: (*of).into(),
            place: (*place).into(),
            entries: entries.to_vec(),
        })
    }
}

/// Sizes and the DRAM layout: the generation with which the device is armed, or 0; the superblocks
/// of the reserved flash, each plus one; the slots.
#[derive(Clone, Copy)]
pub(super) struct ReservedFlash {
    pub base: usize,
    /// Maximum number of superblocks of the reserved flash.
    pub superblocks_max: usize,
    pub slots: usize,
    per_page: usize,
    /// Pages for a full DRAM.
    pages: u32,
    energy: u32,
}

impl ReservedFlash {
    pub(super) fn new(config: &Config, geometry: &Geometry, base: usize) -> Self {
        let slots = (config.log_bytes / (8 * SLOT_WORDS as u64)) as usize;
        let per_page = (slots / PAGES_MIN).clamp(2, ENTRIES_MAX);
        let pages = slots.div_ceil(per_page) as u32;
        // A failing block may cost all of its remaining pages.
        let room = pages + FAILURES * geometry.pages_per_block();
        let superblocks_max = room.div_ceil(config.data_pages(geometry).max(1)) as usize;
        let energy = match config.own(&ENERGY_PAGES) {
            0 => pages + FAILURES,
            energy => energy as u32,
        };

        Self {
            base,
            superblocks_max,
            slots,
            per_page,
            pages,
            energy,
        }
    }

    /// Words of DRAM that the capacitor saves.
    pub(super) fn words(&self) -> usize {
        1 + self.superblocks_max + self.slots * SLOT_WORDS
    }

    /// Programs for saving a full DRAM, including failing blocks.
    pub(super) fn energy_needed(&self) -> u32 {
        self.pages + FAILURES
    }

    /// Programs that the capacitor has energy for.
    pub(super) fn energy(&self) -> u32 {
        self.energy
    }

    pub(super) fn flash_need(&self) -> FlashNeed {
        // The next power-on reserves new ones before those of the last one are erased.
        FlashNeed {
            held: self.superblocks_max as u32,
            spare: self.superblocks_max as u32,
        }
    }

    pub(super) fn area_word(&self, index: usize) -> usize {
        self.base + 1 + index
    }

    pub(super) fn slot_word(&self, slot: u32) -> usize {
        self.base + 1 + self.superblocks_max + slot as usize * SLOT_WORDS
    }

    /// Pages that the reserved flash should have room for, and the minimum.
    pub(super) fn room_needed(&self, geometry: &Geometry) -> (u32, u32) {
        let block = geometry.pages_per_block();
        (self.pages + FAILURES * block, self.pages + block)
    }

    /// Saves DRAM after a power failure. Returns the number of pages programmed.
    ///
    /// # Errors
    /// A word of DRAM cannot be read.
    pub(super) fn save(&self, guards: Guards, media: &mut Media) -> Result<u64, RecoveryError> {
        let ops = media.ops.len();
        let generation = self.generation(media)?;
        let programmed = if generation == 0 {
            0
        } else {
            self.program(guards, media, generation)?
        };

        // The energy was for exactly this work: the pages programmed are durable.
        media.settle_all();
        // 1. the pages  2. DRAM loses its contents. A process that dies in between finds both, and
        // they are equal.
        if (self.base..self.base + self.words()).any(|word| media.peek(word) != 0) {
            media.clear_capacitor(self.base, self.words(), After::NOTHING);
            media.settle_all();
        }

        // The capacitor's time is not charged: the device is off.
        media.ops.truncate(ops);
        Ok(programmed)
    }

    /// The generation to save under. If it is unreadable and DRAM is empty, it is irrelevant.
    fn generation(&self, media: &mut Media) -> Result<u64, RecoveryError> {
        let is_empty =
            (self.base + 1..self.base + self.words()).all(|word| media.load(word) == Ok(0));
        match media.load(self.base) {
            Err(_) if is_empty => Ok(0),
            generation => generation.map_err(|_| RecoveryError::NvramDamaged { word: self.base }),
        }
    }

    /// The words of a slot to save. An entry with an unreadable number is saved without one: its
    /// LPN is in doubt.
    fn entry(
        &self,
        guards: Guards,
        media: &mut Media,
        slot: u32,
    ) -> Result<Option<[u64; 2]>, RecoveryError> {
        let word = self.slot_word(slot);
        let words = [media.load(word), media.load(word + 1)];
        let torn_bits = guards.has(Guard::TornBits);
        if words == [Ok(0), Ok(0)] || torn_bits && words.iter().flatten().any(|word| word & 1 == 0)
        {
            return Ok(None);
        }
        match words {
            [first, Ok(second)] => Ok(Some([first.unwrap_or(UNNUMBERED), second])),
            _ => Err(RecoveryError::NvramDamaged { word: word + 1 }),
        }
    }

    fn program(
        &self,
        guards: Guards,
        media: &mut Media,
        generation: u64,
    ) -> Result<u64, RecoveryError> {
        let mut entries = Vec::new();
        for slot in 0..self.slots as u32 {
            entries.extend(self.entry(guards, media, slot)?);
        }

        let (mut area, mut damaged) = (Vec::new(), None);
        // An unreadable location is skipped; it matters only if the rest does not suffice.
        for index in 0..self.superblocks_max {
            let word = media.load(self.area_word(index)).unwrap_or_else(|_| {
                damaged = Some(self.area_word(index));
                0
            });
            area.extend(
                word.checked_sub(1)
                    .map(|sb| SbId(sb as u32))
                    .filter(|sb| sb.0 < media.geometry().superblocks()),
            );
        }

        let there = self.saved_before(media.geometry(), media, &area, generation);
        let mut places = ReservedPages::new(&area);
        let pages = entries.len().div_ceil(self.per_page) as u32;

        let mut energy = self.energy;
        for (number, entries) in (0..).zip(entries.chunks(self.per_page)) {
            let of = SavedOf::new().with_generation(generation);
            let place = SavedPlace::new().with_number(number).with_pages(pages);
            let bytes = SavedPage {
                of,
                place,
                entries: entries.to_vec(),
            }
            .encode();
            if !there.contains(&number)
                && !places.put(media.geometry(), media, number, &bytes, &mut energy)
            {
                // There is room for all pages, but the word with its location, or with the masks of
                // its blocks, may be unreadable.
                return damaged
                    .or(places.damaged)
                    .map_or(Ok(places.programmed), |word| {
                        Err(RecoveryError::NvramDamaged { word })
                    });
            }
        }
        Ok(places.programmed)
    }

    /// Pages of this generation that are already on flash.
    fn saved_before(
        &self,
        geometry: Geometry,
        media: &Media,
        area: &[SbId],
        generation: u64,
    ) -> BTreeSet<u32> {
        let pages = area
            .iter()
            .flat_map(|sb| (0..geometry.pages_per_superblock()).map(|offset| (*sb, offset)));
        let readable =
            pages.filter_map(|(sb, offset)| media.meta_uncharged(geometry.page(sb, offset)).ok());
        let saved = readable.filter_map(SavedPage::decode);
        saved
            .filter(|page| page.of.generation() == generation)
            .map(|page| page.place.number())
            .collect()
    }
}

/// The life of a superblock of the reserved flash, according to its head.
fn life_by_head(geometry: Geometry, media: &Media, sb: SbId) -> Option<Life> {
    let newest = (0..geometry.dies())
        .filter_map(|die| head_of(geometry, media, sb, die))
        .max_by_key(|head| head.wsn)?;
    Some(Life::new().with_incarnation(newest.incarnation))
}

/// Returns true if a page is in a word line that begins with a head, where all other pages are pads: also a head that
/// counts no more, since its block failed later in that line and another block has the head.
pub(super) fn is_beside_head(geometry: Geometry, media: &Media, sb: SbId, offset: u32) -> bool {
    offset < geometry.offset_of(geometry.stripe(), 0)
        && head_of(geometry, media, sb, geometry.die_of_offset(offset)).is_some()
}

/// The head with which a block begins, if it does.
fn head_of(geometry: Geometry, media: &Media, sb: SbId, die: u32) -> Option<SuperblockHead> {
    let first = geometry.page(sb, geometry.offset_of(0, die));
    let bytes = media.meta_uncharged(first).ok()?;
    let head = SuperblockHead::read_from_bytes(bytes).ok()?;
    (head.magic == SuperblockHead::MAGIC).then_some(head)
}

/// The blocks of a superblock that must not take pages, as far as its masks can be read.
///
/// If a mask is unreadable, recovery looks for the head in every block. It takes those before it
/// for bad and reads nothing in them, so nothing may be saved there.
fn left_out(geometry: Geometry, media: &Media, sb: SbId, loaded: &LoadedLife) -> DieMask {
    let (bad, failing) = (
        loaded.bad.unwrap_or_default(),
        loaded.failing.unwrap_or_default(),
    );
    if loaded.masks_are_whole() {
        return bad | failing;
    }

    let life = loaded.life.unwrap_or_default();
    let has_head = |die: &u32| {
        let head = head_of(geometry, media, sb, *die);
        head.is_some_and(|head| head.wsn > life.dead_before())
    };
    let before_head: DieMask = (0..geometry.dies())
        .map(|step| (sb.0 + step) % geometry.dies())
        .filter(|die| !bad.has(*die))
        .take_while(|die| !has_head(die))
        .collect();
    bad | failing | before_head
}

/// The pages of the reserved flash, in order.
struct ReservedPages<'a> {
    area: &'a [SbId],
    offset: u32,
    programmed: u64,
    /// An unreadable word of a mask.
    damaged: Option<usize>,
}

impl<'a> ReservedPages<'a> {
    fn new(area: &'a [SbId]) -> Self {
        Self {
            area,
            offset: 0,
            programmed: 0,
            damaged: None,
        }
    }

    /// Programs one page at the next possible place; returns false if there is none, or no energy.
    fn put(
        &mut self,
        geometry: Geometry,
        media: &mut Media,
        number: u32,
        bytes: &[u8],
        energy: &mut u32,
    ) -> bool {
        while let Some(&sb) = self.area.first() {
            if self.offset == geometry.pages_per_superblock() {
                (self.area, self.offset) = (&self.area[1..], 0);
                continue;
            }
            let (offset, die) = (self.offset, geometry.die_of_offset(self.offset));
            self.offset += 1;

            // If the life is unreadable, the head gives the incarnation; a bad block that is not
            // known to be bad fails again.
            let loaded = LifeRecord::load(media, sb);
            let Some(life) = loaded
                .life
                .ok()
                .or_else(|| life_by_head(geometry, media, sb))
            else {
                continue;
            };
            if !loaded.masks_are_whole() {
                let word = 1 + usize::from(loaded.bad.is_ok());
                self.damaged = Some(sb.0 as usize * LIFE_WORDS + word);
            }
            let skipped = left_out(geometry, media, sb, &loaded);
            let next = media.next_row(geometry.block(sb, die));
            // Recovery reads nothing beside the head. Only the next row of a block can be programmed.
            // Pages programmed by an earlier attempt are skipped.
            let is_pad = is_beside_head(geometry, media, sb, offset);
            if skipped.has(die) || is_pad || next != geometry.row_of_offset(offset) {
                continue;
            }

            // Failed programs take energy, too.
            if *energy == 0 {
                return false;
            }
            *energy -= 1;

            let oob = Oob::new(Oob::LOG, u64::from(number) + 1, life.incarnation());
            let stored = StoredPage::Meta(bytes.into());
            if media
                .program(
                    geometry.page(sb, offset),
                    oob,
                    stored,
                    Purpose::Meta,
                    After::NOTHING,
                )
                .is_ok()
            {
                self.programmed += 1;
                return true;
            }
            // Recorded for the next power-on: a failing block's torn page is not damage. A mask
            // that was unreadable is rewritten here, so it gets all excluded blocks, and the head
            // is found.
            let failing = loaded.failing.unwrap_or(skipped);
            LifeRecord::store_failing(media, sb, failing | DieMask::of(die));
        }
        false
    }
}
