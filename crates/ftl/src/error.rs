//! Reasons for refusing a command or not opening a device: the errors that every layer of the
//! firmware may return.
//!
//! Absent: the medium's events (`MediaError`), and our own bugs, which are assertions.

/// Content of a page that replaces one whose data could not be read when it had to move: reads of
/// it are media errors.
pub(crate) const LOST: &[u8] = b"lost";

/// Reason for refusing a command. Nothing has changed, except for pages of a long command already
/// executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The range extends past the end of the device.
    #[error("LBA out of range")]
    OutOfRange,
    /// The page could not be read.
    #[error("unrecovered read error")]
    MediaError,
    /// No space can be reclaimed any more: too many blocks have failed or are worn out. All data
    /// can still be read.
    #[error("the device is read-only: its blocks are worn out")]
    ReadOnly,
    /// All sequence numbers are used. All data can still be read.
    #[error("the device is read-only: its 2^42 sequence numbers are used up")]
    NumbersUsedUp,
    /// A write to the disk under the device has failed. Data written before that can still be read.
    #[error("the disk under the device has failed")]
    DiskFailed,
    /// An atomic remap has more pages than this device allows.
    #[error("atomic command too large")]
    AtomicTooLarge,
    /// Interrupted atomic commands have filled the list of aborted numbers, and at power-on there
    /// was no flash space to remove their witnesses.
    #[error("no atomic command can be recorded before what interrupted ones left has been removed")]
    AtomicUnavailable,
    /// This device's NVRAM has no room for a file map.
    #[error("this device keeps no file map: fs_files and fs_blocks are 0")]
    NoFileMap,
    /// The device's entries are too small to record commands.
    #[error("atomic commands need 24-byte entries")]
    AtomicUnsupported,
    /// An atomic remap of pages that are not whole indirection units at the same places.
    #[error("an atomic command needs whole indirection units")]
    AtomicPartial,
}

impl Refusal {
    /// All reasons.
    pub const ALL: [Self; 10] = [
        Self::OutOfRange,
        Self::MediaError,
        Self::ReadOnly,
        Self::NumbersUsedUp,
        Self::DiskFailed,
        Self::AtomicTooLarge,
        Self::AtomicUnavailable,
        Self::NoFileMap,
        Self::AtomicUnsupported,
        Self::AtomicPartial,
    ];
}

/// Why a configuration is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

/// Two tables of the firmware that disagree: a fault of the program, not of the medium.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Contradiction(pub(crate) String);

/// A name that none of several choices has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no {what} is named '{given}'; there are {}", known.join(", "))]
pub struct UnknownChoice {
    /// What is chosen, such as "scheme".
    pub what: &'static str,
    /// The name that was given.
    pub given: String,
    /// The names that there are.
    pub known: Vec<&'static str>,
}

/// Why a device cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoveryError {
    /// The configuration does not fit the media.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A word that names an LPN, the owner of the entries that follow, or the command in progress
    /// cannot be read: any page might be stale.
    #[error("NVRAM word {word} is damaged beyond correction and nothing else tells what it said")]
    NvramDamaged {
        /// Index of the NVRAM word.
        word: usize,
    },
    /// A bitmap of deallocations cannot be read: deallocated pages might come back.
    #[error("the deallocation bitmap in flash page {page} cannot be read")]
    BitmapDamaged {
        /// Number of the flash page.
        page: u32,
    },
    /// A list of LPNs in doubt cannot be read: any page might be stale.
    #[error("the list of pages in doubt in flash page {page} cannot be read")]
    DoubtsDamaged {
        /// Number of the flash page.
        page: u32,
    },
    /// A page that a capacitor saved cannot be read: any page might be stale.
    #[error("flash page {page}, which was saved when power failed, cannot be read")]
    SavedDamaged {
        /// Number of the flash page.
        page: u32,
    },
    /// More pages of a log cannot be read than its parity page can rebuild.
    #[error(
        "flash page {page}, which held remaps, cannot be read, and nothing else tells what it said"
    )]
    LogDamaged {
        /// Number of the flash page.
        page: u32,
    },
    /// The media does not hold a device of this configuration.
    #[error("not a device of this configuration: {0}")]
    Foreign(String),
    /// Recovery needs flash space and none is left.
    #[error("no flash space left to finish recovery")]
    NoSpace,
}
