//! Notifications of hosts about their registrations (Base 2.0 §5.2.1, §5.16.1.25).
//!
//! A controller looks for its host's notices when an event request or the log page comes, so a
//! host's controllers need not be known. Invariants: a page is returned once, unless the host
//! retains the event; pages that did not fit are counted. Absent: the commands of hosts
//! (`features`).

use super::rules::{HostIdentity, Notices};
use super::{NOTICES_MAX, Notice, ReservationState, Reservations};
use crate::spec::identify::blank;
use crate::spec::reservation::Notification;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering::Relaxed;
use zerocopy::IntoBytes;

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
    pub(crate) fn new(reservations: &Reservations) -> Self {
        Self {
            next: reservations.next_notice.load(Relaxed),
            ..Self::default()
        }
    }

    /// Returns to the initial state after a controller's reset.
    pub(crate) fn reset(&mut self, reservations: &Reservations) {
        *self = Self::new(reservations);
    }

    /// Returns true if an event is due. It counts as sent from then on.
    pub(crate) fn event(&mut self) -> bool {
        // One event until the page has been read: the host then reads on until the log is empty.
        let is_due = !self.reported && !self.pages.is_empty();
        self.reported |= is_due;
        is_due
    }

    /// The oldest waiting notification, or an empty page. It is removed unless the event is
    /// retained.
    pub(crate) fn read(&mut self, retained: bool) -> Vec<u8> {
        let mut page = self.pages.front().copied().unwrap_or_else(blank);
        page.available = self.pages.len().saturating_sub(1) as u8;
        if !retained {
            self.pages.pop_front();
            self.reported = false;
        }
        page.as_bytes().to_vec()
    }

    /// Masked notices of a namespace.
    pub(crate) fn mask(&self, nsid: u32) -> u32 {
        self.masks.get(&nsid).copied().unwrap_or(0)
    }

    pub(crate) fn set_mask(&mut self, nsid: u32, mask: u32) {
        self.masks.insert(nsid, mask & MASKS);
    }

    fn add(&mut self, notice: &Notice) {
        // A masked notice does not appear in the log either.
        if self.mask(notice.nsid) >> notice.kind as u8 & 1 == 1 {
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
    pub(super) fn notify(&self, state: &mut ReservationState, nsid: u32, notices: Notices) {
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
    pub(crate) fn deliver(&self, host: HostIdentity<'_>, notifications: &mut NotificationQueue) {
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
