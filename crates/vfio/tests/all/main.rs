//! A guest's driver in a few lines, over vfio-user: what a virtual machine would do, and what it
//! should not. `socket`, which counts the panics of a process, is beside it.

mod cut;
mod driver;
mod hostile;
mod shut_down;

use driver::*;
use remap_ssd_nvme::controller::Latency;
use remap_ssd_nvme::spec::command::{CopyRange, DsmRange, Sqe};
use remap_ssd_nvme::spec::opcode::{admin, io};
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_vfio::{Service, ServiceError};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

#[test]
fn a_driver_finds_the_controller_and_its_data_come_back() {
    let rig = Rig::new();
    let mut guest = rig.guest();
    let mut config = [0; 16];
    guest
        .client
        .region_read(CONFIG, 0, &mut config)
        .expect("answered");
    assert_eq!(config[9..12], [0x02, 0x08, 0x01], "NVM Express");

    assert_eq!(guest.read(0x08), 0x0002_0000, "version 2.0");
    assert_eq!(
        guest.read(0) & 0x1_ffff,
        0x1_0000 | 1023,
        "contiguous queues of 1024"
    );
    assert_eq!(guest.read(4) >> 27 & 3, 1, "CAP.CRMS: ready with media");
    assert!(
        guest.read(0x68) >= guest.read(0) >> 24,
        "CRTO.CRWMT is not less than CAP.TO"
    );

    assert_eq!(guest.enable(), 1, "ready");
    assert_eq!(
        guest
            .admin(command(
                admin::IDENTIFY,
                [1, 0, 0],
                [DATA + 0x100, DATA + 0x1000]
            ))
            .0,
        Status::SUCCESS
    );
    assert_eq!(&guest.get(DATA + 0x100 + 24, 9), b"remap-ssd");
    assert_eq!(
        guest.get(DATA + 0x100 + 536, 4),
        [0; 4],
        "no SGLs are promised"
    );

    let queues = Sqe {
        nsid: 0,
        ..command(admin::SET_FEATURES, [7, 0x0003_0003, 0], [0; 2])
    };
    assert_eq!(guest.admin(queues), (Status::SUCCESS, 0x0003_0003));
    guest.create_queues();
    assert_eq!(
        guest.admin(queues).0,
        Status::SEQUENCE,
        "there are queues now"
    );

    let list = scattered(&guest, 64);
    for of in 0..64 {
        guest.put(DATA + of * 0x2000, &page(of, 1));
    }
    assert_eq!(
        guest.io(command(io::WRITE, [100, 0, 63], list)),
        Status::SUCCESS
    );
    assert!(guest.interrupts() > 0, "its vector was told");

    let ranges = [CopyRange::new(100, 31), CopyRange::new(132, 31)];
    guest.put(BASE + 0x9000, ranges.as_bytes());
    let programs = |rig: &Rig| rig.subsystem.device().ftl().stats().programs();
    let before = programs(&rig);
    assert_eq!(
        guest.io(command(io::COPY, [3000, 0, 1], [BASE + 0x9000, 0])),
        Status::SUCCESS
    );
    assert_eq!(programs(&rig), before, "a copy programs nothing");

    guest.put(DATA, &[0; 64 * 0x2000]);
    assert_eq!(
        guest.io(command(io::READ, [3000, 0, 63], list)),
        Status::SUCCESS
    );
    for of in 0..64 {
        assert!(
            guest.get(DATA + of * 0x2000, 4096) == page(of, 1),
            "page {of}"
        );
        assert!(
            guest
                .get(DATA + of * 0x2000 + 4096, 4096)
                .iter()
                .all(|byte| *byte == 0),
            "between pages"
        );
    }
    assert_eq!(
        guest.io(command(io::FLUSH, [0; 3], [0; 2])),
        Status::SUCCESS
    );

    // Many at once, more than the queue holds at a time.
    for round in 0..20u8 {
        for of in 0..10 {
            guest.put(DATA + of * 4096, &page(of, round));
            guest.submit(
                1,
                command(io::WRITE, [of as u32, 0, 0], [DATA + of * 4096, 0]),
            );
        }
        for _ in 0..10 {
            assert!(
                guest
                    .completion(1)
                    .expect("it completes")
                    .status()
                    .is_success()
            );
        }
    }

    assert_eq!(
        guest.io(command(
            io::READ,
            [0, 0, 9],
            [DATA + 0x40_0000, scattered(&guest, 11)[1]]
        )),
        Status::SUCCESS
    );
    assert!(guest.get(DATA + 0x40_0000, 4096) == page(0, 19));
    assert!(guest.get(DATA + 0x2000, 4096) == page(1, 19));

    // A reset, and everything again.
    guest.write(0x14, 0);
    assert_eq!(guest.read(0x1c), 0);
    assert_eq!(guest.enable(), 1);
    guest.create_queues();
    assert_eq!(
        guest.io(command(io::READ, [3001, 0, 0], [DATA, 0])),
        Status::SUCCESS
    );
    assert!(guest.get(DATA, 4096) == page(1, 1));

    // Shutdown completes.
    guest.write(0x14, 0x0046_4001);
    assert_eq!(guest.read(0x1c), 1 | 2 << 2);
    drop(guest);
    rig.stop();
}

