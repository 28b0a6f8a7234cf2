//! The segments as local logs in NVRAM, for a scheme that keeps part of its entries elsewhere.
//!
//! Invariant: `drain` releases what has been read only after everything issued before. Absent: when a group leaves.

use super::RemapSsd;
use crate::config::Config;
use crate::core::Core;
use crate::scheme::RmmEntry;
use remap_ssd_media::{Ppn, SbId};

impl RemapSsd {
    /// Can one more entry for a page be appended?
    pub(in crate::scheme) fn has_room_for(&self, core: &Core, ppn: Ppn) -> bool {
        self.has_slot(core.geometry.superblock(ppn)) || !self.free.is_empty()
    }

    /// Segments that belong to no group.
    pub(in crate::scheme) fn free_segments(&self) -> usize {
        self.free.len()
    }

    /// Segments in all.
    pub(in crate::scheme) fn segments(config: &Config) -> u64 {
        config.log_bytes / u64::from(config.segment_bytes)
    }

    /// The group with the most segments, and of those with as many the one with the most entries.
    pub(in crate::scheme) fn largest_group(&self) -> Option<SbId> {
        let groups = self.groups.iter().enumerate().filter(|(_, group)| !group.segments.is_empty());
        let size = |index: usize| (self.groups[index].segments.len(), self.groups[index].entries);
        groups.map(|(index, _)| (size(index), std::cmp::Reverse(index))).max().map(|(_, at)| SbId(at.0 as u32))
    }

    /// Entries in a group, valid or not, and their bytes.
    pub(in crate::scheme) fn entries_of(&self, sb: SbId) -> (u32, u32) {
        let entries = self.groups[sb.0 as usize].entries;
        (entries, entries * self.entry_words as u32 * 8)
    }

    /// Appends a group's entries to `out`, oldest first.
    pub(in crate::scheme) fn entries_in(&mut self, core: &mut Core, sb: SbId, out: &mut Vec<RmmEntry>) {
        self.read_group(core, sb, out);
    }

    /// Target and page offset of a group's entries, as stored: for checks.
    pub(in crate::scheme) fn peek(&self, core: &Core, sb: SbId) -> Vec<(u32, u32)> {
        let group = &self.groups[sb.0 as usize];
        let last = group.segments.last();
        let slots = |segment| if Some(segment) == last { group.used } else { self.slots };
        let places = group.segments.iter().flat_map(|segment| (0..slots(segment)).map(move |slot| (*segment, slot)));
        let entries = places.map(|(segment, slot)| {
            let at = self.slot_word(segment, slot);
            RmmEntry::from_words(core.media.peek(at), core.media.peek(at + 1))
        });
        entries.filter(|entry| entry.is_intact()).map(|entry| (entry.target(), entry.offset())).collect()
    }

    /// Releases a group whose entries are somewhere else now.
    pub(in crate::scheme) fn drain(&mut self, core: &mut Core, sb: SbId) {
        let group = &mut self.groups[sb.0 as usize];
        let segments = std::mem::take(&mut group.segments);
        self.entries -= u64::from(std::mem::take(&mut group.entries));
        group.used = 0;
        self.release(core, &segments);
    }

    /// Compares the segments with each other.
    pub(in crate::scheme) fn check_segments(&self) -> Result<(), String> {
        let mut seen = vec![false; self.segments as usize];
        let taken = self.groups.iter().flat_map(|group| &group.segments);
        for &segment in taken.chain(self.free.iter().map(|(segment, _)| segment)) {
            if std::mem::replace(&mut seen[segment as usize], true) {
                return Err(format!("segment {segment} is in two places"));
            }
        }
        if let Some(lost) = seen.iter().position(|seen| !seen) {
            return Err(format!("segment {lost} is neither free nor in a group"));
        }
        let entries: u64 = self.groups.iter().map(|group| u64::from(group.entries)).sum();
        if entries != self.entries {
            return Err(format!("{entries} entries in groups, {} counted", self.entries));
        }
        Ok(())
    }
}
