//! Framing of PDUs: parsed from a stream after checking their headers, and written with their
//! digests.
//!
//! Invariant: a PDU returned by `next_pdu` is within the limits, its header digest is correct, and
//! its data have the length in its header; `damaged` tells whether the data digest is wrong.
//! Absent: the meaning of PDUs.

use crate::spec::pdu::{
    COMMON_BYTES, Common, DATA_HEADER_BYTES, DIGEST_BYTES, Data, FatalError, Flags, IC_BYTES, Ic,
    TERM_DATA_MAX, TERM_HEADER_BYTES, kind, offset,
};
use std::ops::Range;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Parameters negotiated by both ends.
#[derive(Clone, Copy, Debug, Default)]
pub struct Agreement {
    /// True if headers have digests.
    pub(crate) hdgst: bool,
    /// True if data have digests.
    pub(crate) ddgst: bool,
    /// Alignment of data that we send, in bytes.
    pub(crate) align: usize,
}

impl Agreement {
    /// From the digest byte and PDA of ICReq and ICResp.
    pub fn new(digest: u8, pda: u8) -> Self {
        Self {
            hdgst: digest & 1 == 1,
            ddgst: digest & 2 == 2,
            // PDA counts dwords, 0's based.
            align: (usize::from(pda) + 1) * 4,
        }
    }

    fn header_digest_bytes(self) -> usize {
        if self.hdgst { DIGEST_BYTES } else { 0 }
    }
}

/// A complete PDU, digests checked.
#[derive(Clone, Copy, Debug)]
pub struct Pdu<'a> {
    /// The common header.
    pub common: Common,
    /// The rest of the header.
    pub header: &'a [u8],
    /// Its data, if any.
    pub data: &'a [u8],
    /// True if the data digest is wrong: the command fails, the connection goes on (TCP 1.0
    /// §3.4.1).
    pub damaged: bool,
}

/// A PDU that ends its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The error reported to the peer.
    pub error: FatalError,
    /// Offset of the field in error, if there is one.
    pub at: u32,
}

impl Fault {
    /// An invalid header field at this offset.
    pub(crate) fn field(at: u32) -> Self {
        Self {
            error: FatalError::HeaderField,
            at,
        }
    }
    /// A parameter that is not supported.
    pub(crate) fn unsupported(at: u32) -> Self {
        Self {
            error: FatalError::Unsupported,
            at,
        }
    }
}

impl From<FatalError> for Fault {
    fn from(error: FatalError) -> Self {
        Self { error, at: 0 }
    }
}

impl Pdu<'_> {
    /// The rest of the header as a record.
    pub fn parse<T: FromBytes + KnownLayout + Immutable>(&self) -> Option<T> {
        T::read_from_bytes(self.header).ok()
    }
}

/// Header size of each kind, and whether it may have data.
fn layout(kind: u8) -> Option<(usize, bool)> {
    Some(match kind {
        kind::IC_REQ | kind::IC_RESP => (IC_BYTES, false),
        kind::H2C_TERM | kind::C2H_TERM => (TERM_HEADER_BYTES, true),
        kind::CAPSULE_CMD => (crate::spec::pdu::CAPSULE_CMD_BYTES, true),
        kind::CAPSULE_RESP => (crate::spec::pdu::CAPSULE_RESP_BYTES, false),
        kind::H2C_DATA | kind::C2H_DATA => (DATA_HEADER_BYTES, true),
        kind::R2T => (DATA_HEADER_BYTES, false),
        _ => return None,
    })
}

/// Returns true for kinds without digests and padding: they precede a negotiation, or follow a
/// failed one.
fn is_plain(kind: u8) -> bool {
    matches!(
        kind,
        kind::IC_REQ | kind::IC_RESP | kind::H2C_TERM | kind::C2H_TERM
    )
}

