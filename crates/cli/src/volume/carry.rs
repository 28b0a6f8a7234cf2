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
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Arguments of `volume export`.
#[derive(Debug, clap::Args)]
pub(super) struct Export {
    /// The file in the volume. Close it in other programs first.
    name: String,
    /// Destination; `-` is standard output.
    #[arg(value_name = "FILE")]
    file: PathBuf,
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
    let copy =
        |out: &mut dyn Write| Patience::during("export", |progress| source.copy(out, progress));
    if args.file.as_os_str() == "-" {
        return copy(&mut io::stdout().lock()).map_err(|error| match error {
            CarryError::Local(error) => error.into(),
            error => about(error),
        });
    }

    // The old file stays until the new one is complete.
    let local = |error: io::Error| about(error.into());
    let part = with_part(&args.file);
    let mut out = File::create(&part).map_err(local)?;
    let written = copy(&mut out)
        .map_err(about)
        .and_then(|()| out.sync_all().map_err(local))
        .and_then(|()| std::fs::rename(&part, &args.file).map_err(local));
    if written.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    written
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

fn with_part(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
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
