//! The mutant list: without any one of its guards the firmware loses data, and the campaign notices.

use remap_ssd_crash::{Budget, hunt, scheme_of};
use remap_ssd_ftl::{Guard, SchemeKind};

/// Far more than any guard needs.
const BUDGET: Budget = Budget { scripts: 2_000, seconds: 60.0 };

#[test]
fn each_guard_that_is_removed_is_missed() {
    let survivors: Vec<&str> = Guard::LIST
        .iter()
        .filter(|guard| hunt(scheme_of(**guard), **guard, BUDGET, 1).is_none())
        .map(|guard| guard.name())
        .collect();
    assert!(survivors.is_empty(), "the firmware runs as well without these guards: {survivors:?}");
}

/// Guards that other schemes have too, in places of their own.
#[test]
fn a_guard_of_slots_that_is_removed_is_missed() {
    let guards = [Guard::EntryAfterPage, Guard::ClearWaits, Guard::SegmentZeroed, Guard::StaleSegments];
    let survivors: Vec<Guard> =
        guards.into_iter().filter(|guard| hunt(SchemeKind::Pebble, *guard, BUDGET, 1).is_none()).collect();
    assert!(survivors.is_empty(), "PebbleSSD runs as well without these guards: {survivors:?}");
}
