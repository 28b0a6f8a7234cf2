//! Errors of the client.

use crate::auth::HostError;
use crate::spec::status::Status;
use crate::tls::TlsError;
use std::io;
use std::net::SocketAddr;

/// Why a command has no result.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection failed, or could not be established.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The device refused a command, with this status.
    #[error("{what}: status {:#05x} ({})", status.number(), describe(*status))]
    Status {
        /// The purpose of the command, in words.
        what: &'static str,
        /// The status of its completion.
        status: Status,
    },
    /// The target's message violates the protocol.
    #[error("the target broke the protocol: {0}")]
    Protocol(&'static str),
    /// The target requires authentication, and we have no secret.
    #[error("the target wants this host to authenticate, and it has no secret")]
    NoSecret,
    /// The target must authenticate, but does not even request authentication from us.
    #[error(
        "the target asks for no authentication, so it cannot prove that it knows the controller's secret"
    )]
    NotAuthenticating,
    /// The two sides could not authenticate each other.
    #[error("authentication failed: {0}")]
    Authentication(#[from] HostError),
    /// We have a TLS key, and TLS failed.
    #[error("{0}")]
    Tls(#[from] TlsError),
    /// The connection belongs to a parent process, copied by `fork`.
    #[error(
        "this connection was made before fork(), by the parent process: a child must make its own"
    )]
    Forked,
    /// A reconnection found another namespace.
    #[error("{0} serves another device now")]
    AnotherDevice(SocketAddr),
    /// The hold on the namespace was lost.
    #[error(
        "the device is held by another group of processes now, or was set free: close what is open on it here, and open it again"
    )]
    HoldLost,
    /// A buffer's size is not a multiple of a page.
    #[error("{0} bytes are not whole pages of 4096")]
    NotWholePages(usize),
    /// More pages than one command supports.
    #[error("a remap of {0} pages is too long for one command")]
    TooLong(u32),
}

fn describe(status: Status) -> &'static str {
    match status {
        Status::LBA_RANGE => "LBA out of range",
        Status::INVALID_FIELD => "invalid field in command",
        Status::INVALID_NAMESPACE => "invalid namespace",
        Status::CAPACITY_EXCEEDED => "the namespace has no room left",
        Status::WRITE_PROTECTED => "the namespace is read-only",
        Status::OPERATION_DENIED => "this host lacks the rights",
        Status::RESERVATION_CONFLICT => "another host has reserved the namespace",
        Status::ACCESS_INACCESSIBLE => "inaccessible by this portal; another one may do",
        Status::UNRECOVERED_READ => "unrecovered read error",
        Status::WRITE_FAULT => "write fault",
        Status::COMPARE_FAILURE => "compare failure",
        Status::NOT_ATOMIC => "the command cannot be atomic",
        Status::CONNECT_HOST => "this host is not allowed",
        Status::AUTH_REQUIRED => "authentication required",
        Status::CONNECT_INVALID => "no such subsystem",
        Status::SIZE_LIMIT => "copy size limit exceeded",
        _ => "see the NVMe specification",
    }
}

pub(super) fn broken(what: &'static str) -> ClientError {
    ClientError::Protocol(what)
}
