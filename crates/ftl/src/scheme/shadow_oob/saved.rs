//! What the capacitor's energy is for: the entries in DRAM, programmed to flash that is kept erased
//! for them.
//!
//! The routine runs when power has failed, on what the cut left, before anything else does. It
//! knows what is in DRAM: where the reserved flash is, and the entries. It programs them page by
//! page, as many pages as the energy lasts, and DRAM forgets. Nothing can interrupt it: power has
//! failed already. (A process that dies in it, with the device in a folder, begins again and leaves
//! out the pages that are there.)
//!
//! Invariants: reserved flash is erased but for its heads as long as the device is armed; nothing
//! is saved of a device that is not. Absent: which entries there are (the scheme's), and reading
//! back what was saved (the scheme's replay).

use super::ENERGY_PAGES;
use crate::config::Config;
use crate::contract::FlashNeed;
use crate::dies::DieMask;
use crate::error::RecoveryError;
use crate::guard::{Guard, Guards};
use crate::layout::LIFE_WORDS;
use crate::life::{Life, LifeRecord, LoadedLife};
use crate::scheme::log_entry::UNNUMBERED;
use crate::superblock::SuperblockHead;
use bitfield_struct::bitfield;
use remap_ssd_media::{After, Geometry, Media, Oob, Purpose, SbId, StoredPage};
use std::collections::BTreeSet;
use zerocopy::{FromBytes, IntoBytes};

/// Entries of a saved page, beside its header.
const ENTRIES_MAX: usize = remap_ssd_media::geometry::PAGE_BYTES / 16 - 1;
/// Several pages show what a budget does: with few bytes, pages are filled partly.
const PAGES_MIN: usize = 8;
/// Blocks that may fail while all is saved.
const FAILURES: u32 = 3;
/// Words of an entry in DRAM.
pub(super) const SLOT_WORDS: usize = 2;

/// First word of a saved page.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub(super) struct SavedOf {
    /// Number that the device was armed with: what was saved last counts.
    #[bits(42)]
    pub generation: u64,
    #[bits(22)]
    __: u32,
}

/// Second word of a saved page.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub(super) struct SavedPlace {
    /// Number of the page among those saved, from 0.
    pub number: u32,
    /// Pages that were to be saved.
    pub pages: u32,
}

