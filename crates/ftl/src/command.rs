//! The verbs, each on one screen: read, write, deallocate, flush; `remap` has a file of its own.
//! The file to read first.
//!
//! A command takes effect here and now: its operations are issued to the media with what each must
//! wait for, and the tables change. When it is *acknowledged* is the device's business.
//!
//! Invariants: room is made, and so anything reclaimed, only while every change of the tables has
//! its witness issued: at the start of a command, or of a piece of a long one. Absent: time, and
//! which scheme makes remaps durable.

use crate::dedup::{Fingerprint, PageLookup};
use crate::error::Refusal;
use crate::ftl::Ftl;
use crate::guard::Guard;
use crate::program::PageOrigin;
use remap_ssd_media::{After, Lpn, Page, PageView, Payload, Ppn, Purpose};
use std::ops::Range;

impl Ftl {
    /// The range of a command that changes something.
    #[inline]
    pub(crate) fn writable(&self, lpn: Lpn, len: u32) -> Result<Range<Lpn>, Refusal> {
        let range = self.range(lpn, len)?;
        self.may_change()?;
        Ok(range)
    }

    /// Refuses changes when the device is read-only or its disk has failed.
    #[inline]
    pub(crate) fn may_change(&self) -> Result<(), Refusal> {
        // What is for good comes first: a failed disk can be replaced, worn flash cannot.
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

    /// Reads a page; an unmapped one is zeroes.
    ///
    /// # Errors
    /// `OutOfRange`, `MediaError`.
    pub fn read(&mut self, lpn: Lpn) -> Result<Page, Refusal> {
        let found = self.find(lpn)?;
        Ok(found.map_or(Page::Zeroes, |ppn| self.core.media.page(ppn)))
    }

    /// Reads a page that `view` shows, until the next command.
    ///
    /// # Errors
    /// `OutOfRange`, `MediaError`.
    pub fn find(&mut self, lpn: Lpn) -> Result<Option<Ppn>, Refusal> {
        self.end_write();
        self.range(lpn, 1)?;
        self.core.stats.host_reads += 1;
        if !self.unreadable.is_empty() && self.unreadable.contains(&lpn) {
            return Err(Refusal::MediaError);
        }

        // Unmapped pages read as zeroes without a flash operation, so no time is charged for them.
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

        // A data LPN is mapped to metadata only if its content was lost: the page of the bytes
        // `lost`, which collection or recovery programmed in its place.
        if self.core.media.is_meta(mapping.ppn) {
            Err(Refusal::MediaError)
        } else {
            Ok(Some(mapping.ppn))
        }
    }

    /// A page cannot be read: the fingerprint store must forget it.
    #[cold]
    fn forget_content(&mut self, ppn: Ppn) {
        if let Some(dedup) = &mut self.dedup {
            dedup.forget(&self.core.media, ppn);
        }
    }

    /// What `find` found, where it is.
    pub fn view(&self, found: Option<Ppn>) -> PageView<'_> {
        found.map_or(PageView::Zeroes, |ppn| self.core.media.view(ppn))
    }

    /// Writes a page: a remap if its content is on flash already, else a program.
    ///
    /// # Errors
    /// `OutOfRange`, `ReadOnly`, `NumbersUsedUp`.
    pub fn write(&mut self, lpn: Lpn, payload: &Payload<'_>) -> Result<(), Refusal> {
        let written = self.write_more(lpn, payload);
        self.end_write();
        written
    }

