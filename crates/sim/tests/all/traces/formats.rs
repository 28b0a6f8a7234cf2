//! Records of every format match its description.

use remap_ssd_sim::source::{PageKind, Source};
use remap_ssd_sim::study::WHOLE_DISK;
use remap_ssd_sim::trace::{Action, Decoded, Fold, Format, TraceOptions};

use super::kit::{BLKPARSE, file_of, page, replay, vscsi_v1, vscsi_v2};

#[test]
fn msr_bytes_and_file_times_are_understood() {
    let text = "128166372003061629,usr,0,Read,10240,4096,1331\r\n\
                128166372003061639,usr,0,Write,4096,8192,10\n";
    let pages = replay(text.as_bytes(), None, TraceOptions::new(64)).unwrap();
    let read = |lpn, last| page(0, 0, lpn, PageKind::Read, last);
    let write = |content, lpn, last| page(1000, content, lpn, PageKind::Write, last);
    assert_eq!(
        pages,
        [
            read(2, false),
            read(3, true),
            write(1, 1, false),
            write(2, 2, true)
        ]
    );
}

#[test]
fn blkparse_takes_one_action_of_each_request() {
    let options = TraceOptions::new(1 << 16);
    let pages = replay(BLKPARSE.as_bytes(), None, options).unwrap();
    let expected = [
        page(0, 1, 27936, PageKind::Write, true),
        page(7171, 0, 2, PageKind::Read, true),
        page(9171, 2, 3, PageKind::ReadModifyWrite, true),
        // Sectors 4 to 31: the first page is only covered in part, three are deallocated.
        page(10171, 0, 1, PageKind::Trim, false),
        page(10171, 0, 2, PageKind::Trim, false),
        page(10171, 0, 3, PageKind::Trim, true),
    ];
    assert_eq!(pages, expected);
    for action in ["D", "C"] {
        let action: Option<Action> = Some(action.parse().unwrap());
        let pages = replay(
            BLKPARSE.as_bytes(),
            None,
            TraceOptions { action, ..options },
        )
        .unwrap();
        assert_eq!(
            pages,
            [page(0, 1, 27936, PageKind::Write, true)],
            "{action:?}"
        );
    }
}

#[test]
fn a_blkparse_text_without_the_action_says_which_one_was_looked_for() {
    let text = "  8,0 3 6 0.000007000 697  D  WS 223488 + 8 [kjournald]\n";
    let options = TraceOptions {
        action: Some(Action::Queued),
        ..TraceOptions::new(64)
    };
    let error = replay(text.as_bytes(), None, options)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("replays to nothing: 1 records that are no requests"),
        "{error}"
    );
    assert!(error.contains("only events with action Q"), "{error}");
}

#[test]
fn vscsi_records_of_both_versions_read_alike() {
    let commands = [
        (0x2a, 8, 4096, 5),
        (0x88, 16, 8192, 7),
        (0x35, 0, 0, 8),
        (0x0a, 1, 512, 6),
    ];
    let v1: Vec<u8> = commands.iter().flat_map(|&c| vscsi_v1(c)).collect();
    let v2: Vec<u8> = commands.iter().flat_map(|&c| vscsi_v2(c)).collect();
    let expected = [
        page(0, 1, 1, PageKind::Write, true),
        // Recorded after the read, at an earlier time.
        page(1000, 2, 0, PageKind::ReadModifyWrite, true),
        page(2000, 0, 2, PageKind::Read, false),
        page(2000, 0, 3, PageKind::Read, true),
    ];
    for bytes in [v1, v2] {
        assert_eq!(
            replay(&bytes, None, TraceOptions::new(64)).unwrap(),
            expected
        );
    }
}

