//! The three hashes of DH-HMAC-CHAP, and HMAC with them.
//!
//! Invariant: authentication codes are compared in constant time (`hmac`'s own comparison). Absent:
//! the data hashed.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256, Sha384, Sha512};
use zeroize::Zeroizing;

/// A hash function of DH-HMAC-CHAP, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hash {
    /// SHA-256: digests of 32 bytes.
    Sha256 = 1,
    /// SHA-384: digests of 48 bytes.
    Sha384 = 2,
    /// SHA-512: digests of 64 bytes.
    Sha512 = 3,
}

impl Hash {
    /// All hashes, from the weakest to the strongest.
    pub const ALL: [Self; 3] = [Self::Sha256, Self::Sha384, Self::Sha512];
    /// Size of the longest digest, that of SHA-512.
    pub(crate) const LEN_MAX: usize = 64;

    /// The hash with this identifier.
    pub(crate) fn of_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|hash| hash.id() == id)
    }

    /// Its identifier in messages and secrets.
    pub(crate) fn id(self) -> u8 {
        self as u8
    }

    /// Its name on command lines and in logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
        }
    }

    /// Size of its digest, and of a response.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    /// The hash of these bytes.
    pub(super) fn digest(self, bytes: &[u8]) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(match self {
            Self::Sha256 => Sha256::digest(bytes).to_vec(),
            Self::Sha384 => Sha384::digest(bytes).to_vec(),
            Self::Sha512 => Sha512::digest(bytes).to_vec(),
        })
    }

    /// The authentication code of the concatenation of these parts.
    pub(super) fn mac(self, key: &[u8], parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(match self {
            Self::Sha256 => fed::<Hmac<Sha256>>(key, parts)
                .finalize()
                .into_bytes()
                .to_vec(),
            Self::Sha384 => fed::<Hmac<Sha384>>(key, parts)
                .finalize()
                .into_bytes()
                .to_vec(),
            Self::Sha512 => fed::<Hmac<Sha512>>(key, parts)
                .finalize()
                .into_bytes()
                .to_vec(),
        })
    }

    /// Returns true if `code` is the authentication code of these parts. Takes constant time.
    pub(super) fn is_mac(self, key: &[u8], parts: &[&[u8]], code: &[u8]) -> bool {
        match self {
            Self::Sha256 => fed::<Hmac<Sha256>>(key, parts).verify_slice(code).is_ok(),
            Self::Sha384 => fed::<Hmac<Sha384>>(key, parts).verify_slice(code).is_ok(),
            Self::Sha512 => fed::<Hmac<Sha512>>(key, parts).verify_slice(code).is_ok(),
        }
    }
}

fn fed<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> M {
    let mut mac = <M as KeyInit>::new_from_slice(key).expect("HMAC takes keys of any length");
    parts.iter().for_each(|part| mac.update(part));
    mac
}
