//! Segments after a power cut: whose each of them is, in which order, and what was unreadable.
//!
//! Invariants: a segment that no superblock owns is zero before it is free; an unreadable head or
//! slot is stored anew only when the LPNs that it concerns are marked in doubt. Absent: what the
//! slots say (the schemes).

use super::head::{SegmentHead, SegmentLink};
use super::{SEQUENCE_END, SegmentChain, Segments};
use crate::guard::Guard;
use crate::scheme::entry::EntryPlace;
use crate::superblock::Superblocks;
use crate::witnesses::Witnesses;
use remap_ssd_media::{After, ClearId, Media, Purpose, SbId};

enum SegmentOwner {
    /// A superblock's, with its segment number (unless unreadable) and its time of allocation.
    Of(SbId, Option<u32>, u64),
    /// Free, or of an earlier incarnation.
    Nobody,
    /// In use, but the owner is unreadable.
    Unknown,
}

/// A segment as recovery read it.
struct ScannedSegment {
    sequence: Option<u32>,
    segment: u32,
    /// WSN at which it was allocated.
    wsn: u64,
}

impl Segments {
    /// Examines all segments (FAST'21 §4.5): the chains by superblock. What is not in one is zeroed
    /// where it must be.
    pub fn read_back(
        &mut self,
        media: &mut Media,
        blocks: &Superblocks,
        witnesses: &mut Witnesses,
    ) -> Vec<SegmentChain> {
        witnesses.charge_scan(media, self.count() * self.segment_words);

        let mut found: Vec<Vec<ScannedSegment>> = Vec::new();
        found.resize_with(media.geometry().superblocks() as usize, Vec::new);
        self.free.clear();

        for segment in 0..self.count {
            match self.owner_of(media, blocks, witnesses, segment) {
                SegmentOwner::Of(sb, sequence, wsn) => {
                    found[sb.0 as usize].push(ScannedSegment {
                        sequence,
                        segment,
                        wsn,
                    });
                    continue;
                }
                SegmentOwner::Unknown => {
                    self.orphans.push(segment);
                    continue;
                }
                SegmentOwner::Nobody => {}
            }

            // Old entries in a free segment would come alive with its next owner.
            let at = self.word(segment);
            let zero = (at..at + self.segment_words).all(|word| media.load(word) == Ok(0));
            let clear = if zero || !self.guards.has(Guard::SegmentZeroed) {
                ClearId::default()
            } else {
                media.clear(at, self.segment_words, After::NOTHING)
            };
            self.free.push_back((segment, clear));
        }

        found
            .into_iter()
            .map(|segments| self.chain(media, segments))
            .collect()
    }

    /// The words of all slots of the segments with an unknown owner.
    pub fn orphaned_places(&self) -> impl Iterator<Item = usize> + use<> {
        let slots: Vec<usize> = self
            .orphans
            .iter()
            .flat_map(|segment| self.all_places(*segment))
            .collect();
        slots.into_iter()
    }

    fn all_places(&self, segment: u32) -> impl Iterator<Item = usize> {
        (0..self.slots).map(move |slot| self.slot_word(segment, slot))
    }

    /// Upper bound of the entry numbers in a segment of a chain: the number at which the next
    /// segment was allocated.
    pub fn newest_in(&self, media: &mut Media, chain: &SegmentChain, index: usize) -> u64 {
        let next = chain
            .segments
            .get(index + 1)
            .and_then(|next| media.load(self.word(*next)).ok());
        next.map_or(u64::MAX, |word| SegmentHead::from_bits(word).wsn())
    }

    /// Stores the unreadable words anew; `damaged` are those of slots. The pages that mark the LPNs
    /// in doubt are programmed, or under way.
    pub fn heal(&mut self, media: &mut Media, damaged: Vec<usize>) {
        for (word, link) in std::mem::take(&mut self.links) {
            media.store(word, link.into(), Purpose::Meta, After::NOTHING);
        }

        for at in damaged {
            media.store_record(
                at,
                &vec![0; self.slot_words],
                Purpose::Meta,
                self.guards.after_doubts(),
            );
        }

        // Their LPNs are in doubt, and marked by now.
        let orphans = std::mem::take(&mut self.orphans);
        self.release(media, &orphans);
    }

    fn chain(&mut self, media: &mut Media, found: Vec<ScannedSegment>) -> SegmentChain {
        let mut segments = self.numbered(media, found);
        segments.sort_unstable();
        let Some(&(sequence, last)) = segments.last() else {
            return SegmentChain::default();
        };

        let mut is_used = |slot: u32| {
            let at = self.slot_word(last, slot);
            (at..at + self.slot_words).any(|word| media.load(word) != Ok(0))
        };

        // Behind the last word that is not zero, torn slots included: no slot is stored twice
        // between two zeroings.
        let used = (0..self.slots)
            .rev()
            .find(|slot| is_used(*slot))
            .map_or(0, |slot| slot + 1);

        let segments = segments.into_iter().map(|(_, segment)| segment).collect();
        SegmentChain {
            segments,
            used,
            end: self.slot_word(last, used),
            sequence: sequence + 1,
            clear: ClearId::default(),
        }
    }

