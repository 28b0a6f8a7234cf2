//! Command identifiers in use, as a bit set.
//!
//! Invariant: at most 8 KiB, whichever identifiers hosts choose. Absent: the commands.

/// A set of command identifiers.
#[derive(Default)]
pub(super) struct Cids(Vec<u64>);

const WORDS: usize = 1 << 10;

impl Cids {
    pub(super) fn insert(&mut self, cid: u16) {
        // A queue without waiting commands, the usual case, takes no memory.
        if self.0.is_empty() {
            self.0 = vec![0; WORDS];
        }
        self.0[usize::from(cid >> 6)] |= 1 << (cid & 63);
    }
    pub(super) fn remove(&mut self, cid: u16) {
        if let Some(word) = self.0.get_mut(usize::from(cid >> 6)) {
            *word &= !(1 << (cid & 63));
        }
    }
    pub(super) fn contains(&self, cid: u16) -> bool {
        self.0
            .get(usize::from(cid >> 6))
            .is_some_and(|word| word >> (cid & 63) & 1 == 1)
    }
}
