//! The program `remap-ssd`: compares schemes, cuts power, measures the simulator, inspects images.
//!
//! Each command has its module: clap's arguments first, then the work, then the presentation.
//! Invariants: results go to standard output, everything else (progress, notes, errors) to standard
//! error; exit code 0 is success, 1 a failure, 2 a mistake in the arguments, 130 Ctrl-C; with
//! `--json` standard output is one JSON value, the same for the same seed. Absent: any function
//! that the libraries below do not offer.

#![warn(unreachable_pub)]

mod bench;
mod compare;
mod crash;
mod ctl;
mod dedup;
mod experiment;
mod failure;
mod inspect;
mod interrupt;
mod key;
mod manual;
mod output;
mod place;
mod presets;
mod service;
mod share;
mod sweep;
mod torture;
mod trace;
mod volume;
mod watch;

use remap_ssd_study::{numbers, settings};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use failure::Failure;
use std::ffi::OsString;
use std::process::ExitCode;

/// An SSD whose pages can be remapped: simulate it, test it under power cuts, serve it.
#[derive(Debug, Parser)]
#[command(name = "remap-ssd", version, about, args_override_self = true, after_help = EXAMPLES)]
struct Cli {
    /// The command named by the first word.
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  remap-ssd compare
  remap-ssd crash --seconds 5
  remap-ssd presets
  remap-ssd compare --help

Exit codes: 0 success, 1 failure, 2 mistake in the arguments, 130 Ctrl-C.";

/// Every command of the program, with its arguments.
#[derive(Debug, Subcommand)]
enum Command {
    /// Runs one workload or trace on several schemes and compares the results.
    Compare(Box<compare::CompareCommand>),
    /// Cuts the power of small, nearly full devices and checks that nothing acknowledged is lost.
    Crash(crash::Args),
    /// Runs a grid of comparisons from a file, each point once, on all cores.
    Sweep(sweep::Args),
    /// Repeats the papers' experiments and compares each claim with our figure.
    Experiment(experiment::Args),
    /// Measures the speed and memory of the program itself.
    Bench(bench::Args),
    /// Shows and checks the contents of a device image, without changing it.
    Inspect(inspect::Args),
    /// Creates, checks and repairs a device in a folder.
    Image(service::image::Args),
    /// Serves a device over NVMe/TCP, FUSE or vfio-user.
    Serve(Box<service::serve::Args>),
    /// Sends one command to a served device.
    Io(service::io::Args),
    /// Plays a workload or a recorded session on a simulated device, on a page in the browser.
    Watch(Box<watch::Args>),
    /// Inspects and changes a served device: hosts, power cuts, faults, snapshots.
    Ctl(ctl::Args),
    /// Prints a new key with which a host authenticates, or connects by TLS.
    Key(key::Args),
    /// Manages files on a device, for host software that shares pages instead of writing them
    /// twice.
    Volume(volume::Args),
    /// Copies, moves, snapshots and defragments by sharing flash pages, without programming data.
    Share(share::Args),
    /// Serves a deduplicating disk on top of a device, as a file.
    Dedup(dedup::Args),
    /// Tests your program under power cuts: records one run, then checks states that a cut may
    /// leave.
    Torture(Box<torture::Args>),
    /// Lists the predefined devices, or prints one as a device file.
    Presets(presets::Args),
    /// Writes workloads as traces, and analyses traces and workloads.
    Trace(trace::Args),
    /// Prints a script that completes commands, options and their values in a shell.
    Completions(manual::Completions),
    /// Writes manual pages, one for each command.
    Manual(manual::Manual),
}

/// Runs the program on the arguments of the process.
pub fn main() -> ExitCode {
    let cli = match parse() {
        Ok(mut cli) => {
            // The original command line, because a result includes the command that reproduces it.
            if let Command::Compare(line) = &mut cli.command {
                let words = std::env::args_os().map(|word| word.to_string_lossy().into());
                line.args.spec.0.command = remap_ssd_study::said(words);
            }
            cli
        }
        Err(error) => {
            // Help and version come this way too. A closed standard output is no failure then.
            let _ = error.print();
            return ExitCode::from(error.exit_code() as u8);
        }
    };

    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => output::failure(&failure),
    }
}

/// Parses the arguments of the process. Help is wrapped in a window; `help WORDS --help` is the help of
/// these words.
fn parse() -> Result<Cli, clap::Error> {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    if words.get(1).is_some_and(|word| word == "help") {
        words.retain(|word| word != "--help" && word != "-h");
    }
    // 0 is as wide as the text.
    let mut command = Cli::command().term_width(output::window().unwrap_or(0));
    let mut matches = command.try_get_matches_from_mut(words)?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// Runs one command.
///
/// # Errors
/// Why it failed, and with which exit code.
fn run(cli: Cli) -> Result<(), Failure> {
    match cli.command {
        Command::Compare(line) => compare::command(&line),
        Command::Crash(args) => crash::command(&args),
        Command::Sweep(args) => sweep::command(&args),
        Command::Experiment(args) => experiment::command(&args),
        Command::Bench(args) => bench::command(&args),
        Command::Inspect(args) => inspect::command(&args),
        Command::Image(args) => service::image::command(&args),
        Command::Serve(args) => service::serve::command(&args),
        Command::Io(args) => service::io::command(&args),
        Command::Ctl(args) => ctl::command(&args),
        Command::Key(args) => key::command(&args),
        Command::Watch(args) => watch::command(*args),
        Command::Volume(args) => volume::command(&args),
        Command::Share(args) => share::command(&args),
        Command::Dedup(args) => dedup::command(&args),
        Command::Torture(args) => torture::command(&args),
        Command::Presets(args) => presets::command(&args),
        Command::Trace(args) => trace::command(&args),
        Command::Completions(args) => manual::completions(&args),
        Command::Manual(args) => manual::manual(&args),
    }
}
