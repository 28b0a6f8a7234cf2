//! Reclaiming the log: superblocks are emptied and erased, and groups with much garbage are
//! rewritten.
//!
//! Emptying a superblock: 1. its pages that count, at their new place, each after the page it is
//! copied from  2. "dead", after everything  3. erases. Cut before 2: a page that exists twice has
//! one number, and counts once.
//!
//! Rewriting a group: 1. its valid entries in new pages  2. the last of these pages, which
//! supersedes all old ones, after everything, including the witnesses that made the other entries
//! invalid. Cut before 2: the old pages count, and the entries of the new ones repeat theirs.
//!
//! A device that is nearly worn out may run out of flash before either is complete. Then the data
//! written so far counts in addition to the data it should have replaced, and is equal to it, as
//! after a cut before 2.
//!
//! Invariants: only data that is durable elsewhere is dropped; while fewer than `pages_max` pages
//! count, some superblock has garbage once the maximum number of superblocks is full. Absent: what
//! the room is needed for.

use super::{
    GROUP_PAGES_MOVED, GROUPS_REWRITTEN, GroupLog, GroupPage, LOG_SUPERBLOCKS_ERASED, doubt,
    keep_known, keep_valid,
};
use crate::config::Config;
use crate::config::guard::Guard;
use crate::core::Core;
use crate::scheme::log_pages;
use crate::scheme::remap_ssd::append_in_force;
use crate::superblock::{Stream, Superblocks};
use remap_ssd_media::{After, Ppn, Purpose, SbId};

/// Free superblocks that the log leaves to garbage collection as long as it has garbage of its own.
fn kept_free(config: &Config) -> u32 {
    2 + config.gc_opens() as u32
}

/// Returns true if the first `superblocks` free superblocks have this number of pages. Failed
/// blocks reduce it.
fn has_pages(core: &Core, superblocks: usize, pages: usize) -> bool {
    core.blocks.free_pages(superblocks, pages as u64) >= pages as u64
}

impl GroupLog {
    /// Ensures that `pages` pages can be programmed, unless blocks fail.
    pub(crate) fn secure(&mut self, core: &mut Core, pages: usize) -> bool {
        while self.live + pages > self.shape.pages_max {
            if !self.rewrite_best(core) {
                return false;
            }
        }
        self.find_room(core, pages)
    }

    fn find_room(&mut self, core: &mut Core, pages: usize) -> bool {
        loop {
            let left = core.blocks.left(Stream::Log) as usize;
            let openable = self.superblocks_max.saturating_sub(self.logs.len());
            let each = core.config.data_pages(&core.geometry) as usize;
            // Before another superblock is opened: as long as this costs less than it gains, the
            // log does not grow.
            if left < pages && self.is_mostly_garbage(each) && self.empty_best(core) {
                continue;
            }

            let spare = core.blocks.free().saturating_sub(kept_free(&core.config)) as usize;
            if left >= pages || has_pages(core, openable.min(spare), pages - left) {
                return true;
            }

            // As a last resort, even the superblocks kept free for garbage collection.
            if !self.empty_best(core) {
                let left = core.blocks.left(Stream::Log) as usize;
                return left >= pages || has_pages(core, openable, pages - left);
            }
        }
    }

    /// Returns true if pages that count use less than half of the superblocks held, not counting
    /// the open one. Then emptying one costs less than it gains.
    fn is_mostly_garbage(&self, each: usize) -> bool {
        self.logs.len() * each > 2 * self.live + each
    }

    /// Opens another superblock. Erases those without pages that count.
    pub(super) fn open_next(&mut self, core: &mut Core) -> Option<SbId> {
        log_pages::close(core);
        let dead: Vec<SbId> = self
            .logs
            .iter()
            .filter(|(_, log)| log.live == 0)
            .map(|(sb, _)| *sb)
            .collect();
        // Here, not when they lost their last page: an erase waits for everything before it, and
        // one wait covers all of them.
        dead.into_iter().for_each(|sb| self.erase(core, sb));
        let opened = core
            .blocks
            .open_next(&mut core.media, Stream::Log, &mut core.clock);
        opened.then(|| core.blocks.open(Stream::Log).expect("just opened").sb)
    }

    /// Empties and erases the superblock with the fewest pages that count. Returns false if that
    /// gains nothing, or if the log ran out of flash.
    fn empty_best(&mut self, core: &mut Core) -> bool {
        // The open one is still being filled; emptying it would move pages into itself.
        let open = core.blocks.open(Stream::Log).map(|open| open.sb);
        let closed = self.logs.iter().filter(|(sb, _)| Some(**sb) != open);
        let Some((live, victim)) = closed.map(|(sb, log)| (log.live, *sb)).min() else {
            return false;
        };
        let left = core.blocks.left(Stream::Log) as usize;
        // No gain, or no room for the pages to move.
        if live >= core.config.data_pages(&core.geometry) as usize
            || (left < live && !has_pages(core, 1, live - left))
        {
            return false;
        }

        core.stats.metadata_gc_runs += 1;
        let pages = std::mem::take(&mut self.logs.get_mut(&victim).expect("held").pages);
        for &(from, owner) in &pages {
            let at = self.groups[owner.0 as usize]
                .pages
                .iter()
                .position(|at| at.page == from);
            // Other pages have been superseded or moved since: a superblock's list is not updated.
            if let Some(at) = at
                && !self.move_page(core, owner, at, from)
            {
                // The rest stays where it is; the victim is emptied later or never.
                self.logs.get_mut(&victim).expect("held").pages = pages;
                return false;
            }
        }

        self.erase(core, victim);
        true
    }

