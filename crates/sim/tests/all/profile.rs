//! Profiles of short streams, counted by hand: each figure has one right value.

use remap_ssd_sim::source::{HostPage, Lpn, PageKind, Source, SourceError};
use remap_ssd_sim::trace::{Profile, Profiler, profile};

fn page(kind: PageKind, lpn: u32, content: u64) -> HostPage {
    HostPage {
        at_ns: 0,
        content,
        lpn: Lpn(lpn).into(),
        kind,
        last: true,
    }
}

fn write(lpn: u32, content: u64) -> HostPage {
    page(PageKind::Write, lpn, content)
}

fn read(lpn: u32) -> HostPage {
    page(PageKind::Read, lpn, 0)
}

fn of(pages: impl IntoIterator<Item = HostPage>) -> Profile {
    let mut profiler = Profiler::default();
    pages.into_iter().for_each(|page| profiler.page(&page));
    profiler.finish()
}

/// Four pages with three contents: one minus three quarters, however often they are rewritten.
#[test]
fn the_papers_ratio_compares_contents_with_pages() {
    let pages = [write(0, 1), write(1, 2), write(2, 3), write(3, 1)];
    let once = of(pages);
    assert_eq!(once.duplicates.papers_ratio, 0.25);
    let twice = of(pages.into_iter().chain(pages));
    assert_eq!(twice.duplicates.papers_ratio, 0.25);

    // New contents on the same pages: more contents than pages.
    let anew = of(pages.into_iter().chain([write(0, 5), write(1, 6)]));
    assert_eq!(anew.duplicates.papers_ratio, 0.0);
}

#[test]
fn without_a_write_there_are_no_duplicates() {
    for pages in [vec![], vec![read(3)], vec![page(PageKind::Trim, 3, 0)]] {
        let duplicates = of(pages).duplicates;
        assert_eq!(duplicates.papers_ratio, 0.0);
        assert_eq!(
            (duplicates.write_share, duplicates.stored_share),
            (0.0, 0.0)
        );
    }
}

#[test]
fn duplicates_were_written_before_and_stored_ones_are_still_held() {
    let all = of([
        write(0, 1),
        write(1, 1),
        // Unchanged.
        write(1, 1),
        // Content 1 leaves both pages: a duplicate that no page holds.
        write(0, 2),
        page(PageKind::Trim, 1, 0),
        write(2, 1),
    ]);
    let duplicates = all.duplicates;
    assert_eq!((duplicates.contents, duplicates.writes), (2, 3));
    assert_eq!((duplicates.stored, duplicates.unchanged), (2, 1));
    assert_eq!(duplicates.write_share, 3.0 / 5.0);
    assert_eq!(duplicates.stored_share, 2.0 / 5.0);
}

#[test]
fn pages_and_requests_are_counted_by_kind() {
    let remap = PageKind::Remap {
        source: Lpn(0).into(),
        len: 2,
        relocate: false,
        atomic: false,
    };
    let first = |page| HostPage {
        last: false,
        ..page
    };
    let all = of([
        // A write of three pages, and one that begins where it ended.
        first(write(0, 1)),
        first(write(1, 2)),
        write(2, 3),
        write(3, 4),
        page(PageKind::ReadModifyWrite, 3, 5),
        read(0),
        read(1),
        read(9),
        page(PageKind::Trim, 2, 0),
        page(remap, 6, 0),
        page(PageKind::Flush, 0, 0),
    ]);

    let requests = all.requests;
    assert_eq!((requests.all, requests.reads, requests.writes), (8, 3, 3));
    assert_eq!((requests.trims, requests.remaps), (1, 1));
    assert_eq!(requests.sequential, 2);

    let pages = all.pages;
    assert_eq!((pages.read, pages.written), (3, 5));
    assert_eq!((pages.written_in_part, pages.trimmed), (1, 1));
    assert_eq!(pages.remapped, 2);
    assert_eq!(
        (pages.unique, pages.unique_read, pages.unique_written),
        (5, 3, 4)
    );
    assert_eq!(all.write_share, 5.0 / 8.0);
    assert_eq!(all.request_pages_mean, 8.0 / 6.0);
    let sizes: Vec<_> = all.request_pages.into_iter().collect();
    assert_eq!(sizes, [(1, 5), (4, 1)]);
}

/// A remap carries the content, and a relocation empties its source.
#[test]
fn a_remapped_content_is_stored_where_it_went() {
    let remap = |relocate| PageKind::Remap {
        source: Lpn(0).into(),
        len: 1,
        relocate,
        atomic: false,
    };
    let stored = |relocate, rewritten| {
        of([
            write(0, 1),
            page(remap(relocate), 5, 0),
            write(rewritten, 2),
            write(9, 1),
        ])
        .duplicates
        .stored
    };
    assert_eq!((stored(false, 0), stored(false, 5)), (1, 1));
    assert_eq!((stored(true, 0), stored(true, 5)), (1, 0));
}

#[test]
fn a_profile_ends_with_the_wanted_number_of_requests() {
    struct Reads(u32);
    impl Source for Reads {
        fn fill(&mut self, out: &mut Vec<HostPage>, want: usize) -> Result<bool, SourceError> {
            out.extend((0..want as u32).map(|at| read(self.0 + at)));
            self.0 += want as u32;
            Ok(self.0 < 100_000)
        }
    }
    let all = profile(&mut Reads(0), Some(5000), &mut |_| ()).expect("reads");
    assert_eq!((all.requests.all, all.pages.unique), (5000, 5000));
}
