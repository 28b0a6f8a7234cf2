//! A connection's bytes, with TLS or without.
//!
//! Invariant, as with `TlsStream`: check `has_buffered` before polling the descriptor, since
//! decrypted but unread plaintext is no longer in the socket. Absent: handshakes.

use crate::tls::TlsStream;
use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

/// A connected socket, with TLS or without.
pub(super) enum Socket {
    Plain(TcpStream),
    /// With TLS, after the handshake.
    Tls(Box<TlsStream>),
}

impl Socket {
    /// The socket itself, for polling and options.
    pub(super) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.socket(),
        }
    }

    /// Returns true if a read may return something although nothing more arrives.
    #[inline]
    pub(super) fn has_buffered(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.has_buffered(),
        }
    }

    /// Tells the peer that nothing more follows, if TLS is used.
    pub(super) fn finish(&mut self) {
        // Without TLS the end of the stream shows it.
        if let Self::Tls(stream) = self {
            stream.close();
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tcp().as_fd()
    }
}

impl Read for Socket {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Socket {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }
    #[inline]
    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write_vectored(slices),
            Self::Tls(stream) => stream.write_vectored(slices),
        }
    }
    #[inline]
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}
