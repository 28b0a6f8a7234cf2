//! Records in NVRAM that every scheme has: deallocations, the slot of an atomic command, the file
//! map.
//!
//! Absent: the records of remaps (`scheme`) and of superblocks (`superblock`).

pub mod atomic;
pub mod dealloc;
pub mod files;
pub mod newest;
