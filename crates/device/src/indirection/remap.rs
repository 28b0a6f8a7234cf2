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
//! Invariants: as for the firmware's remaps, the result is that of reading all sources first; an atomic command has whole units, or
//! is refused. Absent: how units are remapped (the firmware's).

use super::identity::{Parts, ZEROES, part_of};
use super::{Charge, Indirection, identity_of};
use crate::step::{DataPath, Step};
use remap_ssd_ftl::{Ftl, Lpn, Refusal, Remap};
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
        command: &Remap,
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
        command: &Remap,
        charge: &mut Charge<'_>,
    ) -> Result<(), Refusal> {
        let Remap {
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
        if atomic {
            return Err(Refusal::AtomicPartial);
        }

        self.counts.pages_written += u64::from(len);
        if target == source {
            return Ok(());
        }
        self.counts.demoted_partial += match keeps_places {
            true => u64::from(len) - (u64::from(units) << self.shift),
            false => 0,
        };
        self.counts.demoted_unaligned += u64::from(len) * u64::from(!keeps_places);

        // Like memmove: in the order in which no source is overwritten before it is read.
        if target < source {
            self.copy(ftl, command, &pieces.head, true, charge)?;
            self.remap_units(ftl, command, &pieces.middle, charge, true)?;
            self.copy(ftl, command, &pieces.tail, true, charge)?;
        } else {
            self.copy(ftl, command, &pieces.tail, false, charge)?;
            self.remap_units(ftl, command, &pieces.middle, charge, true)?;
            self.copy(ftl, command, &pieces.head, false, charge)?;
        }
        if relocate {
            self.leave_sources(ftl, command, &pieces)?;
        }
        Ok(())
    }

    /// Divides a command. Without a whole unit everything is head.
    fn pieces(&self, target: Lpn, len: u32, keeps_places: bool) -> Pieces {
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
        command: &Remap,
        middle: &Range<u32>,
        charge: &mut Charge<'_>,
        goes_on: bool,
    ) -> Result<(), Refusal> {
        if middle.is_empty() && goes_on {
            return Ok(());
        }
        let len = (middle.len() as u32) >> self.shift;
        let remapped = ftl.remap(&Remap {
            target: self.unit(command.target.offset(middle.start)),
            source: self.unit(command.source.offset(middle.start)),
            len,
            ..*command
        });
        charge(ftl, Step::of_remap(len).and_goes_on(goes_on));
        remapped
    }

    /// Copies pages, one unit of the target after the other.
    fn copy(
        &mut self,
        ftl: &mut Ftl,
        command: &Remap,
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
        command: &Remap,
        steps: Range<u32>,
        charge: &mut Charge<'_>,
    ) -> Result<(), Refusal> {
        let count = steps.len() as u32;
        let target = self.unit(command.target.offset(steps.start));
        let read = self.read_parts(ftl, command, steps, target);
        charge(ftl, Step::of_pages(DataPath::ToCopy, count, true));

        let (parts, before) = read?;
        let identity = parts.over(before, self.pages());
        self.counts.copied_units += 1;
        if identity == ZEROES {
            return if ftl.is_mapped(target) {
                let done = ftl.deallocate(target, 1);
                charge(ftl, Step::new(DataPath::Merged, true));
                done
            } else {
                Ok(())
            };
        }
        self.write_merged(ftl, target, identity, true, charge)
    }

    /// Reads the pages of the source, and the identity that the target's unit has had.
    fn read_parts(
        &self,
        ftl: &mut Ftl,
        command: &Remap,
        steps: Range<u32>,
        target: Lpn,
    ) -> Result<(Parts, u64), Refusal> {
        let is_whole = steps.len() as u32 == self.pages();
        let mut parts = Parts::default();
        let mut read: Option<(Lpn, u64)> = None;
        for step in steps {
            let source = command.source.offset(step);
            let unit = self.unit(source);
            let identity = match read {
                Some((already, identity)) if already == unit => identity,
                _ => identity_of(&ftl.read(unit)?),
            };
            read = Some((unit, identity));
            let place = self.place(command.target.offset(step));
            parts.set(place, part_of(identity, self.place(source)));
        }
        let before = match read {
            _ if is_whole => ZEROES,
            Some((unit, identity)) if unit == target => identity,
            _ => identity_of(&ftl.read(target)?),
        };
        Ok((parts, before))
    }

    /// After a relocation: the sources that are no targets lose their pages, as far as they are whole units. Units that were
    /// remapped have lost them already.
    fn leave_sources(
        &mut self,
        ftl: &mut Ftl,
        command: &Remap,
        pieces: &Pieces,
    ) -> Result<(), Refusal> {
        let Remap {
            target,
            source,
            len,
            ..
        } = *command;
        if !pieces.middle.is_empty() {
            self.counts.kept_pages += (pieces.head.len() + pieces.tail.len()) as u64;
            return Ok(());
        }
        let (first, end) = (source.0, source.0 + len);
        let (first, end) = if target < source {
            (first.max(target.0 + len), end)
        } else {
            (first, end.min(target.0))
        };
        self.deallocate_units(ftl, Lpn(first), end - first)
    }
}
