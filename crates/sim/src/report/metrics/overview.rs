//! One row per run: the main measurements for comparing schemes.
//!
//! Invariant: a row has as many cells as there are columns, so both use the same conditions on the
//! runs. Absent: all other measurements of one run (`details`).

use super::super::format::{MISSING, compact, interval, number, ratio_interval};
use super::compare::{attempted, baseline, demoted, labels, speedup, speedup_half};
use super::{optional, share_of};
use crate::summary::{OpenLoop, Percentiles, PercentilesCi95, RunSummary};

/// A column of the overview.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    /// Heading of the column; short.
    pub head: &'static str,
    /// Second line of the heading: the unit or the rest of the name; may be empty.
    pub unit: &'static str,
    /// Explanation in one sentence.
    pub help: &'static str,
}

/// One row per run, the run's label first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Overview {
    /// The columns; the first one is the label, all others are numbers.
    pub columns: Vec<Column>,
    /// The cells, as many in each row as there are columns.
    pub rows: Vec<Vec<String>>,
}

/// Returns one row per run with the main measurements.
pub(crate) fn overview(runs: &[RunSummary]) -> Overview {
    let shown = Shown::by(runs);
    let columns = COLUMNS.iter().copied().filter(|c| shown.has(c)).collect();
    let rows = runs
        .iter()
        .zip(labels(runs))
        .map(|(run, label)| shown.row(runs, run, label))
        .collect();
    Overview { columns, rows }
}

/// The columns that are not always shown: each is, if some run has data for it.
struct Shown {
    compared: bool,
    losing: bool,
    open: bool,
    logging: bool,
    larger: bool,
    reading: bool,
    writing: bool,
}

impl Shown {
    fn by(runs: &[RunSummary]) -> Self {
        let reading = runs.iter().any(|run| run.read_latency_us.count > 0);
        Self {
            compared: baseline(runs).is_some(),
            losing: runs.iter().any(|run| run.lost_references > 0),
            open: runs.iter().any(|run| run.arrivals.is_some()),
            logging: runs.iter().any(|run| run.log_pages > 0),
            larger: runs.iter().any(has_larger_requests),
            reading,
            writing: !reading || runs.iter().any(|run| run.latency_us.count > 0),
        }
    }

    fn has(&self, column: &Column) -> bool {
        match column.head {
            VERSUS => self.compared,
            LOST => self.losing,
            RESPONSE | BACKLOG => self.open,
            LOG => self.logging,
            REQUESTS => self.larger,
            READ => self.reading,
            WRITE => self.writing,
            _ => true,
        }
    }

    fn row(&self, runs: &[RunSummary], run: &RunSummary, label: String) -> Vec<String> {
        let ci95 = &run.ci95;
        let mut row = vec![label, interval(run.bandwidth_mib_s, ci95.bandwidth_mib_s)];
        if self.compared {
            row.push(versus(runs, run));
        }
        row.push(state(run.steady.is_steady).to_owned());
        if self.larger {
            row.push(interval(
                run.requests_per_s / 1e3,
                ci95.requests_per_s / 1e3,
            ));
        }

        row.extend([
            number(run.iops / 1e3),
            interval(run.write_amplification, ci95.write_amplification),
            compact(run.host_pages),
            compact(run.flash_pages),
            compact(run.gc_pages),
        ]);
        if self.logging {
            row.push(compact(run.log_pages));
        }

        row.extend([
            compact(run.remaps),
            share_of(demoted(&run.demotions), attempted(run)),
        ]);
        if self.losing {
            row.push(compact(run.lost_references));
        }
        if self.open {
            row.extend(waiting(run));
        }

        row.push(compact(run.erases));
        if self.reading {
            row.extend(latencies(&run.read_latency_us, &ci95.read_latency_us));
        }
        if self.writing {
            row.extend(latencies(&run.latency_us, &ci95.latency_us));
        }
        row
    }
}

/// Bandwidth as a multiple of the baseline's.
fn versus(runs: &[RunSummary], run: &RunSummary) -> String {
    let half = speedup_half(runs, run).unwrap_or(f64::NAN);
    optional(speedup(runs, run), |times| ratio_interval(times, half))
}

fn latencies(found: &Percentiles, ci95: &PercentilesCi95) -> [String; 3] {
    [
        interval(found.p50, ci95.p50),
        interval(found.p99, ci95.p99),
        interval(found.p999, ci95.p999),
    ]
}

/// Whether a run measured a steady state, in a word.
pub(crate) fn state(is_steady: Option<bool>) -> &'static str {
    match is_steady {
        Some(true) => "steady",
        Some(false) => "transient",
        None => MISSING,
    }
}

/// Response time and backlog of an open loop.
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

/// Returns true if some requests have more than a page, so that requests and page operations
/// differ.
fn has_larger_requests(run: &RunSummary) -> bool {
    // Older files have no request rate; a thousandth is rounding.
    run.requests_per_s.is_finite() && (run.requests_per_s / run.iops - 1.0).abs() > 1e-3
}

/// Shown only if requests have more than a page.
const REQUESTS: &str = "kreq/s";

/// Shown only if there are reads; `WRITE` unless there are only reads.
const READ: &str = "read";
const WRITE: &str = "write";

/// Shown only if a scheme keeps a log on flash.
const LOG: &str = "log";

/// Shown only in an open loop.
const RESPONSE: &str = "response";
const BACKLOG: &str = "backlog";

/// Shown only if one of the runs remaps nothing.
const VERSUS: &str = "vs none";
/// Shown only if a run lost data.
const LOST: &str = "LOST";

#[rustfmt::skip]
const COLUMNS: [Column; 24] = [
    Column { head: "scheme", unit: "", help: "How a remap survives a power cut." },
    Column { head: "MiB/s", unit: "", help: "Host bandwidth in virtual time; remapped pages count as served. After ±: half of the 95 % confidence interval; a transient run has none." },
    Column { head: VERSUS, unit: "", help: "Bandwidth as a multiple of the run without remapping." },
    Column { head: "state", unit: "", help: "Steady if neither write amplification nor bandwidth changed during the measurement." },
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
