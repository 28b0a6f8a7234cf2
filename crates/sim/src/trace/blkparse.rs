//! The text that `blkparse` prints by default for a `blktrace` recording.
//!
//! ```text
//! major,minor cpu sequence seconds.nanoseconds pid action rwbs sector + sectors [process]
//! ```
//!
//! A request passes several actions on its way (queued, issued, completed, ...), each a line. Only
//! the lines of one action are taken, so that a request is replayed once: the one that was asked
//! for, or the first of `Q`, `D` and `C` that the beginning of the file has. Among those, rwbs
//! decides by its first letter after that of a flush before it: `D` is a discard, `W` a write, `R` a
//! read; flushes, requests without sectors and what manages zones are ignored, as are all lines that
//! are not events (messages, the summary at the end). The process may be missing everywhere
//! (`blkparse -f`). Times count from [`EARLIEST_NS`]: `blkparse` prints times before its first event
//! as what is left of a negative number ([`since_earliest`]). Invariant: an event that the end of a
//! line or file cuts is malformed. Absent: contents, and remapping between devices (action `A`): the
//! queued lines have it applied.

use std::fmt;
use std::str::FromStr;

use super::format::UnknownName;
use super::record::{ByteExtent, Parsed, Reason, RequestKind, clip, number, seconds, words};

/// Which step of a request's way through the block layer is taken from a `blkparse` text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// `Q`: queued, as the file system asked for it.
    Queued,
    /// `D`: issued to the driver, after merging and scheduling.
    Issued,
    /// `C`: the request was completed.
    Completed,
}

impl Action {
    /// All of them, in the order in which a file is searched for one.
    pub const ALL: [Action; 3] = [Action::Queued, Action::Issued, Action::Completed];

    pub(super) fn letter(self) -> &'static str {
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
        Action::ALL
            .into_iter()
            .find(|action| action.letter() == name)
            .ok_or_else(|| UnknownName::new("block-layer action", name, "Q, D, C"))
    }
}

/// The action that is taken, and whether the user has named it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub action: Action,
    pub is_named: bool,
}

impl Wanted {
    /// Of those that the beginning of a file has, unless one was named.
    pub fn of(named: Option<Action>, has: impl Fn(Action) -> bool) -> Self {
        Self {
            action: named
                .or_else(|| Action::ALL.into_iter().find(|action| has(*action)))
                .unwrap_or(Action::Queued),
            is_named: named.is_some(),
        }
    }

    /// Whether an event of `action` would have been taken, had the beginning of the file had one.
    pub fn is_better(self, action: Action) -> bool {
        let rank = |action: Action| Action::ALL.iter().position(|known| *known == action);
        !self.is_named && rank(action) < rank(self.action)
    }

    /// What is said of an action that was not named and is not the first.
    pub fn note(self) -> Option<String> {
        let Self { action, is_named } = self;
        (!is_named && action != Action::Queued).then(|| {
            format!("requests are the events with action {action}: it has none with an action before that (Q, D, C)")
        })
    }
}

/// Why a file cannot go on being read with the action that was chosen.
pub(super) fn better(action: Action, wanted: Action) -> Reason {
    format!(
        "the first event with action {action}: events before it were taken with action {wanted}; say which with \
         --blkparse-action {action} or {wanted}"
    )
}

/// How the lines of a text are read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text {
    pub wanted: Wanted,
    /// Events end with the process, in brackets.
    has_process: bool,
}

impl Text {
    pub fn of(named: Option<Action>, sample: &[u8]) -> Self {
        let lines = || {
            sample
                .split(|&byte| byte == b'\n')
                .map(<[u8]>::trim_ascii_end)
        };
        let has_process = lines().any(|line| line.contains(&b'[') && is_event(line));

        let has = |action| {
            let wanted = Wanted {
                action,
                is_named: true,
            };
            let text = Text {
                wanted,
                has_process,
            };
            lines().any(|line| matches!(text.parse(line, false), Ok(Parsed::Request(_))))
        };
        Self {
            wanted: Wanted::of(named, has),
            has_process,
        }
    }
}

/// Times are counted from this long before the first event of a recording, which `blkparse` calls 0.
const EARLIEST_NS: u64 = 3_600_000_000_000;

/// A recorded time that counts from `EARLIEST_NS`.
///
/// An event of another processor may be earlier than the first. Its time is then a negative number
/// in 64 bits without a sign; of its seconds, the text has the lower 32 bits.
pub(super) fn since_earliest(at_ns: u64) -> u64 {
    const NS_PER_S: u64 = 1_000_000_000;
    const ZERO_IN_TEXT_NS: u64 = u64::MAX - (4 << 32) * NS_PER_S + 1;

    // Before the first event by less than an hour, as 64 bits or as the text has it.
    if at_ns > u64::MAX - EARLIEST_NS {
        return EARLIEST_NS - (u64::MAX - at_ns) - 1;
    }
    if (ZERO_IN_TEXT_NS - EARLIEST_NS..ZERO_IN_TEXT_NS).contains(&at_ns) {
        return EARLIEST_NS - (ZERO_IN_TEXT_NS - at_ns);
    }
    at_ns + EARLIEST_NS
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

impl Text {
    /// What a line says; `is_unended` if the file ends in it.
    pub fn parse(self, line: &[u8], is_unended: bool) -> Result<Parsed, Reason> {
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
        let at_ns = since_earliest(seconds(field("time")?)?);
        number(field("pid")?, "pid")?;

        // A request passes several actions. One of them is taken, so that it is replayed once.
        let found = field("action")?;
        let known = Action::ALL.into_iter();
        let action = match known
            .into_iter()
            .find(|known| known.letter().as_bytes() == found)
        {
            Some(action) if action == self.wanted.action || self.wanted.is_better(action) => action,
            _ => return Ok(Parsed::Ignored),
        };

        let rwbs = field("rwbs")?;
        let verb = match verb(rwbs, action)? {
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

        // The name of the process ends the line: without its bracket the line was cut. Where no line
        // has one, only the end of the file can have cut it.
        if self.has_process {
            field("process")?;
            if !line.trim_ascii_end().ends_with(b"]") {
                return Err("cut within the process".to_owned());
            }
        } else if is_unended {
            return Err("the file ends within the line".to_owned());
        }

        let device = device_key(major, minor);
        match ByteExtent::of_sectors(sector, sectors)?.request(at_ns, device, verb)? {
            Parsed::Request(_) if action != self.wanted.action => Ok(Parsed::Better(action)),
            parsed => Ok(parsed),
        }
    }
}

/// What the letters of an rwbs field ask for; `None` if it moves and deallocates nothing.
pub(super) fn verb(rwbs: &[u8], action: Action) -> Result<Option<RequestKind>, Reason> {
    // Other letters are of a format that we do not know.
    if rwbs.is_empty() || !rwbs.iter().all(u8::is_ascii_uppercase) {
        return Err(format!("`{}` is not an rwbs field", clip(rwbs)));
    }

    // A flush before the request comes first, flags come after it.
    let request = rwbs.strip_prefix(b"F").unwrap_or(rwbs);
    Ok(match request {
        [b'D', ..] => Some(RequestKind::Trim),
        [b'W', ..] => Some(RequestKind::Write),
        [b'R', ..] => Some(RequestKind::Read),
        // An append to a zone: only when it has completed is it known where.
        [b'Z', b'A', ..] if action == Action::Completed => Some(RequestKind::Write),
        // Resets and the like of zones, flushes, what has no direction.
        _ => None,
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
