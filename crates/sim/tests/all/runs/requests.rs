//! Requests of every kind: their counters, and their durations.

use super::*;

#[test]
fn a_duplicate_costs_a_hash_and_an_entry() {
    let mut device = device(SchemeKind::RemapSsd);
    let same = |lpn| HostPage {
        content: 7,
        ..page(PageKind::Write, lpn, true)
    };
    go(&mut device, &mut Fixed(vec![same(0)]), &options(1, 1)).unwrap();
    let hits = go(
        &mut device,
        &mut Fixed((1..11).map(same).collect()),
        &options(10, 1),
    )
    .unwrap();
    assert_eq!(
        (
            hits.dedup_hits,
            hits.remaps,
            hits.host_programs,
            hits.flash_pages
        ),
        (10, 10, 0, 0)
    );
    // 1 us command + 1.2 us link + 32 us hash + 125 ns entry.
    assert!(
        (34.3..34.6).contains(&hits.latency_us.p50),
        "{:?}",
        hits.latency_us
    );
    assert_eq!(hits.write_amplification, 0.0);
    assert!(
        hits.bandwidth_mib_s > 100.0,
        "remapped pages count as served: {}",
        hits.bandwidth_mib_s
    );
}

#[test]
fn the_latency_of_a_request_is_that_of_its_last_page() {
    let mut device = device(SchemeKind::None);
    // 33 pages on 16 dies: one die gets three.
    let mut pages = writes(0..33);
    pages
        .iter_mut()
        .for_each(|page| page.last = page.lpn == Lpn(32).into());
    let summary = go(&mut device, &mut Fixed(pages), &options(33, 1)).unwrap();
    assert_eq!(summary.requests.submitted, 1);
    assert!(summary.latency_us.max >= 1500.0, "{:?}", summary.latency_us);
    assert_eq!(summary.host_pages, 33);
}

// 500 us of program and 2.2 us of link, and the host's time before each request.
#[test]
fn a_host_takes_its_time_before_each_request_and_no_latency_contains_it() {
    let of = |host_ns, depth| {
        let options = RunOptions {
            host_ns,
            ..options(100, depth)
        };
        let mut device = device(SchemeKind::None);
        let mut pages = Fixed(writes(0..100));
        go(&mut device, &mut pages, &options).unwrap()
    };
    let (without, with) = (of(0, 1), of(500_000, 1));
    let longer = with.seconds_simulated - without.seconds_simulated;
    assert!((longer - 100.0 * 0.0005).abs() < 1e-9, "{longer}");
    assert_eq!(with.latency_us.p50, without.latency_us.p50);

    // With four requests in flight the host's times pass side by side.
    let longer = of(500_000, 4).seconds_simulated - of(0, 4).seconds_simulated;
    assert!((longer - 25.0 * 0.0005).abs() < 1e-4, "{longer}");

    // A flush waits for all requests, and all wait for it: the host takes its time before each.
    let flushed = |host_ns| {
        let options = RunOptions {
            host_ns,
            ..options(100, 4)
        };
        let pages = writes(0..100).into_iter();
        let pages = pages.flat_map(|write| [write, page(PageKind::Flush, 0, true)]);
        let mut device = device(SchemeKind::None);
        go(&mut device, &mut Fixed(pages.collect()), &options).unwrap()
    };
    let longer = flushed(500_000).seconds_simulated - flushed(0).seconds_simulated;
    assert!((198.5..200.5).contains(&(longer / 0.0005)), "{longer}");
}

#[test]
fn every_request_is_accounted_for() {
    let mut device = device(SchemeKind::RemapSsd);
    let outside = device.config().firmware.lpns;
    let mut pages = writes(0..100);
    pages.extend((0..50).map(|lpn| page(PageKind::Read, lpn, true)));
    pages.extend((0..30).map(|lpn| HostPage {
        content: 1000 + u64::from(lpn),
        ..page(PageKind::ReadModifyWrite, lpn, true)
    }));
    pages.extend((0..20).map(|lpn| page(PageKind::Trim, lpn, true)));
    pages.push(page(PageKind::Read, outside, true));
    let summary = go(&mut device, &mut Fixed(pages), &RunOptions::default()).unwrap();
    let requests = &summary.requests;
    assert_eq!(
        (requests.submitted, requests.writes, requests.reads),
        (201, 100, 50)
    );
    assert_eq!((requests.read_modify_writes, requests.trims), (30, 20));
    assert_eq!(requests.refused.values().sum::<u64>(), 1);
    assert_eq!(summary.host_pages, 130);
}

