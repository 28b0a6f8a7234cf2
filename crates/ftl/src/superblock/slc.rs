//! The SLC cache: superblocks in SLC mode, and how they are filled.
//!
//! They store one bit in a cell, take pages that the host writes, and are folded by garbage collection (`gc::fold`).
//! A *static* cache consists of the first superblocks of each group of dies, always. These are never part of the room for
//! collected data: they have a pool of free superblocks of their own. A *dynamic* cache takes any free superblock, as
//! long as more of them are free than collection wants. Its stream, in the head, tells the mode; a superblock leaves it
//! with its erase.
//!
//! A page of a superblock has an *offset*, which its address contains, and a *place*, its turn. They are the same where
//! cells store all bits. In SLC mode a word line of one bit is a third, say, of the offsets of a word line, and
//! the next one in turn is that of the next die:
//!
//! ```text
//! two dies, three bits, one page in a flash page      places      0  1  2  3  4  5  6 ..
//!                                                     offsets     0  3  1  4  2  5  6 ..
//! ```
//!
//! Invariants: the pages of a word line in SLC mode have consecutive offsets; the mode of a superblock in use is that of its
//! stream; a free one of a dynamic cache has all bits. Absent: when superblocks are folded.

use super::{AllocatedPage, Stream, Superblocks};
use crate::config::Config;
use crate::dies::DieMask;
use remap_ssd_media::{Geometry, Media, PageSlot, SbId, SlcArea, SlcModes};

/// The superblocks in SLC mode and what became of their pages.
pub(crate) struct SlcCache {
    pub area: SlcArea,
    modes: SlcModes,
    /// Superblocks that may be in SLC mode at a time.
    most: u32,
    /// A dynamic cache opens superblocks only while more than this many are free.
    floor: u32,
    /// Pages written in each superblock that were neither moved nor known to be dead, as far as they were written
    /// since power-on.
    written: Vec<u32>,
    /// Pages of commands programmed in SLC mode.
    pub programs: u64,
    /// Pages moved from it by collection.
    pub folded: u64,
    /// Pages that were dead when their superblock was erased.
    pub died: u64,
    /// Superblocks erased.
    pub erases: u64,
}

impl SlcCache {
    /// Nothing written.
    pub(super) fn new(geometry: Geometry, config: &Config) -> Self {
        let area = config.slc_area(&geometry);
        let superblocks = match area.is_dynamic() {
            true => geometry.superblocks(),
            false => area.superblocks(),
        };
        Self {
            area,
            modes: SlcModes::new(area, geometry),
            most: config.slc_most(&geometry),
            floor: config.gc_start(&geometry),
            written: vec![0; superblocks as usize],
            programs: 0,
            folded: 0,
            died: 0,
            erases: 0,
        }
    }

    /// A page of a command was programmed here.
    #[inline]
    pub(crate) fn note_program(&mut self, sb: SbId) {
        if self.modes.has(sb) {
            self.written[sb.0 as usize] += 1;
            self.programs += 1;
        }
    }

    /// A page of metadata was programmed among those of commands.
    #[inline]
    pub(crate) fn note_bitmap(&mut self, sb: SbId) {
        if self.modes.has(sb) {
            self.written[sb.0 as usize] += 1;
        }
    }

    /// Collection has moved pages from here.
    pub(crate) fn note_folded(&mut self, sb: SbId, pages: u64) {
        self.folded += pages;
        let written = &mut self.written[sb.0 as usize];
        *written = written.saturating_sub(pages as u32);
    }

    /// The superblock is erased.
    pub(super) fn note_erase(&mut self, sb: SbId) {
        if self.modes.has(sb) {
            self.died += u64::from(std::mem::take(&mut self.written[sb.0 as usize]));
            self.erases += 1;
        }
    }
}

impl Superblocks {
    /// Returns true if a superblock is in SLC mode.
    #[inline(always)]
    pub(crate) fn is_slc(&self, sb: SbId) -> bool {
        self.slc.modes.has(sb)
    }

    /// Returns true if there is an SLC cache.
    #[inline(always)]
    pub(crate) fn has_slc(&self) -> bool {
        self.slc.most > 0
    }

