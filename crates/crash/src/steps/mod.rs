//! What the firmware did, as steps of the proof's model: one line a step, which `proof/accept` checks.
//!
//! The media report each operation with its order, as the power rail decides cuts by it. Here it gets its meaning: a program is a
//! write if its number is new, a copy if not; two words of the log are an entry. Only the host's commands, their
//! acknowledgements and the cuts are known besides. So nothing that the firmware believes enters the check. docs/proof.md
//! describes the lines.
//!
//! Invariant: a position stands for one operation of the model; positions ascend from power-on, or from the last `rest`. Absent:
//! rules, which are the model's.

mod words;

use crate::content::Content;
use crate::script::ScriptCommand;
use crate::setup::Setup;
use remap_ssd_ftl::{Config, EntrySize, Ftl, Granularity, Remap, SchemeKind};
use remap_ssd_media::rail::{Change, IssuedOp, RailEvent};
use remap_ssd_media::{Geometry, Lpn, Oob, Outcome, Ppn, StoredPage, WordLine};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::ops::Range;
use std::rc::Rc;
use words::{Meaning, Words};

/// The text of a script's steps, which the forks of a device share.
pub(crate) type StepText = Rc<RefCell<String>>;

/// The steps of one device since power-on.
#[derive(Clone)]
pub(crate) struct StepTrace {
    text: StepText,
    geometry: Geometry,
    lpns: u32,
    words: Words,
    /// First operation that has positions, and the first position of each from there on.
    first_token: u64,
    starts: Vec<u32>,
    /// The next position.
    next: u32,
    /// Operations that are not durable.
    pending: BTreeSet<u64>,
    /// Largest number of a witness.
    clock: u64,
    /// Numbers of the commands in progress, each with its word.
    running: BTreeMap<u64, usize>,
    /// Notes of contents so far.
    notes: u32,
    /// What clearings of words that were zero wait for.
    idle: BTreeMap<u64, IssuedOp>,
    command: CommandTrace,
    /// The first word of an entry or record, whose second one follows.
    half: Option<IssuedOp>,
}

/// What the current command of the host has done.
#[derive(Clone, Default)]
struct CommandTrace {
    numbers: BTreeSet<u64>,
    /// The number that each LPN got.
    given: BTreeMap<u32, u64>,
    /// It is a remap: what it loses relies on what it gives.
    is_remap: bool,
    /// Numbers that gave LPNs a page.
    gained: BTreeSet<u64>,
}

/// What an acknowledgement says: these numbers are durable, and what these notes of contents rely on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Acknowledged {
    numbers: BTreeSet<u64>,
    unchanged: Vec<u32>,
}

/// What the device has and the checker does not judge.
pub(crate) fn not_judged(setup: &Setup) -> Vec<&'static str> {
    let config = &setup.config;
    let is_known = matches!(
        config.scheme,
        SchemeKind::RemapSsd | SchemeKind::NLog | SchemeKind::None
    );
    let parts = [
        (!is_known, "this scheme (only remap-ssd, nlog and none)"),
        (config.mapping != Granularity::Page, "hybrid mapping"),
        (config.entry != EntrySize::Bytes16, "24-byte entries"),
        (
            config.untorn_bytes > 0,
            "untorn writes (firmware.untorn_bytes=0 is without them)",
        ),
        (config.write_buffer_bytes > 0, "a write buffer"),
        (config.mapping_cache_bytes > 0, "translation pages"),
        (config.fs_files > 0, "a file map"),
        (
            setup.geometry.word_line() != WordLine::SINGLE,
            "word lines of several pages, or larger units",
        ),
        (
            config.slc_share > 0.0 || config.slc_dynamic > 0.0,
            "SLC mode",
        ),
        (
            setup.bad_blocks > 0 || setup.media_faults || config.pe_limit > 0,
            "failing media",
        ),
    ];
    let present = parts.into_iter().filter(|(has, _)| *has);
    present.map(|(_, what)| what).collect()
}

/// A command that the model has, in place of this one: a relocation under Remap-SSD has entries that also say who lost the page.
pub(crate) fn traced(remap: Remap, scheme: SchemeKind) -> Remap {
    Remap {
        relocate: remap.relocate && scheme != SchemeKind::RemapSsd,
        ..remap
    }
}

