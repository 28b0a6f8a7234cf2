//! Rewriting a group's valid entries, recovery of the groups, and their check.
//!
//! Absent: which group is rewritten, and when (`segments::groups`).

use super::{EntryOwners, RemapSsd, RmmEntry, entry_after};
use crate::clock::WsnClock;
use crate::config::guard::Guard;
use crate::contract::Remapping;
use crate::core::Core;
use crate::error::Contradiction;
use crate::error::RecoveryError;
use crate::mapping::tables::Tables;
use crate::recovery::witnesses::Witnesses;
use crate::scheme::entry::CommandWord;
use crate::scheme::in_force::find_doubtful;
use crate::scheme::loaded::LoadedEntry;
use crate::scheme::segments::groups::{GroupedEntries, SegmentGroups};
use crate::scheme::segments::{SegmentChain, Segments};
use crate::superblock::Superblocks;
use remap_ssd_media::{Media, Ppn, Purpose, SbId};

/// Prefetch distance for L2P lookups, in entries.
const AHEAD: usize = 24;

/// Prefetch distance in segments.
const SEGMENTS_AHEAD: usize = 3;

impl GroupedEntries for RemapSsd {
    const SLOTS_MAX: u32 = 1;
    const PAGES_MAX: u32 = 1;

    #[inline]
    fn groups(&self) -> &SegmentGroups {
        &self.groups
    }

    #[inline]
    fn groups_mut(&mut self) -> &mut SegmentGroups {
        &mut self.groups
    }

    #[inline]
    fn valid(&self, blocks: &Superblocks) -> u64 {
        blocks.remapped_total()
    }

    fn fits(&self, blocks: &Superblocks, sb: SbId) -> bool {
        let segments = &self.groups.segments;
        let free = segments.free() as u64 * u64::from(segments.slots);
        u64::from(blocks.owners(sb).remapped) <= free
    }

    fn rewrite(&mut self, core: &mut Core, sb: SbId) -> bool {
        let (mut gone, mut kept) = (
            std::mem::take(&mut self.gone),
            std::mem::take(&mut self.kept),
        );
        kept.clear();
        let is_known = self.find_gone(&core.tables, &core.blocks, &core.media, sb, &mut gone);
        if !is_known {
            self.find_valid(
                &mut core.tables,
                &mut core.media,
                &mut core.clock,
                sb,
                &mut kept,
            );
        }

        // Sequence numbers continue, so that recovery can distinguish the new segments from old
        // ones that are not zeroed yet.
        let old = self.groups.remove(sb);
        let mut chain = old.continued();
        let (segments, media, now) = (&mut self.groups.segments, &mut core.media, core.clock.now());
        if is_known {
            append_all_but(segments, media, now, &mut chain, sb, &old, &gone);
        } else {
            kept.iter()
                .rev()
                .for_each(|words| append_moved(segments, media, now, &mut chain, sb, *words));
        }

        (self.gone, self.kept) = (gone, kept);
        let moved = self.groups.segments.used(&chain).into();
        self.groups.replace(core, sb, &old, chain, moved);
        true
    }
}

impl RemapSsd {
    /// The places of a group's entries that are not in force, in group order. Returns false if some
    /// mapping has two entries that look valid, or if NVRAM must be read word by word. Only entries
    /// whose remap may have ended are looked up in L2P.
    fn find_gone(
        &self,
        tables: &Tables,
        blocks: &Superblocks,
        media: &Media,
        sb: SbId,
        gone: &mut Vec<u32>,
    ) -> bool {
        let Some(words) = media.words() else {
            return false;
        };
        match self.groups.segments.slot_words {
            2 => self.find_suspects::<2>(tables, media, sb, words, gone),
            _ => self.find_suspects::<3>(tables, media, sb, words, gone),
        }

        // About half of them are in force, which is unpredictable: without branches their lookups
        // overlap.
        let base = tables.geometry.page(sb, 0).0;
        let mut len = 0;
        for index in 0..gone.len() {
            let at = gone[index];
            let entry = RmmEntry::from_words(words[at as usize], words[at as usize + 1]);
            let is_kept =
                tables.is_in_force(entry.target(), Ppn(base + entry.offset()), entry.wsn())
                    & entry.is_intact();
            gone[len] = at;
            len += usize::from(!is_kept);
        }
        gone.truncate(len);

        // The remaining entries are as many as LPNs are remapped here: so each is the only one of
        // its mapping.
        self.groups.used_in(sb) - gone.len() as u32 == blocks.owners(sb).remapped
    }

    /// The places of the entries that may be invalid, in group order. Prefetches their L2P entries,
    /// and the segments ahead.
    fn find_suspects<const W: usize>(
        &self,
        tables: &Tables,
        media: &Media,
        sb: SbId,
        words: &[u64],
        found: &mut Vec<u32>,
    ) {
        let ended = tables.ended.of(sb);
        let (segments, chain) = (&self.groups.segments, self.groups.chain(sb));
        found.clear();

        for index in 0..chain.segments.len() {
            let range = segments.range(chain, index);
            segments.prefetch(media, chain, index + SEGMENTS_AHEAD);
            let entries = words[range.clone()].as_chunks::<W>().0;
            let (lpn_of, place_of) = (
                |entry: &[u64; W]| EntryOwners::from_bits(entry[1]).target(),
                |index: usize| (range.start + index * W) as u32,
            );
            find_doubtful(&tables.map, ended, entries, lpn_of, place_of, found);
        }
    }

