//! Output: results to standard output, notes to standard error, atomic files.
//!
//! Invariant: nothing here panics, even if the reader is gone. Absent: the content.

use crate::failure::Failure;
use crate::interrupt::SIGNALLED;
use remap_ssd_sim::report::format::exact;
use std::fmt;
use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tempfile::NamedTempFile;

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

/// Writes a file atomically.
///
/// # Errors
/// The system's reason, with the file's name.
pub fn file(path: &Path, text: &str) -> Result<(), Failure> {
    Pending::begin(path)?.write(text)
}

/// A file to be written: under a temporary name until it is complete, then renamed. Dropped, it
/// leaves nothing.
#[derive(Debug)]
pub struct Pending {
    path: PathBuf,
    /// None if the path exists and is no regular file, such as a terminal.
    beside: Option<NamedTempFile>,
}

impl Pending {
    /// Checks that it can be written.
    ///
    /// # Errors
    /// The system's reason, with the file's name.
    pub fn begin(path: &Path) -> Result<Self, Failure> {
        let about = |error: io::Error| Failure::about(path.display(), error);
        let path = path.to_owned();

        // A device or a pipe cannot be replaced by renaming: it is written in place.
        if path.exists() && !path.is_file() {
            if path.is_dir() {
                return Err(about(io::ErrorKind::IsADirectory.into()));
            }
            return Ok(Self { path, beside: None });
        }

        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        if !folder.is_dir() {
            let why = format!("there is no folder {}", folder.display());
            return Err(Failure::about(path.display(), why));
        }

        // Written beside it and renamed, so that a reader never finds a partial file.
        let beside = tempfile::Builder::new()
            .prefix(".remap-ssd-")
            // Permissions of a normal new file, subject to the umask: a temporary file is private
            // by default.
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder)
            // The temporary name would not help the user.
            .map_err(|error| about(io::Error::from(error.kind())))?;

        Ok(Self {
            path,
            beside: Some(beside),
        })
    }

    /// Writes it.
    ///
    /// # Errors
    /// The system's reason, with the file's name.
    pub fn write(self, text: &str) -> Result<(), Failure> {
        let about = |error: io::Error| Failure::about(self.path.display(), error);
        let Some(mut beside) = self.beside else {
            return std::fs::write(&self.path, text).map_err(about);
        };
        beside.write_all(text.as_bytes()).map_err(about)?;
        // Durable before it has its name: a crash must not leave an empty file under it.
        beside.as_file().sync_all().map_err(about)?;
        beside
            .persist(&self.path)
            .map(drop)
            .map_err(|error| about(error.error))
    }
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

/// A number with its noun: `1 page`, `2,000 pages`.
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
