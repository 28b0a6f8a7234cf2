//! The devices of a campaign: as small as possible and nearly full.
//!
//! A small device reaches every branch of garbage collection and recovery within a few hundred
//! commands, and one cut of it costs a fraction of a millisecond. Each profile is tight in another
//! resource: counters, NVRAM, the watermark, the deallocation log, spare blocks. Invariant: the
//! number of LPNs is the maximum that the firmware accepts, less room for the planted faults.
//! Absent: the commands (the script's).

mod profiles;
mod settings;

use crate::script::Mix;
use profiles::{COMBINED, FAILING, PROFILES, SetupProfile};
use remap_ssd_ftl::{
    Config, ConfigError, EntrySize, GcPolicy, Granularity, Guard, Guards, Medium, SchemeKind,
    SchemeValues,
};
use remap_ssd_media::geometry::Shape;
use remap_ssd_media::{ContentMode, Geometry, WordLine};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// One device and the parameters of its scripts.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Its number among the scheme's setups.
    pub index: u32,
    /// Shape of the flash array.
    pub geometry: Geometry,
    /// Content mode of pages: identities or bytes.
    pub mode: ContentMode,
    /// Parameters of the firmware; the LPNs take nearly all of the flash.
    pub config: Config,
    /// Weights of the kinds of commands.
    pub mix: Mix,
    /// Main-line commands after the fill.
    pub steps: u32,
    /// Number of blocks that will fail.
    pub bad_blocks: u32,
    /// True if hundreds of commands are in flight.
    pub deep: bool,
    /// True if pages and words become unreadable.
    pub media_faults: bool,
    /// True if some LPNs are kept apart, and deduplication is paused now and then.
    pub apart: bool,
    /// The guard switched off, if any.
    pub mutant: Option<Guard>,
}

/// Overrides of the firmware and the flash of every setup; none by default.
#[derive(Clone, Default)]
pub struct Adjust {
    /// Called with a setup's configuration before the device's size is chosen; returns an error if
    /// it is impossible.
    pub firmware: Option<AdjustFn>,
    /// Overrides of the flash array.
    pub geometry: GeometryAdjust,
}

/// Numbers of the flash array that replace a setup's own, named as in device files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GeometryAdjust {
    /// Dies of the whole device.
    pub dies: Option<u32>,
    /// Blocks of a die. The setup's own number is a minimum, this is exact.
    pub superblocks: Option<u32>,
    /// Pages of a block.
    pub pages_per_block: Option<u32>,
    /// Dies that a superblock spans; 0 is all.
    pub superblock_dies: Option<u32>,
    /// Word lines of the dies.
    pub word_line: WordLine,
}

/// Maximum flash pages of a campaign's device: each cut copies all of it.
const PAGES_MAX: u32 = 1 << 16;
/// Word lines of the smallest blocks that have several pages in each.
const LINES_LEAST: u32 = 4;
/// Maximum words of its NVRAM.
const NVRAM_WORDS_MAX: usize = 1 << 20;

/// Maps a setup's configuration to the one to run with, or to the reason that there is none.
pub(crate) type AdjustFn = Arc<dyn Fn(&Config) -> Result<Config, ConfigError> + Send + Sync>;

impl fmt::Debug for Adjust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adjust")
            .field("firmware", &self.firmware.is_some())
            .field("geometry", &self.geometry)
            .finish()
    }
}

impl Adjust {
    /// Returns true if every setup stays as it is.
    pub(crate) fn is_none(&self) -> bool {
        self.firmware.is_none() && self.geometry == GeometryAdjust::default()
    }
}

impl Setup {
    /// Number of setups of each scheme on working media, with only failing blocks and flipped bits
    /// that ECC corrects.
    pub const COUNT: u32 = PROFILES.len() as u32;
    /// The setups that follow, on failing media.
    pub const FAILING: Range<u32> = Self::COUNT..Self::COUNT + FAILING.len() as u32;
    /// The setups after these, which are tight in two resources at once, on working or failing
    /// media.
    pub const COMBINED: Range<u32> = Self::FAILING.end..Self::FAILING.end + COMBINED.len() as u32;