impl StepTrace {
    /// The trace of a new device, whose rail is attached.
    pub(crate) fn begin(setup: &Setup, ftl: &Ftl, text: StepText) -> Self {
        let (geometry, config) = (setup.geometry, &setup.config);
        let words = Words::new(config, &geometry, vec![0; ftl.media().nvram_words()]);
        // As large as the model allows: collection itself opens superblocks of the firmware's reserve.
        let _ = writeln!(
            text.borrow_mut(),
            "device {} {} {} {} {} 1 {}",
            geometry.superblocks(),
            geometry.dies(),
            geometry.pages_per_block(),
            words.slots(),
            words.open_words(),
            config.lpns,
        );
        Self::of(config, geometry, words, text)
    }

    fn of(config: &Config, geometry: Geometry, words: Words, text: StepText) -> Self {
        Self {
            text,
            geometry,
            lpns: config.lpns,
            words,
            first_token: 1,
            starts: Vec::new(),
            next: 0,
            pending: BTreeSet::new(),
            clock: 0,
            running: BTreeMap::new(),
            notes: 0,
            idle: BTreeMap::new(),
            command: CommandTrace::default(),
            half: None,
        }
    }

    fn line(&self, text: &str) {
        let mut all = self.text.borrow_mut();
        all.push_str(text);
        all.push('\n');
    }

    /// What follows happens to another device with the same media and the same past, until `back`.
    pub(crate) fn fork(&self) {
        self.line("fork");
    }

    /// The device before the last `fork` goes on.
    pub(crate) fn back(&self) {
        self.line("back");
    }

    /// The device before the last `fork` is given up, and this one goes on.
    pub(crate) fn stay(&self) {
        self.line("stay");
    }

    /// Power fails, with these outcomes of the pending operations. `words`: what the cut leaves in NVRAM.
    pub(crate) fn cut(&mut self, outcomes: &[(u64, Outcome)], words: Vec<u64>) {
        let mut ends = vec![b'w'; self.next as usize];
        for (token, outcome) in outcomes {
            for position in self.positions(*token) {
                ends[position as usize] = match self.words.cleared(position) {
                    Some(word) if outcome.zeroes(word) => b'w',
                    Some(_) => b'a',
                    None => match outcome {
                        Outcome::Whole => b'w',
                        Outcome::Absent => b'a',
                        Outcome::Torn(_) => b't',
                    },
                };
            }
        }
        self.line(&format!("cut {}", String::from_utf8_lossy(&ends)));

        self.words.power_on(words);
        (self.first_token, self.next) = (1, 0);
        self.starts.clear();
        self.idle.clear();
        self.pending.clear();
        self.running.clear();
        self.command = CommandTrace::default();
    }

    /// Power is back, and recovery has read the media; its own operations are still among the events.
    pub(crate) fn recovered(&mut self, ftl: &mut Ftl) {
        self.clock = ftl.resumed_wsn();
        self.take(ftl, &[]);
    }

    /// A command of the host begins.
    pub(crate) fn command(&mut self, ftl: &mut Ftl, command: &ScriptCommand) {
        self.take(ftl, &[]);
        self.command = CommandTrace {
            is_remap: matches!(command, ScriptCommand::Remap(_)),
            ..CommandTrace::default()
        };
        self.line(&format!("command {command}"));
    }

    /// The command has been executed: all that its acknowledgement will say. `live`: the contents that it leaves.
    pub(crate) fn executed(
        &mut self,
        command: &ScriptCommand,
        ftl: &mut Ftl,
        live: &[Content],
    ) -> Acknowledged {
        self.take(ftl, live);
        let (first, len) = match *command {
            ScriptCommand::Write { lpn, .. } | ScriptCommand::WriteFor { lpn, .. } => (lpn, 1),
            ScriptCommand::WriteMany { lpn, len, .. } | ScriptCommand::Deallocate { lpn, len } => {
                (lpn, len)
            }
            ScriptCommand::Remap(remap) => (remap.target, remap.len),
            _ => (Lpn::ZERO, 0),
        };
        // The others have these contents already.
        let mut unchanged = Vec::new();
        for lpn in first.0..first.0 + len {
            if !self.command.given.contains_key(&lpn) {
                self.line(&format!("has {} {lpn} {}", self.notes, live[lpn as usize]));
                unchanged.push(self.notes);
                self.notes += 1;
            }
        }
        Acknowledged {
            numbers: self.command.numbers.clone(),
            unchanged,
        }
    }

