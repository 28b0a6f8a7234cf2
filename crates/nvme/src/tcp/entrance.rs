//! The beginning of a connection: TLS or plain, by its first byte.
//!
//! The first byte is 16h (a TLS handshake) or 00h (ICReq). It is peeked, not consumed. Whether a
//! host may connect without TLS is decided at Connect, when its name is known (`target::secure`).
//!
//! Invariants: nothing is answered before the first byte; a handshake has a deadline, and ends when
//! the server does; it runs on the connection's own thread, so that no other connection waits.
//! Absent: keys (`auth`), the TLS protocol (`tls`).

use super::limits::Limits;
use super::socket::Socket;
use crate::auth::Keyring;
use crate::tls::{FIRST_BYTE, Proven, ServerContext, TlsError, TlsStream};
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

/// State of a server for connections that begin with TLS.
pub(super) struct Entrance {
    context: ServerContext,
    keyring: Arc<Keyring>,
    /// Names of the subsystem and of discovery.
    subsystems: Vec<String>,
}

/// A connection refused before NVMe/TCP.
#[derive(Debug)]
pub(super) struct TurnedAway {
    /// The reason, for the log.
    pub why: String,
    /// The kind of reason, one of few, for the counter.
    pub kind: &'static str,
    /// The host's name in its handshake, unverified; empty if there is none.
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

/// Result of a connection's beginning.
pub(super) enum Beginning {
    /// It may go on, with the proof of a handshake, if there was one.
    Open(Socket, Option<Proven>),
    /// It is refused, for this reason.
    TurnedAway(TurnedAway),
    /// It has ended, for this reason.
    Ended(&'static str),
}

impl Entrance {
    /// For hosts with keys in this keyring.
    ///
    /// # Errors
    /// OpenSSL cannot be set up.
    pub(super) fn new(keyring: Arc<Keyring>, subsystems: Vec<String>) -> io::Result<Self> {
        Ok(Self {
            context: ServerContext::new().map_err(io::Error::other)?,
            keyring,
            subsystems,
        })
    }

    /// Performs the handshake of a connection that begins with TLS.
    fn handshake(
        &self,
        stream: TcpStream,
        until: Instant,
        is_over: impl Fn() -> bool,
    ) -> Result<(Socket, Proven), TurnedAway> {
        let (keyring, subsystems) = (self.keyring.clone(), self.subsystems.clone());
        let mut tls =
            TlsStream::server(&self.context, keyring, subsystems, stream).map_err(turned_away)?;

        // The stream's read time-out ends each step, so that a silent host outlives neither the
        // deadline nor the service.
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
/// The stream must have a read time-out, after which `is_over` is called.
///
/// # Errors
/// The system's reason, or nothing arrived in time.
pub(super) fn begin(
    entrance: Option<&Entrance>,
    stream: TcpStream,
    limits: &Limits,
    is_over: impl Fn() -> bool,
) -> io::Result<Beginning> {
    let began = Instant::now();
    let first = loop {
        let mut first = [0];
        // Peeked: a TLS handshake needs this byte too.
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

    // Without keys no host can authenticate by TLS.
    let Some(entrance) = entrance else {
        let none = TurnedAway::new("it begins with TLS, and there are no keys");
        return Ok(Beginning::TurnedAway(none));
    };

    // The handshake has its own deadline, since a host may have to calculate.
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
