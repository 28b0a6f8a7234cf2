//! A command to execute, with its context, and its result.
//!
//! Absent: execution (`execute`).

use super::request::IoRequest;
use super::reservations::rules::HostIdentity;
use super::rights::HostRights;
use crate::spec::status::Status;
use remap_ssd_media::folder::HistoryPosition;

/// The origin of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor<'a> {
    /// The service itself, which writes back data that hosts were allowed to write.
    Service,
    /// A host, subject to reservations.
    Host(HostIdentity<'a>),
}

/// A checked command with its context.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// Number of its namespace.
    pub nsid: u32,
    /// Version of the namespace that it was checked against.
    pub version: u32,
    /// The command, validated and decoded.
    pub request: &'a IoRequest,
    /// Time of execution; completions are due later.
    pub now: u64,
    /// True if writes may stay in a volatile cache.
    pub cache_enabled: bool,
    /// Rights of its host.
    pub rights: &'a HostRights,
    /// Its origin: a host, or the service itself.
    pub actor: Actor<'a>,
}

/// The result of a command, and when it may be completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Status of its completion.
    pub status: Status,
    /// Dwords 0 and 1 of the completion.
    pub result: u64,
    /// Completion time by the timing model, in the clock of `now`.
    pub done_at: u64,
    /// The position that must be durable before it is acknowledged
    /// (`Subsystem::wait_until_durable`).
    pub sync_to: Option<HistoryPosition>,
    /// The first block with an error, if the command failed by one.
    pub failed_block: Option<FailedBlock>,
}

/// A block with an error, as the error log names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedBlock {
    /// Its namespace. A copy may read from another one than the command's.
    pub nsid: u32,
    /// Its address in that namespace, in blocks of its format.
    pub lba: u64,
}
