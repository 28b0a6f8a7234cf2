//! SQLite on a device that can remap: pages that SQLite writes twice are written once.
//!
//! ```text
//! SQLite ── vfs        names, files, locks of the system's VFS
//!            └ connection   a page written right after it was read: a share
//!                ├ database     pages as they are
//!                ├ wal          frames at pages of the device; a checkpoint shares them with the database
//!                └ journal      old images shared from the database; one page of metadata per transaction
//!                     └ remap_ssd_store::Store   a volume on a device, or files
//! ```
//!
//! Sources: Remap-SSD (FAST'21) §5.3 for the log, Copyless Copy §III-A for the journal. FORMAT.md
//! shows the stored layout.
//!
//! `carry` copies files into a volume and out of it, as stock SQLite would have written them.
//!
//! As a loadable extension (`libremap_ssd_sqlite.so`) it serves any program that can load one.
//! Programs that link with SQLite depend on this crate without its default feature and call
//! [`register`].
//!
//! Invariant: each `synchronous` setting has the guarantees that SQLite gives it. Absent: sharing
//! of pages below 4 KiB, which are stored as SQLite writes them; memory mapping.

#![warn(unreachable_pub)]

pub mod carry;
mod connection;
mod database;
#[cfg(feature = "loadable_extension")]
mod extension;
mod forked;
mod image;
mod journal;
mod log;
mod made;
mod mark;
mod memory;
mod page_places;
mod parameters;
mod pending;
mod place;
mod served;
mod statistics;
mod stock;
#[cfg(test)]
mod tests;
mod vfs;
mod wal;

pub use place::{Mounted, PlaceError, mount};
pub use stock::{StockFile, unfinished};
pub use vfs::{NAME, register};
