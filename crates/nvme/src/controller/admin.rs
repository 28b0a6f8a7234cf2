//! Admin commands, including fabrics commands.

use super::association::Association;
use super::features::{Features, Setting, fid};
use super::host::{AssociationState, EVENTS_MAX};
use super::identify::IDENTIFY_BYTES;
use super::namespaces::commands::management_transfer;
use super::portals::Transport;
use super::request::Transfer;
use super::{TRANSFER_BYTES_MAX, logs};
use crate::spec::command::Sqe;
use crate::spec::fabrics::{ConnectData, kind};
use crate::spec::log::{event, lid, warning};
use crate::spec::opcode::admin;
use crate::spec::status::Status;
use std::sync::atomic::Ordering;

/// Result of an admin command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminOutcome {
    /// Completed, with a status and the completion's dwords 0 and 1.
    Done(Status, u64),
    /// Pending: it is an asynchronous event request.
    Waits,
}

/// Type of a fabrics command.
pub(crate) fn fabrics_kind(sqe: &Sqe) -> Option<u8> {
    (sqe.head().opcode() == admin::FABRICS).then_some(sqe.nsid as u8)
}

/// Data transfer of an admin command.
///
/// # Errors
/// The status to answer.
pub fn admin_transfer(sqe: &Sqe) -> Result<Transfer, Status> {
    if let Some(kind) = fabrics_kind(sqe) {
        // Only Connect has data: properties are in the command and in its completion.
        let connect = kind == kind::CONNECT;
        return Ok(if connect {
            Transfer::FromHost(size_of::<ConnectData>() as u32)
        } else {
            Transfer::None
        });
    }

    if let Some(transfer) = management_transfer(sqe) {
        return Ok(transfer);
    }

    Ok(match sqe.head().opcode() {
        admin::IDENTIFY => Transfer::ToHost(IDENTIFY_BYTES as u32),
        // The host chooses the length of a page; more than one transfer can move is an error.
        admin::GET_LOG_PAGE => match logs::bytes_wanted(sqe) {
            bytes if bytes > u64::from(TRANSFER_BYTES_MAX) => return Err(Status::INVALID_FIELD),
            bytes => Transfer::ToHost(bytes as u32),
        },
        admin::GET_FEATURES | admin::SET_FEATURES => {
            match (Features::data_bytes(sqe), sqe.head().opcode()) {
                (0, _) => Transfer::None,
                (bytes, admin::GET_FEATURES) => Transfer::ToHost(bytes),
                (bytes, _) => Transfer::FromHost(bytes),
            }
        }
        _ => Transfer::None,
    })
}

impl Association {
    /// Executes an admin command other than Connect. Data for the host is appended to `out`.
    pub fn admin(&self, sqe: &Sqe, data: &[u8], out: &mut Vec<u8>) -> AdminOutcome {
        let before = out.len();
        let result = self.admin_parts(sqe, data, out);
        match result {
            Ok(Some(result)) => AdminOutcome::Done(Status::SUCCESS, result),
            Ok(None) => AdminOutcome::Waits,
            Err(status) => {
                // Data appended by a failed command must not reach the host.
                out.truncate(before);
                self.log_error(0, sqe, status, None);
                AdminOutcome::Done(status, 0)
            }
        }
    }

