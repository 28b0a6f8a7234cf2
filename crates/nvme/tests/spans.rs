//! Sampled commands: each has one span, with its host, parameters, status, and a breakdown of its
//! time. Hosts over real sockets; the tracer is a list with a clock.

mod kit;

use kit::raw::{self, Peer, transport, with_cid};
use kit::{NQN, Rig, device};
use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_nvme::controller::spans::{CommandSpan, SpanCounts, Tracer};
use remap_ssd_nvme::controller::{Health, Latency, Subsystem};
use remap_ssd_nvme::spec::command::RwCdw12;
use remap_ssd_nvme::spec::opcode::io;
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_nvme::tcp::client::{Call, Client, Options, entry};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;

/// The parts of a span checked by tests.
#[derive(Clone, Debug)]
struct Kept {
    hostnqn: String,
    connection: u64,
    qid: u16,
    opcode: u8,
    nsid: u32,
    range: (Option<u64>, Option<u32>),
    bytes: u32,
    status: Status,
    took_ns: u64,
    turn_ns: u64,
    device_ns: u64,
    durable_ns: u64,
}

struct List {
    began: Instant,
    is_sampling: AtomicBool,
    asked: AtomicU64,
    spans: Mutex<Vec<Kept>>,
}

#[derive(Clone)]
struct Listed(Arc<List>);

impl Listed {
    fn new() -> Self {
        Self(Arc::new(List {
            began: Instant::now(),
            is_sampling: AtomicBool::new(true),
            asked: AtomicU64::new(0),
            spans: Mutex::default(),
        }))
    }

