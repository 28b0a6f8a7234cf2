//! Several words of NVRAM damaged at once: adjacent pairs, lines of 64 bytes, segments, the same
//! word of two segments, any two. Then every read is correct or a media error, or recovery fails:
//! older data is never read, whatever is damaged.
//!
//! Absent: which single damaged words make recovery fail (`expected`).

use crate::every_fault::expected::first_of_scheme;
use crate::every_fault::judge::{cure, cycle, errors_of};
use crate::every_fault::{aged, copy_of};
use crate::kit::script::{Contents, durable_schemes, geometry, nearly_full, with_log};
use crate::kit::{Random, number_from};
use remap_ssd_ftl::{Config, EntrySize, Ftl, SchemeKind, SchemeValues};
use remap_ssd_media::{Geometry, Image, Media, Outcome};
use std::collections::BTreeMap;

/// Words that are damaged together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Pattern {
    Neighbours,
    Line,
    Segment,
    SameOfTwoSegments,
    AnyTwo,
}

const PATTERNS: [Pattern; 5] = [
    Pattern::Neighbours,
    Pattern::Line,
    Pattern::Segment,
    Pattern::SameOfTwoSegments,
    Pattern::AnyTwo,
];

impl Pattern {
    /// All sets of words of this kind; a sample for `AnyTwo`.
    fn sets(self, config: &Config, geometry: &Geometry, random: &mut Random) -> Vec<Vec<usize>> {
        let first = first_of_scheme(config, geometry);
        let words = config.nvram_words(geometry);
        let segment = config.segment_bytes as usize / 8;
        let segments = (first..words.saturating_sub(segment - 1)).step_by(segment);

        match self {
            Self::Neighbours => (1..words).map(|word| vec![word - 1, word]).collect(),
            Self::Line => (0..words.next_multiple_of(8))
                .step_by(8)
                .map(|word| (word..words.min(word + 8)).collect())
                .collect(),
            Self::Segment => segments.map(|at| (at..at + segment).collect()).collect(),
            Self::SameOfTwoSegments => {
                let pairs = segments
                    .clone()
                    .flat_map(|one| segments.clone().map(move |other| (one, other)));
                let pairs = pairs.filter(|(one, other)| one < other);
                pairs
                    .flat_map(|(one, other)| (0..2).map(move |word| vec![one + word, other + word]))
                    .collect()
            }
            Self::AnyTwo => {
                let mut any = || random.below(words as u64) as usize;
                (0..4 * words).map(|_| vec![any(), any()]).collect()
            }
        }
    }
}

/// A device on which most pages are remapped, with chains of several segments.
fn full_of_remaps(scheme: SchemeKind, entry: EntrySize, variant: usize) -> (Geometry, Config) {
    let geometry = geometry([(2, 26, 10), (1, 30, 12)][variant]);
    let config = Config {
        lpns: 40,
        scheme,
        entry,
        segment_bytes: [96, 128][variant],
        dealloc_slots: [24, 8][variant],
        count_max: [12, 5][variant],
        scheme_values: SchemeValues::of(SchemeKind::LocalFlash, "cache_pages", 1),
        dedup: false,
        gc_free: 0.0,
        watermark: 1.0,
        ..Config::default()
    };
    let config = with_log(&geometry, &config, [512, 2048][variant]);
    (
        geometry,
        nearly_full(&geometry, &config, 3 * geometry.pages_per_superblock()),
    )
}

fn damage(media: &mut Media, words: &[usize]) {
    media.plant(|faults| {
        for word in words {
            faults.flips.insert(*word, 0b11 << (word % 60));
        }
    });
}

#[derive(Default, Debug)]
struct SetTally {
    sets: u64,
    refused: u64,
    errors: u64,
}

/// Recovers with these words damaged, and once more; then writes all LPNs with media errors.
fn judge_set(
    (ftl, image): (&Ftl, &Image),
    contents: &Contents,
    words: &[usize],
    tally: &mut SetTally,
) -> Result<(), String> {
    let mut media = copy_of(image, ftl);
    damage(&mut media, words);
    tally.sets += 1;
    let Ok((mut found, _)) = Ftl::recover(media, ftl.config().clone()) else {
        tally.refused += 1;
        return Ok(());
    };

    let errors = errors_of(&mut found, contents)?;
    tally.errors += errors.len() as u64;
    if tally.sets.is_multiple_of(2) {
        found = cycle(found, contents, &errors)?;
    }
    cure(found, contents, &errors)
}

