//! Steps of commands become parts and operations that wait.

use super::Nand;
use super::graph::{Class, Mark, NONE, Node, Work};
use super::lanes::{Ready, Way};
use super::timers::Timer;
use crate::step::{DataPath, Step};
use crate::timing::per_64_bytes;
use remap_ssd_media::op::NO_PAGE;
use remap_ssd_media::{ClearId, Op, OpKind, Ppn, Purpose, SbId, SlcModes};

/// The part of a request to which operations belong, while they are added.
#[derive(Clone, Copy)]
pub(super) struct Adding {
    part: u32,
    /// What ends when the part's data, and entries of the mapping table, are in the controller.
    gate: Gate,
    /// The latest page that the part reads: it may copy it.
    copied: u32,
    /// The page that collection copies, and its die.
    pub source: Option<(Ppn, u16)>,
}

/// Until when the host's operations of a part wait for its data.
#[derive(Clone, Copy)]
enum Gate {
    /// The data are there.
    Open,
    /// For a node.
    Node(u32),
    /// The only such operation waits for a time, without a node.
    Time(u64),
}

impl Nand {
    /// A request begins: its steps follow, then [`Self::close`]. `request` is a small number of the caller's
    /// choice, free again once the request has ended.
    pub fn open(&mut self, request: u32) {
        self.requests.open(request);
    }

    /// The request has no further step.
    pub fn close(&mut self, request: u32) {
        if let Some(pages) = self.requests.take_held(request) {
            self.send_held(request, pages);
        }
        self.requests.close(request, self.now);
    }

    /// The data of a request were in the controller before it was closed: they cross the link as a part of their own.
    #[cold]
    fn send_held(&mut self, request: u32, pages: u32) {
        let step = Step::of_pages(DataPath::ToHost, 0, false);
        let part = self.requests.part(request, step);
        self.requests.waited(part);
        self.array.watch.part(part, self.now);
        let end = self.front.send(self.now, pages, self.now);
        self.timers.set(end, Timer::Part(part));
    }

    /// Takes a step of a request that was submitted at `now`. Everything that happens until then has happened
    /// afterwards.
    pub(crate) fn step(
        &mut self,
        request: Option<u32>,
        now: u64,
        step: Step,
        hashes: bool,
        ops: &[Op],
    ) {
        self.advance(now);
        let data = step.data();
        // Also at the end of a request that the firmware ends itself.
        let begins =
            !std::mem::replace(&mut self.goes_on, step.goes_on()) & (data != DataPath::Own);

        if begins {
            self.own_stores.clear();
        }

        if matches!(data, DataPath::FromHost | DataPath::ToMerge) {
            self.link_pages[0] += step.pages();
        }

        // Over the link, through the hash unit if contents are compared, and past a core that executes the firmware.
        let front = &mut self.front;
        let received = match data {
            DataPath::Own | DataPath::Merged => now,
            DataPath::Absent | DataPath::Flush | DataPath::ToHost | DataPath::ToCopy => {
                front.arrive(now)
            }
            DataPath::FromHost | DataPath::ToMerge => front.receive(now, step.pages() as u16),
        };
        let hashed = match data {
            DataPath::FromHost if hashes => front.hash_page(now, received),
            _ => received,
        };

        let ready = front.process(front.arrive(now), hashed, begins, step.pages());

        self.add_part(request.unwrap_or(NONE), step, ready, hashes, ops);
    }

    /// Adds a part whose data are in the controller at `ready`, with its operations.
    fn add_part(&mut self, request: u32, step: Step, ready: u64, hashes: bool, ops: &[Op]) {
        let (now, data) = (self.now, step.data());
        let part = self.requests.part(request, step);
        let mut adding = Adding {
            part,
            gate: Gate::Open,
            copied: NONE,
            source: None,
        };

        // The host's operations wait for the page to be merged, or for the time at which data and command are there. A
        // single operation waits for that time itself, and a node is saved.
        if data == DataPath::Merged {
            if self.merge != NONE {
                adding.gate = Gate::Node(self.merge);
                self.part_waits_for(part, self.merge);
            }
        } else if ready > now && has_one_operation(ops) {
            adding.gate = Gate::Time(ready);
        } else if ready > now {
            let gate = self.gate();
            adding.gate = Gate::Node(gate);
            self.part_waits_for(part, gate);
            self.timers.set(ready, Timer::Gate(gate));
        }

        let (mut left, mut is_measured) = (ops, true);
        while let [op, rest @ ..] = left {
            if let Gate::Time(ready) = adding.gate
                && data == DataPath::FromHost
                && adding.copied == NONE
                && self.waits_for_data_only(op)
            {
                self.add_host_page(op, part, ready);
                (left, is_measured) = (rest, false);
                continue;
            }

            left = match rest {
                [next, rest @ ..] if self.add_copyback(op, next, &adding) => rest,
                _ => {
                    self.add(op, &mut adding);
                    rest
                }
            };
        }

        if matches!(data, DataPath::ToMerge | DataPath::ToCopy) {
            // Opened when the page has been read. The next step waits for it.
            self.merge = self.gate();
            self.merge_is_hashed = hashes;
            self.requests.set_merge(part, self.merge);
        }

        if is_measured {
            self.array.watch.part(part, now);
        }

        // Nothing has begun so far, so that the operations of a step compete with each other.
        self.begin_ready();

        if self.requests.waited(part) {
            self.part_done(part);
        }
    }

