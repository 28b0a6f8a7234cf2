//! TLS on a connection of ours, if we have a key.
//!
//! Invariant: with a key nothing is said before the target has proven that it has it too. Absent:
//! what the key is made into (`auth`), and how (`tls`).

use super::Options;
use super::error::ClientError;
use crate::auth::Derivation;
use crate::tcp::socket::Socket;
use crate::tls::{ClientContext, TlsStream};
use std::io;
use std::net::TcpStream;
use std::time::Instant;

/// The connection, after a handshake if we have a key, for queues of this subsystem.
pub(super) fn secured(
    stream: TcpStream,
    options: &Options,
    subnqn: &str,
) -> Result<Socket, ClientError> {
    let Some(key) = &options.tls else {
        return Ok(Socket::Plain(stream));
    };
    let psk = key.psk(&options.hostnqn, subnqn, Derivation::Standard);
    let mut tls = TlsStream::client(&ClientContext::new(psk)?, stream)?;
    // What the target answers may come in pieces.
    let began = Instant::now();
    while !tls.handshake()? {
        if began.elapsed() >= options.timeout {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
    }
    Ok(Socket::Tls(Box::new(tls)))
}
