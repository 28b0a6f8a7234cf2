//! All measurements of one run that are not in the overview, in titled sections.
//!
//! Invariant: the sum of the requests is checked where it is shown. Absent: remaps and their
//! metadata (`remaps`), wear and survival (`wear`).

use super::super::format::{exact, number, one_line, seconds};
use super::Section;
use super::flash_time::{energy, flash_time};
use super::remaps::{
    indirection, mapping, mapping_cache, remapping, remapping_metadata, write_buffer,
};
use super::wear::{slc, survival, wear};
use crate::summary::{OpenLoop, Percentiles, RunSummary};

/// Returns all measurements of one run that are not in the overview, except wall-clock time.
pub(crate) fn details(run: &RunSummary) -> Vec<Section> {
    let always = [
        Section {
            title: "Write latency, µs",
            rows: percentiles(&run.latency_us),
        },
        Section {
            title: "Read latency, µs",
            rows: percentiles(&run.read_latency_us),
        },
        Section {
            title: "Remap latency, µs",
            rows: percentiles(&run.remap_latency_us),
        },
        flash_programs(run),
        remapping(run),
        remapping_metadata(run),
        mapping(run),
        wear(run),
        survival(run),
        requests(run),
    ];

    // An open loop is about response times, so they come first.
    let mut sections: Vec<Section> = run.arrivals.iter().flat_map(responses).collect();
    sections.extend(always);
    sections.extend(mapping_cache(run));
    sections.extend(write_buffer(run));
    sections.extend(slc(run));
    sections.extend(flash_time(run));
    sections.extend(energy(run));
    sections.extend(indirection(run));
    sections
}

/// Requests that arrive at their own times: response times, and backlog.
fn responses(open: &OpenLoop) -> [Section; 3] {
    let mut all = percentiles(&open.response_us);

    all.extend([
        ("requests arriving a second", number(open.offered_per_s)),
        (
            "at most with the device",
            open.bound
                .map_or("any number".into(), |bound| exact(bound.into())),
        ),
        ("backlog, mean", number(open.backlog_mean)),
        ("backlog, most", exact(open.backlog_max)),
        ("backlog when the last arrived", exact(open.backlog_end)),
    ]);

    [
        Section {
            title: "Response from arrival, µs",
            rows: all,
        },
        Section {
            title: "Response of reads, µs",
            rows: percentiles(&open.read_response_us),
        },
        Section {
            title: "Response of writes, µs",
            rows: percentiles(&open.write_response_us),
        },
    ]
}

fn percentiles(p: &Percentiles) -> Vec<(&'static str, String)> {
    [
        ("mean", p.mean),
        ("p50", p.p50),
        ("p90", p.p90),
        ("p99", p.p99),
        ("p99.9", p.p999),
        ("p99.99", p.p9999),
        ("max", p.max),
    ]
    .map(|(label, value)| (label, number(value)))
    .to_vec()
}

fn flash_programs(run: &RunSummary) -> Section {
    Section {
        title: "Flash programs, pages",
        rows: vec![
            ("host data", exact(run.host_programs)),
            ("moved by GC", exact(run.gc_pages)),
            (
                "of those kept apart by the policy",
                exact(run.gc_zoned_pages),
            ),
            ("metadata", exact(run.metadata_pages)),
            ("of those of a log of remaps on flash", exact(run.log_pages)),
            ("all programs", exact(run.flash_pages)),
            ("writes saved by deduplication", exact(run.dedup_hits)),
            (
                "duplicates missed: no room for fingerprints",
                exact(run.dedup_missed),
            ),
            ("superblocks reclaimed", exact(run.gc_runs)),
            ("of those refreshed", exact(run.refresh_runs)),
            ("pages moved by refreshes", exact(run.refresh_pages)),
            ("write amplification", number(run.write_amplification)),
            ("without metadata", number(run.write_amplification_data)),
        ],
    }
}

/// Skipped records never reached the device, so they aren't part of the sum.
fn requests(run: &RunSummary) -> Section {
    let r = &run.requests;
    let refused: u64 = r.refused.values().sum();
    // Every request ends in one of these.
    let ended = r.reads + r.writes + r.read_modify_writes + r.trims + r.remaps + refused;

    let reasons: Vec<_> = r
        .refused
        .iter()
        .map(|(why, n)| format!("{} {}", one_line(why), exact(*n)))
        .collect();
    let reasons = if reasons.is_empty() {
        String::new()
    } else {
        format!(" ({})", reasons.join(", "))
    };

    // A wrong sum is in capitals: a run that loses requests proves nothing.
    let verdict = if ended == r.submitted {
        "all".to_owned()
    } else {
        format!(
            "{} of {}: THE SUM IS WRONG",
            exact(ended),
            exact(r.submitted)
        )
    };

    Section {
        title: "Requests",
        rows: vec![
            ("submitted", exact(r.submitted)),
            ("completed a second", number(run.requests_per_s)),
            ("reads", exact(r.reads)),
            ("writes", exact(r.writes)),
            ("read-modify-writes", exact(r.read_modify_writes)),
            ("deallocations", exact(r.trims)),
            ("remap commands", exact(r.remaps)),
            ("refused", format!("{}{reasons}", exact(refused))),
            ("accounted for", verdict),
            ("skipped trace records", exact(r.skipped)),
            ("virtual time", seconds(run.seconds_simulated)),
        ],
    }
}
