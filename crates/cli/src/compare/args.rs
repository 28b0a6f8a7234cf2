//! The options of a comparison on a command line: those of `remap_ssd_study`, and what is printed.
//!
//! Invariant: clap checks values and exclusive options by the library's list, with exit code 2.
//! Absent: names, help and parsing of the options (`remap_ssd_study::OPTIONS`).

use crate::manual::possible;
use clap::builder::{PossibleValue, TypedValueParser, ValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches, value_parser};
use remap_ssd_study::{ComparisonSpec, Kind, OPTIONS, OptionDef};
use std::ffi::OsStr;
use std::path::PathBuf;

/// Runs one workload or trace against several schemes of address remapping, on the same device, and
/// compares the results side by side.
///
/// Each device is aged first, as in the published evaluations: random writes until garbage
/// collection has run, then remaps until 90 % of the remapping metadata is used and 70 % of that is
/// valid. The results depend on the seed and the options alone, not on --threads nor on the
/// machine.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES_SHORT, after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// What is compared.
    #[command(flatten)]
    pub spec: SpecArgs,
    /// Print all measurements of each scheme below the table.
    #[arg(long, help_heading = "Output")]
    pub details: bool,
    /// Print the results as JSON.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// A description from the options of a command line; without `OUTPUT`, of a run that writes no results.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpecArgs<const OUTPUT: bool = true>(pub ComparisonSpec);

impl<const OUTPUT: bool> SpecArgs<OUTPUT> {
    fn options() -> impl Iterator<Item = &'static OptionDef> {
        let is_wanted = |option: &&OptionDef| OUTPUT || option.subject != "Output";
        OPTIONS.iter().filter(is_wanted)
    }
}

impl<const OUTPUT: bool> clap::Args for SpecArgs<OUTPUT> {
    fn augment_args(command: Command) -> Command {
        command.args(Self::options().map(arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const OUTPUT: bool> FromArgMatches for SpecArgs<OUTPUT> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut found = Self::default();
        found.update_from_arg_matches(matches)?;
        Ok(found)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for option in Self::options() {
            if matches.value_source(option.name) != Some(ValueSource::CommandLine) {
                continue;
            }
            for text in matches.get_raw(option.name).into_iter().flatten() {
                let set = self.0.set(option, text);
                set.map_err(|error| {
                    clap::Error::raw(clap::error::ErrorKind::ValueValidation, error)
                })?;
            }
        }
        Ok(())
    }
}

/// An option as an argument of clap.
fn arg(option: &'static OptionDef) -> Arg {
    let arg = Arg::new(option.name)
        .long(option.name.replace('_', "-"))
        .help(option.short_help())
        .hide_short_help(option.is_rare)
        .conflicts_with_all(option.excludes);

    let arg = match option.kind {
        Kind::Switch => arg.action(ArgAction::SetTrue),
        _ => arg
            .value_name(option.value)
            // A value with its reason, not an unknown option.
            .allow_negative_numbers(true)
            .hide_possible_values(true)
            .value_parser(match option.kind {
                Kind::Path => value_parser!(PathBuf),
                _ => ValueParser::new(CheckedText(option)),
            }),
    };
    let arg = match option.kind {
        Kind::List => arg.action(ArgAction::Append).value_delimiter(','),
        _ => arg,
    };

    let arg = match option.long_help() {
        Some(long) => arg.long_help(long),
        None => arg,
    };
    let arg = match option.subject {
        "" => arg,
        subject => arg.help_heading(subject),
    };
    // Of several, any one will do, which the library checks.
    let arg = match option.needs {
        [other] => arg.requires(*other),
        _ => arg,
    };
    match option.default {
        Some(value) => arg.default_value(value),
        None => arg,
    }
}

/// Text that the library has checked.
#[derive(Clone)]
struct CheckedText(&'static OptionDef);

impl TypedValueParser for CheckedText {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        let check = |text: &str| self.0.check(text).map(|()| text.to_owned());
        TypedValueParser::parse_ref(&check, command, arg, value)
    }

    /// For completion.
    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        possible((self.0.values)())
    }
}

/// Shown by `-h`, which lists only the daily options.
pub(super) const EXAMPLES_SHORT: &str = "\
Examples:
  remap-ssd compare --duplicates 0.1 --report report.html
  remap-ssd compare --scheme none,remap-ssd --workload zipf:0.99 --details
  remap-ssd compare --trace mail.fiu --out a.json
  remap-ssd compare diff a.json b.json --fail-if 'wa>+2%'

--help shows all options (garbage collection, traces, aging, arrivals, ...) and more examples.";

pub(super) const EXAMPLES: &str = "\
Examples:
  remap-ssd compare
  remap-ssd compare --scheme none,remap-ssd --duplicates 0.1 --log-size 40MiB --report report.html
  remap-ssd compare --workload zipfrw:0.99:70,pages=4 --content plain:0.3 --details
  remap-ssd compare --workload fileserver --duplicates 0.1
  remap-ssd compare --workload journal --scheme none,wal-ssd,remap-ssd
  remap-ssd compare --workload snapshot --scheme remap-ssd,remap-ssd-x,opt --log-size 40MiB
  remap-ssd compare --job oltp.fio --report oltp.html
  remap-ssd compare --trace mail.fiu --fold compact --repeat 3
  remap-ssd compare --trace disk.csv --format msr --arrivals trace --json
  remap-ssd compare --trace disk.csv --content plain:0.3
  remap-ssd compare --trace mail.fiu --table mail.tex --show wa,p99 --report mail.html
  remap-ssd compare --workload fiu-homes --arrivals trace:100,bound=32 --details
  remap-ssd compare --aging fill=whole,nvram_used=0.9,nvram_valid=0.7 --details
  remap-ssd compare --workload zipf:0.99 --arrivals rate:5000 --report response.html
  remap-ssd compare --config device.toml --scale 1/4 --dedup off
  remap-ssd compare --preset coldmap-16g --scheme none,remap-ssd --gc greedy,coldmap --aging fill=sequential
  remap-ssd compare --scheme none,remap-ssd,opt --set geometry.superblock_dies=1
  remap-ssd compare --scheme none,shadow-oob --mapping page,hybrid --set firmware.block_pages=8 --details
  remap-ssd compare --scale 1/64 --until-death --set flash.endurance=30
  remap-ssd compare --scheme remap-ssd --save-aged aged.img
  remap-ssd compare --age aged.img --writes 100k
  remap-ssd compare --scheme remap-ssd --out a.json
  remap-ssd compare --scheme remap-ssd --set flash.read_ns=40_000 --out b.json
  remap-ssd compare diff a.json b.json --fail-if 'wa>+2%'";
