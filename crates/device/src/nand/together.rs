//! Which pages of 4 KiB share a flash page, and which planes read.
//!
//! Absent: which reads a die does at once (`planes`).

use super::graph::NONE;
use remap_ssd_media::{Ppn, WordLine};

/// As many as a geometry may have.
const PLANES_MAX: usize = 8;

/// How pages of 4 KiB share flash pages.
#[derive(Clone, Copy)]
pub(super) struct Together {
    /// Pages of 4 KiB of a flash page on all planes.
    pub all: u32,
    /// Those on one plane.
    pub parts: u32,
    /// True if a flash page of one plane is larger than 4 KiB.
    pub is_large: bool,
    /// log2 of the host pages of 4 KiB in a page.
    pub unit_shift: u32,
    /// If `all` is a power of two, the bits of a page's number within its flash page.
    bits: Option<u32>,
}

impl Together {
    pub(super) fn new(word_line: WordLine) -> Self {
        assert!(word_line.planes as usize <= PLANES_MAX);
        let parts = word_line.parts();
        let all = parts * word_line.planes;
        Self {
            all,
            parts,
            is_large: parts * word_line.host_pages() > 1,
            unit_shift: word_line.host_pages().trailing_zeros(),
            bits: all.is_power_of_two().then(|| all.trailing_zeros()),
        }
    }

    /// The flash page of a page, on all planes: pages that follow each other share a word line.
    pub(super) fn flash_page(self, page: Ppn) -> u32 {
        match self.bits {
            Some(bits) => page.0 >> bits,
            None => page.0 / self.all,
        }
    }

    /// The planes of several pages of a flash page, one bit each: bit n of `pages` stands for page `first` + n.
    pub(super) fn planes(self, first: Ppn, pages: u64) -> u8 {
        let (mut planes, mut left) = (0, pages);
        let mut plane = self.plane(first);
        let mut count = self.parts - first.0 % self.parts;
        while left != 0 {
            planes |= u8::from(left.trailing_zeros() < count) << plane;
            left = left.checked_shr(count).unwrap_or(0);
            (plane, count) = (plane + 1, self.parts);
        }
        planes
    }

    pub(super) fn plane(self, page: Ppn) -> usize {
        (page.0 % self.all / self.parts) as usize
    }
}

/// The flash page that each plane reads.
pub(super) struct Planes([u32; PLANES_MAX]);

impl Planes {
    /// No plane reads.
    pub(super) fn idle() -> Self {
        Self([NONE; PLANES_MAX])
    }

    /// The plane of a page reads it, unless it reads another one.
    pub(super) fn reads(&mut self, plane: usize, flash_page: u32) -> bool {
        let place = &mut self.0[plane];
        if *place == NONE {
            *place = flash_page;
        }
        *place == flash_page
    }

    /// These planes, one bit each, read the flash page too: one of them reads it already.
    pub(super) fn read_along(&mut self, planes: u8, flash_page: u32) {
        for plane in (0..PLANES_MAX).filter(|plane| planes >> plane & 1 == 1) {
            self.0[plane] = flash_page;
        }
    }

    pub(super) fn count(&self) -> u8 {
        self.0.iter().filter(|page| **page != NONE).count() as u8
    }
}
