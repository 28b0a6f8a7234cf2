//! A program built without the feature `tls`: it never falls back to unencrypted connections.
#![cfg(not(feature = "tls"))]

mod kit;

use kit::{NQN, Rig, keyring, secret};
use remap_ssd_nvme::auth::{Hash, HostKeys, Keys, KeysError, TlsKey};
use remap_ssd_nvme::tcp::client::{Client, ClientError, Options};
use remap_ssd_nvme::tcp::server::Limits;
use remap_ssd_nvme::tls::{ABSENT, FIRST_BYTE, TlsError};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

fn key() -> TlsKey {
    TlsKey::new(Some(Hash::Sha256), &[7; 32]).expect("a length that goes with the hash")
}

#[test]
fn files_with_a_tls_key_are_refused_whole() {
    let text = format!("nqn.a {}\nnqn.b {}\n", *secret(1).reveal(), *key().reveal());
    match Keys::parse(&text) {
        Err(KeysError::Line { line: 2, why }) => assert!(why.contains(ABSENT), "{why}"),
        other => panic!("{other:?}"),
    }
    let why = HostKeys::parse(&key().reveal()).expect_err("it would not encrypt");
    assert!(why.contains(ABSENT), "{why}");
}

#[test]
fn a_host_with_a_tls_key_says_nothing_to_its_target() {
    let rig = Rig::guarded(
        &keyring(&format!("nqn.a {}\n", *secret(1).reveal())),
        Limits::default(),
    );
    let options = Options {
        subnqn: Some(NQN.into()),
        tls: Some(Arc::new(key())),
        ..Options::default()
    };
    let refused = Client::connect(rig.address, options).err();
    assert!(
        matches!(refused, Some(ClientError::Tls(TlsError::Absent))),
        "{refused:?}"
    );
}

#[test]
fn a_host_that_begins_with_tls_is_refused_and_the_log_says_why() {
    let rig = Rig::guarded(
        &keyring(&format!("nqn.a {}\n", *secret(1).reveal())),
        Limits::default(),
    );
    let mut stream = TcpStream::connect(rig.address).expect("it listens");
    let timeout = Some(Duration::from_secs(30));
    stream.set_read_timeout(timeout).expect("a time");
    stream
        .write_all(&[FIRST_BYTE, 3, 1, 0, 4])
        .expect("it listens");
    let mut answer = Vec::new();
    // Closed or reset, without any data.
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty(), "{answer:?}");
    rig.logged(&["this program was built without"]);
}
