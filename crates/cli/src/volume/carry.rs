//! `volume import` and `volume export`.
//!
//! Absent: the copies (`remap_ssd_sqlite::carry`).

use super::about;
use crate::failure::Failure;
use crate::output;
use crate::place::NamespacePlace;
use crate::trace::Patience;
use remap_ssd_device::Disk;
use remap_ssd_sim::report::format::exact;
use remap_ssd_sqlite::carry::{self, CarryError};
use remap_ssd_store::Volume;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Arguments of `volume export`.
#[derive(Debug, clap::Args)]
pub(super) struct Export {
    /// The file in the volume. Close it in other programs first.
    name: String,
    /// Destination; `-` is standard output.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Replace an existing local file.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    pub(super) place: NamespacePlace,
}

/// Arguments of `volume import`.
#[derive(Debug, clap::Args)]
pub(super) struct Import {
    /// Local file to import.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Name in the volume [default: the local file's name].
    #[arg(long)]
    name: Option<String>,
    /// Replace an existing file of that name.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    pub(super) place: NamespacePlace,
}

/// Copies a file out of the volume.
pub(super) fn export<D: Disk + Send>(volume: &Volume<D>, args: &Export) -> Result<(), Failure> {
    let about = |error| about_copy(&args.place, &args.file, error);
    let source = carry::Export::open(volume, &args.name).map_err(about)?;
    let is_piped = args.file.as_os_str() == "-";
    // A device or a pipe holds no data that could be lost.
    if args.file.is_file() && !args.force && !is_piped {
        let why = "there is a file already; --force replaces it";
        return Err(Failure::about(args.file.display(), why));
    }
    let copied = Patience::during("export", |progress| match is_piped {
        true => source.copy(&mut io::stdout().lock(), progress),
        false => source.copy_to(&args.file, progress),
    });
    copied.map_err(|error| match error {
        CarryError::Local(error) if is_piped => error.into(),
        error => about(error),
    })
}

fn about_copy(place: &NamespacePlace, file: &Path, error: CarryError) -> Failure {
    match error {
        CarryError::Store(error) => about(place, error),
        CarryError::Local(error) => Failure::about(file.display(), error),
        CarryError::Exists(_) => {
            Failure::about(place.name(), format_args!("{error}; --force replaces it"))
        }
        error => Failure::about(place.name(), error),
    }
}

/// Copies a local file into the volume.
pub(super) fn import<D: Disk + Send>(volume: &Volume<D>, args: &Import) -> Result<(), Failure> {
    let about = |error| about_copy(&args.place, &args.file, error);
    let local = |error: io::Error| about(error.into());
    let own = args.file.file_name().and_then(|name| name.to_str());
    let name = args
        .name
        .as_deref()
        .or(own)
        .ok_or_else(|| Failure::usage("what shall it be called? --name says so"))?;
    let mut source = File::open(&args.file).map_err(local)?;
    let metadata = source.metadata().map_err(local)?;
    if metadata.is_dir() {
        return Err(local(io::Error::from(io::ErrorKind::IsADirectory)));
    }

    let target = carry::Import::begin(volume, name, args.force).map_err(about)?;
    note_about_log(&args.file);
    let bytes = Patience::during("import", |progress| {
        target.copy(&mut source, metadata.len(), progress)
    });
    let bytes = bytes.map_err(about)?;
    output::text(&format!("{name}: {} bytes\n", exact(bytes)))
}

/// Warns if a log lies beside a database: it may hold recent transactions.
fn note_about_log(file: &Path) {
    let mut log = file.as_os_str().to_owned();
    log.push("-wal");
    let log = PathBuf::from(log);
    if std::fs::metadata(&log).is_ok_and(|metadata| metadata.len() > 0) {
        let name = log.display();
        output::note(format_args!(
            "note: transactions in {name} are not in the file; `PRAGMA wal_checkpoint` moves them"
        ));
    }
}
