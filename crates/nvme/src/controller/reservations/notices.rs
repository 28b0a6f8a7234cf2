//! What hosts are told of their registrations: asynchronous events, the log page, and the features
//! that go with reservations (Base 2.0 §5.2.1, §5.16.1.25, §5.27.1.25 to §5.27.1.27).
//!
//! A controller asks for what concerns its host when an event request or the log page comes; nobody
//! has to know the controllers of a host. Invariants: a page is handed out once, unless the host
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

/// Identifiers of the features that reservations have.
pub(in crate::controller) mod fid {
    pub const HOST_ID: u8 = 0x81;
    pub const NOTIFICATION_MASK: u8 = 0x82;
    pub const PERSISTENCE: u8 = 0x83;
}

/// Pages that wait for one controller, at most.
const PAGES_MAX: usize = 64;
/// The notices that there are: bits 1, 2 and 3 of the mask.
const MASKS: u32 = 0b1110;

/// What waits for one controller's host.
#[derive(Default)]
pub(in crate::controller) struct NotificationQueue {
    /// The number of the first notice that it has not asked for.
    next: u64,
    pages: VecDeque<Notification>,
    /// Pages so far, those that did not fit among them.
    count: u64,
    /// An event has been reported, and the page has not been read since.
    reported: bool,
    /// Notices that are not wanted, by namespace.
    masks: BTreeMap<u32, u32>,
}

impl NotificationQueue {
    /// Of a new controller: what was before does not concern it.
    pub fn new(reservations: &Reservations) -> Self {
        Self {
            next: reservations.next_notice.load(Relaxed),
            ..Self::default()
        }
    }

    /// After a controller's reset everything is as at the beginning.
    pub fn reset(&mut self, reservations: &Reservations) {
        *self = Self::new(reservations);
    }

    fn add(&mut self, notice: &Notice) {
        // A notice that the host does not want is not in its log either.
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
    /// Remembers what hosts are to be told.
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

        // Hosts that never ask must not fill the memory. One that asks late misses the oldest.
        let surplus = state.notices.len().saturating_sub(NOTICES_MAX);
        state.notices.drain(..surplus);
    }

    /// Puts what a host has not been told yet into its notifications.
    fn deliver(&self, host: HostIdentity<'_>, notifications: &mut NotificationQueue) {
        // One load in most cases: events are looked for often, and news are rare.
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
    /// An event that is due: its result.
    pub(in crate::controller) fn reservation_event(&self) -> Option<u64> {
        let mut state = self.state();
        let notifications = &mut state.notifications;
        self.subsystem
            .reservations
            .deliver(self.host(), notifications);

        // There is one event until the page has been read: the host then reads on until none is
        // left.
        if notifications.reported || notifications.pages.is_empty() {
            return None;
        }
        notifications.reported = true;
        Some(event::COMMAND_SET | u64::from(lid::RESERVATION) << 16)
    }

    /// The oldest notification that waits, or an empty page; it is gone then unless the event is
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

    /// Get Features, if it is one of these.
    pub(in crate::controller) fn reservation_feature(
        &self,
        sqe: &Sqe,
        out: &mut Vec<u8>,
    ) -> Option<Result<u64, Status>> {
        let cdw10 = FeatureCdw10::from_bits(sqe.cdw10);
        let of_ours = |value: u32| match cdw10.sel() {
            0 => Ok(value.into()),
            1 | 2 => Ok(0),
            // Changeable, of a namespace.
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

    /// Set Features, if it is one of these.
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
        // On networks a host says who it is when it connects (Base 2.0 §5.27.1.25).
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

        // All rights are checked first: a host that lacks one of them changes nothing.
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
