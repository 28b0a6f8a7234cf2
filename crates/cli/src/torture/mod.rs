//! `torture`: finds data that a program loses on power failure.
//!
//! Invariants: a failed check is shown even if the campaign is interrupted, with a replay code and
//! the recording for the replay; exit code 1 without one means that an input or output failed.
//! Absent: the effects of a power cut (`hosts/torture`).

mod show;

use crate::failure::Failure;
use crate::manual::scheme;
use crate::numbers::{count, seconds, size};
use crate::output;
use crate::settings;
use crate::trace::Patience;
use remap_ssd_device::Setting;
use remap_ssd_ftl::SchemeKind;
use remap_ssd_torture::{
    Campaign, Code, DiskGeometry, Fault, FileSystem, Firmware, Progress, Recording, RecordingSpec,
    Results, Rounds, TortureError, file_name, id, load, private_mounts, record, require, save,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Records a run of your program on a disk with a volatile write cache, cuts the power at many
/// instants of it, and runs your check on the disk after each cut.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES_SHORT, after_long_help = EXAMPLES, args_override_self = true)]
pub(crate) struct Args {
    /// File system of $DIR: ext4, xfs, btrfs, ... Needs root.
    ///
    /// Any that this kernel and an installed mkfs support.
    #[arg(long, value_name = "FS", conflicts_with_all = ["file", "from", "replay"], help_heading = "Run")]
    fs: Option<String>,
    /// No file system: $FILE is the disk, in the folder $DIR. Needs no root.
    ///
    /// Like a block device it keeps its size: `> $FILE` overwrites its beginning and truncates nothing,
    /// so the bytes after it stay, and `conv=notrunc` of dd changes nothing here.
    #[arg(long, conflicts_with_all = ["from", "replay"], help_heading = "Run")]
    file: bool,
    /// No file: the disk is served at $ADDRESS by NVMe/TCP, as $NQN. Needs no root.
    ///
    /// For programs that are NVMe hosts themselves. The completions of their commands are the
    /// acknowledgements: Flush, FUA, and the write cache feature count.
    #[arg(long, conflicts_with_all = ["fs", "file", "from", "replay"], help_heading = "Run")]
    nvme_tcp: bool,
    /// Command to record, run by `sh -c`.
    #[arg(long, value_name = "CMD", conflicts_with_all = ["from", "replay"], help_heading = "Run")]
    workload: Option<String>,
    /// Command that must succeed after each cut, run by `sh -c`.
    ///
    /// Exit code 0 is success [default with --from and --replay: the recorded one].
    #[arg(long, value_name = "CMD", help_heading = "Run")]
    check: Option<String>,
    /// End the workload after this time [default: it runs to its end].
    #[arg(long, value_name = "SECONDS", value_parser = seconds, hide_short_help = true, help_heading = "Run")]
    limit: Option<f64>,
    /// Make the file system write back dirty pages this often, on average.
    ///
    /// Data that a program does not sync reach the disk only then. 0: never.
    #[arg(
        long,
        value_name = "MILLISECONDS",
        default_value_t = 200,
        hide_short_help = true,
        help_heading = "Run"
    )]
    writeback: u64,

    /// Number of cuts.
    #[arg(long, value_name = "N", value_parser = count, default_value = "100", help_heading = "Cuts")]
    rounds: u64,
    /// Seed of the cuts.
    #[arg(long, value_name = "S", default_value_t = 1, help_heading = "Cuts")]
    seed: u64,
    /// Do all cuts, even after a check has failed.
    ///
    /// Outcomes are counted by the last line of the check's output.
    #[arg(long, help_heading = "Cuts")]
    keep_going: bool,
    /// Time limit of a check; one that takes longer has failed.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "60", hide_short_help = true, help_heading = "Cuts")]
    timeout: f64,
    /// Time to search for the fewest lost blocks that still fail; 0: none.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 30,
        hide_short_help = true,
        help_heading = "Cuts"
    )]
    shrink: u64,

    /// Size of the disk [default: 256MiB; 512MiB for xfs].
    #[arg(long, value_name = "SIZE", value_parser = size, hide_short_help = true, help_heading = "Disk")]
    size: Option<u64>,
    /// Bytes of a logical block, which a power cut leaves old or new: 512, 4096, ... 65536.
    ///
    /// Programs and file systems that rely on atomic pages fail at 512: ext4's own superblock is
    /// torn. Above 4096, mkfs needs blocks of that size: xfs with --mkfs-options '-b size=16384'.
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 4096,
        hide_short_help = true,
        help_heading = "Disk"
    )]
    block: u32,
    /// A write of at most this size survives a power cut whole or not at all.
    ///
    /// As on a drive with this atomic write unit (NVMe: AWUPF). A longer write tears at any block
    /// [default: each block is old or new].
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = size,
        conflicts_with_all = ["replay", "scheme", "dedup", "set"],
        hide_short_help = true,
        help_heading = "Disk"
    )]
    atomic_writes: Option<u64>,
    /// Fault of the disk while the workload runs; may be repeated.
    ///
    /// read-error:P (each block, until it is written), latency:MS@P, full[:BYTES] or
    /// read-only[:BYTES] (after this number of bytes written). Data acknowledged before must
    /// survive; a workload may end with an error once a request has failed. With --nvme-tcp
    /// commands end with Unrecovered Read Error, Capacity Exceeded, or Namespace is Write
    /// Protected, or are completed late.
    #[arg(long, value_name = "FAULT", conflicts_with_all = ["from", "replay"], hide_short_help = true, help_heading = "Disk")]
    fault: Vec<Fault>,
    /// More options for mkfs, separated by spaces.
    #[arg(
        long,
        value_name = "OPTIONS",
        default_value = "",
        allow_hyphen_values = true,
        hide_short_help = true,
        help_heading = "Disk"
    )]
    mkfs_options: String,
    /// Options of the mount, separated by commas.
    #[arg(
        long,
        value_name = "OPTIONS",
        default_value = "",
        hide_short_help = true,
        help_heading = "Disk"
    )]
    mount_options: String,

    /// Put a device below the cache, with this scheme's firmware.
    ///
    /// At each cut its flash and NVRAM lose operations in progress, as power loss allows, the
    /// firmware recovers, and the disk must hold the data that NVMe guarantees before the check
    /// sees it.
    #[arg(
        long,
        value_name = "SCHEME",
        value_parser = scheme(),
        hide_possible_values = true,
        conflicts_with = "replay",
        help_heading = "Device below the cache"
    )]
    scheme: Option<SchemeKind>,
    /// Deduplicate in that device.
    ///
    /// Its scheme is `remap-ssd` by default.
    #[arg(long, conflicts_with = "replay", help_heading = "Device below the cache")]
    dedup: bool,
    /// Any other setting of that device: --set firmware.watermark=0.5.
    ///
    /// May be repeated, or comma-separated; implies --scheme remap-ssd by default. A replay needs
    /// the same settings. docs/configuration.md lists the keys.
    #[arg(
        long,
        value_name = "KEY=VALUE",
        value_delimiter = ',',
        hide_short_help = true,
        help_heading = "Device below the cache"
    )]
    set: Vec<String>,

    /// Save the recording here [default: torture-ID.recording, if a check fails].
    #[arg(long, value_name = "FILE", conflicts_with_all = ["from", "replay"], help_heading = "Recording")]
    record: Option<PathBuf>,
    /// Cut a saved recording; no workload is run.
    #[arg(long, value_name = "FILE", help_heading = "Recording")]
    from: Option<PathBuf>,
    /// Repeat one cut, by the code that a failure printed.
    ///
    /// ID-ENTRY-LOSSES, such as 3fa9c1d2-1043-8f00aa17: the recording, the entry before which the power
    /// is cut, and the losses, as a seed or a list of blocks. Uses torture-ID.recording in this folder,
    /// or --from. Codes of `crash`, such as remap-ssd:3:9f2c41d0, name a script of commands instead: use
    /// `crash --replay`.
    #[arg(long, value_name = "CODE", help_heading = "Recording")]
    replay: Option<Code>,

    /// Print the results as JSON.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

