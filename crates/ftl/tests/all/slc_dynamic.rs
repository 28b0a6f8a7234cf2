//! The dynamic SLC cache: which superblocks are opened in SLC mode, how they leave it, and what power-on makes of them.

use crate::kit::script::{
    apply, draw, durable_schemes, execute, geometry, nearly_full, share, with_log,
};
use crate::kit::{Random, device, durable, put, read_all, recovered};
use remap_ssd_ftl::{Config, Ftl, Lpn, SchemeKind, Stream, SuperblockState};
use remap_ssd_media::{Geometry, Media, Oob, OpKind, Ppn, SbId, WordLine};

const TLC: WordLine = WordLine {
    bits: 3,
    planes: 2,
    ..WordLine::SINGLE
};

/// Pages of data in a superblock of `shape`: 144 in all, less six for the head's word line and six for the tail's. In SLC
/// mode 48, less two and two.
const FULL: u32 = 132;
const SLC: u32 = 44;

/// 40 superblocks of two dies, 12 word lines of six pages a block.
fn shape() -> Geometry {
    geometry((2, 40, 72)).with_word_line(TLC).expect("valid")
}

/// At most `share` of the superblocks in SLC mode.
fn cached(scheme: SchemeKind, share: f64) -> Config {
    let config = Config {
        lpns: 2000,
        scheme,
        slc_dynamic: share,
        dealloc_slots: 16,
        ..Config::default()
    };
    logged(&config)
}

/// The same with little more NVRAM than the scheme needs.
fn logged(config: &Config) -> Config {
    let tables = config.tables_bytes(&shape());
    if tables == 0 {
        return with_log(&shape(), config, 8 << 10);
    }
    Config {
        log_bytes: tables + (8 << 10),
        ..config.clone()
    }
}

fn is_slc(ftl: &Ftl, lpn: u32) -> bool {
    let place = ftl.place(Lpn(lpn)).expect("mapped");
    ftl.slc_modes().has_page(place)
}

fn idle(ftl: &mut Ftl) {
    while ftl.background() {}
}

/// Writes these pages with contents of their own.
fn fill(ftl: &mut Ftl, lpns: std::ops::Range<u32>) {
    lpns.for_each(|lpn| put(ftl, lpn, 1 + u64::from(lpn)));
}

fn closed_slc(ftl: &Ftl) -> usize {
    let superblocks = ftl.superblocks();
    let closed = superblocks
        .filter(|(_, sb)| sb.state == SuperblockState::Closed && sb.stream == Stream::Slc);
    closed.count()
}

/// Up to the share of all superblocks, and past them then.
#[test]
fn superblocks_are_opened_in_slc_mode_up_to_a_share() {
    let mut ftl = device(shape(), &cached(SchemeKind::None, 0.1));
    assert_eq!(
        (ftl.slc_modes().count(), ftl.free_slc_superblocks()),
        (0, 4)
    );
    for lpn in 0..4 * SLC + 10 {
        put(&mut ftl, lpn, 1 + u64::from(lpn));
        assert_eq!(is_slc(&ftl, lpn), lpn < 4 * SLC, "{lpn}");
    }
    assert_eq!(
        (ftl.slc_modes().count(), ftl.free_slc_superblocks()),
        (4, 0)
    );
    let stats = ftl.stats();
    assert_eq!(stats.slc_programs, u64::from(4 * SLC));
    // A head and a tail of four superblocks with a pad each, and one head with five pads.
    assert_eq!(stats.meta_programs, 4 * 4 + 6);
    assert_eq!(stats.gc_programs, 0);
    ftl.check().expect("consistent");
}

