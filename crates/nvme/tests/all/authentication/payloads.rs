//! Repeated, weak, malformed or misplaced payloads.

use super::*;

#[test]
fn a_reply_that_was_right_once_is_worth_nothing_again() {
    let rig = guarded("group=null");
    let known = credentials(1, None);
    let mut exchange = HostExchange::new(&known, HOST, NQN);
    let negotiate = exchange.negotiate();
    let mut peer = unproven(&rig);
    assert!(send(&mut peer, &negotiate).is_success());
    let reply = next(&mut exchange, &receive(&mut peer));
    assert!(send(&mut peer, &reply).is_success());
    assert!(matches!(
        exchange.receive(&receive(&mut peer)),
        Ok(Step::Done)
    ));

    // The same messages on another connection, in the same transaction.
    let mut other = unproven(&rig);
    assert!(send(&mut other, &negotiate).is_success());
    receive(&mut other);
    assert!(send(&mut other, &reply).is_success());
    assert_eq!(failure(&mut other), explanation::FAILED);
    logged_refusal(&rig, "its secret is wrong");

    // Likewise without a challenge, or twice.
    let mut other = unproven(&rig);
    assert!(send(&mut other, &reply).is_success());
    assert_eq!(failure(&mut other), explanation::MESSAGE);
    let mut other = unproven(&rig);
    assert!(send(&mut other, &negotiate).is_success());
    receive(&mut other);
    send(&mut other, &reply);
    send(&mut other, &reply);
    assert!(other.next().is_none(), "the first failure is the last word");
}

#[test]
fn no_two_challenges_are_the_same() {
    let rig = guarded("");
    let known = credentials(1, None);
    let mut challenges = [(); 3].map(|()| {
        let mut peer = unproven(&rig);
        assert!(send(&mut peer, &HostExchange::new(&known, HOST, NQN).negotiate()).is_success());
        receive(&mut peer)
    });
    challenges.sort();
    // Neither the number, nor the random bytes, nor our DH value.
    for part in [12..16, 16..48, 48..304] {
        let [a, b, c] = challenges
            .each_ref()
            .map(|challenge| &challenge[part.clone()]);
        assert!(
            a != b && b != c && a != c && a.iter().any(|byte| *byte != 0),
            "{part:?}"
        );
    }
}

#[test]
fn a_host_that_offers_less_than_its_line_asks_for_is_refused() {
    let rig = guarded("hash=sha384 group=ffdhe3072");
    let known = credentials(1, None);
    for (hashes, groups, wanted, why) in [
        (
            &Hash::ALL[..1],
            &Group::ALL[..],
            explanation::HASH,
            "no hash that is strong enough",
        ),
        (
            &Hash::ALL[..],
            &Group::ALL[..2],
            explanation::GROUP,
            "no group that is strong enough",
        ),
        (
            &Hash::ALL[..],
            &Group::ALL[..0],
            explanation::GROUP,
            "no group that is strong enough",
        ),
    ] {
        let exchange = HostExchange::offering(&known, HOST, NQN, hashes, groups);
        let mut peer = unproven(&rig);
        assert!(send(&mut peer, &exchange.negotiate()).is_success());
        assert_eq!(failure(&mut peer), wanted);
        logged_refusal(&rig, why);
    }
    // The null group must be enabled explicitly.
    let plain = guarded("");
    let exchange = HostExchange::offering(&known, HOST, NQN, &Hash::ALL, &Group::ALL[..1]);
    let mut peer = unproven(&plain);
    assert!(send(&mut peer, &exchange.negotiate()).is_success());
    assert_eq!(failure(&mut peer), explanation::GROUP);
    [rig, plain].into_iter().for_each(Rig::stop);
}

#[test]
fn messages_that_cannot_be_are_refused() {
    let rig = guarded("group=null");
    let known = credentials(1, Some(101));
    let negotiate = HostExchange::new(&known, HOST, NQN).negotiate();
    let changed = |at: usize, value: u8| {
        let mut message = negotiate.clone();
        message[at] = value;
        message
    };
    for (message, wanted) in [
        (vec![0], explanation::PAYLOAD),
        (negotiate[..70].to_vec(), explanation::PAYLOAD),
        (changed(0, 1), explanation::MESSAGE),
        (changed(1, 0x77), explanation::MESSAGE),
        (changed(6, 1), explanation::SECURE_CHANNEL),
        (changed(7, 0), explanation::PAYLOAD),
        (changed(7, 2), explanation::PAYLOAD),
        (changed(8, 9), explanation::NOT_USABLE),
        (changed(10, 31), explanation::PAYLOAD),
        (changed(11, 255), explanation::PAYLOAD),
        (changed(10, 0), explanation::HASH),
    ] {
        let mut peer = unproven(&rig);
        assert!(send(&mut peer, &message).is_success());
        assert_eq!(failure(&mut peer), wanted, "{message:?}");
    }
}

