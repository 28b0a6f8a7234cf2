//! Every word of NVRAM and every flash page of a device, damaged one at a time: found at power-on,
//! or planted while the device goes on. What is read then is right or a media error, what is a
//! media error is cured by a write, and recovery is refused only where FORMAT.md says so.
//!
//! The devices are tiny and nearly full; superblocks, segments and log pages come and go within a
//! few commands.

mod kit;

use kit::script::{
    Contents, apply, draw, durable_schemes, execute, geometry, nearly_full, with_log,
};
use kit::{Random, content, device};
use remap_ssd_ftl::{
    Config, EntrySize, Ftl, Guard, Guards, Lpn, SchemeKind, SchemeValues, Stream, SuperblockState,
};
use remap_ssd_media::{Geometry, Image, Media, Oob, Outcome, Page, Ppn, SbId};
use std::collections::{BTreeMap, BTreeSet};

/// Stands for a content that was on a page when that page became unreadable.
const GONE: u64 = u64::MAX;

/// Dies, superblocks, pages per block.
const SHAPES: [(u32, u32, u32); 4] = [(2, 30, 6), (1, 44, 8), (3, 24, 6), (2, 26, 9)];

/// Pages of a command, at most.
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
    // Some blocks fail: a superblock fewer is left for what they held.
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

/// A device that has worked for a while, and what it holds. Two of its blocks fail.
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

/// What is read of each LPN that is not right: a media error, or something else.
struct Look {
    errors: BTreeSet<u32>,
    wrong: BTreeMap<u32, Option<u64>>,
}

fn look(ftl: &mut Ftl, contents: &Contents) -> Result<Look, String> {
    ftl.check()?;
    let mut found = Look {
        errors: BTreeSet::new(),
        wrong: BTreeMap::new(),
    };
    for (lpn, expected) in (0..).zip(contents) {
        let read = match ftl.read(Lpn(lpn)) {
            Ok(Page::Identity(identity)) => Some(identity),
            Ok(_) => None,
            Err(_) => {
                found.errors.insert(lpn);
                continue;
            }
        };
        if read != *expected {
            found.wrong.insert(lpn, read);
        }
    }
    ftl.media_mut().ops.clear();
    Ok(found)
}

/// The same, if nothing is wrong.
fn errors_of(ftl: &mut Ftl, contents: &Contents) -> Result<BTreeSet<u32>, String> {
    let found = look(ftl, contents)?;
    match found.wrong.first_key_value() {
        None => Ok(found.errors),
        Some((lpn, read)) => Err(format!(
            "LPN {lpn} reads {read:?} and not {:?}",
            contents[*lpn as usize]
        )),
    }
}

/// Without being written, LPNs in doubt stay so, and no others become so.
fn cycle(ftl: Ftl, contents: &Contents, errors: &BTreeSet<u32>) -> Result<Ftl, String> {
    let config = ftl.config().clone();
    let (mut ftl, _) = Ftl::recover(ftl.into_media(), config)
        .map_err(|error| format!("next power-on: {error}"))?;
    let found = errors_of(&mut ftl, contents).map_err(|what| format!("next power-on: {what}"))?;
    if found == *errors {
        Ok(ftl)
    } else {
        Err(format!(
            "next power-on: {found:?} are media errors, and {errors:?} were"
        ))
    }
}