/// With a share of all, until no more superblocks are free than collection wants: 36 of 40. Then pages go past the cache, and
/// collection folds, since that gains most. All logical pages find room.
#[test]
fn the_cache_takes_what_is_free_and_gives_it_back_under_pressure() {
    let mut ftl = device(shape(), &cached(SchemeKind::None, 1.0));
    assert_eq!(ftl.gc_start(), 4);
    fill(&mut ftl, 0..36 * SLC);
    assert_eq!(ftl.stats().slc_programs, u64::from(36 * SLC));
    assert_eq!((ftl.slc_modes().count(), ftl.free_superblocks()), (36, 4));
    put(&mut ftl, 36 * SLC, 7);
    assert!(!is_slc(&ftl, 36 * SLC));
    fill(&mut ftl, 36 * SLC..2000);
    assert!(ftl.stats().slc_folded > 0);
    assert!(ftl.stats().slc_folded == ftl.stats().gc_programs);
    assert!(ftl.free_superblocks() > 2);
    ftl.check().expect("consistent");

    let contents = read_all(&mut ftl);
    idle(&mut ftl);
    assert_eq!(closed_slc(&ftl), 0);
    assert_eq!(read_all(&mut ftl), contents);
    // Two thousand pages take sixteen superblocks; four more are open, one of them in SLC mode.
    assert!(ftl.free_superblocks() >= 40 - 16 - 4);
    ftl.check().expect("consistent");
}

/// Idle time makes room from superblocks of which half is dead, and leaves those with less garbage alone.
#[test]
fn idle_time_makes_room_for_the_cache_from_what_is_half_dead() {
    let mut ftl = device(shape(), &cached(SchemeKind::None, 1.0));
    fill(&mut ftl, 0..1980);
    idle(&mut ftl);
    let full = ftl.free_superblocks();
    let moved = ftl.stats().gc_programs;

    // In each superblock a third dies, then two thirds.
    for (dead, is_room_made) in [(0..1, false), (1..2, true)] {
        for part in dead {
            for lpn in (part..1980).step_by(3) {
                ftl.deallocate(Lpn(lpn), 1).expect("in range");
            }
        }
        idle(&mut ftl);
        assert_eq!(ftl.free_superblocks() > full + 4, is_room_made);
        assert_eq!(ftl.stats().gc_programs > moved, is_room_made);
        ftl.check().expect("consistent");
    }
    for lpn in (2..1980).step_by(3) {
        assert!(ftl.place(Lpn(lpn)).is_some());
    }
}

/// The device has as many logical pages as without the cache, less one open superblock; and they can be overwritten.
#[test]
fn the_cache_takes_no_logical_pages_but_those_of_an_open_superblock() {
    let config = cached(SchemeKind::None, 1.0);
    let full = nearly_full(&shape(), &config, 0);
    let without = Config {
        slc_dynamic: 0.0,
        ..config
    };
    let without = nearly_full(&shape(), &without, 0);
    assert_eq!(without.lpns - full.lpns, FULL);

    let mut ftl = device(shape(), &full);
    let mut random = Random(3);
    for round in 0..3 * full.lpns {
        let lpn = match round < full.lpns {
            true => round,
            false => random.below(full.lpns.into()) as u32,
        };
        put(&mut ftl, lpn, u64::from(round));
        if round % 1000 == 0 {
            ftl.check().expect("consistent");
        }
    }
    assert!(ftl.stats().slc_programs > 1000);
    let contents = read_all(&mut ftl);
    let (mut ftl, _) = recovered(ftl);
    assert_eq!(read_all(&mut ftl), contents);
}

/// A superblock that was folded is filled with all bits, and the other way round.
#[test]
fn a_superblock_changes_its_mode_with_its_erase() {
    let config = Config {
        lpns: 1500,
        ..cached(SchemeKind::None, 1.0)
    };
    let mut ftl = device(shape(), &config);
    let mut modes = [[0; 2]; 40];
    for round in 0..20 {
        fill(&mut ftl, 0..700);
        for (id, sb) in ftl.superblocks() {
            if sb.state == SuperblockState::Closed {
                modes[id.0 as usize][usize::from(ftl.slc_modes().has(id))] += 1;
            }
        }
        if round % 2 == 0 {
            idle(&mut ftl);
        }
        ftl.check().expect("consistent");
    }
    let both = modes.iter().filter(|of| of[0] > 0 && of[1] > 0).count();
    assert!(both > 10, "{both}: {modes:?}");
}

