//! Word lines on the power rail: programs of several pages, and pages that a torn program damages.
//!
//! Without power-loss protection the controller's buffer forgets its pages. A program unit lands as a whole, and
//! only once all of its pages have been issued; so an operation may wait for pages that are issued after it.
//! A torn program leaves any of its pages unreadable, and any page that shares its word line, even if that
//! one was durable. In SLC mode a program unit is a word line.
//!
//! Invariant: with units of one page, all this is what `Rail` does without it. Absent: how the firmware fills
//! units.

use super::{Outcome, PendingOp, mix};
use crate::effect::MediaEffect;
use crate::geometry::{BlockId, Geometry, Ppn, SbId};
use crate::slc::SlcModes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

/// How pages share word lines, and the lines that are being filled.
#[derive(Clone)]
pub(super) struct Lines {
    /// Pages of a program unit, and of a word line.
    sizes: LineSizes,
    /// Who waits for a page waits for its word line.
    whole: bool,
    /// By first page, the lines whose last page has not been issued.
    open: BTreeMap<u32, OpenLine>,
}

/// Pages of a program unit, and of a word line.
#[derive(Clone, Copy)]
pub(super) struct UnitSizes {
    unit: u32,
    line: u32,
}

impl UnitSizes {
    /// Pages are programmed one by one.
    pub(super) const SINGLE: Self = Self { unit: 1, line: 1 };

    /// The first page of the word line of a page. A superblock has whole word lines.
    fn first_of_line(self, page: u32) -> u32 {
        page - page % self.line
    }

    /// The first page of the program unit of a page.
    fn first_of_unit(self, page: u32) -> u32 {
        page - page % self.unit
    }
}

/// The same by the present mode of the superblock.
#[derive(Clone)]
struct LineSizes {
    full: UnitSizes,
    slc: SlcModes,
}

impl LineSizes {
    fn of(&self, page: u32) -> UnitSizes {
        let line = self.slc.area().line();
        match self.slc.has_page(Ppn(page)) {
            true => UnitSizes { unit: line, line },
            false => self.full,
        }
    }

    /// Pages of the word line of a page.
    fn line(&self, page: u32) -> u32 {
        self.of(page).line
    }

    /// The first page of the word line of a page.
    fn first_of_line(&self, page: u32) -> u32 {
        self.of(page).first_of_line(page)
    }
}

#[derive(Clone)]
struct OpenLine {
    /// The program of its first page.
    since: u64,
    /// The page to be issued next.
    next: u32,
    /// Operations that wait for its pages, with the pages that each waits for.
    waiting: Vec<(u64, Range<u32>)>,
}

/// What a cut leaves of each pending operation, and for each program that it tore the pages of its word line before it, which
/// it may damage, and a seed.
pub(super) struct Landed {
    pub outcomes: Vec<Outcome>,
    /// True for operations that have completed.
    pub whole: Vec<bool>,
    pub torn: Vec<(Range<u32>, u64)>,
}

impl Lines {
    pub(super) fn new(geometry: Geometry, whole: bool, slc: SlcModes) -> Self {
        let word_line = geometry.word_line();
        Self {
            sizes: LineSizes {
                full: UnitSizes {
                    unit: word_line.unit_pages(),
                    line: word_line.pages(),
                },
                slc,
            },
            whole,
            open: BTreeMap::new(),
        }
    }

    /// From now on a superblock is in this mode.
    pub(super) fn set_slc(&mut self, sb: SbId, is_slc: bool) {
        self.sizes.slc.set(sb, is_slc);
    }

    /// Pages of the program unit and of the word line of a page.
    pub(super) fn sizes_of(&self, page: Ppn) -> UnitSizes {
        self.sizes.of(page.0)
    }

    /// The pages that must be durable before whoever waits for `pages` begins.
    pub(super) fn waited(&self, pages: Range<u32>) -> Range<u32> {
        if self.whole && !pages.is_empty() {
            let last = pages.end - 1;
            let end = self.sizes.first_of_line(last) + self.sizes.line(last);
            self.sizes.first_of_line(pages.start)..end
        } else {
            pages
        }
    }