    /// A node that waits for a time.
    pub(super) fn gate(&mut self) -> u32 {
        let gate = self.graph.add(Node::new(Work::Nothing, Class::Metadata));
        self.watch_submitted(gate);
        gate
    }

    pub(super) fn watch_submitted(&mut self, node: u32) {
        let watch = &mut self.array.watch;
        watch.submitted(node, self.graph.node(node), self.now);
    }

    fn part_waits_for(&mut self, part: u32, gate: u32) {
        self.graph.node_mut(gate).part = part;
        self.requests.wait(part);
    }

    /// The page to be merged is in the controller.
    pub(super) fn merge_ready(&mut self, gate: u32) {
        let ready = if self.merge_is_hashed {
            self.front.hash_page(self.now, self.now)
        } else {
            self.now
        };
        self.timers.set(ready, Timer::Gate(gate));
    }

    pub(super) fn add(&mut self, op: &Op, adding: &mut Adding) {
        self.note_mode(op);
        match op.kind {
            OpKind::CopyRow if self.units.gather() => self.add_copies(op, adding),
            OpKind::CopyRow => self.add_row(op, adding),
            OpKind::ScanFlash => self.add_scan(op, adding),
            _ => {
                let node = self.add_op(op, adding);
                self.note_read(op, node, adding);
                self.graph.seal(node);
            }
        }
    }

    /// A program tells the mode of its superblock, where that changes. The head's is the first after the erases, unless
    /// operations were not recorded; collection copies to superblocks with all bits.
    #[inline(always)]
    pub(super) fn note_mode(&mut self, op: &Op) {
        let is_program = matches!(op.kind, OpKind::Program | OpKind::CopyRow);
        if self.units.slc.area().is_dynamic() && is_program && op.page != NO_PAGE {
            let is_slc = op.kind == OpKind::Program && op.amount == 1;
            self.set_mode(self.geometry.superblock(op.page), is_slc);
        }
    }

    /// The modes of all superblocks, some of which may have changed by operations that were not recorded.
    pub(crate) fn know_modes(&mut self, modes: &SlcModes) {
        let known = std::mem::replace(&mut self.units.modes_known, modes.changes());
        if known != modes.changes() {
            for sb in (0..self.geometry.superblocks()).map(SbId) {
                self.set_mode(sb, modes.has(sb));
            }
            self.begin_ready();
        }
    }

    #[inline(always)]
    fn set_mode(&mut self, sb: SbId, is_slc: bool) {
        if self.units.slc.has(sb) != is_slc {
            self.units.change_mode(sb, is_slc, &mut self.graph);
        }
    }

    /// What the next operations wait for: entries of the mapping table, or data that the next one may copy.
    /// Copies of collection may be recorded one by one if dies have program units.
    fn note_read(&self, op: &Op, node: u32, adding: &mut Adding) {
        let is_copy = op.purpose == Purpose::Gc;
        match (op.kind, op.purpose) {
            (OpKind::ReadTable, Purpose::Host) => adding.gate = Gate::Node(node),
            (OpKind::Read, Purpose::Host) => adding.copied = node,
            (OpKind::Read, _) if is_copy => {
                // A read that waits for a copyback has no source on flash yet.
                let is_on_flash = self.graph.node(node).work == Work::Read
                    && self.programs.of_page(op.page).is_none();
                adding.copied = node;
                adding.source = is_on_flash.then_some((op.page, op.die));
            }
            (OpKind::Program, _) if is_copy => (adding.copied, adding.source) = (NONE, None),
            _ => {}
        }
    }

    /// Adds an operation on one resource with all that it waits for.
    fn add_op(&mut self, op: &Op, adding: &Adding) -> u32 {
        let node = self.node_of(op);
        self.add_one(op, node, adding)
    }

