//! A power cut as text: `3fa9c1d2-10431-8f00aa17` or `3fa9c1d2-10431-lost:77.1,90+3.2-16384`.
//!
//! The first part names the recording, the second the instant, the third the losses: a seed to draw
//! them from, or the blocks that lose versions (`BLOCK[+MORE].VERSIONS`; `+3` adds the next three
//! blocks). A fourth part is the atomic write unit in bytes; without it each block is lost on its
//! own. A suffix `@remap-ssd+dedup` names the firmware of the device that loses power.
//! Invariant: text and cut are one to one, except for the order of the blocks. Absent: the
//! recording itself.

use crate::cut::{Choice, Cut, Lost};
use crate::firmware::Firmware;

const LOST: &str = "lost:";

/// A cut of a certain recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// Identifier of the recording: the first digits of its hash.
    pub recording: String,
    /// The cut within the recording.
    pub cut: Cut,
    /// Bytes of a write that the cut keeps or loses as a whole; none: a block.
    pub atomic: Option<u64>,
    /// The device's firmware; none: the disk is only a cache.
    pub firmware: Option<Firmware>,
}

/// The text is not a replay code.
#[derive(Debug, thiserror::Error)]
#[error(
    "this is no replay code of `torture`; it looks like 3fa9c1d2-10431-8f00aa17, and one of `crash` like remap-ssd:3:9f2c41d0"
)]
pub struct NoCode;

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}-", self.recording, self.cut.instant)?;
        match &self.cut.choice {
            Choice::Drawn(number) => write!(f, "{number:x}")?,
            Choice::Lost(lost) => write!(f, "{LOST}{}", runs(lost).join(","))?,
        }
        if let Some(bytes) = self.atomic {
            write!(f, "-{bytes}")?;
        }
        match &self.firmware {
            Some(firmware) => write!(f, "@{firmware}"),
            None => Ok(()),
        }
    }
}

/// Encodes adjacent blocks that lose the same number of versions as one item.
fn runs(lost: &[Lost]) -> Vec<String> {
    let together = |a: &Lost, b: &Lost| a.block + 1 == b.block && a.versions == b.versions;
    let text = |run: &[Lost]| match run {
        [one] => format!("{}.{}", one.block, one.versions),
        [first, rest @ ..] => format!("{}+{}.{}", first.block, rest.len(), first.versions),
        [] => String::new(),
    };
    lost.chunk_by(together).map(text).collect()
}

impl std::str::FromStr for Code {
    type Err = NoCode;

    fn from_str(text: &str) -> Result<Self, NoCode> {
        let mut parts = text.splitn(3, '-');
        let mut next = || parts.next().filter(|part| !part.is_empty()).ok_or(NoCode);

        let recording = next()?.to_owned();
        let instant = next()?.parse().map_err(|_| NoCode)?;
        let last = next()?;

        // Without a firmware only the cache was cut.
        let (kept, firmware) = match last.split_once('@') {
            Some((kept, firmware)) => (kept, Some(firmware.parse().map_err(|_| NoCode)?)),
            None => (last, None),
        };

        // Codes of earlier versions have no unit.
        let (kept, atomic) = match kept.split_once('-') {
            Some((kept, bytes)) => (kept, Some(bytes.parse().map_err(|_| NoCode)?)),
            None => (kept, None),
        };

        let choice = match kept.strip_prefix(LOST) {
            None => Choice::Drawn(u64::from_str_radix(kept, 16).map_err(|_| NoCode)?),
            Some("") => Choice::Lost(Vec::new()),
            Some(list) => {
                let mut lost = Vec::new();
                list.split(',')
                    .try_for_each(|run| parse_run(run, &mut lost))?;
                Choice::Lost(lost)
            }
        };

        Ok(Self {
            recording,
            cut: Cut { instant, choice },
            atomic,
            firmware,
        })
    }
}

fn parse_run(run: &str, lost: &mut Vec<Lost>) -> Result<(), NoCode> {
    /// No disk has more: bounds the allocation for a code.
    const BLOCKS_MAX: u64 = 1 << 24;

    let (blocks, versions) = run.split_once('.').ok_or(NoCode)?;
    let (first, more) = blocks.split_once('+').unwrap_or((blocks, "0"));
    let number = |text: &str| text.parse::<u64>().map_err(|_| NoCode);
    let (first, more) = (number(first)?, number(more)?);
    let versions = versions.parse().map_err(|_| NoCode)?;

    // Limits are checked first: a code comes from a command line.
    let end = first
        .checked_add(more)
        .filter(|_| more < BLOCKS_MAX && (lost.len() as u64) < BLOCKS_MAX)
        .ok_or(NoCode)?;
    lost.extend((first..=end).map(|block| Lost { block, versions }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read_as_they_are_written() {
        let lost = [(7, 1), (8, 1), (9, 1), (10, 2), (90, 2)]
            .map(|(block, versions)| Lost { block, versions });
        let texts = ["0a-5-lost:7+2.1,10.2,90.2", "0a-5-lost:", "0a-5-ff"];
        let choices = [
            Choice::Lost(lost.to_vec()),
            Choice::Lost(Vec::new()),
            Choice::Drawn(255),
        ];
        for (text, choice) in texts.into_iter().zip(choices) {
            let code = Code {
                recording: "0a".into(),
                cut: Cut { instant: 5, choice },
                atomic: None,
                firmware: None,
            };
            assert_eq!(code.to_string(), text);
            assert_eq!(text.parse::<Code>().unwrap(), code);

            let atomic = Some(16384);
            let of_unit = Code { atomic, ..code };
            let text_of_unit = format!("{text}-16384");
            assert_eq!(of_unit.to_string(), text_of_unit);
            assert_eq!(text_of_unit.parse::<Code>().unwrap(), of_unit);

            let text = format!("{text}@remap-ssd-lh+dedup");
            let code: Code = text.parse().unwrap();
            assert!(code.firmware.is_some_and(|firmware| firmware.dedup));
            assert!(code.atomic.is_none());
            assert_eq!(code.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_code_is_refused() {
        let texts = [
            "",
            "a",
            "a-1",
            "a-1-",
            "a-x-1",
            "-1-1",
            "a-1-lost:1",
            "a-1-lost:1+99999999999.1",
            "a-1-lost:1.x",
            "a-1-ff-",
            "a-1-ff-x",
            "a-1-ff@",
            "a-1-ff@nothing",
        ];

        texts
            .iter()
            .for_each(|text| assert!(text.parse::<Code>().is_err(), "{text}"));

        assert!(
            format!("a-1-lost:{}+1.1", u64::MAX)
                .parse::<Code>()
                .is_err()
        );
    }
}
