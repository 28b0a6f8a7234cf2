//! Output: results to standard output, notes to standard error.
//!
//! Invariant: nothing here panics, even if the reader is gone. Absent: the content.

use crate::failure::Failure;
use crate::interrupt::SIGNALLED;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use remap_ssd_sim::report::layout;
use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

pub(crate) use remap_ssd_sim::report::format::counted;
pub(crate) use remap_ssd_sim::report::layout::pairs;

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

/// Says which files were written.
pub(crate) fn written(files: &[PathBuf]) {
    for file in files {
        note(format_args!("written to {}", file.display()));
    }
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

/// Columns of the window: of the terminal, or by `COLUMNS`; none if there is neither.
pub(crate) fn window() -> Option<usize> {
    let given = std::env::var("COLUMNS")
        .ok()
        .and_then(|text| text.parse().ok());
    let of_terminal = || rustix::termios::tcgetwinsize(io::stdout()).ok();
    let room = given.or_else(|| of_terminal().map(|size| size.ws_col.into()));
    room.filter(|room| *room > 0)
}

/// A table: a heading, then rows; the first column left-aligned, all others right-aligned; folded in a
/// narrow window.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    layout::columns(head, rows, window())
}

/// A table, or a sentence if it has no rows.
pub(crate) fn table_or(none: &str, head: &[&str], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        format!("{none}\n")
    } else {
        table(head, rows)
    }
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
