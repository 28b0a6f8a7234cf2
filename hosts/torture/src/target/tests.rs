use super::*;
use crate::array::Array;
use crate::cut::{DiskState, Lost};
use crate::faulty::Faulty;
use crate::record::{About, Event, Recording};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_nvme::spec::command::{RwCdw12, Sqe};
use remap_ssd_nvme::spec::log::{ErrorEntry, lid, warning};
use remap_ssd_nvme::spec::opcode::{admin, io as opcode};
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_nvme::tcp::client::{Answer, Call, Client, Options, entry};
use std::fs::OpenOptions;
use std::io::Write;
use std::time::Duration;
use zerocopy::FromBytes;

const BLOCK: usize = 512;
const SHAPE: DiskGeometry = DiskGeometry {
    block_bytes: BLOCK as u32,
    blocks: 2048,
};

/// A disk being recorded, and a host connected to it.
struct Bench {
    recorder: Arc<Recorder>,
    observer: Observer,
    faults: Arc<FaultModel>,
    target: Target,
    serving: Serving,
    client: Client,
}

impl Bench {
    fn new() -> Self {
        Self::with_faults(&[])
    }

    /// With faults enabled.
    fn with_faults(faults: &[&str]) -> Self {
        let target = Target::new(SHAPE).unwrap();
        let recorder = Arc::new(Recorder::new(SHAPE).unwrap());
        let marks = MarkPipe::new(&target.marks()).unwrap();
        let observer = Observer::new(recorder.clone(), marks);
        let device = empty_device(SHAPE).unwrap();
        let faults = model(faults);
        faults.arm(true);
        let serving = target.serve_workload(device, &observer, &faults).unwrap();
        let client = Client::connect(target.address, Options::default()).unwrap();
        Self {
            recorder,
            observer,
            faults,
            target,
            serving,
            client,
        }
    }

