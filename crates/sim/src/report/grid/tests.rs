//! Grids of runs: lines over numbers, columns over names, a page and tables.

use crate::interval::Interval;
use crate::plot::Size;
use crate::plot::tests::reads_well;
use crate::report::grid::{Grid, GridAxis, GridRow, Numbers};
use crate::report::sheet::TableForm;
use serde_json::json;

const SCHEMES: [&str; 3] = ["none", "remap-ssd", "pebble"];

fn axis(name: &str, values: &[&str], numbers: Option<Numbers>) -> GridAxis {
    GridAxis {
        name: name.to_owned(),
        values: values.iter().map(|value| (*value).to_owned()).collect(),
        numbers,
    }
}

/// Sizes of 20, 80 and `last` MiB.
fn sizes(last: f64) -> GridAxis {
    let marks = [20.0, 80.0, last].map(|size| (size, format!("{size}")));
    axis(
        "log_size",
        &["20MiB", "80MiB", "last"],
        Some(Numbers::new("MiB", marks.to_vec())),
    )
}

/// Every combination of the axes' values, with one figure and its interval.
fn grid(axes: Vec<GridAxis>) -> Grid {
    let mut all: Vec<Vec<usize>> = vec![Vec::new()];
    for axis in &axes {
        let longer = |row: &Vec<usize>| -> Vec<Vec<usize>> {
            (0..axis.values.len())
                .map(|at| [row.clone(), vec![at]].concat())
                .collect()
        };
        all = all.iter().flat_map(longer).collect();
    }
    let row = |values: Vec<usize>| {
        let value = 2.0 + values.iter().sum::<usize>() as f64;
        GridRow {
            values,
            figures: Some(vec![Some(Interval { value, half: 0.25 })]),
            is_steady: Some(true),
            is_precise: None,
        }
    };
    Grid {
        title: "grid".into(),
        scheme: "remap-ssd".into(),
        seeds: 3,
        transient: 0,
        imprecise: 0,
        about: vec![("device".into(), "fast21-32g at 1/64".into())],
        axes,
        figures: vec!["latency_us.p99".into()],
        rows: all.into_iter().map(row).collect(),
    }
}

fn svg(grid: &Grid) -> String {
    let svg = grid.svg(0).expect("there are results");
    let body = svg
        .split_once('\n')
        .expect("a declaration is first")
        .1
        .trim_end()
        .to_owned();
    reads_well(&body, Size::Wide);
    body
}

#[test]
fn sizes_are_an_axis_of_lines_with_bands_and_units() {
    let picture = svg(&grid(vec![axis("scheme", &SCHEMES, None), sizes(320.0)]));
    for part in [
        "log size, MiB",
        "write latency p99, µs",
        ">20</text>",
        ">320</text>",
        "remap-ssd: 80.0, 4.00 ±0.25",
    ] {
        assert!(picture.contains(part), "{part} is not in {picture}");
    }
    // One of each for each scheme.
    for class in ["class=\"band\"", "class=\"whisker\""] {
        assert_eq!(picture.matches(class).count(), 3, "{class}");
    }
    assert!(!picture.contains("<rect class=\"part"));
}

#[test]
fn an_axis_is_logarithmic_from_more_than_two_decades_on() {
    // Positions of the dots of one line.
    let places = |last: f64| -> Vec<f64> {
        let picture = svg(&grid(vec![sizes(last)]));
        let dots = picture.split("cx=\"").skip(1);
        dots.map(|dot| dot.split('"').next().unwrap().parse().unwrap())
            .collect()
    };
    let even = |at: &[f64]| (at[1] - at[0]) / (at[2] - at[0]);
    assert!((even(&places(2000.0)) - 60.0 / 1980.0).abs() < 0.01);
    assert!((even(&places(2001.0)) - 4f64.ln() / 100.05f64.ln()).abs() < 0.01);
}

#[test]
fn sizes_that_double_are_evenly_spaced() {
    let picture = svg(&grid(vec![sizes(320.0)]));
    let dots = picture.split("cx=\"").skip(1);
    let places: Vec<f64> = dots
        .map(|dot| dot.split('"').next().unwrap().parse().unwrap())
        .collect();
    assert!((places[1] - places[0] - (places[2] - places[1])).abs() < 0.2);
}

#[test]
fn a_line_has_a_gap_where_a_result_is_missing() {
    let line = |missing: Option<usize>| {
        let mut grid = grid(vec![sizes(320.0)]);
        if let Some(at) = missing {
            grid.rows[at].figures = None;
        }
        let picture = svg(&grid);
        let path = picture.split("class=\"line\" d=\"").last().unwrap();
        path[..path.find('"').unwrap()].to_owned()
    };
    assert_eq!(line(None).matches('L').count(), 2);
    assert_eq!(
        (
            line(Some(0)).matches('L').count(),
            line(Some(0)).matches('M').count()
        ),
        (1, 1)
    );
    assert_eq!(
        (
            line(Some(1)).matches('L').count(),
            line(Some(1)).matches('M').count()
        ),
        (0, 2)
    );
}

#[test]
fn transient_runs_are_hollow_and_marked_in_tables() {
    const TRANSIENT: &str = "transient, not a steady state</text>";
    for axes in [vec![sizes(320.0)], vec![axis("scheme", &SCHEMES, None)]] {
        let mut grid = grid(axes);
        assert!(!svg(&grid).contains(TRANSIENT));

        grid.rows[1].is_steady = Some(false);
        let picture = svg(&grid);
        // The point and that of the legend.
        assert_eq!(picture.matches("class=\"dot hollow\"").count(), 2);
        assert!(picture.contains(TRANSIENT));
        assert_eq!(grid.table().1[1][1], "transient");
        assert!(
            grid.sheet()
                .write(TableForm::Latex)
                .contains("& transient &")
        );
    }
}

