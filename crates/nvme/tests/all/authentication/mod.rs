//! DH-HMAC-CHAP between our target and our own host, and with misbehaving hosts.

mod payloads;
mod strangers;

use crate::kit::raw::{Peer, connect, connect_data, enabled, in_capsule, property_set, transport};
use crate::kit::specified::{explanation, fabrics, property};
use crate::kit::{self, NQN, Rig, keyring, secret};
use remap_ssd_nvme::auth::{
    Asker, Credentials, Exchange, Group, Hash, HostExchange, Keyring, Keys, KeysError, Secret, Step,
};
use remap_ssd_nvme::spec::auth::SecurityCdw10;
use remap_ssd_nvme::spec::command::Sqe;
use remap_ssd_nvme::spec::opcode::{admin, io};
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_nvme::tcp::client::{Client, ClientError, Options, entry};
use remap_ssd_nvme::tcp::server::{Limits, MEMORY_BYTES_MIN};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use zerocopy::IntoBytes;

/// The host of `kit::raw`.
const HOST: &str = kit::raw::HOSTNQN;

fn text(secret: &Secret) -> String {
    secret.reveal().to_string()
}

/// A line for a host whose secret starts with byte 1, and the controller's with 101.
fn line(options: &str) -> String {
    let (host, controller) = (text(&secret(1)), text(&secret(101)));
    format!("{HOST} {host} controller={controller} {options}\n")
}

fn guarded(options: &str) -> Rig {
    Rig::guarded(&keyring(&line(options)), Limits::default())
}

fn credentials(host: u8, controller: Option<u8>) -> Credentials {
    Credentials {
        host: secret(host),
        controller: controller.map(secret),
    }
}

fn options(known: Option<Credentials>) -> Options {
    Options {
        hostnqn: HOST.into(),
        subnqn: Some(NQN.into()),
        credentials: known.map(Arc::new),
        ..Options::default()
    }
}

fn connected(rig: &Rig, known: Option<Credentials>) -> Result<Client, ClientError> {
    Client::connect(rig.address, options(known))
}

/// Returns the error of a Connect that must fail.
fn refused(rig: &Rig, known: Option<Credentials>) -> ClientError {
    connected(rig, known).err().expect("it is refused")
}

/// Checks that a refusal is logged with the host's name and the connection's number.
fn logged_refusal(rig: &Rig, why: &str) {
    rig.logged(&["refused: queue", HOST, why, "connection="]);
}

fn works(client: &mut Client) {
    client.write(3, &[7; 4096]).expect("it may write");
    assert_eq!(client.read(3, 1).expect("it may read"), [7; 4096]);
}

/// Authentication Send or Receive.
fn command(kind: u8, bytes: u32) -> Sqe {
    let mut sqe = entry(admin::FABRICS, kind.into());
    sqe.cdw10 = SecurityCdw10::DH_HMAC_CHAP.into_bits();
    sqe.cdw11 = bytes;
    sqe
}

/// Returns a connected queue that is not authenticated.
fn unproven(rig: &Rig) -> Peer {
    let mut peer = Peer::open(rig.address, 0);
    let answer = peer.call(connect(0), connect_data(0xffff).as_bytes());
    assert!(answer.cqe.status().is_success());
    assert_eq!(answer.cqe.result >> 16, 2, "ATR is bit 17");
    peer
}

fn send(peer: &mut Peer, message: &[u8]) -> Status {
    let sqe = in_capsule(
        command(fabrics::AUTH_SEND, message.len() as u32),
        message.len() as u32,
    );
    peer.call(sqe, message).cqe.status()
}

fn receive(peer: &mut Peer) -> Vec<u8> {
    let answer = peer.call(transport(command(fabrics::AUTH_RECEIVE, 4096), 4096), &[]);
    assert!(
        answer.cqe.status().is_success(),
        "{:?}",
        answer.cqe.status()
    );
    answer.data
}

/// Returns the explanation of Failure1, after which the connection ends.
fn failure(peer: &mut Peer) -> u8 {
    let message = receive(peer);
    assert_eq!(message[..2], [0, 0xf1], "Failure1");
    assert!(peer.next().is_none(), "the connection has ended");
    message[7]
}

