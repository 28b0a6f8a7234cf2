//! Reservation commands: their dwords, their data, and the notification log (Base 2.0 §7.2 to §7.5,
//! §5.16.1.25).

use bitfield_struct::bitfield;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Dword 10 of Reservation Register.
#[bitfield(u32)]
pub(crate) struct RegisterCdw10 {
    /// RREGA: register, unregister or replace.
    #[bits(3)]
    pub action: u8,
    /// Ignore existing key: the current key is not compared.
    pub(crate) iekey: bool,
    #[bits(26)]
    __: u32,
    /// Change persist through power loss state.
    #[bits(2)]
    pub(crate) cptpl: u8,
}

/// Actions of Reservation Register.
pub(crate) mod register {
    pub(crate) const REGISTER: u8 = 0;
    pub(crate) const UNREGISTER: u8 = 1;
    pub(crate) const REPLACE: u8 = 2;
}

/// Changes of the persist through power loss state (CPTPL).
pub(crate) mod cptpl {
    pub(crate) const KEEP: u8 = 0;
    pub(crate) const CLEAR: u8 = 2;
    pub(crate) const SET: u8 = 3;
}

/// Dword 10 of Reservation Acquire and of Reservation Release.
#[bitfield(u32)]
pub(crate) struct ReservationCdw10 {
    /// RACQA, RRELA: the action.
    #[bits(3)]
    pub action: u8,
    pub(crate) iekey: bool,
    #[bits(4)]
    __: u8,
    /// Reservation type, 1 to 6.
    pub rtype: u8,
    __: u16,
}

/// Actions of Reservation Acquire.
pub(crate) mod acquire {
    pub(crate) const ACQUIRE: u8 = 0;
    pub(crate) const PREEMPT: u8 = 1;
    pub(crate) const PREEMPT_AND_ABORT: u8 = 2;
}

/// Actions of Reservation Release.
pub(crate) mod release {
    pub(crate) const RELEASE: u8 = 0;
    pub(crate) const CLEAR: u8 = 1;
}

/// Data of Reservation Register and of Reservation Acquire: two keys.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Keys {
    /// CRKEY: the host's current key.
    pub current: u64,
    /// NRKEY: its new key; PRKEY: the key of the registrants to preempt.
    pub other: u64,
}

const _: () = assert!(size_of::<Keys>() == 16);

/// Head of the report with identifiers of 16 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, packed)]
pub struct ReportHead {
    /// Number of changes of registrations.
    pub generation: u32,
    /// Reservation type; 0 is none.
    pub rtype: u8,
    /// Number of registrants.
    pub regctl: u16,
    reserved: [u8; 2],
    /// Persist through power loss state.
    pub ptpls: u8,
    reserved_10: [u8; 54],
}

const _: () = assert!(size_of::<ReportHead>() == 64);

/// A registrant in the report.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, packed)]
pub struct ReportEntry {
    /// 0xffff: controllers are dynamic.
    pub cntlid: u16,
    /// Bit 0: it holds the reservation.
    pub rcsts: u8,
    reserved: [u8; 5],
    pub rkey: u64,
    pub hostid: [u8; 16],
    reserved_32: [u8; 32],
}

const _: () = assert!(size_of::<ReportEntry>() == 64);

/// The log page Reservation Notification.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, packed)]
pub struct Notification {
    /// Counts notifications, so that a host notices missing ones; 0: none available.
    pub count: u64,
    /// Type of notification; 0 is none.
    pub kind: u8,
    /// Number of further pages available.
    pub available: u8,
    reserved: [u8; 2],
    pub nsid: u32,
    reserved_16: [u8; 48],
}

const _: () = assert!(size_of::<Notification>() == 64);

/// Head of the vendor log page of registrants (C1h): the content of Reservation Report for a
/// namespace, and which registrants are connected.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, packed)]
pub(crate) struct RegistrantsHead {
    /// `RMPHOSTS`.
    pub magic: [u8; 8],
    /// 1; later versions append.
    pub version: u32,
    /// Number of registrants that follow.
    pub count: u32,
    /// Reservation type; 0 is none.
    pub rtype: u8,
    /// Persist through power loss state.
    pub ptpls: u8,
    reserved: [u8; 14],
}

const _: () = assert!(size_of::<RegistrantsHead>() == 32);

impl RegistrantsHead {
    /// Signature of the page.
    pub(crate) const MAGIC: [u8; 8] = *b"RMPHOSTS";
}

/// A registrant in that page.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, packed)]
pub(crate) struct RegistrantEntry {
    /// The host's identifier.
    pub hostid: [u8; 16],
    /// Its key.
    pub rkey: u64,
    /// Number of its controllers at present; 0: it is not connected.
    pub controllers: u32,
    /// Bit 0: it holds the reservation.
    pub rcsts: u8,
    reserved: [u8; 3],
}

const _: () = assert!(size_of::<RegistrantEntry>() == 32);

/// Reservation capabilities (RESCAP).
pub(crate) mod rescap {
    /// Persist through power loss, all six types, and IEKEY as since NVMe 1.3.
    pub(crate) const ALL: u8 = 0xff;
}
