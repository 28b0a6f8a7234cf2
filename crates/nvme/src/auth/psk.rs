//! Keys of TLS as `nvme gen-tls-key` makes them, and what is derived from them for a pair of host
//! and subsystem.
//!
//! ```text
//! configured PSK   NVMeTLSkey-1:HH:BASE64:        32 or 48 bytes and their CRC-32, low byte first
//!   retained PSK   bound to the host's NQN by the hash HH (00: the configured PSK itself)
//!     identity     NVMe1R01 HOST SUBSYSTEM DIGEST  what the host shows in the open; 01 SHA-256, 02 SHA-384
//!     TLS PSK      what both ends prove to know
//! ```
//! (NVMe/TCP 1.0 §3.6.1.) Keys of 32 bytes go with SHA-256 and `TLS_AES_128_GCM_SHA256`, those of
//! 48 bytes with SHA-384 and `TLS_AES_256_GCM_SHA384`. libnvme up to 1.14 labels its derivations
//! otherwise than the standard does; the digest in the identity tells which one a host has used.
//!
//! Invariant: a key is never shown, and its memory is cleared. Absent: files (`keys`), the
//! handshake (`tls`).

use super::hash::Hash;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fmt;
use zeroize::Zeroizing;

/// Precedes the labels of TLS 1.3.
const PREFIX: &[u8] = b"tls13 ";
/// Ends what the digest of an identity is made of.
const BINDING: &[u8] = b" NVMe-over-Fabrics";
const CRC_BYTES: usize = 4;
/// The longest identity there can be: two names of 223 bytes and a digest of SHA-384.
pub const IDENTITY_BYTES_MAX: usize = 8 + 1 + 223 + 1 + 223 + 1 + 64;

/// How the labels of key derivation are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Derivation {
    /// As TLS 1.3 has them (RFC 8446 §7.1): the length big-endian, label and context behind their
    /// own lengths.
    Standard,
    /// As libnvme up to 1.14 has them: the length little-endian, label and context without lengths.
    Libnvme,
}

impl Derivation {
    /// Both ways, the standard's before that of libnvme.
    pub const ALL: [Self; 2] = [Self::Standard, Self::Libnvme];
}

/// A pre-shared key for TLS, as it is configured.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsKey {
    binding: Option<Hash>,
    bytes: Zeroizing<Vec<u8>>,
}

/// Why a text is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsKeyError {
    /// It does not look like one.
    #[error(
        "a TLS key is `NVMeTLSkey-1:00:...:` to `NVMeTLSkey-1:02:...:`, as `nvme gen-tls-key` makes them"
    )]
    Shape,
    /// It is not base 64.
    #[error("the TLS key is not in base 64")]
    Encoding,
    /// It has another length than its hash wants.
    #[error(
        "the TLS key has {0} bytes, which does not go with its hash: 32 for 01, 48 for 02, either of these for 00"
    )]
    Length(usize),
    /// The checksum says that it was damaged on the way.
    #[error("the TLS key's CRC is wrong: a character of it was lost or changed")]
    Crc,
}

/// What one host and one subsystem share for TLS.
#[derive(Clone)]
pub struct Psk {
    /// What the host calls it, in the open.
    pub identity: String,
    /// The key: as many bytes as its hash has.
    pub key: Zeroizing<Vec<u8>>,
    /// The hash of its cipher suite: SHA-256 or SHA-384.
    pub hash: Hash,
}

impl TlsKey {
    /// How the text of one begins.
    pub const PREFIX: &str = "NVMeTLSkey-1:";

    /// A key of these bytes, bound to the host's name by this hash.
    ///
    /// # Errors
    /// The length.
    pub fn new(binding: Option<Hash>, bytes: &[u8]) -> Result<Self, TlsKeyError> {
        // The suite follows from the length, so a hash that does not go with it would be a mistake.
        let fits = match (binding, bytes.len()) {
            (None, 32 | 48) => true,
            (Some(Hash::Sha256), len) => len == 32,
            (Some(Hash::Sha384), len) => len == 48,
            _ => false,
        };
        if !fits {
            return Err(TlsKeyError::Length(bytes.len()));
        }
        Ok(Self {
            binding,
            bytes: Zeroizing::new(bytes.to_vec()),
        })
    }

    /// A key from its text.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(text: &str) -> Result<Self, TlsKeyError> {
        let inner = text
            .strip_prefix(Self::PREFIX)
            .and_then(|rest| rest.strip_suffix(':'));
        let (hash, encoded) = inner
            .and_then(|rest| rest.split_once(':'))
            .ok_or(TlsKeyError::Shape)?;
        let binding = match hash {
            "00" => None,
            "01" => Some(Hash::Sha256),
            "02" => Some(Hash::Sha384),
            _ => return Err(TlsKeyError::Shape),
        };

