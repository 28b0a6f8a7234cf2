//! Remap-SSD (FAST'21 §4.2-4.5): NVRAM segments exclusively owned by flash superblocks.
//!
//! Each superblock has a segment group, a small local log of the remaps onto its pages: finding the
//! owners of a victim's pages means reading one group. Groups are reclaimed passively when their
//! superblock is erased and actively when free segments run out.
//!
//! Invariants: valid entries of a group = `Owners::remapped`; free segments never fall below the
//! number that migrating the fullest group takes (`reserve`), so that flash GC and NVRAM GC always
//! find room; a segment is used only after it has been zeroed. Absent: the owner of a page by a
//! write (its OOB).

mod local;
mod reclaim;

use super::entry::{CommandWord, EntryOwners, RmmEntry};
use super::segments::{SegmentChain, Segments};
use crate::config::Config;
use crate::contract::{
    GroupInfo, Inspect, LookAhead, Occupancy, OwnerLookup, OwnerRef, Ownership, Persist, Recover,
    Remapping, SchemeSpec, Usage,
};
use crate::core::Core;
use crate::ended::EndedFilters;
use crate::error::{ConfigError, RecoveryError};
use crate::guard::{Guard, Guards};
use crate::kind::{HostBytes, Hue, SchemeFacts};
use crate::stats::{Demotion, SchemeCounters};
use crate::superblock::{RegionChanges, RegionPeaks, Superblocks};
use crate::tables::Tables;
use crate::witnesses::Witnesses;
pub(super) use reclaim::append_in_force;
use remap_ssd_media::{After, ClearId, Geometry, Media, Ppn, Purpose, SbId};

/// The scheme's declaration for the catalogue.
pub const SPEC: SchemeSpec = SchemeSpec::new(
    SchemeFacts {
        name: "remap-ssd",
        hue: Some(Hue::Blue),
        host_bytes_per_page: HostBytes {
            dedup: 10,
            plain: 0,
        },
        ..SchemeFacts::DURABLE
    },
    |config, geometry| Box::new(RemapSsd::new(config, geometry)),
)
.with_nvram_log()
.with_check(|config, _| check(config));

/// Free segments beyond those for migrating the fullest group: covers the partly filled segments of
/// a migration interrupted by a power cut.
const SLACK: usize = 4;

/// A victim's entries go to the groups of two superblocks, an old and a new one, in every zone of
/// shared pages.
pub(super) fn slack(config: &Config) -> usize {
    SLACK + 2 * config.gc_opens().saturating_sub(2)
}

/// DRAM state of the scheme.
pub struct RemapSsd {
    segments: Segments,
    groups: Vec<SegmentChain>,
    /// Changes of groups that grew, and the most invalid entries of a group, by region.
    grown: RegionChanges,
    peaks: RegionPeaks,
    /// Entries in all groups, valid or not.
    entries: u64,
    /// Number of valid entries from which on remaps are refused.
    watermark: u64,
    /// Upper bound of the remapped LPNs of a superblock.
    fullest: u32,
    /// Segments for migrating such a superblock's group.
    fullest_segments: usize,
    /// Free segments beyond those for migrating the fullest group.
    slack: usize,
    /// Number of invalid entries below which active GC gains nothing.
    reclaim_pays_from: u64,
    /// Entries with an unreadable word at recovery.
    damaged: Vec<usize>,
    scratch: Vec<RmmEntry>,
    kept: Vec<[u64; 2]>,
    gone: Vec<u32>,
}

pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    let bytes = config.segment_bytes as usize;
    let entry = config.entry.words() * 8;
    if !bytes.is_multiple_of(8) || bytes < 3 * entry {
        return Err(ConfigError(format!(
            "segment_bytes = {bytes} must be a multiple of 8 and hold a head and two entries: at least {}",
            3 * entry
        )));
    }

    let segments = config.log_bytes / bytes as u64;
    let slack = slack(config);
    if segments < slack as u64 + 4 {
        return Err(ConfigError(format!(
            "log_bytes = {} is smaller than one segment per open superblock and what GC needs: use at least {} bytes or smaller segments",
            config.log_bytes,
            (slack + 4) * bytes
        )));
    }

    Ok(())
}

