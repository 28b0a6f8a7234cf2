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

use crate::array::StoredPage;
use crate::effect::{EffectOrder, MediaEffect};
use crate::geometry::{BlockId, Ppn};
use crate::image::Image;
use crate::op::{After, ClearId, OpKind};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

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
    all: bool,
    /// All stores with a smaller token come before this operation.
    stores_below: u64,
    /// The operations that it names: programs, clearings, erases, stores to the same record.
    named: Vec<u64>,
}

impl PendingOp {
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
    /// Token of the pending program of each page, and of the pending clearing or erases of each ID.
    programs: BTreeMap<u32, u64>,
    clears: BTreeMap<u64, Vec<u64>>,
}

impl Rail {
    pub(crate) fn new(image: Image) -> Self {
        Self {
            image,
            pending: VecDeque::new(),
            next_token: 1,
            fence: 0,
            ack: Vec::new(),
            programs: BTreeMap::new(),
            clears: BTreeMap::new(),
        }
    }

    pub(crate) fn pending_len(&self) -> usize {
        self.pending.len()
    }

    pub(crate) fn fence(&mut self) {
        self.fence = self.next_token;
    }

    pub(crate) fn begin_command(&mut self) {
        self.ack.clear();
    }

    pub(crate) fn take_ack(&mut self) -> AckSet {
        AckSet {
            tokens: std::mem::take(&mut self.ack),
        }
    }

    /// Adds the operations of `after` to those that the current command waits for.
    pub(crate) fn ack_after(&mut self, after: After) {
        for pending in &self.pending {
            // A fence is for stores. Programs in flight are waited for only if named.
            if after.is_all() || (after.is_fence() && pending.is_store()) {
                self.ack.push(pending.token);
            }
        }
        self.ack.extend(named(&self.programs, &self.clears, after));
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
        let source = copied.and_then(|page| self.programs.get(&page.0).copied());
        let mut tokens: Vec<u64> = source.into_iter().collect();
        if let Some(record) = record {
            let to_record = |op: &&PendingOp| matches!(&op.effect, MediaEffect::Store { word, .. } if record.contains(word));
            let stores = self.pending.iter().filter(to_record);
            tokens.extend(stores.map(|op| op.token));
        }

        tokens.extend(named(&self.programs, &self.clears, after));
        let token = self.next_token;
        self.next_token += 1;
        // Every store comes after the last fence; other operations only if they request it.
        let mut stores_below = if after.is_fence() { token } else { 0 };
        if matches!(effect, MediaEffect::Store { .. }) {
            stores_below = stores_below.max(self.fence);
        }

        let pending = PendingOp {
            token,
            block: effect.block(self.image.geometry()),
            all: after.is_all(),
            stores_below,
            named: tokens,
            effect,
        };

        // The newest program of a page is the one that others refer to: a block is erased before it
        // is programmed again, and its operations are in order.
        if let Some(page) = pending.effect.page() {
            self.programs.insert(page.0, token);
        } else if clear_id != ClearId::default() {
            self.clears.entry(clear_id.0).or_default().push(token);
        }

        if critical {
            self.ack.push(token);
        }

        self.pending.push_back(pending);
    }

    /// Makes the named operations and all their predecessors durable.
    pub(crate) fn settle(&mut self, ack: &AckSet) {
        let mut tokens: BTreeSet<u64> = ack.tokens.iter().copied().collect();

        // Newest first: predecessors were issued earlier, so one pass finds all.
        let (mut all, mut stores_below) = (false, 0);
        let mut blocks = BTreeSet::new();
        let mut words = BTreeSet::new();
        let mut chosen = vec![false; self.pending.len()];
        for (index, op) in self.pending.iter().enumerate().rev() {
            // Two stores to one word land in order, as in one line of memory; settling the later
            // one also settles the earlier one.
            let same_word = match op.effect {
                MediaEffect::Store { word, .. } => words.contains(&word),
                MediaEffect::Clear { start, len } => {
                    words.range(start..start + len).next().is_some()
                }
                _ => false,
            };

            let needed = all
                || tokens.contains(&op.token)
                || (op.is_store() && op.token < stores_below)
                || op.block.is_some_and(|block| blocks.contains(&block))
                || same_word;
            if !needed {
                continue;
            }

            chosen[index] = true;
            all |= op.all;
            stores_below = stores_below.max(op.stores_below);
            blocks.extend(op.block);
            tokens.extend(op.named.iter().copied());

            match op.effect {
                MediaEffect::Store { word, .. } => {
                    words.insert(word);
                }
                MediaEffect::Clear { start, len } => words.extend(start..start + len),
                _ => {}
            }
        }

        // Oldest first again: settled operations land in order of issue.
        let mut kept = VecDeque::with_capacity(self.pending.len());
        for (op, chosen) in self.pending.drain(..).zip(chosen) {
            if chosen {
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

    pub(crate) fn settle_all(&mut self) {
        let tokens = self.pending.iter().map(|op| op.token).collect();
        self.settle(&AckSet { tokens });
    }

    /// The image that a cut now may leave: `choose` is called once per pending operation that is
    /// free to land.
    pub(crate) fn cut(&self, mut choose: impl FnMut(OpKind) -> Outcome) -> Image {
        let mut image = self.image.clone();
        // In order of issue, so that all predecessors of an operation have been decided before it.
        let mut all_landed = true;
        let mut first_missing_store = u64::MAX;
        let mut missing = BTreeSet::new();
        let mut broken_blocks = BTreeSet::new();
        for op in &self.pending {
            let free = (!op.all || all_landed)
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

            land(&mut image, &op.effect, outcome);
            // Torn counts as missing: an operation that waits for it could observe that it had not
            // completed.
            if outcome != Outcome::Whole {
                all_landed = false;
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

/// The pending operations named by `after`.
fn named(
    programs: &BTreeMap<u32, u64>,
    clears: &BTreeMap<u64, Vec<u64>>,
    after: After,
) -> impl Iterator<Item = u64> + use<> {
    let pages = programs.range(after.named_pages()).map(|(_, token)| *token);
    let clears = after
        .named_clear()
        .and_then(|id| clears.get(&id.0))
        .into_iter()
        .flatten();
    pages.chain(clears.copied()).collect::<Vec<_>>().into_iter()
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
        (MediaEffect::Clear { start, len }, Outcome::Torn(seed)) => {
            for word in *start..start + len {
                if mix(seed ^ word as u64) & 1 == 1 {
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
