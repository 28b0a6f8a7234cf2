//! The output of fio's `write_iolog`, versions 2 and 3: text, detected by its first line.
//!
//! ```text
//! fio version 2 iolog                    fio version 3 iolog
//! file action                            us file action                     add, open, close
//! file action offset(B) length(B)        us file action offset(B) length(B) read, write, trim, sync, ...
//! file wait us 0
//! ```
//!
//! Version 2 has no times except those of `wait`, which count from the previous wait. Each file is
//! a separate device. Concatenated logs are sections: at a further first line times continue from
//! the end of the previous section. Absent: contents; every whole page written is new. Job files:
//! they are no traces.

use std::hash::Hasher;

use rustc_hash::FxHasher;

use super::record::{ByteExtent, Parsed, Reason, RequestKind, clip, number, words};

const TICK_NS: u64 = 1000;

#[derive(Debug, Default)]
pub(super) struct Log {
    version: Option<IologVersion>,
    /// Of version 2: total waiting time so far.
    waited_us: u64,
    /// Begin of this section, and the latest time of any so far.
    begin_us: u64,
    latest_us: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IologVersion {
    Two,
    Three,
}

/// Returns true for the first line of a log.
pub(super) fn is_header(line: &[u8]) -> bool {
    version(line).is_some()
}

fn version(line: &[u8]) -> Option<IologVersion> {
    match line.trim_ascii() {
        b"fio version 2 iolog" => Some(IologVersion::Two),
        b"fio version 3 iolog" => Some(IologVersion::Three),
        _ => None,
    }
}

impl Log {
    pub(super) fn parse(&mut self, line: &[u8]) -> Result<Parsed, Reason> {
        // The first line decides; without it the columns would be ambiguous.
        let Some(known) = self.version else {
            self.version = version(line);
            return match self.version {
                Some(_) => Ok(Parsed::Blank),
                None => Err(format!(
                    "the first line is `{}` and not `fio version 2 iolog` or `fio version 3 iolog`",
                    clip(line)
                )),
            };
        };

        // Another log begins, of either version.
        if let Some(version) = version(line) {
            (self.version, self.waited_us) = (Some(version), 0);
            self.begin_us = self.latest_us;
            return Ok(Parsed::Blank);
        }

        let mut fields = words(line);
        let mut next = |name: &str| {
            fields
                .next()
                .ok_or_else(|| format!("cut before the {name}"))
        };

        // Version 2 has separate lines for time; version 3 puts it before each action.
        let at_us = match known {
            IologVersion::Two => self.waited_us,
            IologVersion::Three => number(next("timestamp")?, "timestamp")?,
        };
        let file = next("file")?;
        let action = next("action")?;
        let too_large = || format!("timestamp {at_us} us is too large");
        let since_us = self.begin_us.checked_add(at_us).ok_or_else(too_large)?;
        let at_ns = since_us.checked_mul(TICK_NS).ok_or_else(too_large)?;

        let verb = match action {
            // They list the files; the actions name theirs anyway.
            b"add" | b"open" | b"close" | b"unlink" => return Ok(Parsed::Ignored),
            b"wait" => {
                let wait_us = number(next("time to wait")?, "time to wait")?;
                self.waited_us = self
                    .waited_us
                    .checked_add(wait_us)
                    .ok_or("the times to wait add up to too much")?;
                return Ok(Parsed::Ignored);
            }
            b"sync" | b"datasync" | b"syncfs" => return Ok(Parsed::Flush(at_ns)),
            // It writes back page cache, and does not flush the device.
            b"sync_file_range" => return Ok(Parsed::Ignored),
            b"read" => RequestKind::Read,
            b"write" => RequestKind::Write,
            b"trim" => RequestKind::Trim,
            other => return Err(format!("`{}` is no action of fio", clip(other))),
        };
        let extent = ByteExtent {
            offset: number(next("offset")?, "offset")?,
            len: number(next("length")?, "length")?,
        };

        // An extra field means another version, or two lines run together.
        match fields.next() {
            Some(more) => Err(format!("more than a length: `{}`", clip(more))),
            None => {
                let parsed = extent.request(at_ns, device(file), verb)?;
                self.latest_us = self.latest_us.max(since_us);
                Ok(parsed)
            }
        }
    }
}

/// Hashes a file name.
fn device(file: &[u8]) -> u64 {
    // Files are only distinguished: a hash of the name is enough.
    let mut hasher = FxHasher::default();
    hasher.write(file);
    hasher.finish()
}
