//! Written traces read back as the same requests, in every format.

use remap_ssd_sim::source::HostLpn;
use remap_ssd_sim::study::WHOLE_DISK;
use std::collections::HashMap;

use proptest::prelude::*;
use remap_ssd_sim::source::{HostPage, PageKind};
use remap_ssd_sim::trace::{Format, TraceOptions, TraceWriter};

use super::kit::{page, replay};

#[derive(Clone, Debug)]
struct Asked {
    kind: PageKind,
    lpn: u32,
    len: u32,
}

fn asked() -> impl Strategy<Value = Asked> {
    let kinds = [
        PageKind::Read,
        PageKind::Write,
        PageKind::ReadModifyWrite,
        PageKind::Trim,
    ];
    (
        prop::sample::select(kinds.to_vec()),
        0u32..1 << 30,
        1u32..130,
    )
        .prop_map(|(kind, lpn, len)| {
            let len = if kind == PageKind::ReadModifyWrite {
                1
            } else {
                len
            };
            Asked { kind, lpn, len }
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_reads_back_as_the_same_requests(
        asked in prop::collection::vec(asked(), 1..60),
        contents in prop::collection::vec(1u64..40, 1..50),
    ) {
        let mut contents = contents.into_iter().cycle();
        for format in Format::WRITTEN {
            let mut writer = TraceWriter::new(format, Vec::new());
            let (mut expected, mut left_out) = (Vec::<HostPage>::new(), 0);
            for Asked { kind, lpn, len } in asked.clone() {
                let of = |at: u32, content| page(0, content, lpn + at, kind, at + 1 == len);
                let pages: Vec<HostPage> =
                    (0..len).map(|at| of(at, if kind.writes() { contents.next().unwrap() } else { 0 })).collect();
                if writer.request(&pages).unwrap() {
expected.extend(pages)
} else {
left_out += 1
}
            }
            prop_assert_eq!(writer.left_out(), left_out);
            prop_assert_eq!(left_out > 0, !matches!(format, Format::Blkparse | Format::Session)
                && asked.iter().any(|asked| asked.kind == PageKind::Trim));
            if expected.is_empty() {
                continue;
            }
            let found = replay(writer.sink(), None, TraceOptions::new(WHOLE_DISK)).unwrap();
            prop_assert_eq!(found.len(), expected.len(), "{}", format);
            let (mut names, mut times) = (HashMap::new(), 0);
            for (found, expected) in found.iter().zip(&expected) {
                let place = |page: &HostPage| (page.lpn, page.kind, page.last);
                prop_assert_eq!(place(found), place(expected), "{}", format);
                prop_assert!(found.at_ns >= times);
                times = found.at_ns;
                // Contents have other identities, but equal ones remain equal.
                if matches!(format, Format::Fiu | Format::Session) && found.kind == PageKind::Write {
                    prop_assert_eq!(*names.entry(expected.content).or_insert(found.content), found.content);
                }
            }
            let different: std::collections::HashSet<_> = names.values().collect();
            prop_assert_eq!(different.len(), names.len());
        }
    }
}

#[test]
fn remaps_read_back_and_are_taken_apart_where_folding_does() {
    let digest = "0a".repeat(16);
    let text = format!("5 W 3 {digest}\n6 C 100 3 1\n7 M 200 100 3 a\n8 F\n9 P 7\n10 D 100 2\n");
    let remap = |source, len, relocate, atomic| PageKind::Remap {
        source: HostLpn::new(source),
        len,
        relocate,
        atomic,
    };
    let found = |addressable| -> Vec<(u64, PageKind)> {
        let pages = replay(text.as_bytes(), None, TraceOptions::new(addressable)).unwrap();
        pages
            .iter()
            .map(|page| (page.lpn.get(), page.kind))
            .collect()
    };
    let whole = [
        (3, PageKind::Write),
        (100, remap(3, 1, false, false)),
        (200, remap(100, 3, true, true)),
        (7, PageKind::ReadModifyWrite),
        (100, PageKind::Trim),
        (101, PageKind::Trim),
    ];
    assert_eq!(found(1000), whole);
    // Of 102 pages, 200 to 202 are 98 to 100, and 102 is 0.
    assert_eq!(
        found(102)[2..4],
        [
            (98, remap(100, 2, true, true)),
            (100, remap(0, 1, true, true))
        ]
    );
    for bad in [
        "1 C 5 6",
        "1 C 5 6 0",
        "1 C 5 6 1 b",
        "1 W 5",
        "1 W 5 12",
        "1 F 2",
        "1 M 5 99999999999999999999 1",
    ] {
        let line = format!("{bad}\n");
        replay(
            line.as_bytes(),
            Some(Format::Session),
            TraceOptions::new(64),
        )
        .unwrap_err();
    }
}
