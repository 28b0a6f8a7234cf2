//! Refresh: superblocks that are read often, or are old, are collected, with all owners of their pages.

use crate::kit::script;
use crate::kit::{
    Random, content, device, durable, fullest, put, read_all, recovered, small_config,
    small_geometry,
};
use remap_ssd_ftl::{
    Config, Ftl, GcPolicy, Granularity, Lpn, Refusal, SchemeKind, SuperblockState,
};
use remap_ssd_media::{Geometry, OpKind, SbId, WordLine};

/// Pages of a superblock of `small_geometry`, and those that hold data.
const PAGES: u64 = 64;
const DATA: u64 = 62;

fn read(ftl: &mut Ftl, lpn: u32) {
    ftl.read(Lpn(lpn)).expect("readable");
}

fn share(ftl: &mut Ftl, target: u32, source: u32) {
    let remap = script::share(target, source);
    ftl.remap(&remap).expect("there is room");
}

fn count(ftl: &Ftl, kind: OpKind) -> usize {
    ftl.media().ops.iter().filter(|op| op.kind == kind).count()
}

/// The first superblock is full and closed; the second is open.
fn filled(config: &Config) -> Ftl {
    let mut ftl = device(small_geometry(), config);
    (0..DATA as u32 + 1).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));
    ftl.media_mut().ops.clear();
    ftl
}

/// Ten reads of a block make its superblock due. Its only stretch is moved when the host has read as many
/// pages as it holds, in one step; nothing else is written than its pages and the head of the superblock
/// that takes them.
#[test]
fn reads_alone_refresh_their_superblock_once_at_an_exact_cost() {
    let limited = Config {
        refresh_reads: 10,
        ..small_config(SchemeKind::None)
    };
    let mut ftl = filled(&limited);
    let before = ftl.media().counts;

    (0..10 + DATA - 2).for_each(|_| read(&mut ftl, 0));
    assert_eq!(ftl.stats().refresh_runs, 0);
    assert_eq!(ftl.media().counts.programs, before.programs);

    read(&mut ftl, 0);
    let stats = ftl.stats();
    assert_eq!((stats.refresh_runs, stats.gc_runs), (1, 1));
    assert_eq!((stats.refresh_programs, stats.gc_programs), (DATA, DATA));
    let after = ftl.media().counts;
    assert_eq!(after.programs - before.programs, DATA + 1);
    assert_eq!(after.reads - before.reads, 10 + DATA - 1 + DATA);
    assert_eq!(count(&ftl, OpKind::Erase), 4);
    ftl.check().expect("consistent");

    // The pages are in an open superblock now, which is due again, but cannot be collected.
    (0..10 * PAGES).for_each(|_| read(&mut ftl, 0));
    assert_eq!(ftl.stats().refresh_runs, 1);
    assert_eq!(
        read_all(&mut ftl)[..63],
        *(1..=63).map(Some).collect::<Vec<_>>()
    );
}

/// Reads from before an erase do not count.
#[test]
fn an_erase_begins_the_count_anew() {
    let limited = Config {
        refresh_reads: 10,
        gc_free: 0.9 - 1e-9,
        gc_at_once: true,
        ..small_config(SchemeKind::None)
    };
    let mut ftl = filled(&limited);
    (0..9).for_each(|_| read(&mut ftl, 0));
    // All pages of the first superblock become garbage, which is collected.
    (0..4 * DATA as u32).for_each(|at| put(&mut ftl, at % 70, 1000 + u64::from(at)));
    assert!(ftl.stats().gc_runs > 0);
    ftl.check().expect("no free superblock has counted reads");
    assert_eq!(ftl.stats().refresh_runs, 0);
}

#[test]
fn without_a_limit_no_read_writes_anything() {
    let mut ftl = filled(&small_config(SchemeKind::RemapSsd));
    let before = ftl.media().counts.programs;
    (0..10_000).for_each(|_| read(&mut ftl, 0));
    assert_eq!(ftl.media().counts.programs, before);
}

