//! A cut leaves enough space to continue, however many erases it undoes.

use crate::kit::{Random, content, device, durable, fullest, small_config, small_geometry};
use remap_ssd_ftl::{Config, Ftl, Guard, Guards, Lpn, Remap, SchemeKind};
use remap_ssd_media::{Media, OpKind, Outcome, Page};

/// Writes and remaps, none of them waited for, and then a cut; repeatedly.
#[derive(Clone, Copy)]
struct Script {
    cuts: u64,
    /// Most commands before every third cut, and before the others.
    commands: [u64; 2],
    /// After one cut in this many, as much as the device holds is rewritten, and waited for.
    rewritten: u64,
}

/// The smallest number of cuts that wears the device down, and a larger one.
const SCRIPTS: [Script; 2] = [
    Script {
        cuts: 12,
        commands: [1500, 1500],
        rewritten: 1,
    },
    Script {
        cuts: 40,
        commands: [1500, 150],
        rewritten: 4,
    },
];

/// Each cut undoes every store or every erase, and everything after one, so no superblock becomes
/// dead through it. Returns the first failure.
fn run(config: &Config, script: Script, seed: u64) -> Result<(), String> {
    let mut ftl = device(small_geometry(), config);
    let mut random = Random(seed);
    let mut contents: Vec<u64> = (0..u64::from(config.lpns)).map(|lpn| lpn + 1).collect();
    for (lpn, identity) in contents.iter().enumerate() {
        ftl.write(Lpn(lpn as u32), &content(*identity)).unwrap();
    }

    let lpns = contents.len() as u64;
    let mut next = 10_000;
    for cut in 0..script.cuts {
        let at = |what: &dyn std::fmt::Display| {
            format!("{:?}, seed {seed}, cut {cut}: {what}", config.scheme)
        };
        ftl.media_mut().ops.clear();
        ftl.media_mut().attach_rail();
        let (before, first) = (contents.clone(), next);
        for _ in 0..random.below(script.commands[usize::from(cut % 3 != 0)]) {
            let lpn = random.below(lpns) as u32;
            next += 1;
            ftl.write(Lpn(lpn), &content(next))
                .map_err(|refusal| at(&refusal))?;
            contents[lpn as usize] = next;
            if random.below(4) == 0 {
                let target = random.below(lpns) as u32;
                let remap = Remap {
                    target: Lpn(target),
                    source: Lpn(lpn),
                    len: 1,
                    relocate: false,
                    atomic: false,
                };
                ftl.remap(&remap).map_err(|refusal| at(&refusal))?;
                contents[target as usize] = next;
            }
        }
        let undone = if cut % 2 == 0 {
            OpKind::NvWrite
        } else {
            OpKind::Erase
        };
        let image = ftl.media().cut_by(|kind| {
            if kind == undone {
                Outcome::Absent
            } else {
                Outcome::Whole
            }
        });
        ftl = Ftl::recover(Media::from_image(&image), config.clone())
            .map_err(|error| at(&error))?
            .0;
        ftl.check().map_err(|error| at(&error))?;
        for lpn in 0..lpns as u32 {
            let Ok(Page::Identity(read)) = ftl.read(Lpn(lpn)) else {
                return Err(at(&format!("LPN {lpn} is lost")));
            };
            if read != before[lpn as usize] && read <= first {
                return Err(at(&format!("LPN {lpn} reads {read}")));
            }
            contents[lpn as usize] = read;
        }
        let steps = if random.below(script.rewritten) == 0 {
            lpns
        } else {
            0
        };
        for _ in 0..steps {
            let lpn = random.below(lpns) as u32;
            next += 1;
            ftl.write(Lpn(lpn), &content(next))
                .map_err(|refusal| at(&refusal))?;
            contents[lpn as usize] = next;
        }
    }
    Ok(())
}

fn run_all(config: &Config, seeds: u64) -> Result<(), String> {
    let configs = [config.clone(), fullest(&small_geometry(), config)];
    for (config, script) in configs
        .iter()
        .flat_map(|config| SCRIPTS.map(|script| (config, script)))
    {
        (1..=seeds).try_for_each(|seed| run(config, script, seed))?;
    }
    Ok(())
}

#[test]
fn a_cut_that_undoes_every_erase_leaves_room_to_go_on() {
    for scheme in durable() {
        run_all(
            &Config {
                dedup: false,
                ..small_config(scheme)
            },
            4,
        )
        .unwrap();
    }
}

#[test]
fn without_the_wait_it_does_not() {
    for scheme in [
        SchemeKind::RemapSsd,
        SchemeKind::NLog,
        SchemeKind::RemapSsdX,
    ] {
        let guards = Guards::without(Guard::ReserveStaysFree);
        let end = run_all(
            &Config {
                dedup: false,
                guards,
                ..small_config(scheme)
            },
            20,
        );
        assert!(end.is_err(), "{scheme:?} gets stuck");
    }
}
