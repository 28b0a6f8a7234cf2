//! Requests recorded earlier: a trace, read once for all runs, or a recording of the caller's.

use super::error::StudyError;
use crate::source::{HostLpn, Source, SourceError};
use crate::trace::{Decoded, Replay, TraceOptions};
use crate::workload::ContentModel;
use std::fmt::Debug;
use std::sync::Arc;

/// Addressable pages of the options with which a trace is read: each replay folds it to its own
/// device.
pub const WHOLE_DISK: u64 = HostLpn::PAGES_MAX;

/// A trace, and how it is replayed.
#[derive(Clone, Debug)]
pub struct TraceReplay {
    /// Its requests.
    pub decoded: Arc<Decoded>,
    /// The options that it was read with; device and contents are the run's.
    pub options: TraceOptions,
    /// Number of replays, each with new contents.
    pub repeat: u32,
    /// Model of the contents that it writes, if it records none; `None`: each is new.
    pub content: Option<ContentModel>,
}

impl TraceReplay {
    /// Its requests on a device, over all replays. Contents are above `content_base`.
    pub(crate) fn replay(&self, addressable: u64, content_base: u64) -> Replay {
        let options = TraceOptions {
            addressable,
            content_base,
            ..self.options
        };
        self.decoded.replay(options, self.repeat)
    }

    /// Checks that the model of contents replaces none that are recorded.
    ///
    /// # Errors
    /// The trace has digests.
    pub fn check_content(&self) -> Result<(), StudyError> {
        if self.content.is_none() || !self.decoded.has_digests() {
            return Ok(());
        }
        Err(StudyError::Impossible(format!(
            "{}: the trace (format {}) records digests of its contents, which a model of contents would replace",
            self.decoded.path().display(),
            self.decoded.format()
        )))
    }

    /// Number of requests, over all replays.
    pub fn requests(&self) -> u64 {
        self.decoded.stat().requests * u64::from(self.repeat)
    }

    /// Number of pages written, over all replays.
    pub fn pages_written(&self) -> u64 {
        let stat = self.decoded.stat();
        (stat.writes + stat.read_modify_writes) * u64::from(self.repeat)
    }

    /// Number of pages in requests, over all replays.
    pub fn pages(&self) -> u64 {
        let stat = self.decoded.stat();
        (stat.reads + stat.trims + stat.remaps) * u64::from(self.repeat) + self.pages_written()
    }
}

/// Requests that the caller keeps, and replays on any device.
pub trait Recorded: Debug + Send + Sync {
    /// Its name, for titles.
    fn name(&self) -> &str;

    /// Replays them from the first.
    ///
    /// # Errors
    /// They cannot be read.
    fn replay(&self, options: TraceOptions) -> Result<Box<dyn Source>, SourceError>;
}
