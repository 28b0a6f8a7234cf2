//! Remaps and copies from one range of blocks to another.
//!
//! Page-aligned copies are remaps; unaligned copies move bytes. Invariant: between two steps of a
//! remap each page is old or new, so that others may go first there. Absent: remaps inside the
//! device.

use super::blocks::{Blocks, Namespace, PAGE_SHIFT};
use super::data::InMemory;
use super::io::ActiveCommand;
use super::record::RecordedOp;
use super::request::IoRequest;
use super::turn::Step;
use crate::spec::command::RemapResult;
use crate::spec::status::Status;
use remap_ssd_device::CopiedPages;
use remap_ssd_ftl::Remap;
use remap_ssd_media::geometry::PAGE_BYTES;

/// Maximum pages of one step of a remap; others may go first between steps.
const REMAP_PAGES: u32 = 64;
/// Bytes that an unaligned copy moves at a time.
const MOVE_BYTES: u32 = 64 << 10;

/// Splits a remap that is not atomic into steps, in an order in which no source is overwritten
/// before it is read. Steps meet where an indirection unit of `unit` pages of the target begins.
///
/// Sources that are also targets keep their old pages until they are remapped, so that each page is
/// old or new between any two steps.
fn remap_steps(remap: Remap, unit: u32) -> impl Iterator<Item = Remap> {
    let Remap {
        target,
        source,
        len,
        ..
    } = remap;

    // Begin at the end where no target is the source of a later step.
    let ascending = target < source;
    // Number of pages at this end whose sources are also targets.
    let shared = len.saturating_sub(target.abs_diff(source));

    let mut done = 0;

    std::iter::from_fn(move || {
        let left = len - done;

        let (count, relocate) = match shared.saturating_sub(done) {
            0 => (left.min(REMAP_PAGES), remap.relocate),
            shared => (shared.min(REMAP_PAGES), false),
        };

        // Pages of the step that belong to a unit of which the next step has the rest.
        let rest = if ascending {
            target.offset(done + count).0 % unit
        } else {
            (unit - target.offset(left - count).0 % unit) % unit
        };
        let count = if count < left && rest < count {
            count - rest
        } else {
            count
        };

        let first = if ascending { done } else { left - count };
        done += count;

        let step = Remap {
            target: target.offset(first),
            source: source.offset(first),
            len: count,
            relocate,
            atomic: false,
        };

        (count > 0).then_some(step)
    })
}

impl ActiveCommand<'_, '_> {
    pub(super) fn remap(&mut self, remap: &Remap) -> Result<(), Status> {
        self.touch_remapped(remap)?;
        // The device makes it atomic if it can.
        let is_whole = (2..=self.untorn_pages()).contains(&remap.len);
        if remap.atomic || is_whole {
            self.remap_step(remap)?;
        } else {
            let unit = self.device.config().geometry.host_pages();
            remap_steps(*remap, unit).try_for_each(|step| self.remap_step(&step))?;
        }
        self.note(RecordedOp::Remap(*remap));
        Ok(())
    }

    /// Pages of the largest remap that the device executes as a whole.
    fn untorn_pages(&self) -> u32 {
        match self.device.has_cache() {
            true => 1,
            false => (self.device.untorn_bytes_max(1 << PAGE_SHIFT) >> PAGE_SHIFT) as u32,
        }
    }

    fn remap_step(&mut self, remap: &Remap) -> Result<(), Status> {
        self.pause()?;
        // Versions of single pages cannot be atomic together, so an atomic remap goes to the
        // device.
        if self.is_cached() && !remap.atomic {
            return self.remap_cached(remap);
        }
        // The newest content of the sources must be on the device before it is shared.
        self.write_back_pages(remap.source, remap.len)?;
        self.device.spend(Step::Remap(remap.len));
        let completion = self.device.remap(self.now, remap);
        self.count_copied(completion.copied);
        self.done(completion.into())?;

        // Cached versions of the targets are older than the remap.
        self.forget_pages(remap.target, remap.len);
        if remap.relocate {
            self.forget_pages(remap.source, remap.len);
        }
        Ok(())
    }

