//! What a power cut can leave of a recorded disk with a volatile write cache, as NVMe allows it.
//!
//! At a cut each block keeps, on its own, any version since its last durable one, those in between
//! too. Flush makes durable what was completed before it was submitted; a write with FUA makes
//! itself durable, nothing else; that a request is completed implies no order. Writes of zeroes and
//! deallocations are versions like any other. Invariants: what the newest durable version has
//! replaced never comes back; a choice means the same disk each time. Absent: which cuts are worth
//! trying (`campaign`).

use crate::contents::{ContentId, ZEROES};
use crate::record::{Event, Recording};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::{BTreeMap, BTreeSet};

/// A version of a block that is not durable yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// The request that made it: an index of `Recording::events`.
    pub event: u32,
    /// Content that the block has.
    pub content: ContentId,
}

/// All that a disk may hold at an instant.
#[derive(Clone)]
pub struct DiskState {
    /// The last durable version of each block.
    pub durable: Vec<ContentId>,
    /// Versions since then, oldest first; blocks that have none are left out.
    pub pending: BTreeMap<u64, Vec<Version>>,
}

/// A block that does not keep its newest version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lost {
    /// Number of the block on the disk.
    pub block: u64,
    /// How many versions are lost, counted from the newest; as many as there are: it keeps the
    /// durable one.
    pub versions: u32,
}

/// Which version each block keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Drawn at random from this number.
    Drawn(u64),
    /// The newest version, but for these blocks.
    Lost(Vec<Lost>),
}

/// A power cut: before which entry of the record, and what is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Entries of the recording before the cut.
    pub instant: usize,
    /// Which version each block keeps.
    pub choice: Choice,
}

impl DiskState {
    /// The state before entry `instant`.
    pub fn at(recording: &Recording, instant: usize) -> Self {
        Replay::new(recording).until(instant).state
    }

    /// The blocks that lose something.
    pub fn lost(&self, choice: &Choice) -> Vec<Lost> {
        match choice {
            Choice::Drawn(number) => self.draw(*number),
            Choice::Lost(lost) => lost.clone(),
        }
    }

    /// What the disk holds after a cut.
    pub fn after(&self, lost: &[Lost]) -> Vec<ContentId> {
        let lost: BTreeMap<u64, u32> = lost
            .iter()
            .map(|lost| (lost.block, lost.versions))
            .collect();
        let mut blocks = self.durable.clone();
        for (block, versions) in &self.pending {
            // Versions that are lost are the newest ones of a block.
            let kept = versions
                .len()
                .saturating_sub(lost.get(block).map_or(0, |count| *count as usize));
            if let Some(version) = kept.checked_sub(1).map(|index| versions[index]) {
                blocks[*block as usize] = version.content;
            }
        }
        blocks
    }

    /// Draws what is lost. No single distribution finds all faults: a file system is damaged by one
    /// block among many that is old, a program by a whole write that is missing while a later one
    /// is there.
    fn draw(&self, number: u64) -> Vec<Lost> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(number);
        let shape = random.random_range(0..6u32);
        let share = random.random::<f64>();

        // A third of the cuts loses whole requests, one in six everything.
        match shape {
            0 => self.pick(|versions| versions.len()),
            1 => self.few(&mut random),
            2 | 3 => self.commands(&mut random, share),
            _ => self.pick(|versions| {
                if random.random_bool(share) {
                    random.random_range(1..=versions.len())
                } else {
                    0
                }
            }),
        }
    }

    fn pick(&self, mut lose: impl FnMut(&[Version]) -> usize) -> Vec<Lost> {
        let lost = self.pending.iter().map(|(block, all)| Lost {
            block: *block,
            versions: lose(all) as u32,
        });
        lost.filter(|lost| lost.versions > 0).collect()
    }

    fn few(&self, random: &mut Xoshiro256PlusPlus) -> Vec<Lost> {
        let blocks: Vec<u64> = self.pending.keys().copied().collect();
        if blocks.is_empty() {
            return Vec::new();
        }
        let count = random.random_range(1..=3);
        let chosen: BTreeSet<u64> = (0..count)
            .map(|_| blocks[random.random_range(0..blocks.len())])
            .collect();
        self.pick(|versions| versions.len())
            .into_iter()
            .filter(|lost| chosen.contains(&lost.block))
            .map(|lost| Lost {
                versions: random.random_range(1..=lost.versions),
                ..lost
            })
            .collect()
    }

    /// Requests are lost whole, none of their blocks kept.
    fn commands(&self, random: &mut Xoshiro256PlusPlus, share: f64) -> Vec<Lost> {
        let requests: BTreeSet<u32> = self
            .pending
            .values()
            .flatten()
            .map(|version| version.event)
            .collect();
        let gone: BTreeSet<u32> = requests
            .into_iter()
            .filter(|_| random.random_bool(share))
            .collect();

        // An unbroken run of the newest: a version that is missing below a newer one does not show.
        self.pick(|versions| {
            versions
                .iter()
                .rev()
                .take_while(|version| gone.contains(&version.event))
                .count()
        })
    }
}

