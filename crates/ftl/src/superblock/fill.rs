//! Filling word lines up with pads, for devices whose buffer does not survive a power cut.
//!
//! A die programs the pages of a unit at once, from the controller's buffer. If a cut empties the buffer, a page is
//! not durable before its unit is full. A torn program also damages the pages that share its word line, so
//! a page counts only when the whole word line is programmed. A stream therefore fills up the word line of a page
//! with pads before the page is acknowledged, and before an erase relies on it.
//!
//! Invariant: a pad has no owner and is no witness. Absent: when streams are filled up (the verbs).

use super::{Stream, Superblocks};
use crate::config::Config;
use crate::config::guard::Guard;
use remap_ssd_media::{Geometry, Media, Oob, Purpose, StoredPage};

/// Pages that must all be programmed before one of them counts: those of a word line. `None` if the buffer
/// survives a cut.
pub(super) fn pages_together(geometry: &Geometry, config: &Config) -> Option<u32> {
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

impl Superblocks {
    /// Fills up the word lines of all streams.
    pub(crate) fn fill_lines(&mut self, media: &mut Media) {
        for stream in Stream::ALL {
            self.fill_line(media, stream);
        }
    }

    /// Fills up the word line of a stream's last page.
    #[inline]
    pub(crate) fn fill_line(&mut self, media: &mut Media, stream: Stream) {
        if let Some(pages) = self.filled {
            self.fill(media, stream, pages);
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
