//! Replays of real excerpts match their authors' descriptions.
//!
//! The excerpts are not part of the project; without them their tests print so and pass.

use std::path::{Path, PathBuf};

use remap_ssd_sim::source::{PageKind, SourceError};
use remap_ssd_sim::trace::{Format, TraceOptions, TraceReader, stat};

use super::kit::{drain, file_of, gzip, replay, xz, zstd};

const ADDRESSABLE: u64 = 1 << 20;

fn excerpt(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/traces")
        .join(name);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: the trace excerpt {name} is not here");
    None
}

#[test]
fn the_homes_excerpt_has_17_1_percent_duplicate_writes() {
    let Some(path) = excerpt("fiu-sample/ld-homes-sample.1.blkparse") else {
        return;
    };
    let total = stat(path, None, TraceOptions::new(ADDRESSABLE)).unwrap();
    assert_eq!((total.requests, total.writes, total.reads), (1000, 1000, 0));
    assert_eq!(total.duplicate_writes, 171);
    assert_eq!(total.duplicate_share(), 0.171);
    assert_eq!(
        total.duration_ns,
        last_time("fiu-sample/ld-homes-sample.1.blkparse")
    );
}

#[test]
fn the_web_vm_excerpt_has_15_5_percent_duplicate_writes() {
    let Some(path) = excerpt("fiu-sample/ld-web-vm-sample.blkparse") else {
        return;
    };
    let total = stat(path, Some(Format::Fiu), TraceOptions::new(ADDRESSABLE)).unwrap();
    assert_eq!((total.writes, total.duplicate_writes), (1000, 155));
    assert_eq!(
        (total.read_modify_writes, total.skipped, total.ignored),
        (0, 0, 0)
    );
}

#[test]
fn the_mail_excerpts_mix_reads_and_writes() {
    let Some(path) = excerpt("fiu-sample/ld-mail-01-sample.blkparse") else {
        return;
    };
    let total = stat(path, None, TraceOptions::new(ADDRESSABLE)).unwrap();
    assert_eq!(
        (total.reads, total.writes, total.duplicate_writes),
        (984, 16, 5)
    );
    let Some(path) = excerpt("fiu-sample/mail.replay.0") else {
        return;
    };
    let total = stat(path, None, TraceOptions::new(ADDRESSABLE)).unwrap();
    // One of its 15 writes has 16 sectors: two pages, two digests.
    assert_eq!((total.requests, total.reads, total.writes), (122, 107, 16));
    assert_eq!(total.duplicate_writes, 5);
}

#[test]
fn the_folded_homes_excerpt_is_guessed_and_read() {
    let Some(path) = excerpt("fiu-sample/homes.replay.0") else {
        return;
    };
    let total = stat(path, None, TraceOptions::new(ADDRESSABLE)).unwrap();
    assert_eq!(
        (total.reads, total.writes, total.duplicate_writes),
        (2, 998, 169)
    );
}

#[test]
fn the_vscsi_excerpt_counts_as_its_authors_say() {
    let Some(path) = excerpt("block-nohash/cloudPhysicsIO.vscsi.xz") else {
        return;
    };
    let mut reader = TraceReader::open(path, None, TraceOptions::new(ADDRESSABLE)).unwrap();
    assert_eq!(reader.format(), Format::Vscsi);
    let pages = drain(&mut reader).unwrap();
    assert_eq!(reader.requests(), 113_872);
    let writes = pages
        .iter()
        .filter(|page| page.last && page.kind != PageKind::Read)
        .count();
    assert_eq!(writes, 66_898);
    let seconds = pages.last().unwrap().at_ns / 1_000_000_000;
    assert!((7000..=7200).contains(&seconds), "{seconds} s");
    assert!(pages.iter().all(|page| page.lpn.get() < ADDRESSABLE));
    assert!(pages.is_sorted_by_key(|page| page.at_ns));
}

#[test]
fn the_mqsim_excerpts_have_no_duplicates() {
    for (name, requests) in [
        ("mqsim-tpcc-small.trace.xz", 6_999),
        ("mqsim-wsrch-small.trace.xz", 24_783),
    ] {
        let Some(path) = excerpt(&format!("block-nohash/{name}")) else {
            return;
        };
        let total = stat(path, None, TraceOptions::new(ADDRESSABLE)).unwrap();
        // The last line of the second has no terminator and is still a request.
        assert_eq!(
            (total.requests, total.duplicate_writes),
            (requests, 0),
            "{name}"
        );
    }
}

#[test]
fn an_excerpt_replays_the_same_from_any_compression_and_under_any_name() {
    let Some(path) = excerpt("fiu-sample/ld-web-vm-sample.blkparse") else {
        return;
    };
    let plain = std::fs::read(&path).unwrap();
    let (first, second) = plain.split_at(40_000); // Two streams, split within a line.
    let expected = replay(&plain, None, TraceOptions::new(ADDRESSABLE)).unwrap();
    let options = TraceOptions::new(ADDRESSABLE);
    for pack in [gzip, xz, zstd] {
        assert_eq!(replay(&pack(&plain), None, options).unwrap(), expected);
        let two_streams = [pack(first), pack(second)].concat();
        assert_eq!(replay(&two_streams, None, options).unwrap(), expected);
    }
}

#[test]
fn a_cut_compressed_stream_delivers_what_it_holds_and_then_says_so() {
    let text: String = (0..200_000)
        .map(|i| format!("{i} 0 {} 8 0\n", i * 37 % 9973))
        .collect();
    for (pack, name) in [
        (gzip as fn(&[u8]) -> Vec<u8>, "gzip"),
        (xz, "xz"),
        (zstd, "zstd"),
    ] {
        let mut packed = pack(text.as_bytes());
        packed.truncate(packed.len() - packed.len() / 4);
        let file = file_of(&packed);
        let mut reader =
            TraceReader::open(file.path(), None, TraceOptions::new(ADDRESSABLE)).unwrap();
        let error = drain(&mut reader).unwrap_err();
        assert!(matches!(error, SourceError::Io { .. }), "{error}");
        assert!(
            error
                .to_string()
                .contains(&format!("the {name} stream is damaged or cut"))
        );
        assert!(reader.requests() > 10_000);
    }
}

/// Nanoseconds between the first and the last line of an excerpt.
fn last_time(name: &str) -> u64 {
    let text = std::fs::read_to_string(excerpt(name).unwrap()).unwrap();
    let time = |line: &str| line.split(' ').next().unwrap().parse::<u64>().unwrap();
    time(text.lines().last().unwrap()) - time(text.lines().next().unwrap())
}
