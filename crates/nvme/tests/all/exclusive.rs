//! Exclusive use of a namespace by one holder: exclusion of others, succession, and that a
//! preempted holder never goes on.

use crate::kit::{self, Rig};
use remap_ssd_device::{Disk, HoldError, HolderId};
use remap_ssd_nvme::spec::opcode::io;
use remap_ssd_nvme::tcp::client::{Call, Client, ClientError, Options, entry};
use std::time::{Duration, Instant};

const A: HolderId = *b"holder A -------";
const B: HolderId = *b"holder B -------";
const C: HolderId = *b"holder C -------";

fn holder(rig: &Rig, id: HolderId) -> Client {
    let mut client = rig.client();
    client.hold(id, &[]).expect("it is free");
    client
}

fn refusal<R>(result: Result<R, HoldError<ClientError>>) -> String {
    match result {
        Err(HoldError::Held(sentence)) => sentence,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was not refused"),
    }
}

/// Breaks a client's connections, as a network would, without its noticing.
fn cut_off(client: &mut Client) {
    client.admin(|queue| queue.abandon()).expect("connected");
    client.queue(|queue| queue.abandon()).expect("connected");
}

/// Holds the namespace as soon as the server has noticed that the previous holder is gone.
fn hold_after(client: &mut Client, id: HolderId) {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        match client.hold(id, &[]) {
            Ok(_) => return,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        std::thread::yield_now();
    }
}

fn is_lost(result: Result<(), ClientError>) -> bool {
    matches!(result, Err(ClientError::HoldLost))
}

/// A reservation command by other software.
fn reserve(client: &mut Client, opcode: u8, cdw10: u32, keys: [u64; 2]) {
    let send = keys.map(u64::to_le_bytes).concat();
    let mut sqe = entry(opcode, 1);
    sqe.cdw10 = cdw10;
    let call = Call::sending(sqe, &send);
    let answers = client.queue(|queue| queue.calls(&[call]));
    assert!(answers.expect("connected")[0].status.is_success());
}

#[test]
fn a_second_holder_is_refused_and_nobody_else_reads_or_writes() {
    let rig = Rig::new();
    let mut first = holder(&rig, A);
    Disk::write(&mut first, 3, &[1; 4096]).expect("it holds it");

    let mut other = rig.client();
    assert!(Disk::read(&mut other, 3, &mut [0; 4096]).is_err());
    assert!(Disk::write(&mut other, 3, &[2; 4096]).is_err());
    let sentence = refusal(other.hold(B, &[]));
    assert!(sentence.contains("in use by other processes"), "{sentence}");
    assert!(sentence.contains("1 process"), "{sentence}");

    // Another connection of the same holder.
    let mut member = rig.client();
    member.join_hold(A).expect("it is the holder");
    let mut page = [0; 4096];
    Disk::read(&mut member, 3, &mut page).expect("it is the holder");
    assert_eq!(page, [1; 4096]);

    // After letting go it is an ordinary host, with all connections of the holder.
    first.let_go().expect("connected");
    assert!(is_lost(Disk::flush(&mut member)));
    Disk::write(&mut first, 3, &[2; 4096]).expect("it is free");
    other.hold(B, &[]).expect("it was let go");
    assert!(Disk::write(&mut first, 3, &[2; 4096]).is_err());
}

#[test]
fn a_holder_that_is_gone_is_replaced_and_gets_nothing_when_it_returns_even_after_its_successor() {
    let rig = Rig::new();
    let mut first = holder(&rig, A);
    cut_off(&mut first);
    let mut second = rig.client();
    hold_after(&mut second, B);
    assert!(is_lost(Disk::write(&mut first, 0, &[1; 4096])));

    // This stays so when the namespace is free again, also for other connections of the holder.
    second.let_go().expect("connected");
    assert!(is_lost(Disk::write(&mut first, 0, &[1; 4096])));
    assert!(is_lost(first.still_held()));
    let sentence = refusal(rig.client().join_hold(A));
    assert!(sentence.contains("close what is open"), "{sentence}");
}

// No reservation excludes it any more: it has to check whether it still holds the namespace.
#[test]
fn a_holder_that_returns_when_its_successor_has_left_gets_nothing() {
    let rig = Rig::new();
    let mut first = holder(&rig, A);
    cut_off(&mut first);
    let mut second = rig.client();
    hold_after(&mut second, B);
    second.let_go().expect("connected");

    assert!(is_lost(Disk::write(&mut first, 0, &[1; 4096])));
}

