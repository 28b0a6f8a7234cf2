//! The total order of witnesses: for every LPN the newest durable one wins.
//!
//! Invariants: `when[l]` is the number of the witness in force, 0 if there is none. Witnesses of
//! aborted commands are ignored. Absent: the sources of witnesses.

use crate::config::{Config, chunk_of};
use crate::core::Core;
use crate::mapping::Mapping;
use crate::mapping::map::Map;
use crate::superblock::life::LoadedLife;
use crate::superblock::{SuperblockState, Superblocks};
use remap_ssd_media::slab::{Slab, prefetch};
use remap_ssd_media::{Geometry, Lpn, Media, Oob, Ppn, Purpose, SbId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Figures of a recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryReport {
    /// Head pages read.
    pub head_pages: u64,
    /// Tail pages read.
    pub tail_pages: u64,
    /// OOB areas read in superblocks without a tail.
    pub oob_pages: u64,
    /// Pages of deallocation bitmaps read.
    pub bitmap_pages: u64,
    /// Translation pages read, whose entries are compared with the witnesses.
    #[serde(default)]
    pub translation_pages: u64,
    /// Pages of a remapping log on flash read.
    pub log_pages: u64,
    /// Bytes of NVRAM read.
    pub nvram_bytes: u64,
    /// Records considered: pages, entries, and the newest deallocation of each LPN.
    pub records: u64,
    /// Open or closed superblocks with data.
    pub superblocks: u64,
    /// LPNs with a page.
    pub mapped: u64,
    /// LPNs whose newest witness could not be read: now media errors.
    pub lost: u64,
    /// Interrupted atomic commands.
    pub aborted: u64,
    /// Flash pages that a capacitor's energy programmed when power failed.
    pub saved_pages: u64,
}

/// The witnesses that recovery has read so far, and the resulting decisions.
pub(crate) struct Witnesses {
    /// Figures for the report.
    pub report: RecoveryReport,
    geometry: Geometry,
    when: Slab<u64>,
    live: Vec<bool>,
    newest: u64,
    aborted: Vec<u64>,
    pub(crate) aborted_seen: Vec<u64>,
    /// Superblocks with pages that carry an aborted number, and NVRAM words that do.
    pub(crate) aborted_pages: BTreeSet<SbId>,
    pub(crate) aborted_words: Vec<Range<usize>>,
    /// Sources of relocations, with the number of the relocation.
    pub(crate) relocated: Vec<(Lpn, u64)>,
    /// Life records with an unreadable word.
    pub(crate) damaged_lives: BTreeMap<SbId, LoadedLife>,
    /// Superblocks whose head cannot be read, and whose pages do not show their mode.
    pub(super) guessed: BTreeSet<SbId>,
    pub(crate) lost: Vec<Lpn>,
    /// Those of them that an earlier recovery has recorded, as long as its record stays.
    pub(crate) recorded: Vec<Lpn>,
    /// LPNs with an unreadable witness.
    doubts: Vec<UnreadableWitness>,
    /// LPNs with a page in the write buffer, with its number.
    buffered: BTreeMap<Lpn, u64>,
    /// Pages that were written for a home: a commit record determines which of them reached it.
    pub hinted: Vec<HintedPage>,
}

/// An unreadable witness, as far as it is known.
#[derive(Clone, Copy, Debug)]
struct UnreadableWitness {
    /// The LPNs it may belong to.
    first: Lpn,
    len: u32,
    /// Its sequence number is above `from` and at most `to`.
    from: u64,
    to: u64,
    kind: UnreadableKind,
}

/// What an unreadable witness does to its LPNs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnreadableKind {
    /// It may map them.
    Maps,
    /// The same, and an earlier recovery has recorded it under the number `to`.
    Recorded,
    /// It deallocates them.
    Deallocates,
}

