//! TLS 1.3 with a key given to both ends (an external PSK, RFC 8446 §2.2), by OpenSSL.
//!
//! ```text
//! ffi        the few OpenSSL functions that the crate `openssl` lacks
//! handshake  contexts, keys by identity, identity of the host
//! outcome    the proven peer, or why there is no TLS
//! stream     plaintext in and out over a socket with time-outs
//! absent     stubs for a program built without OpenSSL, without the feature `tls`
//! ```
//! Invariants: no version but 1.3; one cipher suite for each hash of NVMe/TCP; the key exchange
//! includes Diffie-Hellman, so that a later leak of the key does not decrypt recorded traffic; no
//! tickets, hence no resumption; no early data, hence no replay; no certificates, so that a key is
//! indispensable. Absent: keys (`auth`), access rules (`tcp`).

#[cfg(not(feature = "tls"))]
mod absent;
#[cfg(feature = "tls")]
mod ffi;
#[cfg(feature = "tls")]
mod handshake;
mod outcome;
#[cfg(feature = "tls")]
mod stream;

#[cfg(not(feature = "tls"))]
pub(crate) use absent::{CONNECTION_BYTES, ClientContext, ServerContext, TlsStream};
#[cfg(feature = "tls")]
pub use handshake::{ClientContext, ServerContext};
pub use outcome::{Proven, TlsError};
#[cfg(feature = "tls")]
pub use stream::{CONNECTION_BYTES, TlsStream};

/// True if this program has TLS: the feature `tls`.
pub const IS_BUILT: bool = cfg!(feature = "tls");

/// Advice if it has none.
pub const ABSENT: &str = "this program was built without TLS: `cargo install --path crates/cli --features tls` has it, and needs \
                          libssl-dev and pkg-config";

/// First byte of a connection that begins with TLS: a handshake record. NVMe/TCP itself begins with
/// 00h (ICReq).
pub const FIRST_BYTE: u8 = 0x16;
