//! Fabrics commands and properties (Base 2.0 §3.1.3, §6).

use bitfield_struct::bitfield;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Type of a fabrics command, in byte 4 of the entry.
pub mod kind {
    pub const PROPERTY_SET: u8 = 0x00;
    pub const CONNECT: u8 = 0x01;
    pub(crate) const PROPERTY_GET: u8 = 0x04;
    pub(crate) const AUTH_SEND: u8 = 0x05;
    pub(crate) const AUTH_RECEIVE: u8 = 0x06;
    pub(crate) const DISCONNECT: u8 = 0x08;
}

/// Offsets of fabrics properties.
#[allow(missing_docs, reason = "the specification's names")]
pub mod property {
    pub const CAP: u32 = 0x00;
    pub const VS: u32 = 0x08;
    pub const CC: u32 = 0x14;
    pub(crate) const CSTS: u32 = 0x1c;
    pub const CRTO: u32 = 0x68;
}

/// The discovery service (Fabrics 1.1 §5).
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// Data of a Connect command.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ConnectData {
    pub hostid: [u8; 16],
    /// Controller ID requested; 0xffff for a new controller.
    pub cntlid: u16,
    reserved: [u8; 238],
    pub subnqn: [u8; 256],
    pub hostnqn: [u8; 256],
    reserved_2: [u8; 256],
}

const _: () = assert!(size_of::<ConnectData>() == 1024);

impl ConnectData {
    /// Connect data sent by a host.
    pub fn new(hostid: [u8; 16], cntlid: u16, subnqn: &str, hostnqn: &str) -> Self {
        // A qualified name has at most 223 bytes, though the field is longer.
        let field = |text: &str| {
            let mut bytes = [0; 256];
            bytes[..text.len().min(223)].copy_from_slice(&text.as_bytes()[..text.len().min(223)]);
            bytes
        };
        let (subnqn, hostnqn) = (field(subnqn), field(hostnqn));
        Self {
            hostid,
            cntlid,
            reserved: [0; 238],
            subnqn,
            hostnqn,
            reserved_2: [0; 256],
        }
    }
}

/// Dword 11 of the command Connect.
#[bitfield(u32)]
pub(crate) struct ConnectCdw11 {
    /// Submission queue entries, 0's based.
    pub(crate) sqsize_z: u16,
    /// Attributes: bit 2 disables flow control.
    pub(crate) cattr: u8,
    __: u8,
}

/// Controller capabilities (Base 2.0 §3.1.3.1).
#[bitfield(u64)]
pub(crate) struct Cap {
    /// Maximum queue entries, 0's based.
    pub(crate) mqes_z: u16,
    /// True if queues must be physically contiguous.
    pub(crate) cqr: bool,
    #[bits(2)]
    pub(crate) ams: u8,
    #[bits(5)]
    __: u8,
    /// Maximum time to become ready, in half seconds.
    pub to: u8,
    #[bits(4)]
    pub(crate) dstrd: u8,
    pub(crate) nssrs: bool,
    pub(crate) css_nvm: bool,
    #[bits(5)]
    __: u8,
    /// I/O command sets are listed by Identify.
    pub(crate) css_iocs: bool,
    pub(crate) css_admin: bool,
    #[bits(14)]
    __: u32,
    /// Ready with media mode (CRMS.CRWMS).
    pub(crate) crms_with_media: bool,
    /// Ready independent of media mode (CRMS.CRIMS).
    pub(crate) crms_independent: bool,
    #[bits(3)]
    __: u8,
}

/// Ready time-outs (Base 2.0 §3.1.3.23).
#[bitfield(u32)]
pub(crate) struct Crto {
    /// Maximum time to become ready with media, in half seconds.
    pub(crate) with_media: u16,
    /// Maximum time to become ready without media, in half seconds.
    pub(crate) independent: u16,
}

/// Controller configuration (Base 2.0 §3.1.3.5).
#[bitfield(u32)]
pub struct Cc {
    /// True if the controller is enabled.
    pub en: bool,
    #[bits(3)]
    __: u8,
    /// Command sets selected; 0 is the NVM command set, the only possible one.
    #[bits(3)]
    pub css: u8,
    /// Memory pages of `2^(12 + mps)` bytes.
    #[bits(4)]
    pub(crate) mps: u8,
    #[bits(3)]
    pub(crate) ams: u8,
    /// Shutdown notification by the host.
    #[bits(2)]
    pub shn: u8,
    #[bits(4)]
    pub iosqes: u8,
    #[bits(4)]
    pub iocqes: u8,
    __: u8,
}

/// Controller status (Base 2.0 §3.1.3.6).
#[bitfield(u32)]
pub struct Csts {
    /// True if the controller accepts commands.
    pub rdy: bool,
    /// True if it has failed and must be reset.
    pub cfs: bool,
    /// Shutdown: 0 none, 1 in progress, 2 complete.
    #[bits(2)]
    pub shst: u8,
    #[bits(28)]
    __: u32,
}

/// An entry of the discovery log.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct DiscoveryEntry {
    /// Transport type: 3 is TCP.
    pub(crate) trtype: u8,
    /// Address family: 1 IPv4, 2 IPv6.
    pub adrfam: u8,
    /// 2 is an NVM subsystem.
    pub(crate) subtype: u8,
    /// Transport requirements: 1 if a host must use a secure channel, 2 if it need not.
    pub treq: u8,
    pub portid: u16,
    /// 0xffff: controllers are created at Connect, so none can be named.
    pub cntlid: u16,
    /// Most entries of an admin queue.
    pub(crate) asqsz: u16,
    reserved: [u8; 22],
    /// The port, as decimal text.
    pub trsvcid: [u8; 32],
    reserved_2: [u8; 192],
    pub subnqn: [u8; 256],
    /// The address, as text.
    pub traddr: [u8; 256],
    /// Transport specific address subtype.
    pub(crate) tsas: [u8; 256],
}

const _: () = assert!(size_of::<DiscoveryEntry>() == 1024);

impl DiscoveryEntry {
    /// A subsystem at a TCP address.
    pub(crate) fn tcp(address: &std::net::SocketAddr, subnqn: &str) -> Self {
        fn field<const N: usize>(text: &str) -> [u8; N] {
            let mut bytes = [0; N];
            let len = text.len().min(N - 1);
            bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
            bytes
        }

        Self {
            trtype: 3,
            adrfam: if address.is_ipv4() { 1 } else { 2 },
            subtype: 2,
            treq: 2,
            portid: 1,
            cntlid: 0xffff,
            asqsz: 32,
            reserved: [0; 22],
            trsvcid: field(&address.port().to_string()),
            reserved_2: [0; 192],
            subnqn: field(subnqn),
            traddr: field(&address.ip().to_string()),
            tsas: [0; 256],
        }
    }

    /// The entry with TLS 1.3 required (TREQ 1; SECTYPE 2 of the address subtype of TCP).
    #[must_use]
    pub(crate) fn by_tls(mut self) -> Self {
        self.treq = 1;
        self.tsas[0] = 2;
        self
    }
}
