//! Sharing pages as an administrator wants it: copies, moves, snapshots and defragmentation without
//! programming a data page.
//!
//! ```text
//! Namespaces      of a device in a folder (`ImageNamespaces`), or of one that others use too
//!     ├── copy        ranges of pages: copied, moved, gathered
//!     ├── snapshot    a namespace as it is at one instant, in another namespace
//! Volume ── files     files of a volume: copies, and snapshots of one or all of them
//! ```
//!
//! Invariants: nothing is deallocated before its copy is durable; a record says what is under way
//! before it begins, so that whatever a power cut leaves is found, and can be finished. Absent:
//! file systems, which know where their files are; how a device shares pages.

pub mod copy;
pub mod files;
mod image;
mod namespaces;
mod record;
pub mod snapshot;

pub use image::ImageNamespaces;
pub use namespaces::{Counts, NamespacePage, Namespaces, ShareError, ShareReport};

/// Told how many of how many pages are done.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);
