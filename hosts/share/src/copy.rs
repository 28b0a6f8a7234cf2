//! Copying, moving and gathering of page ranges.
//!
//! *Copy*: 1. the targets share the sources' pages  2. flush. Before the end of 2, each target page
//! is old or new.
//!
//! *Move*, one stretch at a time: 1. the targets share the sources' pages  2. flush  3. the sources
//! are deallocated. After the last stretch: 4. flush. Cut before the end of 2: the sources are
//! intact. Cut later: the targets are durable, and each source is intact or deallocated. So no page
//! is lost. An empty source is ambiguous: an interrupted move may have moved it, or it may always
//! have been empty. If its target is not empty, only the user can decide (`Empty`).
//!
//! The vendor command for relocation is not used: this code works with any device that can copy,
//! and across namespaces. On a disk that keeps an arbitrary subset of unflushed writes, relocation
//! could lose both source and target.
//!
//! Invariants: nothing changes before all ranges are checked; overlapping ranges are refused, since
//! an interrupted operation on them cannot be repeated. Absent: excluding concurrent writers of
//! these pages.

use crate::Progress;
use crate::namespaces::{NamespacePage, Namespaces, ShareError, ShareReport};
use remap_ssd_device::superblocks;
use remap_ssd_media::geometry::PAGE_BYTES;

/// Pages shared per call, i.e. per Copy command.
const SHARE_PAGES: u64 = 4096;
/// Pages moved between two flushes.
const MOVE_PAGES: u64 = 16 * SHARE_PAGES;
/// Pages per read.
const LOOK_PAGES: u64 = 256;

/// Treatment of an empty source whose target is not empty, in a move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Empty {
    /// Move nothing; the error names the page.
    #[default]
    Refuse,
    /// Keep the target: an earlier run moved the source there.
    Leave,
    /// Make the target empty too.
    Take,
}

/// A run of pages in a list of extents; the pieces follow each other in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First page, by number in the namespace.
    pub first: u64,
    /// Number of pages to copy.
    pub pages: u64,
}

fn after(at: NamespacePage, pages: u64) -> NamespacePage {
    NamespacePage {
        page: at.page + pages,
        ..at
    }
}

fn check<N: Namespaces + ?Sized>(
    device: &N,
    from: NamespacePage,
    to: NamespacePage,
    pages: u64,
) -> Result<(), ShareError> {
    if pages == 0 {
        return Err(ShareError::Usage(
            "there are no pages to share: the length is 0".into(),
        ));
    }

    // Both ranges are checked before the first page is shared.
    device.check(from, pages)?;
    device.check(to, pages)?;

    // An interrupted copy is repeated. With overlapping ranges the second attempt would read pages
    // that the first one overwrote.
    if from.nsid == to.nsid && from.page.abs_diff(to.page) < pages {
        return Err(ShareError::Usage(format!(
            "the {pages} pages from {} on and from {} on overlap: choose a target that is {pages} pages away",
            from.page, to.page
        )));
    }

    Ok(())
}

/// Shares a range without flushing, one command at a time.
pub(crate) fn share<N: Namespaces + ?Sized>(
    device: &mut N,
    from: NamespacePage,
    to: NamespacePage,
    pages: u64,
    progress: &mut dyn FnMut(u64),
) -> Result<(), ShareError> {
    let mut done = 0;
    // One command at a time: the device runs each to completion, and progress is visible.
    while done < pages {
        let count = SHARE_PAGES.min(pages - done);
        device.share(after(from, done), after(to, done), count)?;
        done += count;
        progress(done);
    }
    Ok(())
}

/// Runs `work` and returns the change in the device's counters.
pub(crate) fn counted<N: Namespaces + ?Sized>(
    device: &mut N,
    pages: u64,
    work: impl FnOnce(&mut N) -> Result<(), ShareError>,
) -> Result<ShareReport, ShareError> {
    let before = device.counts()?;
    work(device)?;
    Ok(ShareReport {
        pages,
        counts: device.counts()? - before,
    })
}

/// Copies a range. On return the copy is durable.
///
/// # Errors
/// Invalid ranges, a device error, or a transport error. A part may have been copied; the copy can
/// be repeated.
pub fn copy<N: Namespaces + ?Sized>(
    device: &mut N,
    from: NamespacePage,
    to: NamespacePage,
    pages: u64,
    progress: Progress<'_>,
) -> Result<ShareReport, ShareError> {
    check(device, from, to, pages)?;
    counted(device, pages, |device| {
        share(device, from, to, pages, &mut |done| progress(done, pages))?;
        device.flush()
    })
}

