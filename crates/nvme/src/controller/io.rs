//! Reads, writes and deallocations of blocks on the device, page by page.
//!
//! Blocks of 512 bytes are parts of pages: a write that covers a page in part reads it, changes it
//! and writes it whole, so each page is old or new. Between two pages a long command lets others go
//! first (`turn`), unless it is atomic: a remap that says so, or a write within the advertised limit. Invariant: ranges
//! have been checked. Absent: the location of host data (`data`), remaps (`remap`), and waiting for
//! durability (`durable`).

use super::blocks::{Blocks, Namespace, PAGE_SHIFT, Piece, pieces, whole_pages};
use super::data::{HostData, InMemory, take_all};
use super::faults::FaultInjector;
use super::issuer::{Actor, Issuer};
use super::namespaces::Namespaces;
use super::record::{CommandRecord, RecordedOp};
use super::request::{IoCommand, IoRequest};
use super::reservations::{Claim, Reservations};
use super::rights::Need;
use super::turn::{DeviceTurn, Step};
use crate::spec::command::RemapResult;
use crate::spec::status::Status;
use remap_ssd_device::{Completion, HostLpn};
use remap_ssd_ftl::Refusal;
use remap_ssd_media::folder::HistoryPosition;
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_media::{Lpn, PageView, Payload};
use std::ops::Range;
use std::sync::atomic::Ordering::Acquire;

/// Pages of a deallocation recorded as one extent, aligned to this size: 32 MiB.
const DEALLOCATE_PAGES: u32 = 8 << 10;
/// Pages that one step writes back from the device's volatile write buffer.
const WRITE_BACK_PAGES: u32 = 64;
/// Slices after which a command counts as long: the largest write takes fewer.
const SLICES_SHORT: u32 = 8;

/// A command in progress, with the completion time so far and the position to make durable.
pub(super) struct ActiveCommand<'a, 't> {
    pub device: &'a mut DeviceTurn<'t>,
    pub namespaces: &'a Namespaces,
    pub reservations: &'a Reservations,
    pub faults: Option<&'a dyn FaultInjector>,
    pub now: u64,
    pub done_at: u64,
    /// Position that must be durable before it is acknowledged.
    pub sync_to: Option<HistoryPosition>,
    /// Slices that it has used up.
    pub slices: u32,
    /// The command, and who issued it.
    pub command: &'a IoCommand,
    pub issuer: &'a Issuer<'a>,
    /// The namespace that it reads from, for a copy.
    pub source: Option<Namespace>,
    /// Its number, for the volatile cache.
    pub number: u64,
    /// True if its changes must not stay in the volatile cache.
    pub through: bool,
    /// True if the device has a volatile write buffer.
    pub has_buffer: bool,
    /// Blocks of the largest write that is whole or absent after a power cut.
    pub untorn_blocks: u32,
    /// Bytes of the device that it may have changed, if there is an observer.
    pub touched: Option<Vec<Range<u64>>>,
    /// First byte of the device with an error.
    pub(crate) failed_byte: Option<u64>,
    /// Pages copied instead of remapped.
    pub copied: RemapResult,
    pub record: Option<CommandRecord<'a>>,
    /// False for the later parts of a write, which count with the first.
    pub is_first: bool,
    /// True if everything executed must be durable when it completes.
    pub(crate) must_sync: bool,
}

/// Why a command failed.
pub(super) struct Failure {
    pub status: Status,
    /// Dwords 0 and 1 of the completion.
    pub result: u64,
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self { status, result: 0 }
    }
}

pub(super) fn status_of(refusal: Refusal) -> Status {
    match refusal {
        Refusal::OutOfRange => Status::LBA_RANGE,
        Refusal::MediaError => Status::UNRECOVERED_READ,
        Refusal::ReadOnly | Refusal::NumbersUsedUp => Status::WRITE_PROTECTED,
        Refusal::DiskFailed => Status::WRITE_FAULT,
        Refusal::AtomicTooLarge
        | Refusal::AtomicUnsupported
        | Refusal::AtomicPartial
        | Refusal::AtomicUnavailable => Status::NOT_ATOMIC,
        Refusal::NoFileMap => Status::NO_FILE_MAP,
    }
}

