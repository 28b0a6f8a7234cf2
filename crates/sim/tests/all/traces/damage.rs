//! Damage to a file causes an error that names the location, or less; nothing is lost silently.

use remap_ssd_sim::source::{Source, SourceError};
use remap_ssd_sim::trace::{Format, TraceOptions, TraceReader};

use super::kit::{BLKPARSE, drain, file_of, gzip, replay, vscsi_v1, vscsi_v2, xz};

fn complaint(bytes: &[u8], format: Format) -> (u64, String) {
    match replay(bytes, Some(format), TraceOptions::new(64)) {
        Err(SourceError::Malformed { line, reason, .. }) => (line, reason),
        other => panic!("{other:?} instead of a malformed record"),
    }
}

#[test]
fn malformed_text_is_named_by_line_and_reason() {
    use Format::{Blkparse, Fiu, Mqsim, Msr};
    let md5 = "0a".repeat(16);
    let bad_hex = format!("1 1 p 0 8 W 6 0 {}", "0z".repeat(16));
    let short_hex = format!("1 1 p 0 8 W 6 0 {}", &md5[..30]);
    let long_hex = format!("1 1 p 0 8 W 6 0 {md5}{md5}");
    let no_process = format!("1 1 0 8 W 6 0 {md5}");
    let bad_verb = format!("1 1 p 0 8 X 6 0 {md5}");
    let bad_size = format!("1 1 p 0 eight W 6 0 {md5}");
    let cases: &[(Format, &str, &str)] = &[
        (Fiu, &bad_hex, "is not hexadecimal"),
        (
            Fiu,
            &short_hex,
            "30 hex digits of MD5 for 8 sectors instead of 32 or 256",
        ),
        (Fiu, &long_hex, "64 hex digits of MD5 for 8 sectors"),
        (Fiu, &no_process, "the process is missing"),
        (Fiu, "1", "1 field instead of at least 9"),
        (Fiu, &bad_verb, "`X` is neither R nor W"),
        (Fiu, &bad_size, "size `eight` is not a number"),
        (Mqsim, "1 0 8 8", "4 fields instead of 5"),
        (Mqsim, "1 0 8 8 0 0", "more than 5 fields"),
        (Mqsim, "1 0 8 8 2", "type `2` is neither 0 nor 1"),
        (Mqsim, "1 0 8 -8 0", "size `-8` is not a number"),
        (
            Mqsim,
            "1 0 99999999999999999999999999999999999999 8 0",
            "9...` is too large",
        ),
        (
            Mqsim,
            "1 0 18446744073709551615 8 0",
            "sector 18446744073709551615 lies beyond any disk",
        ),
        (Mqsim, "1 0 36028797018963967 8 0", "end beyond any disk"),
        (
            Mqsim,
            "1 0 8 18446744073709551615 0",
            "a size of 18446744073709551615 sectors is absurd",
        ),
        (
            Mqsim,
            "1 0 8 4194304 0",
            "a size of 2147483648 bytes is absurd",
        ),
        (
            Msr,
            "1,usr,0,Erase,0,4096,1",
            "type `Erase` is neither Read nor Write",
        ),
        (Msr, "1,usr,0,Read,0,4096", "6 fields instead of 7"),
        (
            Msr,
            "1,usr,0,Read,0,4096,x",
            "response time `x` is not a number",
        ),
        (
            Msr,
            "18446744073709551615,usr,0,Read,0,4096,1",
            "is too large",
        ),
        (
            Msr,
            "1,usr,0,Read,18446744073709551615,4096,1",
            "end beyond any disk",
        ),
        (Blkparse, "8,0 3 2 0.000001829 697", "cut before the action"),
        (
            Blkparse,
            "8,0 3 2 0.000001829 697 Q W",
            "cut before the sector",
        ),
        (
            Blkparse,
            "8,0 3 2 0.000001829 697 Q W 223490 +",
            "cut before the number of sectors",
        ),
        (
            Blkparse,
            "8,0 3 2 0.000001829 697 Q W 22 + 8 [kjour",
            "cut within the process",
        ),
        (
            Blkparse,
            "8,0 3 2 0.0000018291 697 Q W 22 + 8 [k]",
            "is not seconds.nanoseconds",
        ),
        (
            Blkparse,
            "8,0 3 2 0.000001829 697 Q w 22 + 8 [k]",
            "`w` is not an rwbs field",
        ),
        (
            Blkparse,
            "8,0 3 2 0.000001829 697 Q D 0 + 99999999 [k]",
            "absurd",
        ),
    ];
    for (format, line, expected) in cases {
        let (number, reason) = complaint(format!("\n{line}\n").as_bytes(), *format);
        assert_eq!(number, 2, "{line}");
        assert!(
            reason.contains(expected),
            "`{line}`: `{reason}` instead of `{expected}`"
        );
    }
}

#[test]
fn bytes_that_are_no_text_and_lines_without_end_are_malformed() {
    let (line, reason) = complaint(b"1 0 8 8 0\n1 0 \xff 8 0\n", Format::Mqsim);
    assert_eq!((line, reason.as_str()), (2, "the line is not UTF-8 text"));
    let endless = vec![b'7'; 3 << 20];
    let (line, reason) = complaint(&endless, Format::Mqsim);
    assert_eq!(
        (line, reason.as_str()),
        (1, "the line is longer than 1 MiB")
    );
}