/// Cuts that recovery after each of its operations, and with one of them missing.
fn cut_set(
    (ftl, image): (&Ftl, &Image),
    contents: &Contents,
    words: &[usize],
) -> Result<u64, String> {
    let mut media = copy_of(image, ftl);
    damage(&mut media, words);
    media.attach_rail();
    let Ok((once, _)) = Ftl::recover(media, ftl.config().clone()) else {
        return Ok(0);
    };

    let pending = once.media().pending();
    let prefixes = (0..pending).map(|landed| landed..pending);
    let missing = (0..pending).map(|missing| missing..missing + 1);
    for absent in prefixes.chain(missing) {
        let mut ops = 0..;
        let left = once.media().cut(|| {
            if absent.contains(&ops.next().expect("without end")) {
                Outcome::Absent
            } else {
                Outcome::Whole
            }
        });

        // A rewritten word has no flipped bits any more.
        let mut media = copy_of(&left, ftl);
        let still: Vec<usize> = words
            .iter()
            .copied()
            .filter(|word| left.word(*word) == image.word(*word))
            .collect();
        damage(&mut media, &still);

        let at = |what| format!("cut without {absent:?} of {pending}: {what}");
        if let Ok((mut again, _)) = Ftl::recover(media, ftl.config().clone()) {
            errors_of(&mut again, contents).map_err(at)?;
        }
    }
    Ok(2 * pending as u64)
}

/// One set in this many, or the value of `EVERY_FAULT`: 1 means all of them.
fn stride() -> usize {
    number_from("EVERY_FAULT").unwrap_or(5)
}

/// Devices of each scheme and size of entries; `EVERY_FAULT_DEVICES` overrides it.
fn rounds() -> usize {
    number_from("EVERY_FAULT_DEVICES").unwrap_or(2)
}

fn for_all_sets(
    mut each: impl FnMut(&(Ftl, Image), &Contents, Pattern, usize, &[usize]) -> Result<(), String>,
) -> Vec<String> {
    let mut failures = Vec::new();
    for (scheme, entry) in durable_schemes() {
        for variant in 0..rounds() {
            let setup = full_of_remaps(scheme, entry, variant % 2);
            let (ftl, contents) = aged(&setup, variant as u64 + 5, 300);
            let image = ftl.media().to_image();
            let device = (ftl, image);
            let mut random = Random(variant as u64 + 99);

            for pattern in PATTERNS {
                let sets = pattern.sets(&setup.1, &setup.0, &mut random);
                let failed = sets.iter().enumerate().find_map(|(nth, words)| {
                    let end = each(&device, &contents, pattern, nth, words).err();
                    end.map(|what| {
                        format!("{scheme}, {entry:?}, {variant}, {pattern:?} {words:?}: {what}")
                    })
                });
                failures.extend(failed);
            }
        }
    }
    failures
}

#[test]
fn nothing_old_is_read_whatever_words_are_damaged_together() {
    let mut tallies: BTreeMap<(String, Pattern), SetTally> = BTreeMap::new();
    let failures = for_all_sets(|(ftl, image), contents, pattern, nth, words| {
        if !nth.is_multiple_of(stride()) {
            return Ok(());
        }
        let scheme = format!("{}, {:?}", ftl.config().scheme, ftl.config().entry);
        let tally = tallies.entry((scheme, pattern)).or_default();
        judge_set((ftl, image), contents, words, tally)
    });
    for ((scheme, pattern), tally) in tallies {
        println!("{scheme}, {pattern:?}: {tally:?}");
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_cut_while_damaged_words_are_mended_loses_nothing() {
    let mut cuts = 0;
    let failures = for_all_sets(|(ftl, image), contents, _, nth, words| {
        if nth % (20 * stride()) == 3 {
            cuts += cut_set((ftl, image), contents, words)?;
        }
        Ok(())
    });
    println!("{cuts} cuts");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(cuts > 0, "no recovery wrote anything");
}