const EXAMPLES_SHORT: &str = "\
Examples:
  remap-ssd torture --fs ext4 --workload './load.sh $DIR' --check './check.sh $DIR' --rounds 200
  remap-ssd torture --nvme-tcp --workload './load.sh $ADDRESS' --check './check.sh $ADDRESS'
  remap-ssd torture --replay 3fa9c1d2-1043-8f00aa17

Both commands have DIR, FILE and MARKS in their environment; with --nvme-tcp ADDRESS, NQN and MARKS.
Exit codes: 0 every check passed, 1 a check, an input or an output failed, 2 it could not be done.

--help shows all options (time limits, disk, faults, mkfs, mount) and more examples.";

const EXAMPLES: &str = "\
Examples:
  remap-ssd torture --fs ext4 --workload './load.sh $DIR' --check './check.sh $DIR' --rounds 200
  remap-ssd torture --fs xfs --workload 'sqlite3 $DIR/db < load.sql' --check 'sqlite3 $DIR/db \"pragma integrity_check\" | grep -qx ok'
  remap-ssd torture --fs ext4 --workload ... --check ... --scheme remap-ssd --dedup      # firmware below that recovers
  remap-ssd torture --fs ext4 --workload ... --check ... --fault full:8000000
  remap-ssd torture --fs ext4 --workload ... --check ... --atomic-writes 16KiB           # may the program write pages in place?
  remap-ssd torture --nvme-tcp --workload './load.sh $ADDRESS $NQN' --check './check.sh $ADDRESS $NQN' --rounds 200
  remap-ssd torture --replay 3fa9c1d2-1043-8f00aa17 --check 'cp -a $DIR/. /tmp/left'
  remap-ssd torture --from torture-3fa9c1d2.recording --rounds 1000 --seed 2

