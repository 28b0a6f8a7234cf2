//! A guest's driver in a few lines, over vfio-user: what a virtual machine would do, and what it should not.

use proptest::prelude::*;
use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_nvme::controller::{Health, Latency, Subsystem};
use remap_ssd_nvme::spec::command::{CopyRange, Cqe, DsmRange, Sqe};
use remap_ssd_nvme::spec::opcode::{admin, io};
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_vfio::{Service, ServiceError};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vfio_user::Client;
use zerocopy::{FromBytes, IntoBytes};

const NQN: &str = "nqn.2026-11.test:remap-ssd";
const BAR: u32 = 0;
const CONFIG: u32 = 7;
const MSIX: u32 = 2;
const EVENTFD_TRIGGER: u32 = 1 << 2 | 1 << 5;
/// The guest's memory begins here and has so many bytes.
const BASE: u64 = 0x10_0000;
const BYTES: u64 = 16 << 20;
/// Queues, at pages of it.
const ADMIN_SQ: u64 = BASE;
const ADMIN_CQ: u64 = BASE + 0x1000;
const IO_SQ: u64 = BASE + 0x2000;
const IO_CQ: u64 = BASE + 0x3000;
/// Data.
const DATA: u64 = BASE + 0x10_0000;
const ENTRIES: u16 = 16;

struct Rig {
    service: Service,
    subsystem: Arc<Subsystem>,
    dir: tempfile::TempDir,
}

impl Rig {
    fn new(latency: Latency) -> Self {
        let config =
            DeviceConfig::for_service(32 << 20, SchemeKind::RemapSsd, false).expect("possible");
        let device = Device::format(config).expect("possible");
        let subsystem =
            Subsystem::new(device, NQN, &[], latency, true, Health::default()).expect("possible");
        let subsystem = Arc::new(subsystem);
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("socket");
        let service =
            Service::start(&subsystem, &path, Instant::now(), Box::new(|_| {})).expect("possible");
        Self {
            service,
            subsystem,
            dir,
        }
    }

    fn guest(&self) -> Guest {
        Guest::connect(&self.dir.path().join("socket"))
    }

    /// Ends it; the device must come back.
    fn stop(self) {
        self.service.close().expect("nothing failed");
        assert!(
            Arc::into_inner(self.subsystem).is_some(),
            "somebody still holds the device"
        );
    }
}

struct Queue {
    sq: u64,
    cq: u64,
    tail: u16,
    head: u16,
    phase: u16,
}

struct Guest {
    client: Client,
    memory: File,
    event: OwnedFd,
    queues: [Queue; 2],
    cid: u16,
}

fn prps(sqe: &mut Sqe, prps: [u64; 2]) {
    let mut bytes: [u8; 64] = sqe.as_bytes().try_into().expect("64 bytes");
    bytes[24..32].copy_from_slice(&prps[0].to_le_bytes());
    bytes[32..40].copy_from_slice(&prps[1].to_le_bytes());
    *sqe = Sqe::read_from_bytes(&bytes).expect("64 bytes");
}

fn command(opcode: u8, dwords: [u32; 3], data: [u64; 2]) -> Sqe {
    let [cdw10, cdw11, cdw12] = dwords;
    let mut sqe = Sqe {
        cdw0: opcode.into(),
        nsid: 1,
        cdw10,
        cdw11,
        cdw12,
        ..Sqe::default()
    };
    prps(&mut sqe, data);
    sqe
}

impl Guest {
    fn connect(path: &Path) -> Self {
        let mut client = Client::new(path).expect("it listens");
        let memory = memfd_create("guest", MemfdFlags::CLOEXEC).expect("memory");
        ftruncate(&memory, BYTES).expect("memory");
        client
            .dma_map(0, BASE, BYTES, memory.as_raw_fd())
            .expect("sent");
        let event = eventfd(0, EventfdFlags::NONBLOCK).expect("an event");
        client
            .set_irqs(MSIX, EVENTFD_TRIGGER, 1, 1, &[event.as_raw_fd()])
            .expect("sent");
        let queue = |sq, cq| Queue {
            sq,
            cq,
            tail: 0,
            head: 0,
            phase: 1,
        };
        let queues = [queue(ADMIN_SQ, ADMIN_CQ), queue(IO_SQ, IO_CQ)];
        Self {
            client,
            memory: File::from(memory),
            event,
            queues,
            cid: 0,
        }
    }

    fn write(&mut self, offset: u64, value: u32) {
        self.client
            .region_write(BAR, offset, &value.to_le_bytes())
            .expect("answered");
    }
    fn read(&mut self, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        self.client
            .region_read(BAR, offset, &mut bytes)
            .expect("answered");
        u32::from_le_bytes(bytes)
    }
    fn put(&self, address: u64, bytes: &[u8]) {
        self.memory
            .write_all_at(bytes, address - BASE)
            .expect("guest memory");
    }
    fn get(&self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory
            .read_exact_at(&mut bytes, address - BASE)
            .expect("guest memory");
        bytes
    }