impl RemapSsd {
    /// All segments free and zero.
    pub fn new(config: &Config, geometry: &Geometry) -> Self {
        let segments = Segments::new(config, geometry, config.entry.words());
        Self {
            watermark: (config.watermark * segments.capacity_slots() as f64) as u64,
            segments,
            groups: vec![SegmentChain::default(); geometry.superblocks() as usize],
            grown: RegionChanges::new(geometry.superblocks()),
            peaks: RegionPeaks::new(geometry.superblocks()),
            entries: 0,
            fullest: 0,
            fullest_segments: 0,
            slack: slack(config),
            reclaim_pays_from: 0,
            damaged: Vec::new(),
            scratch: Vec::new(),
            kept: Vec::new(),
            gone: Vec::new(),
        }
    }

    /// Free segments that only GC may use.
    fn reserve(&self) -> usize {
        self.fullest_segments + self.slack
    }

    fn set_fullest(&mut self, remapped: u32) {
        self.fullest = remapped;
        self.fullest_segments = remapped.div_ceil(self.segments.slots) as usize;
    }

    fn has_slot(&self, sb: SbId) -> bool {
        self.segments.has(&self.groups[sb.0 as usize], 1)
    }

    /// Words of `entries` entries.
    fn words_of(&self, entries: u32) -> usize {
        entries as usize * self.segments.slot_words
    }

    #[inline]
    fn append(&mut self, media: &mut Media, now: u64, remapping: &Remapping, purpose: Purpose) {
        let sb = media.geometry().superblock(remapping.ppn);
        let chain = &mut self.groups[sb.0 as usize];
        let at = self.segments.take(media, now, chain, sb, 1, purpose);
        self.grown.note(sb);
        self.entries += 1;

        // 1. the page  2. the entry's words, in any order. Cut during 2: a torn bit is missing and
        // the entry does not count. An entry that landed before its page would name the page
        // programmed there next.
        let after = entry_after(self.segments.guards, chain.clear, remapping.ppn);
        let [first, second] =
            RmmEntry::of(remapping, media.geometry().offset(remapping.ppn)).words();
        if self.segments.slot_words == 2 {
            media.store_record(at, &[first, second], purpose, after);
        } else {
            media.store_record(
                at,
                &[first, second, CommandWord::of(remapping).into()],
                purpose,
                after,
            );
        }
    }
}

#[inline]
fn entry_after(guards: Guards, clear: ClearId, ppn: Ppn) -> After {
    let after = After::clear(clear);
    after.and(guards.waits(Guard::EntryAfterPage, After::page(ppn)))
}

impl Persist for RemapSsd {
    #[inline]
    fn admit(&mut self, core: &mut Core, ppn: Ppn, may_reclaim: bool) -> Result<(), Demotion> {
        if core.blocks.remapped_total() >= self.watermark {
            return Err(Demotion::Watermark);
        }

        let sb = core.geometry.superblock(ppn);
        if self.groups[sb.0 as usize].is_numbered_out() {
            return Err(Demotion::NvramFull);
        }

        // The reserve grows with the fullest group: the entry of this remap must be migratable,
        // too.
        let remapped = core.blocks.owners(sb).remapped + 1;
        if remapped > self.fullest {
            self.set_fullest(remapped);
        }
        // An available slot takes nothing from the free segments.
        if self.has_slot(sb) && self.segments.free() >= self.reserve() {
            return Ok(());
        }
        if self.segments.free() > self.reserve() {
            return Ok(());
        }

        if self.make_room(core, sb, may_reclaim) {
            Ok(())
        } else {
            Err(Demotion::NvramFull)
        }
    }

    #[inline]
    fn persist(&mut self, core: &mut Core, remapping: &Remapping, purpose: Purpose) {
        self.append(&mut core.media, core.clock.now(), remapping, purpose);
    }

