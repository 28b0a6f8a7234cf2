//! The features of reservations, the event of notifications, and their log page (Base 2.0 §5.2.1,
//! §5.16.1.25, §5.27.1.25 to §5.27.1.27).
//!
//! Absent: which notifications wait (`notices`), when an event is due (`Association::event`).

use super::rules::Notices;
use crate::controller::association::Association;
use crate::controller::blocks::Namespace;
use crate::controller::features::fid;
use crate::controller::portals::Transport;
use crate::controller::rights::Need;
use crate::spec::NSID_ALL;
use crate::spec::command::{FeatureCdw10, Sqe};
use crate::spec::log::{event, lid};
use crate::spec::status::Status;

impl Association {
    /// The result of an event that is due, if there is one.
    pub(in crate::controller) fn reservation_event(&self) -> Option<u64> {
        let mut state = self.state();
        let notifications = &mut state.notifications;
        self.subsystem
            .reservations
            .deliver(self.host(), notifications);
        if !notifications.event() {
            return None;
        }
        Some(event::COMMAND_SET | u64::from(lid::RESERVATION) << 16)
    }

    /// The log page: the oldest notification. It is removed unless the event is retained.
    pub(in crate::controller) fn reservation_page(&self, retained: bool) -> Vec<u8> {
        let mut state = self.state();
        let notifications = &mut state.notifications;
        self.subsystem
            .reservations
            .deliver(self.host(), notifications);

        notifications.read(retained)
    }

    /// Handles Get Features for these features; `None` for others.
    pub(in crate::controller) fn reservation_feature(
        &self,
        sqe: &Sqe,
        out: &mut Vec<u8>,
    ) -> Option<Result<u64, Status>> {
        let cdw10 = FeatureCdw10::from_bits(sqe.cdw10);
        let of_ours = |value: u32| match cdw10.sel() {
            0 => Ok(value.into()),
            1 | 2 => Ok(0),
            // Changeable, specific to a namespace.
            3 => Ok(1 << 2 | 1 << 1),
            _ => Err(Status::INVALID_FIELD),
        };
        let namespace = || self.namespace(sqe.nsid);

        Some(match cdw10.fid() {
            _ if self.transport != Transport::Fabrics || self.discovery => return None,
            // It came with Connect, and has 16 bytes.
            fid::HOST_ID if cdw10.sel() == 3 => Ok(0),
            fid::HOST_ID if sqe.cdw11 & 1 == 0 => Err(Status::INVALID_FIELD),
            fid::HOST_ID => {
                out.extend_from_slice(&self.hostid);
                Ok(0)
            }
            fid::NOTIFICATION_MASK | fid::PERSISTENCE if namespace().is_none() => {
                Err(Status::INVALID_NAMESPACE)
            }
            fid::NOTIFICATION_MASK => of_ours(self.state().notifications.mask(sqe.nsid)),
            fid::PERSISTENCE => of_ours(self.subsystem.reservations_of(sqe.nsid).persists.into()),
            _ => return None,
        })
    }

    /// Handles Set Features for these features; `None` for others.
    pub(in crate::controller) fn set_reservation_feature(
        &self,
        sqe: &Sqe,
    ) -> Option<Result<u64, Status>> {
        let cdw10 = FeatureCdw10::from_bits(sqe.cdw10);
        let is_ours = matches!(
            cdw10.fid(),
            fid::HOST_ID | fid::NOTIFICATION_MASK | fid::PERSISTENCE
        );
        if !is_ours || self.transport != Transport::Fabrics || self.discovery {
            return None;
        }
        Some(self.set_ours(sqe, cdw10).map(|()| 0))
    }

    fn set_ours(&self, sqe: &Sqe, cdw10: FeatureCdw10) -> Result<(), Status> {
        if cdw10.sv() {
            return Err(Status::NOT_SAVEABLE);
        }
        // On fabrics the host identifier comes with Connect (Base 2.0 §5.27.1.25).
        if cdw10.fid() == fid::HOST_ID {
            return Err(Status::SEQUENCE);
        }

        let concerned: Vec<Namespace> = self
            .namespaces()
            .filter(|one| sqe.nsid == NSID_ALL || one.nsid == sqe.nsid)
            .collect();
        if concerned.is_empty() {
            return Err(Status::INVALID_NAMESPACE);
        }

        if cdw10.fid() == fid::NOTIFICATION_MASK {
            let notifications = &mut self.state().notifications;
            for one in concerned {
                notifications.set_mask(one.nsid, sqe.cdw11);
            }
            return Ok(());
        }

        // Check all rights first: a host that lacks one of them changes nothing.
        for one in &concerned {
            self.rights().check(one.nsid, Need::Write)?;
        }
        for namespace in &concerned {
            self.subsystem.change_reservations(namespace, |one| {
                one.persists = sqe.cdw11 & 1 == 1;
                Ok(Notices::new())
            })?;
        }
        Ok(())
    }
}
