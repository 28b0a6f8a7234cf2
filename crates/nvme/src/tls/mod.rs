//! TLS 1.3 with a key that both ends were given (an external PSK, RFC 8446 §2.2), by OpenSSL.
//!
//! ```text
//! ffi        the few functions of OpenSSL's that the crate `openssl` does not have
//! handshake  contexts, keys by identity, who the host is
//! outcome    who is at the other end, or why there is no TLS
//! stream     plaintext in and out over a socket with time-outs
//! absent     the same names in a program that is built without OpenSSL, without the feature `tls`
//! ```
//! Invariants: no version but 1.3; one cipher suite for each hash of NVMe/TCP; the key exchange has
//! Diffie-Hellman in it, so that who learns the key later cannot read what was recorded; no
//! tickets, hence no resumption; no early data, hence no replay; no certificates, so that who has
//! no key gets nowhere. Absent: keys (`auth`), who may connect where (`tcp`).

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
pub use absent::{CONNECTION_BYTES, ClientContext, ServerContext, TlsStream};
#[cfg(feature = "tls")]
pub use handshake::{ClientContext, ServerContext};
pub use outcome::{Proven, TlsError};
#[cfg(feature = "tls")]
pub use stream::{CONNECTION_BYTES, TlsStream};

/// Whether this program has TLS: the feature `tls`.
pub const IS_BUILT: bool = cfg!(feature = "tls");

/// What to do where it has none.
pub const ABSENT: &str = "this program was built without TLS: `cargo install --path crates/cli --features tls` has it, and needs \
                          libssl-dev and pkg-config";

/// First byte of a connection that begins with TLS: a record of a handshake. NVMe/TCP itself begins
/// with 00h (ICReq).
pub const FIRST_BYTE: u8 = 0x16;