    /// The node of an operation on one resource.
    #[inline(always)]
    pub(super) fn node_of(&self, op: &Op) -> Node {
        let erase_ns = self.spec.erase_ns;
        let class = match (op.purpose, op.kind) {
            (Purpose::Host, OpKind::Read | OpKind::ReadTable) => Class::HostRead,
            (Purpose::Host, _) | (Purpose::WriteBack, OpKind::Program) => Class::HostProgram,
            (Purpose::Gc | Purpose::WriteBack, _) => Class::Collection,
            (Purpose::Meta, _) => Class::Metadata,
        };

        let write = || per_64_bytes(op.amount, self.latencies.nvram_write_ns);
        let (work, length) = match op.kind {
            OpKind::Read | OpKind::ReadTable => (Work::Read, self.read_ns(op.page)),
            OpKind::Program if op.page != NO_PAGE && self.units.gather() => (Work::Buffer, 0),
            OpKind::Program => (Work::Program, self.program_ns(op.page)),
            OpKind::Erase => (Work::Erase, erase_ns),
            OpKind::NvWrite | OpKind::NvMark => (Work::NvStore, write()),
            OpKind::NvClear => (Work::NvClear, write()),
            OpKind::NvRead => (
                Work::NvScan,
                per_64_bytes(op.amount, self.latencies.nvram_read_ns),
            ),
            _ => (Work::Nothing, 0),
        };

        let mut node = Node::new(work, class);
        node.length = length;
        node.die = self.chip_of(op.die.into());
        if matches!(work, Work::Read | Work::Program | Work::Buffer) {
            node.page = op.page;
        }

        // What leaves the die, in pages of 4 KiB: all of the page, or those that are wanted of a larger one.
        if work == Work::Read {
            node.pages = match op.amount {
                0 => self.geometry.host_pages() as u16,
                wanted => wanted as u16,
            };
        }

        if work == Work::Erase {
            node.planes = self.geometry.word_line().planes as u8;
        }

        node.mark = match op.kind {
            OpKind::LookupBegin => Mark::LookupBegins,
            OpKind::LookupEnd => Mark::LookupEnds,
            _ => Mark::None,
        };
        node
    }

    /// Time of a read of a page inside its die.
    #[inline]
    pub(super) fn read_ns(&self, page: Ppn) -> u64 {
        if self.units.slc.has_page(page) {
            return self.spec.slc.read_ns;
        }
        self.spec.read.of_row(self.row_of(page))
    }

    /// Time of a program of a page or of its unit.
    #[inline]
    pub(super) fn program_ns(&self, page: Ppn) -> u64 {
        if self.units.slc.has_page(page) {
            return self.spec.slc.program_ns;
        }
        self.spec.program.of_row(self.row_of(page))
    }

    #[inline]
    fn row_of(&self, page: Ppn) -> u32 {
        match page {
            NO_PAGE => 0,
            page => self.flash_row(page),
        }
    }

    /// The number of a page's flash page within its block, of each plane; or within its word line, if that decides the
    /// page's type.
    #[inline]
    fn flash_row(&self, page: Ppn) -> u32 {
        if self.lines_alike {
            // A superblock has whole word lines.
            return page.0 % self.geometry.stripe() / self.flash_page;
        }
        let row = self.geometry.slot(page).row;
        match self.flash_page {
            1 => row,
            parts => row / parts,
        }
    }

    /// The timeline of a die: its own, or that of its chip. Dies are dealt to channels in turn, and so are
    /// chips.
    pub(super) fn chip_of(&self, die: u32) -> u16 {
        let chip = if die < self.chips {
            die
        } else {
            die % self.chips
        };
        chip as u16
    }

    /// Adds an operation with all that it waits for; the caller may add more, and then seals it.
    #[inline(always)]
    pub(super) fn add_one(&mut self, op: &Op, mut node: Node, adding: &Adding) -> u32 {
        let page = node.page;
        let before = self.read_early(op.purpose, &mut node);
        let work = node.work;

        let retry_ns = match &mut self.errors {
            Some(errors) if work == Work::Read && page != NO_PAGE => {
                errors.read(op.outcome, op.purpose)
            }
            _ => 0,
        };

        let node = self.graph.add(node);
        self.graph.set_retry_ns(node, retry_ns);
        if op.kind.is_named() {
            self.graph.set_clear(node, op.clear_id.0);
        }
        self.wait_until(node, before);

        if op.purpose == Purpose::Host {
            self.graph.node_mut(node).part = adding.part;
            self.watch_submitted(node);
            self.requests.wait(adding.part);
            match adding.gate {
                Gate::Open => {}
                Gate::Node(gate) => self.graph.wait_for(node, gate),
                Gate::Time(time) => {
                    self.graph.wait(node);
                    self.timers.set(time, Timer::Gate(node));
                }
            }
        }

        let is_copy = match work {
            Work::Program | Work::Buffer => matches!(op.purpose, Purpose::Host | Purpose::Gc),
            _ => false,
        };
        if is_copy {
            // A copy programs what was read.
            self.wait_for(node, adding.copied);
        }

        // Collection acts on the result of the latest lookup.
        if op.purpose == Purpose::Gc {
            self.wait_for(node, self.looked_up);
        }

        if work == Work::Buffer {
            self.join_unit(page, node);
        }
        self.wait_as_recorded(op, node);
        self.wait_by_order(work, page, node);
        self.join_lookup(op.kind, node);
        self.note(op, work, page, node, adding);
        node
    }

