//! All runs of an experiment with their results, to be asked for figures.
//!
//! Invariant: a question that no run answers, or several do, is an error that says which question.
//! Absent: what the figures mean (`analysis`).

use crate::LabError;
use crate::grid::RunSpec;
use serde_json::Value;

/// A run and what came of it.
#[derive(Clone, Debug)]
pub struct Row {
    /// The run with all its parameters.
    pub run: RunSpec,
    /// What it measured, as JSON.
    pub result: Value,
}

/// All runs of an experiment.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// In the order of the grids.
    pub rows: Vec<Row>,
}

impl Row {
    /// A number of the result: `field` or `field.part`.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn number(&self, name: &str) -> Result<f64, LabError> {
        let found = name
            .split('.')
            .try_fold(&self.result, |value, part| value.get(part))
            .and_then(Value::as_f64);
        found.ok_or_else(|| {
            LabError::Failed(format!("run `{}` has no number `{name}`", self.run.title()))
        })
    }

    /// Flash pages programmed for each page the host wrote, as FAST'21's platforms count them: the
    /// host's and moved pages; neither heads and tails of superblocks nor pages of a log
    /// (`data_program_cnt` of the simulator).
    ///
    /// # Errors
    /// The run has no such numbers.
    pub fn amplification_of_data(&self) -> Result<f64, LabError> {
        let pages = self.number("flash_pages")? - self.number("metadata_pages")?;
        Ok(pages / self.number("host_pages")?.max(1.0))
    }

    /// Remaps that became copies, as a share of those tried.
    ///
    /// # Errors
    /// The run has no such numbers.
    pub fn demoted(&self) -> Result<f64, LabError> {
        let causes = self.result.get("demotions").and_then(Value::as_object);
        let causes = causes.ok_or_else(|| {
            LabError::Failed(format!("run `{}` has no demotions", self.run.title()))
        })?;
        let demoted: f64 = causes.values().filter_map(Value::as_f64).sum();
        let tried = demoted + self.number("remaps")?;
        Ok(if tried > 0.0 { demoted / tried } else { 0.0 })
    }
}

/// What is asked for; what is left out may be anything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ask<'a> {
    /// Only runs of this setup.
    pub setup: Option<&'a str>,
    /// Only runs of this scheme.
    pub scheme: Option<&'a str>,
    /// Only runs with this garbage collection policy.
    pub gc: Option<&'a str>,
    /// Only runs of this workload.
    pub workload: Option<&'a str>,
    /// Only runs with these contents.
    pub content: Option<&'a str>,
    /// Remapping metadata in MiB; a scheme without limit answers to any.
    pub log_mib: Option<f64>,
    /// Only runs with NVRAM segments of this size, in bytes.
    pub segment_bytes: Option<u32>,
    /// When requests arrive; empty: as earlier ones end.
    pub arrivals: Option<&'a str>,
    /// Share of the setup's size.
    pub scale: Option<f64>,
}

impl Ask<'_> {
    fn fits(&self, run: &RunSpec) -> bool {
        let word = |asked: Option<&str>, has: &str| asked.is_none_or(|asked| asked == has);
        word(self.setup, &run.setup)
            && word(self.scheme, &run.scheme)
            && word(self.gc, &run.gc)
            && word(self.workload, &run.workload)
            && word(self.content, &run.content)
            && word(self.arrivals, &run.arrivals)
            && self
                .log_mib
                .is_none_or(|asked| run.log_mib == 0.0 || run.log_mib == asked)
            && self
                .segment_bytes
                .is_none_or(|asked| run.segment_bytes == asked)
            && self.scale.is_none_or(|asked| run.scale == asked)
    }
}

impl Table {
    /// The rows that have all values asked for.
    pub fn rows<'a>(&'a self, ask: Ask<'a>) -> impl Iterator<Item = &'a Row> {
        self.rows.iter().filter(move |row| ask.fits(&row.run))
    }

    /// The row that fits.
    ///
    /// # Errors
    /// There is none, or more than one.
    pub fn row(&self, ask: Ask<'_>) -> Result<&Row, LabError> {
        let mut rows = self.rows.iter().filter(|row| ask.fits(&row.run));
        match (rows.next(), rows.next()) {
            (Some(row), None) => Ok(row),
            (None, _) => Err(LabError::Failed(format!(
                "no run answers {ask:?}: the analysis needs it among `runs`"
            ))),
            _ => Err(LabError::Failed(format!("several runs answer {ask:?}"))),
        }
    }

    /// The different values of a run's property, in the order of the grids.
    pub fn distinct<'a, T: PartialEq>(&'a self, of: impl Fn(&'a RunSpec) -> T) -> Vec<T> {
        let mut values = Vec::new();
        for row in &self.rows {
            let value = of(&row.run);
            if !values.contains(&value) {
                values.push(value);
            }
        }
        values
    }

    /// The sizes of remapping metadata, ascending.
    pub fn logs(&self) -> Vec<f64> {
        let mut logs = self.distinct(|run| run.log_mib);
        logs.retain(|log| *log > 0.0);
        logs.sort_by(f64::total_cmp);
        logs
    }
}
