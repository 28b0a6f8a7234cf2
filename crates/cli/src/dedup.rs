//! `dedup`: a deduplicating disk on a device, as a file through FUSE.
//!
//! Invariants: existing data are overwritten only on request; however serving ends, the disk's
//! in-memory state is written and the device released, or a sentence says why not. Absent: the
//! schemes (`hosts/dedup`).

use crate::failure::Failure;
use crate::output::{self, pairs};
use crate::place::NamespacePlace;
use crate::trace::Patience;
use remap_ssd_dedup::{
    Ccaw, CcawOptions, DedupError, Engine, Hash, NewDedup, OrderMerge, OrderMergeOptions, Own,
    Scheme, Statistics,
};
use remap_ssd_device::{Disk, HoldError};
use remap_ssd_fuse::{Mounted, Pages};
use remap_ssd_nvme::tcp::client::{Client, ClientError};
use remap_ssd_sim::report::format::{bytes, exact};
use remap_ssd_store::new_holder;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;

const PAGE: u64 = 4096;
/// The file in the folder, named like that of a first namespace.
const FILE: &str = "n1";

/// Serves a deduplicating disk on top of a device, as a file.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Method: `ccaw` lets the device copy, `ordermerge` keeps its own mappings and works on any
    /// device.
    #[arg(long, value_name = "SCHEME")]
    scheme: Scheme,
    /// Make everything durable after this number of written pages; 0: only on flush.
    #[arg(long, value_name = "PAGES", default_value_t = 100)]
    window: u32,
    #[command(flatten)]
    place: NamespacePlace,
    /// Empty folder to mount; the disk is the file `n1` in it.
    #[arg(long, value_name = "FOLDER")]
    fuse: PathBuf,
    /// Hash of a new disk: `md5` (matching pages are compared) or `blake3` (matches are trusted)
    /// [default: md5].
    #[arg(long, value_name = "HASH")]
    hash: Option<Hash>,
    /// Compare the contents of matching pages, overriding the default of the hash.
    #[arg(long, value_name = "YES|NO", value_parser = yes_or_no)]
    compare: Option<bool>,
    /// Maximum entries of the signature table in memory, about 80 bytes each [default: one per
    /// page].
    #[arg(long, value_name = "N")]
    table: Option<u32>,
    /// Create a new disk, overwriting existing data.
    #[arg(long)]
    force: bool,
}

const EXAMPLES: &str = "\
Examples:
  remap-ssd serve --memory 1GiB &
  mkdir folder && remap-ssd dedup --scheme ccaw --connect 127.0.0.1:4420 --fuse folder &
  mkfs.ext4 folder/n1

A blank namespace becomes a new disk; an existing disk is opened. The device keeps all others from the
namespace meanwhile, a second `dedup` among them.
SIGTERM or SIGINT shuts it down cleanly.";

fn yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("yes or no".into()),
    }
}

/// Runs `dedup`.
///
/// # Errors
/// A device error, unsuitable contents, or an unusable folder.
pub(crate) fn command(args: &Args) -> Result<(), Failure> {
    if let Some(disk) = args.place.open_image()? {
        let closed = serve_on(disk, args)?.close();
        return closed.map_err(|error| Failure::about(args.place.name(), error));
    }
    let mut disk = args.place.connect()?;
    hold(&mut disk).map_err(|why| Failure::about(args.place.name(), why))?;
    serve_on(disk.letting_go_at_end(), args).map(drop)
}

/// Holds the namespace exclusively while this program serves it: two instances would each have
/// their own tables of its contents.
fn hold(disk: &mut Client) -> Result<(), HoldError<ClientError>> {
    disk.hold(new_holder(), &[]).map(drop)
}

