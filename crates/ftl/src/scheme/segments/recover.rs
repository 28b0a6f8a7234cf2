//! Segments after a power cut: their owners, their order, and unreadable words.
//!
//! Invariants: a segment without an owner is zeroed before it is free; an unreadable head or slot
//! is rewritten only when the LPNs it concerns are marked in doubt. Absent: the contents of slots
//! (the schemes).

use super::head::{SegmentHead, SegmentLink};
use super::{SEQUENCE_END, SegmentChain, Segments};
use crate::config::guard::Guard;
use crate::recovery::witnesses::Witnesses;
use crate::scheme::entry::EntryPlace;
use crate::superblock::Superblocks;
use remap_ssd_media::{After, ClearId, Media, Purpose, SbId};

enum SegmentOwner {
    /// Owned by a superblock, with its sequence number (unless unreadable) and the WSN of its
    /// allocation.
    Of(SbId, Option<u32>, u64),
    /// Free, or of an earlier incarnation.
    Nobody,
    /// In use, but its owner is unreadable.
    Unknown,
}

/// A segment as read by recovery.
struct ScannedSegment {
    sequence: Option<u32>,
    segment: u32,
    /// WSN of its allocation.
    wsn: u64,
}

/// A segment with its position in a chain.
struct PlacedSegment {
    sequence: u32,
    segment: u32,
    /// WSN of its allocation.
    wsn: u64,
    /// The largest WSN in it.
    newest: u64,
}

impl PlacedSegment {
    /// Entries in a segment are not newer than the next one's head. Heads alone do not determine
    /// the order if several segments were allocated at once, to rewrite a group.
    fn may_precede(&self, next: &Self) -> bool {
        self.wsn <= next.wsn && self.newest <= next.wsn
    }
}

impl Segments {
    /// Examines all segments (FAST'21 §4.5) and returns the chains by superblock. Zeroes segments
    /// that are in no chain if necessary.
    pub(crate) fn read_back(
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

            // Old entries in a free segment would become valid with its next owner.
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
    pub(crate) fn orphaned_places(&self) -> impl Iterator<Item = usize> + use<> {
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

    /// Upper bound of the WSNs in a segment of a chain: the WSN of the next segment's allocation.
    pub(crate) fn newest_in(&self, media: &mut Media, chain: &SegmentChain, index: usize) -> u64 {
        let next = chain
            .segments
            .get(index + 1)
            .and_then(|next| media.load(self.word(*next)).ok());
        next.map_or(u64::MAX, |word| SegmentHead::from_bits(word).wsn())
    }

    /// Rewrites the unreadable words; `damaged` are those of slots. The pages that mark the LPNs in
    /// doubt have been issued.
    pub(crate) fn heal(&mut self, media: &mut Media, damaged: Vec<usize>) {
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

        // After the last word that is not zero, including torn slots: no slot is stored twice
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

    /// The sequence number of each segment of a chain. Unreadable ones are derived from the others.
    /// A segment without a derivable position is left out, and the LPNs in its entries are in
    /// doubt.
    fn numbered(&mut self, media: &mut Media, found: Vec<ScannedSegment>) -> Vec<(u32, u32)> {
        let (known, mut lost): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|at| at.sequence.is_some());
        let number_of = |at: &ScannedSegment| Some((at.sequence?, at.segment));
        if lost.is_empty() {
            return known.iter().filter_map(number_of).collect();
        }

        let mut placed: Vec<PlacedSegment> = known
            .iter()
            .filter_map(|at| Some(self.place(media, at, at.sequence?)))
            .collect();
        let before = placed.len();

        // Oldest first: later segments are then placed after it.
        lost.sort_by_key(|at| at.wsn);
        for at in &lost {
            let candidate = self.place(media, at, 0);
            match self.number_among(media, &placed, &candidate) {
                Some(sequence) => placed.push(PlacedSegment {
                    sequence,
                    ..candidate
                }),
                None => self.orphans.push(at.segment),
            }
        }

        for at in &placed[before..] {
            let next = placed
                .iter()
                .find(|next| next.sequence == at.sequence + 1)
                .map_or(0, |next| next.segment + 1);
            let link = SegmentLink::of(at.sequence).with_next(next);
            self.links.push((self.word(at.segment) + 1, link));
        }
        placed.iter().map(|at| (at.sequence, at.segment)).collect()
    }

    /// The sequence number of a segment among those with known numbers: from a link, in a gap of
    /// the sequence, or at one of its ends. `None` if the contents of the segments contradict all
    /// of these.
    fn number_among(
        &self,
        media: &mut Media,
        placed: &[PlacedSegment],
        lost: &PlacedSegment,
    ) -> Option<u32> {
        let Some(first) = placed.iter().map(|at| at.sequence).min() else {
            return Some(0);
        };

        // The previous segment's link is the best evidence, then a gap. Both may be missing: the
        // link is written late, and the segment may be at an end.
        let links_here = |at: &&PlacedSegment| {
            let link = media
                .load(self.word(at.segment) + 1)
                .map(SegmentLink::from_bits);
            link.is_ok_and(|link| link.next() == lost.segment + 1)
        };
        let linked = placed.iter().find(links_here).map(|at| at.sequence + 1);

        let mut behind: Vec<u32> = placed.iter().map(|at| at.sequence + 1).collect();
        behind.sort_unstable();
        let candidates = linked.into_iter().chain(behind).chain(first.checked_sub(1));

        let mut free = candidates
            .filter(|number| *number < SEQUENCE_END)
            .filter(|number| placed.iter().all(|at| at.sequence != *number));
        free.find(|number| {
            placed.iter().all(|at| {
                if at.sequence < *number {
                    at.may_precede(lost)
                } else {
                    lost.may_precede(at)
                }
            })
        })
    }

    fn place(&self, media: &mut Media, at: &ScannedSegment, sequence: u32) -> PlacedSegment {
        PlacedSegment {
            sequence,
            segment: at.segment,
            wsn: at.wsn,
            newest: self.newest_slot(media, at.segment),
        }
    }

    /// The largest WSN in a segment's slots, which all begin like Table 2's entry. No bound if one
    /// of them is unreadable.
    fn newest_slot(&self, media: &mut Media, segment: u32) -> u64 {
        let numbers = self.all_places(segment).map(|at| {
            let first = media.load(at).map(EntryPlace::from_bits);
            first.map_or(u64::MAX, |first| if first.torn() { first.wsn() } else { 0 })
        });
        numbers.max().unwrap_or(0)
    }

    /// The owner of a segment. Slots are stored after the whole head, so a segment without slots is
    /// free.
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
        // Impossible numbers belong to another device, or to an earlier use of these words.
        let is_sane = sb.0 < media.geometry().superblocks()
            && link.is_ok_and(|link| link.sequence() < SEQUENCE_END) | link.is_err();
        if !is_sane || !witnesses.is_live(sb) {
            return SegmentOwner::Nobody;
        }

        // A superblock head's WSN is newer than every segment of earlier incarnations.
        let stale = head.wsn() < blocks.get(sb).opened;
        if stale && self.guards.has(Guard::StaleSegments) {
            return SegmentOwner::Nobody;
        }

        SegmentOwner::Of(sb, link.ok().map(|link| link.sequence()), head.wsn())
    }
}
