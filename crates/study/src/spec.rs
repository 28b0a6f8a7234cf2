//! The description of a comparison: each option is declared once, with its help, its text form and
//! the options that it excludes.
//!
//! The command line, grids and the Python package are built from this list. Invariant: what is
//! not given stays empty, so that a default may depend on the rest. Absent: tables of named values
//! (`values`); checks that need the device (`plan`).

use crate::field::{Field, Kind, number, on_off, parsed, seed};
use crate::schema::figure;
use crate::{names, numbers};
use remap_ssd_ftl::{GcPolicy, Granularity, SchemeKind};
use remap_ssd_sim::aging::AgingSpec;
use remap_ssd_sim::arrivals::Arrivals;
use remap_ssd_sim::precision::Precision;
use remap_ssd_sim::report::Progress;
use remap_ssd_sim::report::sheet::TableForm;
use remap_ssd_sim::study::{Recorded, WARM_UP};
use remap_ssd_sim::timeline::TimelineWindow;
use remap_ssd_sim::trace::{Action, Fold, Format};
use remap_ssd_sim::workload::{ContentModel, FioJob, NamedWorkload};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One option of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct OptionDef {
    /// Its name, with `_` between words.
    pub name: &'static str,
    /// Placeholder for its value; empty for a switch.
    pub value: &'static str,
    /// How the value is given.
    pub kind: Kind,
    /// The lines of its help; an empty line separates paragraphs, of which the first is the short
    /// help.
    pub help: &'static [&'static str],
    /// Subject: device, workload, ...; empty for the schemes.
    pub subject: &'static str,
    /// Rarely needed: not in the short help.
    pub is_rare: bool,
    /// The value without this option, if it is always the same.
    pub default: Option<&'static str>,
    /// Options that cannot be used with this one.
    pub excludes: &'static [&'static str],
    /// Options without any of which this one has no meaning; none if it stands alone.
    pub needs: &'static [&'static str],
    /// Its values, for completion in a shell; those that end in `:` or `=` go on. Empty if they are
    /// numbers, paths or too many.
    pub values: fn() -> Vec<String>,
    pub(crate) set: fn(&mut ComparisonSpec, &OsStr) -> Result<(), Wrong>,
    pub(crate) is_given: fn(&ComparisonSpec) -> bool,
}

/// Why a text is not an option's value.
type Wrong = Box<dyn std::error::Error>;

