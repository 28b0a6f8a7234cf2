//! Word lines: the pages of 4 KiB that a die programs in one operation, and those that share cells.
//!
//! A flash page has one or more pages of 4 KiB, on each plane of its die. The cells of a word line hold a flash
//! page for each of their bits. They are programmed at once (*one-shot*), or one flash page after the other.
//!
//! ```text
//! pages of 4 KiB of a word line, in order:   flash page of the first bit          of the second bit
//!                                            plane 0: parts   plane 1: parts      plane 0: parts   plane 1: parts
//! ```
//! The firmware's *page* is its indirection unit: 4 KiB, or a larger power of two. All counts of pages here are in such units.
//!
//! Invariant: a word line has a whole number of program units, and a flash page a whole number of indirection units. Absent:
//! durations.

use serde::{Deserialize, Serialize};

/// Bytes of a page of the host, and of a page of the firmware unless its indirection unit is larger.
pub const PAGE_BYTES: usize = 4096;
/// Bytes of the largest indirection unit.
const INDIRECTION_BYTES_MAX: u32 = 65_536;
/// Most planes of a die.
const PLANES_MAX: u32 = 8;
/// Bytes of the largest flash page.
const FLASH_PAGE_BYTES_MAX: u32 = 65_536;
/// Most bits of a cell.
const CELL_BITS_MAX: u32 = 4;

/// The division of a die's word lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WordLine {
    /// Planes of a die, which work together.
    pub planes: u32,
    /// Bytes of a flash page in one plane.
    pub page_bytes: u32,
    /// Flash pages of a word line in one plane: bits of a cell.
    pub bits: u32,
    /// True if all flash pages of a word line are programmed at once.
    pub one_shot: bool,
    /// Bytes of the firmware's pages: the indirection unit.
    pub indirection_bytes: u32,
}

impl Default for WordLine {
    fn default() -> Self {
        Self::SINGLE
    }
}

impl WordLine {
    /// A page of 4 KiB with cells of its own.
    pub const SINGLE: Self = Self {
        planes: 1,
        page_bytes: PAGE_BYTES as u32,
        bits: 1,
        one_shot: true,
        indirection_bytes: PAGE_BYTES as u32,
    };

    /// Pages in a flash page of one plane.
    pub fn parts(self) -> u32 {
        self.page_bytes / self.indirection_bytes
    }

    /// Host pages of 4 KiB in a page of the firmware.
    #[inline]
    pub fn host_pages(self) -> u32 {
        self.indirection_bytes / PAGE_BYTES as u32
    }

    /// Pages that one operation programs.
    pub fn unit_pages(self) -> u32 {
        let bits = if self.one_shot { self.bits } else { 1 };
        self.planes * self.parts() * bits
    }

    /// Pages that share the cells of a word line, on all planes.
    pub fn pages(self) -> u32 {
        self.planes * self.parts() * self.bits
    }

    /// The reason why no die is like this, if there is one.
    pub(crate) fn problem(self) -> Option<String> {
        let Self {
            planes,
            page_bytes,
            bits,
            indirection_bytes,
            ..
        } = self;

        if !(1..=PLANES_MAX).contains(&planes) {
            return Some(format!("planes = {planes} must be 1 to {PLANES_MAX}"));
        }

        let is_size = page_bytes.is_power_of_two()
            && (PAGE_BYTES as u32..=FLASH_PAGE_BYTES_MAX).contains(&page_bytes);
        if !is_size {
            return Some(format!(
                "page_bytes = {page_bytes} must be 4096, 8192, 16384, 32768 or 65536"
            ));
        }

        let is_unit = indirection_bytes.is_power_of_two()
            && (PAGE_BYTES as u32..=INDIRECTION_BYTES_MAX).contains(&indirection_bytes);
        if !is_unit {
            return Some(format!(
                "indirection_bytes = {indirection_bytes} must be 4096, 8192, 16384, 32768 or 65536"
            ));
        }
        if page_bytes < indirection_bytes {
            return Some(format!(
                "page_bytes = {page_bytes} must be a multiple of indirection_bytes = {indirection_bytes}: \
                 a flash page holds whole indirection units"
            ));
        }

        if !(1..=CELL_BITS_MAX).contains(&bits) {
            return Some(format!("cell_bits = {bits} must be 1 to {CELL_BITS_MAX}"));
        }
        None
    }

    /// Its form in the headers of images: 0 for `SINGLE`.
    pub(crate) fn to_code(self) -> u32 {
        let log2 = |bytes: u32| (bytes / PAGE_BYTES as u32).trailing_zeros();
        let pages_in_turn = u32::from(!self.one_shot);
        (self.planes - 1)
            | log2(self.page_bytes) << 3
            | (self.bits - 1) << 6
            | pages_in_turn << 8
            | log2(self.indirection_bytes) << 9
    }

    /// The word line with a code; `None` for an unknown one.
    pub(crate) fn from_code(code: u32) -> Option<Self> {
        let bytes = |log2: u32| (PAGE_BYTES as u32) << (log2 & 7);
        let word_line = Self {
            planes: (code & 7) + 1,
            page_bytes: bytes(code >> 3),
            bits: (code >> 6 & 3) + 1,
            one_shot: code >> 8 & 1 == 0,
            indirection_bytes: bytes(code >> 9),
        };
        (code >> 12 == 0 && word_line.problem().is_none()).then_some(word_line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_all_word_lines_read_back() {
        for planes in 1..=PLANES_MAX {
            for (page, unit) in (12..=16).flat_map(|page| (12..=page).map(move |unit| (page, unit)))
            {
                for bits in 1..=CELL_BITS_MAX {
                    for one_shot in [false, true] {
                        let word_line = WordLine {
                            planes,
                            page_bytes: 1 << page,
                            bits,
                            one_shot,
                            indirection_bytes: 1 << unit,
                        };
                        assert_eq!(word_line.problem(), None);
                        assert_eq!(WordLine::from_code(word_line.to_code()), Some(word_line));
                    }
                }
            }
        }

        assert_eq!(WordLine::SINGLE.to_code(), 0);
        assert_eq!(WordLine::from_code(7 << 3), None);
        // A unit larger than the flash page, and bits that no version has set.
        assert_eq!(WordLine::from_code(1 << 9), None);
        assert_eq!(WordLine::from_code(1 << 12), None);
    }
}
