//! The cost of Remap-SSD's owner lookups and of its garbage collection of NVRAM, to the byte.

use crate::kit::{Random, device, put, small_config, small_geometry};
use remap_ssd_ftl::{Config, EntrySize, Ftl, Lpn, Remap, SchemeKind};
use remap_ssd_media::{Op, OpKind, Ppn, Purpose, SbId};

/// State of a superblock's group.
#[derive(Clone, Debug, PartialEq)]
struct Group {
    segments: Vec<u32>,
    entries: u32,
    /// Number of entries in force.
    valid: u32,
}

fn groups(ftl: &Ftl) -> Vec<Group> {
    let group = |sb: SbId| {
        let group = ftl.group(sb).expect("Remap-SSD has groups");
        Group {
            segments: group.segments,
            entries: group.entries,
            valid: ftl.owners(sb).remapped,
        }
    };
    ftl.superblocks().map(|(sb, _)| group(sb)).collect()
}

fn free_segments(ftl: &Ftl, segment_bytes: u64) -> usize {
    let usage = ftl.usage();
    ((usage.capacity_bytes - usage.used_bytes) / segment_bytes) as usize
}

fn sum(ops: &[Op], kind: OpKind, purpose: Purpose) -> u32 {
    ops.iter()
        .filter(|op| op.kind == kind && op.purpose == purpose)
        .map(|op| op.amount)
        .sum()
}

struct Costs {
    /// Size of an entry, and slots per segment.
    entry_bytes: u32,
    slots: u32,
    segment_bytes: u32,
}

/// Executes one command; returns its operations, and the groups before it.
fn step(ftl: &mut Ftl, random: &mut Random, number: u64) -> (Vec<Op>, Vec<Group>) {
    let before = groups(ftl);
    ftl.media_mut().ops.clear();
    let lpn = random.below(600) as u32;
    if random.below(3) == 0 {
        put(ftl, lpn, 10_000 + number);
    } else {
        let source = random.below(600) as u32;
        ftl.remap(&Remap {
            target: Lpn(lpn),
            source: Lpn(source),
            len: 1,
            relocate: false,
            atomic: false,
        })
        .unwrap();
    }
    (std::mem::take(&mut ftl.media_mut().ops), before)
}

/// Bytes read by a lookup in this command.
fn lookup(ops: &[Op]) -> Option<u32> {
    let begin = ops.iter().position(|op| op.kind == OpKind::LookupBegin)?;
    let end = ops
        .iter()
        .position(|op| op.kind == OpKind::LookupEnd)
        .expect("it ends");
    let reads = ops[begin..end]
        .iter()
        .filter(|op| op.kind == OpKind::NvRead)
        .count();
    assert!(reads <= 1, "a group is read at once");
    Some(sum(&ops[begin..end], OpKind::NvRead, Purpose::Gc))
}

/// The superblock whose pages collection reads, after the lookup if there is one.
fn victim(ops: &[Op], ftl: &Ftl) -> Option<usize> {
    let begin = ops
        .iter()
        .position(|op| op.kind == OpKind::LookupEnd)
        .map_or(0, |end| end + 1);
    let first = ops[begin..]
        .iter()
        .filter(|op| op.purpose == Purpose::Gc)
        .find_map(|op| match op.kind {
            OpKind::Read => Some(op.page),
            OpKind::CopyRow => Some(Ppn(op.amount)),
            _ => None,
        });
    first.map(|page| ftl.media().geometry().superblock(page).0 as usize)
}

