//! Plaintext over a socket with time-outs: the contract of `Read` and `Write` of a `TcpStream`,
//! with TLS in between.
//!
//! OpenSSL never touches the socket. It reads received ciphertext and writes ciphertext to send,
//! both in memory; this module moves them.
//!
//! Invariants:
//! - one `read` waits for the socket once, at most as long as the socket's time-out, even if a peer
//!   sends single bytes; with a partial record, and after a signal, it returns `WouldBlock`, as
//!   after the time-out;
//! - after a `read` that filled its buffer there may be more, which `has_buffered` tells; after any
//!   other read only an incomplete record is left, whose rest must arrive by the socket. So check
//!   `has_buffered` before polling;
//! - a `write` takes nothing while ciphertext of the previous one is unsent, so that no more than
//!   `OUT_BYTES` wait;
//! - `flush` returns when all ciphertext is in the socket.
//!
//! Absent: deadlines, which are the caller's.

use super::handshake::{self, ClientContext, ServerContext};
use super::outcome::{Proven, TlsError};
use crate::auth::Keyring;
use openssl::ssl::{Error, ErrorCode, Ssl, SslStream};
use rustix::net::{RecvFlags, recv};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

/// Maximum plaintext that one `write` takes.
const OUT_BYTES: usize = 64 << 10;
/// Maximum plaintext of one record (RFC 8446 §5.1).
const RECORD_BYTES: usize = 16 << 10;
/// Overhead of records and alerts.
const OVERHEAD_BYTES: usize = 1 << 10;
/// Maximum ciphertext received at once.
const IN_BYTES: usize = 64 << 10;
/// Maximum unread answers to key updates, after which the connection to the peer is ended.
const UNREAD_BYTES_MAX: usize = 2 * OUT_BYTES;

/// Memory of a connection besides its socket's: our buffers, and OpenSSL's, a record each way.
pub const CONNECTION_BYTES: usize =
    IN_BYTES + OUT_BYTES + RECORD_BYTES + OVERHEAD_BYTES + 3 * RECORD_BYTES;

/// A connection encrypted by TLS.
pub struct TlsStream {
    ssl: SslStream<Transport>,
    /// True if the last read filled its buffer and more is available.
    has_buffered: bool,
    /// Buffer that combines small pieces of output into a record.
    record: Vec<u8>,
}

impl TlsStream {
    /// The server's end of a connection that begins with TLS. Call `handshake` next.
    ///
    /// # Errors
    /// OpenSSL's reason.
    pub fn server(
        context: &ServerContext,
        keyring: Arc<Keyring>,
        subsystems: Vec<String>,
        socket: TcpStream,
    ) -> Result<Self, TlsError> {
        Self::new(context.ssl(keyring, subsystems)?, socket)
    }

    /// The client's end of a connection. Call `handshake` next.
    ///
    /// # Errors
    /// OpenSSL's reason.
    pub fn client(context: &ClientContext, socket: TcpStream) -> Result<Self, TlsError> {
        Self::new(context.ssl()?, socket)
    }

    fn new(ssl: Ssl, socket: TcpStream) -> Result<Self, TlsError> {
        Ok(Self {
            ssl: SslStream::new(ssl, Transport::new(socket))?,
            has_buffered: false,
            record: Vec::new(),
        })
    }

    /// Continues the handshake; `false` if the peer must send more and did not within the socket's
    /// time-out.
    ///
    /// # Errors
    /// It failed. The peer was notified.
    pub fn handshake(&mut self) -> Result<bool, TlsError> {
        // One wait per step, so that the caller can check its deadline.
        self.ssl.get_mut().waits = true;
        let result = self.ssl.do_handshake();
        // Send output after failures too: an alert is output. Do not wait for a peer that does not
        // read that little.
        let pushed = self.ssl.get_mut().push();

        match result {
            Ok(()) => match pushed {
                Ok(()) => {
                    // Bytes sent right after the peer's last message are already here.
                    self.has_buffered = !self.ssl.get_ref().is_drained();
                    Ok(true)
                }
                Err(error) => Err(TlsError::Refused {
                    why: format!("the TLS handshake failed: {error}"),
                    kind: "TLS handshake",
                    hostnqn: String::new(),
                }),
            },
            Err(error) if is_wait(&error) => Ok(false),
            Err(error) => Err(handshake::refused(self.ssl.ssl(), &error)),
        }
    }

