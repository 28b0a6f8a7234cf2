//! The horizontal axis of a time series.
//!
//! Invariant: positions never decrease from sample to sample. Absent: scales and labels (the
//! figure's).

use std::fmt;
use std::str::FromStr;

use crate::summary::Sample;

/// Meaning of the horizontal axis of a time series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// Pages that the host read or wrote: the same position is the same amount of work.
    #[default]
    HostPages,
    /// Virtual time: a faster run ends further left.
    Time,
}

impl Progress {
    /// Position of each sample, in pages or seconds.
    pub(super) fn of(self, samples: &[Sample]) -> Vec<f64> {
        let (mut before_s, mut pages) = (0.0, 0.0);
        let at = |sample: &Sample| match self {
            Self::Time => sample.at_s,
            Self::HostPages => {
                // A rate holds since the previous sample.
                pages += sample.iops * (sample.at_s - before_s);
                before_s = sample.at_s;
                pages
            }
        };
        samples.iter().map(at).collect()
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::HostPages => "pages",
            Self::Time => "time",
        })
    }
}

impl FromStr for Progress {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "pages" => Ok(Self::HostPages),
            "time" => Ok(Self::Time),
            other => Err(format!("`{other}` is neither pages nor time")),
        }
    }
}
