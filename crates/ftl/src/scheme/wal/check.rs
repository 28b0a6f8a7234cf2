//! Inspection: the occupancy of the log, and whether its records agree with L2P.
//!
//! Invariant: every remapped home has a page written for it, and a record or the page's OOB is its
//! witness. Absent: changes. For tests and reports only.

use super::Wal;
use super::record::SLOT_WORDS;
use crate::contract::{Inspect, Usage};
use crate::error::Contradiction;
use crate::mapping::tables::Tables;
use crate::superblock::Superblocks;
use remap_ssd_media::{Lpn, Media};

impl Inspect for Wal {
    fn usage(&self, _: &Superblocks) -> Usage {
        let slot = 8 * SLOT_WORDS as u64;
        let used = (self.records.len() - self.free.len()) as u64 * slot;
        Usage {
            capacity_bytes: self.records.len() as u64 * slot,
            entry_room_bytes: self.records.len() as u64 * slot,
            used_bytes: used,
            valid_bytes: used,
            ..Usage::default()
        }
    }

    fn check(&self, tables: &Tables, _: &Superblocks, media: &Media) -> Result<(), Contradiction> {
        if self.run.is_some() {
            return Err(Contradiction(
                "a command left its commit record unfinished".into(),
            ));
        }

        let mut places = vec![0; self.records.len()];
        self.groups
            .iter()
            .flatten()
            .for_each(|slot| places[*slot as usize] += 1);
        let counted = self
            .records
            .iter()
            .map(|record| record.map_or(0, |record| record.places));
        if !counted.eq(places.iter().copied()) {
            return Err(Contradiction(
                "a commit record is in other groups than it counts".into(),
            ));
        }

        for lpn in Lpn::range(Lpn::ZERO, tables.map.len()) {
            let Some(mapping) = tables.map.get(lpn).filter(|mapping| mapping.remapped) else {
                continue;
            };
            let oob = media.oob(mapping.ppn);
            if !media.is_readable(mapping.ppn) {
                continue;
            }

            if oob.second().lpn() != Some(lpn) {
                return Err(Contradiction(format!(
                    "LPN {lpn} is remapped to {:?}, which is not meant for it",
                    mapping.ppn
                )));
            }

            let group = &self.groups[tables.geometry.superblock(mapping.ppn).0 as usize];
            let says = |slot: &u32| {
                let record = self.records[*slot as usize].as_ref();
                record.is_some_and(|record| {
                    record.commit.pairs().any(|pair| pair == (lpn, oob.lpn()))
                })
            };

            if !oob.second().owns() && !group.iter().any(says) {
                return Err(Contradiction(format!(
                    "LPN {lpn} is remapped to {:?} and no record says so",
                    mapping.ppn
                )));
            }
        }

        Ok(())
    }
}
