//! Parses an experiment's folder, and the table of parameters shared by all experiments of a paper.
//!
//! ```toml
//! # experiments/NAME/experiment.toml
//! title = "Intra-SSD deduplication"
//! paper = "fast21"                  # experiments/papers/fast21.toml
//! analysis = "fast21-fig5"          # selects the figures drawn and measured
//! [[runs]]                          # every combination of the lists is a run
//! setup = "a"                       # of the paper's table
//! scheme = ["none", "remap-ssd"]
//! workload = ["randwrite,span=0.5"] # as in `compare --workload`; or "trace:FILE", or "recording:NAME", of
//!                                   # `experiments/recordings/`
//! content = ["papers:0.3"]          # as in `compare --content`; "own": the workload's or the trace's
//! gc = ["greedy"]                   # left out: the setup's
//! log_mib = [40, 80, 120]           # before scaling; left out: the setup's
//! queue_depth = [1, 32]             # left out: the setup's
//! seed = [1, 2, 3]                  # left out: the table's
//! arrivals = ["closed", "trace"]    # as in `compare --arrivals`; closed, or left out: as earlier requests complete
//! ```
//! Invariants: an unknown key is an error; nothing here can change a latency, a size or aging for
//! one figure alone: those are in the paper's table. Absent: combining the lists (`grid`).

use crate::LabError;
use remap_ssd_ftl::GcPolicy;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Size of an experiment's runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// As published: devices at full scale, which take hours.
    Full,
    /// Scaled devices and shorter runs: minutes.
    Quick,
    /// Seconds, only to check that everything runs: its figures are meaningless.
    Smoke,
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "full",
            Self::Quick => "quick",
            Self::Smoke => "smoke",
        })
    }
}

/// An `experiment.toml`: the runs of an experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Experiment {
    /// Title, in one line.
    pub title: String,
    /// Name of the table of parameters, `papers/NAME.toml`.
    pub paper: String,
    /// Name of the analysis.
    pub analysis: String,
    /// Grids of runs; none for pure arithmetic.
    #[serde(default)]
    pub runs: Vec<Grid>,
}

/// Kind of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunKind {
    /// The device is aged, then measured under a workload.
    #[default]
    Workload,
    /// The device is aged, powered off and recovered.
    Recovery,
    /// The device is filled, then measured with one kind of command: `move-remap`,
    /// `move-readwrite`, `write` or `fs-write`, each with `,threads=N`.
    Micro,
    /// A new device under host software: `plain`, `ccaw` or `ordermerge`, each with `,window=N` and
    /// `,compare`, and a load as content (`host/load.rs`).
    Host,
    /// A file is read in order, after something changed the order of its pages across dies: a past of
    /// `order.rs`.
    Order,
}

/// A grid of runs: every combination of its lists.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Grid {
    /// Kind of the runs: a workload, a recovery, a microbenchmark or host software.
    #[serde(default)]
    pub kind: RunKind,
    /// Setup in the paper's table.
    pub setup: String,
    /// Schemes by name; at least one.
    pub scheme: Vec<String>,
    /// Workloads by name, with their options.
    #[serde(default)]
    pub workload: Vec<String>,
    /// Garbage collection policies; if empty, the setup's.
    #[serde(default)]
    pub gc: Vec<GcPolicy>,
    /// Contents; `own` keeps those of the workload's source, or of the trace.
    #[serde(default)]
    pub content: Vec<String>,
    /// Remapping metadata in MiB, before scaling.
    #[serde(default)]
    pub log_mib: Vec<f64>,
    /// Sizes of NVRAM segments in bytes.
    #[serde(default)]
    pub segment_bytes: Vec<u32>,
    /// Arrival times of requests; `closed` or none: a request enters when an earlier one completes.
    #[serde(default)]
    pub arrivals: Vec<String>,
    /// Requests in flight of a closed loop; if empty, the device's.
    #[serde(default)]
    pub queue_depth: Vec<u32>,
    /// Seeds of all random draws; if empty, the table's.
    #[serde(default)]
    pub seed: Vec<u64>,
    /// Records page lifetimes by number of references.
    #[serde(default)]
    pub survival: bool,
    /// Fractions of the logical pages that workloads address, for experiments about spare space.
    #[serde(default)]
    pub addressable: Vec<f64>,
    /// Fractions of the setup's size, for experiments about size.
    #[serde(default)]
    pub capacity: Vec<f64>,
}