    /// Writes a page of a command that goes on: its remap may be recorded together with those of
    /// the pages that follow, at the next call of anything else or of `end_write`, and it must not
    /// be acknowledged before.
    ///
    /// # Errors
    /// `OutOfRange`, `ReadOnly`, `NumbersUsedUp`.
    pub fn write_more(&mut self, lpn: Lpn, payload: &Payload<'_>) -> Result<(), Refusal> {
        self.writable(lpn, 1)?;
        if self.hybrid {
            self.make_extension_room(1)?;
        }
        self.core.stats.host_writes += 1;
        if self.dedup.is_none() {
            return self
                .program(lpn, PageOrigin::Payload(payload), None, None)
                .map(drop);
        }

        // A program without a look for its content may reclaim as any other, so the run goes first.
        if self.dedup_paused || self.is_apart(lpn) {
            self.end_write();
            return self
                .program(lpn, PageOrigin::Payload(payload), None, None)
                .map(drop);
        }

        // The store nominates a page and may be wrong. A digest is believed without a read only if
        // nobody can make a collision and this process has computed it itself.
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
                self.core.stats.dedup_hits += 1;
                return Ok(());
            }
            // Demotion is never the host's error: whatever the reason, the page is programmed
            // below.
            match self.remap_page(lpn, ppn, None, None, true) {
                Ok(()) => {
                    self.write_goes_on = true;
                    self.core.stats.dedup_hits += 1;
                    return Ok(());
                }
                Err(cause) => self.core.stats.demote(cause),
            }
        }
        // A program may reclaim: 1. what the scheme has gathered  2. whatever is reclaimed. Cut
        // between with 2 first: what the remapped LPNs had before is gone, and nothing says what
        // they have now.
        if self.core.config.guards.has(Guard::RecordBeforeReclaim) {
            self.end_write();
        }
        self.program(lpn, PageOrigin::Payload(payload), Some(&fingerprint), None)
            .map(drop)
    }

    /// The page that may have this content, and that others may have.
    #[inline]
    fn find_content(&mut self, fingerprint: &Fingerprint) -> Option<Ppn> {
        let pages = PageLookup {
            media: &self.core.media,
            counts: &self.core.tables.counts,
        };
        let found = self.dedup.as_mut()?.find(fingerprint, pages)?;
        // A store that was filled from what flash holds knows pages of LPNs that are kept apart,
        // too. Their page is named by its OOB: it never has another owner.
        let is_shared = self.apart.is_empty() || !self.is_apart(self.core.media.oob(found).lpn());
        is_shared.then_some(found)
    }

    fn is_recalled(&self, ppn: Ppn) -> bool {
        self.dedup
            .as_ref()
            .is_some_and(|dedup| dedup.is_recalled(ppn))
    }

    /// A write command of several pages has ended, or another command begins: what the scheme has
    /// gathered is stored.
    #[inline]
    pub fn end_write(&mut self) {
        if std::mem::take(&mut self.write_goes_on) {
            self.scheme.issue(&mut self.core);
        }
    }

    /// Reads the page nominated by an untrusted fingerprint, or by one from a file, and compares
    /// the contents.
    #[inline(never)]
    fn is_verified(&mut self, ppn: Ppn, payload: &Payload<'_>) -> bool {
        self.core.stats.verified += 1;
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

    /// Writes a page that is meant to be remapped to `home` one day: a journal's or a log's. A
    /// scheme that has no use for the hint treats it as a write.
    ///
    /// # Errors
    /// `OutOfRange`, `ReadOnly`, `NumbersUsedUp`.
    pub fn write_for(&mut self, lpn: Lpn, payload: &Payload<'_>, home: Lpn) -> Result<(), Refusal> {
        self.end_write();
        self.range(home, 1)?;

        // Not an error: what is written for a home is correct without the hint, only the remap
        // later costs more.
        if !self.core.config.scheme.uses_hints() || home == lpn {
            return self.write(lpn, payload);
        }
        self.writable(lpn, 1)?;
        self.core.stats.host_writes += 1;
        self.program(lpn, PageOrigin::For(payload, home), None, None)
            .map(drop)
    }

    /// Deallocates a range (trim, write zeroes): it reads as zeroes from now on.
    ///
    /// # Errors
    /// `OutOfRange`, `ReadOnly`, `NumbersUsedUp`.
    pub fn deallocate(&mut self, lpn: Lpn, len: u32) -> Result<(), Refusal> {
        self.end_write();
        let range = self.writable(lpn, len)?;
        self.core.stats.host_deallocations += u64::from(len);

        // Room first: making it may collect garbage, which changes tables.
        self.make_dealloc_room(1)?;
        let wsn = self.core.clock.tick();
        // 1. the record  2. the tables. Whatever is reclaimed because of 2 waits for 1.
        self.dealloc.append(
            &mut self.core.media,
            lpn,
            len,
            wsn,
            Purpose::Host,
            After::NOTHING,
        );

        for lpn in Lpn::between(range) {
            self.core.unlink(lpn);
        }
        Ok(())
    }

    /// Completes when everything before is durable. Acknowledged commands are anyway.
    ///
    /// # Errors
    /// None at present.
    pub fn flush(&mut self) -> Result<(), Refusal> {
        self.end_write();
        self.core.media.ack_after(After::ALL);
        Ok(())
    }
}
