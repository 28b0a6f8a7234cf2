//! `crash`: the power-cut campaign.
//!
//! Invariants: a durable scheme that loses data makes the command fail, with or without a guard
//! switched off; a scheme with its remaps in DRAM must be caught losing them, otherwise the
//! campaign is blind. Absent: the campaign (`remap_ssd_crash`).

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::numbers;
use crate::output::{self, counted};
use crate::settings;
use remap_ssd_crash::{
    Adjust, CampaignOptions, CampaignReport, ReplayCode, StepSink, replay_traced, run,
};
use remap_ssd_ftl::{GcPolicy, Granularity, Guard, SchemeKind};
use remap_ssd_sim::report::format::exact;
use serde_json::json;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Cuts the power of small, nearly full devices again and again, lets the firmware recover, and
/// checks that acknowledged data survive and that no deallocated or overwritten data come back.
///
/// Exit code 1 if a durable scheme lost data; with a guard off (--mutant) that is the expected
/// result. `opt` and `unsafe` keep their remaps in DRAM and are expected to lose data: exit code 0
/// if the campaign found it, else 1. Ctrl-C ends it and shows the results so far; the exit code is
/// then 130.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES_SHORT, after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Schemes, by name [default: all durable ones that can work with the settings].
    ///
    /// With --mutant the default is one scheme that relies on the guard.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub scheme: Vec<SchemeKind>,

    /// Stop each scheme's campaign after this time [default: 10].
    ///
    /// With --cuts there is no default.
    #[arg(long, value_parser = numbers::seconds, help_heading = "Campaign")]
    pub seconds: Option<f64>,
    /// Stop each scheme's campaign after N distinct cuts.
    ///
    /// The result then depends only on the seed.
    #[arg(long, value_name = "N", value_parser = numbers::count, help_heading = "Campaign")]
    pub cuts: Option<u64>,
    /// Seed of all randomness.
    ///
    /// The same seed gives the same results.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Campaign")]
    pub seed: u64,
    /// Repeat one script, by the code that a failure printed.
    #[arg(long, value_name = "CODE", conflicts_with_all = ["seconds", "cuts", "seed", "scheme", "gc", "mapping", "mutant", "media_faults", "threads"], help_heading = "Campaign")]
    pub replay: Option<ReplayCode>,
    /// Number of threads [default: one per core].
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        hide_default_value = true,
        hide_short_help = true,
        help_heading = "Campaign"
    )]
    pub threads: u32,
    /// Stop after N failures [default: 10; 1 where failures are expected].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), hide_short_help = true, help_heading = "Campaign")]
    pub failures: Option<u32>,

    /// Switch off this guard of the firmware, to see the campaign find the loss.
    #[arg(long, value_name = "GUARD", help_heading = "Device")]
    pub mutant: Option<Guard>,
    /// Test on failing media.
    ///
    /// Flash pages and NVRAM words become unreadable between commands and at cuts. Damaged data may
    /// be lost, but an older version must never be read.
    #[arg(long, conflicts_with = "mutant", help_heading = "Device")]
    pub media_faults: bool,
    /// Any setting of all devices: --set firmware.watermark=0.5.
    ///
    /// May be repeated, or comma-separated. Devices that cannot work with it are left out. The
    /// configuration reference (docs/configuration.md) lists the keys.
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', help_heading = "Device")]
    pub set: Vec<String>,
    /// Garbage collection policy: greedy, cost-benefit, coldmap, cagc or d-choices.
    ///
    /// Of all devices [default: greedy on most, each of the others on some].
    #[arg(long, value_name = "POLICY", hide_short_help = true, help_heading = "Device")]
    pub gc: Option<GcPolicy>,
    /// Mapping table: page, or hybrid.
    ///
    /// hybrid is a block table with an extension for single pages.
    #[arg(long, value_name = "page|hybrid", default_value_t = Granularity::Page, hide_short_help = true, help_heading = "Device")]
    pub mapping: Granularity,

    /// Write what the firmware does to a file, as steps of the proof's model.
    ///
    /// `proof/accept` checks them; docs/proof.md describes the lines. Devices with anything that it does not judge are left out. It
    /// judges nlog and none. remap-ssd is traced too, but not accepted yet: what recovery does there is refused, which is no fault.
    #[arg(long, value_name = "FILE", hide_short_help = true, help_heading = "Output")]
    pub trace_steps: Option<PathBuf>,
    /// Print the results as JSON: an object for one scheme, a list for several.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

const EXAMPLES_SHORT: &str = "\
Examples:
  remap-ssd crash
  remap-ssd crash --scheme remap-ssd --cuts 10000 --seed 7
  remap-ssd crash --mutant entry-after-page

--help shows all options (garbage collection, mapping, threads) and more examples.";

const EXAMPLES: &str = "\
Examples:
  remap-ssd crash
  remap-ssd crash --scheme remap-ssd --cuts 10000 --seed 7 --json
  remap-ssd crash --scheme opt
  remap-ssd crash --scheme nlog --gc coldmap
  remap-ssd crash --scheme shadow-oob --mapping hybrid
  remap-ssd crash --scheme remap-ssd --set firmware.watermark=0.3,firmware.wear_gap=1
  remap-ssd crash --mutant entry-after-page
  remap-ssd crash --media-faults --scheme flog
  remap-ssd crash --replay remap-ssd:3:9f2c41d0";

