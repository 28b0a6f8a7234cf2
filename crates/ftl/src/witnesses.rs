//! The total order of witnesses: for every LPN the newest durable one wins.
//!
//! Invariants: `when[l]` is the number of the witness in force, 0 for none. Witnesses of aborted
//! commands do not count. Absent: where witnesses come from.

use crate::config::{Config, chunk_of};
use crate::core::Core;
use crate::life::LoadedLife;
use crate::map::Map;
use crate::mapping::Mapping;
use crate::superblock::{SuperblockState, Superblocks};
use remap_ssd_media::slab::{Slab, prefetch};
use remap_ssd_media::{Geometry, Lpn, Media, Oob, Ppn, Purpose, SbId};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// What recovery read and found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RecoveryReport {
    /// Head pages that were read.
    pub head_pages: u64,
    /// Tail pages that were read.
    pub tail_pages: u64,
    /// OOB areas read in superblocks without tail.
    pub oob_pages: u64,
    /// Pages of deallocation bitmaps read.
    pub bitmap_pages: u64,
    /// Pages of a remapping log on flash read.
    pub log_pages: u64,
    /// Bytes of NVRAM that were read.
    pub nvram_bytes: u64,
    /// Records considered: pages, entries, and of each LPN the newest deallocation.
    pub records: u64,
    /// Superblocks that are open or closed and hold data.
    pub superblocks: u64,
    /// LPNs that have a page.
    pub mapped: u64,
    /// LPNs whose newest witness could not be read: they are media errors now.
    pub lost: u64,
    /// Atomic commands that a cut interrupted.
    pub aborted: u64,
    /// Flash pages that a capacitor's energy programmed when power failed.
    pub saved_pages: u64,
}

/// The witnesses that recovery has read so far, and what follows from them.
pub struct Witnesses {
    /// What was read, for the report.
    pub report: RecoveryReport,
    geometry: Geometry,
    when: Slab<u64>,
    live: Vec<bool>,
    newest: u64,
    aborted: Vec<u64>,
    pub(crate) aborted_seen: Vec<u64>,
    /// Superblocks with pages that carry such a number, and words of NVRAM that do.
    pub(crate) aborted_pages: BTreeSet<SbId>,
    pub(crate) aborted_words: Vec<Range<usize>>,
    /// Sources of relocations, with the number of the relocation.
    pub(crate) relocated: Vec<(Lpn, u64)>,
    /// Lives of which a word cannot be read.
    pub(crate) damaged_lives: BTreeMap<SbId, LoadedLife>,
    pub(crate) lost: Vec<Lpn>,
    /// LPNs with an unreadable witness.
    doubts: Vec<UnreadableWitness>,
    /// Pages that were written for a home: a commit record says which of them came there.
    pub hinted: Vec<HintedPage>,
}

/// A witness that cannot be read, as far as it is known.
#[derive(Clone, Copy, Debug)]
struct UnreadableWitness {
    /// The LPNs it is of.
    first: Lpn,
    len: u32,
    /// Its sequence number is above `from` and at most `to`.
    from: u64,
    to: u64,
    deallocates: bool,
}

/// A page that was written under one LPN and names another as its home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HintedPage {
    pub lpn: Lpn,
    pub wsn: u64,
    /// When the superblock was opened: the younger of two copies counts.
    pub opened: u64,
    pub home: Lpn,
    pub ppn: Ppn,
}

impl Witnesses {
    pub(crate) fn new(geometry: Geometry, map: &Map) -> Self {
        Self {
            report: RecoveryReport::default(),
            geometry,
            when: Slab::zeroed(map.len() as usize),
            live: vec![false; geometry.superblocks() as usize],
            newest: 0,
            aborted: Vec::new(),
            aborted_seen: Vec::new(),
            aborted_pages: BTreeSet::new(),
            aborted_words: Vec::new(),
            relocated: Vec::new(),
            damaged_lives: BTreeMap::new(),
            lost: Vec::new(),
            doubts: Vec::new(),
            hinted: Vec::new(),
        }
    }

    /// Charges a scan of so many words of NVRAM, and reports it.
    pub(crate) fn charge_scan(&mut self, media: &mut Media, words: usize) {
        self.report.nvram_bytes += 8 * words as u64;
        media.charge_loads(words, Purpose::Meta);
    }

    /// Largest sequence number found on any medium.
    pub(crate) fn newest(&self) -> u64 {
        self.newest
    }

    pub(crate) fn set_live(&mut self, sb: SbId) {
        self.live[sb.0 as usize] = true;
    }

    /// Does a superblock hold data, as far as its life and its head say?
    pub fn is_live(&self, sb: SbId) -> bool {
        self.live[sb.0 as usize]
    }

