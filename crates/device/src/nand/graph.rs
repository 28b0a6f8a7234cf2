//! Operations that have not ended, and what each waits for.
//!
//! An operation is a node. It becomes ready when everything it waits for has ended; the nodes that wait
//! for it are a list of edges. Nodes and edges live in slabs whose places are used again, so that
//! nothing is allocated once they have grown.
//!
//! Two kinds of wait have no edges, since they are for thousands of operations: "all earlier
//! operations" and "all earlier stores". Operations are numbered; such a wait ends when the oldest one
//! that has not ended has at least its number.
//!
//! Invariants: a node is ready once, and ends once; a number ends once. Absent: time.

use remap_ssd_media::Ppn;
use std::collections::VecDeque;

/// Marks the absence of a node, an edge or a part.
pub(super) const NONE: u32 = u32::MAX;

/// The resource that an operation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// No time.
    Nothing,
    /// A read of one page by its die, over the channel.
    Read,
    /// A program of one page, or of a unit.
    Program,
    /// A page that enters the buffer of its program unit.
    Buffer,
    /// An erase of a block.
    Erase,
    /// Reads of a die without transfers to wait for.
    Scan,
    /// A turn on a lane of the NVRAM.
    Lane(Lane),
}

/// Lanes of the NVRAM, which are used in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    Store,
    Clear,
    Scan,
}

/// Priority class of a flash operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    HostRead,
    HostProgram,
    Collection,
    Metadata,
}

/// What follows the end of a node, besides the nodes that wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    None,
    LookupBegins,
    LookupEnds,
}

/// An operation by its place and its number: it has ended once its place has another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeName {
    at: u32,
    number: u64,
}

/// An operation that has not ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub work: Work,
    pub class: Class,
    pub mark: Mark,
    pub die: u16,
    /// The part of a request that waits for it.
    pub part: u32,
    pub page: Ppn,
    /// Duration: of the array for flash, of the turn for a lane.
    pub length: u64,
    /// Additional time of the array to correct what was read.
    pub retry_ns: u64,
    /// The clearing or erase that it is.
    pub clear: u64,
    /// When it became ready.
    pub since: u64,
    /// The operation whose end made it ready; `NONE` if it waited for a time, or for nothing.
    pub freed_by: u32,
    /// The next one of its die's queue.
    pub next: u32,
    /// The program that may cross the channel once the array does this one.
    successor: u32,
    /// True once the array does it.
    begun: bool,
    /// The unit to which a buffered page belongs, or the fine step of a unit.
    pub unit: u32,
    /// Pages of a unit that are not in the buffer.
    pub missing: u16,
    /// Pages of 4 KiB that cross the channel; none for a copyback.
    pub pages: u16,
    /// Planes that work at once.
    pub planes: u8,
    /// True if operations that wait for all earlier ones do not wait for this one.
    pub apart: bool,
    number: u64,
    /// Its number among the stores.
    store: u64,
    waits: u32,
    /// First and last edge to the nodes that wait for it.
    followers: (u32, u32),
}

impl Node {
    pub(super) fn new(work: Work, class: Class) -> Self {
        Self {
            work,
            class,
            mark: Mark::None,
            die: 0,
            part: NONE,
            page: Ppn(NONE),
            length: 0,
            retry_ns: 0,
            clear: 0,
            since: 0,
            freed_by: NONE,
            next: NONE,
            successor: NONE,
            begun: false,
            unit: NONE,
            missing: 0,
            pages: 1,
            planes: 1,
            apart: false,
            number: 0,
            store: u64::MAX,
            waits: 0,
            followers: (NONE, NONE),
        }
    }
}

#[derive(Clone, Copy)]
struct Edge {
    to: u32,
    next: u32,
}

/// Numbers in order, each of which ends once, in any order.
#[derive(Default)]
struct Numbers {
    /// From the oldest that has not ended on: true if ended.
    ended: VecDeque<bool>,
    oldest: u64,
    /// Nodes that wait until all numbers below theirs have ended.
    waiting: VecDeque<(u64, u32)>,
}

impl Numbers {
    fn next(&self) -> u64 {
        self.oldest + self.ended.len() as u64
    }

    fn take(&mut self) -> u64 {
        self.ended.push_back(false);
        self.next() - 1
    }

    fn end(&mut self, number: u64) {
        self.ended[(number - self.oldest) as usize] = true;
        while self.ended.front() == Some(&true) {
            self.ended.pop_front();
            self.oldest += 1;
        }
    }

    /// A node that need not wait any longer.
    fn released(&mut self) -> Option<u32> {
        let (below, node) = *self.waiting.front()?;
        (below <= self.oldest).then(|| {
            self.waiting.pop_front();
            node
        })
    }
}

/// All operations that have not ended.
#[derive(Default)]
pub(super) struct Graph {
    nodes: Vec<Node>,
    nodes_free: Vec<u32>,
    edges: Vec<Edge>,
    edges_free: u32,
    all: Numbers,
    stores: Numbers,
    /// Nodes that have become ready, for the caller to start.
    ready: VecDeque<u32>,
    /// The operation that is ending; its place keeps it until the next one is added.
    pub ending: u32,
}

