//! PDUs of NVMe/TCP (TCP Transport 1.0 §3.6).

use bitfield_struct::bitfield;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// PDU types, in the first byte of each PDU.
#[allow(missing_docs, reason = "the specification's names")]
pub mod kind {
    pub const IC_REQ: u8 = 0x00;
    pub const IC_RESP: u8 = 0x01;
    pub(crate) const H2C_TERM: u8 = 0x02;
    pub const C2H_TERM: u8 = 0x03;
    pub const CAPSULE_CMD: u8 = 0x04;
    pub const CAPSULE_RESP: u8 = 0x05;
    pub const H2C_DATA: u8 = 0x06;
    pub const C2H_DATA: u8 = 0x07;
    pub const R2T: u8 = 0x09;
}

/// The flags in a PDU's header.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct Flags {
    /// A header digest follows the header.
    pub(crate) hdgst: bool,
    /// A data digest follows the data.
    pub(crate) ddgst: bool,
    /// Last data of the command.
    pub last: bool,
    /// The command was successful, and no response follows.
    pub success: bool,
    #[bits(4)]
    __: u8,
}

/// The common header of all PDUs.
#[allow(missing_docs, reason = "the specification's names")]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Common {
    pub kind: u8,
    pub flags: Flags,
    pub(crate) hlen: u8,
    pub(crate) pdo: u8,
    pub(crate) plen: u32,
}

/// Size of the common header.
pub(crate) const COMMON_BYTES: usize = size_of::<Common>();
const _: () = assert!(COMMON_BYTES == 8);

/// ICReq and ICResp after the common header.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Ic {
    /// PDU format version; only 0 exists.
    pub pfv: u16,
    /// Requested data alignment, in dwords, 0's based.
    pub pda: u8,
    /// Bit 0 header digests, bit 1 data digests.
    pub digest: u8,
    /// ICReq: maximum outstanding R2Ts, 0's based. ICResp: maximum data bytes of one H2CData.
    pub max: u32,
    reserved: [u8; 112],
}

/// Size of ICReq and ICResp.
pub(crate) const IC_BYTES: usize = COMMON_BYTES + size_of::<Ic>();
const _: () = assert!(IC_BYTES == 128);

impl Ic {
    /// A request or a response.
    pub fn new(pda: u8, digest: u8, max: u32) -> Self {
        Self {
            pfv: 0,
            pda,
            digest,
            max,
            reserved: [0; 112],
        }
    }
}

/// H2CData, C2HData and R2T after the common header.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Data {
    /// Identifier of the command.
    pub cid: u16,
    /// Transfer tag, assigned by the controller.
    pub ttag: u16,
    /// Offset in the command's data.
    pub offset: u32,
    pub length: u32,
    reserved: u32,
}

/// Header size of H2CData, C2HData and R2T.
pub(crate) const DATA_HEADER_BYTES: usize = COMMON_BYTES + size_of::<Data>();
const _: () = assert!(DATA_HEADER_BYTES == 24);

impl Data {
    /// A piece of a command's data.
    pub fn new(cid: u16, ttag: u16, offset: u32, length: u32) -> Self {
        Self {
            cid,
            ttag,
            offset,
            length,
            reserved: 0,
        }
    }
}

/// Header size of a command capsule and of a response capsule.
pub(crate) const CAPSULE_CMD_BYTES: usize = COMMON_BYTES + 64;
pub(crate) const CAPSULE_RESP_BYTES: usize = COMMON_BYTES + 16;
/// Size of a digest (CRC-32C).
pub(crate) const DIGEST_BYTES: usize = 4;
/// Header size of a termination request.
pub(crate) const TERM_HEADER_BYTES: usize = 24;

/// Maximum bytes of a PDU's header that a termination request returns.
pub(crate) const TERM_DATA_MAX: usize = 128;

/// Offsets of fields in a PDU, for the field in error of a termination request.
pub(crate) mod offset {
    /// Of all PDUs: the type.
    pub(crate) const KIND: u32 = 0;
    pub(crate) const FLAGS: u32 = 1;
    /// Of all PDUs: header length.
    pub(crate) const HLEN: u32 = 2;
    /// Of all PDUs: data offset.
    pub(crate) const PDO: u32 = 3;
    /// Of all PDUs: length, including data and digests.
    pub(crate) const PLEN: u32 = 4;
    /// Of ICReq: the format version.
    pub(crate) const PFV: u32 = 8;
    /// Of ICReq: the alignment of data.
    pub(crate) const HPDA: u32 = 10;
    /// Of H2CData: the command identifier.
    pub(crate) const CID: u32 = 8;
    /// Of H2CData: the transfer tag.
    pub(crate) const TTAG: u32 = 10;
}

/// Fatal errors of a termination request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum FatalError {
    /// Invalid PDU Header Field: a value not allowed in this type of PDU.
    HeaderField = 1,
    /// PDU Sequence Error: a PDU that is not allowed now.
    Sequence = 2,
    /// Header Digest Error: the CRC of a PDU header does not match.
    HeaderDigest = 3,
    /// Data Transfer Out of Range: data beyond the range of the command or the R2T.
    OutOfRange = 4,
    /// Data Transfer Limit Exceeded: more data in a PDU than agreed.
    LimitExceeded = 5,
    /// Unsupported Parameter: an unsupported option in the connection's setup.
    Unsupported = 6,
}
