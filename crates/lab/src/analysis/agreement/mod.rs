//! The second engine beside other simulators and closed forms: a row for each of their figures, and their
//! points on our curves.
//!
//! Invariant: every reference is a row, also those to which no claim is made. Absent: write amplification,
//! whose closed forms have an experiment of their own.

mod references;

use self::references::{ALL, Figure, Load, Series};
use super::{BarGroup, Findings};
use crate::LabError;
use crate::plot::{Lines, MarkKind, Panel, Plot};
use crate::table::{Ask, Row, Table};
use remap_ssd_sim::report::format::number;
use remap_ssd_sim::report::sheet::Sheet;

/// Points (x, y).
type Points = Vec<(f64, f64)>;

/// Time at an idle die in the runs of M/D/1, which have no other times.
const SERVICE_US: f64 = 50.0;

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    let mut found = Findings::default();
    let mut rows = Vec::new();
    for series in ALL {
        for (load, reference) in series.values() {
            let ours = series.ours(table, load)?;
            let off = ours / reference;
            rows.push(vec![
                series.source.to_owned(),
                series.case.to_owned(),
                load.name(),
                series.figure.name(),
                number(reference),
                number(ours),
                change(off),
                series.within.map_or("-".to_owned(), claimed),
            ]);
            found.farther(series.group, off);
            if let Some(within) = series.within {
                found.farther_of_tolerance((off - 1.0).abs() / within);
            }
        }
    }

    let columns = [
        ("source", false),
        ("case", false),
        ("load", true),
        ("figure", false),
        ("theirs", true),
        ("ours", true),
        ("off", true),
        ("claimed", true),
    ];
    found.table = Some(Sheet::of_words(&columns, rows, Vec::new()));

    found.plots = vec![
        random_reads(
            table,
            "agreement-970pro",
            "Random reads of a 970 Pro",
            "NVMeVirt 61c90f7",
            &[("ours", "970pro")],
        )?,
        random_reads(
            table,
            "agreement-mqsim",
            "Random reads on 64 dies of 8 channels",
            "MQSim 7ec40e3 and an event model",
            &[
                ("data first", "mqsim-64"),
                ("commands first", "mqsim-64-commands"),
            ],
        )?,
        waits(table)?,
        beside(table)?,
        sequential(table)?,
    ];
    Ok(found)
}

/// A tolerance in per cent, to a tenth.
fn claimed(within: f64) -> String {
    format!("{} %", (within * 1000.0).round() / 10.0)
}

/// A ratio as a change; nothing is never a little less.
fn change(ratio: f64) -> String {
    let tenths = ((ratio - 1.0) * 1000.0).round() + 0.0;
    format!("{:+.1} %", tenths / 10.0)
}

impl Findings {
    /// Keeps the ratio that is farthest from 1.
    fn farther(&mut self, group: &str, off: f64) {
        let kept = self.measures.entry(format!("off {group}")).or_insert(1.0);
        if (off - 1.0).abs() > (*kept - 1.0).abs() {
            *kept = off;
        }
    }

    fn farther_of_tolerance(&mut self, share: f64) {
        let kept = self
            .measures
            .entry("share of tolerance".to_owned())
            .or_insert(0.0);
        *kept = kept.max(share);
    }
}

impl Load {
    fn name(self) -> String {
        match self {
            Self::Depth(depth) => format!("{depth} in flight"),
            Self::Share(share, _) => format!("{:.0} %", share * 100.0),
        }
    }

    fn value(self) -> f64 {
        match self {
            Self::Depth(depth) => depth.into(),
            Self::Share(share, _) => share,
        }
    }
}

impl Figure {
    fn name(self) -> String {
        let percentile = |part: &str| match part {
            "mean" => "mean".to_owned(),
            "p999" => "p99.9".to_owned(),
            part => part.to_owned(),
        };
        match self {
            Self::Thousands => "thousands a second".to_owned(),
            Self::MegabytesPerS => "MiB/s".to_owned(),
            Self::Read(part) => format!("read {}, µs", percentile(part)),
            Self::Write => "write mean, µs".to_owned(),
            Self::Absorbed => "pages absorbed, %".to_owned(),
            Self::Wait(part) => format!("wait {}, services", percentile(part)),
        }
    }