    /// The host sees an acknowledgement.
    pub(crate) fn acknowledge(&mut self, ftl: &mut Ftl, said: &Acknowledged) {
        self.take(ftl, &[]);
        for number in &said.numbers {
            self.line(&format!("ack {number}"));
        }
        for note in &said.unchanged {
            self.line(&format!("keeps {note}"));
        }
    }

    /// The contents of all LPNs, as the firmware reads them.
    pub(crate) fn shown(&mut self, ftl: &mut Ftl, read: &[Content]) {
        self.take(ftl, &[]);
        let mut line = "shown".to_owned();
        for content in read {
            let _ = write!(line, " {content}");
        }
        self.line(&line);
    }

    /// Takes the events so far.
    pub(crate) fn take(&mut self, ftl: &mut Ftl, live: &[Content]) {
        let mut durable: Vec<u32> = Vec::new();
        for event in ftl.media_mut().take_events() {
            match event {
                RailEvent::Issued(op) => {
                    self.durable(&mut durable);
                    self.issued(op, live);
                }
                RailEvent::Durable(token) => {
                    self.pending.remove(&token);
                    durable.extend(self.positions(token));
                }
            }
        }
        self.durable(&mut durable);
        assert!(
            self.half.is_none(),
            "both words of an entry are stored at once"
        );
    }

    fn durable(&mut self, positions: &mut Vec<u32>) {
        if positions.is_empty() {
            return;
        }
        let mut line = "done".to_owned();
        for run in positions.chunk_by(|a, b| a + 1 == *b) {
            let _ = match run {
                [one] => write!(line, " {one}"),
                run => write!(line, " {}-{}", run[0], run[run.len() - 1]),
            };
        }
        self.line(&line);
        positions.clear();

        if self.pending.is_empty() && self.running.is_empty() {
            self.line("rest");
            self.first_token += self.starts.len() as u64;
            self.starts.clear();
            self.idle.clear();
            self.next = 0;
            self.words.rest();
        }
    }

    fn positions(&self, token: u64) -> Range<u32> {
        self.start_of(token)..self.start_of(token + 1)
    }

    /// Positions of earlier operations are below it.
    fn start_of(&self, token: u64) -> u32 {
        let at = token.saturating_sub(self.first_token) as usize;
        match token < self.first_token {
            true => 0,
            false => self.starts.get(at).copied().unwrap_or(self.next),
        }
    }

    fn issued(&mut self, op: IssuedOp, live: &[Content]) {
        assert_eq!(op.token, self.first_token + self.starts.len() as u64);
        self.starts.push(self.next);
        self.pending.insert(op.token);
        match &op.change {
            Change::Program(ppn, oob, stored) => self.program(&op, *ppn, *oob, stored),
            Change::Erase(block) => {
                let (sb, die) = self.geometry.place_of_block(*block);
                let line = format!("erase {} {}", sb.0, self.block(sb.0, die));
                self.step(&line, &[&op], 1);
            }
            Change::Store(word, value) => self.store(&op, *word, *value, live),
            Change::Clear(start, len) => self.clear(&op, *start..*start + *len, "clear"),
            Change::Failed => panic!("media of traced devices do not fail"),
        }
    }

    /// Writes a line, with the waits of the operations that it is about, and `count` positions.
    fn step(&mut self, text: &str, ops: &[&IssuedOp], count: u32) {
        let mut line = text.to_owned();
        for (index, op) in ops.iter().enumerate() {
            line.push_str(if index == 0 { " :" } else { " ;" });
            let waits = self.through_idle(op);
            let all = self.start_of(waits.all_below);
            let stores = self.start_of(waits.stores_below);
            if all > 0 {
                let _ = write!(line, " all<{all}");
            }
            if stores > all {
                let _ = write!(line, " stores<{stores}");
            }
            let named: BTreeSet<u32> = waits
                .named
                .iter()
                .flat_map(|token| self.positions(*token))
                .collect();
            for position in named.into_iter().filter(|position| *position >= all) {
                let _ = write!(line, " {position}");
            }
        }
        self.line(&line);
        self.next += count;
    }

