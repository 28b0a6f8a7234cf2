//! Owners by superblock, in DRAM: stands in for the modelled firmware's scan of its whole log.
//!
//! The scheme charges the cost of the scan; the index saves only the host computer's time.
//! Invariants: of several entries with the same LPN and offset the last is the newest; stale ones
//! are dropped when they outnumber the valid ones. Absent: durability.

use super::in_force::{find_doubtful, keep_gone, take_out};
use crate::contract::{OwnerRef, Remapping};
use crate::error::Contradiction;
use crate::mapping::tables::Tables;
use crate::superblock::Superblocks;
use remap_ssd_media::{Geometry, Lpn, Ppn, SbId};

#[derive(Default)]
pub(super) struct OwnerIndex {
    lists: Vec<Vec<OwnerRef>>,
    scratch: IndexScratch,
}

#[derive(Default)]
struct IndexScratch {
    doubtful: Vec<u32>,
    hidden: Vec<Lpn>,
}

impl OwnerIndex {
    pub(super) fn new(geometry: &Geometry) -> Self {
        Self {
            lists: vec![Vec::new(); geometry.superblocks() as usize],
            scratch: IndexScratch::default(),
        }
    }

    pub(super) fn push(
        &mut self,
        tables: &mut Tables,
        blocks: &Superblocks,
        remapping: &Remapping,
    ) {
        let sb = tables.geometry.superblock(remapping.ppn);
        let valid = blocks.owners(sb).remapped as usize;
        let list = &mut self.lists[sb.0 as usize];
        // Amortized: a list is compacted only after about as many pushes as it has valid entries,
        // and small ones are not.
        if list.len() > 2 * valid + 64 {
            self.scratch.compact(tables, sb, list, false);
        }
        self.push_unchecked(tables.geometry, remapping);
    }

    /// For recovery, before the core's counts exist.
    pub(super) fn push_unchecked(&mut self, geometry: Geometry, remapping: &Remapping) {
        let sb = geometry.superblock(remapping.ppn);
        let offset = geometry.offset(remapping.ppn);
        let entry = OwnerRef {
            offset,
            lpn: remapping.lpn,
            wsn: remapping.wsn,
            source: remapping.source,
        };
        self.lists[sb.0 as usize].push(entry);
    }

    /// For recovery, which may have read the log's pages out of order.
    pub(super) fn sort(&mut self) {
        self.lists
            .iter_mut()
            .for_each(|list| list.sort_by_key(|entry| entry.wsn));
    }

    pub(super) fn owners(&self, sb: SbId, out: &mut Vec<OwnerRef>) {
        out.extend_from_slice(&self.lists[sb.0 as usize]);
    }

    pub(super) fn forget(&mut self, sb: SbId) {
        self.lists[sb.0 as usize] = Vec::new();
    }

    /// Keeps the entries in force, one for each mapping.
    pub(super) fn sort_out(&mut self, tables: &mut Tables) {
        for (sb, list) in (0..).map(SbId).zip(&mut self.lists) {
            self.scratch.compact(tables, sb, list, false);
        }
    }

    /// The same for a scheme that has only these entries and resets the filter of a superblock that
    /// it forgets: looks up only entries whose remap may have ended.
    pub(super) fn drop_ended(&mut self, tables: &mut Tables) {
        for (sb, list) in (0..).map(SbId).zip(&mut self.lists) {
            self.scratch.compact(tables, sb, list, true);
            tables.ended.start_over(sb);
        }
    }

    /// Every entry as a remapping.
    pub(super) fn iter(&self, geometry: Geometry) -> impl Iterator<Item = Remapping> {
        (0..)
            .map(SbId)
            .zip(&self.lists)
            .flat_map(move |(sb, list)| {
                let first = geometry.page(sb, 0).0;
                list.iter().map(move |entry| Remapping {
                    lpn: entry.lpn,
                    ppn: Ppn(first + entry.offset),
                    wsn: entry.wsn,
                    source: None,
                    atomic: None,
                })
            })
    }

    /// The entries of every superblock.
    pub(super) fn lists(&self) -> impl Iterator<Item = (SbId, &[OwnerRef])> {
        (0..).map(SbId).zip(self.lists.iter().map(Vec::as_slice))
    }

    /// Checks that every entry that `drop_ended` would not look up is in force.
    pub(super) fn check_ended_noticed(&self, tables: &Tables) -> Result<(), Contradiction> {
        for (sb, list) in self.lists() {
            let ended = tables.ended.of(sb);
            for entry in list {
                let in_force = tables
                    .map
                    .is_remapped_at(entry.lpn, tables.geometry.page(sb, entry.offset));
                if !in_force && !ended.may_have_ended(entry.lpn) {
                    return Err(Contradiction(format!(
                        "{sb:?} has an entry for LPN {} that ended unnoticed",
                        entry.lpn
                    )));
                }
            }
        }
        Ok(())
    }

    pub(super) fn check(&self, tables: &Tables) -> Result<(), Contradiction> {
        for lpn in Lpn::range(Lpn::ZERO, tables.map.len()) {
            let Some(mapping) = tables.map.get(lpn).filter(|mapping| mapping.remapped) else {
                continue;
            };
            let (sb, offset) = (
                tables.geometry.superblock(mapping.ppn),
                tables.geometry.offset(mapping.ppn),
            );

            if !self.lists[sb.0 as usize]
                .iter()
                .any(|entry| entry.lpn == lpn && entry.offset == offset)
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

impl IndexScratch {
    /// Drops the entries that are not in force, and all but the newest of each mapping. Looks up
    /// all entries, or only those whose remap may have ended.
    fn compact(
        &mut self,
        tables: &mut Tables,
        sb: SbId,
        list: &mut Vec<OwnerRef>,
        only_ended: bool,
    ) {
        let Self { doubtful, hidden } = self;
        doubtful.clear();
        if only_ended {
            find_doubtful(
                &tables.map,
                tables.ended.of(sb),
                list,
                |entry| entry.lpn,
                |index| index as u32,
                doubtful,
            );
        } else {
            doubtful.extend(0..list.len() as u32);
        }

        keep_gone(tables, doubtful, hidden, |tables, at| {
            let entry = &list[at as usize];
            (!tables.is_aborted(entry.wsn))
                .then(|| (entry.lpn, tables.geometry.page(sb, entry.offset)))
        });

        take_out(list, doubtful);
    }
}
