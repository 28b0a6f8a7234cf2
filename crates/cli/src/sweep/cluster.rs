//! A sweep on a Dask cluster: handed over to the Python package, which has the same points and the
//! same files.
//!
//! Invariants: a package of other sources is refused, since its results would have other keys; the
//! package's own sentences are passed on as they are. Absent: anything of Dask.

use crate::failure::Failure;
use std::path::Path;
use std::process::{Command, Stdio};

/// What to do where the package is missing.
const INSTALL: &str = "pip install './python[cluster]' in the folder of its sources";

/// An interpreter with the package, and a scheduler's address.
pub struct Cluster {
    python: String,
    scheduler: String,
}

impl Cluster {
    /// Looks for the package in `$PYTHON`, or `python3`.
    ///
    /// # Errors
    /// It is not there, or of another version.
    pub fn find(scheduler: &str) -> Result<Self, Failure> {
        let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
        let asked = Command::new(&python)
            .args(["-m", "remap_ssd", "sources"])
            .stdin(Stdio::null())
            .output();

        let (said, reason) = match &asked {
            // Whatever is wrong with Python, its last line says most.
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
            Some(said) if String::from_utf8_lossy(said).trim() != super::SOURCES => {
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

    /// A digest of what is at an address.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn digest(&self, address: &str) -> Result<String, String> {
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

    /// Runs the points of a file that have no result in a folder; why some have none.
    ///
    /// # Errors
    /// The package cannot be started.
    pub fn run(&self, file: &Path, folder: &Path) -> Result<Vec<String>, Failure> {
        // Ctrl-C reaches it too, and it ends in its own way.
        let child = Command::new(&self.python)
            .args(["-m", "remap_ssd", "sweep"])
            .arg(file)
            .arg("--into")
            .arg(folder)
            .args(["--scheduler", &self.scheduler])
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
