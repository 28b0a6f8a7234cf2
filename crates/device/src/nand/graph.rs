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

use super::runs::{Crossings, Run};
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
    /// A store to the NVRAM, on a lane that is used in turn.
    NvStore,
    /// A clearing of NVRAM, on another lane.
    NvClear,
    /// A scan of NVRAM, on a third one.
    NvScan,
}

impl Work {
    /// The lane of the NVRAM that it takes.
    #[inline]
    pub(super) fn lane(self) -> Option<usize> {
        match self {
            Self::NvStore => Some(0),
            Self::NvClear => Some(1),
            Self::NvScan => Some(2),
            _ => None,
        }
    }
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
    number: [u32; 2],
}

impl NodeName {
    /// The name of nothing.
    pub(super) const NONE: Self = Self {
        at: 0,
        number: [NONE, NONE - 1],
    };
}

/// The halves of a number: a name takes 12 bytes.
#[inline]
fn in_halves(number: u64) -> [u32; 2] {
    [(number >> 32) as u32, number as u32]
}

/// An operation that has not ended: what all of them have, in one line of the cache.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
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
    /// When it became ready.
    pub since: u64,
    /// The next one of its die's queue.
    pub next: u32,
    /// The unit to which a buffered page or a run belongs, or the fine step of a unit.
    pub unit: u32,
    /// Pages of a unit that are not in the buffer, or pages of a run that have not crossed the channel.
    pub missing: u16,
    /// Pages that cross the channel; none for a copyback. Those of a read are of 4 KiB, and of a run those of each of its pages.
    pub pages: u16,
    /// Planes that work at once.
    pub planes: u8,
    /// True if operations that wait for all earlier ones do not wait for this one.
    pub apart: bool,
    /// True if it has an entry of [`Rare`].
    is_rare: bool,
    number: u64,
    waits: u32,
    /// First and last edge to the nodes that wait for it.
    followers: (u32, u32),
}

const _: () = assert!(size_of::<Node>() == 64);

/// What few operations have.
#[derive(Clone, Copy)]
struct Rare {
    /// Additional time of the array to correct what was read.
    retry_ns: u64,
    /// The clearing or erase that it is.
    clear: u64,
    /// Its number among the stores.
    store: u64,
    /// The program that may cross the channel once the array does this one.
    successor: u32,
    /// True once the array does it.
    begun: bool,
}

impl Rare {
    const ABSENT: Self = Self {
        retry_ns: 0,
        clear: 0,
        store: u64::MAX,
        successor: NONE,
        begun: false,
    };
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
            since: 0,
            next: NONE,
            unit: NONE,
            missing: 0,
            pages: 1,
            planes: 1,
            apart: false,
            is_rare: false,
            number: 0,
            waits: 0,
            followers: (NONE, NONE),
        }
    }

    /// True if it reads the pages of a [`Run`].
    #[inline]
    pub(super) fn is_run(&self) -> bool {
        self.work == Work::Read && self.unit != NONE
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
    /// A bit for each number from `first` on, 1 if it has ended.
    ended: VecDeque<u64>,
    first: u64,
    /// The first number that has not ended, and the next one to be taken.
    oldest: u64,
    next: u64,
    /// Nodes that wait until all numbers below theirs have ended.
    waiting: VecDeque<(u64, u32)>,
}

impl Numbers {
    #[inline]
    fn take(&mut self) -> u64 {
        let number = self.next;
        if number.is_multiple_of(u64::BITS.into()) {
            self.ended.push_back(0);
        }
        self.next += 1;
        number
    }

    #[inline]
    fn end(&mut self, number: u64) {
        let at = number - self.first;
        self.ended[(at / u64::from(u64::BITS)) as usize] |= 1 << (at % u64::from(u64::BITS));
        if number == self.oldest {
            self.advance();
        }
    }

