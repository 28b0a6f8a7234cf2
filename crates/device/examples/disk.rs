//! A client of [`Disk`]: a log that is checkpointed by remaps, so that its pages are programmed
//! once.
//!
//! `cargo run --release -p remap-ssd-device --example disk`
//!
//! The functions are generic over `Disk`. The same code runs on a device in a folder
//! (`Device::create_in_folder`) and on a served one (`remap_ssd_nvme::tcp::client`). Absent:
//! recovery of the log, which a real one needs.

use remap_ssd_device::{Device, DeviceConfig, Disk, DiskRemap, LocalDisk, SchemeKind};
use std::error::Error;

const PAGE: usize = 4096;
const LOG: u64 = 8192;

/// Writes pages to the log and makes them durable. They are not yet at their homes.
fn append<D: Disk>(disk: &mut D, pages: &[[u8; PAGE]]) -> Result<(), D::Error> {
    disk.write(LOG, pages.as_flattened())?;
    disk.flush()
}

/// Gives each home the page that the log holds for it. Nothing is read, nothing is programmed.
fn checkpoint<D: Disk>(disk: &mut D, homes: &[u64]) -> Result<(), D::Error> {
    for (source, &target) in (LOG..).zip(homes) {
        disk.remap(&DiskRemap {
            target,
            source,
            pages: 1,
            relocate: false,
            atomic: false,
        })?;
    }

    // The log may be reused only when the homes are durable.
    disk.flush()?;
    disk.trim(LOG, homes.len() as u64)
}

fn main() -> Result<(), Box<dyn Error>> {
    let config = DeviceConfig::for_service(64 << 20, SchemeKind::RemapSsd, false)?;
    let mut disk = LocalDisk::new(Device::in_memory(config)?);

    let homes: Vec<u64> = (0..100).map(|index| index * 37).collect();
    let pages: Vec<[u8; PAGE]> = (0..100).map(|index| [index as u8; PAGE]).collect();

    let start = disk.device().ftl().stats();
    append(&mut disk, &pages)?;
    let logged = disk.device().ftl().stats();
    checkpoint(&mut disk, &homes)?;
    let end = disk.device().ftl().stats();

    for (home, expected) in homes.iter().zip(&pages) {
        let mut page = [0; PAGE];
        disk.read(*home, &mut page)?;
        assert_eq!(&page, expected);
    }
    println!(
        "log: {} pages programmed; checkpoint: {} remapped, {} programmed",
        (logged - start).host_programs,
        (end - logged).remaps,
        (end - logged).host_programs
    );
    Ok(())
}
