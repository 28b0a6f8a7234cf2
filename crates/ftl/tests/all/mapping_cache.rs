//! The mapping cache: what it reads and programs, that nothing is lost by it, and that every entry which differs
//! from its translation page is written in the end (`Ftl::check` compares them).

use crate::kit::script::{Contents, apply, draw, execute, geometry, with_log};
use crate::kit::{Random, device, durable, put, read_all, recovered};
use remap_ssd_ftl::{Config, Ftl, Granularity, Lpn, Remap, SchemeKind};
use remap_ssd_media::{Geometry, Media, Op, OpKind, Page, Ppn, Purpose};

/// Room for eight entries.
const EIGHT: u64 = 64;
const LPNS: u32 = 3000;

/// Three translation pages, of which the last is not full.
fn shape() -> Geometry {
    geometry((4, 48, 32))
}

fn cached(scheme: SchemeKind, bytes: u64) -> Config {
    let config = Config {
        lpns: LPNS,
        scheme,
        mapping_cache_bytes: bytes,
        dealloc_slots: 16,
        ..Config::default()
    };
    with_log(&shape(), &config, 8 << 10)
}

fn cacheable() -> impl Iterator<Item = SchemeKind> {
    durable().filter(|scheme| *scheme != SchemeKind::Pebble)
}

fn read(ftl: &mut Ftl, lpn: u32) {
    ftl.read(Lpn(lpn)).expect("readable");
}

/// Kinds and purposes of the flash operations of the last command.
fn taken(ftl: &mut Ftl) -> Vec<(OpKind, Purpose)> {
    let is_flash = |op: &&Op| matches!(op.kind, OpKind::Read | OpKind::ReadTable | OpKind::Program);
    let ops = ftl.media().ops.iter().filter(is_flash);
    let ops = ops.map(|op| (op.kind, op.purpose)).collect();
    ftl.media_mut().ops.clear();
    ops
}

/// Each operation, by hand.
#[test]
fn misses_read_a_translation_page_and_evictions_program_one() {
    use OpKind::{Program, Read, ReadTable};
    use Purpose::{Host, Meta};
    let mut ftl = device(shape(), &cached(SchemeKind::None, EIGHT));
    (0..9).for_each(|lpn| put(&mut ftl, lpn, 100));
    let stats = ftl.stats();
    assert_eq!((stats.table_reads, stats.table_programs), (0, 0));
    ftl.media_mut().ops.clear();

    // The ninth entry was one too many. The oldest one leaves, and all nine become clean. The translation pages' superblock has a head.
    put(&mut ftl, 9, 100);
    assert_eq!(
        taken(&mut ftl),
        [(Program, Meta), (Program, Meta), (Program, Host)]
    );
    // Clean entries leave without a program. The translation page of the new one is at hand.
    put(&mut ftl, 10, 100);
    assert_eq!(taken(&mut ftl), [(Program, Host)]);

    // No translation page has an entry of these LPNs.
    read(&mut ftl, 1500);
    assert_eq!(taken(&mut ftl), []);
    read(&mut ftl, 0);
    assert_eq!(taken(&mut ftl), [(ReadTable, Host), (Read, Host)]);
    read(&mut ftl, 0);
    assert_eq!(taken(&mut ftl), [(Read, Host)]);

    // Others drive out a dirty one: its translation page is read, merged and programmed.
    (20..25).for_each(|lpn| read(&mut ftl, lpn));
    taken(&mut ftl);
    read(&mut ftl, 25);
    assert_eq!(taken(&mut ftl), [(ReadTable, Meta), (Program, Meta)]);
    ftl.check().expect("consistent");

    assert_eq!(ftl.mapping_cache_peak_bytes(), EIGHT + 8);
    assert_eq!(ftl.stats().table_programs, 2);
}

