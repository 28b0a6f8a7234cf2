//! The pages of a source that come next, read far enough ahead for look-ahead.
//!
//! Invariants: pages are taken in the order of the source, each once; the window is longer than
//! look-ahead reaches, unless the source has ended. Absent: requests.

use crate::source::{HostPage, Source, SourceError};
use remap_ssd_device::{Device, LOOK_AHEAD_FAR, PageCommand};

/// Pages taken from the source at a time.
const BATCH_PAGES: usize = 1024;

/// A look-ahead window on the source.
#[derive(Default)]
pub(crate) struct Feed {
    pages: Vec<HostPage>,
    next: usize,
    exhausted: bool,
}

impl Feed {
    /// Moves the rest to the front and refills; `false` if nothing is left.
    pub(crate) fn refill(&mut self, source: &mut dyn Source) -> Result<bool, SourceError> {
        // The rest stays before the next batch: look-ahead does not end at a batch boundary.
        self.pages.drain(..self.next);
        self.next = 0;
        // As many as look-ahead needs, and at most a batch more.
        while !self.exhausted && self.pages.len() < BATCH_PAGES {
            let before = self.pages.len();
            self.exhausted = !source.fill(&mut self.pages, BATCH_PAGES)?;
            assert!(
                self.exhausted || self.pages.len() > before,
                "a source that goes on yields pages"
            );
        }
        Ok(!self.pages.is_empty())
    }

    /// Takes the next page if the window after it is long enough for look-ahead, and prefetches the
    /// tables of the pages that follow.
    #[inline(always)]
    pub(crate) fn next(&mut self, device: &Device) -> Option<HostPage> {
        // Short for the common case: this runs once per page, millions of times in a run.
        if self.next + LOOK_AHEAD_FAR >= self.pages.len() {
            return self.next_without_window(device);
        }
        device.look_ahead(&self.pages, self.next, command);
        let page = self.pages[self.next];
        self.next += 1;
        Some(page)
    }

    #[cold]
    fn next_without_window(&mut self, device: &Device) -> Option<HostPage> {
        if !self.exhausted {
            return None;
        }
        device.look_ahead(&self.pages, self.next, command);
        let page = self.pages.get(self.next).copied();
        self.next += usize::from(page.is_some());
        page
    }

    /// Pages read from the source and not taken.
    pub(crate) fn window(&self) -> &[HostPage] {
        &self.pages[self.next..]
    }

    /// Returns true if the source has ended.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.exhausted
    }

    /// Takes the first `len` pages of the window.
    pub(crate) fn take(&mut self, len: usize) {
        self.next += len;
    }
}

/// Converts a page to the device's form.
#[inline(always)]
pub(crate) fn command(page: &HostPage) -> PageCommand {
    PageCommand {
        content: page.content,
        lpn: page.lpn,
        kind: page.kind,
    }
}
