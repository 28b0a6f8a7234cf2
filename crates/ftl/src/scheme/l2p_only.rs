//! L2P only (JFTL, ANViL): a remap changes the mapping table and nothing else. The second negative control.
//!
//! Each page still names one owner in its OOB, that of its last program. When a page moves, only that owner can be
//! found; the other LPNs would go on pointing to a page that is about to be erased, and return whatever is written
//! there next. The core unmaps them at that moment and counts them (`Stats::lost_references`): it knows them from an
//! index that the modelled device does not have. A power cut loses every remap.
//!
//! Invariant: `index` names every remapped owner, so that the core's own tables stay sound.
//! Absent: anything durable, and any limit.

use super::index::OwnerIndex;
use super::{OwnerRef, RemapScheme, Remapping, Usage};
use crate::core::Core;
use crate::recovery::{RecoveryError, Witnesses};
use crate::stats::Demotion;
use remap_ssd_media::{Geometry, Ppn, Purpose, SbId};

pub(super) struct L2pOnly {
    index: OwnerIndex,
}

impl L2pOnly {
    pub fn new(geometry: &Geometry) -> Self {
        Self {
            index: OwnerIndex::new(geometry),
        }
    }
}

impl RemapScheme for L2pOnly {
    fn owners_move(&self) -> bool {
        false
    }
    fn admit(&mut self, _: &mut Core, _: Ppn, _: bool) -> Result<(), Demotion> {
        Ok(())
    }
    fn persist(&mut self, core: &mut Core, remapping: &Remapping, _: Purpose) {
        self.index.push(core, remapping);
    }
    fn persist_moved(&mut self, _: &mut Core, _: &Remapping) -> bool {
        unreachable!("references of a moved page are lost before they could be moved");
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
    fn usage(&self, _: &Core) -> Usage {
        Usage::default()
    }
    fn check(&self, core: &Core) -> Result<(), String> {
        self.index.check(core)
    }
}