    /// The proven identity of the peer, if that is a host: after a handshake.
    pub(crate) fn proven(&self) -> Option<Proven> {
        handshake::proven(self.ssl.ssl())
    }

    /// The socket, for polling and options.
    pub fn socket(&self) -> &TcpStream {
        &self.ssl.get_ref().socket
    }

    /// Returns true if a read may return something although nothing more arrives.
    pub(crate) fn has_buffered(&self) -> bool {
        self.has_buffered
    }

    /// Tells the peer that nothing more follows, if it still reads.
    pub(crate) fn close(&mut self) {
        let _ = self.ssl.shutdown();
        let _ = self.ssl.get_mut().push();
    }

    /// Encrypts up to `OUT_BYTES`; returns the number of bytes taken.
    fn encrypt(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut taken = 0;
        while taken < bytes.len() && self.ssl.get_ref().unsent() < OUT_BYTES {
            match self.ssl.ssl_write(&bytes[taken..]) {
                Ok(len) => taken += len,
                Err(_) if taken > 0 => break,
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(taken)
    }

    /// Sends encrypted data. If the peer takes nothing now, the next write or flush finds out.
    fn push_lazily(&mut self) -> io::Result<()> {
        match self.ssl.get_mut().push() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            result => result,
        }
    }
}

impl Read for TlsStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // Buffered data are returned without waiting for more.
        self.ssl.get_mut().waits = !std::mem::take(&mut self.has_buffered);
        let mut filled = 0;

        // OpenSSL returns one record at a time; this call returns as many as are available.
        while filled < buffer.len() {
            match self.ssl.ssl_read(&mut buffer[filled..]) {
                Ok(len) => filled += len,
                Err(error) if filled > 0 && is_wait(&error) => break,
                Err(error) => {
                    // An alert, or the answer to one.
                    let _ = self.ssl.get_mut().push();
                    let ended = error.code() == ErrorCode::ZERO_RETURN || self.ssl.get_ref().ended;
                    return match (filled, ended) {
                        (0, true) => Ok(0),
                        (0, false) => Err(failed(error)),
                        // The next read will see it again.
                        _ => Ok(filled),
                    };
                }
            }

            // Only the first record is worth a wait.
            self.ssl.get_mut().waits = false;
            if self.ssl.ssl().pending() == 0 && self.ssl.get_ref().is_drained() {
                break;
            }
        }
        self.has_buffered = filled == buffer.len()
            && (self.ssl.ssl().pending() > 0 || !self.ssl.get_ref().is_drained());

        // Answer key updates by the peer.
        self.push_lazily()?;
        if self.ssl.get_ref().unsent() > UNREAD_BYTES_MAX {
            return Err(io::Error::other(
                "its host asks for new TLS keys and does not read the answers",
            ));
        }
        Ok(filled)
    }
}

impl Write for TlsStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Nothing is taken while the last write is unsent, so that a slow peer does not make memory
        // grow.
        self.ssl.get_mut().push()?;
        let taken = self.encrypt(bytes)?;
        self.push_lazily()?;
        Ok(taken)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.ssl.get_mut().push()?;
        let mut slices = slices.iter();
        let mut piece: &[u8] = &[];
        let mut taken = 0;

        while self.ssl.get_ref().unsent() < OUT_BYTES {
            // Many small answers are combined into one record.
            let mut record = std::mem::take(&mut self.record);
            record.clear();
            while record.len() < RECORD_BYTES {
                if piece.is_empty() {
                    let Some(next) = slices.next() else { break };
                    piece = next;
                }
                let (now, later) = piece.split_at(piece.len().min(RECORD_BYTES - record.len()));
                record.extend_from_slice(now);
                piece = later;
            }

            let wanted = record.len();
            let encrypted = self.encrypt(&record);
            self.record = record;
            match encrypted {
                Ok(len) => taken += len,
                Err(_) if taken > 0 => break,
                Err(error) => return Err(error),
            }
            if wanted < RECORD_BYTES {
                break;
            }
        }

        self.push_lazily()?;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.ssl.get_mut().push()
    }
}

