//! How a connection begins: with TLS or without, by its first byte.
//!
//! The first byte is 16h (a TLS handshake) or 00h (ICReq). It is looked at, not taken. Whether a
//! host may begin without TLS is decided at Connect, when its name is known (`target::secure`).
//!
//! Invariants: nothing is answered before the first byte; a handshake has a deadline, and ends when
//! the server does; its thread is the connection's own, so that nobody else waits. Absent: keys
//! (`auth`), TLS itself (`tls`).

use super::server::Limits;
use super::socket::Socket;
use crate::auth::Keyring;
use crate::tls::{FIRST_BYTE, Proven, ServerContext, TlsError, TlsStream};
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

/// What a server has for connections that begin with TLS.
pub(super) struct Entrance {
    context: ServerContext,
    keyring: Arc<Keyring>,
    /// Names of the subsystem and of discovery.
    subsystems: Vec<String>,
}

/// A connection that did not get as far as NVMe/TCP.
#[derive(Debug)]
pub(super) struct TurnedAway {
    /// The reason for the log.
    pub why: String,
    /// One of few, for the counter.
    pub kind: &'static str,
    /// What the host calls itself in its handshake; empty if nothing.
    pub hostnqn: String,
}

impl TurnedAway {
    fn new(kind: &'static str) -> Self {
        Self {
            why: kind.into(),
            kind,
            hostnqn: String::new(),
        }
    }
}

/// How a connection has begun.
pub(super) enum Beginning {
    /// It may go on; what a handshake has proven, if there was one.
    Open(Socket, Option<Proven>),
    /// It may not connect, for this reason.
    TurnedAway(TurnedAway),
    /// It has ended before, and why.
    Ended(&'static str),
}

impl Entrance {
    /// For hosts with keys in this ring.
    ///
    /// # Errors
    /// OpenSSL cannot be set up.
    pub fn new(keyring: Arc<Keyring>, subsystems: Vec<String>) -> io::Result<Self> {
        Ok(Self {
            context: ServerContext::new().map_err(io::Error::other)?,
            keyring,
            subsystems,
        })
    }

    /// Shakes hands on a connection that begins with TLS.
    fn handshake(
        &self,
        stream: TcpStream,
        until: Instant,
        is_over: impl Fn() -> bool,
    ) -> Result<(Socket, Proven), TurnedAway> {
        let (keyring, subsystems) = (self.keyring.clone(), self.subsystems.clone());
        let mut tls =
            TlsStream::server(&self.context, keyring, subsystems, stream).map_err(turned_away)?;

        // The stream's read time-out ends each step, so that a host that says nothing does not
        // outlive the deadline or the service.
        while !tls.handshake().map_err(turned_away)? {
            if Instant::now() >= until {
                return Err(TurnedAway::new("its TLS handshake did not end in time"));
            }
            if is_over() {
                return Err(TurnedAway::new("the service ends"));
            }
        }
        let proven = tls.proven();
        let proven = proven.ok_or(TurnedAway::new("its TLS handshake proved nothing"))?;
        Ok((Socket::Tls(Box::new(tls)), proven))
    }
}

/// Waits for a connection's first byte, and for the handshake that may follow.
///
/// The stream must have a read time-out, after which `is_over` is asked.
///
/// # Errors
/// The system's reason, or nothing came in time.
pub(super) fn begin(
    entrance: Option<&Entrance>,
    stream: TcpStream,
    limits: &Limits,
    is_over: impl Fn() -> bool,
) -> io::Result<Beginning> {
    let began = Instant::now();
    let first = loop {
        let mut first = [0];
        // Looked at, not taken: a TLS handshake needs this byte too.
        match stream.peek(&mut first) {
            Ok(0) => return Ok(Beginning::Ended("its host closed the connection")),
            Ok(_) => break first[0],
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                ErrorKind::ConnectionReset => {
                    return Ok(Beginning::Ended("its host closed the connection"));
                }
                _ => return Err(error),
            },
        }
        if is_over() {
            return Ok(Beginning::Ended("the service ends"));
        }
        if began.elapsed() >= limits.connect_within {
            return Err(io::Error::other("no queue was connected in time"));
        }
    };

    if first != FIRST_BYTE {
        return Ok(Beginning::Open(Socket::Plain(stream), None));
    }

    // Without keys there is nobody whom TLS could prove.
    let Some(entrance) = entrance else {
        let none = TurnedAway::new("it begins with TLS, and there are no keys");
        return Ok(Beginning::TurnedAway(none));
    };

    // The handshake has a time of its own, since a host may have to calculate.
    let until = Instant::now() + limits.handshake_within;
    Ok(match entrance.handshake(stream, until, is_over) {
        Ok((socket, proven)) => Beginning::Open(socket, Some(proven)),
        Err(turned_away) => Beginning::TurnedAway(turned_away),
    })
}

fn turned_away(error: TlsError) -> TurnedAway {
    match error {
        TlsError::Refused { why, kind, hostnqn } => TurnedAway { why, kind, hostnqn },
        TlsError::Setup(_) | TlsError::Absent => TurnedAway {
            why: error.to_string(),
            kind: "TLS handshake",
            hostnqn: String::new(),
        },
    }
}