// It was gone when the other one looked, and reconnected before the other one acted: it notices no
// break, and is idle until the namespace is free again.
#[test]
fn a_holder_that_was_replaced_over_a_connection_that_lasts_gets_nothing() {
    let rig = Rig::new();
    let mut first = holder(&rig, A);
    let mut second = rig.client();
    second.hold(B, &[A]).expect("the caller says that A ended");
    second.let_go().expect("connected");

    assert!(is_lost(Disk::flush(&mut first)));
    assert!(is_lost(Disk::write(&mut first, 0, &[1; 4096])));
}

#[test]
fn the_holder_that_ended_last_is_named_to_its_successor_and_no_other_one() {
    let rig = Rig::new();
    let mut first = holder(&rig, A);
    cut_off(&mut first);
    let mut second = rig.client();
    assert_eq!(second.hold(B, &[C, A]).expect("A ended"), Some(A));
    second.let_go().expect("connected");

    // B held it between A and this one.
    let mut third = rig.client();
    assert_eq!(third.hold(C, &[A]).expect("it is free"), None);
}

#[test]
fn an_idle_holder_notices_a_broken_connection_before_it_believes_what_it_read() {
    let rig = Rig::new();
    let mut first = holder(&rig, A);
    first.still_held().expect("nothing has happened");
    cut_off(&mut first);
    // No one took over: it goes on.
    first.still_held().expect("it connects again");

    cut_off(&mut first);
    let mut second = rig.client();
    hold_after(&mut second, B);
    assert!(is_lost(first.still_held()));
}

#[test]
fn of_two_that_replace_a_holder_at_once_one_succeeds() {
    let rig = Rig::new();
    for round in 0..20 {
        let mut first = holder(&rig, [round + 1; 16]);
        cut_off(&mut first);
        let try_as = |id: u8| {
            let mut client = rig.client();
            let held = client.hold(
                [id, round, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
                &[[round + 1; 16]],
            );
            (held.is_ok(), client)
        };
        let results = std::thread::scope(|scope| {
            let tries = [100, 101, 102].map(|id| scope.spawn(move || try_as(id)));
            tries.map(|one| one.join().expect("it did not panic"))
        });
        let held: Vec<_> = results.into_iter().filter(|(held, _)| *held).collect();
        assert_eq!(held.len(), 1, "round {round}");
        for (_, mut client) in held {
            Disk::write(&mut client, 0, &[round; 4096]).expect("it holds it");
            client.let_go().expect("connected");
        }
        let left = rig.subsystem.reservations_of(1);
        assert!(
            left.reservation.is_none() && left.registrants.is_empty(),
            "{left:?}"
        );
        assert!(!left.persists);
    }
}

#[test]
fn what_other_software_has_reserved_is_left_alone_also_when_it_is_gone() {
    let rig = Rig::new();
    let mut other = rig.client();
    reserve(&mut other, io::RESERVATION_REGISTER, 0, [0, 7]);
    reserve(&mut other, io::RESERVATION_ACQUIRE, 1 << 8, [7, 0]);
    drop(other);
    let sentence = refusal(rig.client().hold(A, &[]));
    assert!(
        sentence.contains("another program has reserved"),
        "{sentence}"
    );
    assert_eq!(rig.subsystem.reservations_of(1).registrants.len(), 1);
}

#[test]
fn a_registration_whose_host_died_before_it_had_the_namespace_is_removed_by_the_next_holder() {
    let rig = Rig::new();
    let options = Options {
        hostid: C,
        ..Options::default()
    };
    let mut died = Client::connect(rig.address, options).expect("it listens");
    let key = u64::from_le_bytes(*b"RMholder");
    reserve(&mut died, io::RESERVATION_REGISTER, 0, [0, key]);
    cut_off(&mut died);

    // Removed as soon as the server has noticed that its host is gone.
    let until = Instant::now() + Duration::from_secs(30);
    let mut next = rig.client();
    loop {
        next.hold(B, &[]).expect("it is free");
        let left = rig.subsystem.reservations_of(1).registrants.len();
        next.let_go().expect("connected");
        if left == 1 {
            break;
        }
        assert!(Instant::now() < until, "it is still there");
    }
}

#[test]
fn a_holder_goes_on_after_a_power_cut_and_stops_when_an_operator_ends_its_reservation() {
    let device = kit::device(32 << 20, false);
    let rig = Rig::with(device, &[]);
    let mut first = holder(&rig, A);
    assert!(rig.subsystem.reservations_of(1).persists);
    rig.subsystem.power_cut(1).expect("the device recovers");
    Disk::write(&mut first, 0, &[1; 4096]).expect("the reservation persists");

    rig.subsystem.release_reservations(1).expect("there is one");
    assert!(is_lost(Disk::write(&mut first, 0, &[1; 4096])));
}