/// The next message of a host's exchange.
fn next(exchange: &mut HostExchange<'_>, message: &[u8]) -> Vec<u8> {
    match exchange.receive(message) {
        Ok(Step::Send(next) | Step::Last(next)) => next,
        Ok(Step::Done) => panic!("there is no next message"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn every_hash_and_group_authenticates_both_queues_one_way_and_both_ways() {
    for hash in Hash::ALL {
        for group in Group::ALL {
            let rig = guarded(&format!("hash={} group={}", hash.name(), group.name()));
            let suite = format!("authenticated by {} and {}", hash.name(), group.name());
            for controller in [None, Some(101)] {
                let mut client = connected(&rig, Some(credentials(1, controller))).expect(&suite);
                works(&mut client);
                let both = if controller.is_some() {
                    ", both ways"
                } else {
                    ""
                };
                rig.logged(&["queue 0 connected", &suite, both]);
                rig.logged(&["queue 1 connected", &suite, both]);
            }
        }
    }
}

#[test]
fn a_wrong_secret_is_refused_and_logged_with_the_hosts_name() {
    let rig = guarded("");
    let error = refused(&rig, Some(credentials(2, None)));
    assert!(error.to_string().contains("the secret is wrong"), "{error}");
    logged_refusal(&rig, "its secret is wrong");
    // Knowing only the controller's secret does not authenticate a host.
    let error = refused(&rig, Some(credentials(101, None)));
    assert!(matches!(error, ClientError::Authentication(_)), "{error}");
    works(&mut connected(&rig, Some(credentials(1, None))).expect("the right one"));
}

#[test]
fn a_target_that_does_not_know_its_own_secret_is_not_trusted() {
    let rig = guarded("");
    let error = refused(&rig, Some(credentials(1, Some(102))));
    assert!(
        error
            .to_string()
            .contains("does not know the controller's secret"),
        "{error}"
    );
    logged_refusal(&rig, "it did not accept our proof");
    // A target whose keys lack the controller's secret cannot prove it.
    let line = format!("{HOST} {}", text(&secret(1)));
    let other = Rig::guarded(&keyring(&line), Limits::default());
    let error = refused(&other, Some(credentials(1, Some(101))));
    assert!(matches!(error, ClientError::Authentication(_)), "{error}");
    logged_refusal(&other, "no secret of the controller's");
    let open = Rig::new();
    let error = refused(&open, Some(credentials(1, Some(101))));
    assert!(matches!(error, ClientError::NotAuthenticating), "{error}");
    [rig, other, open].into_iter().for_each(Rig::stop);
}

#[test]
fn a_host_without_a_secret_or_a_line_learns_why() {
    let rig = guarded("");
    assert!(matches!(refused(&rig, None), ClientError::NoSecret));
    let stranger = Options {
        hostnqn: "nqn.2026-11.test:stranger".into(),
        ..options(Some(credentials(1, None)))
    };
    let error = Client::connect(rig.address, stranger)
        .err()
        .expect("refused");
    assert!(
        error.to_string().contains("this host is not allowed"),
        "{error}"
    );
    rig.logged(&["refused: queue 0", "stranger", "this host has no key"]);
}

#[test]
fn nothing_but_authentication_is_executed_before_it_on_any_queue() {
    let rig = guarded("");
    let keep_alive = transport(entry(admin::KEEP_ALIVE, 0), 0);
    let disconnect = transport(entry(admin::FABRICS, fabrics::DISCONNECT.into()), 0);
    let identify = transport(entry(admin::IDENTIFY, 1), 4096);
    let enable = property_set(property::CC, enabled());
    for sqe in [keep_alive, disconnect, identify, enable] {
        let mut peer = unproven(&rig);
        assert_eq!(peer.call(sqe, &[]).cqe.status(), Status::AUTH_REQUIRED);
        assert!(peer.next().is_none(), "the connection has ended");
    }
    logged_refusal(&rig, "it sent another command before it had authenticated");

    // An I/O queue of an authenticated controller.
    let known = credentials(1, None);
    let mut first = unproven(&rig);
    proven(&mut first, &known);
    let answer = first.call(property_set(property::CC, enabled()), &[]);
    assert!(answer.cqe.status().is_success());
    let cntlid = rig_cntlid(&mut first);
    let mut peer = Peer::open(rig.address, 0);
    let answer = peer.call(connect(1), connect_data(cntlid).as_bytes());
    assert_eq!(answer.cqe.result >> 16, 2, "ATR on I/O queues too");
    let mut read = entry(io::READ, 1);
    read.cdw12 = 0;
    let answer = peer.call(transport(read, 4096), &[]);
    assert_eq!(
        (answer.cqe.status(), answer.data.len()),
        (Status::AUTH_REQUIRED, 0)
    );
    assert!(peer.next().is_none());

    // Then the queue is free for a host that authenticates.
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let mut peer = Peer::open(rig.address, 0);
        if peer
            .call(connect(1), connect_data(cntlid).as_bytes())
            .cqe
            .status()
            .is_success()
        {
            proven(&mut peer, &known);
            assert!(
                peer.call(transport(read, 4096), &[])
                    .cqe
                    .status()
                    .is_success()
            );
            break;
        }
        assert!(Instant::now() < until, "the queue is free again");
    }
}

/// Returns the controller ID from Identify Controller.
fn rig_cntlid(peer: &mut Peer) -> u16 {
    let mut sqe = entry(admin::IDENTIFY, 0);
    sqe.cdw10 = 1;
    let page = peer.call(transport(sqe, 4096), &[]).data;
    u16::from_le_bytes([page[78], page[79]])
}

/// Performs a whole exchange.
fn proven(peer: &mut Peer, known: &Credentials) {
    let mut exchange = HostExchange::new(known, HOST, NQN);
    assert!(send(peer, &exchange.negotiate()).is_success());
    let reply = next(&mut exchange, &receive(peer));
    assert!(send(peer, &reply).is_success());
    assert!(matches!(exchange.receive(&receive(peer)), Ok(Step::Done)));
}

#[test]
fn a_host_that_calculates_for_longer_than_its_keep_alive_is_waited_for() {
    let rig = guarded("");
    let mut peer = Peer::open(rig.address, 0);
    let mut sqe = connect(0);
    sqe.cdw12 = 100;
    assert!(
        peer.call(sqe, connect_data(0xffff).as_bytes())
            .cqe
            .status()
            .is_success()
    );
    std::thread::sleep(Duration::from_millis(1500));
    proven(&mut peer, &credentials(1, None));
    // From then on keep-alive applies.
    while peer.next().is_some() {}
    rig.logged(&["queue 0 of", HOST, "nothing was heard from its host"]);
}

#[test]
fn keys_are_replaced_without_dropping_anybody() {
    let keys = keyring(&line(""));
    let rig = Rig::guarded(&keys, Limits::default());
    let mut client = connected(&rig, Some(credentials(1, None))).expect("by the first key");
    let new = format!("{HOST} {}", text(&secret(5)));
    keys.replace(Keys::parse(&new).expect("a line in order"));
    works(&mut client);
    let error = refused(&rig, Some(credentials(1, None)));
    assert!(matches!(error, ClientError::Authentication(_)), "{error}");
    works(&mut connected(&rig, Some(credentials(5, None))).expect("by the second key"));
    keys.replace(
        Keys::parse("nqn.x DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:")
            .expect("one"),
    );
    assert!(
        refused(&rig, Some(credentials(5, None)))
            .to_string()
            .contains("not allowed")
    );
    works(&mut client);
}

#[test]
fn a_host_may_prove_itself_again_and_must_be_right() {
    let keys = keyring(&line(""));
    let rig = Rig::guarded(&keys, Limits::default());
    let known = credentials(1, None);
    let mut peer = unproven(&rig);
    proven(&mut peer, &known);
    keys.replace(Keys::parse(&format!("{HOST} {}", text(&secret(5)))).expect("a line in order"));
    proven(&mut peer, &credentials(5, None));
    let enable = property_set(property::CC, enabled());
    assert!(peer.call(enable, &[]).cqe.status().is_success());

    let mut exchange = HostExchange::new(&known, HOST, NQN);
    assert!(send(&mut peer, &exchange.negotiate()).is_success());
    let reply = next(&mut exchange, &receive(&mut peer));
    assert!(send(&mut peer, &reply).is_success());
    assert_eq!(failure(&mut peer), explanation::FAILED);
    rig.logged(&["queue 0 of", HOST, "ended", "its secret is wrong"]);
}

#[test]
fn a_key_ends_with_its_day() {
    let text = line("until=2027-02-28");
    let at = |seconds: u64| UNIX_EPOCH + Duration::from_secs(seconds);
    // `date -u -d 2027-03-01 +%s` is 1803859200.
    let clocks: [(fn() -> SystemTime, bool); 2] = [
        (|| UNIX_EPOCH + Duration::from_secs(1_803_859_199), true),
        (|| UNIX_EPOCH + Duration::from_secs(1_803_859_200), false),
    ];
    for (clock, lets_in) in clocks {
        let keys = Keys::parse(&text).expect("a line in order");
        let keyring = Arc::new(Keyring::with_clock(keys, clock));
        let until = keyring.find(HOST).and_then(|entry| entry.until);
        assert_eq!(until, lets_in.then(|| at(1_803_859_200)));
        let rig = Rig::guarded(&keyring, Limits::default());
        let client = connected(&rig, Some(credentials(1, None)));
        assert_eq!(client.is_ok(), lets_in);
        if !lets_in {
            rig.logged(&["refused: queue 0", HOST, "its key has expired"]);
        }
    }
}

#[test]
fn discovery_asks_for_no_proof_and_tells_only_hosts_with_a_key() {
    let rig = guarded("");
    let discovering = |hostnqn: &str| Options {
        hostnqn: hostnqn.into(),
        subnqn: None,
        ..options(Some(credentials(1, Some(101))))
    };
    works(&mut Client::connect(rig.address, discovering(HOST)).expect("found and proven"));
    assert!(Client::connect(rig.address, discovering("nqn.2026-11.test:stranger")).is_err());
    rig.logged(&["refused: queue 0", "discovery", "this host has no key"]);
}

#[test]
fn a_file_of_keys_is_refused_whole_with_the_line_and_the_reason() {
    let good = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
    let other = text(&secret(9));
    assert_eq!(
        text(&Secret::parse(good).expect("as nvme-cli makes them")),
        good
    );
    for (text, line, why) in [
        ("host x".into(), 1, "begins with a host's NQN"),
        (
            "# nothing\n\nnqn.a".into(),
            3,
            "comes the host's secret (DHHC-1:...)",
        ),
        (
            format!("nqn.a {}", good.replace("DHHC-1", "DHHC-2")),
            1,
            "DHHC-1:00",
        ),
        (
            format!("nqn.a {}", good.replace(":01:", ":04:")),
            1,
            "DHHC-1:00",
        ),
        (
            format!("nqn.a {}", good.replace(":01:", ":02:")),
            1,
            "32 bytes, which does not go",
        ),
        (
            format!("nqn.a {}", good.replace("AAEC", "AAED")),
            1,
            "CRC is wrong",
        ),
        (
            format!("nqn.a {}", good.replace("AAEC", "A*EC")),
            1,
            "base 64",
        ),
        (
            format!("nqn.a {good} hash=md5"),
            1,
            "sha256, sha384 or sha512",
        ),
        (format!("nqn.a {good} group=modp"), 1, "null, ffdhe2048"),
        (format!("nqn.a {good} until=2027-02-29"), 1, "a date like"),
        (format!("nqn.a {good} until=2027-2-2"), 1, "a date like"),
        (
            format!("nqn.a {good} {other}"),
            1,
            "one secret and one TLS key",
        ),
        (
            format!("nqn.a {good} controller={good}"),
            1,
            "each needs its own",
        ),
        (
            format!("nqn.a {good}\nnqn.a {other}"),
            2,
            "has a line already",
        ),
    ] {
        match Keys::parse(&text) {
            Err(KeysError::Line {
                line: at,
                why: said,
            }) => {
                assert!(
                    at == line && said.contains(why),
                    "{text}: line {at}: {said}"
                );
                assert!(!said.contains("AAE"), "no secret in {said}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
    assert!(matches!(Keys::parse("# none\n"), Err(KeysError::Empty)));
    assert!(!format!("{:?}", Keys::parse(&line("")).expect("in order")).contains("AQID"));
}

#[test]
fn a_file_that_others_can_read_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("keys");
    std::fs::write(&path, line("")).expect("written");
    for (mode, is_taken) in [
        (0o600, true),
        (0o400, true),
        (0o640, false),
        (0o604, false),
        (0o620, false),
    ] {
        let set = std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode));
        set.expect("it is ours");
        let loaded = Keys::load(&path);
        assert_eq!(loaded.is_ok(), is_taken, "{mode:o}: {loaded:?}");
        if let Err(error) = loaded {
            assert!(error.to_string().contains("chmod 600"), "{error}");
        }
    }
}
