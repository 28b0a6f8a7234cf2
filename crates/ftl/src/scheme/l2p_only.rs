//! L2P only (JFTL, ANViL): a remap changes the mapping table and nothing else. The second negative
//! control.
//!
//! Each page names one owner in its OOB, that of its last program. When a page moves, only that
//! owner can be found. The other LPNs would keep pointing to a page that is about to be erased, and
//! return the data written there next. The core unmaps them at that moment and counts them
//! (`Stats::lost_references`): it finds them through an index that the modelled device does not
//! have. A power cut loses every remap.
//!
//! Invariant: `index` names every remapped owner, so that the core's own tables stay consistent.
//! Absent: durability, and limits.

use super::index::OwnerIndex;
use crate::config::kind::{Medium, SchemeFacts};
use crate::contract::{
    Inspect, LookAhead, OwnerLookup, Ownership, Persist, Recover, Remapping, SchemeSpec, Usage,
};
use crate::core::Core;
use crate::error::Contradiction;
use crate::error::RecoveryError;
use crate::mapping::ended::EndedFilters;
use crate::mapping::tables::Tables;
use crate::recovery::witnesses::Witnesses;
use crate::stats::{Demotion, SchemeCounters};
use crate::superblock::Superblocks;
use remap_ssd_media::{Geometry, Media, Ppn, Purpose, SbId};

/// The scheme's declaration for the catalogue.
pub(super) const SPEC: SchemeSpec = SchemeSpec::new(
    SchemeFacts {
        name: "unsafe",
        durable: false,
        owners_move: false,
        needs_pages: Some("does not know who owns a page that moves"),
        medium: Medium::Nowhere,
        ..SchemeFacts::DURABLE
    },
    |_, geometry| Box::new(L2pOnly::new(geometry)),
);

pub(super) struct L2pOnly {
    index: OwnerIndex,
}

impl L2pOnly {
    pub(super) fn new(geometry: &Geometry) -> Self {
        Self {
            index: OwnerIndex::new(geometry),
        }
    }
}

impl Persist for L2pOnly {
    fn admit(&mut self, _: &mut Core, _: Ppn, _: bool) -> Result<(), Demotion> {
        Ok(())
    }

    fn persist(&mut self, core: &mut Core, remapping: &Remapping, _: Purpose) {
        self.index.push(&mut core.tables, &core.blocks, remapping);
    }

    fn persist_moved(&mut self, _: &mut Core, _: &Remapping) -> bool {
        unreachable!("references of a moved page are lost before they could be moved");
    }
}

impl Ownership for L2pOnly {
    fn owners(&mut self, lookup: OwnerLookup) {
        self.index.owners(lookup.sb, lookup.out);
    }

    fn forget(&mut self, _: &mut Media, _: &mut EndedFilters, _: &mut SchemeCounters, sb: SbId) {
        self.index.forget(sb);
    }
}

impl Recover for L2pOnly {
    fn replay(&mut self, _: &mut Core, _: &mut Witnesses) -> Result<(), RecoveryError> {
        Ok(())
    }

    fn resume(&mut self, _: &mut Core) -> bool {
        true
    }
}

impl Inspect for L2pOnly {
    fn usage(&self, _: &Superblocks) -> Usage {
        Usage::default()
    }

    fn check(&self, tables: &Tables, _: &Superblocks, _: &Media) -> Result<(), Contradiction> {
        self.index.check(tables)
    }
}

impl LookAhead for L2pOnly {}
