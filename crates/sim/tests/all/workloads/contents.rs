//! Contents of pages: ranks have the frequencies of their law, and duplicates their expected shares.

use super::{config, papers, take};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_sim::source::{HostLpn, HostPage, PageKind};
use remap_ssd_sim::workload::{ContentModel, Endless, Workload, WorkloadConfig, Zipf};
use std::collections::{HashMap, HashSet};

/// Deviation of the counts of `bins` from `rank^-exponent`, in standard deviations of the
/// chi-square statistic. Bins are given by their first ranks.
fn chi_square_deviation(count: u64, exponent: f64, draws: u64, firsts: &[u64], seed: u64) -> f64 {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let ranks = Zipf::new(count, exponent).unwrap();
    let bin_of = |rank: u64| firsts.partition_point(|&first| first <= rank) - 1;
    let mut seen = vec![0u64; firsts.len()];
    for _ in 0..draws {
        let rank = ranks.draw(&mut rng);
        assert!((1..=count).contains(&rank));
        seen[bin_of(rank)] += 1;
    }
    let mut expected = vec![0.0; firsts.len()];
    for rank in (1..=count).rev() {
        expected[bin_of(rank)] += (rank as f64).powf(-exponent);
    }
    let scale = draws as f64 / expected.iter().sum::<f64>();
    let mut statistic = 0.0;
    for (seen, expected) in seen.iter().zip(&expected) {
        let expected = expected * scale;
        assert!(
            expected > 10.0,
            "a bin of {expected} draws is too small for the statistic"
        );
        statistic += (*seen as f64 - expected).powi(2) / expected;
    }
    let freedom = (firsts.len() - 1) as f64;
    (statistic - freedom) / (2.0 * freedom).sqrt()
}

#[test]
fn ranks_of_a_few_have_their_exact_frequencies_at_any_exponent() {
    // 300 ranks are single ones, then steps of two, four and eight, the last one cut short.
    let firsts: Vec<u64> = (1..=300).collect();
    for exponent in [0.0, 0.2, 0.5, 0.99, 1.0, 1.2] {
        let deviation = chi_square_deviation(300, exponent, 4_000_000, &firsts, 7);
        assert!(
            deviation.abs() < 5.0,
            "exponent {exponent}: {deviation} deviations"
        );
    }
}

#[test]
fn the_papers_contents_have_the_frequencies_of_i_to_the_minus_0_2() {
    const CONTENTS: u64 = 90_000;
    // The first 400 each, then bins of growing width to the end.
    let mut firsts: Vec<u64> = (1..=400).collect();
    while let Some(next) = firsts
        .last()
        .map(|last| last + last / 50)
        .filter(|&n| n <= CONTENTS)
    {
        firsts.push(next);
    }
    firsts.pop();
    let deviation = chi_square_deviation(CONTENTS, 0.2, 10_000_000, &firsts, 11);
    assert!(deviation.abs() < 5.0, "{deviation} deviations");
}

#[test]
fn one_rank_and_the_largest_count_of_ranks_are_possible() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let one = Zipf::new(1, 0.99).unwrap();
    assert!((0..100).all(|_| one.draw(&mut rng) == 1));
    for count in [u32::MAX.into(), 1 << 34, 1 << 35] {
        let most = Zipf::new(count, 0.0).unwrap();
        let above_half = (0..10_000)
            .filter(|_| most.draw(&mut rng) > count / 2)
            .count();
        assert!((4_800..5_200).contains(&above_half), "{count}");
    }
    for wrong in [
        Zipf::new(0, 1.0),
        Zipf::new((1 << 35) + 1, 0.5),
        Zipf::new(9, -0.1),
        Zipf::new(9, f64::NAN),
        Zipf::new(9, 99.0),
    ] {
        assert!(wrong.is_err());
    }
}

/// Share of writes whose content is stored in some page at that moment, with the device in steady
/// state.
fn hits_in_steady_state(content: ContentModel) -> f64 {
    const PAGES: u64 = 50_000;
    let mut workload = Workload::new(config("randwrite", content, PAGES)).unwrap();
    let mut present = vec![0u64; PAGES as usize];
    let mut holders: HashMap<u64, u32> = HashMap::new();
    let mut write = |page: HostPage| {
        let hit = holders.get(&page.content).is_some_and(|&count| count > 0);
        let old = std::mem::replace(&mut present[page.lpn.index()], page.content);
        if old != 0 {
            *holders.get_mut(&old).unwrap() -= 1;
        }
        *holders.entry(page.content).or_default() += 1;
        hit
    };
    for page in take(&mut workload, 20 * PAGES as usize) {
        write(page);
    }
    let measured = take(&mut workload, 20 * PAGES as usize);
    let hits = measured.iter().filter(|page| write(**page)).count();
    hits as f64 / measured.len() as f64
}

#[test]
fn the_papers_10_percent_hit_67_7_percent_and_their_30_percent_hit_76_3() {
    let (ten, thirty) = (
        hits_in_steady_state(papers(0.1)),
        hits_in_steady_state(papers(0.3)),
    );
    assert!((ten - 0.677).abs() < 0.003, "{ten}");
    assert!((thirty - 0.763).abs() < 0.003, "{thirty}");
}

