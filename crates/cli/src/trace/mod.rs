//! `trace`: writes workloads as traces, and analyses traces and workloads.
//!
//! Absent: replaying a trace (`compare --trace`).

mod make;
mod stat;

use crate::failure::Failure;
use crate::manual::Completed;
use crate::numbers;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use remap_ssd_sim::workload::ContentModel;
use remap_ssd_study::{Feed, names};
use std::time::{Duration, Instant};

/// Writes workloads as traces, and analyses traces and workloads.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The command named by the next word.
    #[command(subcommand)]
    pub command: Command,
}

/// Operations on traces.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Writes the requests of a workload to a file.
    Make(make::Args),
    /// Analyses traces: requests, sizes, working set, duplicates by each definition, skew.
    Stat(stat::Args),
    /// Lists the workloads that are models of applications and of traces, with their sources.
    Models,
}

const EXAMPLES: &str = "\
Examples:
  remap-ssd trace make fiu-homes --requests 100k --out homes.fiu
  remap-ssd trace stat homes.fiu
  remap-ssd trace stat disk.csv --content plain:0.3
  remap-ssd trace stat --workload ycsb --device 4GiB --requests 200k
  remap-ssd trace make fileserver --requests 20k --seed 7 --format blkparse --out fileserver.txt
  remap-ssd trace stat homes.fiu fileserver.txt --json
  remap-ssd trace stat mine.csv --format csv:time_us,device,op,offset_bytes,size_bytes
  remap-ssd trace models";

/// Runs `trace`.
///
/// # Errors
/// Unreadable input, or a failed write.
pub(crate) fn command(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Make(args) => make::command(args),
        Command::Stat(args) => stat::command(args),
        Command::Models => stat::models(),
    }
}

/// Parameters of a workload: size of the device, contents, seed.
#[derive(Debug, clap::Args)]
pub(crate) struct WorkloadArgs {
    /// Logical size of the device, all of which the workload may address; the models' page sets
    /// shrink with it, and a trace with --content is folded into it [default: the published device's
    /// of a model, else 32GiB].
    #[arg(long, value_name = "SIZE", value_parser = numbers::size)]
    pub device: Option<u64>,
    /// Model of the written contents, as for `compare`: papers:SHARE, plain:SHARE, repeat:SHARE,
    /// runs:SHARE:PAGES, history:SHARE, measured:... or unique. A trace without digests gets its
    /// contents from it [default: papers:0.3; for fiu-* and traces their own].
    #[arg(long, value_name = "MODEL", value_parser = Completed(str::parse::<ContentModel>, names::contents), hide_possible_values = true)]
    pub content: Option<ContentModel>,
    /// Seed of all randomness.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl WorkloadArgs {
    fn feed(&self) -> Feed {
        Feed {
            device: self.device,
            content: self.content,
            seed: self.seed,
        }
    }
}

/// A progress line on standard error that appears after two seconds.
pub(crate) struct Patience {
    line: ProgressBar,
    began: Instant,
    hidden: bool,
}

impl Patience {
    /// With a known number of steps, or without.
    pub(crate) fn new(what: &str, steps: Option<u64>) -> Self {
        // Hidden at first: a short operation needs no bar.
        let line = ProgressBar::with_draw_target(steps, ProgressDrawTarget::hidden());
        let template = match steps {
            Some(_) => "{prefix} {bar:40} {percent:>3} %  {elapsed}, {eta} left",
            None => "{prefix} {human_pos} requests  {elapsed}",
        };
        line.set_style(ProgressStyle::with_template(template).expect("the template is valid"));
        line.set_prefix(what.to_owned());
        Self {
            line,
            began: Instant::now(),
            hidden: true,
        }
    }

    /// Shows the progress of `work`, which reports the steps done and their number. The line is
    /// gone before anything else is printed.
    pub(crate) fn during<R>(what: &str, work: impl FnOnce(&mut dyn FnMut(u64, u64)) -> R) -> R {
        let mut patience = None;
        work(&mut |done, all| {
            patience
                .get_or_insert_with(|| Self::new(what, Some(all)))
                .at(done);
        })
    }

    pub(crate) fn at(&mut self, step: u64) {
        const SILENT: Duration = Duration::from_secs(2);
        if self.hidden && self.began.elapsed() > SILENT {
            self.line.set_draw_target(ProgressDrawTarget::stderr());
            self.hidden = false;
        }
        self.line.set_position(step);
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        self.line.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_shown_for_what_takes_longer_than_two_seconds_and_for_nothing_else() {
        let mut patience = Patience::new("reading", Some(10));
        patience.began = Instant::now() + Duration::from_secs(3600);
        patience.at(1);
        assert!(patience.hidden, "it has just begun");

        // The clock of a freshly booted machine may not reach back that far.
        if let Some(began) = Instant::now().checked_sub(Duration::from_secs(3)) {
            patience.began = began;
            patience.at(2);
            assert!(!patience.hidden, "it takes three seconds already");
        }
    }
}
