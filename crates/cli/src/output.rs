//! Output: results to standard output, notes to standard error.
//!
//! Invariant: nothing here panics, even if the reader is gone. Absent: the content.

use crate::failure::Failure;
use crate::interrupt::SIGNALLED;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

pub(crate) use remap_ssd_sim::report::format::counted;

/// Writes text to standard output.
///
/// # Errors
/// It cannot be written.
pub(crate) fn text(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Writes one JSON value to standard output; numbers that are not finite become null.
///
/// # Errors
/// It cannot be written.
pub(crate) fn json(value: &serde_json::Value) -> Result<(), Failure> {
    text(&format!("{value:#}\n"))
}

/// Writes a result as JSON or as text; makes only that one.
///
/// # Errors
/// It cannot be written.
pub(crate) fn result(
    as_json: bool,
    json: impl FnOnce() -> serde_json::Value,
    text: impl FnOnce() -> String,
) -> Result<(), Failure> {
    if as_json {
        self::json(&json())
    } else {
        self::text(&text())
    }
}

/// Prints a note to standard error.
pub(crate) fn note(text: impl fmt::Display) {
    // Without standard error the note is lost.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Reports a failure to the user, and to the shell by the exit code.
pub(crate) fn failure(failure: &Failure) -> ExitCode {
    match failure {
        // The reader has closed the pipe (`| head`).
        Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            return ExitCode::SUCCESS;
        }
        Failure::Found => {}
        // A script around it sees the signal too, and does not continue with its next command.
        Failure::Interrupted { signal, .. } => {
            note(failure);
            let _ = signal_hook::low_level::emulate_default_handler(*signal);
            // Only if the signal did not end the process: the shell's code for the signal.
            return ExitCode::from((SIGNALLED + signal) as u8);
        }
        _ => note(format_args!("error: {failure}")),
    }
    ExitCode::from(1 + u8::from(matches!(failure, Failure::Usage(_))))
}

/// Lines of a label and a text each, with the texts aligned.
pub(crate) fn pairs<L: AsRef<str>, T: AsRef<str>>(rows: &[(L, T)]) -> String {
    let width = rows
        .iter()
        .map(|(label, _)| label.as_ref().chars().count())
        .max()
        .unwrap_or(0);
    rows.iter()
        .map(|(label, text)| format!("{:width$}  {}\n", label.as_ref(), text.as_ref()))
        .collect()
}

/// A table: a heading, then rows; the first column left-aligned, all others right-aligned.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let widths = widths(head, rows);
    let mut text = line(head, &widths);
    text += &"─".repeat(widths.iter().sum::<usize>() + 2 * (widths.len() - 1));
    text.push('\n');
    text.extend(rows.iter().map(|row| line(row, &widths)));
    text
}

/// A table, or a sentence if it has no rows.
pub(crate) fn table_or(none: &str, head: &[&str], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        format!("{none}\n")
    } else {
        table(head, rows)
    }
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

/// Where progress is drawn: JSON is for programs, whose logs it would fill.
pub(crate) fn progress_target(as_json: bool) -> ProgressDrawTarget {
    if as_json {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr()
    }
}

/// A line of progress that is drawn again four times a second.
///
/// # Panics
/// The template is invalid.
pub(crate) fn bar(as_json: bool, steps: Option<u64>, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("the template is valid");
    let bar = ProgressBar::with_draw_target(steps, progress_target(as_json)).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
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
