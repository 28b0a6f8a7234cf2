//! Schemes: how a remap survives a power cut. One file or folder per system, and their shared
//! parts.
//!
//! `catalogue` lists the schemes; `crate::contract` is their contract. Absent outside this folder:
//! the schemes' names. A test enforces that (`tests/schemes/floors.rs`).

pub(crate) mod catalogue;
mod device_log;
mod entry;
mod flog;
mod group_log;
mod in_force;
mod index;
mod l2p_only;
mod loaded;
mod local_flash;
mod log_entry;
mod log_pages;
mod nlog;
mod none;
mod opt;
mod pebble;
mod remap_ssd;
mod remap_ssd_lh;
mod remap_ssd_x;
mod room;
mod segments;
mod shadow_oob;
mod wal;

pub use entry::RmmEntry;
