//! A program that opens a device for each request, as scripts behind a web server do.
//!
//! `cargo run --release -p remap-ssd-device --example requests`
//!
//! `resume_in_folder` goes on where `rest` left off: neither writes a state of the device, which
//! `open_in_folder` and `close` do. Each request here is a page that is counted up, durably.

use remap_ssd_device::{Device, DeviceConfig, Disk, LocalDisk, SchemeKind};
use std::error::Error;
use std::path::Path;

/// Answers one request: how many there have been.
fn count_up(folder: &Path) -> Result<u64, Box<dyn Error>> {
    let (device, _) = Device::resume_in_folder(folder)?;
    let mut disk = LocalDisk::new(device);

    let mut page = [0; 4096];
    disk.read(0, &mut page)?;
    let count = u64::from_le_bytes(page[..8].try_into()?) + 1;
    page[..8].copy_from_slice(&count.to_le_bytes());
    disk.write(0, &page)?;

    disk.into_device().rest()?;
    Ok(count)
}

fn main() -> Result<(), Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let folder = scratch.path().join("disk");
    let config = DeviceConfig::for_service(64 << 20, SchemeKind::RemapSsd, false)?;
    Device::create_in_folder(&folder, config, None)?.close()?;

    for request in 1..=20 {
        assert_eq!(count_up(&folder)?, request);
    }
    println!("20 requests were counted");
    Ok(())
}
