//! What remapping gains when the mapping table does not fit into DRAM, by the share of its entries that do.
//!
//! Each figure is a mean over seeds of figures of one run, or of ratios of two runs with the same seed.

use super::Findings;
use super::die_order::over_seeds;
use super::real_flash::steady;
use crate::LabError;
use crate::plot::{Halves, MarkKind, Panel, Plot};
use crate::table::{Ask, Row, Table};
use remap_ssd_sim::interval::Interval;
use remap_ssd_sim::report::format::number;
use remap_ssd_sim::report::sheet::Sheet;

/// Setups with the share of entries that fit into DRAM, the largest first.
const LEVELS: [(&str, &str); 8] = [
    (WHOLE, "100 %"),
    ("cache-50", "50 %"),
    ("cache-20", "20 %"),
    ("cache-10", "10 %"),
    ("cache-5", "5 %"),
    ("cache-2", "2 %"),
    ("cache-1", "1 %"),
    ("cache-05", "0.5 %"),
];
/// All of the table is in DRAM.
const WHOLE: &str = "cache-100";

const WORKLOADS: [(&str, &str); 2] = [("randrw:50", "random"), ("hotrw:20:80:50", "hot")];
const BASELINE: &str = "none";
const SCHEMES: [&str; 4] = [BASELINE, "remap-ssd", "remap-ssd-x", "opt"];

/// The run by which a figure is divided, if any.
enum Over {
    Nothing,
    /// The baseline's with the same cache.
    Baseline,
    /// The same scheme's with the whole table in DRAM.
    Whole,
}

struct Compared {
    name: &'static str,
    title: &'static str,
    y: &'static str,
    of: fn(&Row) -> Result<f64, LabError>,
    over: Over,
}

fn throughput(row: &Row) -> Result<f64, LabError> {
    row.number("bandwidth_mib_s")
}

fn per_host_page(row: &Row, name: &str) -> Result<f64, LabError> {
    Ok(row.number(name)? / row.number("host_pages")?)
}

const COMPARED: [Compared; 4] = [
    Compared {
        name: "gain",
        title: "Throughput, over that of none with the same cache",
        y: "times that of none",
        of: throughput,
        over: Over::Baseline,
    },
    Compared {
        name: "rest",
        title: "Throughput, over that with the whole table in DRAM",
        y: "share of that with the whole table in DRAM",
        of: throughput,
        over: Over::Whole,
    },
    Compared {
        name: "write amplification",
        title: "Flash pages programmed for a page that the host writes",
        y: "write amplification",
        of: |row| row.number("write_amplification"),
        over: Over::Nothing,
    },
    Compared {
        name: "table pages",
        title: "Translation pages programmed for a page that the host writes",
        y: "pages",
        of: |row| per_host_page(row, "mapping.table_pages"),
        over: Over::Nothing,
    },
];

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    let mut found = Findings::default();
    let mut rows = Vec::new();
    for (workload, about) in WORKLOADS {
        for (setup, level) in LEVELS {
            for scheme in SCHEMES {
                let mut cells = [about, level, scheme].map(str::to_owned).to_vec();
                for compared in &COMPARED {
                    let figure = compared.over_seeds(table, (setup, workload, scheme))?;
                    cells.push(format!("{} ±{}", number(figure.value), number(figure.half)));
                    let name = format!("{} {about} {level} {scheme}", compared.name);
                    found.measure(name, figure.value);
                }
                cells.push(steady(table, (setup, workload), &[scheme]));
                rows.push(cells);
            }
        }
    }
    let mut columns = vec![("workload", false), ("in DRAM", true), ("scheme", false)];
    columns.extend(COMPARED.map(|compared| (compared.name, true)));
    columns.push(("steady runs", true));
    found.table = Some(Sheet::of_words(&columns, rows, Vec::new()));
    for compared in COMPARED {
        found.plots.push(compared.plot(table)?);
    }
    Ok(found)
}

impl Compared {
    /// The schemes that have a bar: the baseline is 1 where it is what others are divided by.
    fn schemes(&self) -> &'static [&'static str] {
        match self.over {
            Over::Baseline => &SCHEMES[1..],
            Over::Nothing | Over::Whole => &SCHEMES,
        }
    }

    fn plot(&self, table: &Table) -> Result<Plot, LabError> {
        let mut halves = Halves::default();
        let mut panels = Vec::new();
        for (workload, about) in WORKLOADS {
            let mut groups = Vec::new();
            for (setup, level) in LEVELS {
                let mut bars = Vec::new();
                for scheme in self.schemes() {
                    let figure = self.over_seeds(table, (setup, workload, scheme))?;
                    bars.push(((*scheme).to_owned(), figure.value));
                    halves.insert([about, level, scheme].map(str::to_owned), figure.half);
                }
                groups.push((level.to_owned(), bars));
            }
            panels.push(Panel {
                title: about.to_owned(),
                groups,
            });
        }
        let line = match self.over {
            Over::Nothing => None,
            Over::Baseline | Over::Whole => Some(1.0),
        };
        Ok(Plot {
            name: format!("mapping-cache-{}", self.name.replace(' ', "-")),
            title: self.title.into(),
            reading: "By the share of the table's entries that fit into DRAM; means of three seeds with 95 % intervals."
                .into(),
            y: self.y.into(),
            shape: MarkKind::Means(panels, line, halves),
        })
    }

    /// The figure of a setup, a workload and a scheme.
    fn over_seeds(
        &self,
        table: &Table,
        (setup, workload, scheme): (&str, &str, &str),
    ) -> Result<Interval, LabError> {
        let figures = |setup, scheme| -> Result<Vec<f64>, LabError> {
            let asked = Ask {
                setup: Some(setup),
                workload: Some(workload),
                scheme: Some(scheme),
                ..Ask::default()
            };
            table.rows(asked).map(self.of).collect()
        };
        let values = figures(setup, scheme)?;
        let base = match self.over {
            Over::Nothing => vec![1.0; values.len()],
            Over::Baseline => figures(setup, BASELINE)?,
            Over::Whole => figures(WHOLE, scheme)?,
        };
        let ratios: Vec<f64> = values
            .iter()
            .zip(base)
            .map(|(value, base)| value / base)
            .collect();
        Ok(over_seeds(&ratios))
    }
}
