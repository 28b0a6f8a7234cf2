//! Statistics of a stream of requests: sizes, working set, duplicates by each definition, skew.
//!
//! **Duplicates** have two definitions in publications. A third number is the share that a device
//! can use:
//!
//! - *papers' ratio* (FAST'21): one minus the distinct contents per distinct page written. "10 %
//!   duplicate data" are contents drawn from 0.9 times as many as there are pages. It is a ratio of
//!   a set of data, not of writes: it is only reached when all contents have been drawn, and 0
//!   where pages are rewritten with new contents.
//! - *duplicate writes* (FIU): writes whose content was written before in the same stream, whether
//!   or not it is still stored, as a share of pages written.
//! - *stored*: writes whose content some page holds at that moment. *Unchanged* ones among them
//!   find it in their own page.
//!
//! **Skew.** Shares of the accesses that go to the hottest 1, 10 and 20 % of the pages accessed;
//! and the exponent of the Zipf law over those pages under which two accesses hit the same page as
//! often as here. That estimate does not mistake chance for skew: uniform accesses have exponent 0
//! however few they are.
//!
//! Invariants: counts are pages as replayed; memory grows with distinct pages and contents. Absent:
//! reading files (the readers').

use remap_ssd_device::HostLpn;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::{Serialize, Serializer};

use crate::source::{HostPage, PageKind, Source, SourceError};
use crate::workload::{ContentModel, Copies};

/// Requests by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Requests {
    /// Requests of every kind, flushes left out.
    pub all: u64,
    /// Requests that read at least one page.
    pub reads: u64,
    /// Requests that write at least one page, in part or whole.
    pub writes: u64,
    /// Requests that deallocate at least one page.
    pub trims: u64,
    /// Requests that remap at least one page.
    pub remaps: u64,
    /// Reads and writes that begin where the previous one of the same kind ended.
    pub sequential: u64,
}

/// Pages by operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PageClasses {
    /// Pages read, counted once per read.
    pub read: u64,
    /// Pages written, whole or in part.
    pub written: u64,
    /// Of those, pages written in part.
    pub written_in_part: u64,
    /// Pages deallocated, counted once per deallocation.
    pub trimmed: u64,
    /// Pages mapped to another page's content.
    pub remapped: u64,
    /// Distinct pages read or written: the working set.
    pub unique: u64,
    /// Distinct pages read.
    pub unique_read: u64,
    /// Distinct pages written.
    pub unique_written: u64,
}

/// Duplicates by each definition; see the module documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Duplicates {
    /// Distinct contents written.
    pub contents: u64,
    /// One minus distinct contents per distinct page written; at least 0.
    pub papers_ratio: f64,
    /// Pages written with a content that had been written before.
    pub writes: u64,
    /// The same, as a share of pages written.
    pub write_share: f64,
    /// Pages written with a content stored in some page at that time.
    pub stored: u64,
    /// The same, as a share of pages written.
    pub stored_share: f64,
    /// Pages written with the content that they already held.
    pub unchanged: u64,
    /// The model that writes contents as many times as these, for traces without contents.
    #[serde(serialize_with = "as_text")]
    pub model: ContentModel,
}

fn as_text<S: Serializer>(model: &ContentModel, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(model)
}

/// Skew of the accesses over the pages accessed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Skew {
    /// Exponent of the Zipf law with the same collision probability.
    pub zipf_exponent: f64,
    /// Share of the accesses that go to the hottest 1 % of the pages.
    pub top_1_percent: f64,
    /// Share of the hottest 10 %.
    pub top_10_percent: f64,
    /// Share of the hottest 20 %.
    pub top_20_percent: f64,
}

/// Requests, pages, duplicates and skew of a trace or workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Profile {
    /// Requests by kind and size.
    pub requests: Requests,
    /// Pages by operation.
    pub pages: PageClasses,
    /// Pages written as a share of pages read and written.
    pub write_share: f64,
    /// Number of reads and writes by size in pages: 1, 2, up to 4, up to 8 and so on, keyed by the
    /// upper bound.
    pub request_pages: BTreeMap<u32, u64>,
    /// Mean number of pages of a read or write.
    pub request_pages_mean: f64,
    /// Duplicate writes, by each of the three definitions.
    pub duplicates: Duplicates,
    /// Skew of the writes, over the pages written.
    pub skew_writes: Skew,
    /// Skew of all accesses, over the pages read and written.
    pub skew_all: Skew,
    /// Time from the first request to the last, nanoseconds.
    pub duration_ns: u64,
}

/// State of a page.
#[derive(Clone, Copy, Default)]
struct SeenPage {
    /// Its content; 0 if unknown.
    content: u64,
    reads: u32,
    writes: u32,
}

/// State of a content ever written.
#[derive(Clone, Copy, Default)]
struct SeenContent {
    /// Number of pages that hold it.
    holders: u32,
    writes: u32,
}

