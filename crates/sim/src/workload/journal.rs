//! A physical journal with checkpoints by remap: the use case of PD-type remapping (WAL-SSD).
//!
//! Source: the mechanism of FAST'21 §3.2 ("journaling: the home is known") and of WAL-SSD; no
//! published parameters. The figures are those of common software: database pages of 16 KiB
//! (InnoDB), a journal of 128 MiB (ext4's for years) whose quarters are checkpointed in turn
//! (jbd2), 4 GiB of home pages on a device of 32 GiB.
//!
//! A transaction changes eight database pages, each equally likely. It is written to the journal as
//! one request: a descriptor, then the pages, each with its home; and, as a second request, the
//! commit. Before the journal reuses a quarter, that quarter is checkpointed: each database page
//! whose newest version is in it is remapped to its home, by one command; then the quarter is
//! deallocated, if the file system does that (`nodiscard` if not). The application's reads end in
//! its buffers.
//!
//! Invariants: a page is remapped only to the home that it was written for; a database page appears
//! once in a transaction. Addresses: the journal first, then the homes.

use std::collections::VecDeque;

use rand_xoshiro::Xoshiro256PlusPlus;

use super::WorkloadError;
use super::draw::below;
use super::script::{Scale, Script, Steps};
use super::space::PageExtent;

pub(super) const ABOUT: &str = "physical journal of 128 MiB for 4 GiB of 16 KiB database pages, checkpointed by remaps to the \
     homes that its pages name (FAST'21 3.2, WAL-SSD; parameters are InnoDB's and ext4's)";

const JOURNAL_PAGES: f64 = 32_768.0;
const HOME_PAGES: f64 = 1_048_576.0;
const PARTS: u32 = 4;
/// Pages per database page, and database pages per transaction.
const UNIT: u32 = 4;
const UNITS: u32 = 8;
const TRANSACTION: u32 = 2 + UNITS * UNIT;
/// Remaps issued at a time.
const REMAPS: usize = 32;

pub(super) struct Journal {
    /// Transactions per quarter, and database pages.
    part_len: u32,
    units: u32,
    /// Journal position of the newest version of a database page, plus one; 0 if it is at home.
    newest: Vec<u32>,
    /// Database pages in each quarter, in the order of writing.
    written: [Vec<u32>; PARTS as usize],
    /// Current quarter, and transactions in it.
    part: u32,
    filled: u32,
    /// Remaining checkpoint work: database pages, and the trim of the quarter.
    due: VecDeque<u32>,
    trim: bool,
    homes: Vec<Option<u32>>,
    rng: Xoshiro256PlusPlus,
}

impl Journal {
    pub(super) fn new(scale: &Scale) -> Result<Self, WorkloadError> {
        let part_len = scale.of(JOURNAL_PAGES / f64::from(PARTS * TRANSACTION), 1);
        // Fewer would not fill two transactions with different units.
        let units = scale.of(HOME_PAGES / f64::from(UNIT), UNITS * 2);

        scale.needs(
            u64::from(PARTS * TRANSACTION) * u64::from(part_len)
                + u64::from(units) * u64::from(UNIT),
        )?;

        Ok(Self {
            part_len,
            units,
            newest: vec![0; units as usize],
            written: Default::default(),
            part: 0,
            filled: 0,
            due: VecDeque::new(),
            trim: false,
            homes: Vec::new(),
            rng: scale.rng.clone(),
        })
    }

    fn part_first(&self, part: u32) -> u32 {
        part * self.part_len * TRANSACTION
    }

    fn home(&self, unit: u32) -> u32 {
        self.part_first(PARTS) + unit * UNIT
    }

    /// Advances to the next quarter, with a checkpoint if it has been filled before.
    fn turn(&mut self) {
        (self.part, self.filled) = ((self.part + 1) % PARTS, 0);
        let mut written = std::mem::take(&mut self.written[self.part as usize]);
        self.trim = !written.is_empty();
        // In the order of homes, as a checkpoint writes them.
        written.sort_unstable();
        written.dedup();
        self.due.extend(written.drain(..));
        self.written[self.part as usize] = written;
    }

    /// Executes a part of the current checkpoint.
    fn checkpoint(&mut self, steps: &mut Steps) {
        let quarter = self.part_first(self.part)..self.part_first(self.part + 1);
        let mut issued = 0;

        // Limited per step: the host's requests continue between the parts of a checkpoint.
        while issued < REMAPS
            && let Some(unit) = self.due.pop_front()
        {
            let newest = &mut self.newest[unit as usize];
            // A page journaled again since then is left to that version's checkpoint.
            if let Some(at) = newest.checked_sub(1).filter(|at| quarter.contains(at)) {
                *newest = 0;
                let first = self.home(unit);
                steps.remap(PageExtent { first, len: UNIT }, at);
                issued += 1;
            }
        }

        // Only when nothing in the quarter is needed any more.
        if self.due.is_empty() && std::mem::take(&mut self.trim) {
            steps.trim(PageExtent {
                first: quarter.start,
                len: quarter.len() as u32,
            });
        }
    }

    fn transaction(&mut self, steps: &mut Steps) {
        let first = self.part_first(self.part) + self.filled * TRANSACTION;
        self.filled += 1;

        // The descriptor block comes first; it has no home.
        self.homes.clear();
        self.homes.push(None);

        let list = &mut self.written[self.part as usize];
        // Start of this transaction's units in the list of its quarter.
        let begin = list.len();

        while list.len() < begin + UNITS as usize {
            let unit = below(self.units, &mut self.rng);
            // A unit twice in a transaction would be journaled once.
            if !list[begin..].contains(&unit) {
                self.newest[unit as usize] = first + self.homes.len() as u32 + 1;
                let home = PARTS * self.part_len * TRANSACTION + unit * UNIT;
                self.homes.extend((home..home + UNIT).map(Some));
                list.push(unit);
            }
        }

        // Each page names its home, so that a device can place it for the later remap.
        steps.write_for(first, &self.homes);

        // The commit is a separate request: a file system waits for the data before it.
        steps.write(PageExtent {
            first: first + TRANSACTION - 1,
            len: 1,
        });
    }
}

impl Script for Journal {
    fn step(&mut self, steps: &mut Steps) {
        if self.filled == self.part_len {
            self.turn();
        }

        // A part whose pages have all been journaled again issues nothing: continues with the next.
        while !self.due.is_empty() {
            let before = steps.len();
            self.checkpoint(steps);
            if steps.len() > before {
                return;
            }
        }
        self.transaction(steps);
    }
}
