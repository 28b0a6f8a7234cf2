//! Memory that a scheme takes of the machine that simulates it, about.
//!
//! Measured, not counted: the growth of a process's resident memory from 2.4 to 4.7 million flash pages, in steady state at
//! the capacity of the presets. Absent: the NVRAM image, and the core's tables.

use super::SchemeKind;

impl SchemeKind {
    /// Bytes for each flash page, with deduplication or without: mostly the list of what each superblock has remapped, for
    /// schemes whose entries are not kept by superblock.
    pub fn host_bytes_per_page(self, dedup: bool) -> u64 {
        match (self, dedup) {
            (Self::None, _) => 0,
            (Self::RemapSsd | Self::RemapSsdX, _) => 0,
            (Self::RemapSsdLh, true) => 5,
            (Self::RemapSsdLh, false) => 0,
            (Self::LocalFlash, true) => 20,
            (Self::LocalFlash, false) => 4,
            (Self::Pebble, _) => 0,
            (_, true) => 31,
            (_, false) => 19,
        }
    }
}
