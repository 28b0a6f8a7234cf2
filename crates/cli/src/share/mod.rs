//! `share`: copies, moves, snapshots, branches and defragmentation that program no data page.
//!
//! ```text
//! mod       arguments, and access to the device
//! ranges    copy and move, of pages and of files
//! snapshot  of a namespace, or of the files of a volume
//! branch    writable copies of files of a volume
//! defrag    of files of a volume, or of a list of extents
//! show      results, as text and as JSON
//! ```
//! Invariant: every change reports its cost. Absent: the order of writes (`hosts/share`,
//! `hosts/store`).

mod branch;
mod defrag;
mod ranges;
mod show;
mod snapshot;

use crate::failure::Failure;
use crate::output;
use crate::place::{NamespacePlace, no_image};
use remap_ssd_share::files::FilesError;
use remap_ssd_share::volume::{self, Counting, Files, Others, VolumeCounts};
use remap_ssd_share::{ImageNamespaces, Namespaces, ServedNamespaces, ShareError};
use remap_ssd_store::{Processes, StoreError};

/// Copies, moves, snapshots, branches and defragments by sharing flash pages, without programming
/// data.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  remap-ssd image create disk --size 1GiB --snapshots 2
  remap-ssd serve --image disk &
  remap-ssd share copy --from 0 --to 100000 --pages 5000 --connect 127.0.0.1:4420
  remap-ssd share snapshot create monday --connect 127.0.0.1:4420
  remap-ssd share snapshot rollback monday --connect 127.0.0.1:4420
  remap-ssd share branch create trial.db --file orders.db --connect 127.0.0.1:4420
  remap-ssd share defrag orders.db --dry-run --connect 127.0.0.1:4420

Pages are of 4096 bytes. Each command says how many pages are shared, how many the device had to copy, and how many flash
pages were programmed. docs/sharing.md says what each promises if the power fails.";

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Copies pages of a namespace, or a file of a volume.
    Copy(ranges::Copy),
    /// Moves pages of a namespace, deallocating their old places, or renames a file of a volume.
    Move(ranges::Move),
    /// Makes, lists, deletes and rolls back to snapshots of a namespace, or of the files of a
    /// volume.
    Snapshot(snapshot::Args),
    /// Makes, lists, compares, merges and deletes branches: writable copies of files of a volume.
    Branch(branch::Args),
    /// Makes files of a volume contiguous, or gathers a list of extents.
    Defrag(defrag::Args),
}

/// Runs `share`.
///
/// # Errors
/// A device error, unsuitable contents, or an impossible request.
pub(crate) fn command(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Copy(args) => ranges::copy(args),
        Command::Move(args) => ranges::relocate(args),
        Command::Snapshot(args) => snapshot::command(args),
        Command::Branch(args) => branch::command(args),
        Command::Defrag(args) => defrag::command(args),
    }
}

fn about(place: &NamespacePlace, error: ShareError) -> Failure {
    match error {
        ShareError::Usage(_) => Failure::usage(error),
        _ => Failure::about(place.name(), error),
    }
}

fn about_files(place: &NamespacePlace, error: FilesError) -> Failure {
    match error {
        FilesError::Usage(_) | FilesError::Store(StoreError::BadName { .. }) => {
            Failure::usage(error)
        }
        FilesError::Store(error) => place.about_store(error),
        _ => Failure::about(place.name(), error),
    }
}

/// Calls `work` with the namespaces of the device.
fn on_namespaces<R>(
    place: &NamespacePlace,
    work: impl FnOnce(&mut dyn Namespaces) -> Result<R, ShareError>,
) -> Result<R, Failure> {
    if let Some(dir) = &place.image {
        let mut device = ImageNamespaces::open(dir).map_err(|why| no_image(dir, why))?;

        // After an error the device is dropped, which for the image is like a power cut.
        let result = work(&mut device).map_err(|error| about(place, error))?;
        let closed = device.close();
        closed.map_err(|error| Failure::about(place.name(), error))?;
        return Ok(result);
    }

    let device = ServedNamespaces::connect(&place.name(), place.host.options()?);
    let mut device = device.map_err(|error| Failure::about(place.name(), error))?;

    work(&mut device).map_err(|error| about(place, error))
}

/// Opens the volume of a place, calls `work`, and closes the device cleanly.
fn on_volume<R>(
    place: &NamespacePlace,
    others: Others,
    work: impl FnOnce(&dyn Files) -> Result<R, FilesError>,
) -> Result<(R, VolumeCounts), Failure> {
    if let Some(disk) = place.open_image()? {
        // One process: no other can have the image open.
        let (result, disk) = with_volume(disk, &Processes::One, place, others, work)?;
        let closed = disk.close();
        closed.map_err(|error| Failure::about(place.name(), error))?;
        return Ok(result);
    }
    with_volume(place.connect()?, &Processes::local(), place, others, work)
        .map(|(result, _)| result)
}

fn with_volume<D: Counting + Send, R>(
    disk: D,
    processes: &Processes,
    place: &NamespacePlace,
    others: Others,
    work: impl FnOnce(&dyn Files) -> Result<R, FilesError>,
) -> Result<((R, VolumeCounts), D), Failure> {
    let done = volume::with_volume(disk, processes, others, |volume| {
        volume.notes().iter().for_each(output::note);
        work(volume)
    });
    done.map_err(|error| about_files(place, error))
}
