//! The device's namespaces as files: for hosts without NVMe modules, for loop mounts or direct use.
//! Also any disk of host software as a file.
//!
//! ```text
//! disk      a namespace addressed by bytes; no kernel needed
//! pages     a disk of host software addressed by bytes
//! bytes     the common interface of both
//! delayed   answers delayed until their time in the timing model
//! files     file system operations, translated to operations on disks
//! mount     mountpoints: checks, and removal of a killed server's mount
//! ```
//! Invariants: a namespace's commands use the same controller and lock as those by NVMe/TCP; the
//! kernel caches none of our data. Absent: changes of names, owners or sizes.

#![warn(unreachable_pub)]

mod bytes;
mod delayed;
mod disk;
mod files;
mod mount;
mod pages;

pub use bytes::Bytes;
pub use disk::DiskError;
pub use files::file_name;
pub use mount::{MountError, Mounted};
pub use pages::Pages;
