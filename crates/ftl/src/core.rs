//! The tables every part of the firmware works on.
//!
//! Invariants: those of the parts; `wsn` is larger than every number handed out.
//! Absent: policy. The verbs are in `command`, moving in `gc`, persistence of remaps in `scheme`.

use crate::block_map::BlockMap;
use crate::clock::{WSN_READ_ONLY, next_number};
use crate::config::Config;
use crate::counts::Counts;
use crate::ended::Ended;
use crate::guard::Guard;
use crate::layout::Layout;
use crate::map::Map;
use crate::mapping::Mapping;
use crate::stats::Stats;
use crate::superblock::Superblocks;
use crate::survival::Survival;
use remap_ssd_media::{After, Geometry, Media, OpKind, Ppn, Purpose, SbId};

/// Media, DRAM tables and superblocks: what all verbs and schemes work on.
pub struct Core {
    /// Parameters of the firmware.
    pub config: Config,
    /// Shape of the flash array.
    pub geometry: Geometry,
    /// Regions of NVRAM.
    pub layout: Layout,
    /// Flash and NVRAM: what outlives power.
    pub media: Media,
    /// L2P, with the bit of remapped LPNs (LR).
    pub map: Map,
    /// Reference counts of flash pages (RC).
    pub counts: Counts,
    /// Superblocks by state, stream and owners.
    pub blocks: Superblocks,
    /// Which remaps may have ended.
    pub ended: Ended,
    /// Numbers of atomic commands that a cut interrupted, while entries with them exist.
    pub aborted: Vec<u64>,
    /// LPNs in doubt for which recovery has no page yet, in order. No bitmap says that they were
    /// deallocated.
    pub doubtful: Vec<u32>,
    /// Last write/remap sequence number handed out: the device's virtual time (FAST'21 §4.3).
    pub wsn: u64,
    /// Counters since power-on.
    pub stats: Stats,
    /// Bytes of mapping tables in NVRAM that change when a page is programmed; 0 if they are in
    /// DRAM.
    pub table_bytes: u32,
    /// How long pages live, if somebody asked.
    pub survival: Option<Box<Survival>>,
}

impl Core {
    /// A core with empty tables. `reserve`: superblocks that a cut must leave free.
    pub fn new(config: Config, media: Media, reserve: u32) -> Self {
        let geometry = media.geometry();
        Self {
            geometry,
            layout: Layout::new(&config, &geometry),
            map: if config.is_hybrid() {
                Map::hybrid(BlockMap::new(
                    &geometry,
                    config.block_pages,
                    config.lpns,
                    config.chunks(),
                ))
            } else {
                Map::new(config.lpns + config.chunks())
            },
            counts: Counts::new(geometry.pages()),
            blocks: Superblocks::new(geometry, &config, reserve),
            ended: Ended::new(&geometry),
            aborted: Vec::new(),
            doubtful: Vec::new(),
            wsn: 0,
            stats: Stats::default(),
            table_bytes: config.scheme.facts().table_store_bytes,
            survival: None,
            config,
            media,
        }
    }

    /// The next write/remap sequence number.
    #[inline]
    pub fn tick(&mut self) -> u64 {
        next_number(&mut self.wsn)
    }

    /// Are the sequence numbers used up, so that the device is read-only? Internal work that takes
    /// numbers must check this first.
    #[inline(always)]
    pub fn is_used_up(&self) -> bool {
        self.wsn >= WSN_READ_ONLY
    }

    /// Does a number belong to an atomic command that a cut interrupted?
    #[inline(always)]
    pub fn is_aborted(&self, wsn: u64) -> bool {
        !self.aborted.is_empty() && self.aborted.contains(&wsn)
    }

    /// What zeroing a damaged word waits for: 1. the pages that mark the LPNs in doubt  2. zeroes.
    /// Cut between: recovery finds the same doubt again, or the pages, which are newer.
    pub fn after_doubts(&self) -> After {
        if self.config.guards.has(Guard::MendingWaits) {
            After::ALL
        } else {
            After::NOTHING
        }
    }

    /// Is an entry with this number for this remap to be kept? One of an aborted command may say
    /// the same as an older one, which it must not take the place of: recovery believes the older
    /// one alone.
    #[inline(always)]
    pub fn is_in_force(&self, lpn: u32, ppn: Ppn, wsn: u64) -> bool {
        self.map.is_remapped_at(lpn, ppn) & !self.is_aborted(wsn)
    }

    /// The LPNs that are remapped to pages of a superblock, with the pages' offsets, by LPN: what
    /// its entries must say, for when one of them cannot be read. Looks through all of L2P.
    #[cold]
    pub fn remapped_in(&self, sb: SbId) -> Vec<(u32, u32)> {
        let remapped = (0..self.map.len())
            .filter_map(|lpn| Some((lpn, self.map.get(lpn).filter(|at| at.remapped)?.ppn)));
        let inside = remapped.filter(|(_, ppn)| self.geometry.superblock(*ppn) == sb);
        inside
            .map(|(lpn, ppn)| (lpn, self.geometry.offset(ppn)))
            .collect()
    }