    /// The figure of a run.
    fn of(self, row: &Row) -> Result<f64, LabError> {
        Ok(match self {
            Self::Thousands => row.number("requests_per_s")? / 1000.0,
            Self::MegabytesPerS => row.number("requests_per_s")? * bytes(row) / MIB,
            // The sum of causes is exact.
            Self::Read("mean") => row.number("read_latency_causes_us.total")?,
            Self::Read(part) => row.number(&format!("read_latency_us.{part}"))?,
            Self::Write => row.number("latency_causes_us.total")?,
            Self::Absorbed => {
                row.number("write_buffer.overwritten")? / row.number("host_pages")? * 100.0
            }
            Self::Wait(part) => Self::Read(part).of(row)? / SERVICE_US - 1.0,
        })
    }
}

/// Bytes of a MiB.
const MIB: f64 = 1_048_576.0;

/// Bytes of a request.
fn bytes(row: &Row) -> f64 {
    let pages = row.run.workload.split_once("pages=");
    pages.map_or(1.0, |(_, pages)| pages.parse().unwrap_or(f64::NAN)) * 4096.0
}

impl Series {
    fn rows<'a>(&self, table: &'a Table) -> impl Iterator<Item = &'a Row> {
        table.rows(Ask {
            setup: Some(self.setup),
            workload: Some(self.workload),
            ..Ask::default()
        })
    }

    fn ours(&self, table: &Table, load: Load) -> Result<f64, LabError> {
        let is_meant = |row: &&Row| match load {
            Load::Depth(depth) => row.run.device.queue_depth == depth,
            Load::Share(_, arrivals) => row.run.arrivals == arrivals,
        };
        let row = self.rows(table).find(is_meant);
        let missing =
            || LabError::Failed(format!("no run of {} has the load {load:?}", self.setup));
        self.figure.of(row.ok_or_else(missing)?)
    }

    /// The reference's figures; it has rates in MB/s, of which MiB/s are made.
    fn values(&self) -> impl Iterator<Item = (Load, f64)> {
        let unit = match self.figure {
            Figure::MegabytesPerS => 1e6 / MIB,
            _ => 1.0,
        };
        self.values
            .iter()
            .map(move |(load, value)| (*load, value * unit))
    }

    fn points(&self) -> Points {
        self.values()
            .map(|(load, value)| (load.value(), value))
            .collect()
    }
}

fn references(setup: &str, figure: Figure) -> impl Iterator<Item = &'static Series> {
    let is_meant = move |series: &&Series| series.setup == setup && series.figure == figure;
    // A wait's setup is a constant too.
    ALL.iter().filter(is_meant).collect::<Vec<_>>().into_iter()
}

/// Requests a second over the number in flight.
fn random_reads(
    table: &Table,
    name: &str,
    title: &str,
    source: &str,
    setups: &[(&str, &str)],
) -> Result<Plot, LabError> {
    let (mut lines, mut points) = (Vec::new(), Vec::new());
    for (about, setup) in setups {
        let rows = table.rows(Ask {
            setup: Some(setup),
            workload: Some("randread"),
            ..Ask::default()
        });
        let point = |row: &Row| {
            let depth = f64::from(row.run.device.queue_depth);
            Ok((depth, Figure::Thousands.of(row)?))
        };
        let line = rows.map(point).collect::<Result<Points, LabError>>()?;
        lines.push(((*about).to_owned(), line));

        let theirs = references(setup, Figure::Thousands);
        let theirs = theirs.filter(|series| series.workload == "randread");
        let theirs: Vec<&Series> = theirs.collect();
        let name = theirs.first().map_or("", |series| series.source);
        let all = theirs.iter().flat_map(|series| series.points()).collect();
        points.push((format!("{name}, {about}").replace(", ours", ""), all));
    }
    Ok(Plot {
        name: name.into(),
        title: title.into(),
        reading: format!("Rings are figures of {source}, lines are ours."),
        y: "thousands of requests a second".into(),
        shape: MarkKind::Lines(Lines {
            x: "requests in flight".into(),
            logarithmic: true,
            lines,
            points,
        }),
    })
}

