//! What one host can take of the server, and what is left for others.

mod kit;

use kit::Rig;
use remap_ssd_nvme::controller::Latency;
use remap_ssd_nvme::spec::command::RwCdw12;
use remap_ssd_nvme::spec::fabrics::{Cc, kind as fabrics, property};
use remap_ssd_nvme::spec::opcode::{admin, io};
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_nvme::tcp::client::{Call, Client, ClientError, Options, Queue, entry};
use remap_ssd_nvme::tcp::server::Limits;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;
/// How long a line of the log is waited for, on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(60);

fn rig(limits: Limits) -> Rig {
    Rig::limited(kit::device(32 << 20, false), &[], Latency::None, limits)
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
    matches!(refused, Err(ClientError::Status { status, .. }) if status.number() == Status::CONNECT_BUSY.number())
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
    drop((greedy, other));
    rig.stop();
}

#[test]
fn a_full_server_says_that_it_is_busy() {
    let rig = rig(Limits {
        connected: 4,
        ..Limits::default()
    });
    let (one, two) = (
        host(&rig, "one").expect("room"),
        host(&rig, "two").expect("room"),
    );
    assert!(busy(host(&rig, "three")));
    wait_for_line(
        &rig,
        "nqn.2026-11.test:three: the server has all the connections",
        PATIENCE,
    );
    drop((one, two));
    rig.stop();
}

/// A Compare of as many bytes as a command may move.
fn compare() -> remap_ssd_nvme::spec::command::Sqe {
    let mut sqe = entry(io::COMPARE, 1);
    sqe.cdw12 = RwCdw12::new()
        .with_nlb_z((MIB / PAGE - 1) as u16)
        .into_bits();
    sqe
}

#[test]
fn data_for_which_there_is_no_memory_are_passed_over_and_the_command_is_interrupted() {
    // Half of it is one host's: two connections' buffers and six such commands.
    let rig = rig(Limits {
        memory_bytes: 16 * MIB,
        ..Limits::default()
    });
    let mut greedy = host(&rig, "greedy").expect("it listens");
    let mut other = host(&rig, "other").expect("it listens");

    // Eight at a time are asked for their data, on three queues; what is compared fits.
    let zeroes = vec![0; MIB];
    let call = Call {
        sqe: compare(),
        send: &zeroes,
        receive: 0,
    };
    let mut queues: Vec<Queue> = (2..8)
        .map(|qid| greedy.another_queue(qid).expect("within its share"))
        .collect();
    let results: Vec<Vec<Status>> = std::thread::scope(|scope| {
        let threads: Vec<_> = queues
            .iter_mut()
            .map(|queue| {
                scope.spawn(|| queue.calls(&vec![call; 24]).expect("its connection stays"))
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .expect("no panic")
                    .iter()
                    .map(|a| a.status)
                    .collect()
            })
            .collect()
    });
    let statuses: Vec<Status> = results.into_iter().flatten().collect();
    let interrupted = statuses
        .iter()
        .filter(|status| status.number() == Status::INTERRUPTED.number())
        .count();
    let done = statuses.iter().filter(|status| status.is_success()).count();
    assert_eq!(interrupted + done, statuses.len(), "nothing else");
    assert!(done > 0);

    // Later there is memory again, and others have had theirs all the time.
    assert!(greedy.queue(|queue| queue.call("compare", &call)).is_ok());
    assert!(other.queue(|queue| queue.call("compare", &call)).is_ok());
    drop((greedy, other, queues));
    rig.stop();
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
        .queue(|queue| {
            queue.send_only(&Call {
                sqe: compare(),
                send: &zeroes,
                receive: 0,
            })
        })
        .expect("sent");
    wait_for_line(&rig, "did not come in time", PATIENCE);
    assert!(host(&rig, "other").is_ok());
    drop(client);
    rig.stop();
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
    let asked = greedy.queue(|queue| {
        (0..60).try_for_each(|_| {
            queue.send_only(&Call {
                sqe,
                send: &[],
                receive: MIB,
            })
        })
    });
    asked.expect("sent");
    let took = wait_for_line(&rig, "does not read", PATIENCE);
    assert!(took < 3 * within, "{took:?}");
    drop(greedy);
    rig.stop();
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
    .map(|sqe| Call {
        sqe,
        send: &[],
        receive: 0,
    });
    for round in 0..12 {
        let reset = client.admin(|queue| {
            (0..4).try_for_each(|_| queue.send_only(&event))?;
            queue.call("off", &off)?;
            queue.call("on", &on)
        });
        assert!(reset.is_ok(), "round {round}: {:?}", reset.err());
    }
    assert!(client.smart().is_ok());
    drop(client);
    rig.stop();
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
    drop((storm, client));
    rig.stop();
}
