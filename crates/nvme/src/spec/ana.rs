//! Asymmetric namespace access: its log page and its fields in Identify (Base 2.0 §5.16.1.13,
//! §8.1).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Head of the log page.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct AnaHead {
    /// Number of changes of the page.
    pub chgcnt: u64,
    /// Number of group descriptors that follow.
    pub ngrps: u16,
    reserved: [u8; 6],
}

const _: () = assert!(size_of::<AnaHead>() == 16);

/// A group; the numbers of its namespaces follow, 4 bytes each.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct AnaGroup {
    pub anagrpid: u32,
    /// Number of namespace numbers that follow.
    pub nnsids: u32,
    pub chgcnt: u64,
    /// The state, in bits 3:0.
    pub state: u8,
    reserved: [u8; 15],
}

const _: () = assert!(size_of::<AnaGroup>() == 32);

/// Capabilities (ANACAP): the states that may be reported.
pub(crate) mod anacap {
    pub(crate) const OPTIMIZED: u8 = 1 << 0;
    pub(crate) const NON_OPTIMIZED: u8 = 1 << 1;
    pub(crate) const INACCESSIBLE: u8 = 1 << 2;
    /// A namespace stays in its group.
    pub(crate) const STATIC_GROUPS: u8 = 1 << 6;
}

/// Bit 0 of the log specific field: descriptors without their namespaces.
pub(crate) const RETURN_GROUPS_ONLY: u8 = 1 << 0;
