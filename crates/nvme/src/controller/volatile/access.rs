//! Access of commands through the volatile cache, and its write-back.
//!
//! A command that must be durable (`ActiveCommand::through`: FUA, or the write cache feature is
//! off) goes to the device, and the cached versions of its blocks are dropped. All other changes
//! add versions: writes, Write Zeroes, Deallocate, Copy and remaps. A remap is cached as the data
//! read; write-back turns it into a remap again if the source is unchanged. Data may become durable
//! earlier than requested. That is used where single versions of a command make no sense: atomic
//! remaps, listed pages (FS Write), and deallocations of more than `DEALLOCATE_PAGES_MAX`.
//!
//! Versions written back stay in the cache, with the previous content of the device, until a sync
//! has made them durable. The steps of a flush, and the content of a page after a power cut of the
//! cache:
//!
//! ```text
//! 1. read the device's content; write the newest version       cut before 2: any version since the
//!    to the device; keep both in the cache                     last durable one, or that one
//! 2. a sync makes the device's history durable up to a         cut between 2 and 3: the same, since
//!    position, in its files                                    nothing is acknowledged
//! 3. in the turn that notes it: forget the versions up to      cut after 3: this version, or a
//!    there (`SharedDevice::note_durable`)                       newer one
//! 4. acknowledge the flush
//! ```
//! When a page is evicted to make room, step 2 is skipped: it is forgotten after step 1. So are
//! versions whose predecessor cannot be read or finds no room.
//!
//! Invariants: only the holder of the device's turn uses the cache; a page leaves it after the
//! device has its content; no step moves more than `STEP_PAGES` pages. Absent: the choice of
//! versions that survive a cut (`cut`).

use super::{CutReport, NewVersion, Newest, SECTOR_BYTES, SectorData, Sectors, VolatileCache};
use crate::controller::blocks::{Blocks, Namespace, Piece, pieces};
use crate::controller::io::{ActiveCommand, page_of, status_of};
use crate::controller::issuer::Issuer;
use crate::controller::request::IoCommand;
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

/// Maximum pages that one step of write-back remaps or deallocates.
const STEP_PAGES: u32 = 64;
/// Larger deallocations bypass the cache: 16 MiB.
const DEALLOCATE_PAGES_MAX: u32 = 4 << 10;

/// A page's durable content, as bytes.
fn bytes_of(view: PageView<'_>) -> Result<[u8; PAGE_BYTES], Status> {
    match view {
        PageView::Zeroes => Ok([0; PAGE_BYTES]),
        PageView::Bytes(bytes) => Ok(page_of(bytes)),
        PageView::Unknown | PageView::Identity(_) => Err(Status::INTERNAL),
    }
}

