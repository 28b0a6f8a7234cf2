//! The SLC cache: which pages are programmed in SLC mode, what a fold costs, what follows a page, and what survives.

use crate::kit::script::{
    apply, draw, durable_schemes, execute, geometry, nearly_full, share, with_log,
};
use crate::kit::{Random, device, durable, put, read_all, recovered};
use remap_ssd_ftl::{Config, Ftl, Lpn, Owners, SchemeKind, Stream, SuperblockState};
use remap_ssd_media::{Geometry, Media, OpKind, SbId, WordLine};

const TLC: WordLine = WordLine {
    bits: 3,
    planes: 2,
    ..WordLine::SINGLE
};

/// Pages of data in a superblock of `shape` in SLC mode: 48 pages, less two for the head's word line and two for the tail's.
const DATA: u32 = 44;

/// 40 superblocks of two dies, 12 word lines of six pages a block.
fn shape() -> Geometry {
    geometry((2, 40, 72)).with_word_line(TLC).expect("valid")
}

/// Four superblocks in SLC mode.
fn cached(scheme: SchemeKind) -> Config {
    let config = Config {
        lpns: 2000,
        scheme,
        slc_share: 0.1,
        dealloc_slots: 16,
        ..Config::default()
    };
    logged(&config, 8 << 10)
}

