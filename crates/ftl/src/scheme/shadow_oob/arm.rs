//! Arming: from then on a power loss saves the contents of DRAM.
//!
//! Order: see `shadow_oob`. Invariant: a device is armed only if flash for all slots is kept
//! erased. Absent: the saving (`saved`).

use super::ShadowOob;
use crate::config::guard::Guard;
use crate::contract::Remapping;
use crate::core::Core;
use crate::superblock::Stream;
use remap_ssd_media::{After, Purpose, SbId};

impl ShadowOob {
    /// Reserves superblocks for the pages that the capacitor would save; returns false if there are
    /// not enough.
    fn reserve_flash(&mut self, core: &mut Core) -> bool {
        let kept_free = 1 + core.config.gc_opens() as u32;
        let (wanted, least) = self.reserve.room_needed(&core.geometry);
        // This stream has no open superblock while the device runs: reserved flash is filled by
        // `saved` after a power failure.
        core.blocks.close_log();
        let room = |core: &Core, area: &[SbId]| {
            area.iter()
                .map(|sb| core.blocks.get(*sb).capacity)
                .sum::<u32>()
        };

        while room(core, &self.found.empty) < wanted
            && self.found.empty.len() < self.reserve.superblocks_max
        {
            // Collection has priority: without it, remaps would be of no use.
            if core.blocks.free() <= kept_free
                || !core
                    .blocks
                    .open_erased_log(&mut core.media, &mut core.clock)
            {
                break;
            }
            self.found
                .empty
                .push(core.blocks.open(Stream::Log).expect("just opened").sb);
            core.blocks.close_log();
        }

        room(core, &self.found.empty) >= least
    }

    /// Arms the device: from now on DRAM counts, since it has all entries and there is flash to
    /// save them to.
    #[cold]
    pub(super) fn arm(&mut self, core: &mut Core) -> bool {
        // Of earlier generations, so they do not count; their flash may be needed below.
        for sb in std::mem::take(&mut self.found.outdated) {
            core.blocks.erase(&mut core.media, sb, &mut core.clock);
        }
        let entries: usize = self.tags.iter().map(Vec::len).sum();
        if entries > self.free.len() || !self.reserve_flash(core) {
            return false;
        }

        // 1. heads and erases of the reserved flash; its location; the entries  2. the generation,
        // after everything. Cut before 2: the entries saved before count. A device armed too early
        // would save to flash that is not erased or has no head, or would miss entries.
        let words = self
            .found
            .empty
            .iter()
            .map(|sb| u64::from(sb.0) + 1)
            .chain(std::iter::repeat(0));
        for (index, word) in (0..self.reserve.superblocks_max).zip(words) {
            core.media.store_capacitor(
                self.reserve.area_word(index),
                &[word],
                Purpose::Meta,
                After::NOTHING,
            );
        }

        // All entries are stored in zeroed slots: a saved entry has no slot yet.
        for sb in 0..self.tags.len() {
            for at in 0..self.tags[sb].len() {
                let tag = self.tags[sb][at];
                let ppn = core.geometry.page(SbId(sb as u32), tag.offset());
                let entry = Remapping {
                    lpn: tag.lpn,
                    ppn,
                    wsn: tag.wsn(),
                    source: None,
                    atomic: None,
                };
                self.tags[sb][at].slot =
                    self.store(&core.blocks, &mut core.media, &entry, Purpose::Meta);
            }
        }

        let generation = core.clock.tick();
        let after = core.config.guards.waits(Guard::ArmedLast, After::ALL);

        core.media
            .store_capacitor(self.reserve.base, &[generation], Purpose::Meta, after);
        // New entries after the generation: one that landed earlier would be acknowledged, but not
        // saved.
        core.media.fence();
        self.armed = true;
        if self.many_owners {
            self.fullest = self.fullest.max(core.blocks.remapped_max());
        }
        self.found.empty.clear();
        // Last: until the device is armed, the saved pages are the only witnesses of these remaps.
        // An erase waits for everything.
        for sb in std::mem::take(&mut self.found.saved) {
            core.blocks.erase(&mut core.media, sb, &mut core.clock);
        }

        true
    }
}
