//! The issuer of a command, and its result.
//!
//! Absent: execution (`execute`).

use super::reservations::rules::HostIdentity;
use super::rights::{HostRights, LOCAL};
use crate::spec::status::Status;
use remap_ssd_media::folder::HistoryPosition;
use std::sync::atomic::AtomicBool;

/// The origin of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor<'a> {
    /// The service itself, which writes back data that hosts were allowed to write.
    Service,
    /// A host, subject to reservations.
    Host(HostIdentity<'a>),
}

/// Who issues a command, and under which conditions it is executed.
#[derive(Clone, Copy, Debug)]
pub struct Issuer<'a> {
    /// The origin of the command: a host, or the service itself.
    pub actor: Actor<'a>,
    /// Rights of the host.
    pub rights: &'a HostRights,
    /// True while its changes must not stay in a volatile cache, because its host has switched the cache off. It may do so while
    /// the command is executed.
    pub write_through: &'a AtomicBool,
}

/// Of issuers that cannot switch a cache off.
static NEVER: AtomicBool = AtomicBool::new(false);

impl Issuer<'static> {
    /// The service itself.
    pub fn service() -> Self {
        Self {
            actor: Actor::Service,
            rights: &LOCAL,
            write_through: &NEVER,
        }
    }

    /// A local user without NVMe, subject to reservations like a host.
    pub fn local() -> Self {
        Self {
            actor: Actor::Host(HostIdentity::LOCAL),
            ..Self::service()
        }
    }
}

/// The result of a command, and when it may be completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Status of its completion.
    pub status: Status,
    /// Dwords 0 and 1 of the completion.
    pub result: u64,
    /// Completion time by the timing model, in the clock of the `now` given to `execute`.
    pub done_at: u64,
    /// The position that must be durable before it is acknowledged
    /// (`Subsystem::wait_until_durable`).
    pub sync_to: Option<HistoryPosition>,
    /// The first block with an error, if the command failed by one.
    pub failed_block: Option<FailedBlock>,
}

impl Outcome {
    /// The outcome of a command without an effect.
    pub fn new(status: Status, now: u64) -> Self {
        Self {
            status,
            result: 0,
            done_at: now,
            sync_to: None,
            failed_block: None,
        }
    }
}

/// A block with an error, as the error log names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedBlock {
    /// Its namespace. A copy may read from another one than the command's.
    pub nsid: u32,
    /// Its address in that namespace, in blocks of its format.
    pub lba: u64,
}