/// The place of the data in a PDU that is longer than its header with its digest.
fn data_range(
    common: &Common,
    header_end: usize,
    agreed: Agreement,
    data_max: usize,
) -> Result<Range<usize>, Fault> {
    let plen = common.plen as usize;

    // Of the plain kinds only termination requests have data.
    let plain = is_plain(common.kind);
    let start = if plain {
        header_end
    } else {
        // The sender chooses the padding, up to a limit that no alignment exceeds.
        usize::from(common.pdo)
    };
    let tail = if common.flags.ddgst() && !plain {
        DIGEST_BYTES
    } else {
        0
    };
    let end = plen.checked_sub(tail).ok_or(Fault::field(offset::PLEN))?;
    if plen < header_end {
        return Err(Fault::field(offset::PLEN));
    }
    if start < header_end || start - header_end > 256 {
        return Err(Fault::field(offset::PDO));
    }

    // A PDU that is longer than its header has data.
    if end <= start {
        return Err(Fault::field(offset::PLEN));
    }
    if !plain && common.flags.ddgst() != agreed.ddgst {
        return Err(Fault::field(offset::FLAGS));
    }
    if end - start > if plain { TERM_DATA_MAX } else { data_max } {
        return Err(FatalError::LimitExceeded.into());
    }
    Ok(start..end)
}

/// Parses the next PDU of a stream: returns it with its length in bytes, or `None` if more bytes
/// are needed. At most `data_max` bytes of data are accepted.
///
/// # Errors
/// An invalid header, or a wrong header digest.
pub fn next_pdu(
    bytes: &[u8],
    agreed: Agreement,
    data_max: usize,
) -> Result<Option<(Pdu<'_>, usize)>, Fault> {
    let Some(head) = bytes.get(..COMMON_BYTES) else {
        return Ok(None);
    };
    let common = Common::read_from_bytes(head).map_err(|_| Fault::field(offset::KIND))?;
    let (hlen, may_have_data) = layout(common.kind).ok_or(Fault::field(offset::KIND))?;
    if usize::from(common.hlen) != hlen {
        return Err(Fault::field(offset::HLEN));
    }

    // Digests must be present if and only if negotiated.
    let plain = is_plain(common.kind);
    if !plain && common.flags.hdgst() != agreed.hdgst {
        return Err(Fault::field(offset::FLAGS));
    }

    let agreed = if plain { Agreement::default() } else { agreed };
    let header_end = hlen + agreed.header_digest_bytes();
    let plen = common.plen as usize;
    let data_at = if plen == header_end {
        header_end..header_end
    } else if may_have_data {
        data_range(&common, header_end, agreed, data_max)?
    } else {
        return Err(Fault::field(offset::PLEN));
    };

    // All header fields are checked before waiting for the rest.
    if bytes.len() < plen {
        return Ok(None);
    }

    let digest_at = |at: usize| {
        bytes[at..]
            .first_chunk::<4>()
            .map(|digest| u32::from_le_bytes(*digest))
    };
    if agreed.hdgst && digest_at(hlen) != Some(crc32c::crc32c(&bytes[..hlen])) {
        return Err(FatalError::HeaderDigest.into());
    }

    // A damaged header ends the connection: the start of the next PDU is unknown. Damaged data do
    // not.
    let data = &bytes[data_at.clone()];
    let digested = agreed.ddgst && !data.is_empty();
    let damaged = digested && digest_at(data_at.end) != Some(crc32c::crc32c(data));
    Ok(Some((
        Pdu {
            common,
            header: &bytes[COMMON_BYTES..hlen],
            data,
            damaged,
        },
        plen,
    )))
}

/// Appends a PDU without data.
pub fn put<T: IntoBytes + Immutable>(
    out: &mut Vec<u8>,
    kind: u8,
    flags: Flags,
    header: &T,
    agreed: Agreement,
) {
    let start = out.len();
    let hlen = COMMON_BYTES + size_of::<T>();

    let ic = matches!(kind, kind::IC_REQ | kind::IC_RESP);
    // These are sent before anything is negotiated.
    let digest = if ic { 0 } else { agreed.header_digest_bytes() };
    let flags = flags.with_hdgst(digest > 0);

    let common = Common {
        kind,
        flags,
        hlen: hlen as u8,
        pdo: 0,
        plen: (hlen + digest) as u32,
    };

    out.extend_from_slice(common.as_bytes());
    out.extend_from_slice(header.as_bytes());
    put_header_digest(out, start, hlen, digest > 0);
}

fn put_header_digest(out: &mut Vec<u8>, start: usize, hlen: usize, wanted: bool) {
    if wanted {
        let digest = crc32c::crc32c(&out[start..start + hlen]);
        out.extend_from_slice(&digest.to_le_bytes());
    }
}

