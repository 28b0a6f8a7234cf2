//! What branches of a database cost: time, flash pages, and the speed of writes to them.
//!
//! ```sh
//! cargo run --release -p remap-ssd-share --example branches -- 6144 1     # 6 GiB, one branch
//! cargo run --release -p remap-ssd-share --example branches -- 8 1000     # 8 MiB, a thousand
//! ```
//! The arguments are the size of the file in MiB and the number of branches. The device is in memory,
//! with the scheme `remap-ssd-x` and pages that may have 65,535 owners. Wall time is this machine's; device
//! time is the simulated one of the same remaps on the same device.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_device::{Device, DeviceConfig, LocalDisk, Lpn, Remap};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_media::ContentMode;
use remap_ssd_media::Payload;
use remap_ssd_share::branches;
use remap_ssd_store::{Create, NewVolume, OpenOptions, Processes, Store, Volume};
use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// Pages overwritten in a branch, and in a file that shares nothing.
const WRITES: u64 = 20_000;
/// Size of that file.
const OWN_BYTES: u64 = 64 * MIB;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn config(bytes: u64, branches: u64) -> Result<DeviceConfig> {
    // The branches, the file, the file of its own, and records.
    let size = bytes * (branches + 1) + OWN_BYTES + (branches + 64) * PAGE + 64 * MIB;
    let mut config = DeviceConfig::for_service(size, SchemeKind::RemapSsdX, false)?;
    config.firmware.count_max = 65_535;
    Ok(config)
}

/// Simulated time of remapping `pages` pages once, after they were written: ns.
fn device_time_ns(bytes: u64) -> Result<u64> {
    let mut config = config(bytes, 1)?;
    config.content = ContentMode::Identity;
    let mut device = Device::format(config)?;
    let pages = (bytes / PAGE) as u32;
    let mut now = 0;
    for page in 0..pages {
        let done = device.write(now, Lpn(page), &Payload::Identity(u64::from(page) + 1));
        done.result?;
        now = done.done_at;
    }
    let remap = Remap {
        target: Lpn(pages),
        source: Lpn(0),
        len: pages,
        relocate: false,
        atomic: false,
    };
    let done = device.remap(now, &remap);
    done.result?;
    Ok(done.done_at - now)
}

/// Makes a file of random bytes.
fn fill(store: &dyn Store, name: &str, bytes: u64) -> Result<()> {
    let file = store.open(name, Create::New.into())?;
    let random = &mut Xoshiro256PlusPlus::seed_from_u64(1);
    let mut piece = vec![0; MIB as usize];
    for offset in (0..bytes).step_by(MIB as usize) {
        random.fill(&mut piece[..]);
        store.write(file, offset, &piece)?;
    }
    Ok(store.sync(file)?)
}

/// Overwrites random pages of a file; returns the time.
fn overwrite(store: &dyn Store, name: &str, seed: u64) -> Result<Duration> {
    let file = store.open(name, OpenOptions::default())?;
    let pages = store.size(file)?.min(OWN_BYTES) / PAGE;
    let random = &mut Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut page = [0; PAGE as usize];
    random.fill(&mut page[..]);
    let begin = Instant::now();
    for _ in 0..WRITES {
        store.write(file, random.random_range(0..pages) * PAGE, &page)?;
    }
    store.sync(file)?;
    Ok(begin.elapsed())
}

/// Wall time and processor time of an operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Times {
    wall: Duration,
    processor: Duration,
}

/// Processor time of this thread, which other programs on the machine do not lengthen.
fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Makes branches of `db` one by one; returns the times of each, in ascending order.
fn make(store: &dyn Store, count: u64) -> Result<Vec<Times>> {
    let mut times = Vec::with_capacity(count as usize);
    for number in 1..=count {
        let (begin, processor) = (Instant::now(), processor_time());
        branches::create(store, "db", &[format!("db-{number}")], 0, &mut |_, _| {})?;
        times.push(Times {
            wall: begin.elapsed(),
            processor: processor_time() - processor,
        });
    }
    times.sort_unstable();
    Ok(times)
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// What is done with one branch, after all have been made.
fn use_one(volume: &Volume<LocalDisk>) -> Result<()> {
    // The first overwriting of each page, and the ones after it.
    for seed in [2, 3] {
        println!(
            "{WRITES} pages overwritten    {:.1} ms in a branch, {:.1} ms in a file that shares nothing",
            ms(overwrite(volume, "db-1", seed)?),
            ms(overwrite(volume, "own", seed)?)
        );
    }

    let begin = Instant::now();
    let found = branches::diff(volume, "db-1", Some("db"))?;
    println!(
        "diff                        {:.3} ms: {} pages",
        ms(begin.elapsed()),
        found.pages()
    );
    let begin = Instant::now();
    let file = volume.open("db-1", OpenOptions::default())?;
    let space = volume.space(file)?;
    println!(
        "space                       {:.3} ms: {} of its own",
        ms(begin.elapsed()),
        space.alone
    );
    let begin = Instant::now();
    branches::merge(volume, "db-1", true)?;
    println!("merge                       {:.3} ms", ms(begin.elapsed()));
    Ok(())
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse());
    let (bytes, count) = (number(64)? * MIB, number(10)?.max(1));

    let device = Device::in_memory(config(bytes, count)?)?;
    let new = NewVolume {
        files_max: u32::try_from(count)? + 16,
        ..NewVolume::default()
    };
    let volume = Volume::create(
        LocalDisk::new(device),
        &Processes::One,
        &new,
        &mut |_, _| {},
    )?;
    fill(&volume, "db", bytes)?;
    fill(&volume, "own", OWN_BYTES.min(bytes))?;

    let disk = volume.into_disk();
    let before = disk.device().stats();
    let volume = Volume::open(disk, &Processes::One)?;
    let times = make(&volume, count)?;
    let records = volume.statistics().pages_metadata;
    let disk = volume.into_disk();
    let after = disk.device().stats();
    let volume = Volume::open(disk, &Processes::One)?;

    println!(
        "file                        {} MiB, {} pages",
        bytes / MIB,
        bytes / PAGE
    );
    let all: Duration = times.iter().map(|time| time.wall).sum();
    println!("{count} branches            {:.1} ms", ms(all));
    for (which, time) in [
        ("fastest", times[0]),
        ("median", times[times.len() / 2]),
        ("slowest", times[times.len() - 1]),
    ] {
        println!(
            "the {which:<23} {:.3} ms, of it {:.3} on the processor",
            ms(time.wall),
            ms(time.processor)
        );
    }
    let device_ms = device_time_ns(bytes)? as f64 / 1e6;
    println!("device time of one          {device_ms:.3} ms");
    let (shared, copied) = (
        after.remaps - before.remaps,
        after.demoted() - before.demoted(),
    );
    println!("pages                       {shared} shared, {copied} copied");
    println!(
        "flash pages programmed      {} of the host, {records} of them records of the volume; {} metadata; {} by garbage collection",
        after.host_programs - before.host_programs,
        after.meta_programs - before.meta_programs,
        after.gc_programs - before.gc_programs,
    );
    use_one(&volume)
}