    /// The setups of a campaign, on working or on failing media.
    pub(crate) fn of_media(media_faults: bool) -> impl Iterator<Item = u32> {
        let combined = COMBINED
            .iter()
            .zip(Self::COMBINED)
            .filter(move |(profile, _)| profile.damage == media_faults)
            .map(|(_, index)| index);
        let first = if media_faults {
            Self::FAILING
        } else {
            0..Self::COUNT
        };
        first.chain(combined)
    }

    /// Setup `index` (modulo their number) of a scheme, with its own garbage collection policy or
    /// the one given, optionally with a guard switched off.
    pub fn new(
        scheme: SchemeKind,
        policy: Option<GcPolicy>,
        index: u32,
        mutant: Option<Guard>,
    ) -> Self {
        Self::mapped(Granularity::Page, scheme, policy, index, mutant)
    }

    /// Like `new`, with this mapping.
    pub fn mapped(
        mapping: Granularity,
        scheme: SchemeKind,
        policy: Option<GcPolicy>,
        index: u32,
        mutant: Option<Guard>,
    ) -> Self {
        Self::adjusted(mapping, scheme, policy, index, mutant, &Adjust::default())
            .unwrap_or_else(|why| panic!("{scheme} cannot work on setup {index}: {why}"))
    }

    /// Like `mapped`, with overridden firmware parameters.
    ///
    /// # Errors
    /// Why the firmware cannot work with them on this device, at any size.
    pub fn adjusted(
        mapping: Granularity,
        scheme: SchemeKind,
        policy: Option<GcPolicy>,
        index: u32,
        mutant: Option<Guard>,
        adjust: &Adjust,
    ) -> Result<Self, ConfigError> {
        let index = index % Self::COMBINED.end;
        let (profile, media_faults) = Self::profile(mapping, index, adjust)?;

        let mut config = Config {
            mapping,
            gc_policy: policy.unwrap_or(profile.policy),
            ..profile.config(scheme, index, mutant)
        };
        if let Some(adjust) = &adjust.firmware {
            config = adjust(&config)?;
        }

        let geometry = enough(&mut config, &profile, adjust.geometry.superblocks.is_some())?;
        if profile.refresh_reads > 0 {
            config.refresh_writes = geometry.pages().into();
        }
        let mut spare = profile.spare_pages + profile.bad_blocks * geometry.pages_per_block() * 2;
        if config.slc_dynamic > 0.0 {
            // Superblocks are opened in SLC mode only while there is room.
            spare += SLC_ROOM * geometry.groups() * config.data_pages(&geometry);
        }
        // Nearly full, except for room for the faults: an empty device passes every cut and proves
        // nothing.
        config.lpns = most_lpns(&config, &geometry).saturating_sub(spare).max(8);
        if profile.tight_energy {
            config.scheme_values = least_energy(&config, &geometry);
        }

        Ok(Self {
            index,
            geometry,
            mode: profile.mode,
            config,
            mix: profile.mix,
            steps: profile.steps,
            bad_blocks: profile.bad_blocks,
            deep: profile.deep,
            media_faults,
            apart: profile.apart,
            mutant,
        })
    }