#[test]
fn a_damaged_vscsi_record_is_named_by_its_number() {
    let good: Vec<u8> = (0..3)
        .flat_map(|i| vscsi_v1((0x2a, 8 * i, 4096, i)))
        .collect();
    let (number, reason) = complaint(&[&good[..], &good[..10]].concat(), Format::Vscsi);
    assert_eq!((number, reason.as_str()), (4, "cut: 10 of 32 bytes"));
    let (number, reason) = complaint(&good[..10], Format::Vscsi);
    assert_eq!(
        (number, reason.as_str()),
        (1, "cut: 10 bytes of at least 32")
    );
    let (number, reason) = complaint(&[7; 64], Format::Vscsi);
    assert_eq!(
        (number, reason.as_str()),
        (1, "a record of neither version 1 nor version 2")
    );
    let shifted = [&good[..64], &good[65..], &[0]].concat();
    assert_eq!(complaint(&shifted, Format::Vscsi).0, 3);
    let absurd = [
        vscsi_v1((0x2a, 0, 512, 0)),
        vscsi_v1((0x2a, u64::MAX, 512, 0)),
    ]
    .concat();
    assert!(
        complaint(&absurd, Format::Vscsi)
            .1
            .contains("beyond any disk")
    );
    let late = [
        vscsi_v1((0x2a, 0, 512, 0)),
        vscsi_v1((0x2a, 0, 512, u64::MAX)),
    ]
    .concat();
    assert!(complaint(&late, Format::Vscsi).1.contains("too large"));
}

#[test]
fn every_prefix_of_a_trace_is_read_or_refused_without_a_panic() {
    let md5 = "0a".repeat(16);
    let fiu = format!("1 1 a b 4 16 W 6 0 {md5}{md5}\n2 1 p 0 8 R 6 0 {md5}\n");
    let msr = "128166372003061629,usr,0,Read,10240,4096,1331\n".repeat(2);
    let vscsi: Vec<u8> = (0..3)
        .flat_map(|i| vscsi_v2((0x28, 8 * i, 4096, i)))
        .collect();
    let packed = xz(fiu.as_bytes());
    for whole in [
        fiu.as_bytes(),
        msr.as_bytes(),
        BLKPARSE.as_bytes(),
        &vscsi,
        &packed,
    ] {
        for len in 0..whole.len() {
            for format in Format::ALL.map(Some).into_iter().chain([None]) {
                let _ = replay(&whole[..len], format, TraceOptions::new(64));
            }
        }
    }
}

#[test]
fn skipping_bad_records_counts_them_and_goes_on() {
    let text = b"1 0 8 8 0\nrubbish\n\xff\xff\n\n2 0 16 8 1\n3 0";
    let file = file_of(text);
    let options = TraceOptions {
        skip_bad: true,
        ..TraceOptions::new(64)
    };
    let mut reader = TraceReader::open(file.path(), None, options).unwrap();
    assert_eq!(drain(&mut reader).unwrap().len(), 2);
    assert_eq!(
        (reader.requests(), reader.skipped(), reader.ignored()),
        (2, 3, 0)
    );
}

#[test]
fn what_stands_before_a_bad_record_is_delivered_whatever_the_batch_size() {
    let file = file_of(b"1 0 8 8 0\n2 0 16 32 1\nrubbish\n3 0 8 8 0\n");
    for want in [0, 1, 2, 4, 1000] {
        let mut reader = TraceReader::open(file.path(), None, TraceOptions::new(64)).unwrap();
        let mut pages = Vec::new();
        let error = loop {
            match reader.fill(&mut pages, want) {
                Ok(more) => assert!(more),
                Err(error) => break error,
            }
        };
        assert_eq!(pages.len(), 5);
        assert!(
            error.to_string().ends_with(":3: 1 fields instead of 5"),
            "{error}"
        );
        assert!(!reader.fill(&mut pages, want).unwrap());
    }
}

#[test]
fn a_trace_that_replays_to_nothing_is_an_error() {
    let skip_bad = TraceOptions {
        skip_bad: true,
        ..TraceOptions::new(64)
    };
    let message = |bytes: &[u8], format| {
        let error = replay(bytes, format, skip_bad).unwrap_err();
        assert!(matches!(error, SourceError::Unusable { .. }), "{error}");
        error.to_string()
    };
    assert!(message(b"", None).contains("replays to nothing: the file is empty"));
    assert!(message(&gzip(b""), None).contains("the file is empty"));
    assert!(message(b"\n\n", Some(Format::Fiu)).contains("replays to nothing"));
    assert!(message(b"x\ny\n", Some(Format::Msr)).contains("2 malformed"));
    assert!(
        message(b"to whom it may concern\n", None).contains("fiu, vscsi, mqsim, msr, blkparse")
    );
    let flushes: Vec<u8> = (0..2).flat_map(|i| vscsi_v1((0x35, 0, 0, i))).collect();
    assert!(message(&flushes, None).contains("2 records that are no requests"));
    let nowhere = replay(b"1 0 8 8 0\n", None, TraceOptions::new(0))
        .unwrap_err()
        .to_string();
    assert!(nowhere.contains("addressable is 0"));
}

#[test]
fn a_missing_file_and_a_folder_are_errors_of_reading() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().to_owned(), folder.path().join("absent")] {
        let error = TraceReader::open(&path, None, TraceOptions::new(64))
            .err()
            .unwrap();
        assert!(matches!(error, SourceError::Io { .. }), "{error}");
    }
}
