//! TLS between our target and our own host, and peers that do not keep to it.

mod hostile;
mod keys;
#[path = "../kit/mod.rs"]
mod kit;

use kit::numbers::Numbers;
use kit::{NQN, Rig, keyring, secret};
use remap_ssd_nvme::auth::{
    Claim, Credentials, Derivation, Hash, Keyring, Keys, KeysError, TlsKey,
};
use remap_ssd_nvme::controller::Latency;
use remap_ssd_nvme::tcp::client::{Client, ClientError, Options};
use remap_ssd_nvme::tcp::server::Limits;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const HOST: &str = kit::raw::HOSTNQN;
const OTHER: &str = "nqn.2026-11.test:other";

/// Keys as `nvme gen-tls-key --secret=` of nvme-cli 2.13 has made them.
const KEY_256: &str = "NVMeTLSkey-1:01:ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8qDMNU:";
const KEY_384: &str =
    "NVMeTLSkey-1:02:ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8BI0VniavN7wEjRWeJq83vsm4Jtg==:";

fn key(first: u8) -> TlsKey {
    let bytes: Vec<u8> = (first..first + 32).collect();
    TlsKey::new(Some(Hash::Sha256), &bytes).expect("a length that goes with the hash")
}

fn long_key(first: u8) -> TlsKey {
    let bytes: Vec<u8> = (first..first + 48).collect();
    TlsKey::new(Some(Hash::Sha384), &bytes).expect("a length that goes with the hash")
}

fn line(host: &str, key: &TlsKey, options: &str) -> String {
    format!("{host} {} {options}\n", *key.reveal())
}

fn guarded(text: &str) -> Rig {
    Rig::guarded(&keyring(text), Limits::default())
}

fn options(key: Option<TlsKey>) -> Options {
    Options {
        hostnqn: HOST.into(),
        subnqn: Some(NQN.into()),
        tls: key.map(Arc::new),
        ..Options::default()
    }
}

fn refused(rig: &Rig, options: Options) -> ClientError {
    let refused = Client::connect(rig.address, options).err();
    refused.expect("it is refused")
}

fn works(client: &mut Client) {
    client.write(3, &[7; 4096]).expect("it may write");
    assert_eq!(client.read(3, 1).expect("it may read"), [7; 4096]);
}

/// Reads until the other end closes; whether it did in time.
fn is_closed(stream: &mut TcpStream) -> bool {
    let timeout = Some(Duration::from_secs(30));
    stream.set_read_timeout(timeout).expect("a time");
    let mut left = Vec::new();
    match stream.read_to_end(&mut left) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

/// Connects both ways of a host's connections through here, and shows or changes what passes.
struct Between {
    address: SocketAddr,
    /// What hosts sent, one connection after the other.
    sent: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Between {
    /// `change` may change what a host sends; it gets the bytes that passed before, and these.
    fn new(
        target: SocketAddr,
        change: impl Fn(usize, &mut Vec<u8>) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let sent = Arc::<Mutex<Vec<Vec<u8>>>>::default();
        let (all, change) = (sent.clone(), Arc::new(change));

        std::thread::spawn(move || {
            for (index, host) in listener.incoming().flatten().enumerate() {
                all.lock().expect("nothing fails here").push(Vec::new());
                let server = TcpStream::connect(target).expect("it listens");
                let (mut host_end, mut server_end) = (
                    host.try_clone().expect("a socket"),
                    server.try_clone().expect("a socket"),
                );
                let (all, change) = (all.clone(), change.clone());
                let (mut host, mut server) = (host, server);
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut server_end, &mut host_end);
                    let _ = host_end.shutdown(Shutdown::Both);
                });
                std::thread::spawn(move || {
                    let (mut piece, mut before) = (vec![0; 1 << 16], 0);
                    while let Ok(len @ 1..) = host.read(&mut piece) {
                        let mut bytes = piece[..len].to_vec();
                        all.lock().expect("nothing fails here")[index].extend(&bytes);
                        change(before, &mut bytes);
                        before += len;
                        if server.write_all(&bytes).is_err() {
                            break;
                        }
                    }
                    let _ = server.shutdown(Shutdown::Both);
                });
            }
        });
        Self { address, sent }
    }

    fn sent(&self, connection: usize) -> Vec<u8> {
        self.sent.lock().expect("nothing fails here")[connection].clone()
    }
}

