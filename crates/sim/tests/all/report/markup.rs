//! HTML and SVG: well-formed, within their frame, and self-contained.

use super::*;

#[test]
fn names_and_text_from_outside_are_escaped() {
    let evil = "</title><script>alert('x')</script>\"&\u{1b}[31m\n";
    let mut mine = run(evil, 5);
    mine.requests.refused.insert(evil.to_owned(), 1);
    let page = report::html(
        &[mine, run("none", 5)],
        &[],
        evil,
        evil,
        &json!({ evil: evil }),
        1,
        Progress::default(),
    );
    assert!(!page.contains("<script"));
    assert_eq!(
        page.matches("</title>").count(),
        page.matches("<title>").count()
    );
    pictures(&page);
}

#[test]
fn the_page_fetches_nothing_and_runs_nothing() {
    let page = page(&runs());
    for forbidden in [
        "http://", "https://", "src=", "url(", "@import", "<script", "<link", "<img",
    ] {
        assert!(!page.contains(forbidden), "the page has {forbidden}");
    }
    // Links hold the pictures themselves, one for each figure with a picture.
    let own = page.matches("href=\"data:image/svg+xml,").count();
    assert_eq!(own, page.matches("href=").count());
    assert_eq!(own, page.matches("class=\"picture\"").count());
}

#[test]
fn the_page_has_the_dies_of_each_run_and_the_first_is_open() {
    let one = |activity, suspended, from, until| DieInterval {
        die: 1,
        activity,
        suspended,
        from,
        until,
    };
    let timeline = DieTimeline {
        dies: 2,
        from: 0,
        until: 1_000_000,
        intervals: vec![
            one(Activity::Erase, None, 0, 400_000),
            one(
                Activity::HostRead,
                Some(Activity::Erase),
                400_000,
                1_000_000,
            ),
        ],
    };
    let runs = ["none", "flog", "opt"].map(|scheme| run(scheme, 5));
    let known = [Some(&timeline), None, Some(&timeline)];
    let page = report::html(&runs, &known, "", "", &json!(null), 1, Progress::default());
    assert_eq!(page.matches("<details class=\"words\" open>").count(), 1);

    let section = &page[page.find("id=\"dies\"").unwrap()..];
    let section = &section[..section.find("</section>").unwrap()];
    assert!(
        section.contains("1,000 µs from 0 ms of the run"),
        "{section}"
    );
    let names: Vec<_> = section.split("</summary>").collect();
    assert_eq!(names.len(), 3);
    assert!(names[0].ends_with("none") && names[1].ends_with("opt"));

    // Each for a wide page and a narrow one, with what is suspended in the picture and in the legend.
    let pictures = pictures(section);
    assert_eq!(pictures.len(), 4);
    for picture in &pictures {
        let of_class = |class| {
            let nodes = picture.descendants();
            nodes.filter(move |node| node.attribute("class") == Some(class))
        };
        assert_eq!(of_class("stripes").count(), 2);
        assert_eq!(of_class("heading").count(), 0);
        assert!(of_class("entry").any(|entry| entry.text() == Some("suspended erase")));
    }
    assert!(!self::page(&runs).contains("What each die did"));
}

#[test]
fn bars_of_runs_with_intervals_have_error_bars() {
    let whiskers = |share: f64| {
        let mut runs = runs();
        for run in &mut runs {
            run.ci95.bandwidth_mib_s = run.bandwidth_mib_s * share;
            run.ci95.write_amplification = run.write_amplification * share;
        }
        let page = page(&runs);
        (page.matches("class=\"whisker\"").count(), runs.len())
    };
    // Of bandwidth, but for the baseline, which is 1, and of write amplification; in two sizes.
    let (found, runs) = whiskers(0.01);
    assert_eq!(found, 2 * (2 * runs - 1));
    // A transient run has none.
    assert_eq!(whiskers(f64::NAN).0, 0);
}

#[test]
fn pictures_are_well_formed_and_stay_inside_their_frame() {
    for runs in edges().into_iter().chain([runs()]) {
        let page = page(&runs);
        for picture in pictures(&page) {
            let root = picture.root_element();
            let size: Vec<f64> = root
                .attribute("viewBox")
                .unwrap()
                .split(' ')
                .map(|n| n.parse().unwrap())
                .collect();
            for node in picture.descendants().filter(roxmltree::Node::is_element) {
                for (names, limit) in [
                    (["x", "x1", "x2", "cx"], size[2]),
                    (["y", "y1", "y2", "cy"], size[3]),
                ] {
                    for value in names.iter().filter_map(|name| node.attribute(*name)) {
                        let value: f64 = value.parse().expect("a coordinate is a number");
                        assert!(
                            (0.0..=limit).contains(&value),
                            "{value} lies outside {limit}"
                        );
                    }
                }
                let corners = node.attribute("d").map(corners).unwrap_or_default();
                for (x, y) in corners {
                    assert!((0.0..=size[2]).contains(&x) && (0.0..=size[3]).contains(&y));
                }
                for value in ["width", "height"]
                    .iter()
                    .filter_map(|name| node.attribute(*name))
                {
                    assert!(value.parse::<f64>().unwrap() >= 0.0);
                }
            }
        }
    }
}

#[test]
fn the_page_opens_and_closes_its_elements_in_order() {
    let page = page(&runs());
    let style = page.find("<style>").unwrap()..page.find("</style>").unwrap();
    let text = page
        .replace(&page[style], "<style>")
        .replace("<!DOCTYPE html>", "");
    // Only void elements are left open in HTML.
    let closed: Vec<_> = text.split("<meta").collect();
    let text = closed[1..].iter().fold(closed[0].to_owned(), |text, part| {
        text + "<meta" + &part.replacen('>', "/>", 1)
    });
    roxmltree::Document::parse(&text).expect("the page is balanced");
}

#[test]
fn a_long_run_is_drawn_with_few_points_and_its_peak() {
    let mut long = run("flog", 50_000);
    long.samples[31_234].bandwidth_mib_s = 5_000.0;
    let page = page(&[long]);
    let lines = lines(&page);
    assert!(lines.iter().all(|line| line.len() <= 600));
    // The axis ends at 5,000, so the peak touches the upper edge of the plot.
    // Samples in legends have two corners.
    let top = lines
        .iter()
        .filter(|line| line.len() > 2)
        .flatten()
        .map(|point| point.1)
        .fold(f64::MAX, f64::min);
    let peaks = lines
        .iter()
        .filter(|line| line.iter().any(|point| point.1 == top))
        .count();
    assert!(peaks >= 1 && top <= 53.0, "the peak is drawn at {top}");
    assert!(page.len() < 400_000, "the page has {} bytes", page.len());
}
