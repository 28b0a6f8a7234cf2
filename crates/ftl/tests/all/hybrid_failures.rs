//! Hybrid mapping when programs fail while blocks are put in order: all data stays readable, and
//! the extension stays within its bound.

use crate::kit::script::{Command, Contents, apply, draw, execute};
use crate::kit::{Random, device, put, read_all, recovered};
use remap_ssd_ftl::{Config, Ftl, Granularity, Lpn, SchemeKind, Stats, Stream, SuperblockState};
use remap_ssd_media::geometry::Shape;
use remap_ssd_media::{BlockId, Geometry, Ppn, SbId};

/// Pages per block of the mapping.
const BLOCK: u32 = 8;

fn geometry() -> Geometry {
    Geometry::new(Shape {
        channels: 2,
        dies: 4,
        superblocks: 40,
        pages_per_block: 16,
    })
    .expect("valid")
}

fn config(scheme: SchemeKind, dedup: bool) -> Config {
    Config {
        lpns: 600,
        scheme,
        log_bytes: 8 << 10,
        segment_bytes: 128,
        dealloc_slots: 16,
        dedup,
        mapping: Granularity::Hybrid,
        block_pages: BLOCK,
        extension: 0.05,
        ..Config::default()
    }
}

/// The superblock of blocks in order that is being filled.
fn ordered(ftl: &Ftl) -> Option<SbId> {
    let is_it = |(_, sb): &(SbId, &remap_ssd_ftl::Superblock)| {
        sb.state == SuperblockState::Open && sb.stream == Stream::Gc
    };
    ftl.superblocks().find(is_it).map(|(id, _)| id)
}

/// Makes the next program in a superblock fail, and all later ones in its block.
fn fail_next(ftl: &mut Ftl, sb: SbId) {
    let blocks = (0..geometry().dies()).map(|die| geometry().block(sb, die));
    let row = |block: &BlockId| ftl.media().next_row(*block);
    let block = blocks.min_by_key(row).expect("a superblock has some");
    let row = row(&block);
    ftl.media_mut().plant(|faults| {
        faults.program.insert(block, row);
    });
}

/// Checks the extension's entries against their maximum after a command.
fn keeps_its_bound(ftl: &Ftl) {
    let most = ftl.config().extension_entries() + BLOCK;
    let entries = ftl.extension_entries();
    assert!(entries <= most, "{entries} entries of {most}");
}

fn run(scheme: SchemeKind, dedup: bool, seed: u64) -> Stats {
    let config = config(scheme, dedup);
    let mut ftl = device(geometry(), &config);
    let mut random = Random(seed);
    let mut contents: Contents = vec![None; config.lpns as usize];
    let (mut done, mut failures) = (Stats::default(), 0);

    for number in 0..1500 {
        if number % 40 == 39
            && let Some(sb) = ordered(&ftl)
        {
            fail_next(&mut ftl, sb);
        }

        // A block in order, or a part of one, and then another command.
        let begin = random.below(75) as u32 * BLOCK;
        for lpn in begin..begin + random.below(9) as u32 {
            let identity = number * 64 + 1_000_000 + u64::from(lpn);
            let command = Command::Write { lpn, identity };
            execute(&mut ftl, command).expect("there is room");
            apply(command, &mut contents);
        }
        let command = draw(&mut random, &ftl, 10_000 + number, 6);
        execute(&mut ftl, command).unwrap_or_else(|why| panic!("{number} {command:?}: {why}"));
        apply(command, &mut contents);
        ftl.media_mut().ops.clear();

        let what = || format!("{scheme} {number} {command:?}");
        keeps_its_bound(&ftl);
        if number % 8 == 0 {
            ftl.check()
                .unwrap_or_else(|why| panic!("{}: {why}", what()));
            assert_eq!(read_all(&mut ftl), contents, "{}", what());
        }
        if number % 100 == 99 {
            done = ftl.stats();
            failures += done.program_failures;
            let faults = ftl.media().faults().clone();
            ftl = recovered(ftl).0;
            ftl.media_mut().plant(|planted| *planted = faults);
            assert_eq!(read_all(&mut ftl), contents, "{} recovered", what());
        }
    }
    assert!(failures > 20, "{scheme}: {failures} programs failed");
    done
}

#[test]
fn what_is_read_is_what_was_written_when_programs_fail() {
    for (scheme, seed) in [
        SchemeKind::None,
        SchemeKind::RemapSsd,
        SchemeKind::NLog,
        SchemeKind::ShadowOob,
    ]
    .into_iter()
    .zip(1..)
    {
        for dedup in [false, true] {
            let done = run(scheme, dedup, seed);
            assert!(done.merges_full > 0, "{scheme}: {done:?}");
        }
    }
}

