//! The default text output of `blkparse` for a `blktrace` recording.
//!
//! ```text
//! major,minor cpu sequence seconds.nanoseconds pid action rwbs sector + sectors [process]
//! ```
//!
//! A request passes through several actions (queued, issued, completed, ...), each a line. Only the
//! lines of one action are taken, so that a request is replayed once: the named action, or the
//! first of `Q`, `D` and `C` that occurs at the beginning of the file. Among those, the first
//! letter of rwbs decides, after an `F` for a preceding flush: `D` is a discard, `W` a write, `R` a
//! read; flushes, requests without sectors and zone management are ignored, as are all lines that
//! are not events (messages, the summary at the end). The process may be missing everywhere
//! (`blkparse -f`). Times count from [`EARLIEST_NS`]: `blkparse` prints times before its first
//! event as wrapped negative numbers ([`since_earliest`]). Invariant: an event cut by the end of a
//! line or file is malformed. Absent: contents, and remapping between devices (action `A`): the
//! queued lines have it applied.

use super::action::Action;
use super::record::{ByteExtent, Parsed, Reason, RequestKind, clip, number, seconds, words};

/// The action taken, and whether the user named it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub action: Action,
    pub is_named: bool,
}

impl Wanted {
    /// The named action, or the first one at the beginning of the file.
    pub(super) fn of(named: Option<Action>, has: impl Fn(Action) -> bool) -> Self {
        Self {
            action: named
                .or_else(|| Action::ALL.into_iter().find(|action| has(*action)))
                .unwrap_or(Action::Queued),
            is_named: named.is_some(),
        }
    }

    /// Returns true if `action` would have been chosen had it occurred at the beginning of the
    /// file.
    pub(super) fn is_better(self, action: Action) -> bool {
        let rank = |action: Action| Action::ALL.iter().position(|known| *known == action);
        !self.is_named && rank(action) < rank(self.action)
    }

    /// The remark on an action that was not named and is not the first.
    pub(super) fn note(self) -> Option<String> {
        let Self { action, is_named } = self;
        (!is_named && action != Action::Queued).then(|| {
            format!("requests are the events with action {action}: it has none with an action before that (Q, D, C)")
        })
    }
}

/// Why a file cannot be read further with the chosen action.
pub(super) fn better(action: Action, wanted: Action) -> Reason {
    format!(
        "the first event with action {action}: events before it were taken with action {wanted}; say which with \
         --blkparse-action {action} or {wanted}"
    )
}

/// Parser options of a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text {
    pub wanted: Wanted,
    /// Events end with the process, in brackets.
    has_process: bool,
}

impl Text {
    pub(super) fn of(named: Option<Action>, sample: &[u8]) -> Self {
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

/// Time before the first event of a recording from which times are counted; `blkparse` calls that
/// event 0.
const EARLIEST_NS: u64 = 3_600_000_000_000;

/// Converts a recorded time to one that counts from `EARLIEST_NS`.
///
/// An event of another processor may be earlier than the first. Its time is then negative, wrapped
/// to unsigned 64 bits; the text has the lower 32 bits of its seconds.
pub(super) fn since_earliest(at_ns: u64) -> u64 {
    const NS_PER_S: u64 = 1_000_000_000;
    const ZERO_IN_TEXT_NS: u64 = u64::MAX - (4 << 32) * NS_PER_S + 1;

    // Less than an hour before the first event, as 64 bits or as in the text.
    if at_ns > u64::MAX - EARLIEST_NS {
        return EARLIEST_NS - (u64::MAX - at_ns) - 1;
    }
    if (ZERO_IN_TEXT_NS - EARLIEST_NS..ZERO_IN_TEXT_NS).contains(&at_ns) {
        return EARLIEST_NS - (ZERO_IN_TEXT_NS - at_ns);
    }
    at_ns + EARLIEST_NS
}

/// Returns true if `line` is a whole event, of any action.
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
    /// Parses a line; `is_unended` if the file ends within it.
    pub(super) fn parse(self, line: &[u8], is_unended: bool) -> Result<Parsed, Reason> {
        let mut fields = words(line);
        let Some((major, minor)) = fields.next().and_then(device_numbers) else {
            return Ok(Parsed::Ignored); // Not an event: the summary, a message, a dropped-events note.
        };

        let mut field = |name: &str| {
            fields
                .next()
                .ok_or_else(|| format!("cut before the {name}"))
        };

        // Unused fields are checked too: this detects a line that was cut.
        number(field("cpu")?, "cpu")?;
        number(field("sequence number")?, "sequence number")?;
        let at_ns = since_earliest(seconds(field("time")?)?);
        number(field("pid")?, "pid")?;

        // Only one of a request's several actions is taken, so that it is replayed once.
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

        // The process name ends the line: a missing bracket means that the line was cut. Where no
        // line has a process, only the end of the file can have cut it.
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

/// The request kind of an rwbs field; `None` if it neither transfers nor deallocates.
pub(super) fn verb(rwbs: &[u8], action: Action) -> Result<Option<RequestKind>, Reason> {
    // Other letters are of an unknown format.
    if rwbs.is_empty() || !rwbs.iter().all(u8::is_ascii_uppercase) {
        return Err(format!("`{}` is not an rwbs field", clip(rwbs)));
    }

    // A preceding flush comes first, flags come last.
    let request = rwbs.strip_prefix(b"F").unwrap_or(rwbs);
    Ok(match request {
        [b'D', ..] => Some(RequestKind::Trim),
        [b'W', ..] => Some(RequestKind::Write),
        [b'R', ..] => Some(RequestKind::Read),
        // A zone append: its location is known only at completion.
        [b'Z', b'A', ..] if action == Action::Completed => Some(RequestKind::Write),
        // Zone resets and the like, flushes, requests without direction.
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
