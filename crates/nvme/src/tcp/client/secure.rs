//! TLS on the client's connection, if there is a key.
//!
//! Invariant: with a key nothing is sent before the target has proven that it has it too. Absent:
//! derivation of keys (`auth`), and the TLS protocol (`tls`).

use super::Options;
use super::error::ClientError;
use crate::auth::Derivation;
use crate::tcp::socket::Socket;
use crate::tls::{ClientContext, TlsStream};
use std::io;
use std::net::TcpStream;
use std::time::Instant;

/// Performs the TLS handshake if there is a key, for queues of this subsystem.
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
    // The target's answer may arrive in pieces.
    let began = Instant::now();
    while !tls.handshake()? {
        if began.elapsed() >= options.timeout {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
    }
    Ok(Socket::Tls(Box::new(tls)))
}
