//! TLS in a program that was built without OpenSSL: there is none.
//!
//! The same names as `handshake` and `stream` have. Invariant: no `TlsStream` exists, so that
//! nothing is ever sent or received as if it were encrypted. Absent: keys; those of TLS are refused
//! where they are read (`auth`).

use super::outcome::{Proven, TlsError};
use crate::auth::{Keyring, Psk};
use std::convert::Infallible;
use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

/// Memory of a connection beside its socket's.
pub const CONNECTION_BYTES: usize = 0;

/// What a server needs for handshakes, all of which it refuses.
pub struct ServerContext;

impl ServerContext {
    /// A context whose connections are all refused.
    ///
    /// # Errors
    /// None.
    pub fn new() -> Result<Self, TlsError> {
        Ok(Self)
    }
}

/// What a client would need.
pub struct ClientContext(Infallible);

impl ClientContext {
    /// There is no such context in this program.
    ///
    /// # Errors
    /// `TlsError::Absent`, always.
    pub fn new(_: Psk) -> Result<Self, TlsError> {
        Err(TlsError::Absent)
    }
}

/// A connection with TLS; there is none.
pub struct TlsStream(Infallible);

impl TlsStream {
    /// Turns away a host that begins with TLS.
    ///
    /// # Errors
    /// `TlsError::Refused`, always: the host asks for what this program cannot do.
    pub fn server(
        _: &ServerContext,
        _: Arc<Keyring>,
        _: Vec<String>,
        _: TcpStream,
    ) -> Result<Self, TlsError> {
        let why = "it begins with TLS, and this program was built without";
        Err(TlsError::Refused {
            why: why.into(),
            kind: why,
            hostnqn: String::new(),
        })
    }

    /// The client's end; there is no context to call it with.
    ///
    /// # Errors
    /// None.
    pub fn client(context: &ClientContext, _: TcpStream) -> Result<Self, TlsError> {
        match context.0 {}
    }

    /// Goes on with the handshake.
    ///
    /// # Errors
    /// None.
    pub fn handshake(&mut self) -> Result<bool, TlsError> {
        match self.0 {}
    }

    /// Who is at the other end.
    pub fn proven(&self) -> Option<Proven> {
        match self.0 {}
    }

    /// The socket below, which is all there is here.
    pub fn socket(&self) -> &TcpStream {
        match self.0 {}
    }

    /// Whether a read may return something although nothing more arrives.
    pub fn has_buffered(&self) -> bool {
        match self.0 {}
    }

    /// Tells the peer that nothing more comes.
    pub fn close(&mut self) {
        match self.0 {}
    }
}

impl Read for TlsStream {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        match self.0 {}
    }
}

impl Write for TlsStream {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        match self.0 {}
    }
    fn write_vectored(&mut self, _: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.0 {}
    }
    fn flush(&mut self) -> io::Result<()> {
        match self.0 {}
    }
}