    fn mark(&self, text: &str) {
        let mut pipe = OpenOptions::new().append(true).open(self.target.marks());
        pipe.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn entry(&self, opcode: u8, slba: u64, blocks: u16, fua: bool) -> Sqe {
        let mut sqe = self.client.rw(opcode, slba, blocks - 1);
        sqe.cdw12 = RwCdw12::from_bits(sqe.cdw12).with_fua(fua).into_bits();
        sqe
    }

    fn call(&mut self, sqe: Sqe, send: &[u8]) {
        let receive = 0;
        let call = Call { sqe, send, receive };
        self.client.queue(|io| io.call("it", &call)).unwrap();
    }

    /// Status of a command that may fail.
    fn status(&mut self, sqe: Sqe, send: &[u8], receive: usize) -> Status {
        let call = Call { sqe, send, receive };
        let answers = self.client.queue(|io| io.calls(&[call])).unwrap();
        answers[0].status
    }

    fn read(&mut self, block: u64) -> Status {
        let read = self.entry(opcode::READ, block, 1, false);
        self.status(read, &[], BLOCK)
    }

    fn write(&mut self, block: u64, data: &[u8]) -> Status {
        let blocks = (data.len() / BLOCK) as u16;
        let write = self.entry(opcode::WRITE, block, blocks, false);
        self.status(write, data, 0)
    }

    fn finish(self) -> Recording {
        drop(self.client);
        drop(self.serving);
        assert!(self.observer.take_failure().is_none());
        self.recorder.finish(About::default())
    }
}

fn model(faults: &[&str]) -> Arc<FaultModel> {
    let faults: Vec<_> = faults.iter().map(|text| text.parse().unwrap()).collect();
    Arc::new(FaultModel::new(SHAPE, &faults, 1))
}

/// First byte of a block that lost all versions that it can lose.
fn worst(recording: &Recording, block: u64) -> u8 {
    let state = DiskState::at(recording, recording.events.len());
    let versions = state.pending.get(&block).map_or(0, Vec::len) as u32;
    let blocks = state.after(&[Lost { block, versions }]);
    let mut bytes = [0; BLOCK];
    let contents = &recording.contents;
    contents.get(blocks[block as usize], &mut bytes).unwrap();
    bytes[0]
}

#[test]
fn what_a_host_sends_is_recorded_as_what_it_is() {
    let mut bench = Bench::new();
    bench.client.write(3, &[1; 2 * BLOCK]).unwrap();
    bench.mark("written\n");
    bench.client.flush().unwrap();
    bench.mark("flushed\n");
    let write = bench.entry(opcode::WRITE, 9, 1, true);
    bench.call(write, &[2; BLOCK]);
    let zeroes = bench.entry(opcode::WRITE_ZEROES, 16, 8, false);
    bench.call(zeroes, &[]);
    let zeroes = bench.entry(opcode::WRITE_ZEROES, 24, 8, true);
    bench.call(zeroes, &[]);
    bench.client.trim(32, 8).unwrap();

    let recording = bench.finish();
    let write = |block, words, through| Event::Write {
        block,
        words,
        through,
    };
    let zero = |block| Event::Zero { block, count: 8 };
    let wanted = [
        write(3, 0..2, false),
        Event::Done(0),
        Event::Mark(0),
        Event::Flush,
        Event::Done(3),
        Event::Mark(1),
        write(9, 2..3, true),
        Event::Done(6),
        zero(16),
        Event::Done(8),
        write(24, 3..11, true),
        Event::Done(10),
        zero(32),
        Event::Done(12),
    ];
    assert_eq!(recording.events, wanted);
    assert_eq!(recording.words[3..], [ZEROES; 8]);
    assert_eq!(recording.marks, ["written", "flushed"]);
}

// A mark precedes everything that its writer does next, even if the pipe was not polled for long.
#[test]
fn every_mark_has_its_place_between_the_commands() {
    let mut bench = Bench::new();
    for number in 0..50u8 {
        bench.client.write(number.into(), &[number; BLOCK]).unwrap();
        bench.mark(&format!("{number}\n"));
    }
    bench.observer.take_marks();

    let recording = bench.finish();
    assert_eq!(recording.events.len(), 150);
    for (number, events) in (0..).zip(recording.events.chunks(3)) {
        assert_eq!(events[2], Event::Mark(number), "{events:?}");
    }
}

#[test]
fn what_a_host_has_formatted_does_not_come_back() {
    let mut bench = Bench::new();
    bench.client.write(3, &[1; BLOCK]).unwrap();
    bench.client.flush().unwrap();
    bench.client.write(3, &[2; BLOCK]).unwrap();
    let call = Call::new(entry(admin::FORMAT, 1));
    bench.client.admin(|queue| queue.call("it", &call)).unwrap();

    let recording = bench.finish();
    let state = DiskState::at(&recording, recording.events.len());
    assert!(state.pending.is_empty() && state.durable.iter().all(|id| *id == ZEROES));
}

#[test]
fn what_a_read_with_fua_has_returned_is_durable() {
    let mut bench = Bench::new();
    bench.client.write(3, &[1; BLOCK]).unwrap();
    bench.client.write(4, &[2; BLOCK]).unwrap();
    let sqe = bench.entry(opcode::READ, 3, 1, true);
    let call = Call::receiving(sqe, BLOCK);
    let answer = bench.client.queue(|io| io.call("it", &call)).unwrap();
    assert_eq!(answer.data, [1; BLOCK]);

    let recording = bench.finish();
    assert_eq!([3, 4].map(|block| worst(&recording, block)), [1, 0]);
}

// A host that sends a flush before its write is acknowledged may lose the write.
#[test]
fn a_flush_covers_what_was_answered_before_it_was_sent() {
    let mut bench = Bench::new();
    let write = bench.entry(opcode::WRITE, 3, 1, false);
    let flush = entry(opcode::FLUSH, 1);
    let calls =
        [(write, &[1; BLOCK][..]), (flush, &[])].map(|(sqe, send)| Call::sending(sqe, send));
    bench.client.queue(|io| io.calls(&calls)).unwrap();
    bench.client.write(5, &[2; BLOCK]).unwrap();
    bench.client.flush().unwrap();
    bench.client.write(5, &[3; BLOCK]).unwrap();

    let recording = bench.finish();
    let at = |event: Event| recording.events.iter().position(|one| *one == event);
    let flush = at(Event::Flush).unwrap();
    let answered = at(Event::Done(flush as u32)).unwrap();
    assert!(
        DiskState::at(&recording, answered + 1)
            .pending
            .contains_key(&3)
    );
    assert_eq!(worst(&recording, 3), 1);
    assert_eq!(worst(&recording, 5), 2);
}

#[test]
fn a_host_that_switches_the_cache_off_loses_nothing_any_more() {
    let mut bench = Bench::new();
    let switch = |client: &mut Client, on: u32| {
        let mut sqe = entry(admin::SET_FEATURES, 0);
        (sqe.cdw10, sqe.cdw11) = (6, on);
        let call = Call::new(sqe);
        client.admin(|queue| queue.call("it", &call)).unwrap();
    };
    assert_eq!(bench.client.controller().vwc & 1, 1);
    bench.client.write(3, &[1; BLOCK]).unwrap();
    switch(&mut bench.client, 0);
    bench.client.write(4, &[2; BLOCK]).unwrap();
    bench.client.trim(4, 1).unwrap();
    bench.client.write(5, &[3; BLOCK]).unwrap();
    switch(&mut bench.client, 1);
    bench.client.write(5, &[4; BLOCK]).unwrap();

    let recording = bench.finish();
    let found = [3, 4, 5].map(|block| worst(&recording, block));
    assert_eq!(found, [1, 2, 3]);
}

// Long enough for R2T transfers in parts; the last is no whole page. A cut needs its boundaries.
#[test]
fn a_long_write_is_one_entry() {
    let mut bench = Bench::new();
    let data: Vec<u8> = (0..1023u32)
        .flat_map(|block| [(block % 251) as u8 + 1; BLOCK])
        .collect();
    let write = bench.entry(opcode::WRITE, 8, 1023, true);
    bench.call(write, &data);

    let recording = bench.finish();
    let write = Event::Write {
        block: 8,
        words: 0..1023,
        through: true,
    };
    assert_eq!(recording.events, [write, Event::Done(0)]);
    for block in 0..1023 {
        assert_eq!(worst(&recording, 8 + block), (block % 251) as u8 + 1);
    }
}

#[test]
fn copies_and_remaps_are_what_they_leave_in_their_blocks() {
    let mut bench = Bench::new();
    bench.client.write(0, &[1; 16 * BLOCK]).unwrap();
    bench.client.write(16, &[0; 8 * BLOCK]).unwrap();
    bench.client.copy(0, 100, 3).unwrap();
    bench.client.copy(8, 64, 8).unwrap();
    bench.client.remap(0, 80, 8, true, false).unwrap();
    bench.client.remap(8, 88, 8, false, false).unwrap();
    bench.client.flush().unwrap();
    // Blocks can be lost one by one: a request that cannot be atomic is refused.
    assert!(bench.client.remap(8, 96, 8, false, true).is_err());

    let recording = bench.finish();
    let found = [0, 8, 16, 64, 80, 88, 99, 100, 102, 103].map(|at| worst(&recording, at));
    assert_eq!(found, [0, 1, 0, 1, 1, 1, 0, 1, 1, 0]);
}

// Two hosts with the same blocks: they read the last write of the recording.
#[test]
fn commands_of_several_hosts_have_the_order_that_the_device_has() {
    let mut bench = Bench::new();
    let address = bench.target.address;
    std::thread::scope(|scope| {
        for seed in 0..3 {
            scope.spawn(move || {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
                let mut client = Client::connect(address, Options::default()).unwrap();
                for _ in 0..150 {
                    let (slba, blocks) = (random.random_range(0..32), random.random_range(1..80));
                    let data = vec![random.random(); blocks * BLOCK];
                    match random.random_range(0..8u32) {
                        0 => client.flush().unwrap(),
                        1 => client.trim(slba, blocks as u64).unwrap(),
                        2 => client.copy(slba, 64 + slba, 8).unwrap(),
                        3 => client.write_through(slba, &data).unwrap(),
                        _ => client.write(slba, &data).unwrap(),
                    }
                }
            });
        }
    });
    let read = bench.client.read(0, 160).unwrap();

    let recording = bench.finish();
    let newest = DiskState::at(&recording, recording.events.len()).after(&[]);
    for (block, (id, read)) in newest.iter().zip(read.chunks(BLOCK)).enumerate() {
        let mut bytes = [0; BLOCK];
        recording.contents.get(*id, &mut bytes).unwrap();
        assert_eq!(bytes, read, "block {block}");
    }
}

#[test]
fn a_disk_that_is_served_again_has_what_was_put_on_it_and_the_same_address() {
    let target = Target::new(SHAPE).unwrap();
    let contents = Contents::new(BLOCK).unwrap();
    for byte in [7, 8] {
        let mut blocks = vec![ZEROES; SHAPE.blocks as usize];
        blocks[9] = contents.put(&[byte; BLOCK]).unwrap();
        let device = device_with(SHAPE, &contents, &blocks).unwrap();
        let _serving = target.serve(device).unwrap();

        let mut client = Client::connect(target.address, Options::default()).unwrap();
        assert_eq!({ client.namespace().nsze }, SHAPE.blocks);
        let found = client.read(8, 3).unwrap();
        assert_eq!([0, BLOCK, 2 * BLOCK].map(|at| found[at]), [0, byte, 0]);
    }
}

// Bad blocks depend on the seed, however the disk is reached.
#[test]
fn blocks_that_cannot_be_read_are_those_of_a_file_and_say_so_in_the_words_of_nvme() {
    let mut bench = Bench::with_faults(&["read-error:0.05"]);
    let of_file = Faulty::new(
        Arc::new(Recorder::new(SHAPE).unwrap()),
        bench.faults.clone(),
    );
    let is_bad = |block: &u64| of_file.read(block * BLOCK as u64, &mut [0; BLOCK]).is_err();
    let bad: Vec<u64> = (0..400).filter(is_bad).collect();
    let good = (0..400).find(|block| !is_bad(block)).unwrap();
    assert!((8..40).contains(&bad.len()), "{bad:?}");
    for block in 0..400 {
        let wanted = if bad.contains(&block) {
            Status::UNRECOVERED_READ
        } else {
            Status::SUCCESS
        };
        assert_eq!(bench.read(block), wanted, "block {block}");
    }
    assert_eq!(Status::UNRECOVERED_READ.number(), 0x281);

    // The error log has the block, and SMART the number of errors.
    let mut log = entry(admin::GET_LOG_PAGE, 0xffff_ffff);
    log.cdw10 = u32::from(lid::ERROR) | 15 << 16;
    let call = Call::receiving(log, 64);
    let page = bench.client.admin(|queue| queue.call("it", &call)).unwrap();
    let newest = ErrorEntry::read_from_bytes(&page.data).unwrap();
    assert_eq!({ newest.lba }, *bad.last().unwrap());
    assert_eq!(newest.status >> 1, Status::UNRECOVERED_READ.into_bits());
    let smart = bench.client.smart().unwrap();
    assert_eq!({ smart.media_errors }, bad.len() as u128);

    // Commands that need the data fail, and do not change their target.
    let compare = bench.entry(opcode::COMPARE, bad[0], 1, false);
    assert_eq!(
        bench.status(compare, &[0; BLOCK], 0),
        Status::UNRECOVERED_READ
    );
    let verify = bench.entry(opcode::VERIFY, bad[0], 1, false);
    assert_eq!(bench.status(verify, &[], 0), Status::UNRECOVERED_READ);
    assert!(bench.client.copy(bad[0], 1000, 1).is_err());
    assert!(
        bench
            .client
            .remap(bad[0] / 8 * 8, 1000, 8, true, false)
            .is_err()
    );

    // Written, zeroed or copied blocks can be read again.
    assert_eq!(bench.write(bad[0], &[1; BLOCK]), Status::SUCCESS);
    let zeroes = bench.entry(opcode::WRITE_ZEROES, bad[1], 1, false);
    assert_eq!(bench.status(zeroes, &[], 0), Status::SUCCESS);
    bench.client.trim(bad[2], 1).unwrap();
    bench.client.copy(good, bad[3], 1).unwrap();
    let found = [0, 1, 2, 3, 4].map(|at| bench.read(bad[at]).is_success());
    assert_eq!(found, [true, true, true, true, false]);

    // Faults end with the workload.
    assert!(bench.faults.has_failed());
    bench.faults.arm(false);
    assert_eq!(bench.read(bad[4]), Status::SUCCESS);

    // A failed command is not recorded.
    let recording = bench.finish();
    assert_eq!(recording.events.len(), 2 * 4, "{:?}", recording.events);
}

// Long enough for R2T transfers in parts. The first part of the second write would fit, but a write
// that does not fit as a whole is not started.
#[test]
fn a_full_disk_is_a_thin_namespace_without_room() {
    let long = vec![1; 512 * BLOCK];
    let mut bench = Bench::with_faults(&["full:400000"]);
    assert_eq!(bench.write(0, &long), Status::SUCCESS);
    assert_eq!(bench.write(512, &long), Status::CAPACITY_EXCEEDED);
    assert_eq!(Status::CAPACITY_EXCEEDED.number(), 0x81);
    assert!(bench.client.copy(0, 1024, 512).is_err());

    // A little room is left, and all other commands work.
    assert_eq!(bench.write(0, &[2; 4096]), Status::SUCCESS);
    assert_eq!(bench.read(0), Status::SUCCESS);
    bench.client.trim(8, 8).unwrap();
    bench.client.flush().unwrap();
    assert_eq!({ bench.client.smart().unwrap() }.critical_warning, 0);

    let recording = bench.finish();
    let found = [0, 8, 16, 511, 512, 1024].map(|block| worst(&recording, block));
    assert_eq!(found, [2, 0, 1, 1, 0, 0]);
    let state = DiskState::at(&recording, recording.events.len());
    assert!(state.pending.is_empty());
}

#[test]
fn a_read_only_disk_refuses_every_change_and_warns() {
    let mut bench = Bench::with_faults(&["read-only:4096"]);
    assert_eq!(bench.client.smart().unwrap().critical_warning, 0);
    assert_eq!(bench.write(0, &[1; 4096]), Status::SUCCESS);
    let smart = bench.client.smart().unwrap();
    assert_eq!(smart.critical_warning, warning::READ_ONLY);

    assert_eq!(bench.write(8, &[1; BLOCK]), Status::WRITE_PROTECTED);
    assert_eq!(Status::WRITE_PROTECTED.number(), 0x20);
    let zeroes = bench.entry(opcode::WRITE_ZEROES, 0, 1, false);
    assert_eq!(bench.status(zeroes, &[], 0), Status::WRITE_PROTECTED);
    let reset = bench.entry(opcode::FS_RESET, 0, 1, false);
    assert_eq!(bench.status(reset, &[], 0), Status::WRITE_PROTECTED);
    assert!(bench.client.trim(0, 8).is_err());
    assert!(bench.client.copy(0, 8, 8).is_err());
    assert!(bench.client.remap(0, 8, 8, false, false).is_err());
    let call = Call::new(entry(admin::FORMAT, 1));
    let format = bench.client.admin(|queue| queue.calls(&[call])).unwrap();
    assert_eq!(format[0].status, Status::WRITE_PROTECTED);
    assert_eq!(bench.read(0), Status::SUCCESS);
    bench.client.flush().unwrap();

    let recording = bench.finish();
    assert_eq!([0, 8].map(|block| worst(&recording, block)), [1, 0]);
    assert_eq!(recording.events.len(), 4, "{:?}", recording.events);
}

// Delays overlap. A write is completed when its response is sent.
#[test]
fn an_answer_that_is_late_holds_up_no_other() {
    const DELAY: Duration = Duration::from_millis(400);
    const COUNT: u64 = 16;
    let mut bench = Bench::with_faults(&["latency:400@1"]);
    let writes: Vec<Sqe> = (0..COUNT)
        .map(|block| bench.entry(opcode::WRITE, block, 1, false))
        .collect();
    let calls: Vec<Call<'_>> = writes
        .iter()
        .map(|sqe| Call::sending(*sqe, &[1; BLOCK]))
        .collect();

    let began = Instant::now();
    let answers = bench.client.queue(|io| io.calls(&calls)).unwrap();
    let took = began.elapsed();
    let is_good = |answer: &Answer| answer.status.is_success();
    assert!(answers.iter().all(is_good));
    // One after the other they would take 16 times as long.
    assert!((DELAY..DELAY * 8).contains(&took), "{took:?}");
    // Data sent to the host are delayed as well.
    let began = Instant::now();
    assert_eq!(bench.client.read(3, 1).unwrap(), [1; BLOCK]);
    assert!(began.elapsed() >= DELAY);

    bench.faults.arm(false);
    let recording = bench.finish();
    let done = |event: &Event| matches!(event, Event::Done(_));
    let first_done = recording.events.iter().position(done).unwrap();
    assert_eq!(first_done as u64, COUNT, "{:?}", recording.events);
}

// Half of the responses are late: the others do not wait for them.
#[test]
fn answers_that_are_not_late_overtake_those_that_are() {
    let mut bench = Bench::with_faults(&["latency:1000@0.5"]);
    let count = 32;
    let mut calls = Vec::new();
    for block in 0..count {
        let sqe = bench.entry(opcode::WRITE, block, 1, false);
        calls.push(Call::sending(sqe, &[1; BLOCK]));
    }
    bench.client.queue(|io| io.calls(&calls)).unwrap();

    let recording = bench.finish();
    let done = recording.events.iter().filter_map(|event| match event {
        Event::Done(entry) => Some(*entry),
        _ => None,
    });
    let done: Vec<u32> = done.collect();
    assert_eq!(done.len(), count as usize);
    assert!(!done.is_sorted(), "{done:?}");
}

// Blocks of 512 bytes tear within pages at a cut, as they do without faults.
#[test]
fn a_late_write_is_torn_block_by_block() {
    let mut bench = Bench::with_faults(&["latency:1@1"]);
    assert_eq!(bench.write(0, &[1; 4096]), Status::SUCCESS);
    let recording = bench.finish();
    let state = DiskState::at(&recording, recording.events.len());
    let blocks = state.after(&[Lost {
        block: 3,
        versions: 1,
    }]);
    assert_eq!(blocks[3], ZEROES);
    assert!(blocks[4] != ZEROES && blocks[2] == blocks[4]);
}
