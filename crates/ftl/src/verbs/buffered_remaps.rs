//! Remaps of pages that are in the write buffer: the target gets a slot of its own with the same content.
//!
//! Nothing reaches flash until one of the two pages leaves the buffer. Then all pages with this content leave together: the
//! first one as a write, the others as remaps to its page. A page that is overwritten or deallocated before that costs nothing.
//!
//! Invariants: a source is read, and its target is stored, without a write-back in between; only remaps that neither move
//! pages nor are atomic do this, with a buffer that a capacitor saves. Absent: the rings of equal pages (`records::twins`).

use crate::config::buffered_remaps::BufferedRemaps;
use crate::config::guard::Guard;
use crate::dedup::Fingerprint;
use crate::error::Refusal;
use crate::ftl::Ftl;
use crate::records::buffer::BufferedPage;
use crate::verbs::program::PageOrigin;
use crate::verbs::remap::Remap;
use remap_ssd_media::Lpn;

impl Ftl {
    /// Returns true if a remap leaves pages in the write buffer where they are.
    pub(crate) fn names_buffered(&self, command: &Remap) -> bool {
        let config = &self.core.config;
        config.buffered_remaps == BufferedRemaps::Name
            && self.buffer.is_some()
            && !config.has_volatile_buffer()
            && !command.relocate
            && !command.atomic
    }

    /// Gives a target a page in the buffer with the content of its source. Returns false, without a change of the target, if
    /// the source is on flash, or has had to leave to make room.
    #[cold]
    pub(crate) fn remap_buffered(&mut self, command: &Remap, step: u32) -> Result<bool, Refusal> {
        let index = command.index(step);
        let (target, source) = (command.target.offset(index), command.source.offset(index));
        if !self.is_buffered(source) {
            return Ok(false);
        }
        self.make_buffer_room(target)?;
        let page = self.buffer.as_ref().and_then(|buffer| buffer.page(source));
        let Some(page) = page.cloned() else {
            return Ok(false);
        };

        // The target's page is a witness of its own, with a new number: the crash argument is that of a buffered write, and
        // does not ask where the content came from. The source's slot may be filled again at any time.
        self.enter_buffer(target, &page.payload(), page.is_merged)?;
        if let Some(buffer) = &mut self.buffer {
            buffer.join(target, source);
        }
        self.core.stats.buffer_remapped += 1;
        Ok(true)
    }

    /// Pages of a piece whose sources are on flash, at most `most`. Entries supersede their targets: these leave the buffer.
    pub(crate) fn prepare_flash_piece(
        &mut self,
        command: &Remap,
        done: u32,
        most: u32,
    ) -> Result<u32, Refusal> {
        let is_on_flash =
            |step: &u32| !self.is_buffered(command.source.offset(command.index(*step)));
        let count = (done..done + most).take_while(is_on_flash).count() as u32;
        assert!(count > 0, "the first source is on flash");
        let first = command.index(done).min(command.index(done + count - 1));
        self.write_back(command.target.offset(first), count)?;
        Ok(count)
    }

    /// Writes a page whose twin has just left the buffer: remaps it to the twin's page, or programs it.
    pub(crate) fn write_twin(
        &mut self,
        lpn: Lpn,
        twin: Lpn,
        page: &BufferedPage,
    ) -> Result<(), Refusal> {
        // Where it is now: caching an entry may have collected it.
        let place = self.core.tables.map.get(twin).expect("it has left");
        if !self.apart.permits(lpn, twin, false) || !self.remaps() {
            self.core.stats.copies += 1;
        } else {
            match self.remap_page(lpn, place.ppn, None, None, true) {
                Ok(()) => {
                    self.write_goes_on = true;
                    return Ok(());
                }
                Err(cause) => self.core.stats.demote(cause),
            }
        }

        // As in `write_page`: 1. the scheme's gathered entries  2. what the program reclaims.
        if self.core.config.guards.has(Guard::RecordBeforeReclaim) && self.write_goes_on {
            self.scheme.issue(&mut self.core);
        }
        let payload = &page.payload();
        if page.is_merged {
            return self.write_back_merged(lpn, payload);
        }
        let is_found = self.dedup.is_some() && !self.dedup_paused && !self.apart.has(lpn);
        let fingerprint = is_found.then(|| Fingerprint::of(payload, self.core.config.fingerprint));
        self.program(
            lpn,
            PageOrigin::Payload(payload),
            fingerprint.as_ref(),
            page.order(),
        )
        .map(drop)
    }
}