/// Declares the fields of a description, and the list of its options.
macro_rules! options {
    ($(
        $subject:literal {
            $(
                $(#[doc = $doc:literal])*
                $name:ident: $type:ty = $value:literal, $parse:expr $(, $key:ident: $set:expr)*;
            )*
        }
    )*) => {
        /// A comparison, completely described: schemes, device, requests, aging, measures, and how
        /// it is run.
        ///
        /// A field that is not given has the default that its description names. In a table of
        /// named values, each field is an option; a name with a dot is a setting of the device.
        #[derive(Clone, Debug, Default, serde::Deserialize)]
        #[serde(try_from = "serde_json::Map<String, serde_json::Value>")]
        pub struct ComparisonSpec {
            $($(
                $(#[doc = $doc])*
                pub $name: $type,
            )*)*

            /// The command line that asked for it, a part of the result; empty if there is none.
            pub command: Vec<String>,

            /// Requests of the caller's own, instead of a workload or a trace; no option names them.
            pub requests: Option<Arc<dyn Recorded>>,
        }

        /// All options of a comparison.
        pub const OPTIONS: &[OptionDef] = &[$($(
            OptionDef {
                $($key: $set,)*
                ..OptionDef {
                    name: stringify!($name),
                    value: $value,
                    kind: <$type as Field>::KIND,
                    help: &[$($doc),*],
                    subject: $subject,
                    is_rare: false,
                    default: None,
                    excludes: &[],
                    needs: &[],
                    values: Vec::new,
                    set: |spec, text| {
                        let text = text.to_str().ok_or("invalid UTF-8")?;
                        Field::store(&mut spec.$name, $parse(text)?);
                        Ok(())
                    },
                    is_given: |spec| Field::is_given(&spec.$name),
                }
            },
        )*)*];
    };
}

options! {
    "" {
        /// Schemes to compare [default: none,remap-ssd,flog,nlog,opt].
        ///
        /// The others are unsafe, pebble, remap-ssd-x, local-flash, remap-ssd-lh, wal-ssd and
        /// shadow-oob.
        scheme: Vec<SchemeKind> = "LIST", names::scheme, values: names::schemes;
    }
    "Device" {
        /// A predefined device; `remap-ssd presets` lists them [default: fast21-32g].
        ///
        /// For a recorded session the default is the device that was recorded.
        preset: Option<String> = "NAME", parsed, values: names::presets;

        /// A device file; `presets --toml NAME` prints one to start from.
        config: Option<PathBuf> = "FILE", parsed, kind: Kind::Path, set: |spec, path| {
            spec.config = Some(path.into());
            Ok(())
        }, excludes: &["preset"];

        /// Size, as a share of that device: 1/8 or 0.125; 1 is all of it.
        ///
        /// Default: a preset gets about 600,000 flash pages (1/16 of fast21-32g), or fewer if a trace
        /// is short; a device file stays as it is. The least is one word line a block, a page unless cells have
        /// several bits or dies several planes; a smaller one is raised, with a note.
        scale: Option<f64> = "FACTOR", numbers::scale;

        /// Any other setting of the device: --set firmware.gc_free=0.2.
        ///
        /// May be repeated, or comma-separated. Sizes are those before --scale. The configuration
        /// reference (docs/configuration.md) and `remap-ssd presets --toml NAME` list the keys.
        set: Vec<String> = "KEY=VALUE", parsed;

        /// Size of NVRAM, or of the log on flash, for remaps, before --scale.
        log_size: Option<u64> = "SIZE", numbers::size;

        /// Deduplication in the device, on or off [default: the device's].
        dedup: Option<bool> = "on|off", on_off, values: names::on_off, is_rare: true;

        /// Policies of garbage collection; a list compares them.
        ///
        /// greedy, cost-benefit, coldmap (shared pages on worn blocks), cagc (pages grouped by
        /// reference count) or d-choices (the best of ten drawn at random) [default: the device's, greedy for a preset].
        gc: Vec<GcPolicy> = "POLICY", names::policy, values: names::policies, is_rare: true;

        /// Granularity of the mapping table; a list compares them.
        ///
        /// page, or hybrid: blocks of pages in order, with an extension of the table for pages that are
        /// elsewhere [default: the device's, page for a preset].
        mapping: Vec<Granularity> = "page|hybrid", names::mapping, values: names::granularities, is_rare: true;
    }
    "Workload" {
        /// Host workload: randwrite, zipf:0.99, oltp, ...
        ///
        /// Synthetic addresses: randwrite, randread, randrw:READ%, seqwrite, seqread, seqrw:READ%,
        /// zipf:THETA, zipfread:THETA, zipfrw:THETA:READ%, hot:20:80 (80 % of the writes go to 20 % of
        /// the pages), hotread or hotrw, each with `,pages=N` for requests of N pages.
        ///
        /// Models of programs: fileserver, oltp, ycsb, tpcc, sysbench, fiu-homes, fiu-mail, fiu-webvm,
        /// journal (pages that name their home, checkpointed by remaps; required by wal-ssd) or
        /// snapshot (volumes cloned by long Copy commands), each with `,size=FACTOR`, `,direct` (reads
        /// bypass the page cache) or `,nodiscard`.
        ///
        /// All with `,span=SHARE` for that share of the pages alone, such as randwrite,span=0.775, and `,flush=N` for a flush after
        /// every N requests, for which later ones wait.
        workload: Option<NamedWorkload> = "SPEC", parsed, values: names::workloads, default: Some("randwrite");

        /// Share of duplicates: --content papers:SHARE [default: 0.3].
        ///
        /// As in the publications: every write draws one of (1 - SHARE) x pages contents. Without this
        /// option and --content a trace keeps its own contents.
        duplicates: Option<f64> = "SHARE", numbers::share, excludes: &["content"];

        /// Model of the written contents.
        ///
        /// papers:SHARE (every write draws one of (1 - SHARE) x pages contents), plain:SHARE (this
        /// share of the writes repeats a content), repeat:SHARE (that of the previous write, like FIO),
        /// runs:SHARE:PAGES (in runs of PAGES), history:SHARE (of an earlier write), measured:... (as
        /// printed by `trace stat --json` for a trace with digests) or unique [default: papers:0.3; for
        /// fiu-* their own history:SHARE; for a trace: its own].
        ///
        /// A trace without digests gets its contents from the model; a trace with digests is refused.
        content: Option<ContentModel> = "MODEL", parsed, values: names::contents, is_rare: true;

        /// Replay this trace instead of a workload.
        ///
        /// The whole trace is replayed. It may be compressed with gzip, xz or zstd.
        trace: Option<PathBuf> = "FILE", parsed, kind: Kind::Path, set: |spec, path| {
            spec.trace = Some(path.into());
            Ok(())
        }, excludes: &["workload", "writes"];

        /// Run the workload of a fio job file.
        ///
        /// One job: rw, rwmixread, bs, random_distribution (random or zipf:THETA), dedupe_percentage,
        /// zero_buffers, ioengine, iodepth, numjobs, loops, io_size and number_ios. It reads and writes
        /// the whole device. Defaults are fio's: a synchronous engine, one request in flight. Options
        /// that do not affect the requests are ignored, and listed in the results; all others are
        /// refused. --content, --queue-depth and --writes override the file.
        job: Option<FioJob> = "FILE", fio_job, kind: Kind::Path, excludes: &["workload", "trace"], is_rare: true;
    }
    "Trace" {
        /// Format of the trace [default: detected from its content].
        ///
        /// fiu, vscsi, mqsim, msr, blkparse, session, alibaba, tencent, systor, fio, blktrace,
        /// oracleGeneral, fast21, spc, disksim, biosnoop, cloudphysics, or csv:COLUMNS for text with
        /// other columns: csv:time_us,device,op,offset_bytes,size_bytes. docs/traces.md lists the
        /// columns.
        format: Option<Format> = "FORMAT", parsed, values: names::formats, needs: &["trace"], is_rare: true;

        /// How to fold the trace's disk into a smaller device.
        ///
        /// `modulo` keeps distances, `compact` numbers pages in the order of their first access.
        fold: Option<Fold> = "modulo|compact", parsed, values: names::folds,
            default: Some("modulo"), needs: &["trace"], is_rare: true;

        /// Count and skip malformed records, instead of stopping at the first.
        skip_bad: bool = "", parsed, needs: &["trace"], is_rare: true;

        /// Events of blkparse and blktrace that count as requests [default: the first of Q, D, C it
        /// has].
        ///
        /// Q (queued), D (issued to the driver) or C (completed).
        blkparse_action: Option<Action> = "Q|D|C", parsed, values: names::actions, needs: &["trace"], is_rare: true;

        /// Replay flushes, in formats that record them (session, fio, csv).
        ///
        /// A flush waits for all earlier requests, and all later ones wait for it. By default flushes
        /// are left out.
        flushes: bool = "", parsed, needs: &["trace"], is_rare: true;

        /// Replay the trace N times, each time with new contents.
        repeat: Option<u32> = "N", number::<{ u32::MAX }>,
            default: Some("1"), needs: &["trace"], is_rare: true;
    }
    "Aging" {
        /// Measure the new, empty device.
        no_aging: bool = "", parsed, is_rare: true;

        /// How to age the device before it is measured.
        ///
        /// A list: fill=whole (each page that the workload addresses once, so that none is unmapped, then
        /// random writes until garbage collection has run), fill=random (only the latter),
        /// fill=sequential (only each page once, in order, no content twice) or fill=ordered (the same
        /// for the addressable pages, with the contents below); overwrite=TIMES the addressable pages
        /// after that; nvram_used=SHARE of the remapping metadata in use at the start, nvram_valid=SHARE
        /// of that valid; content=MODEL of the pages written, as for --content. With unique contents all
        /// schemes begin with the same flash [default:
        /// fill=whole,nvram_used=0.9,nvram_valid=0.7,overwrite=2,content=unique].
        aging: Option<AgingSpec> = "LIST", parsed, excludes: &["no_aging"], is_rare: true;

        /// Start from an image of an aged device.
        ///
        /// If there is no such file, each scheme has its own: aged.remap-ssd.img for aged.img and so
        /// on. State rebuilt by recovery may differ in details from the saved device.
        age: Option<PathBuf> = "IMAGE", parsed, kind: Kind::Path, set: |spec, path| {
            spec.age = Some(path.into());
            Ok(())
        }, excludes: &["preset", "config", "set", "scale", "log_size", "dedup", "gc", "mapping", "no_aging", "aging"], is_rare: true;

        /// Save the aged device before measuring.
        ///
        /// With several schemes, each has its own file: aged.remap-ssd.img and so on.
        save_aged: Option<PathBuf> = "IMAGE", parsed, kind: Kind::Path, set: |spec, path| {
            spec.save_aged = Some(path.into());
            Ok(())
        }, excludes: &["age"], is_rare: true;
    }
    "Run" {
        /// Pages that the requests read or write [default: twice the device].
        ///
        /// That is twice the pages that the workload may address.
        writes: Option<u64> = "N", numbers::count;

        /// Warm up until write amplification is steady, for at most TIMES the addressed pages.
        ///
        /// The workload runs before it is measured; 0 measures at once. The results say whether the
        /// measured part was steady [default: 16; 0 with --writes, --no-aging or --until-death].
        steady: Option<f64> = "TIMES", steady, excludes: &["trace", "until_death"], is_rare: true;

        /// Measure until a figure is this precise: wa=0.5%, bandwidth=1% or iops=1%.
        ///
        /// That is half the width of its 95 % confidence interval, in a steady state. The workload runs
        /// for at least as many pages as it addresses, and for at most 64 times as many; the output says
        /// so if that was not enough.
        precision: Option<Precision> = "FIGURE=PERCENT", parsed,
            excludes: &["trace", "writes", "until_death"], is_rare: true;

        /// Seed of all randomness.
        ///
        /// The same seed gives the same results.
        seed: Option<u64> = "N", seed, default: Some("1");

        /// Arrival times of requests.
        ///
        /// trace (at the times of the trace, or those that a fiu-* workload was fitted to; trace:SPEED
        /// is SPEED times as fast), rate:R (R per second on average, at random) or burst:N:S (bursts of N at once, one
        /// every S seconds; the device is idle between them). `,bound=N` limits
        /// the requests at the device to N; further arrivals wait. Shows response times from arrival,
        /// and the backlog [default: a request enters when one of the --queue-depth earlier ones ends].
        arrivals: Option<Arrivals> = "SPEC", parsed, values: names::arrivals, excludes: &["queue_depth"], is_rare: true;

        /// Requests in flight [default: the device's].
        queue_depth: Option<u32> = "N", number::<65_535>, is_rare: true;

        /// Run until the device is worn out and read-only.
        ///
        /// --set flash.endurance=30 makes that happen soon.
        until_death: bool = "", parsed, excludes: &["trace", "writes"], is_rare: true;

        /// Track the lifetime of flash pages, by how many logical pages shared them.
        ///
        /// Takes 12 bytes of memory per flash page.
        survival: bool = "", parsed, excludes: &["age"], is_rare: true;

        /// Number of threads [default: one per core].
        ///
        /// At most this number of schemes run in parallel. A spare thread runs the firmware's part of
        /// another run. No result depends on it.
        threads: Option<u32> = "N", number::<{ u32::MAX }>, is_rare: true;

        /// Refuse a comparison that clearly takes more memory than this.
        ///
        /// Default: the machine's available memory.
        memory: Option<u64> = "SIZE", numbers::size, is_rare: true;
    }
    "Output" {
        /// Write a page with tables and figures.
        report: Option<PathBuf> = "HTML", parsed, kind: Kind::Path, set: |spec, path| {
            spec.report = Some(path.into());
            Ok(())
        };

        /// X axis of the page: host pages, or virtual time.
        report_x: Option<Progress> = "pages|time", parsed, values: names::progresses,
            default: Some("pages"), needs: &["report"], is_rare: true;

        /// Write a picture of what each die did, with timing.engine=nand: FILE.svg.
        ///
        /// With several schemes, each has its own file: dies.remap-ssd.svg and so on. With --report, the page
        /// has the pictures as well.
        timeline: Option<PathBuf> = "SVG", parsed, kind: Kind::Path, set: |spec, path| {
            check_svg(path.as_ref())?;
            spec.timeline = Some(path.into());
            Ok(())
        }, is_rare: true;

        /// The part of the run in that picture: a beginning and a length, such as 1.5s+20ms.
        ///
        /// Without --timeline, only the page of --report has the picture. Default: a fiftieth, or less if dies did
        /// very much, until the last request enters.
        timeline_window: Option<TimelineWindow> = "FROM+LENGTH", parsed,
            needs: &["timeline", "report"], is_rare: true;

        /// Write the table for a paper or a spreadsheet: FILE.tex (LaTeX), FILE.md or FILE.csv.
        table: Option<PathBuf> = "FILE", parsed, kind: Kind::Path, set: |spec, path| {
            TableForm::of(path.as_ref())?;
            spec.table = Some(path.into());
            Ok(())
        }, is_rare: true;

        /// Figures of the table: by their names in the JSON, or their short names in `compare diff`.
        ///
        /// A comma-separated list, such as wa,p99,gc_pages [default: those that are printed].
        show: Vec<String> = "LIST", figure, needs: &["table"], is_rare: true;

        /// Write the results as JSON to a file, for `compare diff`.
        out: Option<PathBuf> = "JSON", parsed, kind: Kind::Path, set: |spec, path| {
            spec.out = Some(path.into());
            Ok(())
        };
    }
}

/// Parses the maximum length of a warm-up.
fn steady(text: &str) -> Result<f64, Wrong> {
    let times = text.parse().ok();
    let fits = times.filter(|times| (0.0..=1000.0).contains(times));
    fits.ok_or_else(|| format!("{text} is not a number from 0 to 1000").into())
}

/// Checks that a picture's file ends in .svg.
fn check_svg(path: &Path) -> Result<(), Wrong> {
    match path.extension() {
        Some(ending) if ending.eq_ignore_ascii_case("svg") => Ok(()),
        _ => Err("a picture's file ends in .svg".into()),
    }
}

/// Reads a job file.
fn fio_job(path: &str) -> Result<FioJob, Wrong> {
    Ok(std::fs::read_to_string(path)?.parse()?)
}

impl ComparisonSpec {
    /// The synthetic workload.
    pub fn workload(&self) -> NamedWorkload {
        let of_job = self.job.as_ref().map(|job| job.workload);
        of_job.or(self.workload).unwrap_or_else(|| {
            let default = "randwrite".parse();
            default.expect("the default is a workload")
        })
    }

    /// Seed of all randomness; 1 unless one is given.
    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or(1)
    }

    /// The part of the runs in pictures of dies, if any are wanted.
    pub(crate) fn pictured(&self) -> Option<TimelineWindow> {
        let of_file = || self.timeline.is_some().then(TimelineWindow::default);
        self.timeline_window.or_else(of_file)
    }

    /// Rounds of a trace.
    pub(crate) fn repeat(&self) -> u32 {
        self.repeat.unwrap_or(1)
    }

    /// The content model, if given.
    pub(crate) fn content(&self) -> Option<ContentModel> {
        let papers = |duplicate_ratio| ContentModel::Papers {
            duplicate_ratio,
            exponent: ContentModel::PAPERS_EXPONENT,
        };
        // Options override a job file.
        let of_job = || self.job.as_ref().map(|job| job.content);
        self.content.or(self.duplicates.map(papers)).or_else(of_job)
    }

    /// Pages that the requests read or write, if given.
    pub(crate) fn pages(&self) -> Option<u64> {
        self.writes.or_else(|| self.job.as_ref()?.pages)
    }

    /// Maximum warm-up, in multiples of the addressed pages.
    pub(crate) fn warm_up(&self) -> f64 {
        let measures_at_once = self.pages().is_some() || self.no_aging;
        let has_none = self.until_death || self.trace.is_some();
        let default = if has_none || (measures_at_once && self.precision.is_none()) {
            0.0
        } else {
            WARM_UP
        };
        self.steady.unwrap_or(default)
    }

    /// Requests in flight, if given.
    pub fn queue_depth(&self) -> Option<u32> {
        let of_job = || self.job.as_ref().map(|job| job.queue_depth);
        self.queue_depth.or_else(of_job)
    }

    /// Specification of the aging.
    pub(crate) fn aging(&self) -> AgingSpec {
        self.aging.unwrap_or_default()
    }

    /// Leaves out the trace, and everything that needs one.
    pub(crate) fn without_trace(&mut self) {
        (self.trace, self.arrivals, self.format, self.fold) = (None, None, None, None);
        (self.blkparse_action, self.repeat) = (None, None);
        (self.skip_bad, self.flushes) = (false, false);
    }
}
