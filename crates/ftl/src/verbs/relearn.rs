//! Restoring the fingerprint store after power-on.
//!
//! - Identities: recovery enters all live pages at once. A simulation has its store immediately; no
//!   read is charged, and no time passes.
//! - Real bytes, after a clean shutdown: the caller saves `known_digests` and restores them with
//!   `recall`. Such a digest is trusted only after it has been compared with the page, at its first
//!   hit: a foreign or outdated file costs a read and a program, and never maps a write to other
//!   data.
//! - Real bytes, otherwise: pages are read and hashed in slices (`unknown_pages`, `learn_page`)
//!   while hosts continue. The caller reads them outside the firmware, so that no command waits.
//!
//! Invariants: an unreadable page is not entered; a late digest is entered only if the superblock
//! has not been erased since the page was listed, since the content of a page does not change in
//! between. Absent: files, threads, and when to do it (the device's and the service's).

use crate::dedup::{Fingerprint, PageLookup, UNKNOWN};
use crate::ftl::Ftl;
use remap_ssd_media::{ContentMode, Ppn};

/// Prefetch distances in pages: for a content's line, and for the page that the line nominates.
const LINE_AHEAD: usize = 16;
const PAGE_AHEAD: usize = 8;
/// Maximum number of pages checked in one call: some tens of microseconds.
const LOOKED_AT: u32 = 64 << 10;

/// A data page whose content was unknown to the store when it was listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownPage {
    /// Flash page that holds it.
    pub ppn: Ppn,
    incarnation: u32,
}

impl Ftl {
    /// Enters all live pages of a device with identities. With bit errors it enters none: nothing has read these
    /// pages since power-on, so they may be unreadable.
    pub(crate) fn relearn_identities(&mut self) {
        let core = &self.core;
        let Some(dedup) = self
            .dedup
            .as_mut()
            .filter(|_| core.media.mode() == ContentMode::Identity && !core.media.has_bit_errors())
        else {
            return;
        };
        let pages = PageLookup {
            media: &core.media,
            counts: &core.tables.counts,
        };

        // Two passes per superblock, so that the lines and pages of the next contents are
        // prefetched while one is entered.
        let mut live = Vec::new();
        for (sb, _) in core
            .blocks
            .iter()
            .filter(|(sb, _)| core.blocks.owners(*sb).live > 0)
        {
            live.clear();
            let first = core.geometry.page(sb, 0);
            core.tables.counts.each_owned(
                first,
                core.geometry.pages_per_superblock(),
                |index, _| {
                    let ppn = Ppn(first.0 + index);
                    let is_data = !core.media.is_meta(ppn) && core.media.is_readable(ppn);
                    live.extend(
                        core.media
                            .identity(ppn)
                            .filter(|_| is_data)
                            .map(|identity| (ppn, identity)),
                    );
                },
            );
            for (index, (ppn, identity)) in live.iter().enumerate() {
                if let Some((_, ahead)) = live.get(index + LINE_AHEAD) {
                    dedup.prefetch_line(&Fingerprint::Identity(*ahead));
                }
                if let Some((_, ahead)) = live.get(index + PAGE_AHEAD) {
                    dedup.prefetch_page(&Fingerprint::Identity(*ahead), pages);
                }

                dedup.learn(&Fingerprint::Identity(*identity), *ppn, pages);
            }
        }
    }

    /// At most `max` live data pages from `from` on whose digests are unknown, and where to
    /// continue; `None` at the end, and at once if the store has no digests.
    pub fn unknown_pages(&self, from: Ppn, max: usize) -> (Vec<UnknownPage>, Option<Ppn>) {
        let core = &self.core;
        let Some(dedup) = self
            .dedup
            .as_ref()
            .filter(|dedup| !dedup.digests.is_empty())
        else {
            return (Vec::new(), None);
        };

        // The number of pages checked is bounded as well: most may be known, and the caller holds
        // the device during the call.
        let end = core.geometry.pages().min(from.0.saturating_add(LOOKED_AT));
        let is_unknown = |ppn: &Ppn| {
            !core.tables.counts.is_zero(*ppn)
                && dedup.digests[ppn.0 as usize] == UNKNOWN
                && !core.media.is_meta(*ppn)
        };
        let incarnation = |ppn| {
            core.blocks
                .get(core.geometry.superblock(ppn))
                .life
                .incarnation()
        };

        let listed = (from.0..end).map(Ppn).filter(is_unknown).take(max);
        let listed: Vec<UnknownPage> = listed
            .map(|ppn| UnknownPage {
                ppn,
                incarnation: incarnation(ppn),
            })
            .collect();

        // A full list continues after its last page, another one after the last page checked.
        let next = match listed.last() {
            Some(last) if listed.len() == max => last.ppn.0 + 1,
            _ => end,
        };
        (listed, (next < core.geometry.pages()).then_some(Ppn(next)))
    }

    /// Enters the digest of a listed page. Returns false if the page has been erased since.
    pub fn learn_page(&mut self, page: UnknownPage, digest: [u8; 32]) -> bool {
        let sb = self.core.geometry.superblock(page.ppn);
        self.core.blocks.get(sb).life.incarnation() == page.incarnation
            && self.enter(page.ppn, digest, false)
    }

    /// Reads and enters all live pages of a device with real bytes, at once. No read is charged.
    pub fn relearn_bytes(&mut self) {
        let mut from = Some(Ppn(0));
        while let Some(first) = from {
            let (unknown, next) = self.unknown_pages(first, usize::MAX);
            for page in unknown {
                if let remap_ssd_media::PageView::Bytes(bytes) = self.core.media.view(page.ppn) {
                    let digest = self.core.config.fingerprint.digest(bytes);
                    self.learn_page(page, digest);
                }
            }
            from = next;
        }
    }

    /// The live pages with known digests, in ascending order, to be saved at a shutdown.
    pub fn known_digests(&self) -> impl Iterator<Item = (Ppn, &[u8; 32])> {
        let digests = self.dedup.iter().flat_map(|dedup| &dedup.digests);
        let pages = (0..).map(Ppn).zip(digests);
        pages.filter(|(ppn, digest)| **digest != UNKNOWN && !self.core.tables.counts.is_zero(*ppn))
    }

    /// Restores a saved digest. Returns false if the page holds no data, or its digest is known
    /// already.
    pub fn recall(&mut self, ppn: Ppn, digest: [u8; 32]) -> bool {
        ppn.0 < self.core.geometry.pages() && self.enter(ppn, digest, true)
    }

    fn enter(&mut self, ppn: Ppn, digest: [u8; 32], is_recalled: bool) -> bool {
        let core = &self.core;
        let Some(dedup) = self
            .dedup
            .as_mut()
            .filter(|dedup| !dedup.digests.is_empty())
        else {
            return false;
        };

        // Only live, readable data whose digest is still unknown.
        let is_data = !core.tables.counts.is_zero(ppn)
            && !core.media.is_meta(ppn)
            && core.media.is_readable(ppn);
        if !is_data || dedup.digests[ppn.0 as usize] != UNKNOWN {
            return false;
        }

        let fingerprint = Fingerprint::Digest(digest);
        dedup.learn(
            &fingerprint,
            ppn,
            PageLookup {
                media: &core.media,
                counts: &core.tables.counts,
            },
        );

        // After `learn`, which marks the digest as computed.
        dedup.note_digest(&fingerprint, ppn, is_recalled);
        true
    }
}
