//! Windows: after a fixed number of written pages, they are made durable.
//!
//! Invariant: a window of size 0 never fills. Absent: the action at its end.

/// The current window: its size, and the pages counted so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    size: u32,
    used: u32,
}

impl Window {
    pub(crate) fn new(size: u32) -> Self {
        Self { size, used: 0 }
    }

    /// Number of `pages` pages, at most `most`, that fit into this window.
    pub(crate) fn fitting(&self, pages: usize, most: usize) -> usize {
        let left = if self.size == 0 {
            most
        } else {
            (self.size - self.used) as usize
        };
        pages.min(left).min(most)
    }

    /// Adds pages; returns true if the window is full.
    #[must_use]
    pub(crate) fn add(&mut self, pages: usize) -> bool {
        self.used = self.used.saturating_add(pages as u32);
        self.size > 0 && self.used >= self.size
    }

    /// Begins the next, empty window.
    pub(crate) fn begin(&mut self) {
        self.used = 0;
    }
}
