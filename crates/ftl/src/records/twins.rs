//! Pages in the write buffer that remaps gave one content: rings of slots, in DRAM only.
//!
//! Invariants: each slot is in one ring, most of them alone; the pages of a ring are equal. Recovery knows no rings: after a
//! cut equal pages are independent, which costs a program. Absent: the pages, and when they leave (`verbs::buffer`).

use crate::error::Contradiction;

/// Neighbours of a slot in its ring; the slot itself if it is alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Neighbours {
    previous: u32,
    next: u32,
}

/// The rings of all slots.
pub(crate) struct Twins(Vec<Neighbours>);

impl Twins {
    /// Every slot is alone.
    pub(crate) fn new(slots: u32) -> Self {
        let alone = |slot| Neighbours {
            previous: slot,
            next: slot,
        };
        Self((0..slots).map(alone).collect())
    }

    fn at(&mut self, slot: u32) -> &mut Neighbours {
        &mut self.0[slot as usize]
    }

    /// A slot that is alone joins the ring of another one.
    pub(crate) fn join(&mut self, slot: u32, other: u32) {
        assert!(self.is_alone(slot) && slot != other, "{slot} is alone");
        let next = self.at(other).next;
        *self.at(slot) = Neighbours {
            previous: other,
            next,
        };
        self.at(other).next = slot;
        self.at(next).previous = slot;
    }

    /// A slot leaves its ring.
    pub(crate) fn leave(&mut self, slot: u32) {
        let Neighbours { previous, next } = *self.at(slot);
        self.at(previous).next = next;
        self.at(next).previous = previous;
        *self.at(slot) = Neighbours {
            previous: slot,
            next: slot,
        };
    }

    fn is_alone(&self, slot: u32) -> bool {
        self.0[slot as usize].next == slot
    }

    /// The slot before this one in its ring.
    pub(crate) fn previous(&self, slot: u32) -> u32 {
        self.0[slot as usize].previous
    }

    /// The other slots of a ring, in its order.
    pub(crate) fn others(&self, slot: u32) -> impl Iterator<Item = u32> {
        let next = move |at: &u32| Some(self.0[*at as usize].next).filter(|next| *next != slot);
        std::iter::successors(next(&slot), next)
    }

    /// Checks that the rings are closed, and that slots in rings hold equal pages.
    ///
    /// # Errors
    /// The first contradiction.
    pub(crate) fn check(&self, are_equal: impl Fn(u32, u32) -> bool) -> Result<(), Contradiction> {
        for (slot, Neighbours { previous, next }) in (0..).zip(self.0.iter().copied()) {
            let is_closed =
                self.0[next as usize].previous == slot && self.0[previous as usize].next == slot;
            if !is_closed || (next != slot && !are_equal(slot, next)) {
                return Err(Contradiction(format!(
                    "slot {slot} of the write buffer has {next} as its twin, which is not"
                )));
            }
        }
        Ok(())
    }
}
