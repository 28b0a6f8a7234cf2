//! NoRemap: the baseline. Every duplicate is programmed.

use crate::config::kind::{HostBytes, Hue, Medium, SchemeFacts};
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
use remap_ssd_media::{Media, Ppn, Purpose, SbId};

/// The scheme's declaration for the catalogue.
pub(super) const SPEC: SchemeSpec = SchemeSpec::new(
    SchemeFacts {
        name: "none",
        remaps: false,
        medium: Medium::Nowhere,
        hue: Some(Hue::Black),
        host_bytes_per_page: HostBytes { dedup: 0, plain: 0 },
        ..SchemeFacts::DURABLE
    },
    |_, _| Box::new(NoRemap),
);

pub(super) struct NoRemap;

impl Persist for NoRemap {
    fn admit(&mut self, _: &mut Core, _: Ppn, _: bool) -> Result<(), Demotion> {
        Err(Demotion::NvramFull)
    }

    fn persist(&mut self, _: &mut Core, _: &Remapping, _: Purpose) {
        unreachable!("nothing is ever admitted");
    }

    fn persist_moved(&mut self, _: &mut Core, _: &Remapping) -> bool {
        false
    }
}

impl Ownership for NoRemap {
    fn owners(&mut self, _: OwnerLookup) {}

    fn forget(&mut self, _: &mut Media, _: &mut EndedFilters, _: &mut SchemeCounters, _: SbId) {}
}

impl Recover for NoRemap {
    fn replay(&mut self, _: &mut Core, _: &mut Witnesses) -> Result<(), RecoveryError> {
        Ok(())
    }

    fn resume(&mut self, _: &mut Core) -> bool {
        true
    }
}

impl Inspect for NoRemap {
    fn usage(&self, _: &Superblocks) -> Usage {
        Usage::default()
    }

    fn check(&self, _: &Tables, _: &Superblocks, _: &Media) -> Result<(), Contradiction> {
        Ok(())
    }
}

impl LookAhead for NoRemap {}
