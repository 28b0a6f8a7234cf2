//! `serve --fuse` as users see it. Without permission to mount, the tests print that and are
//! skipped.

use crate::kit::{path, run};
use crate::served::serve;
use rustix::fs::{FallocateFlags, OFlags, copy_file_range, fallocate};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

fn can_mount() -> bool {
    let possible = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !possible {
        eprintln!("skipped: mounting needs root and /dev/fuse");
    }
    possible
}

fn open(folder: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(folder.join("n1"))
        .expect("the file is there")
}

fn read(file: &File, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, offset).expect("readable");
    bytes
}

#[test]
fn the_device_is_a_file_whose_copies_cost_nothing_and_whose_holes_are_trims() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let (image, folder) = (dir.path().join("disk"), dir.path().join("folder"));
    std::fs::create_dir(&folder).expect("a new folder");
    let (image, at) = (
        image.to_str().expect("text"),
        folder.to_str().expect("text"),
    );
    run(&["image", "create", image, "--size", "64MiB"]).ok();
    let served = serve(&["--image", image, "--fuse", at]);
    let file = open(&folder);
    assert_eq!(file.metadata().expect("it has some").len(), 64 << 20);
    let data: Vec<u8> = (0..300 * 4096u32)
        .map(|at| (at / 4096 * 7 + at) as u8)
        .collect();
    // Nothing is aligned: adjacent bytes stay.
    file.write_all_at(&data, 4096 * 10 + 100).expect("room");
    assert!(read(&file, 4096 * 10 + 100, data.len()) == data);
    assert!(read(&file, 4096 * 10, 100).iter().all(|byte| *byte == 0));
    file.write_all_at(&data, 4096 * 1000).expect("room");
    // Data written through the file system are read over NVMe.
    let back = dir.path().join("back");
    served
        .io(&[
            "read",
            "--lba",
            "1000",
            "--blocks",
            "300",
            "--file",
            back.to_str().expect("text"),
        ])
        .ok();
    assert!(std::fs::read(&back).expect("written") == data);
    let before = served.stat("flash_pages");
    let (mut from, mut to) = (4096 * 1000, 4096 * 5000);
    let copied = copy_file_range(&file, Some(&mut from), &file, Some(&mut to), data.len())
        .expect("possible");
    assert_eq!(copied, data.len());
    assert!(read(&file, 4096 * 5000, data.len()) == data);
    let trimmed = served.stat("host_deallocations");
    fallocate(
        &file,
        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        4096 * 1000,
        4096 * 100,
    )
    .expect("possible");
    assert_eq!(served.stat("host_deallocations"), trimmed + 100);
    assert!(
        read(&file, 4096 * 1000, 4096 * 100)
            .iter()
            .all(|byte| *byte == 0)
    );
    assert!(read(&file, 4096 * 1100, 4096 * 200) == data[4096 * 100..]);
    assert_eq!(
        served.stat("flash_pages"),
        before,
        "neither copies nor holes were programmed"
    );
    fallocate(&file, FallocateFlags::ZERO_RANGE, 4096 * 5000 + 5, 10).expect("possible");
    let (first, zeroes) = (read(&file, 4096 * 5000, 20), [0; 10]);
    assert!(first[..5] == data[..5] && first[5..15] == zeroes && first[15..] == data[15..20]);
    file.set_len(1 << 20).expect_err("its size is fixed");
    assert_eq!(
        file.write_at(&[1, 2, 3], (64 << 20) - 1).expect("one fits"),
        1
    );
    file.write_at(&[1], 64 << 20).expect_err("after the end");
    file.sync_all().expect("flushed");
    run(&["serve", "--memory", "32MiB", "--fuse", at])
        .fails(1, &[at, "is mounted there", "umount"]);
    drop(file);
    // A killed server leaves a dead mount, which the next one removes.
    served.kill();
    std::fs::metadata(folder.join("n1")).expect_err("it is not served");
    let served = serve(&["--image", image, "--fuse", at]);
    let file = open(&folder);
    assert!(read(&file, 4096 * 5300 - 4096, 4096) == data[data.len() - 4096..]);
    // Although the mount is in use, the server shuts down cleanly and the folder is free.
    served.stop();
    file.read_at(&mut [0], 0).expect_err("the device is gone");
    assert_eq!(std::fs::read_dir(&folder).expect("a folder").count(), 0);
}

