//! What the integration tests of several crates share: a disk with a volatile cache, the contents it
//! may have after a power cut, and a model of files.
//!
//! Absent: unit tests (through a dev-dependency they would see a second copy of their crate).

#![warn(unreachable_pub)]

mod cuts;
mod disk;
mod files;

pub use cuts::{kept, pending, subsets};
pub use disk::{Content, Medium, MemDisk, MemError, Op};
pub use files::{contents, discard, tagged, write};

/// Bytes of a page.
pub const PAGE: usize = 4096;