/// Writes the LPNs that read as media errors: no power cycle brings the errors back, nor older
/// data.
fn cure(mut ftl: Ftl, contents: &Contents, errors: &BTreeSet<u32>) -> Result<(), String> {
    let (mut contents, config) = (contents.clone(), ftl.config().clone());
    for &lpn in errors {
        let identity = 900_000 + u64::from(lpn);
        ftl.write(Lpn(lpn), &content(identity))
            .map_err(|refusal| refusal.to_string())?;
        contents[lpn as usize] = Some(identity);
    }
    for cycle in 1..=2 {
        let recovered = Ftl::recover(ftl.into_media(), config.clone());
        ftl = recovered
            .map_err(|error| format!("cycle {cycle}: {error}"))?
            .0;
        let left =
            errors_of(&mut ftl, &contents).map_err(|what| format!("cycle {cycle}: {what}"))?;
        if !left.is_empty() {
            return Err(format!("cycle {cycle}: {left:?} had been written"));
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Word(usize),
    Page(Ppn),
}

impl Fault {
    fn plant(self, media: &mut Media) {
        media.plant(|faults| {
            match self {
                Self::Word(word) => faults.flips.insert(word, 0b11 << (word % 60)).is_none(),
                Self::Page(page) => faults.read.insert(page),
            };
        });
    }
}

/// What FORMAT.md says of damage.
struct Table {
    config: Config,
    geometry: Geometry,
}

impl Table {
    /// Why a fault may refuse recovery, if it may.
    fn refuses(&self, ftl_words: usize, fault: Fault, oob: Oob) -> Option<&'static str> {
        let config = &self.config;
        let word = match fault {
            Fault::Page(_) => {
                return (Lpn(config.lpns)..Lpn(1 << 31))
                    .contains(&oob.lpn())
                    .then_some("a bitmap");
            }
            Fault::Word(word) => word,
        };

        let aborted = self.geometry.superblocks() as usize * 3 + 1;
        let dealloc = aborted + 64;
        let scheme = (dealloc + 4 * config.dealloc_slots as usize).next_multiple_of(8);

        if word + 1 == aborted {
            return (config.entry == EntrySize::Bytes24).then_some("the slot of atomic commands");
        }
        if word < aborted {
            return None;
        }
        if word < dealloc {
            return None;
        }
        if word < scheme {
            return ((word - dealloc) % 2 == 1).then_some("which LPNs were deallocated");
        }

        let (at, is_second) = (word - scheme, (word - scheme) % 2 == 1);
        let in_segment = at % (config.segment_bytes as usize / 8);
        match config.scheme {
            SchemeKind::RemapSsd | SchemeKind::RemapSsdLh if config.entry == EntrySize::Bytes24 => {
                None
            }
            SchemeKind::RemapSsd | SchemeKind::RemapSsdLh | SchemeKind::RemapSsdX => {
                (is_second && in_segment > 1).then_some("the LPN of an entry")
            }
            SchemeKind::NLog | SchemeKind::FLog | SchemeKind::LocalFlash => {
                is_second.then_some("the LPN of an entry")
            }
            SchemeKind::Pebble => (at >= self.geometry.superblocks() as usize).then_some("a slot"),
            SchemeKind::ShadowOob => {
                let slots = config.log_bytes as usize / 16 * 2;
                let first = ftl_words - scheme - slots;
                let in_slots = at.checked_sub(first);
                in_slots.map_or(Some("where DRAM is saved"), |at| {
                    (at % 2 == 1).then_some("the LPN of an entry")
                })
            }
            _ => None,
        }
    }

    /// LPNs that one damaged word may leave in doubt.
    fn doubt_max(&self, word: usize) -> usize {
        let lives = self.geometry.superblocks() as usize * 3;
        let slots = self.config.segment_bytes as usize / 16;
        match word {
            word if word < lives => 0,
            // Every home that a page waits for may be the one.
            _ if self.config.scheme == SchemeKind::WalSsd => self.config.lpns as usize / 2,
            // The pages of an atomic command, or of a deallocation, or of an extent; the entries of
            // a segment or a room.
            _ => 8
                .max(slots)
                .max(self.geometry.pages_per_superblock() as usize * 2),
        }
    }
}

/// Pages of which nothing but themselves tells what they held: they may have been torn by a cut, as
/// far as anyone can tell. They are in superblocks that are being filled, or that were closed
/// without a tail.
fn is_unvouched(ftl: &Ftl, page: Ppn) -> bool {
    let geometry = ftl.media().geometry();
    let sb_id = geometry.superblock(page);
    let sb = ftl
        .superblocks()
        .find(|(id, _)| *id == sb_id)
        .expect("there")
        .1;
    let is_present = |page: &Ppn| {
        ftl.media().is_programmed(*page)
            && ftl.media().oob(*page).incarnation() == sb.life.incarnation() & 63
    };
    let oob = ftl.media().oob(page);
    let is_metadata = [Oob::HEAD, Oob::TAIL, Oob::PARITY].contains(&oob.lpn());
    if is_metadata || !matches!(sb.state, SuperblockState::Open | SuperblockState::Closed) {
        return false;
    }
    let kind = if sb.stream == Stream::Log {
        Oob::PARITY
    } else {
        Oob::TAIL
    };
    let pages = (0..geometry.pages_per_superblock()).map(|offset| geometry.page(sb_id, offset));
    !pages
        .filter(is_present)
        .any(|page| ftl.media().oob(page).lpn() == kind)
}

#[derive(Default, Debug)]
struct Tally {
    faults: u64,
    errors: u64,
    /// Pages that nothing vouches for, and LPNs that read older data for want of them.
    unvouched: u64,
    older: u64,
    refused: BTreeMap<&'static str, u64>,
}

/// Recovers with a fault, or finds a reason why that may be refused.
fn judge(
    (table, tally): (&Table, &mut Tally),
    media: Media,
    contents: &Contents,
    fault: Fault,
    unvouched: bool,
) -> Result<(), String> {
    tally.faults += 1;
    let oob = if let Fault::Page(page) = fault {
        media.oob(page)
    } else {
        Oob::default()
    };
    let gone: BTreeSet<u32> = (0..)
        .zip(contents)
        .filter(|(_, is)| **is == Some(GONE))
        .map(|(lpn, _)| lpn)
        .collect();
    let words = media.nvram_words();
    let mut ftl = match Ftl::recover(media, table.config.clone()) {
        Ok((ftl, _)) => ftl,
        Err(error) => {
            let reason = table
                .refuses(words, fault, oob)
                .ok_or(format!("refused: {error}"))?;
            *tally.refused.entry(reason).or_default() += 1;
            return Ok(());
        }
    };

    if unvouched {
        let found = look(&mut ftl, contents)?;
        tally.unvouched += 1;
        tally.older += found.wrong.len() as u64;
        let is_its = |lpn: u32| match oob.lpn() {
            Oob::LOG => true,
            own if own >= Lpn(table.config.lpns) => contents[lpn as usize].is_none(),
            own => {
                own == Lpn(lpn)
                    || oob.second().lpn() == Some(Lpn(lpn))
                    || contents[lpn as usize] == Some(GONE)
            }
        };
        return match found.wrong.keys().find(|lpn| !is_its(**lpn)) {
            Some(lpn) => Err(format!("LPN {lpn} is not right, and the page was {oob:?}")),
            None => Ok(()),
        };
    }

    let errors = errors_of(&mut ftl, contents)?;
    tally.errors += errors.len() as u64;
    match fault {
        Fault::Word(word) if errors.len() > table.doubt_max(word) => {
            return Err(format!(
                "{} LPNs are media errors: {errors:?}",
                errors.len()
            ));
        }
        Fault::Page(_) if errors != gone => {
            return Err(format!(
                "{errors:?} are media errors, and {gone:?} were there"
            ));
        }
        _ => {}
    }

    if tally.faults.is_multiple_of(2) {
        ftl = cycle(ftl, contents, &errors)?;
    }
    cure(ftl, contents, &errors)
}

/// Contents, with what a page holds marked as gone.
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
    tally: &mut Tally,
) -> Result<(), String> {
    let table = Table {
        geometry: setup.0,
        config: setup.1.clone(),
    };
    let (mut ftl, contents) = aged(setup, seed, 300);
    let image = ftl.media().to_image();
    let at = |when: &str, fault: Fault, what: String| {
        let (scheme, entry) = (table.config.scheme, table.config.entry);
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
        judge((&table, tally), media, &left, fault, unvouched)
            .map_err(|what| at("at power-on", fault, what))?;
    }

    for (nth, fault) in faults_of(&ftl, 2 * stride, seed as usize + 1)
        .into_iter()
        .enumerate()
    {
        let recovered = Ftl::recover(copy_of(&image, &ftl), table.config.clone());
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
        judge((&table, tally), fault_left, &left, fault, unvouched)
            .map_err(|what| at("while powered, then off", fault, what))?;
    }
    Ok(())
}

