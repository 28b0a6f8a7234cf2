//! Requests assembled from pages.
//!
//! Invariants: a request enters before its first page and ends after its last; a request or a burst that has
//! begun is completed, whatever the limit on pages. Absent: execution and times (a [`Sink`]'s).

use super::options::RunOptions;
use super::tally::Tally;
use crate::metrics::PageOps;
use crate::source::{HostPage, PageKind};
use crate::times::PageOutcome;
use remap_ssd_device::HostLpn;
use remap_ssd_ftl::Refusal;

/// Executes requests: immediately (`Direct`), or recorded for the timing thread (`pipeline`).
pub(crate) trait Sink {
    /// A request enters, before its first page; `page_ops` counts the operations before it.
    fn enter(&mut self, page: &HostPage, page_ops: PageOps);
    /// Submits a page of the request.
    fn submit(&mut self, page: &HostPage) -> Result<(), Refusal>;
    /// Deallocates a range of the request.
    fn deallocate(&mut self, lpn: HostLpn, len: u32) -> Result<(), Refusal>;
    /// The request ends after its last page.
    fn leave(&mut self, outcome: PageOutcome);
}

/// A request with some of its pages submitted.
#[derive(Clone, Copy)]
struct OpenRequest {
    kind: PageKind,
    result: Result<(), Refusal>,
}

/// Assembles requests from pages, and accounts for them.
pub(crate) struct Front<S> {
    pub sink: S,
    pub tally: Tally,
    request: Option<OpenRequest>,
    /// Pages to deallocate of the current request: the first one, and the count.
    trim: Option<(HostLpn, u32)>,
    /// Requests of a burst, and those of the current one that have not entered; 1 and 0 without bursts.
    burst: u32,
    left_in_burst: u32,
    limit: u64,
    until_worn_out: bool,
}

impl<S: Sink> Front<S> {
    pub(crate) fn new(sink: S, options: &RunOptions) -> Self {
        Self {
            sink,
            tally: Tally::default(),
            request: None,
            trim: None,
            burst: options.bursts.map_or(1, |bursts| bursts.requests),
            left_in_burst: 0,
            limit: options.pages.unwrap_or(u64::MAX),
            until_worn_out: options.until_worn_out,
        }
    }

    /// Returns true if a request has begun and not ended.
    pub(crate) fn is_inside_request(&self) -> bool {
        self.request.is_some()
    }

    /// Returns true if a request or a burst has begun and not ended.
    #[inline(always)]
    pub(crate) fn is_inside_burst(&self) -> bool {
        self.request.is_some() || self.left_in_burst > 0
    }

    /// Returns true if another page is wanted. A request or a burst that has begun is completed.
    #[inline(always)]
    pub(crate) fn goes_on(&self) -> bool {
        self.is_inside_burst() || self.tally.page_ops.operations < self.limit
    }

    #[inline(always)]
    pub(crate) fn page(&mut self, page: &HostPage) {
        let mut request = match self.request.take() {
            Some(request) => request,
            None => {
                // The request enters with its first page.
                self.sink.enter(page, self.tally.page_ops);
                self.tally.requests.submitted += 1;
                if self.left_in_burst == 0 {
                    self.left_in_burst = self.burst;
                }
                self.left_in_burst -= 1;
                OpenRequest {
                    kind: page.kind,
                    result: Ok(()),
                }
            }
        };

        let result = match page.kind {
            PageKind::Trim => self.trim(page),
            _ => self.sink.submit(page),
        };
        self.tally.page(page.kind, result.is_ok());
        request.result = request.result.and(result);

        // A request with a partial page is a read-modify-write.
        if page.kind == PageKind::ReadModifyWrite {
            request.kind = page.kind;
        }

        if page.last {
            self.leave(&request);
        } else {
            self.request = Some(request);
        }
    }

    /// Merges adjacent pages deallocated by one request into one command, as hosts send it.
    fn trim(&mut self, page: &HostPage) -> Result<(), Refusal> {
        let mut whole = Ok(());
        let extent = match self.trim.take() {
            // Continues the last range: one record in the firmware.
            Some((lpn, len)) if lpn.offset(len) == page.lpn => (lpn, len + 1),
            Some((lpn, len)) => {
                whole = self.sink.deallocate(lpn, len);
                (page.lpn, 1)
            }
            None => (page.lpn, 1),
        };
        // The end of the request ends the command.
        if page.last {
            whole.and(self.sink.deallocate(extent.0, extent.1))
        } else {
            self.trim = Some(extent);
            whole
        }
    }

    #[inline(always)]
    fn leave(&mut self, request: &OpenRequest) {
        let outcome = PageOutcome {
            kind: request.kind,
            served: request.result.is_ok(),
        };
        self.sink.leave(outcome);
        match request.result {
            Ok(()) => self.tally.serve(request.kind),
            Err(refusal) => {
                // The awaited wear-out ends the run normally.
                if refusal == Refusal::ReadOnly && self.until_worn_out {
                    (self.limit, self.left_in_burst) = (0, 0);
                }
                self.tally.refuse(refusal);
            }
        }
    }
}
