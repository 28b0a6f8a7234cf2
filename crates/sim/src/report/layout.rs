//! Text in columns, for a terminal.
//!
//! Invariant: a table that is wider than its window is folded: its columns continue in another block
//! below, which repeats the first one. Absent: the width of the window.

use std::ops::Range;

/// Lines of a label and a text each, with the texts aligned.
pub fn pairs<L: AsRef<str>, T: AsRef<str>>(rows: &[(L, T)]) -> String {
    let width = rows
        .iter()
        .map(|(label, _)| label.as_ref().chars().count())
        .max()
        .unwrap_or(0);
    rows.iter()
        .map(|(label, text)| format!("{:width$}  {}\n", label.as_ref(), text.as_ref()))
        .collect()
}

/// A table: a heading, then rows; the first column left-aligned, all others right-aligned; in a window
/// of `room` columns, if there is one.
pub fn columns(head: &[&str], rows: &[Vec<String>], room: Option<usize>) -> String {
    let widths = widths(head, rows);
    let mut text = line(head, &widths);
    text += &"─".repeat(widths.iter().sum::<usize>() + 2 * (widths.len() - 1));
    text.push('\n');
    text.extend(rows.iter().map(|row| line(row, &widths)));

    let widths: Vec<usize> = widths.iter().map(|width| width + 2).collect();
    folded(&text, &widths, room)
}

/// Folds a table whose columns have these widths, including the space after them.
pub(super) fn folded(table: &str, widths: &[usize], room: Option<usize>) -> String {
    let Some(room) = room else {
        return table.to_owned();
    };
    let Some((first, others)) = widths.split_first() else {
        return table.to_owned();
    };

    // Each block has as many of the other columns as fit, and at least one. The space of two after its
    // last column is left out.
    let mut blocks: Vec<Range<usize>> = Vec::new();
    let mut at = *first;
    for width in others {
        match blocks.last_mut() {
            Some(block) if first + (at + width - block.start) <= room + 2 => block.end += width,
            _ => blocks.push(at..at + width),
        }
        at += width;
    }
    if blocks.len() <= 1 {
        return table.to_owned();
    }

    let part = |line: &str, block: &Range<usize>| {
        let cells = line.chars().enumerate();
        let shown = block.start..block.end - 2;
        let kept = cells.filter(|(at, _)| at < first || shown.contains(at));
        let text: String = kept.map(|(_, char)| char).collect();
        format!("{}\n", text.trim_end())
    };
    let block = |block| {
        table
            .lines()
            .map(|line| part(line, block))
            .collect::<String>()
    };
    blocks.iter().map(block).collect::<Vec<_>>().join("\n")
}

/// The widths of columns, in characters.
fn widths(head: &[&str], rows: &[Vec<String>]) -> Vec<usize> {
    let width = |(column, head): (usize, &&str)| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let cells = cells.map(|cell| cell.chars().count());
        cells.max().unwrap_or(0).max(head.chars().count())
    };
    head.iter().enumerate().map(width).collect()
}

fn line<T: AsRef<str>>(cells: &[T], widths: &[usize]) -> String {
    let cell = |(column, (cell, width)): (usize, (&T, &usize))| match column {
        0 => format!("{:<width$}", cell.as_ref()),
        _ => format!("{:>width$}", cell.as_ref()),
    };
    let cells: Vec<String> = cells.iter().zip(widths).enumerate().map(cell).collect();

    // Trailing spaces would show in a diff.
    format!("{}\n", cells.join("  ").trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> [Vec<String>; 2] {
        [["a", "1", "2", "3"], ["long", "1,000", "20", "300"]]
            .map(|row| row.map(str::to_owned).to_vec())
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_numbers_end_below_each_other() {
        let rows = rows().map(|row| row[..2].to_vec());
        assert_eq!(
            columns(&["x", "n"], &rows, None),
            "x         n\n───────────\na         1\nlong  1,000\n"
        );
    }

    #[test]
    fn a_table_wider_than_its_window_is_folded() {
        let table = |room| columns(&["x", "n", "m", "l"], &rows(), room);
        assert_eq!(table(Some(20)), table(None), "it fits exactly");
        assert_eq!(
            table(Some(15)),
            "x         n   m\n───────────────\na         1   2\nlong  1,000  20\n\n\
             x       l\n─────────\na       3\nlong  300\n"
        );
        for line in table(Some(5)).lines() {
            assert!(
                line.chars().count() <= 11,
                "a column cannot be narrower: {line}"
            );
        }
    }
}
