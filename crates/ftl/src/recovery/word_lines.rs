//! Word lines that a power cut left incomplete, where a torn program may damage pages that share its word line.
//!
//! No page of such a word line was acknowledged, and nothing durable names one, since all of this waits for the
//! whole word line. Its pages do not count. They must not count later either, when the word line has been filled
//! up: so it is filled with pads that say so, before the host sees anything.
//!
//! The order is: what recovery reads, the pads of incomplete word lines, the end of recovery. After a cut before
//! the pads, or among them, the word line is incomplete as before, or complete with a torn page, and its
//! other pages count: they were issued before the first cut, and the host has seen nothing since. After the
//! pads they never count.
//!
//! Absent: word lines that are programmed at once, as all in SLC mode are, which a cut leaves whole, torn or absent.

use crate::config::guard::Guard;
use crate::core::Core;
use crate::dies::DieMask;
use remap_ssd_media::{After, Oob, Purpose, SbId, StoredPage};

/// The number of a pad that says that the other pages of its word line do not count.
const VOID: u64 = 1;

/// Returns true if pages in turn share word lines that a cut may tear.
fn is_at_risk(core: &Core) -> bool {
    let word_line = core.geometry.word_line();
    core.media.is_unprotected()
        && word_line.unit_pages() < word_line.pages()
        && core.config.guards.has(Guard::WholeLines)
}

/// Returns true if the pages of a word line count, by the records of its programmed pages.
pub(super) fn counts(core: &Core, sb: SbId, line: &[Oob]) -> bool {
    let stripe = core.geometry.stripe() as usize;
    if stripe == 1 || core.blocks.is_slc(sb) {
        return true;
    }
    let is_complete = line.len() == stripe || !is_at_risk(core);
    is_complete && !(core.config.guards.has(Guard::WholeLines) && line.iter().any(is_void))
}

/// Returns true for a pad that says that the other pages of its word line do not count.
pub(super) fn is_void(oob: &Oob) -> bool {
    oob.lpn() == Oob::PAD && oob.wsn() == VOID
}

/// Fills up the incomplete word lines of a superblock that is to be filled further.
pub(super) fn give_up_incomplete(core: &mut Core, sb: SbId, skipped: DieMask) {
    if !is_at_risk(core) || core.blocks.is_slc(sb) {
        return;
    }
    let (geometry, stripe) = (core.geometry, core.geometry.stripe());
    let incarnation = core.blocks.get(sb).life.incarnation();
    let mut pads = 0;
    for die in skipped.others(geometry.dies()) {
        let next = core.media.next_row(geometry.block(sb, die));
        for row in next..next.next_multiple_of(stripe) {
            let page = geometry.page(sb, geometry.offset_of(row, die));
            let oob = Oob::new(Oob::PAD, VOID, incarnation);
            let stored = StoredPage::Meta([].into());
            let programmed = core
                .media
                .program(page, oob, stored, Purpose::Meta, After::NOTHING);
            debug_assert!(programmed.is_ok(), "a word line fails at its first page");
            pads += 1;
        }
    }
    if pads > 0 {
        core.stats.meta_programs += pads;
        core.media.settle_all();
    }
}