    fn admin_parts(
        &self,
        sqe: &Sqe,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<u64>, Status> {
        // Fabrics commands first: the host enables the controller by a property, so they must work
        // before.
        match fabrics_kind(sqe) {
            Some(kind::PROPERTY_GET) => return self.property_get(sqe).map(Some),
            Some(kind::PROPERTY_SET) => return self.property_set(sqe).map(|()| Some(0)),
            Some(_) => return Err(Status::INVALID_FIELD),
            None => {}
        }

        // Ending the controller waits for this command: the connection gets no later notice.
        let _under_way = self.commands.begin(&self.standing(None))?;

        // Fused operations are not supported, and a disabled controller has only properties.
        if sqe.head().fuse() != 0 {
            return Err(Status::INVALID_FIELD);
        }
        if !self.is_enabled() {
            return Err(Status::SEQUENCE);
        }
        self.must_be_accessible_for(sqe)?;

        match sqe.head().opcode() {
            admin::IDENTIFY => self.identify(sqe, out).map(|()| Some(0)),
            admin::GET_LOG_PAGE => self.log_page(sqe, out).map(|()| Some(0)),
            // A bus has no connection that could be lost unnoticed.
            admin::KEEP_ALIVE if self.transport == Transport::Fabrics => Ok(Some(0)),
            admin::GET_FEATURES => {
                if let Some(result) = self.reservation_feature(sqe, out) {
                    return result.map(Some);
                }
                if let Some(result) = self.holding_feature(sqe) {
                    return result.map(Some);
                }
                let sees = |nsid| self.namespace(nsid).is_some();
                let state = self.state();
                let result = state.features.get(sqe, sees, state.keep_alive_ms, out);
                result.map(Some)
            }
            admin::SET_FEATURES => {
                let result = self.set_feature(sqe, data)?;
                // Data written while the cache was on must not be lost once the host relies on its
                // being off: also if an earlier attempt to switch it off could not write them back.
                if sqe.cdw10 as u8 == fid::WRITE_CACHE && self.write_through.load(Ordering::Acquire)
                {
                    self.subsystem.flush_all()?;
                }
                Ok(Some(result))
            }
            admin::ASYNC_EVENT => {
                let mut state = self.state();
                if state.event_requests.len() >= EVENTS_MAX {
                    return Err(Status::ASYNC_EVENT_LIMIT);
                }
                state.event_requests.push_back(sqe.head().cid());
                Ok(None)
            }
            admin::NAMESPACE_MANAGEMENT => self.manage_namespaces(sqe, data).map(Some),
            admin::NAMESPACE_ATTACHMENT => self.attach_namespaces(sqe, data).map(|()| Some(0)),
            admin::FORMAT => self.format(sqe).map(|()| Some(0)),
            // Commands are executed when they arrive, so nothing is left to abort.
            admin::ABORT => Ok(Some(1)),
            _ => Err(Status::INVALID_OPCODE),
        }
    }

    fn set_feature(&self, sqe: &Sqe, data: &[u8]) -> Result<u64, Status> {
        if let Some(result) = self.set_reservation_feature(sqe) {
            return result;
        }
        if let Some(result) = self.set_holding_feature(sqe) {
            return result;
        }

        let AssociationState {
            features,
            keep_alive_ms,
            queues_made,
            ..
        } = &mut *self.state();
        let with = Setting {
            namespaces: &self.subsystem.namespaces,
            sees: &|nsid| self.namespace(nsid).is_some(),
            keep_alive_ms,
            queues_made: *queues_made,
        };
        let result = features.set(sqe, with, data)?;

        // Commands read this without the state's lock.
        let is_off = self.subsystem.volatile_cache() && !features.cache_enabled();
        self.write_through.store(is_off, Ordering::Release);
        Ok(result)
    }

    /// An asynchronous event that is due: the request that it answers, and its result.
    pub fn event(&self) -> Option<(u16, u64)> {
        // An event answers a request. Without one its cause stays, and is reported at the next
        // request.
        if self.discovery || self.state().event_requests.is_empty() {
            return None;
        }
        if let Some(changed) = self.state().changed_event() {
            return Some(changed);
        }

        if let Some(result) = self.reservation_event().or_else(|| self.ana_event()) {
            let cid = self.state().event_requests.pop_front()?;
            return Some((cid, result));
        }

        // Before taking the lock: SMART waits for a turn at the device.
        let warning = self.smart().critical_warning;
        let mut state = self.state();
        // A warning that has ended may be reported again.
        state.reported &= warning;

        let new = warning & !state.reported & state.features.smart_events();
        // Until the host has read SMART, no second event of its type is sent (Base 2.0 §5.2).
        if new == 0 || state.unread {
            return None;
        }

        // One bit per event. The other warnings follow, each after the host has read SMART.
        let bit = 1 << new.trailing_zeros();
        let information = match bit {
            warning::SPARE => event::SPARE_BELOW_THRESHOLD,
            warning::TEMPERATURE => event::TEMPERATURE_THRESHOLD,
            _ => event::RELIABILITY,
        };

        let cid = state.event_requests.pop_front()?;
        state.reported |= bit;
        state.unread = true;

        Some((
            cid,
            event::SMART | information << 8 | u64::from(lid::SMART) << 16,
        ))
    }
}
