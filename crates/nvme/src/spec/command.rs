//! Submission and completion queue entries, and the dwords of supported commands.

use super::status::Status;
use bitfield_struct::bitfield;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Command dword 0 (Base 2.0 figure 87).
#[bitfield(u32)]
pub struct Cdw0 {
    pub opcode: u8,
    /// Position in a fused operation; 0: not fused.
    #[bits(2)]
    pub fuse: u8,
    #[bits(4)]
    __: u8,
    /// PRP or SGL: 1 is SGL.
    #[bits(2)]
    pub psdt: u8,
    /// Command identifier, repeated in the completion.
    pub cid: u16,
}

/// An SGL descriptor (Base 2.0 §4.1.2).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Sgl {
    /// Address, or offset in the capsule.
    pub address: u64,
    pub length: u32,
    reserved: [u8; 3],
    /// Type in the high nibble, subtype in the low one.
    pub identifier: u8,
}

impl Sgl {
    /// Data block, offset: in the capsule.
    pub const IN_CAPSULE: u8 = 0x01;
    pub const TRANSPORT: u8 = 0x5a;

    /// A descriptor of `length` bytes at `address`.
    pub fn new(identifier: u8, address: u64, length: u32) -> Self {
        Self {
            address,
            length,
            reserved: [0; 3],
            identifier,
        }
    }
}

/// An entry of a submission queue: one command.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Sqe {
    /// Opcode and identifier (`Cdw0`).
    pub cdw0: u32,
    /// Number of its namespace.
    pub nsid: u32,
    /// Dwords 2 and 3, used by few commands.
    pub cdw2: [u32; 2],
    /// Address of metadata, if the format has any.
    pub mptr: u64,
    /// Location of the command's data.
    pub sgl: Sgl,
    /// Dwords 10 to 15, specific to the command.
    pub cdw10: u32,
    pub cdw11: u32,
    pub cdw12: u32,
    pub cdw13: u32,
    pub cdw14: u32,
    pub cdw15: u32,
}

const _: () = assert!(size_of::<Sqe>() == 64);

impl Sqe {
    /// Dword 0, with its fields by name.
    #[inline]
    pub fn head(&self) -> Cdw0 {
        Cdw0::from_bits(self.cdw0)
    }
}

/// An entry of a completion queue: the result of a command.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Cqe {
    /// Dwords 0 and 1, specific to the command.
    pub result: u64,
    /// Submission queue head: position up to which the controller has taken entries.
    pub sqhd: u16,
    /// Number of the command's submission queue.
    pub sqid: u16,
    /// Identifier of the command.
    pub cid: u16,
    /// The status, in bits 15:1.
    pub status: u16,
}

const _: () = assert!(size_of::<Cqe>() == 16);

impl Cqe {
    pub fn status(&self) -> Status {
        Status::from_bits(self.status >> 1)
    }
}

/// Dword 12 of Read, Write, Compare, Verify, Write Zeroes (NVM 1.0 §3.2).
#[bitfield(u32)]
pub struct RwCdw12 {
    /// Number of logical blocks, 0's based.
    pub nlb_z: u16,
    #[bits(9)]
    __: u16,
    /// True if zeroes may be written by deallocating.
    pub(crate) deac: bool,
    #[bits(4)]
    pub(crate) prinfo: u8,
    /// True if the data must be durable before it completes.
    pub fua: bool,
    /// True if the device should limit retries.
    pub(crate) lr: bool,
}

/// Dword 10 of Dataset Management (NVM 1.0 §3.2.3).
#[bitfield(u32)]
pub struct DsmCdw10 {
    /// Number of ranges, 0's based.
    pub nr_z: u8,
    #[bits(24)]
    __: u32,
}

/// Dword 11 of Dataset Management.
#[bitfield(u32)]
pub struct DsmCdw11 {
    /// True if the ranges will be read as a whole.
    pub(crate) idr: bool,
    /// True if the ranges will be written as a whole.
    pub(crate) idw: bool,
    /// True to deallocate the ranges.
    pub ad: bool,
    #[bits(29)]
    __: u32,
}

/// A range of Dataset Management.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct DsmRange {
    pub attributes: u32,
    pub blocks: u32,
    /// First logical block.
    pub slba: u64,
}

const _: () = assert!(size_of::<DsmRange>() == 16);

