//! Windows: after so many pages written, what was done is made durable.
//!
//! Invariant: a window of 0 never ends by itself. Absent: what is done at its end.

/// The window under way: its size, and the pages that it has taken.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    size: u32,
    used: u32,
}

impl Window {
    pub fn new(size: u32) -> Self {
        Self { size, used: 0 }
    }

    /// How many of so many pages belong to this window.
    pub fn fitting(&self, pages: usize, most: usize) -> usize {
        let left = if self.size == 0 {
            most
        } else {
            (self.size - self.used) as usize
        };
        pages.min(left).min(most)
    }

    /// Adds pages; is the window full?
    #[must_use]
    pub fn add(&mut self, pages: usize) -> bool {
        self.used = self.used.saturating_add(pages as u32);
        self.size > 0 && self.used >= self.size
    }

    /// Begins the next window, which is empty.
    pub fn begin(&mut self) {
        self.used = 0;
    }
}
