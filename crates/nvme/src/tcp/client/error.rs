//! Why a command has no result.

use crate::auth::HostError;
use crate::spec::status::Status;
use crate::tls::TlsError;
use std::io;
use std::net::SocketAddr;

/// Why a command has no result.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection broke, or could not be made.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The device refused a command, with this status.
    #[error("{what}: status {:#05x} ({})", status.number(), describe(*status))]
    Status {
        /// What the command was for, in words.
        what: &'static str,
        /// The status that the device answered.
        status: Status,
    },
    /// What came back is not what the protocol says.
    #[error("the target broke the protocol: {0}")]
    Protocol(&'static str),
    /// The target wants us to authenticate, and we have no secret.
    #[error("the target wants this host to authenticate, and it has no secret")]
    NoSecret,
    /// We want the target to prove itself, and it does not even ask us to.
    #[error(
        "the target asks for no authentication, so it cannot prove that it knows the controller's secret"
    )]
    NotAuthenticating,
    /// The two sides could not authenticate each other.
    #[error("authentication failed: {0}")]
    Authentication(#[from] HostError),
    /// There is no TLS, and we have a key for it.
    #[error("{0}")]
    Tls(#[from] TlsError),
    /// The connection is a parent's, whose process was copied by `fork`.
    #[error(
        "this connection was made before fork(), by the parent process: a child has to connect by itself"
    )]
    Forked,
    /// A connection that broke was made again, and another namespace is there.
    #[error("{0} serves another device now")]
    AnotherDevice(SocketAddr),
    /// The namespace was held, and is not any more.
    #[error(
        "the device is held by another group of processes now, or was set free: close what is open on it here, and open it again"
    )]
    HoldLost,
    /// A buffer that is not whole pages.
    #[error("{0} bytes are not whole pages of 4096")]
    NotWholePages(usize),
    /// More pages than one command can name.
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
