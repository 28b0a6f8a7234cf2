//! Reading the log back, and comparing it with the core's tables.
//!
//! All pages of all superblocks of the log are read. Invariants: a page counts if its owner has the incarnation that
//! the header names, if no page of the group supersedes it, and once, if a cut left it in two places. Nothing is
//! written: what is there twice goes with the next superblock that is emptied.

use super::page::{self, Header};
use super::{GroupLog, GroupPage, LogSuperblock};
use crate::core::Core;
use crate::guard::Guard;
use crate::recovery::Witnesses;
use crate::superblock::{State, Stream};
use remap_ssd_media::{Oob, Ppn, Purpose, SbId};

/// A page found.
#[derive(Clone, Copy)]
struct Found {
    number: u32,
    base: u32,
    page: Ppn,
}

impl GroupLog {
    /// Finds the groups and tells their entries.
    pub fn replay(&mut self, core: &mut Core, witnesses: &mut Witnesses) {
        let is_log = |stream, state| stream == Stream::Log && matches!(state, State::Open | State::Closed);
        let logs = core.blocks.iter().filter(|(_, sb)| is_log(sb.stream, sb.state));
        let mut logs: Vec<(u64, SbId)> = logs.map(|(id, sb)| (sb.opened, id)).collect();
        logs.sort_unstable();
        let mut found: Vec<Vec<Found>> = vec![Vec::new(); self.groups.len()];
        for (_, sb) in logs {
            self.logs.insert(sb, LogSuperblock::default());
            for offset in 0..core.geometry.pages_per_superblock() {
                let page = core.geometry.page(sb, offset);
                if core.media.is_programmed(page) {
                    witnesses.report.log_pages += 1;
                    self.find(core, witnesses, page, &mut found);
                }
            }
        }
        for (index, mut pages) in found.into_iter().enumerate() {
            let sb = SbId(index as u32);
            let base = pages.iter().map(|at| at.base).max().unwrap_or(0);
            // Of two places of one page the one in the younger superblock counts: the other is being emptied.
            pages.reverse();
            pages.sort_by_key(|at| at.number);
            self.groups[index].next = pages.last().map_or(0, |last| last.number + 1);
            pages.dedup_by_key(|at| at.number);
            pages.retain(|at| at.number >= base);
            for at in pages {
                self.adopt(core, witnesses, sb, at);
            }
        }
    }

    fn find(&mut self, core: &mut Core, witnesses: &Witnesses, page: Ppn, found: &mut [Vec<Found>]) {
        let Ok(Some((oob, bytes))) = core.media.read_meta(page, Purpose::Meta) else { return };
        let log = core.blocks.get(core.geometry.superblock(page)).life.incarnation() & 63;
        // A page of the incarnation before is in a block whose erase was cut.
        let is_present = oob.incarnation() == log || !core.config.guards.has(Guard::Incarnations);
        let Some(header) = Header::of(&bytes).filter(|_| oob.lpn() == Oob::LOG && is_present) else { return };
        let sb = header.sb();
        if sb.0 >= core.geometry.superblocks() || header.place.number() == u32::MAX {
            return;
        }
        let same_life = header.owner.incarnation() == core.blocks.get(sb).life.incarnation();
        if !witnesses.is_live(sb) || (!same_life && core.config.guards.has(Guard::StaleGroupPages)) {
            core.stats.group_pages_stale += 1;
            return;
        }
        found[sb.0 as usize].push(Found { number: header.place.number(), base: header.place.base(), page });
    }

    fn adopt(&mut self, core: &mut Core, witnesses: &mut Witnesses, sb: SbId, at: Found) {
        let log = self.logs.get_mut(&core.geometry.superblock(at.page)).expect("a page lies in a superblock held");
        log.pages.push((at.page, sb));
        log.live += 1;
        self.live += 1;
        self.groups[sb.0 as usize].pages.push(GroupPage { page: at.page, number: at.number });
        let entries: Vec<_> =
            core.media.meta_uncharged(at.page).map(|bytes| page::entries(bytes).collect()).unwrap_or_default();
        for entry in entries {
            if entry.offset() < core.geometry.pages_per_superblock() {
                core.stats.group_entries_found += 1;
                let page = core.geometry.page(sb, entry.offset());
                witnesses.remap(core, entry.target(), page, entry.wsn(), entry.relocated_source());
            }
        }
    }

    /// Every remapped LPN must be in `known` (what else is known of a superblock) or in its group.
    pub fn check(&self, core: &Core, mut known: impl FnMut(SbId) -> Vec<(u32, u32)>) -> Result<(), String> {
        let mut entries: Vec<std::collections::BTreeSet<(u32, u32)>> = Vec::with_capacity(self.groups.len());
        let mut live = 0;
        for (index, group) in self.groups.iter().enumerate() {
            let sb = SbId(index as u32);
            let mut all = Vec::new();
            let readable = self.read(core, sb, &mut all);
            if !readable && core.media.faults().read.is_empty() {
                return Err(format!("a page of {sb:?}'s entries cannot be read"));
            }
            let known = known(sb).into_iter();
            entries.push(all.iter().map(|entry| (entry.target(), entry.offset())).chain(known).collect());
            live += group.pages.len();
        }
        let in_logs: usize = self.logs.values().map(|log| log.live).sum();
        if live != self.live || live != in_logs {
            return Err(format!("{live} pages in groups, {in_logs} in the log's superblocks, {} counted", self.live));
        }
        for lpn in 0..core.map.len() {
            let Some(mapping) = core.map.get(lpn).filter(|mapping| mapping.remapped) else { continue };
            let sb = core.geometry.superblock(mapping.ppn);
            if !entries[sb.0 as usize].contains(&(lpn, core.geometry.offset(mapping.ppn))) {
                return Err(format!("LPN {lpn} is remapped to {:?} and no entry says so", mapping.ppn));
            }
        }
        Ok(())
    }
}
