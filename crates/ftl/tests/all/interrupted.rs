//! Atomic commands interrupted by cuts repeatedly, hundreds of times: the device stays usable.

use crate::kit::{
    Random, content, device, durable, fullest, read_all, small_config, small_geometry,
};
use remap_ssd_ftl::{Config, EntrySize, Ftl, GcPolicy, Lpn, Refusal, Remap, SchemeKind};
use remap_ssd_media::geometry::Shape;
use remap_ssd_media::{Geometry, Media, OpKind, Outcome, Page};

/// Capacity of the list of aborted numbers.
const PLACES: usize = 64;

/// The events between one interrupted command and the next.
#[derive(Clone, Copy, Debug)]
struct Script {
    commands: u32,
    /// Maximum number of pages of a command.
    len: u32,
    relocate: bool,
    /// Single pages written between two interrupted commands.
    writes: u64,
    /// One recovery in this many is cut too; 0 means none.
    recovery_cut: u64,
    /// The maximum number of logical pages.
    full: bool,
    /// So little room for entries, and so few owners per page, that many pages are copied and logs
    /// fill their pages at once.
    tight: bool,
}

const PLAIN: Script = Script {
    commands: 300,
    len: 1,
    relocate: false,
    writes: 0,
    recovery_cut: 0,
    full: false,
    tight: false,
};

const SCRIPTS: [Script; 9] = [
    PLAIN,
    Script {
        relocate: true,
        ..PLAIN
    },
    Script {
        len: 6,
        relocate: true,
        recovery_cut: 2,
        ..PLAIN
    },
    Script {
        len: 8,
        full: true,
        ..PLAIN
    },
    Script {
        len: 8,
        full: true,
        relocate: true,
        recovery_cut: 3,
        ..PLAIN
    },
    Script {
        len: 3,
        writes: 8,
        full: true,
        recovery_cut: 4,
        ..PLAIN
    },
    Script {
        len: 3,
        writes: 30,
        relocate: true,
        ..PLAIN
    },
    Script {
        len: 5,
        full: true,
        tight: true,
        recovery_cut: 4,
        ..PLAIN
    },
    Script {
        len: 5,
        writes: 2,
        relocate: true,
        tight: true,
        ..PLAIN
    },
];

fn config_of(scheme: SchemeKind, script: Script) -> Config {
    let small = small_config(scheme);
    let config = Config {
        entry: EntrySize::Bytes24,
        dedup: false,
        dealloc_slots: 64,
        ..small
    };

    let log_bytes = config.log_bytes + (8 << 10);
    let config = if script.tight {
        Config {
            count_max: 2,
            ..tight(&config)
        }
    } else {
        Config {
            log_bytes,
            ..config
        }
    };

    if script.full {
        fullest(&small_geometry(), &config)
    } else {
        config
    }
}

fn tight(config: &Config) -> Config {
    let mut sizes = (1..2000).map(|step| Config {
        log_bytes: 128 * step,
        ..config.clone()
    });
    sizes
        .find(|config| config.check(&small_geometry()).is_ok())
        .expect("some size works")
}

/// The media after a cut: the first `landed` operations, and all but the last of the others by
/// chance.
fn cut_before_the_last(ftl: &Ftl, landed: usize) -> Media {
    let (last, mut at) = (ftl.media().pending() - 1, 0);
    let image = ftl.media().cut(|| {
        at += 1;
        if at <= landed && at <= last {
            Outcome::Whole
        } else {
            Outcome::Absent
        }
    });
    Media::from_image(&image)
}