    fn persist_moved(&mut self, core: &mut Core, remapping: &Remapping) -> bool {
        let sb = core.geometry.superblock(remapping.ppn);
        if !self.has_slot(sb) && self.segments.free() == 0 {
            return false;
        }
        // Collection may use the reserve, but the next host must see its new size.
        self.set_fullest(self.fullest.max(core.blocks.owners(sb).remapped + 1));
        self.append(&mut core.media, core.clock.now(), remapping, Purpose::Gc);
        true
    }
}

impl Ownership for RemapSsd {
    fn owners(&mut self, lookup: OwnerLookup) {
        let OwnerLookup {
            tables,
            media,
            clock,
            sb,
            out,
        } = lookup;

        let entries = self.segments.used(&self.groups[sb.0 as usize]);
        if entries == 0 {
            return;
        }

        // The whole group, valid or not, without heads: the scheme knows its segments. This read is
        // the cost of finding owners in Remap-SSD (FAST'21 §4.4).
        media.charge_loads(self.words_of(entries), Purpose::Gc);

        let mut entries = std::mem::take(&mut self.scratch);
        entries.clear();
        self.read_group(tables, media, clock, sb, &mut entries);
        out.extend(entries.iter().map(|entry| OwnerRef {
            offset: entry.offset(),
            lpn: entry.target(),
            wsn: entry.wsn(),
            source: entry.relocated_source(),
        }));

        self.scratch = entries;
    }

    fn forget(
        &mut self,
        media: &mut Media,
        ended: &mut EndedFilters,
        _: &mut SchemeCounters,
        sb: SbId,
    ) {
        // Sequence numbers start over with the next incarnation; its head's WSN distinguishes old
        // segments from new ones.
        let group = std::mem::take(&mut self.groups[sb.0 as usize]);
        self.entries -= u64::from(self.segments.used(&group));
        self.segments.release(media, &group.segments);
        ended.start_over(sb);

        // Segments have become free, so reclaiming may pay again.
        self.reclaim_pays_from = 0;
    }
}

impl Recover for RemapSsd {
    fn replay(&mut self, core: &mut Core, witnesses: &mut Witnesses) -> Result<(), RecoveryError> {
        self.read_back(core, witnesses)
    }

    fn resume(&mut self, core: &mut Core) -> bool {
        // 1. damaged words, after the pages of their doubts  2. the reserve, which depends on the
        // fullest group  3. reclaiming until the reserve is free.
        self.heal(&mut core.media);
        self.set_fullest(core.blocks.remapped_max());
        self.regain(core);
        true
    }
}

impl Inspect for RemapSsd {
    fn occupancy(&self, _: &Superblocks) -> Occupancy {
        Occupancy {
            used_bytes: self.segments.used_bytes(),
            capacity_bytes: self.segments.capacity_bytes(),
        }
    }

    fn usage(&self, blocks: &Superblocks) -> Usage {
        let largest = self
            .groups
            .iter()
            .map(|group| group.segments.len())
            .max()
            .unwrap_or(0);
        Usage {
            capacity_bytes: self.segments.capacity_bytes(),
            used_bytes: self.segments.used_bytes(),
            valid_bytes: blocks.remapped_total() * self.segments.slot_words as u64 * 8,
            entry_room_bytes: self.segments.room_bytes(self.segments.count()),
            gc_reserve_bytes: self.segments.room_bytes(self.reserve()),
            largest_group_bytes: self.segments.bytes(largest),
            largest_group_seen_bytes: self.segments.longest_bytes(),
            ..Usage::default()
        }
    }

    fn check(&self, tables: &Tables, blocks: &Superblocks, media: &Media) -> Result<(), String> {
        self.check_groups(tables, blocks, media)
    }

    fn describe(&self, sb: SbId) -> Option<GroupInfo> {
        let group = &self.groups[sb.0 as usize];
        let entries = self.segments.used(group);
        Some(GroupInfo {
            segments: group.segments.clone(),
            entries,
            pages: entries.into(),
            flash_pages: 0,
        })
    }
}

impl LookAhead for RemapSsd {
    #[inline]
    fn look_ahead(&self, media: &Media, ppn: Ppn) {
        let sb = media.geometry().superblock(ppn);
        media.prefetch_word(self.segments.next_word(&self.groups[sb.0 as usize]));
    }
}
