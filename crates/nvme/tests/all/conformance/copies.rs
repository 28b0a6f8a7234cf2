//! Copies program no pages, and work across namespaces.

use super::*;

#[test]
fn a_client_copies_from_another_namespace_on_a_new_connection_too() {
    let spec = NamespaceSpec {
        pages: 1000,
        lba_shift: 12,
    };
    let rig = Rig::with(device(32 << 20, false), &[spec; 2]);
    let options = |nsid| Options {
        nsid,
        copy_across: true,
        ..Options::default()
    };
    let connect = |nsid| Client::connect(rig.address, options(nsid)).expect("it listens");
    let (mut one, mut two) = (connect(1), connect(2));
    assert!(two.can_copy(true) && two.can_copy(false));
    one.write(10, &bytes(8, 8192)).expect("served");
    two.copy_from(Some(1), 10, 500, 2).expect("served");
    assert!(two.read(500, 2).expect("served") == bytes(8, 8192));

    // The features of a controller end with its connection.
    two.queue(|queue| queue.abandon()).expect("it was open");
    two.copy_from(Some(1), 11, 700, 1).expect("served");
    assert!(two.read(700, 1).expect("served") == bytes(8, 8192)[4096..]);
    assert!(
        two.copy_from(Some(3), 10, 500, 2).is_err(),
        "there is no such namespace"
    );
    assert!(
        two.copy_from(Some(1), 999, 500, 2).is_err(),
        "it ends before"
    );

    let single = Rig::with(device(32 << 20, false), &[]);
    let mut client = Client::connect(single.address, options(1)).expect("it listens");
    // Other namespaces may be added later.
    assert!(client.can_copy(true) && client.can_copy(false));
    assert!(client.copy_from(Some(2), 0, 0, 1).is_err());
    drop((one, two, client));
    rig.stop();
    single.stop();
}

#[test]
fn a_copy_of_many_pages_programs_none_and_either_side_changes_alone() {
    let rig = Rig::with(device(256 << 20, false), &[]);
    let mut client = rig.client();
    let blocks = 20_000;
    for start in (0..blocks).step_by(1000) {
        client
            .write(start, &bytes(start, 1000 << 12))
            .expect("served");
    }
    let value = |client: &mut Client, name| {
        let all = client.statistics().expect("served");
        all.iter()
            .find(|(known, _)| *known == name)
            .expect("a name")
            .1
    };
    let (before, remaps) = (
        value(&mut client, "flash_pages"),
        value(&mut client, "remaps"),
    );
    client.copy(0, 30_000, blocks).expect("served");
    assert_eq!(
        value(&mut client, "flash_pages"),
        before,
        "a copy programs nothing"
    );
    assert_eq!(value(&mut client, "remaps"), remaps + blocks);
    client.write(30_000, &bytes(5, 4096)).expect("served");
    client.write(1, &bytes(6, 4096)).expect("served");
    assert!(client.read(0, 1).expect("served") == bytes(0, 1000 << 12)[..4096]);
    assert!(client.read(30_001, 1).expect("served") == bytes(0, 1000 << 12)[4096..8192]);
    assert!(client.read(49_000, 1000).expect("served") == bytes(19_000, 1000 << 12));
    client.flush().expect("served");
    assert_eq!(client.smart().expect("served").critical_warning, 0);
}
