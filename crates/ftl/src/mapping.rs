//! What an entry of the mapping table says.

use remap_ssd_media::Ppn;

/// Where a logical page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Flash page that the LPN reads.
    pub ppn: Ppn,
    /// Was it remapped there (true) or written there?
    pub remapped: bool,
}
