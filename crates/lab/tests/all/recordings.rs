//! The built-in recordings of real programs: complete, on devices that are large enough, and with
//! at least one flush.

use remap_ssd_lab::{Form, GridRun, Study, built_in, digest, recordings};
use remap_ssd_sim::source::{HostPage, PageKind};
use remap_ssd_sim::study::{Recorded, WHOLE_DISK};
use remap_ssd_sim::trace::TraceOptions;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Reads a whole recording: returns its highest page, the number of remap requests, and of flushes.
fn read(text: &str) -> (u64, u64, u64) {
    let mut source = recordings::find(text)
        .unwrap()
        .replay(TraceOptions::new(WHOLE_DISK))
        .unwrap();
    let (mut highest, mut remaps, mut flushes) = (0, 0, 0);
    let mut pages = Vec::new();
    while source.fill(&mut pages, 4096).unwrap() {
        for page in pages.drain(..) {
            highest = highest.max(match page.kind {
                PageKind::Remap { source, len, .. } => {
                    page.lpn.max(source).get() + u64::from(len) - 1
                }
                _ => page.lpn.get(),
            });
            remaps += u64::from(matches!(page.kind, PageKind::Remap { .. }));
            flushes += u64::from(page.kind == PageKind::Flush);
        }
    }
    (highest, remaps, flushes)
}

// A page outside the device would be folded onto another one, and the run would still have a
// result.
#[test]
fn every_recording_is_whole_and_fits_the_device_it_is_replayed_on() {
    let library = built_in();
    let names: Vec<String> = library
        .folders
        .iter()
        .map(|folder| folder.name.clone())
        .collect();
    let study = Study::plan(&library, &names, Form::Smoke).unwrap();
    let mut runs: BTreeMap<String, &GridRun> = BTreeMap::new();
    for run in study.planned.iter().flat_map(|planned| &planned.runs) {
        if let Some(name) = run.workload.strip_prefix("recording:") {
            let whole = name.split(['@', '+']).next().unwrap_or(name);
            runs.insert(whole.to_owned(), run);
        }
    }
    assert_eq!(
        runs.len(),
        recordings::names().count(),
        "each is replayed by an experiment"
    );

    for (name, run) in runs {
        let (highest, remaps, flushes) = read(&name);
        assert!(
            highest < run.device.addressable_lpns(),
            "{name} names page {highest}"
        );
        assert!(flushes > 0, "{name} has no flush");
        assert!(
            remaps > 0
                || !["remap", "copyless", "flagged", "shared"]
                    .iter()
                    .any(|arm| name.ends_with(arm)),
            "{name} has no remap"
        );
    }
}

/// All pages of a recording, or of its beginning.
fn pages(text: &str) -> Vec<HostPage> {
    let mut source = recordings::find(text)
        .unwrap()
        .replay(TraceOptions::new(WHOLE_DISK))
        .unwrap();
    let mut all = Vec::new();
    while source.fill(&mut all, 64).unwrap() {}
    all
}

#[test]
fn an_unknown_recording_names_those_there_are() {
    let error = recordings::find("nothing").unwrap_err().to_string();
    assert!(
        error.contains("`nothing`") && error.contains("sqlite-wal-fillseq-remap"),
        "{error}"
    );
}

/// Each write of several pages is followed by a page beyond the recording's own.
#[test]
fn a_recording_with_headers_has_a_page_more_for_each_transaction() {
    let plain = pages("sqlite-wal-fillseq-remap");
    let with = pages("sqlite-wal-fillseq-remap+headers");
    let (headers, others): (Vec<&HostPage>, Vec<&HostPage>) = with
        .iter()
        .partition(|page| (512_000..512_064).contains(&page.lpn.get()));
    assert!(others.into_iter().eq(&plain));
    let writes = plain
        .chunk_by(|page, _| !page.last)
        .filter(|request| request.len() > 1 && request[0].kind == PageKind::Write)
        .count();
    assert_eq!(headers.len(), writes);
    assert!(writes > 10_000);
    for refused in [
        "sqlite-rollback-100-off-stock+headers",
        "f2fs-sync-lists@2+headers",
    ] {
        assert!(recordings::find(refused).is_err(), "{refused}");
    }
    assert!(
        headers
            .iter()
            .all(|page| page.last && page.kind == PageKind::Write)
    );

    // A page outside the device would be folded onto another one.
    let study = Study::plan(&built_in(), &["fast21-fig8".to_owned()], Form::Full).unwrap();
    for run in &study.planned[0].runs {
        assert!(512_064 <= run.device.addressable_lpns(), "{}", run.title());
    }
}

