//! The arguments of `compare`, as typed.
//!
//! Invariant: checks that clap can make alone (names, numbers, exclusive options) are made here,
//! with exit code 2. Absent: checks of their combination (`plan`).

use crate::{names, numbers};
use clap::ValueEnum;
use remap_ssd_ftl::{GcPolicy, Granularity, SchemeKind};
use remap_ssd_sim::aging::AgingSpec;
use remap_ssd_sim::arrivals::Arrivals;
use remap_ssd_sim::report::Progress;
use remap_ssd_sim::trace::{Action, Fold, Format};
use remap_ssd_sim::workload::{ContentModel, FioJob, NamedWorkload};
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
pub struct Args {
    /// Schemes to compare [default: none,remap-ssd,flog,nlog,opt].
    ///
    /// The others are unsafe, pebble, remap-ssd-x, local-flash, remap-ssd-lh, wal-ssd and
    /// shadow-oob.
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = names::scheme)]
    pub scheme: Vec<SchemeKind>,

    /// A predefined device; `remap-ssd presets` lists them [default: fast21-32g].
    ///
    /// For a recorded session the default is the device that was recorded.
    #[arg(long, value_name = "NAME", help_heading = "Device")]
    pub preset: Option<String>,
    /// A device file; `presets --toml NAME` prints one to start from.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "preset",
        help_heading = "Device"
    )]
    pub config: Option<PathBuf>,
    /// Size, as a share of that device: 1/8 or 0.125; 1 is all of it.
    ///
    /// Default: a preset gets about 1,200,000 flash pages (1/8 of fast21-32g), or fewer if a trace
    /// is short; a device file stays as it is.
    #[arg(long, value_name = "FACTOR", value_parser = numbers::scale, help_heading = "Device")]
    pub scale: Option<f64>,
    /// Any other setting of the device: --set firmware.gc_free=0.2.
    ///
    /// May be repeated, or comma-separated. Sizes are those before --scale. The configuration
    /// reference (docs/configuration.md) and `remap-ssd presets --toml NAME` list the keys.
    #[arg(
        long,
        value_name = "KEY=VALUE",
        value_delimiter = ',',
        help_heading = "Device"
    )]
    pub set: Vec<String>,
    /// Size of NVRAM, or of the log on flash, for remaps, before --scale.
    #[arg(long, value_name = "SIZE", value_parser = numbers::size, help_heading = "Device")]
    pub log_size: Option<u64>,
    /// Deduplication in the device, on or off [default: the device's].
    #[arg(
        long,
        value_name = "on|off",
        hide_possible_values = true,
        hide_short_help = true,
        help_heading = "Device"
    )]
    pub dedup: Option<Switch>,
    /// Policies of garbage collection; a list compares them.
    ///
    /// greedy, cost-benefit, coldmap (shared pages on worn blocks) or cagc (pages grouped by
    /// reference count) [default: the device's, greedy for a preset].
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "POLICY",
        value_parser = names::policy,
        hide_short_help = true,
        help_heading = "Device"
    )]
    pub gc: Vec<GcPolicy>,
    /// Granularity of the mapping table; a list compares them.
    ///
    /// page, or hybrid: blocks of pages in order, with an extension of the table for pages that are
    /// elsewhere [default: the device's, page for a preset].
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "page|hybrid",
        hide_short_help = true,
        help_heading = "Device"
    )]
    pub mapping: Vec<Granularity>,

    /// Host workload: randwrite, zipf:0.99, oltp, ...
    ///
    /// Synthetic addresses: randwrite, randread, randrw:READ%, seqwrite, seqread, seqrw:READ%,
    /// zipf:THETA, zipfread:THETA or zipfrw:THETA:READ%, each with `,pages=N` for requests of N
    /// pages.
    ///
    /// Models of programs: fileserver, oltp, ycsb, tpcc, sysbench, fiu-homes, fiu-mail, fiu-webvm,
    /// journal (pages that name their home, checkpointed by remaps; required by wal-ssd) or
    /// snapshot (volumes cloned by long Copy commands), each with `,size=FACTOR`, `,direct` (reads
    /// bypass the page cache) or `,nodiscard`.
    ///
    /// All with `,span=SHARE` for that share of the pages alone, such as randwrite,span=0.775.
    #[arg(
        long,
        value_name = "SPEC",
        default_value = "randwrite",
        help_heading = "Workload"
    )]
    pub workload: NamedWorkload,
    /// Share of duplicates: --content papers:SHARE [default: 0.3].
    ///
    /// As in the publications: every write draws one of (1 - SHARE) x pages contents.
    #[arg(long, value_name = "SHARE", value_parser = numbers::share, conflicts_with = "content", help_heading = "Workload")]
    pub duplicates: Option<f64>,
    /// Model of the written contents.
    ///
    /// papers:SHARE (every write draws one of (1 - SHARE) x pages contents), plain:SHARE (this
    /// share of the writes repeats a content), repeat:SHARE (that of the previous write, like FIO),
    /// runs:SHARE:PAGES (in runs of PAGES), history:SHARE (of an earlier write) or unique [default:
    /// papers:0.3; for fiu-* their own history:SHARE; for aging before those or a trace: unique].
    #[arg(
        long,
        value_name = "MODEL",
        hide_short_help = true,
        help_heading = "Workload"
    )]
    pub content: Option<ContentModel>,
    /// Replay this trace instead of a workload.
    ///
    /// The whole trace is replayed. It may be compressed with gzip, xz or zstd.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["workload", "writes"], help_heading = "Workload")]
    pub trace: Option<PathBuf>,

    /// Run the workload of a fio job file.
    ///
    /// One job: rw, rwmixread, bs, random_distribution (random or zipf:THETA), dedupe_percentage,
    /// zero_buffers, ioengine, iodepth, numjobs, loops, io_size and number_ios. It reads and writes
    /// the whole device. Defaults are fio's: a synchronous engine, one request in flight. Options
    /// that do not affect the requests are ignored, and listed in the results; all others are
    /// refused. --content, --queue-depth and --writes override the file.
    #[arg(long, value_name = "FILE", value_parser = fio_job, conflicts_with_all = ["workload", "trace"], hide_short_help = true, help_heading = "Workload")]
    pub job: Option<FioJob>,

    /// Format of the trace [default: detected from its content].
    ///
    /// fiu, vscsi, mqsim, msr, blkparse, session, alibaba, tencent, systor, fio, blktrace,
    /// oracleGeneral, fast21, spc, disksim, biosnoop, cloudphysics, or csv:COLUMNS for text with
    /// other columns: csv:time_us,device,op,offset_bytes,size_bytes. docs/traces.md lists the
    /// columns.
    #[arg(
        long,
        requires = "trace",
        hide_short_help = true,
        help_heading = "Trace"
    )]
    pub format: Option<Format>,
    /// How to fold the trace's disk into a smaller device.
    ///
    /// `modulo` keeps distances, `compact` numbers pages in the order of their first access.
    #[arg(long, value_name = "modulo|compact", requires = "trace", default_value_t = Fold::Modulo, hide_short_help = true, help_heading = "Trace")]
    pub fold: Fold,
    /// Count and skip malformed records, instead of stopping at the first.
    #[arg(
        long,
        requires = "trace",
        hide_short_help = true,
        help_heading = "Trace"
    )]
    pub skip_bad: bool,
    /// Events of blkparse and blktrace that count as requests [default: the first of Q, D, C it
    /// has].
    ///
    /// Q (queued), D (issued to the driver) or C (completed).
    #[arg(
        long,
        value_name = "Q|D|C",
        requires = "trace",
        hide_short_help = true,
        help_heading = "Trace"
    )]
    pub blkparse_action: Option<Action>,
    /// Replay flushes, in formats that record them (session, fio, csv).
    ///
    /// A flush waits for all earlier requests, and all later ones wait for it. By default flushes
    /// are left out.
    #[arg(
        long,
        requires = "trace",
        hide_short_help = true,
        help_heading = "Trace"
    )]
    pub flushes: bool,
    /// Replay the trace N times, each time with new contents.
    #[arg(long, value_name = "N", requires = "trace", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..), hide_short_help = true, help_heading = "Trace")]
    pub repeat: u32,

    /// Measure the new, empty device.
    #[arg(long, hide_short_help = true, help_heading = "Aging")]
    pub no_aging: bool,
    /// How to age the device before it is measured.
    ///
    /// A list: fill=random (random writes until garbage collection has run), fill=whole (before
    /// that each page that the workload addresses once, so that none is unmapped), fill=sequential
    /// (only each page once, in order, no content twice) or fill=ordered (the same for the
    /// addressable pages, with the contents below); nvram_used=SHARE of the remapping metadata in
    /// use at the start, nvram_valid=SHARE of that valid; overwrite=TIMES the addressable pages
    /// after that; content=MODEL of the pages written, as for --content [default:
    /// fill=random,nvram_used=0.9,nvram_valid=0.7].
    #[arg(
        long,
        value_name = "LIST",
        conflicts_with = "no_aging",
        hide_short_help = true,
        help_heading = "Aging"
    )]
    pub aging: Option<AgingSpec>,
    /// Start from an image of an aged device.
    ///
    /// If there is no such file, each scheme has its own: aged.remap-ssd.img for aged.img and so
    /// on. State rebuilt by recovery may differ in details from the saved device.
    #[arg(long, value_name = "IMAGE", conflicts_with_all = ["preset", "config", "set", "scale", "log_size", "dedup", "gc", "mapping", "no_aging", "aging"], hide_short_help = true, help_heading = "Aging")]
    pub age: Option<PathBuf>,
    /// Save the aged device before measuring.
    ///
    /// With several schemes, each has its own file: aged.remap-ssd.img and so on.
    #[arg(
        long,
        value_name = "IMAGE",
        conflicts_with = "age",
        hide_short_help = true,
        help_heading = "Aging"
    )]
    pub save_aged: Option<PathBuf>,

    /// Pages that the requests read or write [default: twice the device].
    ///
    /// That is twice the pages that the workload may address.
    #[arg(long, value_name = "N", value_parser = numbers::count, help_heading = "Run")]
    pub writes: Option<u64>,
    /// Seed of all randomness.
    ///
    /// The same seed gives the same results.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Run")]
    pub seed: u64,
    /// Arrival times of requests.
    ///
    /// trace (at the times of the trace, or those that a fiu-* workload was fitted to; trace:SPEED
    /// is SPEED times as fast) or rate:R (R per second on average, at random). `,bound=N` limits
    /// the requests at the device to N; further arrivals wait. Shows response times from arrival,
    /// and the backlog [default: a request enters when one of the --queue-depth earlier ones ends].
    #[arg(
        long,
        value_name = "SPEC",
        conflicts_with = "queue_depth",
        hide_short_help = true,
        help_heading = "Run"
    )]
    pub arrivals: Option<Arrivals>,
    /// Requests in flight [default: the device's].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65535), hide_short_help = true, help_heading = "Run")]
    pub queue_depth: Option<u32>,
    /// Run until the device is worn out and read-only.
    ///
    /// --set flash.endurance=30 makes that happen soon.
    #[arg(long, conflicts_with_all = ["trace", "writes"], hide_short_help = true, help_heading = "Run")]
    pub until_death: bool,
    /// Track the lifetime of flash pages, by how many logical pages shared them.
    ///
    /// Takes 12 bytes of memory per flash page.
    #[arg(
        long,
        conflicts_with = "age",
        hide_short_help = true,
        help_heading = "Run"
    )]
    pub survival: bool,
    /// Number of threads [default: one per core].
    ///
    /// At most this number of schemes run in parallel. A spare thread runs the firmware's part of
    /// another run. No result depends on it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), hide_short_help = true, help_heading = "Run")]
    pub threads: Option<u32>,
    /// Refuse a comparison that clearly takes more memory than this.
    ///
    /// Default: the machine's available memory.
    #[arg(long, value_name = "SIZE", value_parser = numbers::size, hide_short_help = true, help_heading = "Run")]
    pub memory: Option<u64>,

    /// Print all measurements of each scheme below the table.
    #[arg(long, help_heading = "Output")]
    pub details: bool,
    /// Write a page with tables and figures.
    #[arg(long, value_name = "HTML", help_heading = "Output")]
    pub report: Option<PathBuf>,
    /// X axis of the page: host pages, or virtual time.
    #[arg(
        long,
        value_name = "pages|time",
        default_value_t,
        requires = "report",
        hide_short_help = true,
        help_heading = "Output"
    )]
    pub report_x: Progress,
    /// Write the results as JSON to a file, for `compare diff`.
    #[arg(long, value_name = "JSON", help_heading = "Output")]
    pub out: Option<PathBuf>,
    /// Print the results as JSON.
    #[arg(long, help_heading = "Output")]
    pub json: bool,

    /// The words of the command line that affect the results.
    #[arg(skip)]
    pub command: Vec<String>,
}

