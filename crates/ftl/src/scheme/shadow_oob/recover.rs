//! Recovery of the entries saved by the capacitor: the pages of the newest generation; older ones
//! do not count.
//!
//! Invariant: no entry is taken from a generation that may miss a page; recovery fails if an
//! unreadable page may belong to the newest one. A generation that is over may have lost pages, since its superblocks are
//! erased one after the other, and nothing marks it if the next one has no entries. Absent: saving (`saved`), and the reservation for
//! the next power loss (`arm`).

use super::saved::{SavedPage, is_beside_head};
use super::{EntryTag, SAVED, ShadowOob};
use crate::config::guard::Guard;
use crate::contract::Recover;
use crate::core::Core;
use crate::error::RecoveryError;
use crate::recovery::witnesses::Witnesses;
use crate::scheme::log_entry::{LogEntry, UNNUMBERED};
use crate::superblock::{Superblock, Superblocks};
use remap_ssd_media::{Geometry, Media, Oob, Ppn, Purpose, SbId};
use std::collections::BTreeMap;

/// An unreadable page of the reserved flash, and the generation of the pages around it.
struct UnreadablePage {
    page: u32,
    generation: Option<u64>,
}

/// Superblocks of the log stream found at power-on.
#[derive(Default)]
pub(super) struct LogSuperblocks {
    /// `saved` hold the newest generation, `outdated` nothing that counts.
    pub saved: Vec<SbId>,
    pub outdated: Vec<SbId>,
    /// Erased except for their heads.
    pub empty: Vec<SbId>,
}

impl ShadowOob {
    /// Returns true if a superblock is erased except for the word line of its head. If a pad is missing there, the
    /// capacitor could not program the pages that follow.
    fn is_empty(blocks: &Superblocks, media: &Media, sb: SbId) -> bool {
        let geometry = media.geometry();
        let line_of_head = geometry.line_start(blocks.get(sb).head);
        (0..geometry.pages_per_superblock()).all(|offset| {
            let is_of_head = geometry.line_start(offset) == line_of_head;
            media.is_programmed(geometry.page(sb, offset)) == is_of_head
        })
    }

    /// Reads the pages saved in a superblock, by generation. Returns the newest generation.
    fn read_saved(
        &self,
        blocks: &Superblocks,
        media: &mut Media,
        witnesses: &mut Witnesses,
        sb: SbId,
        pages: &mut BTreeMap<u64, Vec<SavedPage>>,
        unreadable: &mut Vec<UnreadablePage>,
    ) -> Option<u64> {
        let start = unreadable.len();
        let superblock = *blocks.get(sb);
        // A failed block is never erased again, and keeps its torn pages.
        let failed = superblock.bad | superblock.failing;
        let damaged = witnesses.damaged_lives.get(&sb);
        let may_be_dead = damaged.is_some_and(|damaged| damaged.life.is_err());

        let mut newest = None;
        let geometry = media.geometry();
        let newest_head = Self::newest_head(geometry, media, sb, &superblock);
        for offset in 0..geometry.pages_per_superblock() {
            let page = geometry.page(sb, offset);
            // A bad block is never erased again: pages torn there in an earlier life stay, and do
            // not count.
            let is_bad = superblock.bad.has(geometry.die_of_offset(offset));
            // The head is a page of its line. A pad of it may be torn.
            let line = geometry.line_start(offset);
            let is_of_head = line == geometry.line_start(superblock.head)
                || is_beside_head(geometry, media, sb, offset);
            if is_bad || is_of_head || !media.is_programmed(page) {
                continue;
            }

            witnesses.report.log_pages += 1;
            match media.read_meta(page, Purpose::Meta) {
                Ok(Some((oob, bytes))) => {
                    let present = oob.incarnation() == superblock.life.incarnation() & 63;
                    if let Some(saved) =
                        SavedPage::decode(&bytes).filter(|_| oob.lpn() == Oob::LOG && present)
                    {
                        newest = newest.max(Some(saved.of.generation()));
                        pages.entry(saved.of.generation()).or_default().push(saved);
                    }
                }
                Ok(None) => {}
                // A program that failed, or an interrupted erase.
                Err(_) if failed.has(geometry.die_of_offset(offset)) => {}
                // The head waits for its superblock's erases, so an erase was interrupted only if the superblock is dead.
                Err(_) if may_be_dead && media.is_spoiled(sb, geometry.die_of_offset(offset)) => {}
                Err(_) if newest_head.is_some_and(|head| geometry.line_start(head) == line) => {}
                Err(_) => unreadable.push(UnreadablePage {
                    page: page.0,
                    generation: None,
                }),
            }
        }

        // The pages of one superblock have one generation: it is erased before it is reserved
        // again.
        unreadable[start..]
            .iter_mut()
            .for_each(|at| at.generation = newest);
        newest
    }

