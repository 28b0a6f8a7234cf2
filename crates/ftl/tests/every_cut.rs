//! Every command of a script, cut after each of its operations and with each of them missing.
//!
//! Commands are settled one by one, so that a cut concerns one: the campaign has many under way and draws its cuts;
//! here none is left out.

mod kit;

use kit::{Random, content, device};
use remap_ssd_ftl::{Config, EntrySize, Ftl, Guard, Guards, Refusal, Remap, SchemeKind};
use remap_ssd_media::geometry::Shape;
use remap_ssd_media::{Geometry, Media, Outcome, Page};

type Contents = Vec<Option<u64>>;

#[derive(Clone, Copy, Debug)]
enum Command {
    Write {
        lpn: u32,
        identity: u64,
    },
    WriteFor {
        lpn: u32,
        home: u32,
        identity: u64,
    },
    /// One command that writes the same to several pages.
    WriteMore {
        lpn: u32,
        len: u32,
        identity: u64,
    },
    Remap(Remap),
    Deallocate {
        lpn: u32,
        len: u32,
    },
}

/// Superblocks of five data pages: collection within nearly every command.
fn geometry() -> Geometry {
    Geometry::new(Shape { channels: 1, dies: 1, superblocks: 48, pages_per_block: 7 }).expect("valid")
}

/// As little NVRAM and as many logical pages as the scheme can work with.
fn tight(scheme: SchemeKind, entry: EntrySize, guards: Guards) -> Option<(Geometry, Config)> {
    let geometry = geometry();
    let config = Config {
        lpns: 40,
        scheme,
        entry,
        guards,
        segment_bytes: 96,
        dealloc_slots: 64,
        count_max: 4,
        gc_free: 0.0,
        ..Config::default()
    };
    let log = (1..200).map(|step| Config { log_bytes: 128 * step, ..config.clone() });
    let config = log.into_iter().find(|config| config.check(&geometry).is_ok())?;
    let config = Config { log_bytes: config.log_bytes + 256, ..config };
    let lpns = (config.lpns..230).rev().map(|lpns| Config { lpns, ..config.clone() });
    let fullest = lpns.into_iter().find(|config| config.check(&geometry).is_ok())?;
    Some((geometry, Config { lpns: fullest.lpns & !1, ..fullest }))
}

fn draw(random: &mut Random, ftl: &Ftl, identity: u64) -> Command {
    let config = ftl.config();
    let lpns = config.lpns;
    let below = |random: &mut Random, n: u32| random.below(u64::from(n)) as u32;
    let (lpn, half) = (below(random, lpns), lpns / 2);
    let len = (1 + below(random, 24)).min(lpns - lpn);
    if config.scheme.uses_hints() {
        // Pages of the upper half are written for homes in the lower, and go there.
        let home = below(random, half);
        let len = len.min(half - home);
        return match below(random, 8) {
            0..2 => Command::Remap(Remap { target: home, source: home + half, len, relocate: false, atomic: false }),
            2..5 => Command::WriteFor { lpn: home + half, home, identity },
            5 => Command::Deallocate { lpn, len: len.min(lpns - lpn) },
            _ => Command::Write { lpn, identity },
        };
    }
    match below(random, 8) {
        0..3 => {
            let target = below(random, lpns);
            let len = len.min(lpns - target);
            let atomic = config.entry == EntrySize::Bytes24 && random.below(2) == 0;
            let len = if atomic { len.min(ftl.atomic_pages_max()) } else { len };
            Command::Remap(Remap { target, source: lpn, len, relocate: random.below(3) == 0, atomic })
        }
        3 => Command::WriteMore { lpn, len, identity: if random.below(2) == 0 { identity } else { 7 } },
        4 => Command::Deallocate { lpn, len },
        _ => Command::Write { lpn, identity },
    }
}

fn execute(ftl: &mut Ftl, command: Command) -> Result<(), Refusal> {
    match command {
        Command::Write { lpn, identity } => ftl.write(lpn, &content(identity)),
        Command::WriteFor { lpn, home, identity } => ftl.write_for(lpn, &content(identity), home),
        Command::WriteMore { lpn, len, identity } => {
            (lpn..lpn + len).try_for_each(|lpn| ftl.write_more(lpn, &content(identity)))?;
            ftl.end_write();
            Ok(())
        }
        Command::Remap(remap) => ftl.remap(&remap),
        Command::Deallocate { lpn, len } => ftl.deallocate(lpn, len),
    }
}

/// What a command makes of the pages: the oracle.
fn model(command: Command, before: &Contents) -> Contents {
    let mut after = before.clone();
    match command {
        Command::Write { lpn, identity } | Command::WriteFor { lpn, identity, .. } => {
            after[lpn as usize] = Some(identity);
        }
        Command::WriteMore { lpn, len, identity } => {
            after[lpn as usize..(lpn + len) as usize].fill(Some(identity));
        }
        Command::Remap(Remap { target, source, len, relocate, .. }) => {
            let (target, source, len) = (target as usize, source as usize, len as usize);
            if relocate && target != source {
                after[source..source + len].fill(None);
            }
            after[target..target + len].copy_from_slice(&before[source..source + len]);
        }
        Command::Deallocate { lpn, len } => after[lpn as usize..(lpn + len) as usize].fill(None),
    }
    after
}

