//! Power cuts during Format NVM, of a device in a folder: after the process is killed, and after a
//! crash of the machine.
//!
//! FORMAT.md allows each page to be old or zero independently until the format is acknowledged, and
//! only zero from then on; other namespaces are unaffected.

#![cfg(target_os = "linux")]

#[path = "../../media/tests/kit/disk.rs"]
mod disk;
mod kit;

use crate::kit::specified::property;
use kit::numbers::Numbers;
use kit::raw::{connect, connect_data, enabled, property_set};
use remap_ssd_device::{Device, DeviceConfig, Lpn};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_media::{Page, Payload};
use remap_ssd_nvme::controller::{AdminOutcome, Association, NamespaceSpec, Rights};
use remap_ssd_nvme::spec::opcode::admin;
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_nvme::tcp::client::entry;
use std::collections::BTreeSet;
use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Pages of the two namespaces: 8,192 are deallocated at a time, so a format is two records.
const FORMATTED: u32 = 10_000;
const KEPT: u32 = 2000;
const JOURNAL_BYTES: u64 = 1 << 20;
const FILES: [&str; 5] = ["contents", "state.0", "state.1", "journal.0", "journal.1"];
const SCHEMES: [SchemeKind; 3] = [SchemeKind::RemapSsd, SchemeKind::NLog, SchemeKind::None];

/// One in `WRITTEN` pages has content before.
const WRITTEN: u32 = 16;
const ALREADY_ZERO: u32 = FORMATTED - FORMATTED / WRITTEN;

/// Previous content of a page, in both namespaces.
fn content(lpn: u32) -> u64 {
    if lpn.is_multiple_of(WRITTEN) {
        u64::from(lpn) + 1
    } else {
        0
    }
}

fn files(dir: &Path) -> Vec<Vec<u8>> {
    let read = |name| std::fs::read(dir.join(name)).expect("the file is there");
    FILES.into_iter().map(read).collect()
}

fn write(device: &mut Device, lpn: u32, content: u64) {
    let mut page = [0; 4096];
    page[..8].copy_from_slice(&content.to_le_bytes());
    let done = device.write(0, Lpn(lpn), &Payload::Bytes(&page));
    done.result.expect("in bounds");
}

/// Reads the content of a page, 0 for zeroes.
fn read(device: &mut Device, lpn: u32) -> u64 {
    match device.read(0, Lpn(lpn)).1.expect("readable") {
        Page::Zeroes => 0,
        Page::Bytes(bytes) => u64::from_le_bytes(*bytes.first_chunk().expect("a page")),
        other => panic!("{other:?}"),
    }
}

/// A device in a folder with durable content.
fn filled(dir: &Path, scheme: SchemeKind) -> Device {
    let config = DeviceConfig::for_service(48 << 20, scheme, false);
    let device = Device::create_in_folder(dir, config.expect("possible"), Some(JOURNAL_BYTES));
    let mut device = device.expect("room for it");
    for lpn in (0..FORMATTED + KEPT).step_by(WRITTEN as usize) {
        // Some have an older version.
        if lpn % 3 == 1 {
            write(&mut device, lpn, 9999);
        }
        write(&mut device, lpn, content(lpn));
    }
    device.sync().expect("the disk works");
    device
}

/// Formats the first of two namespaces; returns the status.
fn format(device: Device) -> Status {
    let specs = [FORMATTED, KEPT].map(|pages| NamespaceSpec {
        pages,
        lba_shift: 12,
    });
    let subsystem = Arc::new(kit::subsystem(device, &specs));
    let address: SocketAddr = "127.0.0.1:4420".parse().expect("an address");
    let data = connect_data(0xffff);
    let connected = Association::connect(&subsystem, &connect(0), &data, address, 0);
    let (association, _) = connected.expect("it may connect");
    association.grant(Rights::ALL);

    let ask = |sqe| match association.admin(&sqe, &[], &mut Vec::new()) {
        AdminOutcome::Done(status, _) => status,
        AdminOutcome::Waits => panic!("a format does not wait for an event"),
    };
    let status = ask(property_set(property::CC, enabled()));
    assert_eq!(status, Status::SUCCESS);
    ask(entry(admin::FORMAT, 1))
}

/// Returns the number of zero pages in the first namespace of a device found after a cut; checks
/// that its other pages and the second namespace are unchanged.
fn zeroes(device: &mut Device, at: &str) -> u32 {
    device.ftl().check().expect("consistent");
    let held: Vec<u64> = (0..FORMATTED).map(|lpn| read(device, lpn)).collect();
    for (lpn, held) in (0..).zip(&held) {
        let allowed = [0, content(lpn)];
        assert!(allowed.contains(held), "{at}: LPN {lpn} reads {held}");
    }
    for lpn in FORMATTED..FORMATTED + KEPT {
        assert_eq!(read(device, lpn), content(lpn), "{at}: LPN {lpn}");
    }
    held.iter().filter(|held| **held == 0).count() as u32
}

/// Checks that the device still works: another format is complete.
fn formats_again(dir: &Path, device: Device, at: &str) {
    assert_eq!(format(device), Status::SUCCESS, "{at}");
    let mut device = open(dir, at);
    assert_eq!(zeroes(&mut device, at), FORMATTED, "{at}");
}

