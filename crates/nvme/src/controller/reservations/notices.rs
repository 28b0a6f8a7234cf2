//! Notifications of hosts about their registrations: asynchronous events, the log page, and the
//! features of reservations (Base 2.0 §5.2.1, §5.16.1.25, §5.27.1.25 to §5.27.1.27).
//!
//! A controller looks for its host's notices when an event request or the log page comes, so a
//! host's controllers need not be known. Invariants: a page is returned once, unless the host
//! retains the event; pages that did not fit are counted. Absent: when an event is due
//! (`Association::event`).

use super::rules::{HostIdentity, Notices};
use super::{NOTICES_MAX, Notice, ReservationState, Reservations};
use crate::controller::association::Association;
use crate::controller::bus::Transport;
use crate::controller::namespaces::Namespace;
use crate::controller::rights::Need;
use crate::spec::NSID_ALL;
use crate::spec::command::{FeatureCdw10, Sqe};
use crate::spec::identify::blank;
use crate::spec::log::{event, lid};
use crate::spec::reservation::Notification;
use crate::spec::status::Status;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering::Relaxed;
use zerocopy::IntoBytes;

/// Identifiers of the reservation features.
pub(in crate::controller) mod fid {
    pub const HOST_ID: u8 = 0x81;
    pub const NOTIFICATION_MASK: u8 = 0x82;
    pub const PERSISTENCE: u8 = 0x83;
}

/// Maximum pages that wait for one controller.
const PAGES_MAX: usize = 64;
/// Notices that can be masked: bits 1, 2 and 3 of the mask.
const MASKS: u32 = 0b1110;

/// Notifications that wait for one controller's host.
#[derive(Default)]
pub(in crate::controller) struct NotificationQueue {
    /// Number of the first notice not yet delivered to it.
    next: u64,
    pages: VecDeque<Notification>,
    /// Number of pages so far, including those that did not fit.
    count: u64,
    /// True if an event was reported, and the page has not been read since.
    reported: bool,
    /// Masked notices, by namespace.
    masks: BTreeMap<u32, u32>,
}

impl NotificationQueue {
    /// The queue of a new controller: earlier notices do not concern it.
    pub fn new(reservations: &Reservations) -> Self {
        Self {
            next: reservations.next_notice.load(Relaxed),
            ..Self::default()
        }
    }

    /// Returns to the initial state after a controller's reset.
    pub fn reset(&mut self, reservations: &Reservations) {
        *self = Self::new(reservations);
    }

    fn add(&mut self, notice: &Notice) {
        // A masked notice does not appear in the log either.
        let masked = self.masks.get(&notice.nsid).copied().unwrap_or(0);
        if masked >> notice.kind as u8 & 1 == 1 {
            return;
        }

        self.count += 1;
        if self.pages.len() < PAGES_MAX {
            let mut page: Notification = blank();
            page.count = self.count;
            page.kind = notice.kind as u8;
            page.nsid = notice.nsid;
            self.pages.push_back(page);
        }
    }
}

impl Reservations {
    /// Queues notifications for hosts.
    pub(super) fn tell(&self, state: &mut ReservationState, nsid: u32, notices: Notices) {
        for (host, kind) in notices {
            let number = self.next_notice.fetch_add(1, Relaxed);
            state.notices.push_back(Notice {
                number,
                host,
                nsid,
                kind,
            });
        }

        // Hosts that never ask must not fill the memory. One that asks late loses the oldest
        // notices.
        let surplus = state.notices.len().saturating_sub(NOTICES_MAX);
        state.notices.drain(..surplus);
    }

    /// Moves a host's new notices into its notifications.
    fn deliver(&self, host: HostIdentity<'_>, notifications: &mut NotificationQueue) {
        // One load in most cases: events are looked for often, and notices are rare.
        if notifications.next == self.next_notice.load(Relaxed) {
            return;
        }
        let state = self.state();
        let from = notifications.next;
        let new = state
            .notices
            .iter()
            .filter(|notice| notice.number >= from && notice.host.is(host));
        new.for_each(|notice| notifications.add(notice));
        notifications.next = self.next_notice.load(Relaxed);
    }
}

impl Association {
    /// The result of an event that is due, if there is one.
    pub(in crate::controller) fn reservation_event(&self) -> Option<u64> {
        let mut state = self.state();
        let notifications = &mut state.notifications;
        self.subsystem
            .reservations
            .deliver(self.host(), notifications);

        // One event until the page has been read: the host then reads on until the log is empty.
        if notifications.reported || notifications.pages.is_empty() {
            return None;
        }
        notifications.reported = true;
        Some(event::COMMAND_SET | u64::from(lid::RESERVATION) << 16)
    }

    /// The oldest waiting notification, or an empty page. It is removed unless the event is
    /// retained.
    pub(in crate::controller) fn reservation_page(&self, retained: bool) -> Vec<u8> {
        let mut state = self.state();
        let notifications = &mut state.notifications;
        self.subsystem
            .reservations
            .deliver(self.host(), notifications);

        let mut page = notifications.pages.front().copied().unwrap_or_else(blank);
        page.available = notifications.pages.len().saturating_sub(1) as u8;
        if !retained {
            notifications.pages.pop_front();
            notifications.reported = false;
        }
        page.as_bytes().to_vec()
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
            fid::NOTIFICATION_MASK => of_ours(
                self.state()
                    .notifications
                    .masks
                    .get(&sqe.nsid)
                    .copied()
                    .unwrap_or(0),
            ),
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
            let mask = sqe.cdw11 & MASKS;
            let mut state = self.state();
            let masks = &mut state.notifications.masks;
            masks.extend(concerned.into_iter().map(|one| (one.nsid, mask)));
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
