//! The flash translation layer: media, tables, scheme and garbage collection.
//!
//! Commands enter through `command`. All persistent state is in `core.media`; `recovery` rebuilds
//! the rest from it. Absent: time, threads, files, randomness.

use crate::clock::WSN_READ_ONLY;
use crate::config::Config;
use crate::config::guard::Guard;
use crate::config::layout::NvramLayout;
use crate::contract::{GroupInfo, RemapScheme, Usage};
use crate::core::Core;
use crate::dedup::Dedup;
use crate::dies::DieMask;
use crate::error::ConfigError;
use crate::gc::job::Gc;
use crate::mapping::apart::Apart;
use crate::mapping::block_map::BlockInOrder;
use crate::mapping::survival::{CLASSES, Survival, SurvivalClass};
use crate::records::atomic::AtomicSlot;
use crate::records::buffer::WriteBuffer;
use crate::records::dealloc::DeallocLog;
use crate::records::files::FileMap;
use crate::records::open_writes::{OpenWrites, UntornWrite};
use crate::recovery::witnesses::RecoveryReport;
use crate::scheme::catalogue::spec;
use crate::stats::{RemapCounts, Stats};
use crate::superblock::life::{Life, LifeRecord};
use crate::superblock::{Owners, Stream, Superblock, SuperblockState};
use remap_ssd_media::{After, ClearId, Lpn, Media, Ppn, SbId, SlcModes};
use std::collections::BTreeSet;
use std::ops::Range;

/// A flash translation layer with the remap primitive.
pub struct Ftl {
    pub(crate) core: Core,
    pub(crate) scheme: Box<dyn RemapScheme>,
    pub(crate) dedup: Option<Dedup>,
    pub(crate) dealloc: DeallocLog,
    pub(crate) atomic_slot: AtomicSlot,
    /// The words that name writes in progress, and the write that the current command makes.
    pub(crate) open_writes: OpenWrites,
    pub(crate) open_write: Option<Box<UntornWrite>>,
    /// The pages of the current write stay in a volatile write buffer, where they are one set.
    pub(crate) is_set: bool,
    pub(crate) files: FileMap,
    /// Pages that the host has written and that are not on flash yet, if the device buffers writes.
    pub(crate) buffer: Option<Box<WriteBuffer>>,
    pub(crate) gc: Gc,
    /// True with hybrid mapping.
    pub(crate) hybrid: bool,
    /// The block that the host is writing in order.
    pub(crate) run: Option<BlockInOrder>,
    /// Reclaiming is suspended: an atomic command or recovery is in progress.
    pub(crate) paused: bool,
    /// A multi-page write is in progress; the scheme may hold gathered remaps of it.
    pub(crate) write_goes_on: bool,
    /// Writes are programmed without a fingerprint lookup.
    pub(crate) dedup_paused: bool,
    pub(crate) apart: Apart,
    /// Number of free superblocks at which collection starts; below `reserve` the host waits for
    /// it.
    pub(crate) gc_start: u32,
    pub(crate) reserve: u32,
    /// No space can be reclaimed any more; changes are refused.
    pub(crate) read_only: bool,
    /// LPNs that lost their newest witness when no page could be programmed to mark them.
    pub(crate) unreadable: BTreeSet<Lpn>,
    /// Pages written by the host when the first block wore out.
    pub(crate) first_retired: Option<u64>,
}

impl Ftl {
    /// Empty tables over a medium.
    pub(crate) fn assemble(mut media: Media, config: Config) -> Result<Self, ConfigError> {
        let geometry = media.geometry();
        config.check(&geometry)?;

        // The layout follows from the configuration. With any other size every region would be read
        // from the wrong words.
        let words = config.nvram_words(&geometry);
        if media.nvram_words() != words {
            let have = media.nvram_words();
            return Err(ConfigError(format!(
                "this configuration needs {words} words of NVRAM and the media has {have}"
            )));
        }

        let scheme = (spec(config.scheme).build)(&config, &geometry);
        let facts = config.scheme.facts();

        // Schemes with hints remap a page to its home only. Their records could not name an owner
        // found by content.
        let dedup = (config.dedup && facts.remaps && !facts.hints)
            .then(|| {
                Dedup::new(
                    geometry.pages(),
                    media.mode(),
                    facts.exact_dedup,
                    config.count_max.into(),
                )
            })
            .flatten();

        media.use_slc(config.slc_area(&geometry));
        if !config.power_loss_protection && geometry.stripe() > 1 {
            media.unprotect(config.guards.has(Guard::WholeLines));
        }

        let layout = NvramLayout::new(&config, &geometry);
        let reserve = config.reserve(&geometry);
        Ok(Self {
            gc: Gc::new(&config, &geometry),
            gc_start: config.gc_start(&geometry),
            reserve,
            hybrid: config.is_hybrid(),
            run: None,
            dealloc: DeallocLog::new(&config, &layout),
            atomic_slot: AtomicSlot::new(&config, &layout),
            open_writes: OpenWrites::new(config.guards, &layout),
            open_write: None,
            is_set: false,
            files: FileMap::new(&config, &layout),
            buffer: WriteBuffer::new(&config, &layout, &geometry, media.mode()).map(Box::new),
            core: Core::new(config, media, reserve),
            scheme,
            dedup,
            paused: false,
            write_goes_on: false,
            dedup_paused: false,
            apart: Apart::default(),
            read_only: false,
            unreadable: BTreeSet::new(),
            first_retired: None,
        })
    }

