//! Studies of one part of a drive at several levels: what remapping gains by its size.
//!
//! Each figure is a mean over seeds of figures of one run, or of ratios of two runs with the same seed. Absent: the levels of each
//! study, and what it compares (its own module).

use super::Findings;
use super::die_order::over_seeds;
use super::real_flash::steady;
use crate::LabError;
use crate::plot::{Halves, MarkKind, Panel, Plot};
use crate::table::{Ask, Row, Table};
use remap_ssd_sim::interval::Interval;
use remap_ssd_sim::report::format::number;
use remap_ssd_sim::report::sheet::Sheet;

/// Whose runs others are divided by.
const BASELINE: &str = "none";

/// A part of a drive at several levels.
pub(super) struct Study {
    /// The experiment's name, with which the names of its pictures begin.
    pub name: &'static str,
    /// Heading of the column of levels.
    pub level: &'static str,
    /// Setups with their labels. The first one is that of the papers.
    pub levels: &'static [(&'static str, &'static str)],
    /// Workloads with their names in the results.
    pub workloads: &'static [(&'static str, &'static str)],
    /// Schemes, the baseline first.
    pub schemes: &'static [&'static str],
    /// How to read the pictures: one sentence.
    pub reading: &'static str,
    /// The figures.
    pub compared: &'static [Compared],
}

/// The run by which a figure is divided, if any.
pub(super) enum Over {
    Nothing,
    /// The baseline's at the same level.
    Baseline,
    /// The same scheme's at the first level.
    First,
}

/// A figure of the runs.
pub(super) struct Compared {
    /// Heading of its column, and the end of its picture's name.
    pub name: &'static str,
    /// Title of its picture.
    pub title: &'static str,
    /// Label of the picture's axis.
    pub y: &'static str,
    /// The figure of a run.
    pub of: fn(&Row) -> Result<f64, LabError>,
    /// What it is divided by.
    pub over: Over,
}

/// Bandwidth in MiB/s.
pub(super) fn throughput(row: &Row) -> Result<f64, LabError> {
    row.number("bandwidth_mib_s")
}

/// A count of pages for each page that the host wrote.
pub(super) fn per_host_page(row: &Row, name: &str) -> Result<f64, LabError> {
    Ok(row.number(name)? / row.number("host_pages")?)
}

impl Study {
    /// The table, its figures by name, and a picture for each of them.
    ///
    /// # Errors
    /// A run is missing, or has no such figure.
    pub(super) fn analyse(&self, table: &Table) -> Result<Findings, LabError> {
        let mut found = Findings::default();
        let mut rows = Vec::new();
        for (workload, about) in self.workloads {
            for (setup, level) in self.levels {
                for scheme in self.schemes {
                    let mut cells = [*about, *level, *scheme].map(str::to_owned).to_vec();
                    for compared in self.compared {
                        let figure = self.over_seeds(table, compared, (setup, workload, scheme))?;
                        cells.push(format!("{} ±{}", number(figure.value), number(figure.half)));
                        let name = format!("{} {about} {level} {scheme}", compared.name);
                        found.measure(name, figure.value);
                    }
                    cells.push(steady(table, (setup, workload), &[*scheme]));
                    rows.push(cells);
                }
            }
        }
        let mut columns = vec![("workload", false), (self.level, true), ("scheme", false)];
        columns.extend(self.compared.iter().map(|compared| (compared.name, true)));
        columns.push(("steady runs", true));
        found.table = Some(Sheet::of_words(&columns, rows, Vec::new()));
        for compared in self.compared {
            found.plots.push(self.plot(table, compared)?);
        }
        Ok(found)
    }

    fn plot(&self, table: &Table, compared: &Compared) -> Result<Plot, LabError> {
        let mut halves = Halves::default();
        let mut panels = Vec::new();
        // The baseline is 1 where it is what others are divided by.
        let schemes = match compared.over {
            Over::Baseline => &self.schemes[1..],
            Over::Nothing | Over::First => self.schemes,
        };
        for (workload, about) in self.workloads {
            let mut groups = Vec::new();
            for (setup, level) in self.levels {
                let mut bars = Vec::new();
                for scheme in schemes {
                    let figure = self.over_seeds(table, compared, (setup, workload, scheme))?;
                    bars.push(((*scheme).to_owned(), figure.value));
                    halves.insert([*about, *level, *scheme].map(str::to_owned), figure.half);
                }
                groups.push(((*level).to_owned(), bars));
            }
            panels.push(Panel {
                title: (*about).to_owned(),
                groups,
            });
        }
        let line = match compared.over {
            Over::Nothing => None,
            Over::Baseline | Over::First => Some(1.0),
        };
        Ok(Plot {
            name: format!("{}-{}", self.name, compared.name.replace(' ', "-")),
            title: compared.title.into(),
            reading: self.reading.into(),
            y: compared.y.into(),
            shape: MarkKind::Means(panels, line, halves),
        })
    }

    /// The figure of a setup, a workload and a scheme.
    fn over_seeds(
        &self,
        table: &Table,
        compared: &Compared,
        (setup, workload, scheme): (&str, &str, &str),
    ) -> Result<Interval, LabError> {
        let figures = |setup, scheme| -> Result<Vec<f64>, LabError> {
            let asked = Ask {
                setup: Some(setup),
                workload: Some(workload),
                scheme: Some(scheme),
                ..Ask::default()
            };
            table.rows(asked).map(compared.of).collect()
        };
        let values = figures(setup, scheme)?;
        let base = match compared.over {
            Over::Nothing => vec![1.0; values.len()],
            Over::Baseline => figures(setup, BASELINE)?,
            Over::First => figures(self.levels[0].0, scheme)?,
        };
        let ratios: Vec<f64> = values
            .iter()
            .zip(base)
            .map(|(value, base)| value / base)
            .collect();
        Ok(over_seeds(&ratios))
    }
}
