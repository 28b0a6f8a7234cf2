//! Memory that a scheme takes of the machine that simulates it, about.
//!
//! Measured, not counted: the growth of a process's resident memory from 2.4 to 4.7 million flash pages, in steady state at
//! the capacity of the presets. Absent: the NVRAM image, and the core's tables.

use super::SchemeKind;

impl SchemeKind {
    /// Bytes for each flash page, with deduplication or without: the fingerprint store, and the list of what each superblock
    /// has remapped, for schemes whose entries are not kept by superblock.
    pub fn host_bytes_per_page(self, dedup: bool) -> u64 {
        match (self, dedup) {
            // It cannot deduplicate.
            (Self::None, _) => 0,
            (Self::RemapSsd | Self::RemapSsdX | Self::Pebble, true) => 10,
            (Self::RemapSsd | Self::RemapSsdX | Self::Pebble, false) => 0,
            (Self::RemapSsdLh, true) => 15,
            (Self::RemapSsdLh, false) => 0,
            (Self::LocalFlash, true) => 30,
            (Self::LocalFlash, false) => 3,
            (_, true) => 41,
            (_, false) => 19,
        }
    }
}
