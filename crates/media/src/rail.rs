//! The power rail: which operations are durable, which are pending, and what a cut may leave.
//!
//! The pending operations form a partial order. Operation B comes after A if B's [`After`] names A,
//! if both touch one flash block, if a fence stands between two NVRAM stores, or if B changes a
//! record that A stored to. The states that a cut at *any* instant can leave are exactly the
//! durable image plus a subset of the pending operations that is closed downwards in this order,
//! whose topmost programs and erases may be torn. So a cut inside a command needs no hook inside
//! the firmware: cutting after the command covers every instant of it.
//!
//! Invariants: `image` holds settled operations only; an operation is settled together with all its
//! predecessors. Absent: randomness (the caller chooses each outcome) and time.

mod events;
mod lines;

use crate::array::StoredPage;
use crate::effect::{EffectOrder, MediaEffect};
use crate::geometry::{BlockId, Ppn, SbId};
use crate::image::Image;
use crate::op::{After, ClearId, OpKind};
use crate::slc::SlcModes;
pub use events::{Change, IssuedOp, RailEvent};
use lines::{Lines, UnitSizes};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

/// State of one pending operation after a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Completed.
    Whole,
    /// Not begun.
    Absent,
    /// An unreadable page or block; of a clearing, the words chosen by the seed.
    Torn(u64),
}

impl Outcome {
    /// Returns true if a clearing that ends like this zeroes the word.
    pub fn zeroes(self, word: usize) -> bool {
        match self {
            Self::Whole => true,
            Self::Absent => false,
            Self::Torn(seed) => mix(seed ^ word as u64) & 1 == 1,
        }
    }
}

/// The operations that one host command's acknowledgement waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AckSet {
    pub(crate) tokens: Vec<u64>,
}

/// A pending effect. Each word of a store lands separately.
type PendingEffect = MediaEffect<StoredPage, u64>;

impl PendingEffect {
    fn kind(&self) -> OpKind {
        match self {
            Self::Program { .. } | Self::TornProgram { .. } => OpKind::Program,
            Self::Erase { .. } | Self::SpoiledErase { .. } => OpKind::Erase,
            Self::Store { .. } => OpKind::NvWrite,
            Self::Clear { .. } => OpKind::NvClear,
        }
    }

    /// The page that it programs, or fails to.
    fn page(&self) -> Option<Ppn> {
        match self {
            Self::Program { ppn, .. } | Self::TornProgram { ppn } => Some(*ppn),
            _ => None,
        }
    }
}

#[derive(Clone)]
struct PendingOp {
    token: u64,
    effect: PendingEffect,
    block: Option<BlockId>,
    /// Pages of its program unit and of its word line, if it programs one. Its superblock may have another mode by now.
    sizes: UnitSizes,
    /// All operations with a smaller token come before this operation.
    all_below: u64,
    /// All stores with a smaller token come before this operation.
    stores_below: u64,
    /// The operations that it names: programs, clearings, erases, stores to the same record.
    named: Vec<u64>,
    /// The words whose earlier stores come before it.
    record: Option<Range<usize>>,
}

impl PendingOp {
    /// For reports.
    fn name(&self) -> String {
        let Self { token, effect, .. } = self;
        match effect {
            MediaEffect::Program { ppn, .. } => format!("{token} (program of page {})", ppn.0),
            MediaEffect::TornProgram { ppn } => {
                format!("{token} (failed program of page {})", ppn.0)
            }
            MediaEffect::Erase { block } | MediaEffect::SpoiledErase { block } => {
                format!("{token} (erase of block {})", block.0)
            }
            MediaEffect::Store { word, .. } => format!("{token} (store to word {word})"),
            MediaEffect::Clear { start, len } => {
                format!("{token} (clearing of {len} words from {start})")
            }
        }
    }

    fn is_store(&self) -> bool {
        matches!(self.effect, MediaEffect::Store { .. })
    }
}