    /// Takes the new spans, once there are `count`. A span may be handed over after its answer has
    /// been sent.
    fn taken(&self, count: usize) -> Vec<Kept> {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let mut spans = self.0.spans.lock().expect("nothing fails here");
            if spans.len() >= count {
                assert_eq!(spans.len(), count, "{spans:#?}");
                return std::mem::take(&mut spans);
            }
            drop(spans);
            assert!(Instant::now() < until, "{count} spans do not come");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Tracer for Listed {
    fn now_ns(&self) -> u64 {
        self.0.began.elapsed().as_nanos() as u64
    }
    fn is_sampled(&self) -> bool {
        self.0.asked.fetch_add(1, Ordering::Relaxed);
        self.0.is_sampling.load(Ordering::Relaxed)
    }
    fn take(&self, span: &CommandSpan<'_>) {
        self.0.spans.lock().expect("nothing fails here").push(Kept {
            hostnqn: span.hostnqn.into(),
            connection: span.connection,
            qid: span.qid,
            opcode: span.opcode,
            nsid: span.nsid,
            range: (span.slba, span.blocks),
            bytes: span.bytes,
            status: span.status,
            took_ns: span.ended_ns - span.began_ns,
            turn_ns: span.turn_ns,
            device_ns: span.device_ns,
            durable_ns: span.durable_ns,
        });
    }
    fn counts(&self) -> SpanCounts {
        SpanCounts::default()
    }
}

fn rig_of(device: Device, latency: Latency) -> (Rig, Listed) {
    let list = Listed::new();
    let subsystem = Subsystem::new(device, NQN, &[], latency, true, Health::default());
    let subsystem = subsystem.expect("possible").traced(Box::new(list.clone()));
    (Rig::of(subsystem), list)
}

fn rig() -> (Rig, Listed) {
    rig_of(device(32 << 20, false), Latency::None)
}

fn host(rig: &Rig, name: &str) -> Client {
    let options = Options {
        hostnqn: format!("nqn.2026-11.test:{name}"),
        ..Options::default()
    };
    Client::connect(rig.address, options).expect("it listens")
}

// In the capsule, by R2T in one part and in several, and to the host.
#[test]
fn every_command_has_one_span_that_says_what_it_asked_for() {
    let (rig, list) = rig();
    let mut client = host(&rig, "a");
    assert!(list.taken(0).is_empty(), "admin commands are not traced");

    client.write(3, &[1; PAGE]).expect("served");
    client.write(100, &vec![2; 64 * PAGE]).expect("served");
    client.write(200, &vec![3; 256 * PAGE]).expect("served");
    client.read(200, 256).expect("served");
    client.copy(3, 4, 1).expect("served");
    client.trim(3, 1).expect("served");
    client.flush().expect("served");

    let spans = list.taken(7);
    let said: Vec<_> = spans
        .iter()
        .map(|span| (span.opcode, span.nsid, span.range, span.bytes))
        .collect();
    let range = |slba: u64, blocks: u32| (Some(slba), Some(blocks));
    assert_eq!(
        said,
        [
            (io::WRITE, 1, range(3, 1), PAGE as u32),
            (io::WRITE, 1, range(100, 64), 64 * PAGE as u32),
            (io::WRITE, 1, range(200, 256), 256 * PAGE as u32),
            (io::READ, 1, range(200, 256), 256 * PAGE as u32),
            (io::COPY, 1, (Some(4), None), 32),
            (io::DATASET_MANAGEMENT, 1, (None, None), 16),
            (io::FLUSH, spans[6].nsid, (None, None), 0),
        ]
    );
    for span in &spans {
        assert!(span.status.is_success(), "{span:?}");
        assert_eq!((&*span.hostnqn, span.qid), ("nqn.2026-11.test:a", 1));
        let parts = span.turn_ns + span.device_ns + span.durable_ns;
        assert!(parts <= span.took_ns, "{span:?}");
        assert!(span.device_ns > 0, "{span:?}");
    }
    rig.stop();
}

#[test]
fn a_command_that_is_refused_has_a_span_with_its_status() {
    let (rig, list) = rig();
    let mut client = host(&rig, "a");
    let mut ask = |sqe, receive| {
        let call = Call {
            sqe,
            send: &[],
            receive,
        };
        client.queue(|queue| queue.calls(&[call])).expect("served")
    };

    let mut beyond = entry(io::READ, 1);
    beyond.cdw10 = u32::MAX;
    ask(beyond, PAGE);
    ask(entry(io::READ, 9), PAGE);
    ask(entry(0x7e, 1), 0);
    // A reservation report without registrants.
    ask(entry(io::RESERVATION_REPORT, 1), PAGE);

    let spans = list.taken(4);
    let ends: Vec<_> = spans.iter().map(|span| span.status).collect();
    assert_eq!(ends[0], Status::LBA_RANGE);
    assert_eq!(ends[1], Status::INVALID_NAMESPACE);
    assert_eq!(ends[2], Status::INVALID_OPCODE);
    assert_eq!(spans[0].range, (Some(u64::from(u32::MAX)), Some(1)));
    assert!(spans[..3].iter().all(|span| span.device_ns == 0));
    rig.stop();
}

#[test]
fn connections_are_told_apart_as_logs_do() {
    let (rig, list) = rig();
    let (mut one, mut other) = (host(&rig, "one"), host(&rig, "other"));
    one.read(0, 1).expect("served");
    other.read(0, 1).expect("served");
    one.read(0, 1).expect("served");

    let spans = list.taken(3);
    assert_eq!(spans[0].connection, spans[2].connection);
    assert_ne!(spans[0].connection, spans[1].connection);
    assert_eq!(spans[1].hostnqn, "nqn.2026-11.test:other");
    let number = format!("{}", spans[1].connection);
    rig.logged(&["connected", &number, "other"]);
    rig.stop();
}

#[test]
fn a_command_that_is_not_sampled_has_none() {
    let (rig, list) = rig();
    let mut client = host(&rig, "a");
    list.0.is_sampling.store(false, Ordering::Relaxed);
    for lba in 0..20 {
        client.write(lba, &[1; PAGE]).expect("served");
    }
    assert_eq!(
        list.0.asked.load(Ordering::Relaxed),
        20,
        "each is asked for"
    );
    list.0.is_sampling.store(true, Ordering::Relaxed);
    client.read(0, 1).expect("served");
    assert_eq!(list.taken(1)[0].opcode, io::READ);
    rig.stop();
}

// The disk is a folder: FUA waits for it, apart from the waits for the device and other hosts.
#[test]
fn the_time_until_a_write_is_durable_is_told_apart() {
    let dir = tempfile::tempdir().expect("a folder");
    let config = DeviceConfig::for_service(16 << 20, SchemeKind::RemapSsd, false);
    let path = dir.path().join("device");
    let device = Device::create_in_folder(&path, config.expect("possible"), None);
    let (rig, list) = rig_of(device.expect("room for it"), Latency::None);
    let mut client = host(&rig, "a");

    let mut sqe = client.rw(io::WRITE, 5, 0);
    sqe.cdw12 = RwCdw12::new().with_fua(true).into_bits();
    let call = Call {
        sqe,
        send: &[7; PAGE],
        receive: 0,
    };
    client.queue(|queue| queue.calls(&[call])).expect("served");
    client.write(6, &[8; PAGE]).expect("served");

    let spans = list.taken(2);
    assert!(spans[0].durable_ns > 0, "{:?}", spans[0]);
    assert_eq!(spans[1].durable_ns, 0, "{:?}", spans[1]);
    drop(client);
    rig.stop();
}

#[test]
fn a_command_that_waits_for_others_says_so() {
    let (rig, list) = rig();
    let mut client = host(&rig, "a");
    const HELD: Duration = Duration::from_millis(300);

    let turn = rig.subsystem.device();
    let waiting = std::thread::spawn(move || client.read(0, 1).map(drop));
    std::thread::sleep(HELD);
    drop(turn);
    waiting.join().expect("no panic").expect("served");

    let span = &list.taken(1)[0];
    // It may have come a little late.
    assert!(span.turn_ns > HELD.as_nanos() as u64 / 2, "{span:?}");
    assert!(span.device_ns < span.turn_ns, "{span:?}");
    rig.stop();
}

#[test]
fn with_emulated_latency_a_span_ends_when_its_answer_is_due() {
    let (rig, list) = rig_of(device(32 << 20, false), Latency::Emulated);
    let mut client = host(&rig, "a");
    client.write(0, &[1; PAGE]).expect("served");
    client.read(0, 1).expect("served");
    let telemetry = rig.subsystem.telemetry().read();
    let spans = list.taken(2);
    for (kind, span) in [(1, &spans[0]), (0, &spans[1])] {
        // The model gives both the same time, except for the offset between their clocks.
        let modelled = telemetry[kind].sum_ns;
        assert!(span.took_ns >= modelled, "{span:?}: {modelled}");
    }
    rig.stop();
}

// Data of a write that arrive in pieces, one of them damaged; and a command with an identifier in
// use.
#[test]
fn commands_that_fail_on_their_way_have_one_span_each() {
    let (rig, list) = rig();
    let (admin, cntlid) = Peer::admin(rig.address);
    let mut peer = Peer::io(rig.address, cntlid, 1, 3);

    let mut sqe = transport(with_cid(entry(io::WRITE, 1), 9), 2 * PAGE as u32);
    sqe.cdw12 = RwCdw12::new().with_nlb_z(1).into_bits();
    let capsule = peer.capsule(&sqe, &[]);
    peer.send(&capsule);
    let asked = peer.asked();
    let mut read = transport(with_cid(entry(io::READ, 1), 9), PAGE as u32);
    read.cdw12 = 0;
    let capsule = peer.capsule(&read, &[]);
    peer.send(&capsule);
    assert_eq!(peer.answer().cqe.status(), Status::ID_CONFLICT);

    let mut header = asked;
    header.length = PAGE as u32;
    let first = peer.h2c(&header, &[1; PAGE], false);
    header.offset = PAGE as u32;
    let mut second = peer.h2c(&header, &[2; PAGE], true);
    // The digest is at the end.
    *second.last_mut().expect("a digest") ^= 1;
    peer.send(&[first, second].concat());
    assert_eq!(peer.answer().cqe.status(), Status::TRANSIENT_TRANSPORT);

    let spans = list.taken(2);
    assert_eq!(
        (spans[0].opcode, spans[0].status),
        (io::READ, Status::ID_CONFLICT)
    );
    assert_eq!(
        (spans[1].opcode, spans[1].status),
        (io::WRITE, Status::TRANSIENT_TRANSPORT)
    );
    assert!(spans[1].device_ns > 0, "the first half was written");
    assert_eq!(raw::HOSTNQN, spans[1].hostnqn);
    drop((admin, peer));
    rig.stop();
}