fn open(dir: &Path, at: &str) -> Device {
    let opened = Device::open_in_folder(dir);
    opened.unwrap_or_else(|error| panic!("{at}: {error}")).0
}

// The journal is written in ascending order: at a cut, a prefix of the data is present. A killed
// process leaves whole words.
#[test]
fn a_server_that_is_killed_during_a_format_leaves_each_page_old_or_zero() {
    let mut seen = BTreeSet::new();
    for scheme in SCHEMES {
        let dir = tempfile::tempdir().expect("a folder");
        let device = filled(dir.path(), scheme);
        let before = files(dir.path());
        assert_eq!(format(device), Status::SUCCESS);
        let after = files(dir.path());

        let journals = [3, 4].map(|file| (file, differing_words(&before[file], &after[file])));
        let mut changed = journals.iter().filter(|(_, words)| !words.is_empty());
        let (journal, words) = changed.next().expect("a format is recorded");
        assert!(changed.next().is_none(), "one journal is in use");

        let mut last = ALREADY_ZERO;
        for cut in 0..=words.len() {
            let at = format!("{scheme}, cut at {cut} of {} words", words.len());
            let mut left = before.clone();
            // Pages are written before the records that name them. The last page tells how far the
            // journal was durable, and is written after it.
            left[0] = after[0].clone();
            let witnesses = left[0].len() - 4096;
            left[0][witnesses..].copy_from_slice(&before[0][witnesses..]);
            for word in &words[..cut] {
                left[*journal][*word..word + 8].copy_from_slice(&after[*journal][*word..word + 8]);
            }

            let found = tempfile::tempdir().expect("a folder");
            let config = std::fs::read(dir.path().join("device.toml")).expect("it is there");
            let names = FILES.iter().copied().chain(["device.toml"]);
            for (name, bytes) in names.zip(left.iter().chain([&config])) {
                write_sparse(&found.path().join(name), bytes);
            }
            let mut device = open(found.path(), &at);
            let zero = zeroes(&mut device, &at);
            assert!(zero >= last, "{at}: {zero} pages are zero, and {last} were");
            last = zero;
            if seen.insert((scheme.to_string(), zero)) {
                formats_again(found.path(), device, &at);
            }
        }
        assert_eq!(
            last, FORMATTED,
            "{scheme}: the last cut is after the format"
        );
        let counts = seen.iter().filter(|(of, _)| *of == scheme.to_string());
        // None of it, its first half, and all.
        assert_eq!(counts.count(), 3, "{scheme}: {seen:?}");
    }
}

/// Writes a file that is mostly zeroes.
fn write_sparse(path: &Path, bytes: &[u8]) {
    let file = File::create(path).expect("there is room");
    file.set_len(bytes.len() as u64).expect("there is room");
    for (page, bytes) in (0..).zip(bytes.chunks(4096)) {
        if bytes.iter().any(|byte| *byte != 0) {
            file.write_all_at(bytes, page * 4096)
                .expect("there is room");
        }
    }
}

/// Offsets of the words in which two files differ.
fn differing_words(one: &[u8], other: &[u8]) -> Vec<usize> {
    assert_eq!(one.len(), other.len());
    let words = one.chunks(8).zip(other.chunks(8)).enumerate();
    let differing = words.filter(|(_, (one, other))| one != other);
    differing.map(|(word, _)| word * 8).collect()
}

// No unsynced data can be relied on: any sector may be old.
#[test]
fn a_machine_that_dies_during_a_format_leaves_each_page_old_or_zero() {
    let (mut whole, mut old) = (0, 0);
    for scheme in SCHEMES {
        for seed in 0..8 {
            let at = format!("{scheme}, seed {seed}");
            let mut numbers = Numbers(seed);
            let dir = tempfile::tempdir().expect("a folder");
            let device = filled(dir.path(), scheme);
            disk::attach(dir.path());
            // The disk accepts no more writes: the format cannot be acknowledged.
            disk::fail(true);
            let status = format(device);
            assert!(!status.is_success(), "{at}: nothing of it is durable");

            let found = tempfile::tempdir().expect("a folder");
            disk::crash(found.path(), |end| numbers.below(end));
            disk::attach(found.path());
            let mut device = open(found.path(), &at);
            match zeroes(&mut device, &at) {
                ALREADY_ZERO => old += 1,
                FORMATTED => whole += 1,
                _ => {}
            }
            formats_again(found.path(), device, &at);
        }
    }
    assert!(whole > 0 && old > 0, "{whole} were formatted, {old} not");
}

#[test]
fn a_format_that_was_acknowledged_is_whole_after_the_machine_dies() {
    for scheme in SCHEMES {
        for seed in 0..8 {
            let at = format!("{scheme}, seed {seed}");
            let mut numbers = Numbers(seed);
            let dir = tempfile::tempdir().expect("a folder");
            let device = filled(dir.path(), scheme);
            disk::attach(dir.path());
            assert_eq!(format(device), Status::SUCCESS, "{at}");

            let found = tempfile::tempdir().expect("a folder");
            disk::crash(found.path(), |end| numbers.below(end));
            disk::attach(found.path());
            let mut device = open(found.path(), &at);
            assert_eq!(zeroes(&mut device, &at), FORMATTED, "{at}");
        }
    }
}