    /// Gives a logical page one more reference to a flash page, or its first.
    #[inline]
    pub fn link(&mut self, lpn: u32, ppn: Ppn, remapped: bool) {
        debug_assert!(self.map.get(lpn).is_none());
        let count = self.counts.add(ppn);
        if let Some(survival) = &mut self.survival {
            survival.gained(ppn, count, self.wsn);
        }
        self.blocks
            .gain(self.geometry.superblock(ppn), count == 1, remapped);
        self.map.set(lpn, Some(Mapping { ppn, remapped }));
    }

    /// Takes a logical page's reference away; what it was.
    #[inline]
    pub fn unlink(&mut self, lpn: u32) -> Option<Mapping> {
        let old = self.map.get(lpn)?;
        let count = self.counts.sub(old.ppn);
        if count == 0
            && let Some(survival) = &mut self.survival
        {
            survival.died(old.ppn, self.wsn);
        }
        self.lose(
            self.geometry.superblock(old.ppn),
            count == 0,
            old.remapped,
            lpn,
        );
        self.map.set(lpn, None);
        Some(old)
    }

    /// Gives a logical page another flash page than it had, or its first.
    #[inline]
    pub fn relink(&mut self, lpn: u32, ppn: Ppn, remapped: bool) {
        if let Some(old) = self.map.replace(lpn, Mapping { ppn, remapped }) {
            let count = self.counts.sub(old.ppn);
            self.lose(
                self.geometry.superblock(old.ppn),
                count == 0,
                old.remapped,
                lpn,
            );
            if let Some(survival) = &mut self.survival
                && count == 0
            {
                survival.died(old.ppn, self.wsn);
            }
        }

        let count = self.counts.add(ppn);
        if let Some(survival) = &mut self.survival {
            survival.gained(ppn, count, self.wsn);
        }

        self.blocks
            .gain(self.geometry.superblock(ppn), count == 1, remapped);
    }

    /// A page of `sb` lost this owner: its last, or one of several.
    #[inline(always)]
    fn lose(&mut self, sb: SbId, last: bool, remapped: bool, lpn: u32) {
        self.blocks.lose(sb, last, remapped);
        if remapped {
            self.ended.note(sb, lpn);
        }
    }

    /// A page has been copied: all its references go with it, one of them (`lpn`) as written there.
    /// The others follow one by one, by `move_reference` or `split_reference`.
    #[inline(always)]
    pub fn move_page(
        &mut self,
        (from_sb, from): (SbId, Ppn),
        (to_sb, to): (SbId, Ppn),
        lpn: u32,
        was_remapped: bool,
    ) {
        self.counts.hand_over(from, to);
        if let Some(survival) = &mut self.survival {
            survival.moved(from, to);
        }
        self.lose(from_sb, true, was_remapped, lpn);
        self.blocks.gain(to_sb, true, false);
        self.map.set_written(lpn, to);
    }

    /// Another reference of a moved page now points to its new place, by an entry.
    #[inline]
    pub fn move_reference(&mut self, from: Ppn, to: Ppn, lpn: u32) {
        self.lose(self.geometry.superblock(from), false, true, lpn);
        self.blocks.gain(self.geometry.superblock(to), false, true);
        self.map.set(
            lpn,
            Some(Mapping {
                ppn: to,
                remapped: true,
            }),
        );
    }

    /// Another reference of a moved page got a copy of its own.
    pub fn split_reference(&mut self, from: Ppn, to: Ppn, copy: Ppn, lpn: u32) {
        self.lose(self.geometry.superblock(from), false, true, lpn);
        self.counts.sub(to);
        self.map.set(lpn, None);
        self.link(lpn, copy, false);
    }

    /// A page has been programmed: tables in NVRAM name it after that.
    #[inline(always)]
    pub fn programmed(&mut self, ppn: Ppn, purpose: Purpose) {
        if self.table_bytes > 0 {
            self.charge_tables(ppn, self.table_bytes, purpose);
        }
    }

    /// Charges stores to mapping tables that recovery does not read.
    #[inline]
    pub fn charge_tables(&mut self, ppn: Ppn, bytes: u32, purpose: Purpose) {
        self.media.counts.nv_bytes_written += u64::from(bytes);
        self.media
            .charge(OpKind::NvWrite, bytes, purpose, After::page(ppn));
    }

    /// A program of this page failed: its block is used no more.
    pub fn fail_block_of(&mut self, ppn: Ppn) {
        let die = self.geometry.die_of_offset(self.geometry.offset(ppn));
        self.blocks
            .fail_block(&mut self.media, self.geometry.superblock(ppn), die);
    }
}