/// Each shared page has three owners, of which the page's OOB names one.
#[test]
fn all_owners_follow_and_survive_power() {
    for scheme in durable() {
        let limited = Config {
            refresh_reads: 10,
            ..small_config(scheme)
        };
        let mut ftl = filled(&limited);
        let first = ftl.place(Lpn(0));
        for lpn in 0..20 {
            share(&mut ftl, 100 + lpn, lpn);
            share(&mut ftl, 200 + lpn, lpn);
        }
        let contents = read_all(&mut ftl);
        (0..10 * PAGES).for_each(|_| read(&mut ftl, 0));
        assert!(ftl.stats().refresh_runs > 0, "{scheme}");
        assert_ne!(ftl.place(Lpn(0)), first, "{scheme}");
        if ftl.remaps() && !scheme.uses_hints() {
            assert_eq!(
                ftl.place(Lpn(0)),
                ftl.place(Lpn(200)),
                "{scheme}: still one page"
            );
        }
        ftl.check().expect("consistent");
        assert_eq!(read_all(&mut ftl), contents, "{scheme}");
        let (mut ftl, _) = recovered(ftl);
        assert_eq!(read_all(&mut ftl), contents, "{scheme}, after power-on");
    }
}

/// Writes, remaps, trims and reads at random, on a nearly full device; returns it.
fn worked(config: &Config, geometry: Geometry) -> Ftl {
    let config = &fullest(&geometry, config);
    let mut ftl = device(geometry, config);
    let lpns = config.lpns;
    let mut model = vec![None; lpns as usize];
    let mut random = Random(11);
    let moved = |ftl: &Ftl| ftl.stats().refresh_programs;
    for step in 0..6_000 {
        let lpn = random.below(lpns.into()) as u32;
        let other = random.below(lpns.into()) as u32;
        match random.below(8) {
            0 | 1 => {
                put(&mut ftl, lpn, 1000 + step);
                model[lpn as usize] = Some(1000 + step);
            }
            2 => {
                share(&mut ftl, lpn, other);
                model[lpn as usize] = model[other as usize];
            }
            3 if random.below(4) == 0 => {
                ftl.deallocate(Lpn(lpn), 1).expect("there is room");
                model[lpn as usize] = None;
            }
            // Most reads are of a few pages.
            _ => read(&mut ftl, random.below(20) as u32),
        }
        if step % 500 == 0 {
            ftl.check().expect("consistent");
        }
        ftl.media_mut().ops.clear();
    }
    let name = format!(
        "{} {:?} {:?}",
        config.scheme, config.mapping, config.gc_policy
    );
    let stats = ftl.stats();
    assert!(
        stats.refresh_runs > 1,
        "{name}: {} refreshes",
        stats.refresh_runs
    );
    // At most as many pages as the host transfers, and the rest of what is in progress.
    let transferred = stats.host_reads + stats.host_writes;
    assert!(
        moved(&ftl) <= 2 * transferred,
        "{name}: {} of {transferred}",
        moved(&ftl)
    );
    assert_eq!(read_all(&mut ftl), model, "{name}");
    let (mut ftl, _) = recovered(ftl);
    assert_eq!(read_all(&mut ftl), model, "{name}, after power-on");
    ftl
}

fn busy(scheme: SchemeKind) -> Config {
    Config {
        refresh_reads: 60,
        refresh_writes: 64 * 24,
        ..small_config(scheme)
    }
}

#[test]
fn data_survive_refreshes_under_every_scheme_policy_and_mapping() {
    for scheme in durable().filter(|scheme| !scheme.uses_hints()) {
        for gc_policy in GcPolicy::ALL {
            let config = Config {
                gc_policy,
                gc_at_once: gc_policy == GcPolicy::CostBenefit,
                gc_joins_host: gc_policy == GcPolicy::CostBenefit,
                ..busy(scheme)
            };
            worked(&config, small_geometry());
        }
    }
    for scheme in [SchemeKind::None, SchemeKind::RemapSsd, SchemeKind::NLog] {
        let hybrid = Config {
            mapping: Granularity::Hybrid,
            block_pages: 8,
            ..busy(scheme)
        };
        worked(&hybrid, small_geometry());
    }
}

/// The pages of a full superblock and the pads of its word lines take more than it frees.
#[test]
fn word_lines_that_must_be_filled_up_do_not_keep_a_superblock_from_its_refresh() {
    let word_line = WordLine {
        planes: 2,
        bits: 2,
        one_shot: true,
        ..WordLine::SINGLE
    };
    let geometry = small_geometry()
        .with_word_line(word_line)
        .expect("blocks of four lines");
    let config = Config {
        power_loss_protection: false,
        ..busy(SchemeKind::RemapSsd)
    };
    worked(&config, geometry);
}

