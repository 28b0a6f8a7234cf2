//! The state of a collection: the victim being emptied, and buffers that outlive it.
//!
//! Invariant: the pages of the victim that the host remaps onto while the job runs are in `late`.
//! Absent: when it goes on (`pace`), and how pages move (`relocate`).

use crate::contract::{OwnerRef, Remapping};
use crate::superblock::RegionPeaks;
use remap_ssd_media::{Geometry, Oob, SbId};

/// Pages of the stretches into which a victim is divided.
pub(crate) const STRETCH: u32 = 256;
pub(crate) const NONE: u32 = u32::MAX;
/// The zone of blocks that are put in order, under hybrid mapping.
pub(crate) const ORDERED: usize = 1;

/// A victim whose live pages are being moved.
pub struct GcJob {
    pub(crate) sb: SbId,
    /// Hybrid mapping: the victim's blocks are in order elsewhere.
    pub(crate) merged: bool,
    /// Next page offset to look at.
    pub(crate) next: u32,
    /// Page offset up to which the owners' mappings have been asked for.
    pub(crate) seen: u32,
    /// Pages gained per collection, for pacing.
    pub(crate) gain: u32,
    /// Remapped owners by stretch of the victim.
    pub(crate) refs: Vec<Vec<OwnerRef>>,
    /// Owners that came while the job ran.
    pub(crate) late: Vec<OwnerRef>,
}

/// A page that has at least one owner.
pub(crate) struct LivePage {
    pub(crate) offset: u32,
    /// What it says of itself: an owner, and its extension.
    pub(crate) oob: Oob,
    /// Is the owner that the OOB names still one?
    pub(crate) owns: bool,
    /// Whether it has exactly one owner.
    pub(crate) alone: bool,
}

/// GC state and scratch buffers.
#[derive(Default)]
pub struct Gc {
    pub(crate) job: Option<GcJob>,
    pub(crate) credit: u64,
    /// Nothing was worth collecting: the number from which on it may be.
    pub(crate) look_again: u64,
    pub(crate) runs_at_wear_check: u64,
    /// The most garbage of a superblock, by region.
    pub(crate) peaks: RegionPeaks,
    pub(crate) live: Vec<LivePage>,
    pub(crate) owners: Vec<(OwnerRef, u32)>,
    pub(crate) heads: Vec<u32>,
    pub(crate) scanned: Vec<OwnerRef>,
}

impl Gc {
    /// No job, and no superblock has been looked at.
    pub(crate) fn new(geometry: &Geometry) -> Self {
        Self {
            peaks: RegionPeaks::new(geometry.superblocks()),
            ..Self::default()
        }
    }

    /// A remap onto a page of the victim must not be missed by the job under way.
    #[inline]
    pub(crate) fn note_remap(&mut self, geometry: &Geometry, remapping: &Remapping) {
        if let Some(job) = &mut self.job
            && geometry.superblock(remapping.ppn) == job.sb
        {
            let offset = geometry.offset(remapping.ppn);
            let Remapping {
                lpn, wsn, source, ..
            } = *remapping;
            job.late.push(OwnerRef {
                offset,
                lpn,
                wsn,
                source,
            });
        }
    }
}
