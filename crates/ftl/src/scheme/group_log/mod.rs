//! Local logs on flash: pages of entries, each owned by a superblock of data.
//!
//! A superblock's entries are programmed a page at a time into superblocks of the log. A page's
//! header names the owner and its incarnation, so erasing the owner makes all its pages garbage,
//! wherever they are. `reclaim` collects the garbage: pages that count are moved and a log
//! superblock is erased, and a group with more pages than its valid entries need is rewritten.
//!
//! Order of a page:
//! 1. the flash pages its entries name, and the entries at their previous location
//! 2. the page
//! 3. the release of the entries at their previous location.
//!
//! Cut before 2 or during it: the entries are where they were. Between 2 and 3: both copies are
//! equal.
//!
//! Invariants: a group's pages are ordered by their numbers, and of two entries with the same LPN
//! and offset the later is the newer; `live` counts the pages of all groups and stays below
//! `pages_max`, unless the log ran out of flash while it moved pages. Absent: when entries are
//! written to flash.

mod page;
mod reclaim;
mod recover;

use super::entry::EntryOwners;
use super::in_force::{find_doubtful, take_out};
use crate::config::Config;
use crate::config::guard::Guard;
use crate::contract::FlashNeed;
use crate::core::Core;
use crate::mapping::tables::Tables;
use crate::scheme::entry::RmmEntry;
use crate::stats::Counter;
use page::{GroupOwner, GroupPlace};
use remap_ssd_media::{
    After, Geometry, Lpn, Media, MediaError, Oob, Ppn, Purpose, SbId, StoredPage,
};
use std::collections::BTreeMap;

/// Counters of a scheme with such a log.
pub(super) const COUNTERS: &[&str] = &[
    "destages",
    "groups_rewritten",
    "group_pages_moved",
    "log_superblocks_erased",
    "group_entries_found",
    "group_pages_stale",
];
/// Writes of cached entries or a segment group to flash pages of their superblock.
pub(super) const DESTAGES: Counter = Counter::named("destages", COUNTERS);
/// Groups of pages rewritten because of their garbage.
const GROUPS_REWRITTEN: Counter = Counter::named("groups_rewritten", COUNTERS);
/// Pages of groups moved so that log superblocks can be erased.
const GROUP_PAGES_MOVED: Counter = Counter::named("group_pages_moved", COUNTERS);
/// Log superblocks erased.
const LOG_SUPERBLOCKS_ERASED: Counter = Counter::named("log_superblocks_erased", COUNTERS);
/// Entries that recovery found in pages of groups.
const GROUP_ENTRIES_FOUND: Counter = Counter::named("group_entries_found", COUNTERS);
/// Pages that recovery found to be stale: their superblock has been erased since.
const GROUP_PAGES_STALE: Counter = Counter::named("group_pages_stale", COUNTERS);

pub(super) use page::ENTRIES_MAX;

/// A log needs several pages to behave like one: if it has fewer bytes, its pages are filled
/// partly.
const PAGES_MIN: u64 = 8;

/// Limit of a group's page numbers, which grow throughout the incarnation.
const NUMBERS_END: u32 = u32::MAX - (1 << 25);
/// From this number on, host remaps are refused.
const NUMBERS_HOSTS: u32 = u32::MAX - (1 << 26);

/// Dimensions of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogShape {
    /// Entries per page.
    pub slots: usize,
    /// Maximum number of pages that count.
    pub pages_max: usize,
    /// Pages of the largest group right after rewriting.
    pub group_pages_max: usize,
}

impl LogShape {
    /// A log with `pages` pages for the host's remaps; collecting a superblock may take more.
    pub(super) fn new(config: &Config, geometry: &Geometry, pages: usize) -> Self {
        let slots = Self::slots(config);
        let references = u64::from(config.data_pages(geometry)) * u64::from(config.count_max);
        let group_pages_max = (references.min(config.lpns.into()) as usize).div_ceil(slots) + 1;
        // While a superblock is collected, its pages and those of the references' new places count:
        // one in each zone.
        Self {
            slots,
            pages_max: pages + group_pages_max + config.gc_opens(),
            group_pages_max,
        }
    }