/// Waits at a die over its load.
fn waits(table: &Table) -> Result<Plot, LabError> {
    let (mut lines, mut points) = (Vec::new(), Vec::new());
    for (part, name) in [("mean", "mean"), ("p90", "p90"), ("p99", "p99")] {
        let figure = Figure::Wait(part);
        let rows = table.rows(Ask {
            setup: Some("waits"),
            ..Ask::default()
        });

        let point = |row: &Row| {
            let rate = row.run.arrivals.strip_prefix("rate:");
            let rate: f64 = rate.and_then(|rate| rate.parse().ok()).unwrap_or(f64::NAN);
            let dies = f64::from(row.run.device.geometry.dies_total());
            Ok((rate * SERVICE_US / 1e6 / dies, figure.of(row)?))
        };
        let line = rows.map(point).collect::<Result<Points, LabError>>()?;
        lines.push((name.to_owned(), line));

        let theirs = references("waits", figure).flat_map(Series::points);
        points.push((format!("{name}, M/D/1"), theirs.collect()));
    }

    Ok(Plot {
        name: "agreement-waits".into(),
        title: "Waits of random reads at their die".into(),
        reading: "Poisson arrivals and one service time; rings are M/D/1, lines are ours.".into(),
        y: "service times".into(),
        shape: MarkKind::Lines(Lines {
            x: "share of the die's time that is taken".into(),
            logarithmic: false,
            lines,
            points,
        }),
    })
}

/// A pair of bars.
fn pair(name: String, theirs: f64, ours: f64) -> BarGroup {
    let bars = [("theirs", theirs), ("ours", ours)];
    (
        name,
        bars.map(|(name, value)| (name.to_owned(), value)).into(),
    )
}

/// Reads beside programs: a panel for each depth and figure.
fn beside(table: &Table) -> Result<Plot, LabError> {
    let mut panels = Vec::new();
    for depth in [4, 16] {
        for part in ["mean", "p99"] {
            let mut groups = Vec::new();
            for (setup, name) in [
                ("beside", "reads first"),
                ("beside-suspended", "suspended"),
                ("beside-once", "once"),
            ] {
                for series in references(setup, Figure::Read(part)) {
                    for (load, theirs) in series.values() {
                        if load == Load::Depth(depth) {
                            groups.push(pair(name.to_owned(), theirs, series.ours(table, load)?));
                        }
                    }
                }
            }

            let title = format!("{part}, {depth} in flight");
            panels.push(Panel { title, groups });
        }
    }

    Ok(Plot {
        name: "agreement-suspension".into(),
        title: "Latency of reads beside programs".into(),
        reading: "70 % reads on eight dies, 60 µs a read and 600 µs a program. Reads go first; then they also suspend programs, \
            any number of times or once."
            .into(),
        y: "µs".into(),
        shape: MarkKind::Bars(panels, None),
    })
}

/// Sequential rates.
fn sequential(table: &Table) -> Result<Plot, LabError> {
    let mut panels = Vec::new();
    for (title, verb) in [("reads", "seqread"), ("writes", "seqwrite")] {
        let mut groups = Vec::new();
        let is_meant = |series: &&Series| {
            series.figure == Figure::MegabytesPerS
                && series.workload.starts_with(verb)
                && series.setup != "970pro"
        };

        for series in ALL.iter().filter(is_meant) {
            for (load, theirs) in series.values() {
                let device = series.case.split(", sequential").next();
                let device = device.unwrap_or_default().replace(" on a channel of", ",");
                let name = format!("{device}, {}", load.value());
                groups.push(pair(name, theirs, series.ours(table, load)?));
            }
        }

        panels.push(Panel {
            title: title.to_owned(),
            groups,
        });
    }

    Ok(Plot {
        name: "agreement-sequential".into(),
        title: "Sequential requests of a flash page on each plane".into(),
        reading:
            "MQSim's rates, and ours; the last number of a name is that of requests in flight."
                .into(),
        y: "MiB/s".into(),
        shape: MarkKind::Bars(panels, None),
    })
}
