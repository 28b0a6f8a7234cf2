//! Small self-made samples of other programs' formats: each has the same four requests.

use std::path::{Path, PathBuf};

use remap_ssd_sim::source::{HostPage, PageKind, Source, SourceError};
use remap_ssd_sim::study::WHOLE_DISK;
use remap_ssd_sim::trace::{Action, Decoded, Fold, Format, TraceOptions, TraceReader};

use super::kit::{BLKPARSE, drain, file_of, page, replay};

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/traces/samples")
        .join(name)
}

const SAME: [(&str, Format); 11] = [
    ("msr.csv", Format::Msr),
    ("alibaba.csv", Format::Alibaba),
    ("tencent.csv", Format::Tencent),
    ("systor.csv", Format::Systor),
    ("fio-2.log", Format::Fio),
    ("fio-3.log", Format::Fio),
    ("blktrace.bin", Format::Blktrace),
    ("spc.spc", Format::Spc),
    ("disksim.trace", Format::DiskSim),
    ("biosnoop.txt", Format::Biosnoop),
    ("cloudphysics.csv", Format::CloudPhysics),
];

/// Samples with other requests.
const OTHERS: [(&str, Format); 3] = [
    ("oracle-general.bin", Format::OracleGeneral),
    ("fast21.txt", Format::Fast21),
    ("blkparse-earlier.txt", Format::Blkparse),
];

const S: u64 = 1_000_000_000;

fn options() -> TraceOptions {
    TraceOptions::new(1 << 20)
}

#[test]
fn each_sample_is_told_by_its_records_and_says_the_same_requests() {
    use PageKind::{Read, ReadModifyWrite, Write};
    let expected = [
        page(0, 1, 0, Write, true),
        page(S, 2, 8, Write, false),
        page(S, 3, 9, Write, true),
        page(2 * S, 4, 3, ReadModifyWrite, true),
        page(3 * S, 0, 1, Read, false),
        page(3 * S, 0, 2, Read, true),
    ];
    for (name, format) in SAME {
        let mut reader = TraceReader::open(sample(name), None, options()).unwrap();
        assert_eq!(reader.format(), format, "{name}");
        assert_eq!(drain(&mut reader).unwrap(), expected, "{name}");
    }
}

#[test]
fn the_requests_of_a_cache_are_reads_of_objects() {
    let path = sample("oracle-general.bin");
    let mut reader = TraceReader::open(&path, None, options()).unwrap();
    assert_eq!(reader.format(), Format::OracleGeneral);
    let pages: Vec<(u64, u64)> = drain(&mut reader)
        .unwrap()
        .iter()
        .map(|page| {
            assert_eq!(page.kind, PageKind::Read);
            (page.at_ns, page.lpn.get())
        })
        .collect();
    assert_eq!(pages, [(0, 0), (S, 8), (S, 9), (2 * S, 3), (3 * S, 0)]);
}

#[test]
fn no_sample_passes_for_another_format() {
    for (name, format) in SAME.into_iter().chain(OTHERS) {
        assert_eq!(
            TraceReader::open(sample(name), None, options())
                .unwrap()
                .format(),
            format
        );
        let bytes = std::fs::read(sample(name)).unwrap();
        for other in Format::ALL.into_iter().filter(|other| *other != format) {
            assert!(
                replay(&bytes, Some(other), options()).is_err(),
                "{name} as {other}"
            );
        }
    }
}

#[test]
fn events_of_another_action_may_be_the_requests() {
    for action in [Action::Issued, Action::Completed] {
        let options = TraceOptions {
            action: Some(action),
            ..options()
        };
        let mut reader = TraceReader::open(sample("blktrace.bin"), None, options).unwrap();
        assert_eq!(drain(&mut reader).unwrap().len(), 6);
        assert_eq!(reader.requests(), 4);
    }
}

fn complaint(bytes: &[u8], format: Format) -> (u64, String) {
    match replay(bytes, Some(format), options()) {
        Err(SourceError::Malformed { line, reason, .. }) => (line, reason),
        other => panic!("{other:?} instead of a malformed record"),
    }
}

