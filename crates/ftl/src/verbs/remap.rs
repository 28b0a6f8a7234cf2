//! Remaps: LPNs get pages that other LPNs have, and nothing is programmed.
//!
//! A command is executed in pieces. The room for a piece is made before its first page; then come
//! the witnesses of the pages that gain a mapping; lost mappings are recorded last. An atomic
//! command is one piece. A page that may not be shared is copied: no remap fails for lack of room.
//!
//! Invariants: nothing is reclaimed within a piece; no cut can lose a page both at its source and
//! at its target; an atomic command that fails leaves every mapping as it was. Absent: how a scheme
//! makes a remap durable (`contract::Persist`), and who issues remaps: hosts, or writes whose
//! content is on flash (`command`).

use crate::config::ATOMIC_PAGES_MAX;
use crate::config::guard::Guard;
use crate::contract::Remapping;
use crate::core::Core;
use crate::error::Refusal;
use crate::ftl::Ftl;
use crate::mapping::Mapping;
use crate::records::open_writes::PageOrder;
use crate::stats::Demotion;
use crate::verbs::program::PageOrigin;
use remap_ssd_media::{After, Lpn, Ppn, Purpose};

/// `remap(target, source, length, flag)` (FAST'21 §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remap {
    /// First LPN to be remapped.
    pub target: Lpn,
    /// First LPN whose mapping is read.
    pub source: Lpn,
    /// Number of pages.
    pub len: u32,
    /// Flag 1: the sources lose their pages. Flag 0: they keep them.
    pub relocate: bool,
    /// After a power cut all pages are remapped, or none.
    pub atomic: bool,
}

impl Remap {
    /// Like memmove: in the order in which no source is overwritten before it is read.
    pub(crate) fn index(&self, step: u32) -> u32 {
        if self.target < self.source {
            step
        } else {
            self.len - 1 - step
        }
    }
}

/// Most pages of a remap between two opportunities to reclaim.
const PIECE: usize = 64;

/// Pages that lose their mapping at the end of a piece. `wait_all`: their record waits for
/// everything issued, not only for the fence.
#[derive(Default)]
struct LostMappings {
    lpns: Vec<Lpn>,
    wait_all: bool,
}

impl Ftl {
    /// Remaps a range, as if all sources were read first. Unmapped sources unmap their targets.
    ///
    /// # Errors
    /// `OutOfRange`, `ReadOnly`, `NumbersUsedUp`, `AtomicTooLarge`, `AtomicUnsupported`,
    /// `AtomicUnavailable`.
    pub fn remap(&mut self, command: &Remap) -> Result<(), Refusal> {
        let done = self.remap_pages(command);
        self.core.fill_lines();
        done
    }

    fn remap_pages(&mut self, command: &Remap) -> Result<(), Refusal> {
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
        if command.atomic && !self.core.config.has_atomic_commands() {
            return Err(Refusal::AtomicUnsupported);
        }
        if command.atomic && len > self.atomic_pages_max() {
            return Err(Refusal::AtomicTooLarge);
        }
        if command.atomic && !self.can_be_atomic() {
            return Err(Refusal::AtomicUnavailable);
        }

        // A remap waits for the pages in the write buffer that it concerns: entries name pages on flash.
        let names = self.names_buffered(command);
        if !names {
            self.write_back(source, len)?;
            self.write_back(target, len)?;
        }
        self.core.stats.host_writes += u64::from(len);

        // The host relies on existing data, and it is not known here which of it is still pending:
        // the acknowledgement waits for all of it.
        if target == source || len == 0 {
            self.core.stats.no_effect += u64::from(len);
            self.core.media.ack_after(After::ALL);
            return Ok(());
        }

        // Not if pages stay in the write buffer, where each is durable alone.
        let is_untorn = !names && len > 1 && len <= self.untorn_remap_max();
        if command.atomic || is_untorn {
            return self.remap_atomic(command);
        }
        let piece = self.piece();
        let mut done = 0;
        // Where the range overlaps itself, a piece may lose what an earlier one has copied.
        let mut wait_all = false;

        while done < len {
            self.may_change()?;
            let mut count = piece.min(len - done);
            if names {
                if self.remap_buffered(command, done)? {
                    done += 1;
                    continue;
                }
                count = self.prepare_flash_piece(command, done, count)?;
            }
            self.make_piece_room(count)?;

            let mut losses = LostMappings {
                wait_all,
                ..LostMappings::default()
            };
            let result = (done..done + count).try_for_each(|step| {
                self.remap_one(command, command.index(step), None, &mut losses)
            });
            wait_all = losses.wait_all;
            // Even after a refusal: the earlier pages are already remapped in the tables.
            self.issue_and_lose(losses, None);
            // The next piece may collect, and what it moves must not wait for pages of this one.
            self.core.fill_lines();
            result?;
            done += count;
        }
        Ok(())
    }