/// Linux gives a page for 256 ranges with every trim; its number of ranges says how many there are.
#[test]
fn trims_of_one_range_and_of_256_deallocate_what_they_name() {
    let rig = Rig::new();
    let mut guest = rig.guest();
    guest.enable();
    guest.create_queues();
    guest.put(DATA, &[7; 16 << 12]);
    let list: Vec<u8> = (1..16u64)
        .flat_map(|page| (DATA + page * 4096).to_le_bytes())
        .collect();
    guest.put(BASE + 0x8000, &list);
    for block in (0..1024).step_by(16) {
        assert_eq!(
            guest.io(command(io::WRITE, [block, 0, 15], [DATA, BASE + 0x8000])),
            Status::SUCCESS
        );
    }
    let deallocated = |rig: &Rig| rig.subsystem.device().ftl().stats().host_deallocations;
    let ranges = |first: u64| {
        let range = |index: u64| DsmRange {
            attributes: 0,
            blocks: 2,
            slba: first + 4 * index,
        };
        (0..256).map(range).collect::<Vec<_>>()
    };
    let deallocate = 1 << 2;

    let before = deallocated(&rig);
    guest.put(BASE + 0x9000, ranges(2).as_bytes());
    assert_eq!(
        guest.io(command(
            io::DATASET_MANAGEMENT,
            [0, deallocate, 0],
            [BASE + 0x9000, 0]
        )),
        Status::SUCCESS
    );
    assert_eq!(deallocated(&rig), before + 2, "one range of two blocks");

    // The list may lie across two pages.
    let (start, end) = (BASE + 0x9800, BASE + 0xb000);
    let all = ranges(0);
    guest.put(start, &all.as_bytes()[..0x800]);
    guest.put(end, &all.as_bytes()[0x800..]);
    assert_eq!(
        guest.io(command(
            io::DATASET_MANAGEMENT,
            [255, deallocate, 0],
            [start, end]
        )),
        Status::SUCCESS
    );
    assert_eq!(deallocated(&rig), before + 2 + 512);
    assert_eq!(
        guest.io(command(
            io::READ,
            [1018, 0, 3],
            [DATA, scattered(&guest, 4)[1]]
        )),
        Status::SUCCESS
    );
    assert!(
        guest.get(DATA, 4096).iter().all(|byte| *byte == 7),
        "block 1018 is in no range"
    );
    for (page, content) in [(1, 7), (2, 0), (3, 0)] {
        assert!(
            guest
                .get(DATA + page * 0x2000, 4096)
                .iter()
                .all(|byte| *byte == content),
            "block 1018 + {page}"
        );
    }
    drop(guest);
    rig.stop();
}

#[test]
fn completions_come_when_flash_would_have_done_it() {
    let rig = Rig::new();
    rig.subsystem.set_latency(Latency::Emulated);
    let mut guest = rig.guest();
    guest.enable();
    guest.create_queues();
    assert_eq!(
        guest.io(command(io::WRITE, [0, 0, 0], [DATA, 0])),
        Status::SUCCESS
    );
    let began = Instant::now();
    assert_eq!(
        guest.io(command(io::READ, [0, 0, 0], [DATA, 0])),
        Status::SUCCESS
    );
    let least = Duration::from_nanos(rig.subsystem.device().config().latencies().flash_read_ns);
    assert!(began.elapsed() >= least, "not before a page is read");
    rig.stop();
}

