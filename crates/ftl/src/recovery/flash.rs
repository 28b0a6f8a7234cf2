//! Steps 1 and 2 of recovery: lives, heads, tails and OOB areas; and the positions of the streams.
//!
//! Invariant: reads only head pages, tail pages and the OOB areas of superblocks without a complete
//! tail.

use super::{AHEAD, word_lines};
use crate::config::guard::Guard;
use crate::config::layout::LIFE_WORDS;
use crate::core::Core;
use crate::dies::DieMask;
use crate::error::RecoveryError;
use crate::recovery::witnesses::{Witnesses, holds_data};
use crate::superblock::life::{Life, LifeRecord, LoadedLife};
use crate::superblock::{
    OpenSuperblock, Stream, Superblock, SuperblockHead, SuperblockState, Superblocks,
};
use remap_ssd_media::{After, ClearId, Media, Oob, Purpose, SbId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use zerocopy::FromBytes;

/// Distance above all other incarnations at which a superblock with unknown incarnation continues.
const INCARNATIONS_AHEAD: u32 = 128;
const INCARNATION_MAX: u32 = (1 << 21) - 2;

fn is_of_slc(head: &SuperblockHead) -> bool {
    head.stream == Stream::Slc as u8
}

fn is_alive(head: &SuperblockHead, life: Life) -> bool {
    head.magic == SuperblockHead::MAGIC
        && head.wsn > life.dead_before()
        && head.incarnation < 1 << 21
}

/// Searches for a page in the blocks in use, row by row. The first rows nearly always suffice, but
/// a cut may have torn them before the superblock was filled further.
fn find_oob(
    blocks: &Superblocks,
    media: &mut Media,
    sb: SbId,
    is_wanted: impl Fn(&Oob) -> bool,
) -> Option<Oob> {
    let geometry = media.geometry();
    let mut passed = blocks.get(sb).bad;
    for offset in 0..geometry.pages_per_superblock() {
        let die = geometry.die_of_offset(offset);
        if passed.has(die) {
            continue;
        }
        match media.read_oob(geometry.page(sb, offset), Purpose::Meta) {
            Ok(Some(oob)) if is_wanted(&oob) => return Some(oob),
            Ok(None) => passed |= DieMask::of(die), // Erased: so is the rest of the block.
            Ok(Some(_)) | Err(_) => {}
        }
    }

    None
}

/// Returns true if an erase has already emptied blocks of a superblock that had a tail. The tail is in the last row, so every good
/// block had a first page. Later ones may be missing: hybrid mapping closes a superblock early if a block fails.
fn is_half_erased(
    blocks: &Superblocks,
    media: &mut Media,
    sb: SbId,
    skipped: DieMask,
    incarnation: u32,
) -> bool {
    let geometry = media.geometry();
    let is_tail = |oob: Oob| oob.lpn() == Oob::TAIL && oob.incarnation() == incarnation & 63;
    let first_of = |die: u32| geometry.page(sb, die * geometry.stripe());
    skipped
        .others(geometry.dies())
        .any(|die| !media.is_programmed(first_of(die)))
        && blocks.tail_offsets(sb, skipped).into_iter().any(|offset| {
            let found = media.read_oob(geometry.page(sb, offset), Purpose::Meta);
            found.ok().flatten().is_some_and(is_tail)
        })
}

/// Returns true if the tail of a superblock lists pages of a block none of which can be read. Where an erase was torn before the superblock was
/// filled, the tail lists none, or is what another erase has left of the former incarnation.
fn has_lost_a_block(
    blocks: &Superblocks,
    media: &mut Media,
    sb: SbId,
    skipped: DieMask,
    incarnation: u32,
) -> bool {
    let (geometry, records) = (media.geometry(), blocks.tail_records());
    let spoiled: DieMask = skipped
        .others(geometry.dies())
        .filter(|die| media.is_spoiled(sb, *die))
        .collect();
    if spoiled.is_empty() {
        return false;
    }
    (0..)
        .zip(blocks.tail_offsets(sb, skipped))
        .any(|(index, offset)| {
            let (page, first) = (geometry.page(sb, offset), index * records);
            let len = records.min(geometry.pages_per_superblock() - first);
            let listed = media.read_tail(page, geometry.page(sb, first), len);
            if media.oob(page).incarnation() != incarnation & 63 {
                return false;
            }
            let is_lost = |(offset, oob): (u32, Oob)| {
                spoiled.has(geometry.die_of_offset(offset)) && oob.wsn() != 0
            };
            (first..).zip(listed.unwrap_or_default()).any(is_lost)
        })
}

/// Step 1a: reads the life records of all superblocks from NVRAM.
pub(super) fn read_lives(core: &mut Core, witnesses: &mut Witnesses) -> Result<(), RecoveryError> {
    witnesses.charge_scan(&mut core.media, core.layout.atomic);
    let mut blank = true;
    for index in 0..core.geometry.superblocks() {
        let sb = SbId(index);
        // Without the first word the head, if there is one, is the only evidence.
        let loaded = LifeRecord::load(&mut core.media, sb);
        if !loaded.is_whole() {
            witnesses.damaged_lives.insert(sb, loaded);
        }

        let record = LifeRecord {
            life: loaded.life.unwrap_or_default(),
            bad: loaded.bad.unwrap_or_default(),
            failing: loaded.failing.unwrap_or_default(),
        };

        // Formatting sets `clean` in every life. If all are blank, the device has not been
        // formatted, or the image belongs to another one.
        blank &= loaded.life == Ok(Life::new());
        witnesses.saw(record.life.dead_before());

        // Failing blocks are not used either, neither before the next erase nor after it.
        let capacity = core.blocks.capacity(sb, record.bad | record.failing);
        let found = Superblock {
            state: if capacity == 0 {
                SuperblockState::Retired
            } else {
                SuperblockState::Free
            },
            stream: Stream::Host,
            capacity,
            opened: 0,
            life: record.life,
            bad: record.bad,
            failing: record.failing,
            head: 0,
            erased: ClearId::default(),
        };

        core.blocks.set(sb, found);
    }

    if blank {
        return Err(RecoveryError::Foreign(
            "the media has never been formatted".into(),
        ));
    }

    Ok(())
}

/// Step 1b: finds the heads that count.
pub(super) fn read_heads(core: &mut Core, witnesses: &mut Witnesses) -> Result<(), RecoveryError> {
    for index in 0..core.geometry.superblocks() {
        let sb = SbId(index);
        let mut found = *core.blocks.get(sb);
        let (mut head, unreadable) = find_head(core, witnesses, sb, &mut found);
        let damaged = witnesses.damaged_lives.get(&sb).copied();
        let is_known = damaged.is_none_or(|damaged| damaged.life.is_ok());
        if head.is_none() {
            let Some(offset) = unreadable else { continue };
            found.head = offset;
            // Only the life record tells the current incarnation.
            head = if is_known {
                head_from_pages(core, witnesses, sb)
            } else {
                None
            };
        }

        // The head is the first page of its block in both modes. What is read from now on is read in the mode that it tells.
        let is_slc = head.is_some_and(|head| is_of_slc(&head) && is_alive(&head, found.life));
        core.set_slc(sb, is_slc);

        // No valid head: torn, or of a superblock whose erase was interrupted. The superblock
        // is erased before it is used.
        found.life.set_clean(false);
        if !is_known && damaged.as_ref().is_some_and(LoadedLife::masks_are_whole) {
            // The head cannot show that the superblock was dead; missing pages can.
            let skipped = found.bad | found.failing;
            head = head.filter(|head| {
                !is_half_erased(&core.blocks, &mut core.media, sb, skipped, head.incarnation)
            });
            if head.is_none() {
                core.set_slc(sb, false);
            } else if head.is_some_and(|head| {
                has_lost_a_block(&core.blocks, &mut core.media, sb, skipped, head.incarnation)
            }) {
                // The erase of a dead superblock was interrupted, or one with data has lost a block.
                let word = index as usize * LIFE_WORDS;
                return Err(RecoveryError::NvramDamaged { word });
            }
        }

        if let Some(head) = head.filter(|head| is_alive(head, found.life)) {
            if head.superblock != index {
                return Err(RecoveryError::Foreign(format!(
                    "superblock {index} has the head of {}",
                    head.superblock
                )));
            }

            witnesses.saw(head.wsn);
            witnesses.set_live(sb);
            witnesses.report.superblocks += 1;
            found.opened = head.wsn;
            found.stream = Stream::from_u8(head.stream).unwrap_or(Stream::Host);
            if (found.stream == Stream::Slc) != core.blocks.is_slc(sb) {
                return Err(RecoveryError::Foreign(format!(
                    "superblock {index} was filled with another slc_share, or is in SLC mode without slc_dynamic"
                )));
            }
            found.life.set_incarnation(head.incarnation);
            if !is_known {
                // The largest value that keeps this head alive: older heads stay dead when the
                // word is stored again.
                found.life.set_dead_before(head.wsn - 1);
            }

            found.state = SuperblockState::Closed;
            found.capacity = core.blocks.capacity(sb, found.bad | found.failing);
        }

        core.blocks.set(sb, found);
    }
    Ok(())
}

/// Step 1c: notes the aborted numbers in dead superblocks that are not erased. Their pages are no witnesses, but would be again if the
/// word that says so became unreadable; so the numbers stay in the list.
pub(super) fn note_dead_pages(core: &mut Core, witnesses: &mut Witnesses) {
    if !witnesses.has_aborted() {
        return;
    }
    let is_left = |sb: &Superblock| !holds_data(sb.state) && !sb.life.clean();
    let left = core.blocks.iter().filter(|(_, sb)| is_left(sb));
    let left: Vec<SbId> = left.map(|(id, _)| id).collect();

    let geometry = core.geometry;
    let mut logs = BTreeSet::new();
    for sb in left {
        for die in core.blocks.get(sb).bad.others(geometry.dies()) {
            let offsets = (0..geometry.pages_per_block()).map(|row| geometry.offset_of(row, die));
            for offset in offsets {
                witnesses.report.oob_pages += 1;
                let page = geometry.page(sb, offset);
                let found = core.media.read_oob(page, Purpose::Meta);
                if found == Ok(None) {
                    // The rest of the block is erased too.
                    break;
                }
                // A page that is torn now stays so.
                let Ok(Some(oob)) = found else { continue };
                match oob.lpn() {
                    // The entries in it have numbers of their own.
                    Oob::LOG | Oob::PARITY => {
                        logs.insert(sb);
                    }
                    _ => witnesses.dead(sb, oob.wsn()),
                }
            }
        }
    }
    witnesses.keep_aborted(logs);
}

/// Searches for a superblock's head. Also returns the offset of the first page that may be it but
/// cannot be read.
fn find_head(
    core: &mut Core,
    witnesses: &mut Witnesses,
    sb: SbId,
    found: &mut Superblock,
) -> (Option<SuperblockHead>, Option<u32>) {
    let (media, geometry, bad) = (&mut core.media, core.geometry, found.bad);
    let dies = geometry.dies();
    let order = (0..dies)
        .map(|step| (sb.0 + step) % dies)
        .filter(|die| !bad.has(*die));
    // The good blocks are not known: the head that counts may come after a stale one in a bad
    // block.
    let is_anywhere = witnesses
        .damaged_lives
        .get(&sb)
        .is_some_and(|life| !life.masks_are_whole());

    // The first good block has the head; blocks whose head program failed have a torn page
    // there.
    let (mut unreadable, mut passed) = (None, DieMask::NONE);
    for die in order {
        witnesses.report.head_pages += 1;
        let offset = geometry.offset_of(0, die);
        match media.read_meta(geometry.page(sb, offset), Purpose::Meta) {
            Ok(None) if found.failing.has(die) || is_anywhere => {}
            Ok(None) => break,
            Ok(Some((oob, bytes))) => {
                // Only a page whose OOB has the LPN of a head is one.
                let head = SuperblockHead::read_from_bytes(&bytes[..])
                    .ok()
                    .filter(|_| oob.lpn() == Oob::HEAD);
                if !is_anywhere {
                    found.head = offset;
                    return (head, unreadable);
                }
                if head.is_some_and(|head| is_alive(&head, found.life)) {
                    // Blocks passed over are excluded from now on, so that the next power-on
                    // finds the head.
                    found.bad |= passed;
                    found.head = offset;
                    return (head, unreadable);
                }
            }
            Err(_) => unreadable = unreadable.or(Some(offset)),
        }
        passed |= DieMask::of(die);
    }
    (None, unreadable)
}

/// Replaces a head that cannot be read: pages of the same incarnation prove that it existed.
/// Its number is then the lowest possible, which matters only among identical copies.
fn head_from_pages(core: &mut Core, witnesses: &mut Witnesses, sb: SbId) -> Option<SuperblockHead> {
    let life = core.blocks.get(sb).life;
    let is_present = |oob: &Oob| oob.incarnation() == life.incarnation() & 63 && oob.wsn() != 0;
    let proof = find_oob(&core.blocks, &mut core.media, sb, is_present)?;
    let stream = match proof.lpn() {
        Oob::LOG | Oob::PARITY => Stream::Log,
        _ if core.blocks.is_slc(sb) => Stream::Slc,
        _ if core.blocks.is_slc_dynamic() && !has_all_bits(core, sb) => {
            witnesses.guessed.insert(sb);
            Stream::Slc
        }
        _ => Stream::Host,
    };

    // The stream only determines whether filling continues and whether there is a tail: a log's
    // pages must not be read as data.
    Some(SuperblockHead {
        magic: SuperblockHead::MAGIC,
        superblock: sb.0,
        wsn: life.dead_before() + 1,
        incarnation: life.incarnation(),
        erase_count: life.incarnation(),
        stream: stream as u8,
        padding: [0; 7],
    })
}

/// Returns true if the pages of a superblock whose head cannot be read show that its cells store all bits: there are more of
/// them than in SLC mode, or one that only such word lines have.
fn has_all_bits(core: &mut Core, sb: SbId) -> bool {
    let (geometry, rows) = (core.geometry, core.blocks.slc.area.rows());
    let entry = *core.blocks.get(sb);
    let has_more = |die| core.media.next_row(geometry.block(sb, die)) > rows;
    if entry.bad.others(geometry.dies()).any(has_more) {
        return true;
    }
    let incarnation = entry.life.incarnation() & 63;
    let is_void = |oob: &Oob| oob.incarnation() == incarnation && word_lines::is_void(oob);
    find_oob(&core.blocks, &mut core.media, sb, is_void).is_some()
}

/// Step 2: reads mappings made by writes. Returns the superblocks without a complete tail,
/// oldest first.
pub(super) fn read_pages(core: &mut Core, witnesses: &mut Witnesses) -> Vec<SbId> {
    let live = core.blocks.iter().filter(|(_, sb)| holds_data(sb.state));
    let mut order: Vec<(u64, SbId)> = live.map(|(id, sb)| (sb.opened, id)).collect();
    order.sort_unstable();

    // Oldest first: of two superblocks of one stream without a tail, filling continues in the
    // younger one (`resume_streams` takes them from the end).
    let mut open = Vec::new();
    for (_, sb) in order {
        if core.blocks.get(sb).stream == Stream::Log {
            open.push(sb);
        } else if !read_tails(core, witnesses, sb) {
            read_oobs(core, witnesses, sb);
            // Its pages count in either mode, but one that may have the other is filled no further.
            if !witnesses.guessed.contains(&sb) {
                open.push(sb);
            }
        }
    }

    open
}

fn read_tails(core: &mut Core, witnesses: &mut Witnesses, sb: SbId) -> bool {
    if witnesses
        .damaged_lives
        .get(&sb)
        .is_some_and(|life| !life.masks_are_whole())
    {
        find_left_out(core, sb);
    }
    let pages = core.geometry.pages_per_superblock();

    let offsets = core.blocks.tail_offsets(sb, core.blocks.skipped(sb));
    if offsets.len() < core.config.tail_pages(&core.geometry) as usize {
        return false; // Too many of its blocks failed: it was closed without a tail.
    }

    // All tail pages are read before any record is used: if one is missing, the OOB areas
    // provide all records. A superblock must not be read half by one method and half by the
    // other.
    let mut records: Vec<Oob> = Vec::with_capacity(pages as usize);
    for (index, offset) in offsets.iter().enumerate() {
        let page = core.geometry.page(sb, *offset);
        let first = index as u32 * core.config.tail_records();
        let len = core.config.tail_records().min(pages - first);
        witnesses.report.tail_pages += 1;
        let Ok(found) = core
            .media
            .read_tail(page, core.geometry.page(sb, first), len)
        else {
            return false;
        };
        records.extend(found);
        let (tail, incarnation) = (
            core.media.oob(page),
            core.blocks.get(sb).life.incarnation() & 63,
        );
        // A block whose erase is not durable yet may still hold the tail of the previous
        // incarnation.
        let is_present =
            tail.incarnation() == incarnation || !core.config.guards.has(Guard::Incarnations);
        if tail.wsn() != index as u64 + 1 || !is_present {
            return false;
        }
    }

    let stripe = core.blocks.line_pages(sb) as usize;
    let mut line_counts = true;
    for (offset, oob) in records.iter().enumerate() {
        if stripe > 1 && offset % stripe == 0 {
            let line = &records[offset..records.len().min(offset + stripe)];
            line_counts = word_lines::counts(core, sb, line);
        }
        if !line_counts {
            continue;
        }
        // LPNs come in any order: without the prefetch each access waits for memory.
        if let Some(ahead) = records.get(offset + AHEAD) {
            witnesses.prefetch(&core.tables.map, ahead.lpn());
        }
        add_written_page(core, witnesses, sb, offset as u32, *oob);
    }
    true
}

/// Finds the blocks that were excluded: those without a tail page after the tail's first page,
/// and those with a page before it that was never programmed. A later recovery must not mistake
/// these for blocks that an erase has emptied.
fn find_left_out(core: &mut Core, sb: SbId) {
    let (geometry, incarnation) = (core.geometry, core.blocks.get(sb).life.incarnation() & 63);
    let wanted = core.config.tail_pages(&geometry);
    let (mut left_out, mut found) = (DieMask::NONE, 0);

    // From the end, as the tail was placed.
    for place in (0..core.blocks.places(sb)).rev() {
        let offset = core.blocks.offset_at(sb, place);
        let oob = core
            .media
            .read_oob(geometry.page(sb, offset), Purpose::Meta)
            .ok()
            .flatten();
        if oob.is_some_and(|oob| oob.lpn() == Oob::TAIL && oob.incarnation() == incarnation) {
            found += 1
        } else {
            left_out |= DieMask::of(geometry.die_of_offset(offset));
        }

        // In front of the tail every page of a good block is programmed.
        if found == wanted {
            let before = (0..place).map(|place| core.blocks.offset_at(sb, place));
            let erased =
                before.filter(|before| !core.media.is_programmed(geometry.page(sb, *before)));
            left_out |= erased
                .map(|before| geometry.die_of_offset(before))
                .collect::<DieMask>();
            core.blocks.get_mut(sb).failing |= left_out;
            return;
        }
    }
}

/// Rewrites life records that could not be read, as far as their content is known again.
pub(super) fn heal_lives(core: &mut Core, damaged: &BTreeMap<SbId, LoadedLife>) {
    let most = core
        .blocks
        .iter()
        .map(|(_, sb)| sb.life.incarnation())
        .max()
        .unwrap_or(0);
    for (&sb, loaded) in damaged {
        let mut found = *core.blocks.get(sb);
        if loaded.life.is_err() && !holds_data(found.state) {
            // The superblock holds no valid data. Its next incarnation must differ from
            // remnants of an interrupted erase in it, and from incarnations that logs may still
            // name.
            let left = find_oob(&core.blocks, &mut core.media, sb, |_| true)
                .map_or(0, |oob| oob.incarnation());
            let next = ((most + INCARNATIONS_AHEAD) & !63 | left) + 1;
            let limit = core
                .config
                .pe_limit
                .checked_sub(2)
                .unwrap_or(u32::MAX)
                .min(INCARNATION_MAX);
            found.life = Life::new()
                .with_dead_before(core.clock.now())
                .with_incarnation(next.min(limit));
        }

        // In any order: until all three have landed, the record is damaged as before, or has
        // the same content.
        LifeRecord::store_life(&mut core.media, sb, found.life, After::NOTHING);
        LifeRecord::store_bad(&mut core.media, sb, found.bad);
        LifeRecord::store_failing(&mut core.media, sb, found.failing);
        core.blocks.set(sb, found);
    }

    // The head of the next superblock to be opened must not be durable before its life.
    if !damaged.is_empty() {
        core.media.fence();
    }
}

fn read_oobs(core: &mut Core, witnesses: &mut Witnesses, sb: SbId) {
    let geometry = core.geometry;
    let bad = core.blocks.get(sb).bad;
    let stripe = core.blocks.line_pages(sb);
    let mut line = Vec::with_capacity(stripe as usize);

    // Failing blocks are read too: pages programmed before the failure are valid data. Only bad
    // blocks hold nothing.
    for die in bad.others(geometry.dies()) {
        for start in (0..geometry.pages_per_block()).step_by(stripe as usize) {
            line.clear();
            for row in start..start + stripe {
                let page = geometry.page(sb, geometry.offset_of(row, die));
                witnesses.report.oob_pages += 1;
                match core.media.read_oob(page, Purpose::Meta) {
                    Ok(None) => break, // Erased: so is the rest of the block.
                    Ok(Some(oob)) => line.push(oob),
                    // Torn, or a program that failed: no witness.
                    Err(_) => line.push(Oob::default()),
                }
            }

            let first = geometry.offset_of(start, die);
            if word_lines::counts(core, sb, &line) {
                for (offset, oob) in (first..).zip(&line) {
                    add_written_page(core, witnesses, sb, offset, *oob);
                }
            }
            if line.len() < stripe as usize {
                break;
            }
        }
    }
}

#[inline]
fn add_written_page(core: &mut Core, witnesses: &mut Witnesses, sb: SbId, offset: u32, oob: Oob) {
    let incarnation = core.blocks.get(sb).life.incarnation() & 63;
    // A page of the previous incarnation is in a block whose erase was interrupted, under a
    // newer head.
    let is_present =
        oob.incarnation() == incarnation || !core.config.guards.has(Guard::Incarnations);
    if oob.wsn() == 0 || !oob.lpn().is_below(core.tables.map.len()) || !is_present {
        return;
    }

    let ppn = core.geometry.page(sb, offset);
    witnesses.write(
        &core.blocks,
        &mut core.tables.map,
        oob.lpn(),
        ppn,
        oob.wsn(),
    );
    witnesses.second(core, ppn, oob);
}

/// Filling continues in the youngest superblock of each stream that has room, holes first. One
/// of a stream that the device no longer has (another policy of collection, no mapping cache) counts as closed.
pub(super) fn resume_streams(core: &mut Core, open: &[SbId]) {
    let used: Vec<Stream> = core.config.gc_streams();
    let mut unused: Vec<Stream> = Stream::ZONES
        .into_iter()
        .filter(|stream| !used.contains(stream))
        .collect();
    if !core.config.caches_mapping() {
        unused.push(Stream::Table);
    }
    for &sb in open.iter().rev() {
        let entry = *core.blocks.get(sb);
        if core.blocks.is_open_beside(entry.stream, sb) || unused.contains(&entry.stream) {
            continue;
        }

        let skipped = entry.bad | entry.failing;
        let head = entry.head;
        let Some(end) = core.blocks.data_end(sb, skipped) else {
            continue;
        };
        word_lines::give_up_incomplete(core, sb, skipped);
        let good =
            |offset: &u32| *offset != head && !skipped.has(core.geometry.die_of_offset(*offset));

        let is_programmed =
            |offset: &u32| core.media.is_programmed(core.geometry.page(sb, *offset));
        let offset_at = |place: u32| core.blocks.offset_at(sb, place);
        // Continues after the last programmed page of any block. Erased pages before it are
        // holes, whose programs the cut undid.
        let mut next = (0..core.blocks.places(sb))
            .rev()
            .find(|place| is_programmed(&offset_at(*place)))
            .map_or(0, |last| last + 1);
        // Where the pads of the head's word line are missing, its pages take data.
        let last_of_head = core.blocks.line_start_of(sb, head) + core.blocks.line_pages(sb) - 1;
        if !is_programmed(&last_of_head) {
            next = next.max(core.blocks.place_of(sb, last_of_head) + 1);
        }
        let holes: VecDeque<u32> = (0..next.min(end))
            .map(offset_at)
            .filter(|offset| good(offset) && !is_programmed(offset))
            .collect();
        if holes.is_empty() && next >= end {
            continue;
        }

        let next = next.min(end);
        let (row, die) = (
            core.geometry.row_of_offset(next),
            core.geometry.die_of_offset(next),
        );
        let incarnation = entry.life.incarnation();
        core.blocks.resume(
            entry.stream,
            OpenSuperblock {
                sb,
                incarnation,
                next,
                row,
                die,
                last_end: 0,
                end,
                head,
                skipped,
                holes,
            },
        );
    }
}
