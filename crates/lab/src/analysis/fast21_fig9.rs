//! FAST'21 figure 9 and PebbleSSD §6.3: F2FS, cleaned by remaps; the load before and after.
//!
//! Phases: before (the load runs), cleaned (all segments with garbage are cleaned), after (the load
//! runs again).

use super::phases::{Phase, phases};
use super::{Findings, mean, most, one_panel};
use crate::LabError;
use crate::plot::Plot;
use crate::table::Table;

const LOADS: [&str; 2] = ["fileserver", "database"];
const REMAPPING: [&str; 4] = ["flog", "nlog", "remap-ssd", "opt"];
/// Each phase is between a mark and the next.
const PHASES: [&str; 3] = ["before", "cleaned", "after"];

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    let mut found = Findings::default();
    for load in LOADS {
        let stock: [Phase; 3] = phases(table, &format!("f2fs-{load}-stock"), "none")?;
        let ours = |scheme| phases(table, &format!("f2fs-{load}-remap"), scheme);
        let [flog, nlog, remap, _] = [
            ours("flog")?,
            ours("nlog")?,
            ours("remap-ssd")?,
            ours("opt")?,
        ];

        let saved =
            |of: fn(&Phase) -> f64, phase: usize| 1.0 - of(&remap[phase]) / of(&stock[phase]);
        found.measure(
            format!("cleaning_time_saved {load}"),
            saved(|phase| phase.seconds, 1),
        );
        found.measure(
            format!("cleaning_pages_saved {load}"),
            saved(|phase| phase.flash_pages, 1),
        );
        for (index, phase) in PHASES.iter().enumerate() {
            let faster_than = |other: &[Phase; 3]| other[index].seconds / remap[index].seconds;
            found.measure(format!("over_stock {phase} {load}"), faster_than(&stock));
            found.measure(format!("over_flog {phase} {load}"), faster_than(&flog));
            found.measure(format!("over_nlog {phase} {load}"), faster_than(&nlog));
        }
        found.plots.push(picture(table, load)?);
    }

    let of_loads =
        |found: &Findings, name: &str| LOADS.map(|load| found.measures[&format!("{name} {load}")]);
    for name in [
        "cleaning_time_saved",
        "cleaning_pages_saved",
        "over_flog before",
        "over_nlog before",
        "over_flog after",
        "over_nlog after",
    ] {
        let values = of_loads(&found, name);
        found.measure(name, mean(&values));
    }
    let best = most(&of_loads(&found, "over_stock after"));
    found.measure("most_over_stock after", best);
    Ok(found)
}

/// Bars: the time of each phase, for stock and each scheme.
fn picture(table: &Table, load: &str) -> Result<Plot, LabError> {
    let mut arms: Vec<(&str, [Phase; 3])> = vec![(
        "none",
        phases(table, &format!("f2fs-{load}-stock"), "none")?,
    )];

    for scheme in REMAPPING {
        arms.push((
            scheme,
            phases(table, &format!("f2fs-{load}-remap"), scheme)?,
        ));
    }

    let bars = |index: usize| {
        arms.iter()
            .map(|(name, phases)| ((*name).to_owned(), phases[index].seconds))
            .collect()
    };

    let groups = PHASES
        .iter()
        .enumerate()
        .map(|(index, phase)| ((*phase).to_owned(), bars(index)))
        .collect();

    Ok(Plot {
        name: format!("fig9-{load}"),
        title: format!("F2FS under {load}: before cleaning, cleaning, and after it"),
        reading: "Modelled seconds on setup A at a 64th; less is better.".into(),
        y: "seconds".into(),
        shape: one_panel("", groups, None),
    })
}
