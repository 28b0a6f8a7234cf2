//! Page sharing for administrators: copies, moves, snapshots, branches and defragmentation without
//! programming a data page.
//!
//! ```text
//! Namespaces      of a device in a folder (`ImageNamespaces`), or of a served one (`ServedNamespaces`)
//!     ├── copy        ranges of pages: copied, moved, gathered
//!     ├── snapshot    a point-in-time image of a namespace, in another namespace
//! Volume ── files     files of a volume: copies, and snapshots of one or all of them
//!     ├── branches    of a file: made, listed, compared, merged, deleted
//!     └── volume      one operation on a volume, with its cost
//! ```
//!
//! Invariants: nothing is deallocated before its copy is durable; a record announces each operation
//! before it begins, so that after a power cut its remains are found, and it can be finished.
//! Absent: file systems, which know where their files are; how a device shares pages.

#![warn(unreachable_pub)]

pub mod branches;
pub mod copy;
pub mod extents;
pub mod files;
mod image;
mod namespaces;
mod record;
mod served;
pub mod snapshot;
pub mod volume;

pub use image::ImageNamespaces;
pub use namespaces::{Counts, NamespacePage, Namespaces, ShareError, ShareReport};
pub use served::ServedNamespaces;

/// Progress callback: pages done, and pages in total.
pub(crate) type Progress<'a> = &'a mut dyn FnMut(u64, u64);