    /// Operation `token` waits for `pages`, of which some may not have been issued. The program of `own` does not wait
    /// for later pages of its own line, which come after it.
    pub(super) fn wait(&mut self, token: u64, pages: &Range<u32>, own: Option<Ppn>) {
        let first = self.sizes.first_of_line(pages.start);
        let own = own.map(|page| self.sizes.first_of_line(page.0));
        for (first, line) in self.open.range_mut(first..pages.end) {
            if own != Some(*first) {
                line.waiting.push((token, pages.clone()));
            }
        }
    }

    /// Operation `token` waits for all lines that were begun before `since`.
    pub(super) fn wait_all(&mut self, token: u64, since: u64) {
        if !self.whole {
            return;
        }
        for (first, line) in &mut self.open {
            if line.since < since {
                line.waiting
                    .push((token, *first..*first + self.sizes.line(*first)));
            }
        }
    }

    /// The first program of the line that holds a page, if the line is being filled.
    pub(super) fn since(&self, page: Ppn) -> Option<u64> {
        let first = self.sizes.first_of_line(page.0);
        self.open.get(&first).map(|line| line.since)
    }

    /// True if a page counts only with its whole word line.
    pub(super) fn are_whole(&self) -> bool {
        self.whole
    }

    /// The first page of a word line of a block that is not full, if there is one.
    pub(super) fn open_in(&self, mut is_of_block: impl FnMut(Ppn) -> bool) -> Option<Ppn> {
        let mut first_pages = self.open.keys().map(|first| Ppn(*first));
        first_pages.find(|first| is_of_block(*first))
    }

    /// Of programs of ascending pages, the first of each word line but that of `own`.
    pub(super) fn beginnings<'a>(
        &'a self,
        programs: impl Iterator<Item = (u32, u64)> + 'a,
        own: Ppn,
    ) -> impl Iterator<Item = (u32, u64)> + 'a {
        let own = self.sizes.first_of_line(own.0);
        let mut last = own;
        programs.filter(move |(page, _)| {
            let line = self.sizes.first_of_line(*page);
            line != own && std::mem::replace(&mut last, line) != line
        })
    }

    /// A page is programmed. Returns the operations that wait for it already.
    pub(super) fn program(&mut self, page: Ppn, token: u64) -> Vec<u64> {
        let first = self.sizes.first_of_line(page.0);
        let line = self.open.entry(first).or_insert_with(|| OpenLine {
            since: token,
            next: page.0,
            waiting: Vec::new(),
        });

        let named = line.waiting.iter();
        let tokens = named.filter(|(_, pages)| pages.contains(&page.0));
        let tokens = tokens.map(|(token, _)| *token).collect();

        line.next = page.0 + 1;
        // All of its pages are issued: later operations find their programs by token.
        if page.0 + 1 == first + self.sizes.line(first) {
            self.open.remove(&first);
        }
        tokens
    }

    /// Returns true if pages of some word line have not been issued.
    pub(super) fn is_filling(&self) -> bool {
        !self.open.is_empty()
    }

    /// The pages that must be settled with one.
    pub(super) fn together(&self, page: Ppn, sizes: UnitSizes) -> Range<u32> {
        let (first, size) = if self.whole {
            (sizes.first_of_line(page.0), sizes.line)
        } else {
            (sizes.first_of_unit(page.0), sizes.unit)
        };
        first..first + size
    }

    /// The pending operations that land together, and for each operation where it is among them.
    fn units(&self, pending: &VecDeque<PendingOp>) -> (Vec<Vec<usize>>, Vec<usize>) {
        let (mut units, mut unit_of) = (Vec::<Vec<usize>>::new(), Vec::new());

        // By first page, the unit that is being filled. An erased block is filled again from its first page on.
        let mut filling: BTreeMap<u32, usize> = BTreeMap::new();
        let page_of = |index: usize| pending[index].effect.page().map(|page| page.0);

        for (index, op) in pending.iter().enumerate() {
            let begun = match op.effect {
                MediaEffect::Program { ppn, .. } => {
                    let begun = filling.get(&op.sizes.first_of_unit(ppn.0)).copied();
                    begun
                        .filter(|unit| units[*unit].last().copied().and_then(page_of) < Some(ppn.0))
                }
                _ => None,
            };

            // Anything but a program is a unit of its own.
            let unit = begun.unwrap_or_else(|| {
                units.push(Vec::new());
                units.len() - 1
            });
            if let MediaEffect::Program { ppn, .. } = op.effect {
                filling.insert(op.sizes.first_of_unit(ppn.0), unit);
            }
            units[unit].push(index);
            unit_of.push(unit);
        }
        (units, unit_of)
    }

    /// Operations that wait for pages that have not been issued.
    fn blocked(&self) -> BTreeSet<u64> {
        let mut blocked = BTreeSet::new();
        for (first, line) in &self.open {
            let end = first + self.sizes.line(*first);
            let waiting = line.waiting.iter();
            let missing = waiting.filter(|(_, pages)| pages.end.min(end) > line.next);
            blocked.extend(missing.map(|(token, _)| *token));
        }
        blocked
    }

    /// Decides all pending operations, each program unit as one. `choose` is called for each that is free to
    /// land, with its first operation.
    ///
    /// # Panics
    /// Operations wait for each other.
    pub(super) fn decide(
        &self,
        pending: &VecDeque<PendingOp>,
        choose: impl FnMut(usize) -> Outcome,
    ) -> Landed {
        let (units, unit_of) = self.units(pending);

        let mut decision = Decision {
            pending,
            units,
            unit_of,
            blocked: self.blocked(),
            decided: vec![false; pending.len()],
            landed: Landed {
                outcomes: vec![Outcome::Absent; pending.len()],
                whole: vec![false; pending.len()],
                torn: Vec::new(),
            },
            first_missing: u64::MAX,
            first_missing_store: u64::MAX,
            broken: BTreeMap::new(),
        };

        decision.run(choose);
        let undecided = decision.decided.iter().position(|decided| !decided);
        if let Some(first) = undecided {
            decision.report_circle(first);
        }
        decision.landed
    }
}

