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

    pub(super) fn count(&self) -> u8 {
        self.0.iter().filter(|page| **page != NONE).count() as u8
    }
}
