//! Reclaiming the slots of entries that are no longer in force.
//!
//! Invariant: a sweep looks up in L2P only entries whose remap may have ended (`ended`). Absent:
//! when a slot may be reused (`release`).

use super::{DROPPED, EntryTag, STALE_SHARE, SWEPT_SHARE, ShadowOob};
use crate::core::Core;
use crate::mapping::tables::Tables;
use crate::superblock::Superblocks;
use remap_ssd_media::{Media, SbId};

impl ShadowOob {
    /// Drops the entries of a superblock that are not in force, and all but the newest of each
    /// mapping. Only those whose remap may have ended are looked up in L2P.
    pub(super) fn sweep(&mut self, tables: &mut Tables, media: &mut Media, sb: SbId) {
        const AHEAD: usize = 24;
        let mut tags = std::mem::take(&mut self.tags[sb.0 as usize]);
        let mut doubtful = std::mem::take(&mut self.doubtful);
        let ended = tables.ended.of(sb);
        doubtful.extend(
            (0..)
                .zip(&tags)
                .filter(|(_, tag)| ended.may_have_ended(tag.lpn))
                .map(|(at, _): (u32, _)| at),
        );

        // Newest first: an LPN is hidden once found, so that an older entry of the same mapping is
        // not in force.
        for index in (0..doubtful.len()).rev() {
            if let Some(next) = index.checked_sub(AHEAD) {
                tables.map.prefetch(tags[doubtful[next] as usize].lpn);
            }
            let tag = &mut tags[doubtful[index] as usize];
            if tables.is_in_force(tag.lpn, tables.geometry.page(sb, tag.offset()), tag.wsn()) {
                tables.map.hide_remapped(tag.lpn);
            } else {
                self.release(media, tag.slot);
                tag.lpn = DROPPED;
            }
        }

        for at in doubtful.drain(..) {
            let lpn = tags[at as usize].lpn;
            if lpn != DROPPED {
                tables.map.mark_remapped(lpn);
            }
        }

        tags.retain(|tag| tag.lpn != DROPPED);
        tables.ended.start_over(sb);
        (self.tags[sb.0 as usize], self.doubtful) = (tags, doubtful);
    }

    pub(super) fn has_room(&self, entries: usize) -> bool {
        // Collecting the fullest superblock takes a slot for each of its references.
        self.free.len() >= self.fullest as usize + entries
    }

    /// Frees the slots of stale entries if there are many.
    #[cold]
    pub(super) fn make_room(&mut self, core: &mut Core, entries: usize) -> bool {
        let stale = self
            .used()
            .saturating_sub(core.blocks.remapped_total() as usize);
        if stale < self.reclaim_pays_from {
            return false;
        }

        self.fullest = core.blocks.remapped_max() + 1;

        if self.has_room(entries) {
            return true;
        }
        if stale * STALE_SHARE > self.reserve.slots {
            core.stats.metadata_gc_runs += 1;
            self.sweep_best(&mut core.tables, &core.blocks, &mut core.media, entries);
        }

        let found = self.has_room(entries);
        self.reclaim_pays_from = if found {
            0
        } else {
            stale + self.reserve.slots / STALE_SHARE + 1
        };

        found
    }

    /// Sweeps the superblocks with the most stale entries until there is room, plus a margin.
    fn sweep_best(
        &mut self,
        tables: &mut Tables,
        blocks: &Superblocks,
        media: &mut Media,
        entries: usize,
    ) {
        // More than needed, so that the next remap does not sweep again.
        let some_more = self.reserve.slots / SWEPT_SHARE;
        let stale_of = |tags: &Vec<EntryTag>, sb: u32| {
            tags.len()
                .saturating_sub(blocks.owners(SbId(sb)).remapped as usize)
        };

        let mut worst: Vec<(usize, u32)> = self
            .tags
            .iter()
            .zip(0..)
            .map(|(tags, sb)| (stale_of(tags, sb), sb))
            .collect();
        worst.sort_unstable_by_key(|(stale, sb)| (std::cmp::Reverse(*stale), *sb));

        for (_, sb) in worst.into_iter().take_while(|(stale, _)| *stale > 0) {
            if self.has_room(entries + some_more) {
                break;
            }
            self.sweep(tables, media, SbId(sb));
        }
    }
}
