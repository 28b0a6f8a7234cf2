//! Data structures of Identify (Base 2.0 §5.17.2, NVM 1.0 §4.1.5).

use std::mem::offset_of;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Values of CNS, which selects the structure.
#[allow(missing_docs, reason = "the specification's names")]
pub mod cns {
    pub const NAMESPACE: u8 = 0x00;
    pub const CONTROLLER: u8 = 0x01;
    pub(crate) const ACTIVE_NAMESPACES: u8 = 0x02;
    pub(crate) const NAMESPACE_DESCRIPTORS: u8 = 0x03;
    /// Namespace, specific to a command set.
    pub(crate) const COMMAND_SET_NAMESPACE: u8 = 0x05;
    /// Controller, specific to a command set.
    pub(crate) const COMMAND_SET_CONTROLLER: u8 = 0x06;
    /// Active namespaces of a command set.
    pub(crate) const COMMAND_SET_NAMESPACES: u8 = 0x07;
    /// Namespace, independent of the command set.
    pub(crate) const INDEPENDENT_NAMESPACE: u8 = 0x08;
    /// The numbers of all namespaces, visible to the controller or not.
    pub const ALLOCATED_NAMESPACES: u8 = 0x10;
    /// Namespace, visible to the controller or not.
    pub const ALLOCATED_NAMESPACE: u8 = 0x11;
    /// Controllers that see a namespace.
    pub const ATTACHED_CONTROLLERS: u8 = 0x12;
    /// All controllers of the subsystem.
    pub const CONTROLLERS: u8 = 0x13;
    pub(crate) const COMMAND_SETS: u8 = 0x1c;
}

/// The structure Identify Controller, of 4,096 bytes.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, packed)]
#[allow(missing_docs, reason = "the specification's names")]
pub struct Controller {
    pub(crate) vid: u16,
    pub(crate) ssvid: u16,
    pub sn: [u8; 20],
    pub mn: [u8; 40],
    pub fr: [u8; 8],
    pub(crate) rab: u8,
    pub(crate) ieee: [u8; 3],
    pub(crate) cmic: u8,
    pub(crate) mdts: u8,
    pub cntlid: u16,
    pub ver: u32,
    pub(crate) rtd3r: u32,
    pub(crate) rtd3e: u32,
    pub oaes: u32,
    pub(crate) ctratt: u32,
    pub(crate) rrls: u16,
    reserved_102: [u8; 9],
    pub cntrltype: u8,
    pub(crate) fguid: [u8; 16],
    pub(crate) crdt: [u16; 3],
    reserved_134: [u8; 119],
    pub(crate) nvmsr: u8,
    pub(crate) vwci: u8,
    pub(crate) mec: u8,
    pub oacs: u16,
    pub(crate) acl_z: u8,
    pub(crate) aerl_z: u8,
    pub(crate) frmw: u8,
    pub(crate) lpa: u8,
    pub(crate) elpe_z: u8,
    pub(crate) npss_z: u8,
    pub(crate) avscc: u8,
    pub(crate) apsta: u8,
    pub(crate) wctemp: u16,
    pub(crate) cctemp: u16,
    pub(crate) mtfa: u16,
    pub(crate) hmpre: u32,
    pub(crate) hmmin: u32,
    pub(crate) tnvmcap: [u8; 16],
    pub unvmcap: [u8; 16],
    pub(crate) rpmbs: u32,
    pub(crate) edstt: u16,
    pub(crate) dsto: u8,
    pub(crate) fwug: u8,
    pub kas: u16,
    reserved_322: [u8; 20],
    pub(crate) anatt: u8,
    pub(crate) anacap: u8,
    pub(crate) anagrpmax: u32,
    pub(crate) nanagrpid: u32,
    reserved_352: [u8; 160],
    pub(crate) sqes: u8,
    pub(crate) cqes: u8,
    pub(crate) maxcmd: u16,
    pub(crate) nn: u32,
    pub oncs: u16,
    pub(crate) fuses: u16,
    pub(crate) fna: u8,
    pub vwc: u8,
    pub(crate) awun_z: u16,
    pub(crate) awupf_z: u16,
    pub(crate) icsvscc: u8,
    pub(crate) nwpc: u8,
    pub(crate) acwu_z: u16,
    pub(crate) ocfs: u16,
    pub sgls: u32,
    pub(crate) mnan: u32,
    reserved_544: [u8; 224],
    pub subnqn: [u8; 256],
    reserved_1024: [u8; 768],
    pub ioccsz: u32,
    pub(crate) iorcsz: u32,
    pub(crate) icdoff: u16,
    pub(crate) fcatt: u8,
    pub(crate) msdbd: u8,
    pub(crate) ofcs: u16,
    reserved_1806: [u8; 242],
    pub(crate) psd: [[u8; 32]; 32],
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
pub(crate) mod oncs {
    pub(crate) const COMPARE: u16 = 1 << 0;
    pub(crate) const DATASET_MANAGEMENT: u16 = 1 << 2;
    pub(crate) const WRITE_ZEROES: u16 = 1 << 3;
    /// Save and select of features.
    pub(crate) const FEATURE_SELECT: u16 = 1 << 4;
    pub(crate) const RESERVATIONS: u16 = 1 << 5;
    pub(crate) const VERIFY: u16 = 1 << 7;
    pub(crate) const COPY: u16 = 1 << 8;
}

/// Bits of `ctratt`: attributes of the controller.
pub(crate) mod ctratt {
    /// Host identifiers have 16 bytes.
    pub(crate) const HOST_ID_LONG: u32 = 1 << 0;
    /// Any command counts as keep-alive traffic.
    pub(crate) const TRAFFIC_KEEPS_ALIVE: u32 = 1 << 6;
}

/// Optional events (`oaes`): namespaces have changed.
pub(crate) const OAES_NAMESPACES: u32 = 1 << 8;
/// Attributes of a namespace (`nsattr`): it is write protected.
pub(crate) const NSATTR_WRITE_PROTECTED: u8 = 1 << 0;
/// Events that can be enabled (`oaes`, and the feature of events).
pub(crate) mod oaes {
    /// The state of asymmetric access has changed.
    pub(crate) const ANA_CHANGE: u32 = 1 << 11;
}

/// Multiple ports and controllers, and asymmetric access (`cmic`).
pub(crate) mod cmic {
    pub(crate) const PORTS: u8 = 1 << 0;
    pub(crate) const CONTROLLERS: u8 = 1 << 1;
    pub(crate) const ANA: u8 = 1 << 3;
}

/// Bits of `oacs`: optional admin commands.
pub(crate) mod oacs {
    pub(crate) const FORMAT: u16 = 1 << 1;
    /// Namespace Management and Attachment.
    pub(crate) const NAMESPACES: u16 = 1 << 3;
}

/// Bits of `fna`: attributes of Format NVM.
pub(crate) mod fna {
    /// All namespaces at once are not supported.
    pub(crate) const NO_BROADCAST: u8 = 1 << 3;
}

/// Bits of `sgls`: supported SGL descriptors.
pub(crate) mod sgls {
    pub(crate) const SUPPORTED: u32 = 1 << 0;
    /// SGLs may be longer than the data.
    pub(crate) const LONGER: u32 = 1 << 18;
    /// Addresses may be offsets: in the capsule.
    pub(crate) const OFFSETS: u32 = 1 << 20;
}

/// A supported format of logical blocks.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct LbaFormat {
    /// Metadata bytes per block.
    pub ms: u16,
    /// log2 of the block size.
    pub(crate) lbads: u8,
    /// Relative performance; 0 is best.
    pub(crate) rp: u8,
}

