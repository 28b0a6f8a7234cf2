//! Opt: the upper bound. Owners are found in O(1), without limit, and nothing is durable.

use super::index::OwnerIndex;
use super::{OwnerRef, RemapScheme, Remapping, Usage};
use crate::core::Core;
use crate::recovery::{RecoveryError, Witnesses};
use crate::stats::Demotion;
use remap_ssd_media::{Geometry, Ppn, Purpose, SbId};

pub(super) struct Opt {
    index: OwnerIndex,
}

impl Opt {
    pub fn new(geometry: &Geometry) -> Self {
        Self {
            index: OwnerIndex::new(geometry),
        }
    }
}

impl RemapScheme for Opt {
    fn admit(&mut self, _: &mut Core, _: Ppn, _: bool) -> Result<(), Demotion> {
        Ok(())
    }
    fn persist(&mut self, core: &mut Core, remapping: &Remapping, _: Purpose) {
        self.index.push(core, remapping);
    }
    fn persist_moved(&mut self, core: &mut Core, remapping: &Remapping) -> bool {
        self.index.push(core, remapping);
        true
    }
    fn owners(&mut self, _: &mut Core, sb: SbId, out: &mut Vec<OwnerRef>) {
        self.index.owners(sb, out);
    }
    fn forget(&mut self, _: &mut Core, sb: SbId) {
        self.index.forget(sb);
    }
    fn replay(&mut self, _: &mut Core, _: &mut Witnesses) -> Result<(), RecoveryError> {
        Ok(())
    }
    fn resume(&mut self, _: &mut Core) -> bool {
        true
    }
    fn usage(&self, core: &Core) -> Usage {
        let valid = core.blocks.remapped_total() * 16;
        Usage {
            used_bytes: valid,
            valid_bytes: valid,
            ..Usage::default()
        }
    }
    fn check(&self, core: &Core) -> Result<(), String> {
        self.index.check(core)
    }
}
