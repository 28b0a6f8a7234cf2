//! Short names derived from bytes.
//!
//! Absent: the meaning of the bytes.

/// A short name for these bytes.
pub fn digest(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex()[..16].to_owned()
}
