//! Why a subsystem cannot be created.

/// Why the subsystem cannot be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SubsystemError(String);

impl SubsystemError {
    pub(super) fn new(why: String) -> Self {
        Self(why)
    }
}
