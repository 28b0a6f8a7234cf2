//! Inspection: NVRAM usage, and whether the slots agree with L2P.
//!
//! Invariant: every remapped LPN in force has a slot of its page that names it, and each room
//! counts its nonzero slots. Absent: changes. For tests and reports only.

use super::{OwnerSlot, Pebble, TableBytes};
use crate::contract::{Inspect, Occupancy, Usage};
use crate::error::Contradiction;
use crate::mapping::tables::Tables;
use crate::superblock::Superblocks;
use remap_ssd_media::{Lpn, Media};

impl Inspect for Pebble {
    // There is no limit, so nothing to show.
    fn occupancy(&self, _: &Superblocks) -> Occupancy {
        Occupancy::default()
    }

    fn usage(&self, blocks: &Superblocks) -> Usage {
        let TableBytes { l2p, p2l } = self.table_bytes;
        Usage {
            used_bytes: self
                .rooms
                .iter()
                .map(|room| u64::from(room.taken) * 8)
                .sum(),
            valid_bytes: blocks.remapped_total() * 8,
            l2p_bytes: l2p,
            p2l_bytes: p2l,
            ..Usage::default()
        }
    }

    fn check(&self, tables: &Tables, _: &Superblocks, media: &Media) -> Result<(), Contradiction> {
        for lpn in Lpn::range(Lpn::ZERO, tables.map.len()) {
            let Some(mapping) = tables.map.get(lpn).filter(|mapping| mapping.remapped) else {
                continue;
            };
            let at = self.slot_word(mapping.ppn);
            let says =
                |at| OwnerSlot::from_bits(media.peek(at)).lpn() == lpn && media.peek(at) != 0;
            let room = self.rooms[tables.geometry.superblock(mapping.ppn).0 as usize];
            if room.base.is_none() || !(at..at + self.degree).any(says) {
                return Err(Contradiction(format!(
                    "LPN {lpn} is remapped to {:?} and no slot says so",
                    mapping.ppn
                )));
            }
        }

        for (index, room) in self.rooms.iter().enumerate() {
            let len = tables.geometry.pages_per_superblock() as usize * self.degree;
            let first = self.slots + index * len;
            let found = (first..first + len)
                .filter(|at| media.peek(*at) != 0)
                .count();
            if found != room.taken as usize {
                return Err(Contradiction(format!(
                    "superblock {index} has {found} slots taken and counts {}",
                    room.taken
                )));
            }
        }

        Ok(())
    }
}
