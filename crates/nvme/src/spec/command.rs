//! Submission and completion queue entries, and the dwords of the commands we know.

use super::status::Status;
use bitfield_struct::bitfield;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Command dword 0 (Base 2.0 figure 87).
#[bitfield(u32)]
pub struct Cdw0 {
    pub opcode: u8,
    /// Part of a fused operation; 0: of none.
    #[bits(2)]
    pub fuse: u8,
    #[bits(4)]
    __: u8,
    /// PRP or SGL: 1 is SGL.
    #[bits(2)]
    pub psdt: u8,
    /// Identifier, which the completion repeats.
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
    /// Opcode and identifier, as `Cdw0` has them.
    pub cdw0: u32,
    /// Number of the namespace that it is for.
    pub nsid: u32,
    /// Dwords 2 and 3, which few commands use.
    pub cdw2: [u32; 2],
    /// Address of metadata, if the format has any.
    pub mptr: u64,
    /// Where the data of the command are.
    pub sgl: Sgl,
    /// Dwords 10 to 15, in which each command has fields of its own.
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

/// An entry of a completion queue: how one command ended.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Cqe {
    /// Dwords 0 and 1: the command's own.
    pub result: u64,
    /// How far the controller has taken from the submission queue.
    pub sqhd: u16,
    /// Number of the submission queue that the command was in.
    pub sqid: u16,
    /// Identifier of the command that ended.
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
    /// How many logical blocks, less one.
    pub nlb_z: u16,
    #[bits(9)]
    __: u16,
    /// Whether zeroes may be written by deallocating.
    pub deac: bool,
    #[bits(4)]
    pub prinfo: u8,
    /// Whether it must be durable before it completes.
    pub fua: bool,
    /// Whether retries within the device are to be limited.
    pub lr: bool,
}

/// Dword 10 of Dataset Management (NVM 1.0 §3.2.3).
#[bitfield(u32)]
pub struct DsmCdw10 {
    /// How many ranges there are, less one.
    pub nr_z: u8,
    #[bits(24)]
    __: u32,
}

/// Dword 11 of Dataset Management.
#[bitfield(u32)]
pub struct DsmCdw11 {
    /// Whether the ranges will be read as a whole.
    pub idr: bool,
    /// Whether the ranges will be written as a whole.
    pub idw: bool,
    /// Whether the ranges are to be deallocated.
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
    /// The first of its logical blocks.
    pub slba: u64,
}

const _: () = assert!(size_of::<DsmRange>() == 16);

/// Dword 12 of Copy (NVM 1.0 §3.2.2).
#[bitfield(u32)]
pub struct CopyCdw12 {
    /// How many ranges there are, less one.
    pub nr_z: u8,
    #[bits(4)]
    pub format: u8,
    #[bits(4)]
    pub prinfor: u8,
    #[bits(10)]
    __: u16,
    #[bits(4)]
    pub prinfow: u8,
    /// Whether it must be durable before it completes.
    pub fua: bool,
    /// Whether retries within the device are to be limited.
    pub lr: bool,
}

/// A source range of Copy, format 0 or 2.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct CopyRange {
    /// Format 2: source namespace; format 0: reserved.
    pub snsid: u32,
    reserved: u32,
    /// The first of its logical blocks.
    pub slba: u64,
    /// How many logical blocks, less one.
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

    /// The same range of another namespace, for format 2.
    pub fn of_namespace(self, snsid: u32) -> Self {
        Self { snsid, ..self }
    }
}

/// Dword 12 of our Remap.
#[bitfield(u32)]
pub struct RemapCdw12 {
    /// How many logical blocks, less one.
    #[bits(28)]
    pub nlb_z: u32,
    #[bits(1)]
    __: u8,
    /// Whether it must be durable before it completes.
    pub fua: bool,
    /// The sources lose their blocks.
    pub relocate: bool,
    /// All blocks or none survive a power cut.
    pub atomic: bool,
}

/// Dwords 0 and 1 of our Remap's completion: what became of pages that were not remapped.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct RemapResult {
    /// Pages that were copied instead: each programmed a flash page.
    #[bits(32)]
    pub copied: u32,
    /// At least one of them because its page has as many owners as can be counted.
    pub counter_full: bool,
    /// At least one because the remapping metadata had no room, or was fuller than the watermark.
    pub metadata_full: bool,
    /// At least one because the scheme remaps nothing, or not this page.
    pub otherwise: bool,
    #[bits(29)]
    __: u32,
}

/// Dword 10 of Get Log Page (Base 2.0 §5.16).
#[bitfield(u32)]
pub struct LogCdw10 {
    /// Identifier of the log page.
    pub lid: u8,
    /// A field that means something else in each page.
    #[bits(7)]
    pub lsp: u8,
    /// Whether the event stays reported, though the page is read.
    pub rae: bool,
    /// Dwords less one, low half.
    pub numdl: u16,
}

/// Dword 10 of Format NVM (Base 2.0 §5.14).
#[bitfield(u32)]
pub struct FormatCdw10 {
    /// LBA format, bits 3:0 of its number.
    #[bits(4)]
    pub lbafl: u8,
    /// Whether metadata follow the blocks' data, within them.
    pub mset: bool,
    #[bits(3)]
    pub pi: u8,
    pub pil: bool,
    /// How what was written before is to be erased.
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
pub struct IdentifyCdw10 {
    /// Which structure is asked for.
    pub cns: u8,
    __: u8,
    pub cntid: u16,
}

/// Dword 10 of Get and Set Features (Base 2.0 §5.15, §5.27).
#[bitfield(u32)]
pub struct FeatureCdw10 {
    /// Identifier of the feature that is meant.
    pub fid: u8,
    /// Get: current, default, saved, capabilities.
    #[bits(3)]
    pub sel: u8,
    #[bits(20)]
    __: u32,
    /// Set: whether the value outlives a power cycle.
    pub sv: bool,
}

/// Dword 11 of Get and Set Features, Temperature Threshold (Base 2.0 §5.27.1.3).
#[bitfield(u32)]
pub struct TemperatureCdw11 {
    pub tmpth: u16,
    /// Sensor: 0 is the composite temperature, 15 are all.
    #[bits(4)]
    pub tmpsel: u8,
    /// Which way it is crossed: 0 over, 1 under.
    #[bits(2)]
    pub thsel: u8,
    #[bits(10)]
    __: u16,
}