pub(crate) struct Rail {
    pub(crate) image: Image,
    pending: VecDeque<PendingOp>,
    next_token: u64,
    /// Later stores come after all stores with a smaller token.
    fence: u64,
    ack: Vec<u64>,
    /// The store after which the stores of the current command come.
    opened: Option<ClearId>,
    /// Token of the pending program of each page, and of the pending clearing or erases of each ID.
    programs: BTreeMap<u32, u64>,
    clears: BTreeMap<u64, Vec<u64>>,
    /// Programs of several pages, if a cut may tear them.
    lines: Option<Lines>,
    /// What has happened, if someone watches.
    events: Option<Vec<RailEvent>>,
}

impl Rail {
    pub(crate) fn new(image: Image) -> Self {
        Self {
            image,
            pending: VecDeque::new(),
            next_token: 1,
            fence: 0,
            ack: Vec::new(),
            opened: None,
            programs: BTreeMap::new(),
            clears: BTreeMap::new(),
            lines: None,
            events: None,
        }
    }

    /// The controller's buffer does not survive a cut. With `whole_lines`, who waits for a page waits for its
    /// word line.
    pub(crate) fn unprotect(&mut self, whole_lines: bool, slc: SlcModes) {
        self.lines = Some(Lines::new(self.image.geometry(), whole_lines, slc));
    }

    /// From now on a superblock is in this mode.
    pub(crate) fn set_slc(&mut self, sb: SbId, is_slc: bool) {
        if let Some(lines) = &mut self.lines {
            lines.set_slc(sb, is_slc);
        }
    }

    pub(crate) fn pending_len(&self) -> usize {
        self.pending.len()
    }

    pub(crate) fn fence(&mut self) {
        self.fence = self.next_token;
    }

    /// From now on the stores that a command waits for come after the store of this name.
    pub(crate) fn order_stores(&mut self, after: Option<ClearId>) {
        self.opened = after;
    }

    pub(crate) fn begin_command(&mut self) {
        self.ack.clear();
    }

    pub(crate) fn take_ack(&mut self) -> AckSet {
        AckSet {
            tokens: std::mem::take(&mut self.ack),
        }
    }

    /// Number of operations that the current command waits for.
    pub(crate) fn waited_for(&self) -> usize {
        self.ack.len()
    }

    /// The current command waits only for the first `count` of the operations that it has waited for.
    pub(crate) fn wait_only_for(&mut self, count: usize) {
        self.ack.truncate(count);
    }

    /// Adds the operations of `after` to those that the current command waits for.
    pub(crate) fn ack_after(&mut self, after: After) {
        for pending in &self.pending {
            // A fence is for stores. Programs in flight are waited for only if named.
            if after.is_all() || (after.is_fence() && pending.is_store()) {
                self.ack.push(pending.token);
            }
        }
        let pages = self.waited(after.named_pages());
        self.ack.extend(self.named(pages, after));
    }

    /// The pages that must land before an operation that names `pages`.
    fn waited(&self, pages: Range<u32>) -> Range<u32> {
        match &self.lines {
            Some(lines) => lines.waited(pages),
            None => pages,
        }
    }

    /// The pending programs of `pages`, and the pending clearings or erases that `after` names.
    fn named(&self, pages: Range<u32>, after: After) -> Vec<u64> {
        let pages = self.programs.range(pages).map(|(_, token)| *token);
        let clears = after
            .named_clear()
            .and_then(|id| self.clears.get(&id.0))
            .into_iter()
            .flatten();
        pages.chain(clears.copied()).collect()
    }

    /// The current command's own stores, if `after` names them; and for a store that it waits for, the one that `order_stores` named.
    fn own_order(&self, after: After, is_awaited_store: bool) -> Vec<u64> {
        let opened = self.opened.filter(|_| is_awaited_store);
        let mut tokens = opened.map_or(Vec::new(), |id| self.named(0..0, After::clear(id)));
        if after.is_own() {
            let awaited = self.ack.iter().copied();
            tokens.extend(awaited.filter(|token| self.is_pending_store(*token)));
        }
        tokens
    }

