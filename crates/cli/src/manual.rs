//! `completions` and `manual`: shell completions and manual pages of this program, from its own
//! arguments.
//!
//! Invariants: both are generated from the declaration that parses arguments, so that they cannot
//! differ from `--help`. Absent: where a system stores them; the examples show that for Debian.

use crate::Cli;
use crate::failure::Failure;
use crate::output;
use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command, CommandFactory};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_sim::workload::NamedWorkload;
use remap_ssd_study::names;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// Prints a script that completes commands, options and their values in a shell.
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

/// A parser with its own errors, and the values that a shell completes.
#[derive(Clone)]
pub(crate) struct Completed<P>(pub(crate) P, pub(crate) fn() -> Vec<String>);

impl<P: TypedValueParser> TypedValueParser for Completed<P> {
    type Value = P::Value;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<P::Value, clap::Error> {
        self.0.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        possible((self.1)())
    }
}

/// Values for completion; none if there is no list of them.
pub(crate) fn possible(values: Vec<String>) -> Option<Box<dyn Iterator<Item = PossibleValue>>> {
    let is_list = !values.is_empty();
    is_list.then(|| Box::new(values.into_iter().map(PossibleValue::new)) as _)
}

/// A scheme, completed.
pub(crate) fn scheme() -> impl TypedValueParser<Value = SchemeKind> {
    Completed(str::parse::<SchemeKind>, names::schemes)
}

/// A preset, completed.
pub(crate) fn preset() -> impl TypedValueParser<Value = String> {
    Completed(clap::builder::StringValueParser::new(), names::presets)
}

/// A workload, completed.
pub(crate) fn workload() -> impl TypedValueParser<Value = NamedWorkload> {
    Completed(str::parse::<NamedWorkload>, names::workloads)
}

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

/// Options with their values, then arguments.
fn synopsis(name: &str, command: &Command) -> String {
    let shown = |arg: &&Arg| !arg.is_hide_set() && arg.get_id() != "help";
    let one = |arg: &Arg| {
        let is_free = !arg.is_required_set() && !arg.is_positional();
        let usage = arg.clone().to_string();
        if is_free { format!("[{usage}]") } else { usage }
    };
    let options = command.get_arguments().filter(|arg| !arg.is_positional());
    let options = options.filter(shown).map(one);
    let positionals = command.get_positionals().filter(shown).map(one);
    let below = command.has_subcommands().then(|| "<COMMAND>".to_owned());
    let words = options.chain(positionals).chain(below);
    std::iter::once(name.to_owned())
        .chain(words)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Writes the page of a command and those of its subcommands.
fn write_pages(folder: &Path, command: &Command) -> Result<(), Failure> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let path = folder.join(format!("{name}.1"));

    // The usage of a whole option is its name and its value, which the crate's own synopsis lacks.
    let usage = synopsis(name, command);
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone().override_usage(usage))
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