    fn count_copied(&mut self, copied: CopiedPages) {
        let so_far = self.copied;
        let pages = u64::from(so_far.copied()) + copied.total();
        self.copied = RemapResult::new()
            .with_copied(u32::try_from(pages).unwrap_or(u32::MAX))
            .with_counter_full(so_far.counter_full() || copied.counter_full > 0)
            .with_metadata_full(so_far.metadata_full() || copied.metadata_full > 0)
            .with_otherwise(so_far.otherwise() || copied.otherwise > 0);
    }

    /// Dwords 0 and 1 of its completion, on success.
    pub(super) fn result(&self) -> u64 {
        match self.command.request {
            IoRequest::Remap { .. } => self.copied.into_bits(),
            // In a Copy, dword 0 is for ranges.
            _ => 0,
        }
    }

    /// Copies blocks, by a remap if both sides are aligned to pages.
    pub(super) fn copy(
        &mut self,
        to: (&Namespace, u64),
        from: (&Namespace, u64),
        count: u32,
    ) -> Result<(), Status> {
        // A page is shared as a whole or not at all, so both sides must be aligned to pages.
        let page_of = |(namespace, slba): (&Namespace, u64)| {
            let at = slba << namespace.lba_shift;
            let whole = at.is_multiple_of(PAGE_BYTES as u64);
            whole.then(|| namespace.page_of(slba))
        };

        let bytes = u64::from(count) << from.0.lba_shift;
        if let (Some(target), Some(source), true) = (
            page_of(to),
            page_of(from),
            bytes.is_multiple_of(PAGE_BYTES as u64),
        ) {
            let len = (bytes >> PAGE_SHIFT) as u32;
            return self.remap(&Remap {
                target,
                source,
                len,
                relocate: false,
                atomic: false,
            });
        }

        // In pieces, in an order in which no source is overwritten before it is read.
        let mut copied = Vec::new();
        let mut done = 0;
        let step = MOVE_BYTES >> from.0.lba_shift;
        let backwards = from.0.nsid == to.0.nsid && from.1 < to.1;

        while done < count {
            let len = (count - done).min(step);
            let first = u64::from(if backwards { count - done - len } else { done });
            copied.clear();

            let mut read = InMemory {
                from_host: &[],
                to_host: &mut copied,
            };
            self.read_all(
                from.0,
                Blocks {
                    slba: from.1 + first,
                    count: len,
                },
                &mut read,
            )?;

            let mut written = InMemory {
                from_host: &copied,
                to_host: &mut Vec::new(),
            };
            self.write_all(
                to.0,
                Blocks {
                    slba: to.1 + first,
                    count: len,
                },
                &mut written,
            )?;

            done += len;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remap_ssd_ftl::Lpn;

    /// Model of a step: all its sources are read first, and those that are not its targets are
    /// deallocated.
    fn does(step: &Remap, pages: &mut [u32]) {
        let (from, to, len) = (step.source.index(), step.target.index(), step.len as usize);
        let read = pages[from..from + len].to_vec();
        if step.relocate {
            pages[from..from + len].fill(0);
        }
        pages[to..to + len].copy_from_slice(&read);
    }

    #[test]
    fn each_page_is_old_or_new_between_any_two_steps_of_a_relocation() {
        for (target, source, len, unit) in [
            (0, 700, 1500, 1),
            (700, 0, 1500, 1),
            (0, 30, 500, 1),
            (30, 0, 500, 1),
            (0, 1000, 900, 1),
            (3, 703, 1500, 4),
            (705, 1, 1500, 16),
            (7, 23, 500, 16),
            (37, 5, 501, 8),
        ] {
            let command = Remap {
                target: Lpn(target),
                source: Lpn(source),
                len,
                relocate: true,
                atomic: false,
            };

            let old: Vec<u32> = (1..=2500).collect();
            let (mut new, mut pages) = (old.clone(), old.clone());
            does(&command, &mut new);

            let mut units_cut = 0;
            for step in remap_steps(command, unit) {
                assert!(step.len <= REMAP_PAGES);
                let is_cut = step.target.0 != target && !step.target.0.is_multiple_of(unit);
                units_cut += u32::from(is_cut);
                does(&step, &mut pages);

                let found = pages.iter().zip(old.iter().zip(&new));
                assert!(
                    found
                        .into_iter()
                        .all(|(page, (old, new))| page == old || page == new),
                    "{command:?}, {step:?}"
                );
            }

            assert_eq!(pages, new, "{command:?}");
            // Where the sources that are targets too end.
            assert!(units_cut <= 1, "{command:?}");
        }
    }
}
