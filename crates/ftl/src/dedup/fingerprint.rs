//! Fingerprints of page contents.
//!
//! The fingerprint is the content's identity, or the BLAKE3 digest of its real bytes: no collision
//! can lead to wrong data. An equal MurmurHash3 digest proves nothing, so the core also compares
//! the contents. Absent: the hash unit's time (the device's).

use crate::dedup::murmur3::murmur3;
use remap_ssd_media::Payload;
use serde::{Deserialize, Serialize};

/// Fingerprint function of page contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum FingerprintKind {
    /// BLAKE3, 256 bits, collision-resistant: equal digests imply equal contents.
    #[default]
    #[serde(rename = "blake3")]
    Blake3,
    /// MurmurHash3, 128 bits, fast, but collisions are easy to construct (Coldmap): each hit is
    /// verified by a read.
    #[serde(rename = "murmur3")]
    Murmur3,
}

impl FingerprintKind {
    /// Returns true if equal digests prove equal contents, so that hits need no verification.
    #[inline]
    pub(crate) fn is_trusted(self) -> bool {
        self == Self::Blake3
    }

    /// The digest of a page's bytes.
    pub fn digest(self, bytes: &[u8]) -> [u8; 32] {
        match self {
            Self::Blake3 => *blake3::hash(bytes).as_bytes(),
            Self::Murmur3 => {
                let mut digest = [0; 32];
                let (parts, _) = digest.as_chunks_mut::<8>();
                for (part, half) in parts.iter_mut().zip(murmur3(bytes, 0)) {
                    *part = half.to_le_bytes();
                }
                digest
            }
        }
    }
}

/// A content's key in the store: an identity or a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fingerprint {
    /// Identity of the content.
    Identity(u64),
    /// Digest of the page's bytes.
    Digest([u8; 32]),
}

impl Fingerprint {
    /// The fingerprint of a payload.
    #[inline]
    pub(crate) fn of(payload: &Payload<'_>, kind: FingerprintKind) -> Self {
        match payload {
            Payload::Identity(identity) => Self::Identity(*identity),
            Payload::Bytes(bytes) => Self::Digest(kind.digest(&bytes[..])),
        }
    }

    /// A 64-bit hash of the fingerprint.
    #[inline]
    pub(super) fn spread(&self) -> u64 {
        match self {
            Self::Identity(identity) => {
                // Identities may be small consecutive numbers. Line and tag come from different
                // halves, so both must be mixed; a digest is mixed already.
                let x = (identity ^ (identity >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
            }
            Self::Digest(digest) => {
                u64::from_le_bytes(digest[..8].try_into().expect("8 bytes of 32"))
            }
        }
    }
}
