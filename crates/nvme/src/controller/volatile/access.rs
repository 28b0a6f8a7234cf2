//! How commands go through the volatile cache, and how it is written back.
//!
//! A command that must be durable (`ActiveCommand::through`: FUA, or the write cache feature is
//! off) goes to the device, and what the cache has of its blocks is forgotten. Whatever else
//! changes blocks adds versions: writes, Write Zeroes, Deallocate, Copy and remaps. A remap is
//! cached as what it reads; write-back turns it into a remap again where the source still holds the
//! same. Earlier durability than was asked for is allowed. It is taken where versions of a command
//! make no sense one by one: atomic remaps, listed pages (FS Write), and deallocations of more than
//! `DEALLOCATE_PAGES_MAX`.
//!
//! What is written back stays in the cache until a sync has made it durable, with what the device
//! held before. The order of a flush, and what a power cut of the cache leaves of a page:
//!
//! ```text
//! 1. read what the device holds; write the newest version      cut before 2: any version since the
//!    to the device; keep both in the cache                     last durable one, or that one
//! 2. a sync makes the device's history durable up to a         cut between 2 and 3: the same, since
//!    position, in its files                                    nothing is acknowledged
//! 3. in the turn that notes it: forget the versions up to      cut after 3: this version, or a
//!    there (`Subsystem::note_durable`)                         newer one
//! 4. acknowledge the flush
//! ```
//! A page that has to make room for others skips 2: it is forgotten after 1, and so are versions
//! whose predecessor cannot be read or finds no room.
//!
//! Invariants: the cache is used by the holder of the device's turn alone; a page leaves it after
//! the device has its content; no step moves more than `STEP_PAGES` pages. Absent: which versions a
//! cut leaves (`cut`).

use super::{CutReport, NewVersion, Newest, SECTOR_BYTES, SectorData, Sectors, VolatileCache};
use crate::controller::execute::Job;
use crate::controller::io::{ActiveCommand, Piece, status_of};
use crate::controller::namespaces::Namespace;
use crate::controller::request::{Blocks, IoRequest};
use crate::controller::reservations::Actor;
use crate::controller::rights::LOCAL;
use crate::controller::subsystem::Subsystem;
use crate::controller::turn::Step;
use crate::spec::status::Status;
use remap_ssd_device::Device;
use remap_ssd_ftl::Remap;
use remap_ssd_media::folder::HistoryPosition;
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_media::{Lpn, PageView, Payload};
use std::sync::MutexGuard;
use std::sync::atomic::Ordering::Relaxed;

/// Pages that one step of write-back remaps or deallocates.
const STEP_PAGES: u32 = 64;
/// Deallocations of more pages go to the device: 16 MiB.
const DEALLOCATE_PAGES_MAX: u32 = 4 << 10;

/// A page's durable content, as bytes.
fn bytes_of(view: PageView<'_>) -> Result<[u8; PAGE_BYTES], Status> {
    match view {
        PageView::Zeroes => Ok([0; PAGE_BYTES]),
        PageView::Bytes(bytes) => Ok(*bytes),
        PageView::Unknown | PageView::Identity(_) => Err(Status::INTERNAL),
    }
}

