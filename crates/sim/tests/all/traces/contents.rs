//! Contents of a model, for a trace that was recorded without them.

use remap_ssd_device::{DeviceConfig, SchemeKind};
use remap_ssd_sim::cores::Cores;
use remap_ssd_sim::source::{HostPage, PageKind};
use remap_ssd_sim::study::{
    Length, NewDevice, Requests, RunResult, RunSpec, Start, StudyError, TraceReplay, WHOLE_DISK,
};
use remap_ssd_sim::trace::{Decoded, Profiler, TraceOptions};
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Pages of the trace's disk.
const DISK: u64 = 5_000;
/// Pages of the device: most are never written.
const PAGES: u64 = 400_000;

/// A trace as text: MQSim's five numbers, of which the last is 0 for a write.
fn trace(text: &str, content: Option<&str>) -> TraceReplay {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let options = TraceOptions::new(WHOLE_DISK);
    TraceReplay {
        decoded: Arc::new(Decoded::read(file.path(), None, options).unwrap()),
        options,
        repeat: 1,
        content: content.map(|model| model.parse().unwrap()),
    }
}

/// Requests of a page at scattered places of the disk; every fifth reads, every seventh is of a
/// part of a page.
fn lines(requests: u64) -> String {
    let line = |at: u64| {
        let page = (at * 7919 + at * at % 31) % DISK;
        let sectors = if at.is_multiple_of(7) { 3 } else { 8 };
        let op = u64::from(at.is_multiple_of(5));
        format!("{} 0 {} {sectors} {op}\n", at * 1000, page * 8)
    };
    (0..requests).map(line).collect()
}

fn pages(trace: TraceReplay, seed: u64) -> Vec<HostPage> {
    let mut source = Requests::Trace(trace).source(PAGES, seed).unwrap();
    let mut pages = Vec::new();
    while source.fill(&mut pages, 1000).unwrap() {}
    pages
}

fn contents(pages: &[HostPage]) -> Vec<u64> {
    let written = pages.iter().filter(|page| page.kind != PageKind::Read);
    written.map(|page| page.content).collect()
}

/// Share of the writes whose content was written before.
fn repeated(contents: &[u64]) -> f64 {
    let distinct = contents.iter().collect::<HashSet<_>>().len();
    1.0 - distinct as f64 / contents.len() as f64
}

#[test]
fn a_trace_writes_the_models_share_of_duplicates_at_its_own_addresses() {
    let text = lines(50_000);
    let own = pages(trace(&text, None), 1);
    assert_eq!(repeated(&contents(&own)), 0.0);
    assert!(
        own.iter()
            .any(|page| page.kind == PageKind::ReadModifyWrite)
    );

    for (model, share) in [
        ("unique", 0.0),
        ("plain:0.3", 0.3),
        ("repeat:0.3", 0.3),
        ("history:0.6", 0.6),
        ("measured:2@0.2:5@0.4", 0.1 + 0.32),
    ] {
        let drawn = pages(trace(&text, Some(model)), 1);
        let found = repeated(&contents(&drawn));
        assert!((found - share).abs() < 0.012, "{found} of {model}");

        let without = |page: &HostPage| HostPage {
            content: 0,
            ..*page
        };
        let places = |pages: &[HostPage]| pages.iter().map(without).collect::<Vec<_>>();
        assert!(places(&drawn) == places(&own), "{model}");
        let reads = drawn.iter().filter(|page| page.kind == PageKind::Read);
        assert!(reads.clone().count() == 10_000 && reads.clone().all(|page| page.content == 0));
    }
}

#[test]
fn contents_are_the_same_with_the_same_seed_and_others_with_another() {
    let text = lines(2_000);
    for model in ["plain:0.3", "papers:0.3", "runs:0.5:8", "measured:3@0.5"] {
        let of_seed = |seed| contents(&pages(trace(&text, Some(model)), seed));
        assert_eq!(of_seed(1), of_seed(1), "{model}");
        assert_ne!(of_seed(1), of_seed(2), "{model}");
    }

    // Every round draws on.
    let mut twice = trace(&text, Some("plain:0.3"));
    twice.repeat = 2;
    let all = contents(&pages(twice, 1));
    let (first, second) = all.split_at(all.len() / 2);
    assert_eq!(first, contents(&pages(trace(&text, Some("plain:0.3")), 1)));
    assert!((repeated(&all) - 0.3).abs() < 0.05 && first != second);
}