    /// A group's valid entries as stored, newest first. An LPN is hidden once found, so that older
    /// entries of the same mapping count as invalid.
    fn find_valid(
        &mut self,
        tables: &mut Tables,
        media: &mut Media,
        clock: &mut WsnClock,
        sb: SbId,
        kept: &mut Vec<[u64; 2]>,
    ) {
        let base = tables.geometry.page(sb, 0);
        let mut all = std::mem::take(&mut self.scratch);
        all.clear();
        self.read_group(tables, media, clock, sb, &mut all);

        for (index, entry) in all.iter().enumerate().rev() {
            if let Some(next) = index.checked_sub(AHEAD).and_then(|next| all.get(next)) {
                tables.map.prefetch(next.target());
            }
            if tables.is_in_force(entry.target(), Ppn(base.0 + entry.offset()), entry.wsn()) {
                tables.map.hide_remapped(entry.target());
                kept.push(entry.words());
            }
        }

        self.scratch = all;
        kept.iter().for_each(|[_, second]| {
            tables
                .map
                .mark_remapped(EntryOwners::from_bits(*second).target())
        });
    }

    /// Appends a group's entries, oldest first.
    pub(super) fn read_group(
        &mut self,
        tables: &Tables,
        media: &mut Media,
        clock: &mut WsnClock,
        sb: SbId,
        out: &mut Vec<RmmEntry>,
    ) {
        let (segments, chain) = (&self.groups.segments, self.groups.chain(sb));
        let pages = tables.geometry.pages_per_superblock();
        let mut lost = false;
        for index in 0..chain.segments.len() {
            segments.prefetch(media, chain, index + 2);
            let range = segments.range(chain, index);
            let mut keep = |first: u64, second: u64| {
                let entry = RmmEntry::from_words(first, second);
                if entry.is_intact() && entry.offset() < pages {
                    out.push(entry);
                }
            };

            // Intact NVRAM is one slice. Reading word by word is for media with faults, where each
            // load may fail.
            if let Some(words) = media.words() {
                words[range]
                    .chunks_exact(segments.slot_words)
                    .for_each(|entry| keep(entry[0], entry[1]));
                continue;
            }

            for at in range.step_by(segments.slot_words) {
                match (media.load(at), media.load(at + 1)) {
                    (Ok(first), Ok(second)) => keep(first, second),
                    _ => lost = true,
                }
            }
        }

        if lost {
            append_in_force(tables, clock, sb, out);
        }
    }

    /// Step 3 of recovery (FAST'21 §4.5): examines all segments.
    pub(super) fn read_back(
        &mut self,
        core: &mut Core,
        witnesses: &mut Witnesses,
    ) -> Result<(), RecoveryError> {
        let chains = self
            .groups
            .segments
            .read_back(&mut core.media, &core.blocks, witnesses);
        for (index, chain) in chains.into_iter().enumerate() {
            let sb = SbId(index as u32);
            for segment in 0..chain.segments.len() {
                let segments = &self.groups.segments;
                let newest = segments.newest_in(&mut core.media, &chain, segment);
                for at in segments.places(&chain, segment) {
                    self.replay_entry(core, witnesses, sb, at, newest)?;
                }
            }
            let entries = self.groups.segments.used(&chain).into();
            self.groups.put(sb, chain, entries);
        }

        // A segment with an unknown owner still provides the LPNs and numbers of its entries.
        for at in self.groups.segments.orphaned_places() {
            match self.load(&mut core.media, at) {
                LoadedEntry::Nothing { .. } => {}
                LoadedEntry::Whole(entry) => witnesses.doubt(entry.target(), entry.wsn()),
                LoadedEntry::Damaged(entry) if entry.doubt(witnesses, u64::MAX) => {}
                LoadedEntry::Damaged(_) => {
                    return Err(RecoveryError::NvramDamaged { word: at + 1 });
                }
            }
        }

        Ok(())
    }

    fn load(&self, media: &mut Media, at: usize) -> LoadedEntry {
        let torn_bits = self.groups.segments.guards.has(Guard::TornBits);
        LoadedEntry::load(media, at, self.groups.segments.slot_words, torn_bits)
    }

