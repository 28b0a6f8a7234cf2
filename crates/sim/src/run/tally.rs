//! The account of a run: requests by outcome, and pages.
//!
//! Invariant: every request is counted when it is submitted and when it ends. Absent: times.

use super::error::RunError;
use crate::metrics::PageOps;
use crate::source::PageKind;
use crate::summary::Accounting;
use remap_ssd_ftl::{Refusal, Stats};

/// Counts of requests by outcome, and of pages submitted.
#[derive(Default)]
pub(crate) struct Tally {
    pub requests: Accounting,
    pub page_ops: PageOps,
    page_reads: u64,
    page_writes: u64,
}

impl Tally {
    #[inline(always)]
    pub(crate) fn page(&mut self, kind: PageKind, is_served: bool) {
        match kind {
            // Remapped pages count as transferred and written, although nothing crosses the link.
            PageKind::Remap { .. } => {
                let pages = kind.pages();
                self.page_writes += pages;
                self.operate(pages, pages, is_served);
            }
            PageKind::Flush => {}
            _ => {
                let is_read = matches!(kind, PageKind::Read | PageKind::ReadModifyWrite);
                self.page_reads += u64::from(is_read);
                self.page_writes += u64::from(kind.writes());
                self.operate(1, u64::from(kind != PageKind::Trim), is_served);
            }
        }
    }

    #[inline(always)]
    fn operate(&mut self, operations: u64, transfers: u64, is_served: bool) {
        self.page_ops.operations += operations;
        if is_served {
            self.page_ops.served += operations;
            self.page_ops.transfers += transfers;
        }
    }

    #[inline(always)]
    pub(crate) fn serve(&mut self, kind: PageKind) {
        self.page_ops.requests += 1;
        let requests = &mut self.requests;
        match kind {
            PageKind::Read => requests.reads += 1,
            PageKind::Write | PageKind::WriteFor { .. } => requests.writes += 1,
            PageKind::ReadModifyWrite => requests.read_modify_writes += 1,
            PageKind::Trim => requests.trims += 1,
            PageKind::Flush => requests.flushes += 1,
            PageKind::Remap { .. } => requests.remaps += 1,
        }
    }

    #[cold]
    pub(crate) fn refuse(&mut self, refusal: Refusal) {
        *self
            .requests
            .refused
            .entry(refusal.to_string())
            .or_default() += 1;
    }

    /// Checks that every submitted request ended, and that the firmware saw the same pages.
    pub(crate) fn check(&self, stats: &Stats) -> Result<(), RunError> {
        let all = &self.requests;
        // An empty run proves nothing.
        if all.submitted == 0 {
            return Err(RunError::Nothing);
        }

        let completed =
            all.reads + all.writes + all.read_modify_writes + all.trims + all.remaps + all.flushes;
        let refused = all.refused.values().sum::<u64>();

        let agree = |what, submitted, ended| {
            if submitted == ended {
                Ok(())
            } else {
                Err(RunError::Unaccounted {
                    what,
                    submitted,
                    ended,
                })
            }
        };

        agree("requests", all.submitted, completed + refused)?;
        // The firmware's counts of a refused page are not specified.
        if refused == 0 {
            agree("pages read", self.page_reads, stats.host_reads)?;
            agree("pages written", self.page_writes, stats.host_writes)?;
        }

        Ok(())
    }
}
