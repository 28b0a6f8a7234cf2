//! Where logical pages are, in DRAM: L2P, reference counts, and what follows from them.
//!
//! An entry of the L2P table is here. Absent: what survives a power cut.

pub(crate) mod apart;
pub(crate) mod block_map;
pub(crate) mod cache;
pub(crate) mod counts;
pub(crate) mod ended;
mod fullest;
pub(crate) mod map;
pub(crate) mod survival;
pub(crate) mod tables;

use remap_ssd_media::Ppn;

/// Location of a logical page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// Flash page that the LPN reads.
    pub ppn: Ppn,
    /// True if remapped there, false if written there.
    pub remapped: bool,
}
