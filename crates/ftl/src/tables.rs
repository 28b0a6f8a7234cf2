//! The tables in DRAM: which LPN has which page, how many LPNs have it, and which remaps count.
//!
//! Invariants: those of the parts; `Ftl::check` compares them with each other. Absent: media,
//! superblocks and numbers. What changes a mapping changes its superblock's owners too: `Core`.

use crate::counts::Counts;
use crate::ended::EndedFilters;
use crate::map::Map;
use remap_ssd_media::{Geometry, Lpn, Ppn, SbId};

/// Tables that recovery rebuilds from the media.
pub struct Tables {
    /// Shape of the flash array.
    pub geometry: Geometry,
    /// L2P, with the bit of remapped LPNs (LR).
    pub map: Map,
    /// Reference counts of flash pages (RC).
    pub counts: Counts,
    /// Which remaps may have ended.
    pub ended: EndedFilters,
    /// Numbers of atomic commands that a cut interrupted, while entries with them exist.
    pub aborted: Vec<u64>,
    /// LPNs in doubt for which recovery has no page yet, in order. No bitmap says that they were
    /// deallocated.
    pub doubtful: Vec<Lpn>,
}

impl Tables {
    /// Tables of a device on which nothing is mapped.
    pub fn new(geometry: Geometry, map: Map) -> Self {
        Self {
            geometry,
            map,
            counts: Counts::new(geometry.pages()),
            ended: EndedFilters::new(&geometry),
            aborted: Vec::new(),
            doubtful: Vec::new(),
        }
    }

    /// Does a number belong to an atomic command that a cut interrupted?
    #[inline(always)]
    pub fn is_aborted(&self, wsn: u64) -> bool {
        !self.aborted.is_empty() && self.aborted.contains(&wsn)
    }

    /// Is an entry with this number for this remap to be kept? One of an aborted command may say
    /// the same as an older one, which it must not take the place of: recovery believes the older
    /// one alone.
    #[inline(always)]
    pub fn is_in_force(&self, lpn: Lpn, ppn: Ppn, wsn: u64) -> bool {
        self.map.is_remapped_at(lpn, ppn) & !self.is_aborted(wsn)
    }

    /// The LPNs that are remapped to pages of a superblock, with the pages' offsets, by LPN: what
    /// its entries must say, for when one of them cannot be read. Looks through all of L2P.
    #[cold]
    pub fn remapped_in(&self, sb: SbId) -> Vec<(Lpn, u32)> {
        let remapped = Lpn::range(Lpn::ZERO, self.map.len())
            .filter_map(|lpn| Some((lpn, self.map.get(lpn).filter(|at| at.remapped)?.ppn)));
        let inside = remapped.filter(|(_, ppn)| self.geometry.superblock(*ppn) == sb);
        inside
            .map(|(lpn, ppn)| (lpn, self.geometry.offset(ppn)))
            .collect()
    }
}