// Like a container that is started while the device is served.
#[test]
fn a_copy_of_the_mount_in_another_namespace_does_not_keep_the_server_from_ending() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let served = serve(&[
        "--memory",
        "32MiB",
        "--fuse",
        dir.path().to_str().expect("text"),
    ]);
    let mut other = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sleep", "1000"])
        .spawn();
    let Ok(other) = &mut other else {
        println!("skipped: there is no unshare");
        return;
    };
    let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    let name = |process: &str| {
        std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default()
    };
    let pid = other.id().to_string();
    while name(&pid).trim() != "sleep" && other.try_wait().expect("ours").is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_ne!(namespace(&pid), namespace("self"));

    served.stop();
    assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 0);
    other.kill().expect("ours");
    other.wait().expect("ours");
}

#[test]
fn mistakes_with_folders_are_sentences() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().to_str().expect("text");
    let missing = dir.path().join("missing");
    let missing = missing.to_str().expect("text");
    run(&["serve", "--memory", "32MiB", "--fuse", missing])
        .fails_in_one_line(1, &[missing, "mkdir"]);
    std::fs::write(dir.path().join("something"), "x").expect("room");
    run(&["serve", "--memory", "32MiB", "--fuse", path]).fails_in_one_line(1, &[path, "not empty"]);
}

// Through the kernel: data acknowledged by fsync survive a power cut, regardless of the other
// losses of the cache.
#[test]
fn what_was_synced_through_the_file_survives_a_power_cut_of_the_volatile_cache() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let image = path(dir.path(), "disk");
    let image = image.as_str();
    run(&["image", "create", image, "--size", "16MiB"]).ok();
    let mut lost = 0;

    for round in 0..6u8 {
        // The remains of a mount after a power cut are removed by the next one.
        let folder = dir.path().join(format!("folder{round}"));
        std::fs::create_dir(&folder).expect("a new folder");
        let at = folder.to_str().expect("text");
        let seed = round.to_string();
        let served = serve(&format!(
            "--image {image} --fuse {at} --volatile-cache 1MiB --cut-seed {seed}"
        ));
        let file = open(&folder);
        let fill = |value: u8| vec![value; 32 * 4096];
        file.write_all_at(&fill(100 + round), 0).expect("room");
        file.sync_all().expect("synced");
        file.write_all_at(&fill(200 + round), 4096 * 32)
            .expect("room");
        drop(file);
        served.signal("USR2");
        served.logged("the power was cut");
        drop(served);
        let _ = Command::new("umount").args(["--lazy", at]).status();

        let served = serve(&["--image", image, "--fuse", at]);
        let file = open(&folder);
        assert!(
            read(&file, 0, 32 * 4096) == fill(100 + round),
            "seed {seed}"
        );
        let written = read(&file, 4096 * 32, 32 * 4096);
        for page in written.chunks(4096) {
            // From this round, or from an earlier one.
            assert!(page.iter().all(|byte| *byte == page[0]), "seed {seed}");
            lost += u64::from(page[0] != 200 + round);
        }
        drop(file);
        served.stop();
    }
    assert!(lost > 0, "six power cuts have lost nothing");
}

// The same for a device whose own write buffer is volatile: a kill empties it, and O_DSYNC writes through it.
#[test]
fn what_was_synced_through_the_file_survives_the_loss_of_a_volatile_write_buffer() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let image = path(dir.path(), "disk");
    let image = image.as_str();
    let set = "firmware.write_buffer_bytes=1MiB,firmware.power_loss_protection=false";
    run(&["image", "create", image, "--size", "16MiB", "--set", set]).ok();

    for round in 0..4u8 {
        let folder = dir.path().join(format!("folder{round}"));
        std::fs::create_dir(&folder).expect("a new folder");
        let at = folder.to_str().expect("text");
        let served = serve(&["--image", image, "--fuse", at]);
        let file = open(&folder);
        let fill = |value: u8| vec![value; 32 * 4096];
        file.write_all_at(&fill(100 + round), 0).expect("room");
        file.sync_all().expect("synced");
        let through = OpenOptions::new()
            .write(true)
            .custom_flags(OFlags::DSYNC.bits() as i32)
            .open(folder.join("n1"))
            .expect("it is there");
        through
            .write_all_at(&fill(150 + round), 4096 * 32)
            .expect("room");
        file.write_all_at(&fill(200 + round), 4096 * 64)
            .expect("room");
        drop((file, through));
        served.kill();
        let _ = Command::new("umount").args(["--lazy", at]).status();

        let served = serve(&["--image", image, "--fuse", at]);
        let file = open(&folder);
        assert!(
            read(&file, 0, 32 * 4096) == fill(100 + round),
            "round {round}"
        );
        assert!(
            read(&file, 4096 * 32, 32 * 4096) == fill(150 + round),
            "round {round}"
        );
        assert!(
            read(&file, 4096 * 64, 32 * 4096) == fill(0),
            "nothing made room for others"
        );
        drop(file);
        served.stop();
    }
}
