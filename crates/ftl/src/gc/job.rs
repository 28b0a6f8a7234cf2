//! The state of a collection: the victim being emptied, and buffers that are reused.
//!
//! Invariant: remaps onto the victim's pages while the job runs are in `late`. Absent: pacing
//! (`pace`), and how pages move (`relocate`).

use crate::config::Config;
use crate::contract::{OwnerRef, Remapping};
use crate::gc::due::Refresh;
use crate::superblock::RegionPeaks;
use remap_ssd_media::{Geometry, Oob, SbId};

/// Pages of a stretch: a victim is collected in stretches.
pub(crate) const STRETCH: u32 = 256;
pub(crate) const NONE: u32 = u32::MAX;
/// The zone of blocks that are put in order, with hybrid mapping.
pub(crate) const ORDERED: usize = 1;

/// A victim whose live pages are being moved.
pub(crate) struct GcJob {
    pub(crate) sb: SbId,
    /// The victim is refreshed, with or without garbage.
    pub(crate) refreshes: bool,
    /// The victim is collected for a refresh that waits for room.
    pub(crate) makes_room: bool,
    /// Hybrid mapping: the victim's blocks have been put in order elsewhere.
    pub(crate) merged: bool,
    /// Next page offset to process.
    pub(crate) next: u32,
    /// Page offset up to which the owners' mappings have been prefetched.
    pub(crate) seen: u32,
    /// Pages gained by this collection, for pacing.
    pub(crate) gain: u32,
    /// Remapped owners by stretch of the victim.
    pub(crate) refs: Vec<Vec<OwnerRef>>,
    /// Owners added while the job runs.
    pub(crate) late: Vec<OwnerRef>,
}

/// A page with at least one owner.
pub(crate) struct LivePage {
    pub(crate) offset: u32,
    /// Its OOB: an owner, and the extension.
    pub(crate) oob: Oob,
    /// True if the owner named by the OOB still owns it.
    pub(crate) owns: bool,
    /// True if it has exactly one owner.
    pub(crate) alone: bool,
}

/// Folds while the host writes.
#[derive(Default)]
pub(crate) struct Folding {
    /// Free superblocks in SLC mode at which folding begins.
    pub(crate) start: u32,
    /// The sequence number from which on to search for a victim again.
    pub(crate) look_again: u64,
    /// The last job was a fold, so that the next one frees space if that is short.
    pub(crate) was_last: bool,
}

/// GC state and scratch buffers.
#[derive(Default)]
pub(crate) struct Gc {
    pub(crate) job: Option<GcJob>,
    /// Superblocks to refresh, if the configuration asks for it.
    pub(crate) refresh: Option<Box<Refresh>>,
    pub(crate) folding: Folding,
    pub(crate) credit: u64,
    /// Set if nothing was worth collecting: the WSN from which on to search again.
    pub(crate) look_again: u64,
    pub(crate) runs_at_wear_check: u64,
    /// Pads that a collection programs at most.
    pub(crate) pads_most: u32,
    /// The most garbage of a superblock, by region.
    pub(crate) peaks: RegionPeaks,
    pub(crate) live: Vec<LivePage>,
    pub(crate) owners: Vec<(OwnerRef, u32)>,
    pub(crate) heads: Vec<u32>,
    pub(crate) scanned: Vec<OwnerRef>,
}

impl Gc {
    /// No job, and no cached maxima.
    pub(crate) fn new(config: &Config, geometry: &Geometry) -> Self {
        Self {
            refresh: Refresh::new(config, geometry),
            folding: Folding {
                start: config.fold_start(geometry),
                ..Folding::default()
            },
            pads_most: config.pads_most(geometry),
            peaks: RegionPeaks::new(geometry.superblocks()),
            ..Self::default()
        }
    }

    /// Notes a remap onto a page of the victim for the current job.
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