#[test]
fn an_identifier_that_is_in_use_is_refused() {
    let rig = Rig::new();
    rig.subsystem.set_latency(Latency::Emulated);
    let mut guest = rig.guest();
    guest.enable();
    guest.create_queues();
    let write = command(io::WRITE, [0, 0, 0], [DATA, 0]);
    // An event request, and another command by its name.
    guest.submit(0, command(admin::ASYNC_EVENT, [0; 3], [0; 2]));
    guest.cid -= 1;
    assert_eq!(
        guest
            .admin(command(admin::GET_FEATURES, [7, 0, 0], [0; 2]))
            .0,
        Status::ID_CONFLICT
    );
    // Two writes of one name, rung for together: the flash is not done with the first when the
    // second is looked at.
    let named = Sqe {
        cdw0: write.cdw0 | 40 << 16,
        ..write
    };
    [IO_SQ, IO_SQ + 64]
        .iter()
        .for_each(|at| guest.put(*at, named.as_bytes()));
    guest.queues[1].tail = 2;
    guest.write(0x1008, 2);
    let first = guest.completion(1).expect("it completes");
    let second = guest.completion(1).expect("it completes");
    assert_eq!(
        (first.status(), second.status()),
        (Status::ID_CONFLICT, Status::SUCCESS)
    );
    guest.cid = 39;
    assert_eq!(guest.io(write), Status::SUCCESS, "it is free again");
    drop(guest);
    rig.stop();
}

