//! A power cut leaves only results that the order of the operations allows, compared with a trivial
//! model.
//!
//! The model keeps every operation ever issued with the list of its direct predecessors, derived
//! from the definitions alone: same block, named pages, a named clearing, all, every store, a fence
//! between stores, a change of a record.

use crate::kit::{WORDS, page, tiny};
use proptest::prelude::*;
use remap_ssd_media::{
    AckSet, After, BlockId, ClearId, ContentMode, Image, Lpn, Media, MediaError, Oob, Outcome,
};
use remap_ssd_media::{Page, Purpose, StoredPage};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
enum Wait {
    Nothing,
    All,
    Fence,
    /// Of the pages programmed so far.
    Page(prop::sample::Index),
    /// This many pages from it on, programmed or not.
    Pages(prop::sample::Index, u16),
    /// Of the clearings and erases so far.
    Clear(prop::sample::Index),
    Both(prop::sample::Index, prop::sample::Index),
    /// The stores of the current command.
    Own,
}

#[derive(Clone, Debug)]
enum Action {
    Program {
        block: u32,
        host: bool,
        wait: Wait,
    },
    Erase {
        blocks: u32,
        wait: Wait,
    },
    Store {
        word: usize,
        value: u64,
        host: bool,
        wait: Wait,
    },
    /// A store to a record of words, after its earlier stores.
    Change {
        word: usize,
        value: u64,
        host: bool,
        wait: Wait,
    },
    Clear {
        start: usize,
        len: usize,
        wait: Wait,
    },
    Fence,
    /// A store that others may name, after the earlier ones to its word.
    Name {
        word: usize,
        value: u64,
    },
    /// From now on the host's stores come after one that can be named, or no longer.
    Order(Option<prop::sample::Index>),
    AckAfter(Wait),
    /// Ends a command; its acknowledgement can be settled from now on.
    EndCommand,
    Settle(prop::sample::Index),
    SettleAll,
}

const BLOCKS: u32 = 8;

fn wait() -> impl Strategy<Value = Wait> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        4 => Just(Wait::Nothing),
        1 => Just(Wait::All),
        2 => Just(Wait::Fence),
        2 => index().prop_map(Wait::Page),
        1 => (index(), 2..5u16).prop_map(|(index, count)| Wait::Pages(index, count)),
        1 => index().prop_map(Wait::Clear),
        1 => (index(), index()).prop_map(|(page, clear)| Wait::Both(page, clear)),
        1 => Just(Wait::Own),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        8 => (0..BLOCKS, any::<bool>(), wait()).prop_map(|(block, host, wait)| Action::Program { block, host, wait }),
        2 => (0..BLOCKS, wait()).prop_map(|(blocks, wait)| Action::Erase { blocks, wait }),
        // Few words, so that stores meet.
        8 => (0..6usize, 1..100u64, any::<bool>(), wait())
            .prop_map(|(word, value, host, wait)| Action::Store { word: word * 13, value, host, wait }),
        3 => (0..6usize, 1..100u64, any::<bool>(), wait())
            .prop_map(|(word, value, host, wait)| Action::Change { word: word * 13, value, host, wait }),
        2 => (0..WORDS - 20, 1..20usize, wait()).prop_map(|(start, len, wait)| Action::Clear { start, len, wait }),
        2 => Just(Action::Fence),
        2 => (0..6usize, 1..100u64).prop_map(|(word, value)| Action::Name { word: word * 13, value }),
        1 => any::<prop::sample::Index>().prop_map(|index| Action::Order(Some(index))),
        1 => Just(Action::Order(None)),
        1 => wait().prop_map(Action::AckAfter),
        4 => Just(Action::EndCommand),
        3 => any::<prop::sample::Index>().prop_map(Action::Settle),
        1 => Just(Action::SettleAll),
    ]
}

/// The effect of an operation on the model of the media.
#[derive(Clone, Debug)]
enum Effect {
    Program { block: u32, identity: u64 },
    Erase { block: u32 },
    Store { word: usize, value: u64 },
    Clear { start: usize, len: usize },
}

#[derive(Clone, Debug)]
struct Issued {
    effect: Effect,
    comes_after: Vec<usize>,
    settled: bool,
}

/// The cells of the model.
#[derive(Clone, Debug)]
struct Cells {
    /// A torn clearing leaves a word unchanged or zero.
    words: Vec<(u64, bool)>,
    /// Identities by row; `None` is unreadable.
    blocks: Vec<Vec<Option<u64>>>,
}

