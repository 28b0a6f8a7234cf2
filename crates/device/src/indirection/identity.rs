//! Identities of units whose pages are written one by one.
//!
//! A unit written whole has the hash of its pages' identities, in order. So equal units written whole are equal to the
//! firmware. A unit of which some pages are written has the hash of its earlier identity, the places of these pages and
//! their identities: the identities of the other pages are not known any more. A page of a unit has the hash of the unit's
//! identity and its place.
//!
//! Invariants: units with the same identity have the same pages; zeroes are 0. Absent: the converse. Equal units
//! reached by different writes have different identities, and are not found as duplicates.

use super::PARTS_MAX;

/// Starts of the hashes, so that units of different origin never meet.
const WHOLE: u64 = 0x0077_686f_6c65;
const CHANGED: u64 = 0x6368_616e_6765;
const PART: u64 = 0x7061_7274;

/// Identity of zeroes: of a unit that is not mapped, and of each of its pages.
pub(super) const ZEROES: u64 = 0;

/// One step of the hash: a bijection of `state ^ next`, that of SplitMix64.
fn mix(state: u64, next: u64) -> u64 {
    let mut mixed = (state ^ next).wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Never that of zeroes.
fn finish(state: u64) -> u64 {
    state.max(1)
}

/// Pages of a unit with new contents, by their place in it.
#[derive(Clone, Copy, Default)]
pub(super) struct Parts {
    /// One bit for each page that is there.
    mask: u16,
    identities: [u64; PARTS_MAX],
}

const _: () = assert!(PARTS_MAX <= u16::BITS as usize);

impl Parts {
    pub(super) fn set(&mut self, place: u32, identity: u64) {
        self.mask |= 1 << place;
        self.identities[place as usize] = identity;
    }

    pub(super) fn has(&self, place: u32) -> bool {
        self.mask >> place & 1 == 1
    }

    pub(super) fn count(&self) -> u32 {
        self.mask.count_ones()
    }

    fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        let all = (0..).zip(self.identities);
        all.filter(|(place, _)| self.mask >> place & 1 == 1)
    }

    fn are_zeroes(&self) -> bool {
        self.iter().all(|(_, identity)| identity == ZEROES)
    }

    /// The unit's identity, which was `before`, once these pages of its `len` pages are written.
    pub(super) fn over(&self, before: u64, len: u32) -> u64 {
        // All pages are known: the others are zeroes.
        if self.count() == len || before == ZEROES {
            if self.are_zeroes() {
                return ZEROES;
            }
            let all = self.identities[..len as usize].iter();
            return finish(all.fold(WHOLE, |state, identity| mix(state, *identity)));
        }
        let changed = mix(CHANGED, before);
        finish(self.iter().fold(changed, |state, (place, identity)| {
            mix(mix(state, place), identity)
        }))
    }
}

/// The identity of a page of a unit.
pub(super) fn part_of(unit: u64, place: u32) -> u64 {
    match unit {
        ZEROES => ZEROES,
        unit => finish(mix(mix(PART, unit), place.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(of: &[(u32, u64)]) -> Parts {
        let mut parts = Parts::default();
        of.iter().for_each(|(place, id)| parts.set(*place, *id));
        parts
    }

    #[test]
    fn a_unit_of_zeroes_and_written_pages_is_known_exactly() {
        let whole = parts(&[(0, 7), (1, ZEROES), (2, 9), (3, ZEROES)]);
        let some = parts(&[(2, 9), (0, 7)]);
        assert_eq!(some.over(ZEROES, 4), whole.over(55, 4));
        assert_eq!(parts(&[(1, ZEROES)]).over(ZEROES, 4), ZEROES);
        assert_eq!(part_of(ZEROES, 3), ZEROES);
    }

    #[test]
    fn places_order_and_history_make_different_identities() {
        let seen = [
            parts(&[(0, 7)]).over(55, 4),
            parts(&[(1, 7)]).over(55, 4),
            parts(&[(0, 7)]).over(56, 4),
            parts(&[(0, 7), (1, 8)]).over(55, 4),
            parts(&[(0, 7), (1, 8)]).over(55, 2),
            parts(&[(0, 8), (1, 7)]).over(55, 2),
            part_of(55, 0),
            part_of(55, 1),
            55,
        ];
        for (at, one) in seen.iter().enumerate() {
            assert!(!seen[..at].contains(one) && *one != ZEROES, "{at}");
        }
    }
}