impl Graph {
    pub(super) fn new() -> Self {
        Self {
            edges_free: NONE,
            ending: NONE,
            ..Self::default()
        }
    }

    #[inline]
    pub(super) fn node(&self, node: u32) -> &Node {
        &self.nodes[node as usize]
    }

    #[inline]
    pub(super) fn node_mut(&mut self, node: u32) -> &mut Node {
        &mut self.nodes[node as usize]
    }

    /// The name of an operation that has not ended.
    pub(super) fn name(&self, node: u32) -> NodeName {
        NodeName {
            at: node,
            number: self.nodes[node as usize].number,
        }
    }

    /// The named operation, unless it has ended.
    pub(super) fn find(&self, NodeName { at, number }: NodeName) -> Option<u32> {
        (self.nodes[at as usize].number == number).then_some(at)
    }

    /// The number of an operation: later ones have larger numbers.
    pub(super) fn number(&self, node: u32) -> u64 {
        self.nodes[node as usize].number
    }

    /// Adds an operation, which waits until [`Self::seal`].
    pub(super) fn add(&mut self, mut node: Node) -> u32 {
        node.number = self.all.take();
        if node.apart {
            self.all.end(node.number);
        }
        if node.work == Work::Lane(Lane::Store) {
            node.store = self.stores.take();
        }
        node.waits = 1;
        match self.nodes_free.pop() {
            Some(place) => {
                self.nodes[place as usize] = node;
                place
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        }
    }

    /// Everything that the node waits for has been named.
    pub(super) fn seal(&mut self, node: u32) {
        self.waited(node);
    }

    /// Makes `node` wait for `before`.
    pub(super) fn wait_for(&mut self, node: u32, before: u32) {
        let edge = Edge {
            to: node,
            next: NONE,
        };
        let place = if self.edges_free == NONE {
            self.edges.push(edge);
            self.edges.len() as u32 - 1
        } else {
            let place = self.edges_free;
            self.edges_free = self.edges[place as usize].next;
            self.edges[place as usize] = edge;
            place
        };
        // At the end, so that they become ready in the order of their submission.
        let followers = &mut self.nodes[before as usize].followers;
        match followers.1 {
            NONE => followers.0 = place,
            last => self.edges[last as usize].next = place,
        }
        followers.1 = place;
        self.nodes[node as usize].waits += 1;
    }

    /// Makes `node` wait until the array does `before`, which no other node follows in this way.
    pub(super) fn succeed(&mut self, node: u32, before: u32) {
        let this = &mut self.nodes[before as usize];
        if !this.begun {
            this.successor = node;
            self.nodes[node as usize].waits += 1;
        }
    }

    /// The array does an operation now.
    pub(super) fn begins(&mut self, node: u32) {
        let this = &mut self.nodes[node as usize];
        this.begun = true;
        let successor = std::mem::replace(&mut this.successor, NONE);
        if successor != NONE {
            let ending = std::mem::replace(&mut self.ending, node);
            self.waited(successor);
            self.ending = ending;
        }
    }

    /// Makes `node` wait for something that the caller ends by [`Self::waited`].
    pub(super) fn wait(&mut self, node: u32) {
        self.nodes[node as usize].waits += 1;
    }

    /// Makes `node` wait for all operations numbered below `number`, and for those of earlier calls.
    pub(super) fn wait_for_all(&mut self, node: u32, number: u64) {
        if number > self.all.oldest {
            self.all.waiting.push_back((number, node));
            self.nodes[node as usize].waits += 1;
        }
    }

    /// Makes `node` wait for all earlier stores.
    pub(super) fn wait_for_stores(&mut self, node: u32) {
        let number = self.nodes[node as usize].store.min(self.stores.next());
        if number > self.stores.oldest {
            self.stores.waiting.push_back((number, node));
            self.nodes[node as usize].waits += 1;
        }
    }

    /// One thing that `node` waited for has ended.
    pub(super) fn waited(&mut self, node: u32) {
        let this = &mut self.nodes[node as usize];
        this.waits -= 1;
        if this.waits == 0 {
            this.freed_by = self.ending;
            self.ready.push_back(node);
        }
    }

    /// The next node that has become ready.
    #[inline]
    pub(super) fn next_ready(&mut self) -> Option<u32> {
        self.ready.pop_front()
    }

    /// Ends an operation; returns it. The nodes that waited for it may become ready.
    pub(super) fn end(&mut self, node: u32) -> Node {
        let ended = self.nodes[node as usize];
        self.nodes[node as usize].number = u64::MAX;
        self.ending = node;
        self.nodes_free.push(node);

        let mut edge = ended.followers.0;
        while edge != NONE {
            let Edge { to, next } = self.edges[edge as usize];
            self.edges[edge as usize].next = self.edges_free;
            self.edges_free = edge;
            self.waited(to);
            edge = next;
        }

        if !ended.apart {
            self.all.end(ended.number);
        }
        while let Some(node) = self.all.released() {
            self.waited(node);
        }
        if ended.store != u64::MAX {
            self.stores.end(ended.store);
            while let Some(node) = self.stores.released() {
                self.waited(node);
            }
        }
        ended
    }

    /// Number of operations that have not ended.
    pub(super) fn len(&self) -> usize {
        self.nodes.len() - self.nodes_free.len()
    }
}