/// The record, played from its beginning to some entry.
#[derive(Clone)]
pub struct Replay<'a> {
    recording: &'a Recording,
    played: usize,
    state: DiskState,
    /// Requests that are submitted and not completed.
    open: BTreeSet<u32>,
    /// Of each flush under way, what was under way when it was submitted.
    flushes: BTreeMap<u32, BTreeSet<u32>>,
    /// Blocks whose durable version has changed since it was asked last.
    settled: BTreeSet<u64>,
}

impl<'a> Replay<'a> {
    /// A replay at the beginning of the recording.
    pub fn new(recording: &'a Recording) -> Self {
        let durable = vec![ZEROES; recording.shape.blocks as usize];
        let state = DiskState {
            durable,
            pending: BTreeMap::new(),
        };
        Self {
            recording,
            played: 0,
            state,
            open: BTreeSet::new(),
            flushes: BTreeMap::new(),
            settled: BTreeSet::new(),
        }
    }

    /// Plays on, until before entry `instant`; not back.
    pub fn until(mut self, instant: usize) -> Self {
        let recording = self.recording;
        for index in self.played..instant {
            self.apply(recording, index as u32, &recording.events[index]);
        }
        self.played = self.played.max(instant);
        self
    }

    /// How many entries are played.
    pub fn played(&self) -> usize {
        self.played
    }

    /// The durable version of each block.
    pub(crate) fn durable(&self) -> &[ContentId] {
        &self.state.durable
    }

    /// Blocks whose durable version has changed since this was asked last.
    pub(crate) fn take_settled(&mut self) -> BTreeSet<u64> {
        std::mem::take(&mut self.settled)
    }

    /// What the disk may hold now.
    pub fn into_state(self) -> DiskState {
        self.state
    }

    fn apply(&mut self, recording: &Recording, index: u32, event: &Event) {
        match event {
            Event::Write { block, words, .. } => {
                self.open.insert(index);
                for (block, content) in (*block..).zip(&recording.words[words.clone()]) {
                    self.push(
                        block,
                        Version {
                            event: index,
                            content: *content,
                        },
                    );
                }
            }
            Event::Zero { block, count } => {
                self.open.insert(index);
                (*block..block + count).for_each(|block| {
                    self.push(
                        block,
                        Version {
                            event: index,
                            content: ZEROES,
                        },
                    )
                });
            }
            Event::Flush => {
                // What is under way now is not covered by this flush, even if it is completed
                // first.
                self.flushes.insert(index, self.open.clone());
            }
            Event::Done(request) => self.complete(recording, *request),
            Event::Mark(_) | Event::Start | Event::End => {}
        }
    }

    fn push(&mut self, block: u64, version: Version) {
        self.state.pending.entry(block).or_default().push(version);
    }

    fn complete(&mut self, recording: &Recording, request: u32) {
        self.open.remove(&request);
        // What was under way when the flush came is not covered by it.
        if let Some(under_way) = self.flushes.remove(&request) {
            // Submitted before the flush, and completed before it.
            self.settle_all(|version| {
                version.event < request && !under_way.contains(&version.event)
            });
        } else if let Event::Write {
            block,
            words,
            through: true,
        } = &recording.events[request as usize]
        {
            for block in *block..block + words.len() as u64 {
                self.settle(block, |version| version.event == request);
            }
        }
    }

    fn settle_all(&mut self, durable: impl Fn(&Version) -> bool + Copy) {
        let blocks: Vec<u64> = self.state.pending.keys().copied().collect();
        blocks
            .into_iter()
            .for_each(|block| self.settle(block, durable));
    }

    /// The newest of the versions that have become durable replaces all before it.
    fn settle(&mut self, block: u64, durable: impl Fn(&Version) -> bool) {
        let Some(versions) = self.state.pending.get_mut(&block) else {
            return;
        };

        // The newest of them decides; if there is none, nothing has become durable.
        let Some(last) = versions.iter().rposition(durable) else {
            return;
        };
        self.state.durable[block as usize] = versions[last].content;
        self.settled.insert(block);
        versions.drain(..=last);
        if versions.is_empty() {
            self.state.pending.remove(&block);
        }
    }
}
