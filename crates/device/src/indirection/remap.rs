//! Remaps of pages, on a device that maps units.
//!
//! Pages keep their places if source and target are a whole number of units apart. Then the units that lie within the command are
//! remapped, and the pages at its two ends are copied. Otherwise all pages are copied, unit by unit of the target: up to two
//! units of the source are read, and the target's own unless it is replaced as a whole.
//!
//! ```text
//! source     0  1  2  3 | 4  5  6  7 | 8  9 10 11      remap of 2 to 8 onto 22 to 28: pages keep their places
//! target    20 21 22 23 |24 25 26 27 |28 29 30 31
//!             copied    |  remapped  |  copied
//! ```
//!
//! A relocation: 1. the targets have the pages  2. the sources leave. Units of the middle do both at once, unless the ranges overlap:
//! there such a source may hold pages that are targets at an end. Cut before 2, or within: pages are at both places. 2 waits
//! for all of 1 (`Leaving::Moved`).
//!
//! Invariants: as for the firmware's remaps, the result is that of reading all sources first; each page is old or new at any
//! cut, and no cut loses a page both at its source and at its target; an atomic command has whole units, or is refused. Absent: how
//! units are remapped (the firmware's).

use super::deallocate::Leaving;
use super::{Charge, Indirection, end_merged};
use crate::command::HostRemap;
use crate::host_lpn::HostLpn;
use crate::step::{DataPath, Step};
use remap_ssd_ftl::{Ftl, Lpn, Refusal};
use remap_ssd_media::Ppn;
use std::ops::Range;

/// Pieces of a command, as steps from its first page.
struct Pieces {
    /// Pages before the first whole unit.
    head: Range<u32>,
    /// Whole units.
    middle: Range<u32>,
    /// Pages after the last one.
    tail: Range<u32>,
}

impl Indirection {
    /// Executes a remap of pages.
    pub(crate) fn remap(
        &mut self,
        ftl: &mut Ftl,
        command: &HostRemap,
        charge: &mut Charge<'_>,
    ) -> Result<(), Refusal> {
        let earlier = self.execute(ftl, true, charge);
        let mut is_charged = false;
        let done = self.remap_pieces(ftl, command, &mut |ftl, step| {
            is_charged |= !step.goes_on();
            charge(ftl, step);
        });

        // The last step of a command says that it ends.
        if !is_charged {
            ftl.end_write();
            charge(ftl, Step::of_remap(0));
        }
        earlier.and(done)
    }

    fn remap_pieces(
        &mut self,
        ftl: &mut Ftl,
        command: &HostRemap,
        charge: &mut Charge<'_>,
    ) -> Result<(), Refusal> {
        let HostRemap {
            target,
            source,
            len,
            relocate,
            atomic,
        } = *command;

        self.check_range(ftl, source, len)?;
        self.check_range(ftl, target, len)?;

        let keeps_places = self.place(target) == self.place(source);
        let pieces = self.pieces(target, len, keeps_places);
        let units = (pieces.middle.len() as u32) >> self.shift;
        if keeps_places && units << self.shift == len {
            self.counts.pages_written += u64::from(len);
            return self.remap_units(ftl, command, &pieces.middle, charge, false);
        }

        // The ends are copied, and no cut may show a part of an atomic command.
        if atomic {
            return Err(Refusal::AtomicPartial);
        }

        self.counts.pages_written += u64::from(len);
        if target == source {
            // Durable when it is acknowledged, as all remaps.
            self.make_durable(ftl, target, len)?;
            ftl.wait_for_earlier();
            return Ok(());
        }

        self.counts.demoted_partial += match keeps_places {
            true => u64::from(len) - (u64::from(units) << self.shift),
            false => 0,
        };
        self.counts.demoted_unaligned += u64::from(len) * u64::from(!keeps_places);

        // Like memmove: in the order in which no source is overwritten before it is read.
        let apart = target.get().abs_diff(source.get());
        let overlaps = apart < len.into();
        let middle = HostRemap {
            relocate: relocate && !overlaps,
            ..*command
        };

        if target < source {
            self.copy(ftl, command, &pieces.head, true, charge)?;
            self.remap_units(ftl, &middle, &pieces.middle, charge, true)?;
            self.copy(ftl, command, &pieces.tail, true, charge)?;
        } else {
            self.copy(ftl, command, &pieces.tail, false, charge)?;
            self.remap_units(ftl, &middle, &pieces.middle, charge, true)?;
            self.copy(ftl, command, &pieces.head, false, charge)?;
        }

        if !relocate {
            return Ok(());
        }

        // The middle has left its sources with the remap itself.
        if middle.relocate && !pieces.middle.is_empty() {
            self.leave_sources(ftl, source, &pieces.head, charge)?;
            return self.leave_sources(ftl, source, &pieces.tail, charge);
        }
        // Those that are no targets.
        let shared = u64::from(len).saturating_sub(apart) as u32;
        let lost = if target < source {
            shared..len
        } else {
            0..len - shared
        };
        self.leave_sources(ftl, source, &lost, charge)
    }

    /// Divides a command: the pages before its first whole unit, its whole units, and the pages after them. One whose pages
    /// change places is head alone.
    fn pieces(&self, target: HostLpn, len: u32, keeps_places: bool) -> Pieces {
        let before = (self.pages() - self.place(target)) % self.pages();
        if !keeps_places || before >= len {
            return Pieces {
                head: 0..len,
                middle: len..len,
                tail: len..len,
            };
        }

        let units = (len - before) >> self.shift;
        let after = before + (units << self.shift);
        Pieces {
            head: 0..before,
            middle: before..after,
            tail: after..len,
        }
    }

