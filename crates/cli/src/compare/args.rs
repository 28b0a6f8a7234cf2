//! The arguments of `compare`, as typed.
//!
//! Invariant: what clap can judge alone (names, numbers, exclusive options) is judged here, with
//! exit code 2. Absent: what they mean together (`plan`).

use crate::{names, numbers};
use clap::ValueEnum;
use remap_ssd_ftl::{GcPolicy, Granularity, SchemeKind};
use remap_ssd_sim::aging::{AgingSpec, FillSpec};
use remap_ssd_sim::arrivals::Arrivals;
use remap_ssd_sim::report::Progress;
use remap_ssd_sim::trace::{Fold, Format};
use remap_ssd_sim::workload::{ContentModel, NamedWorkload};
use std::path::PathBuf;

/// Runs one workload or trace against several schemes of address remapping, on the same device, and
/// lays the results side by side.
///
/// Each device is aged first, as in the published evaluations: random writes until garbage
/// collection has run, then remaps until 90 % of the remapping metadata is used and 70 % of that is
/// valid. The results depend on the seed and the options alone, not on --threads nor on the
/// machine.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Schemes, by name: none, remap-ssd, flog, nlog, opt [default: these]; unsafe, pebble,
    /// remap-ssd-x, local-flash, remap-ssd-lh, wal-ssd, shadow-oob.
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = names::scheme)]
    pub scheme: Vec<SchemeKind>,

    /// A ready-made device; `remap-ssd presets` lists them [default: fast21-32g; for a recorded
    /// session, the device that was recorded].
    #[arg(long, value_name = "NAME", help_heading = "Device")]
    pub preset: Option<String>,
    /// A device file; `remap-ssd presets --toml NAME` prints one to start from.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "preset",
        help_heading = "Device"
    )]
    pub config: Option<PathBuf>,
    /// Size of the device as a share of the given one [default: a preset gets about 1,200,000 flash
    /// pages (1/8 of fast21-32g), or fewer if a trace is short; a device file stays as it is].
    #[arg(long, value_name = "FACTOR", value_parser = numbers::scale, help_heading = "Device")]
    pub scale: Option<f64>,
    /// Sets any value of the device by its name, before --scale: --set firmware.gc_free=0.2. May be
    /// repeated, or several with commas. docs/configuration.md lists them, and `remap-ssd presets
    /// --toml NAME` with comments.
    #[arg(
        long,
        value_name = "KEY=VALUE",
        value_delimiter = ',',
        help_heading = "Device"
    )]
    pub set: Vec<String>,
    /// Remapping metadata (NVRAM, or log on flash) of the device before --scale, which shrinks it
    /// with everything else.
    #[arg(long, value_name = "SIZE", value_parser = numbers::size, help_heading = "Device")]
    pub log_size: Option<u64>,
    /// Deduplication engine of the device.
    #[arg(long, value_name = "on|off", help_heading = "Device")]
    pub dedup: Option<Switch>,

    /// Dies that a superblock spans, and so a segment group and a collection (FAST'21, note 2): 1
    /// is a block; writes are striped over all dies all the same. Not for schemes that keep entries
    /// on flash [default: the device's, all].
    #[arg(hide = true, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64), help_heading = "Device")]
    pub superblock_dies: Option<u32>,
    /// Garbage collection starts when this share of the superblocks is free [default: the
    /// device's].
    #[arg(hide = true, long, value_name = "SHARE", value_parser = numbers::share, help_heading = "Device")]
    pub gc_free: Option<f64>,
    /// Program/erase cycles after which a block is retired [default: the device's].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..), help_heading = "Less common")]
    pub endurance: Option<u64>,
    /// What garbage collection collects and where it puts it: greedy, cost-benefit, coldmap (shared
    /// pages on worn blocks) or cagc (pages apart by reference count); a list compares them
    /// [default: the device's, greedy for a preset].
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "POLICY",
        value_parser = names::policy,
        help_heading = "Device"
    )]
    pub gc: Vec<GcPolicy>,
    /// What an entry of the mapping table stands for: page, or hybrid (a block of pages in order,
    /// and an extension of the table for those that are elsewhere); a list compares them [default:
    /// the device's, page for a preset].
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "page|hybrid",
        help_heading = "Less common"
    )]
    pub mapping: Vec<Granularity>,
    /// Hybrid mapping: logical pages of a block, whatever the --scale [default: the device's].
    #[arg(hide = true, long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=4096), help_heading = "Device")]
    pub block_pages: Option<u32>,
    /// Hybrid mapping: entries of the extension, as a share of the logical pages [default: the
    /// device's].
    #[arg(hide = true, long, value_name = "SHARE", value_parser = numbers::share, help_heading = "Device")]
    pub extension: Option<f64>,

    /// randwrite, randread, randrw:READ%, seqwrite, seqread, seqrw:READ%, zipf:THETA,
    /// zipfread:THETA or zipfrw:THETA:READ%, each with `,pages=N` for requests of N pages; or
    /// fileserver, oltp, ycsb, tpcc, sysbench, fiu-homes, fiu-mail, fiu-webvm, journal (pages that
    /// name their home, checkpointed by remaps; wal-ssd needs it) or snapshot (volumes cloned by
    /// long Copy commands), each with `,size=FACTOR`, `,direct` (reads go to the device too) or
    /// `,nodiscard`.
    #[arg(
        long,
        value_name = "SPEC",
        default_value = "randwrite",
        help_heading = "Workload"
    )]
    pub workload: NamedWorkload,
    /// Duplicate data by the published definition: the same as --content papers:SHARE.
    #[arg(long, value_name = "SHARE", value_parser = numbers::share, conflicts_with = "content", help_heading = "Workload")]
    pub duplicates: Option<f64>,
    /// What is written: papers:SHARE (every write draws one of (1 - SHARE) x pages contents),
    /// plain:SHARE (this share of the writes repeats a content), repeat:SHARE (that of the write
    /// before, as FIO does), runs:SHARE:PAGES (in runs of PAGES), history:SHARE (of an earlier
    /// write) or unique [default: papers:0.3; for fiu-* their own history:SHARE; for aging before
    /// those or a trace: unique].
    #[arg(long, value_name = "MODEL", help_heading = "Workload")]
    pub content: Option<ContentModel>,
    /// Pages that the measured requests read or write [default: twice the addressable pages].
    #[arg(long, value_name = "N", value_parser = numbers::count, help_heading = "Workload")]
    pub writes: Option<u64>,

    /// Replay this trace instead of a workload, all of it (plain, or compressed by gzip, xz or
    /// zstd).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["workload", "writes"], help_heading = "Trace")]
    pub trace: Option<PathBuf>,
    /// Format of the trace: fiu, vscsi, mqsim, msr, blkparse, session, alibaba, tencent, systor,
    /// fio, blktrace or oracleGeneral [default: told from its content].
    #[arg(long, requires = "trace", help_heading = "Less common")]
    pub format: Option<Format>,
    /// How the trace's disk is folded into the device: `modulo` keeps distances, `compact` numbers
    /// pages as they come.
    #[arg(long, value_name = "modulo|compact", requires = "trace", default_value_t = Fold::Modulo, help_heading = "Less common")]
    pub fold: Fold,
    /// Count malformed records and go on, instead of stopping at the first.
    #[arg(long, requires = "trace", help_heading = "Less common")]
    pub skip_bad: bool,
    /// Replay the trace so many times; each time it writes new contents.
    #[arg(long, value_name = "N", requires = "trace", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Less common")]
    pub repeat: u32,
    /// The same as --arrivals trace.
    #[arg(long, hide = true, requires = "trace", help_heading = "Trace")]
    pub open_loop: bool,

    /// When requests arrive: trace (at the times of the trace, or those that a fiu-* workload was
    /// fitted to; trace:SPEED is SPEED times as fast) or rate:R (R a second in the mean, at
    /// random). `,bound=N` lets at most N be with the device, and what arrives meanwhile waits.
    /// Shows response times from arrival, and the backlog [default: a request enters when one of
    /// the --queue-depth earlier ones ends].
    #[arg(long, value_name = "SPEC", conflicts_with_all = ["open_loop", "queue_depth"], help_heading = "Run")]
    pub arrivals: Option<Arrivals>,
    /// Requests in flight [default: the device's].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65535), help_heading = "Run")]
    pub queue_depth: Option<u32>,
    /// Everything follows from it.
    #[arg(long, default_value_t = 1, help_heading = "Run")]
    pub seed: u64,
    /// Threads: so many schemes run at the same time, and a thread that none needs does the
    /// firmware's part of another's run. No result depends on it [default: one per core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Less common")]
    pub threads: Option<u32>,
    /// Memory that all this may take: what clearly takes more is refused [default: what the machine
    /// has available].
    #[arg(long, value_name = "SIZE", value_parser = numbers::size, help_heading = "Less common")]
    pub memory: Option<u64>,
    /// Measure the new, empty device.
    #[arg(long, help_heading = "Run")]
    pub no_aging: bool,
    /// How the device is aged, as a list: fill=random (random writes until garbage collection has
    /// run), fill=whole (each addressable page once before that, so that none is unmapped) or
    /// fill=sequential (each page once, in order, and nothing else); nvram_used=SHARE of the
    /// remapping metadata in use at the start, nvram_valid=SHARE of that valid; overwrite=TIMES the
    /// addressable pages after that [default: fill=random,nvram_used=0.9,nvram_valid=0.7].
    #[arg(long, value_name = "LIST", conflicts_with_all = ["no_aging", "fill"], help_heading = "Less common")]
    pub aging: Option<AgingSpec>,
    /// The same as --aging fill=sequential.
    #[arg(long, hide = true, conflicts_with = "no_aging", help_heading = "Run")]
    pub fill: bool,
    /// Go on until the device is worn out and read-only; --endurance makes that soon.
    #[arg(long, conflicts_with_all = ["trace", "writes"], help_heading = "Less common")]
    pub until_death: bool,
    /// Watch how long flash pages live, by how many logical pages shared them (12 bytes a flash
    /// page).
    #[arg(long, conflicts_with = "age", help_heading = "Less common")]
    pub survival: bool,
    /// Start from an image of an aged device. Where there is no such file, each scheme has its own:
    /// aged.img means aged.remap-ssd.img and so on. What recovery rebuilds may differ in details
    /// from the device that was saved.
    #[arg(long, value_name = "IMAGE", conflicts_with_all = ["preset", "config", "set", "scale", "log_size", "dedup", "superblock_dies", "gc", "mapping", "block_pages", "extension", "gc_free", "endurance", "no_aging", "aging", "fill"], help_heading = "Less common")]
    pub age: Option<PathBuf>,
    /// Save the aged device before measuring; of several schemes, each to its own file:
    /// aged.remap-ssd.img and so on.
    #[arg(
        long,
        value_name = "IMAGE",
        conflicts_with = "age",
        help_heading = "Less common"
    )]
    pub save_aged: Option<PathBuf>,

    /// Print all measurements of each scheme below the table.
    #[arg(long, help_heading = "Output")]
    pub details: bool,
    /// Write a page with tables and figures.
    #[arg(long, value_name = "HTML", help_heading = "Output")]
    pub report: Option<PathBuf>,
    /// What the page shows the course of a run over: pages (of the host) or time (virtual).
    #[arg(
        long,
        value_name = "pages|time",
        default_value_t,
        requires = "report",
        help_heading = "Output"
    )]
    pub report_x: Progress,
    /// Write the results as JSON to a file, for `compare diff`.
    #[arg(long, value_name = "JSON", help_heading = "Output")]
    pub out: Option<PathBuf>,
    /// Print the results as JSON.
    #[arg(long, help_heading = "Output")]
    pub json: bool,

    /// The words of the command line, as far as they decide the results.
    #[arg(skip)]
    pub command: Vec<String>,
}