/// The oldest superblock with data.
fn oldest(ftl: &Ftl) -> (SbId, u64) {
    ftl.superblocks()
        .filter(|(id, sb)| sb.state == SuperblockState::Closed && ftl.owners(*id).live > 0)
        .map(|(id, sb)| (id, sb.opened))
        .min_by_key(|(_, opened)| *opened)
        .expect("one is closed")
}

/// Cold data moves when it is old, also if the age was reached before a power cut.
#[test]
fn no_superblock_becomes_much_older_than_the_limit() {
    let limit = PAGES * 24;
    let aging = |refresh_writes| Config {
        refresh_writes,
        wear_gap: 0,
        ..small_config(SchemeKind::None)
    };
    let overwrite = |ftl: &mut Ftl, pages: u64| {
        for at in 0..pages {
            // The first half is never written again.
            put(ftl, 300 + (at % 250) as u32, 10_000 + ftl.wsn());
            ftl.media_mut().ops.clear();
        }
    };

    for (refresh_writes, moves) in [(0, false), (limit, true)] {
        let mut ftl = device(small_geometry(), &aging(refresh_writes));
        (0..600).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));
        overwrite(&mut ftl, 6 * limit);
        let age = ftl.wsn() - oldest(&ftl).1;
        assert_eq!(age < limit + limit / 2, moves, "age {age}");
        assert_eq!(ftl.stats().refresh_runs > 0, moves);
        assert_eq!(
            read_all(&mut ftl)[..300],
            *(1..=300).map(Some).collect::<Vec<_>>()
        );
    }

    let mut ftl = device(small_geometry(), &aging(0));
    (0..600).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));
    overwrite(&mut ftl, 2 * limit);
    let (_, old) = oldest(&ftl);
    assert!(ftl.wsn() - old > limit);
    let (mut ftl, _) = Ftl::recover(ftl.into_media(), aging(limit)).expect("recovers");
    let steps = (0..10_000).take_while(|_| ftl.background()).count();
    assert!(
        (1..10_000).contains(&steps),
        "idle time ends after {steps} steps"
    );
    let age = ftl.wsn() - oldest(&ftl).1;
    assert!(age <= limit, "age {age} of {limit}");
}

/// A refresh would wear out what is left: a device that is read-only only reads.
#[test]
fn a_worn_out_device_is_read_and_not_refreshed() {
    let worn = Config {
        lpns: 400,
        pe_limit: 4,
        refresh_reads: 5,
        gc_free: 0.3,
        ..small_config(SchemeKind::RemapSsd)
    };
    let mut ftl = device(small_geometry(), &worn);
    let mut random = Random(7);
    loop {
        let lpn = Lpn(random.below(400) as u32);
        ftl.media_mut().ops.clear();
        match ftl.write(lpn, &content(1 + random.below(900))) {
            Ok(()) => drop(ftl.read(lpn).expect("readable")),
            Err(refusal) => break assert_eq!(refusal, Refusal::ReadOnly),
        }
    }
    ftl.check().expect("consistent");
    let (programs, contents) = (ftl.media().counts.programs, read_all(&mut ftl));
    for _ in 0..20 {
        assert_eq!(read_all(&mut ftl), contents);
        assert!(!ftl.background());
    }
    assert_eq!(ftl.media().counts.programs, programs);
    let (mut ftl, _) = recovered(ftl);
    assert_eq!(read_all(&mut ftl), contents);
}

#[test]
fn an_age_that_refreshes_alone_would_reach_is_refused() {
    let geometry = small_geometry();
    let with = |refresh_writes| Config {
        refresh_writes,
        ..small_config(SchemeKind::None)
    };
    let least = u64::from(geometry.pages());
    assert!(with(least).check(&geometry).is_ok() && with(0).check(&geometry).is_ok());
    let refused = with(least - 1)
        .check(&geometry)
        .expect_err("too small")
        .to_string();
    assert!(refused.contains("refresh_writes"), "{refused}");
}

/// A refresh at `READS` reads of a block; collection begins late, and only where nearly everything is garbage.
fn tight(config: Config) -> Config {
    Config {
        refresh_reads: READS,
        gc_garbage: 0.9,
        gc_free: 0.0,
        wear_gap: 0,
        ..config
    }
}

const READS: u32 = 500;