/// Returns the largest number of aborted numbers in the list at any time.
fn run(geometry: Geometry, config: &Config, script: Script, seed: u64) -> usize {
    let mut random = Random(seed);
    let mut ftl = device(geometry, config);
    let lpns = u64::from(config.lpns);
    let half_lpns = config.lpns / 2;
    for lpn in 0..config.lpns {
        // Pages of the upper half are hinted for the lower one, if the scheme uses hints.
        ftl.write_for(
            Lpn(lpn),
            &content(u64::from(lpn) + 1),
            Lpn(lpn.checked_sub(half_lpns).unwrap_or(lpn)),
        )
        .unwrap();
    }

    let (mut next, mut most) = (10_000, 0);
    for number in 0..script.commands {
        for _ in 0..script.writes {
            next += 1;
            ftl.write(Lpn(random.below(lpns) as u32), &content(next))
                .unwrap();
        }

        let before = read_all(&mut ftl);
        ftl.media_mut().attach_rail();
        let len = 1 + random.below(script.len.into()) as u32;
        let half = lpns / 2 - u64::from(len);
        let (target, source) = (
            random.below(half) as u32,
            (lpns / 2 + random.below(half)) as u32,
        );
        let is_home = config.scheme.uses_hints() && random.below(2) == 0;
        let target = if is_home { source - half_lpns } else { target };

        let command = Remap {
            target: Lpn(target),
            source: Lpn(source),
            len,
            relocate: script.relocate,
            atomic: true,
        };
        let at = format!(
            "{}, {script:?}, command {number} {command:?}",
            config.scheme
        );
        ftl.remap(&command)
            .unwrap_or_else(|refusal| panic!("{at}: {refusal}"));

        // Usually everything has landed except the commit, so that only the commit is missing.
        let pending = ftl.media().pending();
        let landed = if random.below(8) == 0 {
            random.below(pending as u64) as usize
        } else {
            pending
        };
        let mut media = cut_before_the_last(&ftl, landed);

        while script.recovery_cut > 0 && random.below(script.recovery_cut) == 0 {
            media.attach_rail();
            let (recovering, _) =
                Ftl::recover(media, config.clone()).unwrap_or_else(|error| panic!("{at}: {error}"));
            let pending = recovering.media().pending();
            if pending == 0 {
                media = Media::from_image(&recovering.media().to_image());
                break;
            }
            media = cut_before_the_last(&recovering, random.below(pending as u64) as usize);
        }

        (ftl, _) =
            Ftl::recover(media, config.clone()).unwrap_or_else(|error| panic!("{at}: {error}"));
        ftl.check().unwrap_or_else(|error| panic!("{at}: {error}"));
        assert_eq!(read_all(&mut ftl), before, "{at}: nothing of it is left");
        most = most.max(ftl.aborted().len());
    }

    // The device is as good as before.
    for _ in 0..3 * lpns {
        next += 1;
        ftl.write(Lpn(random.below(lpns) as u32), &content(next))
            .unwrap();
        ftl.media_mut().ops.clear();
    }

    let before = read_all(&mut ftl);
    let (mut ftl, _) = Ftl::recover(ftl.into_media(), config.clone()).expect("recovers");
    assert_eq!(read_all(&mut ftl), before, "{}, {script:?}", config.scheme);
    most
}

#[test]
fn hundreds_of_interrupted_commands_leave_a_device_that_takes_more() {
    for scheme in durable() {
        for (seed, script) in (1..).zip(SCRIPTS) {
            let most = run(small_geometry(), &config_of(scheme, script), script, seed);
            assert!(
                most <= PLACES / 2 + 2,
                "{scheme}, {script:?}: {most} numbers remembered at a time"
            );
            println!("{scheme} {script:?}: {most}");
        }
    }
}

/// For all policies and numbers of open superblocks.
#[test]
fn it_does_not_matter_how_superblocks_are_filled() {
    let script = Script {
        commands: 120,
        len: 4,
        recovery_cut: 3,
        ..PLAIN
    };

    for scheme in [SchemeKind::None, SchemeKind::RemapSsd, SchemeKind::WalSsd] {
        for (policy, dies) in GcPolicy::ALL
            .into_iter()
            .flat_map(|policy| [1, 2, 4].map(|dies| (policy, dies)))
        {
            let geometry = small_geometry().with_superblock_dies(dies).expect("valid");
            let gc_joins_host = dies == 2;
            let config = Config {
                gc_policy: policy,
                count_max: 2,
                gc_joins_host,
                ..config_of(scheme, script)
            };
            let config = Config {
                lpns: fullest(&geometry, &config).lpns / 2,
                ..config
            };
            let most = run(geometry, &config, script, u64::from(dies));
            assert!(
                most <= PLACES / 2 + 2,
                "{scheme}, {policy}, {dies} dies: {most} numbers remembered at a time"
            );
        }
    }
}

