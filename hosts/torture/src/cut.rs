//! The states that a power cut can leave on a recorded disk with a volatile write cache, as NVMe
//! allows.
//!
//! At a cut each block independently keeps any version since its last durable one, including
//! intermediate versions. A flush makes durable all requests completed before its submission. A
//! write with FUA makes only itself durable. Completion implies no order. Writes of zeroes and
//! deallocations are versions like any other. Invariants: versions older than the newest durable
//! one never come back; a choice always gives the same disk. Absent: which cuts are worth trying
//! (`campaign`).

use crate::contents::{ContentId, ZEROES};
use crate::record::{Event, Recording};
use remap_ssd_nvme::controller::LossDraw;
use std::collections::{BTreeMap, BTreeSet};

/// A version of a block that is not durable yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// The request that made it: an index into `Recording::events`.
    pub event: u32,
    /// Content of the block.
    pub content: ContentId,
}

/// All possible states of a disk at an instant.
#[derive(Clone)]
pub(crate) struct DiskState {
    /// The last durable version of each block.
    pub durable: Vec<ContentId>,
    /// Versions since then, oldest first; blocks without any are left out.
    pub pending: BTreeMap<u64, Vec<Version>>,
}

/// A block that does not keep its newest version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lost {
    /// Number of the block on the disk.
    pub block: u64,
    /// Number of versions lost, counted from the newest; if all are lost, the block keeps the
    /// durable one.
    pub versions: u32,
}

/// Selects the version that each block keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Drawn at random from this number.
    Drawn(u64),
    /// The newest version, except for these blocks.
    Lost(Vec<Lost>),
}

/// A power cut: its instant, and the versions kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Entries of the recording before the cut.
    pub instant: usize,
    /// Version that each block keeps.
    pub choice: Choice,
}

impl DiskState {
    /// The state before entry `instant`.
    pub(crate) fn at(recording: &Recording, instant: usize) -> Self {
        Replay::new(recording).until(instant).state
    }

    /// The blocks that lose versions.
    pub(crate) fn lost(&self, choice: &Choice) -> Vec<Lost> {
        match choice {
            Choice::Drawn(number) => self.draw(*number),
            Choice::Lost(lost) => lost.clone(),
        }
    }

    /// Contents of the disk after a cut.
    pub(crate) fn after(&self, lost: &[Lost]) -> Vec<ContentId> {
        let lost: BTreeMap<u64, u32> = lost
            .iter()
            .map(|lost| (lost.block, lost.versions))
            .collect();
        let mut blocks = self.durable.clone();
        for (block, versions) in &self.pending {
            // A block loses its newest versions.
            let kept = versions
                .len()
                .saturating_sub(lost.get(block).map_or(0, |count| *count as usize));
            if let Some(version) = kept.checked_sub(1).map(|index| versions[index]) {
                blocks[*block as usize] = version.content;
            }
        }
        blocks
    }

    /// Draws the losses, as the volatile cache of a served device does.
    fn draw(&self, number: u64) -> Vec<Lost> {
        let blocks: Vec<u64> = self.pending.keys().copied().collect();
        let commands = self.pending.values().flatten();
        let commands = commands.map(|version| version.event.into()).collect();
        let mut draw = LossDraw::new(number, &blocks, &commands);

        let lost = self.pending.iter().map(|(block, versions)| {
            let commands: Vec<u64> = versions
                .iter()
                .map(|version| version.event.into())
                .collect();
            Lost {
                block: *block,
                versions: draw.lost(*block, &commands) as u32,
            }
        });
        lost.filter(|lost| lost.versions > 0).collect()
    }
}

/// The recording, replayed from its beginning to some entry.
#[derive(Clone)]
pub(crate) struct Replay<'a> {
    recording: &'a Recording,
    played: usize,
    state: DiskState,
    /// Requests submitted but not completed.
    open: BTreeSet<u32>,
    /// For each flush in progress, the requests in progress at its submission.
    flushes: BTreeMap<u32, BTreeSet<u32>>,
    /// Blocks whose durable version has changed since the last `take_settled`.
    settled: BTreeSet<u64>,
}

impl<'a> Replay<'a> {
    /// A replay at the beginning of the recording.
    pub(crate) fn new(recording: &'a Recording) -> Self {
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

    /// Replays forward, until before entry `instant`.
    pub(crate) fn until(mut self, instant: usize) -> Self {
        let recording = self.recording;
        for index in self.played..instant {
            self.apply(recording, index as u32, &recording.events[index]);
        }
        self.played = self.played.max(instant);
        self
    }

    /// Number of entries replayed.
    pub(crate) fn played(&self) -> usize {
        self.played
    }

    /// The durable version of each block.
    pub(crate) fn durable(&self) -> &[ContentId] {
        &self.state.durable
    }

    /// Takes the blocks whose durable version has changed since the last call.
    pub(crate) fn take_settled(&mut self) -> BTreeSet<u64> {
        std::mem::take(&mut self.settled)
    }

    /// The disk's possible states now.
    pub(crate) fn into_state(self) -> DiskState {
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
                // Requests in progress now are not covered by this flush, even if they complete
                // before it.
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
        // Requests in progress at the flush's submission are not covered by it.
        if let Some(under_way) = self.flushes.remove(&request) {
            // Submitted and completed before the flush.
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

    /// The newest durable version replaces all older ones.
    fn settle(&mut self, block: u64, durable: impl Fn(&Version) -> bool) {
        let Some(versions) = self.state.pending.get_mut(&block) else {
            return;
        };

        // If no version matches, none has become durable.
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