#[test]
fn a_hostile_guest_gets_errors_and_nothing_else() {
    let rig = Rig::new();
    let mut guest = rig.guest();
    guest.enable();
    let size = u32::from(ENTRIES - 1) << 16;
    for (sqe, status) in [
        (
            command(admin::CREATE_SQ, [size | 1, 1 << 16 | 1, 0], [IO_SQ, 0]),
            Status::COMPLETION_QUEUE,
        ),
        (
            command(admin::CREATE_CQ, [size, 1, 0], [IO_CQ, 0]),
            Status::QUEUE_IDENTIFIER,
        ),
        (
            command(admin::CREATE_CQ, [size | 65, 1, 0], [IO_CQ, 0]),
            Status::QUEUE_IDENTIFIER,
        ),
        (
            command(admin::CREATE_CQ, [1, 1, 0], [IO_CQ, 0]),
            Status::QUEUE_SIZE,
        ),
        (
            command(admin::CREATE_CQ, [0xffff_0001, 1, 0], [IO_CQ, 0]),
            Status::QUEUE_SIZE,
        ),
        (
            command(admin::CREATE_CQ, [size | 1, 65 << 16 | 3, 0], [IO_CQ, 0]),
            Status::INTERRUPT_VECTOR,
        ),
        (
            command(admin::CREATE_CQ, [size | 1, 1, 0], [IO_CQ + 8, 0]),
            Status::PRP_OFFSET,
        ),
        (
            command(admin::CREATE_CQ, [size | 1, 0, 0], [IO_CQ, 0]),
            Status::INVALID_FIELD,
        ),
        (
            command(admin::DELETE_SQ, [1, 0, 0], [0; 2]),
            Status::QUEUE_IDENTIFIER,
        ),
        (
            command(admin::DELETE_CQ, [0, 0, 0], [0; 2]),
            Status::QUEUE_IDENTIFIER,
        ),
        (
            command(admin::FABRICS, [0; 3], [0; 2]),
            Status::INVALID_OPCODE,
        ),
        (
            command(admin::IDENTIFY, [1, 0, 0], [0, 0]),
            Status::DATA_TRANSFER,
        ),
        (
            command(
                admin::IDENTIFY,
                [1, 0, 0],
                [BASE + BYTES - 4096 + 4, BASE + BYTES],
            ),
            Status::DATA_TRANSFER,
        ),
        (
            command(admin::IDENTIFY, [1, 0, 0], [DATA + 1, 0]),
            Status::PRP_OFFSET,
        ),
    ] {
        assert_eq!(guest.admin(sqe).0, status, "{sqe:?}");
    }
    guest.create_queues();
    assert_eq!(
        guest.admin(command(admin::DELETE_CQ, [1, 0, 0], [0; 2])).0,
        Status::QUEUE_DELETION
    );
    let mut sgl = command(io::READ, [0; 3], [DATA, 0]);
    sgl.cdw0 |= 1 << 14;
    for (sqe, status) in [
        (sgl, Status::INVALID_FIELD),
        (
            command(io::READ, [0, 0, 7], [DATA, DATA + 0x10_0000 + 4]),
            Status::PRP_OFFSET,
        ),
        (
            command(io::READ, [0, 0, 7], [DATA, u64::MAX - 7]),
            Status::DATA_TRANSFER,
        ),
        (
            command(io::WRITE, [0, 0, 255], [DATA, BASE + BYTES]),
            Status::DATA_TRANSFER,
        ),
        (
            command(io::WRITE, [0, 0, 1], [BASE + BYTES - 4096, BASE + BYTES]),
            Status::DATA_TRANSFER,
        ),
        (
            command(io::WRITE, [0xffff_ffff, 0xffff_ffff, 0], [DATA, 0]),
            Status::LBA_RANGE,
        ),
        (
            command(io::WRITE, [0, 0, 0xffff], [DATA, 0]),
            Status::LBA_RANGE,
        ),
        (command(io::COPY, [0, 0, 0], [3, 0]), Status::PRP_OFFSET),
        (command(0x7e, [0; 3], [0; 2]), Status::INVALID_OPCODE),
    ] {
        assert_eq!(guest.io(sqe), status, "{sqe:?}");
    }
    // Nothing of what was refused was written.
    assert_eq!(
        guest.io(command(io::READ, [0, 0, 1], [DATA, DATA + 4096])),
        Status::SUCCESS
    );
    assert!(guest.get(DATA, 8192).iter().all(|byte| *byte == 0));
    // Doorbells beyond their queues, of queues that are not there, and registers that are not
    // there.
    for (offset, value) in [
        (0x1008, 0xffff),
        (0x1008, 16),
        (0x100c, 99),
        (0x1100, 1),
        (0x1ff8, 1),
        (0x3ffc, 7),
        (0x50, 1),
    ] {
        guest.write(offset, value);
    }
    guest
        .client
        .region_write(BAR, 0x1001, &[1])
        .expect("answered");
    guest
        .client
        .region_write(BAR, u64::MAX - 3, &[1; 4])
        .expect("answered");
    guest
        .client
        .region_read(BAR, u64::MAX - 3, &mut [0; 8])
        .expect("answered");
    guest
        .client
        .region_write(CONFIG, u64::MAX - 3, &[1; 8])
        .expect("answered");
    guest
        .client
        .set_irqs(
            MSIX,
            EVENTFD_TRIGGER,
            u32::MAX,
            1,
            &[guest.event.as_raw_fd()],
        )
        .expect("answered");
    let head = guest.queues[1].head;
    guest.write(0x100c, head.into());
    let tail = guest.queues[1].tail;
    guest.write(0x1008, tail.into());
    assert_eq!(
        guest.io(command(io::FLUSH, [0; 3], [0; 2])),
        Status::SUCCESS,
        "and still it works"
    );
    // Memory is taken away under the queues: fatal, until the next reset.
    guest.client.dma_unmap(BASE, BYTES).expect("answered");
    guest.submit(1, command(io::FLUSH, [0; 3], [0; 2]));
    let until = Instant::now() + PATIENCE;
    while guest.read(0x1c) & 2 == 0 {
        assert!(Instant::now() < until, "its status does not say so");
    }
    // Queues in memory that is not there.
    guest.write(0x14, 0);
    assert_eq!(guest.read(0x1c), 0);
    guest.enable();
    guest.submit(0, command(admin::IDENTIFY, [1, 0, 0], [DATA, 0]));
    while guest.read(0x1c) & 2 == 0 {
        assert!(Instant::now() < until, "its status does not say so");
    }
    drop(guest);
    // The next guest finds a device that works.
    let mut guest = rig.guest();
    assert_eq!(guest.enable(), 1);
    guest.create_queues();
    assert_eq!(
        guest.io(command(io::READ, [0, 0, 0], [DATA, 0])),
        Status::SUCCESS
    );
    rig.stop();
}

#[test]
fn a_socket_that_is_served_or_is_none_is_left_alone() {
    let rig = Rig::new();
    let again =
        |path: &Path| Service::start(&rig.subsystem, path, Instant::now(), Box::new(|_| {}));
    let path = rig.dir.path().join("socket");
    assert!(matches!(again(&path), Err(ServiceError::Busy)));
    let file = rig.dir.path().join("file");
    std::fs::write(&file, "x").expect("room");
    assert!(matches!(again(&file), Err(ServiceError::NoSocket)));
    assert!(again(&rig.dir.path().join("missing/socket")).is_err());
    let left = rig.dir.path().join("left");
    drop(std::os::unix::net::UnixListener::bind(&left).expect("a socket"));
    let service = again(&left).expect("it is not served");
    service.close().expect("nothing failed");
    assert!(!left.exists());
    rig.stop();
}