/// Returns true if an operation waits for the socket.
fn is_wait(error: &Error) -> bool {
    matches!(error.code(), ErrorCode::WANT_READ | ErrorCode::WANT_WRITE)
}

/// Converts an OpenSSL error to an I/O error.
fn failed(error: Error) -> io::Error {
    if is_wait(&error) {
        return ErrorKind::WouldBlock.into();
    }
    let reason = error.ssl_error().map(|stack| stack.errors());
    let reason = reason.and_then(|errors| errors.iter().rev().find_map(|one| one.reason()));
    match (reason, error.into_io_error()) {
        (Some(reason), _) => io::Error::new(ErrorKind::InvalidData, format!("TLS: {reason}")),
        (None, Ok(error)) => error,
        (None, Err(_)) => io::Error::new(ErrorKind::InvalidData, "TLS: the connection has failed"),
    }
}

/// Ciphertext between OpenSSL and a socket.
struct Transport {
    socket: TcpStream,
    /// True to wait for the socket the next time that nothing is available; once.
    waits: bool,
    /// True if the peer has ended its half of the connection.
    ended: bool,
    input: Box<[u8]>,
    start: usize,
    end: usize,
    output: Vec<u8>,
    /// Number of bytes of `output` already in the socket.
    sent: usize,
}

impl Transport {
    fn new(socket: TcpStream) -> Self {
        Self {
            socket,
            waits: true,
            ended: false,
            input: vec![0; IN_BYTES].into(),
            start: 0,
            end: 0,
            output: Vec::new(),
            sent: 0,
        }
    }

    /// Returns true if OpenSSL has taken everything received.
    fn is_drained(&self) -> bool {
        self.start == self.end
    }

    fn unsent(&self) -> usize {
        self.output.len() - self.sent
    }

    /// Receives available bytes, without waiting for more.
    fn fill(&mut self) -> io::Result<()> {
        let flags = if std::mem::take(&mut self.waits) {
            // The peer may wait for this before it sends more.
            self.push()?;
            RecvFlags::empty()
        } else {
            RecvFlags::DONTWAIT
        };

        let received = match recv(&self.socket, &mut self.input[..], flags) {
            Ok((_, received)) => received,
            // The caller checks its clock: signals may come faster than the time-out.
            Err(rustix::io::Errno::INTR) => return Err(ErrorKind::WouldBlock.into()),
            Err(error) => {
                let error = io::Error::from(error);
                // As for a socket without TLS: a reset counts as the end.
                self.ended |= error.kind() == ErrorKind::ConnectionReset;
                return Err(error);
            }
        };

        self.ended |= received == 0;
        (self.start, self.end) = (0, received);
        Ok(())
    }

    /// Sends all pending ciphertext.
    fn push(&mut self) -> io::Result<()> {
        // Time of the first interruption of a wait: the socket's time-out restarts after each
        // signal.
        let mut interrupted: Option<Instant> = None;

        while self.sent < self.output.len() {
            match self.socket.write(&self.output[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => {
                    self.sent += sent;
                    interrupted = None;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {
                    let waited = interrupted.get_or_insert_with(Instant::now).elapsed();
                    if self
                        .socket
                        .write_timeout()?
                        .is_some_and(|most| waited >= most)
                    {
                        return Err(ErrorKind::WouldBlock.into());
                    }
                }
                Err(error) => return Err(error),
            }
        }

        self.output.clear();
        self.sent = 0;
        Ok(())
    }
}

impl Read for Transport {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.is_drained() {
            self.fill()?;
        }
        let len = buffer.len().min(self.end - self.start);
        buffer[..len].copy_from_slice(&self.input[self.start..self.start + len]);
        self.start += len;
        Ok(len)
    }
}

impl Write for Transport {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.output.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
