//! The rows that terminal and page share: what is shown of a run, in which words and units.
//!
//! [`overview`] is one row per run, [`details`] everything else of one run in titled sections.
//! Invariants: every run has the same sections and labels, so that runs can be laid side by side;
//! every cell is one line of text.
//! Absent: how the rows are drawn.

use super::format::{
    MISSING, bytes, compact, exact, number, one_line, percent, ratio, seconds, share, years,
};
use crate::summary::{Demotions, OpenLoop, Percentiles, RunSummary};
use remap_ssd_ftl::{SchemeKind, SurvivalClass};
use remap_ssd_media::geometry::PAGE_BYTES;

/// The scheme that others are compared with: no remapping.
pub const BASELINE: &str = SchemeKind::BASELINE.name();

/// The scheme that can't be built: an upper bound, not a contender.
pub const IDEAL: &str = SchemeKind::IDEAL.name();

/// The policy of garbage collection that needs no mention.
const POLICY: &str = "greedy";

/// The mapping that needs no mention.
const MAPPING: &str = "page";

/// A column of the overview.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Heading of the column; short.
    pub head: &'static str,
    /// Second line of the heading: the unit or the rest of the name; may be empty.
    pub unit: &'static str,
    /// One sentence for those who don't know the word.
    pub help: &'static str,
}

/// One row per run, the run's label first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overview {
    /// The columns; the first one is the label, all others are numbers.
    pub columns: Vec<Column>,
    /// The cells, as many in each row as there are columns.
    pub rows: Vec<Vec<String>>,
}

/// A titled group of measurements of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// What the group is about.
    pub title: &'static str,
    /// Each row's label and value as shown.
    pub rows: Vec<(&'static str, String)>,
}

/// A label for each run: the scheme's name, the policy's if it is not the common one, numbered
/// where it occurs again.
pub fn labels(runs: &[RunSummary]) -> Vec<String> {
    let name = |run: &RunSummary| {
        // Text from a file may be of several lines; a label is one.
        let scheme = match one_line(&run.scheme) {
            name if name.trim().is_empty() => "(unnamed)".to_owned(),
            name => name,
        };

        let name = match one_line(&run.gc_policy).as_str() {
            "" | POLICY => scheme,
            policy => format!("{scheme}/{policy}"),
        };

        // Only what is not the usual is part of a label.
        match one_line(&run.mapping.kind).as_str() {
            "" | MAPPING => name,
            mapping => format!("{name}+{mapping}"),
        }
    };

    let names: Vec<String> = runs.iter().map(name).collect();

    // Runs of one name are told apart by their order.
    let earlier = |i: usize| names[..i].iter().filter(|name| **name == names[i]).count();
    let label = |(i, name): (usize, &String)| match earlier(i) {
        0 => name.clone(),
        earlier => format!("{name} #{}", earlier + 1),
    };

    names.iter().enumerate().map(label).collect()
}

/// How many runs before this one have the same scheme.
pub fn occurrence(runs: &[RunSummary], index: usize) -> usize {
    runs[..index]
        .iter()
        .filter(|run| run.scheme == runs[index].scheme)
        .count()
}

/// The run that others are compared with, if it was made.
pub fn baseline(runs: &[RunSummary]) -> Option<&RunSummary> {
    runs.iter().find(|run| run.scheme == BASELINE)
}

/// Bandwidth as a multiple of the baseline's, if there is one and it moved data.
pub fn speedup(runs: &[RunSummary], run: &RunSummary) -> Option<f64> {
    baseline(runs).and_then(|base| share(run.bandwidth_mib_s, base.bandwidth_mib_s))
}

/// Pages whose remap became a copy, all causes.
pub fn demoted(demotions: &Demotions) -> u64 {
    // By name, so that a new cause does not compile until it is counted.
    let Demotions {
        counter_full,
        nvram_full,
        watermark,
        degree_full,
        unhinted,
    } = *demotions;
    [nvram_full, watermark, degree_full, unhinted]
        .into_iter()
        .fold(counter_full, u64::saturating_add)
}

/// Pages that were to be remapped, demoted ones included.
pub fn attempted(run: &RunSummary) -> u64 {
    run.remaps.saturating_add(demoted(&run.demotions))
}

