//! The verbs, each on one screen: read, write, deallocate, flush, remap. The file to read first.
//!
//! A command takes effect here and now: its operations are issued to the media with what each must
//! wait for, and the tables change. When it is *acknowledged* is the device's business.
//!
//! Invariants: room is made, and so anything reclaimed, only while every change of the tables has
//! its witness issued: at the start of a command, or of a piece of a long one. Absent: time, and
//! which scheme makes remaps durable.

use crate::atomic::AtomicSlot;
use crate::config::{ATOMIC_PAGES_MAX, EntrySize};
use crate::contract::Remapping;
use crate::core::Core;
use crate::dedup::{Fingerprint, Pages};
use crate::error::Refusal;
use crate::ftl::Ftl;
use crate::guard::Guard;
use crate::mapping::Mapping;
use crate::program::Origin;
use crate::stats::Demotion;
use remap_ssd_media::{After, Lpn, Page, PageView, Payload, Ppn, Purpose};
use std::ops::Range;

/// `remap(target, source, length, flag)` (FAST'21 §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remap {
    /// First LPN that is mapped anew.
    pub target: Lpn,
    /// First LPN that is read.
    pub source: Lpn,
    /// How many pages, from the first on.
    pub len: u32,
    /// Flag 1: the sources lose their pages. Flag 0: they keep them.
    pub relocate: bool,
    /// All pages or none survive a power cut.
    pub atomic: bool,
}

/// Pages of a remap handled between two chances to reclaim.
const PIECE: usize = 64;