    /// Time is at least this.
    #[inline]
    pub fn saw(&mut self, wsn: u64) {
        self.newest = self.newest.max(wsn);
    }

    /// Numbers of aborted commands: they are not handed out again.
    pub(crate) fn aborted(&mut self, numbers: Vec<u64>) {
        numbers.iter().for_each(|number| self.saw(*number));
        self.aborted = numbers;
    }

    /// Is this the number of an aborted command? If so, remembers that the number still has a
    /// witness.
    #[inline]
    pub fn is_aborted(&mut self, wsn: u64) -> bool {
        if self.aborted.is_empty() || !self.aborted.contains(&wsn) {
            return false;
        }
        if self.aborted_seen.last() != Some(&wsn) {
            self.aborted_seen.push(wsn);
        }
        true
    }

    /// These words of NVRAM belong to an aborted command: recovery zeroes them, before the scheme's
    /// `resume`.
    pub fn zero(&mut self, words: Range<usize>) {
        self.aborted_words.push(words);
    }

    /// Asks for what considering a witness of this LPN will touch.
    #[inline]
    pub(crate) fn prefetch(&self, map: &Map, lpn: Lpn) {
        prefetch(&self.when, lpn.index());
        map.prefetch(lpn);
    }

    #[inline]
    fn consider(
        &mut self,
        blocks: &Superblocks,
        map: &mut Map,
        lpn: Lpn,
        wsn: u64,
        mapping: Option<Mapping>,
    ) {
        let when = &mut self.when[lpn.index()];

        // Order of reading does not matter: the largest number wins whenever it comes.
        let wins = wsn > *when
            || (wsn == *when && is_younger(blocks, self.geometry, mapping, map.get(lpn)));
        if wins {
            *when = wsn;
            map.set(lpn, mapping);
        }
    }

    /// A page's OOB names this LPN.
    #[inline]
    pub(crate) fn write(
        &mut self,
        blocks: &Superblocks,
        map: &mut Map,
        lpn: Lpn,
        ppn: Ppn,
        wsn: u64,
    ) {
        self.saw(wsn);
        self.report.records += 1;

        // The page stays where it is until collection comes, so the superblock is remembered.
        if self.is_aborted(wsn) {
            self.aborted_pages.insert(self.geometry.superblock(ppn));
            return;
        }

        self.consider(
            blocks,
            map,
            lpn,
            wsn,
            Some(Mapping {
                ppn,
                remapped: false,
            }),
        );
    }

    /// A page's OOB names a second LPN: one that has it as well, or its home.
    pub(crate) fn second(&mut self, core: &mut Core, ppn: Ppn, oob: Oob) {
        let Some(home) = oob.second().lpn() else {
            return;
        };
        if oob.second().owns() {
            self.remap(core, home, ppn, oob.wsn(), None);
        }
        let opened = core.blocks.get(core.geometry.superblock(ppn)).opened;
        self.hinted.push(HintedPage {
            lpn: oob.lpn(),
            wsn: oob.wsn(),
            opened,
            home,
            ppn,
        });
    }

    /// An intact entry remaps this LPN to a page of a live superblock; the source of a relocation
    /// loses it. `false` if it is of an aborted command: the scheme keeps no such entry, and has
    /// its words zeroed (`zero`).
    pub fn remap(
        &mut self,
        core: &mut Core,
        lpn: Lpn,
        ppn: Ppn,
        wsn: u64,
        source: Option<Lpn>,
    ) -> bool {
        self.saw(wsn);
        self.report.records += 1;
        if self.is_aborted(wsn) {
            return false;
        }

        let sb = core.geometry.superblock(ppn);
        // A page with a larger number is another one: the superblock has been erased and filled
        // again, and the entry is of the incarnation before.
        let page_is_older = core.media.is_programmed(ppn) && core.media.oob(ppn).wsn() <= wsn;
        if !self.is_live(sb) || !page_is_older || !lpn.is_below(core.config.lpns) {
            return true;
        }

        self.consider(
            &core.blocks,
            &mut core.tables.map,
            lpn,
            wsn,
            Some(Mapping {
                ppn,
                remapped: true,
            }),
        );

        if let Some(source) = source.filter(|source| source.is_below(core.config.lpns)) {
            self.deallocation(&core.blocks, &mut core.tables.map, source, wsn);
            if self.when[source.index()] == wsn && core.tables.map.get(source).is_none() {
                self.relocated.push((source, wsn));
            }
        }

        true
    }

    /// Notes that an LPN was deallocated.
    #[inline]
    pub(crate) fn deallocation(&mut self, blocks: &Superblocks, map: &mut Map, lpn: Lpn, wsn: u64) {
        self.saw(wsn);
        self.report.records += 1;
        self.consider(blocks, map, lpn, wsn, None);
    }

