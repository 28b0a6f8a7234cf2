//! All runs of an experiment with their results, for queries.
//!
//! Invariant: a query that no run matches, or several do, is an error that names the query. Absent:
//! the meaning of the figures (`analysis`).

use crate::LabError;
use crate::grid::GridRun;
use serde_json::Value;

/// A run and its result.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The run with all its parameters.
    pub run: GridRun,
    /// Its measurements, as JSON.
    pub result: Value,
}

/// All runs of an experiment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// In the order of the grids.
    pub rows: Vec<Row>,
}

impl Row {
    /// Returns a number of the result: `field` or `field.part`.
    ///
    /// # Errors
    /// There is no number of that name.
    pub(crate) fn number(&self, name: &str) -> Result<f64, LabError> {
        let found = name
            .split('.')
            .try_fold(&self.result, |value, part| value.get(part))
            .and_then(Value::as_f64);
        found.ok_or_else(|| {
            LabError::Failed(format!("run `{}` has no number `{name}`", self.run.title()))
        })
    }

    /// Flash pages programmed per page written by the host, as counted by FAST'21's platforms: the
    /// host's and moved pages; neither heads and tails of superblocks nor pages of a log
    /// (`data_program_cnt` of the simulator).
    ///
    /// # Errors
    /// The run has no such numbers.
    pub(crate) fn amplification_of_data(&self) -> Result<f64, LabError> {
        let pages = self.number("flash_pages")? - self.number("metadata_pages")?;
        Ok(pages / self.number("host_pages")?.max(1.0))
    }

    /// Remaps that became copies, as a fraction of all attempts.
    ///
    /// # Errors
    /// The run has no such numbers.
    pub(crate) fn demoted(&self) -> Result<f64, LabError> {
        let causes = self.result.get("demotions").and_then(Value::as_object);
        let causes = causes.ok_or_else(|| {
            LabError::Failed(format!("run `{}` has no demotions", self.run.title()))
        })?;
        let demoted: f64 = causes.values().filter_map(Value::as_f64).sum();
        let tried = demoted + self.number("remaps")?;
        Ok(if tried > 0.0 { demoted / tried } else { 0.0 })
    }
}

/// A query; `None` matches any value.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ask<'a> {
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
    /// Remapping metadata in MiB; a scheme without limit matches any.
    pub log_mib: Option<f64>,
    /// Only runs with NVRAM segments of this size, in bytes.
    pub segment_bytes: Option<u32>,
    /// Arrival times of requests; empty for a closed loop.
    pub arrivals: Option<&'a str>,
    /// Fraction of the setup's size.
    pub scale: Option<f64>,
}

impl Ask<'_> {
    fn fits(&self, run: &GridRun) -> bool {
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
    /// The rows that match the query.
    pub(crate) fn rows<'a>(&'a self, ask: Ask<'a>) -> impl Iterator<Item = &'a Row> {
        self.rows.iter().filter(move |row| ask.fits(&row.run))
    }

    /// Returns the only row that matches.
    ///
    /// # Errors
    /// There is none, or more than one.
    pub(crate) fn row(&self, ask: Ask<'_>) -> Result<&Row, LabError> {
        let mut rows = self.rows.iter().filter(|row| ask.fits(&row.run));
        match (rows.next(), rows.next()) {
            (Some(row), None) => Ok(row),
            (None, _) => Err(LabError::Failed(format!(
                "no run answers {ask:?}: the analysis needs it among `runs`"
            ))),
            _ => Err(LabError::Failed(format!("several runs answer {ask:?}"))),
        }
    }

    /// The distinct values of a run's property, in the order of the grids.
    pub(crate) fn distinct<'a, T: PartialEq>(&'a self, of: impl Fn(&'a GridRun) -> T) -> Vec<T> {
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
    pub(crate) fn logs(&self) -> Vec<f64> {
        let mut logs = self.distinct(|run| run.log_mib);
        logs.retain(|log| *log > 0.0);
        logs.sort_by(f64::total_cmp);
        logs
    }
}