Both commands have DIR, FILE and MARKS in their environment. A line that the workload writes to $MARKS is a mark:
`echo committed 7 > $MARKS`. The check finds the marks before the cut in the file $MARKS, and can so tell what was acknowledged.
With --nvme-tcp there are ADDRESS (HOST:PORT), its parts TRADDR and TRSVCID, and NQN instead of DIR and FILE.

Exit codes: 0 every check passed; 1 a check failed, or a file could not be read or written, and then no result is printed;
2 a mistake in the arguments, something is missing, or it was interrupted before a check failed. A check that fails, hangs, or finds a file system that does not mount has failed. Another run is another
recording, even with the same seed: an exact replay needs the saved one.";

/// Keys that `--set` cannot change here, and the alternative for each.
const CHOSEN: [(&str, &str); 4] = [
    ("firmware.scheme", "use --scheme instead"),
    ("firmware.dedup", "use --dedup instead"),
    ("firmware.lpns", "use --size instead"),
    ("content", "a disk has its bytes"),
];

/// Runs `torture`.
///
/// # Errors
/// A check failed, or something is missing.
pub(crate) fn command(args: &Args) -> Result<(), Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    // A signal must not end the process at once: mounts have to be removed first.
    for signal in [SIGTERM, SIGINT, SIGQUIT, SIGHUP] {
        signal_hook::flag::register(signal, stop.clone()).map_err(Failure::failed)?;
    }
    Failure::found_unless(torture(args, &stop)?)
}

impl From<TortureError> for Failure {
    fn from(error: TortureError) -> Self {
        match error {
            TortureError::Io(_) | TortureError::Scratch(_) => Self::failed(error),
            _ => Self::usage(error),
        }
    }
}

/// Returns true if every check passed.
fn torture(args: &Args, stop: &AtomicBool) -> Result<bool, Failure> {
    // Mistakes about the device are reported before anything runs.
    let set = args.set()?;
    let firmware = args.firmware();
    if firmware.is_none() && !set.is_empty() {
        return Err(Failure::usage(
            "--set: the code is of a disk without a device below",
        ));
    }

    // Before anything is mounted: mounts of the workload are private to this process.
    private_mounts();
    let began = Instant::now();
    let (recording, from) = match args.source()? {
        Some(path) => (
            load(&path).map_err(|error| match &error {
                TortureError::Io(why) if why.kind() != ErrorKind::NotFound => {
                    Failure::about(path.display(), error)
                }
                _ => Failure::usage(format_args!("{}: {error}", path.display())),
            })?,
            Some(path),
        ),
        None => (run(args, stop)?, None),
    };
    let recorded = began.elapsed();

    // A recording includes its check, so that a replay needs no arguments.
    let check = args
        .check
        .as_ref()
        .unwrap_or(&recording.about.check)
        .clone();
    if let Some(fs) = &recording.about.fs {
        require(fs)?;
    }

    let id = id(&recording).map_err(TortureError::from)?;
    // Saved before it is cut: a campaign may be interrupted.
    if let Some(path) = &args.record {
        save(&recording, path).map_err(|error| Failure::about(path.display(), error))?;
    }
    let mut campaign = Campaign::new(
        &recording,
        &check,
        Duration::from_secs_f64(args.timeout),
        stop,
    )?;
    if let Some(firmware) = firmware {
        campaign = campaign.on_device(firmware, &set)?;
    }
    let atomic = args.atomic();
    if let Some(bytes) = atomic {
        campaign = campaign.with_atomic_writes(bytes)?;
    }
    let mut results = Results {
        seed: args.seed,
        recorded,
        id,
        atomic,
        firmware,
        set: settings::typed(&args.set),
        file: from.or_else(|| args.record.clone()),
        ..Results::default()
    };
    let ended = cut(args, campaign, &mut results);

    // Checked before the error: an interrupted campaign may have found a failure.
    let failed = results.failed > 0;
    match ended {
        // Earlier findings are shown anyway.
        Err(error) if failed => output::note(format_args!("ended early: {error}")),
        other => other?,
    }
    results.keep(&recording)?;

    show_results(args.json, &recording, &results)?;
    Ok(!failed)
}

