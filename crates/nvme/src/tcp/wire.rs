//! PDUs as bytes: cut out of a stream after their headers were checked, and written with their digests.
//!
//! Invariant: a PDU that `cut` returns lies within the limits given, its digests fit, and its data are as long as its
//! header says. Absent: what PDUs mean.

use crate::spec::pdu::{
    COMMON_BYTES, Common, DATA_HEADER_BYTES, DIGEST_BYTES, Data, FatalError, Flags, IC_BYTES, Ic, TERM_HEADER_BYTES,
    kind,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What both ends agreed on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Agreement {
    /// Headers have digests.
    pub hdgst: bool,
    /// Data have digests.
    pub ddgst: bool,
    /// What we send is aligned to this many bytes.
    pub align: usize,
}

impl Agreement {
    /// As the digest byte of ICReq and ICResp says.
    pub fn new(digest: u8, pda: u8) -> Self {
        Self { hdgst: digest & 1 == 1, ddgst: digest & 2 == 2, align: (usize::from(pda) + 1) * 4 }
    }

    fn header_digest_bytes(self) -> usize {
        if self.hdgst { DIGEST_BYTES } else { 0 }
    }
}

/// A whole PDU.
#[derive(Clone, Copy, Debug)]
pub struct Pdu<'a> {
    /// Common header.
    pub common: Common,
    /// The rest of the header.
    pub header: &'a [u8],
    /// Data.
    pub data: &'a [u8],
}

impl Pdu<'_> {
    /// The rest of the header as a record.
    pub fn parse<T: FromBytes + KnownLayout + Immutable>(&self) -> Option<T> {
        T::read_from_bytes(self.header).ok()
    }
}

/// Header bytes of each kind, and whether it may have data.
fn shape(kind: u8) -> Option<(usize, bool)> {
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

/// Cuts the next PDU off a stream: it and its length, or `None` if more bytes are needed. At most `data_max` bytes of
/// data are accepted.
///
/// # Errors
/// A header that cannot be, or a digest that does not fit.
pub fn cut(bytes: &[u8], agreed: Agreement, data_max: usize) -> Result<Option<(Pdu<'_>, usize)>, FatalError> {
    let Some(head) = bytes.get(..COMMON_BYTES) else { return Ok(None) };
    let common = Common::read_from_bytes(head).map_err(|_| FatalError::HeaderField)?;
    let (hlen, may_have_data) = shape(common.kind).ok_or(FatalError::HeaderField)?;
    if usize::from(common.hlen) != hlen {
        return Err(FatalError::HeaderField);
    }
    let is_ic = matches!(common.kind, kind::IC_REQ | kind::IC_RESP);
    let is_term = matches!(common.kind, kind::H2C_TERM | kind::C2H_TERM);
    let plain = is_ic || is_term;
    let header_end = hlen + if plain { 0 } else { agreed.header_digest_bytes() };
    let plen = common.plen as usize;
    // Digests are there exactly if they were agreed on.
    if !plain && common.flags.hdgst() != agreed.hdgst {
        return Err(FatalError::HeaderField);
    }
    let (data_start, data_end) = if plen == header_end {
        (header_end, header_end)
    } else {
        let start = if is_term { hlen } else { usize::from(common.pdo) };
        let tail = if common.flags.ddgst() && !plain { DIGEST_BYTES } else { 0 };
        let end = plen.checked_sub(tail).ok_or(FatalError::HeaderField)?;
        if !may_have_data || start < header_end || end <= start || start - header_end > 256 {
            return Err(FatalError::HeaderField);
        }
        if !plain && common.flags.ddgst() != agreed.ddgst {
            return Err(FatalError::HeaderField);
        }
        if end - start > if is_term { 152 } else { data_max } {
            return Err(FatalError::LimitExceeded);
        }
        (start, end)
    };
    if bytes.len() < plen {
        return Ok(None);
    }
    let digest_at = |at: usize| bytes[at..].first_chunk::<4>().map(|digest| u32::from_le_bytes(*digest));
    if !plain && agreed.hdgst && digest_at(hlen) != Some(crc32c::crc32c(&bytes[..hlen])) {
        return Err(FatalError::HeaderDigest);
    }
    let data = &bytes[data_start..data_end];
    if !plain && agreed.ddgst && !data.is_empty() && digest_at(data_end) != Some(crc32c::crc32c(data)) {
        return Err(FatalError::OutOfRange);
    }
    Ok(Some((Pdu { common, header: &bytes[COMMON_BYTES..hlen], data }, plen)))
}

/// Appends a PDU without data.
pub fn put<T: IntoBytes + Immutable>(out: &mut Vec<u8>, kind: u8, flags: Flags, header: &T, agreed: Agreement) {
    let start = out.len();
    let hlen = COMMON_BYTES + size_of::<T>();
    let ic = matches!(kind, kind::IC_REQ | kind::IC_RESP);
    let digest = if ic { 0 } else { agreed.header_digest_bytes() };
    let flags = flags.with_hdgst(digest > 0);
    let common = Common { kind, flags, hlen: hlen as u8, pdo: 0, plen: (hlen + digest) as u32 };
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

/// Appends a PDU whose `len` bytes of data `fill` appends.
pub fn put_data<T: IntoBytes + Immutable, R>(
    out: &mut Vec<u8>,
    kind: u8,
    flags: Flags,
    header: &T,
    agreed: Agreement,
    len: usize,
    fill: impl FnOnce(&mut Vec<u8>) -> R,
) -> R {
    let start = out.len();
    let hlen = COMMON_BYTES + size_of::<T>();
    let pdo = (hlen + agreed.header_digest_bytes()).next_multiple_of(agreed.align.max(4));
    let digest = if agreed.ddgst { DIGEST_BYTES } else { 0 };
    let flags = flags.with_hdgst(agreed.hdgst).with_ddgst(agreed.ddgst);
    let common = Common { kind, flags, hlen: hlen as u8, pdo: pdo as u8, plen: (pdo + len + digest) as u32 };
    out.extend_from_slice(common.as_bytes());
    out.extend_from_slice(header.as_bytes());
    put_header_digest(out, start, hlen, agreed.hdgst);
    out.resize(start + pdo, 0);
    let result = fill(out);
    let have = out.len() - start - pdo;
    debug_assert!(have == len || have == 0, "{have} bytes of {len}");
    if agreed.ddgst {
        let digest = crc32c::crc32c(&out[start + pdo..]);
        out.extend_from_slice(&digest.to_le_bytes());
    }
    result
}

/// Appends ICReq or ICResp.
pub fn put_ic(out: &mut Vec<u8>, kind: u8, ic: &Ic) {
    put(out, kind, Flags::new(), ic, Agreement::default());
}

/// Header of a termination request behind the common one.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Term {
    /// Fatal error status.
    pub fes: u16,
    /// Where in the header.
    pub fei: [u8; 4],
    reserved: [u8; 10],
}

const _: () = assert!(COMMON_BYTES + size_of::<Term>() == TERM_HEADER_BYTES);

/// Appends a termination request.
pub fn put_term(out: &mut Vec<u8>, kind: u8, error: FatalError) {
    let term = Term { fes: error as u16, fei: [0; 4], reserved: [0; 10] };
    put(out, kind, Flags::new(), &term, Agreement::default());
}

/// The data header of a PDU.
pub fn data_header(pdu: &Pdu<'_>) -> Result<Data, FatalError> {
    pdu.parse().ok_or(FatalError::HeaderField)
}
