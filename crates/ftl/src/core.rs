//! The state that every part of the firmware works on.
//!
//! Invariants: those of the parts. A function that needs only one or two parts takes those as
//! arguments, so its signature shows what it may change. Absent: policy. The verbs are in
//! `command`, relocation in `gc`, persistence of remaps in `scheme`.

use crate::clock::WsnClock;
use crate::config::Config;
use crate::config::layout::NvramLayout;
use crate::mapping::Mapping;
use crate::mapping::block_map::BlockMap;
use crate::mapping::map::Map;
use crate::mapping::survival::Survival;
use crate::mapping::tables::Tables;
use crate::stats::Stats;
use crate::superblock::Superblocks;
use remap_ssd_media::{After, Geometry, Lpn, Media, OpKind, Ppn, Purpose, SbId};

/// Media, DRAM tables and superblocks: shared by all verbs and schemes.
pub(crate) struct Core {
    /// Firmware parameters: the table `[firmware]` in device files.
    pub config: Config,
    /// Shape of the flash array.
    pub geometry: Geometry,
    /// Start addresses of the NVRAM regions.
    pub layout: NvramLayout,
    /// Flash and NVRAM: the only state that survives power loss.
    pub media: Media,
    /// L2P and reference counts.
    pub tables: Tables,
    /// Superblocks by state, stream and owners.
    pub blocks: Superblocks,
    /// Sequence numbers: the device's virtual time.
    pub clock: WsnClock,
    /// Counters since power-on.
    pub stats: Stats,
    /// Bytes of NVRAM mapping tables that change with each programmed page; 0 if the tables are in
    /// DRAM.
    pub table_bytes: u32,
    /// Lifetimes of pages, if requested.
    pub survival: Option<Box<Survival>>,
}

impl Core {
    /// A core with empty tables. `reserve`: superblocks that must stay free after a power cut.
    pub(crate) fn new(config: Config, media: Media, reserve: u32) -> Self {
        let geometry = media.geometry();
        let map = if config.is_hybrid() {
            Map::hybrid(BlockMap::new(
                &geometry,
                config.block_pages,
                config.lpns,
                config.chunks(),
            ))
        } else {
            Map::new(config.lpns + config.internal_lpns())
        };

        Self {
            geometry,
            layout: NvramLayout::new(&config, &geometry),
            tables: Tables::new(geometry, map),
            blocks: Superblocks::new(geometry, &config, reserve),
            clock: WsnClock::default(),
            stats: Stats::default(),
            table_bytes: config.scheme.facts().table_store_bytes,
            survival: None,
            config,
            media,
        }
    }

    /// Adds a reference from a logical page to a flash page.
    #[inline]
    pub(crate) fn link(&mut self, lpn: Lpn, ppn: Ppn, remapped: bool) {
        debug_assert!(self.tables.map.get(lpn).is_none());
        let count = self.tables.counts.add(ppn);
        if let Some(survival) = &mut self.survival {
            survival.gained(ppn, count, self.clock.now());
        }
        self.blocks
            .gain(self.geometry.superblock(ppn), count == 1, remapped);
        self.tables.map.set(lpn, Some(Mapping { ppn, remapped }));
    }

    /// Removes a logical page's reference and returns the old mapping.
    #[inline]
    pub(crate) fn unlink(&mut self, lpn: Lpn) -> Option<Mapping> {
        let old = self.tables.map.get(lpn)?;
        let count = self.tables.counts.sub(old.ppn);
        if count == 0
            && let Some(survival) = &mut self.survival
        {
            survival.died(old.ppn, self.clock.now());
        }
        self.lose(
            self.geometry.superblock(old.ppn),
            count == 0,
            old.remapped,
            lpn,
        );
        self.tables.map.set(lpn, None);
        Some(old)
    }

