//! Asymmetric namespace access as a host sees it (Base 2.0 §8.1): refusals, the log page, the event,
//! and the addresses that discovery lists.
//!
//! Absent: the states of portals (`portals`).

use super::association::Association;
use super::features::fid;
use super::portals::{AnaReported, GROUP};
use crate::spec::NSID_ALL;
use crate::spec::ana::{AnaGroup, AnaHead, RETURN_GROUPS_ONLY};
use crate::spec::command::{FeatureCdw10, Sqe};
use crate::spec::identify::blank;
use crate::spec::log::{event, lid};
use crate::spec::management::sel;
use crate::spec::opcode::admin;
use crate::spec::status::Status;
use std::net::SocketAddr;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Returns true for features that are unavailable while namespaces are inaccessible (Base 2.2
/// figure 589, NVM Command Set 1.2 figure 133).
fn is_of_namespace(sqe: &Sqe) -> bool {
    matches!(
        FeatureCdw10::from_bits(sqe.cdw10).fid(),
        fid::ERROR_RECOVERY | fid::NOTIFICATION_MASK | fid::PERSISTENCE
    )
}

impl Association {
    /// Checks that this portal executes an admin command now. While it is inaccessible, commands
    /// that name a namespace are refused (Base 2.2 §8.1.1.6), except for those listed in §8.1.1.10:
    /// Identify, log pages, and features not specific to a namespace.
    ///
    /// # Errors
    /// Asymmetric Access Inaccessible: the host may try another portal.
    pub(super) fn must_be_accessible_for(&self, sqe: &Sqe) -> Result<(), Status> {
        // Discovery has no namespaces, and works by every portal.
        if self.discovery {
            return Ok(());
        }

        let is_concerned = match sqe.head().opcode() {
            admin::FORMAT | admin::NAMESPACE_ATTACHMENT => true,
            // A new namespace has no number yet.
            admin::NAMESPACE_MANAGEMENT => sqe.cdw10 as u8 & 0xf != sel::CREATE,
            admin::GET_FEATURES => is_of_namespace(sqe),
            admin::SET_FEATURES => is_of_namespace(sqe) || sqe.nsid == NSID_ALL,
            _ => false,
        };
        if is_concerned {
            self.must_be_accessible()
        } else {
            Ok(())
        }
    }

    /// The log page of asymmetric access, as this controller's host sees it.
    pub(super) fn ana_page(&self, specific: u8, retained: bool) -> Vec<u8> {
        let portal = &self.portal;
        // The count first: a later change then causes one event too many rather than too few.
        let reported = AnaReported::all(portal);
        if !retained {
            self.state().ana_reported = reported;
        }

        let mut head: AnaHead = blank();
        (head.chgcnt, head.ngrps) = (reported.changes, 1);

        // A host that needs only the states need not read all numbers.
        let with_namespaces = specific & RETURN_GROUPS_ONLY == 0;
        let listed: Vec<u32> = self
            .namespaces()
            .filter(|_| with_namespaces)
            .map(|namespace| namespace.nsid)
            .collect();
        let mut group: AnaGroup = blank();
        group.anagrpid = GROUP;
        group.nnsids = listed.len() as u32;
        group.chgcnt = reported.changes;
        group.state = portal.state() as u8;

        let mut page = [head.as_bytes(), group.as_bytes()].concat();
        page.extend(listed.iter().flat_map(|nsid| nsid.to_le_bytes()));
        page
    }

    /// The result of an event that is due after a change of the portal, if there is one.
    pub(super) fn ana_event(&self) -> Option<u64> {
        let mut state = self.state();
        if !state.features.wants_ana_events() || !state.ana_reported.event(&self.portal) {
            return None;
        }
        Some(event::NOTICE | event::ANA_CHANGE << 8 | u64::from(lid::ANA) << 16)
    }

    /// Addresses listed by discovery: the one that the host has reached, and those of other portals
    /// that it can probably reach.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        let mut all = vec![self.address];
        // Behind address translation, only the advertised address can be reached.
        if !self.portal.has(self.address) {
            return all;
        }
        let others = self.subsystem.portals();

        // A loopback address is listed only for hosts that use loopback, and "any address" never.
        let can_be = |address: SocketAddr| {
            !address.ip().is_unspecified()
                && (self.address.ip().is_loopback() || !address.ip().is_loopback())
        };
        let others = others
            .iter()
            .filter(|portal| !Arc::ptr_eq(portal, &self.portal) && can_be(portal.address()));
        all.extend(others.map(|portal| portal.address()));
        all
    }
}