#[test]
fn damage_is_named_by_line_and_reason() {
    let cases: &[(Format, &str, u64, &str)] = &[
        (
            Format::Alibaba,
            "3,X,0,4096,1",
            1,
            "opcode `X` is neither R nor W",
        ),
        (Format::Alibaba, "3,W,0,4096", 1, "4 fields instead of 5"),
        (
            Format::Alibaba,
            "3,W,0,4096,18446744073709551615",
            1,
            "is too large",
        ),
        (
            Format::Tencent,
            "1,0,8,2,1",
            1,
            "type `2` is neither 0 nor 1",
        ),
        (
            Format::Tencent,
            "1,zero,8,1,1",
            1,
            "offset `zero` is not a number",
        ),
        (
            Format::Tencent,
            "1,36028797018963967,8,1,1",
            1,
            "end beyond any disk",
        ),
        (
            Format::Systor,
            "1.5,,E,0,0,512",
            1,
            "type `E` is neither R nor W",
        ),
        (
            Format::Systor,
            "15,,R,0,0,512",
            1,
            "is not seconds.nanoseconds",
        ),
        (
            Format::Systor,
            "1.5,soon,R,0,0,512",
            1,
            "is not seconds.nanoseconds",
        ),
        (
            Format::Spc,
            "0,1,512,W",
            1,
            "4 fields instead of at least 5",
        ),
        (
            Format::Spc,
            "0,1,512,x,0.5",
            1,
            "opcode `x` is neither R nor W",
        ),
        (
            Format::Spc,
            "0,1,512,W,0.5s",
            1,
            "timestamp `0.5s` is not a number",
        ),
        (
            Format::DiskSim,
            "12 0 8 8 1",
            1,
            "time `12` is not milliseconds.fraction",
        ),
        (
            Format::DiskSim,
            "1.5 0 8 8 +1",
            1,
            "flags `+1` are not hexadecimal",
        ),
        (Format::DiskSim, "1.5 0 8 8", 1, "4 fields instead of 5"),
        (
            Format::Biosnoop,
            "1.5 cat 1 vda R 8 4096 0.1",
            1,
            "and not biosnoop's `TIME(s) COMM",
        ),
        (
            Format::Biosnoop,
            "TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)\n1.5 cat 1 vda R 8 4096",
            2,
            "7 columns instead of 8",
        ),
        (
            Format::Biosnoop,
            "TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)\n1.5 cat 1 vda r 8 4096 0.1",
            2,
            "`r` is not an rwbs field",
        ),
        (
            Format::CloudPhysics,
            "3,1,2a,512,0",
            1,
            "version `3` is neither 1 nor 2",
        ),
        (
            Format::CloudPhysics,
            "1,1,12a,512,0",
            1,
            "`12a` is not a SCSI operation code of one byte",
        ),
        (
            Format::CloudPhysics,
            "1,1,2a,100,0",
            1,
            "a size of 100 bytes is no number of sectors",
        ),
        (
            Format::Fast21,
            "1 0 16 0 7",
            1,
            "a size of 16 sectors instead of 8",
        ),
        (Format::Fast21, "1 0 8 2 7", 1, "op `2` is neither 0 nor 1"),
        (
            Format::Fast21,
            "1 0 8 0 0a7f",
            1,
            "fingerprint `0a7f` is not a number",
        ),
        (
            Format::Fio,
            "x write 0 4096",
            1,
            "and not `fio version 2 iolog`",
        ),
        (
            Format::Fio,
            "fio version 3 iolog\n1 x write 0",
            2,
            "cut before the length",
        ),
        (
            Format::Fio,
            "fio version 3 iolog\n1 x erase 0 1",
            2,
            "`erase` is no action",
        ),
        (
            Format::Fio,
            "fio version 3 iolog\n1 x read 0 1 2",
            2,
            "more than a length",
        ),
        (
            Format::Fio,
            "fio version 2 iolog\nx wait long",
            2,
            "`long` is not a number",
        ),
    ];
    for (format, text, line, expected) in cases {
        let (number, reason) = complaint(text.as_bytes(), *format);
        assert_eq!(number, *line, "{text}: {reason}");
        assert!(reason.contains(expected), "`{text}`: `{reason}`");
    }

    let events = std::fs::read(sample("blktrace.bin")).unwrap();
    let cut = |len: usize| complaint(&events[..len], Format::Blktrace);
    assert_eq!(cut(20), (1, "cut: 20 of 48 bytes".into()));
    assert_eq!(cut(50), (1, "cut within 4 bytes of payload".into()));
    let shifted = [&events[..52], &events[53..]].concat();
    assert_eq!(complaint(&shifted, Format::Blktrace).0, 2);
    let swapped: Vec<u8> = events[..4]
        .iter()
        .rev()
        .chain(&events[4..])
        .copied()
        .collect();
    assert!(
        complaint(&swapped, Format::Blktrace)
            .1
            .contains("other byte order")
    );

    let objects = std::fs::read(sample("oracle-general.bin")).unwrap();
    let cut = |len: usize| complaint(&objects[..len], Format::OracleGeneral);
    assert_eq!(cut(30), (2, "cut: 6 of 24 bytes".into()));
    let mut never = objects.clone();
    never[24 + 23] = 0x80;
    assert_eq!(complaint(&never, Format::OracleGeneral).0, 2);
}

