//! The contents that a disk may have after a power cut.

use crate::{Content, Op};
use rand::RngExt;
use std::collections::HashMap;

/// Number of operations since the last flush.
pub fn pending(log: &[Op]) -> usize {
    let last = log.iter().rposition(|op| matches!(op, Op::Flush));
    log.len() - last.map_or(0, |at| at + 1)
}

/// The contents of a disk that had `base`, after these operations, where `keep` selects the
/// surviving ones since the last flush.
pub fn kept(
    base: &HashMap<u64, Content>,
    log: &[Op],
    mut keep: impl FnMut(usize) -> bool,
) -> HashMap<u64, Content> {
    let flushed = log.len() - pending(log);
    let mut pages = base.clone();
    for (index, op) in log.iter().enumerate() {
        if let Op::Set(page, content) = op
            && (index < flushed || keep(index - flushed))
        {
            pages.insert(*page, content.clone());
        }
    }
    pages
}

/// Subsets of the unflushed operations to keep: all, none, one, all but one, the last, random.
pub fn subsets(log: &[Op], random: &mut impl RngExt) -> Vec<Vec<bool>> {
    let pending = pending(log);
    let mut subsets = vec![vec![true; pending]];
    if pending > 0 {
        let one = random.random_range(0..pending);
        subsets.push(vec![false; pending]);
        subsets.push((0..pending).map(|index| index == one).collect());
        subsets.push((0..pending).map(|index| index != one).collect());
        subsets.push((0..pending).map(|index| index + 1 == pending).collect());
        subsets.push((0..pending).map(|_| random.random_bool(0.5)).collect());
    }
    subsets
}
