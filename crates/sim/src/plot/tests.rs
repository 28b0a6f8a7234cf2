//! Pictures: with many or long names and little space, no text is cut off or overlaps another.

use crate::plot::axis::Axis;
use crate::plot::bars::{Bar, BarChart, Part};
use crate::plot::columns::{ColumnChart, Panel};
use crate::plot::legend::{Legend, Mark};
use crate::plot::lines::{ChartLine, LineChart, LinePanel};
use crate::plot::paint::paints;
use crate::plot::{self, Certainty, Size, text};

const SIZES: [Size; 3] = [Size::Narrow, Size::Column, Size::Wide];

/// Twenty names, from short to wider than a phone screen.
fn names() -> Vec<String> {
    let mut names: Vec<String> = ["none", "remap-ssd", "flog", "nlog", "opt", "local-flash"]
        .map(String::from)
        .to_vec();
    names.extend((names.len()..19).map(|at| format!("remap-ssd, collection {at}")));
    names.push(
        "a name that is longer than the whole picture is wide, which has to be shortened".into(),
    );
    names
}

/// Position of a text: left, right, base line.
struct Extent {
    words: String,
    left: f64,
    right: f64,
    y: f64,
}

fn extents(picture: &roxmltree::Document) -> Vec<Extent> {
    picture
        .descendants()
        .filter(|node| node.has_tag_name("text"))
        .map(|node| {
            let number = |name: &str| node.attribute(name).unwrap().parse::<f64>().unwrap();
            let words = node.text().unwrap_or_default().to_owned();
            let size = match node.attribute("class").unwrap() {
                "heading" => 14.0 * 1.12,
                "panel" => 12.0 * 1.12,
                "name" => 13.0,
                "note" => 12.5,
                "label" => 11.0,
                _ => text::TEXT,
            };
            let (x, width) = (number("x"), text::width(&words, size));
            let left = match node.attribute("text-anchor") {
                Some("end") => x - width,
                Some("middle") => x - width / 2.0,
                _ => x,
            };
            Extent {
                words,
                left,
                right: left + width,
                y: number("y"),
            }
        })
        .collect()
}