    /// Returns true if any superblock may be in SLC mode.
    #[inline(always)]
    pub(crate) fn is_slc_dynamic(&self) -> bool {
        self.slc.area.is_dynamic()
    }

    /// The superblocks in SLC mode.
    pub(crate) fn slc_modes(&self) -> &SlcModes {
        &self.slc.modes
    }

    /// Free superblocks that may be opened in SLC mode.
    pub(crate) fn slc_free(&self) -> u32 {
        if !self.is_slc_dynamic() {
            return self.slc_pool.len();
        }
        // More than collection wants stay free: folding finds room, and a command that has reserved room keeps it.
        let spare = self.free().saturating_sub(self.slc.floor);
        spare.min(self.slc.most.saturating_sub(self.slc.modes.count()))
    }

    /// Returns true if a dynamic cache would take more superblocks than are free.
    pub(crate) fn lacks_slc_room(&self) -> bool {
        let wanted = self.slc.most.saturating_sub(self.slc.modes.count());
        self.is_slc_dynamic() && self.slc_free() < wanted
    }

    /// From now on a superblock is in this mode, if it may change it: when it is opened, erased, or found at power-on.
    pub(crate) fn set_slc(&mut self, media: &mut Media, sb: SbId, is_slc: bool) {
        if self.is_slc_dynamic() && self.is_slc(sb) != is_slc {
            self.slc.modes.set(sb, is_slc);
            media.set_slc(sb, is_slc);
        }
    }

    /// Pages of data that a superblock can hold in its present mode, if these blocks are excluded.
    pub(crate) fn filled_capacity(&self, sb: SbId, skipped: DieMask) -> u32 {
        match self.is_slc(sb) {
            true => self.slc_capacity(skipped),
            false => self.full_capacity(skipped),
        }
    }

    /// The same in SLC mode.
    pub(super) fn slc_capacity(&self, skipped: DieMask) -> u32 {
        self.capacity_in(skipped, self.slc.area.line(), self.slc.area.rows())
    }

    /// Pages of a word line of a superblock.
    #[inline]
    pub(crate) fn line_pages(&self, sb: SbId) -> u32 {
        if self.is_slc(sb) {
            self.slc.area.line()
        } else {
            self.geometry.stripe()
        }
    }

    /// Offset of the first page of the word line that holds an offset.
    #[inline]
    pub(crate) fn line_start_of(&self, sb: SbId, offset: u32) -> u32 {
        offset - offset % self.line_pages(sb)
    }

    /// Pages of a superblock: fewer in SLC mode.
    pub(crate) fn places(&self, sb: SbId) -> u32 {
        if self.is_slc(sb) {
            self.geometry.dies() * self.slc.area.rows()
        } else {
            self.geometry.pages_per_superblock()
        }
    }

    /// The offset of the page whose turn is `place`.
    #[inline]
    pub(crate) fn offset_at(&self, sb: SbId, place: u32) -> u32 {
        if self.is_slc(sb) {
            offset_at(&self.geometry, self.slc.area.line(), place)
        } else {
            place
        }
    }

    /// The place of a page.
    pub(crate) fn place_of(&self, sb: SbId, offset: u32) -> u32 {
        if self.is_slc(sb) {
            place_of(&self.geometry, self.slc.area.line(), offset)
        } else {
            offset
        }
    }

    /// One more than the largest offset of a superblock.
    pub(crate) fn extent(&self, sb: SbId) -> u32 {
        if self.is_slc(sb) {
            let last = self.slc.area.rows() - 1;
            self.geometry.offset_of(last, self.geometry.dies() - 1) + 1
        } else {
            self.geometry.pages_per_superblock()
        }
    }

