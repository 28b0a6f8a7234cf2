//! The verbs, each on one screen: read, write, deallocate, flush. `remap` has its own file, and so has `merge`, for units of
//! several pages. This is the file to read first.
//!
//! A command takes effect at once: its operations are issued to the media with their ordering
//! constraints, and the tables change. The device decides when it is *acknowledged*.
//!
//! Invariants: room is made, and so anything reclaimed, only while every change of the tables has
//! an issued witness: at the start of a command, or of a piece of a long one. Absent: time, and
//! which scheme makes remaps durable.

use crate::config::guard::Guard;
use crate::dedup::{Fingerprint, PageLookup};
use crate::error::Refusal;
use crate::ftl::Ftl;
use crate::records::open_writes::PageOrder;
use crate::superblock::Stream;
use crate::verbs::program::PageOrigin;
use remap_ssd_media::{After, Lpn, Page, PageView, Payload, Ppn, Purpose};
use std::ops::Range;

impl Ftl {
    /// Checks the range of a command that changes data.
    #[inline]
    pub(crate) fn writable(&self, lpn: Lpn, len: u32) -> Result<Range<Lpn>, Refusal> {
        let range = self.range(lpn, len)?;
        self.may_change()?;
        Ok(range)
    }

    /// Refuses changes when the device is read-only or its disk has failed.
    #[inline]
    pub(crate) fn may_change(&self) -> Result<(), Refusal> {
        // Permanent conditions first: a failed disk can be replaced, worn flash cannot.
        match (self.read_only, self.core.clock.is_used_up()) {
            (true, _) => Err(Refusal::ReadOnly),
            (_, true) => Err(Refusal::NumbersUsedUp),
            _ if self.core.media.broken().is_some() => Err(Refusal::DiskFailed),
            _ => Ok(()),
        }
    }

    pub(crate) fn range(&self, lpn: Lpn, len: u32) -> Result<Range<Lpn>, Refusal> {
        let end = lpn.checked_offset(len).ok_or(Refusal::OutOfRange)?;
        if end > Lpn(self.core.config.lpns) {
            Err(Refusal::OutOfRange)
        } else {
            Ok(lpn..end)
        }
    }

    /// Reads a page; an unmapped one reads as zeroes.
    ///
    /// # Errors
    /// `OutOfRange`, `MediaError`.
    pub fn read(&mut self, lpn: Lpn) -> Result<Page, Refusal> {
        let found = self.find(lpn)?;
        match found.and_then(|ppn| self.buffered_view(ppn)) {
            Some(view) => Ok(view.to_page()),
            None => Ok(found.map_or(Page::Zeroes, |ppn| self.core.media.page(ppn))),
        }
    }

    /// Reads a page, whose content `view` returns until the next command. A page in the write buffer has a number past
    /// the last flash page.
    ///
    /// # Errors
    /// `OutOfRange`, `MediaError`.
    pub fn find(&mut self, lpn: Lpn) -> Result<Option<Ppn>, Refusal> {
        if self.open_write.is_some() || self.is_set {
            return self.peek(lpn);
        }
        if self.core.config.caches_mapping() && self.may_change().is_ok() {
            self.end_write();
            // A refusal concerns the next change, which meets it again.
            let _ = self.make_cache_room();
        }
        let found = self.peek(lpn)?;
        match found {
            Some(ppn) if self.refreshes() && self.is_on_flash(ppn) => {
                self.refresh_after_read(lpn, ppn)
            }
            _ => Ok(found),
        }
    }

