//! Command atomicity: a command that a cut interrupts leaves nothing behind.
//!
//! All witnesses of an atomic remap (entries, copied pages, deallocations) carry one sequence number. While the
//! command is under way that number stands in an NVRAM slot; emptying the slot is the commit record. Counting entries
//! instead, as in FAST'21 §4.3, fails once an overwrite, GC or a demotion has removed one.
//!
//! Invariants: recovery ignores every witness whose number is in the slot or in the aborted list; a number stays in
//! the list while a witness with it exists anywhere, and whoever reclaims drops entries with it (`Core::is_in_force`). Absent: which pages the command touches.

use crate::core::Core;
use crate::guard::Guard;
use crate::layout::ABORTED_SLOTS;
use remap_ssd_media::{After, Purpose};

/// Starts the command with this number.
pub fn begin(core: &mut Core, wsn: u64) {
    if !core.config.guards.has(Guard::Commit) {
        return;
    }
    core.media.fence();
    core.media.store(core.layout.atomic, wsn, Purpose::Host, After::FENCE);
    core.media.fence();
}

/// Makes it count.
pub fn commit(core: &mut Core) {
    if !core.config.guards.has(Guard::Commit) {
        return;
    }
    core.media.store(core.layout.atomic, 0, Purpose::Host, After::ALL);
    core.media.fence();
}

/// Numbers that do not count; unreadable words are given by their address.
pub fn read_back(core: &mut Core) -> Result<Vec<u64>, usize> {
    let layout = core.layout;
    let mut numbers = Vec::new();
    for word in layout.atomic..layout.aborted + ABORTED_SLOTS {
        let number = core.media.load(word).map_err(|_| word)?;
        if number != 0 {
            numbers.push(number);
        }
    }
    Ok(numbers)
}

/// After recovery: `seen` are the numbers that still have witnesses. They are listed, then the slot is emptied.
/// `false` if there are more than the list holds.
pub fn resume(core: &mut Core, mut seen: Vec<u64>) -> bool {
    let layout = core.layout;
    seen.sort_unstable();
    seen.dedup();
    if seen.len() > ABORTED_SLOTS {
        return false;
    }
    // 1. the list, where what stands there already keeps its place  2. the slot. Cut between: both say it.
    if core.config.guards.has(Guard::AbortedStay) {
        let mut missing = seen.clone();
        let mut places = Vec::new();
        for word in layout.aborted..layout.aborted + ABORTED_SLOTS {
            let number = core.media.load(word).unwrap_or(0);
            match missing.iter().position(|wanted| *wanted == number) {
                Some(at) => {
                    missing.swap_remove(at);
                }
                None => places.push((word, number)),
            }
        }
        for (word, number) in places {
            let value = missing.pop().unwrap_or(0);
            if value != number {
                core.media.store(word, value, Purpose::Meta, After::NOTHING);
            }
        }
    }
    core.media.fence();
    if core.media.load(layout.atomic) != Ok(0) {
        core.media.store(layout.atomic, 0, Purpose::Meta, After::NOTHING);
        core.media.fence();
    }
    core.aborted = seen;
    true
}
