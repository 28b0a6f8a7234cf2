//! Tables of a comparison: their rows and columns, and the report of lost requests.

use super::*;

#[test]
fn every_line_of_a_table_is_equally_wide() {
    for runs in [runs(), vec![run("an ünusual 名前", 0), run("none", 0)]]
        .into_iter()
        .chain(edges())
    {
        let texts = runs
            .iter()
            .map(report::details)
            .chain([report::table(&runs)]);
        for text in texts {
            let mut widths: Vec<_> = text.lines().map(UnicodeWidthStr::width).collect();
            widths.dedup();
            assert_eq!(widths.len(), 1, "\n{text}");
        }
    }
}

#[test]
fn a_table_has_one_row_for_each_scheme_and_right_aligned_numbers() {
    let text = report::table(&runs());
    for scheme in SCHEMES {
        assert_eq!(
            text.lines()
                .filter(|line| line.trim().starts_with(scheme))
                .count(),
            1,
            "\n{text}"
        );
    }
    // 655.4 / 212.0, under its heading.
    let line = text
        .lines()
        .find(|line| line.trim().starts_with("remap-ssd"))
        .unwrap();
    assert!(line.contains("3.09x"), "{line}");
    let end_of = |line: &str, word: &str| line[..line.find(word).unwrap() + word.len()].width();
    assert_eq!(
        end_of(text.lines().next().unwrap(), "vs none"),
        end_of(line, "3.09x")
    );
}

#[test]
fn a_comparison_needs_a_run_without_remapping() {
    let without = [run("remap-ssd", 5), run("opt", 5)];
    assert!(!report::table(&without).contains("vs none"));
    let page = page(&without);
    assert!(!page.contains("vs none"));
    assert!(page.contains("not compared"));
}

#[test]
fn lost_data_gets_a_column_of_its_own() {
    let runs = [
        run("remap-ssd", 5),
        RunSummary {
            lost_references: 1234,
            ..run("unsafe", 5)
        },
    ];
    let text = report::table(&runs);
    assert!(text.lines().next().unwrap().contains("LOST"), "{text}");
    assert!(!report::table(&runs[..1]).contains("LOST"));
    let line = text
        .lines()
        .find(|line| line.trim().starts_with("unsafe"))
        .unwrap();
    assert!(line.contains("1,234") || line.contains("1.23"), "{line}");
}

#[test]
fn details_say_when_requests_are_lost() {
    let mut one = run("flog", 3);
    assert!(!report::details(&one).contains("THE SUM IS WRONG"));
    one.requests
        .refused
        .insert("lba out of range".to_owned(), 7);
    assert!(report::details(&one).contains("7 (lba out of range 7)"));
    assert!(report::details(&one).contains("THE SUM IS WRONG"));
    one.requests.submitted += 7;
    assert!(!report::details(&one).contains("THE SUM IS WRONG"));
}

#[test]
fn a_colour_belongs_to_a_scheme_whatever_else_is_shown() {
    let color = |page: &str| {
        let end = page
            .find("\" aria-hidden=\"true\"></span>flog")
            .expect("flog has a swatch");
        page[..end].rsplit("--c:").next().unwrap().to_owned()
    };
    assert_eq!(
        color(&page(&runs())),
        color(&page(&[run("mine", 2), run("flog", 2)]))
    );
}
