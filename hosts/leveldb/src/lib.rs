//! LevelDB's files on a volume.
//!
//! ```text
//! LevelDB (C++) ── volume_env.cc ── c.rs ── Files ── remap_ssd_store::Volume ── a disk that can remap
//! ```
//!
//! Invariants: a name is a path as LevelDB gives it, and one file of the volume; an appended file is
//! written in whole pages, and its last, partial page again when it is full; [`Files::replace`] is
//! atomic across a power cut. Absent: directories, the contents of files, compaction (`retain.cc`
//! decides which blocks are shared).

#![warn(unreachable_pub)]

mod appender;
mod c;
#[cfg(feature = "cuts")]
mod cuts;
mod files;
mod place;

pub use appender::Appender;
pub use files::{Files, Reader};
pub use place::{Place, PlaceError};