/// A remap needs the entries of its target and its source.
#[test]
fn a_remap_touches_two_translation_pages() {
    let mut ftl = device(shape(), &cached(SchemeKind::RemapSsd, EIGHT));
    put(&mut ftl, 0, 1);
    put(&mut ftl, 2500, 2);
    (1..40).for_each(|lpn| put(&mut ftl, 1024 + lpn, 3 + u64::from(lpn)));
    ftl.media_mut().ops.clear();
    let remap = Remap {
        target: Lpn(2500),
        source: Lpn(0),
        len: 1,
        relocate: false,
        atomic: false,
    };
    ftl.remap(&remap).expect("there is room");
    let reads = taken(&mut ftl);
    let table = |op: &&(OpKind, Purpose)| **op == (OpKind::ReadTable, Purpose::Host);
    assert_eq!(reads.iter().filter(table).count(), 2, "{reads:?}");
    assert_eq!(ftl.place(Lpn(2500)), ftl.place(Lpn(0)));
}

/// One page has owners in three translation pages; 61 others have one in the first. Refreshing their superblock reads
/// the translation page of each owner that is not at hand, and delays no command for it.
#[test]
fn collection_reads_the_translation_pages_of_all_owners() {
    let config = Config {
        refresh_reads: 200,
        dedup: false,
        ..cached(SchemeKind::RemapSsd, EIGHT)
    };
    let mut ftl = device(shape(), &config);
    (0..130).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn)));
    for target in [1030, 2060] {
        let remap = Remap {
            target: Lpn(target),
            source: Lpn(0),
            len: 1,
            relocate: false,
            atomic: false,
        };
        ftl.remap(&remap).expect("there is room");
    }
    // Entries that are not needed below.
    (200..220).for_each(|lpn| read(&mut ftl, lpn));
    let mut moved = Vec::new();
    for _ in 0..400 {
        ftl.media_mut().ops.clear();
        read(&mut ftl, 1);
        let of_collection = |op: &&Op| op.kind == OpKind::ReadTable && op.purpose == Purpose::Gc;
        moved.extend(
            ftl.media()
                .ops
                .iter()
                .filter(of_collection)
                .map(|op| op.page),
        );
    }
    assert_eq!(ftl.stats().refresh_runs, 1);
    // The first owner's is at hand after the reads. Then the others', and the first again.
    assert_eq!(moved.len(), 3, "{moved:?}");
    ftl.check().expect("consistent");
}

fn apply_all(ftl: &mut Ftl, contents: &mut Contents, random: &mut Random, commands: u64) {
    for number in 0..commands {
        let command = draw(random, ftl, 10_000 + number, 24);
        execute(ftl, command).unwrap_or_else(|refusal| panic!("{command:?}: {refusal}"));
        apply(command, contents);
        let lpn = random.below(u64::from(LPNS)) as u32;
        let page = match ftl.read(Lpn(lpn)).expect("readable") {
            Page::Identity(identity) => Some(identity),
            _ => None,
        };
        assert_eq!(page, contents[lpn as usize], "{command:?}, LPN {lpn}");
        ftl.media_mut().ops.clear();
        if number % 64 == 0 {
            ftl.check().expect("consistent");
        }
    }
}

/// Under all schemes, with caches of several sizes: contents are those without a cache, through power cycles. Smaller caches
/// read and program more.
#[test]
fn contents_are_the_same_and_survive_power() {
    for scheme in cacheable() {
        let mut programs = Vec::new();
        for bytes in [EIGHT, 100 * 8, 8 * u64::from(LPNS)] {
            let mut ftl = device(shape(), &cached(scheme, bytes));
            let mut random = Random(7);
            let mut contents: Contents = vec![None; LPNS as usize];
            for lpn in 0..LPNS {
                put(&mut ftl, lpn, u64::from(lpn) + 1);
                contents[lpn as usize] = Some(u64::from(lpn) + 1);
            }
            for _ in 0..3 {
                apply_all(&mut ftl, &mut contents, &mut random, 700);
                let stats = ftl.stats();
                programs.push(stats.table_programs);
                let (again, report) = recovered(ftl);
                assert!(report.translation_pages <= 3);
                ftl = again;
                assert_eq!(read_all(&mut ftl), contents, "{scheme}");
            }
        }
        let (small, medium, large) = (&programs[..3], &programs[3..6], &programs[6..]);
        assert!(
            small.iter().zip(medium).all(|(a, b)| a > b),
            "{scheme}: {programs:?}"
        );
        assert_eq!(large.iter().sum::<u64>(), 0, "{scheme}: all entries fit");
    }
}

