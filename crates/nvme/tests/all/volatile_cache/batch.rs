//! The power is cut between two commands of a connection that are answered together, and between two
//! parts of one write.

use crate::kit::allowed;
use crate::kit::raw::{HOSTNQN, in_capsule, transport, with_cid};
use crate::sent_away::line::{Line, asked, capsule, completion, data_for};
use crate::volatile_cache::bench::{block_of, in_folder};
use remap_ssd_nvme::controller::Subsystem;
use remap_ssd_nvme::spec::command::{Cqe, RwCdw12, Sqe};
use remap_ssd_nvme::spec::opcode::io;
use remap_ssd_nvme::spec::pdu::kind;
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_nvme::tcp::client::entry;
use remap_ssd_nvme::tcp::target::Port;
use std::sync::Arc;
use tempfile::TempDir;
use zerocopy::FromBytes;

const SEEDS: u64 = 24;
const PAGE: usize = 4096;
/// Pages that each test writes, from block 0 on.
const PAGES: usize = 8;

/// A write of whole blocks of 4 KiB.
fn write(slba: u32, blocks: usize, fua: bool) -> Sqe {
    let cdw12 = RwCdw12::new().with_nlb_z((blocks - 1) as u16).with_fua(fua);
    Sqe {
        cdw10: slba,
        cdw12: cdw12.into_bits(),
        ..entry(io::WRITE, 1)
    }
}

struct Case {
    subsystem: Arc<Subsystem>,
    queue: Line,
    _admin: Line,
    _folder: TempDir,
}

impl Case {
    fn new() -> Self {
        let (subsystem, folder) = in_folder(1 << 20);
        let subsystem = Arc::new(subsystem);
        let port = Arc::new(Port::new(
            subsystem.clone(),
            allowed(&[(HOSTNQN, "all:rw")]),
        ));
        let (admin, cntlid) = Line::admin(&port, HOSTNQN);
        Self {
            queue: Line::io(&port, HOSTNQN, cntlid),
            subsystem,
            _admin: admin,
            _folder: folder,
        }
    }

    /// Executes a command, and does not wait until it is durable.
    fn begins(&mut self, sqe: Sqe, data: &[u8]) {
        let sqe = match data.len() {
            0 => transport(sqe, 0),
            bytes => in_capsule(sqe, bytes as u32),
        };
        let answers = self.queue.says(&capsule(&sqe, data)).expect("it goes on");
        assert!(answers.is_empty(), "it waits for the disk");
    }

    fn writes(&mut self, stamp: u64) {
        let data = block_of(stamp, 12).repeat(PAGES);
        let done = self.queue.calls(&write(0, PAGES, false), &data);
        assert_eq!(done.status(), Status::SUCCESS);
    }

    fn flushes(&mut self) -> Status {
        self.begins(with_cid(entry(io::FLUSH, 1), 1), &[]);
        self.queue.syncs();
        completion(&self.queue.answers())
            .expect("an answer")
            .status()
    }

    /// Cuts the power; how many blocks lose something.
    fn cut(&self, seed: u64) -> u64 {
        let report = self.subsystem.cut_power(seed, |_, report| report);
        report.expect("the device takes it").blocks_lost
    }
}

#[test]
fn a_flush_whose_data_were_cut_fails_although_a_later_command_of_its_batch_is_durable() {
    let mut failed = 0;
    for seed in 0..SEEDS {
        let mut case = Case::new();
        case.writes(1);
        assert_eq!(case.flushes(), Status::SUCCESS);
        case.writes(2);

        case.begins(with_cid(entry(io::FLUSH, 1), 11), &[]);
        let lost = case.cut(seed);
        let data = block_of(3, 12);
        case.begins(with_cid(write(PAGES as u32, 1, true), 12), &data);
        case.queue.syncs();

        let answers = case.queue.answers();
        let responses = answers
            .iter()
            .filter(|one| one.common.kind == kind::CAPSULE_RESP);
        let done: Vec<(u16, Status)> = responses
            .map(|one| Cqe::read_from_bytes(&one.header).expect("a header"))
            .map(|cqe| (cqe.cid, cqe.status()))
            .collect();
        let flushed = if lost > 0 {
            Status::POWER_LOSS
        } else {
            Status::SUCCESS
        };
        assert_eq!(done, [(11, flushed), (12, Status::SUCCESS)], "seed {seed}");
        failed += u64::from(lost > 0);
    }
    assert!(failed > 0, "no cut has lost anything");
}

#[test]
fn a_write_whose_power_was_cut_between_two_parts_of_its_data_fails() {
    for fua in [false, true] {
        let mut case = Case::new();
        let sqe = transport(write(0, PAGES, fua), (PAGES * PAGE) as u32);
        let asked = asked(&case.queue.says(&capsule(&sqe, &[])).expect("asked"));
        let data = block_of(1, 12).repeat(PAGES / 2);
        let first = case.queue.says(&data_for(&asked, 0, &data, false));
        assert!(first.expect("taken").is_empty());

        case.cut(1);
        let rest = data_for(&asked, data.len(), &data, true);
        let answers = case.queue.says(&rest).expect("taken");
        let done = completion(&answers).expect("an answer");
        assert_eq!(done.status(), Status::POWER_LOSS, "FUA: {fua}");
    }

    // Without a cut it is one write.
    let mut case = Case::new();
    let sqe = transport(write(0, PAGES, false), (PAGES * PAGE) as u32);
    let asked = asked(&case.queue.says(&capsule(&sqe, &[])).expect("asked"));
    let data = block_of(1, 12).repeat(PAGES / 2);
    let first = case.queue.says(&data_for(&asked, 0, &data, false));
    assert!(first.expect("taken").is_empty());
    let rest = data_for(&asked, data.len(), &data, true);
    let answers = case.queue.says(&rest).expect("taken");
    assert_eq!(
        completion(&answers).expect("an answer").status(),
        Status::SUCCESS
    );
}