    /// Entries per page.
    pub(super) fn slots(config: &Config) -> usize {
        // A small log has fewer entries per page: it needs enough pages to show the cost of
        // collecting it.
        (config.log_bytes / 16 / PAGES_MIN).clamp(2, ENTRIES_MAX as u64) as usize
    }

    /// Maximum number of superblocks of the log. With two more than its pages fill, some superblock
    /// always has garbage.
    fn superblocks_max(&self, config: &Config, geometry: &Geometry) -> usize {
        (self.pages_max + self.group_pages_max).div_ceil(config.data_pages(geometry) as usize) + 2
    }

    /// Superblocks held in the worst case (one is being moved), and those that must be free for the
    /// log while a superblock of data is collected.
    pub(super) fn superblocks(&self, config: &Config, geometry: &Geometry) -> FlashNeed {
        let held = self.superblocks_max(config, geometry) as u32 + 1;
        let spare = self
            .group_pages_max
            .div_ceil(config.data_pages(geometry) as usize) as u32
            + 2;
        FlashNeed {
            held,
            spare: spare.min(held),
        }
    }
}

#[derive(Clone, Copy)]
struct GroupPage {
    page: Ppn,
    number: u32,
}

/// DRAM state of one group.
#[derive(Default)]
struct PageGroup {
    pages: Vec<GroupPage>,
    /// Number of the next page.
    next: u32,
}

/// A superblock of the log.
#[derive(Default)]
struct LogSuperblock {
    /// Its pages and their owners, in programming order.
    pages: Vec<(Ppn, SbId)>,
    /// Number of these that count.
    live: usize,
}

pub(super) struct GroupLog {
    shape: LogShape,
    superblocks_max: usize,
    groups: Vec<PageGroup>,
    logs: BTreeMap<SbId, LogSuperblock>,
    live: usize,
    kept: Vec<[u64; 2]>,
    doubts: ValidityScratch,
}

impl GroupLog {
    /// An empty log: no page is programmed before the first entry.
    pub(super) fn new(shape: LogShape, config: &Config, geometry: &Geometry) -> Self {
        Self {
            shape,
            superblocks_max: shape.superblocks_max(config, geometry),
            groups: (0..geometry.superblocks())
                .map(|_| PageGroup::default())
                .collect(),
            logs: BTreeMap::new(),
            live: 0,
            kept: Vec::new(),
            doubts: ValidityScratch::default(),
        }
    }

    /// Entries per page.
    pub(super) fn slots(&self) -> usize {
        self.shape.slots
    }

    /// Pages that count, in all groups.
    pub(super) fn pages(&self) -> usize {
        self.live
    }

    /// Pages of one superblock's group.
    pub(super) fn pages_of(&self, sb: SbId) -> usize {
        self.groups[sb.0 as usize].pages.len()
    }

    /// Returns true if the group's page numbers are nearly used up. Then host remaps must be
    /// demoted to copies until the superblock is collected. The rest is reserved for cached entries
    /// and for rewriting.
    #[inline]
    pub(super) fn is_numbered_out(&self, sb: SbId) -> bool {
        self.groups[sb.0 as usize].next >= NUMBERS_HOSTS
    }

    /// Programs another page of a group, after `secure`. Returns false if no page is left because
    /// blocks failed or wore out: the entries must stay where they are.
    #[must_use]
    pub(super) fn append(&mut self, core: &mut Core, sb: SbId, entries: &[[u64; 2]]) -> bool {
        let after = core
            .config
            .guards
            .waits(Guard::GroupPageAfterEntries, After::FENCE);
        if !self.program(core, sb, entries, None, after) {
            return false;
        }
        doubt(core, sb, entries);
        true
    }

