//! Hybrid mapping: how blocks are put in order, and the cost, counted exactly; all data stays
//! readable.

use crate::kit::script::{Command, Contents, apply, draw, execute, nearly_full, with_log};
use crate::kit::{self, Random, device, put, read_all, recovered};
use remap_ssd_ftl::{Config, EntrySize, Ftl, GcPolicy, Granularity, Lpn, Remap, SchemeKind, Stats};
use remap_ssd_media::Geometry;
use remap_ssd_media::geometry::Shape;

/// The schemes that support hybrid mapping.
const SCHEMES: [SchemeKind; 8] = [
    SchemeKind::None,
    SchemeKind::RemapSsd,
    SchemeKind::FLog,
    SchemeKind::NLog,
    SchemeKind::RemapSsdX,
    SchemeKind::LocalFlash,
    SchemeKind::RemapSsdLh,
    SchemeKind::ShadowOob,
];

/// Pages per block of the mapping.
const BLOCK: u32 = 8;

/// Superblocks of 62 data pages: seven blocks and six remaining pages.
fn geometry() -> Geometry {
    Geometry::new(Shape {
        channels: 2,
        dies: 4,
        superblocks: 40,
        pages_per_block: 16,
    })
    .expect("valid")
}

fn config(scheme: SchemeKind) -> Config {
    Config {
        lpns: 600,
        scheme,
        log_bytes: 8 << 10,
        segment_bytes: 128,
        dealloc_slots: 16,
        dedup: false,
        mapping: Granularity::Hybrid,
        block_pages: BLOCK,
        extension: 0.05,
        ..Config::default()
    }
}

fn hybrid(scheme: SchemeKind) -> Ftl {
    device(geometry(), &config(scheme))
}

/// Counters since `before`, on a device with consistent tables.
fn since(ftl: &Ftl, before: Stats) -> Stats {
    ftl.check().expect("consistent");
    ftl.stats() - before
}

fn write_in_order(ftl: &mut Ftl, lpns: std::ops::Range<u32>, identity: u64) {
    for lpn in lpns {
        put(ftl, lpn, identity + u64::from(lpn));
    }
}

// Every block is written from its first page to its last, twice: nothing is copied, and the
// extension stays empty.
#[test]
fn blocks_written_in_order_switch() {
    let mut ftl = hybrid(SchemeKind::ShadowOob);
    write_in_order(&mut ftl, 0..600, 1);
    let before = ftl.stats();
    assert_eq!(
        (
            before.merges_switch,
            before.merges_partial,
            before.merges_full
        ),
        (75, 0, 0)
    );
    assert_eq!(ftl.extension_entries(), 0);

    write_in_order(&mut ftl, 0..80, 10_000);
    let done = since(&ftl, before);
    assert_eq!(
        (done.merges_switch, done.merges_partial, done.merges_full),
        (10, 0, 0)
    );
    assert_eq!(
        (done.host_programs, done.merge_programs - done.merge_pads),
        (80, 0)
    );
    assert_eq!(ftl.extension_entries(), 0);
}

// Six of a block's eight pages are written in order, then another block begins: the other two are
// copied after them.
#[test]
fn a_block_written_in_part_is_completed() {
    let mut ftl = hybrid(SchemeKind::ShadowOob);
    write_in_order(&mut ftl, 0..600, 1);
    let before = ftl.stats();
    write_in_order(&mut ftl, 0..6, 10_000);
    write_in_order(&mut ftl, 16..24, 10_000);
    let done = since(&ftl, before);
    assert_eq!(
        (done.merges_switch, done.merges_partial, done.merges_full),
        (1, 1, 0)
    );
    assert_eq!(
        (done.merge_programs - done.merge_pads, done.merge_unshared),
        (2, 0)
    );
    assert_eq!(ftl.extension_entries(), 0);
}

// One page of a block that is written in order arrives out of order: it stays elsewhere until the
// block ends.
#[test]
fn one_page_out_of_order_ends_up_in_the_partial_merge() {
    let mut ftl = hybrid(SchemeKind::ShadowOob);
    write_in_order(&mut ftl, 0..600, 1);
    let before = ftl.stats();
    write_in_order(&mut ftl, 0..5, 10_000);
    put(&mut ftl, 6, 20_000);
    assert_eq!(ftl.extension_entries(), 6);
    write_in_order(&mut ftl, 8..16, 10_000);
    let done = since(&ftl, before);
    assert_eq!(
        (done.merges_switch, done.merges_partial, done.merges_full),
        (1, 1, 0)
    );
    assert_eq!(done.merge_programs - done.merge_pads, 3);
    assert_eq!(ftl.extension_entries(), 0);
    assert_eq!(read_all(&mut ftl)[5..8], [Some(6), Some(20_000), Some(8)]);
}

