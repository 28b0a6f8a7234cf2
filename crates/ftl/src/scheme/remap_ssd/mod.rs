//! Remap-SSD (FAST'21 §4.2-4.5): NVRAM segments exclusively owned by flash superblocks.
//!
//! Each superblock has a segment group, a small local log of the remaps onto its pages: finding the owners of
//! a victim's pages means reading one group. Groups are reclaimed passively when their superblock is erased and
//! actively when free segments run out.
//!
//! Invariants: valid entries of a group = `Superblock::remapped`; free segments never fall below what migrating
//! the fullest group takes (`reserve`), so that flash GC and NVRAM GC always find room; a segment is used only
//! after it has been zeroed. Absent: flash pages' own owners (their OOB says).

mod local;
mod reclaim;
pub(super) mod segment;

use super::entry::{CommandWord, RmmEntry, Second};
use super::{GroupInfo, OwnerRef, RemapScheme, Remapping, Usage};
use crate::config::{Config, ConfigError};
use crate::core::Core;
use crate::guard::Guard;
use crate::layout::Layout;
use crate::recovery::{RecoveryError, Witnesses};
use crate::stats::Demotion;
pub(super) use reclaim::find_lost;
use remap_ssd_media::{After, ClearId, Geometry, OpKind, Ppn, Purpose, SbId};
use segment::{Group, SegmentHead, SegmentLink};
use std::collections::VecDeque;

/// Free segments beyond what migrating the fullest group takes: partly filled segments of a migration that a
/// power cut interrupted.
const SLACK: usize = 4;

/// A victim's entries go to the groups of two superblocks, an old and a new one, in every zone of shared pages.
pub(super) fn slack(config: &Config) -> usize {
    SLACK + 2 * config.gc_policy.zones().saturating_sub(2)
}

/// The scheme's DRAM state.
pub struct RemapSsd {
    base: usize,
    segment_words: usize,
    entry_words: usize,
    /// Entries in a segment.
    slots: u32,
    segments: u32,
    groups: Vec<Group>,
    /// SV-bitmap and free list in one: free segments, longest free first, with the clearing to wait for.
    free: VecDeque<(u32, ClearId)>,
    /// Entries in all groups, valid or not.
    entries: u64,
    /// No remaps while so many entries are valid.
    watermark: u64,
    /// No superblock has more remapped LPNs than this.
    fullest: u32,
    /// Segments that migrating such a superblock takes.
    fullest_segments: usize,
    /// Free segments beyond what migrating the fullest group takes.
    slack: usize,
    /// Active GC gains nothing before so many entries are invalid.
    hopeless_below: u64,
    largest_group: u32,
    scratch: Vec<RmmEntry>,
    kept: Vec<[u64; 2]>,
    gone: Vec<u32>,
}