    /// Reports an entry as a witness, or the LPNs in doubt if it is unreadable. Its number is at
    /// most `newest`.
    fn replay_entry(
        &mut self,
        core: &mut Core,
        witnesses: &mut Witnesses,
        sb: SbId,
        at: usize,
        newest: u64,
    ) -> Result<(), RecoveryError> {
        let pages = core.geometry.pages_per_superblock();
        let page_of = |offset: u32| (offset < pages).then(|| core.geometry.page(sb, offset));

        match self.load(&mut core.media, at) {
            LoadedEntry::Nothing { is_damaged } => {
                self.groups.damaged.extend(is_damaged.then_some(at))
            }

            LoadedEntry::Whole(entry) => {
                let (lpn, wsn, source) = (entry.target(), entry.wsn(), entry.relocated_source());
                if let Some(ppn) = page_of(entry.offset())
                    && !witnesses.remap(core, lpn, ppn, wsn, source)
                {
                    witnesses.zero(at..at + self.groups.segments.slot_words);
                }
            }

            LoadedEntry::Damaged(entry) => {
                self.groups.damaged.push(at);
                // Its first word may show that it is not valid. Otherwise the other words give the
                // LPNs, or none is known.
                let may_count = entry.place.is_none_or(|place| {
                    page_of(place.offset())
                        .is_some_and(|ppn| witnesses.counts(&core.media, ppn, place.wsn()))
                });
                if may_count && !entry.doubt(witnesses, newest) {
                    return Err(RecoveryError::NvramDamaged { word: at + 1 });
                }
            }
        }
        Ok(())
    }

    /// Checks that every entry that reclaiming would not look up is in force.
    pub(super) fn check_ended(
        &self,
        tables: &Tables,
        blocks: &Superblocks,
        media: &Media,
    ) -> Result<(), Contradiction> {
        for (sb, _) in blocks.iter_owners() {
            let Some(words) = media.words() else {
                break;
            };
            let (base, ended) = (tables.geometry.page(sb, 0).0, tables.ended.of(sb));
            for at in self.groups.places(sb) {
                let entry = RmmEntry::from_words(words[at], words[at + 1]);
                let in_force = tables
                    .map
                    .is_remapped_at(entry.target(), Ppn(base + entry.offset()));
                if !in_force && !ended.may_have_ended(entry.target()) {
                    return Err(Contradiction(format!(
                        "{sb:?} has an entry for LPN {} that ended unnoticed",
                        entry.target()
                    )));
                }
            }
        }

        Ok(())
    }
}

/// Appends all entries of a group except those at `gone`, which is in group order. The caller
/// charges them.
fn append_all_but(
    segments: &mut Segments,
    media: &mut Media,
    now: u64,
    chain: &mut SegmentChain,
    sb: SbId,
    old: &SegmentChain,
    gone: &[u32],
) {
    let (guards, geometry) = (segments.guards, media.geometry());
    let entry_after = |clear, words: &[u64; 2]| {
        let entry = RmmEntry::from_words(words[0], words[1]);
        entry_after(guards, clear, geometry.page(sb, entry.offset()))
    };

    let mut gone = gone.iter().map(|at| *at as usize);
    let mut next = gone.next();
    for index in 0..old.segments.len() {
        let mut run = segments.range(old, index);
        segments.prefetch(media, old, index + 2);
        segments.prefetch_free(media, 1);

        // Runs between removed entries are moved as a whole. For the last run `stop` is outside
        // this segment.
        loop {
            let stop = next.filter(|at| run.contains(at));
            let rest = run.start..stop.unwrap_or(run.end);
            if segments.slot_words == 2 {
                segments.move_run(media, now, chain, sb, rest, entry_after)
            } else {
                rest.step_by(segments.slot_words).for_each(|at| {
                    let words = [media.peek(at), media.peek(at + 1)];
                    append_moved(segments, media, now, chain, sb, words);
                })
            }
            let Some(at) = stop else { break };
            run.start = at + segments.slot_words;
            next = gone.next();
        }
    }
}

/// Appends an entry that moves within its group, unchanged. The caller charges it.
fn append_moved(
    segments: &mut Segments,
    media: &mut Media,
    now: u64,
    chain: &mut SegmentChain,
    sb: SbId,
    words: [u64; 2],
) {
    let at = segments.take(media, now, chain, sb, 1, Purpose::Gc);
    let entry = RmmEntry::from_words(words[0], words[1]);

    // Detached from its command: that was committed long ago, or the entry would have been
    // dropped. The other LPNs of the command may be remapped by others now.
    let all = [
        words[0],
        words[1],
        CommandWord::alone(entry.target()).into(),
    ];

    let after = entry_after(
        segments.guards,
        chain.clear,
        media.geometry().page(sb, entry.offset()),
    );
    media.store_uncharged(at, &all[..segments.slot_words], Purpose::Gc, after);
}

/// After an unreadable entry: appends one for each remapped LPN of the superblock, according to
/// L2P. All get new numbers, even those with a readable entry: of two equal entries with a write of
/// the LPN in between, the readable one may be the older.
#[cold]
pub(in crate::scheme) fn append_in_force(
    tables: &Tables,
    clock: &mut WsnClock,
    sb: SbId,
    out: &mut Vec<RmmEntry>,
) {
    for (lpn, offset) in tables.remapped_in(sb) {
        let (wsn, ppn) = (clock.tick(), tables.geometry.page(sb, offset));

        out.push(RmmEntry::of(
            &Remapping {
                lpn,
                ppn,
                wsn,
                source: None,
                atomic: None,
            },
            offset,
        ));
    }
}
