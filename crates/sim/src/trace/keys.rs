//! The keys of the contents that a request writes.
//!
//! Invariant: a key for each page of a write, none for other requests. Absent: the identity that a
//! key stands for (`identity.rs`).

use super::address::{Cut, PAGE_BYTES, cut};
use super::identity::Key;
use super::record::{Digests, Grain, Request, RequestKind};

/// Keys of the contents that a request writes, before lookup.
#[derive(Debug)]
pub(super) enum Keys {
    /// A number of contents different from all others.
    Fresh(usize),
    One(Key),
    Many(Vec<Key>),
}

impl Keys {
    /// The keys of a request: for each page of a write one, in order.
    #[inline]
    pub(super) fn of(request: &Request, digests: &Digests) -> Self {
        if request.verb != RequestKind::Write {
            return Keys::Fresh(0);
        }

        let mut pages = cut(request.offset, request.len).map(|Cut { page, whole }| {
            let found = whole
                .then(|| digests.of_page(request, page * PAGE_BYTES))
                .flatten();
            found.map_or(Key::Fresh, Key::of)
        });
        match (digests.grain, pages.size_hint()) {
            (Grain::None, _) => Keys::Fresh(pages.count()),
            (_, (_, Some(1))) => pages.next().map_or(Keys::Fresh(0), Keys::One),
            _ => Keys::Many(pages.collect()),
        }
    }

    /// Number of keys held while waiting.
    #[inline]
    pub(super) fn waiting(&self) -> usize {
        match self {
            Keys::Many(keys) => keys.len(),
            Keys::Fresh(_) | Keys::One(_) => 0,
        }
    }
}