/// Opens or creates the disk, serves it, and returns the disk below.
fn serve_on<D: Disk + Send + 'static>(below: D, args: &Args) -> Result<D, Failure> {
    let about = |error: DedupError<D::Error>| match error {
        DedupError::BadShape(_) => Failure::usage(error),
        _ => Failure::about(args.place.name(), error),
    };
    let new = NewDedup {
        hash: args.hash.unwrap_or_default(),
        force: args.force,
        ..NewDedup::default()
    };
    let what = "looking at what is there";

    match args.scheme {
        Scheme::Ccaw => {
            let options = CcawOptions {
                window: args.window,
                compare: args.compare,
                entries_max: args.table.unwrap_or(u32::MAX),
                ..CcawOptions::default()
            };
            let disk = Patience::during(what, |progress| {
                Ccaw::open_or_create(below, &new, options, progress)
            });
            serve(disk.map_err(about)?, args)
        }
        Scheme::OrderMerge => {
            let options = OrderMergeOptions {
                window: args.window,
                compare: args.compare,
                ..OrderMergeOptions::default()
            };
            let disk = Patience::during(what, |progress| {
                OrderMerge::open_or_create(below, &new, options, progress)
            });
            serve(disk.map_err(about)?, args)
        }
    }
}

/// Serves a disk until a signal arrives or it is unmounted, and closes it.
fn serve<D, S>(disk: Engine<D, S>, args: &Args) -> Result<D, Failure>
where
    D: Disk + Send + 'static,
    S: Own<D> + Send + 'static,
    Engine<D, S>: Disk,
{
    // The hash is stored on the disk. Another one would not find existing duplicates.
    if args.hash.is_some_and(|hash| hash != disk.hash()) {
        return Err(Failure::about(
            args.place.name(),
            format_args!(
                "the disk was made with --hash {}; leave --hash out, or make it anew",
                disk.hash().name()
            ),
        ));
    }
    disk.notes().iter().for_each(output::note);

    let file = Pages::new(disk, FILE, |error| {
        output::note(format_args!("error: {error}"))
    });
    let served = wait(&file, &args.fuse);

    // The disk is closed before any error is reported: it holds unwritten state.
    let disk = file
        .take()
        .ok_or_else(|| Failure::failed("the disk is gone"))?;
    let statistics = disk.statistics();
    let below = disk
        .close()
        .map_err(|error| Failure::about(args.place.name(), error));
    served?;
    let below = below?;
    output::text(&described(&statistics))?;
    Ok(below)
}

/// Mounts the file and waits for the end.
fn wait<D: Disk + Send + 'static>(file: &Pages<D>, folder: &Path) -> Result<(), Failure> {
    // Both ends of serving go through one channel: a signal, and a manual unmount.
    let (sender, ended) = channel();
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGQUIT, SIGHUP])
        .map_err(Failure::failed)?;
    let handle = signals.handle();
    let by_signal = sender.clone();
    let thread = std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            signals.forever().for_each(|_| _ = by_signal.send(()));
        });
    thread.map_err(Failure::failed)?;

    let about = |error: &dyn std::fmt::Display| Failure::about(folder.display(), error);
    let mounted = Mounted::mount_disk(file, folder, move || _ = sender.send(()));
    let mounted = mounted.map_err(|error| about(&error))?;
    output::note(format_args!(
        "serving {}",
        mounted.mountpoint().join(FILE).display()
    ));

    // The first sender counts: the other may come later, without a receiver.
    let _ = ended.recv();
    handle.close();
    if !mounted.unmount().map_err(|error| about(&error))? {
        output::note(format_args!(
            "{} was in use: what had it open finds it gone",
            folder.display()
        ));
    }
    Ok(())
}

fn described(done: &Statistics) -> String {
    let share = |part: u64| {
        format!(
            "{:.1} %",
            100.0 * part as f64 / done.host_pages.max(1) as f64
        )
    };

    let mut rows = vec![
        ("written by the host", bytes(done.host_pages * PAGE)),
        ("duplicates", share(done.duplicates)),
        ("pages of data", exact(done.data_pages)),
        ("pages of metadata", exact(done.metadata_pages)),
        ("flushes", exact(done.flushes)),
        ("pages compared", exact(done.compared)),
    ];

    // Zeroes would only raise questions.
    let rare = [
        ("compared and different", done.mismatches),
        ("copies refused by the device", done.copies_refused),
        ("entries given up", done.entries_discarded),
    ];

    rows.extend(
        rare.into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| (name, exact(count))),
    );

    pairs(&rows)
}
