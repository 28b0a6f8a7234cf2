//! Allocation: which pages are free, and which of them a file gets. Pure: lists in, lists out.
//!
//! Invariant: a page is free if no file claims it; there is no other record of free space that
//! could disagree. Absent: where the lists come from, and when an allocation takes effect
//! (`change.rs`).

/// Consecutive pages of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Extent {
    /// The first of its pages.
    pub first: u64,
    /// Number of pages.
    pub pages: u64,
}

impl Extent {
    /// The page after the last one.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.pages
    }
}

/// Pages of the smallest extent that a file asks for, unless space is short: 64 KiB.
const PIECE_PAGES_MIN: u64 = 16;
/// Maximum pages that a file asks for in advance: 64 MiB.
const PIECE_PAGES_MAX: u64 = 16_384;

/// The free runs of `first..end`, in order, given all extents claimed there. Claims may overlap.
pub(super) fn free_runs(mut claimed: Vec<Extent>, first: u64, end: u64) -> Vec<Extent> {
    claimed.sort_unstable();
    let mut free = Vec::new();
    let mut at = first;
    for extent in claimed {
        if extent.first > at {
            free.push(Extent {
                first: at,
                pages: extent.first - at,
            });
        }
        at = at.max(extent.end());
    }

    if at < end {
        free.push(Extent {
            first: at,
            pages: end - at,
        });
    }
    free
}

/// Sum of the pages of extents.
pub(super) fn pages_in(extents: &[Extent]) -> u64 {
    extents.iter().map(|extent| extent.pages).sum()
}

/// The parts of `extents` that `others` do not claim.
pub(super) fn unclaimed(extents: &[Extent], others: &[Extent]) -> Vec<Extent> {
    extents
        .iter()
        .flat_map(|extent| {
            let within = others
                .iter()
                .filter(|other| other.first < extent.end() && other.end() > extent.first)
                .copied()
                .collect();
            free_runs(within, extent.first, extent.end())
        })
        .collect()
}

/// Pairs of owners whose extents overlap, and the first common page of each.
pub(super) fn conflicts(mut claimed: Vec<(Extent, u32)>) -> Vec<(u32, u32, u64)> {
    claimed.sort_unstable();
    let mut found: Vec<(u32, u32, u64)> = Vec::new();
    // Earlier extents that reach beyond the start of this one.
    let mut reaching: Vec<(Extent, u32)> = Vec::new();
    for (extent, owner) in claimed {
        reaching.retain(|(before, _)| before.end() > extent.first);
        for (_, other) in &reaching {
            let pair = (owner.min(*other), owner.max(*other));
            if !found.iter().any(|(a, b, _)| (*a, *b) == pair) {
                found.push((pair.0, pair.1, extent.first));
            }
        }
        reaching.push((extent, owner));
    }
    found
}

/// Pages that a file of `capacity` pages asks for when it needs `needed` more: half its capacity,
/// so that a file that grows page by page asks seldom, but only `needed` if more than an eighth of
/// the free pages would be taken.
pub(super) fn wish(capacity: u64, needed: u64, free: u64) -> u64 {
    let ahead = (capacity / 2)
        .clamp(PIECE_PAGES_MIN, PIECE_PAGES_MAX)
        .max(needed);
    if ahead <= free / 8 { ahead } else { needed }
}

/// Chooses at least `needed` and at best `wanted` pages from the free runs: the run that starts at
/// page `after`, then the smallest run that is large enough, then the largest ones. `None` if too
/// few are free.
pub(super) fn choose(
    mut free: Vec<Extent>,
    after: Option<u64>,
    wanted: u64,
    needed: u64,
) -> Option<Vec<Extent>> {
    let mut chosen = Vec::new();
    let mut total = 0;

    // The run after the file's last page first, so that the file stays contiguous.
    let mut next = free.iter().position(|run| Some(run.first) == after);
    while total < needed {
        let open = wanted - total;
        let index = next.take().or_else(|| {
            let fitting = free.iter().enumerate().filter(|(_, run)| run.pages >= open);
            // The smallest that is large enough keeps larger ones whole.
            let smallest = fitting.min_by_key(|(_, run)| run.pages);
            smallest
                .or_else(|| free.iter().enumerate().max_by_key(|(_, run)| run.pages))
                .map(|(index, _)| index)
        })?;

        let run = free.swap_remove(index);
        let taken = Extent {
            first: run.first,
            pages: run.pages.min(open),
        };
        total += taken.pages;
        chosen.push(taken);
    }
    Some(chosen)
}

/// Appends extents, merging adjacent ones.
pub(super) fn joined(extents: &[Extent], more: &[Extent]) -> Vec<Extent> {
    let mut all: Vec<Extent> = Vec::with_capacity(extents.len() + more.len());
    for extent in extents.iter().chain(more) {
        match all.last_mut() {
            Some(last) if last.end() == extent.first => last.pages += extent.pages,
            _ => all.push(*extent),
        }
    }
    all
}

/// Splits extents after their first `pages` pages.
pub(super) fn split(extents: &[Extent], pages: u64) -> (Vec<Extent>, Vec<Extent>) {
    let (mut kept, mut released) = (Vec::new(), Vec::new());
    let mut left = pages;

    for extent in extents {
        let here = extent.pages.min(left);
        left -= here;
        if here > 0 {
            kept.push(Extent {
                pages: here,
                ..*extent
            });
        }
        if here < extent.pages {
            released.push(Extent {
                first: extent.first + here,
                pages: extent.pages - here,
            });
        }
    }

    (kept, released)
}

/// Locates pages `first..first + pages` of a file; `None` if it has fewer.
pub(super) fn pieces(extents: &[Extent], first: u64, pages: u64) -> Option<Vec<Extent>> {
    let mut pieces = Vec::with_capacity(1);
    let (mut skip, mut left) = (first, pages);
    for extent in extents {
        if left == 0 {
            break;
        }

        // Skips whole extents before the range.
        if skip >= extent.pages {
            skip -= extent.pages;
            continue;
        }

        let here = (extent.pages - skip).min(left);
        pieces.push(Extent {
            first: extent.first + skip,
            pages: here,
        });
        (skip, left) = (0, left - here);
    }
    (left == 0).then_some(pieces)
}
