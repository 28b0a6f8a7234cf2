//! The DRAM tables: L2P, reference counts, and which remaps are in force.
//!
//! Invariants: those of the parts; `Ftl::check` compares them with each other. Absent: media,
//! superblocks and numbers. A change of a mapping also changes its superblock's owners: see `Core`.

use crate::mapping::counts::Counts;
use crate::mapping::ended::EndedFilters;
use crate::mapping::map::Map;
use remap_ssd_media::{Geometry, Lpn, Ppn, SbId};

/// Tables that recovery rebuilds from the media.
pub(crate) struct Tables {
    /// Shape of the flash array.
    pub geometry: Geometry,
    /// L2P, with the bit of remapped LPNs (LR).
    pub map: Map,
    /// Reference counts of flash pages (RC).
    pub counts: Counts,
    /// Filters of remaps that may have ended.
    pub ended: EndedFilters,
    /// Numbers of interrupted atomic commands, as long as entries with them exist, in ascending order.
    pub aborted: Vec<u64>,
    /// LPNs in doubt that have no page yet during recovery, in order. No bitmap records them as
    /// deallocated.
    pub doubtful: Vec<Lpn>,
}

impl Tables {
    /// Tables of a device without mappings.
    pub(crate) fn new(geometry: Geometry, map: Map) -> Self {
        Self {
            geometry,
            map,
            counts: Counts::new(geometry.pages()),
            ended: EndedFilters::new(&geometry),
            aborted: Vec::new(),
            doubtful: Vec::new(),
        }
    }

    /// Returns true if the number belongs to an interrupted atomic command.
    #[inline(always)]
    pub(crate) fn is_aborted(&self, wsn: u64) -> bool {
        !self.aborted.is_empty() && self.aborted.binary_search(&wsn).is_ok()
    }

    /// Returns true if an entry with this number for this remap must be kept. An entry of an
    /// aborted command may equal an older one, which it must not replace: recovery accepts only the
    /// older one.
    #[inline(always)]
    pub(crate) fn is_in_force(&self, lpn: Lpn, ppn: Ppn, wsn: u64) -> bool {
        self.map.is_remapped_at(lpn, ppn) & !self.is_aborted(wsn)
    }

    /// The LPNs that are remapped to pages of a superblock, with the pages' offsets, by LPN. They
    /// replace the superblock's entries if one of them cannot be read. Scans all of L2P.
    #[cold]
    pub(crate) fn remapped_in(&self, sb: SbId) -> Vec<(Lpn, u32)> {
        let remapped = Lpn::range(Lpn::ZERO, self.map.len())
            .filter_map(|lpn| Some((lpn, self.map.get(lpn).filter(|at| at.remapped)?.ppn)));
        let inside = remapped.filter(|(_, ppn)| self.geometry.superblock(*ppn) == sb);
        inside
            .map(|(lpn, ppn)| (lpn, self.geometry.offset(ppn)))
            .collect()
    }
}