const SECONDS_DEFAULT: f64 = 10.0;

/// Runs `crash`.
///
/// # Errors
/// An unexpected loss of data, or a missing expected one.
pub(crate) fn command(args: &Args) -> Result<(), Failure> {
    let set = settings::parse_untimed(&args.set, &CHOSEN, "a campaign")?;
    let adjust = Adjust::of_settings(set);

    let interrupt = Interrupt::listen()?;
    let steps = args
        .trace_steps
        .as_deref()
        .map(StepFile::create)
        .transpose()?;
    let sink = steps.as_ref().map(StepFile::sink);
    let (mut reports, asked) = match &args.replay {
        Some(code) => {
            let of_code = CampaignOptions {
                mapping: code.mapping,
                policy: code.policy,
                ..CampaignOptions::new(code.scheme, args.seed)
            };
            of_code.check_mapping().map_err(Failure::usage)?;
            let report = replay_traced(code, &adjust, sink).map_err(|why| refused(args, why))?;
            (vec![(code.scheme, report)], 1)
        }
        None => {
            let campaigns = campaigns(args, &adjust, &interrupt, sink)?;
            let reports = campaigns
                .iter()
                .take_while(|_| !interrupt.is_asked())
                .map(|options| (options.scheme, campaign(args, options)))
                .collect();
            (reports, campaigns.len())
        }
    };

    if let Some(steps) = steps {
        steps.finish()?;
    }

    // Only the last one started can have ended early.
    let ended_early = args.replay.is_none() && interrupt.is_asked();
    if ended_early {
        // A campaign without a run would read as "nothing lost".
        reports.retain(|(_, report)| report.scripts > 0);
    }
    if reports.is_empty() {
        return Err(interrupt.before_the_first());
    }

    if args.json {
        let value = match &reports[..] {
            [(_, report)] if asked == 1 => json!(report),
            reports => reports.iter().map(|(_, report)| json!(report)).collect(),
        };
        output::json(&value)?;
    } else {
        output::text(&as_text(args, &reports, ended_early))?;
    }

    if ended_early {
        let last = reports.last().expect("there is one").0;
        return Err(interrupt.failure(format!(
            "interrupted: {} of {}, and {last} not to its end",
            reports.len(),
            counted(asked as u64, "scheme")
        )));
    }

    // A durable scheme must have lost nothing, one in DRAM must have been caught.
    let good = |(scheme, report): &_| is_as_it_should_be(args, *scheme, report);
    Failure::found_unless(reports.iter().all(good))
}

/// Keys that `--set` cannot change here, and the alternative for each.
const CHOSEN: [(&str, &str); 6] = [
    ("firmware.scheme", "use --scheme instead"),
    ("firmware.gc_policy", "use --gc instead"),
    ("firmware.mapping", "use --mapping instead"),
    (
        "firmware.lpns",
        "a campaign has as many pages as its devices can have",
    ),
    (
        "geometry.channels",
        "a campaign knows no time, and channels take part in nothing else",
    ),
    ("content", "a campaign has contents of its own"),
];

/// The campaigns of the schemes that were chosen; without a choice, of those that can work with the settings.
fn campaigns(
    args: &Args,
    adjust: &Adjust,
    interrupt: &Interrupt,
    steps: Option<StepSink>,
) -> Result<Vec<CampaignOptions>, Failure> {
    let chosen = !args.scheme.is_empty();
    let schemes = match chosen {
        true => args.scheme.clone(),
        false => CampaignOptions::schemes(args.mapping, args.mutant),
    };

    // All checks come before the first run.
    let (mut campaigns, mut left_out) = (Vec::new(), Vec::new());
    for scheme in schemes {
        let mut options = options(args, scheme, adjust, interrupt);
        options.steps = steps.clone();
        options.check_mapping().map_err(Failure::usage)?;
        match options.setups() {
            Ok(_) => campaigns.push(options),
            Err(why) if chosen => return Err(refused(args, why)),
            Err(why) => left_out.push((scheme, why)),
        }
    }
    if let (true, Some((_, why))) = (campaigns.is_empty(), left_out.first()) {
        return Err(refused(args, why));
    }
    for (scheme, why) in left_out {
        output::note(format_args!(
            "left out: {scheme} cannot work with these settings: {why}"
        ));
    }
    Ok(campaigns)
}

/// Error for devices made impossible by `--set`.
fn refused(args: &Args, why: impl Display) -> Failure {
    let given = settings::typed(&args.set);
    let text = format!("no device of the campaign can work so: {why} (given:{given})");
    Failure::usage(text)
}

