//! The device's namespaces as files: for hosts without NVMe modules, to be loop-mounted or opened
//! as they are. And any disk of host software as a file.
//!
//! ```text
//! disk      a namespace addressed by bytes; no kernel needed
//! pages     a disk of host software addressed by bytes
//! bytes     what both can do
//! later     answers that wait until the timing model completes them
//! files     what the kernel asks for, as operations on disks
//! mount     mountpoints: what can be wrong with them, and what a server that was killed leaves behind
//! ```
//! Invariants: a namespace's commands take the way of NVMe/TCP's, through the same controller and
//! lock; the kernel caches no data of ours. Absent: names, owners or sizes that could change.

mod bytes;
mod delayed;
mod disk;
mod files;
mod mount;
mod pages;

pub use bytes::Bytes;
pub use disk::{Disk, DiskError};
pub use files::file_name;
pub use mount::{MountError, Mounted};
pub use pages::Pages;
