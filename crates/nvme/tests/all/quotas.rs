//! Limits of one host's resources on the server, and the remainder for others.

use crate::kit::raw::{Peer, transport, with_cid};
use crate::kit::specified::{fabrics, property, status};
use crate::kit::{self, Rig};
use remap_ssd_nvme::spec::command::{RwCdw12, Sqe};
use remap_ssd_nvme::spec::fabrics::Cc;
use remap_ssd_nvme::spec::opcode::{admin, io};
use remap_ssd_nvme::spec::pdu::kind;
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_nvme::tcp::client::{Call, Client, ClientError, Options, Queue, entry};
use remap_ssd_nvme::tcp::server::Limits;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;
/// Maximum wait for a log line, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn rig(limits: Limits) -> Rig {
    Rig::limited(limits)
}

fn options(name: &str) -> Options {
    Options {
        hostnqn: format!("nqn.2026-11.test:{name}"),
        subnqn: Some(kit::NQN.into()),
        ..Options::default()
    }
}

fn host(rig: &Rig, name: &str) -> Result<Client, ClientError> {
    Client::connect(rig.address, options(name))
}

fn wait_for_line(rig: &Rig, text: &str, within: Duration) -> Duration {
    let began = Instant::now();
    loop {
        let lines = rig.lines.0.lock().expect("nothing fails here").clone();
        if lines.iter().any(|line| line.contains(text)) {
            return began.elapsed();
        }
        assert!(began.elapsed() < within, "`{text}` is not in {lines:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn busy(refused: Result<impl Sized, ClientError>) -> bool {
    matches!(refused, Err(ClientError::Status { status, .. }) if status.number() == status::CONNECT_BUSY.number())
}

#[test]
fn a_host_with_all_the_connections_it_may_have_is_told_that_the_controller_is_busy_and_others_connect()
 {
    let rig = rig(Limits {
        connected: 12,
        connected_of_host: 6,
        ..Limits::default()
    });
    let greedy = host(&rig, "greedy").expect("it listens");
    let queues: Vec<Queue> = (2..6)
        .map(|qid| greedy.another_queue(qid).expect("within its share"))
        .collect();
    assert!(busy(greedy.another_queue(6)));
    assert!(busy(host(&rig, "greedy")));
    wait_for_line(
        &rig,
        "nqn.2026-11.test:greedy: its host has all the connections",
        PATIENCE,
    );
    let mut other = host(&rig, "other").expect("there is room for others");
    assert!(other.read(0, 1).is_ok());

    drop(queues);
    wait_for_line(&rig, "its host closed the connection", PATIENCE);
    let began = Instant::now();
    while busy(greedy.another_queue(6)) {
        assert!(began.elapsed() < PATIENCE, "what has ended counts no more");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_full_server_says_that_it_is_busy() {
    let rig = rig(Limits {
        connected: 4,
        ..Limits::default()
    });
    let (_one, _two) = (
        host(&rig, "one").expect("room"),
        host(&rig, "two").expect("room"),
    );
    assert!(busy(host(&rig, "three")));
    wait_for_line(
        &rig,
        "nqn.2026-11.test:three: the server has all the connections",
        PATIENCE,
    );
}

/// A Compare with the maximum data of a command.
fn compare() -> Sqe {
    let mut sqe = entry(io::COMPARE, 1);
    sqe.cdw12 = RwCdw12::new()
        .with_nlb_z((MIB / PAGE - 1) as u16)
        .into_bits();
    sqe
}

/// The minimum memory. Half of it is for one host, three quarters for one address.
fn little_memory() -> Limits {
    Limits {
        memory_bytes: 16 * MIB,
        ..Limits::default()
    }
}

/// A host with a queue for its commands. Each connection takes 258 KiB.
fn peer(rig: &Rig, name: &str) -> (Peer, Peer) {
    let name = format!("nqn.2026-11.test:{name}");
    let (admin, cntlid) = Peer::admin_of(rig.address, &name);
    let queue = Peer::io_of(rig.address, &name, cntlid, 1, 0);
    (admin, queue)
}

/// Starts eight commands with 1 MiB of data each, without sending data; returns how many got
/// memory. Flush needs none: its answer comes after all others were considered.
fn take_memory(queue: &mut Peer) -> usize {
    for cid in 0..8 {
        let sqe = transport(with_cid(compare(), cid), MIB as u32);
        let bytes = queue.capsule(&sqe, &[]);
        queue.send(&bytes);
    }
    let bytes = queue.capsule(&flush(8), &[]);
    queue.send(&bytes);

    let kinds = std::iter::from_fn(|| queue.next().map(|one| one.common.kind));
    kinds.take_while(|one| *one == kind::R2T).count()
}

fn flush(cid: u16) -> Sqe {
    transport(with_cid(entry(io::FLUSH, 1), cid), 0)
}

fn read_mib(cid: u16) -> Sqe {
    let mut sqe = transport(with_cid(entry(io::READ, 1), cid), MIB as u32);
    sqe.cdw12 = compare().cdw12;
    sqe
}

/// Sends commands that are answered in order of `cids`; returns statuses and lengths.
fn answers(queue: &mut Peer, commands: &[Sqe], cids: &[u16]) -> Vec<(Status, usize)> {
    for sqe in commands {
        let bytes = queue.capsule(sqe, &[]);
        queue.send(&bytes);
    }
    let answer = |cid: &u16| {
        let answer = queue.answer();
        assert_eq!(answer.cqe.cid, *cid);
        (answer.cqe.status(), answer.data.len())
    };
    cids.iter().map(answer).collect()
}

#[test]
fn a_read_that_lacks_memory_waits_until_others_give_it_back_and_nothing_else_does() {
    let rig = rig(little_memory());
    let (mut admin, mut victim) = peer(&rig, "victim");
    let (_admin_of_one, mut one) = peer(&rig, "one");
    let (admin_of_two, mut two) = peer(&rig, "two");

    // A client with two made-up names has the whole share of its address, and wants more.
    assert_eq!([take_memory(&mut one), take_memory(&mut two)], [7, 3]);
    assert_eq!(rig.port.waiting_for_memory(), 2);

    // A later command that needs no memory is answered before the read.
    let commands = [read_mib(1), flush(2)];
    let done = answers(&mut victim, &commands, &[2]);
    assert_eq!(done, [(Status::SUCCESS, 0)]);
    assert_eq!(rig.port.waiting_for_memory(), 3);
    let alive = transport(entry(admin::KEEP_ALIVE, 0), 0);
    assert_eq!(admin.call(alive, &[]).cqe.status(), Status::SUCCESS);

    // Another read waits in turn, and the first one's identifier is in use.
    let done = answers(&mut victim, &[read_mib(3), flush(1)], &[1]);
    assert_eq!(done, [(Status::ID_CONFLICT, 0)]);

    admin_of_two.close();
    two.close();
    let done = answers(&mut victim, &[], &[1, 3]);
    assert_eq!(done, [(Status::SUCCESS, MIB); 2]);
    assert_eq!(rig.port.waiting_for_memory(), 1, "the one with its share");
}

#[test]
fn a_read_that_gets_no_memory_in_time_is_interrupted_and_may_be_sent_again() {
    let rig = rig(Limits {
        memory_within: Duration::from_millis(300),
        ..little_memory()
    });
    let (_admin, mut victim) = peer(&rig, "victim");
    let (_admin_of_one, mut one) = peer(&rig, "one");
    let (admin_of_two, mut two) = peer(&rig, "two");
    assert_eq!([take_memory(&mut one), take_memory(&mut two)], [7, 3]);

    let done = answers(&mut victim, &[read_mib(1), read_mib(2)], &[1, 2]);
    assert_eq!(done, [(Status::INTERRUPTED, 0); 2]);

    admin_of_two.close();
    two.close();
    wait_for_line(&rig, "queue 1 of nqn.2026-11.test:two ended", PATIENCE);
    let done = answers(&mut victim, &[read_mib(1)], &[1]);
    assert_eq!(done, [(Status::SUCCESS, MIB)]);
}

#[test]
fn commands_whose_data_must_be_gathered_wait_for_memory_and_all_of_them_are_executed() {
    let rig = rig(little_memory());
    let mut greedy = host(&rig, "greedy").expect("it listens");
    let mut other = host(&rig, "other").expect("it listens");

    // Eight at a time get their data requested, on six queues: far more than the host's share.
    let zeroes = vec![0; MIB];
    let call = Call::sending(compare(), &zeroes);
    let mut queues: Vec<Queue> = (2..8)
        .map(|qid| greedy.another_queue(qid).expect("within its share"))
        .collect();
    std::thread::scope(|scope| {
        for queue in &mut queues {
            scope.spawn(|| {
                let done = queue.calls(&vec![call; 24]).expect("its connection stays");
                assert!(done.iter().all(|one| one.status.is_success()));
            });
        }
    });
    assert_eq!(rig.port.waiting_for_memory(), 0);

    // Later there is memory again, and others always had theirs.
    assert!(greedy.queue(|queue| queue.call("compare", &call)).is_ok());
    assert!(other.queue(|queue| queue.call("compare", &call)).is_ok());
}

#[test]
fn a_host_that_does_not_send_what_it_was_asked_for_is_dropped() {
    let rig = rig(Limits {
        data_within: Duration::from_millis(400),
        ..Limits::default()
    });
    let mut client = host(&rig, "unfinished").expect("it listens");
    let zeroes = vec![0; MIB];
    client
        .queue(|queue| queue.send_only(&Call::sending(compare(), &zeroes)))
        .expect("sent");
    wait_for_line(&rig, "did not come in time", PATIENCE);
    assert!(host(&rig, "other").is_ok());
}

#[test]
fn a_peer_that_never_reads_is_dropped_after_the_stated_time_and_not_three_times_that() {
    let within = Duration::from_secs(3);
    let rig = rig(Limits {
        send_within: within,
        ..Limits::default()
    });
    let mut greedy = host(&rig, "greedy").expect("it listens");
    let mut sqe = entry(io::READ, 1);
    sqe.cdw12 = RwCdw12::new().with_nlb_z(255).into_bits();
    let asked =
        greedy.queue(|queue| (0..60).try_for_each(|_| queue.send_only(&Call::receiving(sqe, MIB))));
    asked.expect("sent");
    let took = wait_for_line(&rig, "does not read", PATIENCE);
    assert!(took < 3 * within, "{took:?}");
}

#[test]
fn event_requests_that_a_reset_forgot_take_no_room_in_the_queue() {
    let rig = rig(Limits::default());
    let mut client = host(&rig, "resetting").expect("it listens");
    let property = |cc: Cc| {
        let mut sqe = entry(admin::FABRICS, u32::from(fabrics::PROPERTY_SET));
        (sqe.cdw11, sqe.cdw12) = (property::CC, cc.into_bits());
        sqe
    };
    let enabled = Cc::new().with_en(true).with_iosqes(6).with_iocqes(4);
    let [off, on, event] = [
        property(enabled.with_en(false)),
        property(enabled),
        entry(admin::ASYNC_EVENT, 0),
    ]
    .map(Call::new);
    for round in 0..12 {
        let reset = client.admin(|queue| {
            (0..4).try_for_each(|_| queue.send_only(&event))?;
            queue.call("off", &off)?;
            queue.call("on", &on)
        });
        assert!(reset.is_ok(), "round {round}: {:?}", reset.err());
    }
    assert!(client.smart().is_ok());
}

#[test]
fn a_storm_of_connections_is_logged_at_a_bounded_pace() {
    let rig = rig(Limits {
        half_open: 4,
        ..Limits::default()
    });
    let storm: Vec<_> = (0..600)
        .filter_map(|_| std::net::TcpStream::connect(rig.address).ok())
        .collect();
    wait_for_line(&rig, "others wanted its place", PATIENCE);
    let mut client = host(&rig, "other").expect("it is let in");
    assert!(client.read(0, 1).is_ok());
    let lines = rig.lines.0.lock().expect("nothing fails here").len();
    assert!(lines < 200, "{lines} lines for {} connections", storm.len());
}
