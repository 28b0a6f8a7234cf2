//! Commands in progress when their namespace is deleted, or replaced by another one.

use crate::namespaces::host::{Host, PAGE, Store, blocks_of, device, subsystem};
use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_nvme::spec::opcode::io;
use remap_ssd_nvme::spec::status::Status;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Two namespaces take the places of deleted ones: commands are checked against the first, and
/// executed on the second.
#[test]
fn a_command_that_was_checked_against_another_namespace_is_refused() {
    let subsystem = Arc::new(subsystem(device(32 << 20), &Store::default()));
    let host = Host::of(&subsystem, "a");
    let make = |pages, format| {
        let nsid = host.create(pages, format).expect("there is room");
        host.attach(nsid, &[&host], true).expect("it is there");
        nsid
    };
    assert_eq!((make(512, 0), make(512, 0)), (1, 2));
    host.write(2, 0, 1, &[2; PAGE]).expect("served");

    let commands = [
        blocks_of(io::WRITE, 1, 500, 1),
        blocks_of(io::READ, 1, 500, 1),
        blocks_of(io::COMPARE, 1, 500, 1),
        blocks_of(io::VERIFY, 1, 500, 1),
        blocks_of(io::WRITE_ZEROES, 1, 0, 512),
        blocks_of(io::REMAP, 1, 0, 1),
    ];
    let checked = commands.map(|sqe| (sqe, host.check(&sqe).expect("in bounds")));
    let all_are = |status: Status| {
        for (sqe, request) in &checked {
            let done = host.execute(request, &[9; PAGE]);
            assert_eq!(done, Err(status), "{sqe:?}");
        }
    };

    // Formatted with another block size, and back: in 512-byte blocks they would be past the end.
    host.format(1, 1).expect("it is there");
    all_are(Status::INVALID_NAMESPACE);
    host.format(1, 0).expect("it is there");
    all_are(Status::INVALID_NAMESPACE);

    // Deleted, with a smaller one in its place, and another host's in the rest.
    host.delete(1).expect("it is there");
    all_are(Status::INVALID_NAMESPACE);
    assert_eq!((make(8, 0), make(504, 0)), (1, 3));
    host.write(1, 0, 1, &[1; PAGE]).expect("served");
    host.write(3, 492, 1, &[3; PAGE]).expect("served");
    all_are(Status::INVALID_NAMESPACE);
    for (nsid, slba) in [(1, 0), (2, 0), (3, 492)] {
        assert_eq!(host.read(nsid, slba, 1), Ok(vec![nsid as u8; PAGE]));
    }

    // Likewise a source of a copy, and a detached namespace.
    let write = blocks_of(io::WRITE, 1, 0, 1);
    let request = host.check(&write).expect("in bounds");
    host.attach(1, &[&host], false).expect("it is there");
    let done = host.execute(&request, &[9; PAGE]);
    assert_eq!(done, Err(Status::INVALID_NAMESPACE));
    host.attach(1, &[&host], true).expect("it is there");
    assert_eq!(host.read(1, 0, 1), Ok(vec![1; PAGE]));
}

/// Sets the flag when dropped, even by a panic, so that the other thread ends.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// One host writes as long as it can, in commands of several slices, while another one deletes the
/// namespace and creates it again.
#[test]
fn nothing_that_is_written_during_a_deletion_appears_in_the_next_namespace() {
    const PAGES: u32 = 256;
    const ROUNDS: usize = 60;
    // In a folder: while the deletion waits for the disk, the other host goes on.
    let folder = tempfile::tempdir().expect("a folder");
    let config = DeviceConfig::for_service(32 << 20, SchemeKind::RemapSsd, false);
    let device = Device::create_in_folder(
        &folder.path().join("device"),
        config.expect("possible"),
        None,
    );
    let device = device.expect("there is room");
    let subsystem = Arc::new(subsystem(device, &Store::default()));
    let owner = Host::of(&subsystem, "owner");
    let writer = Host::of(&subsystem, "writer");
    let done = AtomicBool::new(false);

    let (written, refused) = std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let data = vec![9; PAGES as usize * PAGE];
            let (mut written, mut refused) = (0, 0);
            while !done.load(Relaxed) {
                match writer.write(1, 0, PAGES, &data) {
                    Ok(()) => written += 1,
                    Err(Status::INVALID_NAMESPACE | Status::FORMAT_IN_PROGRESS) => refused += 1,
                    Err(status) => panic!("{status:?}"),
                }
            }
            (written, refused)
        });

        let end = SetAtEnd(&done);
        for round in 0..ROUNDS {
            let nsid = owner.create(PAGES, 0).expect("there is room");
            assert_eq!(nsid, 1);
            owner.attach(1, &[&owner], true).expect("it is there");
            for slba in 0..u64::from(PAGES) {
                let read = owner.read(1, slba, 1).expect("served");
                assert!(read.iter().all(|byte| *byte == 0), "round {round}, {slba}");
            }

            // From here on the other one may write, and does.
            owner.attach(1, &[&writer], true).expect("it is there");
            std::thread::sleep(std::time::Duration::from_millis(2));
            owner.delete(1).expect("it is there");
        }
        drop(end);
        writing.join().expect("no panic")
    });
    assert!(written > 0 && refused > 0, "{written} {refused}");
    subsystem.device().ftl().check().expect("consistent");
}
