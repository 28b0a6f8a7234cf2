//! Hosts that connect queues without authenticating: their resources, and how long they keep them.

use super::*;

/// Connects an I/O queue without authenticating.
fn unproven_io(rig: &Rig, qid: u16, cntlid: u16) -> Peer {
    let mut peer = Peer::open(rig.address, 0);
    let answer = peer.call(connect(qid), connect_data(cntlid).as_bytes());
    assert!(
        answer.cqe.status().is_success(),
        "{:?}",
        answer.cqe.status()
    );
    peer
}

/// A stranger may know the name of a host and the ID of its controller. Its Connects, held open as
/// long as possible, must not keep the host from its queue.
#[test]
fn who_connects_a_queue_and_proves_nothing_does_not_keep_the_host_from_it() {
    let rig = guarded("");
    let known = credentials(1, None);
    let mut admin = unproven(&rig);
    proven(&mut admin, &known);
    assert!(
        admin
            .call(property_set(property::CC, enabled()), &[])
            .cqe
            .status()
            .is_success()
    );
    let cntlid = rig_cntlid(&mut admin);

    let strangers: Vec<_> = (0..8).map(|_| unproven_io(&rig, 1, cntlid)).collect();
    let mut late = unproven_io(&rig, 1, cntlid);
    let mut queue = unproven_io(&rig, 1, cntlid);
    proven(&mut queue, &known);
    let read = transport(entry(io::READ, 1), 4096);
    assert!(queue.call(read, &[]).cqe.status().is_success());

    // A second connection that authenticates later does not take the queue from the first.
    proven(&mut late, &known);
    assert!(late.next().is_none(), "its connection ends");
    logged_refusal(&rig, "the queue is connected already");
    drop(strangers);
    assert!(queue.call(read, &[]).cqe.status().is_success());

    // Another Connect finds the queue in use, too.
    let mut peer = Peer::open(rig.address, 0);
    let answer = peer.call(connect(1), connect_data(cntlid).as_bytes());
    assert_eq!(answer.cqe.status(), Status::SEQUENCE);
}

/// The minimum memory, of which a host may use half, has room for a dozen queues.
#[test]
fn who_proves_nothing_is_not_charged_to_the_host_that_it_names() {
    let limits = Limits {
        connected_of_host: 2,
        memory_bytes: MEMORY_BYTES_MIN,
        ..Limits::default()
    };
    let rig = Rig::guarded(&keyring(&line("")), limits);
    let _strangers: Vec<_> = (0..40).map(|_| unproven(&rig)).collect();
    works(&mut connected(&rig, Some(credentials(1, None))).expect("two connections"));
}

#[test]
fn a_host_that_only_negotiates_is_dropped_in_time_and_takes_no_place() {
    let limits = Limits {
        authenticate_within: Duration::from_millis(500),
        half_open: 4,
        ..Limits::default()
    };
    let rig = Rig::guarded(&keyring(&line("")), limits);
    let known = credentials(1, None);
    let negotiate = HostExchange::new(&known, HOST, NQN).negotiate();

    // One exchange per connection.
    let mut peer = unproven(&rig);
    assert!(send(&mut peer, &negotiate).is_success());
    receive(&mut peer);
    assert!(send(&mut peer, &negotiate).is_success());
    assert_eq!(failure(&mut peer), explanation::MESSAGE);

    // A silent host is dropped, and so is one that repeats the same command.
    let mut silent = unproven(&rig);
    let mut endless = unproven(&rig);
    let until = Instant::now() + Duration::from_secs(60);
    let wrong = transport(command(fabrics::AUTH_SEND, 0), 0);
    let bytes = endless.capsule(&wrong, &[]);
    use std::io::Write;
    while endless.stream.write_all(&bytes).is_ok() {
        assert!(Instant::now() < until, "it is dropped");
        std::thread::sleep(Duration::from_millis(5));
    }
    while silent.next().is_some() {}
    logged_refusal(&rig, "no proof in time");

    // They are half open, so many of them only displace each other.
    let _crowd: Vec<_> = (0..20).map(|_| unproven(&rig)).collect();
    works(&mut connected(&rig, Some(credentials(1, None))).expect("there is room"));
    rig.logged(&["others wanted its place"]);
}

/// The target's side of an exchange with a host that offers one group, after its first message.
fn negotiated(group: Group, has_ended: bool) -> Exchange {
    let known = credentials(1, None);
    let keyring = keyring(&line("group=null"));
    let mut exchange = Exchange::new(keyring, HOST, NQN);

    let groups = [group];
    let host = HostExchange::offering(&known, HOST, NQN, &Hash::ALL, &groups);
    let asker = Asker {
        address: [127, 0, 0, 1].into(),
        has_ended: &|| has_ended,
    };
    exchange.receive(&host.negotiate(), &asker);
    exchange
}

#[test]
fn a_host_without_a_group_waits_for_no_calculation() {
    // If it needed a turn, the first one would be refused as ended.
    for has_ended in [true, false] {
        let mut exchange = negotiated(Group::Null, has_ended);
        assert_eq!((exchange.failed(), exchange.calculations()), (None, 0));
        assert!(exchange.send(4096).is_some(), "a challenge");
    }
    assert_eq!(negotiated(Group::Ffdhe2048, false).calculations(), 1);
}

#[test]
fn nothing_is_calculated_for_a_connection_that_has_ended() {
    let exchange = negotiated(Group::Ffdhe2048, true);
    let failed = exchange.failed().expect("it has ended");
    assert_eq!(failed.why, "it ended while it waited for a calculation");
    assert!(exchange.is_over(), "nothing is left to say to it");
}

/// Strangers that request the longest calculation and disconnect while they wait for others. They
/// must not delay anyone after that.
#[test]
fn strangers_that_go_while_they_wait_leave_the_line_and_the_host_gets_in() {
    let rig = guarded("");
    let known = credentials(1, None);
    let largest = [Group::Ffdhe8192];
    let negotiate = HostExchange::offering(&known, HOST, NQN, &Hash::ALL, &largest).negotiate();
    let sqe = in_capsule(
        command(fabrics::AUTH_SEND, negotiate.len() as u32),
        negotiate.len() as u32,
    );

    // Repeat until one has left: which of them waits at a time is not deterministic.
    let until = Instant::now() + Duration::from_secs(120);
    let left = "it ended while it waited for a calculation";
    while !rig.has_logged(&[HOST, left]) {
        assert!(Instant::now() < until, "none has left the line");
        for _ in 0..8 {
            let mut stranger = unproven(&rig);
            let bytes = stranger.capsule(&sqe, &negotiate);
            stranger.send(&bytes);
        }
    }
    works(&mut connected(&rig, Some(known)).expect("it knows the secret"));
}
