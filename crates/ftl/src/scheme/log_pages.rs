//! The pages of a log superblock on flash, and the parity page that can rebuild one of them.
//!
//! In place of a tail, a log superblock has a *parity page*: the XOR of all log pages before it,
//! padded with zeroes. The entries of a log page are recorded nowhere else; the XOR of the parity
//! page and the readable pages rebuilds one unreadable page.
//!
//! Order: 1. the log pages  2. the parity page. Cut before 2: the superblock has no parity, like an
//! open one. Invariant: the parity page records how many pages it covers, so that pages torn by an
//! earlier cut are not expected. Absent: the contents of log pages.

use crate::config::guard::{Guard, Guards};
use crate::core::Core;
use crate::superblock::{Stream, Superblocks};
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_media::{After, Media, Oob, Ppn, Purpose, SbId, StoredPage};
use std::sync::Arc;

/// Unit of log pages, in bytes: an entry or a header. No valid unit is all zeroes.
const UNIT: usize = 16;

pub(super) struct LogPage {
    pub page: Ppn,
    pub bytes: Arc<[u8]>,
}

/// The contents of a log superblock.
#[derive(Default)]
pub(super) struct LogPages {
    /// In ascending order of offsets.
    pub pages: Vec<LogPage>,
    /// An unreadable page that cannot be rebuilt.
    pub lost: Option<Ppn>,
}

/// Closes the full superblock of a log.
pub(super) fn close(core: &mut Core) {
    if let Some(open) = core.blocks.open(Stream::Log) {
        let (sb, end) = (open.sb, open.end);
        program_parity(core, sb, end);
    }
    core.blocks.close_log();
}

fn program_parity(core: &mut Core, sb: SbId, offset: u32) {
    let geometry = core.geometry;
    let die = geometry.die_of_offset(offset);
    if offset == 0 || core.media.next_row(geometry.block(sb, die)) != geometry.row_of_offset(offset)
    {
        return; // A block failed after the place was chosen: no parity page.
    }

    let incarnation = core.blocks.get(sb).life.incarnation();
    let (mut sum, mut count) = (vec![0; PAGE_BYTES], 0);
    for page in (0..geometry.pages_per_superblock()).map(|offset| geometry.page(sb, offset)) {
        let oob = core.media.oob(page);
        let is_of_log = core.media.is_programmed(page)
            && oob.lpn() == Oob::LOG
            && oob.incarnation() == incarnation & 63;
        if let Some(bytes) = core.media.meta_written(page).filter(|_| is_of_log) {
            add(&mut sum, bytes);
            count += 1;
        }
    }

    if count == 0 {
        return;
    }
    core.stats.meta_programs += 1;
    core.stats.log_programs += 1;
    let (page, oob) = (
        geometry.page(sb, offset),
        Oob::new(Oob::PARITY, count, incarnation),
    );
    let (stored, pages) = (
        StoredPage::Meta(sum.into()),
        u16::try_from(geometry.pages_per_superblock()),
    );
    // Waits only for the pages it covers: it may be programmed while other dies are busy with data.
    let after = pages.map_or(After::ALL, |pages| {
        After::pages(geometry.page(sb, 0), pages)
    });
    if core
        .media
        .program(page, oob, stored, Purpose::Meta, after)
        .is_err()
    {
        core.fail_block_of(page);
    }
}

fn add(sum: &mut [u8], bytes: &[u8]) {
    sum.iter_mut()
        .zip(bytes)
        .for_each(|(sum, byte)| *sum ^= byte);
}

/// Reads the pages of a log superblock that belong to its current incarnation.
pub(super) fn read(
    blocks: &Superblocks,
    media: &mut Media,
    guards: Guards,
    sb: SbId,
    log_pages: &mut u64,
) -> LogPages {
    let present = blocks.get(sb).life.incarnation() & 63;
    let head = blocks.get(sb).head;
    let (mut found, mut parity, mut unreadable) = (LogPages::default(), None, None);

    for offset in 0..media.geometry().pages_per_superblock() {
        let page = media.geometry().page(sb, offset);
        if !media.is_programmed(page) {
            continue;
        }

        *log_pages += 1;
        match media.read_meta(page, Purpose::Meta) {
            Ok(Some((oob, bytes))) => {
                // A page of the previous incarnation is in a block whose erase was interrupted.
                let is_present = oob.incarnation() == present || !guards.has(Guard::Incarnations);
                match oob.lpn() {
                    Oob::LOG if is_present => found.pages.push(LogPage { page, bytes }),
                    Oob::PARITY if is_present => parity = Some((oob.wsn(), bytes)),
                    _ => {}
                }
            }
            Ok(None) => {}
            // The head is handled elsewhere; the parity does not cover it.
            Err(_) if offset == head => {}
            Err(_) => unreadable = Some(page),
        }
    }

    // Without parity, an unreadable page is taken for one torn by a cut: it held nothing
    // acknowledged, since its buffer is zeroed after it.
    if let (Some((count, sum)), Some(page)) = (parity, unreadable) {
        match count.saturating_sub(found.pages.len() as u64) {
            0 => {} // The unreadable page's program was interrupted or failed before.
            1 => found.rebuild(page, &sum),
            _ => found.lost = Some(page),
        }
    }
    found
}

impl LogPages {
    /// Rebuilds the missing page: the XOR of the others and the parity, without trailing zeroes.
    fn rebuild(&mut self, page: Ppn, sum: &[u8]) {
        let mut bytes = sum.to_vec();
        self.pages
            .iter()
            .for_each(|other| add(&mut bytes, &other.bytes));
        // The page may have been short. No valid entry is all zeroes, so none is cut off.
        let last = bytes
            .chunks(UNIT)
            .rposition(|unit| unit.iter().any(|byte| *byte != 0));
        bytes.truncate(last.map_or(0, |last| last + 1) * UNIT);
        self.pages.push(LogPage {
            page,
            bytes: bytes.into(),
        });
        self.pages.sort_by_key(|page| page.page);
    }
}