    /// Maps a logical page to a flash page, replacing its old mapping if it has one.
    #[inline]
    pub(crate) fn relink(&mut self, lpn: Lpn, ppn: Ppn, remapped: bool) {
        if let Some(old) = self.tables.map.replace(lpn, Mapping { ppn, remapped }) {
            let count = self.tables.counts.sub(old.ppn);
            self.lose(
                self.geometry.superblock(old.ppn),
                count == 0,
                old.remapped,
                lpn,
            );
            if let Some(survival) = &mut self.survival
                && count == 0
            {
                survival.died(old.ppn, self.clock.now());
            }
        }

        let count = self.tables.counts.add(ppn);
        if let Some(survival) = &mut self.survival {
            survival.gained(ppn, count, self.clock.now());
        }

        self.blocks
            .gain(self.geometry.superblock(ppn), count == 1, remapped);
    }

    /// A page of `sb` lost this owner; `last` if it was the only one.
    #[inline(always)]
    fn lose(&mut self, sb: SbId, last: bool, remapped: bool, lpn: Lpn) {
        self.blocks.lose(sb, last, remapped);
        if remapped {
            self.tables.ended.note(sb, lpn);
        }
    }

    /// Moves a page that has been copied, with all its references. `lpn` is the owner for which the
    /// copy was written. The others follow one by one, by `move_reference` or `split_reference`.
    #[inline(always)]
    pub(crate) fn move_page(
        &mut self,
        (from_sb, from): (SbId, Ppn),
        (to_sb, to): (SbId, Ppn),
        lpn: Lpn,
        was_remapped: bool,
    ) {
        // All references at once. So `move_reference` leaves the counts alone, and
        // `split_reference` subtracts its own.
        self.tables.counts.hand_over(from, to);
        if let Some(survival) = &mut self.survival {
            survival.moved(from, to);
        }
        self.lose(from_sb, true, was_remapped, lpn);
        self.blocks.gain(to_sb, true, false);
        self.tables.map.set_written(lpn, to);
    }

    /// Another reference of a moved page points to the new place, recorded by an entry.
    #[inline]
    pub(crate) fn move_reference(&mut self, from: Ppn, to: Ppn, lpn: Lpn) {
        self.lose(self.geometry.superblock(from), false, true, lpn);
        self.blocks.gain(self.geometry.superblock(to), false, true);
        self.tables.map.set(
            lpn,
            Some(Mapping {
                ppn: to,
                remapped: true,
            }),
        );
    }

    /// Another reference of a moved page got its own copy.
    pub(crate) fn split_reference(&mut self, from: Ppn, to: Ppn, copy: Ppn, lpn: Lpn) {
        self.lose(self.geometry.superblock(from), false, true, lpn);

        // `move_page` gave all references to the new place; this owner does not go there.
        self.tables.counts.sub(to);
        self.tables.map.set(lpn, None);
        self.link(lpn, copy, false);
    }

    /// A page has been programmed: NVRAM tables are updated after it.
    #[inline(always)]
    pub(crate) fn programmed(&mut self, ppn: Ppn, purpose: Purpose) {
        if self.table_bytes > 0 {
            self.charge_tables(ppn, self.table_bytes, purpose);
        }
    }

    /// Charges stores to mapping tables that recovery does not read.
    #[inline]
    pub(crate) fn charge_tables(&mut self, ppn: Ppn, bytes: u32, purpose: Purpose) {
        self.media.counts.nv_bytes_written += u64::from(bytes);
        self.media
            .charge(OpKind::NvWrite, bytes, purpose, After::page(ppn));
    }

    /// Fills up the word lines of all streams, so that everything issued can become durable.
    #[inline]
    pub(crate) fn fill_lines(&mut self) {
        self.blocks.fill_lines(&mut self.media);
    }

    /// From now on a superblock is in this mode, if it may change it.
    pub(crate) fn set_slc(&mut self, sb: SbId, is_slc: bool) {
        self.blocks.set_slc(&mut self.media, sb, is_slc);
    }

    /// A program of this page failed: stops programming its block.
    pub(crate) fn fail_block_of(&mut self, ppn: Ppn) {
        let die = self.geometry.die_of_offset(self.geometry.offset(ppn));
        self.blocks
            .fail_block(&mut self.media, self.geometry.superblock(ppn), die);
    }
}