    /// Programs a page. With `base` it supersedes all pages of the group with smaller numbers.
    /// Returns false, without a change, if the log has no page left.
    fn program(
        &mut self,
        core: &mut Core,
        sb: SbId,
        entries: &[[u64; 2]],
        base: Option<u32>,
        after: After,
    ) -> bool {
        debug_assert!((1..=self.shape.slots).contains(&entries.len()));
        let number = self.groups[sb.0 as usize].next;
        let incarnation = core.blocks.get(sb).life.incarnation();
        let owner = GroupOwner::new()
            .with_superblock(sb.0)
            .with_incarnation(incarnation);
        let place = GroupPlace::new()
            .with_number(number)
            .with_base(base.unwrap_or(0));
        // Encoded once: if the program fails, the same bytes go to the next page.
        let bytes = core
            .media
            .meta_bytes(page::bytes_of(entries.len()), |bytes| {
                page::encode(owner, place, entries, bytes);
            });
        let stored = StoredPage::Meta(bytes);

        let page = self.place(core, sb, number, |core, taken, oob| {
            core.media.program(
                taken.ppn(),
                oob,
                stored.clone(),
                Purpose::Meta,
                taken.after.and(after),
            )
        });
        let Some(page) = page else { return false };

        let group = &mut self.groups[sb.0 as usize];
        group.pages.push(GroupPage { page, number });
        group.next = number
            .checked_add(1)
            .expect("a group has fewer than 2^32 pages in one incarnation");
        true
    }

    /// Programs a page of a group at the end of the log; returns `None` if no superblock can be
    /// opened.
    ///
    /// Reserved room is an estimate: a failing block takes pages with it, and a free superblock
    /// that a cut left half erased may wear out when it is opened.
    fn place(
        &mut self,
        core: &mut Core,
        owner: SbId,
        number: u32,
        mut put: impl FnMut(&mut Core, crate::superblock::AllocatedPage, Oob) -> Result<(), MediaError>,
    ) -> Option<Ppn> {
        loop {
            let Some(taken) = core.blocks.take(crate::superblock::Stream::Log) else {
                let sb = self.open_next(core)?;
                self.logs.insert(sb, LogSuperblock::default());
                continue;
            };

            core.stats.meta_programs += 1;
            core.stats.log_programs += 1;
            // The number in the OOB is the page's number in the group: recovery sorts by it,
            // wherever the page is.
            let oob = taken.oob(Oob::LOG, u64::from(number) + 1);
            if put(core, taken, oob).is_err() {
                core.fail_block_of(taken.ppn());
                continue;
            }

            let log = self
                .logs
                .get_mut(&taken.sb)
                .expect("the open superblock is held");
            log.pages.push((taken.ppn(), owner));
            log.live += 1;
            self.live += 1;
            return Some(taken.ppn());
        }
    }

    /// Charges the reads of a group's pages.
    pub(super) fn charge_read(&self, media: &mut Media, sb: SbId) {
        if self.pages_of(sb) > 0 {
            media.charge_flash_scan(self.pages_of(sb), Purpose::Gc);
        }
    }

    /// Appends the raw words of a group's entries, oldest first; returns false if a page cannot be
    /// read.
    fn read_words(&self, media: &Media, sb: SbId, out: &mut Vec<[u64; 2]>) -> bool {
        self.groups[sb.0 as usize].pages.iter().all(|at| {
            let bytes = media.meta_uncharged(at.page);
            bytes.map(|bytes| out.extend(page::words(bytes))).is_ok()
        })
    }

    /// Appends a group's entries, oldest first; returns false if a page cannot be read.
    pub(super) fn read(&self, media: &Media, sb: SbId, out: &mut Vec<RmmEntry>) -> bool {
        let pages = media.geometry().pages_per_superblock();
        self.groups[sb.0 as usize]
            .pages
            .iter()
            .fold(true, |whole, at| match media.meta_uncharged(at.page) {
                Ok(bytes) => {
                    out.extend(page::entries(bytes).filter(|entry| entry.offset() < pages));
                    whole
                }
                Err(_) => false,
            })
    }

    /// Called when the owner has been erased: its pages are garbage.
    pub(super) fn forget(&mut self, geometry: Geometry, sb: SbId) {
        let group = std::mem::take(&mut self.groups[sb.0 as usize]);
        self.drop_pages(geometry, &group.pages);
    }

    fn drop_pages(&mut self, geometry: Geometry, pages: &[GroupPage]) {
        for at in pages {
            let log = self
                .logs
                .get_mut(&geometry.superblock(at.page))
                .expect("a page lies in a superblock held");
            log.live -= 1;
        }
        self.live -= pages.len();
    }
}

