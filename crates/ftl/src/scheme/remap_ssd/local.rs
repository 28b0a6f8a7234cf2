//! The segments as local logs in NVRAM, for a scheme that keeps part of its entries elsewhere.
//!
//! Invariant: `drain` releases entries only after everything issued before. Absent: when a group
//! leaves.

use super::RemapSsd;
use crate::clock::WsnClock;
use crate::config::Config;
use crate::error::Contradiction;
use crate::mapping::tables::Tables;
use crate::scheme::entry::RmmEntry;
use remap_ssd_media::{Geometry, Lpn, Media, Ppn, SbId};

impl RemapSsd {
    /// Returns true if its sequence numbers are nearly used up, so that host remaps must be demoted
    /// to copies.
    pub(in crate::scheme) fn is_numbered_out(&self, sb: SbId) -> bool {
        self.groups.chain(sb).is_numbered_out()
    }

    /// Returns true if another entry for a page can be appended.
    pub(in crate::scheme) fn has_room_for(&self, geometry: Geometry, ppn: Ppn) -> bool {
        self.groups.has(geometry.superblock(ppn), 1) || self.free_segments() > 0
    }

    /// Number of free segments.
    pub(in crate::scheme) fn free_segments(&self) -> usize {
        self.groups.segments.free()
    }

    pub(in crate::scheme) fn segments(config: &Config) -> u64 {
        config.log_bytes / u64::from(config.segment_bytes)
    }

    /// The group with the most segments; among equals, the one with the most entries.
    pub(in crate::scheme) fn largest_group(&self) -> Option<SbId> {
        let segments = &self.groups.segments;
        let sizes = self
            .groups
            .chains()
            .map(|chain| (chain.segments.len(), segments.used(chain)));
        // The lowest number among equals, so that runs are deterministic.
        sizes
            .enumerate()
            .filter(|(_, (segments, _))| *segments > 0)
            .map(|(index, size)| (size, std::cmp::Reverse(index)))
            .max()
            .map(|(_, at)| SbId(at.0 as u32))
    }

    /// Words of a group's entries, valid or not.
    pub(in crate::scheme) fn words_in(&self, sb: SbId) -> usize {
        self.groups.words_in(sb)
    }

    /// Appends a group's entries to `out`, oldest first.
    pub(in crate::scheme) fn entries_in(
        &mut self,
        tables: &Tables,
        media: &mut Media,
        clock: &mut WsnClock,
        sb: SbId,
        out: &mut Vec<RmmEntry>,
    ) {
        self.read_group(tables, media, clock, sb, out);
    }

    /// Targets and page offsets of a group's entries, as stored: for checks.
    pub(in crate::scheme) fn peek(&self, media: &Media, sb: SbId) -> Vec<(Lpn, u32)> {
        let places = self.groups.places(sb);
        let entries = places.map(|at| RmmEntry::from_words(media.peek(at), media.peek(at + 1)));
        entries
            .filter(|entry| entry.is_intact())
            .map(|entry| (entry.target(), entry.offset()))
            .collect()
    }

    /// Releases a group whose entries are stored elsewhere now.
    pub(in crate::scheme) fn drain(&mut self, media: &mut Media, sb: SbId) {
        self.groups.drain(media, sb);
    }

    /// Zeroes the entries that were unreadable at recovery.
    pub(in crate::scheme) fn heal(&mut self, media: &mut Media) {
        self.groups.heal(media);
    }

    /// Checks the segments for consistency.
    pub(in crate::scheme) fn check_segments(&self) -> Result<(), Contradiction> {
        self.groups.check_sums()
    }
}