// Fewer than half of a block's pages do not justify a merge: they stay in the extension, and
// nothing is copied.
#[test]
fn a_block_that_was_hardly_begun_is_left() {
    let mut ftl = hybrid(SchemeKind::ShadowOob);
    write_in_order(&mut ftl, 0..600, 1);
    let before = ftl.stats();
    write_in_order(&mut ftl, 0..3, 10_000);
    write_in_order(&mut ftl, 16..24, 10_000);
    let done = since(&ftl, before);
    assert_eq!(
        (
            done.merges_switch,
            done.merges_partial,
            done.merge_programs - done.merge_pads
        ),
        (1, 0, 0)
    );
    assert_eq!(ftl.extension_entries(), 3);
}

// The extension has room for 30 entries. The 31st page out of order causes a full merge of the
// block with the most entries.
#[test]
fn pages_out_of_order_fill_the_extension() {
    let mut ftl = hybrid(SchemeKind::ShadowOob);
    write_in_order(&mut ftl, 0..600, 1);
    let before = ftl.stats();
    // Two pages of block 5, and one of each of 28 others.
    put(&mut ftl, 41, 20_000);
    put(&mut ftl, 43, 20_001);
    (10..38).for_each(|block| put(&mut ftl, block * BLOCK + 3, 20_000 + u64::from(block)));
    assert_eq!(ftl.extension_entries(), 30);
    assert_eq!(since(&ftl, before).merge_programs, 0);

    put(&mut ftl, 50 * BLOCK + 7, 30_000);
    let done = since(&ftl, before);
    assert_eq!(
        (done.merges_switch, done.merges_partial, done.merges_full),
        (0, 0, 1)
    );
    assert_eq!(done.merge_programs - done.merge_pads, u64::from(BLOCK));
    assert_eq!(ftl.extension_entries(), 29);
    assert_eq!(
        read_all(&mut ftl)[40..44],
        [Some(41), Some(20_000), Some(43), Some(20_001)]
    );
}

// A copy consists of extension entries; when their block is put in order, it shares no pages any
// more.
#[test]
fn a_copy_is_in_the_extension_until_a_merge_unshares_it() {
    let mut ftl = hybrid(SchemeKind::ShadowOob);
    write_in_order(&mut ftl, 0..600, 1);
    let before = ftl.stats();
    ftl.remap(&Remap {
        target: Lpn(80),
        source: Lpn(163),
        len: 4,
        relocate: false,
        atomic: false,
    })
    .unwrap();
    let done = since(&ftl, before);
    assert_eq!(
        (done.remaps, done.host_programs, done.merge_programs),
        (4, 0, 0)
    );
    assert_eq!(ftl.extension_entries(), 4);

    (0..26).for_each(|block| put(&mut ftl, (30 + block) * BLOCK + 1, 20_000));
    assert_eq!(ftl.extension_entries(), 30);
    put(&mut ftl, 9, 20_000);
    let done = since(&ftl, before);
    assert_eq!((done.merges_full, done.merge_unshared), (1, 4));
    let contents = read_all(&mut ftl);
    assert_eq!(contents[80..84], contents[163..167]);
}

// An unmapped page has a place in its block, too.
#[test]
fn places_of_unmapped_pages_are_padded() {
    let mut ftl = hybrid(SchemeKind::None);
    put(&mut ftl, 3, 1);
    put(&mut ftl, 5, 2);
    (10..38).for_each(|block| put(&mut ftl, block * BLOCK + 3, 1));
    let before = ftl.stats();
    put(&mut ftl, 50 * BLOCK + 7, 30_000);
    let done = since(&ftl, before);
    assert_eq!(
        (done.merges_full, done.merge_programs, done.merge_pads),
        (1, 6, 4)
    );
    let (mut ftl, _) = recovered(ftl);
    assert_eq!(
        read_all(&mut ftl)[..6],
        [None, None, None, Some(1), None, Some(2)]
    );
    assert_eq!(ftl.extension_entries(), 29);
}

#[test]
fn what_does_not_work_with_it_is_refused() {
    let works = config(SchemeKind::ShadowOob);
    assert!(works.check(&geometry()).is_ok());
    let groups = geometry().with_superblock_dies(2).unwrap();
    let on = |geometry: &Geometry, config: Config| config.check(geometry).unwrap_err().0;
    let refused = |config: Config| on(&geometry(), config);

    for scheme in [SchemeKind::Pebble, SchemeKind::WalSsd, SchemeKind::Unsafe] {
        assert!(
            refused(config(scheme)).contains("works with mapping = page only"),
            "{scheme}"
        );
    }

    for gc_policy in [GcPolicy::Coldmap, GcPolicy::Cagc] {
        assert!(
            refused(Config {
                gc_policy,
                ..works.clone()
            })
            .contains("sorts pages into zones"),
            "{gc_policy}"
        );
    }

    assert!(on(&groups, config(SchemeKind::None)).contains("leave superblock_dies out"));
    for block_pages in [0, 1, 32, 5000] {
        assert!(
            refused(Config {
                block_pages,
                ..works.clone()
            })
            .contains("must be 2 to"),
            "{block_pages}"
        );
    }

    for extension in [-0.1, 1.1, f64::NAN] {
        assert!(
            refused(Config {
                extension,
                ..works.clone()
            })
            .contains("must be 0 to 1"),
            "{extension}"
        );
    }
}

