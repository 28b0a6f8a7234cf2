//! The text that `blkparse` prints by default for a `blktrace` recording.
//!
//! ```text
//! major,minor cpu sequence seconds.nanoseconds pid action rwbs sector + sectors [process]
//! ```
//!
//! A request passes several actions on its way (queued, issued, completed, ...), each a line. Only
//! the lines of one action are taken, so that a request is replayed once: `Q` unless asked
//! otherwise. Among those, rwbs decides: with `D` it is a discard, else with `W` a write, else with
//! `R` a read; flushes and requests without sectors are ignored, as are all lines that are not
//! events (messages, the summary at the end). Invariant: an event that the end of a line or file
//! cuts is malformed. Absent: contents, and remapping between devices (action `A`): the queued
//! lines have it applied.

use std::fmt;
use std::str::FromStr;

use super::format::UnknownName;
use super::record::{ByteExtent, Parsed, Reason, RequestKind, clip, number, seconds, words};

/// Which step of a request's way through the block layer is taken from a `blkparse` text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// `Q`: queued, as the file system asked for it.
    #[default]
    Queued,
    /// `D`: issued to the driver, after merging and scheduling.
    Issued,
    /// `C`: the request was completed.
    Completed,
}

impl Action {
    fn letter(self) -> &'static str {
        match self {
            Action::Queued => "Q",
            Action::Issued => "D",
            Action::Completed => "C",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.letter())
    }
}

impl FromStr for Action {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        [Action::Queued, Action::Issued, Action::Completed]
            .into_iter()
            .find(|action| action.letter() == name)
            .ok_or_else(|| UnknownName::new("block-layer action", name, "Q, D, C"))
    }
}

/// Whether `line` is a whole event, of any action.
pub(super) fn is_event(line: &[u8]) -> bool {
    let fields: Vec<&[u8]> = words(line).take(7).collect();
    let [device, cpu, sequence, time, pid, action, _rwbs] = fields[..] else {
        return false;
    };
    device_numbers(device).is_some()
        && [cpu, sequence, pid]
            .iter()
            .all(|field| number(field, "").is_ok())
        && seconds(time).is_ok()
        && action.iter().all(u8::is_ascii_alphabetic)
}

pub(super) fn parse(line: &[u8], wanted: Action) -> Result<Parsed, Reason> {
    let mut fields = words(line);
    let Some((major, minor)) = fields.next().and_then(device_numbers) else {
        return Ok(Parsed::Ignored); // Not an event: the summary, a message, a dropped-events note.
    };

    let mut field = |name: &str| {
        fields
            .next()
            .ok_or_else(|| format!("cut before the {name}"))
    };

    // Fields that are not used are checked all the same: a line that is cut shows here.
    number(field("cpu")?, "cpu")?;
    number(field("sequence number")?, "sequence number")?;
    let at_ns = seconds(field("time")?)?;
    number(field("pid")?, "pid")?;

    // A request passes several actions. One of them is taken, so that it is replayed once.
    if field("action")? != wanted.letter().as_bytes() {
        return Ok(Parsed::Ignored);
    }

    let rwbs = field("rwbs")?;
    let verb = match verb(rwbs)? {
        Some(verb) => verb,
        None => return Ok(Parsed::Ignored),
    };

    let sector = field("sector")?;
    if sector.starts_with(b"[") || sector.starts_with(b"(") {
        return Ok(Parsed::Ignored); // A flush, or a command with a payload instead of sectors.
    }

    let sector = number(sector, "sector")?;
    let plus = field("`+`")?;
    if plus != b"+" {
        return Err(format!("`{}` instead of `+`", clip(plus)));
    }

    let sectors = number(field("number of sectors")?, "number of sectors")?;
    field("process")?;
    // The name of the process ends the line: without its bracket the line was cut.
    if !line.trim_ascii_end().ends_with(b"]") {
        return Err("cut within the process".to_owned());
    }

    // A flush that carries no data.
    if sectors == 0 && rwbs.contains(&b'F') {
        return Ok(Parsed::Ignored);
    }

    ByteExtent::of_sectors(sector, sectors)?.request(at_ns, device_key(major, minor), verb)
}

/// What the letters of an rwbs field ask for; `None` if it moves and deallocates nothing.
fn verb(rwbs: &[u8]) -> Result<Option<RequestKind>, Reason> {
    // Other letters are of a format that we do not know.
    if !rwbs.iter().all(u8::is_ascii_uppercase) {
        return Err(format!("`{}` is not an rwbs field", clip(rwbs)));
    }
    // In this order: a discard is a write to the kernel as well.
    Ok(if rwbs.contains(&b'D') {
        Some(RequestKind::Trim)
    } else if rwbs.contains(&b'W') {
        Some(RequestKind::Write)
    } else if rwbs.contains(&b'R') {
        Some(RequestKind::Read)
    } else {
        None
    })
}

fn device_numbers(field: &[u8]) -> Option<(u32, u32)> {
    let comma = field.iter().position(|&byte| byte == b',')?;
    let one = |field| u32::try_from(number(field, "").ok()?).ok();
    Some((one(&field[..comma])?, one(&field[comma + 1..])?))
}

fn device_key(major: u32, minor: u32) -> u64 {
    u64::from(major) * (1 << 32) + u64::from(minor)
}
