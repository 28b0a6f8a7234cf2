//! Imports files into a volume and exports them, byte for byte.
//!
//! Invariant: a name refers to a complete file; an import has another name until it is complete and
//! durable. An SQLite database is exported as stock SQLite would have written it, and only if its
//! file is complete: not with a log, or a journal that must be rolled back. Absent: any other
//! interpretation of files, and SQLite, which does both. A database in use may change while it is
//! copied.

use super::about;
use crate::failure::Failure;
use crate::output;
use crate::place::NamespacePlace;
use crate::trace::Patience;
use remap_ssd_device::Disk;
use remap_ssd_sim::report::format::exact;
use remap_ssd_sqlite::{StockFile, unfinished};
use remap_ssd_store::{Create, FileId, OpenOptions, Store, StoreError, Volume};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Bytes copied at a time.
const STEP: usize = 1 << 20;
/// Suffix of an unfinished import.
const PART: &str = ".part";

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

pub(super) fn export<D: Disk + Send>(volume: &Volume<D>, args: &Export) -> Result<(), Failure> {
    let about = |error| about(&args.place, error);
    let file = volume
        .open(&args.name, OpenOptions::default())
        .map_err(about)?;

    // Without it the exported file would be another database: SQLite's integrity checks would find
    // nothing.
    if let Some(beside) = unfinished(volume, &args.name).map_err(about)? {
        return Err(Failure::about(
            args.place.name(),
            format_args!(
                "{} is not complete without {beside}: open it with SQLite and the extension, run \
                 `PRAGMA wal_checkpoint(TRUNCATE)`, close it, and export it again",
                args.name
            ),
        ));
    }
    let local = |error: io::Error| Failure::about(args.file.display(), error);
    if args.file.as_os_str() == "-" {
        let mut out = io::stdout().lock();
        copy_out(volume, file, args, &mut |data| Ok(out.write_all(data)?))?;
        return Ok(out.flush()?);
    }

    // The old file stays until the new one is complete.
    let part = with_part(&args.file);
    let mut out = File::create(&part).map_err(local)?;
    let written = copy_out(volume, file, args, &mut |data| {
        out.write_all(data).map_err(local)
    })
    .and_then(|()| out.sync_all().map_err(local))
    .and_then(|()| std::fs::rename(&part, &args.file).map_err(local));
    if written.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    written
}

fn with_part(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(PART);
    name.into()
}

fn copy_out<D: Disk + Send>(
    volume: &Volume<D>,
    file: FileId,
    args: &Export,
    out: &mut dyn FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let about = |error| about(&args.place, error);

    // Read as stock SQLite would see it, without the additions of our own SQLite.
    let stock = StockFile::open(volume, file).map_err(about)?;
    let mut patience = Patience::new("export", Some(stock.size()));

    let mut buffer = vec![0; STEP];
    let mut done = 0;

    loop {
        let read = stock.read(done, &mut buffer).map_err(about)?;

        if read == 0 {
            return Ok(());
        }

        out(&buffer[..read])?;
        done += read as u64;
        patience.at(done);
    }
}

pub(super) fn import<D: Disk + Send>(volume: &Volume<D>, args: &Import) -> Result<(), Failure> {
    let about = |error| about(&args.place, error);
    let local = |error: io::Error| Failure::about(args.file.display(), error);
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
    let exists = match volume.open(name, OpenOptions::default()) {
        Ok(_) if !args.force => {
            return Err(Failure::about(
                args.place.name(),
                format_args!("there is a file {name}; --force replaces it"),
            ));
        }
        Ok(_) => true,
        Err(StoreError::NotFound(_)) => false,
        Err(error) => return Err(about(error)),
    };
    note_about_log(&args.file);
    // Until the new file is in place no process has the old one open, or can open it.
    let _alone = volume.hold_file(name, true).map_err(about)?;

    // Remove the remains of an interrupted import.
    let part = format!("{name}{PART}");
    match volume.delete(&part) {
        Ok(()) | Err(StoreError::NotFound(_)) => {}
        Err(error) => return Err(about(error)),
    }
    let file = volume
        .open(
            &part,
            OpenOptions {
                create: Create::New,
                open_end: false,
                written_next: false,
            },
        )
        .map_err(about)?;
    let carried = copy_in(volume, file, &mut source, metadata.len(), args);
    let bytes = match carried {
        Ok(bytes) => bytes,
        Err(failure) => {
            // If this fails too, the first error is reported.
            let _ = volume.delete(&part);
            return Err(failure);
        }
    };

    // 1. make the new file durable  2. remove the old one  3. rename the new one. Cut between 2 and
    // 3: the new file is present and complete, under its temporary name.
    volume.sync(file).map_err(about)?;
    if exists {
        volume.delete(name).map_err(about)?;
    }
    volume.rename(&part, name).map_err(about)?;
    output::text(&format!("{name}: {} bytes\n", exact(bytes)))
}

fn copy_in<D: Disk + Send>(
    volume: &Volume<D>,
    file: FileId,
    source: &mut File,
    expected: u64,
    args: &Import,
) -> Result<u64, Failure> {
    let mut patience = Patience::new("import", Some(expected));
    let mut buffer = Vec::with_capacity(STEP);
    let mut done = 0;

    loop {
        buffer.clear();

        let read = Read::take(&mut *source, STEP as u64).read_to_end(&mut buffer);
        read.map_err(|error| Failure::about(args.file.display(), error))?;

        if buffer.is_empty() {
            return Ok(done);
        }

        volume
            .write(file, done, &buffer)
            .map_err(|error| about(&args.place, error))?;
        done += buffer.len() as u64;
        patience.at(done);
    }
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
