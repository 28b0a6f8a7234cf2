//! `completions` and `manual`: shell completions and manual pages of this program, from its own
//! arguments.
//!
//! Invariants: both are generated from the declaration that parses arguments, so that they cannot
//! differ from `--help`. Absent: where a system stores them; the examples show that for Debian.

use crate::Cli;
use crate::failure::Failure;
use crate::output;
use clap::CommandFactory;
use std::fs;
use std::path::{Path, PathBuf};

/// Prints a script that completes commands and options in a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub(crate) struct Completions {
    /// The shell.
    pub shell: clap_complete::Shell,
}

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  remap-ssd completions bash > ~/.local/share/bash-completion/completions/remap-ssd
  remap-ssd completions zsh > ~/.zfunc/_remap-ssd
  remap-ssd completions fish > ~/.config/fish/completions/remap-ssd.fish";

/// Writes manual pages, one for each command.
#[derive(Debug, clap::Args)]
#[command(after_help = MANUAL_EXAMPLES)]
pub(crate) struct Manual {
    /// The folder to write them to; it is created if it does not exist.
    pub folder: PathBuf,
}

const MANUAL_EXAMPLES: &str = "\
Examples:
  remap-ssd manual ~/.local/share/man/man1 && man remap-ssd-compare";

/// Runs `completions`.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn completions(args: &Completions) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "remap-ssd", &mut script);

    output::text(&String::from_utf8_lossy(&script))
}

/// Runs `manual`.
///
/// # Errors
/// The folder or a page cannot be written; the sentence names it.
pub(crate) fn manual(args: &Manual) -> Result<(), Failure> {
    let folder = &args.folder;
    fs::create_dir_all(folder).map_err(|error| Failure::about(folder.display(), error))?;

    // Built, so that each command knows its full name, `remap-ssd share snapshot`.
    let mut program = Cli::command();
    program.build();
    write_pages(folder, &program)
}

/// Writes the page of a command and those of its subcommands.
fn write_pages(folder: &Path, command: &clap::Command) -> Result<(), Failure> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let path = folder.join(format!("{name}.1"));

    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone())
        .render(&mut page)
        .map_err(Failure::failed)?;
    fs::write(&path, page).map_err(|error| Failure::about(path.display(), error))?;

    // `help` and hidden commands have no page.
    let below = command
        .get_subcommands()
        .filter(|below| below.get_name() != "help" && !below.is_hide_set());
    for below in below {
        write_pages(folder, below)?;
    }
    Ok(())
}
