//! The recordings of `blktrace`: binary events, each followed by its payload, little-endian.
//!
//! A request passes through several actions; the events of one action are taken, as in a `blkparse`
//! text. Files of one CPU each are merged by `blkparse -d FILE`, which counts times from its first
//! event: an earlier one has a negative time. Invariant: an event has 48 bytes, as asserted, and
//! version 7 of all kernels since 2.6. Absent: contents; every whole page written is new.
//! Recordings of machines of the other byte order.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::action::Action;
use super::blkparse::{Wanted, since_earliest};
use super::record::{ByteExtent, Parsed, Reason, RequestKind};

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct BlktraceEvent {
    magic: U32,
    sequence: U32,
    at_ns: U64,
    sector: U64,
    len_bytes: U32,
    /// The action in the low half, the kind of request in the high half.
    action: U32,
    pid: U32,
    device: U32,
    cpu: U32,
    error: U16,
    payload_bytes: U16,
}

const _: () = assert!(size_of::<BlktraceEvent>() == EVENT_BYTES);

/// Bytes of an event without its payload.
pub(super) const EVENT_BYTES: usize = 48;

const MAGIC: u32 = 0x6561_7407;

const IS_WRITE: u32 = 1 << 1;
const IS_READ: u32 = 1;
const IS_NOTE: u32 = 1 << 10;
const IS_DISCARD: u32 = 1 << 13;

/// Returns true if a file begins with an event.
pub(super) fn is_event(sample: &[u8]) -> bool {
    BlktraceEvent::ref_from_prefix(sample).is_ok_and(|(event, _)| event.magic.get() == MAGIC)
}

/// The action to take, from the events at the beginning of a file.
pub(super) fn wanted(named: Option<Action>, sample: &[u8]) -> Wanted {
    let has = |action| {
        let wanted = Wanted {
            action,
            is_named: true,
        };
        let mut rest = sample;
        while let Some((event, after)) = rest.split_at_checked(EVENT_BYTES)
            && let Ok((parsed, payload)) = parse(event, wanted)
        {
            if matches!(parsed, Parsed::Request(_)) {
                return true;
            }
            rest = after.get(payload..).unwrap_or_default();
        }
        false
    };
    Wanted::of(named, has)
}

/// Parses an event; also returns the length of its payload.
pub(super) fn parse(bytes: &[u8], wanted: Wanted) -> Result<(Parsed, usize), Reason> {
    let event = BlktraceEvent::ref_from_bytes(bytes)
        .map_err(|_| format!("cut: {} of {EVENT_BYTES} bytes", bytes.len()))?;
    // The magic number includes version and byte order.
    match event.magic.get() {
        MAGIC => {}
        other if other.swap_bytes() == MAGIC => {
            return Err("recorded on a machine of the other byte order".into());
        }
        other => {
            return Err(format!(
                "{other:#010x} is not the mark of an event of version 7"
            ));
        }
    }
    // The caller skips it, for every event.
    let payload = usize::from(event.payload_bytes.get());

    // Constants of the kernel's blktrace_api.h: queue, issue and complete.
    let (number, kind) = (event.action.get() & 0xffff, event.action.get() >> 16);
    let action = match number {
        1 => Some(Action::Queued),
        7 => Some(Action::Issued),
        8 => Some(Action::Completed),
        _ => None,
    };
    let Some(action) =
        action.filter(|action| *action == wanted.action || wanted.is_better(*action))
    else {
        return Ok((Parsed::Ignored, payload));
    };

    // In this order: for the kernel a discard is also a write.
    let verb = match kind {
        kind if kind & IS_NOTE != 0 => None,
        kind if kind & IS_DISCARD != 0 => Some(RequestKind::Trim),
        kind if kind & IS_WRITE != 0 => Some(RequestKind::Write),
        kind if kind & IS_READ != 0 => Some(RequestKind::Read),
        _ => None,
    };
    // A flush has no sectors.
    let Some(verb) = verb.filter(|_| event.len_bytes.get() > 0) else {
        return Ok((Parsed::Ignored, payload));
    };
    let extent = ByteExtent {
        len: event.len_bytes.get().into(),
        ..ByteExtent::of_sectors(event.sector.get(), 0)?
    };
    let at_ns = since_earliest(event.at_ns.get());
    match extent.request(at_ns, event.device.get().into(), verb)? {
        Parsed::Request(_) if action != wanted.action => Ok((Parsed::Better(action), payload)),
        parsed => Ok((parsed, payload)),
    }
}