    /// Pages of a remap between two opportunities to reclaim.
    fn piece(&self) -> u32 {
        // Half of the log must hold two records a page; otherwise no flush could make enough room.
        let piece = PIECE.min(self.core.layout.dealloc_slots / 2) as u32;
        if self.hybrid {
            piece.min(self.core.config.extension_entries() / 2)
        } else {
            piece
        }
    }

    /// Makes all room for a piece, before its first page. Making room reclaims, which is allowed
    /// only while the tables have no change without a witness.
    fn make_piece_room(&mut self, pages: u32) -> Result<(), Refusal> {
        if self.hybrid {
            self.make_extension_room(pages)?;
        }
        self.make_cache_room()?;
        // A piece may lose its targets and its sources.
        self.make_dealloc_room(2 * pages as usize)?;
        self.make_page_room()
    }

    /// Remaps one page. Lost mappings are gathered and recorded after the witnesses of the pages
    /// that gain one, so that no cut can lose both.
    fn remap_one(
        &mut self,
        command: &Remap,
        index: u32,
        atomic: Option<u64>,
        losses: &mut LostMappings,
    ) -> Result<(), Refusal> {
        let (target, source) = (command.target.offset(index), command.source.offset(index));
        // A source inside the target range is overwritten by this command: it loses nothing.
        let leaves = command.relocate
            && !(command.target..command.target.offset(command.len)).contains(&source);
        self.core.look_up(source);
        self.core.look_up(target);
        let Some(mapping) = self.core.tables.map.get(source) else {
            if self.core.tables.map.get(target).is_some() {
                losses.lpns.push(target);
            } else {
                // Already unmapped, perhaps by a command that is not durable yet.
                self.core.media.ack_after(After::FENCE);
            }
            return Ok(());
        };

        let relocated = leaves.then_some(source);
        let old = self.core.tables.map.get(target);
        if old.is_some_and(|old| old.ppn == mapping.ppn) {
            self.no_effect(mapping.ppn);
            self.relies_on(mapping.ppn);
            losses.wait_all = true;
        } else if !self.apart.permits(target, source, leaves) || !self.remaps() {
            self.core.stats.copies += 1;
            self.copy(target, source, atomic, losses)?;
        } else {
            let command = atomic.map(|wsn| (wsn, command.target, command.len));
            let may_reclaim = atomic.is_none();
            if let Err(cause) =
                self.remap_page(target, mapping.ppn, relocated, command, may_reclaim)
            {
                self.core.stats.demote(cause);
                self.copy(target, source, atomic, losses)?;
            } else {
                self.relies_on(mapping.ppn);
            }
        }

        losses.lpns.extend(relocated);
        Ok(())
    }

    /// Copies the source's page to the target, in place of a remap. The gathered entries are stored
    /// first, since allocating a page may reclaim.
    fn copy(
        &mut self,
        target: Lpn,
        source: Lpn,
        atomic: Option<u64>,
        losses: &mut LostMappings,
    ) -> Result<(), Refusal> {
        losses.wait_all = true;
        if self.core.config.guards.has(Guard::RecordBeforeReclaim) {
            self.scheme.issue(&mut self.core);
        }
        let order = match atomic {
            None => PageOrder::OWN,
            wsn => PageOrder {
                wsn,
                after: After::FENCE,
            },
        };
        self.program(target, PageOrigin::Copy(source), None, order)?;
        Ok(())
    }

    /// Ends a piece of a remap. 1. the scheme's gathered entries  2. the losses. Cut between: the
    /// moved pages are in both places. With 2 first, a cut could leave only the losses.
    fn issue_and_lose(&mut self, losses: LostMappings, atomic: Option<u64>) {
        if self.core.config.guards.has(Guard::GatheredFirst) {
            self.scheme.issue(&mut self.core);
            self.lose(losses, atomic);
        } else {
            self.lose(losses, atomic);
            self.scheme.issue(&mut self.core);
        }
    }

