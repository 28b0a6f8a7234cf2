//! Ranges of pages: copied, moved, gathered from pieces.
//!
//! *Copy*: 1. the targets share the sources' pages  2. flush. Each page of the target is old or new
//! before the end of 2.
//!
//! *Move*, a stretch at a time: 1. the targets share the sources' pages  2. flush  3. the sources
//! are deallocated; and behind the last stretch 4. flush. Cut before the end of 2: the sources are
//! whole. Cut later: the targets are, and each source is there or deallocated. So no page is lost.
//! But a source that is empty may have been moved by a move that was interrupted, or it may have
//! been empty: if its target is not empty, only the user can say which (`Empty`).
//!
//! The vendor command that relocates is not used: it is the device's, where this works with any
//! that can copy, and between namespaces; and on a disk that keeps any subset of what was not
//! flushed it could lose the source and the target.
//!
//! Invariants: nothing is changed before all ranges are checked; ranges that overlap are refused,
//! since what they do cannot be done again after an interruption. Absent: who else writes these
//! pages meanwhile.

use crate::Progress;
use crate::namespaces::{NamespacePage, Namespaces, ShareError, ShareReport};
use remap_ssd_media::geometry::PAGE_BYTES;

/// Pages that are shared by one call: what one Copy command takes.
const SHARE_PAGES: u64 = 4096;
/// Pages that are moved between two flushes.
const MOVE_PAGES: u64 = 16 * SHARE_PAGES;
/// Pages that are read at once.
const LOOK_PAGES: u64 = 256;

/// What a move does with an empty source whose target is not empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Empty {
    /// Nothing is moved at all, and the page is named.
    #[default]
    Refuse,
    /// The target stays: the source was moved there before.
    Leave,
    /// The target becomes empty too.
    Take,
}

/// Pages of a list of extents, which follow each other in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First page of the namespace.
    pub first: u64,
    /// How many pages are to be copied.
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

    // A copy that was interrupted is made again: with overlapping ranges the second attempt would
    // read what the first one left.
    if from.nsid == to.nsid && from.page.abs_diff(to.page) < pages {
        return Err(ShareError::Usage(format!(
            "the {pages} pages from {} on and from {} on overlap: choose a target that is {pages} pages away",
            from.page, to.page
        )));
    }

    Ok(())
}

/// Shares a range without flushing, a command's worth at a time.
pub(crate) fn share<N: Namespaces + ?Sized>(
    device: &mut N,
    from: NamespacePage,
    to: NamespacePage,
    pages: u64,
    progress: &mut dyn FnMut(u64),
) -> Result<(), ShareError> {
    let mut done = 0;
    // A command's worth: the device does it in one turn of its own, and progress shows.
    while done < pages {
        let count = SHARE_PAGES.min(pages - done);
        device.share(after(from, done), after(to, done), count)?;
        done += count;
        progress(done);
    }
    Ok(())
}

/// Runs, and says what the device has counted meanwhile.
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

/// Copies a range. It survives a crash of the device's machine when this has returned.
///
/// # Errors
/// The ranges, the device, or the way to it. A part may have been copied; the same copy can be made
/// again.
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

/// Moves a range: afterwards the source is deallocated. It survives a crash of the device's machine
/// when this has returned.
///
/// # Errors
/// The ranges, the device, the way to it, or an empty source of which nobody knows whether it was
/// moved before. Each page is in one of its places.
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
    // Empty sources are not counted as moved, unless that was asked for: nothing of theirs is shared.
    let moved = if empty == Empty::Take { pages } else { full };

    counted(device, moved, |device| {
        // 1. targets of empty sources become empty  2. flush  3. the first copy. Cut before 3: no
        //    target holds what its source does, so that resuming begins with 1. Later: 1 is done.
        for run in &emptied {
            let (source, target) = (after(from, run.first), after(to, run.first));
            share(device, source, target, run.pages, &mut |_| {})?;
        }
        if !emptied.is_empty() {
            device.flush()?;
        }

        let mut done = moved - full;
        for run in runs {
            // One stretch is durable before its sources go, so an interruption costs at most a
            // stretch.
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
        // The last sources are gone durably too when this returns.
        device.flush()
    })
}

