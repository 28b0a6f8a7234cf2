//! The program `remap-ssd`: compare schemes, cut power, measure the simulator, look into images.
//!
//! Each command has its module: clap's arguments on top, then what it does, then how it is shown.
//! Invariants: results go to standard output, everything else (progress, notes, errors) to standard error; exit
//! code 0 is success, 1 a failure, 2 a mistake in the arguments; with `--json` standard output is one JSON value,
//! the same for the same seed. Absent: anything that the libraries below could not be asked for.

pub mod bench;
pub mod compare;
pub mod crash;
pub mod ctl;
pub mod dedup;
pub mod experiment;
pub mod failure;
pub mod inspect;
pub mod manual;
pub mod numbers;
pub mod output;
pub mod place;
pub mod presets;
pub mod service;
pub mod share;
pub mod torture;
pub mod trace;
pub mod volume;
pub mod watch;

use clap::{Parser, Subcommand};
use failure::Failure;
use std::process::ExitCode;

/// An SSD whose pages can be remapped, in virtual time.
#[derive(Debug, Parser)]
#[command(name = "remap-ssd", version, about, args_override_self = true, after_help = EXAMPLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  remap-ssd compare
  remap-ssd crash --seconds 5
  remap-ssd presets
  remap-ssd compare --help

Exit codes: 0 success, 1 failure, 2 mistake in the arguments.";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Runs one workload or trace against several schemes and lays the results side by side.
    Compare(Box<compare::Args>),
    /// Cuts the power of small, nearly full devices and checks that nothing acknowledged is lost.
    Crash(crash::Args),
    /// Runs the papers' experiments again and lays our figures beside their claims.
    Experiment(experiment::Args),
    /// Measures the speed and the memory of the simulator itself.
    Bench(bench::Args),
    /// Shows what a device image holds, and checks it; the file is not changed.
    Inspect(inspect::Args),
    /// Makes a device in a folder.
    Image(service::image::Args),
    /// Serves a device over NVMe/TCP.
    Serve(service::serve::Args),
    /// Sends one command to a served device.
    Io(service::io::Args),
    /// Plays a workload or a recorded session on a simulated device, on a page in the browser.
    Watch(Box<watch::Args>),
    /// Looks at a served device and changes it: hosts, power cuts, faults, snapshots.
    Ctl(ctl::Args),
    /// Files on a device, for host software that shares pages instead of writing them twice.
    Volume(volume::Args),
    /// Copies, moves, snapshots and defragments by sharing flash pages: no data page is programmed.
    Share(share::Args),
    /// Deduplicates in front of a device, and serves the result as a file.
    Dedup(dedup::Args),
    /// Cuts the power under your program: records one run, and tries what a power cut may leave of it.
    Torture(Box<torture::Args>),
    /// Lists the ready-made devices, or prints one as a file to start from.
    Presets(presets::Args),
    /// Writes workloads as traces, and says what a trace or a workload does.
    Trace(trace::Args),
    /// Prints a script that completes commands and options in a shell.
    Completions(manual::Completions),
    /// Writes manual pages, one for each command.
    Manual(manual::Manual),
}

/// Runs the program on the arguments of the process.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come this way too. Nobody may be listening any more; that is no failure.
            let _ = error.print();
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Runs one command.
///
/// # Errors
/// Why it failed, and with which exit code.
pub fn run(cli: Cli) -> Result<(), Failure> {
    match cli.command {
        Command::Compare(args) => compare::command(&args),
        Command::Crash(args) => crash::command(&args),
        Command::Experiment(args) => experiment::command(&args),
        Command::Bench(args) => bench::command(&args),
        Command::Inspect(args) => inspect::command(&args),
        Command::Image(args) => service::image::command(&args),
        Command::Serve(args) => service::serve::command(&args),
        Command::Io(args) => service::io::command(&args),
        Command::Ctl(args) => ctl::command(&args),
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
