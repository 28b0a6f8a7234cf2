//! LPNs that are kept apart: their pages are not shared with other LPNs.
//!
//! For hosts that keep data twice on purpose. Invariant: a page that is already shared stays
//! shared. Absent: persistence; the host names the LPNs after each power-on.

use remap_ssd_media::Lpn;
use std::ops::Range;

/// LPNs whose pages must not be shared with others.
#[derive(Default)]
pub(crate) struct Apart(Vec<Range<Lpn>>);

impl Apart {
    /// Adds LPNs.
    pub(crate) fn add(&mut self, lpns: Range<Lpn>) {
        self.0.push(lpns);
    }

    /// All ranges, in the order in which they were added.
    pub(crate) fn ranges(&self) -> &[Range<Lpn>] {
        &self.0
    }

    /// Returns true if no LPN is kept apart.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if the LPN is kept apart.
    #[inline]
    pub(crate) fn has(&self, lpn: Lpn) -> bool {
        !self.is_empty() && self.0.iter().any(|lpns| lpns.contains(&lpn))
    }

    /// Returns true if the target may get the page of the source, which loses it if it `leaves`.
    /// Such a page has one owner before and after, and at its new place others may share it.
    #[inline]
    pub(crate) fn permits(&self, target: Lpn, source: Lpn, leaves: bool) -> bool {
        !self.has(target) && !self.has(source) || leaves && self.has(source)
    }
}
