//! Reads, writes and remaps of blocks on the device, page by page.
//!
//! Blocks of 512 bytes are parts of pages: a write that covers a page in part reads it, changes it and writes it whole,
//! so each page is old or new. Copies between pages are remaps; copies that are not aligned to pages move bytes.
//! Between two pages a long command lets others go first (`turn`): no command except an atomic remap is atomic beyond a
//! page. Invariant: ranges have been checked. Absent: where the host's data are (`data`), and waiting for durability
//! (`durable`).

use super::data::{HostData, InMemory};
use super::record::{Notes, RecordedOp};
use super::request::Blocks;
use super::subsystem::{Namespace, PAGE_SHIFT};
use super::turn::{DeviceTurn, Step};
use crate::spec::status::Status;
use remap_ssd_device::Completion;
use remap_ssd_ftl::{FilePage, FileStatus, Refusal, Remap};
use remap_ssd_media::folder::Position;
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_media::{PageView, Payload};

/// Pages of one step of a remap: between two of them others may go first.
const REMAP_PAGES: u32 = 64;
/// Pages that one deallocation records as one extent, at multiples of it: 32 MiB.
const DEALLOCATE_PAGES: u32 = 8 << 10;
/// Slices after which a command counts as long: the largest write takes fewer.
const SLICES_SHORT: u32 = 8;
/// Bytes that an unaligned copy moves at a time.
const MOVE_BYTES: u32 = 64 << 10;

/// A command under way: when its parts are done, and what it owes.
pub(super) struct ActiveCommand<'a, 't> {
    pub device: &'a mut DeviceTurn<'t>,
    pub now: u64,
    pub done_at: u64,
    pub owes: Option<Position>,
    /// Slices that it has used up.
    pub slices: u32,
    /// Its number, for the volatile cache.
    pub command: u64,
    /// Its changes must not stay in the volatile cache.
    pub through: bool,
    pub notes: Option<Notes<'a>>,
}

/// A part of one page.
pub(super) struct Piece {
    pub lpn: u32,
    /// First byte in the page.
    pub start: usize,
    /// Bytes.
    pub len: usize,
}

/// The pages that a range of blocks covers, whole or in part.
pub(super) fn pieces(namespace: &Namespace, blocks: Blocks) -> impl Iterator<Item = Piece> + use<> {
    let (first_lpn, shift) = (u64::from(namespace.first_lpn), namespace.lba_shift);
    let mut at = blocks.slba << shift;
    let end = at + (u64::from(blocks.count) << shift);
    std::iter::from_fn(move || {
        let start = (at as usize) & (PAGE_BYTES - 1);
        let len = (PAGE_BYTES - start).min((end - at) as usize);
        let piece = (at < end).then_some(Piece {
            lpn: (first_lpn + (at >> PAGE_SHIFT)) as u32,
            start,
            len,
        });
        at += len as u64;
        piece
    })
}

pub(super) fn status_of(refusal: Refusal) -> Status {
    match refusal {
        Refusal::OutOfRange => Status::LBA_RANGE,
        Refusal::MediaError => Status::UNRECOVERED_READ,
        Refusal::ReadOnly | Refusal::NumbersUsedUp => Status::WRITE_PROTECTED,
        Refusal::DiskFailed => Status::WRITE_FAULT,
        Refusal::AtomicTooLarge | Refusal::AtomicUnsupported | Refusal::AtomicUnavailable => {
            Status::NOT_ATOMIC
        }
        Refusal::NoFileMap => Status::NO_FILE_MAP,
    }
}

/// The steps of a remap that is not atomic, in an order in which no source is overwritten before it is read.
///
/// Sources that are also targets keep their old pages until they are remapped, so that each page is old or new between
/// any two steps.
fn remap_steps(remap: Remap) -> impl Iterator<Item = Remap> {
    let Remap {
        target,
        source,
        len,
        ..
    } = remap;

    let ascending = target < source;
    // Pages at this end whose sources are also targets.
    let shared = len.saturating_sub(target.abs_diff(source));

    let mut done = 0;

    std::iter::from_fn(move || {
        let left = len - done;

        let (count, relocate) = match shared.saturating_sub(done) {
            0 => (left.min(REMAP_PAGES), remap.relocate),
            shared => (shared.min(REMAP_PAGES), false),
        };

        let first = if ascending { done } else { left - count };
        done += count;

        let step = Remap {
            target: target + first,
            source: source + first,
            len: count,
            relocate,
            atomic: false,
        };

        (count > 0).then_some(step)
    })
}