/// Blocks in their last cycle are not collected: their contents stay, and so do the numbers of
/// interrupted commands.
#[test]
fn where_nothing_can_go_atomic_commands_are_refused_and_nothing_else_is() {
    let config = Config {
        pe_limit: 1,
        lpns: 100,
        ..config_of(SchemeKind::None, PLAIN)
    };

    let mut ftl = device(small_geometry(), &config);
    (0..config.lpns).for_each(|lpn| ftl.write(Lpn(lpn), &content(u64::from(lpn) + 1)).unwrap());
    let before = read_all(&mut ftl);
    let atomic = Remap {
        target: Lpn(1),
        source: Lpn(50),
        len: 1,
        relocate: false,
        atomic: true,
    };

    for number in 0..=PLACES {
        ftl.media_mut().attach_rail();
        assert_eq!(
            ftl.remap(&atomic),
            Ok(()),
            "after {number} interrupted ones"
        );
        let all = ftl.media().pending();
        ftl = Ftl::recover(cut_before_the_last(&ftl, all), config.clone())
            .expect("recovers")
            .0;
        assert_eq!(ftl.aborted().len(), number + 1);
        assert_eq!(read_all(&mut ftl), before);
    }

    for _ in 0..3 {
        assert_eq!(ftl.remap(&atomic), Err(Refusal::AtomicUnavailable));
        assert_eq!(
            ftl.remap(&Remap {
                target: Lpn(2),
                atomic: false,
                ..atomic
            }),
            Ok(())
        );
        assert_eq!(ftl.write(Lpn(3), &content(777)), Ok(()));
        assert_eq!(
            (ftl.read(Lpn(2)), ftl.read(Lpn(3))),
            (Ok(Page::Identity(51)), Ok(Page::Identity(777)))
        );
        ftl = Ftl::recover(ftl.into_media(), config.clone())
            .expect("recovers")
            .0;
        assert_eq!(
            (ftl.read(Lpn(1)), ftl.read(Lpn(3))),
            (Ok(Page::Identity(2)), Ok(Page::Identity(777)))
        );
    }

    // With a higher endurance, the next power-on makes room.
    let config = Config {
        pe_limit: 0,
        ..config
    };

    for _ in 0..2 {
        ftl = Ftl::recover(ftl.into_media(), config.clone())
            .expect("recovers")
            .0;
    }

    assert_eq!(ftl.aborted(), [0; 0]);
    assert_eq!(ftl.remap(&atomic), Ok(()));
}

/// A log's superblock is dead, and a cut undoes its erases: its pages' aborted commands are not forgotten. Then it is opened again, and a
/// cut undoes the erases of all its blocks except one.
#[test]
fn what_an_old_log_page_says_of_an_aborted_command_does_not_count() {
    for seed in 1..=8 {
        stale_log_pages(seed);
    }
}

