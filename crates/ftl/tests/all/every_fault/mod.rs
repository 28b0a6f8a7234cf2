//! Every word of NVRAM and every flash page of a device, damaged one at a time: found at power-on,
//! or planted while the device runs. Every read is then correct or a media error, a media error is
//! cured by a write, and recovery fails only where FORMAT.md permits it.
//!
//! The devices are tiny and nearly full; superblocks, segments and log pages are replaced every few
//! commands.

mod expected;
mod judge;
mod sets;

use crate::kit::script::{
    Contents, apply, draw, durable_schemes, execute, geometry, nearly_full, with_log,
};
use crate::kit::{self, Random, content, device};
use expected::{ExpectedDamage, Fault, is_unvouched};
use judge::{DamageTally, GONE, errors_of, judge};
use remap_ssd_ftl::{Config, EntrySize, Ftl, Guard, Guards, Lpn, SchemeKind, SchemeValues};
use remap_ssd_media::{Geometry, Image, Media, Oob, Outcome, Ppn, SbId};

/// Dies, superblocks, pages per block.
const SHAPES: [(u32, u32, u32); 4] = [(2, 30, 6), (1, 44, 8), (3, 24, 6), (2, 26, 9)];

/// Maximum number of pages of a command.
const LEN_MAX: u32 = 6;

fn tight(
    scheme: SchemeKind,
    entry: EntrySize,
    guards: Guards,
    variant: usize,
) -> (Geometry, Config) {
    let geometry = geometry(SHAPES[variant % SHAPES.len()]);
    let config = Config {
        lpns: 40,
        scheme,
        entry,
        guards,
        segment_bytes: [96, 144][variant % 2],
        dealloc_slots: [16, 64, 6][variant % 3],
        count_max: [4, 10][variant / 2 % 2],
        scheme_values: SchemeValues::of(SchemeKind::LocalFlash, "cache_pages", 1),
        dedup: false,
        gc_free: 0.0,
        ..Config::default()
    };

    let config = with_log(&geometry, &config, 128 * (variant as u64 + 2));

    // Some blocks fail: the device has one superblock less for their contents.
    (
        geometry,
        nearly_full(&geometry, &config, 2 * geometry.pages_per_superblock()),
    )
}

fn work(
    ftl: &mut Ftl,
    contents: &mut Contents,
    random: &mut Random,
    commands: u64,
    from: u64,
) -> Result<(), String> {
    for number in 0..commands {
        let command = draw(random, ftl, from + number, LEN_MAX);
        execute(ftl, command).map_err(|refusal| format!("{command:?}: {refusal}"))?;
        ftl.media_mut().ops.clear();
        apply(command, contents);
    }
    Ok(())
}

/// A device that has worked for a while, and its contents. Two of its blocks fail.
fn aged((geometry, config): &(Geometry, Config), seed: u64, commands: u64) -> (Ftl, Contents) {
    let mut ftl = device(*geometry, config);
    ftl.media_mut().plant(|faults| {
        if geometry.dies() > 1 {
            faults
                .program
                .insert(geometry.block(SbId(3), 3 % geometry.dies()), 2);
            faults.program.insert(geometry.block(SbId(6), 0), 3);
        }
    });

    let mut contents: Contents = (0..config.lpns)
        .map(|lpn| Some(u64::from(lpn) + 1000))
        .collect();
    (0..config.lpns).for_each(|lpn| {
        ftl.write(Lpn(lpn), &content(u64::from(lpn) + 1000))
            .unwrap()
    });
    work(&mut ftl, &mut contents, &mut Random(seed), commands, 10_000).unwrap();
    (ftl, contents)
}

/// Contents, with unreadable ones marked as gone.
fn without(ftl: &mut Ftl, contents: &Contents) -> Contents {
    let mut left = contents.clone();
    for (lpn, content) in (0..).zip(&mut left) {
        if ftl.read(Lpn(lpn)).is_err() {
            *content = Some(GONE);
        }
    }
    ftl.media_mut().ops.clear();
    left
}