fn read_all(ftl: &mut Ftl) -> Result<Contents, String> {
    let identity = |(lpn, page)| match page {
        Ok(Page::Identity(identity)) => Ok(Some(identity)),
        Ok(_) => Ok(None),
        Err(error) => Err(format!("LPN {lpn}: {error}")),
    };
    let contents = (0..ftl.config().lpns).map(|lpn| (lpn, ftl.read(lpn))).map(identity).collect();
    ftl.media_mut().ops.clear();
    contents
}

/// Is this what a cut of the command may leave?
fn judge(command: Command, before: &Contents, after: &Contents, read: &Contents) -> Result<(), String> {
    for (lpn, read) in read.iter().enumerate() {
        if *read != before[lpn] && *read != after[lpn] {
            return Err(format!("LPN {lpn}: from {:?} to {:?}, and {read:?} is read", before[lpn], after[lpn]));
        }
    }
    let Command::Remap(Remap { target, source, len, relocate, atomic }) = command else { return Ok(()) };
    if atomic && read != before && read != after {
        return Err("a part of an atomic command".into());
    }
    // What the command writes over anyway may go before it has arrived, as when memory is moved.
    let gone = |at: &u32| {
        let (target, source) = ((target + at) as usize, (source + at) as usize);
        after[source].is_none() && read[source] != before[source] && read[target] != after[target]
    };
    match (0..len).find(gone) {
        Some(at) if relocate => Err(format!("page {at} is neither where it was nor where it was to go")),
        _ => Ok(()),
    }
}

/// How many cuts there were, or what one of them lost.
fn run((geometry, config): &(Geometry, Config), seed: u64, commands: u64) -> Result<u64, String> {
    let mut ftl = device(*geometry, config);
    let mut random = Random(seed);
    (0..config.lpns).for_each(|lpn| ftl.write(lpn, &content(u64::from(lpn) + 1000)).unwrap());
    ftl.media_mut().ops.clear();
    ftl.media_mut().attach_rail();
    let mut contents = read_all(&mut ftl)?;
    let mut cuts = 0;
    for number in 0..commands {
        let before = contents;
        let command = draw(&mut random, &ftl, 10_000 + number);
        let at = |what: String| format!("{}, seed {seed}, command {number} {command:?}: {what}", config.scheme);
        execute(&mut ftl, command).map_err(|refusal| at(refusal.to_string()))?;
        ftl.media_mut().ops.clear();
        contents = model(command, &before);
        if read_all(&mut ftl)? != contents {
            return Err(at("it does something else".into()));
        }
        let pending = ftl.media().pending();
        let prefixes = (0..pending).map(|landed| landed..pending);
        let but_one = (0..pending.saturating_sub(1)).map(|missing| missing..missing + 1);
        for absent in prefixes.chain(but_one) {
            let mut ops = 0..;
            let image = ftl.media().cut(|| {
                let op = ops.next().expect("without end");
                if absent.contains(&op) { Outcome::Absent } else { Outcome::Whole }
            });
            cuts += 1;
            let at = |what: String| at(format!("cut without {absent:?} of {pending}: {what}"));
            let recovered = Ftl::recover(Media::from_image(&image), config.clone());
            let (mut cut, _) = recovered.map_err(|error| at(error.to_string()))?;
            cut.check().map_err(at)?;
            let read = read_all(&mut cut).map_err(at)?;
            judge(command, &before, &contents, &read).map_err(at)?;
        }
        ftl.media_mut().settle_all();
    }
    Ok(cuts)
}

#[test]
fn nothing_is_lost() {
    let durable = SchemeKind::ALL.into_iter().filter(|scheme| scheme.is_durable());
    for (scheme, entry) in durable.flat_map(|scheme| [(scheme, EntrySize::Bytes16), (scheme, EntrySize::Bytes24)]) {
        let setup = tight(scheme, entry, Guards::ALL).unwrap_or_else(|| panic!("{scheme} works on no such device"));
        run(&setup, 1, 250).unwrap();
    }
    let setup = tight(SchemeKind::WalSsd, EntrySize::Bytes16, Guards::ALL).expect("it works");
    for seed in 2..=4 {
        run(&setup, seed, 700).unwrap();
    }
}

/// The campaign, which draws few of many cuts, does not find the absence of this guard.
#[test]
fn a_record_that_is_stored_too_late_is_missed() {
    let guards = Guards::without(Guard::RecordBeforeReclaim);
    let setup = tight(SchemeKind::WalSsd, EntrySize::Bytes16, guards).expect("it works");
    let end = (1..=4).try_for_each(|seed| run(&setup, seed, 2000).map(|_| ()));
    assert!(end.is_err(), "wal-ssd does as well without it");
}
