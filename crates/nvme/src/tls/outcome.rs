//! What comes of a handshake: who is at the other end, or why there is no TLS.
//!
//! Absent: OpenSSL, so that a program that is built without it speaks of the same things.

use crate::auth::Hash;

pub(super) const SHA256_SUITE: &str = "TLS_AES_128_GCM_SHA256";
pub(super) const SHA384_SUITE: &str = "TLS_AES_256_GCM_SHA384";

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// OpenSSL cannot be set up.
    #[error("OpenSSL: {0}")]
    Setup(String),
    /// The program was built without OpenSSL.
    #[error("{}", super::ABSENT)]
    Absent,
    /// The handshake failed; `hostnqn` is what the peer calls itself, or empty.
    #[error("{why}")]
    Refused {
        /// What went wrong, in words for the log.
        why: String,
        /// The reason as one of few, for a counter.
        kind: &'static str,
        /// The host's name as the peer put it.
        hostnqn: String,
    },
}

/// Whom a handshake has proven to be at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proven {
    /// Name (NQN) of the host that the key belongs to.
    pub hostnqn: String,
    /// The subsystem that the key is for.
    pub subnqn: String,
    /// The hash of the cipher suite.
    pub hash: Hash,
}

impl Proven {
    /// Name of the cipher suite that was agreed on.
    pub fn suite(&self) -> &'static str {
        suite(self.hash)
    }
}

/// The cipher suite that has this hash.
pub(super) fn suite(hash: Hash) -> &'static str {
    match hash {
        Hash::Sha384 => SHA384_SUITE,
        _ => SHA256_SUITE,
    }
}
