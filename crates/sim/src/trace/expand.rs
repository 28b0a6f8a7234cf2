//! Expands a recorded request to pages of the device: cut, folded, with contents.
//!
//! Invariants: a request's pages ascend, and only the last of them is marked as last; the result
//! depends only on the request and earlier ones. Absent: reading (the decoder's), storage of
//! requests (`decoded`).

use super::address::{Cut, DevicePage, Folder, cut};
use super::record::{Moved, RequestKind};
use super::{Fold, TraceOptions};
use crate::source::{HostPage, PageKind};
use remap_ssd_device::HostLpn;

/// A recorded request, with its time since the first.
#[derive(Clone, Debug, Default)]
pub(super) struct Item {
    pub at_ns: u64,
    pub op: Op,
    /// Of a write, the identity of each page's content.
    pub contents: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Op {
    Extent {
        device: u64,
        verb: RequestKind,
        offset: u64,
        len: u64,
    },
    Moved(Moved),
    #[default]
    Flush,
}

/// Expands the requests of one trace, in order.
pub(super) struct Expander {
    addressable: u64,
    folder: Folder,
    content_shift: u64,
}

impl Expander {
    pub(super) fn new(options: &TraceOptions, content_shift: u64) -> Self {
        Self {
            addressable: options.addressable,
            folder: Folder::new(options.fold, options.addressable),
            content_shift,
        }
    }

    /// Restarts at the first request, with new contents.
    pub(super) fn again(&mut self, fold: Fold, content_shift: u64) {
        self.folder = Folder::new(fold, self.addressable);
        self.content_shift = content_shift;
    }

    /// Appends the pages of a request; `false` if it affects none.
    #[inline]
    pub(super) fn expand(&mut self, item: &Item, out: &mut Vec<HostPage>) -> bool {
        let at_ns = item.at_ns;

        match item.op {
            Op::Extent {
                device,
                verb,
                offset,
                len,
            } => {
                let start = out.len();

                for (index, cut) in cut(offset, len).enumerate() {
                    // A request without recorded contents has fresh ones or none: marked by zero.
                    let content = item.contents.get(index).copied().unwrap_or(0);
                    let Some(page) = self.page(device, verb, cut, content) else {
                        continue;
                    };

                    out.push(HostPage { at_ns, ..page });
                    // A disk-wide discard folded into a small device names each page once, not many
                    // times.
                    let is_full = (out.len() - start) as u64 >= self.addressable;
                    if verb == RequestKind::Trim && is_full {
                        break;
                    }
                }

                // Folding may remove pages, so the last one is marked here; there may be none.
                let last = out[start..].last_mut();
                last.map(|page| page.last = true).is_some()
            }
            Op::Moved(moved) => self.remaps(at_ns, &moved, out),
            Op::Flush => {
                out.push(HostPage {
                    at_ns,
                    content: 0,
                    lpn: HostLpn::ZERO,
                    kind: PageKind::Flush,
                    last: true,
                });
                true
            }
        }
    }

    #[inline]
    fn page(&mut self, device: u64, verb: RequestKind, cut: Cut, content: u64) -> Option<HostPage> {
        let target = DevicePage {
            device,
            page: cut.page,
        };

        // Shifted to the expander's own range of identities, so that traces replayed together stay
        // apart.
        let content = content + self.content_shift;

        let (kind, lpn, content) = match (verb, cut.whole) {
            (RequestKind::Read, _) => (PageKind::Read, self.folder.fold(target), 0),
            (RequestKind::Write, true) => (PageKind::Write, self.folder.fold(target), content),
            (RequestKind::Write, false) => {
                (PageKind::ReadModifyWrite, self.folder.fold(target), content)
            }
            // A page never written cannot be deallocated.
            (RequestKind::Trim, true) => (PageKind::Trim, self.folder.folded(target)?, 0),
            // A part of a page is not deallocated: the rest of it is still in use.
            (RequestKind::Trim, false) => return None,
        };

        Some(HostPage {
            at_ns: 0,
            content,
            lpn,
            kind,
            last: false,
        })
    }

    /// Appends a remap: as one command, or as several if folding separates its pages. `false` if
    /// folding leaves no page.
    fn remaps(&mut self, at_ns: u64, moved: &Moved, out: &mut Vec<HostPage>) -> bool {
        let Moved {
            relocate, atomic, ..
        } = *moved;
        let start = out.len();

        // The run so far: target, source and length; ends where either range is not consecutive.
        let mut run: Option<(HostLpn, HostLpn, u16)> = None;
        let put = |(lpn, source, len): (HostLpn, HostLpn, u16), out: &mut Vec<HostPage>| {
            let kind = PageKind::Remap {
                source,
                len,
                relocate,
                atomic,
            };
            out.push(HostPage {
                at_ns,
                content: 0,
                lpn,
                kind,
                last: false,
            });
        };

        // A range longer than the device names each page once.
        for index in 0..moved.count.min(self.addressable) {
            let mut fold = |first: u64| {
                self.folder.fold(DevicePage {
                    device: 0,
                    page: first + index,
                })
            };

            // Both pages, in this order: pages are numbered by their first touch.
            let (source, target) = (fold(moved.source), fold(moved.target));
            run = match run {
                Some((to, from, len))
                    if len < u16::MAX
                        && to.offset(len.into()) == target
                        && from.offset(len.into()) == source =>
                {
                    Some((to, from, len + 1))
                }
                before => {
                    before.into_iter().for_each(|run| put(run, out));
                    // A page remapped to itself is no remap.
                    (source != target).then_some((target, source, 1))
                }
            };
        }
        run.into_iter().for_each(|run| put(run, out));
        let last = out[start..].last_mut();
        last.map(|page| page.last = true).is_some()
    }
}
