//! Secrets as `nvme gen-dhchap-key` makes them: `DHHC-1:HH:BASE64:`.
//!
//! HH is the hash by which the secret is bound to a name (00 none, 01 SHA-256, 02 SHA-384, 03
//! SHA-512), and what is encoded is 32, 48 or 64 bytes and their CRC-32, low byte first (Base 2.0
//! §8.13.5.8). Invariant: a secret is never shown, and its memory is cleared. Absent: files
//! (`keys`).

use super::hash::Hash;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fmt;
use zeroize::Zeroizing;

/// Follows the name when a secret is bound to one.
const BINDING: &[u8] = b"NVMe-over-Fabrics";
const CRC_BYTES: usize = 4;

/// A secret of DH-HMAC-CHAP, as it is configured.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    binding: Option<Hash>,
    bytes: Zeroizing<Vec<u8>>,
}

/// Why a text is no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// It does not look like one.
    #[error(
        "a secret is `DHHC-1:00:...:` to `DHHC-1:03:...:`, as `nvme gen-dhchap-key` makes them"
    )]
    Shape,
    /// It is not base 64.
    #[error("the secret is not in base 64")]
    Encoding,
    /// It has another length than its hash wants.
    #[error(
        "the secret has {0} bytes, which does not go with its hash: 32 for 01, 48 for 02, 64 for 03, any of these for 00"
    )]
    Length(usize),
    /// The checksum says that it was damaged on the way.
    #[error("the secret's CRC is wrong: a character of it was lost or changed")]
    Crc,
}

impl Secret {
    /// A secret of these bytes, bound to names by this hash.
    ///
    /// # Errors
    /// The length.
    pub fn new(binding: Option<Hash>, bytes: &[u8]) -> Result<Self, SecretError> {
        // A secret that is bound to no name goes with any hash.
        let fits = match binding {
            None => matches!(bytes.len(), 32 | 48 | 64),
            Some(hash) => bytes.len() == hash.bytes(),
        };
        if !fits {
            return Err(SecretError::Length(bytes.len()));
        }
        Ok(Self {
            binding,
            bytes: Zeroizing::new(bytes.to_vec()),
        })
    }

    /// A secret from its text.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        let inner = text
            .strip_prefix("DHHC-1:")
            .and_then(|rest| rest.strip_suffix(':'));
        let (hash, encoded) = inner
            .and_then(|rest| rest.split_once(':'))
            .ok_or(SecretError::Shape)?;
        let binding = match hash {
            "00" => None,
            "01" => Some(Hash::Sha256),
            "02" => Some(Hash::Sha384),
            "03" => Some(Hash::Sha512),
            _ => return Err(SecretError::Shape),
        };

        let decoded = STANDARD
            .decode(encoded)
            .map_err(|_| SecretError::Encoding)?;
        let decoded = Zeroizing::new(decoded);

        // The CRC is behind the secret; too short a text fails by its length below.
        let key_len = decoded.len().saturating_sub(CRC_BYTES);
        let (key, crc) = decoded.split_at(key_len);
        let secret = Self::new(binding, key)?;
        if crc != crc32fast::hash(key).to_le_bytes() {
            return Err(SecretError::Crc);
        }
        Ok(secret)
    }

    /// Its text, which is all that anybody needs to know.
    pub fn reveal(&self) -> Zeroizing<String> {
        let mut whole = self.bytes.clone();
        whole.extend_from_slice(&crc32fast::hash(&self.bytes).to_le_bytes());
        let hash = self.binding.map_or(0, Hash::id);
        Zeroizing::new(format!("DHHC-1:{hash:02}:{}:", STANDARD.encode(&*whole)))
    }

    /// The key for whoever has this name.
    pub(super) fn key_of(&self, nqn: &str) -> Zeroizing<Vec<u8>> {
        match self.binding {
            None => self.bytes.clone(),
            Some(hash) => hash.mac(&self.bytes, &[nqn.as_bytes(), BINDING]),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the secret: what is printed for debugging ends up in logs.
        f.write_str("Secret(..)")
    }
}