/// One row per run with the measurements that schemes are judged by.
pub fn overview(runs: &[RunSummary]) -> Overview {
    let compared = baseline(runs).is_some();
    let losing = runs.iter().any(|run| run.lost_references > 0);
    // What no run has makes no column.
    let open = runs.iter().any(|run| run.arrivals.is_some());
    let logging = runs.iter().any(|run| run.log_pages > 0);
    let larger = runs.iter().any(has_larger_requests);
    let reading = runs.iter().any(|run| run.read_latency_us.count > 0);
    let writing = !reading || runs.iter().any(|run| run.latency_us.count > 0);

    // A column is shown only if some run has something to say in it.
    let is_shown = |c: &Column| {
        (compared || c.head != VERSUS)
            && (losing || c.head != LOST)
            && (open || (c.head != RESPONSE && c.head != BACKLOG))
            && (logging || c.head != LOG)
            && (larger || c.head != REQUESTS)
            && (reading || c.head != READ)
            && (writing || c.head != WRITE)
    };

    let columns = COLUMNS.iter().copied().filter(is_shown).collect();

    let rows = runs
        .iter()
        .zip(labels(runs))
        .map(|(run, label)| {
            let mut row = vec![label, number(run.bandwidth_mib_s)];

            if compared {
                row.push(optional(speedup(runs, run), ratio));
            }

            if larger {
                row.push(number(run.requests_per_s / 1e3));
            }

            row.extend([
                number(run.iops / 1e3),
                number(run.write_amplification),
                compact(run.host_pages),
                compact(run.flash_pages),
                compact(run.gc_pages),
            ]);

            if logging {
                row.push(compact(run.log_pages));
            }

            row.extend([
                compact(run.remaps),
                share_of(demoted(&run.demotions), attempted(run)),
            ]);

            if losing {
                row.push(compact(run.lost_references));
            }

            if open {
                row.extend(waiting(run));
            }

            row.push(compact(run.erases));

            let latencies = |p: &Percentiles| [p.p50, p.p99, p.p999].map(number);
            if reading {
                row.extend(latencies(&run.read_latency_us));
            }
            if writing {
                row.extend(latencies(&run.latency_us));
            }

            row
        })
        .collect();

    Overview { columns, rows }
}

/// Everything of one run that the overview leaves out, save the wall-clock time.
pub fn details(run: &RunSummary) -> Vec<Section> {
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

    // An open loop is about responses, so they come first.
    let mut sections: Vec<Section> = run.arrivals.iter().flat_map(responses).collect();
    sections.extend(always);
    sections
}

/// Requests that arrive at their own times: what each waited for, and how many wait.
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

/// Response and backlog of an open loop.
fn waiting(run: &RunSummary) -> [String; 3] {
    let of = |value: fn(&OpenLoop) -> f64| optional(run.arrivals.as_ref().map(value), number);
    let most = run
        .arrivals
        .as_ref()
        .map_or_else(|| MISSING.to_owned(), |open| compact(open.backlog_max));
    [
        of(|open| open.response_us.mean),
        of(|open| open.response_us.p99),
        most,
    ]
}

/// Are there requests of more than a page, so that requests and page operations differ?
fn has_larger_requests(run: &RunSummary) -> bool {
    // Older files do not say; a thousandth is rounding.
    run.requests_per_s.is_finite() && (run.requests_per_s / run.iops - 1.0).abs() > 1e-3
}

/// Only there if requests are of more than a page.
const REQUESTS: &str = "kreq/s";

/// Only there if something was read, and unless nothing was written.
const READ: &str = "read";
const WRITE: &str = "write";

/// Only there if a scheme keeps a log on flash.
const LOG: &str = "log";

/// Only there if requests arrived at their own times.
const RESPONSE: &str = "response";
const BACKLOG: &str = "backlog";

/// Only there if one of the runs remaps nothing.
const VERSUS: &str = "vs none";
/// Only there if a run lost data.
const LOST: &str = "LOST";