impl Cells {
    fn blank() -> Self {
        Self {
            words: vec![(0, false); WORDS],
            blocks: vec![Vec::new(); BLOCKS as usize],
        }
    }

    fn land(&mut self, effect: &Effect, outcome: Outcome) {
        let rows = tiny().pages_per_block() as usize;
        match (effect, outcome) {
            (_, Outcome::Absent) | (Effect::Store { .. }, Outcome::Torn(_)) => {}
            (Effect::Program { block, identity }, Outcome::Whole) => {
                self.blocks[*block as usize].push(Some(*identity))
            }
            (Effect::Program { block, .. }, Outcome::Torn(_)) => {
                self.blocks[*block as usize].push(None)
            }
            (Effect::Erase { block }, Outcome::Whole) => self.blocks[*block as usize].clear(),
            (Effect::Erase { block }, Outcome::Torn(_)) => {
                self.blocks[*block as usize] = vec![None; rows]
            }
            (Effect::Store { word, value }, Outcome::Whole) => self.words[*word] = (*value, false),
            (Effect::Clear { start, len }, Outcome::Whole) => {
                self.words[*start..start + len].fill((0, false))
            }
            (Effect::Clear { start, len }, Outcome::Torn(_)) => {
                self.words[*start..start + len]
                    .iter_mut()
                    .for_each(|word| word.1 = true);
            }
        }
    }

    fn matches(&self, image: &Image) -> Result<(), TestCaseError> {
        let mut media = Media::from_image(image);
        for (index, (value, may_be_zero)) in self.words.iter().enumerate() {
            let found = media.load(index).expect("no flips are planted");
            prop_assert!(
                found == *value || (*may_be_zero && found == 0),
                "word {} is {}, not {}",
                index,
                found,
                value
            );
        }

        for (block, rows) in self.blocks.iter().enumerate() {
            prop_assert_eq!(
                media.next_row(BlockId(block as u32)) as usize,
                rows.len(),
                "rows of block {}",
                block
            );
            for (row, expected) in rows.iter().enumerate() {
                let found = media.read(page(block as u32, row as u32), Purpose::Host);
                let expected = expected
                    .map(Page::Identity)
                    .ok_or(MediaError::Uncorrectable);
                prop_assert_eq!(found, expected, "block {} row {}", block, row);
            }
        }
        Ok(())
    }
}

struct Model {
    media: Media,
    issued: Vec<Issued>,
    live: Cells,
    /// Stores before the last fence.
    fenced: Vec<usize>,
    /// Newest program of each page ever programmed, in order of issue.
    programs: Vec<((u32, u32), usize)>,
    names: Vec<(ClearId, Vec<usize>)>,
    /// Operations before the host's stores.
    opened: Option<Vec<usize>>,
    command: BTreeSet<usize>,
    ended: Vec<(AckSet, BTreeSet<usize>)>,
    identity: u64,
}

impl Model {
    fn new() -> Self {
        let mut media = Media::blank(tiny(), ContentMode::Identity, WORDS);
        media.attach_rail();
        Self {
            media,
            issued: Vec::new(),
            live: Cells::blank(),
            fenced: Vec::new(),
            programs: Vec::new(),
            names: Vec::new(),
            opened: None,
            command: BTreeSet::new(),
            ended: Vec::new(),
            identity: 0,
        }
    }

    fn stores(&self) -> Vec<usize> {
        let is_store = |at: &usize| matches!(self.issued[*at].effect, Effect::Store { .. });
        (0..self.issued.len()).filter(is_store).collect()
    }

    /// The media's form of a wait, and the operations it names.
    fn wait(&self, wait: &Wait) -> (After, Vec<usize>) {
        match wait {
            Wait::Nothing => (After::NOTHING, Vec::new()),
            Wait::All => (After::ALL, (0..self.issued.len()).collect()),
            Wait::Fence => (After::FENCE, self.stores()),
            Wait::Page(index) if !self.programs.is_empty() => {
                let ((block, row), _) = *index.get(&self.programs);
                let newest = self
                    .programs
                    .iter()
                    .rev()
                    .find(|(place, _)| *place == (block, row));
                (
                    After::page(page(block, row)),
                    newest.map(|(_, at)| *at).into_iter().collect(),
                )
            }
            Wait::Pages(index, count) if !self.programs.is_empty() => {
                let ((block, row), _) = *index.get(&self.programs);
                let first = page(block, row);
                let of_run = |(block, row): (u32, u32)| {
                    page(block, row).0 >= first.0
                        && page(block, row).0 < first.0 + u32::from(*count)
                };
                let newest: BTreeMap<_, _> = self
                    .programs
                    .iter()
                    .filter(|(place, _)| of_run(*place))
                    .copied()
                    .collect();
                (After::pages(first, *count), newest.into_values().collect())
            }
            Wait::Clear(index) if !self.names.is_empty() => {
                let (id, operations) = index.get(&self.names);
                (After::clear(*id), operations.clone())
            }
            Wait::Both(page, clear) => {
                let (page, mut operations) = self.wait(&Wait::Page(*page));
                let (clear, more) = self.wait(&Wait::Clear(*clear));
                operations.extend(more);
                (page.and(clear), operations)
            }
            Wait::Own => {
                let is_store = |at: &usize| self.stores().contains(at);
                let own = self.command.iter().copied().filter(is_store);
                (After::OWN_STORES, own.collect())
            }
            Wait::Page(_) | Wait::Pages(..) | Wait::Clear(_) => (After::NOTHING, Vec::new()),
        }
    }