#[test]
fn replies_that_do_not_fit_the_challenge_are_refused() {
    let rig = guarded("group=null");
    let known = credentials(1, Some(101));
    // Another transaction; a hash of another length; a value without a group; our own challenge
    // reflected; an invalid `challenges` field.
    type Change = fn(&mut Vec<u8>, &[u8]);
    let changes: [(Change, u8); 5] = [
        (|reply, _| reply[4] ^= 1, explanation::PAYLOAD),
        (|reply, _| reply[6] = 31, explanation::PAYLOAD),
        (
            |reply, _| (reply[10], reply[16 + 63]) = (1, 0),
            explanation::PAYLOAD,
        ),
        (
            |reply, challenge| reply[48..80].copy_from_slice(&challenge[16..48]),
            explanation::FAILED,
        ),
        (|reply, _| reply[8] = 2, explanation::PAYLOAD),
    ];
    for (change, wanted) in changes {
        let mut exchange = HostExchange::new(&known, HOST, NQN);
        let mut peer = unproven(&rig);
        assert!(send(&mut peer, &exchange.negotiate()).is_success());
        let challenge = receive(&mut peer);
        let mut reply = next(&mut exchange, &challenge);
        change(&mut reply, &challenge);
        assert!(send(&mut peer, &reply).is_success());
        assert_eq!(failure(&mut peer), wanted);
    }
    logged_refusal(&rig, "it sent our own challenge back");

    // No message is sent out of turn.
    let mut peer = unproven(&rig);
    let ask = transport(command(fabrics::AUTH_RECEIVE, 4096), 4096);
    assert_eq!(peer.call(ask, &[]).cqe.status(), Status::SEQUENCE);
    assert!(peer.next().is_none());
}

#[test]
fn payloads_of_other_protocols_and_of_any_size_are_not_taken() {
    let rig = guarded("");
    let mut peer = unproven(&rig);
    for bytes in [0, 2049, 1 << 20, u32::MAX] {
        let sqe = transport(command(fabrics::AUTH_SEND, bytes), bytes);
        assert_eq!(
            peer.call(sqe, &[]).cqe.status(),
            Status::INVALID_FIELD,
            "{bytes}"
        );
    }
    for bytes in [0, (16 << 10) + 1, u32::MAX] {
        let sqe = transport(command(fabrics::AUTH_RECEIVE, bytes), bytes);
        assert_eq!(
            peer.call(sqe, &[]).cqe.status(),
            Status::INVALID_FIELD,
            "{bytes}"
        );
    }
    let mut sqe = command(fabrics::AUTH_SEND, 72);
    sqe.cdw10 = SecurityCdw10::DH_HMAC_CHAP.with_secp(0xea).into_bits();
    assert_eq!(
        peer.call(transport(sqe, 72), &[]).cqe.status(),
        Status::INVALID_FIELD
    );

    // A host that requests less than the whole message gets nothing.
    let known = credentials(1, None);
    assert!(send(&mut peer, &HostExchange::new(&known, HOST, NQN).negotiate()).is_success());
    let answer = peer.call(transport(command(fabrics::AUTH_RECEIVE, 64), 64), &[]);
    assert_eq!(
        (answer.cqe.status(), answer.data.len()),
        (Status::SEQUENCE, 0)
    );
    assert!(peer.next().is_none());

    // A payload longer than any message overflows the small buffer of an unauthenticated
    // connection.
    let mut peer = unproven(&rig);
    let sqe = in_capsule(command(fabrics::AUTH_SEND, 8192), 8192);
    let bytes = peer.capsule(&sqe, &[0; 8192]);
    peer.send(&bytes);
    assert!(peer.next().is_none());
    logged_refusal(&rig, "a PDU that does not end");
    works(&mut connected(&rig, Some(credentials(1, None))).expect("others are let in"));
}