#[test]
fn a_request_that_deallocates_adjacent_pages_is_one_command_and_one_record() {
    let mut device = device(SchemeKind::None);
    go(
        &mut device,
        &mut Fixed(writes(0..1000)),
        &RunOptions::default(),
    )
    .unwrap();
    let before = device.ftl().stats();
    let mut pages = request(PageKind::Trim, 0..500);
    pages.extend(request(PageKind::Trim, 600..900));
    // Not adjacent: two records.
    pages.extend([
        page(PageKind::Trim, 950, false),
        page(PageKind::Trim, 949, true),
    ]);
    let summary = go(&mut device, &mut Fixed(pages), &RunOptions::default()).unwrap();
    assert_eq!(summary.requests.trims, 3);
    assert_eq!((device.ftl().stats() - before).host_deallocations, 802);
    assert_eq!(summary.nvram_bytes_written, 4 * 16);
}

#[test]
fn a_read_modify_write_reads_before_it_writes() {
    let mut device = device(SchemeKind::None);
    go(&mut device, &mut Fixed(writes(0..16)), &options(16, 16)).unwrap();
    let change = HostPage {
        content: 99,
        ..page(PageKind::ReadModifyWrite, 3, true)
    };
    let summary = go(&mut device, &mut Fixed(vec![change]), &options(1, 1)).unwrap();
    assert!(
        (551.0..555.0).contains(&summary.latency_us.max),
        "{:?}",
        summary.latency_us
    );
}

#[test]
fn an_unmapped_read_costs_only_the_link() {
    let mut device = device(SchemeKind::None);
    let summary = go(
        &mut device,
        &mut Fixed(vec![page(PageKind::Read, 5, true)]),
        &options(1, 1),
    )
    .unwrap();
    assert!(
        summary.read_latency_us.max < 3.0,
        "{:?}",
        summary.read_latency_us
    );
}

#[test]
fn a_flush_waits_for_what_came_before_it_and_what_follows_waits_for_it() {
    let seconds = |pages: Vec<HostPage>| {
        let summary = go(
            &mut device(SchemeKind::None),
            &mut Fixed(pages),
            &options(1000, 32),
        )
        .unwrap();
        (summary.seconds_simulated, summary.requests.flushes)
    };
    let flushed: Vec<HostPage> = (0..3)
        .flat_map(|n| [writes(n..n + 1), vec![page(PageKind::Flush, 0, true)]].concat())
        .collect();
    // A program takes half a millisecond, and three dies are as fast as one; the superblock's head
    // comes before the first.
    let (together, one_by_one) = (seconds(writes(0..3)), seconds(flushed));
    assert!((0.0010..0.0011).contains(&together.0), "{together:?}");
    assert!((0.0020..0.0021).contains(&one_by_one.0), "{one_by_one:?}");
    assert_eq!((together.1, one_by_one.1), (0, 3));
}

// 64 pages are copied in at least 4 rounds of 16 dies, or remapped by 64 entries of 16 bytes.
#[test]
fn a_remap_command_is_one_request_of_many_pages() {
    let latency = |scheme, len| {
        let remap = PageKind::Remap {
            source: Lpn(0).into(),
            len,
            relocate: false,
            atomic: false,
        };
        let pages = [
            writes(0..64),
            vec![page(remap, 1000, true), page(PageKind::Read, 1063, true)],
        ]
        .concat();
        let mut device = device(scheme);
        let summary = go(
            &mut device,
            &mut Fixed(pages),
            &RunOptions {
                queue_depth: 1,
                ..RunOptions::default()
            },
        )
        .unwrap();
        let requests = &summary.requests;
        assert_eq!(
            (
                requests.submitted,
                requests.writes,
                requests.reads,
                requests.remaps
            ),
            (66, 64, 1, 1)
        );
        assert_eq!(
            (summary.host_pages, summary.remaps + summary.host_programs),
            (64 + u64::from(len), 64 + u64::from(len))
        );
        assert!((summary.iops * summary.seconds_simulated - f64::from(65 + len)).abs() < 1e-6);
        assert_eq!(
            device.read(u64::MAX / 4, Lpn(1000)).1,
            device.read(u64::MAX / 4, Lpn(0)).1
        );
        summary.remap_latency_us.max
    };
    let (one, many) = (
        latency(SchemeKind::RemapSsd, 1),
        latency(SchemeKind::RemapSsd, 64),
    );
    // The port's slots are reserved at submission: some of the stores complete while the command is
    // on the link.
    assert!(
        one < 2.0 && (64.0 * 0.125..12.0).contains(&many),
        "{one} {many}"
    );
    let copied = latency(SchemeKind::None, 64);
    assert!((2200.0..5000.0).contains(&copied), "{copied}");
}

#[test]
fn a_remap_past_the_end_is_refused_and_accounted_for() {
    let mut device = device(SchemeKind::RemapSsd);
    let remap = PageKind::Remap {
        source: Lpn(u32::MAX).into(),
        len: 2,
        relocate: true,
        atomic: false,
    };
    let summary = go(
        &mut device,
        &mut Fixed(vec![page(remap, 0, true)]),
        &RunOptions::default(),
    )
    .unwrap();
    assert_eq!(
        (
            summary.requests.remaps,
            &summary.requests.refused["LBA out of range"]
        ),
        (0, &1)
    );
}