/// Moves a range: afterwards the source is deallocated. On return the move is durable.
///
/// # Errors
/// Invalid ranges, a device or transport error, or an empty source that an earlier run may or may
/// not have moved. Each page is in one of its two places.
pub fn relocate<N: Namespaces + ?Sized>(
    device: &mut N,
    from: NamespacePage,
    to: NamespacePage,
    pages: u64,
    empty: Empty,
    progress: Progress<'_>,
) -> Result<ShareReport, ShareError> {
    check(device, from, to, pages)?;
    let MovePlan {
        emptied,
        moved: runs,
    } = plan_move(device, from, to, pages, empty)?;
    let full = runs.iter().map(|run| run.pages).sum();
    // Empty sources share nothing, so they count as moved only with `Empty::Take`.
    let moved = if empty == Empty::Take { pages } else { full };

    counted(device, moved, |device| {
        // 1. targets of empty sources become empty  2. flush  3. the first copy. Cut before 3: no
        // target equals its source, so a resumed move begins with 1. Cut later: 1 is done.
        for run in &emptied {
            let (source, target) = (after(from, run.first), after(to, run.first));
            share(device, source, target, run.pages, &mut |_| {})?;
        }
        if !emptied.is_empty() {
            device.flush()?;
        }

        let mut done = moved - full;
        for run in runs {
            // A stretch is durable before its sources are deallocated, so an interruption costs at
            // most one stretch.
            for at in (run.first..run.first + run.pages).step_by(MOVE_PAGES as usize) {
                let count = MOVE_PAGES.min(run.first + run.pages - at);
                let (source, target) = (after(from, at), after(to, at));
                let moved_here = move_stretch(device, source, target, count);
                let interrupted = |error| ShareError::Moving {
                    error: Box::new(error),
                    done,
                    pages: moved,
                };
                moved_here.map_err(interrupted)?;
                done += count;
                progress(done, moved);
            }
        }
        // On return the last deallocations are durable too.
        device.flush()
    })
}

// 1. copy  2. flush  3. deallocate the sources. Cut before the end of 2: the sources are intact.
// Cut later: the copies are durable.
fn move_stretch<N: Namespaces + ?Sized>(
    device: &mut N,
    source: NamespacePage,
    target: NamespacePage,
    count: u64,
) -> Result<(), ShareError> {
    share(device, source, target, count, &mut |_| {})?;
    device.flush()?;
    device.trim(source, count)
}

/// First page that the interrupted move cannot have reached: from here on, sources are unchanged,
/// and an empty source was empty from the beginning.
///
/// A move proceeds in ascending order. It deallocates the sources of a stretch once all copies of
/// that stretch are durable, and starts the next stretch once these deallocations are durable. So a
/// source that is not empty bounds the progress. If its target differs, its stretch was not copied,
/// and no page from it on was moved. Otherwise its own stretch may be partly deallocated, but no
/// later one.
struct Unmoved(u64);

impl Unmoved {
    /// Returns true if it matters whether this source was copied. Pages come in ascending order.
    fn may_begin_at(&self, page: u64) -> bool {
        page < self.0
    }

    /// Records a source that is not empty, and whether its target holds the same data.
    fn note(&mut self, page: u64, is_copied: bool) {
        let first = if is_copied {
            page.saturating_add(MOVE_PAGES)
        } else {
            page
        };
        self.0 = self.0.min(first);
    }
}

fn add(runs: &mut Vec<Piece>, page: u64) {
    match runs.last_mut() {
        Some(run) if run.first + run.pages == page => run.pages += 1,
        _ => runs.push(Piece {
            first: page,
            pages: 1,
        }),
    }
}

/// The work of a move, in runs of pages.
#[derive(Default)]
struct MovePlan {
    /// Empty sources whose targets are not empty; these targets become empty.
    emptied: Vec<Piece>,
    /// Sources that are not empty.
    moved: Vec<Piece>,
}

