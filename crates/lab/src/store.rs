//! The results folder: one file per run, named by its key, and the reports made from them.
//!
//! ```text
//! DIR/runs/KEY.json             a run and its result
//! DIR/EXPERIMENT/results.csv    all its runs; results.parquet; figures as SVG
//! DIR/claims.json               DIR/findings.json   DIR/report.html
//! ```
//! Invariants: a file exists completely or not at all (written under another name, then renamed); a
//! file that does not hold exactly the run it is named after is ignored. Absent: the meaning of the
//! results.

use crate::LabError;
use crate::grid::GridRun;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::{Path, PathBuf};

#[derive(Debug, Serialize, Deserialize)]
struct StoredRun {
    /// The build of the program that made it.
    program: String,
    run: GridRun,
    result: Value,
}

/// A results folder: results of runs by their keys, and reports.
#[derive(Clone, Debug)]
pub struct Store {
    directory: PathBuf,
    program: String,
}

/// A result found in the folder.
#[derive(Debug)]
pub(crate) struct StoredResult {
    /// The run's result.
    pub result: Value,
    /// True if the running build made it.
    pub same_program: bool,
}

impl Store {
    /// Opens a folder, creating it if necessary. `program` names the build that makes results.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn open(directory: &Path, program: &str) -> Result<Self, LabError> {
        let store = Self {
            directory: directory.into(),
            program: program.into(),
        };
        store.make(&store.directory.join("runs"))?;
        Ok(store)
    }

    /// Returns the result of a run, if it is stored and valid.
    pub(crate) fn load(&self, run: &GridRun) -> Option<StoredResult> {
        let text = std::fs::read_to_string(self.path(run)).ok()?;
        let kept: StoredRun = serde_json::from_str(&text).ok()?;
        // Some fields of the device are not serialized; those that are must be equal.
        let same = kept.run.key() == run.key();
        same.then(|| StoredResult {
            result: kept.result,
            same_program: kept.program == self.program,
        })
    }

    /// Stores the result of a run.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, run: &GridRun, result: &Value) -> Result<(), LabError> {
        let kept = StoredRun {
            program: self.program.clone(),
            run: run.clone(),
            result: result.clone(),
        };
        let text = serde_json::to_string_pretty(&kept).expect("a result can be written as JSON");
        self.whole(&self.path(run), text.as_bytes())
    }

    /// Writes one of the files made from the results.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), LabError> {
        let path = self.directory.join(name);
        if let Some(parent) = path.parent() {
            self.make(parent)?;
        }
        self.whole(&path, bytes)
    }

    fn path(&self, run: &GridRun) -> PathBuf {
        self.directory
            .join("runs")
            .join(format!("{}.json", run.key()))
    }

    fn make(&self, path: &Path) -> Result<(), LabError> {
        std::fs::create_dir_all(path).map_err(|error| self.disk(path, &error))
    }

    fn whole(&self, path: &Path, bytes: &[u8]) -> Result<(), LabError> {
        let mut unfinished = path.as_os_str().to_owned();
        // Two processes may write into one folder, and make the same run.
        unfinished.push(format!(".{}.part", std::process::id()));
        let unfinished = PathBuf::from(unfinished);
        let written =
            std::fs::write(&unfinished, bytes).and_then(|()| std::fs::rename(&unfinished, path));
        written.map_err(|error| {
            // The first error is reported, whether or not this succeeds.
            let _ = std::fs::remove_file(&unfinished);
            self.disk(path, &error)
        })
    }

    fn disk(&self, path: &Path, error: &std::io::Error) -> LabError {
        let kept = std::fs::read_dir(self.directory.join("runs")).map_or(0, |files| {
            files
                .flatten()
                .filter(|file| file.path().extension().is_some_and(|e| e == "json"))
                .count()
        });
        LabError::Disk(format!(
            "{}: {error}; {kept} finished runs are kept in {}: make room and give the same command again to go on from there",
            path.display(),
            self.directory.join("runs").display()
        ))
    }
}
