//! Recordings of a few blocks, written by hand or at random. Every write has distinct contents, so
//! that a content identifies its write.

use crate::array::DiskGeometry;
use crate::contents::{ContentId, Contents, ZEROES};
use crate::cut::DiskState;
use crate::record::{About, Event, Recording};
use std::collections::BTreeSet;

pub(crate) const BLOCK: usize = 512;

/// A recording under construction.
pub(crate) struct Script {
    pub recording: Recording,
}

impl Script {
    pub(crate) fn new(blocks: u64) -> Self {
        let shape = DiskGeometry {
            block_bytes: BLOCK as u32,
            blocks,
        };
        let contents = Contents::new(BLOCK).unwrap();
        let about = About::default();
        Self {
            recording: Recording {
                shape,
                about,
                events: vec![],
                words: vec![],
                marks: vec![],
                contents,
            },
        }
    }

    fn push(&mut self, event: Event) -> u32 {
        self.recording.events.push(event);
        self.recording.events.len() as u32 - 1
    }

    /// Submits a write with distinct contents; returns its index.
    pub(crate) fn write(&mut self, block: u64, count: u64, through: bool) -> u32 {
        let start = self.recording.words.len();
        for _ in 0..count {
            let mut bytes = [1; BLOCK];
            bytes[..8].copy_from_slice(&(self.recording.words.len() as u64).to_le_bytes());
            let id = self.recording.contents.put(&bytes).unwrap();
            self.recording.words.push(id);
        }
        self.push(Event::Write {
            block,
            words: start..start + count as usize,
            through,
        })
    }

    pub(crate) fn zero(&mut self, block: u64, count: u64) -> u32 {
        self.push(Event::Zero { block, count })
    }

    pub(crate) fn flush(&mut self) -> u32 {
        self.push(Event::Flush)
    }

    pub(crate) fn done(&mut self, request: u32) {
        self.push(Event::Done(request));
    }

    /// Submits and completes a write of one block; returns its content.
    pub(crate) fn written(&mut self, block: u64) -> ContentId {
        let request = self.write(block, 1, false);
        self.done(request);
        *self.recording.words.last().unwrap()
    }

    pub(crate) fn flushed(&mut self) {
        let request = self.flush();
        self.done(request);
    }

    /// Possible contents of each block if power fails now.
    pub(crate) fn now(&self) -> Vec<BTreeSet<ContentId>> {
        possible(&DiskState::at(&self.recording, self.recording.events.len()))
    }
}

/// Possible contents of each block, according to the cutter.
pub(crate) fn possible(state: &DiskState) -> Vec<BTreeSet<ContentId>> {
    let mut blocks: Vec<BTreeSet<ContentId>> = state
        .durable
        .iter()
        .map(|id| BTreeSet::from([*id]))
        .collect();
    for (block, versions) in &state.pending {
        blocks[*block as usize].extend(versions.iter().map(|version| version.content));
    }
    blocks
}

/// Content of a block after a write or a zeroing.
pub(crate) fn content_of(recording: &Recording, event: &Event, block: u64) -> Option<ContentId> {
    match event {
        Event::Write {
            block: first,
            words,
            ..
        } => {
            let index = block.checked_sub(*first)? as usize;
            recording.words[words.clone()].get(index).copied()
        }
        Event::Zero {
            block: first,
            count,
        } => (*first..first + count).contains(&block).then_some(ZEROES),
        _ => None,
    }
}
