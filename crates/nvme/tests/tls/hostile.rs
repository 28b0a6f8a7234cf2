//! Peers that stall, forge, disconnect or do not read, before and after a handshake.

use super::*;

/// A record of `len` bytes that are not valid ciphertext.
fn record(kind: u8, len: usize) -> Vec<u8> {
    let mut bytes = vec![kind, 3, 3, (len >> 8) as u8, len as u8];
    bytes.resize(5 + len, 0x5a);
    bytes
}

/// A connection after its handshake, for the subsystem, before any data.
fn shaken(rig: &Rig) -> remap_ssd_nvme::tls::TlsStream {
    let psk = key(1).psk(HOST, NQN, Derivation::Standard);
    let context = remap_ssd_nvme::tls::ClientContext::new(psk).expect("OpenSSL works");
    let stream = TcpStream::connect(rig.address).expect("it listens");
    let mut tls = remap_ssd_nvme::tls::TlsStream::client(&context, stream).expect("OpenSSL works");
    assert!(tls.handshake().expect("by its key"));
    tls
}

/// ICReq, and Connect of an admin queue.
fn session() -> Vec<u8> {
    use remap_ssd_nvme::spec::pdu::{Flags, Ic, kind};
    use remap_ssd_nvme::tcp::wire::{self, Agreement};
    use zerocopy::IntoBytes;

    let mut out = Vec::new();
    wire::put_ic(&mut out, kind::IC_REQ, &Ic::new(0, 0, 0));
    let data = kit::raw::connect_data(0xffff);
    let (sqe, agreed) = (kit::raw::connect(0), Agreement::default());
    let capsule = kind::CAPSULE_CMD;
    wire::put_data(
        &mut out,
        capsule,
        Flags::new(),
        &sqe,
        agreed,
        data.as_bytes(),
    );
    out
}

/// Checks that a host's connection has not broken: this command is not sent again.
fn is_served(client: &mut Client) {
    use remap_ssd_nvme::spec::opcode::io;
    use remap_ssd_nvme::tcp::client::{Call, entry};

    let call = Call::new(entry(io::FLUSH, 1));
    let served = client.queue(|queue| queue.call("flush", &call).map(drop));
    served.expect("the connection is there, and was all the time");
}

#[test]
fn handshakes_that_stall_end_in_time_and_keep_nobody_waiting() {
    let limits = Limits {
        handshake_within: Duration::from_millis(700),
        half_open: 8,
        ..Limits::default()
    };
    let rig = Rig::guarded(&keyring(&line(HOST, &key(1), "")), limits);
    let mut client = Client::connect(rig.address, options(Some(key(1)))).expect("by its key");

    // Only a first byte; an incomplete header; and single bytes now and then.
    for start in [&[0x16][..], &[0x16, 3, 1, 2, 0, 1]] {
        let mut stream = TcpStream::connect(rig.address).expect("it listens");
        stream.write_all(start).expect("taken");
        assert!(is_closed(&mut stream));
    }
    let mut slow = TcpStream::connect(rig.address).expect("it listens");
    let until = Instant::now() + Duration::from_secs(60);
    // A record that would take this peer minutes.
    slow.write_all(&[0x16, 3, 1, 0x20, 0]).expect("taken");
    while slow.write_all(&[1]).is_ok() {
        assert!(Instant::now() < until, "it is dropped");
        std::thread::sleep(Duration::from_millis(50));
    }
    rig.logged(&["refused: TLS", "did not end in time"]);

    // A crowd of them, which only displaces itself.
    let crowd: Vec<_> = (0..30)
        .map(|_| {
            let mut stream = TcpStream::connect(rig.address).expect("it listens");
            stream.write_all(&[0x16]).expect("taken");
            stream
        })
        .collect();
    works(&mut Client::connect(rig.address, options(Some(key(1)))).expect("there is room"));
    is_served(&mut client);
    drop(crowd);

    // After a handshake the queue must follow in time, as without TLS.
    let limits = Limits {
        connect_within: Duration::from_millis(300),
        ..Limits::default()
    };
    let other = Rig::guarded(&keyring(&line(HOST, &key(1), "")), limits);
    let mut silent = shaken(&other);
    let mut nothing = [0];
    while !matches!(silent.read(&mut nothing), Ok(0)) {}
    other.logged(&["no queue was connected in time"]);
    drop(client);
    [rig, other].into_iter().for_each(Rig::stop);
}

