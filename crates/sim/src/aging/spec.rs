//! Aging options of the command line.
//!
//! ```text
//! fill=whole|random|sequential    each page once, in a scattered order; random writes until garbage collection has
//!                                 run; or each page once, in order, and nothing else
//! fill=ordered                    as sequential, for the addressable pages, with the contents below
//! overwrite=TIMES                 then TIMES the addressable pages, at random
//! nvram_used=SHARE                of the remapping metadata, in use at the start
//! nvram_valid=SHARE               of that, valid
//! content=MODEL                   contents of the pages written
//! ```
//!
//! Any of them, separated by commas. Defaults: `fill=whole,nvram_used=0.9,nvram_valid=0.7,overwrite=2`
//! and contents without duplicates, so that all schemes begin with the same flash. The metadata is as
//! in FAST'21 section 5.2. The names are those of an experiment's setup. Invariant: `Display` output
//! parses back to the same value.

use super::{AgingOptions, Fill};
use crate::workload::{ContentModel, WorkloadError};
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// How a device is filled, without its size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FillSpec {
    /// Random writes until garbage collection has run: [`Fill::Random`].
    Random,
    /// [`Fill::Whole`] of the addressable pages.
    #[default]
    Whole,
    /// Each page once, in order: [`Fill::Sequential`].
    Sequential,
    /// [`Fill::Ordered`] for the addressable pages.
    Ordered,
}

/// Aging options, as typed on a command line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AgingSpec {
    /// How the device is filled.
    pub fill: FillSpec,
    /// Fraction of the remapping metadata's space to use.
    pub nvram_used: f64,
    /// Fraction of that which stays valid.
    pub nvram_valid: f64,
    /// Writes after the fill, in multiples of the addressable pages.
    pub overwrite: f64,
    /// Contents of the writes; `None`: no two are equal.
    #[serde(skip)]
    pub content: Option<ContentModel>,
}

impl Default for AgingSpec {
    fn default() -> Self {
        let AgingOptions {
            nvram_used,
            nvram_valid,
            ..
        } = AgingOptions::default();
        Self {
            fill: FillSpec::default(),
            nvram_used,
            nvram_valid,
            overwrite: OVERWRITE,
            content: None,
        }
    }
}

impl AgingSpec {
    /// The options for a device with this many addressable pages.
    pub fn options(&self, addressable: u32, seed: u64) -> AgingOptions {
        let fill = match self.fill {
            FillSpec::Random => Fill::Random,
            FillSpec::Whole => Fill::Whole(addressable),
            FillSpec::Sequential => Fill::Sequential,
            FillSpec::Ordered => Fill::Ordered(addressable),
        };

        let Self {
            nvram_used,
            nvram_valid,
            overwrite,
            ..
        } = *self;

        AgingOptions {
            fill,
            seed,
            nvram_used,
            nvram_valid,
            overwrite,
        }
    }
}

/// Writes after which a filled device is in its steady state, unless there is very little spare space.
const OVERWRITE: f64 = 2.0;
/// Larger values take too long to be useful.
const OVERWRITE_MAX: f64 = 1000.0;

impl FromStr for AgingSpec {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        let wrong = |text: String| Err(WorkloadError::new(text));
        let mut spec = Self::default();
        // The last options that are useless for a device filled in order.
        let (mut after_fill, mut content) = (None, None);
        for field in text.split(',') {
            // A field without `=` is an unknown name.
            let (name, value) = field.split_once('=').unwrap_or((field, ""));

            let number = |most: f64| {
                let number = value
                    .parse::<f64>()
                    .ok()
                    .filter(|number| (0.0..=most).contains(number));
                number.ok_or_else(|| {
                    WorkloadError::new(format!(
                        "`{field}` is not {name}=NUMBER with a number from 0 to {most}"
                    ))
                })
            };

            match (name, value) {
                ("fill", "random") => spec.fill = FillSpec::Random,
                ("fill", "whole") => spec.fill = FillSpec::Whole,
                ("fill", "sequential") => spec.fill = FillSpec::Sequential,
                ("fill", "ordered") => spec.fill = FillSpec::Ordered,
                ("content", _) => {
                    let model = value.parse()?;
                    (spec.content, content) = (Some(model), Some(field));
                }
                ("nvram_used", _) => (spec.nvram_used, after_fill) = (number(1.0)?, Some(field)),
                ("nvram_valid", _) => (spec.nvram_valid, after_fill) = (number(1.0)?, Some(field)),
                ("overwrite", _) => {
                    (spec.overwrite, after_fill) = (number(OVERWRITE_MAX)?, Some(field))
                }
                _ => {
                    return wrong(format!(
                        "`{field}` is none of fill=random, fill=whole, fill=sequential, fill=ordered, \
                         nvram_used=SHARE, nvram_valid=SHARE, overwrite=TIMES and content=MODEL"
                    ));
                }
            }
        }

        // A device filled in order is neither remapped nor overwritten: such options are useless.
        match (spec.fill, after_fill, content) {
            (FillSpec::Sequential, Some(field), _) | (FillSpec::Sequential, _, Some(field)) => {
                wrong(format!(
                    "`{field}` does not go with fill=sequential, which does nothing else"
                ))
            }
            (FillSpec::Ordered, Some(field), _) => wrong(format!(
                "`{field}` does not go with fill=ordered, which does nothing else"
            )),
            _ => Ok(spec),
        }
    }
}

impl fmt::Display for AgingSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            nvram_used,
            nvram_valid,
            overwrite,
            ..
        } = self;

        // A sequential fill has no other options, an ordered one only contents.
        match self.fill {
            FillSpec::Sequential => return f.write_str("fill=sequential"),
            FillSpec::Ordered => f.write_str("fill=ordered")?,
            FillSpec::Random => f.write_str("fill=random")?,
            FillSpec::Whole => f.write_str("fill=whole")?,
        }

        if self.fill != FillSpec::Ordered {
            write!(
                f,
                ",nvram_used={nvram_used},nvram_valid={nvram_valid},overwrite={overwrite}"
            )?;
        }
        match self.content {
            Some(content) => write!(f, ",content={content}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_reads_back_the_same_and_the_rest_has_its_defaults() {
        for text in [
            "fill=whole",
            "nvram_used=0.5,nvram_valid=1",
            "fill=sequential",
            "overwrite=2,fill=whole",
            "fill=ordered,content=plain:0.3",
            "content=papers:0.3",
        ] {
            let spec: AgingSpec = text.parse().unwrap();
            assert_eq!(
                spec.to_string().parse::<AgingSpec>().unwrap(),
                spec,
                "{text}"
            );
        }

        assert_eq!(
            AgingSpec::default().to_string(),
            "fill=whole,nvram_used=0.9,nvram_valid=0.7,overwrite=2"
        );
        assert_eq!("fill=whole".parse(), Ok(AgingSpec::default()));

        for text in [
            "",
            "fill",
            "fill=full",
            "nvram_used=2",
            "nvram_valid=-1",
            "fill=sequential,nvram_used=0.5",
            "fill=sequential,content=unique",
            "fill=ordered,overwrite=1",
            "content=some",
        ] {
            assert!(text.parse::<AgingSpec>().is_err(), "{text}");
        }
    }
}