/// Checks the parameters.
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
        let segment_words = config.segment_bytes as usize / 8;
        let entry_words = config.entry.words();
        let segments = (config.log_bytes / u64::from(config.segment_bytes)) as u32;
        Self {
            base: Layout::new(config, geometry).scheme,
            segment_words,
            entry_words,
            slots: (segment_words / entry_words) as u32 - 1,
            segments,
            groups: vec![Group::default(); geometry.superblocks() as usize],
            free: (0..segments).map(|segment| (segment, ClearId::default())).collect(),
            entries: 0,
            watermark: (config.watermark * f64::from(segments) * (segment_words / entry_words - 1) as f64) as u64,
            fullest: 0,
            fullest_segments: 0,
            slack: slack(config),
            hopeless_below: 0,
            largest_group: 0,
            scratch: Vec::new(),
            kept: Vec::new(),
            gone: Vec::new(),
        }
    }

    /// First word of a segment.
    fn word(&self, segment: u32) -> usize {
        self.base + segment as usize * self.segment_words
    }

    /// First word of an entry's slot; the segment's head takes the first slot.
    fn slot_word(&self, segment: u32, slot: u32) -> usize {
        self.word(segment) + (slot as usize + 1) * self.entry_words
    }

    /// Free segments that only GC may use.
    fn reserve(&self) -> usize {
        self.fullest_segments + self.slack
    }

    fn set_fullest(&mut self, remapped: u32) {
        self.fullest = remapped;
        self.fullest_segments = remapped.div_ceil(self.slots) as usize;
    }

    fn has_slot(&self, sb: SbId) -> bool {
        let group = &self.groups[sb.0 as usize];
        !group.segments.is_empty() && group.used < self.slots
    }

    /// Gives a group a new segment, zeroed before.
    fn grow(&mut self, core: &mut Core, sb: SbId, purpose: Purpose) {
        let (segment, clear) = self.free.pop_front().expect("a free segment was secured");
        // 1. zeroes  2. segment metadata  3. entries. Cut before 2: the segment is free. Entries that landed
        // before the metadata would be read as another group's.
        let zeroed = core.config.guards.has(Guard::SegmentZeroed);
        let after = if zeroed { After::clear(clear) } else { After::NOTHING };
        let at = self.word(segment);
        let group = &mut self.groups[sb.0 as usize];
        if let Some(&last) = group.segments.last() {
            // The late next-link: the successor is known only now.
            let link = SegmentLink::of(group.sequence - 1).with_next(segment + 1);
            core.media.store(self.base + last as usize * self.segment_words + 1, link.into(), purpose, After::NOTHING);
        }
        let head = SegmentHead::new().with_torn(true).with_superblock(sb.0).with_wsn(core.wsn);
        core.media.store_record(at, &[head.into(), SegmentLink::of(group.sequence).into()], purpose, after);
        core.media.fence();
        group.sequence += 1;
        group.segments.push(segment);
        group.used = 0;
        group.end = at + self.entry_words;
        group.clear = clear;
        self.largest_group = self.largest_group.max(group.segments.len() as u32);
    }

    /// The next slot of a superblock's group; one has been secured.
    #[inline]
    fn next_slot(&mut self, core: &mut Core, sb: SbId, purpose: Purpose) -> usize {
        if !self.has_slot(sb) {
            self.grow(core, sb, purpose);
        }
        let group = &mut self.groups[sb.0 as usize];
        let at = group.end;
        group.end += self.entry_words;
        group.used += 1;
        group.entries += 1;
        self.entries += 1;
        at
    }

    /// Appends an entry.
    #[inline]
    fn append(&mut self, core: &mut Core, remapping: &Remapping, purpose: Purpose) {
        let sb = core.geometry.superblock(remapping.ppn);
        let at = self.next_slot(core, sb, purpose);
        // 1. the page  2. the entry's words, in any order. Cut inside 2: a torn bit is missing and the entry
        // does not count. An entry before its page would name whatever is programmed there next.
        let after = self.entry_after(core, remapping.ppn, sb);
        let [first, second] = RmmEntry::of(remapping, core.geometry.offset(remapping.ppn)).words();
        if self.entry_words == 2 {
            core.media.store_record(at, &[first, second], purpose, after);
        } else {
            core.media.store_record(at, &[first, second, CommandWord::of(remapping).into()], purpose, after);
        }
    }

    /// Appends an entry that moves within its group, as it stands. The caller charges it.
    fn append_moved(&mut self, core: &mut Core, sb: SbId, words: [u64; 2]) {
        let at = self.next_slot(core, sb, Purpose::Gc);
        let entry = RmmEntry::from_words(words[0], words[1]);
        let all = [words[0], words[1], CommandWord::alone(entry.target()).into()];
        let after = self.entry_after(core, core.geometry.page(sb, entry.offset()), sb);
        core.media.store_uncharged(at, &all[..self.entry_words], Purpose::Gc, after);
    }

    #[inline]
    fn entry_after(&self, core: &Core, ppn: Ppn, sb: SbId) -> After {
        let after = After::clear(self.groups[sb.0 as usize].clear);
        match core.config.guards.has(Guard::EntryAfterPage) {
            true => after.and(After::page(ppn)),
            false => after,
        }
    }
}

