//! Signatures of pages: 128-bit hashes that identify equal pages.
//!
//! The papers use MD5. Since MD5 collisions can be constructed, hits are compared unless that is
//! switched off. BLAKE3 is keyed with a random number of the disk's own: without the key collisions
//! cannot be searched for, and among 2^32 pages an accidental one has a probability of 2^-65.
//! Invariant: no page has the all-zero signature, which stands for "unknown".

use crate::error::UnknownName;
use md5::{Digest, Md5};
use remap_ssd_media::geometry::PAGE_BYTES;

/// A page's signature; all zeroes mean unknown.
pub(crate) type Signature = [u8; SIGNATURE_BYTES];

/// Bytes of a signature, truncated from the digest.
pub(crate) const SIGNATURE_BYTES: usize = 16;

/// The unknown signature.
pub(crate) const UNKNOWN: Signature = [0; SIGNATURE_BYTES];

/// Hash functions for signatures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hash {
    /// MD5, as in the papers.
    #[default]
    Md5,
    /// The first 128 bits of BLAKE3 under the disk's own key.
    Blake3,
}

impl Hash {
    /// Name in options and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Md5 => "md5",
            Self::Blake3 => "blake3",
        }
    }

    /// Returns true if equal signatures prove equal pages.
    pub(crate) fn is_trusted(self) -> bool {
        self == Self::Blake3
    }

    /// Computes the signature of a page.
    pub(crate) fn signature(self, key: &[u8; 32], page: &[u8; PAGE_BYTES]) -> Signature {
        // MD5 has no key: it is the papers' choice, and its hits are compared.
        let mut signature: Signature = match self {
            Self::Md5 => Md5::digest(page).into(),
            Self::Blake3 => *blake3::keyed_hash(key, page)
                .as_bytes()
                .first_chunk()
                .expect("a hash has 32 bytes"),
        };

        // Zeroes stand for "unknown"; flipping one bit gives an equally good signature.
        if signature == UNKNOWN {
            signature[0] = 1;
        }
        signature
    }
}

impl std::str::FromStr for Hash {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let found = [Self::Md5, Self::Blake3]
            .into_iter()
            .find(|hash| hash.name() == text);
        found.ok_or_else(|| UnknownName {
            what: "hash",
            name: text.to_owned(),
            known: "md5 or blake3",
        })
    }
}