/// The bytes of a page as the device shows them.
pub(super) fn page_of(bytes: &[u8]) -> [u8; PAGE_BYTES] {
    *bytes.first_chunk().expect("a page has 4 KiB")
}

impl ActiveCommand<'_, '_> {
    /// Lets others go first if the slice is used up.
    #[inline]
    pub(super) fn pause(&mut self) -> Result<(), Status> {
        if self.device.must_pause() {
            self.let_others()
        } else {
            Ok(())
        }
    }

    #[cold]
    fn let_others(&mut self) -> Result<(), Status> {
        // A run of writes belongs to one command: end it before others get the device.
        self.end_write()?;
        self.slices += 1;
        self.device.let_others(self.slices > SLICES_SHORT)?;
        // In the meantime others may have reserved or deleted the namespace, or its host may have
        // lost the right to use it.
        self.check_namespaces()?;
        self.check_reservations()?;
        // An operator may have cut the power.
        self.check_power()
    }

    /// Fails if the power was cut since this command began: its changes may be lost.
    fn check_power(&self) -> Result<(), Status> {
        if self.device.is_cut_since(self.number) {
            Err(Status::POWER_LOSS)
        } else {
            Ok(())
        }
    }

    /// Checks that its namespace, and the one that it copies from, are unchanged and that its host
    /// may still use them.
    fn check_namespaces(&self) -> Result<(), Status> {
        let IoCommand { request, nsid, .. } = self.command;
        // A flush covers whichever namespaces exist.
        if *request != IoRequest::Flush {
            self.namespace()?;
            self.issuer.rights.check_request(*nsid, request)?;
        }
        let Some(Namespace { nsid, version, .. }) = self.source else {
            return Ok(());
        };
        self.namespaces.unchanged(nsid, version, self.issuer)?;
        self.issuer.rights.check(nsid, Need::Read)
    }

    /// Its namespace, if that is unchanged since the command was checked.
    #[inline(always)]
    pub(super) fn namespace(&self) -> Result<Namespace, Status> {
        let IoCommand { nsid, version, .. } = *self.command;
        self.namespaces.unchanged(nsid, version, self.issuer)
    }

    /// Checks reservations: at the beginning, and after each pause.
    #[inline]
    pub(super) fn check_reservations(&self) -> Result<(), Status> {
        let stops = matches!(self.issuer.actor, Actor::Host(host) if host.holds_or_stops != 0);
        if stops || self.reservations.is_any() {
            self.ask_reservations()
        } else {
            Ok(())
        }
    }

    #[cold]
    fn ask_reservations(&self) -> Result<(), Status> {
        let Actor::Host(host) = self.issuer.actor else {
            return Ok(());
        };
        let IoCommand { nsid, request, .. } = self.command;
        self.reservations.check(&Claim::of(host, *nsid, request))?;
        // A copy also reads a namespace, whose reservation may exclude this host.
        self.source.map_or(Ok(()), |source| {
            self.reservations.check(&Claim::to_read(host, source.nsid))
        })
    }

    /// Sets the namespace to copy from.
    ///
    /// # Errors
    /// It has changed, or is reserved by another host.
    pub(super) fn read_from(&mut self, source: &Namespace) -> Result<(), Status> {
        self.source = Some(*source);
        self.check_namespaces()?;
        self.check_reservations()
    }

    #[inline]
    pub(super) fn done(&mut self, completion: Completion) -> Result<(), Status> {
        self.done_at = self.done_at.max(completion.done_at);
        completion.result.map_err(status_of)
    }

    #[inline]
    pub(super) fn note(&mut self, op: RecordedOp) {
        if let Some(record) = &mut self.record {
            record.ops.push(op);
        }
    }