    /// Enables the controller; its status.
    fn enable(&mut self) -> u32 {
        self.put(BASE, &[0; 0x4000]);
        self.write(0x24, u32::from(ENTRIES - 1) << 16 | u32::from(ENTRIES - 1));
        self.client
            .region_write(BAR, 0x28, &ADMIN_SQ.to_le_bytes())
            .expect("answered");
        self.client
            .region_write(BAR, 0x30, &ADMIN_CQ.to_le_bytes())
            .expect("answered");
        self.write(0x14, 0x0046_0001);
        self.read(0x1c)
    }

    fn create_queues(&mut self) {
        let size = u32::from(ENTRIES - 1) << 16 | 1;
        assert_eq!(
            self.admin(command(
                admin::CREATE_CQ,
                [size, 1 << 16 | 3, 0],
                [IO_CQ, 0]
            ))
            .0,
            Status::SUCCESS
        );
        assert_eq!(
            self.admin(command(
                admin::CREATE_SQ,
                [size, 1 << 16 | 1, 0],
                [IO_SQ, 0]
            ))
            .0,
            Status::SUCCESS
        );
    }

    fn submit(&mut self, qid: usize, mut sqe: Sqe) {
        self.cid = self.cid.wrapping_add(1);
        sqe.cdw0 = sqe.cdw0 & 0xffff | u32::from(self.cid) << 16;
        let queue = &mut self.queues[qid];
        let at = queue.sq + u64::from(queue.tail) * 64;
        queue.tail = (queue.tail + 1) % ENTRIES;
        let tail = queue.tail;
        self.put(at, sqe.as_bytes());
        self.write(0x1000 + qid as u64 * 8, tail.into());
    }

    fn completion(&mut self, qid: usize) -> Option<Cqe> {
        let queue = &self.queues[qid];
        let at = queue.cq + u64::from(queue.head) * 16;
        let until = Instant::now() + Duration::from_secs(5);
        let cqe = loop {
            let cqe = Cqe::read_from_bytes(&self.get(at, 16)).expect("16 bytes");
            if cqe.status & 1 == self.queues[qid].phase {
                break cqe;
            }
            if Instant::now() > until {
                return None;
            }
            std::thread::sleep(Duration::from_micros(100));
        };
        let queue = &mut self.queues[qid];
        queue.head = (queue.head + 1) % ENTRIES;
        queue.phase ^= u16::from(queue.head == 0);
        let head = queue.head;
        self.write(0x1004 + qid as u64 * 8, head.into());
        Some(cqe)
    }

    fn run(&mut self, qid: usize, sqe: Sqe) -> (Status, u64) {
        self.submit(qid, sqe);
        let cqe = self.completion(qid).expect("it completes");
        assert_eq!((cqe.cid, cqe.sqid), (self.cid, qid as u16));
        (cqe.status(), cqe.result)
    }
    fn admin(&mut self, sqe: Sqe) -> (Status, u64) {
        self.run(0, sqe)
    }
    fn io(&mut self, sqe: Sqe) -> Status {
        self.run(1, sqe).0
    }
    fn interrupts(&self) -> u64 {
        let mut count = [0; 8];
        let read = rustix::io::read(&self.event, &mut count);
        if read.is_ok() {
            u64::from_le_bytes(count)
        } else {
            0
        }
    }
}

/// A list of `pages` pages at `DATA`, every other page, so that none join.
fn scattered(guest: &Guest, pages: u64) -> [u64; 2] {
    let entries: Vec<u8> = (1..pages)
        .flat_map(|page| (DATA + page * 0x2000).to_le_bytes())
        .collect();
    guest.put(BASE + 0x8000, &entries);
    [DATA, BASE + 0x8000]
}

fn page(of: u64, round: u8) -> Vec<u8> {
    (0..4096u32)
        .map(|at| (at as u8).wrapping_mul(7) ^ (of as u8) ^ round)
        .collect()
}

