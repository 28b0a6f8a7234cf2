//! The precision that is wanted of a run's figure, such as `wa=0.5%`.
//!
//! Invariant: `Display` output parses back to the same value. Absent: intervals (`interval`).

use std::fmt;
use std::str::FromStr;

/// A figure of a run whose precision is known while it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Host bandwidth.
    Bandwidth,
    /// Page operations per second.
    Iops,
    /// Write amplification.
    WriteAmplification,
}

/// The precision wanted of a figure: `wa=0.5%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Precision {
    /// The figure.
    pub figure: Figure,
    /// Half width of its 95 % confidence interval, as a fraction of it.
    pub relative: f64,
}

impl FromStr for Precision {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is not FIGURE=PERCENT such as wa=0.5%, of wa, bandwidth or iops and from 0.01% to 50%"
            )
        };
        let (name, percent) = text.split_once('=').ok_or_else(wrong)?;
        let figure = match name {
            "wa" => Figure::WriteAmplification,
            "bandwidth" => Figure::Bandwidth,
            "iops" => Figure::Iops,
            _ => return Err(wrong()),
        };
        let percent: f64 = percent
            .strip_suffix('%')
            .and_then(|number| number.parse().ok())
            .ok_or_else(wrong)?;
        if !(0.01..=50.0).contains(&percent) {
            return Err(wrong());
        }
        Ok(Self {
            figure,
            relative: percent / 100.0,
        })
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.figure {
            Figure::Bandwidth => "bandwidth",
            Figure::Iops => "iops",
            Figure::WriteAmplification => "wa",
        };
        write!(f, "{name}={}%", self.relative * 100.0)
    }
}