    fn is_pending_store(&self, token: u64) -> bool {
        let found = self.pending.binary_search_by_key(&token, |op| op.token);
        found.is_ok_and(|at| self.pending[at].is_store())
    }

    /// The pending stores to a record, back to the first one that comes after all earlier ones.
    fn last_stores<'a>(&'a self, record: &'a Range<usize>) -> impl Iterator<Item = u64> + 'a {
        let to_record = |op: &&PendingOp| matches!(&op.effect, MediaEffect::Store { word, .. } if record.contains(word));
        let mut is_first = false;
        let stores = self.pending.iter().rev().filter(to_record);
        let last = stores.take_while(move |op| {
            !std::mem::replace(&mut is_first, op.record.as_ref() == Some(record))
        });
        last.map(|op| op.token)
    }

    /// Records an effect as pending: a store as one operation per word, any other as one.
    pub(crate) fn push(&mut self, effect: &MediaEffect<StoredPage, &[u64]>, order: EffectOrder) {
        let effect = match *effect {
            MediaEffect::Store { word, values } => {
                for (word, values) in (word..).zip(values.iter().copied()) {
                    self.push_one(MediaEffect::Store { word, values }, order.clone());
                }
                return;
            }

            // The types differ only in the words of a store, so the others are rebuilt.
            MediaEffect::Program {
                ppn,
                oob,
                ref contents,
            } => MediaEffect::Program {
                ppn,
                oob,
                contents: contents.clone(),
            },
            MediaEffect::TornProgram { ppn } => MediaEffect::TornProgram { ppn },
            MediaEffect::Erase { block } => MediaEffect::Erase { block },
            MediaEffect::SpoiledErase { block } => MediaEffect::SpoiledErase { block },
            MediaEffect::Clear { start, len } => MediaEffect::Clear { start, len },
        };

        self.push_one(effect, order);
    }

    fn push_one(&mut self, effect: PendingEffect, order: EffectOrder) {
        let EffectOrder {
            after,
            copied,
            record,
            critical,
            clear_id,
        } = order;

        // A copy is no more durable than the page it was read from.
        let source = self.waited(copied.map_or(0..0, |page| page.0..page.0 + 1));
        let pages = self.waited(after.named_pages());
        let is_store = matches!(effect, MediaEffect::Store { .. });
        let mut tokens = self.named(source.clone(), After::NOTHING);
        if let Some(record) = &record {
            tokens.extend(self.last_stores(record));
        }
        tokens.extend(self.named(pages.clone(), after));
        tokens.extend(self.own_order(after, is_store && critical));

        let token = self.next_token;
        self.next_token += 1;
        // Every store comes after the last fence; other operations only if they request it.
        let since = self.since(&effect, token);
        let mut stores_below = if after.is_fence() { since } else { 0 };
        if is_store {
            stores_below = stores_below.max(self.fence);
        }

        let pending = PendingOp {
            token,
            block: effect.block(self.image.geometry()),
            sizes: self.sizes_of(&effect),
            all_below: if after.is_all() { since } else { 0 },
            stores_below,
            named: tokens,
            record,
            effect,
        };

        if let Some(lines) = &self.lines {
            self.check_line(lines, &pending, &[source.clone(), pages.clone()], after);
        }

        if let Some(events) = &mut self.events {
            events.push(RailEvent::Issued(IssuedOp::of(&pending, copied, critical)));
        }

        let own = pending.effect.page();
        // The newest program of a page is the one that others refer to: a block is erased before it
        // is programmed again, and its operations are in order.
        if let Some(page) = pending.effect.page() {
            self.programs.insert(page.0, token);
            // A failed program is its block's last one.
            if matches!(pending.effect, MediaEffect::Program { .. }) {
                self.program_in_line(page, token);
            }
        } else if clear_id != ClearId::default() {
            self.clears.entry(clear_id.0).or_default().push(token);
        }

        if critical {
            self.ack.push(token);
        }

        self.pending.push_back(pending);
        if let Some(lines) = &mut self.lines {
            lines.wait(token, &source, own);
            lines.wait(token, &pages, own);
            if after.is_all() {
                lines.wait_all(token, since);
            }
        }
    }