/// Prints the results. A closed output pipe is no error: it does not turn a failure into success.
fn show_results(json: bool, recording: &Recording, results: &Results) -> Result<(), Failure> {
    let shown = if json {
        output::json(&results.json(recording))
    } else {
        output::text(&show::text(recording, results))
    };
    match shown {
        Err(Failure::Output(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Does the rounds or the replay, and shows the progress.
fn cut(args: &Args, mut campaign: Campaign<'_>, results: &mut Results) -> Result<(), TortureError> {
    let mut patience = None;
    let mut tell = |progress| match progress {
        Progress::Cuts(done) => patience
            .get_or_insert_with(|| Patience::new("cutting", Some(args.rounds)))
            .at(done),
        Progress::Shrinking => {
            output::note("a check has failed; looking for the fewest lost blocks that still fail");
        }
    };
    let shrink = Duration::from_secs(args.shrink);
    if let Some(code) = &args.replay {
        return campaign.replay(code, shrink, results, &mut tell);
    }
    let rounds = Rounds {
        count: args.rounds,
        keep_going: args.keep_going,
        shrink,
    };
    campaign.rounds(&rounds, results, &mut tell)
}

impl Args {
    /// The recording to cut; none: a run is recorded.
    fn source(&self) -> Result<Option<PathBuf>, Failure> {
        let default = self.replay.as_ref().map(|code| file_name(&code.recording));

        // A replay looks for the recording under its default file name.
        if let Some(path) = self.from.clone().or(default) {
            return Ok(Some(path));
        }
        match (&self.workload, &self.check) {
            (Some(_), Some(_)) if self.fs.is_some() || self.file || self.nvme_tcp => Ok(None),
            (Some(_), Some(_)) => Err(Failure::usage(
                "choose a file system with --fs, --file for none, or --nvme-tcp",
            )),
            _ => Err(Failure::usage(
                "say what to run with --workload CMD, and what must hold with --check CMD",
            )),
        }
    }

    /// The device below the cache; a replay's code names it.
    fn firmware(&self) -> Option<Firmware> {
        if let Some(code) = &self.replay {
            return code.firmware;
        }
        (self.dedup || self.scheme.is_some() || !self.set.is_empty()).then(|| Firmware {
            scheme: self.scheme.unwrap_or_default(),
            dedup: self.dedup,
        })
    }

    /// The atomic write unit in bytes; a replay's code names it.
    fn atomic(&self) -> Option<u64> {
        match &self.replay {
            Some(code) => code.atomic,
            None => self.atomic_writes,
        }
    }

    /// Further settings of its device.
    fn set(&self) -> Result<Vec<Setting>, Failure> {
        Ok(settings::parse_untimed(&self.set, &CHOSEN, "a cut device")?)
    }
}

/// Runs and records the workload once: all cuts are of this run.
fn run(args: &Args, stop: &AtomicBool) -> Result<Recording, Failure> {
    let geometry = DiskGeometry::of(args.size, args.block, args.fs.as_deref())?;
    if let Some(bytes) = args.atomic_writes {
        geometry.atomic_blocks(bytes)?;
    }

    let fs = args.fs.as_ref().map(|name| FileSystem {
        name: name.clone(),
        mkfs_options: args.mkfs_options.clone(),
        mount_options: args.mount_options.clone(),
    });

    if let Some(fs) = &fs {
        require(&fs.name)?;
    }

    // Everything that determines the recording, including the seed.
    let run = RecordingSpec {
        shape: geometry,
        fs,
        nvme_tcp: args.nvme_tcp,
        workload: args.workload.clone().unwrap_or_default(),
        limit: args.limit.map(Duration::from_secs_f64),
        writeback: (args.writeback > 0).then(|| Duration::from_millis(args.writeback)),
        seed: args.seed,
        faults: args.fault.clone(),
    };

    Ok(record(
        &run,
        args.check.as_deref().unwrap_or_default(),
        stop,
    )?)
}