/// All pages of a replay, read in small pieces.
fn all(source: &mut dyn Source) -> Vec<HostPage> {
    let mut pages = Vec::new();
    while source.fill(&mut pages, 2).unwrap() {}
    pages
}

/// Traces of all kinds: remaps, discards, digests, several devices, bad records.
fn traces() -> Vec<(Vec<u8>, Format)> {
    let md5 = |n: u32| format!("{n:032x}");
    let fiu: String = (0..600u32)
        .map(|n| {
            let (verb, major) = (if n % 7 == 0 { 'R' } else { 'W' }, n % 3);
            let (sectors, digests) = match n % 2 {
                0 => (8, md5(n % 11)),
                _ => (24, md5(n) + &md5(n % 5) + &md5(n + 1)),
            };
            format!(
                "{n}000 1 p {} {sectors} {verb} {major} 0 {digests}\n",
                n * 5 % 400 * 4
            )
        })
        .collect();
    let session = format!(
        "0 W 5 {} {}\n3 R 5 2\n4 C 70 5 2\n5 M 100 70 3 a\n6 F\n7 D 0 300\n8 P 5\n9 N 5 3\n",
        md5(1),
        md5(2)
    );
    let mut all = vec![
        (fiu.into_bytes(), Format::Fiu),
        (session.into_bytes(), Format::Session),
        (BLKPARSE.into(), Format::Blkparse),
        (
            b"1 0 8 8 0\nrubbish\n2 1 8 64 1\n2 0 16 8 0\n".to_vec(),
            Format::Mqsim,
        ),
    ];
    all.extend(SAME.map(|(name, format)| (std::fs::read(sample(name)).unwrap(), format)));
    all
}

#[test]
fn a_trace_read_once_replays_as_from_its_file_on_any_device_and_again() {
    for (bytes, format) in traces() {
        let file = file_of(&bytes);
        for (fold, memory_words) in [(Fold::Modulo, 1 << 20), (Fold::Compact, 1)] {
            let options = |addressable| TraceOptions {
                fold,
                skip_bad: true,
                flushes: true,
                content_base: 1 << 40,
                ..TraceOptions::new(addressable)
            };
            let decoded =
                Decoded::read_within(file.path(), None, options(WHOLE_DISK), memory_words);
            let decoded = decoded.unwrap();
            assert_eq!(decoded.format(), format);
            for addressable in [64, 1000] {
                let mut reader =
                    TraceReader::open(file.path(), None, options(addressable)).unwrap();
                let once = drain(&mut reader).unwrap();
                assert_eq!(
                    all(&mut decoded.replay(options(addressable), 1)),
                    once,
                    "{format}"
                );

                let mut second = TraceOptions {
                    content_base: reader.content_end() - 1,
                    ..options(addressable)
                };
                second.fold = fold;
                let mut again = TraceReader::open(file.path(), None, second).unwrap();
                let offset = once.last().unwrap().at_ns;
                let mut twice = once.clone();
                twice.extend(drain(&mut again).unwrap().iter().map(|page| HostPage {
                    at_ns: page.at_ns + offset,
                    ..*page
                }));
                let mut replay = decoded.replay(options(addressable), 2);
                assert_eq!(all(&mut replay), twice, "{format}");
                assert_eq!(replay.skipped(), reader.skipped() + again.skipped());
            }
        }
    }
}

#[test]
fn what_is_counted_while_reading_is_what_a_reading_for_it_counts() {
    for (bytes, format) in traces() {
        let file = file_of(&bytes);
        for fold in [Fold::Modulo, Fold::Compact] {
            let options = TraceOptions {
                fold,
                skip_bad: true,
                ..TraceOptions::new(WHOLE_DISK)
            };
            let decoded = Decoded::read(file.path(), Some(format), options).unwrap();
            let counted = remap_ssd_sim::trace::stat(file.path(), Some(format), options).unwrap();
            assert_eq!(*decoded.stat(), counted, "{format} {fold}");
        }
    }
}

#[test]
fn a_session_names_the_device_that_was_asked() {
    let config = remap_ssd_device::PRESETS[0].config();
    let mut text = Vec::new();
    remap_ssd_sim::trace::session::write_device(&config, &mut text).unwrap();
    text.extend(b"0 N 5 1\n1 R 5 1\n");
    let file = file_of(&text);
    let reader = TraceReader::open(file.path(), None, options()).unwrap();
    assert_eq!(reader.device(), Some(&config));
    let decoded = Decoded::read(file.path(), None, options()).unwrap();
    assert_eq!(decoded.device(), Some(&config));
    assert_eq!(decoded.stat().ignored, 0, "the line is no record");
}