    /// A profile that suits the mapping and the geometry, and true if its media fail.
    fn profile(
        mapping: Granularity,
        index: u32,
        adjust: &Adjust,
    ) -> Result<(SetupProfile, bool), ConfigError> {
        let mut profile = *PROFILES
            .iter()
            .chain(FAILING)
            .chain(COMBINED)
            .nth(index as usize)
            .expect("there are as many");
        let media_faults = Self::FAILING.contains(&index) || profile.damage;
        if mapping == Granularity::Hybrid {
            // Blocks are in order in one superblock at a time, there are no zones, and the table is small.
            profile.superblock_dies = 0;
            profile.mapping_cache_bytes = 0;
            profile.buffer_pages = 0;
            (profile.slc_share, profile.slc_dynamic) = (0.0, 0.0);
            profile.word_line = WordLine::SINGLE;
            profile.policy = if profile.policy.zones() > 1 {
                GcPolicy::Greedy
            } else {
                profile.policy
            };
        }
        adjust.geometry.apply(&mut profile);
        if profile.word_line.bits == 1 {
            (profile.slc_share, profile.slc_dynamic) = (0.0, 0.0);
        }

        let has_units = profile.word_line.host_pages() > 1;
        if has_units && media_faults {
            return Err(ConfigError(
                "geometry.indirection_bytes above 4096 is not for failing media here: what is lost is known by pages of 4 KiB".into(),
            ));
        }
        if has_units {
            // Identities of contents are those of units, and a file map lists pages of 4 KiB.
            profile.mode = ContentMode::Bytes;
            profile.files = (0, 0);
            if profile.mix == Mix::FILES {
                profile.mix = Mix::EVEN;
            }
        }
        Ok((profile, media_faults))
    }

    /// Logical pages of 4 KiB, as the host counts them.
    pub fn lpns(&self) -> u32 {
        self.config.lpns * self.geometry.host_pages()
    }

    /// Returns true if commands can be atomic with such entries.
    pub(crate) fn atomic(&self) -> bool {
        self.config.entry == EntrySize::Bytes24 || self.config.untorn_bytes > 0
    }

    /// Returns true if a capacitor saves a write buffer.
    fn saves_buffer(&self) -> bool {
        self.config.write_buffer_bytes > 0 && self.config.power_loss_protection
    }

    /// Returns true if the absence of `guard` could show on this device.
    pub(crate) fn exercises(&self, guard: Guard) -> bool {
        match guard {
            Guard::Commit | Guard::AbortedStay => self.atomic(),
            Guard::UntornWrites
            | Guard::OpenBeforePages
            | Guard::CommitAfterPages
            | Guard::MovedAfterWrites => self.config.untorn_bytes > 0,
            Guard::RelocatedSources => {
                self.mix == Mix::MOVES || self.mix == Mix::TRIMS || self.mix == Mix::REMAPS
            }
            Guard::Deallocations | Guard::DeallocFlush => self.config.dealloc_slots <= 8,
            // The slots of an erased superblock are mostly older than other records of the same
            // LPNs.
            Guard::StaleSegments if self.config.scheme.facts().medium == Medium::Tables => {
                self.config.dealloc_slots <= 4
            }
            guard if SchemeKind::that_shows(guard).facts().names_runs => self.mix == Mix::RUNS,
            Guard::StaleSegments | Guard::SegmentZeroed | Guard::ClearWaits => {
                self.mix != Mix::WRITES
            }
            Guard::FsAfterData | Guard::FsGenerations | Guard::FsWhole | Guard::FsTornPlaces => {
                self.config.fs_files > 0
            }
            Guard::BufferReuse | Guard::BufferWhole => self.saves_buffer(),
            Guard::BufferedExist => self.saves_buffer() && self.config.dealloc_slots <= 4,
            Guard::FlushWaits => self.config.has_volatile_buffer(),
            Guard::LinesFilled => !self.config.power_loss_protection && self.geometry.stripe() > 1,
            Guard::WholeLines => {
                // In SLC mode a unit is a word line.
                let word_line = self.geometry.word_line();
                let in_turn = word_line.unit_pages() < word_line.pages();
                let is_full = self.config.slc_share == 0.0 && self.config.slc_dynamic == 0.0;
                !self.config.power_loss_protection && in_turn && is_full
            }
            // Slow, and no guard needs it.
            Guard::ReserveStaysFree => self.deep,
            _ => self.steps >= 200 && !self.deep,
        }
    }
}

/// Superblocks in each group of dies that a device with a dynamic SLC cache has more than it needs.
const SLC_ROOM: u32 = 3;