// 1. the copy  2. flush  3. the sources. Cut before the end of 2: they are there. Later: their
//    copies are.
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

/// Pages from this one on were not moved before a move was interrupted: their sources are as they
/// were, and an empty one was empty from the beginning.
///
/// A move goes from front to back. It deallocates the sources of a stretch after the copies of the
/// whole stretch are durable, and those of the next stretch after these deallocations are. So a
/// source that holds something proves two things. If its target differs, its stretch was not copied,
/// and nothing from it on was moved. Otherwise its own stretch may be deallocated in part, but no
/// later one.
struct Unmoved(u64);

impl Unmoved {
    /// Does it matter whether this source was copied? Pages come in ascending order.
    fn may_begin_at(&self, page: u64) -> bool {
        page < self.0
    }

    /// This source holds something, and is or is not what its target holds.
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

/// What a move has to do, in runs of pages.
#[derive(Default)]
struct MovePlan {
    /// Empty sources whose targets hold something, and become empty.
    emptied: Vec<Piece>,
    /// Sources that hold something.
    moved: Vec<Piece>,
}

/// Looks at a range before it is moved.
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
            // Zeroes that were written count as empty as well: the target reads the same either
            // way.
            if *source != [0; PAGE_BYTES] {
                add(&mut plan.moved, page);
                if empty == Empty::Leave && unmoved.may_begin_at(page) {
                    device.read(after(to, page), &mut target)?;
                    unmoved.note(page, target == *source);
                }
                continue;
            }

            // One that was moved has left its content at its target.
            let was_moved = unmoved.may_begin_at(page);
            if was_moved && empty == Empty::Leave {
                continue;
            }
            device.read(after(to, page), &mut target)?;
            if target == [0; PAGE_BYTES] {
                continue;
            }

            // Only the user knows whether it was moved before or was always empty.
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

/// Whether pages read as zeroes; the first that does not, if one does not.
///
/// # Errors
/// The range, the device, or the way to it.
pub fn first_written<N: Namespaces + ?Sized>(
    device: &mut N,
    at: NamespacePage,
    pages: u64,
    progress: Progress<'_>,
) -> Result<Option<u64>, ShareError> {
    let mut bytes = vec![0; LOOK_PAGES as usize * PAGE_BYTES];

    for first in (0..pages).step_by(LOOK_PAGES as usize) {
        let count = LOOK_PAGES.min(pages - first);
        let bytes = &mut bytes[..count as usize * PAGE_BYTES];

        device.read(after(at, first), bytes)?;

        // Only reading tells: a device does not say which pages have a mapping.
        let written = bytes
            .as_chunks::<PAGE_BYTES>()
            .0
            .iter()
            .position(|page| *page != [0; PAGE_BYTES]);

        if let Some(index) = written {
            return Ok(Some(at.page + first + index as u64));
        }

        progress(first + count, pages);
    }

    Ok(None)
}

/// Where the pieces of a file are to be: one behind the other from a page on. Nothing is changed.
///
/// # Errors
/// A piece is empty, outside the namespace, listed twice, or in the way of the target.
pub fn plan<N: Namespaces + ?Sized>(
    device: &N,
    nsid: u32,
    pieces: &[Piece],
    to: u64,
) -> Result<u64, ShareError> {
    // Extents of a damaged list may sum to anything.
    let pages = pieces
        .iter()
        .try_fold(0u64, |sum, piece| sum.checked_add(piece.pages));
    let pages = pages.filter(|pages| *pages > 0);
    let pages =
        pages.ok_or_else(|| ShareError::Usage("the list of extents has no pages".into()))?;
    device.check(NamespacePage { nsid, page: to }, pages)?;

    // By place, so that overlaps show between neighbours.
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
        // No sum overflows: both ranges were just found to lie in the namespace.
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

/// Lets the pieces of a file share pages with a contiguous range, in the order of the list; the
/// pieces stay as they are until whoever knows the file has written down where it is now. The
/// target must be blank unless `force`.
///
/// # Errors
/// As `plan`, something is in the target, the device, or the way to it. Only the target may have
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

    // Looked at as late as possible: the pieces go over whatever is there.
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
