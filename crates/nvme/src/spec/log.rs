//! Log pages (Base 2.0 §5.16.1).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Identifiers of the supported log pages.
#[allow(missing_docs, reason = "the specification's names")]
pub mod lid {
    pub(crate) const SUPPORTED: u8 = 0x00;
    pub const ERROR: u8 = 0x01;
    pub(crate) const SMART: u8 = 0x02;
    pub(crate) const FIRMWARE: u8 = 0x03;
    pub(crate) const CHANGED_NAMESPACES: u8 = 0x04;
    pub(crate) const EFFECTS: u8 = 0x05;
    /// The page of Asymmetric Namespace Access.
    pub(crate) const ANA: u8 = 0x0c;
    pub(crate) const FEATURES: u8 = 0x12;
    /// Management interface commands supported and effects.
    pub(crate) const MANAGEMENT: u8 = 0x13;
    pub(crate) const DISCOVERY: u8 = 0x70;
    /// The page of Reservation Notifications.
    pub(crate) const RESERVATION: u8 = 0x80;
    /// Vendor: statistics of the translation layer.
    pub(crate) const STATISTICS: u8 = 0xc0;
    /// Vendor: registrants of a namespace, and whether they are connected.
    pub(crate) const REGISTRANTS: u8 = 0xc1;
}

/// The page SMART / Health Information.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, packed)]
#[allow(missing_docs, reason = "the specification's names")]
pub struct Smart {
    pub critical_warning: u8,
    pub(crate) composite_temperature: u16,
    pub available_spare: u8,
    pub(crate) available_spare_threshold: u8,
    pub percentage_used: u8,
    pub(crate) endurance_group_critical_warning: u8,
    reserved_7: [u8; 25],
    pub data_units_read: u128,
    pub data_units_written: u128,
    pub(crate) host_read_commands: u128,
    pub(crate) host_write_commands: u128,
    pub(crate) controller_busy_time: u128,
    pub power_cycles: u128,
    pub(crate) power_on_hours: u128,
    pub unsafe_shutdowns: u128,
    pub media_errors: u128,
    pub(crate) error_log_entries: u128,
    reserved_192: [u8; 320],
}

const _: () = assert!(size_of::<Smart>() == 512);

/// An entry of the error log.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, packed)]
#[allow(missing_docs, reason = "the specification's names")]
pub struct ErrorEntry {
    pub(crate) error_count: u64,
    pub sqid: u16,
    pub cid: u16,
    pub status: u16,
    pub(crate) parameter_location: u16,
    pub lba: u64,
    pub nsid: u32,
    pub vendor: u8,
    pub(crate) trtype: u8,
    reserved: [u8; 2],
    pub(crate) command_specific: u64,
    pub(crate) transport_specific: u16,
    reserved_42: [u8; 22],
}

const _: () = assert!(size_of::<ErrorEntry>() == 64);

/// Effects of a command.
pub(crate) mod effects {
    pub(crate) const SUPPORTED: u32 = 1 << 0;
    pub(crate) const CHANGES_BLOCKS: u32 = 1 << 1;
    /// Changes namespace capabilities: the block size.
    pub(crate) const CHANGES_NAMESPACE: u32 = 1 << 2;
    /// Changes the set of namespaces.
    pub(crate) const CHANGES_INVENTORY: u32 = 1 << 3;
}

/// Support and scope of a feature.
pub(crate) mod features {
    pub(crate) const SUPPORTED: u32 = 1 << 0;
    /// The feature belongs to a namespace.
    pub(crate) const NAMESPACE: u32 = 1 << 20;
    /// The feature belongs to the controller.
    pub(crate) const CONTROLLER: u32 = 1 << 21;
}

/// Bits of the critical warnings of SMART.
pub mod warning {
    /// Spare blocks are below their threshold.
    pub(crate) const SPARE: u8 = 1 << 0;
    /// A temperature is past its threshold.
    pub(crate) const TEMPERATURE: u8 = 1 << 1;
    /// The media are read-only from now on.
    pub const READ_ONLY: u8 = 1 << 3;
}

/// Asynchronous events (Base 2.0 §5.2.1).
pub(crate) mod event {
    pub(crate) const SMART: u64 = 1;
    pub(crate) const RELIABILITY: u64 = 0;
    /// Of SMART: a temperature is beyond its threshold.
    pub(crate) const TEMPERATURE_THRESHOLD: u64 = 1;
    /// A notice, not an error.
    pub(crate) const NOTICE: u64 = 2;
    /// Of notices: namespaces have changed.
    pub(crate) const NAMESPACES_CHANGED: u64 = 0;
    /// Of SMART: spare blocks are below their threshold.
    pub(crate) const SPARE_BELOW_THRESHOLD: u64 = 2;
    /// Of notices: asymmetric access has changed.
    pub(crate) const ANA_CHANGE: u64 = 3;
    /// Of I/O command sets; information 0: a reservation notification is available.
    pub(crate) const COMMAND_SET: u64 = 6;
}