#[test]
fn papers_contents_come_from_exactly_the_stated_number() {
    let mut workload = Workload::new(config("seqwrite", papers(0.3), 1000)).unwrap();
    let contents: HashSet<u64> = take(&mut workload, 100_000)
        .iter()
        .map(|page| page.content)
        .collect();
    assert_eq!(contents, (1..=700).collect());
    assert_eq!(workload.content_end(), 701);
}

#[test]
fn a_repeating_share_of_writes_has_the_content_of_the_write_before() {
    let content: ContentModel = "repeat:0.3".parse().unwrap();
    let mut workload = Workload::new(config("randwrite", content, 10_000)).unwrap();
    let pages = take(&mut workload, 100_000);
    let repeated = pages
        .windows(2)
        .filter(|pair| pair[0].content == pair[1].content)
        .count();
    assert!((29_000..31_000).contains(&repeated), "{repeated}");
    let contents: HashSet<u64> = pages.iter().map(|page| page.content).collect();
    assert_eq!(contents.len(), pages.len() - repeated, "and no other");
}

#[test]
fn a_plain_share_of_writes_repeats_a_content_that_some_page_holds() {
    for duplicate_share in [0.0, 0.25, 0.9] {
        let content = ContentModel::Plain { duplicate_share };
        const WRITES: usize = 400_000;
        let mut workload = Workload::new(config("randwrite", content, 10_000)).unwrap();
        let mut present: HashMap<HostLpn, u64> = HashMap::new();
        let mut seen = HashSet::new();
        let mut repeated = 0;
        let mut checked = 0;
        for page in take(&mut workload, WRITES) {
            if !seen.insert(page.content) {
                repeated += 1;
                // Occasionally checks the whole device.
                if repeated % 1000 == 0 {
                    checked += 1;
                    assert!(present.values().any(|&content| content == page.content));
                }
            }
            present.insert(page.lpn, page.content);
        }
        let share = f64::from(repeated) / WRITES as f64;
        let deviation = (duplicate_share * (1.0 - duplicate_share) / WRITES as f64).sqrt();
        let bound = 5.0 * deviation + 2.0 / WRITES as f64;
        assert!(
            (share - duplicate_share).abs() <= bound,
            "{share} for {duplicate_share}"
        );
        assert_eq!(checked > 0, duplicate_share > 0.0);
    }
}

#[test]
fn runs_repeat_what_a_stretch_of_pages_holds() {
    let content = ContentModel::Runs {
        duplicate_share: 0.4,
        pages: 64,
    };
    const RUNS: usize = 5_000;
    let mut workload = Workload::new(config("seqwrite", content, 64 * 100)).unwrap();
    let mut present: Vec<u64> = vec![0; 64 * 100];
    let (mut seen, mut repeated) = (HashSet::new(), 0);
    let pages = take(&mut workload, RUNS * 64);
    for run in pages.chunks(64) {
        if seen.insert(run[0].content) {
            assert!(
                run[1..].iter().all(|page| seen.insert(page.content)),
                "a new run is new throughout"
            );
        } else {
            repeated += 1;
            let at = present
                .iter()
                .position(|content| *content == run[0].content)
                .unwrap();
            assert!(at.is_multiple_of(64));
            for (step, page) in run.iter().enumerate() {
                assert_eq!(page.content, present[at + step]);
            }
        }
        run.iter()
            .for_each(|page| present[page.lpn.index()] = page.content);
    }
    let share = f64::from(repeated) / RUNS as f64;
    assert!(
        (share - 0.4).abs() < 0.04,
        "{share}: runs of pages not yet written are new"
    );
    // Where the addresses are not consecutive, each page is a separate run.
    let mut workload = Workload::new(config("randwrite", content, 10_000)).unwrap();
    let contents = take(&mut workload, 100_000);
    let new: HashSet<u64> = contents.iter().map(|page| page.content).collect();
    let share = 1.0 - new.len() as f64 / contents.len() as f64;
    assert!(
        (share - 0.36).abs() < 0.02,
        "{share}: in the first tenth of the writes most pages hold nothing yet"
    );
}

#[test]
fn unique_contents_never_repeat_and_lie_above_the_base() {
    let base = WorkloadConfig {
        content_base: 1 << 40,
        ..config("zipf:0.99", ContentModel::Unique, 100)
    };
    let mut workload = Workload::new(base).unwrap();
    let contents: Vec<u64> = take(&mut workload, 10_000)
        .iter()
        .map(|page| page.content)
        .collect();
    assert!(
        contents
            .iter()
            .copied()
            .eq((1 << 40) + 1..=(1 << 40) + 10_000)
    );
    assert_eq!(workload.content_end(), (1 << 40) + 10_001);
}

#[test]
fn the_content_model_does_not_change_the_addresses() {
    let addresses = |content| -> Vec<(HostLpn, PageKind)> {
        let mut workload = Workload::new(config("zipfrw:0.8:30", content, 5000)).unwrap();
        take(&mut workload, 5000)
            .iter()
            .map(|page| (page.lpn, page.kind))
            .collect()
    };
    let unique = addresses(ContentModel::Unique);
    assert_eq!(addresses(papers(0.1)), unique);
    assert_eq!(
        addresses(ContentModel::Plain {
            duplicate_share: 0.5
        }),
        unique
    );
    assert_eq!(
        addresses(ContentModel::Runs {
            duplicate_share: 0.5,
            pages: 8
        }),
        unique
    );
}