/// The same with the least NVRAM that the scheme works with, plus `more`.
fn logged(config: &Config, more: u64) -> Config {
    let tables = config.tables_bytes(&shape());
    if tables == 0 {
        return with_log(&shape(), config, more);
    }
    Config {
        log_bytes: tables + more,
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

fn count(ftl: &Ftl, kind: OpKind) -> usize {
    ftl.media().ops.iter().filter(|op| op.kind == kind).count()
}

/// Each figure by hand: four superblocks, then pages go past them. Nothing is dead, so nothing is folded while the host writes.
#[test]
fn the_host_writes_in_slc_mode_until_the_cache_is_full_and_past_it_then() {
    let mut ftl = device(shape(), &cached(SchemeKind::None));
    assert_eq!(ftl.slc_modes().count(), 4);
    for lpn in 0..4 * DATA + 10 {
        put(&mut ftl, lpn, 1 + u64::from(lpn));
        assert_eq!(is_slc(&ftl, lpn), lpn < 4 * DATA, "{lpn}");
    }
    let stats = ftl.stats();
    assert_eq!(
        (stats.slc_programs, stats.host_programs),
        (u64::from(4 * DATA), u64::from(4 * DATA + 10))
    );
    assert_eq!(
        (stats.slc_folded, stats.gc_programs, stats.slc_erases),
        (0, 0, 0)
    );
    // In SLC mode, a head with a pad and a tail with a pad for each of four; then a head with five pads.
    assert_eq!(stats.meta_programs, 4 * 2 + 6 + 4 * 2);
    assert_eq!(ftl.free_slc_superblocks(), 0);
    ftl.check().expect("consistent");
}

/// Word lines of one bit go round the dies: consecutive pages of a flash page, then the next die.
#[test]
fn word_lines_in_slc_mode_take_turns_among_dies() {
    let mut ftl = device(shape(), &cached(SchemeKind::None));
    (0..8).for_each(|lpn| put(&mut ftl, lpn, 1));
    (0..8).for_each(|lpn| put(&mut ftl, lpn, 100 + u64::from(lpn)));
    let geometry = shape();
    let dies = (0..8).map(|lpn| geometry.slot(ftl.place(Lpn(lpn)).expect("mapped")).die);
    let dies: Vec<u32> = dies.collect();
    assert!(
        dies.chunks(4)
            .all(|four| four[0] == four[1] && four[2] == four[3] && four[0] != four[2]),
        "{dies:?}"
    );
}

/// In idle time closed superblocks are emptied: each live page is read and programmed once.
#[test]
fn idle_time_folds_live_pages_and_forgets_dead_ones_at_an_exact_cost() {
    let mut ftl = device(shape(), &cached(SchemeKind::None));
    (0..DATA).for_each(|lpn| put(&mut ftl, lpn, 1 + u64::from(lpn)));
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
    assert_eq!((stats.gc_programs, stats.gc_runs), (32, 1));
    assert_eq!(after.reads - before.reads, 32);
    // The head of the superblock that takes them fills a word line with five pads.
    assert_eq!(after.programs - before.programs, 32 + 6);
    assert_eq!(count(&ftl, OpKind::Erase), 2);
    assert!((0..12).all(|lpn| is_slc(&ftl, lpn)) && (12..DATA).all(|lpn| !is_slc(&ftl, lpn)));
    assert_eq!(ftl.free_slc_superblocks(), 3);
    ftl.check().expect("consistent");
}

/// While the host writes, a superblock is folded once half of it is dead, and not before.
#[test]
fn pressure_folds_superblocks_of_which_half_is_dead() {
    for (dead, folds) in [(DATA / 2 - 1, 0), (DATA / 2, 1)] {
        let mut ftl = device(shape(), &cached(SchemeKind::None));
        (0..4 * DATA).for_each(|lpn| put(&mut ftl, lpn, 1 + u64::from(lpn)));
        // Pages of one superblock die by trims, so that no other gains pages.
        ftl.deallocate(Lpn(0), dead).expect("in range");
        (500..500 + 2 * DATA).for_each(|lpn| put(&mut ftl, lpn, 7000 + u64::from(lpn)));
        let stats = ftl.stats();
        assert_eq!(stats.slc_erases, folds, "{dead} of {DATA} dead");
        assert_eq!(stats.slc_folded, folds * u64::from(DATA - dead));
        assert_eq!(stats.slc_died, folds * u64::from(dead));
        ftl.check().expect("consistent");
    }
}

/// Both limits of folding under pressure are keys: the dead pages of a victim, and the free superblocks at which it begins.
#[test]
fn folding_under_pressure_begins_at_the_configured_shares() {
    // A superblock of which nothing is dead is folded at 0, one of which one page lives is not at 1.
    for (garbage, dead, folds) in [
        (0.0, 0, true),
        (0.25, 10, false),
        (0.25, 11, true),
        (1.0, DATA - 1, false),
        (1.0, DATA, true),
    ] {
        let config = Config {
            slc_fold_garbage: garbage,
            ..cached(SchemeKind::None)
        };
        let mut ftl = device(shape(), &config);
        (0..4 * DATA).for_each(|lpn| put(&mut ftl, lpn, 1 + u64::from(lpn)));
        if dead > 0 {
            ftl.deallocate(Lpn(0), dead).expect("in range");
        }
        (500..500 + 2 * DATA).for_each(|lpn| put(&mut ftl, lpn, 7000 + u64::from(lpn)));
        let has_folded = ftl.stats().slc_erases > 0;
        assert_eq!(has_folded, folds, "{dead} of {DATA} dead, {garbage}");
        ftl.check().expect("consistent");
    }

    // The last page opens the seventh of ten superblocks, so that three are free.
    for (free, folds) in [(0.2, false), (0.9, true)] {
        let config = Config {
            slc_share: 0.25,
            slc_fold_free: free,
            ..cached(SchemeKind::None)
        };
        let mut ftl = device(shape(), &config);
        (0..2 * DATA).for_each(|lpn| put(&mut ftl, lpn, 1 + u64::from(lpn)));
        ftl.deallocate(Lpn(0), DATA / 2).expect("in range");
        (500..501 + 4 * DATA).for_each(|lpn| put(&mut ftl, lpn, 7000 + u64::from(lpn)));
        if !folds {
            assert_eq!(ftl.free_slc_superblocks(), 3);
        }
        assert_eq!(ftl.stats().slc_folded > 0, folds, "{free}");
    }
}

/// A page with three owners is programmed once, and all three follow, also over a cut.
#[test]
fn a_shared_page_is_folded_once_and_its_owners_follow() {
    for scheme in durable() {
        let mut ftl = device(shape(), &cached(scheme));
        (0..DATA + 4).for_each(|lpn| put(&mut ftl, lpn, 1 + u64::from(lpn)));
        for lpn in 0..10 {
            (1..3).for_each(|copy| {
                ftl.remap(&share(500 * copy + lpn, lpn))
                    .expect("there is room")
            });
        }
        let contents = read_all(&mut ftl);
        let shared = scheme != SchemeKind::None && !scheme.uses_hints();
        if shared {
            assert_eq!(ftl.place(Lpn(0)), ftl.place(Lpn(500)), "{scheme}");
        }
        idle(&mut ftl);
        let stats = ftl.stats();
        assert!(stats.slc_folded >= u64::from(DATA), "{scheme}");
        if shared && stats.gc_copies == 0 && stats.demoted() == 0 {
            assert_eq!(stats.slc_folded, u64::from(DATA), "{scheme}");
            let places = [0, 500, 1000].map(|lpn| ftl.place(Lpn(lpn)));
            assert!(
                places[0] == places[1] && places[1] == places[2] && !is_slc(&ftl, 0),
                "{scheme}"
            );
        }
        let (mut ftl, _) = recovered(ftl);
        assert_eq!(read_all(&mut ftl), contents, "{scheme}");
    }
}

/// Power-on finds the mode by a superblock's number, continues the open one, and refuses another share.
#[test]
fn power_on_continues_in_slc_mode_and_refuses_another_share() {
    let config = cached(SchemeKind::RemapSsd);
    let mut ftl = device(shape(), &config);
    (0..DATA + 7).for_each(|lpn| put(&mut ftl, lpn, 1 + u64::from(lpn)));
    let states = |ftl: &Ftl| -> Vec<(SuperblockState, Owners)> {
        let of = |sb| (ftl.superblock(sb).state, ftl.owners(sb));
        (0..4).map(|sb| of(SbId(sb))).collect()
    };
    let before = states(&ftl);
    let (mut ftl, report) = recovered(ftl);
    assert_eq!(states(&ftl), before);
    assert!(report.tail_pages > 0);
    let open = ftl
        .superblocks()
        .find(|(_, sb)| sb.state == SuperblockState::Open)
        .expect("one");
    assert_eq!(open.1.stream, Stream::Slc);
    let open = open.0;
    put(&mut ftl, 300, 1 << 40);
    assert_eq!(
        shape().superblock(ftl.place(Lpn(300)).expect("mapped")),
        open
    );
    ftl.check().expect("consistent");

    let image = ftl.into_media().to_image();
    for slc_share in [0.0, 0.02] {
        let other = Config {
            slc_share,
            ..config.clone()
        };
        let words = other.nvram_words(&shape());
        assert_eq!(words, config.nvram_words(&shape()));
        let refused = Ftl::recover(Media::from_image(&image), other)
            .err()
            .expect("refused");
        let text = refused.to_string();
        // With a share of 0.02 one superblock would be in SLC mode.
        assert!(text.contains("another slc_share"), "{text}");
    }
}

/// Superblocks in SLC mode endure other cycles, and what is worn out keeps its contents.
#[test]
fn both_modes_wear_out_by_limits_of_their_own() {
    let config = Config {
        slc_pe_limit: 3,
        pe_limit: 1000,
        ..cached(SchemeKind::None)
    };
    let mut ftl = device(shape(), &config);
    for round in 0..40 * DATA {
        put(&mut ftl, round % 90, u64::from(round));
        idle(&mut ftl);
    }
    let stats = ftl.stats();
    assert!((8..=12).contains(&stats.slc_erases), "{}", stats.slc_erases);
    assert!(stats.host_programs > stats.slc_programs);
    assert!((0..90).any(|lpn| !is_slc(&ftl, lpn)));
    ftl.check().expect("consistent");
    let contents = read_all(&mut ftl);
    let (mut ftl, _) = recovered(ftl);
    assert_eq!(read_all(&mut ftl), contents);
}

#[test]
fn impossible_caches_are_refused_with_the_reason() {
    let refuse = |geometry: &Geometry, config: Config, reason: &str| {
        let error = config.check(geometry).expect_err(reason).to_string();
        assert!(error.contains(reason), "{error}");
    };
    let config = cached(SchemeKind::None);
    refuse(&geometry((2, 40, 72)), config.clone(), "cell_bits above 1");
    for slc_share in [-0.1, 0.6, f64::NAN] {
        refuse(
            &shape(),
            Config {
                slc_share,
                ..config.clone()
            },
            "must be 0 to 0.5",
        );
    }
    for share in [-0.1, 1.1, f64::NAN] {
        let free = Config {
            slc_fold_free: share,
            ..config.clone()
        };
        refuse(&shape(), free, "slc_fold_free");
        let garbage = Config {
            slc_fold_garbage: share,
            ..config.clone()
        };
        refuse(&shape(), garbage, "slc_fold_garbage");
    }
    let full = nearly_full(&shape(), &config, 0);
    let without = nearly_full(
        &shape(),
        &Config {
            slc_share: 0.0,
            ..config.clone()
        },
        0,
    );
    // Four superblocks and one more of the reserve.
    let lost = without.lpns - full.lpns;
    assert_eq!(lost, 5 * config.data_pages(&shape()));
    refuse(
        &shape(),
        Config {
            lpns: full.lpns + 2,
            ..config
        },
        "over-provisioning is too small",
    );
}

/// Random commands on a nearly full device, with idle time and power-on between them.
#[test]
fn random_commands_leave_what_they_should_under_every_scheme() {
    for (scheme, entry) in durable_schemes() {
        let config = Config {
            entry,
            gc_free: 0.0,
            lpns: 40,
            slc_fold_garbage: if scheme == SchemeKind::RemapSsd {
                0.0
            } else {
                0.5
            },
            ..cached(scheme)
        };
        let config = nearly_full(&shape(), &logged(&config, 4096), 0);
        let mut ftl = device(shape(), &config);
        let mut contents = read_all(&mut ftl);
        let mut random = Random(7);
        for lpn in 0..config.lpns {
            put(&mut ftl, lpn, u64::from(lpn) + 5000);
            contents[lpn as usize] = Some(u64::from(lpn) + 5000);
        }
        let mut folded = 0;
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
                ftl = recovered(ftl).0;
                assert_eq!(read_all(&mut ftl), contents, "{scheme}");
            }
        }
        assert_eq!(read_all(&mut ftl), contents, "{scheme}");
        assert!(folded > 200, "{scheme}: {folded}");
    }
}
