//! Statistics of traces and workloads as a table.
//!
//! Absent: the statistics (`profile`), and printing.

use crate::profile::Profiled;
use remap_ssd_sim::report::format::{bytes, exact, percent, seconds};
use remap_ssd_sim::trace::{Profile, Skew};

/// A row of the table: its name, and its value for a profile.
type TableRow = (&'static str, fn(&Profile) -> String);

const OF_REQUESTS: &[TableRow] = &[
    ("requests", |p| exact(p.requests.all)),
    ("  reads", |p| exact(p.requests.reads)),
    ("  writes", |p| exact(p.requests.writes)),
    ("  deallocations", |p| exact(p.requests.trims)),
    ("  sequential", |p| {
        of(p.requests.sequential, p.requests.reads + p.requests.writes)
    }),
    ("  pages, mean", |p| format!("{:.2}", p.request_pages_mean)),
];

const OF_PAGES: &[TableRow] = &[
    ("pages read", |p| exact(p.pages.read)),
    ("pages written", |p| exact(p.pages.written)),
    ("  in part", |p| exact(p.pages.written_in_part)),
    ("  of read and written", |p| percent(p.write_share)),
    ("pages deallocated", |p| exact(p.pages.trimmed)),
    ("unique pages", |p| exact(p.pages.unique)),
    ("  working set", |p| bytes(p.pages.unique * 4096)),
    ("  read", |p| exact(p.pages.unique_read)),
    ("  written", |p| exact(p.pages.unique_written)),
    ("distinct contents", |p| exact(p.duplicates.contents)),
    ("duplicate writes (FIU)", |p| {
        of(p.duplicates.writes, p.pages.written)
    }),
    ("duplicates stored", |p| {
        of(p.duplicates.stored, p.pages.written)
    }),
    ("  in the same page", |p| {
        of(p.duplicates.unchanged, p.pages.written)
    }),
    ("duplicate ratio (papers)", |p| {
        percent(p.duplicates.papers_ratio)
    }),
    ("writes: Zipf exponent", |p| exponent(&p.skew_writes)),
    ("  to the top 1 %", |p| percent(p.skew_writes.top_1_percent)),
    ("  to the top 10 %", |p| {
        percent(p.skew_writes.top_10_percent)
    }),
    ("  to the top 20 %", |p| {
        percent(p.skew_writes.top_20_percent)
    }),
    ("reads and writes: exponent", |p| exponent(&p.skew_all)),
    ("  to the top 1 %", |p| percent(p.skew_all.top_1_percent)),
    ("  to the top 10 %", |p| percent(p.skew_all.top_10_percent)),
    ("  to the top 20 %", |p| percent(p.skew_all.top_20_percent)),
    ("recorded over", |p| match p.duration_ns {
        0 => "-".into(),
        ns => seconds(ns as f64 / 1e9),
    }),
];

impl Profiled {
    /// The heading and the rows of a table with a column for each trace or workload.
    pub fn table(found: &[Self]) -> (Vec<&str>, Vec<Vec<String>>) {
        let row = |name: &str, text: &dyn Fn(&Profiled) -> String| -> Vec<String> {
            std::iter::once(name.to_owned())
                .chain(found.iter().map(text))
                .collect()
        };
        let of_profile = |(name, text): &TableRow| row(name, &|one| text(&one.profile));

        let contents = |one: &Profiled| match one.content {
            Some(content) => content.to_string(),
            None => "of the trace".into(),
        };
        let mut rows = vec![
            row("format", &|one| one.kind.clone()),
            row("contents", &contents),
        ];
        rows.extend(OF_REQUESTS.iter().map(of_profile));
        // Sizes belong to the requests, above the pages.
        rows.extend(sizes(found));
        rows.extend(OF_PAGES.iter().map(of_profile));
        rows.push(row("malformed, skipped", &|one| exact(one.skipped)));
        rows.push(row("no requests", &|one| exact(one.ignored)));

        let names = found.iter().map(|one| one.name.as_str());
        (std::iter::once("").chain(names).collect(), rows)
    }
}

/// A row for each request size that occurs.
fn sizes(found: &[Profiled]) -> Vec<Vec<String>> {
    let mut sizes: Vec<u32> = found
        .iter()
        .flat_map(|one| one.profile.request_pages.keys().copied())
        .collect();

    // Sizes of all of them, so that columns can be compared.
    sizes.sort_unstable();
    sizes.dedup();
    let row = |&pages: &u32| {
        let what = match pages {
            1 => "  of 1 page".to_owned(),
            2 => "  of 2 pages".to_owned(),
            more => format!("  of {} to {more} pages", more / 2 + 1),
        };
        let count =
            |one: &Profiled| exact(one.profile.request_pages.get(&pages).copied().unwrap_or(0));
        [what].into_iter().chain(found.iter().map(count)).collect()
    };
    sizes.iter().map(row).collect()
}

fn of(part: u64, whole: u64) -> String {
    let share = part as f64 / whole.max(1) as f64;
    format!("{} ({})", exact(part), percent(share))
}

fn exponent(skew: &Skew) -> String {
    format!("{:.2}", skew.zipf_exponent)
}