#[test]
fn flushes_of_a_session_are_replayed_if_that_is_asked_for_and_contents_without_digests_are_new() {
    use PageKind::{Flush, Write};
    let text = b"10 N 5 2\n20 F\n30 N 5 1\n";
    let writes = [
        page(0, 1, 5, Write, false),
        page(0, 2, 6, Write, true),
        page(20, 3, 5, Write, true),
    ];
    assert_eq!(replay(text, None, TraceOptions::new(64)).unwrap(), writes);

    let flushes = TraceOptions {
        flushes: true,
        ..TraceOptions::new(64)
    };
    let flush = page(10, 0, 0, Flush, true);
    assert_eq!(
        replay(text, None, flushes).unwrap(),
        [writes[0], writes[1], flush, writes[2]]
    );
}

#[test]
fn a_session_that_was_cut_anywhere_replays_up_to_its_last_whole_record() {
    let text = format!(
        "10 R 7 1\n20 W 5 {} {}\n30 R 5 128\n",
        "0a".repeat(16),
        "0b".repeat(16)
    );
    let (format, options) = (Some(Format::Session), TraceOptions::new(256));
    let whole = replay(text.as_bytes(), format, options).unwrap();
    let first = text.find('\n').unwrap() + 1;
    for end in first..text.len() {
        // "30 R 5 12" and a write of one digest would be records, but never existed.
        let requests = text[..end].matches('\n').count();
        let pages = [1, 3][requests - 1];
        let found = replay(&text.as_bytes()[..end], format, options).unwrap();
        assert_eq!(found, whole[..pages], "cut after {end} bytes");
    }
    for end in 0..first {
        replay(&text.as_bytes()[..end], format, options).unwrap_err();
    }
}

#[test]
fn fiu_process_names_may_have_blanks_and_digests_may_be_apart() {
    let (a, b) = ("0a".repeat(16), "0B".repeat(16));
    let text = format!(
        "100 1 a long name 8 8 W 6 0 {a}\n101 1 x 16 16 W 6 0 {b} {a}\n102 1 x 0 8 R 6 0 {b}\n"
    );
    let contents: Vec<u64> = replay(
        text.as_bytes(),
        None,
        TraceOptions {
            content_base: 10,
            ..TraceOptions::new(64)
        },
    )
    .unwrap()
    .iter()
    .map(|page| page.content)
    .collect();
    assert_eq!(contents, [11, 12, 11, 0]);
}

#[test]
fn fiu_digests_per_page_do_not_apply_to_pages_that_their_chunks_straddle() {
    let (a, b) = ("0a".repeat(16), "0b".repeat(16));
    // From sector 4 on: half of page 0, page 1, half of page 2. Aligned after that, with a short
    // end.
    let text = format!("1 1 p 4 16 W 6 0 {a}{b}\n2 1 p 0 12 W 6 0 {a}{b}\n3 1 p 0 8 W 6 0 {a}\n");
    let pages = replay(text.as_bytes(), None, TraceOptions::new(64)).unwrap();
    use PageKind::{ReadModifyWrite as Part, Write as Whole};
    let expected = [
        page(0, 1, 0, Part, false),
        page(0, 2, 1, Whole, false),
        page(0, 3, 2, Part, true),
        page(1, 4, 0, Whole, false),
        page(1, 5, 1, Part, true),
        page(2, 4, 0, Whole, true),
    ];
    assert_eq!(pages, expected);
}

#[test]
fn compact_folding_numbers_pages_by_first_touch_and_keeps_devices_apart() {
    let text = "0 0 8000000 8 0\n0 1 8000000 8 0\n0 0 0 8 0\n0 0 8000000 8 1\n0 9 0 8 0\n";
    let compact = TraceOptions {
        fold: Fold::Compact,
        ..TraceOptions::new(3)
    };
    let lpns = |options| -> Vec<u64> {
        replay(text.as_bytes(), None, options)
            .unwrap()
            .iter()
            .map(|page| page.lpn.get())
            .collect()
    };
    assert_eq!(lpns(compact), [0, 1, 2, 0, 0]); // The fourth distinct page wraps around.
    assert_eq!(lpns(TraceOptions::new(7)), [1, 1, 0, 1, 0]); // A million mod 7 is 1.
}

