//! The published figures, run again: experiments as folders of text, their runs, and the claims
//! they are held against.
//!
//! ```text
//! folder (TOML) -> grid (runs) -> queue (cores, memory) -> store (a file a run) -> analysis -> claims, figures, page
//! ```
//! An experiment is `experiments/NAME/`: `experiment.toml` says which runs, `expectation.toml` what
//! the paper found, `README.md` what it is about. Device and aging come from one table of
//! parameters per paper, `experiments/papers/`.
//!
//! Invariants: everything that can be wrong with a folder is said before anything runs; a run's
//! file is named after all that decides its result, so that an interrupted experiment goes on where
//! it stopped and two experiments share what they have in common; the same files give the same
//! page. Absent: how anything is simulated (`sim`, `device`), and the terminal (`cli`).

pub mod analysis;
pub mod claim;
pub mod config;
pub mod digest;
pub mod export;
pub mod folder;
pub mod grid;
pub mod host;
mod micro;
pub mod page;
pub mod parquet;
pub mod perform;
pub mod plot;
pub mod queue;
pub mod recordings;
pub mod recovery;
pub mod store;
pub mod study;
pub mod table;

pub use claim::{Claim, Verdict};
pub use config::Form;
pub use folder::{Folder, Library};
pub use study::{Options, Study};

/// Why an experiment cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// What was asked for, or a folder's text, makes no sense: said before anything runs.
    #[error("{0}")]
    Wrong(String),
    /// A run has no result.
    #[error("{0}")]
    Failed(String),
    /// The results folder cannot be written.
    #[error("{0}")]
    Disk(String),
}

impl LabError {
    pub(crate) fn wrong(about: impl std::fmt::Display, what: impl std::fmt::Display) -> Self {
        Self::Wrong(format!("{about}: {what}"))
    }
}