/// Scans a range before it is moved.
fn plan_move<N: Namespaces + ?Sized>(
    device: &mut N,
    from: NamespacePage,
    to: NamespacePage,
    pages: u64,
    empty: Empty,
) -> Result<MovePlan, ShareError> {
    let mut plan = MovePlan::default();
    let mut unmoved = match empty {
        Empty::Take => Unmoved(0),
        Empty::Leave | Empty::Refuse => Unmoved(pages),
    };
    let mut sources = vec![0; LOOK_PAGES as usize * PAGE_BYTES];
    let mut target = [0; PAGE_BYTES];
    for first in (0..pages).step_by(LOOK_PAGES as usize) {
        let count = LOOK_PAGES.min(pages - first);
        let sources = &mut sources[..count as usize * PAGE_BYTES];
        device.read(after(from, first), sources)?;

        for (page, source) in (first..).zip(sources.as_chunks::<PAGE_BYTES>().0) {
            // Written zeroes count as empty too: the target reads the same either way.
            if *source != [0; PAGE_BYTES] {
                add(&mut plan.moved, page);
                if empty == Empty::Leave && unmoved.may_begin_at(page) {
                    device.read(after(to, page), &mut target)?;
                    unmoved.note(page, target == *source);
                }
                continue;
            }

            // The content of a moved page is at its target.
            let was_moved = unmoved.may_begin_at(page);
            if was_moved && empty == Empty::Leave {
                continue;
            }
            device.read(after(to, page), &mut target)?;
            if target == [0; PAGE_BYTES] {
                continue;
            }

            // Only the user knows whether the page was moved before or was always empty.
            if was_moved {
                return Err(ShareError::Refused(format!(
                    "page {} is empty and its target, page {}, is not: if an interrupted move has been here, --resume \
                     leaves such targets as they are; --force makes them empty",
                    from.page + page,
                    to.page + page
                )));
            }
            add(&mut plan.emptied, page);
        }
    }
    Ok(plan)
}

/// Returns the first page of the range that does not read as zeroes, if any.
///
/// # Errors
/// An invalid range, a device error, or a transport error.
pub(crate) fn first_written<N: Namespaces + ?Sized>(
    device: &mut N,
    at: NamespacePage,
    pages: u64,
    progress: Progress<'_>,
) -> Result<Option<u64>, ShareError> {
    let read = |first, bytes: &mut [u8]| device.read(after(at, first), bytes);
    let found = superblocks::first_written(pages, progress, read)?;
    Ok(found.map(|page| at.page + page))
}

/// Checks the pieces of a file against a contiguous target range, without changing anything.
/// Returns the total number of pages.
///
/// # Errors
/// A piece is empty, outside the namespace, listed twice, or overlaps the target.
pub fn plan<N: Namespaces + ?Sized>(
    device: &N,
    nsid: u32,
    pieces: &[Piece],
    to: u64,
) -> Result<u64, ShareError> {
    // The extents of a damaged list may overflow the sum.
    let pages = pieces
        .iter()
        .try_fold(0u64, |sum, piece| sum.checked_add(piece.pages));
    let pages = pages.filter(|pages| *pages > 0);
    let pages =
        pages.ok_or_else(|| ShareError::Usage("the list of extents has no pages".into()))?;
    device.check(NamespacePage { nsid, page: to }, pages)?;

    // Sorted by position: overlaps are between neighbours.
    let mut sorted: Vec<&Piece> = pieces.iter().collect();
    sorted.sort_by_key(|piece| piece.first);
    for piece in &sorted {
        device.check(
            NamespacePage {
                nsid,
                page: piece.first,
            },
            piece.pages,
        )?;
        // No sum overflows: both ranges lie in the namespace.
        if piece.first < to + pages && to < piece.first + piece.pages {
            return Err(ShareError::Usage(format!(
                "the extent at page {} is in the way of the target, pages {to} to {to} + {pages}",
                piece.first
            )));
        }
    }
    match sorted
        .windows(2)
        .find(|pair| pair[0].first + pair[0].pages > pair[1].first)
    {
        Some(pair) => Err(ShareError::Usage(format!(
            "page {} is listed twice",
            pair[1].first
        ))),
        None => Ok(pages),
    }
}

/// Lets a contiguous range share the pages of a file's pieces, in the order of the list. The pieces
/// stay until the owner of the file has recorded its new location. The target must be blank unless
/// `force`.
///
/// # Errors
/// As `plan`; a target that is not blank; a device or transport error. Only the target may have
/// changed.
pub fn gather<N: Namespaces + ?Sized>(
    device: &mut N,
    nsid: u32,
    pieces: &[Piece],
    to: u64,
    force: bool,
    progress: Progress<'_>,
) -> Result<ShareReport, ShareError> {
    let pages = plan(device, nsid, pieces, to)?;

    // Checked as late as possible: the pieces overwrite the target.
    if !force
        && let Some(page) = first_written(
            device,
            NamespacePage { nsid, page: to },
            pages,
            &mut |_, _| {},
        )?
    {
        return Err(ShareError::Refused(format!(
            "something is in page {page}, where the pieces are to go: choose another target; --force overwrites it"
        )));
    }

    counted(device, pages, |device| {
        let mut done = 0;
        for piece in pieces {
            let (from, target) = (
                NamespacePage {
                    nsid,
                    page: piece.first,
                },
                NamespacePage {
                    nsid,
                    page: to + done,
                },
            );

            share(device, from, target, piece.pages, &mut |here| {
                progress(done + here, pages)
            })?;

            done += piece.pages;
        }

        device.flush()
    })
}
