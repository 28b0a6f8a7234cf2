//! The mutant list: without any one of its guards the firmware loses data, and the campaign notices.

use remap_ssd_crash::{Budget, hunt};
use remap_ssd_ftl::{Guard, SchemeKind};

/// Far more than any guard needs.
const BUDGET: Budget = Budget { scripts: 2_000, seconds: 60.0 };

#[test]
fn each_guard_that_is_removed_is_missed() {
    let survivors: Vec<&str> = Guard::LIST
        .iter()
        .filter(|guard| hunt(SchemeKind::RemapSsd, **guard, BUDGET, 1).is_none())
        .map(|guard| guard.name())
        .collect();
    assert!(survivors.is_empty(), "the firmware runs as well without these guards: {survivors:?}");
}
