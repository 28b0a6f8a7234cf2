//! Records that every scheme has: in NVRAM deallocations, the slot of an atomic command, the file
//! map, the write buffer; on flash lists of LPNs in doubt.
//!
//! Absent: the records of remaps (`scheme`) and of superblocks (`superblock`).

pub(crate) mod atomic;
pub(crate) mod buffer;
pub(crate) mod dealloc;
pub(crate) mod doubts;
pub(crate) mod files;
pub(crate) mod newest;
pub(crate) mod open_writes;
pub(crate) mod sets;
pub(crate) mod twins;