    #[inline]
    pub(super) fn note_write(&mut self, lpn: Lpn, page: &[u8; PAGE_BYTES]) {
        if let Some(record) = &mut self.record {
            record
                .ops
                .push(RecordedOp::Write(lpn, record.recorder.fingerprint(page)));
        }
    }

    /// Reads a page and shows it where it is.
    pub(super) fn view<R>(
        &mut self,
        lpn: Lpn,
        show: impl FnOnce(PageView<'_>) -> Result<R, Status>,
    ) -> Result<R, Status> {
        // The cache first, because it has the newer version. It returns `show` if it has none.
        let show = match self.view_cached(lpn, show) {
            Ok(shown) => {
                self.note(RecordedOp::Read(lpn));
                return shown;
            }
            Err(show) => show,
        };

        let (done_at, shown) = self.device.view(self.now, lpn, show);
        // Time passes whether or not the page could be read.
        self.done(Completion {
            done_at,
            result: Ok(()),
        })?;

        let shown = shown.map_err(status_of)?;
        self.note(RecordedOp::Read(lpn));
        shown
    }

    /// Notes the first error of the command; the error log names its block.
    #[inline]
    pub(super) fn note_failed_byte(&mut self, byte: u64) {
        self.failed_byte.get_or_insert(byte);
    }

    /// Reads the page of a piece like `view`. If it cannot be read, notes the failed byte.
    pub(super) fn view_piece<R>(
        &mut self,
        piece: &Piece,
        show: impl FnOnce(PageView<'_>) -> Result<R, Status>,
    ) -> Result<R, Status> {
        let shown = self.view(piece.lpn, show);
        if matches!(shown, Err(Status::UNRECOVERED_READ)) {
            let page = u64::from(piece.lpn.0) << PAGE_SHIFT;
            self.note_failed_byte(page + piece.start as u64);
        }
        shown
    }

    /// Reads a part of a page for the host.
    fn read(&mut self, piece: &Piece, data: &mut dyn HostData) -> Result<(), Status> {
        self.device.spend(Step::Read);
        self.view_piece(piece, |page| {
            match page {
                PageView::Zeroes => data.put_zeroes(piece.len),
                PageView::Bytes(bytes) => data.put(&bytes[piece.start..piece.start + piece.len]),
                PageView::Unknown | PageView::Identity(_) => return Err(Status::INTERNAL),
            }
            Ok(())
        })
    }

    /// Returns true if a part of a page equals the host's data.
    pub(super) fn is_same(
        &mut self,
        piece: &Piece,
        data: &mut dyn HostData,
    ) -> Result<bool, Status> {
        self.device.spend(Step::Read);
        let wanted = data.take(piece.len);
        self.view_piece(piece, |page| match page {
            PageView::Zeroes => {
                Ok(wanted.len() == piece.len && wanted.iter().all(|byte| *byte == 0))
            }
            PageView::Bytes(bytes) => Ok(bytes[piece.start..piece.start + piece.len] == *wanted),
            PageView::Unknown | PageView::Identity(_) => Err(Status::INTERNAL),
        })
    }

    /// Writes all or a part of a page; too few bytes are a transport error.
    fn write(&mut self, piece: &Piece, bytes: &[u8]) -> Result<(), Status> {
        // With a cache, no page may be written without updating it: reads would return an older
        // version from there.
        if self.device.has_cache() {
            return if self.is_cached() {
                self.write_cached(piece, bytes)
            } else {
                self.write_part_through(piece, bytes)
            };
        }

        match bytes.first_chunk::<PAGE_BYTES>() {
            Some(whole) if piece.len == PAGE_BYTES => self.write_page(piece.lpn, whole),
            _ => self.write_merged(piece, bytes),
        }
    }

    /// Read-modify-write of a partly changed page. Not inlined: writes of whole pages would touch
    /// its page on the stack too.
    #[inline(never)]
    fn write_merged(&mut self, piece: &Piece, bytes: &[u8]) -> Result<(), Status> {
        let bytes = bytes.get(..piece.len).ok_or(Status::DATA_TRANSFER)?;

        // The rest of the page keeps its content, so it must be read first.
        self.device.spend(Step::Read);
        let mut page = self.view_piece(piece, |page| match page {
            PageView::Zeroes => Ok([0; PAGE_BYTES]),
            PageView::Bytes(bytes) => Ok(page_of(bytes)),
            PageView::Unknown | PageView::Identity(_) => Err(Status::INTERNAL),
        })?;
        page[piece.start..piece.start + piece.len].copy_from_slice(bytes);

        self.write_page(piece.lpn, &page)
    }

    /// Ends a run of writes: its pages must be durable when the command is acknowledged.
    fn end_write(&mut self) -> Result<(), Status> {
        let completion = self.device.end_write(self.now);
        self.done(completion)
    }

    /// Writes a page; `end_write` must follow.
    #[inline]
    pub(super) fn write_page(&mut self, lpn: Lpn, page: &[u8; PAGE_BYTES]) -> Result<(), Status> {
        self.device.spend(Step::Write);
        let completion = self.device.write_more(self.now, lpn, &Payload::Bytes(page));
        self.done(completion)?;
        self.note_write(lpn, page);
        Ok(())
    }

    /// Writes a range, as a whole or not at all if it is within the limit.
    pub(super) fn write_all(
        &mut self,
        namespace: &Namespace,
        blocks: Blocks,
        data: &mut dyn HostData,
    ) -> Result<(), Status> {
        if !(2..=self.untorn_blocks).contains(&blocks.count) {
            return self.write_pieces(namespace, blocks, false, data);
        }

        // What may fail comes before the first page: data that are missing, and pages of which the host writes a part.
        let bytes = (blocks.count as usize) << namespace.lba_shift;
        if !data.holds(bytes) {
            let gathered = take_all(data, bytes);
            if gathered.len() < bytes {
                return Err(Status::DATA_TRANSFER);
            }
            let mut gathered = InMemory {
                from_host: &gathered,
                to_host: &mut Vec::new(),
            };
            return self.write_all(namespace, blocks, &mut gathered);
        }
        self.pause()?;
        let parts = pieces(namespace, blocks).filter(|piece| piece.len < PAGE_BYTES);
        for piece in parts {
            self.view_piece(&piece, |_| Ok(()))?;
        }

        // It keeps the device until it ends.
        let mut pages = pieces(namespace, blocks).map(|piece| piece.lpn);
        let first = pages.next().map_or(HostLpn::ZERO, HostLpn::from);
        let len = 1 + pages.count() as u32;
        self.device.begin_write(first, len).map_err(status_of)?;
        self.write_pieces(namespace, blocks, true, data)
    }

    fn write_pieces(
        &mut self,
        namespace: &Namespace,
        blocks: Blocks,
        is_untorn: bool,
        data: &mut dyn HostData,
    ) -> Result<(), Status> {
        self.touch(namespace, blocks);
        let written = pieces(namespace, blocks).try_for_each(|piece| {
            if !is_untorn {
                self.pause()?;
            }
            let bytes = data.take(piece.len);
            self.write(&piece, bytes)
        });

        // Even if a piece has failed: the pages before it are written, and need `end_write`.
        let ended = self.end_write();
        written.and(ended)?;
        if self.through {
            self.force_blocks(namespace, blocks)?;
        }
        Ok(())
    }

    /// Makes the pages of a range of blocks durable that may be in the device's volatile write buffer. In between, others may write them
    /// again: then these newer versions become durable.
    pub(super) fn force_blocks(
        &mut self,
        namespace: &Namespace,
        blocks: Blocks,
    ) -> Result<(), Status> {
        if !self.has_buffer {
            return Ok(());
        }

        let mut forced = pieces(namespace, blocks).map(|piece| piece.lpn).peekable();
        while let Some(first) = forced.next() {
            self.pause()?;

            let mut len = 1;
            while len < WRITE_BACK_PAGES && forced.next_if_eq(&first.offset(len)).is_some() {
                len += 1;
            }

            self.device.spend(Step::WriteBack(len));
            let completion = self.device.make_durable(self.now, first, len);
            self.done(completion)?;
        }
        Ok(())
    }

    /// Writes back the pages that the device's volatile write buffer holds now, in their newest versions: others may write them again
    /// between the steps. Other pages stay, so that a flush ends.
    fn empty_buffer(&mut self) -> Result<(), Status> {
        let mut listed = self.device.volatile_pages();
        while self.has_buffer {
            self.pause()?;
            let (completion, pages) =
                self.device
                    .write_back_listed(self.now, &mut listed, WRITE_BACK_PAGES);
            self.device.spend(Step::WriteBack(pages));
            self.done(completion)?;
            if pages < WRITE_BACK_PAGES {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn read_all(
        &mut self,
        namespace: &Namespace,
        blocks: Blocks,
        data: &mut dyn HostData,
    ) -> Result<(), Status> {
        pieces(namespace, blocks).try_for_each(|piece| {
            self.pause()?;
            self.read(&piece, data)
        })
    }

    /// Deallocates whole pages; partial pages at the ends are written as zeroes if `must_be_zero`.
    pub(super) fn deallocate(
        &mut self,
        namespace: &Namespace,
        blocks: Blocks,
        must_be_zero: bool,
    ) -> Result<(), Status> {
        self.touch(namespace, blocks);
        let ((mut lpn, pages), mut parts) = whole_pages(namespace, blocks);

        // A short range is deallocated in the cache, where a flush finds it. A long one goes
        // directly to the device.
        let behind = lpn.offset(pages);

        if self.caches_deallocation(pages) {
            while lpn < behind {
                self.pause()?;
                self.deallocate_cached(lpn)?;
                lpn = lpn.offset(1);
            }
        }

        while lpn < behind {
            self.pause()?;
            // Up to the next multiple: extents aligned to it are recorded as one.
            let len = (DEALLOCATE_PAGES - lpn.0 % DEALLOCATE_PAGES).min(behind.offset_from(lpn));

            self.device.spend(Step::Deallocate(len));
            let completion = self.device.zero(self.now, lpn, len);
            self.done(completion)?;
            self.forget_pages(lpn, len);
            lpn = lpn.offset(len);
        }

        if pages > 0 {
            self.note(RecordedOp::Deallocate(behind.back(pages), pages));
        }

        if !must_be_zero {
            return Ok(());
        }

        let written = parts.try_for_each(|piece| self.write(&piece, &[0; PAGE_BYTES]));
        let ended = self.end_write();
        written.and(ended)?;
        if self.through {
            self.force_blocks(namespace, blocks)?;
        }
        Ok(())
    }

    /// Syncs a command that must be durable when it completes.
    pub(super) fn sync_if_needed(&mut self) -> Result<(), Status> {
        if self.must_sync {
            return self.sync(self.command.request == IoRequest::Flush);
        }

        // Its host may have switched the cache off since the command began. Then its changes are still in the cache, and the flush that
        // the host waits for may have come before them.
        let write_through = self.issuer.write_through.load(Acquire);
        if self.command.request.must_sync(write_through) {
            self.sync(true)?;
        }
        Ok(())
    }

    /// Requires that everything executed so far is durable before the command is acknowledged. `of_others`: pages of other commands
    /// in the device's buffer too. A command that bypasses the buffer has forced its own.
    fn sync(&mut self, of_others: bool) -> Result<(), Status> {
        // A command that bypassed the cache has no versions in it; those of other commands may
        // stay.
        if !self.through {
            self.write_back_all()?;
        }
        if of_others {
            self.empty_buffer()?;
        }
        let completion = self.device.flush_written(self.now);
        self.done(completion)?;
        // Take the position after the flush, so that it covers everything before.
        self.sync_to = self.device.ftl().media().position();
        self.sync_cache_to(self.sync_to);
        self.note(RecordedOp::Flush);
        Ok(())
    }
}