/// In idle time each live page is read and programmed once, and the erase gives a superblock with all bits.
#[test]
fn a_fold_costs_a_read_and_a_program_of_each_live_page() {
    let mut ftl = device(shape(), &cached(SchemeKind::None, 0.5));
    fill(&mut ftl, 0..SLC);
    // Twelve pages die; their successors open the second superblock.
    (0..12).for_each(|lpn| put(&mut ftl, lpn, 1000 + u64::from(lpn)));
    ftl.media_mut().ops.clear();
    let before = ftl.media().counts;
    idle(&mut ftl);
    let (stats, after) = (ftl.stats(), ftl.media().counts);
    assert_eq!(
        (stats.slc_folded, stats.slc_died, stats.slc_erases),
        (32, 12, 1)
    );
    assert_eq!(after.reads - before.reads, 32);
    // With a head and five pads.
    assert_eq!(after.programs - before.programs, 32 + 6);
    let erases = ftl.media().ops.iter().filter(|op| op.kind == OpKind::Erase);
    assert_eq!(erases.count(), 2);
    assert_eq!(ftl.usable_pages(), u64::from(40 * FULL));
    assert!((0..12).all(|lpn| is_slc(&ftl, lpn)) && (12..SLC).all(|lpn| !is_slc(&ftl, lpn)));
}

/// A page with three owners is programmed once, and all three follow, also over a cut.
#[test]
fn a_shared_page_is_folded_once_and_its_owners_follow() {
    for scheme in durable() {
        let mut ftl = device(shape(), &cached(scheme, 0.5));
        fill(&mut ftl, 0..SLC + 4);
        for lpn in 0..10 {
            for copy in 1..3 {
                ftl.remap(&share(500 * copy + lpn, lpn))
                    .expect("there is room");
            }
        }
        let contents = read_all(&mut ftl);
        idle(&mut ftl);
        let stats = ftl.stats();
        assert!(stats.slc_folded >= u64::from(SLC), "{scheme}");
        let shared = scheme != SchemeKind::None && !scheme.uses_hints();
        if shared && stats.gc_copies == 0 && stats.demoted() == 0 {
            assert_eq!(stats.slc_folded, u64::from(SLC), "{scheme}");
            let places = [0, 500, 1000].map(|lpn| ftl.place(Lpn(lpn)));
            assert!(places[0] == places[1] && places[1] == places[2], "{scheme}");
            assert!(!is_slc(&ftl, 0), "{scheme}");
        }
        let (mut ftl, _) = recovered(ftl);
        assert_eq!(read_all(&mut ftl), contents, "{scheme}");
    }
}

/// Heads tell the modes. The open superblock is filled further in its mode; another share is no obstacle, none at all is.
#[test]
fn power_on_finds_the_modes_in_the_heads() {
    let config = cached(SchemeKind::RemapSsd, 0.5);
    let mut ftl = device(shape(), &config);
    fill(&mut ftl, 0..8 * SLC);
    for _ in 0..40 {
        ftl.background();
    }
    fill(&mut ftl, 900..907);
    let modes = |ftl: &Ftl| -> Vec<(SuperblockState, bool)> {
        let superblocks = ftl.superblocks();
        let of = |(id, sb): (SbId, &remap_ssd_ftl::Superblock)| (sb.state, ftl.slc_modes().has(id));
        superblocks.map(of).collect()
    };
    let before = modes(&ftl);
    let closed = |is_slc| before.contains(&(SuperblockState::Closed, is_slc));
    assert!(closed(true) && closed(false));
    let contents = read_all(&mut ftl);
    let (mut ftl, report) = recovered(ftl);
    assert!(report.tail_pages > 0);
    assert_eq!(modes(&ftl), before);
    assert_eq!(read_all(&mut ftl), contents);
    let open = ftl
        .superblocks()
        .find(|(_, sb)| sb.state == SuperblockState::Open && sb.stream == Stream::Slc);
    let open = open.expect("one").0;
    put(&mut ftl, 1000, 1 << 40);
    assert_eq!(
        shape().superblock(ftl.place(Lpn(1000)).expect("mapped")),
        open
    );

    let image = ftl.into_media().to_image();
    let open_with = |slc_dynamic: f64| {
        let other = Config {
            slc_dynamic,
            ..config.clone()
        };
        Ftl::recover(Media::from_image(&image), other)
    };
    let (ftl, _) = open_with(0.05).expect("another share");
    ftl.check().expect("consistent");
    let text = open_with(0.0).err().expect("refused").to_string();
    assert!(text.contains("in SLC mode without slc_dynamic"), "{text}");
}