/// Dword 12 of Copy (NVM 1.0 §3.2.2).
#[bitfield(u32)]
pub struct CopyCdw12 {
    /// Number of ranges, 0's based.
    pub nr_z: u8,
    #[bits(4)]
    pub format: u8,
    #[bits(4)]
    pub(crate) prinfor: u8,
    #[bits(10)]
    __: u16,
    #[bits(4)]
    pub(crate) prinfow: u8,
    /// True if the data must be durable before it completes.
    pub fua: bool,
    /// True if the device should limit retries.
    pub(crate) lr: bool,
}

/// A source range of Copy, format 0 or 2.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct CopyRange {
    /// Format 2: source namespace; format 0: reserved.
    pub snsid: u32,
    reserved: u32,
    /// First logical block.
    pub slba: u64,
    /// Number of logical blocks, 0's based.
    pub nlb_z: u16,
    reserved_2: [u8; 14],
}

const _: () = assert!(size_of::<CopyRange>() == 32);

impl CopyRange {
    /// A range of the namespace copied to.
    pub fn new(slba: u64, nlb_z: u16) -> Self {
        Self {
            slba,
            nlb_z,
            ..Self::default()
        }
    }

    /// The range in another namespace, for format 2.
    pub fn of_namespace(self, snsid: u32) -> Self {
        Self { snsid, ..self }
    }
}

/// Dword 12 of our Remap.
#[bitfield(u32)]
pub struct RemapCdw12 {
    /// Number of logical blocks, 0's based.
    #[bits(28)]
    pub nlb_z: u32,
    #[bits(1)]
    __: u8,
    /// True if the data must be durable before it completes.
    pub fua: bool,
    /// The sources lose their blocks.
    pub relocate: bool,
    /// All blocks or none survive a power cut.
    pub atomic: bool,
}

/// Dwords 0 and 1 of our Remap's completion: pages that could not be remapped.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct RemapResult {
    /// Pages copied instead: each programmed a flash page.
    #[bits(32)]
    pub copied: u32,
    /// At least one because its page already has the maximum number of owners.
    pub counter_full: bool,
    /// At least one because the remapping metadata was full, or above the watermark.
    pub metadata_full: bool,
    /// At least one because the scheme remaps nothing, or not this page.
    pub otherwise: bool,
    #[bits(29)]
    __: u32,
}

/// Dword 10 of Get Log Page (Base 2.0 §5.16).
#[bitfield(u32)]
pub(crate) struct LogCdw10 {
    /// Identifier of the log page.
    pub lid: u8,
    /// Log specific field, with a meaning per page.
    #[bits(7)]
    pub(crate) lsp: u8,
    /// True to retain the event although the page is read.
    pub(crate) rae: bool,
    /// Number of dwords, 0's based, low half.
    pub(crate) numdl: u16,
}

/// Dword 10 of Format NVM (Base 2.0 §5.14).
#[bitfield(u32)]
pub struct FormatCdw10 {
    /// LBA format, bits 3:0 of its number.
    #[bits(4)]
    pub lbafl: u8,
    /// True if metadata are transferred inline, after each block's data.
    pub mset: bool,
    #[bits(3)]
    pub pi: u8,
    pub(crate) pil: bool,
    /// Secure erase settings: 0 none, 1 of user data, 2 by cryptography.
    #[bits(3)]
    pub ses: u8,
    /// Bits 5:4 of the LBA format's number.
    #[bits(2)]
    pub lbafu: u8,
    #[bits(18)]
    __: u32,
}

/// Dword 10 of Identify (Base 2.0 §5.17).
#[bitfield(u32)]
pub(crate) struct IdentifyCdw10 {
    /// CNS: selects the data structure that is returned.
    pub cns: u8,
    __: u8,
    pub(crate) cntid: u16,
}

/// Dword 10 of Get and Set Features (Base 2.0 §5.15, §5.27).
#[bitfield(u32)]
pub struct FeatureCdw10 {
    /// Feature identifier.
    pub fid: u8,
    /// Get: current, default, saved, capabilities.
    #[bits(3)]
    pub sel: u8,
    #[bits(20)]
    __: u32,
    /// Set: true if the value must survive a power cycle.
    pub(crate) sv: bool,
}

/// Dword 11 of Get and Set Features, Temperature Threshold (Base 2.0 §5.27.1.3).
#[bitfield(u32)]
pub(crate) struct TemperatureCdw11 {
    pub(crate) tmpth: u16,
    /// Sensor: 0 is the composite temperature, 15 means all.
    #[bits(4)]
    pub(crate) tmpsel: u8,
    /// Threshold type: 0 over, 1 under.
    #[bits(2)]
    pub(crate) thsel: u8,
    #[bits(10)]
    __: u16,
}
