//! The granularity of the mapping table.
//!
//! Absent: its size (`sizes`), its requirements (`limits`), and the tables (`map`, `block_map`).

use crate::error::UnknownChoice;
use crate::names;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Granularity of an entry of the mapping table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Granularity {
    /// One entry per logical page.
    #[default]
    #[serde(rename = "page")]
    Page,
    /// One entry per block of pages in order, with an extension for pages that are elsewhere
    /// (Copyless Copy §II).
    #[serde(rename = "hybrid")]
    Hybrid,
}

impl Granularity {
    /// All granularities, in the order of help texts.
    pub const ALL: [Self; 2] = [Self::Page, Self::Hybrid];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Page => "page",
            Self::Hybrid => "hybrid",
        }
    }
}

impl fmt::Display for Granularity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Granularity {
    type Err = UnknownChoice;
    fn from_str(name: &str) -> Result<Self, UnknownChoice> {
        names::find("mapping", name, &Self::ALL, Self::name)
    }
}