/// The pages tell the mode of a superblock whose head cannot be read, or are read in either.
#[test]
fn a_superblock_whose_head_is_unreadable_keeps_its_pages() {
    for protected in [true, false] {
        for written in [SLC, SLC + 9, 3 * SLC + 2] {
            let config = Config {
                power_loss_protection: protected,
                ..cached(SchemeKind::RemapSsd, 0.5)
            };
            let mut ftl = device(shape(), &config);
            fill(&mut ftl, 0..written);
            for _ in 0..if written > 2 * SLC { 4 } else { 0 } {
                ftl.background();
            }
            let in_use: Vec<SbId> = ftl
                .superblocks()
                .filter(|(_, sb)| {
                    matches!(sb.state, SuperblockState::Open | SuperblockState::Closed)
                })
                .map(|(id, _)| id)
                .collect();
            let contents = read_all(&mut ftl);
            let image = ftl.into_media().to_image();
            for sb in in_use {
                let mut media = Media::from_image(&image);
                let head = Ppn(shape().page(sb, 0).0 + shape().offset_of(0, sb.0 % 2));
                media.plant(|faults| {
                    faults.read.insert(head);
                });
                let (mut ftl, report) = Ftl::recover(media, config.clone()).expect("recovers");
                ftl.check().expect("consistent");
                assert_eq!(report.lost, 0);
                // Without more rows than SLC mode has, its mode is not certain.
                let rows = |die| ftl.media().next_row(shape().block(sb, die));
                let is_certain = (0..2).any(|die| rows(die) > 24);
                let is_open = ftl.superblock(sb).state == SuperblockState::Open;
                assert!(is_certain || !is_open, "{sb:?}");
                assert_eq!(read_all(&mut ftl), contents, "{sb:?}");
                // It works on, and its pages can be moved.
                fill(&mut ftl, 1000..1300);
                idle(&mut ftl);
                ftl.check().expect("consistent");
                let (mut ftl, _) = recovered(ftl);
                let left = read_all(&mut ftl);
                assert_eq!(left[..1000], contents[..1000], "{sb:?}");
            }
        }
    }
}

/// A head waits for the erases of its superblock, whose blocks may hold pages of the other mode, and for those that keep the
/// reserve free. The later of both names covers the other.
#[test]
fn a_head_waits_for_its_erases_and_for_those_of_the_reserve() {
    let config = Config {
        gc_free: 0.0,
        ..cached(SchemeKind::None, 0.5)
    };
    let mut ftl = device(shape(), &nearly_full(&shape(), &config, 6 * FULL));
    let lpns = ftl.config().lpns;
    let reserve = ftl.gc_start() as usize - 1;
    let mut random = Random(5);
    let (mut own_is_later, mut reserve_is_later, mut in_slc) = (0, 0, 0);
    for round in 0..20_000 {
        ftl.media_mut().ops.clear();
        let lpn = random.below(lpns.into()) as u32;
        put(&mut ftl, lpn, round);
        let ops = &ftl.media().ops;
        if ops.iter().any(|op| op.kind == OpKind::Erase) {
            continue;
        }
        let is_head = |op: &&remap_ssd_media::Op| {
            op.kind == OpKind::Program && ftl.media().oob(op.page).lpn() == Oob::HEAD
        };
        for head in ops.iter().filter(is_head) {
            let sb = shape().superblock(head.page);
            let own = ftl.superblock(sb).erased;
            let free = ftl
                .superblocks()
                .filter(|(_, sb)| sb.state == SuperblockState::Free);
            let mut erases: Vec<_> = free.map(|(_, sb)| sb.erased).collect();
            erases.sort_unstable();
            let kept = erases[reserve.min(erases.len()) - 1];
            assert_eq!(head.clear_id, own.max(kept), "{round}");
            own_is_later += u32::from(own > kept);
            reserve_is_later += u32::from(own < kept);
            in_slc += u32::from(ftl.slc_modes().has(sb));
        }
    }
    assert!(
        own_is_later > 5 && reserve_is_later > 5 && in_slc > 5,
        "{own_is_later} {reserve_is_later} {in_slc}"
    );
}