#[test]
fn records_that_are_cut_off_forged_or_too_long_end_their_connection_only() {
    let rig = guarded(&line(HOST, &key(1), ""));
    let mut honest = Client::connect(rig.address, options(Some(key(1)))).expect("by its key");

    // Before a handshake.
    for bytes in [
        record(0x16, 0),
        record(0x16, 16 << 10),
        record(0x16, 0xffff),
        record(0x16, 100)[..50].to_vec(),
    ] {
        let mut stream = TcpStream::connect(rig.address).expect("it listens");
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
        assert!(is_closed(&mut stream), "{} bytes", bytes.len());
    }

    // After one: no record was encrypted with the keys of the connection.
    for bytes in [
        record(0x17, 0),
        record(0x17, 64),
        record(0x17, 16 << 10),
        record(0x17, 0xffff),
        record(0x15, 2),
        record(0x14, 1),
        record(0x17, 100)[..50].to_vec(),
    ] {
        let mut tls = shaken(&rig);
        tls.write_all(&session()).expect("taken");
        tls.flush().expect("taken");
        let mut answer = [0; 128 + 24];
        tls.read_exact(&mut answer).expect("it is served");
        let mut stream = tls.socket().try_clone().expect("a socket");
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
        assert!(is_closed(&mut stream), "{} bytes", bytes.len());
    }
    is_served(&mut honest);
}

#[test]
fn a_record_for_every_byte_is_served_and_keeps_nobody_out() {
    let rig = guarded(&line(HOST, &key(1), ""));
    let mut honest = Client::connect(rig.address, options(Some(key(1)))).expect("by its key");
    let mut tls = shaken(&rig);
    for byte in session() {
        tls.write_all(&[byte]).expect("taken");
    }
    let mut answer = [0; 128 + 24];
    tls.read_exact(&mut answer).expect("an answer to each PDU");
    assert_eq!((answer[0], answer[128]), (1, 5), "ICResp and a response");

    // Then an endless PDU at the same pace: 20,000 records.
    let sent = (0..20_000).try_for_each(|_| tls.write_all(&[4]));
    is_served(&mut honest);
    // It is invalid, so that the connection ends earlier.
    assert!(sent.is_err() || tls.read(&mut answer).is_ok());
}

#[test]
fn a_peer_that_does_not_read_is_cut_under_tls_too() {
    use remap_ssd_nvme::spec::command::RwCdw12;
    use remap_ssd_nvme::spec::opcode::io;
    use remap_ssd_nvme::tcp::client::{Call, entry};

    let limits = Limits {
        send_within: Duration::from_millis(300),
        ..Limits::default()
    };
    let rig = Rig::guarded(&keyring(&line(HOST, &key(1), "")), limits);
    let mut greedy = Client::connect(rig.address, options(Some(key(1)))).expect("by its key");
    let mut honest = Client::connect(rig.address, options(Some(key(1)))).expect("by its key");
    let mut sqe = entry(io::READ, 1);
    sqe.cdw12 = RwCdw12::new().with_nlb_z(255).into_bits();
    let call = Call::receiving(sqe, 1 << 20);
    let asked = greedy.queue(|queue| (0..60).try_for_each(|_| queue.send_only(&call)));
    asked.expect("sent");
    rig.logged(&["queue 1 of", HOST, "dropped", "does not read"]);
    is_served(&mut honest);
}

#[test]
fn a_thousand_hostile_handshakes_drop_no_other_host() {
    let rig = guarded(&line(HOST, &key(1), ""));
    let between = Between::new(rig.address, |_, _| {});
    let mut client = Client::connect(between.address, options(Some(key(1)))).expect("by its key");
    let whole = between.sent(0);
    let mut numbers = Numbers(1);
    let rounds = std::env::var("HOSTILE_ROUNDS").ok();
    let rounds = rounds.map_or(1000, |text| text.parse().expect("a number"));

    let began = Instant::now();
    for round in 0..rounds {
        let mut bytes = whole.clone();
        match round % 4 {
            0 => bytes.truncate(1 + numbers.below(bytes.len() as u64) as usize),
            1 => {
                bytes = (0..numbers.below(3000))
                    .map(|_| numbers.below(256) as u8)
                    .collect();
                bytes.insert(0, 0x16);
            }
            _ => {
                for _ in 0..=numbers.below(4) {
                    let at = 1 + numbers.below(bytes.len().min(500) as u64 - 1) as usize;
                    bytes[at] = numbers.below(256) as u8;
                }
            }
        }
        let mut stream = TcpStream::connect(rig.address).expect("it listens");
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
        if round % 50 == 0 {
            is_served(&mut client);
        }
    }
    is_served(&mut client);

    // Strangers cause few log lines.
    let lines = rig.lines.0.lock().expect("nothing fails here").clone();
    let refused = lines.iter().filter(|line| line.starts_with("refused: TLS"));
    let paced = 11 + began.elapsed().as_secs() / 5;
    assert!(refused.count() as u64 <= paced, "{lines:#?}");
}