#[test]
fn a_host_with_a_tls_key_connects_by_tls_and_its_data_are_not_on_the_network() {
    for (key, suite) in [
        (key(1), "TLS_AES_128_GCM_SHA256"),
        (long_key(1), "TLS_AES_256_GCM_SHA384"),
    ] {
        let rig = guarded(&line(HOST, &key, ""));
        let between = Between::new(rig.address, |_, _| {});
        let mut client = Client::connect(between.address, options(Some(key))).expect("by its key");
        let secret = b"what nobody else may read".repeat(200);
        let page = &secret[..4096];
        client.write(5, page).expect("written");
        assert_eq!(client.read(5, 1).expect("read"), page);

        for queue in ["queue 0", "queue 1"] {
            rig.logged(&[queue, "connected by", HOST, suite]);
        }
        for connection in 0..2 {
            let sent = between.sent(connection);
            assert_eq!(sent[0], 0x16, "it begins with a handshake");
            let has = |part: &[u8]| sent.windows(part.len()).any(|window| window == part);
            assert!(!has(b"nobody else"), "data are encrypted");
            // The names are not: they are in the identity.
            assert!(has(HOST.as_bytes()) && has(NQN.as_bytes()));
        }
        drop(client);
        rig.stop();
    }
}

#[test]
fn both_derivations_of_a_key_are_known_by_their_identities() {
    let keys = keyring(&line(HOST, &key(1), ""));
    for way in Derivation::ALL {
        let psk = key(1).psk(HOST, NQN, way);
        let named = keys.find_psk(psk.identity.as_bytes(), &[NQN]);
        let named = named.map_err(|none| none.why).expect("it is ours");
        assert_eq!((named.hostnqn.as_str(), named.psk.key), (HOST, psk.key));
    }
}

#[test]
fn a_wrong_key_an_unknown_host_and_another_subsystem_are_refused_and_logged() {
    let rig = guarded(&line(HOST, &key(1), ""));
    let wrong = refused(&rig, options(Some(key(2))));
    assert!(wrong.to_string().contains("another key"), "{wrong}");
    rig.logged(&["refused: TLS for", HOST, "another one than ours"]);

    let stranger = Options {
        hostnqn: OTHER.into(),
        ..options(Some(key(1)))
    };
    refused(&rig, stranger);
    rig.logged(&["refused: TLS for", OTHER, "no key, or its key has expired"]);

    let elsewhere = Options {
        subnqn: Some("nqn.2026-11.test:elsewhere".into()),
        ..options(Some(key(1)))
    };
    refused(&rig, elsewhere);
    rig.logged(&["refused: TLS for", HOST, "for another subsystem"]);

    // A host that authenticates only by a secret has no TLS key.
    let both = format!(
        "{HOST} {}\n{}",
        *secret(1).reveal(),
        line(OTHER, &key(1), "")
    );
    let other = guarded(&both);
    refused(&other, options(Some(key(1))));
    other.logged(&["refused: TLS for", HOST, "no TLS key"]);

    works(&mut Client::connect(rig.address, options(Some(key(1)))).expect("the right one"));
    [rig, other].into_iter().for_each(Rig::stop);
}

#[test]
fn who_knows_only_the_identity_does_not_get_in() {
    // The identity passes in the open; the key that belongs to it does not.
    let rig = guarded(&line(HOST, &key(1), ""));
    let mut psk = key(1).psk(HOST, NQN, Derivation::Standard);
    psk.key[0] ^= 1;
    let stream = TcpStream::connect(rig.address).expect("it listens");
    let context = remap_ssd_nvme::tls::ClientContext::new(psk).expect("OpenSSL works");
    let mut tls = remap_ssd_nvme::tls::TlsStream::client(&context, stream).expect("OpenSSL works");
    let error = tls.handshake().expect_err("the key is wrong");
    assert!(error.to_string().contains("refused"), "{error}");
    rig.logged(&["refused: TLS for", HOST, "its TLS key is wrong"]);
    rig.stop();
}

