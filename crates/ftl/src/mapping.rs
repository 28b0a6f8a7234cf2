//! A mapping: an entry of the L2P table.

use remap_ssd_media::Ppn;

/// Location of a logical page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Flash page that the LPN reads.
    pub ppn: Ppn,
    /// True if remapped there, false if written there.
    pub remapped: bool,
}
