//! Errors of the names that choose a format, its columns, its actions and a folding.
//!
//! Absent: the valid names (`format.rs`, `columns.rs`, `action.rs`, `address.rs`).

use remap_ssd_device::keys::did_you_mean;

/// An unknown name; the message lists the valid ones, and suggests a similar one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} `{name}`: one of {offered}{}", did_you_mean(.name, .offered.split(", ")))]
pub struct UnknownName {
    what: &'static str,
    name: String,
    offered: &'static str,
}

impl UnknownName {
    pub(super) fn new(what: &'static str, name: &str, offered: &'static str) -> Self {
        let name = name.to_owned();
        Self {
            what,
            name,
            offered,
        }
    }
}

/// Why a text names no format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// There is no such format, or no such column.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
    /// A request needs one of these columns.
    #[error("csv: no column says {0}")]
    NoColumn(&'static str),
    /// These columns have the same meaning.
    #[error("csv: only one column can be {0}")]
    TwoColumns(&'static str),
    /// The list is too long.
    #[error("csv: more than 24 columns")]
    TooManyColumns,
}
