//! Notifications of registrants.

use super::*;

fn page_of(peer: &mut Peer, retain: bool) -> (u64, u8, u8, u32) {
    let sqe = Sqe {
        cdw10: u32::from(lid::RESERVATION) | u32::from(retain) << 15 | 15 << 16,
        ..entry(admin::GET_LOG_PAGE, 0)
    };
    let answer = peer.call(transport(sqe, 64), &[]);
    assert_eq!(answer.cqe.status(), SUCCESS);
    let page = Notification::read_from_bytes(&answer.data).expect("whole");
    (page.count, page.kind, page.available, page.nsid)
}

#[test]
fn registrants_are_told_that_they_were_preempted_and_that_a_reservation_is_free() {
    let rig = halves();
    let mut a = host(&rig, "a");
    let (mut admin, mut b) = raw_host(&rig, [3; 16], "b");
    let register_b = in_capsule(with_cdw10(io::RESERVATION_REGISTER, 0), 16);
    assert_eq!(page_of(&mut admin, false), (0, 0, 0, 0));
    assert_eq!(register(&mut a, 0, 0, 1), SUCCESS);
    assert_eq!(b.call(register_b, &keys(0, 2)).cqe.status(), SUCCESS);

    let event = with_cid(transport(entry(admin::ASYNC_EVENT, 0), 0), 500);
    let bytes = admin.capsule(&event, &[]);
    admin.send(&bytes);

    // A released type for registrants notifies b; a type for one host alone does not.
    for kind in [3, 1] {
        assert_eq!(acquire(&mut a, 0, kind, 1, 0), SUCCESS);
        assert_eq!(release(&mut a, 0, kind, 1), SUCCESS);
    }
    let answer = admin.answer();
    assert_eq!((answer.cqe.cid, answer.cqe.result), (500, 6 | 0x80 << 16));

    // Preempted as well: two pages in sequence.
    assert_eq!(acquire(&mut a, 1, 1, 1, 2), SUCCESS);
    assert_eq!(page_of(&mut admin, true), (1, 2, 1, 1));
    assert_eq!(page_of(&mut admin, false), (1, 2, 1, 1));
    let bytes = admin.capsule(&event, &[]);
    admin.send(&bytes);
    assert_eq!(admin.answer().cqe.result, 6 | 0x80 << 16);
    assert_eq!(page_of(&mut admin, false), (2, 1, 0, 1));
    assert_eq!(page_of(&mut admin, false), (0, 0, 0, 0));

    // Cleared; then a notification that b has masked.
    assert_eq!(b.call(register_b, &keys(0, 2)).cqe.status(), SUCCESS);
    assert_eq!(release(&mut a, 1, 0, 1), SUCCESS);
    assert_eq!(page_of(&mut admin, false), (3, 3, 0, 1));
    let mask = |nsid: u32, value: u32| {
        let sqe = Sqe {
            cdw10: 0x82,
            cdw11: value,
            ..entry(admin::SET_FEATURES, nsid)
        };
        transport(sqe, 0)
    };
    let masked = admin.call(mask(u32::MAX, 1 << 3), &[]).cqe.status();
    assert_eq!(masked, SUCCESS);
    assert_eq!(register(&mut a, 0, 0, 1), SUCCESS);
    assert_eq!(b.call(register_b, &keys(0, 2)).cqe.status(), SUCCESS);
    assert_eq!(release(&mut a, 1, 0, 1), SUCCESS);
    assert_eq!(page_of(&mut admin, false), (0, 0, 0, 0));
}
