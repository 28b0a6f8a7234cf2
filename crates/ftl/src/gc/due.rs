//! The counts of reads, and the list of superblocks to be refreshed.
//!
//! Invariants: a superblock is listed at most once until it is erased; a free one has no counted reads. Absent:
//! when a listed superblock is refreshed (`refresh`).

use crate::config::Config;
use remap_ssd_media::{Geometry, Ppn, SbId};
use std::collections::VecDeque;

/// Counts of reads, and the superblocks to be refreshed.
pub(crate) struct Refresh {
    /// Reads of a block after which its superblock is refreshed; 0 if they are not counted.
    reads_limit: u32,
    /// Age in sequence numbers at which a superblock is refreshed; 0 if ages do not matter.
    pub(super) age_limit: u64,
    /// Reads of each block since its erase or since power-on.
    pub(super) reads: Vec<u32>,
    /// Superblocks to refresh, in the order in which they reached a limit.
    pub(super) due: VecDeque<SbId>,
    /// Superblocks that have been in `due` since their erase.
    pub(super) listed: Vec<bool>,
    /// Sequence number from which on ages are compared again.
    pub(super) look_at: u64,
    /// Turns until the next attempt.
    pub(super) rest: u32,
    /// The last job was a refresh, so that the next one collects garbage if space is short.
    pub(super) was_last: bool,
    /// Collections of garbage for a refresh that waits for room.
    pub(super) room: Room,
}

/// What collections may do for the refresh that waits.
#[derive(Default)]
pub(super) struct Room {
    /// Free superblocks that the refresh lacked at the last attempt, until garbage is looked for.
    pub(super) lacking: u32,
    /// Pages moved for room since the last refresh began.
    pub(super) moved: u64,
    /// Pages that the host had transferred then.
    pub(super) transferred: u64,
}

impl Refresh {
    /// Nothing read and nothing due; `None` if the configuration asks for no refresh.
    pub(crate) fn new(config: &Config, geometry: &Geometry) -> Option<Box<Self>> {
        let blocks = if config.refresh_reads > 0 {
            geometry.blocks() as usize
        } else {
            0
        };
        let refresh = Self {
            reads_limit: config.refresh_reads,
            age_limit: config.refresh_writes,
            reads: vec![0; blocks],
            due: VecDeque::new(),
            listed: vec![false; geometry.superblocks() as usize],
            look_at: if config.refresh_writes > 0 {
                0
            } else {
                u64::MAX
            },
            rest: 0,
            was_last: false,
            room: Room::default(),
        };
        config.refreshes().then(|| Box::new(refresh))
    }

    /// Counts a read of a page.
    #[inline]
    pub(crate) fn count_read(&mut self, geometry: &Geometry, ppn: Ppn) {
        if self.reads_limit == 0 {
            return;
        }
        let sb = geometry.superblock(ppn);
        let die = geometry.die_of_offset(geometry.offset(ppn));
        let reads = &mut self.reads[geometry.block(sb, die).0 as usize];
        *reads = reads.saturating_add(1);
        if *reads >= self.reads_limit {
            self.list(sb);
        }
    }

    pub(super) fn list(&mut self, sb: SbId) {
        if !std::mem::replace(&mut self.listed[sb.0 as usize], true) {
            self.due.push_back(sb);
        }
    }

    /// A superblock has been erased: its blocks begin anew.
    pub(crate) fn erased(&mut self, geometry: &Geometry, sb: SbId) {
        if !self.reads.is_empty() {
            let first = geometry.block(sb, 0).0 as usize;
            self.reads[first..first + geometry.dies() as usize].fill(0);
        }
        if std::mem::replace(&mut self.listed[sb.0 as usize], false) {
            self.due.retain(|due| *due != sb);
        }
    }

    #[inline]
    pub(super) fn has_work(&self, now: u64) -> bool {
        !self.due.is_empty() || now >= self.look_at
    }
}