/// Checks that all text is within the picture, and nothing overlaps.
pub(crate) fn reads_well(picture: &str, size: Size) {
    let document = roxmltree::Document::parse(picture).expect("the picture is well-formed");
    let root = document.root_element();
    let height: f64 = root
        .attribute("viewBox")
        .unwrap()
        .rsplit(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let texts = extents(&document);

    for one in &texts {
        assert!(
            one.left >= -0.1 && one.right <= size.width() + 0.1 && one.y < height,
            "`{}` leaves the picture of {size:?}: {} to {} at {}",
            one.words,
            one.left,
            one.right,
            one.y
        );
    }
    for (at, one) in texts.iter().enumerate() {
        for other in &texts[at + 1..] {
            let apart = one.right <= other.left || other.right <= one.left;
            assert!(
                apart
                    || (one.y - other.y).abs() >= 9.0
                    || one.words.is_empty()
                    || other.words.is_empty(),
                "`{}` lies over `{}` in {size:?}",
                one.words,
                other.words
            );
        }
    }
}

#[test]
fn lines_of_twenty_names_read_well_in_every_size() {
    let names = names();
    let lines = |points: fn(usize) -> Vec<(f64, f64)>| {
        names
            .iter()
            .zip(paints(names.iter().map(String::as_str)))
            .enumerate()
            .map(|(at, (label, paint))| ChartLine {
                label,
                paint,
                points: points(at),
                certainties: points(at)
                    .iter()
                    .map(|point| Certainty {
                        half: point.1 / 3.0,
                        is_transient: at == 1,
                    })
                    .collect(),
                trend: None,
            })
            .collect()
    };

    let points = |at: usize| {
        let point = |x: usize| (x as f64, (x * at) as f64);
        (0..50).map(point).collect()
    };
    let one: &[&str] = &[""];
    let titled =
        "workload=zipfrw:0.99:70,pages=4, firmware.gc_free=0.1, and more that does not fit";
    let several: &[&str] = &["a panel", titled, "another", "", "the last"];

    for (x, y, titles) in [
        (Axis::upto(123_456_789.0), Axis::rounded(98_765.0), one),
        (Axis::upto(123_456_789.0), Axis::rounded(98_765.0), several),
        (Axis::upto(7.0), Axis::rounded(0.000_12), several),
        (
            Axis::logarithmic([1e-3, 1e9], |value| format!("{value} us")),
            Axis::logarithmic([1.0, 2.0], |value| format!("{value}")),
            one,
        ),
    ] {
        let chart = LineChart {
            heading: Some(
                "A heading that says rather a lot, so that it does not fit a telephone's width",
            ),
            description: String::new(),
            x_title: "an axis whose title is so long that it has to be wrapped somewhere".into(),
            y_title: "what is measured here, with a unit that takes its room as well",
            x,
            y,
            panels: titles
                .iter()
                .map(|title| LinePanel {
                    title: (*title).to_owned(),
                    lines: lines(points),
                })
                .collect(),
            dots: true,
        };
        for size in SIZES {
            reads_well(&chart.draw(size, true).into_string(), size);
        }
    }
}

#[test]
fn bars_of_twenty_names_read_well_in_every_size() {
    let names = names();
    for longest in [3, 19, 20] {
        let bars = |names: &[String]| -> Vec<(String, f64)> {
            let value = |at: usize| 1.0 + at as f64 * 7.25;
            names
                .iter()
                .enumerate()
                .map(|(at, name)| (name.clone(), value(at)))
                .collect()
        };
        let values = bars(&names[..longest]);
        let paints = paints(names.iter().map(String::as_str));

        let chart = BarChart {
            description: String::new(),
            title: "flash pages programmed per host page",
            bars: values
                .iter()
                .zip(&paints)
                .map(|((label, value), paint)| Bar {
                    half: value / 4.0,
                    label,
                    note: format!("{value:.2}x (1,234 MiB/s)"),
                    parts: vec![Part {
                        name: String::new(),
                        value: *value,
                        color: paint.color,
                        fill: paint.fill,
                    }],
                })
                .collect(),
            legend: names
                .iter()
                .map(String::as_str)
                .zip(paints.iter().copied())
                .take(4)
                .collect(),
            reference: Some(1.0),
        };
        for size in SIZES {
            reads_well(&chart.draw(size, true).into_string(), size);
        }
    }
}

#[test]
fn columns_of_twenty_names_read_well_in_every_size_and_all_are_there() {
    let names = names();
    let panel = |groups: usize, columns: usize| Panel {
        title: format!("a panel with {groups} groups, each of {columns}"),
        groups: (0..groups)
            .map(|group| {
                let column = |at: usize| (names[at].clone(), (group * at) as f64);
                (
                    format!("group number {group}"),
                    (0..columns).map(column).collect(),
                )
            })
            .collect(),
    };

    let panels = [panel(3, 20), panel(12, 2), panel(1, 1), panel(20, 20)];
    let chart = ColumnChart {
        heading: Some("Twenty columns in twenty groups, and fewer in others"),
        description: String::new(),
        y_title: "MiB/s",
        panels: &panels,
        names: names
            .iter()
            .map(String::as_str)
            .zip(paints(names.iter().map(String::as_str)))
            .collect(),
        reference: Some(100.0),
        certainty: &|_, _, name| Certainty {
            half: name.len() as f64,
            is_transient: name.len() % 2 == 0,
        },
    };
    for size in SIZES {
        let picture = chart.draw(size, true).into_string();
        reads_well(&picture, size);
        let columns: usize = panels
            .iter()
            .flat_map(|panel| &panel.groups)
            .map(|group| group.1.len())
            .sum();
        // Including those of the legend and the background.
        assert_eq!(picture.matches("<rect").count(), columns + names.len() + 1);
    }
}

#[test]
fn a_file_is_light_wherever_it_is_shown() {
    let chart = LineChart {
        heading: None,
        description: String::new(),
        x_title: String::new(),
        y_title: "",
        x: Axis::upto(1.0),
        y: Axis::upto(1.0),
        panels: LinePanel::alone(vec![]),
        dots: false,
    };
    let file = plot::file(&chart.draw(Size::Wide, true));
    assert!(file.starts_with("<?xml") && !file.contains("<style") && !file.contains("var("));
    let document = roxmltree::Document::parse(&file).expect("it is well-formed");

    let surface = document
        .descendants()
        .find(|node| node.has_tag_name("rect"));
    assert_eq!(surface.unwrap().attribute("fill"), Some("#ffffff"));
    let drawn = document
        .descendants()
        .filter(|node| node.has_attribute("class"));
    for node in drawn.filter(|node| !node.has_tag_name("svg")) {
        let is_colored = |name| node.has_attribute(name);
        assert!(is_colored("fill") || is_colored("stroke"), "{node:?}");
    }
}

/// Each name of a legend stands to the right of its own mark, and before the next one.
#[test]
fn no_name_of_a_legend_lies_over_a_mark() {
    let names = names();
    let entries = || {
        names
            .iter()
            .map(String::as_str)
            .zip(paints(names.iter().map(String::as_str)))
    };

    for (mark, mark_width) in [(Mark::Line, 24.0), (Mark::Box, 11.0)] {
        for size in SIZES {
            let (left, right) = (40.0, size.width() - 8.0);
            let legend = Legend::new(entries(), mark, false, (left, right));
            let picture = format!("<svg>{}</svg>", legend.draw(5.0).into_string());
            let document = roxmltree::Document::parse(&picture).expect("it is well-formed");
            let nodes: Vec<_> = document.root_element().children().collect();
            assert_eq!(nodes.len(), 2 * names.len());

            // Position of the end of the last entry, and its base line.
            let mut before = (left, 0.0);
            for pair in nodes.chunks_exact(2) {
                let mark_left: f64 = match pair[0].attribute("d") {
                    Some(line) => line[1..].split(' ').next().unwrap().parse().unwrap(),
                    None => pair[0].attribute("x").unwrap().parse().unwrap(),
                };
                let number = |name| pair[1].attribute(name).unwrap().parse::<f64>().unwrap();
                let (x, y) = (number("x"), number("y"));
                let end = x + text::width(pair[1].text().unwrap(), text::TEXT);

                let words = pair[1].text().unwrap();
                assert!(x >= mark_left + mark_width, "`{words}` in {size:?}");
                assert!(end <= right + 0.1, "`{words}` in {size:?}");
                let begins_row = y > before.1 && mark_left == left;
                assert!(begins_row || mark_left > before.0, "`{words}` in {size:?}");
                before = (end, y);
            }
            let height = legend.height() + 5.0;
            assert!(before.1 < height, "the last row is within the legend");
        }
    }
}
