//! Signatures of pages: 128 bits that say which pages are equal.
//!
//! MD5 is what the papers have. Since anybody can make two pages of one MD5, a hit is compared
//! unless that is switched off. BLAKE3 is keyed with a random number of the disk's own: who does
//! not know it cannot look for collisions, and 2^32 pages agree by accident with a probability of
//! 2^-65. Invariant: no page has the signature of zeroes, which stands for "unknown".

use md5::{Digest, Md5};
use remap_ssd_media::geometry::PAGE_BYTES;

/// A page's signature; all zeroes are none.
pub type Signature = [u8; SIGNATURE_BYTES];

/// Bytes of a signature, cut from the digest.
pub const SIGNATURE_BYTES: usize = 16;

/// What stands for a signature that is not known.
pub const UNKNOWN: Signature = [0; SIGNATURE_BYTES];

/// The hash functions that signatures can be made by.
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

    /// Whether equal signatures prove equal pages.
    pub fn is_trusted(self) -> bool {
        self == Self::Blake3
    }

    /// The signature of a page.
    pub fn signature(self, key: &[u8; 32], page: &[u8; PAGE_BYTES]) -> Signature {
        // MD5 has no key: it is what the papers measured, and its hits are compared.
        let mut signature: Signature = match self {
            Self::Md5 => Md5::digest(page).into(),
            Self::Blake3 => *blake3::keyed_hash(key, page)
                .as_bytes()
                .first_chunk()
                .expect("a hash has 32 bytes"),
        };

        // Zeroes stand for "unknown"; one bit away from them is as good a signature.
        if signature == UNKNOWN {
            signature[0] = 1;
        }
        signature
    }
}

impl std::str::FromStr for Hash {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = [Self::Md5, Self::Blake3]
            .into_iter()
            .find(|hash| hash.name() == text);
        found.ok_or_else(|| format!("unknown hash `{text}`: md5 or blake3"))
    }
}