#[test]
fn a_recording_up_to_a_mark_ends_with_it() {
    // `mkfs` deallocates the whole volume, including its last page: that is no mark.
    let whole = pages("f2fs-sync-lists");
    let mut before = 0;
    for mark in 1..=3 {
        let part = pages(&format!("f2fs-sync-lists@{mark}"));
        assert!(
            before < part.len() && part.len() < whole.len() && part == whole[..part.len()],
            "mark {mark}"
        );
        assert_eq!(
            (part[part.len() - 1].kind, part[part.len() - 1].lpn.get()),
            (PageKind::Trim, 127_999)
        );
        before = part.len();
    }

    let mut source = recordings::find("f2fs-sync-lists@9")
        .unwrap()
        .replay(TraceOptions::new(WHOLE_DISK))
        .unwrap();
    let mut all = Vec::new();
    let error = loop {
        match source.fill(&mut all, 4096) {
            Ok(goes_on) => assert!(goes_on, "it has no ninth mark"),
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("marks early"), "{error}");
    assert!(
        recordings::find("f2fs-sync-lists@0")
            .unwrap_err()
            .to_string()
            .contains("no mark")
    );
}

// A run is stored under all that determines its result: replaced by another recording of the same
// name, it is another run.
#[test]
fn a_run_that_replays_a_recording_is_named_by_the_bytes_of_the_recording() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/recordings");
    let of_file = |name: &str| digest(&std::fs::read(folder.join(format!("{name}.xz"))).unwrap());

    let mut seen = BTreeSet::new();
    for name in recordings::names() {
        let found = recordings::find(name).unwrap().digest();
        assert_eq!(found, of_file(name), "{name}");
        assert!(seen.insert(found), "{name} has bytes of its own");
    }

    let names = ["pebble-f2fs".to_owned(), "fast21-fig7".to_owned()];
    let study = Study::plan(&built_in(), &names, Form::Smoke).unwrap();
    let (mut replays, mut others) = (0, 0);
    for run in study.planned.iter().flat_map(|planned| &planned.runs) {
        match run.workload.strip_prefix("recording:") {
            Some(name) => {
                // Also up to a mark, it is the recording's bytes.
                let whole = name.split_once('@').map_or(name, |(whole, _)| whole);
                assert_eq!(run.recording, of_file(whole), "{name}");
                replays += 1;

                let mut other = run.clone();
                other.recording = digest(b"another recording");
                assert_ne!(other.key(), run.key(), "{name}");
            }
            None => {
                assert_eq!(run.recording, "", "{} replays nothing", run.title());
                others += 1;
            }
        }
    }
    assert!(replays > 0 && others > 0);
}

// Results that were stored by earlier builds are found under the same names.
#[test]
fn a_digest_is_the_first_sixteen_digits_of_blake3() {
    assert_eq!(digest(b""), "af1349b9f5f9a1a6");
    assert_eq!(digest(b"abc"), "6437b3ac38465133");
}

/// C, and the hooks into Debian's source, without comments and white space.
fn code(text: &str) -> String {
    let mut left = text;
    let mut code = String::new();
    while let Some((before, after)) = left.split_once("/*") {
        code += before;
        left = after.split_once("*/").expect("a comment ends").1;
    }
    code += left;

    code.lines()
        .filter(|line| !line.starts_with("# ") && !line.starts_with("hook "))
        .flat_map(str::chars)
        .filter(|char| !char.is_whitespace())
        .collect()
}

// The module runs only in a kernel: a test cannot count what it has the device do.
#[test]
fn recordings_of_f2fs_are_of_the_present_module() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let sources = [
        "remap.c",
        "remap.h",
        "fswrite.c",
        "fswrite-mount.c",
        "fswrite.h",
        "fswrite-internal.h",
        "hooks",
    ];
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let all: String = sources
        .map(|name| code(&read(&format!("hosts/f2fs/{name}"))))
        .concat();

    let now = digest(all.as_bytes());
    assert!(
        read("experiments/recordings/README.md").contains(&now),
        "recordings of F2FS are of another module than the present one, {now}: make them again with rig/f2fs and rig/fswrite, \
         or see that the change sends the same commands; then name it in experiments/recordings/README.md"
    );
}

// LevelDB's source is Debian's, and its threads race: a test cannot count what it has the device do.
#[test]
fn recordings_of_leveldb_are_of_the_present_hooks_and_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let sources = [
        "retain.cc",
        "retain.h",
        "table_blocks.inc",
        "compaction.inc",
        "volume_env.cc",
        "ycsb.cc",
        "src/appender.rs",
        "src/files.rs",
        "hooks",
    ];
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let without_comments = |text: &str| -> String {
        text.lines()
            .filter(|line| !line.trim_start_matches([' ', '|']).starts_with("//"))
            .map(code)
            .collect()
    };
    let all: String = sources
        .map(|name| without_comments(&read(&format!("hosts/leveldb/{name}"))))
        .concat();

    let now = digest(all.as_bytes());
    assert!(
        read("experiments/recordings/README.md").contains(&now),
        "recordings of LevelDB are of other sources than the present ones, {now}: make them again with rig/leveldb record, \
         or see that the change sends the same commands; then name it in experiments/recordings/README.md"
    );
}
