//! NoRemap: the baseline. Every duplicate is a flash write.

use super::{OwnerRef, RemapScheme, Remapping, Usage};
use crate::core::Core;
use crate::recovery::{RecoveryError, Witnesses};
use crate::stats::Demotion;
use remap_ssd_media::{Ppn, Purpose, SbId};

pub(super) struct NoRemap;

impl RemapScheme for NoRemap {
    fn remaps(&self) -> bool {
        false
    }
    fn admit(&mut self, _: &mut Core, _: Ppn, _: bool) -> Result<(), Demotion> {
        Err(Demotion::NvramFull)
    }
    fn persist(&mut self, _: &mut Core, _: &Remapping, _: Purpose) {
        unreachable!("nothing is ever admitted");
    }
    fn persist_moved(&mut self, _: &mut Core, _: &Remapping) -> bool {
        false
    }
    fn owners(&mut self, _: &mut Core, _: SbId, _: &mut Vec<OwnerRef>) {}
    fn forget(&mut self, _: &mut Core, _: SbId) {}
    fn replay(&mut self, _: &mut Core, _: &mut Witnesses) -> Result<(), RecoveryError> {
        Ok(())
    }
    fn resume(&mut self, _: &mut Core) -> bool {
        true
    }
    fn usage(&self, _: &Core) -> Usage {
        Usage::default()
    }
    fn check(&self, _: &Core) -> Result<(), String> {
        Ok(())
    }
}