#[test]
fn a_host_that_has_a_tls_key_is_refused_without_tls_whatever_else_it_knows() {
    let both = format!("{HOST} {} {}\n", *key(1).reveal(), *secret(1).reveal());
    for text in [line(HOST, &key(1), ""), both] {
        let rig = guarded(&text);
        let known = Credentials {
            host: secret(1),
            controller: None,
        };
        let plain = Options {
            credentials: Some(Arc::new(known)),
            ..options(None)
        };
        let error = refused(&rig, plain.clone());
        assert!(error.to_string().contains("not allowed"), "{error}");
        rig.logged(&["refused: queue 0", HOST, "connected without TLS"]);
        // Neither does discovery tell it anything.
        let discovering = Options {
            subnqn: None,
            ..plain
        };
        assert!(Client::connect(rig.address, discovering).is_err());
        rig.logged(&[
            "refused: queue 0",
            "discovery",
            HOST,
            "connected without TLS",
        ]);
        rig.stop();
    }
}

#[test]
fn one_port_serves_hosts_with_tls_and_hosts_without() {
    let text = format!(
        "{}{OTHER} {}\n",
        line(HOST, &key(1), ""),
        *secret(1).reveal()
    );
    let rig = guarded(&text);
    let mut secure = Client::connect(rig.address, options(Some(key(1)))).expect("by TLS");
    let known = Credentials {
        host: secret(1),
        controller: None,
    };
    let plain = Options {
        hostnqn: OTHER.into(),
        credentials: Some(Arc::new(known)),
        ..options(None)
    };
    let mut plain = Client::connect(rig.address, plain).expect("by its secret");
    works(&mut secure);
    works(&mut plain);
    rig.stop();
}

#[test]
fn a_name_under_tls_is_the_one_that_the_key_is_for() {
    use kit::raw::{connect, connect_data};
    use remap_ssd_nvme::spec::fabrics::ConnectData;
    use remap_ssd_nvme::spec::status::Status;
    use remap_ssd_nvme::tcp::client::{Call, Queue};
    use zerocopy::IntoBytes;

    let text = format!("{}{}", line(HOST, &key(1), ""), line(OTHER, &key(2), ""));
    let rig = guarded(&text);
    let data = ConnectData::new([1; 16], 0xffff, NQN, OTHER);
    for data in [data, connect_data(0xffff)] {
        let mut queue = Queue::open(rig.address, &options(Some(key(1)))).expect("by its key");
        let call = Call {
            sqe: connect(0),
            send: data.as_bytes(),
            receive: 0,
        };
        let answer = queue.calls(&[call]).expect("an answer").remove(0);
        let is_own = data.hostnqn == connect_data(0).hostnqn;
        let expected = if is_own {
            Status::SUCCESS
        } else {
            Status::CONNECT_HOST
        };
        assert_eq!(answer.status, expected);
    }
    rig.logged(&["refused: queue 0", OTHER, "is another host's"]);

    // A key for discovery is for nothing else.
    let discovery = Options {
        subnqn: None,
        ..options(Some(key(1)))
    };
    let mut queue = Queue::open(rig.address, &discovery).expect("by its key");
    let data = connect_data(0xffff);
    let call = Call {
        sqe: connect(0),
        send: data.as_bytes(),
        receive: 0,
    };
    let answer = queue.calls(&[call]).expect("an answer").remove(0);
    assert_eq!(answer.status, Status::CONNECT_HOST);

    // And by it a host finds the subsystem, and learns that it is reached by TLS as well.
    let page = {
        use remap_ssd_nvme::spec::fabrics::{DISCOVERY_NQN, property};
        use remap_ssd_nvme::spec::opcode::admin;
        let data = ConnectData::new([1; 16], 0xffff, DISCOVERY_NQN, HOST);
        let mut queue = Queue::open(rig.address, &discovery).expect("by its key");
        let log = remap_ssd_nvme::spec::command::Sqe {
            cdw10: 0x70 | 511 << 16,
            ..remap_ssd_nvme::tcp::client::entry(admin::GET_LOG_PAGE, 0)
        };
        let calls = [
            (connect(0), data.as_bytes(), 0),
            (
                kit::raw::property_set(property::CC, kit::raw::enabled()),
                &[][..],
                0,
            ),
            (log, &[][..], 2048),
        ];
        let answers = calls.map(|(sqe, send, receive)| {
            let call = Call { sqe, send, receive };
            queue.call("discovery", &call).expect("an answer").data
        });
        answers[2].clone()
    };
    let (treq, sectype) = (page[1024 + 3], page[1024 + 768]);
    assert_eq!((treq, sectype), (1, 2), "required, by TLS 1.3");
    works(&mut Client::connect(rig.address, discovery).expect("found"));
    rig.stop();
}