struct Decision<'a> {
    pending: &'a VecDeque<PendingOp>,
    /// The operations that land together, in order of issue, and for each operation where it is among them.
    units: Vec<Vec<usize>>,
    unit_of: Vec<usize>,
    /// Operations that wait for pages that have not been issued.
    blocked: BTreeSet<u64>,
    decided: Vec<bool>,
    landed: Landed,
    /// The oldest operation that is missing, the oldest store, and the oldest of each block.
    first_missing: u64,
    first_missing_store: u64,
    broken: BTreeMap<BlockId, u64>,
}

impl Decision<'_> {
    fn run(&mut self, mut choose: impl FnMut(usize) -> Outcome) {
        // In order of issue, as far as all that an operation waits for has been decided. A unit has its turn at its
        // last page. Each round decides at least one, unless the rest wait for each other. Who waits for a page that has
        // not been issued is decided too: it does not land.
        loop {
            let mut skipped = Vec::new();
            let mut progress = false;
            for index in 0..self.pending.len() {
                if self.decided[index] {
                    continue;
                }
                let members = &self.units[self.unit_of[index]];
                let is_turn = members.last() == Some(&index);
                if !is_turn
                    || !members
                        .iter()
                        .all(|member| self.is_ready(*member, &skipped))
                {
                    skipped.push(index);
                    continue;
                }

                let is_free =
                    self.is_complete(members) && members.iter().all(|member| self.is_free(*member));
                let outcome = if is_free {
                    choose(members[0])
                } else {
                    Outcome::Absent
                };
                self.conclude(self.unit_of[index], outcome);
                skipped.retain(|index| !self.decided[*index]);
                progress = true;
            }
            if !progress {
                return;
            }
        }
    }

    /// Operations that were not decided wait for each other: this one, or one that it waits for.
    #[cold]
    fn report_circle(&self, first: usize) -> ! {
        let all = 0..self.pending.len();
        let skipped: Vec<usize> = all.filter(|at| !self.decided[*at]).collect();
        let waits_for = |at: usize, other: usize| {
            let op = &self.pending[at];
            self.comes_before(other, at, op) || op.named.contains(&self.pending[other].token)
        };

        // The members of a unit wait for what any of them waits for.
        let before = |at: usize| -> usize {
            let members = &self.units[self.unit_of[at]];
            let found = members.iter().find_map(|member| {
                let mut others = skipped
                    .iter()
                    .filter(|other| !self.is_same_unit(**other, at));
                others.find(|other| waits_for(*member, **other)).copied()
            });
            found.expect("it waits for another")
        };

        // Going back far enough ends in a circle; going round it once more finds its operations.
        let start = skipped.iter().fold(first, |at, _| before(at));
        let mut circle = vec![start];
        let others = std::iter::successors(Some(before(start)), |at| Some(before(*at)));
        circle.extend(others.take_while(|at| *at != start));

        let named = circle.iter().map(|at| self.pending[*at].name());
        let named: Vec<String> = named.collect();
        panic!(
            "{} operations wait for each other: {}",
            skipped.len(),
            named.join(", which waits for ")
        );
    }

    fn is_complete(&self, members: &[usize]) -> bool {
        members.last().is_none_or(|last| {
            let op = &self.pending[*last];
            match op.effect {
                MediaEffect::Program { ppn, .. } => (ppn.0 + 1).is_multiple_of(op.sizes.unit),
                _ => true,
            }
        })
    }

    fn is_same_unit(&self, one: usize, other: usize) -> bool {
        self.unit_of[one] == self.unit_of[other]
    }

    /// Returns true if all that an operation waits for has been decided. `skipped`: the earlier operations that
    /// have not.
    fn is_ready(&self, index: usize, skipped: &[usize]) -> bool {
        let op = &self.pending[index];
        let waits_for = |other: &usize| self.comes_before(*other, index, op);
        let is_decided = |token: &u64| {
            let found = self.find(*token);
            found.is_none_or(|at| self.decided[at] || self.is_same_unit(at, index))
        };
        !skipped.iter().any(waits_for) && op.named.iter().all(is_decided)
    }

    /// Returns true if an operation comes after another one of another unit that it does not name.
    #[inline(always)]
    fn comes_before(&self, other: usize, index: usize, op: &PendingOp) -> bool {
        let before = &self.pending[other];
        before.token < op.token
            && !self.is_same_unit(other, index)
            && (before.token < op.all_below
                || (before.is_store() && before.token < op.stores_below)
                || (op.block.is_some() && before.block == op.block))
    }

    fn find(&self, token: u64) -> Option<usize> {
        self.pending
            .binary_search_by_key(&token, |op| op.token)
            .ok()
    }

    /// Returns true if all that an operation waits for has landed.
    fn is_free(&self, index: usize) -> bool {
        let op = &self.pending[index];
        let has_landed = |token: &u64| {
            let found = self.find(*token);
            found.is_none_or(|at| self.landed.whole[at] || self.is_same_unit(at, index))
        };
        let is_intact = |block: BlockId| self.broken.get(&block).is_none_or(|at| *at > op.token);
        !self.blocked.contains(&op.token)
            && op.all_below <= self.first_missing
            && op.stores_below <= self.first_missing_store
            && op.named.iter().all(has_landed)
            && op.block.is_none_or(is_intact)
    }

    fn conclude(&mut self, unit: usize, outcome: Outcome) {
        let members = std::mem::take(&mut self.units[unit]);
        let PendingOp {
            effect: first,
            sizes,
            ..
        } = &self.pending[members[0]];
        let outcome = match (outcome, first) {
            // A store is atomic.
            (Outcome::Torn(_), MediaEffect::Store { .. }) => Outcome::Absent,
            (outcome, _) => outcome,
        };
        if let (Outcome::Torn(seed), MediaEffect::Program { ppn, .. }) = (outcome, first) {
            let first = sizes.first_of_unit(ppn.0);
            let exposed = sizes.first_of_line(first)..first;
            self.landed.torn.push((exposed, seed));
        }

        for index in members {
            let op = &self.pending[index];
            self.decided[index] = true;
            self.landed.whole[index] = outcome == Outcome::Whole;
            self.landed.outcomes[index] = match (outcome, &op.effect) {
                // Some pages of a torn unit can be read, as if their planes had been faster.
                (Outcome::Torn(seed), MediaEffect::Program { ppn, .. })
                    if op.sizes.unit > 1 && mix(seed ^ u64::from(ppn.0)) & 1 == 1 =>
                {
                    Outcome::Whole
                }
                (outcome, _) => outcome,
            };
            if outcome == Outcome::Whole {
                continue;
            }

            self.first_missing = self.first_missing.min(op.token);
            if op.is_store() {
                self.first_missing_store = self.first_missing_store.min(op.token);
            }
            if let Some(block) = op.block {
                let oldest = self.broken.entry(block).or_insert(op.token);
                *oldest = (*oldest).min(op.token);
            }
        }
    }
}