#[test]
fn rows_that_miss_the_wanted_precision_are_marked_and_counted() {
    let mut grid = grid(vec![axis("scheme", &SCHEMES, None)]);
    assert!(!grid.table().0.contains(&"precision".to_owned()));

    for (at, row) in grid.rows.iter_mut().enumerate() {
        row.is_precise = Some(at != 1);
    }
    grid.imprecise = 1;
    let (head, rows) = grid.table();
    assert_eq!(head, ["scheme", "state", "precision", "latency_us.p99"]);
    let precisions: Vec<&str> = rows.iter().map(|row| row[2].as_str()).collect();
    assert_eq!(precisions, ["reached", "missed", "reached"]);
    assert!(
        grid.remarks()[1].starts_with("Not as precise as wanted")
            && grid.remarks()[1].ends_with(": 1 run.")
    );
    let csv = grid.sheet().write(TableForm::Csv);
    assert!(
        csv.starts_with("scheme,state,precision,latency_us.p99,"),
        "{csv}"
    );
    assert!(csv.contains("remap-ssd,steady,missed,"), "{csv}");
    assert!(
        grid.page(&json!({}))
            .contains("<th scope=\"col\">precision</th>")
    );
}

#[test]
fn two_seeds_are_said_to_be_too_few() {
    let mut grid = grid(vec![axis("scheme", &SCHEMES, None)]);
    assert_eq!(grid.remarks().len(), 1);
    grid.seeds = 2;
    assert!(
        grid.remarks()[1].contains("use five"),
        "{:?}",
        grid.remarks()
    );
}

#[test]
fn other_names_make_panels_and_a_scheme_keeps_its_colour() {
    let workloads = axis("workload", &["oltp", "journal", "tpcc", "ycsb"], None);
    let lines = svg(&grid(vec![
        workloads.clone(),
        sizes(320.0),
        axis("scheme", &SCHEMES, None),
    ]));
    for title in ["workload=oltp", "workload=ycsb"] {
        assert!(lines.contains(title), "{title}");
    }
    let columns = svg(&grid(vec![workloads, axis("scheme", &SCHEMES, None)]));
    assert!(columns.contains("whisker\" d=") && columns.contains("workload=oltp"));

    // The colour of a scheme that is alone, in its own picture.
    let alone = svg(&grid(vec![sizes(320.0)]));
    assert!(alone.contains("\"#0072b2\""));
    for picture in [lines, columns] {
        // Black, blue and violet.
        for color in ["#30343a", "#0072b2", "#7b5fc9"] {
            assert!(picture.contains(color), "{color}");
        }
    }
}

#[test]
fn missing_results_are_left_out_of_pictures_and_shown_in_tables() {
    let mut grid = grid(vec![axis("scheme", &SCHEMES, None), sizes(320.0)]);
    (grid.rows[0].figures, grid.rows[0].is_steady) = (None, None);
    grid.rows[1].figures = Some(vec![None]);
    grid.rows[2].figures = Some(vec![Some(Interval {
        value: 7.0,
        half: f64::NAN,
    })]);
    let (head, rows) = grid.table();
    assert_eq!(head, ["scheme", "log_size", "state", "latency_us.p99"]);
    assert_eq!(rows[0], ["none", "20MiB", "-", "not done"]);
    assert_eq!(
        (
            rows[1][3].as_str(),
            rows[2][3].as_str(),
            rows[3][3].as_str()
        ),
        ("-", "7.00", "3.00 ±0.25")
    );
    let csv = grid.sheet().write(TableForm::Csv);
    assert!(
        csv.starts_with(
            "scheme,log_size,state,latency_us.p99,ci95.latency_us.p99\r\nnone,20MiB,-,,\r\n"
        ),
        "{csv}"
    );
    assert!(
        csv.contains("none,last,steady,7,\r\nremap-ssd,20MiB,steady,3,0.25\r\n"),
        "{csv}"
    );
    svg(&grid);

    for row in &mut grid.rows {
        row.figures = None;
    }
    assert_eq!(grid.svg(0), None);
}

#[test]
fn the_page_has_its_pictures_as_files() {
    let mut grid = grid(vec![axis("scheme", &SCHEMES, None), sizes(320.0)]);
    grid.title = "a <b> & c".into();
    grid.transient = 2;
    let page = grid.page(&json!({ "command": "remap-ssd sweep \"a <b>.toml\"" }));
    assert!(!page.contains("<b>") && !page.contains("http://") && !page.contains("<script"));
    assert!(
        page.contains("device: fast21-32g at 1/64")
            && page.contains("Means over 3 seeds")
            && page.contains("Transient, not a steady state: 2 runs")
    );

    let link = page
        .split("href=\"data:image/svg+xml,")
        .nth(1)
        .expect("there is a link");
    let (url, _) = link.split_once('"').unwrap();
    let (mut bytes, mut rest) = (Vec::new(), url.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                u8::from_str_radix(str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            byte => byte,
        });
    }
    assert_eq!(String::from_utf8(bytes).unwrap(), grid.svg(0).unwrap());
    assert!(page.contains("download=\"a--b----c-latency-us-p99.svg\""));
}
