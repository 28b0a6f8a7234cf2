//! Synthetic workloads: draws have the distribution of their name, duplicates have the expected
//! shares, the same seed gives the same stream, and everything stays in range.
//!
//! Statistics are checked over many draws from fixed seeds, against bounds of four to five standard
//! deviations: a wrong distribution fails by far more, a right one always passes.

mod contents;
mod patterns;

use proptest::prelude::*;
use remap_ssd_sim::source::{HostPage, PageKind, Source};
use remap_ssd_sim::workload::{
    ContentModel, Copies, Endless, Pattern, Workload, WorkloadConfig, WorkloadSpec,
};

fn config(spec: &str, content: ContentModel, addressable: u64) -> WorkloadConfig {
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
        addressable in 1u64..200,
        request_pages in 1u32..20,
        seed: u64,
        wants in prop::collection::vec(0usize..50, 1..20),
    ) {
        prop_assume!(u64::from(request_pages) <= addressable);
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
            let units_start = request[0].lpn.get() % u64::from(request_pages);
            prop_assert_eq!(units_start, 0);
            prop_assert!(request.windows(2).all(|pair| pair[0].lpn.offset(1) == pair[1].lpn));
            prop_assert!(request.iter().all(|page| page.lpn.get() < addressable));
            let full = request.len() == request_pages as usize;
            prop_assert!(full || request.last().unwrap().lpn.offset(1).get() == addressable);
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
        "the options of `randwrite,8` are `pages=N` and `flush=N`"
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
