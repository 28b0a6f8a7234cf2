//! Opt: the upper bound. Owners are found in O(1), without limits, and nothing is durable.

use super::index::OwnerIndex;
use crate::config::kind::{Hue, Medium, SchemeFacts};
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
        name: "opt",
        durable: false,
        exact_dedup: true,
        medium: Medium::Nowhere,
        hue: Some(Hue::Green),
        ..SchemeFacts::DURABLE
    },
    |_, geometry| Box::new(Opt::new(geometry)),
);

pub(super) struct Opt {
    index: OwnerIndex,
}

impl Opt {
    pub(super) fn new(geometry: &Geometry) -> Self {
        Self {
            index: OwnerIndex::new(geometry),
        }
    }
}

impl Persist for Opt {
    fn admit(&mut self, _: &mut Core, _: Ppn, _: bool) -> Result<(), Demotion> {
        Ok(())
    }

    fn persist(&mut self, core: &mut Core, remapping: &Remapping, _: Purpose) {
        self.index.push(&mut core.tables, &core.blocks, remapping);
    }

    fn persist_moved(&mut self, core: &mut Core, remapping: &Remapping) -> bool {
        self.index.push(&mut core.tables, &core.blocks, remapping);
        true
    }
}

impl Ownership for Opt {
    fn owners(&mut self, lookup: OwnerLookup) {
        self.index.owners(lookup.sb, lookup.out);
    }

    fn forget(&mut self, _: &mut Media, _: &mut EndedFilters, _: &mut SchemeCounters, sb: SbId) {
        self.index.forget(sb);
    }
}

impl Recover for Opt {
    fn replay(&mut self, _: &mut Core, _: &mut Witnesses) -> Result<(), RecoveryError> {
        Ok(())
    }

    fn resume(&mut self, _: &mut Core) -> bool {
        true
    }
}

impl Inspect for Opt {
    fn usage(&self, blocks: &Superblocks) -> Usage {
        let valid = blocks.remapped_total() * 16;
        Usage {
            used_bytes: valid,
            valid_bytes: valid,
            ..Usage::default()
        }
    }

    fn check(&self, tables: &Tables, _: &Superblocks, _: &Media) -> Result<(), Contradiction> {
        self.index.check(tables)
    }
}

impl LookAhead for Opt {}
