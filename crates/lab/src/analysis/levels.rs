//! Studies of one parameter: figures of several schemes and workloads at each of its levels.
//!
//! Each figure is a mean over seeds of figures of one run, or of ratios of two runs with the same seed.
//!
//! Absent: the parameter, and what is compared.

use super::Findings;
use super::die_order::over_seeds;
use super::real_flash::steady;
use crate::LabError;
use crate::plot::{Halves, MarkKind, Panel, Plot};
use crate::table::{Ask, Row, Table};
use remap_ssd_sim::interval::Interval;
use remap_ssd_sim::report::format::number;
use remap_ssd_sim::report::sheet::Sheet;

/// A study of the schemes below.
pub(super) struct LevelStudy {
    /// Prefix of its pictures.
    pub name: &'static str,
    /// Title of the column of levels.
    pub column: &'static str,
    pub reading: &'static str,
    /// Setups with the level that each stands for, the first to which others are compared.
    pub levels: &'static [(&'static str, &'static str)],
    pub loads: &'static [Load],
    pub schemes: &'static [&'static str],
    pub compared: &'static [Compared],
}

/// Requests of runs.
pub(super) struct Load {
    pub workload: &'static str,
    /// Arrival times; empty for a closed loop.
    pub arrivals: &'static str,
    pub about: &'static str,
}

/// A load in a closed loop.
pub(super) const fn closed(workload: &'static str, about: &'static str) -> Load {
    Load {
        workload,
        arrivals: "",
        about,
    }
}

impl Load {
    fn ask<'a>(&'a self, setup: &'a str, scheme: &'a str) -> Ask<'a> {
        Ask {
            setup: Some(setup),
            workload: Some(self.workload),
            arrivals: Some(self.arrivals),
            scheme: Some(scheme),
            ..Ask::default()
        }
    }
}

const BASELINE: &str = "none";
/// The schemes of most studies.
pub(super) const SCHEMES: &[&str] = &[BASELINE, "remap-ssd", "remap-ssd-x", "opt"];

/// The run by which a figure is divided, if any.
#[derive(Clone, Copy)]
pub(super) enum Over {
    Nothing,
    /// The baseline's at the same level.
    Baseline,
    /// The same scheme's at the first level.
    First,
    /// The same scheme's in the setup that belongs to a setup.
    Setup(fn(&str) -> String),
}

pub(super) struct Compared {
    pub name: &'static str,
    pub title: &'static str,
    pub y: &'static str,
    pub of: fn(&Row) -> Result<f64, LabError>,
    pub over: Over,
}

/// Throughput over that of the baseline.
pub(super) const fn gain(title: &'static str) -> Compared {
    Compared {
        name: "gain",
        title,
        y: "times that of none",
        of: throughput,
        over: Over::Baseline,
    }
}

pub(super) const WRITE_AMPLIFICATION: Compared = Compared {
    name: "write amplification",
    title: "Flash pages programmed for a page that the host writes",
    y: "write amplification",
    of: |row| row.number("write_amplification"),
    over: Over::Nothing,
};

pub(super) fn throughput(row: &Row) -> Result<f64, LabError> {
    row.number("bandwidth_mib_s")
}

pub(super) fn per_host_page(row: &Row, name: &str) -> Result<f64, LabError> {
    Ok(row.number(name)? / row.number("host_pages")?)
}

impl LevelStudy {
    pub(super) fn analyse(&self, table: &Table) -> Result<Findings, LabError> {
        let mut found = Findings::default();
        let mut rows = Vec::new();
        for load in self.loads {
            let about = load.about;
            for (setup, level) in self.levels {
                for scheme in self.schemes {
                    let mut cells = [about, *level, *scheme].map(str::to_owned).to_vec();
                    for compared in self.compared {
                        let figure = self.over_seeds(table, compared, (setup, load, scheme))?;
                        cells.push(format!("{} ±{}", number(figure.value), number(figure.half)));
                        let name = format!("{} {about} {level} {scheme}", compared.name);
                        found.measure(name, figure.value);
                    }
                    cells.push(steady(table.rows(load.ask(setup, scheme))));
                    rows.push(cells);
                }
            }
        }

        let mut columns = vec![("workload", false), (self.column, true), ("scheme", false)];
        columns.extend(self.compared.iter().map(|compared| (compared.name, true)));
        columns.push(("steady runs", true));
        found.table = Some(Sheet::of_words(&columns, rows, Vec::new()));

        for compared in self.compared {
            found.plots.push(self.plot(table, compared)?);
        }
        Ok(found)
    }

    fn plot(&self, table: &Table, compared: &Compared) -> Result<Plot, LabError> {
        // The baseline is 1 where it is what others are divided by.
        let schemes = match compared.over {
            Over::Baseline => &self.schemes[1..],
            Over::Nothing | Over::First | Over::Setup(_) => self.schemes,
        };

        let mut halves = Halves::default();
        let mut panels = Vec::new();
        for load in self.loads {
            let mut groups = Vec::new();
            for (setup, level) in self.levels {
                let mut bars = Vec::new();
                for scheme in schemes {
                    let figure = self.over_seeds(table, compared, (setup, load, scheme))?;
                    bars.push(((*scheme).to_owned(), figure.value));
                    halves.insert([load.about, *level, scheme].map(str::to_owned), figure.half);
                }
                groups.push(((*level).to_owned(), bars));
            }
            panels.push(Panel {
                title: load.about.to_owned(),
                groups,
            });
        }

        // Ratios have a line at 1.
        let line = match compared.over {
            Over::Nothing => None,
            Over::Baseline | Over::First | Over::Setup(_) => Some(1.0),
        };

        Ok(Plot {
            name: format!("{}-{}", self.name, compared.name.replace(' ', "-")),
            title: compared.title.into(),
            reading: self.reading.into(),
            y: compared.y.into(),
            shape: MarkKind::Means(panels, line, halves),
        })
    }

    /// The figure of a setup, a load and a scheme.
    fn over_seeds(
        &self,
        table: &Table,
        compared: &Compared,
        (setup, load, scheme): (&str, &Load, &str),
    ) -> Result<Interval, LabError> {
        // Rows are in the order of the grid: figures of one seed are at the same place.
        let figures = |setup: &str, scheme| -> Result<Vec<f64>, LabError> {
            table
                .rows(load.ask(setup, scheme))
                .map(compared.of)
                .collect()
        };

        let values = figures(setup, scheme)?;
        let base = match compared.over {
            Over::Nothing => vec![1.0; values.len()],
            Over::Baseline => figures(setup, BASELINE)?,
            Over::First => figures(self.levels[0].0, scheme)?,
            Over::Setup(of) => figures(&of(setup), scheme)?,
        };

        let ratios: Vec<f64> = values
            .iter()
            .zip(base)
            .map(|(value, base)| value / base)
            .collect();
        Ok(over_seeds(&ratios))
    }
}