    /// Checks two rules of word lines that are not full. A page names only what was issued before its word line: pages of lines that
    /// were begun before its own, and clearings. And a block is not given up while one of its lines is not full.
    ///
    /// By the first rule, operations never wait for each other. Order them by their numbers, a page by that of its line's first page.
    /// An operation that is no program waits for earlier ones, and for lines that were begun before it. A page waits for what was
    /// before its line, and for its line.
    fn check_line(&self, lines: &Lines, op: &PendingOp, named: &[Range<u32>], after: After) {
        if !lines.are_whole() {
            return;
        }

        match &op.effect {
            MediaEffect::Program { ppn, .. } => {
                let Some(since) = lines.since(*ppn) else {
                    return;
                };

                let ranges = named
                    .iter()
                    .flat_map(|pages| self.programs.range(pages.clone()));
                let programs = ranges.map(|(page, token)| (*page, *token));
                let late = lines
                    .beginnings(programs, *ppn)
                    .find(|(_, token)| *token > since);

                if let Some((page, token)) = late {
                    panic!(
                        "page {} comes into a word line that was begun before page {page}, for which it waits ({since} and {token})",
                        ppn.0
                    );
                }

                let clears = after.named_clear().and_then(|id| self.clears.get(&id.0));
                let late = clears.into_iter().flatten().find(|token| **token > since);
                assert!(
                    late.is_none(),
                    "page {} comes into a word line that was begun before {late:?}, for which it waits",
                    ppn.0
                );
            }
            _ => {
                let Some(block) = op.block else {
                    return;
                };

                // What waits for pages of an open line would wait forever: after this, they are never issued.
                let open = lines.open_in(|page| self.image.geometry().slot(page).block == block);
                assert!(
                    open.is_none(),
                    "{} before the word line of {open:?} is full",
                    op.name()
                );
            }
        }
    }

    /// The number up to which an effect waits for operations if it waits for all or for all stores: its own, or
    /// that of its word line's first page, with which it lands.
    fn since(&self, effect: &PendingEffect, token: u64) -> u64 {
        match (&self.lines, effect) {
            (Some(lines), MediaEffect::Program { ppn, .. }) => lines.since(*ppn).unwrap_or(token),
            _ => token,
        }
    }

    fn sizes_of(&self, effect: &PendingEffect) -> UnitSizes {
        match (&self.lines, effect.page()) {
            (Some(lines), Some(page)) => lines.sizes_of(page),
            _ => UnitSizes::SINGLE,
        }
    }

    /// Operations that were issued before a page of an open word line may wait for it.
    fn program_in_line(&mut self, page: Ppn, token: u64) {
        let Some(lines) = &mut self.lines else {
            return;
        };
        for waiting in lines.program(page, token) {
            if let Ok(at) = self.pending.binary_search_by_key(&waiting, |op| op.token) {
                self.pending[at].named.push(token);
            }
        }
    }

    /// Makes the named operations and all their predecessors durable.
    pub(crate) fn settle(&mut self, ack: &AckSet) {
        let mut tokens: BTreeSet<u64> = ack.tokens.iter().copied().collect();
        let mut chosen = self.choose_needed(&mut tokens);
        if self.lines.is_some() {
            // Operations may wait for pages that were issued after them: passes are repeated until no more are found.
            let mut count = 0;
            while count < tokens.len() {
                count = tokens.len();
                chosen = self.choose_needed(&mut tokens);
            }
        }
        self.settle_chosen(chosen);
    }