    /// An operation that waits for a clearing of words that were zero waits for what that waited for.
    fn through_idle(&self, op: &IssuedOp) -> IssuedOp {
        let mut all = op.clone();
        let mut at = 0;
        while let Some(token) = all.named.get(at) {
            if let Some(idle) = self.idle.get(token) {
                all.all_below = all.all_below.max(idle.all_below);
                all.stores_below = all.stores_below.max(idle.stores_below);
                all.named.extend(&idle.named);
            }
            at += 1;
        }
        all
    }

    /// The model's number of a block: the head is in its superblock's first one.
    fn block(&self, sb: u32, die: u32) -> u32 {
        let dies = self.geometry.dies();
        (die + dies - sb % dies) % dies
    }

    fn address(&self, ppn: Ppn) -> String {
        let slot = self.geometry.slot(ppn);
        let sb = self.geometry.superblock(ppn).0;
        format!("{sb}.{}.{}", self.block(sb, slot.die), slot.row)
    }

    /// Notes a new number of an LPN; `by_host`: of the current command.
    fn give(&mut self, lpns: Range<u32>, number: u64, by_host: bool) {
        self.clock = self.clock.max(number);
        if by_host {
            self.command.numbers.insert(number);
            for lpn in lpns {
                self.command.given.insert(lpn, number);
            }
        }
    }

    /// `=` if the number is that of a command in progress, `+` if it is new.
    fn kind(&self, number: u64) -> Option<char> {
        match self.running.contains_key(&number) {
            true => Some('='),
            false => (number > self.clock).then_some('+'),
        }
    }

    fn program(&mut self, op: &IssuedOp, ppn: Ppn, oob: Oob, stored: &StoredPage) {
        let (lpn, number, to) = (oob.lpn(), oob.wsn(), self.address(ppn));
        if lpn == Oob::HEAD {
            let sb = self.geometry.superblock(ppn).0;
            assert!(to.ends_with(".0.0"), "a head is the first page");
            return self.step(&format!("open {sb}"), &[op], 1);
        }
        if !lpn.is_below(self.lpns) && !matches!(stored, StoredPage::Meta(_))
            || lpn.0 >= Oob::DOUBTS.0
        {
            return self.step(&format!("pad {to}"), &[op], 1);
        }

        let (names, content) = match stored {
            StoredPage::Identity(identity) => (vec![lpn.0], *identity),
            StoredPage::Bytes(bytes) => {
                let first = bytes.first_chunk().expect("a page has 8 bytes");
                (vec![lpn.0], u64::from_le_bytes(*first))
            }
            StoredPage::Meta(bits) => (named(bits, self.lpns), 0),
            StoredPage::Nothing => panic!("devices of a campaign store contents"),
        };
        let is_bitmap = matches!(stored, StoredPage::Meta(_));
        let list: String = names.iter().map(|name| format!(" {name}")).collect();
        let line = match (self.kind(number), op.copied) {
            (Some(kind), _) if op.critical && !is_bitmap => {
                self.command.gained.insert(number);
                self.give(lpn.0..lpn.0 + 1, number, true);
                format!("write {kind}{number} {lpn} {content} {to}", lpn = lpn.0)
            }
            (Some(_), _) => {
                self.give(0..0, number, false);
                format!("restate {number} {content} {to}{list}")
            }
            (None, Some(from)) => format!("copy {number} {} {to}{list}", self.address(from)),
            (None, None) => format!("unknown program of {to} with number {number}"),
        };
        self.step(&line, &[op], 1);
    }