fn faults_of(ftl: &Ftl, stride: usize, start: usize) -> Vec<Fault> {
    let pages = (0..ftl.media().geometry().pages())
        .map(Ppn)
        .filter(|page| ftl.media().is_readable(*page));
    let words = (0..ftl.media().nvram_words()).map(Fault::Word);
    words
        .chain(pages.map(Fault::Page))
        .skip(start % stride)
        .step_by(stride)
        .collect()
}

/// A copy of a device that is off.
fn copy_of(image: &Image, ftl: &Ftl) -> Media {
    let (mut media, faults) = (Media::from_image(image), ftl.media().faults().clone());
    media.plant(|planted| *planted = faults);
    media
}

fn run(
    setup: &(Geometry, Config),
    seed: u64,
    stride: usize,
    tally: &mut DamageTally,
) -> Result<(), String> {
    let expected = ExpectedDamage {
        geometry: setup.0,
        config: setup.1.clone(),
    };
    let (mut ftl, contents) = aged(setup, seed, 300);
    let image = ftl.media().to_image();
    let at = |when: &str, fault: Fault, what: String| {
        let (scheme, entry) = (expected.config.scheme, expected.config.entry);
        format!("{scheme}, {entry:?}, seed {seed}, {fault:?} {when}: {what}")
    };

    for fault in faults_of(&ftl, stride, seed as usize) {
        let mut media = copy_of(&image, &ftl);
        fault.plant(&mut media);
        fault.plant(ftl.media_mut());

        let left = without(&mut ftl, &contents);
        let unvouched = if let Fault::Page(page) = fault {
            is_unvouched(&ftl, page)
        } else {
            false
        };
        ftl.media_mut().plant(|planted| {
            planted.read.clear();
            planted.flips.clear();
        });
        judge((&expected, tally), media, &left, fault, unvouched)
            .map_err(|what| at("at power-on", fault, what))?;
    }

    for (nth, fault) in faults_of(&ftl, 2 * stride, seed as usize + 1)
        .into_iter()
        .enumerate()
    {
        let recovered = Ftl::recover(copy_of(&image, &ftl), expected.config.clone());
        let mut fork = recovered
            .map_err(|error| at("not yet", fault, error.to_string()))?
            .0;
        fault.plant(fork.media_mut());

        let mut left = without(&mut fork, &contents);
        let mut random = Random(seed * 1_000 + nth as u64);
        work(
            &mut fork,
            &mut left,
            &mut random,
            [5, 40, 150][nth % 3],
            100_000,
        )
        .map_err(|what| at("while powered", fault, what))?;

        let gone = (0..)
            .zip(&left)
            .filter(|(_, is)| **is == Some(GONE))
            .map(|(lpn, _)| lpn)
            .collect();
        let errors =
            errors_of(&mut fork, &left).map_err(|what| at("while powered", fault, what))?;
        if errors != gone {
            return Err(at(
                "while powered",
                fault,
                format!("{errors:?} are media errors, and {gone:?} were there"),
            ));
        }

        let unvouched = match fault {
            Fault::Page(page) => {
                fork.media().faults().read.contains(&page) && is_unvouched(&fork, page)
            }
            Fault::Word(_) => false,
        };
        let fault_left = fork.into_media();
        judge((&expected, tally), fault_left, &left, fault, unvouched)
            .map_err(|what| at("while powered, then off", fault, what))?;
    }
    Ok(())
}

/// One fault in this many, or the value of `EVERY_FAULT`: 1 means all of them.
fn stride() -> usize {
    kit::number_from("EVERY_FAULT").unwrap_or(5)
}