    /// Makes operations durable that were chosen with all their predecessors. Those that wait for a unit that is not
    /// full stay pending.
    fn settle_chosen(&mut self, mut chosen: Vec<bool>) {
        if let Some(lines) = &self.lines {
            let choose = |first: usize| {
                if chosen[first] {
                    Outcome::Whole
                } else {
                    Outcome::Absent
                }
            };
            chosen = lines.decide(&self.pending, choose).whole;
        }
        self.land_chosen(&chosen);
    }

    /// The operations that must land before those with `tokens`, and these. Adds what it finds to `tokens`.
    fn choose_needed(&self, tokens: &mut BTreeSet<u64>) -> Vec<bool> {
        // Newest first: predecessors were issued earlier, so one pass finds all.
        let (mut all_below, mut stores_below) = (0, 0);
        let mut blocks = BTreeSet::new();
        // The first pages of those that are settled with others.
        let mut together = BTreeSet::new();
        let (mut stored, mut cleared) = (BTreeSet::new(), Vec::<Range<usize>>::new());
        let mut chosen = vec![false; self.pending.len()];
        for (index, op) in self.pending.iter().enumerate().rev() {
            // Two stores to one word land in order, as in one line of memory; settling the later
            // one also settles the earlier one.
            let same_word = match op.effect {
                MediaEffect::Store { word, .. } => {
                    stored.contains(&word) || cleared.iter().any(|words| words.contains(&word))
                }
                MediaEffect::Clear { start, len } => {
                    let end = start + len;
                    stored.range(start..end).next().is_some()
                        || cleared
                            .iter()
                            .any(|words| words.start < end && start < words.end)
                }
                _ => false,
            };

            let needed = op.token < all_below
                || tokens.contains(&op.token)
                || (op.is_store() && op.token < stores_below)
                || op.block.is_some_and(|block| blocks.contains(&block))
                || same_word;
            if !needed {
                continue;
            }

            chosen[index] = true;
            all_below = all_below.max(op.all_below);
            stores_below = stores_below.max(op.stores_below);
            blocks.extend(op.block);
            tokens.extend(op.named.iter().copied());

            // What lands with this page. Newer pages of it have been passed already: `settle` repeats the pass.
            if let (Some(lines), Some(page)) = (&self.lines, op.effect.page()) {
                let pages = lines.together(page, op.sizes);
                if together.insert(pages.start) {
                    tokens.extend(self.programs.range(pages).map(|(_, token)| *token));
                }
            }

            match op.effect {
                MediaEffect::Store { word, .. } => {
                    stored.insert(word);
                }
                MediaEffect::Clear { start, len } => cleared.push(start..start + len),
                _ => {}
            }
        }

        chosen
    }

    /// Makes operations durable, oldest first.
    fn land_chosen(&mut self, chosen: &[bool]) {
        let mut kept = VecDeque::with_capacity(self.pending.len());
        for (op, chosen) in self.pending.drain(..).zip(chosen) {
            if *chosen {
                if let Some(events) = &mut self.events {
                    events.push(RailEvent::Durable(op.token));
                }
                if let Some(page) = op.effect.page()
                    && self.programs.get(&page.0) == Some(&op.token)
                {
                    self.programs.remove(&page.0);
                }
                land(&mut self.image, &op.effect, Outcome::Whole);
            } else {
                kept.push_back(op);
            }
        }

        // Drops IDs whose operations have all landed, or the table would grow with every clearing.
        if !self.clears.is_empty() {
            let alive: BTreeSet<u64> = kept.iter().map(|op| op.token).collect();
            self.clears.retain(|_, tokens| {
                tokens.retain(|token| alive.contains(token));
                !tokens.is_empty()
            });
        }

        self.pending = kept;
    }