#[test]
fn authentication_by_a_secret_works_under_tls_and_both_are_needed() {
    let (host, controller) = (secret(1), secret(101));
    let text = format!(
        "{HOST} {} {} controller={}\n",
        *key(1).reveal(),
        *host.reveal(),
        *controller.reveal()
    );
    let rig = guarded(&text);
    let with = |host: u8, controller: Option<u8>| Options {
        credentials: Some(Arc::new(Credentials {
            host: secret(host),
            controller: controller.map(secret),
        })),
        ..options(Some(key(1)))
    };
    for controller in [None, Some(101)] {
        works(&mut Client::connect(rig.address, with(1, controller)).expect("by both"));
    }
    rig.logged(&[
        "queue 1 connected",
        "TLS_AES_128_GCM_SHA256, authenticated by",
        "both ways",
    ]);
    let error = refused(&rig, with(2, None));
    assert!(matches!(error, ClientError::Authentication(_)), "{error}");
    let error = refused(&rig, options(Some(key(1))));
    assert!(matches!(error, ClientError::NoSecret), "{error}");
    rig.stop();
}

#[test]
fn keys_are_replaced_without_dropping_a_host_and_end_with_their_day() {
    let keys = keyring(&line(HOST, &key(1), ""));
    let rig = Rig::guarded(&keys, Limits::default());
    let mut client = Client::connect(rig.address, options(Some(key(1)))).expect("the first key");
    keys.replace(Keys::parse(&line(HOST, &key(2), "")).expect("a line in order"));
    works(&mut client);
    refused(&rig, options(Some(key(1))));
    works(&mut Client::connect(rig.address, options(Some(key(2)))).expect("the second key"));
    works(&mut client);
    drop(client);
    rig.stop();

    // `date -u -d 2027-03-01 +%s` is 1803859200.
    let clocks: [(fn() -> SystemTime, bool); 2] = [
        (|| UNIX_EPOCH + Duration::from_secs(1_803_859_199), true),
        (|| UNIX_EPOCH + Duration::from_secs(1_803_859_200), false),
    ];
    for (clock, lets_in) in clocks {
        let text = line(HOST, &key(1), "until=2027-02-28");
        let keys = Keys::parse(&text).expect("a line in order");
        let keyring = Arc::new(Keyring::with_clock(keys, clock));
        let rig = Rig::guarded(&keyring, Limits::default());
        let client = Client::connect(rig.address, options(Some(key(1))));
        assert_eq!(client.is_ok(), lets_in);
        if !lets_in {
            rig.logged(&["refused: TLS for", HOST, "its key has expired"]);
        }
        drop(client);
        rig.stop();
    }
}

#[test]
fn a_target_without_the_key_or_without_tls_is_not_trusted() {
    let open = Rig::new();
    let error = refused(&open, options(Some(key(1))));
    assert!(matches!(error, ClientError::Tls(_)), "{error}");
    open.logged(&["refused: TLS", "there are no keys"]);
    // One that answers as NVMe/TCP does.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("it comes");
        let mut hello = [0; 64];
        stream.read_exact(&mut hello).expect("it says something");
        let mut answer = vec![1, 0, 128, 0, 128, 0, 0, 0];
        answer.resize(128, 0);
        stream.write_all(&answer).expect("it listens");
        is_closed(&mut stream)
    });
    let error = Client::connect(address, options(Some(key(1)))).err();
    let error = error.expect("it is not trusted");
    assert!(error.to_string().contains("does not speak TLS"), "{error}");
    assert!(answering.join().expect("no panic"));
    open.stop();
}

#[test]
fn a_recorded_handshake_and_session_are_worth_nothing_again() {
    let rig = guarded(&line(HOST, &key(1), ""));
    let between = Between::new(rig.address, |_, _| {});
    let mut client = Client::connect(between.address, options(Some(key(1)))).expect("by its key");
    client.write(9, &[9; 4096]).expect("written");
    client.write(9, &[8; 4096]).expect("written");
    let recorded = [between.sent(0), between.sent(1)];
    for bytes in recorded {
        let mut stream = TcpStream::connect(rig.address).expect("it listens");
        stream.write_all(&bytes).expect("taken");
        assert!(is_closed(&mut stream));
    }
    rig.logged(&["refused: TLS for", HOST, "handshake failed"]);
    assert_eq!(client.read(9, 1).expect("served"), [8; 4096]);
    rig.stop();
}

