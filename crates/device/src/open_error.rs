//! Why a device in a file or in a folder cannot be used.

use crate::config::DeviceConfigError;
use remap_ssd_ftl::{Contradiction, RecoveryError};
use remap_ssd_media::image_file::ImageError;

/// Why a device cannot be powered on or saved.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The image's tables are inconsistent.
    #[error("the image is inconsistent: {0}")]
    Contradiction(#[from] Contradiction),
    /// What the folder holds cannot be repaired.
    #[error("the image is inconsistent: {0}")]
    BeyondRepair(String),
    /// The file cannot be read or written.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The saved configuration is invalid.
    #[error(transparent)]
    Config(#[from] DeviceConfigError),
    /// The media cannot be recovered.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// The configuration in the image is not text.
    #[error("the image holds no readable configuration")]
    NotText,
    /// A folder's files store OOBs without the extension.
    #[error(
        "scheme `{0}` names second owners in OOBs, for which a device's folder has no room: use an image"
    )]
    NoSecondOwners(&'static str),
    /// The scheme's remaps do not survive power loss.
    #[error("scheme `{0}` keeps its remaps in DRAM: an image would lose them")]
    NotDurable(&'static str),
    /// A device in a folder is for use: it must store real bytes.
    #[error("a device in a folder holds real bytes: content must be \"bytes\"")]
    NotBytes,
    /// The end of a process leaves everything that was issued, also in program units that are not full.
    #[error(
        "a device in a folder keeps the pages of word lines that are not full: firmware.power_loss_protection must be true where pages share word lines"
    )]
    Unprotected,
    /// The folder is not empty, and existing files are never overwritten.
    #[error("the folder is not empty")]
    NotEmpty,
}
