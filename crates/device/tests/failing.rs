//! A device in a folder on a failing disk: flushed data survives any later commands.
//!
//! The file size limit stands for the disk. It applies to the whole process, and so it would also
//! stop a test harness that reports another test into a file: there is one test here.

mod kit;

use kit::{files, remap, try_read};
use remap_ssd_device::Device;
use remap_ssd_ftl::{Lpn, Refusal, SchemeKind};
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_media::{After, BlockId, Media, Oob, Ppn, Purpose, StoredPage};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

const LPNS: u32 = 150;

/// While it lives, no file of this process grows beyond a limit.
struct Limited;

impl Limited {
    fn to(bytes: u64) -> Self {
        limit(Some(bytes));
        Self
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        limit(None);
    }
}

fn limit(bytes: Option<u64>) {
    // The accompanying signal would end the process.
    signal_hook::flag::register(
        signal_hook::consts::SIGXFSZ,
        Arc::new(AtomicBool::new(false)),
    )
    .expect("a signal");
    setrlimit(
        Resource::Fsize,
        Rlimit {
            current: bytes,
            maximum: None,
        },
    )
    .expect("a limit may be set");
}

/// Erases all blocks, and programs all pages.
fn scribble(media: &mut Media) {
    let geometry = media.geometry();
    for block in (0..geometry.blocks()).map(BlockId) {
        let id = media.name_next();
        media
            .erase(block, id, After::NOTHING)
            .expect("no fault is planted");
    }

    for ppn in (0..geometry.pages()).map(Ppn) {
        let stored = StoredPage::Bytes(Arc::new([0xee; PAGE_BYTES]));
        media
            .program(
                ppn,
                Oob::new(Lpn(1), 1, 1),
                stored,
                Purpose::Host,
                After::NOTHING,
            )
            .expect("no fault is planted");
    }
}

/// A device that was filled, overwritten and flushed, on a disk that rejects bytes from `limit_at`
/// on in any file.
fn keeps_what_was_flushed(
    dir: &Path,
    journal_bytes: Option<u64>,
    limit_at: impl FnOnce(u64) -> u64,
) {
    let mut device = Device::create_in_folder(
        dir,
        kit::tiny(SchemeKind::RemapSsd, false, LPNS, 24),
        journal_bytes,
    )
    .expect("room for it");
    let mut held = vec![Vec::new(); LPNS as usize];
    let write = |device: &mut Device, held: &mut Vec<Vec<u64>>, lpn: u32, content: u64| {
        held[lpn as usize].push(content);
        kit::write(device, lpn, content)
    };

    for lpn in 0..LPNS {
        write(&mut device, &mut held, lpn, u64::from(lpn) + 1000).expect("there is room");
    }
    for n in 0..300 {
        write(&mut device, &mut held, n * 7 % 50, u64::from(n) + 2000).expect("there is room");
    }
    device.sync().expect("the disk works");
    held.iter_mut()
        .for_each(|held| *held = vec![*held.last().expect("written")]);

    // The disk fails somewhere in the middle of the following writes.
    let contents = u64::from(device.ftl().media().geometry().pages()) * PAGE_BYTES as u64;
    let limited = Limited::to(limit_at(contents));
    let mut written = 0u32;
    while device.ftl().media().broken().is_none() {
        let _ = write(
            &mut device,
            &mut held,
            50 + written * 13 % 100,
            100_000 + u64::from(written),
        );
        written += 1;
        assert!(written < 5000, "the disk never failed");
    }

    let then = files(dir);
    for n in 0..LPNS {
        assert_eq!(
            write(&mut device, &mut held, n, 200_000 + u64::from(n)),
            Err(Refusal::DiskFailed)
        );
        held[n as usize].pop();
        assert_eq!(
            remap(&mut device, n, (n + 1) % LPNS),
            Err(Refusal::DiskFailed)
        );
        assert_eq!(
            device.deallocate(0, Lpn(n), 1).result,
            Err(Refusal::DiskFailed)
        );
        device.flush(0);
        device.idle(0, 1 << 40);
        assert!(device.sync().is_err());
        // A readable page is right: the new content, or the previous one.
        if let Ok(content) = try_read(&mut device, n) {
            assert!(
                held[n as usize].contains(&content),
                "LPN {n} reads {content} after the failure"
            );
        }
    }
    assert!(
        then == files(dir),
        "files have changed after the first failure"
    );

    // Even firmware that continued would overwrite nothing.
    drop(limited);
    device.untimed(|ftl| scribble(ftl.media_mut()));
    assert!(device.close().is_err());
    assert!(
        then == files(dir),
        "files have changed after the first failure"
    );

    let (mut device, _) = Device::open_in_folder(dir).expect("it opens");
    for lpn in 0..LPNS {
        let content = try_read(&mut device, lpn).expect("it was flushed");
        assert!(
            held[lpn as usize].contains(&content),
            "LPN {lpn} reads {content}, not of {:?}",
            held[lpn as usize]
        );
    }
}

#[test]
fn after_the_disk_has_failed_nothing_flushed_is_lost() {
    // The first failing write is a page.
    let dir = tempfile::tempdir().expect("a folder");
    keeps_what_was_flushed(dir.path(), None, |contents| contents * 6 / 10);

    // In memory pages are stored where they are mapped, so the first failing write is the state.
    let memory = Path::new("/dev/shm");
    let dir = if memory.is_dir() {
        tempfile::tempdir_in(memory)
    } else {
        tempfile::tempdir()
    };
    keeps_what_was_flushed(dir.expect("a folder").path(), Some(16 << 10), |_| 1000);
}