#[test]
fn a_byte_that_is_changed_on_the_way_ends_the_connection_and_reaches_nobody() {
    let rig = guarded(&line(HOST, &key(1), ""));
    let mut honest = Client::connect(rig.address, options(Some(key(1)))).expect("by its key");
    honest.write(4, &[4; 4096]).expect("written");

    // Connections are an admin queue and an I/O queue, and both again when one broke. Large writes
    // alone are this long.
    let changed = Arc::new(Mutex::new(0));
    let count = changed.clone();
    let between = Between::new(rig.address, move |before, bytes| {
        if before + bytes.len() > 100_000 {
            *count.lock().expect("nothing fails here") += 1;
            *bytes.last_mut().expect("something was sent") ^= 1;
        }
    });
    let mut client = Client::connect(between.address, options(Some(key(1)))).expect("by its key");
    let error = client.write(4, &vec![5; 512 << 10]).err();
    assert!(error.is_some(), "nothing is acknowledged");
    assert!(*changed.lock().expect("nothing fails here") > 0);
    rig.logged(&["queue 1 of", HOST, "TLS: "]);
    // What was whole before the change may have been written; of the rest, nothing.
    let after = honest.read(4, 128).expect("served");
    let last = &after[127 * 4096..];
    assert!(
        last.iter().all(|byte| *byte == 0),
        "the last page never arrived whole"
    );
    drop((client, honest));
    rig.stop();
}

#[test]
fn commands_in_flight_large_transfers_and_digests_work_under_tls_as_without() {
    use remap_ssd_nvme::spec::opcode::io;
    use remap_ssd_nvme::tcp::client::Call;

    for (latency, digests) in [
        (Latency::None, false),
        (Latency::None, true),
        (Latency::Emulated, false),
        (Latency::Emulated, true),
    ] {
        let keys = keyring(&line(HOST, &key(1), ""));
        let device = kit::device(64 << 20, false);
        let rig = Rig::guarding(device, latency, &keys, Limits::default());
        let mut client = Client::connect(
            rig.address,
            Options {
                digests,
                ..options(Some(key(1)))
            },
        )
        .expect("by its key");

        // A pattern in which every page differs, by large writes whose data are asked for.
        let mut numbers = Numbers(7);
        let pages = 4096;
        let content: Vec<u8> = (0..pages * 512u64)
            .flat_map(|_| numbers.below(u64::MAX).to_le_bytes())
            .collect();
        client.write(0, &content).expect("written");

        // Reads of all sizes, as many under way as the queue takes: they arrive in few records, or
        // over many.
        for blocks in [1u64, 2, 7, 32, 256] {
            let count = (pages / blocks).min(100);
            let calls: Vec<Call<'_>> = (0..count)
                .map(|index| Call {
                    sqe: client.rw(io::READ, index * blocks, (blocks - 1) as u16),
                    send: &[],
                    receive: (blocks as usize) << 12,
                })
                .collect();
            let answers = client.queue(|queue| queue.calls(&calls)).expect("answers");
            for (index, answer) in answers.iter().enumerate() {
                assert!(answer.status.is_success());
                let at = index * blocks as usize * 4096;
                let expected = &content[at..at + answer.data.len()];
                assert!(answer.data == expected, "{blocks} blocks, command {index}");
            }
        }

        // Small writes and reads mixed: answers that share records.
        let page = [0x77; 4096];
        let calls: Vec<Call<'_>> = (0..100u64)
            .map(|index| match index % 3 {
                0 => Call {
                    sqe: client.rw(io::READ, index, 0),
                    send: &[],
                    receive: 4096,
                },
                _ => Call {
                    sqe: client.rw(io::WRITE, 2000 + index, 0),
                    send: &page,
                    receive: 0,
                },
            })
            .collect();
        for _ in 0..20 {
            let answers = client.queue(|queue| queue.calls(&calls)).expect("answers");
            assert!(answers.iter().all(|answer| answer.status.is_success()));
        }
        drop(client);
        rig.stop();
    }
}