/// The structure Identify Namespace, of 4,096 bytes.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, packed)]
#[allow(missing_docs, reason = "the specification's names")]
pub struct Namespace {
    pub nsze: u64,
    pub ncap: u64,
    pub nuse: u64,
    pub(crate) nsfeat: u8,
    pub(crate) nlbaf_z: u8,
    pub flbas: u8,
    pub(crate) mc: u8,
    pub(crate) dpc: u8,
    pub dps: u8,
    pub(crate) nmic: u8,
    pub rescap: u8,
    pub(crate) fpi: u8,
    pub(crate) dlfeat: u8,
    pub(crate) nawun_z: u16,
    pub(crate) nawupf_z: u16,
    pub(crate) nacwu_z: u16,
    pub(crate) nabsn: u16,
    pub(crate) nabo: u16,
    pub(crate) nabspf: u16,
    pub(crate) noiob: u16,
    pub nvmcap: [u8; 16],
    pub(crate) npwg_z: u16,
    pub(crate) npwa_z: u16,
    pub(crate) npdg_z: u16,
    pub(crate) npda_z: u16,
    pub(crate) nows_z: u16,
    pub mssrl: u16,
    pub mcl: u32,
    pub msrc_z: u8,
    reserved_81: [u8; 11],
    pub anagrpid: u32,
    reserved_96: [u8; 3],
    pub nsattr: u8,
    pub nvmsetid: u16,
    pub(crate) endgid: u16,
    pub nguid: [u8; 16],
    pub(crate) eui64: [u8; 8],
    pub(crate) lbaf: [LbaFormat; 64],
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
    pub(crate) wzsl: u8,
    pub(crate) wusl: u8,
    pub(crate) dmrl: u8,
    pub(crate) dmrsl: u32,
    pub(crate) dmsl: u64,
    reserved: [u8; 4080],
}

const _: () = assert!(size_of::<NvmController>() == 4096);

/// I/O Command Set independent Identify Namespace (CNS 08h).
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, packed)]
#[allow(missing_docs, reason = "the specification's names")]
pub struct IndependentNamespace {
    pub(crate) nsfeat: u8,
    pub(crate) nmic: u8,
    pub rescap: u8,
    pub(crate) fpi: u8,
    pub anagrpid: u32,
    pub nsattr: u8,
    reserved: u8,
    pub nvmsetid: u16,
    pub(crate) endgid: u16,
    pub(crate) nstat: u8,
    reserved_15: [u8; 4081],
}

const _: () = assert!(size_of::<IndependentNamespace>() == 4096);

/// All zero: fields not set mean "not supported".
pub(crate) fn blank<T: FromZeros>() -> T {
    T::new_zeroed()
}

/// Text in a fixed-size field, padded with spaces.
pub(crate) fn text<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [b' '; N];
    let len = text.len().min(N);
    field[..len].copy_from_slice(&text.as_bytes()[..len]);
    field
}

/// Types of namespace identification descriptors (CNS 03h).
pub(crate) mod nidt {
    pub(crate) const EUI64: u8 = 1;
    pub(crate) const NGUID: u8 = 2;
    /// The namespace's UUID, of 16 bytes.
    pub(crate) const UUID: u8 = 3;
    /// The namespace's command set.
    pub(crate) const CSI: u8 = 4;
}