    /// Like `find`, for a read that a drive would not make: it disturbs no page, and refreshes none.
    ///
    /// # Errors
    /// `OutOfRange`, `MediaError`.
    pub fn peek(&mut self, lpn: Lpn) -> Result<Option<Ppn>, Refusal> {
        if self.open_write.is_none() && !self.is_set {
            self.end_write();
        }
        self.range(lpn, 1)?;
        self.core.stats.host_reads += 1;
        if let Some(buffered) = self.find_buffered(lpn) {
            self.core.stats.buffer_hits += 1;
            return Ok(Some(buffered));
        }
        self.core.look_up(lpn);
        if !self.unreadable.is_empty() && self.unreadable.contains(&lpn) {
            return Err(Refusal::MediaError);
        }

        // Unmapped pages read as zeroes without a flash operation, so no time is charged.
        let Some(mapping) = self.core.tables.map.get(lpn) else {
            return Ok(None);
        };

        if self
            .core
            .media
            .begin_read(mapping.ppn, Purpose::Host)
            .is_err()
        {
            self.forget_content(mapping.ppn);
            return Err(Refusal::MediaError);
        }

        // A data LPN is mapped to metadata only if its content was lost: collection or recovery
        // programmed a page with the bytes `lost` in its place.
        if self.core.media.is_meta(mapping.ppn) {
            Err(Refusal::MediaError)
        } else {
            Ok(Some(mapping.ppn))
        }
    }

    /// The page cannot be read: removes it from the fingerprint store.
    #[cold]
    fn forget_content(&mut self, ppn: Ppn) {
        if let Some(dedup) = &mut self.dedup {
            dedup.forget(&self.core.media, ppn);
        }
    }