/// Collecting a group reads its entries, writes those in force to new segments with their heads and
/// links, and zeroes the old segments. It must be the group with the most invalid entries among
/// those that free a segment.
fn check_collection(ops: &[Op], before: &[Group], after: &[Group], free: usize, costs: &Costs) {
    let is_rewritten = |at: &usize| {
        !before[*at].segments.is_empty() && !after[*at].segments.contains(&before[*at].segments[0])
    };
    let rewritten: Vec<usize> = (0..before.len()).filter(is_rewritten).collect();
    let [at] = rewritten[..] else {
        panic!("one group is rewritten: {rewritten:?}")
    };
    let old = &before[at];
    let needed = old.valid.div_ceil(costs.slots);

    assert_eq!(
        sum(ops, OpKind::NvRead, Purpose::Gc),
        old.entries * costs.entry_bytes,
        "{old:?}"
    );

    let structure = needed * 16 + needed.saturating_sub(1) * 8;
    assert_eq!(
        sum(ops, OpKind::NvWrite, Purpose::Gc),
        old.valid * costs.entry_bytes + structure,
        "{old:?}"
    );
    assert_eq!(
        sum(ops, OpKind::NvClear, Purpose::Gc),
        old.segments.len() as u32 * costs.segment_bytes
    );

    let gains = |group: &&Group| {
        let needed = group.valid.div_ceil(costs.slots) as usize;
        needed < group.segments.len() && needed <= free
    };
    let most = before
        .iter()
        .filter(gains)
        .map(|group| group.entries - group.valid)
        .max()
        .expect("one gains");
    assert_eq!(old.entries - old.valid, most, "the most invalid entries");
}

#[test]
fn lookups_and_collections_of_nvram_cost_what_their_entries_take() {
    for entry in [EntrySize::Bytes16, EntrySize::Bytes24] {
        let entry_bytes = entry.words() as u32 * 8;
        let costs = Costs {
            entry_bytes,
            slots: 192 / entry_bytes - 1,
            segment_bytes: 192,
        };
        let config = Config {
            entry,
            dedup: false,
            segment_bytes: 192,
            log_bytes: 192 * 36,
            dealloc_slots: 4096,
            watermark: 1.0,
            wear_gap: 0,
            ..small_config(SchemeKind::RemapSsd)
        };

        let mut ftl = device(small_geometry(), &config);
        let mut random = Random(5);
        (0..600).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));

        let (mut lookups, mut read, mut collections, mut last_remaps) = (0, 0, 0, 0);
        let mut looked_up: Option<(u32, Vec<Group>)> = None;
        for number in 0..9000 {
            let (stats, free) = (ftl.stats(), free_segments(&ftl, 192));
            let (ops, before) = step(&mut ftl, &mut random, number);
            let after = groups(&ftl);
            let done = ftl.stats() - stats;

            // The first page read shows whose owners were looked up. A lookup reads only the
            // entries of that superblock.
            if let Some(bytes) = lookup(&ops) {
                looked_up = Some((bytes, before.clone()));
            }
            if let (Some((bytes, groups)), Some(victim)) = (&looked_up, victim(&ops, &ftl)) {
                lookups += 1;
                read += bytes;
                assert_eq!(
                    *bytes,
                    groups[victim].entries * costs.entry_bytes,
                    "{:?}",
                    groups[victim]
                );
                looked_up = None;
            }

            let has_collected_flash = ops
                .iter()
                .any(|op| op.kind == OpKind::LookupBegin || op.kind == OpKind::Erase)
                || done.gc_programs > 0;
            if done.metadata_gc_runs == 1 && !has_collected_flash {
                collections += 1;
                check_collection(&ops, &before, &after, free, &costs);
            }

            if done.remaps == 1 && !has_collected_flash {
                // Segments for migrating the fullest group, plus four.
                let fullest = after
                    .iter()
                    .map(|group| group.valid)
                    .max()
                    .expect("there are groups");
                let reserve = fullest.div_ceil(costs.slots) as usize + 4;
                last_remaps += 1;
                assert!(
                    free_segments(&ftl, 192) >= reserve,
                    "{} of {reserve} are free",
                    free_segments(&ftl, 192)
                );
            }
        }

        assert!(
            lookups > 30 && read > 0 && collections > 50,
            "{lookups} lookups, {collections} collections"
        );
        assert!(
            last_remaps > 1000 && ftl.stats().demoted_nvram_full > 0,
            "NVRAM has been full"
        );
        ftl.check().unwrap();
    }
}