    /// Would an entry for this page with this number be valid?
    pub fn counts(&self, media: &Media, ppn: Ppn, wsn: u64) -> bool {
        let page_is_older = media.is_programmed(ppn) && media.oob(ppn).wsn() <= wsn;
        self.is_live(media.geometry().superblock(ppn))
            && page_is_older
            && !self.aborted.contains(&wsn)
    }

    /// Is this the number of an interrupted command?
    pub fn is_aborted_number(&self, wsn: u64) -> bool {
        self.aborted.contains(&wsn)
    }

    /// Is the newest witness of an LPN newer than one number and older than another?
    pub fn is_between(&self, lpn: Lpn, after: u64, before: u64) -> bool {
        (after + 1..before).contains(&self.when[lpn.index()])
    }

    /// Notes an entry for this LPN that cannot be read completely. Its number is at most `newest`:
    /// any other witness of the LPN may be outdated, unless its number is as large.
    pub fn doubt(&mut self, lpn: Lpn, newest: u64) {
        self.doubt_all(lpn, 1, newest);
    }

    /// The same for `len` LPNs.
    pub(crate) fn doubt_all(&mut self, first: Lpn, len: u32, newest: u64) {
        self.doubts.push(UnreadableWitness {
            first,
            len,
            from: 0,
            to: newest,
            deallocates: false,
        });
    }

    /// Notes a deallocation of these LPNs whose number is only known to lie between two others.
    pub(crate) fn doubt_deallocation(&mut self, first: Lpn, len: u32, from: u64, to: u64) {
        self.doubts.push(UnreadableWitness {
            first,
            len,
            from,
            to,
            deallocates: true,
        });
    }

    /// A deallocation with this number, of unknown LPNs: may it concern any mapped LPN?
    pub(crate) fn may_have_been_mapped(&self, config: &Config, map: &Map, wsn: u64) -> bool {
        Lpn::range(Lpn::ZERO, config.lpns).any(|lpn| {
            // A younger bitmap shows that the LPN was mapped then.
            let bitmap = self.when[config.bitmap_lpn(chunk_of(lpn)).index()];
            map.get(lpn).is_some() && self.when[lpn.index()] < wsn && bitmap < wsn
        })
    }

    /// May an unreadable bitmap with this number concern any mapped LPN?
    pub(crate) fn may_be_in(&self, config: &Config, map: &Map, chunk: u32, wsn: u64) -> bool {
        config
            .chunk(chunk)
            .any(|lpn| map.get(lpn).is_some() && self.when[lpn.index()] < wsn)
    }

    /// Decides which LPNs are in doubt, once all witnesses are known: those whose newest witness is
    /// older than an unreadable one. A deallocation that is certainly newer than every other
    /// witness of an LPN needs no doubt: it is recorded again.
    pub(crate) fn resolve_doubts(&mut self, config: &Config, map: &mut Map) {
        for doubt in std::mem::take(&mut self.doubts) {
            // It may be of a command that did not happen.
            let may_be_aborted = self
                .aborted
                .iter()
                .any(|number| (doubt.from..=doubt.to).contains(number));

            let end = doubt.first.0.saturating_add(doubt.len).min(config.lpns);
            for lpn in Lpn::between(doubt.first..Lpn(end)) {
                let when = self.when[lpn.index()];
                if !doubt.deallocates {
                    self.lost.extend((when < doubt.to).then_some(lpn));
                } else if map.get(lpn).is_some() && when <= doubt.from && !may_be_aborted {
                    map.set(lpn, None);
                    self.relocated.push((lpn, when));
                } else if map.get(lpn).is_some() && when < doubt.to {
                    self.lost.push(lpn);
                }
            }
        }
    }

    /// Relocated sources whose witness is still in force.
    pub(crate) fn resolve_relocated(&mut self, map: &Map) {
        let when = &self.when;
        self.relocated
            .retain(|(lpn, wsn)| when[lpn.index()] == *wsn && map.get(*lpn).is_none());
    }
}

/// Of two witnesses of one write, the one in the superblock that was opened later wins. Both say
/// the same while both exist (a victim is dead before its first block is erased), so this only
/// makes the choice definite.
fn is_younger(
    blocks: &Superblocks,
    geometry: Geometry,
    new: Option<Mapping>,
    old: Option<Mapping>,
) -> bool {
    let opened = |mapping: Mapping| blocks.get(geometry.superblock(mapping.ppn)).opened;
    match (new, old) {
        (Some(new), Some(old)) => opened(new) > opened(old),
        _ => false,
    }
}

/// Whether superblocks in the state hold data.
pub(crate) fn holds_data(state: SuperblockState) -> bool {
    matches!(state, SuperblockState::Open | SuperblockState::Closed)
}
