//! Files for host software that shares pages instead of writing them twice: a database, its
//! write-ahead log, its journal.
//!
//! ```text
//! Store ── Volume<D: Disk>   files on a disk that can remap: sharing is a remap
//!     └─── OsStore           files of the operating system: sharing is the file system's reflink
//! ```
//!
//! Invariants: host software is written against [`Store`], independent of the implementation;
//! shared and copied pages are counted, copied ones with the reason. Absent: directories,
//! permissions, times, and the contents of files.

#![warn(unreachable_pub)]

mod error;
pub mod guard;
mod image;
pub mod os;
mod store;
pub mod volume;
mod window;

pub use error::StoreError;
pub use image::{ImageDisk, ImageError, ImageNamespace, image_namespaces, keep_apart};
pub use os::OsStore;
pub use store::{
    BranchInfo, Create, FileId, FileInfo, FileSpace, FileWrite, LockFiles, NewBranch, OpenOptions,
    PageRun, Share, Statistics, Store,
};
pub use volume::{
    DefragPlan, Extent, FileHold, NewVolume, Processes, RestingVolume, Volume, VolumeInfo,
    local_name, new_holder, uuid_text,
};
pub use window::{Window, WindowError};