impl Grid {
    /// Returns true if the grid sets this key of a device.
    pub(crate) fn chooses(&self, path: &str) -> bool {
        match path {
            "firmware.scheme" => true,
            "firmware.gc_policy" => !self.gc.is_empty(),
            "queue_depth" => !self.queue_depth.is_empty(),
            "addressable" => !self.addressable.is_empty(),
            "firmware.log_bytes" => !self.log_mib.is_empty(),
            "firmware.segment_bytes" => !self.segment_bytes.is_empty(),
            _ => false,
        }
    }
}

/// A paper's table of parameters: `experiments/papers/NAME.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Paper {
    /// The paper's title, authors and year.
    pub title: String,
    /// Seed of all random draws.
    pub seed: u64,
    /// Its devices, by name.
    pub setup: BTreeMap<String, Setup>,
    /// Other readings of what it leaves open.
    #[serde(default)]
    pub variant: Vec<Variant>,
}

/// Other inputs for some experiments of a paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Its name, in a few words.
    pub name: String,
    /// What it changes, and what speaks for it.
    pub about: String,
    /// The experiments that have it.
    pub experiments: Vec<String>,
    /// Overrides of the setups' devices.
    #[serde(default)]
    pub device: toml::Table,
    /// How the device is filled.
    pub fill: Option<Fill>,
    /// Fraction of the remapping metadata in use after aging.
    pub nvram_used: Option<f64>,
    /// Content model of aging's writes; `own`: the run's.
    pub aging_content: Option<String>,
    /// Content model of all runs.
    pub content: Option<String>,
    /// Factor of the setups' lengths.
    pub rounds: Option<f64>,
}

/// One device of a paper, its aging, and the length of its runs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Setup {
    /// Description of the setup, for readers of the file.
    #[expect(dead_code)]
    pub about: String,
    /// A device of `remap-ssd presets`.
    pub preset: String,
    /// Overrides of the preset: keys of a device file.
    #[serde(default)]
    pub device: toml::Table,
    /// How the device is filled before the measurement.
    #[serde(default)]
    pub fill: Fill,
    /// Fraction of the remapping metadata in use after aging.
    pub nvram_used: f64,
    /// Fraction of that which is valid.
    pub nvram_valid: f64,
    /// A paper's figure is of the requests that it describes, from the first: 0 unless it says otherwise.
    ///
    /// Maximum pages written before the measurement, in multiples of those that a workload addresses,
    /// until its load is steady. None in the smoke form.
    #[serde(default)]
    pub warm_up: f64,
    /// Content model of aging's writes; `own`, or left out: the run's if its contents are the papers'
    /// model, else no content twice.
    #[serde(default)]
    pub aging_content: Option<String>,
    /// Length of runs as published.
    pub full: RunLength,
    /// Length of runs that take minutes together.
    pub quick: RunLength,
    /// Length of runs that take seconds: the figures are meaningless.
    pub smoke: RunLength,
}

/// How a device is filled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fill {
    /// Random writes until garbage collection has run.
    #[default]
    Random,
    /// Every page that the run addresses once, in a scattered order; then as `random`.
    Whole,
    /// Every addressable page once, in order, no content twice.
    Sequential,
    /// None: the device is new.
    Nothing,
}

/// Length of a run relative to the published one.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunLength {
    /// Fraction of the device, such as "1/16".
    pub scale: String,
    /// Pages measured, in multiples of the addressable ones.
    pub rounds: f64,
}

impl Setup {
    /// The length of runs in a form.
    pub(crate) fn length(&self, form: Form) -> &RunLength {
        match form {
            Form::Full => &self.full,
            Form::Quick => &self.quick,
            Form::Smoke => &self.smoke,
        }
    }
}

/// Parses one of the folder's files.
///
/// # Errors
/// One sentence: file, line, error.
pub(crate) fn read<T: serde::de::DeserializeOwned>(about: &str, text: &str) -> Result<T, LabError> {
    toml::from_str(text).map_err(|error| LabError::wrong(about, sentence(&error, text)))
}

/// The parser's error on one line.
pub(crate) fn sentence(error: &toml::de::Error, text: &str) -> String {
    let message = error.message().trim().replace('\n', ", ");
    match error.span() {
        Some(span) => format!(
            "line {}: {message}",
            text[..span.start.min(text.len())].matches('\n').count() + 1
        ),
        None => message,
    }
}
