//! The steps of a request through Linux' block layer, as `blktrace` records them.
//!
//! Absent: the choice of a step for a trace (`blkparse.rs`).

use std::fmt;
use std::str::FromStr;

use super::names::UnknownName;

/// The step of a request through the block layer that is taken from a `blkparse` text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// `Q`: queued, as requested by the file system.
    Queued,
    /// `D`: issued to the driver, after merging and scheduling.
    Issued,
    /// `C`: the request was completed.
    Completed,
}

impl Action {
    /// All actions, in order of preference.
    pub const ALL: [Action; 3] = [Action::Queued, Action::Issued, Action::Completed];

    pub(super) fn letter(self) -> &'static str {
        match self {
            Action::Queued => "Q",
            Action::Issued => "D",
            Action::Completed => "C",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.letter())
    }
}

impl FromStr for Action {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        Action::ALL
            .into_iter()
            .find(|action| action.letter() == name)
            .ok_or_else(|| UnknownName::new("block-layer action", name, "Q, D, C"))
    }
}
