//! The requests of a run: a workload, a trace or a recording.

use super::error::StudyError;
use super::replay::{Recorded, TraceReplay};
use crate::arrivals::Arrivals;
use crate::source::Source;
use crate::trace::TraceOptions;
use crate::workload::{ContentModel, Modelled, NamedWorkload};
use std::fmt;
use std::sync::Arc;

/// Contents with larger identities do not occur in aging.
const OWN_CONTENTS: u64 = 1 << 40;

/// The requests of a run.
#[derive(Clone, Debug)]
pub enum Requests {
    /// A synthetic workload, which has no end.
    Workload {
        /// The addresses that it reads and writes.
        workload: NamedWorkload,
        /// The contents that it writes.
        content: ContentModel,
    },
    /// A trace, replayed whole.
    Trace(TraceReplay),
    /// A recording, replayed whole.
    Recording(Arc<dyn Recorded>),
}

impl Requests {
    /// Number of pages that they address, of this many addressable ones.
    pub fn pages(&self, addressable: u64) -> u64 {
        match self {
            Self::Workload { workload, .. } => workload.pages(addressable),
            Self::Trace(_) | Self::Recording(_) => addressable,
        }
    }

    /// The model of the contents that they write, if there is one.
    pub(crate) fn content(&self) -> Option<ContentModel> {
        match self {
            Self::Workload { content, .. } => Some(*content),
            Self::Trace(trace) => trace.content,
            Self::Recording(_) => None,
        }
    }

    /// Returns true if they name the remap target of the pages that they write.
    pub(super) fn names_homes(&self) -> bool {
        matches!(self, Self::Workload { workload, .. } if workload.names_homes())
    }

    /// Checks that they can arrive so.
    ///
    /// # Errors
    /// A workload has no times of its own.
    pub(super) fn check_arrivals(&self, arrivals: &Arrivals) -> Result<(), StudyError> {
        match self {
            Self::Workload { workload, .. } => {
                arrivals.check(workload).map_err(StudyError::impossible)
            }
            Self::Trace(_) | Self::Recording(_) => Ok(()),
        }
    }

    /// The requests on a device with this many addressable pages, before the first.
    ///
    /// # Errors
    /// The workload or its contents are impossible there, or a recording cannot be read.
    pub fn source(&self, addressable: u64, seed: u64) -> Result<Box<dyn Source>, StudyError> {
        let impossible = |content: &ContentModel, error: &dyn fmt::Display| {
            StudyError::Impossible(format!("{self} with contents {content}: {error}"))
        };

        match self {
            Self::Workload { workload, content } => {
                let source = workload.source(*content, addressable, seed, base(*content));
                Ok(source.map_err(|error| impossible(content, &error))?)
            }
            Self::Trace(trace) => {
                let replay = trace.replay(addressable, OWN_CONTENTS);
                let Some(content) = trace.content else {
                    return Ok(Box::new(replay));
                };
                trace.check_content()?;

                let source = Modelled::new(replay, content, addressable, seed, base(content));
                Ok(Box::new(
                    source.map_err(|error| impossible(&content, &error))?,
                ))
            }
            Self::Recording(recording) => {
                let options = TraceOptions {
                    content_base: OWN_CONTENTS,
                    ..TraceOptions::new(addressable)
                };
                recording.replay(options).map_err(StudyError::failed)
            }
        }
    }
}

/// The identity above which the contents of a model begin.
fn base(content: ContentModel) -> u64 {
    match content {
        // The published model reuses the contents written by aging; others are new.
        ContentModel::Papers { .. } => 0,
        _ => OWN_CONTENTS,
    }
}

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workload { workload, .. } => workload.fmt(f),
            Self::Trace(trace) => trace.decoded.path().display().fmt(f),
            Self::Recording(recording) => f.write_str(recording.name()),
        }
    }
}