    fn store(&mut self, op: &IssuedOp, word: usize, value: u64, live: &[Content]) {
        if let Some(first) = self.half.take() {
            return self.second(&first, op, (word, value), live);
        }
        let old = self.words.get(word);
        if matches!(self.words.meaning(word), Meaning::First(_)) && value != 0 {
            self.half = Some(op.clone());
            return;
        }

        self.words.set(word, value);
        match self.words.meaning(word) {
            Meaning::First(_) | Meaning::Second(_) if value == 0 => {
                self.words.set(word, old);
                self.clear(op, word..word + 1, "zero");
            }
            Meaning::Life(sb) if words::incarnation(value) != words::incarnation(old) => {
                self.step(&format!("die {sb}"), &[op], 1);
            }
            Meaning::Open(_) if value == old => self.aside(op, word),
            Meaning::Open(k) if value != 0 => {
                self.running.insert(value, k);
                self.give(0..0, value, true);
                self.step(&format!("begin {value} {k}"), &[op], 1);
            }
            Meaning::Open(k) => match self.running.remove(&old) {
                Some(_) => self.step(&format!("commit {old}"), &[op], 1),
                None => self.step(&format!("clear-open {k}"), &[op], 1),
            },
            Meaning::Aborted(k) => {
                // One store replaces a number by another. As two, it has one cut more.
                if old != 0 {
                    self.step(&format!("unlist {k}"), &[op], 1);
                }
                if value != 0 {
                    if self.running.remove(&value).is_some() {
                        self.line(&format!("give-up {value}"));
                    }
                    self.step(&format!("list {k} {value}"), &[op], 1);
                }
            }
            _ => self.aside(op, word),
        }
    }

    fn aside(&mut self, op: &IssuedOp, word: usize) {
        self.step(&format!("aside {word}"), &[op], 1);
    }

    /// Words are zeroed, of which a cut leaves any. Those that are zero already stay as they are.
    fn clear(&mut self, op: &IssuedOp, words: Range<usize>, verb: &str) {
        let (mut line, mut count) = (verb.to_owned(), 0);
        for word in words {
            let (half, slot) = match self.words.meaning(word) {
                Meaning::First(slot) => (1, slot),
                Meaning::Second(slot) => (2, slot),
                // No more than an order: what it zeroes says nothing.
                _ => continue,
            };
            if self.words.get(word) != 0 {
                self.words.clear(word, self.next + count);
                let _ = write!(line, " {}{half}.{}", slot.kind(), slot.number());
                count += 1;
            }
        }
        match count {
            0 => {
                self.idle.insert(op.token, op.clone());
            }
            count => self.step(&line, &[op], count),
        }
    }

    /// Both words of an entry or a record.
    fn second(
        &mut self,
        first: &IssuedOp,
        op: &IssuedOp,
        (word, value): (usize, u64),
        live: &[Content],
    ) {
        let Change::Store(at, first_value) = first.change else {
            panic!("it is a store");
        };
        assert!(word == at + 1 && value != 0, "two words of one entry");
        self.words.set(at, first_value);
        self.words.set(word, value);
        // Both operations have been issued, and none has a position yet.
        self.starts.truncate(self.starts.len() - 2);
        self.starts.extend([self.next, self.next + 1]);

        let Meaning::First(slot) = self.words.meaning(at) else {
            panic!("it is a first word");
        };
        let line = match self.words.record(slot, (first_value, value)) {
            words::Record::Deallocation { first, len, number } => {
                let kind = self.kind(number).unwrap_or('-');
                let after = match (self.command.is_remap, kind) {
                    (true, '+') if op.critical => self.command.gained.clone(),
                    _ => BTreeSet::new(),
                };
                let after: String = after.iter().map(|number| format!(" {number}")).collect();
                self.give(first..first + len, number, op.critical);
                format!(
                    "deallocate {kind}{number} {first} {len} {}{after}",
                    slot.number()
                )
            }
            words::Record::Entry { lpn, ppn, number } => {
                let place = self.address(ppn);
                match self.kind(number) {
                    Some(kind) if op.critical => {
                        self.command.gained.insert(number);
                        self.give(lpn..lpn + 1, number, true);
                        let content = live.get(lpn as usize).copied().unwrap_or(0);
                        format!(
                            "remap {kind}{number} {lpn} {content} {place} {}",
                            slot.number()
                        )
                    }
                    _ => format!("reenter {number} {lpn} {place} {}", slot.number()),
                }
            }
        };
        self.step(&line, &[first, op], 2);
    }
}

/// The LPNs of a bitmap.
fn named(bits: &[u8], lpns: u32) -> Vec<u32> {
    let is_set = |lpn: &u32| {
        let byte = bits.get(*lpn as usize / 8).copied().unwrap_or(0);
        byte >> (lpn % 8) & 1 == 1
    };
    (0..lpns).filter(is_set).collect()
}
