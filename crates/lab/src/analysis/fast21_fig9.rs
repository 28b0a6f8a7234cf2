//! FAST'21 figure 9 and PebbleSSD §6.3: F2FS, cleaned by remaps; the load before and after.
//!
//! Phases: before (the load runs), cleaned (all segments with garbage are cleaned), after (the load
//! runs again).

use super::phases::{Phase, phases};
use super::{Findings, mean, most, one_panel};
use crate::LabError;
use crate::plot::Plot;
use crate::table::Table;

const SETUP: &str = "f2fs";
/// The same with enough spare space for little collection.
const SPARE: &str = "f2fs-spare";
const LOADS: [&str; 2] = ["fileserver", "database"];
const REMAPPING: [&str; 4] = ["flog", "nlog", "remap-ssd", "opt"];
/// Each phase is between a mark and the next.
const PHASES: [&str; 3] = ["before", "cleaned", "after"];

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    let mut found = Findings::default();
    for load in LOADS {
        let stock: [Phase; 3] = phases(table, SETUP, &format!("f2fs-{load}-stock"), "none")?;
        let ours = |scheme| phases(table, SETUP, &format!("f2fs-{load}-flagged"), scheme);
        let [flog, nlog, remap, opt] = [
            ours("flog")?,
            ours("nlog")?,
            ours("remap-ssd")?,
            ours("opt")?,
        ];

        let saved = |ours: &[Phase; 3], of: fn(&Phase) -> f64| 1.0 - of(&ours[1]) / of(&stock[1]);
        for (name, value) in [
            ("cleaning_time_saved", saved(&remap, |phase| phase.seconds)),
            (
                "cleaning_pages_saved",
                saved(&remap, |phase| phase.flash_pages),
            ),
            ("cleaning_seconds_stock", stock[1].seconds),
            ("cleaning_seconds", remap[1].seconds),
            ("remaps_before", remap[0].remaps),
            ("remaps_cleaned", remap[1].remaps),
            ("remaps_after", remap[2].remaps),
            ("collected_before", remap[0].gc_pages),
            ("collected_after", remap[2].gc_pages),
            ("collected_stock_after", stock[2].gc_pages),
            ("seconds_after", remap[2].seconds),
            ("seconds_opt_after", opt[2].seconds),
            ("seconds_stock_after", stock[2].seconds),
            ("pages_both", remap[1].flash_pages + remap[2].flash_pages),
            (
                "pages_both_stock",
                stock[1].flash_pages + stock[2].flash_pages,
            ),
            ("host_pages_after", remap[2].host_pages),
        ] {
            found.measure(format!("{name} {load}"), value);
        }

        for (index, phase) in PHASES.iter().enumerate() {
            let faster_than = |other: &[Phase; 3]| other[index].seconds / remap[index].seconds;
            found.measure(format!("over_stock {phase} {load}"), faster_than(&stock));
            found.measure(format!("over_flog {phase} {load}"), faster_than(&flog));
            found.measure(format!("over_nlog {phase} {load}"), faster_than(&nlog));
        }
        found.plots.push(picture(table, load)?);

        let of = |recording: &str, scheme| -> Result<[Phase; 3], LabError> {
            phases(table, SPARE, &format!("f2fs-{load}-{recording}"), scheme)
        };
        let [stock, remap] = [of("stock", "none")?, of("flagged", "remap-ssd")?];
        found.measure(
            format!("spare_over_stock after {load}"),
            stock[2].seconds / remap[2].seconds,
        );
        found.measure(format!("spare_collected_after {load}"), remap[2].gc_pages);
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
        phases(table, SETUP, &format!("f2fs-{load}-stock"), "none")?,
    )];

    for scheme in REMAPPING {
        arms.push((
            scheme,
            phases(table, SETUP, &format!("f2fs-{load}-flagged"), scheme)?,
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