impl<'t> ActiveCommand<'_, 't> {
    /// The cache, if there is one. It must be released before the device is.
    fn cache(&self) -> Option<MutexGuard<'t, VolatileCache>> {
        self.device.cache()
    }

    /// May this command's changes stay in a cache?
    pub fn is_cached(&self) -> bool {
        !self.through && self.cache().is_some()
    }

    /// The newest content of a page of which the cache has something; otherwise `show` is given
    /// back.
    #[inline]
    pub fn view_cached<R, S>(&mut self, lpn: Lpn, show: S) -> Result<Result<R, Status>, S>
    where
        S: FnOnce(PageView<'_>) -> Result<R, Status>,
    {
        if self.device.has_cache() {
            self.view_in_cache(lpn, show)
        } else {
            Err(show)
        }
    }

    /// The same, for a device with a cache. Not inlined: its page on the stack would be touched by
    /// devices without one too.
    #[inline(never)]
    fn view_in_cache<R, S>(&mut self, lpn: Lpn, show: S) -> Result<Result<R, Status>, S>
    where
        S: FnOnce(PageView<'_>) -> Result<R, Status>,
    {
        let Some(cache) = self.cache() else {
            return Err(show);
        };

        // A page of zeroes needs no buffer.
        match cache.newest(lpn) {
            None => return Err(show),
            Some(Newest::Zeroes) => return Ok(show(PageView::Zeroes)),
            Some(_) => {}
        }

        let page = self.newest_page(&cache, lpn);
        Ok(page.and_then(|page| show(PageView::Bytes(&page))))
    }

    /// A page as a host sees it; the device is asked only for what the cache does not have.
    fn newest_page(&mut self, cache: &VolatileCache, lpn: Lpn) -> Result<[u8; PAGE_BYTES], Status> {
        // The device is not asked for a page that is cached as a whole.
        let mut page = match cache.covered(lpn) {
            Sectors::ALL => [0; PAGE_BYTES],
            _ => self.durable_page(lpn)?,
        };
        cache.overlay(lpn, &mut page);
        Ok(page)
    }

    /// A page as the device has it.
    fn durable_page(&mut self, lpn: Lpn) -> Result<[u8; PAGE_BYTES], Status> {
        self.device.spend(Step::Read);
        let (done_at, page) = self.device.view(self.now, lpn, bytes_of);
        self.done_at = self.done_at.max(done_at);
        page.map_err(status_of)?
    }

    /// Adds a version, after room was made for it: the oldest pages are written back.
    fn put(&mut self, lpn: Lpn, new: NewVersion) -> Result<(), Status> {
        let bytes = match &new.content {
            SectorData::Zeroes => 0,
            SectorData::Bytes { bytes, .. } => bytes.len() as u64,
        } + super::VERSION_BYTES;

        // Room is made a page at a time. The cache is released for it, because writing back takes
        // it.
        loop {
            let mut cache = self.cache().expect("only cached commands come here");
            let oldest = if cache.is_full_for(bytes) {
                cache.oldest()
            } else {
                None
            };

            let Some((oldest, is_unwritten)) = oldest else {
                self.device.spend(Step::Read);
                cache.put(lpn, new);
                return Ok(());
            };
            drop(cache);

            // What makes room need not be durable, only on the device.
            let pages = if is_unwritten {
                self.write_back(oldest)?
            } else {
                1
            };
            self.forget_pages(oldest, pages);
        }
    }

    /// Writes a part of a page to the cache, or all of it.
    pub fn write_cached(&mut self, piece: &Piece, bytes: &[u8]) -> Result<(), Status> {
        let bytes = bytes.get(..piece.len).ok_or(Status::DATA_TRANSFER)?;
        let content = SectorData::Bytes {
            first: piece.start / SECTOR_BYTES,
            bytes: bytes.into(),
        };
        self.put(
            piece.lpn,
            NewVersion {
                command: self.number,
                sectors: Sectors::of(piece.start, piece.len),
                content,
                source: None,
            },
        )?;

        // A record has whole pages, as hosts see them now.
        if self.record.is_some() {
            let cache = self.cache().expect("it has the version");
            let page = self.newest_page(&cache, piece.lpn)?;
            drop(cache);
            self.note_write(piece.lpn, &page);
        }
        Ok(())
    }

    /// Writes a part of a page to the device. What the cache has of the rest of the page stays
    /// there.
    pub fn write_part_through(&mut self, piece: &Piece, bytes: &[u8]) -> Result<(), Status> {
        let bytes = bytes.get(..piece.len).ok_or(Status::DATA_TRANSFER)?;
        // A whole page needs nothing of what was there before.
        let mut page = match piece.len {
            PAGE_BYTES => [0; PAGE_BYTES],
            _ => self.durable_page(piece.lpn)?,
        };
        page[piece.start..piece.start + piece.len].copy_from_slice(bytes);

        let before = self.before(piece.lpn);
        self.write_page(piece.lpn, &page)?;

        // Only now: if the write fails, the cache still has what it would have replaced.
        let new = NewVersion {
            command: self.number,
            sectors: Sectors::of(piece.start, piece.len),
            content: SectorData::Bytes {
                first: piece.start / SECTOR_BYTES,
                bytes: bytes.into(),
            },
            source: None,
        };
        if let Some(mut cache) = self.cache() {
            cache.put_through(piece.lpn, new, before.as_deref());
        }
        Ok(())
    }

    /// A page as the device has it, for a power cut that takes back what is written now. A drive
    /// would not read it, so that no time passes. `None`: it cannot be read.
    fn before(&mut self, lpn: Lpn) -> Option<Box<[u8; PAGE_BYTES]>> {
        self.device.untimed(|ftl| {
            let found = ftl.find(lpn).ok()?;
            bytes_of(ftl.view(found)).ok().map(Box::new)
        })
    }

    /// The device has whole pages: what the cache has of them is gone.
    pub fn forget_pages(&mut self, lpn: Lpn, len: u32) {
        if let Some(mut cache) = self.cache() {
            while let Some(found) = cache.next_page(lpn, lpn.offset(len)) {
                cache.forget(found, Sectors::ALL);
            }
        }
    }

    /// Are the deallocations of a command with so many pages cached?
    pub fn caches_deallocation(&self, pages: u32) -> bool {
        pages <= DEALLOCATE_PAGES_MAX && self.is_cached()
    }

    /// Deallocates a page in the cache.
    pub fn deallocate_cached(&mut self, lpn: Lpn) -> Result<(), Status> {
        let new = NewVersion {
            command: self.number,
            sectors: Sectors::ALL,
            content: SectorData::Zeroes,
            source: None,
        };
        self.put(lpn, new)
    }

    /// Remaps pages in the cache: they become what is read at the sources now.
    pub fn remap_cached(&mut self, remap: &Remap) -> Result<(), Status> {
        let Remap {
            target,
            source,
            len,
            relocate,
            ..
        } = *remap;

        // All sources are read first, since a target may be a source as well.
        let mut contents = Vec::with_capacity(len as usize);
        for lpn in Lpn::range(source, len) {
            self.device.spend(Step::Read);
            let content = self.view(lpn, |page| {
                Ok(match page {
                    PageView::Zeroes => SectorData::Zeroes,
                    other => SectorData::Bytes {
                        first: 0,
                        bytes: Box::new(bytes_of(other)?),
                    },
                })
            })?;
            contents.push(content);
        }

        // Targets are older than the deallocation of their sources, so that write-back can remap
        // them.
        for (lpn, content) in Lpn::range(target, len).zip(contents) {
            let from = source.offset(lpn.offset_from(target));
            let source = matches!(content, SectorData::Bytes { .. }).then_some(from);
            self.put(
                lpn,
                NewVersion {
                    command: self.number,
                    sectors: Sectors::ALL,
                    content,
                    source,
                },
            )?;
        }

        // A source that is also a target has its new content by now, and keeps it.
        let targets = target..target.offset(len);
        Lpn::range(source, len)
            .filter(|lpn| relocate && !targets.contains(lpn))
            .try_for_each(|lpn| self.deallocate_cached(lpn))
    }

    /// Writes back what the cache has of a range of pages.
    pub fn write_back_pages(&mut self, lpn: Lpn, len: u32) -> Result<(), Status> {
        loop {
            let next = self
                .cache()
                .and_then(|cache| cache.next_unwritten_page(lpn, lpn.offset(len)));
            let Some(next) = next else {
                return Ok(());
            };
            self.write_back(next)?;
        }
    }

    /// Writes back what the cache has of a range of blocks, before it is read from the medium.
    pub fn write_back_blocks(
        &mut self,
        namespace: &Namespace,
        blocks: Blocks,
    ) -> Result<(), Status> {
        for piece in crate::controller::io::pieces(namespace, blocks) {
            self.pause()?;
            self.write_back_pages(piece.lpn, 1)?;
        }
        Ok(())
    }

    /// Writes back everything that was put before now. What others write meanwhile does not prolong
    /// it.
    pub fn write_back_all(&mut self) -> Result<(), Status> {
        let Some(until) = self.cache().map(|cache| cache.next) else {
            return Ok(());
        };

        // Up to a limit, because hosts go on writing: a flush covers what came before it, and must
        // come to an end.
        loop {
            self.pause()?;
            let oldest = self
                .cache()
                .and_then(|cache| cache.oldest_unwritten_before(until));
            match oldest {
                Some(lpn) => drop(self.write_back(lpn)?),
                None => return Ok(()),
            }
        }
    }

    /// Everything on the device by now is durable with this position; `None` for a device in memory,
    /// whose every change is.
    pub fn sync_cache_to(&mut self, position: Option<HistoryPosition>) {
        if let Some(mut cache) = self.cache() {
            cache.sync_to(position);
        }
    }

    /// Whether the power was cut since this command began, which has lost what it had in the cache.
    pub fn check_power(&self) -> Result<(), Status> {
        match self.cache() {
            Some(cache) if cache.is_cut_since(self.number) => Err(Status::POWER_LOSS),
            _ => Ok(()),
        }
    }

    /// Puts the newest version of a page on the device, and those of the pages after it that take
    /// the same step: how many pages. They stay in the cache until they are durable.
    fn write_back(&mut self, lpn: Lpn) -> Result<u32, Status> {
        let mut cache = self.cache().expect("it has the page");
        let newest = cache.newest(lpn).expect("it has the page");
        // What the device holds before the step changes it.
        let mut before = Vec::new();
        // How many pages from here on a step may take together.
        let run = |goes_on: &dyn Fn(u32) -> bool| {
            let more = (1..STEP_PAGES).take_while(|more| goes_on(*more));
            1 + more.count() as u32
        };

        let pages = match newest {
            // Zeroes take no flash page: they are deallocated.
            Newest::Zeroes => {
                let pages =
                    run(&|more| cache.newest_unwritten(lpn.offset(more)) == Some(Newest::Zeroes));
                before.extend(Lpn::range(lpn, pages).map(|lpn| self.before(lpn)));
                self.device.spend(Step::Deallocate(pages));
                let completion = self.device.deallocate(self.now, lpn, pages);
                self.done(completion)?;
                pages
            }
            Newest::RemappedFrom(source) => {
                let pages = run(&|more| {
                    cache.newest_unwritten(lpn.offset(more))
                        == Some(Newest::RemappedFrom(source.offset(more)))
                });
                before.extend(Lpn::range(lpn, pages).map(|lpn| self.before(lpn)));

                // The source may have changed on the device since. Then the bytes that were cached
                // are written.
                match self.still_there(&cache, lpn, source, pages)? {
                    0 => {
                        self.write_newest(&cache, lpn)?;
                        1
                    }
                    same => {
                        self.device.spend(Step::Remap(same));
                        let remap = Remap {
                            target: lpn,
                            source,
                            len: same,
                            relocate: false,
                            atomic: false,
                        };
                        let completion = self.device.remap(self.now, &remap);
                        self.done(completion.into())?;
                        same
                    }
                }
            }
            Newest::Part | Newest::Whole => {
                before.push(self.before(lpn));
                self.write_newest(&cache, lpn)?;
                1
            }
        };

        // Only after the device has it, so that a failure loses nothing.
        for (lpn, before) in Lpn::range(lpn, pages).zip(before) {
            cache.written_back(lpn, before.as_deref());
        }
        Ok(pages)
    }

    fn write_newest(&mut self, cache: &VolatileCache, lpn: Lpn) -> Result<(), Status> {
        let page = self.newest_page(cache, lpn)?;
        self.device.spend(Step::Write);
        let completion = self.device.write(self.now, lpn, &Payload::Bytes(&page));
        self.done(completion)
    }

    /// Of remapped pages, how many in front have sources that still hold the same on the device.
    /// Ranges that overlap are remapped page by page: a target must not change a source before it
    /// is compared.
    fn still_there(
        &mut self,
        cache: &VolatileCache,
        lpn: Lpn,
        source: Lpn,
        pages: u32,
    ) -> Result<u32, Status> {
        let apart = lpn.abs_diff(source);
        let pages = if apart < pages { 1 } else { pages };

        for at in 0..pages {
            // Bytes are compared, not histories: an equal content is as good, whatever wrote it.
            let wanted = self.newest_page(cache, lpn.offset(at))?;

            self.device.spend(Step::Read);
            let (_, same) = self.device.view(
                self.now,
                source.offset(at),
                |page| matches!(page, PageView::Bytes(bytes) if *bytes == wanted),
            );

            // A source that cannot be read is no source.
            if !same.unwrap_or(false) {
                return Ok(at);
            }
        }

        Ok(pages)
    }
}

impl Subsystem {
    /// Writes the volatile cache back, and makes all that was acknowledged durable: before a
    /// shutdown in good order, and when a host switches the cache off.
    ///
    /// # Errors
    /// The device could not take it: what it did not take stays in the cache.
    pub fn drain(&self) -> Result<(), Status> {
        let job = Job {
            nsid: u32::MAX,
            version: 0,
            request: &IoRequest::Flush,
            now: 0,
            cache_enabled: true,
            rights: &LOCAL,
            actor: Actor::Service,
        };

        self.execute_alone(&job)
    }

    /// Cuts the power of the volatile cache: each block keeps, on its own, any version since its
    /// last durable one, drawn from `seed`. `then` is called before anybody can use the device
    /// again.
    ///
    /// # Errors
    /// The device could not take what survives.
    pub fn cut_power<R>(
        &self,
        seed: u64,
        then: impl FnOnce(&mut Device, CutReport) -> R,
    ) -> Result<R, Status> {
        // Undivided: nobody may see the device with the cache cut and its survivors missing.
        let mut turn = self.device().undivided();
        let Some(mut cache) = turn.cache() else {
            return Ok(then(&mut turn, CutReport::default()));
        };

        let namespaces = self.namespaces();
        let block_bytes = |lpn| {
            let of_page = namespaces.iter().find(|namespace| namespace.has_page(lpn));
            of_page.map_or(PAGE_BYTES, |namespace| 1 << namespace.lba_shift)
        };
        let (survivors, report) = cache.cut(seed, block_bytes);

        // Commands that have not ended have lost what they had in the cache. Those between two
        // slices find it out by their numbers; those that wait for a sync, by its position.
        cache.cut_before = self.commands.load(Relaxed);
        if report.blocks_lost_awaiting_sync > 0 {
            let position = turn.ftl().media().position();
            self.durable.lose(cache.durable_until, position);
        }

        for survivor in survivors {
            // The device may not be able to read the page. It need not, if all of it survives from
            // the cache.
            let (_, durable) = turn.view(0, survivor.lpn, bytes_of);
            let mut page = match (survivor.sectors, durable) {
                (Sectors::ALL, _) => [0; PAGE_BYTES],
                (_, durable) => durable.map_err(status_of)??,
            };
            for sector in (0..PAGE_BYTES / SECTOR_BYTES).filter(|at| survivor.sectors.has(*at)) {
                let at = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
                page[at.clone()].copy_from_slice(&survivor.page[at]);
            }
            turn.write(0, survivor.lpn, &Payload::Bytes(&page))
                .result
                .map_err(status_of)?;
        }
        drop(cache);
        Ok(then(&mut turn, report))
    }

    /// Bytes that the volatile cache holds; `None` without one.
    pub fn cached_bytes(&self) -> Option<u64> {
        let turn = self.device();
        turn.cache().map(|cache| cache.used_bytes())
    }

    /// Every table of the volatile cache against every other.
    ///
    /// # Panics
    /// If they do not agree.
    pub fn check_cache(&self) {
        let turn = self.device();
        if let Some(cache) = turn.cache() {
            cache.check();
        }
    }
}
