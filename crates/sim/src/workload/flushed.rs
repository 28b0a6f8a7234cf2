//! Flushes at regular intervals in the requests of a workload, as hosts send them that wait for durable data.
//!
//! Invariant: the requests between the flushes are those of the workload without them.

use super::Endless;
use crate::source::{HostPage, PageKind, Source, SourceError};
use remap_ssd_device::HostLpn;
use std::num::NonZeroU32;

/// A workload with a flush after every `every` requests.
pub(super) struct Flushed {
    inner: Box<dyn Endless + Send>,
    every: NonZeroU32,
    /// Requests since the last flush.
    requests: u32,
    /// Pages of the workload, on their way.
    pages: Vec<HostPage>,
}

impl Flushed {
    pub(super) fn new(inner: Box<dyn Endless + Send>, every: NonZeroU32) -> Self {
        Self {
            inner,
            every,
            requests: 0,
            pages: Vec::new(),
        }
    }
}

impl Source for Flushed {
    fn fill(&mut self, out: &mut Vec<HostPage>, want: usize) -> Result<bool, SourceError> {
        self.pages.clear();
        let more = self.inner.fill(&mut self.pages, want)?;
        for page in &self.pages {
            out.push(*page);
            self.requests += u32::from(page.last);
            if self.requests == self.every.get() {
                self.requests = 0;
                out.push(HostPage {
                    at_ns: page.at_ns,
                    content: 0,
                    lpn: HostLpn::ZERO,
                    kind: PageKind::Flush,
                    last: true,
                });
            }
        }
        Ok(more)
    }

    fn skipped(&self) -> u64 {
        self.inner.skipped()
    }
}

impl Endless for Flushed {
    fn content_end(&self) -> u64 {
        self.inner.content_end()
    }
}
