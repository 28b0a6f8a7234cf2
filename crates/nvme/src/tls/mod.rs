//! TLS 1.3 with a key that both ends were given (an external PSK, RFC 8446 §2.2), by OpenSSL.
//!
//! ```text
//! ffi        the few functions of OpenSSL's that the crate `openssl` does not have
//! handshake  contexts, keys by identity, who the host is
//! stream     plaintext in and out over a socket with time-outs
//! ```
//! Invariants: no version but 1.3; one cipher suite for each hash of NVMe/TCP; the key exchange has
//! Diffie-Hellman in it, so that who learns the key later cannot read what was recorded; no
//! tickets, hence no resumption; no early data, hence no replay; no certificates, so that who has
//! no key gets nowhere. Absent: keys (`auth`), who may connect where (`tcp`).

mod ffi;
mod handshake;
mod stream;

pub use handshake::{ClientContext, Proven, ServerContext, TlsError};
pub use stream::{CONNECTION_BYTES, TlsStream};

/// First byte of a connection that begins with TLS: a record of a handshake. NVMe/TCP itself begins
/// with 00h (ICReq).
pub const FIRST_BYTE: u8 = 0x16;
