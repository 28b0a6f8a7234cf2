//! Namespaces that have changed for a host: the event, and the log page that lists them.
//!
//! Invariants: every change is in the page until the host reads it, and there is at most one event
//! until then (Base 2.0 §5.2, §5.16.1.5). Absent: the kind of change, which the host finds out.

use crate::spec::log::{event, lid};
use std::collections::BTreeSet;

/// Maximum entries of the page; if more have changed, a single entry stands for all.
const ENTRIES_MAX: usize = 1024;
pub(super) const CHANGED_BYTES: usize = ENTRIES_MAX * 4;
/// The single entry of a page without room for all.
const TOO_MANY: u32 = 0xffff_ffff;

/// Changes that a host has not read yet.
#[derive(Default)]
pub(super) struct ChangedNamespaces {
    numbers: BTreeSet<u32>,
    /// True if the event has been sent.
    is_reported: bool,
}

impl ChangedNamespaces {
    pub(super) fn add(&mut self, numbers: Vec<u32>) {
        self.numbers.extend(numbers);
    }

    /// The log page. Unless the host retains the event, another one may follow.
    pub(super) fn read(&mut self, keep_event: bool) -> Vec<u8> {
        let page = self.page();
        if !keep_event {
            *self = Self::default();
        }
        page
    }

    /// Returns true if the host has not been notified of a change since it last read the page.
    pub(super) fn is_news(&self) -> bool {
        !self.numbers.is_empty() && !self.is_reported
    }

    /// The result of the event, which is sent now.
    pub(super) fn report(&mut self) -> u64 {
        self.is_reported = true;
        event::NOTICE | event::NAMESPACES_CHANGED << 8 | u64::from(lid::CHANGED_NAMESPACES) << 16
    }

    fn page(&self) -> Vec<u8> {
        // A truncated list would hide changes, so one entry for all replaces it.
        let numbers: Vec<u32> = if self.numbers.len() > ENTRIES_MAX {
            vec![TOO_MANY]
        } else {
            self.numbers.iter().copied().collect()
        };
        let mut page: Vec<u8> = numbers.into_iter().flat_map(u32::to_le_bytes).collect();
        page.resize(CHANGED_BYTES, 0);
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_names_what_has_changed_or_that_it_is_too_much() {
        let of = |numbers: std::ops::RangeInclusive<u32>| ChangedNamespaces {
            numbers: numbers.collect(),
            is_reported: false,
        };
        let page = of(3..=4).page();
        assert_eq!(page[..12], [3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(page.len(), 4096);
        assert_eq!(of(1..=1024).page()[4092..], 1024u32.to_le_bytes());
        assert_eq!(of(1..=1025).page()[..8], [255, 255, 255, 255, 0, 0, 0, 0]);
    }
}
