//! Writing: results to standard output, notes to standard error, files whole.
//!
//! Invariant: nothing here panics, whoever has stopped reading. Absent: what is written.

use crate::failure::Failure;
use remap_ssd_sim::report::format::exact;
use std::fmt;
use std::io::{self, Write};
use std::path::Path;

/// Writes text to standard output.
///
/// # Errors
/// It cannot be written.
pub fn text(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Writes one JSON value to standard output; numbers that are not finite become null.
///
/// # Errors
/// It cannot be written.
pub fn json(value: &serde_json::Value) -> Result<(), Failure> {
    text(&format!("{value:#}\n"))
}

/// Tells the user something on standard error.
pub fn note(text: impl fmt::Display) {
    // Without standard error there is nobody to tell.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Writes a file.
///
/// # Errors
/// The system's reason, with the file's name.
pub fn file(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| Failure::about(path.display(), error))
}

/// Lines of a label and a text each, the texts below each other.
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

/// A table: a heading, then rows; the first column to the left, all others to the right.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let chars = |text: &str| text.chars().count();
    let width = |column: usize| {
        let cells = rows
            .iter()
            .filter_map(|row| row.get(column))
            .map(|cell| chars(cell));
        cells.max().unwrap_or(0).max(chars(head[column]))
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        for (column, (cell, width)) in cells.zip(&widths).enumerate() {
            match column {
                0 => text.push_str(&format!("{cell:<width$}")),
                _ => text.push_str(&format!("  {cell:>width$}")),
            }
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
        text
    };
    let mut text = line(&mut head.iter().copied());
    text.push_str(&"─".repeat(widths.iter().sum::<usize>() + 2 * (widths.len() - 1)));
    text.push('\n');
    rows.iter()
        .for_each(|row| text.push_str(&line(&mut row.iter().map(String::as_str))));
    text
}

/// `1 page`, `2,000 pages`.
pub fn counted(count: u64, one: &str) -> String {
    format!(
        "{} {one}{}",
        exact(count),
        if count == 1 { "" } else { "s" }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_numbers_end_below_each_other() {
        let rows = [
            vec!["a".to_owned(), "1".to_owned()],
            vec!["long".to_owned(), "1,000".to_owned()],
        ];
        assert_eq!(
            table(&["x", "n"], &rows),
            "x         n\n───────────\na         1\nlong  1,000\n"
        );
    }
}
