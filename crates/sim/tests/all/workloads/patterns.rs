//! Addresses of requests: every page gets the share of its pattern.

use super::{config, papers, take};
use remap_ssd_sim::source::PageKind;
use remap_ssd_sim::workload::{ContentModel, Workload};

#[test]
fn sequential_requests_wrap_around_and_the_last_one_is_shorter() {
    let mut workload = Workload::new(config("seqwrite,pages=4", ContentModel::Unique, 10)).unwrap();
    let pages = take(&mut workload, 20);
    let lpns: Vec<u64> = pages.iter().map(|page| page.lpn.get()).collect();
    assert_eq!(lpns, (0..10).chain(0..10).collect::<Vec<u64>>());
    let ends: Vec<u64> = pages
        .iter()
        .filter(|page| page.last)
        .map(|page| page.lpn.get())
        .collect();
    assert_eq!(ends, [3, 7, 9, 3, 7, 9]);
}

/// 64 TB, an odd number of pages after 64 TiB, and all that the largest units have.
#[test]
fn requests_reach_all_of_a_device_of_more_than_16_tib_and_end_with_it() {
    for addressable in [15_625_000_000, (1 << 34) + 3, 1 << 35] {
        for spec in [
            "randrw,pages=7",
            "zipf:0.5",
            "zipf:0.2,pages=16",
            "hot:20:80",
        ] {
            let mut workload = Workload::new(config(spec, papers(0.3), addressable)).unwrap();
            let pages = take(&mut workload, 20_000);
            assert!(pages.iter().all(|page| page.lpn.get() < addressable));
            let mut sixteenths = [0; 16];
            for request in pages.chunk_by(|page, _| !page.last) {
                let lpns = request.windows(2);
                assert!(
                    lpns.into_iter()
                        .all(|two| two[0].lpn.offset(1) == two[1].lpn)
                );
                sixteenths[(request[0].lpn.get() * 16 / addressable) as usize] += 1;
            }
            assert!(sixteenths.iter().all(|count| *count > 30), "{spec}");
            // Also its contents are more than 32 bits can number.
            let most = pages.iter().map(|page| page.content).max().unwrap();
            assert!(most > 1 << 33 && most <= addressable, "{spec}: {most}");
        }
    }
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
    for addressable in [1u64, 2, 3, 10, 1000, 4096] {
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
    const PAGES: u64 = 1000;
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
    let expected = DRAWS as f64 / PAGES as f64;
    let statistic: f64 = counts
        .iter()
        .map(|count| (count - expected).powi(2) / expected)
        .sum();
    let freedom = (PAGES - 1) as f64;
    assert!(
        (statistic - freedom).abs() < 5.0 * (2.0 * freedom).sqrt(),
        "{statistic}"
    );
}
