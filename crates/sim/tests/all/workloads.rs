//! Synthetic workloads: draws have the distribution of their name, duplicates have the expected
//! shares, the same seed gives the same stream, and everything stays in range.
//!
//! Statistics are checked over many draws from fixed seeds, against bounds of four to five standard
//! deviations: a wrong distribution fails by far more, a right one always passes.

use remap_ssd_sim::source::Lpn;
use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_sim::source::{HostPage, PageKind, Source};
use remap_ssd_sim::workload::{
    ContentModel, Copies, Endless, Pattern, Workload, WorkloadConfig, WorkloadSpec, Zipf,
};

fn config(spec: &str, content: ContentModel, addressable: u32) -> WorkloadConfig {
    spec.parse::<WorkloadSpec>()
        .unwrap()
        .config(content, addressable, 42)
}

fn take(workload: &mut Workload, pages: usize) -> Vec<HostPage> {
    let mut out = Vec::new();
    assert!(workload.fill(&mut out, pages).unwrap());
    out
}

fn papers(duplicate_ratio: f64) -> ContentModel {
    ContentModel::Papers {
        duplicate_ratio,
        exponent: ContentModel::PAPERS_EXPONENT,
    }
}

// ---- zipf ----

/// Deviation of the counts of `bins` from `rank^-exponent`, in standard deviations of the
/// chi-square statistic. Bins are given by their first ranks.
fn chi_square_deviation(count: u32, exponent: f64, draws: u64, firsts: &[u32], seed: u64) -> f64 {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let ranks = Zipf::new(count, exponent).unwrap();
    let bin_of = |rank: u32| firsts.partition_point(|&first| first <= rank) - 1;
    let mut seen = vec![0u64; firsts.len()];
    for _ in 0..draws {
        let rank = ranks.draw(&mut rng);
        assert!((1..=count).contains(&rank));
        seen[bin_of(rank)] += 1;
    }
    let mut expected = vec![0.0; firsts.len()];
    for rank in (1..=count).rev() {
        expected[bin_of(rank)] += f64::from(rank).powf(-exponent);
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
    let firsts: Vec<u32> = (1..=300).collect();
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
    const CONTENTS: u32 = 90_000;
    // The first 400 each, then bins of growing width to the end.
    let mut firsts: Vec<u32> = (1..=400).collect();
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
    let most = Zipf::new(u32::MAX, 0.0).unwrap();
    let above_half = (0..10_000)
        .filter(|_| most.draw(&mut rng) > u32::MAX / 2)
        .count();
    assert!((4_800..5_200).contains(&above_half));
    for wrong in [
        Zipf::new(0, 1.0),
        Zipf::new(9, -0.1),
        Zipf::new(9, f64::NAN),
        Zipf::new(9, 99.0),
    ] {
        assert!(wrong.is_err());
    }
}

// ---- contents ----

/// Share of writes whose content is stored in some page at that moment, with the device in steady
/// state.
fn hits_in_steady_state(content: ContentModel) -> f64 {
    const PAGES: u32 = 50_000;
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
        let mut present: HashMap<Lpn, u64> = HashMap::new();
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
    let addresses = |content| -> Vec<(Lpn, PageKind)> {
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

// ---- addresses ----

#[test]
fn sequential_requests_wrap_around_and_the_last_one_is_shorter() {
    let mut workload = Workload::new(config("seqwrite,pages=4", ContentModel::Unique, 10)).unwrap();
    let pages = take(&mut workload, 20);
    let lpns: Vec<u32> = pages.iter().map(|page| page.lpn.0).collect();
    assert_eq!(lpns, (0..10).chain(0..10).collect::<Vec<u32>>());
    let ends: Vec<u32> = pages
        .iter()
        .filter(|page| page.last)
        .map(|page| page.lpn.0)
        .collect();
    assert_eq!(ends, [3, 7, 9, 3, 7, 9]);
}

#[test]
fn hot_pages_receive_their_share_and_lie_among_the_others() {
    let mut workload = Workload::new(config("hot:20:80", ContentModel::Unique, 1000)).unwrap();
    let mut writes = vec![0u32; 1000];
    for page in take(&mut workload, 200_000) {
        writes[page.lpn.index()] += 1;
    }
    // 800 writes of a hot page, 50 of a cold one.
    let is_hot: Vec<bool> = writes.iter().map(|&count| count > 400).collect();
    assert_eq!(is_hot.iter().filter(|hot| **hot).count(), 200);
    let of_hot: u32 = writes.iter().filter(|&&count| count > 400).sum();
    assert!((of_hot.abs_diff(160_000)) < 1000, "{of_hot}");
    assert!(writes.iter().all(|&count| count > 10));
    // Hot pages are scattered: any tenth of the pages holds about as many of them as any other.
    for tenth in is_hot.chunks(100) {
        let hot = tenth.iter().filter(|hot| **hot).count();
        assert!((15..=25).contains(&hot), "{hot}");
    }
}

#[test]
fn zipf_ranks_reach_every_page_and_hot_ones_are_not_neighbours() {
    for addressable in [1u32, 2, 3, 10, 1000, 4096] {
        let mut workload =
            Workload::new(config("zipf:0.5", ContentModel::Unique, addressable)).unwrap();
        let mut writes = vec![0u32; addressable as usize];
        for page in take(&mut workload, 400 * addressable as usize) {
            writes[page.lpn.index()] += 1;
        }
        assert!(writes.iter().all(|&count| count > 0), "{addressable}");
        if addressable < 1000 {
            continue;
        }
        let mut hottest: Vec<usize> = (0..writes.len()).collect();
        hottest.sort_by_key(|&lpn| std::cmp::Reverse(writes[lpn]));
        let mut hottest = hottest[..10].to_vec();
        hottest.sort_unstable();
        let nearest = hottest
            .windows(2)
            .map(|pair| pair[1] - pair[0])
            .min()
            .unwrap();
        assert!(
            nearest > addressable as usize / 40,
            "{nearest} of {addressable}"
        );
    }
}

#[test]
fn random_pages_are_even_and_reads_have_their_share() {
    const PAGES: u32 = 1000;
    const DRAWS: usize = 1_000_000;
    let mut workload = Workload::new(config("randrw:70", ContentModel::Unique, PAGES)).unwrap();
    let pages = take(&mut workload, DRAWS);
    let reads = pages
        .iter()
        .filter(|page| page.kind == PageKind::Read)
        .count() as f64;
    assert!((reads / DRAWS as f64 - 0.7).abs() < 5.0 * (0.21 / DRAWS as f64).sqrt());
    let mut counts = vec![0f64; PAGES as usize];
    pages
        .iter()
        .for_each(|page| counts[page.lpn.index()] += 1.0);
    let expected = DRAWS as f64 / f64::from(PAGES);
    let statistic: f64 = counts
        .iter()
        .map(|count| (count - expected).powi(2) / expected)
        .sum();
    let freedom = f64::from(PAGES - 1);
    assert!(
        (statistic - freedom).abs() < 5.0 * (2.0 * freedom).sqrt(),
        "{statistic}"
    );
}

// ---- determinism ----

/// Pinned streams: they change only on purpose, and are the same on every machine and with every
/// compiler.
#[test]
fn a_seed_gives_the_same_stream_everywhere() {
    let digest = |spec: &str, content| {
        let mut workload = Workload::new(config(spec, content, 1 << 20)).unwrap();
        take(&mut workload, 100_000)
            .iter()
            .fold(0u64, |digest, page| {
                let word = page.content
                    ^ (u64::from(page.lpn) << 24)
                    ^ u64::from(page.kind == PageKind::Write);
                (digest ^ word)
                    .wrapping_mul(0x0000_0100_0000_01b3)
                    .rotate_left(23)
            })
    };
    let streams = [
        digest("randrw:30", papers(0.1)),
        digest(
            "zipf:0.99",
            ContentModel::Plain {
                duplicate_share: 0.2,
            },
        ),
        digest("zipfrw:1.1:10,pages=3", papers(0.3)),
    ];
    let pinned = [
        0x5114_58bd_93fd_6ce7,
        0x31be_fd0d_d07e_1046,
        0xbca2_76d2_c50e_d76c,
    ];
    assert_eq!(streams, pinned, "{streams:#x?}");
}

#[test]
fn a_seed_repeats_and_another_differs() {
    let stream = |seed| {
        let config = WorkloadConfig {
            seed,
            ..config("zipf:0.9", papers(0.1), 10_000)
        };
        take(&mut Workload::new(config).unwrap(), 1000)
    };
    assert_eq!(stream(1), stream(1));
    assert_ne!(stream(1), stream(2));
}

fn patterns() -> impl Strategy<Value = Pattern> {
    prop_oneof![
        Just(Pattern::Random),
        Just(Pattern::Sequential),
        (0.0..3.0).prop_map(|theta| Pattern::Zipf { theta }),
        (1u8..=99, 1u8..=99).prop_map(|(data_percent, request_percent)| Pattern::HotCold {
            data_percent,
            request_percent,
        }),
    ]
}

fn contents() -> impl Strategy<Value = ContentModel> {
    prop_oneof![
        Just(ContentModel::Unique),
        (0.0..=1.0).prop_map(|duplicate_share| ContentModel::Plain { duplicate_share }),
        (0.0..=1.0).prop_map(|duplicate_share| ContentModel::Repeat { duplicate_share }),
        (0.0..=1.0).prop_map(|duplicate_share| ContentModel::History { duplicate_share }),
        (0.0..=1.0, 0.0..2.0).prop_map(|(duplicate_ratio, exponent)| ContentModel::Papers {
            duplicate_ratio,
            exponent
        }),
        prop::collection::vec(1u32..40, 1..50).prop_map(|counts| Copies::of(counts).model()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_stream_keeps_its_promises_and_ignores_how_it_is_cut(
        pattern in patterns(),
        content in contents(),
        read_percent in 0u8..=100,
        addressable in 1u32..200,
        request_pages in 1u32..20,
        seed: u64,
        wants in prop::collection::vec(0usize..50, 1..20),
    ) {
        prop_assume!(request_pages <= addressable);
        let content_base = 1000;
        let config = WorkloadConfig {
            pattern, read_percent, request_pages, content, addressable, seed, content_base,
        };
        let mut whole = Workload::new(config).unwrap();
        let mut cut = Workload::new(config).unwrap();
        let mut pages = Vec::new();
        for want in wants {
            cut.fill(&mut pages, want).unwrap();
            prop_assert!(pages.last().unwrap().last, "a request was split");
        }
        prop_assert_eq!(&take(&mut whole, pages.len()), &pages);
        for request in pages.chunk_by(|page, _| !page.last) {
            let units_start = request[0].lpn.0 % request_pages;
            prop_assert_eq!(units_start, 0);
            prop_assert!(request.windows(2).all(|pair| pair[0].lpn.offset(1) == pair[1].lpn));
            prop_assert!(request.iter().all(|page| page.lpn < Lpn(addressable)));
            let full = request.len() == request_pages as usize;
            prop_assert!(full || request.last().unwrap().lpn.offset(1) == Lpn(addressable));
            for page in request {
                let given = content_base + 1..cut.content_end();
                let right = match page.kind {
                    PageKind::Read => page.content == 0,
                    _ => given.contains(&page.content),
                };
                prop_assert!(right, "{:?}", page);
            }
        }
    }

    #[test]
    fn a_spec_reads_back_as_written(
        pattern in patterns(), read_percent in 0u8..=100, request_pages in 1u32..99,
    ) {
        let spec = WorkloadSpec { pattern, read_percent, request_pages };
        prop_assert_eq!(spec.to_string().parse::<WorkloadSpec>(), Ok(spec));
    }

    #[test]
    fn a_content_model_reads_back_as_written(content in contents()) {
        prop_assert_eq!(content.to_string().parse::<ContentModel>(), Ok(content));
    }
}

#[test]
fn specs_have_short_forms_and_wrong_ones_are_explained() {
    let spec = |text: &str| text.parse::<WorkloadSpec>().map(|spec| spec.to_string());
    assert_eq!(spec("zipf:0.99"), Ok("zipfwrite:0.99".to_owned()));
    assert_eq!(spec("mixed"), Ok("randrw:50".to_owned()));
    assert_eq!(spec("hot:20:80"), Ok("hotwrite:20:80".to_owned()));
    assert_eq!(spec("hotrw:20:80"), Ok("hotrw:20:80:50".to_owned()));
    assert_eq!(spec("seqrw:25,pages=8"), Ok("seqrw:25,pages=8".to_owned()));
    let wrong = |text: &str| spec(text).unwrap_err().to_string();
    assert!(wrong("write").starts_with("unknown workload `write`: randwrite, randread"));
    assert_eq!(
        wrong("randrw:101"),
        "101 % reads in `randrw:101`: at most 100"
    );
    assert_eq!(
        wrong("zipf:hot"),
        "`hot` in `zipf:hot` is not a number in range"
    );
    assert_eq!(
        wrong("randwrite,8"),
        "the option in `randwrite,8` is not `pages=N`"
    );
    let model = |text: &str| text.parse::<ContentModel>().unwrap_err().to_string();
    assert!(model("paper").contains(
        "papers:RATIO[:EXPONENT], plain:SHARE, repeat:SHARE, runs:SHARE[:PAGES], history:"
    ));
    for (text, reason) in [
        ("measured:", "`` is not COPIES@SHARE, as in 2.5@0.1"),
        ("measured:2@0.1:often", "`often` is not COPIES@SHARE"),
        (
            "measured:1@0.1",
            "1 copies of a content: above 1 are possible",
        ),
        ("measured:2@0", "a share of 0: above 0 to 1 are possible"),
        ("measured:2@0.7:3@0.5", "the shares sum to 1.2: at most 1"),
    ] {
        assert!(model(text).contains(reason), "{}", model(text));
    }
    assert!(model(&format!("measured{}", ":2@0.01".repeat(17))).contains("at most 16 classes"));
}

#[test]
fn impossible_workloads_are_refused_with_the_range() {
    let good = config("randwrite", ContentModel::Unique, 100);
    let reason = |config| Workload::new(config).err().unwrap().to_string();
    assert!(
        reason(WorkloadConfig {
            addressable: 0,
            ..good
        })
        .contains("at least one")
    );
    assert!(
        reason(WorkloadConfig {
            request_pages: 0,
            ..good
        })
        .contains("1 to 100")
    );
    assert!(
        reason(WorkloadConfig {
            request_pages: 101,
            ..good
        })
        .contains("1 to 100")
    );
    assert!(
        reason(WorkloadConfig {
            read_percent: 101,
            ..good
        })
        .contains("at most 100")
    );
    let pattern = Pattern::Zipf { theta: f64::NAN };
    assert!(reason(WorkloadConfig { pattern, ..good }).contains("0 to 16"));
    assert!(
        reason(WorkloadConfig {
            content: papers(1.5),
            ..good
        })
        .contains("0 to 1")
    );
    let content = ContentModel::Plain {
        duplicate_share: f64::INFINITY,
    };
    assert!(reason(WorkloadConfig { content, ..good }).contains("0 to 1"));
}