/// A page that was written under one LPN and names another as its home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HintedPage {
    pub lpn: Lpn,
    pub wsn: u64,
    /// When the superblock was opened: of two copies the younger one counts.
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
            guessed: BTreeSet::new(),
            aborted_pages: BTreeSet::new(),
            aborted_words: Vec::new(),
            relocated: Vec::new(),
            damaged_lives: BTreeMap::new(),
            lost: Vec::new(),
            recorded: Vec::new(),
            doubts: Vec::new(),
            buffered: BTreeMap::new(),
            hinted: Vec::new(),
        }
    }

    /// Charges and reports a scan of `words` words of NVRAM.
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

    /// Returns true if a superblock holds data according to its life and its head.
    pub(crate) fn is_live(&self, sb: SbId) -> bool {
        self.live[sb.0 as usize]
    }

    /// Advances the lower bound of virtual time to `wsn`.
    #[inline]
    pub(crate) fn saw(&mut self, wsn: u64) {
        self.newest = self.newest.max(wsn);
    }

    /// Sets the numbers of aborted commands, which are not reused.
    pub(crate) fn aborted(&mut self, mut numbers: Vec<u64>) {
        numbers.iter().for_each(|number| self.saw(*number));
        numbers.sort_unstable();
        self.aborted = numbers;
    }

    /// Returns true if this is the number of an aborted command, and notes that the number still
    /// has a witness.
    #[inline]
    pub(crate) fn is_aborted(&mut self, wsn: u64) -> bool {
        if self.aborted.is_empty() || self.aborted.binary_search(&wsn).is_err() {
            return false;
        }
        if self.aborted_seen.last() != Some(&wsn) {
            self.aborted_seen.push(wsn);
        }
        true
    }

    /// Returns true if there is an aborted command.
    pub(crate) fn has_aborted(&self) -> bool {
        !self.aborted.is_empty()
    }

    /// A page with this number is in a superblock that is dead, but not erased.
    pub(crate) fn dead(&mut self, sb: SbId, wsn: u64) {
        if self.is_aborted(wsn) {
            self.aborted_pages.insert(sb);
        }
    }

    /// Dead superblocks that may have witnesses of any aborted command: all numbers stay.
    pub(crate) fn keep_aborted(&mut self, logs: BTreeSet<SbId>) {
        if !logs.is_empty() {
            self.aborted_seen.extend(&self.aborted);
            self.aborted_pages.extend(logs);
        }
    }

    /// Marks NVRAM words of an aborted command: recovery zeroes them before the scheme's `resume`.
    pub(crate) fn zero(&mut self, words: Range<usize>) {
        self.aborted_words.push(words);
    }

    /// Prefetches the cache lines for considering a witness of this LPN.
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

        // The reading order is irrelevant: the largest number wins.
        let wins = wsn > *when
            || (wsn == *when && is_younger(blocks, self.geometry, mapping, map.get(lpn)));
        if wins {
            *when = wsn;
            map.set(lpn, mapping);
        }
    }

    /// Considers a page whose OOB names this LPN.
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

        // The page stays until it is collected, so its superblock is noted.
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

    /// Considers the second LPN that a page's OOB names: another owner, or its home.
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

    /// Considers an intact entry that remaps this LPN to a page of a live superblock; the source of
    /// a relocation loses it. Returns false if the entry is of an aborted command: the scheme must
    /// not keep it, and must have its words zeroed (`zero`).
    pub(crate) fn remap(
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
        // A page with a larger number is a different one: the superblock has been erased and
        // refilled, and the entry belongs to the previous incarnation.
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

    /// Considers a deallocation of an LPN.
    #[inline]
    pub(crate) fn deallocation(&mut self, blocks: &Superblocks, map: &mut Map, lpn: Lpn, wsn: u64) {
        self.saw(wsn);
        self.report.records += 1;
        self.consider(blocks, map, lpn, wsn, None);
    }

    /// Considers a page in the write buffer. If it is the newest version of its LPN, no page on flash is.
    pub(crate) fn buffered(&mut self, map: &mut Map, lpn: Lpn, wsn: u64) {
        self.saw(wsn);
        self.report.records += 1;
        if wsn > self.when[lpn.index()] {
            self.when[lpn.index()] = wsn;
            map.set(lpn, None);
            self.buffered.insert(lpn, wsn);
        }
    }

    /// Returns true if the newest version of an LPN is the page in the write buffer with this number.
    pub(crate) fn is_buffered(&self, lpn: Lpn, wsn: u64) -> bool {
        self.buffered.get(&lpn) == Some(&wsn) && self.when[lpn.index()] == wsn
    }

    /// Returns true if an LPN has a page, on flash or in the write buffer.
    fn exists(&self, map: &Map, lpn: Lpn) -> bool {
        map.get(lpn).is_some() || self.is_buffered(lpn, self.when[lpn.index()])
    }

    /// Returns true if an entry for this page with this number would be valid.
    pub(crate) fn counts(&self, media: &Media, ppn: Ppn, wsn: u64) -> bool {
        let page_is_older = media.is_programmed(ppn) && media.oob(ppn).wsn() <= wsn;
        self.is_live(media.geometry().superblock(ppn))
            && page_is_older
            && self.aborted.binary_search(&wsn).is_err()
    }

    /// Returns true if this is the number of an interrupted command.
    pub(crate) fn is_aborted_number(&self, wsn: u64) -> bool {
        self.aborted.binary_search(&wsn).is_ok()
    }

    /// Returns true if the number of an LPN's newest witness lies strictly between two others.
    pub(crate) fn is_between(&self, lpn: Lpn, after: u64, before: u64) -> bool {
        (after + 1..before).contains(&self.when[lpn.index()])
    }

    /// Notes an incompletely readable entry for this LPN. Its number is at most `newest`: any other
    /// witness of the LPN may be outdated, unless its number is as large.
    pub(crate) fn doubt(&mut self, lpn: Lpn, newest: u64) {
        self.doubt_all(lpn, 1, newest);
    }

    /// The same for `len` LPNs.
    pub(crate) fn doubt_all(&mut self, first: Lpn, len: u32, newest: u64) {
        self.doubt_of(UnreadableKind::Maps, first, len, newest);
    }

    /// Notes LPNs that an earlier recovery has recorded as in doubt with this number.
    pub(crate) fn doubt_recorded(&mut self, first: Lpn, len: u32, wsn: u64) {
        self.saw(wsn);
        self.doubt_of(UnreadableKind::Recorded, first, len, wsn);
    }

    fn doubt_of(&mut self, kind: UnreadableKind, first: Lpn, len: u32, newest: u64) {
        self.doubts.push(UnreadableWitness {
            first,
            len,
            from: 0,
            to: newest,
            kind,
        });
    }

    /// Notes a deallocation of these LPNs of whose number only bounds are known.
    pub(crate) fn doubt_deallocation(&mut self, first: Lpn, len: u32, from: u64, to: u64) {
        self.doubts.push(UnreadableWitness {
            first,
            len,
            from,
            to,
            kind: UnreadableKind::Deallocates,
        });
    }

    /// Returns true if a deallocation with this number, of unknown LPNs, may concern a mapped LPN.
    pub(crate) fn may_have_been_mapped(&self, config: &Config, map: &Map, wsn: u64) -> bool {
        Lpn::range(Lpn::ZERO, config.lpns).any(|lpn| {
            // A younger bitmap shows that the LPN was mapped at that time.
            let bitmap = self.when[config.bitmap_lpn(chunk_of(lpn)).index()];
            self.exists(map, lpn) && self.when[lpn.index()] < wsn && bitmap < wsn
        })
    }

    /// Returns true if an unreadable bitmap with this number may concern a mapped LPN.
    pub(crate) fn may_be_in(&self, config: &Config, map: &Map, chunk: u32, wsn: u64) -> bool {
        config
            .chunk(chunk)
            .any(|lpn| self.exists(map, lpn) && self.when[lpn.index()] < wsn)
    }

    /// Determines the LPNs in doubt, once all witnesses are known: those whose newest witness is
    /// older than an unreadable one. A deallocation that is certainly newer than every other
    /// witness of an LPN raises no doubt: it is recorded again.
    pub(crate) fn resolve_doubts(&mut self, config: &Config, map: &mut Map) {
        for doubt in std::mem::take(&mut self.doubts) {
            // The witness may belong to an aborted command.
            let may_be_aborted = self
                .aborted
                .iter()
                .any(|number| (doubt.from..=doubt.to).contains(number));

            let end = doubt.first.0.saturating_add(doubt.len).min(config.lpns);
            for lpn in Lpn::between(doubt.first..Lpn(end)) {
                let when = self.when[lpn.index()];
                let exists = self.exists(map, lpn);
                if doubt.kind != UnreadableKind::Deallocates {
                    if when < doubt.to {
                        self.lost.push(lpn);
                        self.buffered.remove(&lpn);
                        if doubt.kind == UnreadableKind::Recorded {
                            self.recorded.push(lpn);
                        }
                    }
                } else if exists && when <= doubt.from && !may_be_aborted {
                    map.set(lpn, None);
                    self.buffered.remove(&lpn);
                    self.relocated.push((lpn, when));
                } else if exists && when < doubt.to {
                    self.lost.push(lpn);
                    self.buffered.remove(&lpn);
                }
            }
        }
    }

    /// Keeps the relocated sources whose witness is still in force.
    pub(crate) fn resolve_relocated(&mut self, map: &Map) {
        let when = &self.when;
        self.relocated
            .retain(|(lpn, wsn)| when[lpn.index()] == *wsn && map.get(*lpn).is_none());
    }
}

/// Of two witnesses of one write, the one in the superblock that was opened later wins. While both
/// exist they are equal (a victim is dead before its first block is erased), so this only makes the
/// choice deterministic.
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

/// Returns true if superblocks in this state hold data.
pub(crate) fn holds_data(state: SuperblockState) -> bool {
    matches!(state, SuperblockState::Open | SuperblockState::Closed)
}