/// What a saved page says.
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

    pub fn decode(bytes: &[u8]) -> Option<Self> {
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

/// Sizes, and where things are in DRAM: the generation that the device is armed with, or 0; the
/// superblocks of the reserved flash, each plus one; the slots.
#[derive(Clone, Copy)]
pub(super) struct ReservedFlash {
    pub base: usize,
    /// Superblocks of the reserved flash, at most.
    pub superblocks_max: usize,
    pub slots: usize,
    per_page: usize,
    /// Pages of a full DRAM.
    pages: u32,
    energy: u32,
}

impl ReservedFlash {
    pub fn new(config: &Config, geometry: &Geometry, base: usize) -> Self {
        let slots = (config.log_bytes / (8 * SLOT_WORDS as u64)) as usize;
        let per_page = (slots / PAGES_MIN).clamp(2, ENTRIES_MAX);
        let pages = slots.div_ceil(per_page) as u32;
        // A block that fails may cost all of its pages that are still to come.
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

    /// Words of DRAM that the capacitor keeps.
    pub fn words(&self) -> usize {
        1 + self.superblocks_max + self.slots * SLOT_WORDS
    }

    /// Programs that save a full DRAM, failing blocks included.
    pub fn energy_needed(&self) -> u32 {
        self.pages + FAILURES
    }

    /// Programs that the capacitor has energy for.
    pub fn energy(&self) -> u32 {
        self.energy
    }

    pub fn flash_need(&self) -> FlashNeed {
        // The next power-on fills new ones before those of the last one are erased.
        FlashNeed {
            held: self.superblocks_max as u32,
            spare: self.superblocks_max as u32,
        }
    }

    pub fn area_word(&self, index: usize) -> usize {
        self.base + 1 + index
    }

    pub fn slot_word(&self, slot: u32) -> usize {
        self.base + 1 + self.superblocks_max + slot as usize * SLOT_WORDS
    }

    /// Pages that the reserved flash must have room for; the second number is the least that will
    /// do.
    pub fn room_needed(&self, geometry: &Geometry) -> (u32, u32) {
        let block = geometry.pages_per_block();
        (self.pages + FAILURES * block, self.pages + block)
    }

    /// Power has failed. Pages that were programmed.
    ///
    /// # Errors
    /// A word of DRAM that cannot be read.
    pub fn save(&self, guards: Guards, media: &mut Media) -> Result<u64, RecoveryError> {
        let ops = media.ops.len();
        let generation = self.generation(media)?;
        let programmed = if generation == 0 {
            0
        } else {
            self.program(guards, media, generation)?
        };

        // Power is gone, and this is all that the energy was for: what was programmed is durable.
        media.settle_all();
        // 1. the pages  2. DRAM is lost. A process that dies between the two finds both, and they
        // say the same.
        if (self.base..self.base + self.words()).any(|word| media.peek(word) != 0) {
            media.clear_capacitor(self.base, self.words(), After::NOTHING);
            media.settle_all();
        }

        // The capacitor's time is nobody's: the device is off.
        media.ops.truncate(ops);
        Ok(programmed)
    }

    /// The generation to save under. If it is unreadable and DRAM is empty, it does not matter.
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
        // An unreadable place is left out; it matters only if what is left does not suffice.
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
                // There is room for all pages, but the record of where it is, or of which of its
                // blocks are good, may be unreadable.
                return damaged
                    .or(places.damaged)
                    .map_or(Ok(places.programmed), |word| {
                        Err(RecoveryError::NvramDamaged { word })
                    });
            }
        }
        Ok(places.programmed)
    }

    /// Pages of this generation that are on flash already.
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

/// The life of a superblock of the reserved flash, from its head.
fn life_by_head(geometry: Geometry, media: &Media, sb: SbId) -> Option<Life> {
    let pages =
        (0..geometry.dies()).filter_map(|die| media.meta_uncharged(geometry.page(sb, die)).ok());
    let heads = pages.filter_map(|bytes| SuperblockHead::read_from_bytes(bytes).ok());
    let newest = heads
        .filter(|head| head.magic == SuperblockHead::MAGIC)
        .max_by_key(|head| head.wsn)?;
    Some(Life::new().with_incarnation(newest.incarnation))
}

/// The blocks of a superblock that take no page, as far as its masks can be read.
///
/// If one cannot, recovery looks for the head in every block. It takes those before it for bad and
/// reads nothing in them, so nothing may be saved there.
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
        let page = media.meta_uncharged(geometry.page(sb, *die)).ok();
        let head = page.and_then(|bytes| SuperblockHead::read_from_bytes(bytes).ok());
        head.is_some_and(|head| {
            head.magic == SuperblockHead::MAGIC && head.wsn > life.dead_before()
        })
    };
    let before_head: DieMask = (0..geometry.dies())
        .map(|step| (sb.0 + step) % geometry.dies())
        .filter(|die| !bad.has(*die))
        .take_while(|die| !has_head(die))
        .collect();
    bad | failing | before_head
}

/// The pages of the reserved flash, one after the other.
struct ReservedPages<'a> {
    area: &'a [SbId],
    offset: u32,
    programmed: u64,
    /// A word of a mask that could not be read.
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

    /// Programs one page at the next place that takes it; `false` if there is none, or no energy.
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
            // known as bad fails again.
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
            // Only the next row of a block can be programmed. What an earlier try programmed is
            // passed over.
            if skipped.has(die) || next != geometry.row_of_offset(offset) {
                continue;
            }

            // Programs that fail take energy, too.
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
            // The next power-on must know: a failing block's torn page is no damage. A mask that
            // could not be read is readable from now on, so it has all blocks left out, and the
            // head is found.
            let failing = loaded.failing.unwrap_or(skipped);
            LifeRecord::store_failing(media, sb, failing | DieMask::of(die));
        }
        false
    }
}