    /// The content of a page that `find` returned.
    pub fn view(&self, found: Option<Ppn>) -> PageView<'_> {
        match found {
            None => PageView::Zeroes,
            Some(ppn) => self
                .buffered_view(ppn)
                .unwrap_or_else(|| self.core.media.view(ppn)),
        }
    }

    /// Writes a page: a remap if its content is on flash, else a program.
    ///
    /// # Errors
    /// `OutOfRange`, `ReadOnly`, `NumbersUsedUp`.
    pub fn write(&mut self, lpn: Lpn, payload: &Payload<'_>) -> Result<(), Refusal> {
        let written = self.write_more(lpn, payload);
        self.end_write();
        written
    }

    /// Writes one page of a multi-page command. Its remap may be recorded together with those of
    /// the following pages, at `end_write` or at the next call of another verb. It must not be
    /// acknowledged before that.
    ///
    /// # Errors
    /// `OutOfRange`, `ReadOnly`, `NumbersUsedUp`.
    #[inline]
    pub fn write_more(&mut self, lpn: Lpn, payload: &Payload<'_>) -> Result<(), Refusal> {
        self.writable(lpn, 1)?;
        if let Some(write) = &self.open_write {
            return match write.open.slots {
                Some(_) => self.write_untorn(lpn, |ftl| ftl.enter_buffer(lpn, payload, false)),
                None => self.write_untorn(lpn, |ftl| {
                    ftl.core.look_up(lpn);
                    ftl.write_page(lpn, payload, ftl.written_order())
                }),
            };
        }
        if self.is_set {
            self.core.stats.host_writes += 1;
            return self.enter_buffer(lpn, payload, false);
        }
        if self.buffer.is_some() {
            return self.write_buffered(lpn, payload, false);
        }
        if self.hybrid {
            self.make_extension_room(1)?;
        }
        if self.core.config.caches_mapping() {
            self.cache_entry(lpn)?;
        }
        self.core.stats.host_writes += 1;
        self.write_page(lpn, payload, PageOrder::OWN)
    }

    /// Remaps a page to one that has its content, or programs it.
    #[inline(always)]
    pub(crate) fn write_page(
        &mut self,
        lpn: Lpn,
        payload: &Payload<'_>,
        order: PageOrder,
    ) -> Result<(), Refusal> {
        if self.dedup.is_none() {
            return self
                .program(lpn, PageOrigin::Payload(payload), None, order)
                .map(drop);
        }

        // A program without a lookup may reclaim too, so the gathered remaps are issued first.
        if self.dedup_paused || self.apart.has(lpn) {
            if self.write_goes_on {
                self.scheme.issue(&mut self.core);
            }
            return self
                .program(lpn, PageOrigin::Payload(payload), None, order)
                .map(drop);
        }

        // The store's candidate may be wrong. A digest is trusted without a read only if collisions
        // cannot be constructed and this process computed it.
        let kind = self.core.config.fingerprint;
        let fingerprint = Fingerprint::of(payload, kind);
        if let Some(ppn) = self.find_content(&fingerprint)
            && ((kind.is_trusted() && !self.is_recalled(ppn)) || self.is_verified(ppn, payload))
        {
            if self
                .core
                .tables
                .map
                .get(lpn)
                .is_some_and(|mapping| mapping.ppn == ppn)
            {
                self.no_effect(ppn);
                self.core.fill_lines();
                self.core.stats.dedup_hits += 1;
                self.relies_on(ppn);
                return Ok(());
            }
            let write = self.open_write.as_ref();
            // A damaged entry puts this LPN in doubt, not those of the whole write.
            let command = write.map(|write| (write.open.wsn, lpn, 1));
            // Demotion is not a host error: the page is programmed below.
            match self.remap_page(lpn, ppn, None, command, command.is_none()) {
                Ok(()) => {
                    self.write_goes_on = true;
                    self.relies_on(ppn);
                    self.core.stats.dedup_hits += 1;
                    return Ok(());
                }
                Err(cause) => self.core.stats.demote(cause),
            }
        }
        // A program may reclaim: 1. the scheme's gathered entries  2. the reclaiming. If 2 came
        // first, a cut in between would lose the old mappings of the remapped LPNs with no record
        // of the new ones.
        if self.core.config.guards.has(Guard::RecordBeforeReclaim) && self.write_goes_on {
            self.scheme.issue(&mut self.core);
        }
        self.program(lpn, PageOrigin::Payload(payload), Some(&fingerprint), order)
            .map(drop)
    }

    /// The open write, if there is one, ends only once the entry that maps one of its pages to this one is durable.
    #[inline]
    pub(super) fn relies_on(&mut self, ppn: Ppn) {
        if let Some(write) = &mut self.open_write {
            write.open.remapped(ppn);
        }
    }

    /// Caches the entry that a page of a write will change.
    #[cold]
    pub(crate) fn cache_entry(&mut self, lpn: Lpn) -> Result<(), Refusal> {
        // Evicting programs pages, as a program does.
        let cache = self.core.tables.map.cache.as_ref();
        let evicts = cache.is_some_and(|cache| cache.is_over());
        if evicts && self.core.config.guards.has(Guard::RecordBeforeReclaim) && self.write_goes_on {
            self.scheme.issue(&mut self.core);
        }
        self.make_cache_room()?;
        self.core.look_up(lpn);
        Ok(())
    }

    /// Finds the page that may have this content, if it may be shared.
    #[inline(always)]
    fn find_content(&mut self, fingerprint: &Fingerprint) -> Option<Ppn> {
        let pages = PageLookup {
            media: &self.core.media,
            counts: &self.core.tables.counts,
        };
        let found = self.dedup.as_mut()?.find(fingerprint, pages)?;
        // A store that was filled from flash also knows pages of LPNs that are kept apart. The OOB
        // of such a page names its LPN: it never has another owner.
        let is_shared = self.apart.is_empty() || !self.apart.has(self.core.media.oob(found).lpn());
        is_shared.then_some(found)
    }

    fn is_recalled(&self, ppn: Ppn) -> bool {
        self.dedup
            .as_ref()
            .is_some_and(|dedup| dedup.is_recalled(ppn))
    }

    /// Ends a multi-page write: stores the entries that the scheme has gathered. Every other verb
    /// calls it first.
    #[inline]
    pub fn end_write(&mut self) {
        self.is_set = false;
        if self.open_write.is_some() {
            self.end_untorn();
        } else if std::mem::take(&mut self.write_goes_on) {
            self.scheme.issue(&mut self.core);
            // An entry may wait for a page that collection has moved.
            self.core.fill_lines();
        } else {
            self.fill_host_line();
        }
    }

    /// Fills up the word line of the host's last page: the acknowledgement of a command that only programs waits
    /// for nothing else.
    #[inline]
    pub(super) fn fill_host_line(&mut self) {
        let (blocks, media) = (&mut self.core.blocks, &mut self.core.media);
        blocks.fill_line(media, Stream::Host);
        blocks.fill_line(media, Stream::Slc);
    }

    /// Reads the candidate page of an untrusted fingerprint, or of one loaded from a file, and
    /// compares the contents.
    #[inline(never)]
    fn is_verified(&mut self, ppn: Ppn, payload: &Payload<'_>) -> bool {
        self.core.stats.verified += 1;
        self.count_read(ppn);
        if self.core.media.begin_read(ppn, Purpose::Host).is_err() {
            self.forget_content(ppn);
            return false;
        }

        let is_same = match (self.core.media.view(ppn), payload) {
            (PageView::Identity(stored), Payload::Identity(wanted)) => stored == *wanted,
            (PageView::Bytes(stored), Payload::Bytes(wanted)) => stored == *wanted,
            _ => false,
        };

        match self.dedup.as_mut().filter(|dedup| dedup.is_recalled(ppn)) {
            Some(dedup) if is_same => dedup.confirm(ppn),
            Some(dedup) => dedup.forget(&self.core.media, ppn),
            None => self.core.stats.collisions += u64::from(!is_same),
        }

        is_same
    }

    /// Writes a page that will later be remapped to `home`, such as a page of a journal or log.
    /// Schemes that do not use the hint treat it as a write.
    ///
    /// # Errors
    /// `OutOfRange`, `ReadOnly`, `NumbersUsedUp`.
    pub fn write_for(&mut self, lpn: Lpn, payload: &Payload<'_>, home: Lpn) -> Result<(), Refusal> {
        self.end_write();
        self.range(home, 1)?;

        // Not an error: the data is correct without the hint, only the later remap costs more.
        if !self.core.config.scheme.uses_hints() || home == lpn {
            return self.write(lpn, payload);
        }
        self.writable(lpn, 1)?;
        self.write_back(lpn, 1)?;
        self.make_cache_room()?;
        self.core.look_up(lpn);
        self.core.stats.host_writes += 1;
        let programmed = self.program(lpn, PageOrigin::For(payload, home), None, PageOrder::OWN);
        self.fill_host_line();
        programmed.map(drop)
    }

    /// Deallocates a range (trim, write zeroes): it then reads as zeroes.
    ///
    /// # Errors
    /// `OutOfRange`, `ReadOnly`, `NumbersUsedUp`.
    pub fn deallocate(&mut self, lpn: Lpn, len: u32) -> Result<(), Refusal> {
        self.deallocate_after(lpn, len, After::NOTHING)
    }

    /// Deallocates pages whose contents were moved by earlier programs and remaps: no cut loses both.
    ///
    /// # Errors
    /// As `deallocate`.
    pub fn deallocate_moved(&mut self, lpn: Lpn, len: u32) -> Result<(), Refusal> {
        self.deallocate_after(lpn, len, After::ALL)
    }

    fn deallocate_after(&mut self, lpn: Lpn, len: u32, after: After) -> Result<(), Refusal> {
        self.end_write();
        let range = self.writable(lpn, len)?;
        self.core.stats.host_deallocations += u64::from(len);

        // Room first: making it may collect garbage, which changes tables.
        self.part_sets(range.clone())?;
        self.make_cache_room()?;
        self.make_dealloc_room(1)?;
        let wsn = self.core.clock.tick();
        // 1. the record  2. the tables. Anything reclaimed because of 2 waits for 1.
        let media = &mut self.core.media;
        self.dealloc
            .append(media, lpn, len, wsn, Purpose::Host, after);

        self.forget_buffered(range.clone());
        for lpn in Lpn::between(range) {
            self.core.unlink(lpn);
        }
        self.core.read_missed(Purpose::Host);
        self.core.fill_lines();
        Ok(())
    }

    /// Completes when all earlier commands are durable. Acknowledged commands always are, but for writes that are in a
    /// volatile write buffer: these are written back.
    ///
    /// # Errors
    /// Those of `write`, only with a volatile write buffer. The pages that were not written stay in it.
    pub fn flush(&mut self) -> Result<(), Refusal> {
        let mut listed = self.volatile_pages();
        self.write_back_listed(&mut listed, u32::MAX)?;
        self.flush_written();
        Ok(())
    }

    /// The end of a flush whose pages the caller has written back step by step (`write_back_listed`): completes when everything
    /// that has been issued is durable.
    pub fn flush_written(&mut self) {
        self.end_write();
        self.core.fill_lines();
        // 1. the pages, with their word lines and entries  2. the acknowledgement. Cut before 2: the host knows that
        // any of its writes may be lost.
        let after = self.core.config.guards.waits(Guard::FlushWaits, After::ALL);
        self.core.media.ack_after(after);
    }
}
