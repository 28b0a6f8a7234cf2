//! Coldmap (Seo, Koo): a shared page dies only when the last of its LPNs is overwritten, so it lives
//! longer. Such pages go to a cold zone, whose superblocks are chosen among the most worn, where
//! they rest. Greedy victims.
//!
//! Static wear levelling does not work against this. It collects the *least* worn superblock once
//! that is far below the mean. A superblock of the cold zone is among the most worn when it is
//! opened, so it becomes a candidate only after the others have overtaken it and its rest has
//! served its purpose. Shared pages that levelling finds in a young superblock go where this policy
//! wants them: to a worn one.

use super::Wear;

/// Zones: pages with one owner, and pages with several.
pub(super) const ZONES: usize = 2;

/// Pages with one owner go to the normal zone, shared pages to the cold one.
pub(super) fn zone(references: u32) -> usize {
    usize::from(references > 1)
}

/// Worn blocks rest in the cold zone.
pub(super) fn wear(zone: usize) -> Wear {
    if zone == 0 { Wear::Least } else { Wear::Most }
}