/// Reads a job file.
fn fio_job(path: &str) -> Result<FioJob, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    text.parse()
}

impl Args {
    /// The synthetic workload.
    pub fn workload(&self) -> NamedWorkload {
        self.job.as_ref().map_or(self.workload, |job| job.workload)
    }

    /// The content model, if given.
    pub fn content(&self) -> Option<ContentModel> {
        let papers = |duplicate_ratio| ContentModel::Papers {
            duplicate_ratio,
            exponent: ContentModel::PAPERS_EXPONENT,
        };
        // Options override a job file.
        let of_job = || self.job.as_ref().map(|job| job.content);
        self.content.or(self.duplicates.map(papers)).or_else(of_job)
    }

    /// Pages that the requests read or write, if given.
    pub fn pages(&self) -> Option<u64> {
        self.writes.or_else(|| self.job.as_ref()?.pages)
    }

    /// Requests in flight, if given.
    pub fn queue_depth(&self) -> Option<u32> {
        let of_job = || self.job.as_ref().map(|job| job.queue_depth);
        self.queue_depth.or_else(of_job)
    }

    /// Specification of the aging.
    pub fn aging(&self) -> AgingSpec {
        self.aging.unwrap_or_default()
    }

    /// Stores the words of a command line, except those that only affect execution or presentation.
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

        // The words are part of the result, which must not depend on threads or on files.
        let mut words = words.into_iter();
        // The program's path does not matter.
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
}

/// A choice of `on` or `off` on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
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
