//! Data that this connection has written and that is not yet in the store.
//!
//! ```text
//! frames    header, page or both: as SQLite wrote them
//! headers   of frames whose pages are in the store without them
//! ```
//!
//! Invariants: a frame whose header is in `headers` is raw in the store. Whether its page carries
//! its header is decided when a frame is handed over, and anew each time. Handing over empties
//! `frames`; with `Amount::All` also `headers`. Absent: the time of handing over (`Wal`).

use super::layout::{GROUP_FRAMES, Header, Layout, has_salts};
use super::stored::{PageRun, StoredLog};
use crate::mark::Mark;
use remap_ssd_store::StoreError;
use std::collections::BTreeMap;

/// Parts of a frame that SQLite has written.
#[derive(Default)]
pub(super) struct Frame {
    pub header: Option<Header>,
    pub page: Option<Vec<u8>>,
}

/// Extent of a handover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Amount {
    /// Pages; header pages only of completed groups.
    Pages,
    All,
}

/// Frames and headers by the frame's number.
#[derive(Default)]
pub(super) struct Gathered {
    pub frames: BTreeMap<u64, Frame>,
    headers: BTreeMap<u64, Header>,
}

impl Gathered {
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.headers.is_empty()
    }

    /// Minimum number of frames in the log.
    pub(super) fn end(&self) -> u64 {
        self.frames.last_key_value().map_or(0, |(last, _)| last + 1)
    }

    /// The header of a frame; `stamp` is the one that its page in the store carries.
    pub(super) fn header(
        &self,
        stored: &StoredLog,
        layout: Layout,
        frame: u64,
        stamp: Option<Header>,
    ) -> Result<Header, StoreError> {
        let gathered = self.frames.get(&frame).and_then(|frame| frame.header);
        match gathered
            .or_else(|| self.headers.get(&frame).copied())
            .or(stamp)
        {
            Some(header) => Ok(header),
            None => stored.header(layout, frame),
        }
    }

    /// Completes a frame from the store.
    pub(super) fn complete(
        &mut self,
        stored: &StoredLog,
        layout: Layout,
        number: u64,
    ) -> Result<&mut Frame, StoreError> {
        let there = stored.page(layout, number)?;
        let header = self.header(stored, layout, number, there.stamp)?;
        let frame = self.frames.entry(number).or_default();
        frame.header = Some(header);
        frame.page.get_or_insert(there.page);
        Ok(frame)
    }

    /// Writes frames to the store: 1. runs of pages but the last  2. header pages  3. the last run,
    /// which has the commit frame if there is one. `super` has the argument for any other order
    /// that a crash makes of it.
    pub(super) fn hand_over(
        &mut self,
        stored: &mut StoredLog,
        layout: Layout,
        amount: Amount,
    ) -> Result<(), StoreError> {
        // The last group will get more frames: its header page is written once, at the end.
        let last_group = self.end().saturating_sub(1) / GROUP_FRAMES;
        let mut runs: Vec<PageRun> = Vec::new();
        for (number, frame) in std::mem::take(&mut self.frames) {
            self.place(stored, layout, number, frame, &mut runs)?;
        }

        let last = runs.pop();
        runs.iter().try_for_each(|run| stored.write_run(run))?;
        let before = match amount {
            Amount::Pages => last_group,
            Amount::All => u64::MAX,
        };
        self.hand_over_headers(stored, layout, before)?;
        last.iter().try_for_each(|run| stored.write_run(run))
    }

    /// Writes the header pages of the groups before this one.
    fn hand_over_headers(
        &mut self,
        stored: &mut StoredLog,
        layout: Layout,
        before: u64,
    ) -> Result<(), StoreError> {
        let kept = self.headers.split_off(&before.saturating_mul(GROUP_FRAMES));
        let mut headers = std::mem::replace(&mut self.headers, kept);
        while let Some((&first, _)) = headers.first_key_value() {
            let group = first / GROUP_FRAMES;
            let later = headers.split_off(&((group + 1) * GROUP_FRAMES));
            let now = std::mem::replace(&mut headers, later);

            // Reread: other frames of the group may be another connection's.
            stored.change_header_page(layout, group, |page| {
                for (number, header) in now {
                    page[(number % GROUP_FRAMES) as usize] = header;
                }
            })?;
        }
        Ok(())
    }

    /// Decides where a frame's header goes, and adds its page to the runs.
    fn place(
        &mut self,
        stored: &mut StoredLog,
        layout: Layout,
        number: u64,
        frame: Frame,
        runs: &mut Vec<PageRun>,
    ) -> Result<(), StoreError> {
        let (header, page) = match (frame.header, frame.page) {
            (Some(header), Some(page)) => (header, page),
            (Some(header), None) => {
                // SQLite wrote the header alone. A page in the store that carries its header is
                // rewritten with the new one; for a raw page only the header page changes.
                stored.counters.headers_alone += 1;
                let raw = self.headers.contains_key(&number);
                let there = if raw {
                    None
                } else {
                    Some(stored.page(layout, number)?)
                };

                match there.filter(|there| there.stamp.is_some() || !there.present) {
                    Some(there) => (header, there.page),
                    None => {
                        self.headers.insert(number, header);
                        return Ok(());
                    }
                }
            }

            (None, page) => {
                // SQLite wrote the page alone: it keeps its header.
                stored.counters.pages_alone += 1;
                let there = stored.page(layout, number)?;
                (
                    self.header(stored, layout, number, there.stamp)?,
                    page.unwrap_or(there.page),
                )
            }
        };
        self.place_whole(stored, layout, number, &header, &page, runs);
        Ok(())
    }

    fn place_whole(
        &mut self,
        stored: &mut StoredLog,
        layout: Layout,
        number: u64,
        header: &Header,
        page: &[u8],
        runs: &mut Vec<PageRun>,
    ) {
        let place = layout.page(number);
        if runs.last().is_none_or(|run| run.end() != place) {
            runs.push(PageRun {
                place,
                pages: Vec::new(),
            });
        }
        let run = runs.last_mut().expect("there is one now");
        let start = run.pages.len();
        run.pages.extend_from_slice(page);

        // The header of a provisional frame will be rewritten, alone. In the header page that costs
        // no second write of the page.
        if stored.stamps && has_salts(header) && Mark::has_room(page) {
            stored.mark.stamp(&mut run.pages[start..], header);
            stored.counters.frames_stamped += 1;
            self.headers.remove(&number);
        } else {
            stored.counters.frames_raw += 1;
            self.headers.insert(number, *header);
        }
    }
}
