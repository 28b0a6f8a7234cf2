//! Result of a handshake: the proven peer, or why there is no TLS.
//!
//! Absent: OpenSSL, so that these types also exist in a program built without it.

use crate::auth::Hash;

pub(super) const SHA256_SUITE: &str = "TLS_AES_128_GCM_SHA256";
pub(super) const SHA384_SUITE: &str = "TLS_AES_256_GCM_SHA384";

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// OpenSSL cannot be initialized.
    #[error("OpenSSL: {0}")]
    Setup(String),
    /// The program was built without OpenSSL.
    #[error("{}", super::ABSENT)]
    Absent,
    /// The handshake failed; `hostnqn` is the peer's claim, or empty.
    #[error("{why}")]
    Refused {
        /// The error in words, for the log.
        why: String,
        /// The kind of error, one of few, for a counter.
        kind: &'static str,
        /// The host's name, as claimed by the peer.
        hostnqn: String,
    },
}

/// The identity proven by a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proven {
    /// Name (NQN) of the key's host.
    pub hostnqn: String,
    /// Name (NQN) of the key's subsystem.
    pub subnqn: String,
    /// The hash of the cipher suite.
    pub hash: Hash,
}

impl Proven {
    /// Name of the negotiated cipher suite.
    pub(crate) fn suite(&self) -> &'static str {
        suite(self.hash)
    }
}

/// The cipher suite with this hash.
pub(super) fn suite(hash: Hash) -> &'static str {
    match hash {
        Hash::Sha384 => SHA384_SUITE,
        _ => SHA256_SUITE,
    }
}
