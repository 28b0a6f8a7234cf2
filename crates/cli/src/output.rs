//! Output: results to standard output, notes to standard error.
//!
//! Invariant: nothing here panics, even if the reader is gone. Absent: the content.

use crate::failure::Failure;
use crate::interrupt::SIGNALLED;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

pub use remap_ssd_sim::report::format::counted;

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

/// Prints a note to standard error.
pub fn note(text: impl fmt::Display) {
    // Without standard error the note is lost.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Reports a failure to the user, and to the shell by the exit code.
pub fn failure(failure: &Failure) -> ExitCode {
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
    ExitCode::from(if matches!(failure, Failure::Usage(_)) {
        2
    } else {
        1
    })
}

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

/// A table: a heading, then rows; the first column left-aligned, all others right-aligned.
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

        // Trailing spaces would show in a diff.
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
