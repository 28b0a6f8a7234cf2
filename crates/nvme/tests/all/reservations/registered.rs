//! Registrations, and their persistence.

use super::*;
use crate::kit;

#[test]
fn keys_are_registered_replaced_and_taken_back_as_the_specification_says() {
    let rig = halves();
    let [mut a, mut b] = ["a", "b"].map(|of| host(&rig, of));
    assert_eq!(report(&mut a), (0, 0, 0, vec![]));

    assert_eq!(register(&mut a, 0, 0, 10), SUCCESS);
    // Repeating the same key is allowed, another one is not.
    assert_eq!(register(&mut a, 0, 0, 10), SUCCESS);
    assert_eq!(register(&mut a, 0, 0, 11), CONFLICT);
    assert_eq!(report(&mut b), (2, 0, 0, vec![(10, 0)]));

    // Replace: with the correct key, or with any or none (IEKEY).
    assert_eq!(register(&mut a, 2, 9, 12), CONFLICT);
    assert_eq!(register(&mut a, 2, 10, 12), SUCCESS);
    assert_eq!(register(&mut a, 2 | 1 << 3, 0, 13), SUCCESS);
    assert_eq!(register(&mut b, 2, 0, 20), CONFLICT);
    assert_eq!(register(&mut b, 2 | 1 << 3, 0, 20), SUCCESS);
    assert_eq!(report(&mut b), (5, 0, 0, vec![(13, 0), (20, 0)]));

    // Only a host registered with this key acquires and releases.
    assert_eq!(acquire(&mut a, 0, 1, 12, 0), CONFLICT);
    assert_eq!(acquire(&mut a, 0, 1, 13, 0), SUCCESS);
    assert_eq!(acquire(&mut a, 0, 1, 13, 0), SUCCESS);
    assert_eq!(acquire(&mut a, 0, 2, 13, 0), CONFLICT);
    assert_eq!(acquire(&mut b, 0, 1, 20, 0), CONFLICT);
    assert_eq!(release(&mut b, 0, 1, 20), SUCCESS);
    assert_eq!(release(&mut a, 0, 2, 13), Status::INVALID_FIELD);
    assert_eq!(release(&mut a, 0, 1, 12), CONFLICT);
    assert_eq!(report(&mut b), (5, 1, 0, vec![(13, 1), (20, 0)]));

    // The reservation ends with its holder's registration.
    assert_eq!(register(&mut a, 1, 12, 0), CONFLICT);
    assert_eq!(register(&mut a, 1, 13, 0), SUCCESS);
    assert_eq!(register(&mut a, 1, 13, 0), CONFLICT);
    assert_eq!(report(&mut b), (6, 0, 0, vec![(20, 0)]));

    // All registrants hold it, until the last one is removed.
    assert_eq!(acquire(&mut b, 0, 6, 20, 0), SUCCESS);
    assert_eq!(register(&mut a, 0, 0, 10), SUCCESS);
    assert_eq!(report(&mut a), (7, 6, 0, vec![(20, 1), (10, 1)]));
    assert_eq!(register(&mut b, 1, 20, 0), SUCCESS);
    assert_eq!(report(&mut a), (8, 6, 0, vec![(10, 1)]));
    assert_eq!(register(&mut a, 1 | 1 << 3, 0, 0), SUCCESS);
    assert_eq!(report(&mut a), (9, 0, 0, vec![]));
}