/// Pages of a group now hold these entries twice, so reclaiming must look up both copies.
fn doubt(core: &mut Core, sb: SbId, entries: &[[u64; 2]]) {
    for [first, second] in entries {
        let lpn = RmmEntry::from_words(*first, *second).target();
        core.tables.ended.note(sb, lpn);
    }
}

/// Appends the entries in force of a superblock's entries (oldest first), each mapping once, in the
/// same order. An LPN is hidden once found, so that older entries of the same mapping do not count.
pub(super) fn keep_valid(
    tables: &mut Tables,
    sb: SbId,
    all: &[RmmEntry],
    kept: &mut Vec<[u64; 2]>,
) {
    const AHEAD: usize = 24;
    let (base, start) = (tables.geometry.page(sb, 0).0, kept.len());
    for (index, entry) in all.iter().enumerate().rev() {
        if let Some(next) = index.checked_sub(AHEAD).and_then(|next| all.get(next)) {
            tables.map.prefetch(next.target());
        }
        if tables.is_in_force(entry.target(), Ppn(base + entry.offset()), entry.wsn()) {
            tables.map.hide_remapped(entry.target());
            kept.push(entry.words());
        }
    }

    for [first, second] in &kept[start..] {
        tables
            .map
            .mark_remapped(RmmEntry::from_words(*first, *second).target());
    }

    kept[start..].reverse();
}

/// Buffers for finding a group's valid entries.
#[derive(Default)]
struct ValidityScratch {
    /// Indices of the entries to look up.
    at: Vec<u32>,
    /// Those of them that are not in force; and the LPNs of the others.
    gone: Vec<u32>,
    in_force: Vec<Lpn>,
}

/// Like `keep_valid` for a whole group on flash whose entries were all in force at the last
/// rewriting or were added since. Looks up only those added since, and those whose remap may have
/// ended; removes entries that are not in force from `slots`.
fn keep_known(
    tables: &mut Tables,
    sb: SbId,
    slots: &mut Vec<[u64; 2]>,
    doubts: &mut ValidityScratch,
) {
    let ValidityScratch {
        at: doubtful,
        gone,
        in_force,
    } = doubts;
    let (base, pages) = (
        tables.geometry.page(sb, 0).0,
        tables.geometry.pages_per_superblock(),
    );

    let entry_of = |[first, second]: [u64; 2]| RmmEntry::from_words(first, second);
    doubtful.clear();
    let lpn_of = |[_, second]: &[u64; 2]| EntryOwners::from_bits(*second).target();
    find_doubtful(
        &tables.map,
        tables.ended.of(sb),
        slots,
        lpn_of,
        |index| index as u32,
        doubtful,
    );

    // Newest first, as in `keep_valid`. An entry added since the last rewriting may equal an older
    // one; both are doubtful, so the older one is found here.
    gone.clear();
    in_force.clear();
    for at in doubtful.iter().rev() {
        let entry = entry_of(slots[*at as usize]);
        let is_sane = entry.is_intact() && entry.offset() < pages;
        if is_sane && tables.is_in_force(entry.target(), Ppn(base + entry.offset()), entry.wsn()) {
            tables.map.hide_remapped(entry.target());
            in_force.push(entry.target());
        } else {
            gone.push(*at);
        }
    }

    in_force
        .iter()
        .for_each(|lpn| tables.map.mark_remapped(*lpn));

    gone.reverse();
    take_out(slots, gone);
}

#[cfg(test)]
mod tests {
    use super::*;
    use remap_ssd_media::geometry::Shape;

    // Three superblocks of pages, two more so that one of them has garbage, and the one being
    // moved.
    #[test]
    fn a_log_is_given_the_superblocks_that_it_holds_at_its_worst() {
        let shape = Shape {
            channels: 2,
            dies: 4,
            superblocks: 24,
            pages_per_block: 16,
        };
        let (config, geometry) = (Config::default(), Geometry::new(shape).expect("valid"));
        let data = config.data_pages(&geometry) as usize;

        let need = |pages_max: usize| {
            let log = LogShape {
                slots: 8,
                pages_max,
                group_pages_max: 4,
            };
            let need = log.superblocks(&config, &geometry);
            (need.held, need.spare)
        };
        assert_eq!(need(3 * data - 4), (6, 3));
        assert_eq!(need(3 * data - 3), (7, 3));
    }
}