/// One fault in so many, or in as many as `EVERY_FAULT` says: 1 is all of them.
#[expect(
    clippy::disallowed_methods,
    reason = "how long a test runs is not what it tests"
)]
fn stride() -> usize {
    std::env::var("EVERY_FAULT")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(5)
}

#[test]
fn nothing_old_is_read() {
    let mut failures = Vec::new();
    for (scheme, entry) in durable_schemes() {
        let mut tally = Tally::default();
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

/// What recovers from damage is cut after each of its operations, and with each of them missing:
/// the doubt stays, or the pages that say so are there.
fn run_cut(setup: &(Geometry, Config), seed: u64, stride: usize) -> Result<u64, String> {
    let (ftl, contents) = aged(setup, seed, 300);
    let (image, config, mut cuts) = (ftl.media().to_image(), &setup.1, 0);
    let table = Table {
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
            // A word that was stored anew has no flipped bits any more.
            if left.word(word) == image.word(word) {
                Fault::Word(word).plant(&mut media);
            }

            let at = |what: String| at(format!("cut without {absent:?} of {pending}: {what}"));
            // Superblocks that recovery has opened may have the incarnation that an entry of nobody
            // knows whom names.
            let mut again = match Ftl::recover(media, config.clone()) {
                Ok((again, _)) => again,
                Err(_)
                    if table
                        .refuses(image.nvram_words(), Fault::Word(word), Oob::default())
                        .is_some() =>
                {
                    continue;
                }
                Err(error) => return Err(at(error.to_string())),
            };

            let found = errors_of(&mut again, &contents).map_err(at)?;
            // A page that collection has copied meanwhile is one more that a home may have come to.
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
