//! Sections on the engine `nand`, how busy the device was, what requests waited for, and read errors; and on energy.
//!
//! Absent: the former for runs on the other engine, which knows neither.

use super::super::format::{MISSING, exact, number, percent};
use super::Section;
use crate::summary::{Energy, LatencyCauses, ReadErrors, RunSummary, Utilisation};

/// The section on energy, if it is known.
pub(super) fn energy(run: &RunSummary) -> Option<Section> {
    let Energy {
        joules,
        joules_per_gib,
    } = run.energy?;
    Some(Section {
        title: "Energy of the flash",
        rows: vec![
            ("all operations, J", number(joules)),
            ("for each GiB of the host, J", number(joules_per_gib)),
        ],
    })
}

/// The sections of a run on this engine.
pub(super) fn flash_time(run: &RunSummary) -> Vec<Section> {
    let Some(used) = &run.utilisation else {
        return Vec::new();
    };
    let mut sections = vec![
        causes("Mean write latency by cause, µs", &run.latency_causes_us),
        causes(
            "Mean read latency by cause, µs",
            &run.read_latency_causes_us,
        ),
        utilisation(used),
    ];
    sections.extend(run.read_errors.as_ref().map(read_errors));
    sections
}

fn read_errors(found: &ReadErrors) -> Section {
    let counts = found.by_retries.iter().map(|count| exact(*count));
    Section {
        title: "Reads of flash by what they needed",
        rows: vec![
            (
                "after 0 / 1 / .. retries",
                counts.collect::<Vec<_>>().join(" / "),
            ),
            ("soft decoding", exact(found.soft)),
            ("not corrected", exact(found.uncorrectable)),
            ("pages lost by collection", exact(found.lost)),
            ("retries of a read, mean", number(found.retries_per_read)),
        ],
    }
}

fn causes(title: &'static str, known: &Option<LatencyCauses>) -> Section {
    let causes = known.clone().unwrap_or_default();
    let cell = |us| {
        known
            .as_ref()
            .map_or_else(|| MISSING.to_owned(), |_| number(us))
    };
    let mut rows: Vec<_> = causes.parts().map(|(name, us)| (name, cell(us))).to_vec();
    rows.push(("all", cell(causes.total)));
    Section { title, rows }
}

fn utilisation(used: &Utilisation) -> Section {
    let mut section = Section {
        title: "Busy, of the run's time",
        rows: vec![
            ("dies", percent(used.dies)),
            ("of that reading", percent(used.dies_reading)),
            ("programming", percent(used.dies_programming)),
            ("erasing", percent(used.dies_erasing)),
            ("suspending or resuming", percent(used.dies_suspending)),
            ("using the channel", percent(used.dies_transferring)),
            ("waiting for the channel", percent(used.dies_waiting)),
            ("dies for the host", percent(used.dies_for_host)),
            ("for garbage collection", percent(used.dies_for_collection)),
            ("for metadata", percent(used.dies_for_metadata)),
            ("planes", percent(used.planes)),
            ("channels", percent(used.channels)),
            ("controller cores", percent(used.cores)),
            ("link from the host", percent(used.link_in)),
            ("link to the host", percent(used.link_out)),
            ("NVRAM stores", percent(used.nvram_stores)),
            ("NVRAM clearings", percent(used.nvram_clears)),
            ("NVRAM scans", percent(used.nvram_scans)),
            ("programs suspended", exact(used.program_suspensions)),
            ("erases suspended", exact(used.erase_suspensions)),
        ],
    };
    let copybacks = used.copybacks.map(exact);
    section
        .rows
        .extend(copybacks.map(|count| ("copybacks", count)));
    section
}
