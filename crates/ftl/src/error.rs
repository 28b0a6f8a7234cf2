//! Why something is refused or cannot be opened: the failures that every floor of the firmware may
//! name.
//!
//! Absent: the medium's events (`MediaError`), and our own bugs, which are assertions.

/// What a page holds whose data could not be read when it had to move: reads of it are media
/// errors.
pub const LOST: &[u8] = b"lost";

/// Why a command was refused. Nothing has changed, but for the pages of a long command already
/// served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The range passes the end of the device.
    #[error("LBA out of range")]
    OutOfRange,
    /// The page could not be read.
    #[error("unrecovered read error")]
    MediaError,
    /// No space can be gained any more: too many blocks have failed or are worn out. Everything can
    /// still be read.
    #[error("the device is read-only: its blocks are worn out")]
    ReadOnly,
    /// All sequence numbers are handed out. Everything can still be read.
    #[error("the device is read-only: its 2^42 sequence numbers are used up")]
    NumbersUsedUp,
    /// A write to the disk under the device has failed. What was written before it failed can still
    /// be read.
    #[error("the disk under the device has failed")]
    DiskFailed,
    /// More pages than an atomic remap may have here.
    #[error("atomic command too large")]
    AtomicTooLarge,
    /// Interrupted atomic commands have left as many numbers as the device can remember, and there
    /// was no flash space at power-on to remove their witnesses.
    #[error("no atomic command can be recorded before what interrupted ones left has been removed")]
    AtomicUnavailable,
    /// Neither files nor lists have room in this device's NVRAM.
    #[error("this device keeps no file map: fs_files and fs_blocks are 0")]
    NoFileMap,
    /// The device's entries cannot record commands.
    #[error("atomic commands need 24-byte entries")]
    AtomicUnsupported,
}

/// Why a configuration cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

/// Why a device cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoveryError {
    /// The configuration does not fit the media.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A word that says whose mappings follow, or which LPN an entry names, cannot be read: any
    /// page might be stale.
    #[error("NVRAM word {word} is damaged beyond correction and nothing else tells what it said")]
    NvramDamaged {
        /// Index of the NVRAM word.
        word: usize,
    },
    /// A bitmap of deallocations cannot be read: pages that were deallocated might come back.
    #[error("the deallocation bitmap in flash page {page} cannot be read")]
    BitmapDamaged {
        /// Number of the flash page.
        page: u32,
    },
    /// A page that a capacitor saved cannot be read: any page might be stale.
    #[error("flash page {page}, which was saved when power failed, cannot be read")]
    SavedDamaged {
        /// Number of the flash page.
        page: u32,
    },
    /// Pages of a log cannot be read, more than its parity page can rebuild.
    #[error(
        "flash page {page}, which held remaps, cannot be read, and nothing else tells what it said"
    )]
    LogDamaged {
        /// Number of the flash page.
        page: u32,
    },
    /// The media does not hold a device that this configuration describes.
    #[error("not a device of this configuration: {0}")]
    Foreign(String),
    /// Recovery needs flash space and there is none left.
    #[error("no flash space left to finish recovery")]
    NoSpace,
}