    /// Records and applies the gathered losses, as extents.
    fn lose(&mut self, mut losses: LostMappings, atomic: Option<u64>) {
        losses.lpns.sort_unstable();
        losses.lpns.dedup();

        // Entries are stores, so a fence orders them. A copied page is a program, and a page
        // without effect may still be pending: these need `ALL`.
        let after = if losses.wait_all {
            After::ALL
        } else {
            After::FENCE
        };

        for run in losses.lpns.chunk_by(|a, b| a.offset(1) == *b) {
            // The record's own number, newer than the remaps before it. In an atomic command it is
            // the command's number, so that a cut undoes the losses as well.
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

    /// Largest atomic remap: the number of pages that two superblocks of the reserve can hold if
    /// every page must be copied.
    pub fn atomic_pages_max(&self) -> u32 {
        // A page may take two records.
        let slots = self.core.layout.dealloc_slots as u32;
        ATOMIC_PAGES_MAX
            .min(self.pages_without_reclaiming())
            .min(slots / 2)
    }

    /// Pages that a command can program although nothing is reclaimed before it ends: a page may take two entries of the
    /// extension.
    pub(crate) fn pages_without_reclaiming(&self) -> u32 {
        let entries = if self.hybrid {
            self.core.config.extension_entries()
        } else {
            u32::MAX
        };
        (self.core.config.data_pages(&self.core.geometry) / 2).min(entries / 2)
    }

    /// Executes a remap that survives a power cut as a whole or not at all.
    fn remap_atomic(&mut self, command: &Remap) -> Result<(), Refusal> {
        self.make_piece_room(command.len)?;
        self.scheme.prepare(&mut self.core, command.len);

        let wsn = self.core.clock.tick();
        // 1. "command WSN is under way"  2. its witnesses, all with that WSN  3. the slot is
        // emptied: the commit. Cut before 3: recovery ignores every witness with that WSN. Nothing
        // is reclaimed between 1 and 3. A failure comes before 3 too: the old page of each target
        // still exists and is mapped again.
        self.paused = true;
        if self.has_open_words() {
            self.open_write(wsn, command.len, false);
        } else {
            self.atomic_slot.begin(&mut self.core.media, wsn);
        }
        // Pages wait for the slot from their word line's first page on.
        self.core.fill_lines();

        // The old mapping of each target, for `restore`. It may include a page that was refused
        // without a change, so `restore` compares mappings first.
        let mut losses = LostMappings::default();
        let mut before = Vec::with_capacity(command.len as usize);
        let result = (0..command.len).try_for_each(|step| {
            let index = command.index(step);
            before.push((
                command.target.offset(index),
                self.core.tables.map.get(command.target.offset(index)),
            ));
            self.remap_one(command, index, Some(wsn), &mut losses)
        });

        if result.is_ok() {
            self.issue_and_lose(losses, Some(wsn));
            if let Some(mut write) = self.open_write.take() {
                // The records of lost mappings.
                write.open.stores();
                self.core.fill_lines();
                self.open_writes.commit(&mut self.core.media, write.open);
                self.core.media.fence();
            } else {
                self.atomic_slot
                    .commit(&mut self.core.media, &self.core.tables.aborted);
            }
            self.core.stats.atomic_commands += u64::from(command.atomic);
        } else {
            self.scheme.issue(&mut self.core);
            self.restore(before);
            self.atomic_slot
                .abort(&mut self.core.media, &mut self.core.tables.aborted, wsn);
            if let Some(write) = self.open_write.take() {
                let is_listed = self.atomic_slot.is_free(&self.core.tables.aborted);
                self.open_writes
                    .abort(&mut self.core.media, &write.open, is_listed);
            }
        }
        self.paused = false;
        result
    }

    /// Restores old mappings in reverse order. Their entries still exist.
    #[cold]
    pub(crate) fn restore(&mut self, before: Vec<(Lpn, Option<Mapping>)>) {
        for (lpn, old) in before.into_iter().rev() {
            match old {
                _ if self.core.tables.map.get(lpn) == old => {}
                Some(Mapping { ppn, remapped }) => self.core.relink(lpn, ppn, remapped),
                None => drop(self.core.unlink(lpn)),
            }
        }
    }

    /// Maps an LPN to a page that another LPN has; on an error the core copies.
    #[inline]
    pub(crate) fn remap_page(
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

        // The scheme sees the number that the remap will have. Reclaiming takes numbers too, so the
        // number is read again afterwards: otherwise two witnesses would share it.
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
        // Acknowledged after 2. Until then the tables are ahead of 2; nothing is reclaimed in
        // between.
        self.scheme
            .persist(&mut self.core, &remapping, Purpose::Host);

        self.gc.note_remap(&self.core.geometry, &remapping);
        self.core.relink(lpn, ppn, true);
        self.core.stats.remaps += 1;
        Ok(())
    }

    /// Nothing changes, but the command relies on the earlier one that made it so, which must be
    /// durable before the acknowledgement.
    #[inline]
    pub(crate) fn no_effect(&mut self, ppn: Ppn) {
        self.core.stats.no_effect += 1;
        if self.core.config.guards.has(Guard::NoEffectWaits) {
            self.core
                .media
                .ack_after(After::page(ppn).and(After::FENCE));
        }
    }
}