    /// The number of each segment of a chain. An unreadable one is found by the segment that links
    /// to it, or by the gap in the sequence, or is the first.
    fn numbered(&mut self, media: &mut Media, found: Vec<ScannedSegment>) -> Vec<(u32, u32)> {
        let known: Vec<(u32, u32)> = found
            .iter()
            .filter_map(|at| Some((at.sequence?, at.segment)))
            .collect();
        let Some(lost) = found.iter().find(|at| at.sequence.is_none()) else {
            return known;
        };

        let links_here = |&(_, segment): &(u32, u32)| {
            let link = media
                .load(self.word(segment) + 1)
                .map(SegmentLink::from_bits);
            link.is_ok_and(|link| link.next() == lost.segment + 1)
        };

        // The link of the segment before is the best evidence, then a gap. Both may be missing: the
        // link is late, and the segment may be at an end.
        let before = known
            .iter()
            .copied()
            .find(links_here)
            .map(|(sequence, _)| sequence);
        let gap = known.iter().map(|(sequence, _)| sequence + 1).find(|next| {
            known.iter().any(|at| at.0 > *next) && known.iter().all(|at| at.0 != *next)
        });
        let first = known.iter().min().map_or(0, |(sequence, _)| *sequence);

        // What was stored in a segment is not newer than the next one's head. Heads alone do not
        // tell where several were taken at one time, to rewrite a group.
        let mut others = found.iter().filter(|at| at.segment != lost.segment);
        let is_last =
            others.all(|at| at.wsn <= lost.wsn && self.newest_slot(media, at.segment) <= lost.wsn);

        let sequence = match (before, gap) {
            (Some(before), _) => before + 1,
            (None, Some(gap)) => gap,
            (None, None) if first > 0 && !is_last => first - 1,
            (None, None) => known.iter().max().map_or(0, |(sequence, _)| sequence + 1),
        };

        let behind = known.iter().find(|(number, _)| *number == sequence + 1);
        let link =
            SegmentLink::of(sequence).with_next(behind.map_or(0, |(_, segment)| segment + 1));
        self.links.push((self.word(lost.segment) + 1, link));

        known
            .into_iter()
            .chain([(sequence, lost.segment)])
            .collect()
    }

    /// The largest number in a segment's slots, which all begin as Table 2's entry does.
    fn newest_slot(&self, media: &mut Media, segment: u32) -> u64 {
        let places = self.all_places(segment);
        let numbers = places
            .filter_map(|at| media.load(at).ok())
            .map(EntryPlace::from_bits);
        numbers
            .filter(EntryPlace::torn)
            .map(|first| first.wsn())
            .max()
            .unwrap_or(0)
    }

    /// Who owns the segment? Slots are stored after the whole head: a segment without any is free.
    fn owner_of(
        &self,
        media: &mut Media,
        blocks: &Superblocks,
        witnesses: &mut Witnesses,
        segment: u32,
    ) -> SegmentOwner {
        let at = self.word(segment);
        let head = media.load(at).map(SegmentHead::from_bits);
        let link = media.load(at + 1).map(SegmentLink::from_bits);

        let torn_bits = self.guards.has(Guard::TornBits);
        let is_torn = head.is_ok_and(|head| !head.torn()) || link.is_ok_and(|link| !link.torn());
        if torn_bits && is_torn
            || head.is_ok_and(|head| head.into_bits() == 0)
            || link.is_ok_and(|link| link.into_bits() == 0)
        {
            return SegmentOwner::Nobody;
        }

        if head.is_err() || link.is_err() {
            let mut words = at + self.slot_words.max(2)..at + self.segment_words;
            if words.all(|word| media.load(word) == Ok(0)) {
                return SegmentOwner::Nobody;
            }
        }

        let Ok(head) = head else {
            return SegmentOwner::Unknown;
        };
        witnesses.saw(head.wsn());

        let sb = SbId(head.superblock());
        // Numbers that cannot be are another device's, or of an earlier life of these words.
        let is_sane = sb.0 < media.geometry().superblocks()
            && link.is_ok_and(|link| link.sequence() < SEQUENCE_END) | link.is_err();
        if !is_sane || !witnesses.is_live(sb) {
            return SegmentOwner::Nobody;
        }

        // A head's WSN is newer than every segment of the incarnations before.
        let stale = head.wsn() < blocks.get(sb).opened;
        if stale && self.guards.has(Guard::StaleSegments) {
            return SegmentOwner::Nobody;
        }

        SegmentOwner::Of(sb, link.ok().map(|link| link.sequence()), head.wsn())
    }
}