fn stale_log_pages(seed: u64) {
    let geometry = Geometry::new(Shape {
        channels: 1,
        dies: 2,
        superblocks: 30,
        pages_per_block: 8,
    })
    .expect("valid");

    let config = Config {
        lpns: 120,
        log_bytes: 512,
        ..config_of(SchemeKind::FLog, PLAIN)
    };
    let mut ftl = device(geometry, &config);
    (0..config.lpns).for_each(|lpn| ftl.write(Lpn(lpn), &content(u64::from(lpn) + 1)).unwrap());
    ftl.media_mut().attach_rail();
    ftl.remap(&Remap {
        target: Lpn(0),
        source: Lpn(50),
        len: 6,
        relocate: false,
        atomic: true,
    })
    .unwrap();

    let all = ftl.media().pending();
    (ftl, _) = Ftl::recover(cut_before_the_last(&ftl, all), config.clone()).expect("recovers");

    // All erases are undone except one, or all.
    let cut = |ftl: &Ftl, kept: Option<usize>| {
        let mut erases = 0..;
        let image = ftl.media().cut_by(|kind| {
            if kind == OpKind::Erase && erases.next() != kept {
                Outcome::Absent
            } else {
                Outcome::Whole
            }
        });
        Ftl::recover(Media::from_image(&image), config.clone())
            .expect("recovers")
            .0
    };

    let mut random = Random(seed * 77 + 5);
    let mut is_dead = false;
    for step in 0..250 {
        ftl.media_mut().settle_all();
        ftl.media_mut().attach_rail();
        let (target, source) = (10 + random.below(40) as u32, 60 + random.below(60) as u32);
        let rewritten = ftl.stats().metadata_gc_runs;
        match random.below(3) {
            0 => ftl.write(Lpn(target), &content(10_000 + step)).unwrap(),
            _ => ftl
                .remap(&Remap {
                    target: Lpn(target),
                    source: Lpn(source),
                    len: 1,
                    relocate: false,
                    atomic: false,
                })
                .unwrap(),
        }
        if is_dead {
            for kept in 0..4 {
                let mut ftl = cut(&ftl, Some(kept));
                for lpn in Lpn::range(Lpn::ZERO, 6) {
                    let old = Page::Identity(u64::from(lpn) + 1);
                    assert_eq!(ftl.read(lpn), Ok(old), "seed {seed}, step {step}");
                }
            }
        } else if ftl.stats().metadata_gc_runs > rewritten {
            ftl = cut(&ftl, None);
            is_dead = true;
            assert_eq!(ftl.aborted().len(), 1, "the page with its entry is left");
        }
    }

    assert!(is_dead, "the log has been rewritten");
}

/// Every cut of a power-on that removes the witnesses of interrupted commands, and each of its
/// operations missing.
#[test]
fn the_power_on_that_removes_them_can_be_cut_anywhere() {
    let script = Script {
        tight: true,
        ..PLAIN
    };
    let mut cuts = 0;

    for scheme in durable() {
        let config = config_of(scheme, script);
        let mut ftl = device(small_geometry(), &config);
        (0..config.lpns).for_each(|lpn| ftl.write(Lpn(lpn), &content(u64::from(lpn) + 1)).unwrap());
        let before = read_all(&mut ftl);
        let (mut number, mut remembered) = (0, 0);
        while number < 60 && remembered <= PLACES / 2 {
            number += 1;
            ftl.media_mut().settle_all();
            ftl.media_mut().attach_rail();
            let target = (number * 7) % (config.lpns / 2 - 4);
            let source = config.lpns / 2 + target;
            ftl.remap(&Remap {
                target: Lpn(target),
                source: Lpn(source),
                len: 4,
                relocate: number % 2 == 0,
                atomic: true,
            })
            .unwrap();
            let mut media = cut_before_the_last(&ftl, ftl.media().pending());
            media.attach_rail();
            (ftl, _) = Ftl::recover(media, config.clone()).expect("recovers");
            remembered = ftl.aborted().len();
        }
        println!(
            "{scheme}: {remembered} are remembered, {} operations",
            ftl.media().pending()
        );
        let pending = ftl.media().pending();
        let prefixes = (0..=pending).map(|landed| landed..pending);
        for absent in prefixes.chain((0..pending).map(|missing| missing..missing + 1)) {
            let mut at = 0..;
            let image = ftl.media().cut(|| {
                if absent.contains(&at.next().expect("without end")) {
                    Outcome::Absent
                } else {
                    Outcome::Whole
                }
            });
            let at = format!("{scheme}, without {absent:?} of {pending}");
            let again = Ftl::recover(Media::from_image(&image), config.clone());
            let (mut ftl, _) = again.unwrap_or_else(|error| panic!("{at}: {error}"));
            ftl.check().unwrap_or_else(|error| panic!("{at}: {error}"));
            assert_eq!(read_all(&mut ftl), before, "{at}");
            // Removed witnesses are no longer needed.
            let (mut ftl, _) = Ftl::recover(ftl.into_media(), config.clone()).expect("recovers");
            assert!(
                ftl.aborted().len() <= PLACES / 2 && read_all(&mut ftl) == before,
                "{at}"
            );
            cuts += 1;
        }
    }
    println!("{cuts} cuts");
}
