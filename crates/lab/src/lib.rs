//! Reproduction of published figures: experiments as folders of text, their runs, and the claims
//! that they are compared with.
//!
//! ```text
//! folder (TOML) -> grid (runs) -> queue (cores, memory) -> store (a file a run) -> analysis -> claims, figures, page
//! ```
//! An experiment is `experiments/NAME/`: `experiment.toml` lists the runs, `expectation.toml` the
//! paper's claims, `README.md` describes it. Device and aging come from one table of parameters per
//! paper, `experiments/papers/`.
//!
//! Invariants: all errors of a folder are reported before anything runs; a run's file is named by
//! all parameters that determine its result, so that an interrupted experiment continues where it
//! stopped and experiments share common runs; the same files give the same page. Absent: simulation
//! (`sim`, `device`), and the terminal (`cli`).

#![warn(unreachable_pub)]

mod analysis;
mod claim;
mod concluded;
mod config;
mod digest;
mod error_bars;
mod export;
mod folder;
mod grid;
mod host;
mod micro;
mod order;
mod page;
mod perform;
mod plot;
mod progress;
mod queue;
pub mod recordings;
mod recovery;
mod store;
mod study;
mod table;
pub mod text;
mod variant;

pub use claim::{Claim, Verdict};
pub use concluded::Concluded;
pub use config::Form;
pub use digest::digest;
pub use folder::{Folder, Library, built_in};
pub use grid::GridRun;
pub use progress::StudyProgress;
pub use queue::Limits;
pub use store::Store;
pub use study::{Event, Options, Study};

/// Why an experiment cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The request, or a folder's text, is invalid: reported before anything runs.
    #[error("{0}")]
    Wrong(String),
    /// A run failed.
    #[error("{0}")]
    Failed(String),
    /// The results folder cannot be written.
    #[error("{0}")]
    Disk(String),
}

/// Why a run is impossible or has failed: the error of the library that refused it, or a sentence.
pub(crate) type RunError = Box<dyn std::error::Error + Send + Sync>;

impl LabError {
    pub(crate) fn wrong(about: impl std::fmt::Display, what: impl std::fmt::Display) -> Self {
        Self::Wrong(format!("{about}: {what}"))
    }
}
