//! Scripts of models: the requests of an application, page by page.
//!
//! A script yields the pages of each request, and whether they are read, written or deallocated;
//! [`Steps`] makes page operations with contents of them. A script knows addresses only, so a
//! model's addresses do not depend on its contents. Invariant: an extent that is read or written is
//! split into requests of at most [`REQUEST_PAGES_MAX`] pages. Absent: the models (`model.rs`).

use remap_ssd_device::HostLpn;
use std::collections::VecDeque;

use rand_xoshiro::Xoshiro256PlusPlus;

use super::WorkloadError;
use super::content::Contents;
use super::space::PageExtent;
use crate::source::{HostPage, PageKind};

/// Parameters of a script.
pub(super) struct Scale {
    /// Name of the model, for messages.
    pub name: &'static str,
    /// Addressable pages, at most 2^32 - 1.
    pub addressable: u32,
    /// Size of its page set, in multiples of the published one.
    pub factor: f64,
    /// True if reads of applications go to the device.
    pub direct: bool,
    /// The generator of its draws.
    pub rng: Xoshiro256PlusPlus,
}

impl Scale {
    /// A published number, scaled: at least `least`.
    pub(super) fn of(&self, published: f64, least: u32) -> u32 {
        ((published * self.factor).round().min(f64::from(u32::MAX)) as u32).max(least)
    }

    /// Returns an error if the addressable pages are fewer than `needed`.
    pub(super) fn needs(&self, needed: u64) -> Result<(), WorkloadError> {
        if needed <= u64::from(self.addressable) {
            Ok(())
        } else {
            Err(WorkloadError::new(format!(
                "{} needs {needed} pages at this size and there are {}: use a larger device or a smaller size=FACTOR",
                self.name, self.addressable
            )))
        }
    }
}

pub(super) trait Script {
    /// Yields the next few requests, of one to some hundred pages in total.
    fn step(&mut self, steps: &mut Steps);
}

/// Pages of the longest request that a block layer does not split: 512 KiB.
pub(super) const REQUEST_PAGES_MAX: u32 = 128;

/// Collects a script's requests.
pub(super) struct Steps {
    discard: bool,
    contents: Contents,
    /// Contents written with [`Steps::keep`] and not yet again.
    kept: VecDeque<u64>,
    out: Vec<HostPage>,
}

impl Steps {
    /// Without requests so far. Deallocations are left out unless `discard`.
    pub(super) fn new(discard: bool, contents: Contents) -> Self {
        Self {
            discard,
            contents,
            kept: VecDeque::new(),
            out: Vec::new(),
        }
    }

    /// Appends requests of `script` to `out`: at least `want` pages and commands, at least one.
    pub(super) fn fill(&mut self, script: &mut dyn Script, out: &mut Vec<HostPage>, want: usize) {
        // The script writes directly into the caller's buffer.
        std::mem::swap(out, &mut self.out);
        let full = self.out.len() + want.max(1);
        while self.out.len() < full {
            script.step(self);
        }
        std::mem::swap(out, &mut self.out);
    }

    /// All content identities given so far are below this one.
    pub(super) fn content_end(&self) -> u64 {
        self.contents.end()
    }

    /// Reads the pages of an extent.
    pub(super) fn read(&mut self, extent: PageExtent) {
        self.request(PageKind::Read, extent, |_, _| 0);
    }

    /// Writes the pages of an extent.
    pub(super) fn write(&mut self, extent: PageExtent) {
        self.request(PageKind::Write, extent, |steps, lpn| {
            steps.contents.next(lpn)
        });
    }

    /// Writes parts of the pages of an extent.
    pub(super) fn modify(&mut self, extent: PageExtent) {
        self.request(PageKind::ReadModifyWrite, extent, |steps, lpn| {
            steps.contents.next(lpn)
        });
    }

    /// Writes pages whose contents will be written again.
    pub(super) fn keep(&mut self, extent: PageExtent) {
        self.request(PageKind::Write, extent, |steps, lpn| {
            let content = steps.contents.next(lpn);
            steps.kept.push_back(content);
            content
        });
    }

    /// Writes the oldest contents kept.
    pub(super) fn again(&mut self, extent: PageExtent) {
        self.request(PageKind::Write, extent, |steps, _| {
            steps
                .kept
                .pop_front()
                .expect("what is written again was kept")
        });
    }

    /// Deallocates pages, if the file system sends discards.
    pub(super) fn trim(&mut self, extent: PageExtent) {
        if self.discard {
            // As one request: a file's extents are deallocated whole.
            self.append(PageKind::Trim, extent, |_, _| 0);
        }
    }

    /// Number of pages and commands so far.
    pub(super) fn len(&self) -> usize {
        self.out.len()
    }

    /// Writes pages from `first` on in one request, each with the home that it may be remapped to,
    /// if it has one.
    pub(super) fn write_for(&mut self, first: u32, homes: &[Option<u32>]) {
        for (index, home) in (0..).zip(homes) {
            let (lpn, last) = (page(first + index), index as usize + 1 == homes.len());
            let kind = home.map_or(PageKind::Write, |home| PageKind::WriteFor {
                home: page(home),
            });
            self.out.push(HostPage {
                at_ns: 0,
                content: self.contents.next(lpn),
                lpn,
                kind,
                last,
            });
        }
    }

    /// Remaps pages to those from `source` on, which keep their data.
    pub(super) fn remap(&mut self, target: PageExtent, source: u32) {
        // A request is at most a few megabytes in every model.
        let len = u16::try_from(target.len).expect("a command has fewer than 65,536 pages");
        let kind = PageKind::Remap {
            source: page(source),
            len,
            relocate: false,
            atomic: false,
        };
        self.out.push(HostPage {
            at_ns: 0,
            content: 0,
            lpn: page(target.first),
            kind,
            last: true,
        });
    }

    fn request(
        &mut self,
        kind: PageKind,
        extent: PageExtent,
        content: impl Fn(&mut Self, HostLpn) -> u64,
    ) {
        let PageExtent { mut first, mut len } = extent;
        while len > 0 {
            // Splits long requests like the block layer.
            let part = len.min(REQUEST_PAGES_MAX);
            self.append(kind, PageExtent { first, len: part }, &content);
            (first, len) = (first + part, len - part);
        }
    }

    fn append(
        &mut self,
        kind: PageKind,
        PageExtent { first, len }: PageExtent,
        content: impl Fn(&mut Self, HostLpn) -> u64,
    ) {
        let end = page(first + len);
        // Page by page, since each may have its own content.
        for lpn in HostLpn::range(page(first), len) {
            let content = content(self, lpn);
            self.out.push(HostPage {
                at_ns: 0,
                content,
                lpn,
                kind,
                last: lpn.offset(1) == end,
            });
        }
    }
}

fn page(number: u32) -> HostLpn {
    HostLpn::new(number.into())
}