/// Counts a stream, page by page.
#[derive(Default)]
pub struct Profiler {
    profile: Profile,
    pages: FxHashMap<HostLpn, SeenPage>,
    contents: FxHashMap<u64, SeenContent>,
    /// Pages of the current request so far.
    request: u32,
    /// End of the latest read and of the latest write.
    ends: [Option<HostLpn>; 2],
    data_pages: u64,
}

impl Profiler {
    /// Counts one page of a request.
    pub fn page(&mut self, page: &HostPage) {
        let pages = &mut self.profile.pages;
        // Counts by page here; `request` counts by request, at its last page.
        match page.kind {
            PageKind::Read => {
                pages.read += 1;
                self.pages.entry(page.lpn).or_default().reads += 1;
            }
            PageKind::Write | PageKind::WriteFor { .. } => self.write(page),
            PageKind::ReadModifyWrite => {
                pages.written_in_part += 1;
                self.write(page);
            }
            // The page holds nothing now: no write has content 0.
            PageKind::Trim => {
                pages.trimmed += 1;
                self.hold(page.lpn, 0);
            }
            PageKind::Remap {
                source,
                len,
                relocate,
                ..
            } => {
                pages.remapped += u64::from(len);
                let sources = HostLpn::range(source, len.into());

                let content = |lpn| {
                    self.pages
                        .get(&lpn)
                        .map_or(0, |seen: &SeenPage| seen.content)
                };

                // All contents are read before any is stored: the ranges may overlap.
                let contents: Vec<u64> = sources.clone().map(content).collect();

                // On relocation, the sources are emptied before the targets are filled, as in the
                // device.
                if relocate {
                    sources.for_each(|lpn| self.hold(lpn, 0));
                }

                HostLpn::range(page.lpn, len.into())
                    .zip(contents)
                    .for_each(|(lpn, content)| self.hold(lpn, content));
            }
            // A flush has no pages to count.
            PageKind::Flush => return,
        }

        self.request(page);
        self.profile.duration_ns = page.at_ns;
    }

    fn write(&mut self, page: &HostPage) {
        self.profile.pages.written += 1;
        let duplicates = &mut self.profile.duplicates;
        let content = self.contents.entry(page.content).or_default();
        match content.writes {
            0 => duplicates.contents += 1,
            _ => {
                duplicates.writes += 1;
                duplicates.stored += u64::from(content.holders > 0);
            }
        }
        content.writes = content.writes.saturating_add(1);

        let seen = self.pages.entry(page.lpn).or_default();
        seen.writes += 1;

        // An empty page has content 0, which no write has.
        duplicates.unchanged += u64::from(seen.content == page.content);
        self.hold(page.lpn, page.content);
    }

    /// Sets the content of a page, or none (0).
    fn hold(&mut self, lpn: HostLpn, content: u64) {
        let old = match content {
            0 => self
                .pages
                .get_mut(&lpn)
                .map_or(0, |seen| std::mem::take(&mut seen.content)),
            _ => std::mem::replace(&mut self.pages.entry(lpn).or_default().content, content),
        };
        if let Some(old) = self.contents.get_mut(&old) {
            old.holders -= 1;
        }
        if content != 0 {
            self.contents.entry(content).or_default().holders += 1;
        }
    }

    fn request(&mut self, page: &HostPage) {
        let requests = &mut self.profile.requests;

        // Reads and writes are tracked separately: an interleaved log and scan are both sequential.
        let side = match page.kind {
            PageKind::Read => Some(0),
            PageKind::Trim | PageKind::Remap { .. } => None,
            _ => Some(1),
        };

        if let Some(side) = side {
            // Decided at a request's first page; the others follow it anyway.
            if self.request == 0 && self.ends[side] == Some(page.lpn) {
                requests.sequential += 1;
            }
            self.ends[side] = Some(page.lpn.offset(1));
        }

        self.request += 1;
        if !page.last {
            // A request is counted when complete: a stream may be cut within one.
            return;
        }

        let len = std::mem::take(&mut self.request);
        requests.all += 1;

        match page.kind {
            PageKind::Read => requests.reads += 1,
            PageKind::Trim => requests.trims += 1,
            PageKind::Remap { .. } => requests.remaps += 1,
            _ => requests.writes += 1,
        }

        // Deallocations can span a disk and would hide the sizes of transfers.
        if side.is_some() {
            self.data_pages += u64::from(len);
            *self
                .profile
                .request_pages
                .entry(len.next_power_of_two())
                .or_default() += 1;
        }
    }