        let decoded = STANDARD
            .decode(encoded)
            .map_err(|_| TlsKeyError::Encoding)?;
        let decoded = Zeroizing::new(decoded);

        // The CRC is behind the key; too short a text fails by its length below.
        let key_len = decoded.len().saturating_sub(CRC_BYTES);
        let (bytes, crc) = decoded.split_at(key_len);
        let key = Self::new(binding, bytes)?;
        if crc != crc32fast::hash(bytes).to_le_bytes() {
            return Err(TlsKeyError::Crc);
        }
        Ok(key)
    }

    /// Its text, which is all that anybody needs to know.
    pub fn reveal(&self) -> Zeroizing<String> {
        let mut whole = self.bytes.clone();
        whole.extend_from_slice(&crc32fast::hash(&self.bytes).to_le_bytes());
        let hash = self.binding.map_or(0, Hash::id);
        let encoded = STANDARD.encode(&*whole);
        Zeroizing::new(format!("{}{hash:02}:{encoded}:", Self::PREFIX))
    }

    /// The hash of its cipher suite.
    pub fn hash(&self) -> Hash {
        if self.bytes.len() == Hash::Sha384.bytes() {
            Hash::Sha384
        } else {
            Hash::Sha256
        }
    }

    /// What this host and this subsystem share.
    pub fn psk(&self, hostnqn: &str, subnqn: &str, derivation: Derivation) -> Psk {
        // Three steps: the key is bound to the host, the identity names both, and the TLS key is
        // bound to the identity.
        let hash = self.hash();
        let retained = match self.binding {
            None => self.bytes.clone(),
            Some(binding) => expand(
                binding,
                &self.bytes,
                derivation,
                b"HostNQN",
                hostnqn.as_bytes(),
            ),
        };

        let names = [hostnqn.as_bytes(), b" ", subnqn.as_bytes(), BINDING];
        let digest = STANDARD.encode(&*hash.mac(&retained, &names));
        let id = hash.id();
        let context = format!("{id:02} {digest}");
        let key = expand(
            hash,
            &retained,
            derivation,
            b"nvme-tls-psk",
            context.as_bytes(),
        );
        Psk {
            identity: format!("NVMe1R{id:02} {hostnqn} {subnqn} {digest}"),
            key,
            hash,
        }
    }
}

impl fmt::Debug for TlsKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the key: what is printed for debugging ends up in logs.
        f.write_str("TlsKey(..)")
    }
}

/// HKDF-Extract without salt, and HKDF-Expand-Label to as many bytes as the hash has: one block
/// (RFC 5869, RFC 8446 §7.1).
fn expand(
    hash: Hash,
    secret: &[u8],
    derivation: Derivation,
    label: &[u8],
    context: &[u8],
) -> Zeroizing<Vec<u8>> {
    let extracted = hash.mac(&[0; Hash::LEN_MAX][..hash.bytes()], &[secret]);
    let len = hash.bytes() as u16;

    // One block: the key is as long as the hash.
    const BLOCK: &[u8] = &[1];
    match derivation {
        Derivation::Standard => {
            let label_len = [(PREFIX.len() + label.len()) as u8];
            let context_len = [u8::try_from(context.len()).expect("names have at most 223 bytes")];
            let info = [
                &len.to_be_bytes(),
                &label_len[..],
                PREFIX,
                label,
                &context_len,
                context,
            ];
            hash.mac(&extracted, &[&info.concat(), BLOCK])
        }
        Derivation::Libnvme => {
            let info = [&len.to_le_bytes(), PREFIX, label, context];
            hash.mac(&extracted, &[&info.concat(), BLOCK])
        }
    }
}

/// What an identity says; nothing of it is proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim<'a> {
    /// Name (NQN) of the host that the key is for.
    pub hostnqn: &'a str,
    /// Name (NQN) of the subsystem that it is for.
    pub subnqn: &'a str,
}

impl<'a> Claim<'a> {
    /// What an identity says, if it is one of a retained PSK in version 1.
    pub fn parse(identity: &'a str) -> Option<Self> {
        // A stranger's word: it is not looked at any closer if it is too long.
        if identity.len() > IDENTITY_BYTES_MAX {
            return None;
        }
        let mut words = identity.split(' ');
        let (kind, hostnqn, subnqn) = (words.next()?, words.next()?, words.next()?);

        // The digest is compared when there is a key to make it from.
        words.next()?;
        let is_known = matches!(kind, "NVMe1R01" | "NVMe1R02") && words.next().is_none();
        is_known.then_some(Self { hostnqn, subnqn })
    }
}
