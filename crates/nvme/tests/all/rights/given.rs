//! Granting of rights by a list or by keys, and their changes while a host is connected.

use super::*;
use crate::kit;
use crate::kit::specified::status;

/// Returns a connection's answer to a PDU.
fn says(connection: &mut Connection, kind: u8, put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let (mut sent, mut out) = (Vec::new(), Output::default());
    put(&mut sent);
    let received = connection.receive(0, &sent, &mut out);
    assert!(
        received.is_ok() || connection.refused().is_some(),
        "PDU {kind}"
    );
    let mut answer = Vec::new();
    out.write_to(&mut answer).expect("memory");
    answer
}

#[test]
fn a_queue_from_an_address_with_other_rights_does_not_join() {
    let subsystem = kit::subsystem(device(32 << 20, false), &namespaces());
    let entry_of = |address: &str, rights: &str| AllowedHost {
        who: Who::Address(address.parse().expect("an address")),
        rights: Rights::parse(rights).expect("rights"),
    };
    let list = Allowed {
        anybody: false,
        hosts: vec![
            entry_of("192.0.2.1", "all:rw"),
            entry_of("192.0.2.2", "all:ro"),
            entry_of("192.0.2.3", "all:rw"),
        ],
    };
    let port = Arc::new(Port::new(Arc::new(subsystem), list));

    let agreed = Agreement::default();
    let opened = |from: &str| {
        let (peer, local) = (format!("{from}:5000"), "192.0.2.9:4420");
        let [peer, local] = [peer.as_str(), local].map(|text| text.parse().expect("an address"));
        let mut connection = Connection::new(port.clone(), peer, local);
        says(&mut connection, kind::IC_REQ, |to| {
            wire::put_ic(to, kind::IC_REQ, &Ic::new(0, 0, 0));
        });
        connection
    };
    let connect = |connection: &mut Connection, qid, cntlid| {
        let data = kit::raw::connect_data(cntlid);
        says(connection, kind::CAPSULE_CMD, |to| {
            let sqe = kit::raw::connect(qid);
            let (flags, data) = (Flags::new(), data.as_bytes());
            wire::put_data(to, kind::CAPSULE_CMD, flags, &sqe, agreed, data);
        });
    };

    let mut admin = opened("192.0.2.1");
    connect(&mut admin, 0, 0xffff);
    let cntlid = admin.association().expect("connected").cntlid();
    let enable = kit::raw::property_set(property::CC, kit::raw::enabled());
    says(&mut admin, kind::CAPSULE_CMD, |to| {
        wire::put(to, kind::CAPSULE_CMD, Flags::new(), &enable, agreed);
    });

    for (from, qid, why) in [
        (
            "192.0.2.2",
            1,
            Some("its address has other rights than that of its admin queue"),
        ),
        ("192.0.2.3", 1, None),
        ("192.0.2.1", 2, None),
    ] {
        let mut queue = opened(from);
        connect(&mut queue, qid, cntlid);
        assert_eq!(
            queue.refused().map(|refused| refused.refusal.why),
            why,
            "{from}"
        );
        assert_eq!(queue.connected().is_some(), why.is_none(), "{from}");
    }
}

#[test]
fn rights_that_are_taken_away_stop_a_write_whose_data_are_on_their_way() {
    let rig = rig();
    let mut guest = Host::of(&rig, GUEST);
    assert_eq!(guest.write(1, 4, 1), Status::SUCCESS);

    for (rights, expected) in [
        ("1:ro", PROTECTED),
        ("2:ro", HIDDEN),
        ("1:rw", Status::SUCCESS),
    ] {
        rig.port.replace_allowed(allowed(&[(GUEST, "all:rw")]));
        rig.port.renew_rights();
        let sqe = Sqe {
            cdw10: 4,
            ..entry(io::WRITE, 1)
        };
        let bytes = guest.io.capsule(&transport(sqe, PAGE as u32), &[]);
        guest.io.send(&bytes);
        let asked = guest.io.asked();

        rig.port.replace_allowed(allowed(&[(GUEST, rights)]));
        rig.port.renew_rights();
        let bytes = guest.io.h2c(&asked, &[2; PAGE], true);
        guest.io.send(&bytes);
        assert_eq!(guest.io.answer().cqe.status(), expected, "{rights}");
    }
    assert_eq!(guest.read(1, 4).expect("served"), [2; PAGE]);
}

