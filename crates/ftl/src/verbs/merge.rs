//! Writes of pages that keep a part of their earlier contents: of indirection units of which a host writes a part.
//!
//! The new page has bytes of the earlier one, which commands in flight may have made what it is: an atomic command before its
//! commit, or a relocation that has left a part of it. A merged page that landed first would show their effects although a
//! cut undoes them.
//!
//! ```text
//! 1. the page that was read, and the stores of all earlier      cut before 2: the earlier page is where it was, since nothing
//!    commands                                                   is programmed in place, and holds everything acknowledged
//! 2. the merged page                                            cut after 2: the merged page holds it, and what it shows of
//! 3. the acknowledgement                                        commands in flight is durable
//! ```
//!
//! In a write buffer that a capacitor saves, the slot takes the place of 2: it waits for 1, and the page that leaves the buffer
//! waits for the slot, since this is a store. In a volatile one nothing is durable, so the page that leaves does all the waiting; only writes
//! of the host stay there, and everything else goes to flash at once.
//!
//! Invariant: a merged page is programmed, never mapped to a page of the same content: that record would wait for the page it
//! names, not for 1. Absent: the merging (the caller's).

use crate::dedup::Fingerprint;
use crate::error::Refusal;
use crate::ftl::Ftl;
use crate::records::buffer::Superseded;
use crate::verbs::program::PageOrigin;
use remap_ssd_media::{After, Lpn, Payload, Ppn};

impl Ftl {
    /// Writes a page that has a part of the contents that it had, as a part of a command that `end_write` ends.
    ///
    /// # Errors
    /// `OutOfRange`, `ReadOnly`, `NumbersUsedUp`.
    pub fn write_merged(&mut self, lpn: Lpn, payload: &Payload<'_>) -> Result<(), Refusal> {
        self.write_changed(lpn, payload, self.buffer.is_some())
    }

    /// Like `write_merged`, for a command that is durable when it is acknowledged, also with a volatile write buffer.
    ///
    /// # Errors
    /// `OutOfRange`, `ReadOnly`, `NumbersUsedUp`.
    pub fn write_copied(&mut self, lpn: Lpn, payload: &Payload<'_>) -> Result<(), Refusal> {
        let is_volatile = self.core.config.has_volatile_buffer();
        self.write_changed(lpn, payload, self.buffer.is_some() && !is_volatile)
    }

    fn write_changed(
        &mut self,
        lpn: Lpn,
        payload: &Payload<'_>,
        is_buffered: bool,
    ) -> Result<(), Refusal> {
        self.writable(lpn, 1)?;
        if let Some(write) = &self.open_write {
            let goes_to_buffer = write.open.slots.is_some();
            return self.write_untorn(lpn, |ftl| {
                if goes_to_buffer {
                    return ftl.enter_buffer(lpn, payload, true);
                }
                ftl.issue_gathered();
                ftl.core.look_up(lpn);
                ftl.program_changed(lpn, payload, After::FENCE).map(drop)
            });
        }
        if self.is_set {
            self.core.stats.host_writes += 1;
            self.enter_buffer(lpn, payload, true)
        } else if is_buffered {
            self.write_buffered(lpn, payload, true)
        } else {
            self.program_past_buffer(lpn, payload, After::FENCE)
        }
    }

    /// Writes a page of which a part was moved elsewhere by programs and remaps before: no cut loses both.
    ///
    /// # Errors
    /// `OutOfRange`, `ReadOnly`, `NumbersUsedUp`.
    pub fn write_moved(&mut self, lpn: Lpn, payload: &Payload<'_>) -> Result<(), Refusal> {
        self.end_write();
        self.writable(lpn, 1)?;
        // A page waits for what was issued before its word line.
        self.core.fill_lines();
        let programmed = self.program_past_buffer(lpn, payload, After::ALL);
        self.fill_host_line();
        programmed
    }

    /// The current command changes nothing, but its acknowledgement relies on earlier ones.
    pub fn wait_for_earlier(&mut self) {
        self.core.media.ack_after(After::ALL);
    }

    /// Programs a merged page for the host. The page in the write buffer from which it was made, if any, has done its duty.
    fn program_past_buffer(
        &mut self,
        lpn: Lpn,
        payload: &Payload<'_>,
        after: After,
    ) -> Result<(), Refusal> {
        self.issue_gathered();
        self.part_sets(lpn..lpn.offset(1))?;
        if self.hybrid {
            self.make_extension_room(1)?;
        }
        if self.core.config.caches_mapping() {
            self.cache_entry(lpn)?;
        }
        self.core.stats.host_writes += 1;
        let ppn = self.program_changed(lpn, payload, after)?;

        // 1. the page  2. the slot is filled again. Cut before 1: the slot has what it had.
        if let Some(buffer) = &mut self.buffer
            && buffer.has(lpn)
        {
            buffer.remove(lpn, Superseded::ByProgram(ppn));
            self.core.stats.buffer_overwritten += 1;
        }
        Ok(())
    }

    /// Programs a merged page that leaves the write buffer: 1. its slot, and what that waited for; if the buffer is volatile, all
    /// that it shows of commands in flight  2. the page.
    pub(crate) fn write_back_merged(
        &mut self,
        lpn: Lpn,
        payload: &Payload<'_>,
    ) -> Result<(), Refusal> {
        self.issue_gathered();
        self.program_changed(lpn, payload, After::FENCE).map(drop)
    }

    /// A program may reclaim, so the remaps gathered by this command are issued first.
    fn issue_gathered(&mut self) {
        if self.write_goes_on {
            self.scheme.issue(&mut self.core);
        }
    }

    fn program_changed(
        &mut self,
        lpn: Lpn,
        payload: &Payload<'_>,
        after: After,
    ) -> Result<Ppn, Refusal> {
        // Later writes of the same content may share the page.
        let is_known = self.dedup.is_some() && !self.dedup_paused && !self.apart.has(lpn);
        let fingerprint = is_known.then(|| Fingerprint::of(payload, self.core.config.fingerprint));
        let origin = PageOrigin::Merged(payload, after);
        self.program(lpn, origin, fingerprint.as_ref(), self.written_order())
    }
}