    /// The place of the head that was programmed last. Each time a block failed in the word line of its head, the next
    /// block got the head, and a cut may have torn that one while the former can be read.
    fn newest_head(
        geometry: Geometry,
        media: &Media,
        sb: SbId,
        superblock: &Superblock,
    ) -> Option<u32> {
        let (line, rows) = (geometry.stripe(), geometry.pages_per_block());
        let has_more = |die| {
            line < rows && media.is_programmed(geometry.page(sb, geometry.offset_of(line, die)))
        };
        let failed_with_head = |die| superblock.failing.has(die) && !has_more(die);
        (0..geometry.dies())
            .map(|step| (sb.0 + step) % geometry.dies())
            .find(|die| !superblock.bad.has(*die) && !failed_with_head(*die))
            .map(|die| geometry.offset_of(0, die))
    }
}

impl Recover for ShadowOob {
    fn power_lost(&mut self, media: &mut Media) -> Result<u64, RecoveryError> {
        self.reserve.save(self.guards, media)
    }

    fn replay(&mut self, core: &mut Core, witnesses: &mut Witnesses) -> Result<(), RecoveryError> {
        let (mut pages, mut filled, mut unreadable) = (BTreeMap::new(), Vec::new(), Vec::new());
        for sb in core.blocks.logs().collect::<Vec<_>>() {
            let newest = self.read_saved(
                &core.blocks,
                &mut core.media,
                witnesses,
                sb,
                &mut pages,
                &mut unreadable,
            );
            match newest {
                Some(generation) => filled.push((generation, sb)),
                None if Self::is_empty(&core.blocks, &core.media, sb) => self.found.empty.push(sb),
                None => self.found.outdated.push(sb),
            }
        }

        // The newest generation is the complete contents of DRAM at that time. Earlier ones have
        // nothing newer.
        let newest = pages.pop_last();
        let last = newest.as_ref().map(|(last, _)| *last);
        // An unreadable page has the generation of the pages around it; without any, it may belong
        // to the last one.
        if let Some(at) = unreadable
            .iter()
            .find(|at| at.generation.is_none() || at.generation == last)
        {
            return Err(RecoveryError::SavedDamaged { page: at.page });
        }

        let Some((last, pages)) = newest else {
            return Ok(());
        };
        witnesses.saw(last);
        for (generation, sb) in filled {
            let list = if generation == last {
                &mut self.found.saved
            } else {
                &mut self.found.outdated
            };
            list.push(sb);
        }

        for words in pages.iter().flat_map(|page| &page.entries) {
            let entry = LogEntry::from_words(*words);
            let intact = entry.is_intact() || !core.config.guards.has(Guard::TornBits);
            if words[0] == UNNUMBERED {
                witnesses.doubt(entry.lpn(), u64::MAX);
            } else if intact && entry.is_current(&core.blocks, core.geometry) {
                let (ppn, lpn, wsn) = (Ppn(entry.ppn()), entry.lpn(), entry.wsn());
                if !witnesses.remap(core, lpn, ppn, wsn, None) {
                    continue; // Not stored again when the device is armed.
                }
                let tag = EntryTag::new(SAVED, lpn, core.geometry.offset(ppn), wsn);
                self.tags[core.geometry.superblock(ppn).0 as usize].push(tag);
            }
        }

        self.tags
            .iter_mut()
            .for_each(|tags| tags.sort_by_key(EntryTag::wsn));
        Ok(())
    }

    fn resume(&mut self, core: &mut Core) -> bool {
        for index in 0..self.tags.len() as u32 {
            self.sweep(&mut core.tables, &mut core.media, SbId(index));
        }
        core.blocks.close_log();
        // Without flash to reserve, the saved entries still count, and remaps are refused until
        // there is some.
        if !core.clock.is_used_up() {
            self.arm(core);
        }
        true
    }
}
