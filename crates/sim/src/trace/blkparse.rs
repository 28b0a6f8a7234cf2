//! The text that `blkparse` prints by default for a `blktrace` recording.
//!
//! ```text
//! major,minor cpu sequence seconds.nanoseconds pid action rwbs sector + sectors [process]
//! ```
//!
//! A request passes several actions on its way (queued, issued, completed, ...), each a line. Only
//! the lines of one action are taken, so that a request is replayed once: `Q` unless asked otherwise.
//! Among those, rwbs decides: with `D` it is a discard, else with `W` a write, else with `R` a read;
//! flushes and requests without sectors are ignored, as are all lines that are not events (messages,
//! the summary at the end). Invariant: an event that the end of a line or file cuts is malformed.
//! Absent: contents, and remapping between devices (action `A`): the queued lines have it applied.

use std::fmt;
use std::str::FromStr;

use super::format::UnknownName;
use super::record::{Extent, Parsed, Reason, Verb, clip, number};

/// Which step of a request's way through the block layer is taken from a `blkparse` text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// `Q`: queued, as the file system asked for it.
    #[default]
    Queued,
    /// `D`: issued to the driver, after merging and scheduling.
    Issued,
    /// `C`: completed.
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
pub(super) fn is_event(line: &str) -> bool {
    let fields: Vec<&str> = line.split_ascii_whitespace().take(7).collect();
    let [device, cpu, sequence, time, pid, action, _rwbs] = fields[..] else {
        return false;
    };
    device_numbers(device).is_some()
        && [cpu, sequence, pid]
            .iter()
            .all(|field| number(field, "").is_ok())
        && seconds(time).is_ok()
        && action.bytes().all(|byte| byte.is_ascii_alphabetic())
}

pub(super) fn parse(line: &str, wanted: Action) -> Result<Parsed, Reason> {
    let mut fields = line.split_ascii_whitespace();
    let Some((major, minor)) = fields.next().and_then(device_numbers) else {
        return Ok(Parsed::Ignored); // Not an event: the summary, a message, a dropped-events note.
    };
    let mut field = |name: &str| {
        fields
            .next()
            .ok_or_else(|| format!("cut before the {name}"))
    };
    number(field("cpu")?, "cpu")?;
    number(field("sequence number")?, "sequence number")?;
    let at_ns = seconds(field("time")?)?;
    number(field("pid")?, "pid")?;
    if field("action")? != wanted.letter() {
        return Ok(Parsed::Ignored);
    }
    let rwbs = field("rwbs")?;
    let verb = match verb(rwbs)? {
        Some(verb) => verb,
        None => return Ok(Parsed::Ignored),
    };
    let sector = field("sector")?;
    if sector.starts_with(['[', '(']) {
        return Ok(Parsed::Ignored); // A flush, or a command with a payload instead of sectors.
    }
    let sector = number(sector, "sector")?;
    let plus = field("`+`")?;
    if plus != "+" {
        return Err(format!("`{}` instead of `+`", clip(plus)));
    }
    let sectors = number(field("number of sectors")?, "number of sectors")?;
    field("process")?;
    if !line.trim_end().ends_with(']') {
        return Err("cut within the process".to_owned());
    }
    if sectors == 0 && rwbs.contains('F') {
        return Ok(Parsed::Ignored);
    }
    Extent::of_sectors(sector, sectors)?.request(at_ns, device_key(major, minor), verb)
}

/// What the letters of an rwbs field ask for; `None` if it moves and deallocates nothing.
fn verb(rwbs: &str) -> Result<Option<Verb>, Reason> {
    if !rwbs.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return Err(format!("`{}` is not an rwbs field", clip(rwbs)));
    }
    Ok(if rwbs.contains('D') {
        Some(Verb::Trim)
    } else if rwbs.contains('W') {
        Some(Verb::Write)
    } else if rwbs.contains('R') {
        Some(Verb::Read)
    } else {
        None
    })
}

fn device_numbers(field: &str) -> Option<(u32, u32)> {
    let (major, minor) = field.split_once(',')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn device_key(major: u32, minor: u32) -> u64 {
    u64::from(major) * (1 << 32) + u64::from(minor)
}

/// `seconds.fraction`, the fraction of one to nine digits, in nanoseconds.
fn seconds(field: &str) -> Result<u64, Reason> {
    const NS_PER_S: u64 = 1_000_000_000;
    let not_time = || format!("time `{}` is not seconds.nanoseconds", clip(field));
    let (whole, fraction) = field.split_once('.').ok_or_else(not_time)?;
    let digits = u32::try_from(fraction.len()).map_err(|_| not_time())?;
    let scale = 9u32
        .checked_sub(digits)
        .map(|missing| 10u64.pow(missing))
        .ok_or_else(not_time)?;
    let whole: u64 = whole.parse().map_err(|_| not_time())?;
    let fraction: u64 = fraction.parse().map_err(|_| not_time())?;
    whole
        .checked_mul(NS_PER_S)
        .and_then(|ns| ns.checked_add(fraction * scale))
        .ok_or_else(not_time)
}