/// The whole pages of a range (the first, and how many), and the partial pages at its ends.
fn whole_pages(
    namespace: &Namespace,
    blocks: Blocks,
) -> ((u32, u32), impl Iterator<Item = Piece> + use<>) {
    let page = PAGE_BYTES as u64;

    let start = blocks.slba << namespace.lba_shift;
    let end = start + (u64::from(blocks.count) << namespace.lba_shift);
    let (first, behind) = (start.div_ceil(page), end / page);

    let head = start..end.min(first * page);
    let tail = head.end.max(behind * page)..end;

    let first_lpn = namespace.first_lpn;
    let parts = [head, tail]
        .into_iter()
        .filter(|part| !part.is_empty())
        .map(move |part| Piece {
            lpn: first_lpn + (part.start / page) as u32,
            start: (part.start % page) as usize,
            len: (part.end - part.start) as usize,
        });

    (
        (
            first_lpn + first as u32,
            behind.saturating_sub(first) as u32,
        ),
        parts,
    )
}

impl ActiveCommand<'_, '_> {
    /// Lets others go first if the slice is used up.
    #[inline]
    pub fn pause(&mut self) {
        if self.device.must_pause() {
            self.let_others();
        }
    }

    #[cold]
    fn let_others(&mut self) {
        self.end_write();
        self.slices += 1;
        self.device.let_others(self.slices > SLICES_SHORT);
    }

    #[inline]
    pub fn done(&mut self, completion: Completion) -> Result<(), Status> {
        self.done_at = self.done_at.max(completion.done_at);
        completion.result.map_err(status_of)
    }

    #[inline]
    fn note(&mut self, deed: RecordedOp) {
        if let Some(notes) = &mut self.notes {
            notes.deeds.push(deed);
        }
    }

    #[inline]
    pub fn note_write(&mut self, lpn: u32, page: &[u8; PAGE_BYTES]) {
        if let Some(notes) = &mut self.notes {
            notes
                .deeds
                .push(RecordedOp::Write(lpn, notes.recorder.fingerprint(page)));
        }
    }

