//! What happens on a rail, for a check of the firmware's steps against a model.
//!
//! Invariant: an event repeats what the rail decides cuts by, so that a checker sees the waits that a cut obeys. Absent: what an
//! operation means (the observer's), and order that the medium keeps by itself: of one block, and of stores to one word.

use super::{PendingOp, Rail};
use crate::array::StoredPage;
use crate::effect::MediaEffect;
use crate::geometry::{BlockId, Ppn};
use crate::oob::Oob;

/// An operation that has become pending, with its order. Numbers of operations ascend from power-on.
#[derive(Clone, Debug)]
pub struct IssuedOp {
    /// Its number.
    pub token: u64,
    /// What it does.
    pub change: Change,
    /// It lands after all operations with a smaller number.
    pub all_below: u64,
    /// It lands after all stores to NVRAM with a smaller number.
    pub stores_below: u64,
    /// It lands after these.
    pub named: Vec<u64>,
    /// The page that it copies.
    pub copied: Option<Ppn>,
    /// True if the command's acknowledgement waits for it.
    pub critical: bool,
}

/// The effect of an operation.
#[derive(Clone, Debug)]
pub enum Change {
    /// A page and its OOB.
    Program(Ppn, Oob, StoredPage),
    /// An erase.
    Erase(BlockId),
    /// A word of NVRAM gets a value.
    Store(usize, u64),
    /// Words of NVRAM are zeroed: the first, and how many.
    Clear(usize, usize),
    /// A program or an erase that fails.
    Failed,
}

/// What happened on the rail.
#[derive(Clone, Debug)]
pub enum RailEvent {
    /// An operation has become pending.
    Issued(IssuedOp),
    /// The operation with this number is durable.
    Durable(u64),
}

impl IssuedOp {
    pub(super) fn of(op: &PendingOp, copied: Option<Ppn>, critical: bool) -> Self {
        let change = match &op.effect {
            MediaEffect::Program { ppn, oob, contents } => {
                Change::Program(*ppn, *oob, contents.clone())
            }
            MediaEffect::Erase { block } => Change::Erase(*block),
            MediaEffect::Store { word, values } => Change::Store(*word, *values),
            MediaEffect::Clear { start, len } => Change::Clear(*start, *len),
            MediaEffect::TornProgram { .. } | MediaEffect::SpoiledErase { .. } => Change::Failed,
        };
        Self {
            token: op.token,
            change,
            all_below: op.all_below,
            stores_below: op.stores_below,
            named: op.named.clone(),
            copied,
            critical,
        }
    }
}

impl Rail {
    pub(crate) fn watch(&mut self) {
        self.events.get_or_insert_default();
    }

    pub(crate) fn take_events(&mut self) -> Vec<RailEvent> {
        self.events.as_mut().map(std::mem::take).unwrap_or_default()
    }
}
