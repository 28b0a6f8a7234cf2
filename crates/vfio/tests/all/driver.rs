//! A guest's driver in a few lines, and the device that it drives.

use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_nvme::controller::Subsystem;
use remap_ssd_nvme::spec::command::{Cqe, Sqe};
use remap_ssd_nvme::spec::opcode::admin;
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_vfio::Service;
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

pub const NQN: &str = "nqn.2026-11.test:remap-ssd";
pub const BAR: u32 = 0;
pub const CONFIG: u32 = 7;
pub const MSIX: u32 = 2;
pub const EVENTFD_TRIGGER: u32 = 1 << 2 | 1 << 5;
/// The guest's memory: its first address and its size in bytes.
pub const BASE: u64 = 0x10_0000;
pub const BYTES: u64 = 16 << 20;
/// Queues, at pages of it.
pub const ADMIN_SQ: u64 = BASE;
pub const ADMIN_CQ: u64 = BASE + 0x1000;
pub const IO_SQ: u64 = BASE + 0x2000;
pub const IO_CQ: u64 = BASE + 0x3000;
/// Data.
pub const DATA: u64 = BASE + 0x10_0000;
pub const ENTRIES: u16 = 16;
/// How long a test waits for what has to come. Only a broken device lets it pass.
pub const PATIENCE: Duration = Duration::from_secs(120);

pub struct Rig {
    pub service: Service,
    pub subsystem: Arc<Subsystem>,
    pub dir: tempfile::TempDir,
}

impl Rig {
    pub fn new() -> Self {
        let config =
            DeviceConfig::for_service(32 << 20, SchemeKind::RemapSsd, false).expect("possible");
        let device = Device::format(config).expect("possible");
        let subsystem = Subsystem::new(device, NQN, &[]).expect("possible");
        Self::of(subsystem, tempfile::tempdir().expect("a folder"))
    }

    /// Serves a subsystem by a socket in `dir`.
    pub fn of(subsystem: Subsystem, dir: tempfile::TempDir) -> Self {
        let subsystem = Arc::new(subsystem);
        let path = dir.path().join("socket");
        let service =
            Service::start(&subsystem, &path, Instant::now(), Box::new(|_| {})).expect("possible");
        Self {
            service,
            subsystem,
            dir,
        }
    }

    pub fn guest(&self) -> Guest {
        Guest::connect(&self.dir.path().join("socket"))
    }

    /// Ends it; the device must come back.
    pub fn stop(self) {
        self.service.close().expect("nothing failed");
        assert!(
            Arc::into_inner(self.subsystem).is_some(),
            "the device is still held"
        );
    }
}

pub struct Queue {
    pub sq: u64,
    pub cq: u64,
    pub tail: u16,
    pub head: u16,
    pub phase: u16,
}

pub struct Guest {
    pub client: Client,
    pub memory: File,
    pub event: OwnedFd,
    pub queues: [Queue; 2],
    pub cid: u16,
}

pub fn prps(sqe: &mut Sqe, prps: [u64; 2]) {
    let mut bytes: [u8; 64] = sqe.as_bytes().try_into().expect("64 bytes");
    bytes[24..32].copy_from_slice(&prps[0].to_le_bytes());
    bytes[32..40].copy_from_slice(&prps[1].to_le_bytes());
    *sqe = Sqe::read_from_bytes(&bytes).expect("64 bytes");
}

pub fn command(opcode: u8, dwords: [u32; 3], data: [u64; 2]) -> Sqe {
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
    pub fn connect(path: &Path) -> Self {
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

    pub fn write(&mut self, offset: u64, value: u32) {
        self.client
            .region_write(BAR, offset, &value.to_le_bytes())
            .expect("answered");
    }
    pub fn read(&mut self, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        self.client
            .region_read(BAR, offset, &mut bytes)
            .expect("answered");
        u32::from_le_bytes(bytes)
    }
    pub fn put(&self, address: u64, bytes: &[u8]) {
        self.memory
            .write_all_at(bytes, address - BASE)
            .expect("guest memory");
    }
    pub fn get(&self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory
            .read_exact_at(&mut bytes, address - BASE)
            .expect("guest memory");
        bytes
    }

    /// Enables the controller, with empty queues; its status.
    pub fn enable(&mut self) -> u32 {
        self.put(BASE, &[0; 0x4000]);
        for queue in &mut self.queues {
            (queue.tail, queue.head, queue.phase) = (0, 0, 1);
        }
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

    pub fn create_queues(&mut self) {
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

    pub fn submit(&mut self, qid: usize, mut sqe: Sqe) {
        self.cid = self.cid.wrapping_add(1);
        sqe.cdw0 = sqe.cdw0 & 0xffff | u32::from(self.cid) << 16;
        let queue = &mut self.queues[qid];
        let at = queue.sq + u64::from(queue.tail) * 64;
        queue.tail = (queue.tail + 1) % ENTRIES;
        let tail = queue.tail;
        self.put(at, sqe.as_bytes());
        self.write(0x1000 + qid as u64 * 8, tail.into());
    }

    /// The next completion, if it is there.
    pub fn peek(&self, qid: usize) -> Option<Cqe> {
        let queue = &self.queues[qid];
        let at = queue.cq + u64::from(queue.head) * 16;
        let cqe = Cqe::read_from_bytes(&self.get(at, 16)).expect("16 bytes");
        (cqe.status & 1 == queue.phase).then_some(cqe)
    }

    pub fn completion(&mut self, qid: usize) -> Option<Cqe> {
        let until = Instant::now() + PATIENCE;
        let cqe = loop {
            if let Some(cqe) = self.peek(qid) {
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

    pub fn run(&mut self, qid: usize, sqe: Sqe) -> (Status, u64) {
        self.submit(qid, sqe);
        let cqe = self.completion(qid).expect("it completes");
        assert_eq!((cqe.cid, cqe.sqid), (self.cid, qid as u16));
        (cqe.status(), cqe.result)
    }
    pub fn admin(&mut self, sqe: Sqe) -> (Status, u64) {
        self.run(0, sqe)
    }
    pub fn io(&mut self, sqe: Sqe) -> Status {
        self.run(1, sqe).0
    }
    pub fn interrupts(&self) -> u64 {
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
pub fn scattered(guest: &Guest, pages: u64) -> [u64; 2] {
    let entries: Vec<u8> = (1..pages)
        .flat_map(|page| (DATA + page * 0x2000).to_le_bytes())
        .collect();
    guest.put(BASE + 0x8000, &entries);
    [DATA, BASE + 0x8000]
}

pub fn page(of: u64, round: u8) -> Vec<u8> {
    (0..4096u32)
        .map(|at| (at as u8).wrapping_mul(7) ^ (of as u8) ^ round)
        .collect()
}
