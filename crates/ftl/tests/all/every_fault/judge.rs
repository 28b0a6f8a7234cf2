//! The verdict on a device with a fault: every read is correct, or a permitted media error.
//!
//! Invariants: no older data is read, unless a page without another record is missing; the same
//! LPNs are media errors after each power cycle, and never one that has been written.

use crate::every_fault::expected::{ExpectedDamage, Fault};
use crate::kit::content;
use crate::kit::script::Contents;
use remap_ssd_ftl::{Ftl, Lpn};
use remap_ssd_media::{Media, Oob, Page};
use std::collections::{BTreeMap, BTreeSet};

/// Stands for a content that was on a page when that page became unreadable.
pub const GONE: u64 = u64::MAX;

/// The LPNs that do not read correctly: media errors, and wrong contents.
struct Readback {
    errors: BTreeSet<u32>,
    wrong: BTreeMap<u32, Option<u64>>,
}

fn read_back(ftl: &mut Ftl, contents: &Contents) -> Result<Readback, String> {
    ftl.check().map_err(|wrong| wrong.to_string())?;
    let mut found = Readback {
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

/// The media errors, if nothing is wrong.
pub fn errors_of(ftl: &mut Ftl, contents: &Contents) -> Result<BTreeSet<u32>, String> {
    let found = read_back(ftl, contents)?;
    match found.wrong.first_key_value() {
        None => Ok(found.errors),
        Some((lpn, read)) => Err(format!(
            "LPN {lpn} reads {read:?} and not {:?}",
            contents[*lpn as usize]
        )),
    }
}

/// Without writes, LPNs in doubt stay so, and no others become so.
pub fn cycle(ftl: Ftl, contents: &Contents, errors: &BTreeSet<u32>) -> Result<Ftl, String> {
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

/// Writes the LPNs that read as media errors: no power cycle may bring back the errors or older
/// data.
pub fn cure(mut ftl: Ftl, contents: &Contents, errors: &BTreeSet<u32>) -> Result<(), String> {
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

#[derive(Default, Debug)]
pub struct DamageTally {
    pub faults: u64,
    pub errors: u64,
    /// Pages without another record, and LPNs that read older data because of them.
    pub unvouched: u64,
    pub older: u64,
    pub refused: BTreeMap<&'static str, u64>,
}

/// Recovers with a fault, or finds a reason why recovery may fail.
pub fn judge(
    (expected, tally): (&ExpectedDamage, &mut DamageTally),
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
    let mut ftl = match Ftl::recover(media, expected.config.clone()) {
        Ok((ftl, _)) => ftl,
        Err(error) => {
            let reason = expected
                .refuses(words, fault, oob)
                .ok_or(format!("refused: {error}"))?;
            *tally.refused.entry(reason).or_default() += 1;
            return Ok(());
        }
    };

    if unvouched {
        let found = read_back(&mut ftl, contents)?;
        tally.unvouched += 1;
        tally.older += found.wrong.len() as u64;
        let is_its = |lpn: u32| match oob.lpn() {
            Oob::LOG => true,
            own if own >= Lpn(expected.config.lpns) => contents[lpn as usize].is_none(),
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
        Fault::Word(word) if errors.len() > expected.doubt_max(word) => {
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