/// Pages that lose their mapping at the end of a piece, and what that must wait for.
#[derive(Default)]
struct Losses {
    lpns: Vec<Lpn>,
    wait_all: bool,
}

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
    fn may_change(&self) -> Result<(), Refusal> {
        // What is for good comes first: a failed disk can be replaced, worn flash cannot.
        match (self.read_only, self.core.clock.is_used_up()) {
            (true, _) => Err(Refusal::ReadOnly),
            (_, true) => Err(Refusal::NumbersUsedUp),
            _ if self.core.media.broken().is_some() => Err(Refusal::DiskFailed),
            _ => Ok(()),
        }
    }

    fn range(&self, lpn: Lpn, len: u32) -> Result<Range<Lpn>, Refusal> {
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
                .program(lpn, Origin::Payload(payload), None, None)
                .map(drop);
        }

        // A program without a look for its content may reclaim as any other, so the run goes first.
        if self.dedup_paused || self.is_apart(lpn) {
            self.end_write();
            return self
                .program(lpn, Origin::Payload(payload), None, None)
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
        self.program(lpn, Origin::Payload(payload), Some(&fingerprint), None)
            .map(drop)
    }

    /// The page that may have this content, and that others may have.
    #[inline]
    fn find_content(&mut self, fingerprint: &Fingerprint) -> Option<Ppn> {
        let pages = Pages {
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
        self.program(lpn, Origin::For(payload, home), None, None)
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

    /// Remaps a range, as if all sources were read first. Unmapped sources unmap their targets.
    ///
    /// # Errors
    /// `OutOfRange`, `ReadOnly`, `NumbersUsedUp`, `AtomicTooLarge`, `AtomicUnsupported`,
    /// `AtomicUnavailable`.
    pub fn remap(&mut self, command: &Remap) -> Result<(), Refusal> {
        let Remap {
            target,
            source,
            len,
            ..
        } = *command;
        self.end_write();
        self.range(source, len)?;
        self.writable(target, len)?;

        // Refused before anything is counted or changed: the host may repeat the command without
        // the flag.
        if command.atomic && self.core.config.entry == EntrySize::Bytes16 {
            return Err(Refusal::AtomicUnsupported);
        }
        if command.atomic && len > self.atomic_pages_max() {
            return Err(Refusal::AtomicTooLarge);
        }
        if command.atomic && !AtomicSlot::is_free(&self.core.tables.aborted) {
            return Err(Refusal::AtomicUnavailable);
        }

        self.core.stats.host_writes += u64::from(len);

        // The host relies on what is there already, and which of it is still pending is not known
        // here: the acknowledgement waits for all of it.
        if target == source || len == 0 {
            self.core.stats.no_effect += u64::from(len);
            self.core.media.ack_after(After::ALL);
            return Ok(());
        }

        if command.atomic {
            return self.remap_atomic(command);
        }
        // Like memmove: in the order in which no target is overwritten before it has been read as a
        // source.
        let ascending = target < source;
        let piece = self.piece();
        let mut done = 0;

        // One piece a turn. All room is made before its first page, because making room reclaims,
        // and may reclaim only while the tables have no change without a witness. A piece may lose
        // its targets and its sources, so two records a page.
        while done < len {
            let count = piece.min(len - done);
            self.may_change()?;
            if self.hybrid {
                self.make_extension_room(count)?;
            }
            self.make_dealloc_room(2 * count as usize)?;
            self.make_page_room()?;

            let mut losses = Losses::default();
            let result = (done..done + count).try_for_each(|step| {
                let index = if ascending { step } else { len - 1 - step };
                self.remap_one(command, index, None, &mut losses)
            });
            // Also when a page was refused: the pages before it are remapped, in the tables
            // already.
            self.issue_and_lose(losses, None);
            result?;
            done += count;
        }
        Ok(())
    }

    /// Pages of a remap between two chances to reclaim.
    fn piece(&self) -> u32 {
        // A half of the log must take two records a page; otherwise no flush could make enough
        // room.
        let piece = PIECE.min(self.core.layout.dealloc_slots / 2) as u32;
        if self.hybrid {
            piece.min(self.core.config.extension_entries() / 2)
        } else {
            piece
        }
    }

    /// One page of a remap. What loses its mapping is gathered: it is recorded after the witnesses
    /// of the pages that gain one, so that no cut can lose both.
    fn remap_one(
        &mut self,
        command: &Remap,
        index: u32,
        atomic: Option<u64>,
        losses: &mut Losses,
    ) -> Result<(), Refusal> {
        let (target, source) = (command.target.offset(index), command.source.offset(index));
        // A source inside the target's range is overwritten by this very command: it loses nothing.
        let leaves = command.relocate
            && !(command.target..command.target.offset(command.len)).contains(&source);
        let Some(mapping) = self.core.tables.map.get(source) else {
            if self.core.tables.map.get(target).is_some() {
                losses.lpns.push(target);
            } else {
                // Unmapped already, perhaps by a command that is not durable yet.
                self.core.media.ack_after(After::FENCE);
            }
            return Ok(());
        };

        let relocated = leaves.then_some(source);
        // A page that leaves one that is kept apart has one owner before and after; others may find
        // one that comes there.
        let may_share =
            !self.is_apart(target) && !self.is_apart(source) || leaves && self.is_apart(source);
        if self
            .core
            .tables
            .map
            .get(target)
            .is_some_and(|old| old.ppn == mapping.ppn)
        {
            self.no_effect(mapping.ppn);
            losses.wait_all = true;
        } else if !may_share
            || !self.remap_or_say_why(command, target, mapping.ppn, relocated, atomic)
        {
            self.core.stats.copies += u64::from(!may_share);
            losses.wait_all = true;
            if self.core.config.guards.has(Guard::RecordBeforeReclaim) {
                self.scheme.issue(&mut self.core);
            }
            self.program(target, Origin::Copy(source), None, atomic)?;
        }

        losses.lpns.extend(relocated);
        Ok(())
    }

    fn remap_or_say_why(
        &mut self,
        command: &Remap,
        target: Lpn,
        ppn: Ppn,
        relocated: Option<Lpn>,
        atomic: Option<u64>,
    ) -> bool {
        if !self.remaps() {
            self.core.stats.copies += 1;
            return false;
        }

        let atomic = atomic.map(|wsn| (wsn, command.target, command.len));
        match self.remap_page(target, ppn, relocated, atomic, atomic.is_none()) {
            Ok(()) => true,
            Err(cause) => {
                self.core.stats.demote(cause);
                false
            }
        }
    }

    /// Ends a piece of a remap. 1. what the scheme has gathered  2. the losses. Cut between: the
    /// pages that moved are in both places. A loss that came first might be all that is left of
    /// them.
    fn issue_and_lose(&mut self, losses: Losses, atomic: Option<u64>) {
        if self.core.config.guards.has(Guard::GatheredFirst) {
            self.scheme.issue(&mut self.core);
            self.lose(losses, atomic);
        } else {
            self.lose(losses, atomic);
            self.scheme.issue(&mut self.core);
        }
    }

    /// Records and applies the gathered losses, as extents.
    fn lose(&mut self, mut losses: Losses, atomic: Option<u64>) {
        losses.lpns.sort_unstable();
        losses.lpns.dedup();

        // Entries are stores, so a fence orders them. A copied page is a program, and one that had
        // no effect may still be pending: for those only `ALL` will do.
        let after = if losses.wait_all {
            After::ALL
        } else {
            After::FENCE
        };

        for run in losses.lpns.chunk_by(|a, b| a.offset(1) == *b) {
            // A number of its own, newer than the remaps before. In an atomic command the
            // command's, so that a cut takes the losses back as well.
            let wsn = atomic.unwrap_or_else(|| self.core.clock.tick());
            self.dealloc.append(
                &mut self.core.media,
                run[0],
                run.len() as u32,
                wsn,
                Purpose::Host,
                after,
            );
        }

        for lpn in losses.lpns {
            self.core.unlink(lpn);
        }
    }

    /// Largest atomic remap: what two superblocks of the reserve can take if every page must be
    /// copied.
    pub fn atomic_pages_max(&self) -> u32 {
        // Nothing is reclaimed before the commit, so what the whole command needs must fit at once:
        // a page may take two records and two entries of the extension.
        let slots = self.core.layout.dealloc_slots as u32;
        let entries = if self.hybrid {
            self.core.config.extension_entries()
        } else {
            u32::MAX
        };
        ATOMIC_PAGES_MAX
            .min(self.core.config.data_pages(&self.core.geometry) / 2)
            .min(slots / 2)
            .min(entries / 2)
    }

    /// A remap that survives a power cut whole or not at all.
    fn remap_atomic(&mut self, command: &Remap) -> Result<(), Refusal> {
        if self.hybrid {
            self.make_extension_room(command.len)?;
        }
        self.make_dealloc_room(2 * command.len as usize)?;
        self.make_page_room()?;
        self.scheme.prepare(&mut self.core, command.len);

        let wsn = self.core.clock.tick();
        // 1. "command WSN is under way"  2. its witnesses, all with that WSN  3. the slot is
        // emptied: the commit. Cut before 3: recovery ignores every witness with that WSN. Nothing
        // is reclaimed between 1 and 3. A failure comes before 3 too: the old page of each target
        // is still there, and is mapped again.
        self.paused = true;
        self.atomic_slot.begin(&mut self.core.media, wsn);

        // What each target had, for `restore`. A page that is refused unchanged may be among them:
        // its mapping is compared first.
        let mut losses = Losses::default();
        let mut before = Vec::with_capacity(command.len as usize);
        let ascending = command.target < command.source;
        let result = (0..command.len).try_for_each(|step| {
            let index = if ascending {
                step
            } else {
                command.len - 1 - step
            };
            before.push((
                command.target.offset(index),
                self.core.tables.map.get(command.target.offset(index)),
            ));
            self.remap_one(command, index, Some(wsn), &mut losses)
        });

        if result.is_ok() {
            self.issue_and_lose(losses, Some(wsn));
            self.atomic_slot
                .commit(&mut self.core.media, &self.core.tables.aborted);
            self.core.stats.atomic_commands += 1;
        } else {
            self.scheme.issue(&mut self.core);
            self.restore(before);
            self.atomic_slot
                .abort(&mut self.core.media, &mut self.core.tables.aborted, wsn);
        }
        self.paused = false;
        result
    }

    /// Restores old mappings, the one changed last first. Their entries are still in place.
    #[cold]
    fn restore(&mut self, before: Vec<(Lpn, Option<Mapping>)>) {
        for (lpn, old) in before.into_iter().rev() {
            match old {
                _ if self.core.tables.map.get(lpn) == old => {}
                Some(Mapping { ppn, remapped }) => self.core.relink(lpn, ppn, remapped),
                None => drop(self.core.unlink(lpn)),
            }
        }
    }

    /// Gives an LPN a page that another LPN has already; the core copies if it may not.
    #[inline]
    fn remap_page(
        &mut self,
        lpn: Lpn,
        ppn: Ppn,
        source: Option<Lpn>,
        atomic: Option<(u64, Lpn, u32)>,
        may_reclaim: bool,
    ) -> Result<(), Demotion> {
        if !self
            .core
            .tables
            .counts
            .has_room(ppn, self.core.config.count_max.into())
        {
            return Err(Demotion::CounterFull);
        }

        // The scheme sees the number that the remap will have. Reclaiming takes numbers too, so it
        // is asked for again afterwards: with the old one two witnesses would have one number.
        let command = atomic.map(|(_, start, len)| (start, len));
        let number = |core: &Core| atomic.map_or(core.clock.now() + 1, |(wsn, ..)| wsn);
        let next = Remapping {
            lpn,
            ppn,
            wsn: number(&self.core),
            source,
            atomic: command,
        };

        self.scheme
            .admit_remap(&mut self.core, &next, may_reclaim)?;
        let remapping = Remapping {
            wsn: number(&self.core),
            ..next
        };

        if atomic.is_none() {
            self.core.clock.tick();
        }

        // 1. the page (the entry waits for it)  2. the entry, now or at the end of the piece.
        // Acknowledged after 2. The tables are ahead of 2 until then; nothing is reclaimed in
        // between.
        self.scheme
            .persist(&mut self.core, &remapping, Purpose::Host);

        self.gc.note_remap(&self.core.geometry, &remapping);
        self.core.relink(lpn, ppn, true);
        self.core.stats.remaps += 1;
        Ok(())
    }

    /// Nothing changes, but the command relies on what made it so: it must be durable before the
    /// acknowledgement.
    #[inline]
    fn no_effect(&mut self, ppn: Ppn) {
        self.core.stats.no_effect += 1;
        if self.core.config.guards.has(Guard::NoEffectWaits) {
            self.core
                .media
                .ack_after(After::page(ppn).and(After::FENCE));
        }
    }
}
