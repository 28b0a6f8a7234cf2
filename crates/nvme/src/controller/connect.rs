//! Refusals of Connect: the status, and the position of the offending parameter in dword 0.
//!
//! (Base 2.0 §6.3: IPO is the offset of the first invalid byte, IATTR says in which structure.)
//! Linux logs the field's name.

use crate::spec::fabrics::ConnectData;
use crate::spec::status::Status;
use std::mem::offset_of;

/// A refusal of Connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectRefusal {
    /// The status to answer.
    pub status: Status,
    /// Dword 0 of the completion.
    pub result: u64,
    /// The reason in words, for the log.
    pub why: &'static str,
}

/// The parameter is in the data, not in the submission queue entry (IATTR).
const IN_DATA: u64 = 1 << 16;

const fn in_entry(offset: u64, why: &'static str) -> ConnectRefusal {
    ConnectRefusal {
        status: Status::CONNECT_INVALID,
        result: offset,
        why,
    }
}

const fn in_data(offset: usize, why: &'static str) -> ConnectRefusal {
    ConnectRefusal {
        status: Status::CONNECT_INVALID,
        result: offset as u64 | IN_DATA,
        why,
    }
}

impl ConnectRefusal {
    pub(super) const FORMAT: Self = Self {
        status: Status::CONNECT_FORMAT,
        result: 0,
        why: "a record format that there is not",
    };
    /// Queue identifier: bytes 43:42 of the entry.
    pub(super) const QUEUE: Self = in_entry(42, "no such queue");
    pub(super) const QUEUE_SIZE: Self = in_entry(44, "a queue of an impossible size");
    pub(crate) const CONTROLLER: Self =
        in_data(offset_of!(ConnectData, cntlid), "no such controller");
    pub(super) const SUBSYSTEM: Self =
        in_data(offset_of!(ConnectData, subnqn), "no such subsystem");
    pub(super) const HOST_NAME: Self =
        in_data(offset_of!(ConnectData, hostnqn), "a host name that is none");
    pub(super) const OTHER_HOST: Self = in_data(
        offset_of!(ConnectData, hostnqn),
        "another host's controller",
    );
    /// The host is not on the list.
    pub(crate) const NOT_ALLOWED: Self = Self {
        status: Status::CONNECT_HOST,
        result: offset_of!(ConnectData, hostnqn) as u64 | IN_DATA,
        why: "this host is not allowed",
    };
    /// The host's admin queue connected from an address with other rights.
    pub(crate) const OTHER_RIGHTS: Self = Self {
        why: "its address has other rights than that of its admin queue",
        ..Self::NOT_ALLOWED
    };
    /// The host has no key, or none that is still valid.
    pub(crate) const NO_KEY: Self = Self {
        why: "this host has no key, or its key has expired",
        ..Self::NOT_ALLOWED
    };
    /// The host has a TLS key, but connected without TLS.
    pub(crate) const NO_TLS: Self = Self {
        why: "this host has a TLS key, and has connected without TLS",
        ..Self::NOT_ALLOWED
    };
    /// The TLS key used belongs to another host or another subsystem.
    pub(crate) const OTHER_TLS: Self = Self {
        why: "its TLS key is another host's, or is for another subsystem",
        ..Self::NOT_ALLOWED
    };
    /// All controller IDs are in use.
    pub(super) const BUSY: Self = Self {
        status: Status::CONNECT_BUSY,
        result: 0,
        why: "there are as many controllers as there can be",
    };
    /// No room for another connection, of this host or in total.
    pub(crate) const fn full(why: &'static str) -> Self {
        Self {
            status: Status::CONNECT_BUSY,
            result: 0,
            why,
        }
    }
    pub(super) const NOT_ENABLED: Self = Self {
        status: Status::SEQUENCE,
        result: 0,
        why: "its controller is not enabled",
    };
    pub(super) const QUEUE_IN_USE: Self = Self {
        status: Status::SEQUENCE,
        result: 0,
        why: "the queue is connected already",
    };
    pub(crate) const AGAIN: Self = Self {
        status: Status::SEQUENCE,
        result: 0,
        why: "a second Connect on one connection",
    };
    /// The data are too short for Connect.
    pub(crate) const NO_DATA: Self = in_data(0, "data that are no Connect's");
}
