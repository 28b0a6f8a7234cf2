//! Recovery of the log, and its comparison with the core's tables.
//!
//! Reads all pages of all log superblocks. Invariants: a page counts if its owner has the
//! incarnation named in the header and no page of the group supersedes it; a page that a cut left
//! in two places counts once. Nothing is written: duplicates disappear with the next superblock
//! that is emptied.

use super::page::{self, GroupPageHeader};
use super::{
    GROUP_ENTRIES_FOUND, GROUP_PAGES_STALE, GroupLog, GroupPage, LogSuperblock, NUMBERS_END,
};
use crate::config::guard::Guard;
use crate::core::Core;
use crate::error::Contradiction;
use crate::error::RecoveryError;
use crate::mapping::tables::Tables;
use crate::recovery::witnesses::Witnesses;
use crate::scheme::log_pages::{self, LogPage};
use remap_ssd_media::{Lpn, Media, Ppn, SbId};
use std::sync::Arc;

/// A page of the log as read by recovery.
struct ScannedPage {
    number: u32,
    base: u32,
    page: Ppn,
    bytes: Arc<[u8]>,
}

fn find(
    core: &mut Core,
    witnesses: &Witnesses,
    LogPage { page, bytes }: LogPage,
    found: &mut [Vec<ScannedPage>],
) {
    let Some(header) = GroupPageHeader::of(&bytes) else {
        return;
    };
    let sb = header.sb();
    if sb.0 >= core.geometry.superblocks() || header.place.number() >= NUMBERS_END {
        return;
    }

    // A page whose owner has been erased since: its offsets refer to other pages now.
    let same_life = header.owner.incarnation() == core.blocks.get(sb).life.incarnation();
    if !witnesses.is_live(sb) || (!same_life && core.config.guards.has(Guard::StaleGroupPages)) {
        core.stats.scheme.add(GROUP_PAGES_STALE, 1);
        return;
    }

    found[sb.0 as usize].push(ScannedPage {
        number: header.place.number(),
        base: header.place.base(),
        page,
        bytes,
    });
}

impl GroupLog {
    /// Finds the groups and reports their entries.
    ///
    /// # Errors
    /// A page cannot be read or rebuilt.
    pub(crate) fn replay(
        &mut self,
        core: &mut Core,
        witnesses: &mut Witnesses,
    ) -> Result<(), RecoveryError> {
        let mut found: Vec<Vec<ScannedPage>> = Vec::new();
        found.resize_with(self.groups.len(), Vec::new);
        // Oldest superblock first, so that `found` has the places of a page in that order, which
        // decides below.
        for sb in core.blocks.logs_by_age() {
            self.logs.insert(sb, LogSuperblock::default());
            let pages = log_pages::read(
                &core.blocks,
                &mut core.media,
                core.config.guards,
                sb,
                &mut witnesses.report.log_pages,
            );
            if let Some(page) = pages.lost {
                return Err(RecoveryError::LogDamaged { page: page.0 });
            }
            pages
                .pages
                .into_iter()
                .for_each(|at| find(core, witnesses, at, &mut found));
        }

        for (index, mut pages) in found.into_iter().enumerate() {
            let sb = SbId(index as u32);
            let base = pages.iter().map(|at| at.base).max().unwrap_or(0);
            // Of two places of one page the one in the younger superblock counts: the other
            // superblock is being emptied.
            pages.reverse();
            pages.sort_by_key(|at| at.number);
            // Over all numbers, including superseded ones: a number must not be reused.
            self.groups[index].next = pages.last().map_or(0, |last| last.number + 1);
            pages.dedup_by_key(|at| at.number);
            pages.retain(|at| at.number >= base);
            for at in pages {
                self.adopt(core, witnesses, sb, at);
            }
        }
        Ok(())
    }

    fn adopt(&mut self, core: &mut Core, witnesses: &mut Witnesses, sb: SbId, at: ScannedPage) {
        let log = self
            .logs
            .get_mut(&core.geometry.superblock(at.page))
            .expect("a page lies in a superblock held");
        log.pages.push((at.page, sb));
        log.live += 1;
        self.live += 1;
        self.groups[sb.0 as usize].pages.push(GroupPage {
            page: at.page,
            number: at.number,
        });

        for entry in page::entries(&at.bytes) {
            if entry.offset() < core.geometry.pages_per_superblock() {
                core.stats.scheme.add(GROUP_ENTRIES_FOUND, 1);
                let page = core.geometry.page(sb, entry.offset());
                // None belongs to an aborted command: no page is programmed while one is in
                // progress, and later `keep_valid` drops its entries.
                witnesses.remap(
                    core,
                    entry.target(),
                    page,
                    entry.wsn(),
                    entry.relocated_source(),
                );
            }
        }
    }

    /// Checks that every remapped LPN is in its group or in `known`, the entries of a superblock
    /// that are not on flash.
    pub(crate) fn check(
        &self,
        tables: &Tables,
        media: &Media,
        mut known: impl FnMut(SbId) -> Vec<(Lpn, u32)>,
    ) -> Result<(), Contradiction> {
        let mut entries: Vec<std::collections::BTreeSet<(Lpn, u32)>> =
            Vec::with_capacity(self.groups.len());
        let mut is_unreadable = vec![false; self.groups.len()];
        let mut live = 0;
        for (index, group) in self.groups.iter().enumerate() {
            let sb = SbId(index as u32);

            let mut all = Vec::new();
            let readable = self.read(media, sb, &mut all);
            if !readable {
                is_unreadable[index] = true;
                if media.faults().read.is_empty() {
                    return Err(Contradiction(format!(
                        "a page of {sb:?}'s entries cannot be read"
                    )));
                }
            }

            let known = known(sb).into_iter();
            entries.push(
                all.iter()
                    .map(|entry| (entry.target(), entry.offset()))
                    .chain(known)
                    .collect(),
            );
            live += group.pages.len();
        }

        let in_logs: usize = self.logs.values().map(|log| log.live).sum();
        if live != self.live || live != in_logs {
            return Err(Contradiction(format!(
                "{live} pages in groups, {in_logs} in the log's superblocks, {} counted",
                self.live
            )));
        }

        for lpn in Lpn::range(Lpn::ZERO, tables.map.len()) {
            let Some(mapping) = tables.map.get(lpn).filter(|mapping| mapping.remapped) else {
                continue;
            };
            let sb = tables.geometry.superblock(mapping.ppn);
            // Only L2P knows the entries of an unreadable page.
            if !is_unreadable[sb.0 as usize]
                && !entries[sb.0 as usize].contains(&(lpn, tables.geometry.offset(mapping.ppn)))
            {
                return Err(Contradiction(format!(
                    "LPN {lpn} is remapped to {:?} and no entry says so",
                    mapping.ppn
                )));
            }
        }
        Ok(())
    }
}