    fn issue(&mut self, effect: Effect, mut comes_after: Vec<usize>, critical: bool) {
        let block_of = |effect: &Effect| match effect {
            Effect::Program { block, .. } | Effect::Erase { block } => Some(*block),
            _ => None,
        };

        if let Some(block) = block_of(&effect) {
            let same = (0..self.issued.len())
                .filter(|at| block_of(&self.issued[*at].effect) == Some(block));
            comes_after.extend(same);
        }

        if matches!(effect, Effect::Store { .. }) {
            comes_after.extend(&self.fenced);
        }

        if critical {
            if matches!(effect, Effect::Store { .. }) {
                comes_after.extend(self.opened.iter().flatten());
            }
            self.command.insert(self.issued.len());
        }

        self.live.land(&effect, Outcome::Whole);
        self.issued.push(Issued {
            effect,
            comes_after,
            settled: false,
        });
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::Program { block, host, wait } => {
                let row = self.live.blocks[*block as usize].len() as u32;
                if row == tiny().pages_per_block() {
                    return;
                }
                let (after, names) = self.wait(wait);
                self.identity += 1;
                let stored = StoredPage::Identity(self.identity);
                let purpose = if *host { Purpose::Host } else { Purpose::Gc };
                let oob = Oob::new(Lpn(1), self.identity, 1);
                self.media
                    .program(page(*block, row), oob, stored, purpose, after)
                    .expect("no fault is planted");
                self.programs.push(((*block, row), self.issued.len()));
                self.issue(
                    Effect::Program {
                        block: *block,
                        identity: self.identity,
                    },
                    names,
                    *host,
                );
            }
            Action::Erase { blocks, wait } => {
                let id = self.media.name_next();
                let mut operations = Vec::new();
                // Two blocks with one name.
                for block in [*blocks, (*blocks + 1) % BLOCKS] {
                    let (after, names) = self.wait(wait);
                    self.media
                        .erase(BlockId(block), id, after)
                        .expect("no fault is planted");
                    operations.push(self.issued.len());
                    self.issue(Effect::Erase { block }, names, false);
                }
                self.names.push((id, operations));
            }
            Action::Store {
                word,
                value,
                host,
                wait,
            } => {
                let (after, names) = self.wait(wait);
                let purpose = if *host { Purpose::Host } else { Purpose::Meta };
                self.media.store(*word, *value, purpose, after);
                self.issue(
                    Effect::Store {
                        word: *word,
                        value: *value,
                    },
                    names,
                    *host,
                );
            }
            Action::Change {
                word,
                value,
                host,
                wait,
            } => {
                let (after, mut names) = self.wait(wait);
                let purpose = if *host { Purpose::Host } else { Purpose::Meta };
                // Two neighbours of the words that stores use.
                let record = word.saturating_sub(13)..word + 1;
                self.media
                    .change_record(record.clone(), *word, *value, purpose, after);
                let to_record = |at: &usize| {
                    let is_store = matches!(self.issued[*at].effect, Effect::Store { .. });
                    is_store
                        && words_of(&self.issued[*at].effect).any(|word| record.contains(&word))
                };
                names.extend((0..self.issued.len()).filter(to_record));
                self.issue(
                    Effect::Store {
                        word: *word,
                        value: *value,
                    },
                    names,
                    *host,
                );
            }
            Action::Clear { start, len, wait } => {
                let (after, names) = self.wait(wait);
                let id = self.media.clear(*start, *len, after);
                self.names.push((id, vec![self.issued.len()]));
                self.issue(
                    Effect::Clear {
                        start: *start,
                        len: *len,
                    },
                    names,
                    false,
                );
            }
            Action::Fence => {
                self.media.fence();
                self.fenced = self.stores();
            }
            Action::Name { word, value } => {
                let id = self
                    .media
                    .store_named(*word, *value, Purpose::Host, After::NOTHING);
                let to_word = |at: &usize| {
                    let effect = &self.issued[*at].effect;
                    matches!(effect, Effect::Store { .. })
                        && words_of(effect).any(|stored| stored == *word)
                };
                let earlier = (0..self.issued.len()).filter(to_word).collect();
                self.names.push((id, vec![self.issued.len()]));
                let (word, value) = (*word, *value);
                self.issue(Effect::Store { word, value }, earlier, true);
            }
            Action::Order(index) => {
                let named = index.filter(|_| !self.names.is_empty());
                let named = named.map(|index| index.get(&self.names).clone());
                self.media.order_stores(named.as_ref().map(|(id, _)| *id));
                self.opened = named.map(|(_, operations)| operations);
            }
            Action::AckAfter(wait) => {
                let (after, names) = self.wait(wait);
                self.media.ack_after(after);
                self.command.extend(names);
            }
            Action::EndCommand => {
                let command = (self.media.take_ack(), std::mem::take(&mut self.command));
                self.ended.push(command);
                self.media.begin_command();
            }
            Action::Settle(index) if !self.ended.is_empty() => {
                let (ack, operations) = index.get(&self.ended).clone();
                self.media.settle(&ack);
                self.settle(operations.into_iter().collect());
            }
            Action::Settle(_) => {}
            Action::SettleAll => {
                self.media.settle_all();
                self.settle((0..self.issued.len()).collect());
            }
        }
    }

    /// Marks operations as settled, with all their predecessors, and with older ones on the same
    /// words.
    fn settle(&mut self, mut wanted: Vec<usize>) {
        while let Some(at) = wanted.pop() {
            if std::mem::replace(&mut self.issued[at].settled, true) {
                continue;
            }
            wanted.extend(&self.issued[at].comes_after);
            let words = words_of(&self.issued[at].effect);
            let older = (0..at).filter(|older| {
                words_of(&self.issued[*older].effect).any(|word| words.clone().any(|w| w == word))
            });
            wanted.extend(older);
        }
    }

    /// The cells after a cut with these outcomes for the operations that are free to land, in
    /// order.
    fn cut(&self, outcomes: &[Outcome]) -> Cells {
        let mut cells = Cells::blank();
        let mut whole = vec![false; self.issued.len()];
        for (at, op) in self.issued.iter().enumerate().filter(|(_, op)| op.settled) {
            cells.land(&op.effect, Outcome::Whole);
            whole[at] = true;
        }
        let mut outcomes = outcomes.iter().cycle();
        for (at, op) in self.issued.iter().enumerate().filter(|(_, op)| !op.settled) {
            if op.comes_after.iter().all(|before| whole[*before]) {
                let outcome = *outcomes.next().expect("a cycle has no end");
                cells.land(&op.effect, outcome);
                whole[at] = outcome == Outcome::Whole;
            }
        }
        cells
    }
}

