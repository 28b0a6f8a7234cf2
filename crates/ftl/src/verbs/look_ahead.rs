//! Look-ahead: prefetches the cache lines that commands and collections will soon touch.
//!
//! A prefetch affects only time, so nothing here may change a table. Absent: prefetches inside a
//! loop over a table (`in_force`, `recovery`, `relocate`), which are part of that loop.

use crate::dedup::{Fingerprint, PageLookup};
use crate::ftl::Ftl;
use crate::gc::job::{GcJob, STRETCH};
use remap_ssd_media::{Lpn, Ppn};

/// Pages whose owners' mappings are prefetched at once: as many cache lines as can be in flight.
const SEEN_AT_ONCE: u32 = 16;

impl Ftl {
    /// Prefetches the first cache lines for a command on this LPN that is about 16 commands away.
    #[inline]
    pub fn look_ahead_far(&self, lpn: Lpn, identity: Option<u64>) {
        if lpn.is_below(self.core.config.lpns) {
            self.core.tables.map.prefetch(lpn);
        }
        if let (Some(dedup), Some(identity)) = (&self.dedup, identity) {
            dedup.prefetch_line(&Fingerprint::Identity(identity));
        }
    }

    /// The same for about 8 commands away: prefetches the lines that the first ones point to.
    #[inline]
    pub fn look_ahead_near(&self, lpn: Lpn, identity: Option<u64>) {
        let core = &self.core;
        if lpn.is_below(core.config.lpns)
            && let Some(old) = core.tables.map.get(lpn)
        {
            core.tables.counts.prefetch(old.ppn);
            // The end of its remap will be noted in the filter of the superblock that it leaves.
            if old.remapped {
                core.tables
                    .ended
                    .prefetch(core.geometry.superblock(old.ppn), lpn);
            }
        }

        let pages = PageLookup {
            media: &core.media,
            counts: &core.tables.counts,
        };

        if let (Some(dedup), Some(identity)) = (&self.dedup, identity)
            && let Some(ppn) = dedup.prefetch_page(&Fingerprint::Identity(identity), pages)
        {
            self.scheme.look_ahead(&core.media, ppn);
        }
    }

    /// Prefetches the mappings of a few more pages of the next stretch: more cannot be in flight at
    /// once.
    #[inline]
    pub(crate) fn look_at_pages(&mut self) {
        let (core, Some(job)) = (&self.core, &mut self.gc.job) else {
            return;
        };
        let end = (job.next + STRETCH).min(core.blocks.extent(job.sb));
        if job.seen >= end {
            return;
        }

        let (first, len) = (
            core.geometry.page(job.sb, job.seen),
            SEEN_AT_ONCE.min(end - job.seen),
        );
        core.tables.counts.each_owned(first, len, |index, _| {
            core.tables
                .map
                .prefetch(core.media.oob(Ppn(first.0 + index)).lpn())
        });

        job.seen += len;
    }

    /// Prefetches the OOBs of the next stretch while the host continues.
    pub(crate) fn look_at_stretch(&self, job: &GcJob) {
        let pages = STRETCH.min(self.core.geometry.pages_per_superblock() - job.next);
        self.core
            .media
            .prefetch_run(self.core.geometry.page(job.sb, job.next), pages);
    }
}
