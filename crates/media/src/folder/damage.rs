//! Damage to the files of a folder: its place, and the loss if the device continues without the
//! data.
//!
//! Absent: finding it (`open`).

use crate::image_file::ImageError;
use std::fmt;

/// A damaged range of a file.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct FileDamage {
    /// Name of the file in the folder.
    pub file: String,
    /// Offset of the first damaged byte in the file.
    pub offset: u64,
    /// Description of the damage.
    pub what: String,
    /// The loss if the device continues without the data.
    pub lost: String,
}

impl fmt::Display for FileDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, byte {}: {}", self.file, self.offset, self.what)
    }
}

impl From<&FileDamage> for ImageError {
    fn from(damage: &FileDamage) -> Self {
        Self::Damaged(damage.to_string())
    }
}

/// Damage found so far.
pub(super) struct DamageFindings {
    /// Accept the loss and continue.
    pub(super) accept: bool,
    pub(super) list: Vec<FileDamage>,
}

impl DamageFindings {
    /// # Errors
    /// The damage, unless the loss is accepted.
    pub(super) fn add(
        &mut self,
        file: &str,
        offset: u64,
        what: String,
        lost: String,
    ) -> Result<(), ImageError> {
        let damage = FileDamage {
            file: file.to_owned(),
            offset,
            what,
            lost,
        };

        let refused = if self.accept {
            Ok(())
        } else {
            Err(ImageError::from(&damage))
        };

        self.list.push(damage);
        refused
    }
}
