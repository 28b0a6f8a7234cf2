//! The precision that is wanted of a run's figure, such as `wa=0.5%`.
//!
//! Invariant: `Display` output parses back to the same value. Absent: intervals (`interval`).

use crate::summary::RunSummary;
use crate::workload::WorkloadError;
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

impl Precision {
    /// Returns true if a run's figure is as precise as wanted, in a steady state. The rest of a
    /// request comes after the decision to end a run, and may widen an interval by a tenth.
    pub(crate) fn is_reached(&self, run: &RunSummary) -> bool {
        let (value, half) = match self.figure {
            Figure::Bandwidth => (run.bandwidth_mib_s, run.ci95.bandwidth_mib_s),
            Figure::Iops => (run.iops, run.ci95.iops),
            Figure::WriteAmplification => (run.write_amplification, run.ci95.write_amplification),
        };
        run.steady.is_steady == Some(true) && half <= 1.1 * self.relative * value
    }
}

impl FromStr for Precision {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        let wrong = || {
            WorkloadError::new(format!(
                "`{text}` is not FIGURE=PERCENT such as wa=0.5%, of wa, bandwidth or iops and from 0.01% to 50%"
            ))
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