    pub(super) fn wait_for(&mut self, node: u32, before: u32) {
        if before != NONE {
            self.graph.wait_for(node, before);
        }
    }

    /// The waits of `After`.
    pub(super) fn wait_as_recorded(&mut self, op: &Op, node: u32) {
        // An unprotected page lands with its word line. What was recorded before that has been waited for by its
        // first page, and what waits for the word line comes after it.
        let this = self.graph.node(node);
        let is_gathered = this.work == Work::Buffer && !self.units.is_protected;
        let line = is_gathered.then(|| self.units.line(this.page));
        let begins = line.is_none_or(|line| line == this.page);

        if op.after_all && begins {
            let own = self.graph.number(node);
            // The erases of a superblock, or its tail pages, are recorded one by one, and all wait for the
            // operations before the first of them.
            let below = match op.kind {
                OpKind::Erase | OpKind::Program => *self.row.get_or_insert(own),
                _ => own,
            };
            self.graph.wait_for_all(node, below);
        } else {
            self.row = None;
        }

        if op.after_fence && begins {
            self.graph.wait_for_stores(node);
        }
        if op.after_own {
            for name in &self.own_stores {
                if let Some(before) = self.graph.find(*name) {
                    self.graph.wait_for(node, before);
                }
            }
        }

        if op.after_page != NO_PAGE {
            for page in op.after_page.0..op.after_page.0 + u32::from(op.after_pages) {
                // A page of the same word line lands together with this one.
                if self.units.gather() && line == Some(self.units.line(Ppn(page))) {
                    continue;
                }
                let before = self.safe(Ppn(page));
                self.wait_until(node, before);
            }
        }

        if op.clear_id != ClearId(0) && !op.kind.is_named() {
            self.clears.wait_for(node, op.clear_id.0, &mut self.graph);
        }
    }

    /// The pages of a block are programmed in order, after its erase.
    fn wait_by_order(&mut self, work: Work, page: Ppn, node: u32) {
        if work != Work::Program || page == NO_PAGE {
            return;
        }

        // Each page has a word line of its own here: otherwise programs are units (`begin_unit`).
        let dies = self.geometry.dies();
        if self.geometry.offset(page) >= dies {
            if let Some(before) = self.programs.of_page(Ppn(page.0 - dies)) {
                self.follow_program(node, before);
            }
        } else {
            let erase = self.erases.of(page).and_then(|name| self.graph.find(name));
            self.wait_for(node, erase.unwrap_or(NONE));
        }
    }

    /// The program `node` comes after another one of its block.
    pub(super) fn follow_program(&mut self, node: u32, before: u32) {
        if self.spec.cache_program {
            self.graph.succeed(node, before);
        } else {
            self.graph.wait_for(node, before);
        }
    }

    /// The operations of a lookup are done one after the other, and so are lookups.
    fn join_lookup(&mut self, kind: OpKind, node: u32) {
        if kind == OpKind::LookupBegin {
            assert!(self.lookup == NONE, "a lookup ends before the next begins");
            self.lookup = node;
        } else if self.lookup != NONE
            && matches!(
                kind,
                OpKind::Read
                    | OpKind::ReadTable
                    | OpKind::NvRead
                    | OpKind::ScanFlash
                    | OpKind::LookupEnd
            )
        {
            self.wait_for(node, self.lookup);
            self.lookup = node;
            if kind == OpKind::LookupEnd {
                (self.lookup, self.looked_up) = (NONE, node);
            }
        }
    }

