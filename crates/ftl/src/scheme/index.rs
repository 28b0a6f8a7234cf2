//! Owners by superblock, in DRAM: what the simulator uses where the modelled firmware scans its whole log.
//!
//! The scan's cost is charged by the scheme; the index only spares the host computer from doing it.
//! Invariants: of several entries with the same LPN and offset the last is the newest; stale ones are dropped
//! when they outnumber the valid ones. Absent: durability.

use super::{OwnerRef, Remapping};
use crate::core::Core;
use remap_ssd_media::{Geometry, Ppn, SbId};

pub(super) struct OwnerIndex {
    lists: Vec<Vec<OwnerRef>>,
}

impl OwnerIndex {
    pub fn new(geometry: &Geometry) -> Self {
        Self { lists: vec![Vec::new(); geometry.superblocks() as usize] }
    }

    pub fn push(&mut self, core: &mut Core, remapping: &Remapping) {
        let sb = core.geometry.superblock(remapping.ppn);
        let valid = core.blocks.get(sb).remapped as usize;
        let list = &mut self.lists[sb.0 as usize];
        if list.len() > 2 * valid + 64 {
            compact(core, sb, list);
        }
        self.push_unchecked(core, remapping);
    }

    /// During recovery, when the core's counts are not there yet.
    pub fn push_unchecked(&mut self, core: &Core, remapping: &Remapping) {
        let sb = core.geometry.superblock(remapping.ppn);
        let offset = core.geometry.offset(remapping.ppn);
        let entry = OwnerRef { offset, lpn: remapping.lpn, wsn: remapping.wsn, source: remapping.source };
        self.lists[sb.0 as usize].push(entry);
    }

    /// After recovery, which may have met the log's pages out of order.
    pub fn sort(&mut self) {
        self.lists.iter_mut().for_each(|list| list.sort_by_key(|entry| entry.wsn));
    }

    pub fn owners(&self, sb: SbId, out: &mut Vec<OwnerRef>) {
        out.extend_from_slice(&self.lists[sb.0 as usize]);
    }

    pub fn forget(&mut self, sb: SbId) {
        self.lists[sb.0 as usize] = Vec::new();
    }

    /// Every valid entry, each mapping once.
    pub fn valid(&mut self, core: &mut Core) -> Vec<Remapping> {
        let mut all = Vec::new();
        for (index, list) in self.lists.iter_mut().enumerate() {
            let sb = SbId(index as u32);
            compact(core, sb, list);
            all.extend(list.iter().map(|entry| Remapping {
                lpn: entry.lpn,
                ppn: core.geometry.page(sb, entry.offset),
                wsn: entry.wsn,
                source: None,
                atomic: None,
            }));
        }
        all
    }

    pub fn check(&self, core: &Core) -> Result<(), String> {
        for lpn in 0..core.map.len() {
            let Some(mapping) = core.map.get(lpn).filter(|mapping| mapping.remapped) else { continue };
            let (sb, offset) = (core.geometry.superblock(mapping.ppn), core.geometry.offset(mapping.ppn));
            if !self.lists[sb.0 as usize].iter().any(|entry| entry.lpn == lpn && entry.offset == offset) {
                return Err(format!("LPN {lpn} is remapped to {:?} and no entry says so", mapping.ppn));
            }
        }
        Ok(())
    }
}

fn compact(core: &mut Core, sb: SbId, list: &mut Vec<OwnerRef>) {
    let page = |core: &Core, entry: &OwnerRef| -> Ppn { core.geometry.page(sb, entry.offset) };
    let mut kept = Vec::with_capacity(core.blocks.get(sb).remapped as usize + 64);
    for entry in list.iter().rev() {
        let ppn = page(core, entry);
        if core.map.is_remapped_at(entry.lpn, ppn) {
            core.map.hide_remapped(entry.lpn);
            kept.push(*entry);
        }
    }
    kept.iter().for_each(|entry| core.map.mark_remapped(entry.lpn));
    kept.reverse();
    *list = kept;
}