    /// Formats blank media.
    ///
    /// # Errors
    /// The configuration cannot work on this geometry.
    pub fn format(media: Media, config: Config) -> Result<Self, ConfigError> {
        let mut ftl = Self::assemble(media, config)?;
        ftl.files.format(&mut ftl.core.media);
        ftl.atomic_slot.format(&mut ftl.core.media);

        let core = &mut ftl.core;
        for index in 0..core.geometry.superblocks() {
            let sb = SbId(index);
            let life = Life::new().with_clean(true);
            LifeRecord::store_life(&mut core.media, sb, life, After::NOTHING);
            // Blank media is erased: `clean` means that no erase is needed before the first use.
            let found = Superblock {
                state: SuperblockState::Free,
                stream: Stream::Host,
                capacity: core.blocks.capacity(sb, DieMask::NONE),
                opened: 0,
                life,
                bad: DieMask::NONE,
                failing: DieMask::NONE,
                head: 0,
                erased: ClearId::default(),
            };
            core.blocks.set(sb, found);
        }

        // The stores of the first commands must come after the empty records.
        core.media.fence();
        ftl.load_mapping_cache(&mut RecoveryReport::default());
        Ok(ftl)
    }

    /// The medium: flash and NVRAM.
    pub fn media(&self) -> &Media {
        &self.core.media
    }
    /// The medium: flash and NVRAM.
    #[inline]
    pub fn media_mut(&mut self) -> &mut Media {
        &mut self.core.media
    }
    /// Powers off and returns the persistent state.
    pub fn into_media(self) -> Media {
        self.core.media
    }
    /// The firmware's parameters.
    pub fn config(&self) -> &Config {
        &self.core.config
    }
    /// Counters since power-on.
    pub fn stats(&self) -> Stats {
        let blocks = &self.core.blocks;
        let cache = self.core.tables.map.cache.as_ref();
        let (cache_hits, cache_misses) = cache.map_or((0, 0), |cache| (cache.hits, cache.misses));
        Stats {
            cache_hits,
            cache_misses,
            dedup_missed: self.dedup.as_ref().map_or(0, Dedup::missed),
            meta_programs: self.core.stats.meta_programs + blocks.meta_programs,
            blocks_retired: blocks.blocks_retired,
            blocks_worn: blocks.blocks_worn,
            slc_programs: blocks.slc.programs,
            slc_folded: blocks.slc.folded,
            slc_died: blocks.slc.died,
            slc_erases: blocks.slc.erases,
            program_failures: blocks.program_failures,
            ..self.core.stats
        }
    }
    /// Counters of remaps by outcome, without those of pages that left the write buffer, and with those of pages that were named in
    /// it. Cheaper than `stats`, which copies all counters.
    #[inline]
    pub fn remap_counts(&self) -> RemapCounts {
        let mut counts = self.core.stats.remap_counts();
        if let Some(buffer) = &self.buffer {
            counts = counts - buffer.remapped;
            counts.remapped += self.core.stats.buffer_remapped;
        }
        counts
    }
    /// The scheme's own counters, with their names.
    pub fn scheme_counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = self.core.config.scheme.facts().counters;
        names.iter().copied().zip(self.core.stats.scheme.values())
    }
    /// The scheme's counter of this name; 0 if there is none.
    pub fn scheme_counter(&self, name: &str) -> u64 {
        self.scheme_counters()
            .find(|(known, _)| *known == name)
            .map_or(0, |(_, times)| times)
    }
    /// Returns true if nothing can be written any more, because too many blocks are worn or bad or
    /// the sequence numbers are used up. All data can still be read.
    pub fn is_read_only(&self) -> bool {
        self.read_only || self.core.clock.is_used_up()
    }
    /// The fraction of sequence numbers used; at 1 the device is read-only.
    pub fn numbers_used(&self) -> f64 {
        (self.core.clock.now() as f64 / WSN_READ_ONLY as f64).min(1.0)
    }
    /// Pages written by the host since power-on when the first block wore out.
    pub fn first_retired(&self) -> Option<u64> {
        self.first_retired
    }
    /// Pages of data that the device has room for; shrinks as blocks fail and wear out.
    pub fn usable_pages(&self) -> u64 {
        self.core.blocks.usable_pages()
    }
    /// Starts to record the lifetimes of pages; costs `Survival::BYTES_PER_PAGE`.
    pub fn watch_survival(&mut self) {
        self.core.survival = Some(Box::new(Survival::new(self.core.geometry.pages())));
    }
    /// Lifetimes of pages by number of references, if they are recorded.
    pub fn survival(&self) -> Option<[SurvivalClass; CLASSES]> {
        self.core
            .survival
            .as_ref()
            .map(|survival| survival.classes(self.core.clock.now()))
    }
    /// Superblocks that are erased and can be opened.
    pub fn free_superblocks(&self) -> u32 {
        self.core.blocks.free()
    }
    /// The superblocks in SLC mode.
    pub fn slc_modes(&self) -> &SlcModes {
        self.core.blocks.slc_modes()
    }
    /// Free superblocks that may be opened in SLC mode.
    pub fn free_slc_superblocks(&self) -> u32 {
        self.core.blocks.slc_free()
    }
    /// Pages of data that a superblock can hold in its present mode.
    pub fn filled_capacity(&self, sb: SbId) -> u32 {
        let blocks = &self.core.blocks;
        blocks.filled_capacity(sb, blocks.skipped(sb))
    }
    /// Free superblocks at which garbage collection starts.
    pub fn gc_start(&self) -> u32 {
        self.gc_start
    }
    /// Occupancy of the scheme's room for entries.
    pub fn usage(&self) -> Usage {
        self.scheme.usage(&self.core.blocks)
    }
    /// Entries in the extension of the block table; 0 with page mapping.
    pub fn extension_entries(&self) -> u32 {
        if self.hybrid {
            self.core.tables.map.blocks().entries()
        } else {
            0
        }
    }
    /// Returns true if the scheme remaps; otherwise every remap is a copy.
    pub fn remaps(&self) -> bool {
        self.core.config.scheme.facts().remaps
    }
    /// From now on these LPNs share no page with another LPN: a write is programmed even if its
    /// content is on flash, and a remap copies. For hosts that keep data twice on purpose. Pages
    /// already shared stay shared. Not persisted: call it after each power-on. A power cut during a
    /// move that was not acknowledged may leave its source and its target with one page.
    pub fn keep_apart(&mut self, lpns: Range<Lpn>) {
        self.apart.add(lpns);
    }

    /// The LPNs that are kept apart.
    pub fn apart(&self) -> &[Range<Lpn>] {
        self.apart.ranges()
    }

    /// Pauses or resumes deduplication of writes. Data written while it is paused is not entered in
    /// the fingerprint store. Not persisted.
    pub fn pause_dedup(&mut self, pause: bool) {
        self.end_write();
        self.dedup_paused = pause;
    }

    /// From now on reads refresh nothing: for inspections, which leave pages where they find them.
    pub fn stop_refreshes(&mut self) {
        self.gc.refresh = None;
    }

    /// Returns true if the operator has paused deduplication.
    pub fn is_dedup_paused(&self) -> bool {
        self.dedup_paused
    }

    /// Returns true if the deduplication engine is on.
    pub fn deduplicates(&self) -> bool {
        self.dedup.is_some()
    }
    /// All superblocks with their numbers.
    pub fn superblocks(&self) -> impl Iterator<Item = (SbId, &Superblock)> {
        self.core.blocks.iter()
    }
    /// The DRAM state of one superblock.
    pub fn superblock(&self, sb: SbId) -> &Superblock {
        self.core.blocks.get(sb)
    }
    /// Number of LPNs that own pages of a superblock.
    pub fn owners(&self, sb: SbId) -> Owners {
        self.core.blocks.owners(sb)
    }
    /// The segment group of a superblock, for schemes that have them.
    pub fn group(&self, sb: SbId) -> Option<GroupInfo> {
        self.scheme.describe(sb)
    }
    /// The flash page that an LPN is mapped to. A newer page may be in the write buffer.
    pub fn place(&self, lpn: Lpn) -> Option<Ppn> {
        let known = lpn.is_below(self.core.config.lpns);
        known
            .then(|| self.core.tables.map.get(lpn))
            .flatten()
            .map(|mapping| mapping.ppn)
    }
    /// Returns true if the LPN has a page, on flash or in the write buffer.
    pub fn is_mapped(&self, lpn: Lpn) -> bool {
        let known = lpn.is_below(self.core.config.lpns);
        known && (self.core.tables.map.get(lpn).is_some() || self.is_buffered(lpn))
    }
    /// Last sequence number issued.
    pub fn wsn(&self) -> u64 {
        self.core.clock.now()
    }
    /// The sequence number after which power-on has resumed; 0 on a new device.
    pub fn resumed_wsn(&self) -> u64 {
        self.core.clock.resumed()
    }
    /// Sequence numbers of aborted atomic commands that still have witnesses.
    pub fn aborted(&self) -> &[u64] {
        &self.core.tables.aborted
    }
}