/// A device with all blocks in order.
fn in_order() -> Ftl {
    let mut ftl = device(geometry(), &config(SchemeKind::ShadowOob, false));
    (0..600).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));
    assert_eq!(ftl.extension_entries(), 0);
    ftl
}

/// The flash pages of a block.
fn places(ftl: &Ftl, block: u32) -> Vec<Ppn> {
    (block * BLOCK..(block + 1) * BLOCK)
        .map(|lpn| ftl.place(Lpn(lpn)).expect("it was written"))
        .collect()
}

/// The pages after one whose program failed are elsewhere, so writing has not put the block in
/// order.
#[test]
fn a_block_of_which_a_program_failed_has_not_come_in_order() {
    for failing in 1..BLOCK {
        let mut ftl = in_order();
        let before = ftl.stats();
        for index in 0..BLOCK {
            if index == failing {
                let sb = ordered(&ftl).expect("a block was begun");
                fail_next(&mut ftl, sb);
            }
            put(&mut ftl, 80 + index, 5000 + u64::from(index));
        }
        ftl.check().expect("consistent");
        assert_eq!((ftl.stats() - before).merges_switch, 0, "page {failing}");
        assert_eq!(ftl.extension_entries(), BLOCK, "page {failing}");
        keeps_its_bound(&ftl);

        // A merge puts it in order in another superblock.
        let failed = ordered(&ftl);
        for block in 0..30 {
            put(&mut ftl, 200 + BLOCK * block + 1, 9000);
            keeps_its_bound(&ftl);
        }
        ftl.check().expect("consistent");
        assert!((ftl.stats() - before).merges_full > 0);
        assert_ne!(ordered(&ftl), failed, "nothing follows what failed");
        let pages = places(&ftl, 10);
        assert!(pages.windows(2).all(|pair| pair[0] < pair[1]), "{pages:?}");
    }
}

/// For each of the block's pages, whether mapped or a pad.
#[test]
fn a_merge_of_which_a_program_failed_is_done_in_another_superblock() {
    for is_unmapped in [false, true] {
        // Unmapped pages at the end of a block get no pads.
        for failing in 0..BLOCK - u32::from(is_unmapped) {
            let mut ftl = in_order();
            (1..BLOCK).for_each(|index| put(&mut ftl, 80 + index, 5000));
            if is_unmapped {
                ftl.deallocate(Lpn(80 + failing), 1).expect("possible");
            }
            let expected = read_all(&mut ftl);

            // Pages in order follow the page programmed last.
            let sb = ordered(&ftl).expect("blocks are in order");
            let is_erased = |offset: &u32| !ftl.media().is_programmed(geometry().page(sb, *offset));
            let next = (0..geometry().pages_per_superblock()).find(is_erased);
            let offset = next.expect("there is room") + failing;
            let block = geometry().block(sb, geometry().die_of_offset(offset));
            ftl.media_mut().plant(|faults| {
                faults
                    .program
                    .insert(block, geometry().row_of_offset(offset));
            });

            // When the extension is full, this block has most of it.
            let (before, mut others) = (ftl.stats(), 0);
            while ftl.stats().merges_full == before.merges_full {
                put(
                    &mut ftl,
                    201 + BLOCK * others,
                    u64::from(202 + BLOCK * others),
                );
                others += 1;
            }
            let what = format!("page {failing}, {is_unmapped}");
            ftl.check().unwrap_or_else(|why| panic!("{what}: {why}"));
            assert_eq!(ftl.stats().program_failures, 1, "{what}");
            assert_eq!(ftl.extension_entries(), others, "{what}");
            assert_eq!(read_all(&mut ftl), expected, "{what}");

            let (mut found, _) = recovered(ftl);
            assert_eq!(read_all(&mut found), expected, "{what}");
            assert_eq!(found.extension_entries(), others, "{what}");
        }
    }
}

/// A page moved by a merge is found by its content at its new place.
#[test]
fn contents_of_a_block_that_was_put_in_order_are_found() {
    let mut ftl = device(geometry(), &config(SchemeKind::RemapSsd, true));
    (0..600).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));
    (1..BLOCK).for_each(|index| put(&mut ftl, 80 + index, u64::from(5000 + index)));
    let mut others = 0;
    while ftl.stats().merges_full == 0 {
        put(&mut ftl, 201 + BLOCK * others, u64::from(9000 + others));
        others += 1;
    }

    let before = ftl.stats();
    for (index, page) in (1..BLOCK).zip(places(&ftl, 10).into_iter().skip(1)) {
        put(&mut ftl, 500 + index, u64::from(5000 + index));
        assert_eq!(ftl.place(Lpn(500 + index)), Some(page));
    }
    assert_eq!((ftl.stats() - before).dedup_hits, u64::from(BLOCK - 1));
}