fn damage_translation_pages(media: &mut Media) {
    let pages = (0..shape().pages()).map(Ppn);
    let is_table = |page: &Ppn| {
        media.is_meta(*page) && (Lpn(LPNS + 1)..Lpn(LPNS + 4)).contains(&media.oob(*page).lpn())
    };
    let damaged: Vec<Ppn> = pages.filter(is_table).collect();
    assert!(!damaged.is_empty());
    media.plant(|faults| faults.read.extend(damaged));
}

/// Entries of a translation page that cannot be read are known from elsewhere: nothing is lost.
#[test]
fn a_damaged_translation_page_loses_nothing() {
    let config = Config {
        refresh_writes: shape().pages().into(),
        ..cached(SchemeKind::RemapSsd, EIGHT)
    };
    let mut ftl = device(shape(), &config);
    let mut contents: Contents = vec![None; LPNS as usize];
    for lpn in 0..LPNS {
        put(&mut ftl, lpn, u64::from(lpn) + 1);
        contents[lpn as usize] = Some(u64::from(lpn) + 1);
    }
    assert!(ftl.stats().table_programs > 0);
    // While power is on, and then from the beginning.
    damage_translation_pages(ftl.media_mut());
    let mut random = Random(3);
    apply_all(&mut ftl, &mut contents, &mut random, 2000);
    assert!(ftl.stats().gc_runs > 0);
    let mut media = ftl.into_media();
    damage_translation_pages(&mut media);
    let (mut ftl, _) = Ftl::recover(media, config).expect("recovers");
    ftl.check().expect("consistent");
    assert_eq!(read_all(&mut ftl), contents);
}

/// Images open with a cache of another size, without one, and with one that they did not have, as far as NVRAM and pages suffice.
#[test]
fn the_size_of_the_cache_is_a_choice_of_each_power_on() {
    let with = |bytes| cached(SchemeKind::RemapSsd, bytes);
    let mut ftl = device(shape(), &with(EIGHT));
    let mut random = Random(5);
    let mut contents: Contents = vec![None; LPNS as usize];
    apply_all(&mut ftl, &mut contents, &mut random, 500);
    for bytes in [800, 0, EIGHT, 0, 800] {
        let media: Media = ftl.into_media();
        (ftl, _) = Ftl::recover(media, with(bytes)).expect("recovers");
        ftl.check().expect("consistent");
        assert_eq!(read_all(&mut ftl), contents);
        apply_all(&mut ftl, &mut contents, &mut random, 300);
    }
}

#[test]
fn what_cannot_work_is_refused() {
    let with = |scheme, bytes| Config {
        lpns: 1000,
        scheme,
        mapping_cache_bytes: bytes,
        log_bytes: 1 << 20,
        ..Config::default()
    };
    let refused = |config: Config| config.check(&shape()).expect_err("refused").to_string();
    let text = refused(with(SchemeKind::None, 63));
    assert!(
        text.contains("mapping_cache_bytes = 63 must be 0 or at least 64"),
        "{text}"
    );
    let hybrid = Config {
        mapping: Granularity::Hybrid,
        block_pages: 16,
        ..with(SchemeKind::None, EIGHT)
    };
    let text = refused(hybrid);
    assert!(text.contains("mapping = \"page\" only"), "{text}");
    let pebble = with(SchemeKind::Pebble, EIGHT);
    assert!(refused(pebble).contains("pebble keeps its mapping tables in NVRAM"));
}
