//! What remapping gains over none, by one property of the flash at a time.
//!
//! Each figure is a mean over seeds of ratios of runs with the same seed. Absent: other schemes, which an
//! experiment of FAST'21 compares.

use super::Findings;
use super::die_order::over_seeds;
use crate::LabError;
use crate::plot::{Halves, MarkKind, Panel, Plot};
use crate::table::{Ask, Row, Table};
use remap_ssd_sim::interval::Interval;
use remap_ssd_sim::report::format::number;
use remap_ssd_sim::report::sheet::Sheet;

/// A property: its name, and its setups with a word for each.
const FACTORS: [(&str, &[(&str, &str)]); 5] = [
    (
        "cells",
        &[
            ("cell-slc", "SLC"),
            ("cell-mlc", "MLC"),
            ("cell-tlc", "TLC"),
            ("cell-qlc", "QLC"),
        ],
    ),
    (
        "pages of a program",
        &[
            ("unit-1", "1"),
            ("unit-4", "4"),
            ("unit-12", "12"),
            ("unit-48", "48"),
        ],
    ),
    (
        "suspension",
        &[("suspension-off", "off"), ("unit-48", "on")],
    ),
    (
        "age",
        &[
            ("age-new", "new"),
            ("age-90", "90 days"),
            ("age-365", "a year"),
        ],
    ),
    (
        "refresh",
        &[
            ("age-365", "a year, off"),
            ("age-365-refresh", "a year, on"),
            ("ages", "ages, off"),
            ("ages-refresh", "ages, on"),
        ],
    ),
];

const WORKLOADS: [(&str, &str); 2] = [("randrw:50", "duplicates"), ("snapshot", "clones")];

/// What is compared: its name, the figure of a run, and the label of its axis.
struct Compared {
    name: &'static str,
    title: &'static str,
    of: fn(&Row) -> Result<f64, LabError>,
    y: &'static str,
}

const COMPARED: [Compared; 3] = [
    Compared {
        name: "throughput",
        title: "Throughput with remapping, over that without",
        of: |row| row.number("bandwidth_mib_s"),
        y: "times that of none",
    },
    Compared {
        name: "flash pages",
        title: "Flash pages programmed with remapping, over those without",
        of: |row| Ok(row.number("flash_pages")? / row.number("host_pages")?),
        y: "times those of none",
    },
    Compared {
        name: "read p99",
        title: "p99 of reads with remapping, over that without",
        of: |row| row.number("read_latency_us.p99"),
        y: "times that of none",
    },
];

/// The panels of a plot, and the half widths of its intervals.
type Drawn = (Vec<Panel>, Halves);

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    let mut found = Findings::default();
    let mut plots: Vec<Drawn> = COMPARED.iter().map(|_| Default::default()).collect();
    let mut lines = Vec::new();

    for (factor, levels) in FACTORS {
        for (panels, _) in &mut plots {
            panels.push(empty_panel(factor, levels));
        }
        for (workload, about) in WORKLOADS {
            for (index, (setup, level)) in levels.iter().enumerate() {
                let at = Place {
                    factor,
                    level,
                    about,
                    index,
                };
                let mut cells = [factor, *level, about].map(str::to_owned).to_vec();
                for (compared, drawn) in COMPARED.iter().zip(&mut plots) {
                    // Clones read nothing.
                    if compared.name == "read p99" && workload == "snapshot" {
                        cells.push("-".to_owned());
                        continue;
                    }
                    let ratio = ratio(table, setup, workload, compared.of)?;
                    cells.push(format!("{} ±{}", number(ratio.value), number(ratio.half)));
                    found.measure(at.figure(compared.name), ratio.value);
                    at.draw(ratio, drawn);
                }
                let of = |scheme| rows(table, setup, workload, scheme);
                cells.push(steady(of("none").chain(of("remap-ssd"))));
                lines.push(cells);
            }
        }
    }

    found.table = Some(sheet(lines));
    found.plots.extend(COMPARED.iter().zip(plots).map(plot));
    Ok(found)
}

/// A panel with a group for each level of a factor, still without bars.
fn empty_panel(factor: &str, levels: &[(&str, &str)]) -> Panel {
    let groups = levels
        .iter()
        .map(|(_, level)| ((*level).to_owned(), Vec::new()));
    Panel {
        title: factor.to_owned(),
        groups: groups.collect(),
    }
}

/// The place of a measured ratio: the level of a factor, by its index too, under a workload.
struct Place<'a> {
    factor: &'a str,
    level: &'a str,
    about: &'a str,
    index: usize,
}

impl Place<'_> {
    fn figure(&self, name: &str) -> String {
        format!("{name} {} {} {}", self.factor, self.level, self.about)
    }

    /// Draws a ratio into the last panel of a plot.
    fn draw(&self, ratio: Interval, (panels, halves): &mut Drawn) {
        let bar = [self.factor, self.level, self.about].map(str::to_owned);
        halves.insert(bar, ratio.half);
        if let Some(panel) = panels.last_mut() {
            let group = &mut panel.groups[self.index].1;
            group.push((self.about.to_owned(), ratio.value));
        }
    }
}

fn sheet(rows: Vec<Vec<String>>) -> Sheet {
    let columns = [
        ("property", false),
        ("", true),
        ("workload", false),
        ("throughput", true),
        ("flash pages", true),
        ("read p99", true),
        ("steady runs", true),
    ];
    Sheet::of_words(&columns, rows, Vec::new())
}

fn plot((compared, (panels, halves)): (&Compared, Drawn)) -> Plot {
    Plot {
        name: format!("real-flash-{}", compared.name.replace(' ', "-")),
        title: compared.title.into(),
        reading: "Remap-SSD over none; means of three seeds with 95 % intervals.".into(),
        y: compared.y.into(),
        shape: MarkKind::Means(panels, Some(1.0), halves),
    }
}

fn rows<'a>(
    table: &'a Table,
    setup: &'a str,
    workload: &'a str,
    scheme: &'a str,
) -> impl Iterator<Item = &'a Row> {
    table.rows(Ask {
        setup: Some(setup),
        workload: Some(workload),
        scheme: Some(scheme),
        ..Ask::default()
    })
}

/// Remapping's figure over none's, of runs with the same seed.
fn ratio(
    table: &Table,
    setup: &str,
    workload: &str,
    of: fn(&Row) -> Result<f64, LabError>,
) -> Result<Interval, LabError> {
    let with = rows(table, setup, workload, "remap-ssd");
    let pairs = with.zip(rows(table, setup, workload, "none"));
    let ratios = pairs.map(|(with, without)| Ok(of(with)? / of(without)?));
    Ok(over_seeds(&ratios.collect::<Result<Vec<f64>, LabError>>()?))
}

/// How many of these runs were judged steady.
pub(super) fn steady<'a>(runs: impl Iterator<Item = &'a Row>) -> String {
    let states: Vec<bool> = runs
        .map(|row| row.result.pointer("/steady/is_steady") == Some(&true.into()))
        .collect();
    let count = states.iter().filter(|is_steady| **is_steady).count();
    format!("{count} of {}", states.len())
}
