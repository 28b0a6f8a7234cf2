//! A sweep on a Dask cluster, delegated to the Python package, which has the same points and the
//! same files.
//!
//! Invariants: a package built from other sources is refused, since its results would have other
//! keys; the package's messages are passed on unchanged. Absent: anything of Dask.

use crate::failure::Failure;
use std::path::Path;
use std::process::{Command, Stdio};

/// Advice if the package is missing.
const INSTALL: &str = "pip install './python[cluster]' in the folder of its sources";

/// An interpreter with the package, and a scheduler's address.
pub(super) struct Cluster {
    python: String,
    scheduler: String,
}

impl Cluster {
    /// Finds the package in `$PYTHON`, or `python3`.
    ///
    /// # Errors
    /// It is missing, or of another version.
    pub(super) fn find(scheduler: &str) -> Result<Self, Failure> {
        let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
        let asked = Command::new(&python)
            .args(["-m", "remap_ssd", "sources"])
            .stdin(Stdio::null())
            .output();

        let (said, reason) = match &asked {
            // The last line of a Python error is the most informative.
            Ok(output) if output.status.success() => (Some(&output.stdout), String::new()),
            Ok(output) => (None, last_line(&output.stderr)),
            Err(error) => (None, error.to_string()),
        };

        // Results would differ if the workers ran other sources.
        match said {
            None => Err(Failure::usage(format_args!(
                "--scheduler needs the Python package with Dask: {INSTALL} ({python}: {reason})"
            ))),
            // Keys of points contain the sources.
            Some(said) if String::from_utf8_lossy(said).trim() != remap_ssd_study::SOURCES => {
                Err(Failure::usage(format_args!(
                    "the Python package of {python} is not of this program's sources, and its results would be others: {INSTALL}"
                )))
            }
            Some(_) => Ok(Self {
                python,
                scheduler: scheduler.into(),
            }),
        }
    }

    /// Digest of the object at an address.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(super) fn digest(&self, address: &str) -> Result<String, String> {
        let asked = Command::new(&self.python)
            .args(["-m", "remap_ssd", "digest", address])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| error.to_string())?;
        if asked.status.success() {
            Ok(String::from_utf8_lossy(&asked.stdout).trim().to_owned())
        } else {
            Err(format!("trace = {address}: {}", last_line(&asked.stderr)))
        }
    }

    /// Runs the points of a file that have no result in the folder; returns the reasons for missing
    /// ones.
    ///
    /// # Errors
    /// The package cannot be started.
    pub(super) fn run(&self, file: &Path, folder: &Path) -> Result<Vec<String>, Failure> {
        // Ctrl-C reaches the child too, which handles it itself.
        let child = Command::new(&self.python)
            .args(["-m", "remap_ssd", "sweep"])
            .arg(file)
            .arg("--into")
            .arg(folder)
            .args(["--scheduler", &self.scheduler, "--keep-going"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status();
        match child.map_err(|error| Failure::about(&self.python, error))? {
            status if status.success() => Ok(Vec::new()),
            _ => Ok(vec!["see above".into()]),
        }
    }
}

fn last_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let line = text.lines().rfind(|line| !line.trim().is_empty());
    line.unwrap_or("it says nothing").trim().to_owned()
}