    fn remap_units(
        &self,
        ftl: &mut Ftl,
        command: &HostRemap,
        middle: &Range<u32>,
        charge: &mut Charge<'_>,
        goes_on: bool,
    ) -> Result<(), Refusal> {
        if middle.is_empty() && goes_on {
            return Ok(());
        }

        let pages = HostRemap {
            target: command.target.offset(middle.start),
            source: command.source.offset(middle.start),
            len: middle.len() as u32,
            ..*command
        };

        let units = pages.units(self.shift);
        let remapped = ftl.remap(&units);
        charge(ftl, Step::of_remap(units.len).and_goes_on(goes_on));
        remapped
    }

    /// Copies pages, one unit of the target after the other.
    fn copy(
        &mut self,
        ftl: &mut Ftl,
        command: &HostRemap,
        piece: &Range<u32>,
        ascending: bool,
        charge: &mut Charge<'_>,
    ) -> Result<(), Refusal> {
        let (mut first, mut end) = (piece.start, piece.end);
        while first < end {
            // The pages of one unit of the target, at the end from which the copy begins.
            let unit = if ascending {
                let left = self.pages() - self.place(command.target.offset(first));
                first..end.min(first + left)
            } else {
                let place = self.place(command.target.offset(end - 1));
                end.saturating_sub(place + 1).max(first)..end
            };

            if ascending {
                first = unit.end;
            } else {
                end = unit.start;
            }
            self.copy_unit(ftl, command, unit, charge)?;
        }
        Ok(())
    }

    /// Copies pages to one unit of the target.
    fn copy_unit(
        &mut self,
        ftl: &mut Ftl,
        command: &HostRemap,
        steps: Range<u32>,
        charge: &mut Charge<'_>,
    ) -> Result<(), Refusal> {
        let count = steps.len() as u32;
        let target = self.unit(command.target.offset(steps.start));
        let before = self.read_parts(ftl, command, steps, target);
        charge(ftl, Step::of_pages(DataPath::ToCopy, count, true));

        let before = before?;
        self.counts.copied_units += 1;
        let (payload, is_zeroes) = self.pages.over(ftl.view(before));

        // It needs no flash page, and loses its mapping if it has one.
        if is_zeroes {
            return if ftl.is_mapped(target) {
                let done = ftl.deallocate(target, 1);
                charge(ftl, Step::new(DataPath::Merged, true));
                done
            } else {
                ftl.wait_for_earlier();
                Ok(())
            };
        }
        let written = ftl.write_copied(target, &payload);
        end_merged(ftl, true, charge);
        written
    }

    /// Reads the pages of the source, and finds what the target's unit has had.
    fn read_parts(
        &mut self,
        ftl: &mut Ftl,
        command: &HostRemap,
        steps: Range<u32>,
        target: Lpn,
    ) -> Result<Option<Ppn>, Refusal> {
        let is_whole = steps.len() as u32 == self.pages();
        self.pages.clear();

        // The last unit that was read: pages follow each other, so at most two units are looked up.
        let mut read: Option<(Lpn, Option<Ppn>)> = None;
        for step in steps {
            let source = command.source.offset(step);
            let unit = self.unit(source);
            let found = match read {
                Some((already, found)) if already == unit => found,
                _ => ftl.find(unit)?,
            };
            read = Some((unit, found));

            let place = self.place(command.target.offset(step));
            let from = self.place(source);
            self.pages.copy(place, ftl.view(found), from);
        }

        // A unit that is replaced as a whole has no earlier content to keep.
        match read {
            _ if is_whole => Ok(None),
            Some((unit, found)) if unit == target => Ok(found),
            _ => ftl.find(target),
        }
    }

    /// After a relocation: pages of the source lose their contents.
    fn leave_sources(
        &mut self,
        ftl: &mut Ftl,
        source: HostLpn,
        steps: &Range<u32>,
        charge: &mut Charge<'_>,
    ) -> Result<(), Refusal> {
        if steps.is_empty() {
            return Ok(());
        }
        let (first, len) = (source.offset(steps.start), steps.len() as u32);
        self.leave(ftl, first, len, Leaving::Moved, charge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remap_ssd_media::{ContentMode, WordLine};

    /// A layer of units of 16 pages.
    fn units_of_64_kib() -> Box<Indirection> {
        let config = crate::DeviceConfig::preset("fast21-32g").expect("a preset");
        let geometry = config.geometry;
        let word_line = WordLine {
            page_bytes: 65_536,
            indirection_bytes: 65_536,
            ..geometry.word_line()
        };
        let geometry = geometry.with_word_line(word_line).expect("whole units");
        Indirection::new(&geometry, ContentMode::Identity).expect("units have several pages")
    }

    #[test]
    fn commands_are_divided_into_units_alike_wherever_they_are() {
        let layer = units_of_64_kib();
        for base in [0, 1 << 32, 1 << 34, HostLpn::PAGES_MAX - 256] {
            for (first, len) in [(0, 16), (3, 61), (3, 12), (15, 2), (16, 33), (1, 80)] {
                let page = HostLpn::new(base + first);
                let end = first + u64::from(len);
                let (from, to) = (first.div_ceil(16), end / 16);
                let expected = base / 16 + from..base / 16 + to.max(from);

                let units = layer.whole_units(page, len);
                assert_eq!(u64::from(units.start)..u64::from(units.end), expected);

                let pieces = layer.pieces(page, len, true);
                let middle = pieces.middle.len() as u64;
                assert_eq!(
                    middle,
                    16 * (expected.end - expected.start),
                    "{first} {len}"
                );
                let target = page.offset(pieces.middle.start);
                assert!(middle == 0 || u64::from(target.unit(4)) == expected.start);
            }
        }
    }
}