#[rustfmt::skip]
const COLUMNS: [Column; 23] = [
    Column { head: "scheme", unit: "", help: "How a remap survives a power cut." },
    Column { head: "MiB/s", unit: "", help: "Host bandwidth in virtual time; remapped pages count as served." },
    Column { head: VERSUS, unit: "", help: "Bandwidth as a multiple of the run without remapping." },
    Column { head: REQUESTS, unit: "", help: "Thousands of requests completed per second, each of one page or more." },
    Column { head: "kIOPS", unit: "", help: "Thousands of host page operations per second." },
    Column { head: "WA", unit: "", help: "Write amplification: flash pages programmed per host page written or remapped." },
    Column { head: "host", unit: "pages", help: "Pages the host wrote or remapped, deduplicated ones included." },
    Column { head: "flash", unit: "pages", help: "Pages programmed for any reason." },
    Column { head: "GC", unit: "pages", help: "Pages moved by garbage collection." },
    Column { head: LOG, unit: "pages", help: "Pages of a log of remaps that is kept in the flash array: part of WA, and no data." },
    Column { head: "remaps", unit: "pages", help: "Pages remapped without programming flash." },
    Column { head: "demoted", unit: "% tried", help: "Remaps that became physical copies, as a share of those tried." },
    Column { head: LOST, unit: "LPNs", help: "Logical pages whose data garbage collection lost: it could not tell who owned a page." },
    Column { head: RESPONSE, unit: "mean µs", help: "Mean time from a request's arrival to its end." },
    Column { head: RESPONSE, unit: "p99 µs", help: "One request in a hundred took longer from its arrival on." },
    Column { head: BACKLOG, unit: "most", help: "The most requests that had arrived and not ended." },
    Column { head: "erases", unit: "blocks", help: "Blocks erased." },
    Column { head: READ, unit: "p50 µs", help: "Median read latency." },
    Column { head: READ, unit: "p99 µs", help: "One read in a hundred took longer; of at least 100." },
    Column { head: READ, unit: "p99.9 µs", help: "One read in a thousand took longer; of at least 1,000." },
    Column { head: WRITE, unit: "p50 µs", help: "Median write latency." },
    Column { head: WRITE, unit: "p99 µs", help: "One write in a hundred took longer; of at least 100." },
    Column { head: WRITE, unit: "p99.9 µs", help: "One write in a thousand took longer; of at least 1,000." },
];

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
            ("write amplification", number(run.write_amplification)),
            ("without metadata", number(run.write_amplification_data)),
        ],
    }
}

fn remapping(run: &RunSummary) -> Section {
    let Demotions {
        counter_full,
        nvram_full,
        watermark,
        degree_full,
        unhinted,
    } = run.demotions;

    Section {
        title: "Remaps, pages",
        rows: vec![
            ("remapped", exact(run.remaps)),
            ("demoted to copies", exact(demoted(&run.demotions))),
            ("because the counter was full", exact(counter_full)),
            ("because NVRAM was full", exact(nvram_full)),
            ("because of the watermark", exact(watermark)),
            ("because the page's slots were full", exact(degree_full)),
            ("because it was not the page's home", exact(unhinted)),
            ("LPNs that lost their data", exact(run.lost_references)),
            ("P2L lookup time", seconds(run.p2l_lookup_s)),
            (
                "P2L share of the run",
                optional(share(run.p2l_lookup_s, run.seconds_simulated), percent),
            ),
        ],
    }
}

fn remapping_metadata(run: &RunSummary) -> Section {
    Section {
        title: "Remapping metadata",
        rows: vec![
            ("room", bytes(run.nvram_room_bytes)),
            (
                "of that heads and rests: no entries",
                unusable(run.nvram_heads_bytes, run.nvram_room_bytes),
            ),
            (
                "of that left to GC",
                unusable(run.nvram_reserve_bytes, run.nvram_room_bytes),
            ),
            ("room in use", percent(run.nvram_used)),
            ("of that valid", percent(run.nvram_valid)),
            ("largest segment group", bytes(run.largest_group_bytes)),
            ("L2P table in NVRAM", bytes(run.l2p_bytes)),
            ("P2L table in NVRAM", bytes(run.p2l_bytes)),
            ("NVRAM bytes written", bytes(run.nvram_bytes_written)),
            ("projected NVRAM life", years(run.nvram_life_years)),
        ],
    }
}