    /// Makes all operations durable but those that wait for pages that have not been issued.
    ///
    /// # Panics
    /// Operations wait for each other, or some are left although every word line is full.
    pub(crate) fn settle_all(&mut self) {
        self.settle_chosen(vec![true; self.pending.len()]);
        let is_filling = self.lines.as_ref().is_some_and(Lines::is_filling);
        assert!(
            is_filling || self.pending.is_empty(),
            "{} operations are left, and every word line is full",
            self.pending.len()
        );
    }

    /// The image that a cut now may leave: `choose` is called once per pending operation that is
    /// free to land.
    pub(crate) fn cut(
        &self,
        mut choose: impl FnMut(OpKind) -> Outcome,
        mut note: impl FnMut(u64, Outcome),
    ) -> Image {
        let mut image = self.image.clone();
        if let Some(lines) = &self.lines {
            let landed = lines.decide(&self.pending, |at| choose(self.pending[at].effect.kind()));
            for (op, outcome) in self.pending.iter().zip(&landed.outcomes) {
                note(op.token, *outcome);
                land(&mut image, &op.effect, *outcome);
            }
            for (exposed, seed) in landed.torn {
                let lost = exposed.filter(|page| mix(seed ^ u64::from(*page)) & 1 == 1);
                lost.for_each(|page| image.lose(Ppn(page)));
            }
            return image;
        }

        // In order of issue, so that all predecessors of an operation have been decided before it.
        let mut first_missing = u64::MAX;
        let mut first_missing_store = u64::MAX;
        let mut missing = BTreeSet::new();
        let mut broken_blocks = BTreeSet::new();
        for op in &self.pending {
            let free = op.all_below <= first_missing
                && op.stores_below <= first_missing_store
                && op.named.iter().all(|token| !missing.contains(token))
                && op.block.is_none_or(|block| !broken_blocks.contains(&block));
            let outcome = if free {
                choose(op.effect.kind())
            } else {
                Outcome::Absent
            };

            let outcome = match (outcome, &op.effect) {
                // A store is atomic.
                (Outcome::Torn(_), MediaEffect::Store { .. }) => Outcome::Absent,
                (outcome, _) => outcome,
            };

            note(op.token, outcome);
            land(&mut image, &op.effect, outcome);
            // Torn counts as missing: an operation that waits for it could observe that it had not
            // completed.
            if outcome != Outcome::Whole {
                first_missing = first_missing.min(op.token);
                missing.insert(op.token);
                if op.is_store() {
                    first_missing_store = first_missing_store.min(op.token);
                }
                broken_blocks.extend(op.block);
            }
        }

        image
    }
}

fn land(image: &mut Image, effect: &PendingEffect, outcome: Outcome) {
    match (effect, outcome) {
        (_, Outcome::Absent) => {}
        (MediaEffect::Program { ppn, oob, contents }, Outcome::Whole) => {
            image.put(*ppn, *oob, contents.clone())
        }

        // A program that is cut looks like a failed one: its row is used up, and the page is
        // unreadable.
        (MediaEffect::Program { ppn, .. }, Outcome::Torn(_))
        | (MediaEffect::TornProgram { ppn }, _) => image.tear(*ppn),
        (MediaEffect::Erase { block }, Outcome::Whole) => image.erase(*block),
        (MediaEffect::Erase { block }, Outcome::Torn(_))
        | (MediaEffect::SpoiledErase { block }, _) => image.spoil(*block),

        // Never torn: `cut` makes a torn store absent.
        (MediaEffect::Store { word, values }, _) => image.set_word(*word, *values),
        (MediaEffect::Clear { start, len }, Outcome::Whole) => {
            (*start..start + len).for_each(|word| image.set_word(word, 0))
        }
        // A clearing is many stores, of which a cut leaves any subset.
        (MediaEffect::Clear { start, len }, Outcome::Torn(_)) => {
            for word in *start..start + len {
                if outcome.zeroes(word) {
                    image.set_word(word, 0);
                }
            }
        }
    }
}

/// One round of a 64-bit finalizer: spreads a seed over the words of a torn clearing.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x = (x ^ (x >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ (x >> 33)
}