    /// The oldest number has ended, and perhaps others after it.
    fn advance(&mut self) {
        while let Some(word) = self.ended.front() {
            self.oldest += u64::from((word >> (self.oldest - self.first)).trailing_ones());
            if self.oldest - self.first < u64::BITS.into() {
                return;
            }
            self.ended.pop_front();
            self.first += u64::from(u64::BITS);
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
    /// By node, where it says so.
    rare: Vec<Rare>,
    /// By node, if it is a run.
    pub runs: Vec<Run>,
    pub crossings: Crossings,
    edges: Vec<Edge>,
    edges_free: u32,
    all: Numbers,
    stores: Numbers,
    /// Nodes that have become ready, for the caller to start, each with the one whose end made it ready; `NONE` if it
    /// waited for a time, or for nothing.
    ready: Vec<(u32, u32)>,
    /// Number of these that have been started; the list is emptied with the last of them.
    started: usize,
    /// The operation that is ending; its place keeps it until the next one is added.
    pub ending: u32,
}

impl Graph {
    /// `dies` is the number of timelines of dies.
    pub(super) fn new(dies: usize) -> Self {
        Self {
            crossings: Crossings::new(dies),
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
            number: in_halves(self.nodes[node as usize].number),
        }
    }

    /// The named operation, unless it has ended.
    pub(super) fn find(&self, NodeName { at, number }: NodeName) -> Option<u32> {
        (in_halves(self.nodes[at as usize].number) == number).then_some(at)
    }

    /// The number of an operation: later ones have larger numbers.
    pub(super) fn number(&self, node: u32) -> u64 {
        self.nodes[node as usize].number
    }

    /// Adds an operation, which waits until [`Self::seal`].
    #[inline(always)]
    pub(super) fn add(&mut self, mut node: Node) -> u32 {
        let number = self.all.take();
        if node.apart {
            self.all.end(number);
        }

        // One wait is for `seal`: the operations before this one are named after it was added.
        (node.number, node.waits) = (number, 1);

        let place = match self.nodes_free.pop() {
            Some(place) => {
                self.nodes[place as usize] = node;
                place
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        };

        if node.work == Work::NvStore {
            self.rare_mut(place).store = self.stores.take();
        }
        place
    }

    /// Adds a run, like [`Self::add`].
    pub(super) fn add_run(&mut self, node: Node, run: Run) -> u32 {
        let place = self.add(node);
        let at = place as usize;
        if self.runs.len() <= at {
            self.runs.resize(self.nodes.len(), Run::ABSENT);
        }
        self.runs[at] = run;
        place
    }

    /// The pages of a run.
    #[inline]
    pub(super) fn run(&self, node: u32) -> &Run {
        &self.runs[node as usize]
    }

    #[inline]
    pub(super) fn run_mut(&mut self, node: u32) -> &mut Run {
        &mut self.runs[node as usize]
    }

    /// What was read has crossed the channel, of a run one page, or those that cross at once. Returns true if others
    /// follow.
    #[inline]
    pub(super) fn crossed(&mut self, node: u32) -> bool {
        let this = &mut self.nodes[node as usize];
        if !this.is_run() {
            return false;
        }
        match self.runs[node as usize].crossing.is_under_way() {
            true => this.missing = 0,
            false => this.missing -= 1,
        }
        this.missing > 0
    }

    /// What few operations have, of this one.
    #[inline]
    fn rare(&self, node: u32) -> Rare {
        match self.nodes[node as usize].is_rare {
            true => self.rare[node as usize],
            false => Rare::ABSENT,
        }
    }

    fn rare_mut(&mut self, node: u32) -> &mut Rare {
        let at = node as usize;
        if self.rare.len() <= at {
            self.rare.resize(self.nodes.len(), Rare::ABSENT);
        }
        if !std::mem::replace(&mut self.nodes[at].is_rare, true) {
            self.rare[at] = Rare::ABSENT;
        }
        &mut self.rare[at]
    }

    /// Additional time of the array to correct what the operation reads.
    #[inline]
    pub(super) fn retry_ns(&self, node: u32) -> u64 {
        self.rare(node).retry_ns
    }

    pub(super) fn set_retry_ns(&mut self, node: u32, retry_ns: u64) {
        if retry_ns != self.retry_ns(node) {
            self.rare_mut(node).retry_ns = retry_ns;
        }
    }

    /// The clearing or erase that the operation is; 0 if it is none.
    #[inline]
    pub(super) fn clear(&self, node: u32) -> u64 {
        self.rare(node).clear
    }

    pub(super) fn set_clear(&mut self, node: u32, clear: u64) {
        self.rare_mut(node).clear = clear;
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
        let this = self.rare_mut(before);
        if !this.begun {
            this.successor = node;
            self.nodes[node as usize].waits += 1;
        }
    }

    /// The array does an operation now.
    pub(super) fn begins(&mut self, node: u32) {
        let this = self.rare_mut(node);
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
        let number = self.rare(node).store.min(self.stores.next);
        if number > self.stores.oldest {
            self.stores.waiting.push_back((number, node));
            self.nodes[node as usize].waits += 1;
        }
    }

    /// One thing that `node` waited for has ended.
    #[inline]
    pub(super) fn waited(&mut self, node: u32) {
        let this = &mut self.nodes[node as usize];
        this.waits -= 1;
        if this.waits == 0 {
            self.ready.push((node, self.ending));
        }
    }

    /// True if nodes have become ready that have not been started.
    #[inline]
    pub(super) fn has_ready(&self) -> bool {
        self.started < self.ready.len()
    }

    /// The next node that has become ready, and the one whose end made it ready.
    #[inline]
    pub(super) fn next_ready(&mut self) -> Option<(u32, u32)> {
        let next = self.ready.get(self.started).copied();
        match next {
            Some(_) => self.started += 1,
            None => {
                self.ready.clear();
                self.started = 0;
            }
        }
        next
    }

    /// Ends an operation. The nodes that waited for it may become ready.
    pub(super) fn end(&mut self, node: u32) {
        let ended = &mut self.nodes[node as usize];
        let number = std::mem::replace(&mut ended.number, u64::MAX);
        let (is_apart, is_store) = (ended.apart, ended.work == Work::NvStore);
        let mut edge = ended.followers.0;

        self.ending = node;
        self.nodes_free.push(node);

        while edge != NONE {
            let Edge { to, next } = self.edges[edge as usize];
            self.edges[edge as usize].next = self.edges_free;
            self.edges_free = edge;
            self.waited(to);
            edge = next;
        }

        if !is_apart {
            self.all.end(number);
        }
        while let Some(node) = self.all.released() {
            self.waited(node);
        }
        if is_store {
            self.stores.end(self.rare[node as usize].store);
            while let Some(node) = self.stores.released() {
                self.waited(node);
            }
        }
    }

    /// Number of operations that have not ended.
    pub(super) fn len(&self) -> usize {
        self.nodes.len() - self.nodes_free.len()
    }
}
