//! The mutant list: without any one of its guards the firmware loses data, and the campaign notices.

use remap_ssd_crash::{Budget, hunt};
use remap_ssd_ftl::{Guard, SchemeKind};

/// Far more than any guard needs.
const BUDGET: Budget = Budget { scripts: 2_000, seconds: 60.0 };

/// Guards whose absence the simulated medium cannot show.
///
/// It keeps tail metadata and OOB areas as two views of one store, so a tail never vouches for a page that did not
/// land, and an old tail never speaks of new pages. Two witnesses of one write hold the same content, so that either
/// may win as long as the original is not erased before its copy is durable, and `EraseWaits` sees to that.
const MASKED: &[Guard] = &[Guard::TailAfterData, Guard::HeadAfterErase, Guard::NewerGeneration];

#[test]
fn each_guard_that_is_removed_is_missed() {
    let needed = Guard::LIST.iter().filter(|guard| !MASKED.contains(guard));
    let survivors: Vec<&str> = needed
        .filter(|guard| hunt(SchemeKind::RemapSsd, **guard, BUDGET, 1).is_none())
        .map(|guard| guard.name())
        .collect();
    assert!(survivors.is_empty(), "the firmware runs as well without these guards: {survivors:?}");
}
