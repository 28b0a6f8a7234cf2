//! Operations on lists of entries: finding those to look up, those not in force, and removing some.
//!
//! Invariant: order is preserved. Absent: the location of entries.

use crate::mapping::ended::EndedIn;
use crate::mapping::map::Map;
use crate::mapping::tables::Tables;
use remap_ssd_media::{Lpn, Ppn};

/// Entries processed at a time.
const CHUNK: usize = 64;

/// Appends the places, derived from their indices, of the entries whose remap may have ended, and
/// prefetches their L2P entries.
#[inline(always)]
pub(super) fn find_doubtful<T>(
    map: &Map,
    ended: EndedIn<'_>,
    slots: &[T],
    lpn_of: impl Fn(&T) -> Lpn,
    place_of: impl Fn(usize) -> u32,
    found: &mut Vec<u32>,
) {
    let mut doubtful = [0; CHUNK];
    for (nth, slots) in slots.chunks(CHUNK).enumerate() {
        let len = doubtful_of(ended, slots, &lpn_of, &mut doubtful);
        found.extend(doubtful[..len].iter().map(|index| {
            map.prefetch(lpn_of(&slots[*index as usize]));
            place_of(nth * CHUNK + *index as usize)
        }));
    }
}

/// The indices of such entries; returns their number. Not inlined, so that its variables stay in
/// registers.
#[inline(never)]
fn doubtful_of<T>(
    ended: EndedIn<'_>,
    slots: &[T],
    lpn_of: impl Fn(&T) -> Lpn,
    doubtful: &mut [u32; CHUNK],
) -> usize {
    // About one in ten, which is unpredictable: branch-free.
    let mut len = 0;
    for (index, slot) in slots.iter().enumerate() {
        doubtful[len % CHUNK] = index as u32;
        len += usize::from(ended.may_have_ended(lpn_of(slot)));
    }
    len
}

/// Keeps, of the places of doubtful entries (oldest first), those of entries that are not in force,
/// or not the newest of their mapping. `mapping_at` returns the mapping of the entry at a place;
/// `None` is never in force. `hidden` is scratch.
pub(super) fn keep_gone(
    tables: &mut Tables,
    doubtful: &mut Vec<u32>,
    hidden: &mut Vec<Lpn>,
    mapping_at: impl Fn(&Tables, u32) -> Option<(Lpn, Ppn)>,
) {
    const AHEAD: usize = 24;
    hidden.clear();

    // Newest first: an LPN is hidden once found, so that an older entry of the same mapping is not
    // in force.
    let mut first_gone = doubtful.len();
    for index in (0..doubtful.len()).rev() {
        if let Some(next) = index.checked_sub(AHEAD)
            && let Some((lpn, _)) = mapping_at(tables, doubtful[next])
        {
            tables.map.prefetch(lpn);
        }
        // Places to keep are collected at the end of the same list, in order: no second buffer.
        match mapping_at(tables, doubtful[index]) {
            Some((lpn, ppn)) if tables.map.is_remapped_at(lpn, ppn) => {
                tables.map.hide_remapped(lpn);
                hidden.push(lpn);
            }
            _ => {
                first_gone -= 1;
                doubtful[first_gone] = doubtful[index];
            }
        }
    }

    hidden.iter().for_each(|lpn| tables.map.mark_remapped(*lpn));
    doubtful.drain(..first_gone);
}

/// Removes the entries with the indices `gone`, in ascending order, from a list.
pub(super) fn take_out<T: Copy>(slots: &mut Vec<T>, gone: &[u32]) {
    let Some(&first) = gone.first() else { return };
    // Each stretch between two removed entries moves down in one copy.
    let mut end = first as usize;
    for (nth, at) in gone.iter().enumerate() {
        let from = *at as usize + 1;
        let next = gone.get(nth + 1).map_or(slots.len(), |next| *next as usize);
        slots.copy_within(from..next, end);
        end += next - from;
    }
    slots.truncate(end);
}