impl<'t> ActiveCommand<'_, 't> {
    /// The cache, if there is one. Release it before the device.
    fn cache(&self) -> Option<MutexGuard<'t, VolatileCache>> {
        self.device.cache()
    }

    /// Returns true if this command's changes may stay in a cache.
    pub(crate) fn is_cached(&self) -> bool {
        !self.through && self.cache().is_some()
    }

    /// Shows the newest content of a page that is cached at least in part; otherwise gives `show`
    /// back.
    #[inline]
    pub(crate) fn view_cached<R, S>(&mut self, lpn: Lpn, show: S) -> Result<Result<R, Status>, S>
    where
        S: FnOnce(PageView<'_>) -> Result<R, Status>,
    {
        if self.device.has_cache() {
            self.view_in_cache(lpn, show)
        } else {
            Err(show)
        }
    }

    /// Like `view_cached`, for a device with a cache. Not inlined: devices without one would touch
    /// its page on the stack too.
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

    /// A page as a host sees it. The device is read only for sectors not cached.
    fn newest_page(&mut self, cache: &VolatileCache, lpn: Lpn) -> Result<[u8; PAGE_BYTES], Status> {
        // A page cached as a whole needs no read of the device.
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

    /// Adds a version, after making room for it by writing back the oldest pages.
    fn put(&mut self, lpn: Lpn, new: NewVersion) -> Result<(), Status> {
        let bytes = match &new.content {
            SectorData::Zeroes => 0,
            SectorData::Bytes { bytes, .. } => bytes.len() as u64,
        } + super::VERSION_BYTES;

        // Room is made one page at a time. The cache is released first, because write-back locks
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

            // A page evicted must be on the device, but need not be durable.
            let pages = if is_unwritten {
                self.write_back(oldest)?
            } else {
                1
            };
            self.forget_pages(oldest, pages);
        }
    }

    /// Writes a part of a page to the cache, or all of it.
    pub(crate) fn write_cached(&mut self, piece: &Piece, bytes: &[u8]) -> Result<(), Status> {
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

        // A record holds whole pages, as hosts see them now.
        if self.record.is_some() {
            let cache = self.cache().expect("it has the version");
            let page = self.newest_page(&cache, piece.lpn)?;
            drop(cache);
            self.note_write(piece.lpn, &page);
        }
        Ok(())
    }

    /// Writes a part of a page to the device. The cached versions of the rest of the page stay.
    pub(crate) fn write_part_through(&mut self, piece: &Piece, bytes: &[u8]) -> Result<(), Status> {
        let bytes = bytes.get(..piece.len).ok_or(Status::DATA_TRANSFER)?;
        // A whole page does not need its previous content.
        let mut page = match piece.len {
            PAGE_BYTES => [0; PAGE_BYTES],
            _ => self.durable_page(piece.lpn)?,
        };
        page[piece.start..piece.start + piece.len].copy_from_slice(bytes);

        let before = self.before(piece.lpn);
        self.write_page(piece.lpn, &page)?;

        // Only now: if the write fails, the cache must still have the versions replaced.
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

    /// A page as the device has it, kept for a power cut that takes back the coming write. A real
    /// drive would not read it, so no time passes. `None` if it cannot be read.
    fn before(&mut self, lpn: Lpn) -> Option<Box<[u8; PAGE_BYTES]>> {
        let bytes = self.device.peek(lpn, bytes_of).ok()?;
        bytes.ok().map(Box::new)
    }

    /// Drops the cached versions of pages that the device has as a whole.
    pub(crate) fn forget_pages(&mut self, lpn: Lpn, len: u32) {
        if let Some(mut cache) = self.cache() {
            while let Some(found) = cache.next_page(lpn, lpn.offset(len)) {
                cache.forget(found, Sectors::ALL);
            }
        }
    }

    /// Returns true if a deallocation of `pages` pages is cached.
    pub(crate) fn caches_deallocation(&self, pages: u32) -> bool {
        pages <= DEALLOCATE_PAGES_MAX && self.is_cached()
    }

    /// Deallocates a page in the cache.
    pub(crate) fn deallocate_cached(&mut self, lpn: Lpn) -> Result<(), Status> {
        let new = NewVersion {
            command: self.number,
            sectors: Sectors::ALL,
            content: SectorData::Zeroes,
            source: None,
        };
        self.put(lpn, new)
    }

    /// Remaps pages in the cache: they get the current content of the sources.
    pub(crate) fn remap_cached(&mut self, remap: &Remap) -> Result<(), Status> {
        let Remap {
            target,
            source,
            len,
            relocate,
            ..
        } = *remap;

        // Read all sources first, since a target may also be a source.
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

        // Targets get older versions than the deallocation of their sources, so that write-back can
        // remap.
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

    /// Writes back the cached versions of a range of pages.
    pub(crate) fn write_back_pages(&mut self, lpn: Lpn, len: u32) -> Result<(), Status> {
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

    /// Writes back the cached versions of a range of blocks, before the medium is read.
    pub(crate) fn write_back_blocks(
        &mut self,
        namespace: &Namespace,
        blocks: Blocks,
    ) -> Result<(), Status> {
        for piece in pieces(namespace, blocks) {
            self.pause()?;
            self.write_back_pages(piece.lpn, 1)?;
        }
        Ok(())
    }

    /// Writes back everything that was put before now. Concurrent writes do not prolong it.
    pub(crate) fn write_back_all(&mut self) -> Result<(), Status> {
        let Some(until) = self.cache().map(|cache| cache.next) else {
            return Ok(());
        };

        // Up to a limit, because hosts go on writing: a flush covers earlier writes only, and must
        // terminate.
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

    /// Everything now on the device is durable with this position; `None` for a device in memory,
    /// where every change is durable.
    pub(crate) fn sync_cache_to(&mut self, position: Option<HistoryPosition>) {
        if let Some(mut cache) = self.cache() {
            cache.sync_to(position);
        }
    }

    /// Puts the newest version of a page on the device, and those of following pages that fit in
    /// the same step. Returns the number of pages. They stay in the cache until they are durable.
    fn write_back(&mut self, lpn: Lpn) -> Result<u32, Status> {
        let mut cache = self.cache().expect("it has the page");
        let newest = cache.newest(lpn).expect("it has the page");

        // Content of the device before the step changes it.
        let mut before = Vec::new();

        // Number of pages, from this one on, that one step may take together.
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
                let completion = self.device.zero(self.now, lpn, pages);
                self.done(completion)?;
                pages
            }
            Newest::RemappedFrom(source) => {
                let pages = run(&|more| {
                    cache.newest_unwritten(lpn.offset(more))
                        == Some(Newest::RemappedFrom(source.offset(more)))
                });
                before.extend(Lpn::range(lpn, pages).map(|lpn| self.before(lpn)));

                // The source may have changed on the device since. Then the cached bytes are
                // written.
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

    /// How many of the first remapped pages have sources with unchanged content on the device.
    /// Overlapping ranges are remapped page by page: a target must not change a source before it is
    /// compared.
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
            // Bytes are compared, not histories: equal content is as good.
            let wanted = self.newest_page(cache, lpn.offset(at))?;

            self.device.spend(Step::Read);
            let (_, same) = self.device.view(
                self.now,
                source.offset(at),
                |page| matches!(page, PageView::Bytes(bytes) if *bytes == wanted),
            );

            // A source that cannot be read does not count.
            if !same.unwrap_or(false) {
                return Ok(at);
            }
        }

        Ok(pages)
    }
}

impl Subsystem {
    /// Writes the volatile cache, or the device's volatile write buffer, back and makes all acknowledged changes durable: before a clean
    /// shutdown, and when a host switches the cache off.
    ///
    /// # Errors
    /// The device could not take everything: the rest stays in the cache.
    pub fn drain(&self) -> Result<(), Status> {
        self.execute_alone(&IoCommand::FLUSH_ALL, &Issuer::service())
    }

    /// Makes everything acknowledged durable, for a host that shuts its controller down.
    ///
    /// # Errors
    /// As `drain` and `make_durable`.
    pub(in crate::controller) fn flush_all(&self) -> Result<(), Status> {
        self.device.observe_flush();
        // What is in this process is written back first, which ends with the same wait.
        if self.loses_writes() {
            return self.drain();
        }
        let wanted = self.device().ftl().media().position();
        wanted.map_or(Ok(()), |wanted| self.make_durable(wanted))
    }

    /// Cuts the power of the volatile cache: each block independently keeps any version since its
    /// last durable one, drawn from `seed`. `then` is called before the device can be used again; it
    /// ends the device, or recovers it from its media, which empties the device's own write buffer.
    ///
    /// # Errors
    /// The device could not take the survivors.
    pub fn cut_power<R>(
        &self,
        seed: u64,
        then: impl FnOnce(&mut Device, CutReport) -> R,
    ) -> Result<R, Status> {
        // Undivided: no command may see the device after the cut but before its survivors are
        // written.
        let mut turn = self.device().undivided();
        // Commands in progress have lost their changes. Those between two slices notice by their numbers; those that wait
        // for a sync of the cache, by its position.
        turn.note_cut(self.commands.load(Relaxed));
        let Some(mut cache) = turn.cache() else {
            return Ok(then(&mut turn, CutReport::default()));
        };

        let namespaces = self.namespaces();
        let block_bytes = |lpn| {
            let of_page = namespaces.iter().find(|namespace| namespace.has_page(lpn));
            of_page.map_or(PAGE_BYTES, |namespace| 1 << namespace.lba_shift)
        };
        let (survivors, report) = cache.cut(seed, block_bytes);

        if report.blocks_lost_awaiting_sync > 0 {
            let position = turn.ftl().media().position();
            self.device.durable.lose(cache.durable_until, position);
        }

        for survivor in survivors {
            // The device may be unable to read the page. That does not matter if all of it survives
            // from the cache.
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

    /// Checks every table of the volatile cache against the others.
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
