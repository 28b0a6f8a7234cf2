//! Compaction of a real copy-on-write store, redb, with and without sharing: flash pages
//! programmed.
//!
//! ```sh
//! cargo run --release -p remap-ssd-share --example compaction -- 40000
//! ```
//! The example writes a table of rows, deletes a part at random, and compacts the database: once
//! with writes, once with remaps of the pages that only move. It compares the rows before and
//! after. The argument is the number of rows.

mod backend;

use backend::{Asked, Backend};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use remap_ssd_device::{Device, DeviceConfig, Disk, DiskRemap, LocalDisk, RemapAllError};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_share::Counts;
use remap_ssd_store::{Create, NewVolume, Processes, Store, Volume};
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard};

const ROWS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("rows");
const DEVICE_BYTES: u64 = 1 << 30;
const VALUE_BYTES: usize = 1000;

/// A disk whose counters stay readable while a volume owns it.
#[derive(Clone)]
struct SharedDisk(Arc<Mutex<LocalDisk>>);

impl SharedDisk {
    fn lock(&self) -> MutexGuard<'_, LocalDisk> {
        self.0.lock().expect("nothing panics with the disk")
    }
}

impl Disk for SharedDisk {
    type Error = <LocalDisk as Disk>::Error;

    fn pages(&self) -> u64 {
        self.lock().pages()
    }
    fn read(&mut self, page: u64, into: &mut [u8]) -> Result<(), Self::Error> {
        self.lock().read(page, into)
    }
    fn write(&mut self, page: u64, data: &[u8]) -> Result<(), Self::Error> {
        self.lock().write(page, data)
    }
    fn trim(&mut self, page: u64, pages: u64) -> Result<(), Self::Error> {
        self.lock().trim(page, pages)
    }
    fn flush(&mut self) -> Result<(), Self::Error> {
        self.lock().flush()
    }
    fn remap(&mut self, remap: &DiskRemap) -> Result<(), Self::Error> {
        self.lock().remap(remap)
    }
    fn remap_all(&mut self, remaps: &[DiskRemap]) -> Result<(), RemapAllError<Self::Error>> {
        self.lock().remap_all(remaps)
    }
}

struct Compacted {
    bytes_before: u64,
    bytes_after: u64,
    asked: Asked,
    counts: Counts,
}

/// All rows, as one hash.
fn digest(database: &Database) -> Result<blake3::Hash, Box<dyn Error>> {
    let mut hash = blake3::Hasher::new();
    let transaction = database.begin_read()?;
    for row in transaction.open_table(ROWS)?.iter()? {
        let (key, value) = row?;
        hash.update(&key.value().to_le_bytes())
            .update(value.value());
    }
    Ok(hash.finalize())
}

fn run(rows: u64, sharing: bool) -> Result<Compacted, Box<dyn Error>> {
    let config = DeviceConfig::for_service(DEVICE_BYTES, SchemeKind::default(), false)?;
    let disk = SharedDisk(Arc::new(Mutex::new(LocalDisk::new(Device::in_memory(
        config,
    )?))));
    let volume = Volume::create(
        disk.clone(),
        &Processes::One,
        &NewVolume::default(),
        &mut |_, _| {},
    )?;
    let file = volume.open("rows.redb", Create::New.into())?;
    let backend = Backend::new(volume, file);
    let mut database = Database::builder().create_with_backend(backend.clone())?;

    // Rows in random order, a thousand per transaction; then 70% are deleted.
    let random = &mut Xoshiro256PlusPlus::seed_from_u64(1);
    let mut value = vec![0; VALUE_BYTES];
    for first in (0..rows).step_by(1000) {
        let transaction = database.begin_write()?;
        {
            let mut table = transaction.open_table(ROWS)?;
            for _ in first..rows.min(first + 1000) {
                random.fill(&mut value[..]);
                table.insert(random.random::<u64>(), &value[..])?;
            }
        }
        transaction.commit()?;
    }
    let transaction = database.begin_write()?;
    transaction
        .open_table(ROWS)?
        .retain(|_, value| value[0] % 10 >= 7)?;
    transaction.commit()?;

    let before = digest(&database)?;
    let bytes_before = redb::StorageBackend::len(&backend)?;
    backend.share(sharing)?;
    let counts = Counts::of_device(disk.lock().device());
    database.compact()?;
    let counts = Counts::of_device(disk.lock().device()) - counts;
    let (asked, bytes_after) = (backend.asked(), redb::StorageBackend::len(&backend)?);
    if digest(&database)? != before {
        return Err("the rows have changed".into());
    }
    Ok(Compacted {
        bytes_before,
        bytes_after,
        asked,
        counts,
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let rows = std::env::args()
        .nth(1)
        .map_or(Ok(40_000), |text| text.parse())?;

    println!(
        "{rows} rows of {VALUE_BYTES} bytes, 7 of 10 deleted, compacted; device of {} MiB",
        DEVICE_BYTES >> 20
    );

    for (name, sharing) in [("writes", false), ("shares", true)] {
        let Compacted {
            bytes_before,
            bytes_after,
            asked,
            counts,
        } = run(rows, sharing)?;

        let flash = counts.flash_data + counts.flash_gc + counts.flash_metadata;
        println!(
            "{name}: file {:.1} -> {:.1} MiB; redb wrote {} pages, {} of them shared; flash pages programmed: {flash} ({} data, \
             {} by garbage collection, {} metadata)",
            bytes_before as f64 / 1_048_576.0,
            bytes_after as f64 / 1_048_576.0,
            asked.pages,
            asked.shared,
            counts.flash_data,
            counts.flash_gc,
            counts.flash_metadata,
        );
    }
    Ok(())
}