    /// Reads a page and shows it where it is.
    pub fn view<R>(
        &mut self,
        lpn: u32,
        show: impl FnOnce(PageView<'_>) -> Result<R, Status>,
    ) -> Result<R, Status> {
        let show = match self.view_cached(lpn, show) {
            Ok(shown) => {
                self.note(RecordedOp::Read(lpn));
                return shown;
            }
            Err(show) => show,
        };

        let (done_at, shown) = self.device.view(self.now, lpn, show);
        self.done(Completion {
            done_at,
            result: Ok(()),
        })?;

        let shown = shown.map_err(status_of)?;
        self.note(RecordedOp::Read(lpn));
        shown
    }

    /// A part of a page for the host.
    fn read(&mut self, piece: &Piece, data: &mut dyn HostData) -> Result<(), Status> {
        self.device.spend(Step::Read);
        self.view(piece.lpn, |page| {
            match page {
                PageView::Zeroes => data.put_zeroes(piece.len),
                PageView::Bytes(bytes) => data.put(&bytes[piece.start..piece.start + piece.len]),
                PageView::Unknown | PageView::Identity(_) => return Err(Status::INTERNAL),
            }
            Ok(())
        })
    }

    /// Whether a part of a page equals what the host sent.
    pub fn is_same(&mut self, piece: &Piece, data: &mut dyn HostData) -> Result<bool, Status> {
        self.device.spend(Step::Read);
        let wanted = data.take(piece.len);
        self.view(piece.lpn, |page| match page {
            PageView::Zeroes => {
                Ok(wanted.len() == piece.len && wanted.iter().all(|byte| *byte == 0))
            }
            PageView::Bytes(bytes) => Ok(bytes[piece.start..piece.start + piece.len] == *wanted),
            PageView::Unknown | PageView::Identity(_) => Err(Status::INTERNAL),
        })
    }

    /// Writes a part of a page, or all of it; too few bytes are an error of the transport.
    fn write(&mut self, piece: &Piece, bytes: &[u8]) -> Result<(), Status> {
        if self.device.has_cache() {
            return if self.is_cached() {
                self.write_cached(piece, bytes)
            } else {
                self.write_part_through(piece, bytes)
            };
        }

        let merged = match bytes.first_chunk::<PAGE_BYTES>() {
            Some(whole) if piece.len == PAGE_BYTES => return self.write_page(piece.lpn, whole),
            _ => {
                let bytes = bytes.get(..piece.len).ok_or(Status::DATA_TRANSFER)?;
                self.device.spend(Step::Read);
                let mut page = self.view(piece.lpn, |page| match page {
                    PageView::Zeroes => Ok([0; PAGE_BYTES]),
                    PageView::Bytes(bytes) => Ok(*bytes),
                    PageView::Unknown | PageView::Identity(_) => Err(Status::INTERNAL),
                })?;
                page[piece.start..piece.start + piece.len].copy_from_slice(bytes);
                page
            }
        };

        self.write_page(piece.lpn, &merged)
    }

    /// The pages written so far are to be durable when the command is acknowledged.
    fn end_write(&mut self) {
        self.done_at = self.done_at.max(self.device.end_write(self.now));
    }

    /// Writes a page; `end_write` must follow.
    #[inline]
    pub fn write_page(&mut self, lpn: u32, page: &[u8; PAGE_BYTES]) -> Result<(), Status> {
        self.device.spend(Step::Write);
        let completion = self.device.write_more(self.now, lpn, &Payload::Bytes(page));
        self.done(completion)?;
        self.note_write(lpn, page);
        Ok(())
    }

    pub fn write_all(
        &mut self,
        namespace: &Namespace,
        blocks: Blocks,
        data: &mut dyn HostData,
    ) -> Result<(), Status> {
        let written = pieces(namespace, blocks).try_for_each(|piece| {
            self.pause();
            let bytes = data.take(piece.len);
            self.write(&piece, bytes)
        });
        self.end_write();
        written
    }

    pub fn read_all(
        &mut self,
        namespace: &Namespace,
        blocks: Blocks,
        data: &mut dyn HostData,
    ) -> Result<(), Status> {
        pieces(namespace, blocks).try_for_each(|piece| {
            self.pause();
            self.read(&piece, data)
        })
    }

    /// Deallocates whole pages; the parts of pages at the ends are written as zeroes if they must read so.
    pub fn deallocate(
        &mut self,
        namespace: &Namespace,
        blocks: Blocks,
        must_be_zero: bool,
    ) -> Result<(), Status> {
        let ((mut lpn, pages), mut parts) = whole_pages(namespace, blocks);
        let behind = lpn + pages;

        if self.caches_deallocation(pages) {
            while lpn < behind {
                self.pause();
                self.deallocate_cached(lpn)?;
                lpn += 1;
            }
        }

        while lpn < behind {
            self.pause();
            let len = (DEALLOCATE_PAGES - lpn % DEALLOCATE_PAGES).min(behind - lpn);

            self.device.spend(Step::Deallocate(len));
            let completion = self.device.deallocate(self.now, lpn, len);
            self.done(completion)?;
            self.forget_pages(lpn, len);
            lpn += len;
        }

        if pages > 0 {
            self.note(RecordedOp::Deallocate(behind - pages, pages));
        }

        if !must_be_zero {
            return Ok(());
        }

        let written = parts.try_for_each(|piece| self.write(&piece, &[0; PAGE_BYTES]));
        self.end_write();
        written
    }

    pub fn remap(&mut self, remap: &Remap) -> Result<(), Status> {
        if remap.atomic {
            self.remap_step(remap)?;
        } else {
            remap_steps(*remap).try_for_each(|step| self.remap_step(&step))?;
        }
        self.note(RecordedOp::Remap(*remap));
        Ok(())
    }

    fn remap_step(&mut self, remap: &Remap) -> Result<(), Status> {
        self.pause();
        if self.is_cached() && !remap.atomic {
            return self.remap_cached(remap);
        }
        // What the sources hold must be on the device before it shares them.
        self.write_back_pages(remap.source, remap.len)?;
        self.device.spend(Step::Remap(remap.len));
        let completion = self.device.remap(self.now, remap);
        self.done(completion)?;
        self.forget_pages(remap.target, remap.len);
        if remap.relocate {
            self.forget_pages(remap.source, remap.len);
        }
        Ok(())
    }

    /// Copies blocks; a remap where pages match pages.
    pub fn copy(
        &mut self,
        to: (&Namespace, u64),
        from: (&Namespace, u64),
        count: u32,
    ) -> Result<(), Status> {
        let page_of = |(namespace, slba): (&Namespace, u64)| {
            let at = slba << namespace.lba_shift;
            let whole = at.is_multiple_of(PAGE_BYTES as u64);
            whole.then_some((u64::from(namespace.first_lpn) + (at >> PAGE_SHIFT)) as u32)
        };

        let bytes = u64::from(count) << from.0.lba_shift;
        if let (Some(target), Some(source), true) = (
            page_of(to),
            page_of(from),
            bytes.is_multiple_of(PAGE_BYTES as u64),
        ) {
            let len = (bytes >> PAGE_SHIFT) as u32;
            return self.remap(&Remap {
                target,
                source,
                len,
                relocate: false,
                atomic: false,
            });
        }

        let mut copied = Vec::new();
        let mut done = 0;
        // Piece by piece, in an order in which no source is overwritten before it is read.
        let step = MOVE_BYTES >> from.0.lba_shift;
        let backwards = from.0.nsid == to.0.nsid && from.1 < to.1;

        while done < count {
            let len = (count - done).min(step);
            let first = u64::from(if backwards { count - done - len } else { done });
            copied.clear();
            let mut read = InMemory {
                from_host: &[],
                to_host: &mut copied,
            };
            self.read_all(
                from.0,
                Blocks {
                    slba: from.1 + first,
                    count: len,
                },
                &mut read,
            )?;
            let mut written = InMemory {
                from_host: &copied,
                to_host: &mut Vec::new(),
            };
            self.write_all(
                to.0,
                Blocks {
                    slba: to.1 + first,
                    count: len,
                },
                &mut written,
            )?;
            done += len;
        }
        Ok(())
    }

    pub fn fs_write(
        &mut self,
        namespace: &Namespace,
        blocks: Blocks,
        data: &mut dyn HostData,
        page: FilePage,
    ) -> Result<FileStatus, Status> {
        let lpn = namespace.first_lpn + ((blocks.slba << namespace.lba_shift) >> PAGE_SHIFT) as u32;

        self.device.spend(Step::Write);

        let bytes = data
            .take(PAGE_BYTES)
            .first_chunk::<PAGE_BYTES>()
            .ok_or(Status::DATA_TRANSFER)?;

        let completion = self
            .device
            .fs_write(self.now, lpn, &Payload::Bytes(bytes), page);
        self.done(Completion {
            done_at: completion.done_at,
            result: Ok(()),
        })?;

        let status = completion.result.map_err(status_of)?;

        self.forget_pages(lpn, 1);
        self.note_write(lpn, bytes);

        Ok(status)
    }

    /// A file's pages with their first LBAs, or the files. Pages of other namespaces are left out.
    pub fn fs_list(
        &mut self,
        namespace: &Namespace,
        inode: Option<u32>,
    ) -> Result<Vec<[u32; 2]>, Status> {
        let Some(inode) = inode else {
            let (done_at, files) = self.device.fs_files(self.now);

            self.device
                .spend(Step::List(files.as_ref().map_or(0, Vec::len)));
            self.done(Completion {
                done_at,
                result: Ok(()),
            })?;

            return Ok(files
                .map_err(status_of)?
                .into_iter()
                .map(|inode| [inode, 0])
                .collect());
        };

        let (done_at, blocks) = self.device.fs_map(self.now, inode);
        self.device
            .spend(Step::List(blocks.as_ref().map_or(0, Vec::len)));
        self.done(Completion {
            done_at,
            result: Ok(()),
        })?;

        let own = namespace.first_lpn..namespace.first_lpn + namespace.pages;
        let blocks = blocks
            .map_err(status_of)?
            .into_iter()
            .filter(|block| own.contains(&block.lpn));

        Ok(blocks
            .map(|block| [block.offset, block.lpn - own.start])
            .collect())
    }

    pub fn fs_reset(&mut self) -> Result<(), Status> {
        let completion = self.device.fs_reset(self.now);
        self.done(completion)
    }

    /// Everything executed so far must be durable before the command is acknowledged.
    pub fn sync(&mut self) -> Result<(), Status> {
        if !self.through {
            self.write_back_all()?;
        }
        let completion = self.device.flush(self.now);
        self.done(completion)?;
        self.owes = self.device.ftl().media().position();
        self.note(RecordedOp::Flush);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a step does: all its sources are read first, and those that are not its targets are deallocated.
    fn does(step: &Remap, pages: &mut [u32]) {
        let (from, to, len) = (
            step.source as usize,
            step.target as usize,
            step.len as usize,
        );
        let read = pages[from..from + len].to_vec();
        if step.relocate {
            pages[from..from + len].fill(0);
        }
        pages[to..to + len].copy_from_slice(&read);
    }

    #[test]
    fn each_page_is_old_or_new_between_any_two_steps_of_a_relocation() {
        for (target, source, len) in [
            (0, 700, 1500),
            (700, 0, 1500),
            (0, 30, 500),
            (30, 0, 500),
            (0, 1000, 900),
        ] {
            let command = Remap {
                target,
                source,
                len,
                relocate: true,
                atomic: false,
            };

            let old: Vec<u32> = (1..=2500).collect();
            let (mut new, mut pages) = (old.clone(), old.clone());
            does(&command, &mut new);

            for step in remap_steps(command) {
                assert!(step.len <= REMAP_PAGES);
                does(&step, &mut pages);

                let found = pages.iter().zip(old.iter().zip(&new));
                assert!(
                    found
                        .into_iter()
                        .all(|(page, (old, new))| page == old || page == new),
                    "{command:?}, {step:?}"
                );
            }

            assert_eq!(pages, new, "{command:?}");
        }
    }
}
