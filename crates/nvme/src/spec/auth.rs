//! In-band authentication by DH-HMAC-CHAP (Base 2.0 §8.13; commands in Base 2.0 §6.1, §6.2).

use bitfield_struct::bitfield;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Dword 0 of Connect's completion.
#[bitfield(u32)]
pub(crate) struct ConnectResult {
    pub cntlid: u16,
    __: bool,
    /// The host must authenticate (ATR).
    pub authentication: bool,
    /// The host must authenticate, and set up a secure channel that way (ASCR).
    pub(crate) secure_channel: bool,
    #[bits(13)]
    __: u16,
}

/// Dword 10 of Authentication Send and Receive.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct SecurityCdw10 {
    __: u8,
    /// Security protocol specific, low byte.
    pub(crate) spsp0: u8,
    pub(crate) spsp1: u8,
    /// Security protocol: E9h for NVMe.
    pub secp: u8,
}

impl SecurityCdw10 {
    /// The protocol of NVMe itself: E9h, 0101h.
    pub const DH_HMAC_CHAP: Self = Self::new().with_secp(0xe9).with_spsp0(1).with_spsp1(1);
}

/// Types of messages.
pub(crate) mod kind {
    pub(crate) const COMMON: u8 = 0x00;
    pub(crate) const DH_HMAC_CHAP: u8 = 0x01;
}

/// Identifiers of messages within their type.
pub(crate) mod message {
    /// Negotiate, host to controller; common.
    pub(crate) const NEGOTIATE: u8 = 0x00;
    /// The challenge, from the controller to the host.
    pub(crate) const CHALLENGE: u8 = 0x01;
    /// The reply, from the host to the controller.
    pub(crate) const REPLY: u8 = 0x02;
    /// Success1: the controller accepts the host.
    pub(crate) const SUCCESS1: u8 = 0x03;
    /// Success2: the host accepts the controller.
    pub(crate) const SUCCESS2: u8 = 0x04;
    /// Failure2, host to controller; common.
    pub(crate) const FAILURE2: u8 = 0xf0;
    /// Failure1, controller to host; common.
    pub(crate) const FAILURE1: u8 = 0xf1;
}

/// Why authentication failed: the explanation (the reason itself is always 1).
pub(crate) mod explanation {
    pub(crate) const FAILED: u8 = 0x01;
    /// The protocol is not usable.
    pub(crate) const NOT_USABLE: u8 = 0x02;
    /// Secure channels do not match.
    pub(crate) const SECURE_CHANNEL: u8 = 0x03;
    /// None of the offered hashes is usable.
    pub(crate) const HASH: u8 = 0x04;
    /// None of the offered groups is usable.
    pub(crate) const GROUP: u8 = 0x05;
    /// The payload of a message is invalid.
    pub(crate) const PAYLOAD: u8 = 0x06;
    /// The message is out of place.
    pub(crate) const MESSAGE: u8 = 0x07;
}

/// The reason code of all failures.
pub(crate) const REASON_FAILED: u8 = 1;
/// Identifier of DH-HMAC-CHAP among protocols.
pub(crate) const PROTOCOL_DH_HMAC_CHAP: u8 = 1;
/// Maximum identifiers of hashes, and of groups, in a protocol's descriptor.
pub(crate) const IDENTIFIERS_MAX: usize = 30;

/// Head of all messages.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Head {
    /// Type of the message (`kind`).
    pub kind: u8,
    pub message: u8,
    pub(crate) reserved: u16,
    /// Number of the transaction, which each message repeats.
    pub(crate) t_id: u16,
}

/// The message Negotiate, up to its descriptors.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Negotiate {
    pub head: Head,
    /// Secure channel wanted; 0 is none.
    pub(crate) secure_channel: u8,
    pub descriptors: u8,
}

/// A protocol supported by the host.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Descriptor {
    pub(crate) protocol: u8,
    pub(crate) reserved: u8,
    pub(crate) hashes_len: u8,
    pub(crate) groups_len: u8,
    pub hashes: [u8; IDENTIFIERS_MAX],
    pub groups: [u8; IDENTIFIERS_MAX],
}

/// Challenge, before the challenge's value and the controller's DH value.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Challenge {
    pub head: Head,
    /// Size of the challenge.
    pub hash_len: u8,
    pub(crate) reserved: u8,
    /// Identifier of the hash chosen.
    pub hash: u8,
    pub group: u8,
    /// Size of the DH value.
    pub dh_len: u16,
    pub sequence: u32,
}

/// Reply, before the response, the host's challenge and its DH value.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Reply {
    pub head: Head,
    /// Size of the response.
    pub hash_len: u8,
    pub(crate) reserved: u8,
    /// 1: the host challenges the controller.
    pub challenges: u8,
    pub(crate) reserved_2: u8,
    /// Size of the DH value.
    pub dh_len: u16,
    pub sequence: u32,
}

/// The message Success1, up to its response.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Success1 {
    pub head: Head,
    /// Size of a response.
    pub hash_len: u8,
    pub(crate) reserved: u8,
    /// 1: there is a response.
    pub(crate) responds: u8,
    pub(crate) reserved_2: [u8; 7],
}

/// The message Success2, which is only a head.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Success2 {
    pub head: Head,
    pub(crate) reserved: [u8; 10],
}

/// The messages Failure1 and Failure2.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Failure {
    pub head: Head,
    pub reason: u8,
    pub explanation: u8,
}

const _: () = assert!(size_of::<Head>() == 6);
const _: () = assert!(size_of::<Negotiate>() == 8 && size_of::<Descriptor>() == 64);
const _: () = assert!(size_of::<Challenge>() == 16 && size_of::<Reply>() == 16);
const _: () = assert!(size_of::<Success1>() == 16 && size_of::<Success2>() == 16);
const _: () = assert!(size_of::<Failure>() == 8);

impl Head {
    /// The head of a message of this transaction.
    pub(crate) const fn new(kind: u8, message: u8, t_id: u16) -> Self {
        Self {
            kind,
            message,
            reserved: 0,
            t_id,
        }
    }
}