impl SetupProfile {
    /// The firmware of setup `index`, with page mapping; the number of LPNs is chosen later.
    fn config(&self, scheme: SchemeKind, index: u32, mutant: Option<Guard>) -> Config {
        Config {
            lpns: 1,
            scheme,
            log_bytes: log_bytes(scheme, self),
            segment_bytes: self.segment_bytes,
            scheme_values: SchemeValues::everywhere(&[
                ("cache_pages", self.cache_pages.into()),
                // The negative control: energy for one page.
                (
                    "energy_pages",
                    (mutant == Some(Guard::CapacitorEnergy)).into(),
                ),
                ("degree", u64::from(self.count_max).clamp(2, 4) - 1),
            ]),
            entry: self.entry,
            mapping: Granularity::Page,
            // Two blocks in the smallest superblock.
            block_pages: (2 + index % 3)
                .min(self.shape.0.saturating_mul(self.shape.2).saturating_sub(3) / 2)
                .max(2),
            extension: [0.1, 0.0, 0.25, 0.5][index as usize % 4],
            dedup: self.dedup,
            count_max: self.count_max,
            watermark: self.watermark,
            gc_policy: self.policy,
            gc_choices: 10,
            gc_free: self.gc_free,
            gc_garbage: if self.joins_host { 0.125 } else { 0.0 },
            gc_at_once: self.joins_host,
            gc_joins_host: self.joins_host,
            die_by_lpn: self.die_by_lpn,
            wear_gap: self.wear_gap,
            refresh_reads: self.refresh_reads,
            refresh_writes: 0, // The least that the firmware accepts follows from the geometry.
            mapping_cache_bytes: if scheme.facts().table_store_bytes > 0 {
                0
            } else {
                self.mapping_cache_bytes
            },
            write_buffer_bytes: self.buffer_pages * u64::from(self.word_line.indirection_bytes),
            untorn_bytes: [0, 1 << 20, 64 << 10][index as usize % 3],
            buffered_remaps: self.buffered_remaps,
            slc_share: self.slc_share,
            slc_dynamic: self.slc_dynamic,
            slc_fold_free: [0.125, 1.0][index as usize % 2],
            slc_fold_garbage: [0.5, 0.0][index as usize / 2 % 2],
            dealloc_slots: self.dealloc_slots,
            fs_files: self.files.0,
            fs_blocks: self.files.1,
            power_loss_protection: !self.unprotected
                || (scheme.keeps_entries_on_flash() && self.word_line.pages() > 1),
            fingerprint: self.fingerprint,
            pe_limit: self.pe_limit,
            slc_pe_limit: self.pe_limit,
            guards: mutant.map_or(Guards::ALL, Guards::without),
        }
    }
}

impl GeometryAdjust {
    fn apply(&self, profile: &mut SetupProfile) {
        let (dies, superblocks, pages_per_block) = profile.shape;
        profile.shape = (
            self.dies.unwrap_or(dies),
            self.superblocks.unwrap_or(superblocks),
            self.pages_per_block.unwrap_or(pages_per_block),
        );
        profile.superblock_dies = self.superblock_dies.unwrap_or(profile.superblock_dies);

        // Blocks of a setup are as small as possible, so they grow to a few whole word lines.
        if self.word_line != WordLine::SINGLE {
            profile.word_line = self.word_line;
        }
        let stripe = profile.word_line.pages();
        if stripe > 1 && self.pages_per_block.is_none() {
            profile.shape.2 = pages_per_block
                .next_multiple_of(stripe)
                .max(LINES_LEAST * stripe);
        }
    }
}

/// The mapping of a campaign: the one requested, unless the absence of a guard shows only under
/// hybrid mapping.
pub(crate) fn mapping_of(asked: Granularity, mutant: Option<Guard>) -> Granularity {
    if mutant == Some(Guard::UnsharedRenewed) {
        Granularity::Hybrid
    } else {
        asked
    }
}

/// One record of a command replaces many entries of a page: a log that must fill up has to be
/// smaller.
fn log_bytes(scheme: SchemeKind, profile: &SetupProfile) -> u64 {
    let bytes = u64::from(profile.segments * profile.segment_bytes);
    if scheme.uses_hints() {
        (bytes / 12).max(128)
    } else {
        bytes
    }
}