fn words_of(effect: &Effect) -> std::ops::Range<usize> {
    match effect {
        Effect::Store { word, .. } => *word..word + 1,
        Effect::Clear { start, len } => *start..start + len,
        _ => 0..0,
    }
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![6 => Just(Outcome::Whole), 3 => Just(Outcome::Absent), 1 => any::<u64>().prop_map(Outcome::Torn)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_cut_leaves_a_downward_closed_subset(
        actions in prop::collection::vec(action(), 1..60),
        cuts in prop::collection::vec(prop::collection::vec(outcome(), 1..40), 1..6),
    ) {
        let mut model = Model::new();
        for action in &actions {
            model.act(action);
        }
        prop_assert_eq!(model.media.pending(), model.issued.iter().filter(|op| !op.settled).count());
        model.live.matches(&model.media.to_image())?;
        for outcomes in &cuts {
            let mut turn = outcomes.iter().cycle();
            let image = model.media.cut(|| *turn.next().expect("a cycle has no end"));
            model.cut(outcomes).matches(&image)?;
        }
        // The bounds of a cut's result: only settled operations, and all of them.
        model.cut(&[Outcome::Absent]).matches(&model.media.cut(|| Outcome::Absent))?;
        model.live.matches(&model.media.cut(|| Outcome::Whole))?;
    }
}
