//! Stubs of TLS for a program that is built without OpenSSL.
//!
//! They have the same names as in `handshake` and `stream`. Invariant: no `TlsStream` exists, so
//! that nothing is ever sent or received as if it were encrypted. Absent: keys; TLS keys are
//! refused when they are read (`auth`).

use super::outcome::{Proven, TlsError};
use crate::auth::{Keyring, Psk};
use std::convert::Infallible;
use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

/// Memory of a connection besides its socket's.
pub(crate) const CONNECTION_BYTES: usize = 0;

/// Context of a server's handshakes, all of which are refused.
pub(crate) struct ServerContext;

impl ServerContext {
    /// A context whose connections are all refused.
    ///
    /// # Errors
    /// None.
    pub(crate) fn new() -> Result<Self, TlsError> {
        Ok(Self)
    }
}

/// Context of a client's handshakes, which cannot exist.
pub(crate) struct ClientContext(Infallible);

impl ClientContext {
    /// There is no such context in this program.
    ///
    /// # Errors
    /// `TlsError::Absent`, always.
    pub(crate) fn new(_: Psk) -> Result<Self, TlsError> {
        Err(TlsError::Absent)
    }
}

/// A TLS connection, which cannot exist.
pub(crate) struct TlsStream(Infallible);

impl TlsStream {
    /// Refuses a host that begins with TLS.
    ///
    /// # Errors
    /// `TlsError::Refused`, always: this program does not support TLS.
    pub(crate) fn server(
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
    pub(crate) fn client(context: &ClientContext, _: TcpStream) -> Result<Self, TlsError> {
        match context.0 {}
    }

    /// Continues the handshake.
    ///
    /// # Errors
    /// None.
    pub(crate) fn handshake(&mut self) -> Result<bool, TlsError> {
        match self.0 {}
    }

    /// The proven identity of the peer.
    pub(crate) fn proven(&self) -> Option<Proven> {
        match self.0 {}
    }

    /// The socket below.
    pub(crate) fn socket(&self) -> &TcpStream {
        match self.0 {}
    }

    /// Returns true if a read may return something although nothing more arrives.
    pub(crate) fn has_buffered(&self) -> bool {
        match self.0 {}
    }

    /// Tells the peer that nothing more follows.
    pub(crate) fn close(&mut self) {
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