/// A PDU whose header has been put, and whose data follow.
#[derive(Debug)]
#[must_use = "its digest is missing until `end`"]
pub(crate) struct OpenPdu {
    data_start: usize,
    /// Bytes of data announced in its header.
    len: usize,
    has_digest: bool,
}

impl OpenPdu {
    /// Ends the PDU after all its data have been appended.
    pub(crate) fn end(self, out: &mut Vec<u8>) {
        debug_assert_eq!(out.len() - self.data_start, self.len, "bytes of data");

        if self.has_digest {
            let digest = crc32c::crc32c(&out[self.data_start..]);
            out.extend_from_slice(&digest.to_le_bytes());
        }
    }
}

/// Appends a PDU with data.
pub fn put_data<T: IntoBytes + Immutable>(
    out: &mut Vec<u8>,
    kind: u8,
    flags: Flags,
    header: &T,
    agreed: Agreement,
    data: &[u8],
) {
    let open = begin_data(out, kind, flags, header, agreed, data.len());
    out.extend_from_slice(data);
    open.end(out);
}

/// Appends the header of a PDU whose `len` bytes of data the caller appends.
pub(crate) fn begin_data<T: IntoBytes + Immutable>(
    out: &mut Vec<u8>,
    kind: u8,
    flags: Flags,
    header: &T,
    agreed: Agreement,
    len: usize,
) -> OpenPdu {
    let start = out.len();
    let hlen = COMMON_BYTES + size_of::<T>();

    // Data start at the peer's alignment, and at least at a multiple of 4.
    let pdo = (hlen + agreed.header_digest_bytes()).next_multiple_of(agreed.align.max(4));
    let digest = if agreed.ddgst { DIGEST_BYTES } else { 0 };
    let flags = flags.with_hdgst(agreed.hdgst).with_ddgst(agreed.ddgst);

    let common = Common {
        kind,
        flags,
        hlen: hlen as u8,
        pdo: pdo as u8,
        plen: (pdo + len + digest) as u32,
    };

    out.extend_from_slice(common.as_bytes());
    out.extend_from_slice(header.as_bytes());
    put_header_digest(out, start, hlen, agreed.hdgst);

    // Padding up to the start of the data.
    out.resize(start + pdo, 0);

    OpenPdu {
        data_start: start + pdo,
        len,
        has_digest: agreed.ddgst,
    }
}

/// Appends ICReq or ICResp.
pub fn put_ic(out: &mut Vec<u8>, kind: u8, ic: &Ic) {
    put(out, kind, Flags::new(), ic, Agreement::default());
}

/// Header of a termination request after the common one.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct TermHeader {
    /// Fatal error status.
    pub fes: u16,
    /// Offset of the field in error.
    pub fei: [u8; 4],
    reserved: [u8; 10],
}

const _: () = assert!(COMMON_BYTES + size_of::<TermHeader>() == TERM_HEADER_BYTES);

/// Appends a termination request for a fault in a PDU that starts with `pdu`; its header is
/// returned to the peer.
pub(crate) fn put_term(out: &mut Vec<u8>, kind: u8, fault: Fault, pdu: &[u8]) {
    let term = TermHeader {
        fes: fault.error as u16,
        fei: fault.at.to_le_bytes(),
        reserved: [0; 10],
    };
    let hlen = pdu
        .get(offset::HLEN as usize)
        .copied()
        .map_or(0, usize::from);

    // The header comes from a peer: its length must not exceed the bytes present.
    let header = &pdu[..hlen.clamp(COMMON_BYTES, TERM_DATA_MAX).min(pdu.len())];

    let plen = (TERM_HEADER_BYTES + header.len()) as u32;
    let common = Common {
        kind,
        flags: Flags::new(),
        hlen: TERM_HEADER_BYTES as u8,
        pdo: 0,
        plen,
    };
    out.extend_from_slice(common.as_bytes());
    out.extend_from_slice(term.as_bytes());
    out.extend_from_slice(header);
}

/// The data header of a PDU.
///
/// # Errors
/// Its header has another length.
pub(crate) fn data_header(pdu: &Pdu<'_>) -> Result<Data, Fault> {
    pdu.parse().ok_or(Fault::field(offset::HLEN))
}
