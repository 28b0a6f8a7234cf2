//! Coldmap (Seo): a page that several LPNs share dies only when the last of them is overwritten, so
//! it lives longer. Such pages go to a cold zone, whose superblocks are chosen among the most worn:
//! they rest there. Greedy victims.
//!
//! Static wear levelling does not work against this. It collects the *least* worn superblock once
//! that is far below the mean; a superblock of the cold zone is among the most worn when it is
//! opened, so it becomes a candidate only after the others have overtaken it, when its rest has
//! served its purpose. And the shared pages that levelling finds in a young superblock go where
//! this policy wants them: onto a worn one.

use super::Wear;

/// Zones: pages with one owner, and pages with several.
pub const ZONES: usize = 2;

/// Singles to the normal zone, shared pages to the cold one.
pub fn zone(references: u32) -> usize {
    usize::from(references > 1)
}

/// The cold zone is where worn blocks rest.
pub fn wear(zone: usize) -> Wear {
    if zone == 0 { Wear::Least } else { Wear::Most }
}