#[test]
fn a_preempted_host_loses_its_key_its_reservation_and_its_right_to_write() {
    let rig = halves();
    let [mut a, mut b, mut c] = ["a", "b", "c"].map(|of| host(&rig, of));
    let all = |client: &mut Client| report(client);
    for (client, key) in [(&mut a, 1), (&mut b, 2), (&mut c, 2)] {
        assert_eq!(register(client, 0, 0, key), SUCCESS);
    }
    assert_eq!(acquire(&mut b, 0, 3, 2, 0), SUCCESS);
    b.write(0, &[2; PAGE]).expect("it holds it");

    // Key 9 has no registrants; 0 has no meaning while a single host holds it; the own key must be
    // correct.
    assert_eq!(acquire(&mut a, 1, 3, 1, 9), CONFLICT);
    assert_eq!(acquire(&mut a, 1, 3, 1, 0), Status::INVALID_FIELD);
    assert_eq!(acquire(&mut a, 1, 3, 7, 2), CONFLICT);
    assert_eq!(all(&mut a).3, vec![(1, 0), (2, 1), (2, 0)]);

    assert_eq!(acquire(&mut a, 2, 1, 1, 2), SUCCESS);
    assert_eq!(all(&mut a), (4, 1, 0, vec![(1, 1)]));
    assert!(b.write(0, &[3; PAGE]).is_err() && c.write(0, &[3; PAGE]).is_err());
    assert_eq!(a.read(0, 1).expect("it holds it"), [2; PAGE]);

    // The holder removes a registrant's key, and keeps its reservation; then it changes the type.
    assert_eq!(register(&mut b, 0, 0, 5), SUCCESS);
    assert_eq!(acquire(&mut a, 1, 6, 1, 5), SUCCESS);
    assert_eq!(all(&mut a), (6, 1, 0, vec![(1, 1)]));
    assert_eq!(acquire(&mut a, 1, 5, 1, 1), SUCCESS);

    // All registrants hold it: 0 stands for all others.
    assert_eq!(register(&mut b, 0, 0, 5), SUCCESS);
    assert_eq!(register(&mut c, 0, 0, 6), SUCCESS);
    assert_eq!(all(&mut c).3, vec![(1, 1), (5, 1), (6, 1)]);
    assert_eq!(acquire(&mut c, 1, 2, 6, 0), SUCCESS);
    assert_eq!(all(&mut a), (10, 2, 0, vec![(6, 1)]));

    assert_eq!(release(&mut c, 1, 0, 6), SUCCESS);
    assert_eq!(all(&mut a), (11, 0, 0, vec![]));
    a.write(0, &[4; PAGE]).expect("nothing is reserved");
}

/// A store in memory that fails on demand.
#[derive(Clone, Default)]
struct MemoryStore(Arc<(Mutex<AllReservations>, AtomicBool)>);

impl ReservationStore for MemoryStore {
    fn save(&self, all: &AllReservations) -> std_io::Result<()> {
        if self.0.1.load(Ordering::SeqCst) {
            return Err(std_io::Error::other("the disk is full"));
        }
        *self.0.0.lock().expect("nothing fails here") = all.clone();
        Ok(())
    }
}

