//! Content of a page: real bytes, or an identity that stands for them. A page has 4 KiB, or more with a larger indirection unit.
//!
//! Invariant: all data pages of a device have the same mode; metadata pages are real bytes in every
//! mode. Equal identities mean equal contents. Absent: hashing (the firmware's dedup engine does
//! that).

use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// How much of a data page is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContentMode {
    /// Not stored: mappings only, for devices of terabytes.
    None,
    /// Pages hold a 64-bit identity of their content.
    Identity,
    /// As the bytes of each page.
    Bytes,
}

/// A page's bytes, shared between the flash page and its copies.
pub(crate) type PageBytes = Arc<[u8]>;

/// The data of a host write. Bytes stay in the host's buffer until the flash page takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// A 64-bit number that stands for the content.
    Identity(u64),
    /// All bytes of the page: 4,096, or those of its indirection unit.
    Bytes(&'a [u8]),
}

/// The result of a read, by reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageView<'a> {
    /// The page is not mapped: zeroes.
    Zeroes,
    /// A page without stored content (mode `None`).
    Unknown,
    /// A 64-bit number that stands for the content.
    Identity(u64),
    /// All bytes of the page: 4,096, or those of its indirection unit.
    Bytes(&'a [u8]),
}

impl PageView<'_> {
    /// A copy that outlives the device's next command.
    pub fn to_page(&self) -> Page {
        match *self {
            Self::Zeroes => Page::Zeroes,
            Self::Unknown => Page::Unknown,
            Self::Identity(identity) => Page::Identity(identity),
            Self::Bytes(bytes) => Page::Bytes(Arc::from(bytes)),
        }
    }
}

/// The result of a read, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Page {
    /// The page is not mapped: zeroes.
    Zeroes,
    /// A page without stored content (mode `None`).
    Unknown,
    /// A 64-bit number that stands for the content.
    Identity(u64),
    /// All bytes of the page: 4,096, or those of its indirection unit.
    Bytes(PageBytes),
}
