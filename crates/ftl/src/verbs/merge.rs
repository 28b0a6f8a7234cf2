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
//! Invariant: a merged page is programmed, never mapped to a page of the same content: that record would wait for the page it
//! names, not for 1. Absent: the merging (the caller's).

use crate::dedup::Fingerprint;
use crate::error::Refusal;
use crate::ftl::Ftl;
use crate::verbs::program::PageOrigin;
use remap_ssd_media::{After, Lpn, Payload};

impl Ftl {
    /// Writes a page that has a part of the contents that it had, as a part of a command that `end_write` ends.
    ///
    /// # Errors
    /// `OutOfRange`, `ReadOnly`, `NumbersUsedUp`.
    pub fn write_merged(&mut self, lpn: Lpn, payload: &Payload<'_>) -> Result<(), Refusal> {
        self.writable(lpn, 1)?;
        // A program may reclaim, so the remaps gathered by this command are issued first.
        if self.write_goes_on {
            self.scheme.issue(&mut self.core);
        }
        self.program_changed(lpn, payload, After::FENCE)
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
        let programmed = self.program_changed(lpn, payload, After::ALL);
        self.fill_host_line();
        programmed
    }

    /// The current command changes nothing, but its acknowledgement relies on earlier ones.
    pub fn wait_for_earlier(&mut self) {
        self.core.media.ack_after(After::ALL);
    }

    fn program_changed(
        &mut self,
        lpn: Lpn,
        payload: &Payload<'_>,
        after: After,
    ) -> Result<(), Refusal> {
        if self.hybrid {
            self.make_extension_room(1)?;
        }
        if self.core.config.caches_mapping() {
            self.cache_entry(lpn)?;
        }
        self.core.stats.host_writes += 1;

        // Later writes of the same content may share the page.
        let is_known = self.dedup.is_some() && !self.dedup_paused && !self.apart.has(lpn);
        let fingerprint = is_known.then(|| Fingerprint::of(payload, self.core.config.fingerprint));
        let origin = PageOrigin::Merged(payload, after);
        self.program(lpn, origin, fingerprint.as_ref(), None)
            .map(drop)
    }
}