impl RemapScheme for RemapSsd {
    #[inline]
    fn admit(&mut self, core: &mut Core, ppn: Ppn, may_reclaim: bool) -> Result<(), Demotion> {
        if core.blocks.remapped_total() >= self.watermark {
            return Err(Demotion::Watermark);
        }
        let sb = core.geometry.superblock(ppn);
        let remapped = core.blocks.owners(sb).remapped + 1;
        if remapped > self.fullest {
            self.set_fullest(remapped);
        }
        if self.has_slot(sb) && self.free.len() >= self.reserve() {
            return Ok(());
        }
        if self.free.len() > self.reserve() {
            return Ok(());
        }
        if self.make_room(core, sb, may_reclaim) { Ok(()) } else { Err(Demotion::NvramFull) }
    }

    #[inline]
    fn persist(&mut self, core: &mut Core, remapping: &Remapping, purpose: Purpose) {
        self.append(core, remapping, purpose);
    }

    fn persist_moved(&mut self, core: &mut Core, remapping: &Remapping) -> bool {
        let sb = core.geometry.superblock(remapping.ppn);
        if !self.has_slot(sb) && self.free.is_empty() {
            return false;
        }
        self.set_fullest(self.fullest.max(core.blocks.owners(sb).remapped + 1));
        self.append(core, remapping, Purpose::Gc);
        true
    }

    fn owners(&mut self, core: &mut Core, sb: SbId, out: &mut Vec<OwnerRef>) {
        let entries = self.groups[sb.0 as usize].entries;
        if entries == 0 {
            return;
        }
        let bytes = entries * self.entry_words as u32 * 8;
        core.media.charge(OpKind::NvRead, bytes, Purpose::Gc, After::NOTHING);
        let mut entries = std::mem::take(&mut self.scratch);
        entries.clear();
        self.read_group(core, sb, &mut entries);
        out.extend(entries.iter().map(|entry| OwnerRef {
            offset: entry.offset(),
            lpn: entry.target(),
            wsn: entry.wsn(),
            source: entry.relocated_source(),
        }));
        self.scratch = entries;
    }

    fn forget(&mut self, core: &mut Core, sb: SbId) {
        let group = std::mem::take(&mut self.groups[sb.0 as usize]);
        self.entries -= u64::from(group.entries);
        self.release(core, &group.segments);
        core.ended.settle(sb);
        self.hopeless_below = 0;
    }

    fn replay(&mut self, core: &mut Core, witnesses: &mut Witnesses) -> Result<(), RecoveryError> {
        self.read_back(core, witnesses)
    }

    fn resume(&mut self, core: &mut Core) -> bool {
        self.set_fullest(core.blocks.remapped_max());
        self.regain(core);
        true
    }

    fn usage(&self, core: &Core) -> Usage {
        let largest = self.groups.iter().map(|group| group.segments.len()).max().unwrap_or(0);
        let entry = self.entry_words as u64 * 8;
        let segment = self.segment_words as u64 * 8;
        Usage {
            capacity_bytes: u64::from(self.segments) * segment,
            used_bytes: (u64::from(self.segments) - self.free.len() as u64) * segment,
            valid_bytes: core.blocks.remapped_total() * entry,
            largest_group_bytes: largest as u64 * segment,
            largest_group_seen_bytes: u64::from(self.largest_group) * segment,
            ..Usage::default()
        }
    }

    fn check(&self, core: &Core) -> Result<(), String> {
        self.check_groups(core)
    }

    #[inline]
    fn look_ahead(&self, core: &Core, ppn: Ppn) {
        let sb = core.geometry.superblock(ppn);
        core.media.prefetch_word(self.groups[sb.0 as usize].end);
    }

    fn describe(&self, sb: SbId) -> Option<GroupInfo> {
        let group = &self.groups[sb.0 as usize];
        Some(GroupInfo {
            segments: group.segments.clone(),
            entries: group.entries,
            pages: group.entries.into(),
            flash_pages: 0,
        })
    }
}
