//! Rewriting: the log is read, its valid entries are programmed again, and the old superblocks are
//! erased.
//!
//! Invariant: the old log is erased only after all of the new one is durable. Absent: when to
//! reclaim (`device_log`), and victim selection: the log is rewritten as a whole.

use super::FLog;
use crate::config::Config;
use crate::core::Core;
use crate::scheme::device_log::LogMedium;
use crate::scheme::index::OwnerIndex;
use crate::scheme::log_entry::{ENTRIES_PER_PAGE, LogEntry};
use crate::superblock::{OpenSuperblock, Stream, Superblocks};
use remap_ssd_media::{After, Geometry, Ppn, SbId};

impl FLog {
    /// Reads all entries, writes the valid ones to new superblocks, and erases the old ones. After
    /// a power cut it continues in a superblock that was just begun, so that rewriting that is
    /// interrupted repeatedly does not begin a new one each time. It does not continue in one with
    /// entries of aborted commands, which rewriting must drop.
    ///
    /// Returns false if the log ran out of flash before the new log was complete, as may happen on
    /// a device that is nearly worn out. Then both logs and the buffers count, as after a cut
    /// before 2, and no entry is added.
    pub(super) fn rewrite(
        &mut self,
        core: &mut Core,
        index: &mut OwnerIndex,
        continue_open: bool,
    ) -> bool {
        core.stats.metadata_gc_runs += 1;
        self.charge_scan(&mut core.media);
        index.drop_ended(&mut core.tables);
        let is_continued = |open: &&OpenSuperblock| {
            continue_open && open.next * 2 < open.end && !self.aborted.contains(&open.sb)
        };
        let begun = core
            .blocks
            .open(Stream::Log)
            .filter(is_continued)
            .map(|open| open.sb);
        if begun.is_none() {
            core.blocks.close_log();
        }

        let old: Vec<SbId> = self
            .superblocks
            .extract_if(.., |sb| Some(*sb) != begun)
            .collect();
        let old_pages: Vec<Ppn> = self
            .pages
            .extract_if(.., |page| Some(core.geometry.superblock(*page)) != begun)
            .collect();
        if !self.program_index(core, index) {
            self.superblocks.splice(..0, old);
            self.pages.splice(..0, old_pages);
            self.stuck = true;
            return false;
        }

        // 1. the new log (each page after the entries it holds)  2. zeroes in the buffer, erases of
        // the old log.
        for buffer in if self.stuck {
            vec![0, 1]
        } else {
            vec![self.buffer]
        } {
            let at = self.word(buffer, 0);
            self.clears[buffer] = core
                .media
                .clear_capacitor(at, ENTRIES_PER_PAGE * 2, After::ALL);
        }

        self.stuck = false;
        self.buffer ^= 1;
        self.buffered = 0;
        for sb in old {
            core.blocks.erase(&mut core.media, sb, &mut core.clock);
        }
        true
    }

    /// Programs all entries of the index; returns false if the log ran out of flash.
    fn program_index(&mut self, core: &mut Core, index: &OwnerIndex) -> bool {
        let mut words = Vec::with_capacity(self.slots * 2);
        for (sb, entries) in index.lists() {
            let (base, incarnation) = (
                core.geometry.page(sb, 0).0,
                core.blocks.get(sb).life.incarnation(),
            );
            for entry in entries {
                let ppn = Ppn(base + entry.offset);
                words.extend(LogEntry::new_in(incarnation, entry.wsn, entry.lpn, ppn).words());
                if words.len() == self.slots * 2 {
                    if self.program(core, &words).is_none() {
                        return false;
                    }
                    words.clear();
                }
            }
        }

        words.is_empty() || self.program(core, &words).is_some()
    }

    /// Superblocks that rewriting the log may open.
    pub(super) fn superblocks_of_valid(
        &self,
        config: &Config,
        blocks: &Superblocks,
        geometry: Geometry,
    ) -> u32 {
        let pages = blocks.remapped_total().div_ceil(self.slots as u64) as u32 + 1;
        pages.div_ceil(config.data_pages(&geometry)) + 1
    }
}