/// Most of the device is never written: a page drawn among all of it would hold nothing.
#[test]
fn a_plain_duplicate_repeats_the_present_content_of_a_page_that_the_trace_has_written() {
    let mut present: HashMap<_, u64> = HashMap::new();
    let (mut seen, mut last) = (HashSet::new(), 0);
    let (mut copies, mut of_last) = (0, 0);

    for page in pages(trace(&lines(50_000), Some("plain:0.3")), 1) {
        if page.kind == PageKind::Read {
            continue;
        }
        if !seen.insert(page.content) {
            copies += 1;
            of_last += u32::from(page.content == last);
            if copies % 100 == 0 {
                assert!(present.values().any(|content| *content == page.content));
            }
        }
        present.insert(page.lpn, page.content);
        last = page.content;
    }
    assert!(
        copies > 10_000 && of_last < copies / 100,
        "{of_last} of {copies}"
    );
}

#[test]
fn a_trace_with_digests_keeps_its_contents() {
    let line = |at: u64| format!("{at} 1 p {} 8 W 6 0 {at:032x}\n", at * 8);
    let text: String = (0..10).map(line).collect();
    let kept = trace(&text, None);
    assert!(kept.decoded.has_digests() && kept.check_content().is_ok());
    assert_eq!(contents(&pages(kept, 1)).len(), 10);

    let replaced = trace(&text, Some("plain:0.3"));
    let path = replaced.decoded.path().display().to_string();
    let refused = Requests::Trace(replaced).source(PAGES, 1).err().unwrap();
    let StudyError::Impossible(reason) = &refused else {
        panic!("{refused}")
    };
    assert!(
        reason.starts_with(&path) && reason.contains("(format fiu) records digests"),
        "{reason}"
    );
    assert!(!trace(&lines(10), None).decoded.has_digests());
}

/// Copies as measured in one stream, written by another.
#[test]
fn a_measured_model_writes_contents_as_many_times_as_they_were_in_the_trace_measured() {
    let profile = |pages: &[HostPage]| {
        let mut profiler = Profiler::default();
        pages.iter().for_each(|page| profiler.page(page));
        profiler.finish().duplicates
    };
    let text = lines(50_000);
    let measured = profile(&pages(trace(&text, Some("history:0.5")), 1));
    let model = measured.model.to_string();
    assert!(model.starts_with("measured:2@"), "{model}");

    let made = profile(&pages(trace(&text, Some(&model)), 2));
    let (wanted, found) = (measured.write_share, made.write_share);
    assert!((wanted - found).abs() < 0.01, "{found} instead of {wanted}");
    assert_eq!(
        profile(&pages(trace(&text, None), 1)).model.to_string(),
        "unique"
    );
}

fn measured(content: &str, aged: &str) -> RunResult {
    let mut config = DeviceConfig::preset("fast21-32g")
        .unwrap()
        .scale(1.0 / 256.0)
        .unwrap();
    config.firmware.scheme = SchemeKind::RemapSsd;
    let mut spec = RunSpec::new(config, "randwrite".parse().unwrap());
    spec.requests = Requests::Trace(trace(&lines(4_000), Some(content)));
    spec.length = Length::Usual;
    let Start::New(new) = &mut spec.start else {
        unreachable!("the device is new")
    };
    let NewDevice { aging, .. } = &mut **new;
    aging.as_mut().unwrap().content = Some(aged.parse().unwrap());
    let run = spec.perform(&Cores::default(), &mut |_| ControlFlow::Continue(()));
    run.unwrap()
}

#[test]
fn the_papers_contents_are_found_on_a_device_aged_with_them_and_those_of_other_models_are_the_runs_own()
 {
    let hits = |content, aged| {
        let summary = measured(content, aged).summary;
        summary.dedup_hits as f64 / summary.host_pages as f64
    };
    assert_eq!(hits("unique", "unique"), 0.0);
    let plain = hits("plain:0.3", "unique");
    assert!((plain - 0.3).abs() < 0.05, "{plain}");
    // More of the contents are on the device than the 3,200 writes could bring themselves.
    let papers = hits("papers:0.3", "papers:0.3");
    assert!(papers > 0.5, "{papers}");
}
