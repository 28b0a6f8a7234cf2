//! Storing a run: as a new entry, or by extending the entry stored last.
//!
//! An entry takes one slot, or two if it names sources. One that can be extended is kept in DRAM
//! (`open`): a run that continues it costs one more store, of the entry's second word.
//!
//! Invariants: an entry is durable only after all pages it names; a cut leaves the shorter or the
//! longer form, and both are correct. Absent: room, which has been reserved (`admit`, `reclaim`).

use super::extent::{PAGES_MAX, RemapExtent, SLOT_WORDS};
use super::run::RemapRun;
use super::{EXTENSIONS, EXTENTS, RemapSsdX};
use crate::config::Config;
use crate::config::guard::{Guard, Guards};
use crate::contract::Remapping;
use crate::core::Core;
use crate::mapping::map::Map;
use remap_ssd_media::{After, ClearId, Geometry, Lpn, Ppn, Purpose, SbId};

/// An entry that can be extended.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenExtent {
    pub extent: RemapExtent,
    /// First NVRAM word of the entry.
    pub at: usize,
}

impl RemapSsdX {
    /// Returns true if this remap would extend a run or an entry, so that it needs no slot.
    pub(super) fn lengthens(
        &self,
        config: &Config,
        geometry: Geometry,
        next: &Remapping,
        sb: SbId,
    ) -> bool {
        let offset = geometry.offset(next.ppn);
        match self.gathered.last() {
            Some(run) => run.continues(next, sb, offset),
            None => {
                let run = RemapRun::begin(next, sb, offset, Purpose::Host);
                let open = self.ends[sb.0 as usize].open;
                open.is_some_and(|open| open.grows_by(config, &run.close(|| next.wsn)))
            }
        }
    }

    /// Stores a run: extends the open entry if the run continues it, else appends a new entry.
    pub(super) fn store_run(&mut self, core: &mut Core, run: &RemapRun) {
        let extent = run.close(|| core.clock.tick());
        let RemapRun { sb, purpose, .. } = *run;
        match self.ends[sb.0 as usize].open {
            Some(open) if open.grows_by(&core.config, &extent) => {
                self.extend(core, sb, open, extent.pages, purpose)
            }
            _ => self.append(core, sb, &extent, purpose),
        }
    }

    fn append(&mut self, core: &mut Core, sb: SbId, extent: &RemapExtent, purpose: Purpose) {
        // Checked now, while the tables' lines are cached: a group without adjacent entries needs
        // no distance filter when it is rewritten.
        self.ends[sb.0 as usize].may_join |=
            has_neighbour(core.geometry, &core.tables.map, sb, extent);
        let (media, now) = (&mut core.media, core.clock.now());
        let at = self
            .groups
            .take(media, now, sb, (extent.slots(), extent.pages), purpose);

        // 1. the pages  2. the entry's words, in any order. Cut during 2: a torn bit is missing and
        // the entry does not count, or its sources do not and the remap was a copy. An entry that
        // landed before one of its pages would name the page programmed there next.
        let after = self.after_pages(core.geometry, sb, extent, extent.pages);
        let words = extent.words();
        core.media.store_record(
            at,
            &words[..extent.slots() as usize * SLOT_WORDS],
            purpose,
            after,
        );

        // Only an entry whose pages have consecutive numbers can take the next one. An entry with
        // one number for all pages, or with sources in another slot, cannot.
        let grows = !extent.one_number && extent.source.is_none();
        self.ends[sb.0 as usize].open = grows.then_some(OpenExtent {
            extent: *extent,
            at,
        });

        core.stats.scheme.add(EXTENTS, u64::from(extent.pages > 1));
    }

    fn extend(
        &mut self,
        core: &mut Core,
        sb: SbId,
        open: OpenExtent,
        pages: u32,
        purpose: Purpose,
    ) {
        let guards = core.config.guards;
        let old = open.extent;
        let new = RemapExtent {
            pages: old.pages + pages,
            ..old
        };

        // 1. the old entry, and its new pages  2. its second word. Cut before 2: the shorter form
        // counts. After 2: the longer one does, and both its words exist.
        let waited = if guards.has(Guard::ExtensionAfterPage) {
            new.pages
        } else {
            old.pages
        };

        let after = self.after_pages(core.geometry, sb, &new, waited);
        if guards.has(Guard::ExtensionAfterEntry) {
            core.media.change_record(
                open.at..open.at + SLOT_WORDS,
                open.at + 1,
                new.span(),
                purpose,
                after,
            )
        } else {
            core.media
                .store_record(open.at + 1, &[new.span()], purpose, after)
        }

        let end = &mut self.ends[sb.0 as usize];
        end.may_join |= has_neighbour(core.geometry, &core.tables.map, sb, &new);
        end.open = Some(OpenExtent {
            extent: new,
            ..open
        });

        self.groups.cover(sb, pages);
        core.stats.scheme.add(EXTENSIONS, 1);
    }

    fn after_pages(&self, geometry: Geometry, sb: SbId, extent: &RemapExtent, pages: u32) -> After {
        after_pages(
            self.groups.segments.guards,
            geometry,
            self.groups.chain(sb).clear,
            sb,
            extent,
            pages,
        )
    }
}

impl OpenExtent {
    /// Returns true if an extent continues this one in LPNs, pages and numbers.
    pub(super) fn grows_by(&self, config: &Config, next: &RemapExtent) -> bool {
        let RemapExtent {
            lpn,
            offset,
            pages,
            wsn,
            ..
        } = self.extent;
        // With another number the page's witness would be wrong, and might lose against an older
        // one.
        let in_time =
            next.wsn == wsn + u64::from(pages) || !config.guards.has(Guard::ExtensionInTime);
        !next.one_number
            && next.source.is_none()
            && (next.lpn, next.offset) == (lpn.offset(pages), offset + pages)
            && in_time
            && pages + next.pages <= PAGES_MAX
    }
}

/// Constraint of an entry: its segment's zeroes, and the first `pages` of its pages.
pub(super) fn after_pages(
    guards: Guards,
    geometry: Geometry,
    clear: ClearId,
    sb: SbId,
    extent: &RemapExtent,
    pages: u32,
) -> After {
    let after = After::clear(clear);
    let pages = if guards.has(Guard::RunAfterPages) {
        pages
    } else {
        1
    };
    after.and(guards.waits(
        Guard::EntryAfterPage,
        After::pages(geometry.page(sb, extent.offset), pages as u16),
    ))
}

/// Returns true if the LPN before the extent's first is remapped to the page before its pages, or
/// the LPN after its last to the page after them.
#[inline]
fn has_neighbour(geometry: Geometry, map: &Map, sb: SbId, extent: &RemapExtent) -> bool {
    let (lpn, first) = (extent.lpn, geometry.page(sb, extent.offset).0);
    let behind = map.is_remapped_at(lpn.offset(extent.pages), Ppn(first + extent.pages));
    behind
        || (lpn > Lpn::ZERO && extent.offset > 0 && map.is_remapped_at(lpn.back(1), Ppn(first - 1)))
}
