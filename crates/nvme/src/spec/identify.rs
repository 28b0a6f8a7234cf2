//! Data structures of Identify (Base 2.0 §5.17.2, NVM 1.0 §4.1.5).

use std::mem::offset_of;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Values of CNS, which selects the structure.
#[allow(missing_docs, reason = "the specification's names")]
pub mod cns {
    pub const NAMESPACE: u8 = 0x00;
    pub const CONTROLLER: u8 = 0x01;
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    pub const NAMESPACE_DESCRIPTORS: u8 = 0x03;
    /// Namespace, specific to a command set.
    pub const COMMAND_SET_NAMESPACE: u8 = 0x05;
    /// Controller, specific to a command set.
    pub const COMMAND_SET_CONTROLLER: u8 = 0x06;
    /// Active namespaces of a command set.
    pub const COMMAND_SET_NAMESPACES: u8 = 0x07;
    /// Namespace, independent of the command set.
    pub const INDEPENDENT_NAMESPACE: u8 = 0x08;
    /// The numbers of all namespaces, visible to the controller or not.
    pub const ALLOCATED_NAMESPACES: u8 = 0x10;
    /// Namespace, visible to the controller or not.
    pub const ALLOCATED_NAMESPACE: u8 = 0x11;
    /// Controllers that see a namespace.
    pub const ATTACHED_CONTROLLERS: u8 = 0x12;
    /// All controllers of the subsystem.
    pub const CONTROLLERS: u8 = 0x13;
    pub const COMMAND_SETS: u8 = 0x1c;
}

/// The structure Identify Controller, of 4,096 bytes.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, packed)]
#[allow(missing_docs, reason = "the specification's names")]
pub struct Controller {
    pub vid: u16,
    pub ssvid: u16,
    pub sn: [u8; 20],
    pub mn: [u8; 40],
    pub fr: [u8; 8],
    pub rab: u8,
    pub ieee: [u8; 3],
    pub cmic: u8,
    pub mdts: u8,
    pub cntlid: u16,
    pub ver: u32,
    pub rtd3r: u32,
    pub rtd3e: u32,
    pub oaes: u32,
    pub ctratt: u32,
    pub rrls: u16,
    reserved_102: [u8; 9],
    pub cntrltype: u8,
    pub fguid: [u8; 16],
    pub crdt: [u16; 3],
    reserved_134: [u8; 119],
    pub nvmsr: u8,
    pub vwci: u8,
    pub mec: u8,
    pub oacs: u16,
    pub acl_z: u8,
    pub aerl_z: u8,
    pub frmw: u8,
    pub lpa: u8,
    pub elpe_z: u8,
    pub npss_z: u8,
    pub avscc: u8,
    pub apsta: u8,
    pub wctemp: u16,
    pub cctemp: u16,
    pub mtfa: u16,
    pub hmpre: u32,
    pub hmmin: u32,
    pub tnvmcap: [u8; 16],
    pub unvmcap: [u8; 16],
    pub rpmbs: u32,
    pub edstt: u16,
    pub dsto: u8,
    pub fwug: u8,
    pub kas: u16,
    reserved_322: [u8; 20],
    pub anatt: u8,
    pub anacap: u8,
    pub anagrpmax: u32,
    pub nanagrpid: u32,
    reserved_352: [u8; 160],
    pub sqes: u8,
    pub cqes: u8,
    pub maxcmd: u16,
    pub nn: u32,
    pub oncs: u16,
    pub fuses: u16,
    pub fna: u8,
    pub vwc: u8,
    pub awun_z: u16,
    pub awupf_z: u16,
    pub icsvscc: u8,
    pub nwpc: u8,
    pub acwu_z: u16,
    pub ocfs: u16,
    pub sgls: u32,
    pub mnan: u32,
    reserved_544: [u8; 224],
    pub subnqn: [u8; 256],
    reserved_1024: [u8; 768],
    pub ioccsz: u32,
    pub iorcsz: u32,
    pub icdoff: u16,
    pub fcatt: u8,
    pub msdbd: u8,
    pub ofcs: u16,
    reserved_1806: [u8; 242],
    pub psd: [[u8; 32]; 32],
    vendor: [u8; 1024],
}

const _: () = assert!(size_of::<Controller>() == 4096);
const _: () = assert!(offset_of!(Controller, oacs) == 256 && offset_of!(Controller, kas) == 320);
const _: () =
    assert!(offset_of!(Controller, anatt) == 342 && offset_of!(Controller, nanagrpid) == 348);
const _: () = assert!(offset_of!(Controller, sqes) == 512 && offset_of!(Controller, sgls) == 536);
const _: () =
    assert!(offset_of!(Controller, subnqn) == 768 && offset_of!(Controller, ioccsz) == 1792);
const _: () = assert!(offset_of!(Controller, psd) == 2048);

/// Bits of `oncs`: optional commands.
#[allow(missing_docs, reason = "the specification's names")]
pub mod oncs {
    pub const COMPARE: u16 = 1 << 0;
    pub const DATASET_MANAGEMENT: u16 = 1 << 2;
    pub const WRITE_ZEROES: u16 = 1 << 3;
    /// Save and select of features.
    pub const FEATURE_SELECT: u16 = 1 << 4;
    pub const RESERVATIONS: u16 = 1 << 5;
    pub const VERIFY: u16 = 1 << 7;
    pub const COPY: u16 = 1 << 8;
}

