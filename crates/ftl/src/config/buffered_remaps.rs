//! What a remap does with pages in the write buffer.
//!
//! Absent: how it does that (`verbs::buffered_remaps`).

use serde::{Deserialize, Serialize};

/// What a remap does with a source that is in a write buffer with power-loss protection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BufferedRemaps {
    /// It writes the page back first, and waits for it.
    #[default]
    Wait,
    /// It puts a second page with the same content into the buffer.
    Name,
}

impl BufferedRemaps {
    /// All values, in the order of help texts.
    pub const ALL: [Self; 2] = [Self::Wait, Self::Name];

    /// Name in device files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Name => "name",
        }
    }
}