fn options(
    args: &Args,
    scheme: SchemeKind,
    adjust: &Adjust,
    interrupt: &Interrupt,
) -> CampaignOptions {
    // A campaign needs some limit.
    let seconds = args
        .seconds
        .or(args.cuts.is_none().then_some(SECONDS_DEFAULT));

    // One expected failure is proof enough; of unexpected ones, more are worth seeing.
    let expected = !scheme.is_durable() || args.mutant.is_some();
    CampaignOptions {
        seconds,
        cuts: args.cuts,
        threads: args.threads,
        mapping: args.mapping,
        policy: args.gc,
        mutant: args.mutant,
        media_faults: args.media_faults,
        failures: args.failures.unwrap_or(if expected { 1 } else { 10 }),
        adjust: adjust.clone(),
        stop: Arc::clone(interrupt.flag()),
        ..CampaignOptions::new(scheme, args.seed)
    }
}

/// The file of `--trace-steps`.
struct StepFile {
    name: String,
    /// The first error ends it.
    file: Arc<Mutex<io::Result<BufWriter<File>>>>,
}

impl StepFile {
    /// An older file stays as it is until something is written: the campaign may be refused.
    fn create(path: &Path) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path);
        let file = file.map_err(|error| Failure::usage(format!("{name}: {error}")))?;
        let file = Arc::new(Mutex::new(Ok(BufWriter::new(file))));
        Ok(Self { name, file })
    }

    fn sink(&self) -> StepSink {
        let file = Arc::clone(&self.file);
        StepSink(Arc::new(move |steps| {
            let mut file = file.lock().expect("no writer panics");
            let written = match &mut *file {
                Ok(file) => file.write_all(steps.as_bytes()),
                Err(_) => Ok(()),
            };
            if let Err(error) = written {
                *file = Err(error);
            }
        }))
    }

    fn finish(&self) -> Result<(), Failure> {
        let mut file = self.file.lock().expect("no writer panics");
        let flushed = match &mut *file {
            // What was longer before ends here.
            Ok(file) => file
                .stream_position()
                .and_then(|end| file.flush().and_then(|()| file.get_ref().set_len(end))),
            Err(error) => Err(std::mem::replace(error, io::ErrorKind::Other.into())),
        };
        flushed.map_err(|error| Failure::usage(format!("{}: {error}", self.name)))
    }
}

fn campaign(args: &Args, options: &CampaignOptions) -> CampaignReport {
    let form = "{prefix:9} {bar:30} {percent:>3} %  {msg}";
    let line = output::bar(args.json, Some(1000), form);
    line.set_prefix(options.scheme.name());
    let report = run(options, &mut |progress| {
        let part = match args.cuts {
            Some(cuts) => progress.cuts as f64 / cuts as f64,
            None => progress.seconds / options.seconds.unwrap_or(f64::INFINITY),
        };
        line.set_position((part * 1000.0) as u64);
        line.set_message(format!(
            "{}, {}, {}",
            counted(progress.cuts, "cut"),
            exact(progress.recoveries) + " recoveries",
            counted(progress.violations, "violation")
        ));
    });

    line.finish_and_clear();
    report
}

/// Returns true if a scheme that is not durable was caught, and any other lost nothing.
fn is_as_it_should_be(args: &Args, scheme: SchemeKind, report: &CampaignReport) -> bool {
    match scheme.is_durable() {
        true => report.violations == 0,
        // A single script may well lose nothing.
        false => report.violations > 0 || args.replay.is_some(),
    }
}

/// The table and all findings; `ended_early` refers to the last campaign.
fn as_text(args: &Args, reports: &[(SchemeKind, CampaignReport)], ended_early: bool) -> String {
    let row = |(at, (scheme, report)): (usize, &(SchemeKind, CampaignReport))| {
        let numbers = [
            report.cuts,
            report.recoveries,
            report.scripts,
            report.violations,
        ];

        // Two ways to fail: losing data that must survive, and not noticing an expected loss.
        let verdict = match (scheme.is_durable(), report.violations) {
            (_, 0) if ended_early && at + 1 == reports.len() => "nothing lost so far",
            (_, 0) if is_as_it_should_be(args, *scheme, report) => "nothing lost",
            (_, 0) => "should have lost something: not caught",
            (true, _) => "DATA LOST",
            (false, _) => "loses data, as expected: caught",
        };

        let mut row = vec![scheme.to_string()];
        row.extend(numbers.map(exact));
        row.push(verdict.into());
        row
    };
    let rows: Vec<Vec<String>> = reports.iter().enumerate().map(row).collect();
    let mut text = output::table(
        &[
            "scheme",
            "cuts",
            "recoveries",
            "scripts",
            "violations",
            "verdict",
        ],
        &rows,
    );

    if let Some(guard) = args.mutant {
        text.push_str(&format!(
            "\nThe firmware ran without its guard `{guard}`: a violation is what should be found.\n"
        ));
    }

    if args.replay.is_none() {
        text.push_str(&format!("\nSeed {}.\n", args.seed));
    }
    for failed in reports.iter().flat_map(|(_, report)| &report.failures) {
        text.push_str(&format!("\n{}\n", failed.text.trim_end()));
        if args.replay.is_none() {
            text.push_str(&format!(
                "Run it again: remap-ssd crash --replay {}{}\n",
                failed.code,
                settings::typed(&args.set)
            ));
        }
    }

    text
}