#[test]
fn nothing_old_is_read() {
    let mut failures = Vec::new();
    for (scheme, entry) in durable_schemes() {
        let mut tally = DamageTally::default();
        for variant in 0..SHAPES.len() {
            failures.extend(
                run(
                    &tight(scheme, entry, Guards::ALL, variant),
                    variant as u64 + 1,
                    stride(),
                    &mut tally,
                )
                .err(),
            );
        }
        println!("{scheme}, {entry:?}: {tally:?}");
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Recovery from damage, cut after each of its operations, and with each of them missing: the doubt
/// stays, or the pages that mark it are there.
fn run_cut(setup: &(Geometry, Config), seed: u64, stride: usize) -> Result<u64, String> {
    let (ftl, contents) = aged(setup, seed, 300);
    let (image, config, mut cuts) = (ftl.media().to_image(), &setup.1, 0);
    let expected = ExpectedDamage {
        geometry: setup.0,
        config: config.clone(),
    };

    for word in (seed as usize % stride..ftl.media().nvram_words()).step_by(stride) {
        let mut media = copy_of(&image, &ftl);
        Fault::Word(word).plant(&mut media);
        media.attach_rail();
        let Ok((mut once, _)) = Ftl::recover(media, config.clone()) else {
            continue;
        };
        let at = |what: String| format!("{}, seed {seed}, word {word}: {what}", config.scheme);

        let errors = errors_of(&mut once, &contents).map_err(at)?;
        let pending = once.media().pending();
        let prefixes = (0..pending).map(|landed| landed..pending);

        for absent in prefixes.chain((0..pending).map(|missing| missing..missing + 1)) {
            cuts += 1;

            let mut ops = 0..;
            let left = once.media().cut(|| {
                if absent.contains(&ops.next().expect("without end")) {
                    Outcome::Absent
                } else {
                    Outcome::Whole
                }
            });
            let mut media = copy_of(&left, &ftl);
            // A rewritten word has no flipped bits any more.
            if left.word(word) == image.word(word) {
                Fault::Word(word).plant(&mut media);
            }

            let at = |what: String| at(format!("cut without {absent:?} of {pending}: {what}"));
            // Superblocks opened by recovery may have the incarnation named by an entry with an
            // unknown owner.
            let mut again = match Ftl::recover(media, config.clone()) {
                Ok((again, _)) => again,
                Err(_)
                    if expected
                        .refuses(image.nvram_words(), Fault::Word(word), Oob::default())
                        .is_some() =>
                {
                    continue;
                }
                Err(error) => return Err(at(error.to_string())),
            };

            let found = errors_of(&mut again, &contents).map_err(at)?;
            // A page that collection has copied is another candidate for a home.
            if !found.is_subset(&errors) && !config.scheme.uses_hints() {
                let new: Vec<u32> = found.difference(&errors).copied().collect();
                return Err(at(format!("{new:?} are media errors, and were not")));
            }
        }
    }
    Ok(cuts)
}

#[test]
fn a_cut_while_damage_is_mended_loses_nothing() {
    let mut failures = Vec::new();
    for (scheme, entry) in durable_schemes() {
        for variant in 0..SHAPES.len() {
            match run_cut(
                &tight(scheme, entry, Guards::ALL, variant),
                variant as u64 + 1,
                12 * stride(),
            ) {
                Ok(cuts) => println!("{scheme}, {entry:?}: {cuts} cuts"),
                Err(failure) => failures.push(failure),
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn damage_that_is_mended_too_early_is_missed() {
    for scheme in [
        SchemeKind::RemapSsd,
        SchemeKind::NLog,
        SchemeKind::LocalFlash,
    ] {
        let setup = |variant| {
            tight(
                scheme,
                EntrySize::Bytes16,
                Guards::without(Guard::MendingWaits),
                variant,
            )
        };
        let end = (0..SHAPES.len())
            .try_for_each(|variant| run_cut(&setup(variant), variant as u64 + 1, 5).map(|_| ()));
        assert!(end.is_err(), "{scheme} does as well without it");
    }
}