    /// Records what later operations may name.
    fn note(&mut self, op: &Op, work: Work, page: Ppn, node: u32, adding: &Adding) {
        if matches!(work, Work::Program | Work::Buffer) && page != NO_PAGE {
            let after = |node| Ready::After(self.graph.name(node));
            let ready = match (op.purpose, adding.copied, adding.gate) {
                // A copyback has no other data than its source until it ends.
                _ if self.graph.node(node).pages == 0 => after(node),
                (_, copied, _) if copied != NONE => after(copied),
                (Purpose::Host, _, Gate::Node(gate)) => after(gate),
                (Purpose::Host, _, Gate::Time(time)) => Ready::At(time),
                _ => Ready::At(0),
            };

            let source = adding.source;
            let program = match work {
                Work::Buffer => self.last_step(self.graph.node(node).unit),
                _ => node,
            };
            self.programs.add(page, 1, program, self.graph.name(node));
            self.programs.set_way(node, Way { ready, source });
        }

        if work == Work::NvStore && matches!(op.purpose, Purpose::Host | Purpose::WriteBack) {
            self.own_stores.push(self.graph.name(node));
        }

        if op.kind == OpKind::Erase && op.page != NO_PAGE {
            self.copybacks.erased(op.page);
            self.erases.add(op.page, self.graph.name(node));
            self.erase_follows_units(op.page, node);
        }

        if op.kind.is_named() {
            if op.clear_id == ClearId(0) {
                return;
            }
            self.clears.add(op.clear_id.0);
        }
    }

    /// Collection's copies of one row of dies: a page is programmed when its source has been read.
    fn add_row(&mut self, op: &Op, adding: &Adding) {
        // Its reads would end a row of programs that wait for everything.
        debug_assert!(!op.after_all, "copies wait for what they name");
        let geometry = self.geometry;
        let first = geometry.slot(Ppn(op.amount));
        let base = geometry.die_of(geometry.superblock(first.ppn), 0);

        let mut sources = op.sources;
        let mut index = 0;
        while sources != 0 {
            let step = sources.trailing_zeros();
            sources &= sources - 1;

            let mut read = Op::new(OpKind::Read, op.purpose, remap_ssd_media::After::NOTHING);
            read.page = Ppn(op.amount + step);
            read.die = (base + geometry.die_of_offset(first.die + step)) as u16;
            let program = Op {
                kind: OpKind::Program,
                die: op.die + index as u16,
                page: Ppn(op.page.0 + index),
                ..*op
            };
            index += 1;

            if self.add_copyback(&read, &program, adding) {
                continue;
            }

            // One that is not programmed itself has no data to read.
            let is_there = self.programs.of_page(read.page).is_none();
            let source = is_there.then_some((read.page, read.die));
            let read = self.add_op(&read, adding);

            let copy = Adding {
                copied: read,
                source,
                ..*adding
            };

            let program = self.add_op(&program, &copy);
            self.wait_for(program, read);
            self.graph.seal(read);
            self.graph.seal(program);
        }
    }

    /// Reads of pages spread evenly over the dies.
    fn add_scan(&mut self, op: &Op, adding: &Adding) {
        let each = self.spec.read.mean() + self.spec.transfer_ns;
        let (share, rest) = (op.amount / self.chips, op.amount % self.chips);

        // Between two nodes that take no time, the dies read side by side.
        let begin = self.add_one(op, Node::new(Work::Nothing, Class::Metadata), adding);
        let mut end = Node::new(Work::Nothing, Class::Metadata);
        if op.purpose == Purpose::Host {
            end.part = adding.part;
            self.requests.wait(adding.part);
        }
        let end = self.graph.add(end);
        self.watch_submitted(end);

        for chip in 0..self.chips {
            let pages = share + u32::from(chip < rest);
            if pages == 0 {
                continue;
            }
            let mut node = Node::new(Work::Scan, Class::Metadata);
            node.die = chip as u16;
            node.length = u64::from(pages) * each;
            let node = self.graph.add(node);
            self.graph.wait_for(node, begin);
            self.graph.wait_for(end, node);
            self.graph.seal(node);
        }

        // Also without any page to read. Later operations of the lookup come after all of these reads.
        self.graph.wait_for(end, begin);
        self.graph.seal(begin);
        if self.lookup == begin {
            self.lookup = end;
        }
        self.graph.seal(end);
    }
}

/// True if only one operation is the host's. None waits for everything, and so for the data of the part.
fn has_one_operation(ops: &[Op]) -> bool {
    let of_host = |op: &&Op| op.purpose == Purpose::Host;
    let mut found = ops.iter().filter(of_host);
    let is_simple = found
        .next()
        .is_some_and(|op| op.kind != OpKind::ScanFlash && found.next().is_none());
    is_simple && !ops.iter().any(|op| op.after_all)
}