#[test]
fn what_is_to_persist_is_kept_before_it_is_acknowledged_and_survives_a_power_cut() {
    let shelf = MemoryStore::default();
    let kept = |shelf: &MemoryStore| shelf.0.0.lock().expect("nothing fails here").clone();
    let subsystem = |all: AllReservations| {
        let device = device(32 << 20, false);
        kit::subsystem(device, &[]).with_reservations(all, Box::new(shelf.clone()))
    };
    let rig = Rig::of(subsystem(AllReservations::new()));
    let [mut a, mut b] = ["a", "b"].map(|of| host(&rig, of));

    // Persistence not requested: lost with the power.
    assert_eq!(register(&mut a, 0, 0, 1), SUCCESS);
    assert_eq!(acquire(&mut a, 0, 1, 1, 0), SUCCESS);
    assert!(kept(&shelf).is_empty());
    rig.subsystem.power_cut(1).expect("it recovers");
    assert_eq!(report(&mut a), (0, 0, 0, vec![]));

    // Requested (CPTPL 3): saved, and in force after a cut and after a restart.
    assert_eq!(register(&mut a, 3 << 30, 0, 1), SUCCESS);
    assert_eq!(acquire(&mut a, 0, 1, 1, 0), SUCCESS);
    assert_eq!(report(&mut a), (1, 1, 1, vec![(1, 1)]));
    rig.subsystem.power_cut(1).expect("it recovers");
    assert_eq!(report(&mut a), (1, 1, 1, vec![(1, 1)]));
    assert!(b.write(0, &[1; PAGE]).is_err());

    let restarted = Rig::of(subsystem(kept(&shelf)));
    let mut again = host(&restarted, "b");
    assert!(again.write(0, &[1; PAGE]).is_err());
    assert_eq!(report(&mut again), (1, 1, 1, vec![(1, 1)]));
    drop(again);
    restarted.stop();

    // Saving fails: no change.
    shelf.0.1.store(true, Ordering::SeqCst);
    assert_eq!(register(&mut b, 0, 0, 2), Status::INTERNAL);
    assert_eq!(release(&mut a, 1, 0, 1), Status::INTERNAL);
    assert_eq!(report(&mut a), (1, 1, 1, vec![(1, 1)]));
    assert!(b.write(0, &[1; PAGE]).is_err());
    shelf.0.1.store(false, Ordering::SeqCst);

    // Disabled (CPTPL 2): nothing is saved any more.
    assert_eq!(register(&mut a, 2 << 30, 0, 1), SUCCESS);
    assert!(kept(&shelf).is_empty());
    rig.subsystem.power_cut(1).expect("it recovers");
    b.write(0, &[1; PAGE]).expect("nothing is reserved");
}

#[test]
fn the_number_of_registrants_is_bounded() {
    let rig = halves();
    let status = |number: usize| {
        let (_admin, mut queue) = raw_host(&rig, [1; 16], &format!("host-{number}"));
        let register = in_capsule(with_cdw10(io::RESERVATION_REGISTER, 0), 16);
        queue.call(register, &keys(0, 1)).cqe.status()
    };
    for number in 0..REGISTRANTS_MAX {
        assert_eq!(status(number), SUCCESS);
    }
    assert_eq!(status(REGISTRANTS_MAX), Status::INTERNAL.with_dnr(true));
    let cleared = rig
        .subsystem
        .release_reservations(1)
        .expect("an operator may");
    assert_eq!(cleared, REGISTRANTS_MAX);
    assert_eq!(status(REGISTRANTS_MAX), SUCCESS);
}

#[test]
fn a_host_reads_its_identifier_and_may_not_change_it() {
    let rig = halves();
    let (mut admin, _queue) = raw_host(&rig, [0x21; 16], "a");
    let feature = |opcode: u8, nsid: u32, fid: u32, cdw11: u32| Sqe {
        cdw10: fid,
        cdw11,
        ..entry(opcode, nsid)
    };
    let get = admin.call(transport(feature(admin::GET_FEATURES, 0, 0x81, 1), 16), &[]);
    assert_eq!((get.cqe.status(), get.data), (SUCCESS, vec![0x21; 16]));
    let get = admin.call(transport(feature(admin::GET_FEATURES, 0, 0x81, 0), 8), &[]);
    assert_eq!(get.cqe.status(), Status::INVALID_FIELD);
    let set = admin.call(transport(feature(admin::SET_FEATURES, 0, 0x81, 1), 0), &[]);
    assert_eq!(set.cqe.status(), Status::SEQUENCE);

    // Persistence belongs to a namespace, and all hosts see it.
    let set = admin.call(transport(feature(admin::SET_FEATURES, 2, 0x83, 1), 0), &[]);
    assert_eq!(set.cqe.status(), SUCCESS);
    let (mut other, _queue_2) = raw_host(&rig, [0x22; 16], "b");
    for (nsid, persists) in [(1, 0), (2, 1)] {
        let sqe = feature(admin::GET_FEATURES, nsid, 0x83, 0);
        assert_eq!(other.call(transport(sqe, 0), &[]).cqe.result, persists);
    }
}