    /// Returns the counts, with shares and skews.
    pub fn finish(self) -> Profile {
        let mut profile = self.profile;
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let (mut writes, mut all) = (Vec::new(), Vec::new());

        // In hash order: sums and sorted lists do not depend on it.
        for seen in self.pages.values() {
            profile.pages.unique_read += u64::from(seen.reads > 0);
            if seen.writes > 0 {
                writes.push(seen.writes);
            }
            if seen.reads + seen.writes > 0 {
                all.push(seen.reads + seen.writes);
            }
        }

        let pages = &mut profile.pages;
        (pages.unique, pages.unique_written) = (all.len() as u64, writes.len() as u64);

        profile.write_share = share(pages.written, pages.written + pages.read);
        profile.request_pages_mean = share(
            self.data_pages,
            profile.requests.reads + profile.requests.writes,
        );

        let duplicates = &mut profile.duplicates;
        duplicates.papers_ratio = (1.0 - share(duplicates.contents, pages.unique_written)).max(0.0);
        duplicates.write_share = share(duplicates.writes, pages.written);
        duplicates.stored_share = share(duplicates.stored, pages.written);
        let writes_of = self.contents.values().map(|content| content.writes);
        duplicates.model = Copies::of(writes_of).model();

        // Without writes there are no duplicates; the ratio would be 1.
        if pages.unique_written == 0 {
            duplicates.papers_ratio = 0.0;
        }

        profile.skew_writes = Skew::of(writes);
        profile.skew_all = Skew::of(all);

        profile
    }
}

/// Profiles a source: all of it, or its first `requests` requests. `progress` is called now and
/// then with the requests so far.
///
/// # Errors
/// The source fails.
pub fn profile(
    source: &mut dyn Source,
    requests: Option<u64>,
    progress: &mut dyn FnMut(u64),
) -> Result<Profile, SourceError> {
    const BATCH: usize = 4096;
    let mut profiler = Profiler::default();
    let mut batch = Vec::with_capacity(2 * BATCH);
    let wanted = requests.unwrap_or(u64::MAX);

    // A batch may bring more requests than wanted: the rest is dropped.
    while profiler.profile.requests.all < wanted && source.fill(&mut batch, BATCH)? {
        for page in batch.drain(..) {
            if profiler.profile.requests.all < wanted {
                profiler.page(&page);
            }
        }
        progress(profiler.profile.requests.all);
    }
    Ok(profiler.finish())
}

impl Skew {
    /// Computes the skew of these access counts, one per page.
    pub(crate) fn of(mut accesses: Vec<u32>) -> Self {
        // Hottest first.
        accesses.sort_unstable_by(|a, b| b.cmp(a));
        let all: u64 = accesses.iter().map(|&count| u64::from(count)).sum();

        let top = |share: f64| {
            // At least one page: a share of a small set rounds to none.
            let hottest =
                ((accesses.len() as f64 * share).round() as usize).clamp(1, accesses.len().max(1));

            let part: u64 = accesses
                .iter()
                .take(hottest)
                .map(|&count| u64::from(count))
                .sum();
            part as f64 / all.max(1) as f64
        };

        // Probability that two different accesses drawn at random are to the same page.
        let pairs = |count: f64| count * (count - 1.0);
        let meetings: f64 = accesses.iter().map(|&count| pairs(f64::from(count))).sum();
        let meeting = meetings / pairs(all as f64).max(1.0);

        Self {
            zipf_exponent: exponent(accesses.len() as f64, meeting),
            top_1_percent: top(0.01),
            top_10_percent: top(0.1),
            top_20_percent: top(0.2),
        }
    }
}

const EXPONENT_MAX: f64 = 16.0;

/// The exponent of the Zipf law over `pages` under which two draws are equal with this probability.
fn exponent(pages: f64, meeting: f64) -> f64 {
    let of = |exponent: f64| {
        let sum = power_sum(pages, exponent);
        power_sum(pages, 2.0 * exponent) / (sum * sum)
    };

    // Flatter than uniform is chance: exponent 0.
    if pages < 2.0 || meeting <= of(0.0) {
        return 0.0;
    }

    let (mut low, mut high) = (0.0, EXPONENT_MAX);
    // Bisects until the interval is below the rounding.
    for _ in 0..50 {
        let middle = (low + high) / 2.0;
        if of(middle) < meeting {
            low = middle;
        } else {
            high = middle;
        }
    }

    // Six digits: later ones are noise of the bisection.
    (low * 1e6).round() / 1e6
}

/// The sum of `rank^-exponent` for ranks up to `count`: the first 1000 exactly, the others as an
/// integral.
fn power_sum(count: f64, exponent: f64) -> f64 {
    const EXACT: u32 = 1000;
    let power = |rank: f64| libm::pow(rank, -exponent);
    let exact = (count as u32).min(EXACT);
    let head: f64 = (1..=exact).rev().map(|rank| power(f64::from(rank))).sum();
    if count <= f64::from(EXACT) {
        return head;
    }
    // From half a rank before the first to half a rank after the last.
    let (from, to) = (f64::from(EXACT) + 0.5, count + 0.5);
    let slope = 1.0 - exponent;
    head + if slope.abs() < 1e-9 {
        libm::log(to / from)
    } else {
        (libm::pow(to, slope) - libm::pow(from, slope)) / slope
    }
}
