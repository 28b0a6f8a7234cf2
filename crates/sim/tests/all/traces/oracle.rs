//! Cutting and folding against an oracle that knows only bytes and sectors.

use std::collections::{BTreeMap, HashMap, HashSet};

use proptest::prelude::*;
use remap_ssd_sim::source::PageKind;
use remap_ssd_sim::trace::{DevicePage, Fold, Folder, Format, TraceOptions, cut};

use super::kit::replay;

#[derive(Clone, Debug)]
struct SectorRequest {
    write: bool,
    lba: u64,
    /// One content per sector.
    contents: Vec<u8>,
}

fn requests() -> impl Strategy<Value = Vec<SectorRequest>> {
    let request = (
        any::<bool>(),
        0u64..160,
        prop::collection::vec(0u8..2, 1..40),
    )
        .prop_map(|(write, lba, contents)| SectorRequest {
            write,
            lba,
            contents,
        });
    // Half of them aligned, else whole pages would be rare and equal ones rarer.
    let request = (request, any::<bool>()).prop_map(|(mut request, aligned)| {
        if aligned {
            request.lba &= !7;
            request
                .contents
                .resize(8 * request.contents.len().div_ceil(8), 0);
        }
        request
    });
    prop::collection::vec(request, 1..40)
}

/// The pages of a request, each with the contents of its sectors in the request.
fn sectors_by_page(request: &SectorRequest) -> BTreeMap<u64, Vec<u8>> {
    let mut pages: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for (lba, &content) in (request.lba..).zip(&request.contents) {
        pages.entry(lba / 8).or_default().push(content);
    }
    pages
}

fn fiu_text(requests: &[SectorRequest]) -> String {
    let line = |request: &SectorRequest| {
        let digests: String = request
            .contents
            .iter()
            .map(|content| format!("{content:02x}").repeat(16))
            .collect();
        let verb = if request.write { 'W' } else { 'R' };
        format!(
            "7 1 p {} {} {verb} 6 0 {digests}\n",
            request.lba,
            request.contents.len()
        )
    };
    requests.iter().map(line).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cutting_agrees_with_counting_bytes(offset in 0u64..20_000, len in 1u64..20_000) {
        let mut bytes: BTreeMap<u64, u64> = BTreeMap::new();
        for byte in offset..offset + len {
            *bytes.entry(byte / 4096).or_default() += 1;
        }
        let found: Vec<(u64, bool)> = cut(offset, len).map(|cut| (cut.page, cut.whole)).collect();
        let expected: Vec<_> = bytes.iter().map(|(&page, &count)| (page, count == 4096)).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn folding_agrees_with_a_list_of_first_touches(
        touches in prop::collection::vec((0u64..3, 0u64..50), 1..200),
        addressable in 1u64..60,
    ) {
        let mut modulo = Folder::new(Fold::Modulo, addressable);
        let mut compact = Folder::new(Fold::Compact, addressable);
        let mut touched = Vec::new();
        for (device, page) in touches {
            let target = DevicePage { device, page };
            prop_assert_eq!(u64::from(modulo.fold(target)), page % addressable);
            prop_assert_eq!(compact.folded(target).is_some(), touched.contains(&target));
            if !touched.contains(&target) {
                touched.push(target);
            }
            let rank = touched.iter().position(|&seen| seen == target).unwrap();
            prop_assert_eq!(compact.fold(target).index(), rank % addressable as usize);
        }
    }

    #[test]
    fn a_trace_with_a_digest_per_sector_replays_as_its_sectors_say(requests in requests()) {
        let text = fiu_text(&requests);
        let pages = replay(text.as_bytes(), Some(Format::Fiu), TraceOptions::new(24)).unwrap();
        let mut pages = pages.into_iter();
        let mut identity_of: HashMap<Vec<u8>, u64> = HashMap::new();
        let mut given = HashSet::new();
        for request in &requests {
            let expected = sectors_by_page(request);
            let count = expected.len();
            for (index, (page, sectors)) in expected.into_iter().enumerate() {
                let found = pages.next().unwrap();
                prop_assert_eq!(u64::from(found.lpn), page % 24);
                prop_assert_eq!(found.last, index + 1 == count);
                let whole = sectors.len() == 8;
                if !request.write {
                    prop_assert_eq!((found.kind, found.content), (PageKind::Read, 0));
                } else if whole {
                    prop_assert_eq!(found.kind, PageKind::Write);
                    match identity_of.insert(sectors, found.content) {
                        Some(known) => prop_assert_eq!(known, found.content),
                        None => prop_assert!(given.insert(found.content)),
                    }
                } else {
                    prop_assert_eq!(found.kind, PageKind::ReadModifyWrite);
                    prop_assert!(given.insert(found.content));
                }
            }
        }
        prop_assert!(pages.next().is_none());
        prop_assert!(!given.contains(&0));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for format in Format::ALL.map(Some).into_iter().chain([None]) {
            for skip_bad in [false, true] {
                let options = TraceOptions { skip_bad, ..TraceOptions::new(64) };
                let _ = replay(&bytes, format, options);
            }
        }
    }
}