/// Bits of `ctratt`: attributes of the controller.
pub mod ctratt {
    /// Host identifiers have 16 bytes.
    pub const HOST_ID_LONG: u32 = 1 << 0;
    /// Any command counts as keep-alive traffic.
    pub const TRAFFIC_KEEPS_ALIVE: u32 = 1 << 6;
}

/// Optional events (`oaes`): namespaces have changed.
pub const OAES_NAMESPACES: u32 = 1 << 8;
/// Attributes of a namespace (`nsattr`): it is write protected.
pub const NSATTR_WRITE_PROTECTED: u8 = 1 << 0;
/// Events that can be enabled (`oaes`, and the feature of events).
pub mod oaes {
    /// The state of asymmetric access has changed.
    pub const ANA_CHANGE: u32 = 1 << 11;
}

/// Multiple ports and controllers, and asymmetric access (`cmic`).
pub mod cmic {
    pub const PORTS: u8 = 1 << 0;
    pub const CONTROLLERS: u8 = 1 << 1;
    pub const ANA: u8 = 1 << 3;
}

/// Bits of `oacs`: optional admin commands.
pub mod oacs {
    pub const FORMAT: u16 = 1 << 1;
    /// Namespace Management and Attachment.
    pub const NAMESPACES: u16 = 1 << 3;
}

/// Bits of `fna`: attributes of Format NVM.
pub mod fna {
    /// All namespaces at once are not supported.
    pub const NO_BROADCAST: u8 = 1 << 3;
}

/// Bits of `sgls`: supported SGL descriptors.
pub mod sgls {
    pub const SUPPORTED: u32 = 1 << 0;
    /// SGLs may be longer than the data.
    pub const LONGER: u32 = 1 << 18;
    /// Addresses may be offsets: in the capsule.
    pub const OFFSETS: u32 = 1 << 20;
}

/// A supported format of logical blocks.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct LbaFormat {
    /// Metadata bytes per block.
    pub ms: u16,
    /// log2 of the block size.
    pub lbads: u8,
    /// Relative performance; 0 is best.
    pub rp: u8,
}

/// The structure Identify Namespace, of 4,096 bytes.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, packed)]
#[allow(missing_docs, reason = "the specification's names")]
pub struct Namespace {
    pub nsze: u64,
    pub ncap: u64,
    pub nuse: u64,
    pub nsfeat: u8,
    pub nlbaf_z: u8,
    pub flbas: u8,
    pub mc: u8,
    pub dpc: u8,
    pub dps: u8,
    pub nmic: u8,
    pub rescap: u8,
    pub fpi: u8,
    pub dlfeat: u8,
    pub nawun_z: u16,
    pub nawupf_z: u16,
    pub nacwu_z: u16,
    pub nabsn: u16,
    pub nabo: u16,
    pub nabspf: u16,
    pub noiob: u16,
    pub nvmcap: [u8; 16],
    pub npwg_z: u16,
    pub npwa_z: u16,
    pub npdg_z: u16,
    pub npda_z: u16,
    pub nows_z: u16,
    pub mssrl: u16,
    pub mcl: u32,
    pub msrc_z: u8,
    reserved_81: [u8; 11],
    pub anagrpid: u32,
    reserved_96: [u8; 3],
    pub nsattr: u8,
    pub nvmsetid: u16,
    pub endgid: u16,
    pub nguid: [u8; 16],
    pub eui64: [u8; 8],
    pub lbaf: [LbaFormat; 64],
    vendor: [u8; 3712],
}

const _: () = assert!(size_of::<Namespace>() == 4096);
const _: () = assert!(offset_of!(Namespace, mssrl) == 74 && offset_of!(Namespace, msrc_z) == 80);
const _: () = assert!(offset_of!(Namespace, nguid) == 104 && offset_of!(Namespace, lbaf) == 128);

/// I/O Command Set specific Identify Controller, NVM (CNS 06h).
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, packed)]
#[allow(missing_docs, reason = "the specification's names")]
pub struct NvmController {
    pub vsl: u8,
    pub wzsl: u8,
    pub wusl: u8,
    pub dmrl: u8,
    pub dmrsl: u32,
    pub dmsl: u64,
    reserved: [u8; 4080],
}

const _: () = assert!(size_of::<NvmController>() == 4096);

/// I/O Command Set independent Identify Namespace (CNS 08h).
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, packed)]
#[allow(missing_docs, reason = "the specification's names")]
pub struct IndependentNamespace {
    pub nsfeat: u8,
    pub nmic: u8,
    pub rescap: u8,
    pub fpi: u8,
    pub anagrpid: u32,
    pub nsattr: u8,
    reserved: u8,
    pub nvmsetid: u16,
    pub endgid: u16,
    pub nstat: u8,
    reserved_15: [u8; 4081],
}

const _: () = assert!(size_of::<IndependentNamespace>() == 4096);

/// All zero: fields not set mean "not supported".
pub fn blank<T: FromZeros>() -> T {
    T::new_zeroed()
}

/// Text in a fixed-size field, padded with spaces.
pub fn text<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [b' '; N];
    let len = text.len().min(N);
    field[..len].copy_from_slice(&text.as_bytes()[..len]);
    field
}

/// Types of namespace identification descriptors (CNS 03h).
pub mod nidt {
    pub const EUI64: u8 = 1;
    pub const NGUID: u8 = 2;
    /// The namespace's UUID, of 16 bytes.
    pub const UUID: u8 = 3;
    /// The namespace's command set.
    pub const CSI: u8 = 4;
}
