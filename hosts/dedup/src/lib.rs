//! Host-side deduplication, as disks on a disk: with a device that copies by remapping, and
//! without.
//!
//! ```text
//! Ccaw<D>        a write of content that is on the disk becomes a copy; addresses do not change    (Copyless Copy §III-B)
//! OrderMerge<D>  its own mappings and reference counts; content is stored once                    (OrderMergeDedup, FAST'16)
//! ```
//! Both are [`Disk`](remap_ssd_device::Disk)s on any [`Disk`](remap_ssd_device::Disk), so they
//! stack. Both work in *windows*: after a fixed number of pages written, all of them are made
//! durable, as in the papers' comparison.
//!
//! ```text
//! Ccaw        write: a segment's first change  → header "invalid", flush
//!                    target leaves the table   → data, or a copy → target enters the table
//!             window: flush          batch: pages of the table, flush, header "valid"
//! OrderMerge  write: data to a free block, mapping in memory
//!             window: pages of counts, flush, pages of mappings, flush; then replaced blocks' counts go down
//! ```
//! Invariants: flushed data survive any cut; a page never reads as data written to another page
//! (FORMAT.md, "Deduplication by the host", has the arguments). Absent: threads, clocks, other
//! hosts of the same disk.

#![warn(unreachable_pub)]

mod ccaw;
mod engine;
mod error;
pub mod guard;
mod ordermerge;
mod pages;
mod signature;
mod statistics;
mod superblock;
mod window;

pub use ccaw::{Ccaw, CcawOptions};
pub use engine::{Engine, Own};
pub use error::{DedupError, UnknownName};
pub use ordermerge::{OrderMerge, OrderMergeOptions};
pub use signature::Hash;
pub use statistics::Statistics;
pub use superblock::{NewDedup, Scheme, scheme_on};
