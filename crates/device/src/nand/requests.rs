//! Requests and their parts: what must end before the host hears of it.
//!
//! A request has parts, one for each page or range that was submitted. A part ends when its data are in
//! the controller and its operations have ended; what was read must then cross the link. The request ends
//! with its last part, once the caller has closed it.
//!
//! Pages cross the link one by one, as parts end, or all together with the last part (`timing.whole_reads`).
//!
//! Invariants: a request ends once; requests end in the order of their times. Absent: operations.

use super::graph::NONE;
use crate::step::{DataPath, Step};
use std::collections::VecDeque;

/// A part that has not ended.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub request: u32,
    pub data: DataPath,
    /// Pages of 4 KiB that cross the link.
    pub pages: u16,
    /// Opens when the page that this part reads can be merged.
    pub merge: u32,
    waits: u32,
}

/// A request that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestEnd {
    /// The caller's number of the request.
    pub request: u32,
    /// When it ended, in nanoseconds.
    pub at: u64,
}

/// All requests that have not ended.
#[derive(Default)]
pub(super) struct Requests {
    parts: Vec<Part>,
    free: Vec<u32>,
    /// Parts of each request that have not ended, and one more until it is closed.
    waits: Vec<u32>,
    pub ended: VecDeque<RequestEnd>,
    outstanding: usize,
    /// Pages of each request that wait for its last part, if they cross the link together.
    held: Option<Vec<u32>>,
}

impl Requests {
    /// No requests. `whole_reads`: the pages of a request cross the link together.
    pub(super) fn new(whole_reads: bool) -> Self {
        Self {
            held: whole_reads.then(Vec::new),
            ..Self::default()
        }
    }

    pub(super) fn open(&mut self, request: u32) {
        let at = request as usize;
        if self.waits.len() <= at {
            self.waits.resize(at + 1, 0);
        }

        if let Some(held) = &mut self.held
            && held.len() <= at
        {
            held.resize(at + 1, 0);
        }

        // One wait is for `close`: further parts may come after the first ones have ended.
        assert!(self.waits[at] == 0, "a number is used again after its end");
        self.waits[at] = 1;
        self.outstanding += 1;
    }

    /// A new part, which ends no earlier than the caller's [`Self::waited`]. Internal work has no request.
    pub(super) fn part(&mut self, request: u32, step: Step) -> u32 {
        if request != NONE {
            self.waits[request as usize] += 1;
        }

        // One wait is the caller's, until it has added all operations.
        let part = Part {
            request,
            data: step.data(),
            pages: step.pages() as u16,
            merge: NONE,
            waits: 1,
        };

        match self.free.pop() {
            Some(place) => {
                self.parts[place as usize] = part;
                place
            }
            None => {
                self.parts.push(part);
                self.parts.len() as u32 - 1
            }
        }
    }

    pub(super) fn part_of(&self, part: u32) -> Part {
        self.parts[part as usize]
    }

    /// The part's page is merged once this node has ended.
    pub(super) fn set_merge(&mut self, part: u32, gate: u32) {
        self.parts[part as usize].merge = gate;
    }

    /// The part's pages wait until all data of the request are in the controller. Returns false if they do not wait.
    #[inline]
    pub(super) fn hold(&mut self, part: u32) -> bool {
        let Part { request, pages, .. } = self.parts[part as usize];
        match &mut self.held {
            Some(held) if request != NONE => {
                held[request as usize] += u32::from(pages);
                true
            }
            _ => false,
        }
    }

    /// The pages of a request that have waited, if one thing alone has not ended: what then ends, ends when they have crossed.
    #[inline]
    pub(super) fn take_held(&mut self, request: u32) -> Option<u32> {
        let held = self.held.as_mut()?.get_mut(request as usize)?;
        let is_last = *held > 0 && self.waits[request as usize] == 1;
        is_last.then(|| std::mem::take(held))
    }

    /// Forgets requests that were never closed. Everything that was submitted has ended.
    pub(super) fn clear(&mut self) {
        self.waits.fill(0);
        self.held.iter_mut().for_each(|held| held.fill(0));
        self.ended.clear();
        self.outstanding = 0;
    }

    /// The part waits for one thing more.
    pub(super) fn wait(&mut self, part: u32) {
        self.parts[part as usize].waits += 1;
    }

    /// One thing that the part waited for has ended. Returns true if it was the last.
    pub(super) fn waited(&mut self, part: u32) -> bool {
        let waits = &mut self.parts[part as usize].waits;
        *waits -= 1;
        *waits == 0
    }

    /// The part ends at `now`.
    pub(super) fn end_part(&mut self, part: u32, now: u64) {
        let request = self.parts[part as usize].request;
        self.free.push(part);
        if request != NONE {
            self.close(request, now);
        }
    }

    /// One thing that the request waited for has ended: a part, or that there may be more of them.
    pub(super) fn close(&mut self, request: u32, now: u64) {
        let waits = &mut self.waits[request as usize];
        *waits -= 1;
        if *waits == 0 {
            self.outstanding -= 1;
            self.ended.push_back(RequestEnd { request, at: now });
        }
    }

    /// Number of requests that have not ended.
    pub(super) fn outstanding(&self) -> usize {
        self.outstanding
    }
}