impl Args {
    /// How a device is aged.
    pub fn aging(&self) -> AgingSpec {
        let fill = if self.fill {
            FillSpec::Sequential
        } else {
            FillSpec::Random
        };
        self.aging.unwrap_or(AgingSpec {
            fill,
            ..AgingSpec::default()
        })
    }

    /// Takes the words of a command line, without those that decide only how it is done or shown.
    pub fn said(&mut self, words: impl IntoIterator<Item = String>) {
        const SHOWN: [&str; 7] = [
            "--threads",
            "--memory",
            "--json",
            "--details",
            "--report",
            "--report-x",
            "--out",
        ];
        const VALUES: [&str; 5] = ["--threads", "--memory", "--report", "--report-x", "--out"];

        let mut words = words.into_iter();
        // The program's name, however it was found.
        drop(words.next());
        self.command.push("remap-ssd".into());

        while let Some(word) = words.next() {
            let name = word.split('=').next().unwrap_or_default();
            if !SHOWN.contains(&name) {
                self.command.push(word);
            } else if VALUES.contains(&word.as_str()) {
                drop(words.next());
            }
        }
    }

    /// When requests arrive, if they do not wait for one another.
    pub fn arrivals(&self) -> Option<Arrivals> {
        self.arrivals.or(self.open_loop.then_some(Arrivals::OWN))
    }
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

pub(super) const EXAMPLES: &str = "\
Examples:
  remap-ssd compare
  remap-ssd compare --scheme none,remap-ssd --duplicates 0.1 --log-size 40MiB --report report.html
  remap-ssd compare --workload zipfrw:0.99:70,pages=4 --content plain:0.3 --details
  remap-ssd compare --workload fileserver --duplicates 0.1
  remap-ssd compare --workload journal --scheme none,wal-ssd,remap-ssd
  remap-ssd compare --workload snapshot --scheme remap-ssd,remap-ssd-x,opt --log-size 40MiB
  remap-ssd compare --trace mail.fiu --fold compact --repeat 3
  remap-ssd compare --trace disk.csv --format msr --arrivals trace --json
  remap-ssd compare --workload fiu-homes --arrivals trace:100,bound=32 --details
  remap-ssd compare --aging fill=whole,nvram_used=0.9,nvram_valid=0.7 --details
  remap-ssd compare --workload zipf:0.99 --arrivals rate:5000 --report response.html
  remap-ssd compare --config device.toml --scale 1/4 --dedup off
  remap-ssd compare --preset coldmap-16g --scheme none,remap-ssd --gc greedy,coldmap --fill
  remap-ssd compare --scheme none,remap-ssd,opt --superblock-dies 1
  remap-ssd compare --scheme none,shadow-oob --mapping page,hybrid --block-pages 8 --details
  remap-ssd compare --scale 1/64 --until-death --endurance 30
  remap-ssd compare --scheme remap-ssd --save-aged aged.img
  remap-ssd compare --age aged.img --writes 100k
  remap-ssd compare --scheme remap-ssd --out a.json
  remap-ssd compare --scheme remap-ssd --set flash.read_ns=40_000 --out b.json
  remap-ssd compare diff a.json b.json --fail-if 'wa>+2%'";