    fn erase(&mut self, core: &mut Core, sb: SbId) {
        let log = self.logs.remove(&sb).expect("held");
        assert_eq!(
            log.live, 0,
            "a superblock whose pages count must not be erased"
        );
        core.stats.scheme.add(LOG_SUPERBLOCKS_ERASED, 1);
        core.blocks.erase(&mut core.media, sb, &mut core.clock);
    }

    /// Moves a page; returns false, and leaves it in place, if there is no room.
    fn move_page(&mut self, core: &mut Core, owner: SbId, at: usize, from: Ppn) -> bool {
        if core.media.meta_uncharged(from).is_err() {
            // Its entries in force are known from L2P: the group is rewritten.
            return self.rewrite(core, owner);
        }
        core.stats.scheme.add(GROUP_PAGES_MOVED, 1);
        let GroupPage { number, .. } = self.groups[owner.0 as usize].pages[at];
        let to = self.place(core, owner, number, |core, taken, oob| {
            core.media
                .copy(from, taken.slot, oob, &[], Purpose::Gc, taken.after)
        });
        let Some(to) = to else { return false };
        self.drop_pages(core.geometry, &[GroupPage { page: from, number }]);
        self.groups[owner.0 as usize].pages[at].page = to;
        true
    }

    /// Lower bound of the pages that rewriting a group gains.
    fn gain(&self, blocks: &Superblocks, sb: SbId) -> usize {
        let pages = self.pages_of(sb);
        if pages == 0 {
            return 0;
        }
        let needed = blocks.owners(sb).remapped.div_ceil(self.shape.slots as u32);
        pages.saturating_sub(needed as usize)
    }

    /// Returns true if rewriting a group gains more than `pages` pages. Like `gain`, but without a
    /// division.
    #[inline]
    fn gains_over(&self, blocks: &Superblocks, sb: SbId, pages: usize) -> bool {
        let held = self.pages_of(sb);
        held > pages && blocks.owners(sb).remapped as usize <= (held - pages - 1) * self.shape.slots
    }

    /// Returns true if rewriting all groups would gain more than `pages` pages.
    pub(crate) fn gains_more_than(&self, blocks: &Superblocks, pages: usize) -> bool {
        let mut gained = 0;
        (0..self.groups.len() as u32).any(|sb| {
            if self.gains_over(blocks, SbId(sb), 0) {
                gained += self.gain(blocks, SbId(sb));
            }
            gained > pages
        })
    }

    /// Rewrites the group with the largest gain.
    pub(crate) fn rewrite_best(&mut self, core: &mut Core) -> bool {
        let (mut gain, mut best) = (0, None);
        for sb in (0..self.groups.len() as u32).map(SbId) {
            if self.gains_over(&core.blocks, sb, gain) {
                (gain, best) = (self.gain(&core.blocks, sb), Some(sb));
            }
        }
        let Some(sb) = best else { return false };
        if !self.find_room(core, self.pages_of(sb) - gain) {
            return false;
        }
        core.stats.metadata_gc_runs += 1;
        self.rewrite(core, sb)
    }

    /// Rewrites a group. Returns false if the log ran out of flash: then the old pages count, and
    /// the new ones written so far.
    fn rewrite(&mut self, core: &mut Core, sb: SbId) -> bool {
        core.stats.scheme.add(GROUPS_REWRITTEN, 1);
        self.charge_read(&mut core.media, sb);
        let mut kept = std::mem::take(&mut self.kept);
        kept.clear();

        if self.read_words(&core.media, sb, &mut kept) {
            keep_known(&mut core.tables, sb, &mut kept, &mut self.doubts);
        } else {
            let mut all = Vec::new();
            self.read(&core.media, sb, &mut all);
            append_in_force(&core.tables, &mut core.clock, sb, &mut all);
            kept.clear();
            keep_valid(&mut core.tables, sb, &all, &mut kept);
        }

        let is_whole = self.replace_pages(core, sb, &kept);
        self.kept = kept;
        is_whole
    }

    /// Programs the entries in force of a group, replacing its pages.
    fn replace_pages(&mut self, core: &mut Core, sb: SbId, kept: &[[u64; 2]]) -> bool {
        // The new pages continue the old numbers, and `base` is the first of them: all older pages
        // are superseded at once.
        let old = self.groups[sb.0 as usize].pages.len();
        let base = self.groups[sb.0 as usize].next;
        let waits = core.config.guards.has(Guard::RewriteWaits);
        let mut pages = kept.chunks(self.shape.slots).peekable();
        while let Some(entries) = pages.next() {
            let last = pages.peek().is_none();
            let after = if last && waits {
                After::ALL
            } else {
                After::FENCE
            };
            // No page names `base` yet, so the old ones count in addition to the new ones.
            if !self.program(core, sb, entries, last.then_some(base), after) {
                doubt(core, sb, kept);
                return false;
            }
        }

        // All entries on flash are in force from now on; entries not yet there are looked up once
        // they are.
        core.tables.ended.start_over(sb);
        let old: Vec<_> = self.groups[sb.0 as usize].pages.drain(..old).collect();
        self.drop_pages(core.geometry, &old);
        true
    }

    /// Releases superblocks as long as emptying them gains any; returns false if none.
    pub(crate) fn give_back(&mut self, core: &mut Core) -> bool {
        let before = self.logs.len();
        // Bounded: emptying one superblock may open another, so that neither gains.
        let mut rounds = 2 * before;
        while self.logs.len() >= before && rounds > 0 {
            rounds -= 1;
            if !self.empty_best(core) && !self.rewrite_best(core) {
                break;
            }
        }
        self.logs.len() < before
    }
}