    /// Allocates the next page of the stream of pages in SLC mode; `None` if its superblock is full or none is open.
    pub(crate) fn take_slc(&mut self) -> Option<AllocatedPage> {
        let (geometry, line) = (self.geometry, self.slc.area.line());
        let open = self.open[Stream::Slc as usize].as_mut()?;
        loop {
            // Holes first, as in `take`.
            let hole = open.holes.pop_front();
            let offset = match hole {
                Some(offset) => offset,
                None if open.next >= open.end => return None,
                None => {
                    open.next += 1;
                    offset_at(&geometry, line, open.next - 1)
                }
            };
            let is_beside_head = hole.is_none() && offset / line == open.head / line;
            let die = geometry.die_of_offset(offset);
            if offset == open.head || is_beside_head || open.skipped.has(die) {
                continue;
            }

            open.last_end = place_of(&geometry, line, offset) + 1;
            let (sb, incarnation, head) = (open.sb, open.incarnation, open.head);
            let (ppn, row) = (geometry.page(sb, offset), geometry.row_of_offset(offset));
            self.go_through_line(Stream::Slc, sb, offset);
            return Some(AllocatedPage {
                slot: PageSlot {
                    ppn,
                    block: geometry.block(sb, die),
                    row,
                    die,
                },
                sb,
                incarnation,
                after: self.after_head(sb, row, head),
            });
        }
    }

    /// Returns true if a superblock is open that a dynamic cache has put in SLC mode, and has room.
    pub(crate) fn has_open_slc_room(&self) -> bool {
        let line = self.slc.area.line();
        let Some(open) = self.open(Stream::Slc).filter(|_| self.is_slc_dynamic()) else {
            return false;
        };
        let is_left = |place: u32| {
            let offset = offset_at(&self.geometry, line, place);
            let is_of_head = offset / line == open.head / line;
            !is_of_head && !open.skipped.has(self.geometry.die_of_offset(offset))
        };
        (open.next..open.end).any(is_left)
    }

    /// Turns to the next group of dies with an open superblock in SLC mode. Returns false if there is none.
    pub(crate) fn turn_to_open_slc(&mut self) -> bool {
        (0..self.geometry.groups()).any(|_| {
            self.rotate(Stream::Slc);
            self.open(Stream::Slc).is_some()
        })
    }
}

fn offset_at(geometry: &Geometry, line_pages: u32, place: u32) -> u32 {
    let (line, part) = (place / line_pages, place % line_pages);
    let (row, die) = (line / geometry.dies(), line % geometry.dies());
    geometry.offset_of(row * line_pages + part, die)
}

fn place_of(geometry: &Geometry, line_pages: u32, offset: u32) -> u32 {
    let (row, die) = (
        geometry.row_of_offset(offset),
        geometry.die_of_offset(offset),
    );
    let line = row / line_pages * geometry.dies() + die;
    line * line_pages + row % line_pages
}

#[cfg(test)]
mod tests {
    use super::*;
    use remap_ssd_media::WordLine;
    use remap_ssd_media::geometry::Shape;

    #[test]
    fn each_page_has_one_place_and_word_lines_take_turns_among_dies() {
        for (dies, planes, bits, lines) in [(2, 1, 3, 4), (3, 2, 2, 5), (1, 4, 4, 6)] {
            let shape = Shape {
                channels: 1,
                dies,
                superblocks: 4,
                pages_per_block: planes * bits * lines,
            };
            let word_line = WordLine {
                planes,
                bits,
                ..WordLine::SINGLE
            };
            let geometry = Geometry::new(shape).expect("valid");
            let geometry = geometry.with_word_line(word_line).expect("valid");
            let area = SlcArea::new(&geometry, 1);
            assert_eq!((area.line(), area.rows()), (planes, planes * lines));

            let places = dies * area.rows();
            let offsets: Vec<u32> = (0..places)
                .map(|place| offset_at(&geometry, planes, place))
                .collect();
            let mut rows = vec![0; dies as usize];
            for (place, offset) in (0..).zip(&offsets) {
                assert_eq!(place_of(&geometry, planes, *offset), place);
                let die = geometry.die_of_offset(*offset);
                assert_eq!(die, place / planes % dies);
                assert_eq!(geometry.row_of_offset(*offset), rows[die as usize]);
                rows[die as usize] += 1;
            }
        }
        // The picture above.
        let shape = Shape {
            channels: 1,
            dies: 2,
            superblocks: 1,
            pages_per_block: 9,
        };
        let word_line = WordLine {
            bits: 3,
            ..WordLine::SINGLE
        };
        let geometry = Geometry::new(shape).and_then(|one| one.with_word_line(word_line));
        let geometry = geometry.expect("valid");
        let offsets = (0..6).map(|place| offset_at(&geometry, 1, place));
        assert_eq!(offsets.collect::<Vec<_>>(), [0, 3, 1, 4, 2, 5]);
    }
}
