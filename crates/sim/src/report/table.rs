//! Tables of runs, for a terminal and for papers.
//!
//! Invariants: all lines of a table have the same display width; numbers are right-aligned; no
//! escape codes, so the text can be piped and compared. Absent: the width of the terminal.

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, presets};

use super::format::{one_line, seconds};
use super::grid::label;
use super::layout::folded;
use super::metrics::{self, Overview};
use super::sheet::{Cell, Sheet, SheetColumn, TableForm};
use crate::interval::of_run;
use crate::summary::RunSummary;

/// One row per run: bandwidth, amplification, pages, demotions, erases and write latency.
///
/// The column `vs none` is present if one of the runs is the scheme `none`.
pub fn table(runs: &[RunSummary]) -> String {
    table_within(runs, None)
}

/// The same in a window of `room` columns: a wider table is folded.
pub fn table_within(runs: &[RunSummary], room: Option<usize>) -> String {
    let Overview { columns, rows } = metrics::overview(runs);
    let mut table = light();
    table.set_header(
        columns
            .iter()
            .map(|column| format!("{}\n{}", column.head, column.unit)),
    );
    table.add_rows(rows);
    align_right(&mut table, 1..columns.len());
    let text = finish(&mut table);

    // After each cell, its padding and the space between columns.
    let widths = table.column_max_content_widths();
    let widths: Vec<usize> = widths.iter().map(|width| usize::from(*width) + 2).collect();
    folded(&text, &widths, room)
}

/// The same table for a paper, or one with the figures of `show` by their names in JSON. In CSV all
/// figures have these names, and all digits.
pub fn sheet(runs: &[RunSummary], show: &[String], form: TableForm, notes: Vec<String>) -> Sheet {
    let notes = notes.into_iter().chain(metrics::remarks(runs)).collect();
    match (show, form) {
        ([], TableForm::Csv) => return numbers(runs, &FIGURES, notes),
        ([], _) => {}
        (show, _) => return numbers(runs, show, notes),
    }

    let Overview { columns, rows } = metrics::overview(runs);
    let column = |(at, column): (usize, &metrics::Column)| SheetColumn {
        name: column.head.to_owned(),
        label: format!("{} {}", column.head, column.unit)
            .trim_end()
            .to_owned(),
        is_figure: at > 0,
    };
    let cells = |row: Vec<String>| row.into_iter().map(Cell::Text).collect();

    Sheet {
        columns: columns.iter().enumerate().map(column).collect(),
        rows: rows.into_iter().map(cells).collect(),
        notes,
    }
}

/// Figures of a run by their names in JSON, in a table for programs.
const FIGURES: [&str; 16] = [
    "bandwidth_mib_s",
    "iops",
    "requests_per_s",
    "write_amplification",
    "host_pages",
    "flash_pages",
    "gc_pages",
    "remaps",
    "erases",
    "lost_references",
    "latency_us.p50",
    "latency_us.p99",
    "latency_us.p999",
    "read_latency_us.p50",
    "read_latency_us.p99",
    "read_latency_us.p999",
];

fn numbers(runs: &[RunSummary], figures: &[impl AsRef<str>], notes: Vec<String>) -> Sheet {
    let column = |name: &str, is_figure| SheetColumn {
        name: name.to_owned(),
        label: label(name),
        is_figure,
    };

    let names = figures.iter().map(AsRef::as_ref);
    let row = |(run, label): (&RunSummary, String)| {
        let state = Cell::Text(metrics::state(run.steady.is_steady).to_owned());
        let run = serde_json::json!(run);
        let found = names
            .clone()
            .map(|name| of_run(&run, name).map_or(Cell::Missing, Cell::Figure));
        [Cell::Text(label), state]
            .into_iter()
            .chain(found)
            .collect()
    };

    Sheet {
        columns: ["scheme", "state"]
            .map(|name| column(name, false))
            .into_iter()
            .chain(names.clone().map(|name| column(name, true)))
            .collect(),
        rows: runs.iter().zip(metrics::labels(runs)).map(row).collect(),
        notes,
    }
}

/// All other measurements of one run, in two columns.
pub fn details(run: &RunSummary) -> String {
    let mut table = light();
    table.set_header([&metrics::labels(std::slice::from_ref(run))[0], ""]);
    for section in metrics::details(run) {
        table.add_row([section.title, ""]);
        for (label, value) in section.rows {
            table.add_row([format!("  {label}"), one_line(&value)]);
        }
    }

    // Last, and not on a page: it differs between runs of the program.
    table.add_row(["Simulated in".to_owned(), seconds(run.wall_s)]);
    align_right(&mut table, 1..2);
    finish(&mut table)
}

/// Light lines under the heading only.
fn light() -> Table {
    let rule = LineStyle::none().fill('─').junction('─');
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING.header_separator(rule))
        // Cells are not broken: a table that is too wide is folded between columns.
        .set_content_arrangement(ContentArrangement::Disabled);
    table
}

fn align_right(table: &mut Table, columns: std::ops::Range<usize>) {
    for column in table
        .column_iter_mut()
        .skip(columns.start)
        .take(columns.len())
    {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

fn finish(table: &mut Table) -> String {
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    let mut text = table.to_string();
    text.push('\n');
    text
}