/// Bytes, and which share of the room they are.
fn unusable(part: u64, room: u64) -> String {
    match room {
        0 => MISSING.to_owned(),
        room => format!("{} ({})", bytes(part), percent(part as f64 / room as f64)),
    }
}

/// What the mapping table takes. Under page mapping there is nothing to put in order.
fn mapping(run: &RunSummary) -> Section {
    let cost = &run.mapping;
    Section {
        title: "Mapping table",
        rows: vec![
            ("bytes", bytes(cost.table_bytes)),
            (
                "entries of the extension",
                format!(
                    "{} of {}",
                    exact(cost.extension_entries),
                    exact(cost.extension_room)
                ),
            ),
            ("blocks switched", exact(cost.merges_switch)),
            ("partial merges", exact(cost.merges_partial)),
            ("full merges", exact(cost.merges_full)),
            ("pages programmed by merges", exact(cost.merge_pages)),
            ("of those without data", exact(cost.merge_pads)),
            ("references unshared", exact(cost.unshared)),
        ],
    }
}

fn wear(run: &RunSummary) -> Section {
    Section {
        title: "Flash wear",
        rows: vec![
            ("blocks erased", exact(run.erases)),
            ("erases per block, mean", number(run.erase_mean)),
            ("erases per block, max", exact(run.erase_max)),
            ("erases per block, spread", exact(run.erase_spread)),
            (
                "terabytes written until worn out",
                format!(
                    "{} at {} cycles",
                    number(run.life_tb_written),
                    exact(run.endurance_cycles)
                ),
            ),
            (
                "drive writes a day for 5 years",
                number(run.drive_writes_per_day),
            ),
            (
                "since power-on: blocks erased",
                exact(run.wear_out.block_erases),
            ),
            ("host data written", bytes(run.wear_out.host_bytes)),
            (
                "before the first block was retired",
                run.wear_out
                    .first_retired_bytes
                    .map_or(MISSING.into(), bytes),
            ),
            ("blocks retired", exact(run.wear_out.blocks_retired)),
            (
                "room for data left",
                bytes(run.wear_out.usable_pages * PAGE_BYTES as u64),
            ),
            (
                "read-only",
                if run.wear_out.read_only { "yes" } else { "no" }.into(),
            ),
        ],
    }
}

/// Pages with one reference, and those with several.
fn survival(run: &RunSummary) -> Section {
    let single = Lives::of(run.survival.iter().filter(|class| class.references == 1));

    let shared = Lives::of(run.survival.iter().filter(|class| class.references > 1));

    let longer = single
        .mean()
        .zip(shared.mean())
        .map(|(single, shared)| shared / single);

    Section {
        title: "Survival of flash pages, sequence numbers",
        rows: vec![
            ("never shared: pages that died", exact(single.died)),
            ("mean life", optional(single.mean(), number)),
            ("still alive", exact(single.alive)),
            ("shared: pages that died", exact(shared.died)),
            ("mean life", optional(shared.mean(), number)),
            (
                "mean life since shared",
                optional(
                    share(shared.lived_shared as f64, shared.died as f64),
                    number,
                ),
            ),
            ("still alive", exact(shared.alive)),
            ("shared pages live", optional(longer, ratio)),
        ],
    }
}

#[derive(Default)]
struct Lives {
    died: u64,
    lived: u64,
    lived_shared: u64,
    alive: u64,
}

impl Lives {
    fn of<'a>(classes: impl Iterator<Item = &'a SurvivalClass>) -> Self {
        classes.fold(Self::default(), |sum, class| Self {
            died: sum.died + class.died,
            lived: sum.lived + class.lived,
            lived_shared: sum.lived_shared + class.lived_shared,
            alive: sum.alive + class.alive,
        })
    }

    fn mean(&self) -> Option<f64> {
        share(self.lived as f64, self.died as f64)
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

    // A sum that is wrong is shouted: a run that loses requests proves nothing.
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

fn share_of(part: u64, whole: u64) -> String {
    optional(share(part as f64, whole as f64), percent)
}

fn optional(value: Option<f64>, format: fn(f64) -> String) -> String {
    value.map_or_else(|| MISSING.to_owned(), format)
}
