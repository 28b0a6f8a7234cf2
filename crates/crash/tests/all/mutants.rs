//! The mutant list: without any one of its guards the firmware loses data, and the campaign
//! notices.

use remap_ssd_crash::{CampaignBudget, hunt};
use remap_ssd_ftl::{Guard, SchemeKind};

/// Far more than any guard needs, also on a busy machine.
const BUDGET: CampaignBudget = CampaignBudget {
    scripts: 2_000,
    seconds: 600.0,
};

fn survivors(guards: impl Iterator<Item = (SchemeKind, Guard)>) -> Vec<Guard> {
    guards
        .filter(|(scheme, guard)| hunt(*scheme, *guard, BUDGET, 1).is_none())
        .map(|(_, guard)| guard)
        .collect()
}

fn is_of_files(guard: &Guard) -> bool {
    guard.name().starts_with("fs-")
}

/// Faults that show in too few cuts for random draws: `every_cut.rs`, among the firmware's tests,
/// tries all cuts; and faults that show only with damage, as in `every_fault`.
fn is_left_to_every_cut(guard: &Guard) -> bool {
    matches!(guard, Guard::RecordBeforeReclaim | Guard::MendingWaits)
}

#[test]
fn each_guard_that_is_removed_is_missed() {
    let drawn = |guard: &&Guard| !is_of_files(guard) && !is_left_to_every_cut(guard);
    let guards = Guard::LIST
        .iter()
        .filter(drawn)
        .map(|guard| (SchemeKind::that_shows(*guard), *guard));
    let survivors = survivors(guards);
    assert!(
        survivors.is_empty(),
        "the firmware runs as well without these guards: {survivors:?}"
    );
}

#[test]
fn each_guard_of_the_file_map_that_is_removed_is_missed() {
    let guards = Guard::LIST
        .iter()
        .filter(|guard| is_of_files(guard))
        .map(|guard| (SchemeKind::that_shows(*guard), *guard));
    let survivors = survivors(guards);
    assert!(
        survivors.is_empty(),
        "the file map does as well without these guards: {survivors:?}"
    );
}

/// Guards that other schemes also have, in their own code.
#[test]
fn a_guard_of_slots_that_is_removed_is_missed() {
    let guards = [
        Guard::EntryAfterPage,
        Guard::ClearWaits,
        Guard::SegmentZeroed,
        Guard::StaleSegments,
    ];
    let survivors = survivors(guards.into_iter().map(|guard| (SchemeKind::Pebble, guard)));
    assert!(
        survivors.is_empty(),
        "PebbleSSD runs as well without these guards: {survivors:?}"
    );
}