/// The requested shape, with more superblocks (unless their number is `exact`) or a larger log
/// where the scheme needs them.
fn enough(
    config: &mut Config,
    profile: &SetupProfile,
    exact: bool,
) -> Result<Geometry, ConfigError> {
    let mut why = None;
    let (dies, superblocks, pages_per_block) = profile.shape;

    // First more superblocks, then a larger log: a scheme may need either.
    for _ in 0..40 {
        for more in 0..if exact { 1 } else { 64 } {
            let shape = Shape {
                channels: 1,
                dies,
                superblocks: superblocks.saturating_add(more),
                pages_per_block,
            };

            let mut geometry = Geometry::new(shape)
                .and_then(|geometry| geometry.with_word_line(profile.word_line))
                .map_err(|error| ConfigError(error.to_string()))?;
            if profile.superblock_dies > 0 && !config.scheme.keeps_entries_on_flash() {
                geometry = geometry
                    .with_superblock_dies(profile.superblock_dies)
                    .map_err(|error| ConfigError(error.to_string()))?;
            }
            // An earlier error of a smaller device is more specific.
            if let Err(too_large) = check_size(config, &geometry) {
                return Err(why.unwrap_or(too_large));
            }

            // A device with the LPNs of one data superblock leaves nothing to test, nor does one
            // that is mostly log.
            let data_pages = geometry
                .pages_per_superblock()
                .saturating_sub(config.metadata_pages(&geometry));
            config.lpns = data_pages.max(1) * (superblocks * geometry.groups() / 3).max(2);
            config.log_bytes = config.log_bytes.max(tables_bytes(config, &geometry));
            match config.check(&geometry) {
                Ok(()) => return Ok(geometry),
                Err(error) => why = Some(error),
            }
        }
        config.log_bytes += config.log_bytes / 4;
    }

    Err(why.expect("a shape was tried"))
}

/// Refuses devices too large to be copied at each cut.
fn check_size(config: &Config, geometry: &Geometry) -> Result<(), ConfigError> {
    if geometry.pages() > PAGES_MAX {
        return Err(ConfigError(format!(
            "a device of {} flash pages is too large for a campaign, which copies all of it at each cut: use at most {PAGES_MAX}",
            geometry.pages()
        )));
    }

    let words = config.nvram_words(geometry);
    if words > NVRAM_WORDS_MAX {
        return Err(ConfigError(format!(
            "{} bytes of NVRAM (log_bytes, dealloc_slots, fs_files, fs_blocks) are too many for a campaign, which copies all \
             of it at each cut: use at most {}",
            words as u64 * 8,
            NVRAM_WORDS_MAX * 8
        )));
    }
    Ok(())
}

/// The schemes' values with the least `energy_pages` that the firmware accepts.
fn least_energy(config: &Config, geometry: &Geometry) -> SchemeValues {
    let with = |pages: u64| {
        let mut values = config.scheme_values.clone();
        for scheme in SchemeKind::ALL {
            if scheme.key("energy_pages").is_some() {
                values.set(scheme, "energy_pages", pages);
            }
        }
        values
    };

    let is_enough = |pages: &u64| {
        let tried = Config {
            scheme_values: with(*pages),
            ..config.clone()
        };
        tried.check(geometry).is_ok()
    };
    let least = (1..=u64::from(geometry.pages())).find(is_enough);
    least.map_or_else(|| config.scheme_values.clone(), with)
}

/// NVRAM for the scheme's tables, for any number of LPNs.
fn tables_bytes(config: &Config, geometry: &Geometry) -> u64 {
    Config {
        lpns: geometry.pages(),
        ..config.clone()
    }
    .tables_bytes(geometry)
}

/// The maximum number of LPNs that the firmware accepts.
fn most_lpns(config: &Config, geometry: &Geometry) -> u32 {
    let fits = |lpns: u32| {
        Config {
            lpns,
            ..config.clone()
        }
        .check(geometry)
        .is_ok()
    };

    // Bisection: only the check itself can tell whether a size works.
    let (mut low, mut high) = (config.lpns, geometry.pages());
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }

    low
}