// Persisted records name pages, independent of the mapping.
#[test]
fn the_same_medium_opens_with_either_mapping() {
    for scheme in SCHEMES {
        let (geometry, hybrid) = tight(scheme, EntrySize::Bytes24, 1);
        let mut ftl = device(geometry, &hybrid);
        let mut random = Random(5);
        let mut contents: Contents = vec![None; hybrid.lpns as usize];

        for power_on in 0..12 {
            for number in 0..300 {
                let command = draw(&mut random, &ftl, power_on * 1000 + number + 1, 24);
                execute(&mut ftl, command)
                    .unwrap_or_else(|refusal| panic!("{scheme} {command:?}: {refusal}"));
                apply(command, &mut contents);
                ftl.media_mut().ops.clear();
            }
            let mapping = if power_on % 2 == 0 {
                Granularity::Page
            } else {
                Granularity::Hybrid
            };
            ftl = Ftl::recover(
                ftl.into_media(),
                Config {
                    mapping,
                    ..hybrid.clone()
                },
            )
            .expect("recovers")
            .0;
            ftl.check()
                .unwrap_or_else(|what| panic!("{scheme} as {mapping}: {what}"));
            assert_eq!(read_all(&mut ftl), contents, "{scheme} as {mapping}");
        }
    }
}

/// A small device that is nearly full.
fn tight(scheme: SchemeKind, entry: EntrySize, variant: usize) -> (Geometry, Config) {
    let geometry = kit::script::geometry([(2, 30, 8), (1, 44, 12), (3, 24, 6)][variant % 3]);
    let config = Config {
        lpns: 40,
        scheme,
        entry,
        segment_bytes: 96,
        dealloc_slots: [64, 8][variant / 3 % 2],
        count_max: [4, 2, 10][variant % 3],
        dedup: variant.is_multiple_of(2),
        gc_free: 0.0,
        mapping: Granularity::Hybrid,
        block_pages: [4, 3, 2][variant % 3],
        extension: [0.1, 0.0, 0.3][variant / 2 % 3],
        ..Config::default()
    };
    let config = with_log(&geometry, &config, 512);
    (geometry, nearly_full(&geometry, &config, 0))
}

fn run((geometry, config): &(Geometry, Config), seed: u64, commands: u64) -> Stats {
    let mut ftl = device(*geometry, config);
    let mut random = Random(seed);
    let mut contents: Contents = vec![None; config.lpns as usize];

    for number in 0..commands {
        // Sequences of pages in order are rare among random commands.
        if random.below(6) == 0 {
            let (lpn, len) = (
                random.below(config.lpns.into()) as u32 / 4 * 4,
                1 + random.below(12) as u32,
            );
            for lpn in lpn..(lpn + len).min(config.lpns) {
                let command = Command::Write {
                    lpn,
                    identity: number * 64 + 1_000_000 + u64::from(lpn),
                };
                execute(&mut ftl, command).unwrap();
                apply(command, &mut contents);
            }
        }
        let command = draw(&mut random, &ftl, 10_000 + number, 24);
        execute(&mut ftl, command)
            .unwrap_or_else(|refusal| panic!("{number} {command:?}: {refusal}"));
        apply(command, &mut contents);
        ftl.media_mut().ops.clear();
        if number % 16 == 0 {
            ftl.check()
                .unwrap_or_else(|what| panic!("{} {number} {command:?}: {what}", config.scheme));
            assert_eq!(
                read_all(&mut ftl),
                contents,
                "{} {number} {command:?}",
                config.scheme
            );
            let most = config.extension_entries() + config.block_pages;
            assert!(
                ftl.extension_entries() <= most,
                "{} entries of {most}",
                ftl.extension_entries()
            );
        }
        if number % 500 == 499 {
            let entries = ftl.extension_entries();
            ftl = recovered(ftl).0;
            assert_eq!(read_all(&mut ftl), contents);
            let found = ftl.extension_entries();
            assert!(
                found <= entries + config.block_pages,
                "recovery finds the blocks: {entries} entries, then {found}"
            );
        }
    }
    ftl.stats()
}

#[test]
fn what_is_read_is_what_was_written() {
    for scheme in SCHEMES {
        for (variant, entry) in
            (0..6).zip([EntrySize::Bytes16, EntrySize::Bytes24].into_iter().cycle())
        {
            run(&tight(scheme, entry, variant), variant as u64 + 1, 3000);
        }
    }
}

#[test]
fn all_kinds_of_merges_happen() {
    let done = run(&tight(SchemeKind::ShadowOob, EntrySize::Bytes16, 0), 7, 499);
    let kinds = [
        done.merges_switch,
        done.merges_partial,
        done.merges_full,
        done.merge_pads,
        done.merge_unshared,
    ];
    assert!(kinds.into_iter().all(|count| count > 0), "{kinds:?}");
}