/// A full device with some garbage in each superblock but the first, and hardly more superblocks free than the reserve has.
fn full(geometry: Geometry, config: &Config) -> Ftl {
    let mut random = Random(3);
    let config = fullest(&geometry, config);
    let (lpns, mut ftl) = (config.lpns, device(geometry, &config));
    (0..lpns).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));
    for step in 0..4 * lpns {
        let lpn = DATA as u32 + random.below(u64::from(lpns) - DATA) as u32;
        put(&mut ftl, lpn, 10_000 + u64::from(step));
        ftl.media_mut().ops.clear();
    }
    assert_eq!(ftl.stats().refresh_runs, 0);
    ftl
}

/// Without garbage, a superblock needs room beyond the reserve, which a full device has only once garbage has
/// been collected. Reads alone do that, and move at most as many pages as the host reads, and a stretch.
#[test]
fn on_a_full_device_reads_make_the_room_that_a_refresh_lacks() {
    for (geometry, config) in [
        (small_geometry(), tight(small_config(SchemeKind::None))),
        (small_geometry(), tight(small_config(SchemeKind::RemapSsd))),
    ] {
        let mut ftl = full(geometry, &config);
        let (place, before) = (ftl.place(Lpn(0)), ftl.stats());
        let contents = read_all(&mut ftl);
        (0..40 * PAGES).for_each(|_| read(&mut ftl, 0));
        assert_ne!(ftl.place(Lpn(0)), place, "{}", config.scheme);
        let done = ftl.stats() - before;
        assert!(done.refresh_runs > 0, "{}", config.scheme);
        assert!(done.gc_runs > done.refresh_runs, "{}", config.scheme);
        assert!(
            done.gc_programs <= done.host_reads + PAGES,
            "{} of {}",
            done.gc_programs,
            done.host_reads
        );
        ftl.check().expect("consistent");
        assert_eq!(read_all(&mut ftl), contents);
        let (mut ftl, _) = recovered(ftl);
        assert_eq!(read_all(&mut ftl), contents, "after power-on");
    }
}

/// Idle time does the same, and comes to an end: also where a block needs consecutive pages, so that not all garbage
/// becomes room.
#[test]
fn on_a_full_device_idle_time_makes_the_room_that_a_refresh_lacks_and_ends() {
    let hybrid = Config {
        mapping: Granularity::Hybrid,
        block_pages: 8,
        ..tight(small_config(SchemeKind::RemapSsd))
    };
    for (geometry, config) in [
        (small_geometry(), tight(small_config(SchemeKind::None))),
        (small_geometry(), tight(small_config(SchemeKind::RemapSsd))),
        (small_geometry(), hybrid),
    ] {
        let mut ftl = full(geometry, &config);
        let (place, contents) = (ftl.place(Lpn(0)), read_all(&mut ftl));
        (0..READS).for_each(|_| read(&mut ftl, 0));
        let before = ftl.stats();
        let steps = (0..10_000).take_while(|_| ftl.background()).count();
        let done = ftl.stats() - before;
        let name = format!("{} {:?}: {steps} steps", config.scheme, config.mapping);
        assert!(steps < 10_000, "{name}");
        assert!(
            done.gc_programs <= 3 * u64::from(geometry.pages()),
            "{name}"
        );
        if config.mapping == Granularity::Page {
            assert_ne!(ftl.place(Lpn(0)), place, "{name}");
        }
        assert!(!ftl.background());
        ftl.check().expect("consistent");
        assert_eq!(read_all(&mut ftl), contents, "{name}");
    }
}

/// The host's writes use what collection gains.
#[test]
fn writes_without_a_pause_do_not_keep_a_refresh_waiting() {
    for gc_garbage in [0.9, 0.1] {
        let config = Config {
            gc_garbage,
            ..tight(small_config(SchemeKind::None))
        };
        let mut ftl = full(small_geometry(), &config);
        let (place, mut random) = (ftl.place(Lpn(0)), Random(5));
        let lpns = u64::from(ftl.config().lpns);
        (0..READS).for_each(|_| read(&mut ftl, 0));
        let mut writes = 0;
        while ftl.place(Lpn(0)) == place {
            assert!(writes < lpns, "the refresh waits");
            let lpn = DATA + random.below(lpns - DATA);
            put(&mut ftl, lpn as u32, 50_000 + writes);
            ftl.media_mut().ops.clear();
            writes += 1;
        }
        ftl.check().expect("consistent");
    }
}