#[test]
fn offsets_beyond_16_tib_are_pages_of_a_device_that_has_them_and_wrap_on_others() {
    const PAGE: u64 = (40 << 40) / 4096; // at 40 TiB
    let at = PAGE * 4096;
    let end = WHOLE_DISK * 4096 - 4096;
    let text = format!(
        "0,W,{at},8192,1\n0,R,{at},4096,2\n0,W,{end},4096,3\n0,R,{},4096,4\n",
        at + 8192
    );
    let lpns = |options| -> Vec<u64> {
        let pages = replay(text.as_bytes(), Some(Format::Alibaba), options).unwrap();
        pages.iter().map(|page| page.lpn.get()).collect()
    };
    let own = [PAGE, PAGE + 1, PAGE, WHOLE_DISK - 1, PAGE + 2];
    assert_eq!(lpns(TraceOptions::new(WHOLE_DISK)), own);

    // 64 TB, and less than a page number of 32 bits.
    for addressable in [15_625_000_000, u32::MAX.into(), 1000] {
        let wrapped = own.map(|page| page % addressable);
        assert_eq!(lpns(TraceOptions::new(addressable)), wrapped);
    }
    let compact = TraceOptions {
        fold: Fold::Compact,
        ..TraceOptions::new(1000)
    };
    assert_eq!(lpns(compact), [0, 1, 0, 2, 3]);

    // Read once, for devices of any size; a remap goes beyond 16 TiB in both directions.
    let session = format!("1 C {PAGE} 7 3\n2 C 7 {PAGE} 3\n");
    let file = file_of(session.as_bytes());
    let decoded = Decoded::read(file.path(), None, TraceOptions::new(WHOLE_DISK)).unwrap();
    let mut pages = Vec::new();
    let mut replayed = decoded.replay(TraceOptions::new(15_625_000_000), 1);
    while replayed.fill(&mut pages, 10).unwrap() {}
    let remaps: Vec<_> = pages
        .iter()
        .map(|page| match page.kind {
            PageKind::Remap { source, len, .. } => (page.lpn.get(), source.get(), len),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(remaps, [(PAGE, 7, 3), (7, PAGE, 3)]);
}

#[test]
fn a_discard_of_the_whole_disk_names_each_page_once() {
    let text = "8,0 0 1 0.0 1 Q W 8 + 8 [x]\n8,0 0 2 0.1 1 Q D 0 + 8388608 [mkfs]\n";
    let trims = |fold| -> Vec<u64> {
        let options = TraceOptions {
            fold,
            ..TraceOptions::new(64)
        };
        let pages = replay(text.as_bytes(), None, options).unwrap();
        let trims = pages.iter().filter(|page| page.kind == PageKind::Trim);
        trims.map(|page| page.lpn.get()).collect()
    };
    assert_eq!(trims(Fold::Modulo), (0..64).collect::<Vec<u64>>());
    // Untouched pages have no number; the one written has the first.
    assert_eq!(trims(Fold::Compact), [0]);
}

#[test]
fn a_discard_of_no_whole_page_is_ignored() {
    let text = "8,0 0 1 0.0 1 Q D 1 + 14 [x]\n";
    let error = replay(text.as_bytes(), None, TraceOptions::new(64)).unwrap_err();
    assert!(
        error.to_string().contains("1 records that are no requests"),
        "{error}"
    );
}

#[test]
fn names_read_back_and_unknown_ones_list_the_choices() {
    for format in Format::ALL {
        assert_eq!(format.to_string().parse(), Ok(format));
    }
    for fold in [Fold::Modulo, Fold::Compact] {
        assert_eq!(fold.to_string().parse(), Ok(fold));
    }
    let error = "pcap".parse::<Format>().unwrap_err().to_string();
    assert_eq!(
        error,
        "unknown trace format `pcap`: one of fiu, vscsi, mqsim, msr, blkparse, session, alibaba, \
         tencent, systor, fio, blktrace, oracleGeneral, fast21, spc, disksim, biosnoop, \
         cloudphysics, csv:COLUMNS"
    );
}