#[test]
fn a_driver_finds_the_controller_and_its_data_come_back() {
    let rig = Rig::new(Latency::None);
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
    guest.queues = [ADMIN_SQ, IO_SQ].map(|sq| Queue {
        sq,
        cq: sq + 0x1000,
        tail: 0,
        head: 0,
        phase: 1,
    });
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
    let rig = Rig::new(Latency::None);
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
    let rig = Rig::new(Latency::Emulated);
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
    let rig = Rig::new(Latency::Emulated);
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
    // Two writes of one name, rung for together: the flash is not done with the first when the second is looked at.
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
    let rig = Rig::new(Latency::None);
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
    // Doorbells beyond their queues, of queues that are not there, and registers that are not there.
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
    let until = Instant::now() + Duration::from_secs(5);
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

/// What a guest may do that has lost its mind.
#[derive(Clone, Debug)]
enum Whim {
    /// A register, as likely as not one that there is.
    Register {
        offset: u64,
        value: u32,
    },
    /// Something in its memory, at one of the places that the device reads.
    Memory {
        place: usize,
        at: u64,
        value: u64,
    },
    /// A command that resembles one.
    Command {
        qid: usize,
        opcode: u8,
        dwords: [u32; 3],
        prps: [u64; 2],
        nsid: u32,
    },
    /// A part of memory comes or goes.
    Unmap,
    Map,
}

fn address() -> impl Strategy<Value = u64> {
    let page = (0..BYTES / 4096).prop_map(|page| BASE + page * 4096);
    let end = (0..16u64).prop_map(|at| BASE + BYTES - 8 * at);
    prop_oneof![4 => page, 1 => end, 1 => BASE..BASE + 0x10_0000, 1 => any::<u64>(), 1 => Just(0)]
}

fn whim() -> impl Strategy<Value = Whim> {
    let registers = prop::sample::select(vec![
        0u64, 0x14, 0x1c, 0x24, 0x28, 0x2c, 0x30, 0x34, 0x1000, 0x1004, 0x1008, 0x100c,
    ]);
    let offset = prop_oneof![4 => registers, 1 => 0..0x5000u64];
    let value = prop_oneof![
        Just(0x0046_0001u32),
        Just(0),
        0..40u32,
        any::<u32>(),
        Just(0x000f_000f)
    ];
    let opcode = prop_oneof![
        prop::sample::select(vec![
            0u8, 1, 2, 4, 5, 6, 8, 9, 0x0a, 0x0c, 0x18, 0x19, 0x90, 0x91, 0x92, 0x94
        ]),
        any::<u8>()
    ];
    let dword = prop_oneof![0..4u32, 0..70_000u32, any::<u32>(), Just(0x000f_0001)];
    prop_oneof![
        3 => (offset, value).prop_map(|(offset, value)| Whim::Register { offset, value }),
        2 => (0..4usize, 0..512u64, prop_oneof![address(), any::<u64>()])
            .prop_map(|(place, at, value)| Whim::Memory { place, at, value }),
        9 => (0..2usize, opcode, prop::array::uniform3(dword), prop::array::uniform2(address()), prop_oneof![Just(1u32), any::<u32>()])
            .prop_map(|(qid, opcode, dwords, prps, nsid)| Whim::Command { qid, opcode, dwords, prps, nsid }),
        1 => Just(Whim::Unmap),
        2 => Just(Whim::Map),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_guest_ends_the_service(whims in prop::collection::vec(whim(), 1..150)) {
        let rig = Rig::new(Latency::None);
        let mut guest = rig.guest();
        guest.enable();
        guest.create_queues();
        for whim in whims {
            match whim {
                Whim::Register { offset, value } => guest.write(offset, value),
                Whim::Memory { place, at, value } => {
                    let place = [ADMIN_SQ, IO_SQ, BASE + 0x8000, DATA][place];
                    guest.put(place + at * 8, &value.to_le_bytes());
                }
                Whim::Command { qid, opcode, dwords, prps, nsid } => {
                    let sqe = Sqe { nsid, ..command(opcode, dwords, prps) };
                    guest.submit(qid, sqe);
                    let head = guest.queues[qid].tail;
                    guest.write(0x1004 + qid as u64 * 8, head.into());
                }
                Whim::Unmap => guest.client.dma_unmap(BASE, BYTES).expect("answered"),
                // Refused if it is there.
                Whim::Map => guest.client.dma_map(0, BASE, BYTES, guest.memory.as_raw_fd()).expect("sent"),
            }
        }
        drop(guest);
        // Who comes next finds a device that works, and everything in order.
        let mut guest = rig.guest();
        prop_assert_eq!(guest.enable(), 1);
        guest.create_queues();
        prop_assert_eq!(guest.io(command(io::FLUSH, [0; 3], [0; 2])), Status::SUCCESS);
        drop(guest);
        prop_assert_eq!(rig.subsystem.device().ftl().check(), Ok(()));
        rig.stop();
    }
}

#[test]
fn a_socket_that_is_served_or_is_none_is_left_alone() {
    let rig = Rig::new(Latency::None);
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
    let service = again(&left).expect("nobody serves it");
    service.close().expect("nothing failed");
    assert!(!left.exists());
    rig.stop();
}
