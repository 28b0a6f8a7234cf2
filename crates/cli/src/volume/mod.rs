//! `volume`: creates volumes of files on a device, and lists, imports and exports the files.
//!
//! Invariant: existing data are overwritten only on request. Absent: the purpose of the files; host
//! software opens the same volume on its own.

mod carry;

use crate::failure::Failure;
use crate::numbers;
use crate::output::{self, counted, pairs};
use crate::place::NamespacePlace;
use crate::trace::Patience;
use remap_ssd_device::Disk;
use remap_ssd_sim::report::format::{bytes, exact};
use remap_ssd_store::{FileInfo, NewVolume, Processes, Store, StoreError, Volume, VolumeInfo};
use serde_json::json;

const PAGE: u64 = 4096;

/// Manages files on a device, for host software that shares pages instead of writing them twice.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  remap-ssd serve --memory 1GiB &
  remap-ssd volume create
  remap-ssd volume import orders.db
  remap-ssd volume list --connect 127.0.0.1:4420      # the default
  remap-ssd volume export orders.db copy.db
  remap-ssd volume delete orders.db

Several processes of one user on one machine may use a volume at the same time; the device refuses other users and
machines meanwhile. A file that a program has open is neither deleted nor replaced.";

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Creates a volume on a namespace.
    Create(Create),
    /// Lists the files.
    List(Show),
    /// Shows the size and usage of the volume.
    Stat(Show),
    /// Copies a file out of the volume.
    Export(carry::Export),
    /// Copies a local file into the volume.
    Import(carry::Import),
    /// Deletes a file of the volume. Refused while a program has it open.
    Delete(Delete),
}

/// Arguments of `volume delete`.
#[derive(Debug, clap::Args)]
struct Delete {
    /// The file in the volume.
    name: String,
    #[command(flatten)]
    place: NamespacePlace,
}

/// Arguments of `volume create`.
#[derive(Debug, clap::Args)]
struct Create {
    #[command(flatten)]
    place: NamespacePlace,
    /// Size of the volume [default: the whole namespace].
    #[arg(long, value_name = "SIZE", value_parser = numbers::size)]
    size: Option<u64>,
    /// Maximum number of files, 1 to 65536. An SQLite database in use takes three: itself, its log
    /// and its journal.
    #[arg(long, value_name = "N", default_value_t = NewVolume::default().files_max)]
    files: u32,
    /// Overwrite existing data.
    #[arg(long)]
    force: bool,
}

/// Arguments of `volume list` and `volume stat`.
#[derive(Debug, clap::Args)]
struct Show {
    #[command(flatten)]
    place: NamespacePlace,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

impl Command {
    fn place(&self) -> &NamespacePlace {
        match self {
            Self::Create(args) => &args.place,
            Self::List(args) | Self::Stat(args) => &args.place,
            Self::Export(args) => &args.place,
            Self::Import(args) => &args.place,
            Self::Delete(args) => &args.place,
        }
    }
}

/// Error about a place.
fn about(place: &NamespacePlace, error: StoreError) -> Failure {
    match error {
        StoreError::BadName { .. } | StoreError::BadShape(_) => Failure::usage(error),
        _ => place.about_store(error),
    }
}

/// Runs `volume`.
///
/// # Errors
/// A device error, a volume error, or an error of a local file.
pub(crate) fn command(args: &Args) -> Result<(), Failure> {
    let place = args.command.place();
    if let Some(disk) = place.open_image()? {
        // One process: no other can have the image open.
        let closed = perform(disk, &Processes::One, &args.command)?.close();
        return closed.map_err(|error| Failure::about(place.name(), error));
    }

    perform(place.connect()?, &Processes::local(), &args.command).map(drop)
}

/// Runs the command, and returns the disk.
fn perform<D: Disk + Send>(
    disk: D,
    processes: &Processes,
    command: &Command,
) -> Result<D, Failure> {
    let place = command.place();

    // The only command that does not open a volume first.
    if let Command::Create(args) = command {
        return create(disk, processes, args);
    }

    let about = |error| about(place, error);
    let volume = Volume::open(disk, processes).map_err(about)?;
    volume.notes().iter().for_each(output::note);

    match command {
        Command::Create(_) => {}
        Command::List(args) => list(&volume, args)?,
        Command::Stat(args) => stat(&volume, args)?,
        Command::Export(args) => carry::export(&volume, args)?,
        Command::Import(args) => carry::import(&volume, args)?,
        Command::Delete(args) => {
            // No process has it open, and none can open it before it is deleted.
            let _alone = volume.hold_file(&args.name, true).map_err(about)?;
            volume.delete(&args.name).map_err(about)?;
        }
    }

    Ok(volume.into_disk())
}

fn create<D: Disk + Send>(disk: D, processes: &Processes, args: &Create) -> Result<D, Failure> {
    let new = NewVolume {
        files_max: args.files,
        pages: args.size.map(|size| size / PAGE),
        force: args.force,
    };
    let about = |error| about(&args.place, error);
    let volume = Patience::during("looking at what is there", |progress| {
        Volume::create(disk, processes, &new, progress)
    });
    let volume = volume.map_err(about)?;
    let info = volume.info().map_err(about)?;
    output::text(&described(&info))?;
    Ok(volume.into_disk())
}

fn described(info: &VolumeInfo) -> String {
    let (files, files_max) = (exact(info.files.into()), exact(info.files_max.into()));
    pairs(&[
        ("volume", info.uuid.clone()),
        ("size", bytes(info.pages * PAGE)),
        ("free", bytes(info.pages_free * PAGE)),
        ("free in a row", bytes(info.pages_free_in_a_row * PAGE)),
        ("files", format!("{files} of at most {files_max}")),
    ])
}

fn stat<D: Disk + Send>(volume: &Volume<D>, args: &Show) -> Result<(), Failure> {
    let info = volume.info().map_err(|error| about(&args.place, error))?;
    if args.json {
        let mut value = json!(info);
        value["size_bytes"] = (info.pages * PAGE).into();
        return output::json(&value);
    }
    output::text(&described(&info))
}

/// Prints how to make room in a volume with the maximum number of files.
fn note_if_full<D: Disk>(volume: &Volume<D>, args: &Show) -> Result<(), Failure> {
    let info = volume.info().map_err(|error| about(&args.place, error))?;
    if info.files == info.files_max {
        output::note(StoreError::NoSlot(info.files_max));
    }
    Ok(())
}

fn list<D: Disk + Send>(volume: &Volume<D>, args: &Show) -> Result<(), Failure> {
    let files = volume.list().map_err(|error| about(&args.place, error))?;
    // Readable files first, then the damage.
    let damage = volume.damage().map_err(|error| about(&args.place, error))?;

    if args.json {
        output::json(&json!(files))?;
    } else {
        let row = |file: &FileInfo| {
            vec![
                file.name.clone(),
                exact(file.bytes),
                exact(file.pages),
                exact(file.extents as u64),
            ]
        };

        let rows: Vec<_> = files.iter().map(row).collect();
        let head = ["name", "bytes", "pages", "pieces"];
        output::text(&output::table_or("no files", &head, &rows))?;
    }

    if damage.is_empty() {
        return note_if_full(volume, args);
    }

    damage.iter().for_each(output::note);
    let files = volume.damaged_files();
    let files = files.map_err(|error| about(&args.place, error))?;
    Err(Failure::about(
        args.place.name(),
        format_args!("{} could not be read", counted(files, "file")),
    ))
}