/// A block endures as many cycles as with all bits, whatever the mode of each was; and what is worn out keeps its contents.
#[test]
fn erases_of_both_modes_count_alike() {
    let config = Config {
        pe_limit: 5,
        slc_pe_limit: 1000,
        ..cached(SchemeKind::None, 0.5)
    };
    let mut ftl = device(shape(), &config);
    let mut round = 0;
    while !ftl.is_read_only() {
        if ftl
            .write(Lpn(round % 90), &crate::kit::content(u64::from(round)))
            .is_err()
        {
            break;
        }
        idle(&mut ftl);
        round += 1;

        // Its last cycle would leave a superblock a fraction of its pages for good.
        for (id, _) in ftl.superblocks() {
            let first = ftl.media().geometry().block(id, 0);
            let erases = ftl.media().erase_counts()[first.0 as usize];
            assert!(erases < 4 || !ftl.slc_modes().has(id), "{id:?}");
        }
    }
    assert!(ftl.stats().slc_erases > 20);
    let most = ftl.media().erase_counts().iter().max();
    assert!(most.is_some_and(|most| *most <= 5), "{most:?}");
    ftl.check().expect("consistent");
    let contents = read_all(&mut ftl);
    let (mut ftl, _) = recovered(ftl);
    assert_eq!(read_all(&mut ftl), contents);
}

#[test]
fn impossible_dynamic_caches_are_refused_with_the_reason() {
    let refuse = |geometry: &Geometry, config: Config, reason: &str| {
        let error = config.check(geometry).expect_err(reason).to_string();
        assert!(error.contains(reason), "{error}");
    };
    let config = cached(SchemeKind::None, 0.5);
    refuse(&geometry((2, 40, 72)), config.clone(), "cell_bits above 1");
    for slc_dynamic in [-0.1, 1.1, f64::NAN] {
        let wrong = Config {
            slc_dynamic,
            ..config.clone()
        };
        refuse(&shape(), wrong, "slc_dynamic");
    }
    let both = Config {
        slc_share: 0.1,
        ..config.clone()
    };
    refuse(&shape(), both, "set one of them to 0");
    // Of 16 pages of data, 8 in SLC mode; folding them may take 9 pads.
    let small = geometry((2, 80, 12)).with_word_line(WordLine {
        bits: 2,
        planes: 2,
        ..WordLine::SINGLE
    });
    let pads = Config {
        power_loss_protection: false,
        gc_policy: remap_ssd_ftl::GcPolicy::Cagc,
        lpns: 100,
        ..config
    };
    refuse(&small.expect("valid"), pads, "gains nothing");
}

/// Random commands on a nearly full device, with idle time and power-on between them.
#[test]
fn random_commands_leave_what_they_should_under_every_scheme() {
    for (scheme, entry) in durable_schemes() {
        let config = Config {
            entry,
            gc_free: 0.0,
            lpns: 40,
            slc_fold_garbage: [0.5, 0.0][usize::from(scheme == SchemeKind::RemapSsd)],
            ..cached(scheme, 0.6)
        };
        let config = nearly_full(&shape(), &logged(&config), 3 * FULL);
        let mut ftl = device(shape(), &config);
        let mut contents = read_all(&mut ftl);
        let mut random = Random(7);
        for lpn in 0..config.lpns {
            put(&mut ftl, lpn, u64::from(lpn) + 5000);
            contents[lpn as usize] = Some(u64::from(lpn) + 5000);
        }
        let (mut folded, mut written) = (0, 0);
        for number in 0..1500 {
            let command = draw(&mut random, &ftl, 100_000 + number, 40);
            execute(&mut ftl, command)
                .unwrap_or_else(|refusal| panic!("{scheme} {number} {command:?}: {refusal}"));
            apply(command, &mut contents);
            ftl.media_mut().ops.clear();
            if random.below(40) == 0 {
                idle(&mut ftl);
            }
            if random.below(150) == 0 {
                ftl.check().expect("consistent");
                folded += ftl.stats().slc_folded;
                written += ftl.stats().slc_programs;
                ftl = recovered(ftl).0;
                assert_eq!(read_all(&mut ftl), contents, "{scheme}");
            }
        }
        assert_eq!(read_all(&mut ftl), contents, "{scheme}");
        assert!(
            folded > 200 && written > 500,
            "{scheme}: {folded} {written}"
        );
    }
}
