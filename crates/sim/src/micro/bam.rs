//! The arithmetic of PebbleSSD's NVRAM (MEMSYS'17 §6.5; claim PB11): 2 GB for 512 GB of flash.
//!
//! The text gives entry sizes and shares; the shares are not the sums of the entries. The
//! difference has names: "some other system data structures" of the conventional device, and in the
//! last case less than those.

use serde::Serialize;

/// Logical pages of 512 GB.
pub(crate) const PAGES: u64 = 1 << 27;
/// Bytes of battery-backed memory in the paper's device.
pub const NVRAM_BYTES: u64 = 2 << 30;
/// Bytes of an entry of L2P, and of P2L.
pub(crate) const TABLE_ENTRY_BYTES: u64 = 4;
/// Bytes of an entry of the file offset table: an offset and a link.
pub(crate) const FILE_ENTRY_BYTES: u64 = 8;
/// The inode table for a million files, "considering the load factor".
pub(crate) const INODE_TABLE_BYTES: u64 = 16 << 20;

/// One of the three devices compared.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BamUse {
    /// Name of the device, and the tables that it keeps.
    pub device: &'static str,
    /// Tables whose sizes the text gives.
    pub tables_bytes: u64,
    /// Share of the NVRAM that the paper reports.
    pub paper: f64,
}

impl BamUse {
    /// Share of the NVRAM that the tables take.
    pub fn derived(&self) -> f64 {
        self.tables_bytes as f64 / NVRAM_BYTES as f64
    }

    /// Share that the paper reports in excess of its tables.
    pub fn unexplained(&self) -> f64 {
        self.paper - self.derived()
    }
}

/// Use of the memory on the paper's three devices.
pub fn bam_use() -> [BamUse; 3] {
    // An entry for every logical page. All three devices have at least one such table.
    let table = PAGES * TABLE_ENTRY_BYTES;

    [
        BamUse {
            device: "conventional: L2P",
            tables_bytes: table,
            paper: 0.35,
        },
        BamUse {
            device: "remap: L2P and P2L",
            tables_bytes: 2 * table,
            paper: 0.60,
        },
        BamUse {
            device: "fs_write: L2P, file offset table and inode table",
            tables_bytes: table + PAGES * FILE_ENTRY_BYTES + INODE_TABLE_BYTES,
            paper: 0.80,
        },
    ]
}