#[test]
fn a_host_hears_of_namespaces_whose_rights_have_changed() {
    let rig = rig();
    let mut guest = Host::of(&rig, GUEST);
    let events = Sqe {
        cdw10: EVENTS,
        cdw11: 1 << 8,
        ..entry(admin::SET_FEATURES, 0)
    };
    let set = guest.admin.call(transport(events, 0), &[]);
    assert_eq!(set.cqe.status(), Status::SUCCESS);
    let request = |cid| with_cid(transport(entry(admin::ASYNC_EVENT, 0), 0), cid);
    let send = |guest: &mut Host, cid| {
        let bytes = guest.admin.capsule(&request(cid), &[]);
        guest.admin.send(&bytes);
    };
    send(&mut guest, 501);
    send(&mut guest, 502);

    // One namespace has become hidden, one writable, and one visible.
    rig.port.replace_allowed(allowed(&[(GUEST, "2:rw,3:ro")]));
    rig.port.renew_rights();
    let event = guest.admin.answer().cqe;
    assert_eq!(event.cid, 501);
    // A notice; 0: namespaces changed; the log page.
    assert_eq!(event.result, 2 | u64::from(lid::CHANGED_NAMESPACES) << 16);
    assert_eq!(guest.active(), [2, 3]);
    assert_eq!((guest.attributes(2), guest.attributes(3)), ([0; 2], [1; 2]));
    assert_eq!(guest.write(1, 0, 1), HIDDEN);
    assert_eq!(guest.write(2, 0, 1), Status::SUCCESS);
    assert_eq!(guest.write(3, 0, 1), PROTECTED);

    // Until it reads the page there is no other event, and the page grows.
    rig.port
        .replace_allowed(allowed(&[(GUEST, "1:rw,2:rw,3:ro")]));
    rig.port.renew_rights();
    std::thread::sleep(Duration::from_millis(600));
    let page = |guest: &mut Host, retain| {
        numbers(
            &guest
                .log(lid::CHANGED_NAMESPACES, 4096, retain)
                .expect("a page"),
        )
    };
    assert_eq!(page(&mut guest, true), [1, 2, 3]);
    assert_eq!(page(&mut guest, false), [1, 2, 3]);
    assert!(page(&mut guest, false).is_empty());

    // Unchanged rights cause no event: the next one is for the next change.
    rig.port.renew_rights();
    rig.port
        .replace_allowed(allowed(&[(GUEST, "1:rw,2:rw,3:rw")]));
    rig.port.renew_rights();
    let event = guest.admin.answer().cqe;
    assert_eq!((event.cid, page(&mut guest, false)), (502, vec![3]));
}

#[test]
fn a_host_that_nothing_names_any_more_is_sent_away_and_others_stay() {
    let rig = rig();
    let mut guest = Host::of(&rig, GUEST);
    let mut owner = Host::of(&rig, OWNER);
    rig.port.replace_allowed(allowed(&[(OWNER, "all:rw")]));
    assert_eq!(rig.port.renew_rights(), [GUEST.to_owned()].into());
    for queue in [&mut guest.admin, &mut guest.io] {
        assert!(queue.next().is_none(), "it has ended");
    }
    assert_eq!(owner.write(1, 0, 1), Status::SUCCESS);

    let options = Options {
        hostnqn: GUEST.into(),
        ..Options::default()
    };
    let again = Client::connect(rig.address, options);
    let Some(ClientError::Status { status, .. }) = again.err() else {
        panic!("it may not connect");
    };
    assert_eq!(status, status::CONNECT_HOST);
}

/// The line of a host that authenticates, with options.
fn line(name: &str, first: u8, options: &str) -> String {
    format!("{name} {} {options}\n", &*secret(first).reveal())
}

#[test]
fn a_host_that_authenticates_has_the_rights_of_its_line() {
    let lines = |options: &str| line(OWNER, 1, "") + &line(GUEST, 40, options);
    let ring = keyring(&lines("namespaces=1:ro"));
    let rig = Rig::guarded(&ring, Limits::default());
    let client = |name: &str, first| {
        let credentials = Credentials {
            host: secret(first),
            controller: None,
        };
        let options = Options {
            hostnqn: name.into(),
            subnqn: Some(kit::NQN.into()),
            credentials: Some(Arc::new(credentials)),
            ..Options::default()
        };
        Client::connect(rig.address, options).expect("it may connect")
    };
    let (mut owner, mut guest) = (client(OWNER, 1), client(GUEST, 40));
    let status = |result: Result<(), ClientError>| match result {
        Ok(()) => Status::SUCCESS,
        Err(ClientError::Status { status, .. }) => status,
        Err(other) => panic!("{other}"),
    };

    assert_eq!(status(owner.write(0, &[3; PAGE])), Status::SUCCESS);
    assert_eq!(guest.read(0, 1).expect("it may read"), [3; PAGE]);
    assert_eq!(status(guest.write(0, &[4; PAGE])), PROTECTED);
    let remapped = guest.remap(0, 1, 1, false, false);
    assert_eq!(status(remapped.map(drop)), PROTECTED);
    assert_eq!(status(guest.statistics().map(drop)), DENIED);

    // Another file also affects the connected host.
    ring.replace(Keys::parse(&lines("namespaces=all:rw")).expect("lines"));
    assert_eq!(status(guest.write(0, &[4; PAGE])), PROTECTED, "not before");
    rig.port.renew_rights();
    assert_eq!(status(guest.write(0, &[4; PAGE])), Status::SUCCESS);
}

#[test]
fn with_keys_and_a_list_a_host_has_what_both_allow() {
    // Without a network: how `Port` combines the two.
    let subsystem = Arc::new(kit::subsystem(device(32 << 20, false), &namespaces()));
    let ring = keyring(&line(GUEST, 40, "namespaces=1:rw,2:rw,3:ro"));
    let list = allowed(&[(GUEST, "1:ro,2:rw")]);
    let port = Port::new(subsystem, list).authenticated(Some(ring));
    let from = "192.0.2.1".parse().expect("an address");
    let rights = port.rights(from, GUEST).map(|rights| rights.to_string());
    assert_eq!(rights.as_deref(), Some("1:ro,2:rw"));
    assert_eq!(port.rights(from, OWNER), None);
}
