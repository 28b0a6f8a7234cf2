//! Coldmap figure 2: lifetimes of pages, by whether several LPNs shared them.
//!
//! A page's lifetime is from its write to its invalidation, in host writes; pages still alive at
//! the end are excluded, as in the paper's "interval from a page write to a page invalidation".

use super::{Findings, one_panel};
use crate::LabError;
use crate::plot::Plot;
use crate::table::{Row, Table};
use serde_json::Value;

/// Pages that died, and the sum of their lifetimes; alive pages, and the sum of their ages.
#[derive(Clone, Copy, Default)]
struct Lives {
    died: f64,
    lived: f64,
    alive: f64,
    age: f64,
}

impl Lives {
    fn add(&mut self, class: &Value) {
        let number = |name: &str| class.get(name).and_then(Value::as_f64).unwrap_or(0.0);
        self.died += number("died");
        self.lived += number("lived");
        self.alive += number("alive");
        self.age += number("alive_age");
    }
}

/// Lifetimes of pages with at most one reference, and with several.
fn lives(row: &Row) -> (Lives, Lives) {
    let (mut single, mut shared) = (Lives::default(), Lives::default());
    for class in row
        .result
        .get("survival")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let references = class.get("references").and_then(Value::as_u64).unwrap_or(0);
        if references > 1 {
            shared.add(class)
        } else {
            single.add(class)
        }
    }
    (single, shared)
}

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    let mut found = Findings::default();
    let mut groups = Vec::new();

    for row in &table.rows {
        let (single, shared) = lives(row);
        let ratio =
            (shared.lived / shared.died.max(1.0)) / (single.lived / single.died.max(1.0)).max(1e-9);

        let name = row.run.workload.split(',').next().unwrap_or("").to_owned();

        found.measure("shared_over_single", ratio);
        found.measure(
            "shared_still_alive",
            shared.alive / (shared.alive + shared.died).max(1.0),
        );
        found.measure(
            "single_still_alive",
            single.alive / (single.alive + single.died).max(1.0),
        );

        // As if all live pages died now: includes the lifetimes cut off at the end.
        let whole = |lives: &Lives| (lives.lived + lives.age) / (lives.died + lives.alive).max(1.0);
        found.measure(
            "shared_over_single_with_alive",
            whole(&shared) / whole(&single).max(1e-9),
        );

        groups.push((
            name,
            vec![
                ("one LPN".to_owned(), 1.0),
                ("several LPNs".to_owned(), ratio),
            ],
        ));
    }

    found.plots.push(Plot {
        name: "fig2".into(),
        title: "Survival of flash pages".into(),
        reading:
            "Mean time from a page's write to its invalidation, over that of pages with one LPN."
                .into(),
        y: "times pages with one LPN".into(),
        shape: one_panel("workload", groups, Some(1.0)),
    });

    Ok(found)
}
