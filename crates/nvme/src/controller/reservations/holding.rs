//! Vendor extensions for software that needs a namespace to itself (docs/nvme-vendor.md): log page
//! C1h lists the connected registrants, and feature C0h ends a controller's commands with the
//! reservation of its host.
//!
//! An NVMe reservation only keeps other hosts out: a host that lost it continues as soon as the
//! next holder has released it, with stale memory of the namespace. With the feature it gets
//! Reservation Conflict from the instant it stops holding the reservation, whichever host holds it
//! then. Invariants: the answer to Set Features says whether it holds the reservation now; the flag
//! belongs to the controller and ends with its reset. Absent: the choice of the holder.

use crate::controller::association::Association;
use crate::controller::features::fid;
use crate::controller::portals::Transport;
use crate::spec::command::{FeatureCdw10, Sqe};
use crate::spec::identify::blank;
use crate::spec::reservation::{RegistrantEntry, RegistrantsHead};
use crate::spec::status::Status;
use std::sync::atomic::Ordering;
use zerocopy::IntoBytes;

impl Association {
    /// The log page of a namespace's registrants.
    ///
    /// # Errors
    /// The host does not see such a namespace.
    pub(in crate::controller) fn registrants_page(&self, nsid: u32) -> Result<Vec<u8>, Status> {
        self.namespace(nsid).ok_or(Status::INVALID_NAMESPACE)?;
        // Controllers first: one that connects in between counts as absent here, and learns by the
        // feature what was decided in the meantime. One that was closed counts until its
        // connections have ended, which its host can notice.
        let controllers = self.subsystem.controllers.all();
        let all = self.subsystem.reservations_of(nsid);

        let mut head: RegistrantsHead = blank();
        head.magic = RegistrantsHead::MAGIC;
        (head.version, head.count) = (1, all.registrants.len() as u32);
        head.rtype = all.reservation.as_ref().map_or(0, |held| held.kind as u8);
        head.ptpls = all.persists.into();
        let mut page = head.as_bytes().to_vec();

        for one in &all.registrants {
            let connected = controllers
                .iter()
                .filter(|controller| one.host.is(controller.host()));
            let mut entry: RegistrantEntry = blank();
            (entry.hostid, entry.rkey) = (one.host.id, one.key);
            entry.controllers = connected.count() as u32;
            entry.rcsts = all.holds(one.host.identity()).into();
            page.extend_from_slice(entry.as_bytes());
        }
        Ok(page)
    }

    /// Handles Get Features for this feature; `None` for others.
    pub(in crate::controller) fn holding_feature(&self, sqe: &Sqe) -> Option<Result<u64, Status>> {
        let cdw10 = FeatureCdw10::from_bits(sqe.cdw10);
        if !self.is_holding_feature(cdw10) {
            return None;
        }
        if self.namespace(sqe.nsid).is_none() {
            return Some(Err(Status::INVALID_NAMESPACE));
        }
        let is_on = self.holds_or_stops.load(Ordering::Acquire) == sqe.nsid;
        Some(match cdw10.sel() {
            0 => Ok(is_on.into()),
            1 | 2 => Ok(0),
            // Changeable, specific to a namespace.
            3 => Ok(1 << 2 | 1 << 1),
            _ => Err(Status::INVALID_FIELD),
        })
    }

    /// Handles Set Features for this feature. Dword 11: 1 is on, 0 is off.
    pub(in crate::controller) fn set_holding_feature(
        &self,
        sqe: &Sqe,
    ) -> Option<Result<u64, Status>> {
        let cdw10 = FeatureCdw10::from_bits(sqe.cdw10);
        self.is_holding_feature(cdw10)
            .then(|| self.set_holding(sqe, cdw10).map(|()| 0))
    }

    fn is_holding_feature(&self, cdw10: FeatureCdw10) -> bool {
        let is_possible = self.transport == Transport::Fabrics && !self.discovery;
        is_possible && cdw10.fid() == fid::HOLDS_OR_STOPS
    }

    fn set_holding(&self, sqe: &Sqe, cdw10: FeatureCdw10) -> Result<(), Status> {
        if cdw10.sv() {
            return Err(Status::NOT_SAVEABLE);
        }
        self.namespace(sqe.nsid).ok_or(Status::INVALID_NAMESPACE)?;
        let nsid = match sqe.cdw11 {
            0 => 0,
            1 => sqe.nsid,
            _ => return Err(Status::INVALID_FIELD),
        };
        // In force before the check: a loss in between is reported by a later command.
        self.holds_or_stops.store(nsid, Ordering::Release);
        let all = self.subsystem.reservations_of(sqe.nsid);
        if nsid != 0 && !all.holds(self.host()) {
            return Err(Status::RESERVATION_CONFLICT);
        }
        Ok(())
    }
}
