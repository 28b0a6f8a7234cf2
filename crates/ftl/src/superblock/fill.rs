//! Filling word lines up with pads, for devices whose buffer does not survive a power cut.
//!
//! A die programs the pages of a unit at once, from the controller's buffer. If a cut empties the buffer, a page is
//! not durable before its unit is full. A torn program also damages the pages that share its word line, so
//! a page counts only when the whole word line is programmed. A stream therefore fills up the word line of a page
//! with pads before the page is acknowledged, and before an erase relies on it.
//!
//! Invariants: a pad has no owner and is no witness. A page is copied only into a word line that was begun after its own:
//! so no page of a word line ever waits for what waits for that word line. Absent: when else streams are filled up (the
//! verbs).

use super::{Stream, Superblocks};
use crate::config::Config;
use crate::config::guard::Guard;
use remap_ssd_media::{Geometry, Media, Oob, Ppn, Purpose, SbId, StoredPage};

/// Pages that must all be programmed before one of them counts: those of a word line. `None` if the buffer
/// survives a cut.
fn pages_together(geometry: &Geometry, config: &Config) -> Option<u32> {
    let word_line = geometry.word_line();
    if config.power_loss_protection || !config.guards.has(Guard::LinesFilled) {
        return None;
    }
    let pages = if config.guards.has(Guard::WholeLines) {
        word_line.pages()
    } else {
        word_line.unit_pages()
    };
    (pages > 1).then_some(pages)
}

/// The streams' word lines: how many pages have to be programmed together, and the order in which the lines were begun.
pub(super) struct FilledLines {
    pages: u32,
    /// Word lines begun since power-on.
    begun: u64,
    /// By superblock, the newest of its word lines: how many had been begun with it.
    newest: Vec<u64>,
}

impl FilledLines {
    /// `None` if nothing has to be filled up.
    pub(super) fn new(geometry: &Geometry, config: &Config) -> Option<Box<Self>> {
        let pages = pages_together(geometry, config)?;
        let lines = Self {
            pages,
            begun: 0,
            newest: vec![0; geometry.superblocks() as usize],
        };
        Some(Box::new(lines))
    }

    /// A superblock's next page is the first of a word line.
    pub(super) fn begin(&mut self, sb: SbId) {
        self.begun += 1;
        self.newest[sb.0 as usize] = self.begun;
    }
}

impl Superblocks {
    /// Returns true if word lines are filled up with pads.
    #[inline]
    pub(crate) fn fills_lines(&self) -> bool {
        self.filled.is_some()
    }

    /// Fills up a stream's word line if `from`, which is to be copied to the stream's next page, may be in a word line that was
    /// begun later. What waits for the stream's line may be among what `from` waits for; with the copy in that line, neither would end.
    #[inline]
    pub(crate) fn fill_before_copy(&mut self, media: &mut Media, stream: Stream, from: Ppn) {
        if let (Some(lines), Some(open)) = (&self.filled, self.open(stream)) {
            let newest = |sb: SbId| lines.newest[sb.0 as usize];
            if newest(self.geometry.superblock(from)) > newest(open.sb) {
                self.fill(media, stream, lines.pages);
            }
        }
    }

    /// The same for all streams, before the pages of a closed superblock are copied.
    pub(crate) fn fill_before_copies(&mut self, media: &mut Media, from: Ppn) {
        for stream in Stream::ALL {
            self.fill_before_copy(media, stream, from);
        }
    }

    /// Fills up the word lines of all streams.
    pub(crate) fn fill_lines(&mut self, media: &mut Media) {
        for stream in Stream::ALL {
            self.fill_line(media, stream);
        }
    }

    /// Fills up the word line of a stream's last page.
    #[inline]
    pub(crate) fn fill_line(&mut self, media: &mut Media, stream: Stream) {
        if let Some(lines) = &self.filled {
            self.fill(media, stream, lines.pages);
        }
    }

    #[cold]
    fn fill(&mut self, media: &mut Media, stream: Stream, pages: u32) {
        let pages = match stream {
            Stream::Slc => self.slc.area.line(),
            _ => pages,
        };
        while self
            .open(stream)
            .is_some_and(|open| !open.last_end.is_multiple_of(pages))
        {
            let taken = match stream {
                Stream::Slc => self.take_slc(),
                _ => self.take(stream),
            };
            let Some(taken) = taken else {
                return;
            };
            self.meta_programs += 1;
            let oob = taken.oob(Oob::PAD, 0);
            let stored = StoredPage::Meta([].into());
            if media
                .program(taken.ppn(), oob, stored, Purpose::Meta, taken.after)
                .is_err()
            {
                self.fail_block(media, taken.sb, taken.slot.die);
            }
        }
    }
}
