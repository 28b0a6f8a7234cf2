//! Peers that send arbitrary data, or nothing, or do not read: their connection ends, without any
//! effect on others.

use crate::kit::numbers::Numbers;
use crate::kit::raw::{in_capsule, transport};
use crate::kit::specified::fabrics;
use crate::kit::{self, Rig};
use remap_ssd_nvme::spec::command::{RwCdw12, Sqe};
use remap_ssd_nvme::spec::fabrics::ConnectData;
use remap_ssd_nvme::spec::opcode::{admin, io};
use remap_ssd_nvme::spec::pdu::{Data, Flags, Ic, kind};
use remap_ssd_nvme::tcp::client::{Call, ClientError, Options, Queue, entry};
use remap_ssd_nvme::tcp::server::Limits;
use remap_ssd_nvme::tcp::wire::{self, Agreement};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

fn connect_entry() -> Sqe {
    let mut sqe = entry(admin::FABRICS, u32::from(fabrics::CONNECT));
    sqe.cdw11 = 31 | 1 << 18;
    in_capsule(sqe, 1024)
}

/// A session as started by a host: ICReq, Connect, some commands.
fn session(nqn: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let agreed = Agreement::default();
    wire::put_ic(&mut out, kind::IC_REQ, &Ic::new(0, 0, 0));
    let data = ConnectData::new([1; 16], 0xffff, nqn, "nqn.2026-11.test:host");
    let sqe = connect_entry();
    wire::put_data(
        &mut out,
        kind::CAPSULE_CMD,
        Flags::new(),
        &sqe,
        agreed,
        data.as_bytes(),
    );
    for opcode in [
        admin::KEEP_ALIVE,
        admin::IDENTIFY,
        admin::ASYNC_EVENT,
        admin::GET_FEATURES,
    ] {
        let sqe = transport(entry(opcode, 0), 4096);
        wire::put(&mut out, kind::CAPSULE_CMD, Flags::new(), &sqe, agreed);
    }
    wire::put(
        &mut out,
        kind::H2C_DATA,
        Flags::new().with_last(true),
        &Data::new(0, 0, 0, 0),
        agreed,
    );
    out
}

/// Sends, and reads until the other end closes; returns its answer.
fn send(rig: &Rig, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(rig.address).expect("it listens");
    stream
        .set_read_timeout(Some(Duration::from_millis(300)))
        .expect("a time");
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[test]
fn garbage_ends_its_own_connection_only() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.write(7, &[7; 4096]).expect("served");
    let whole = session(kit::NQN);
    let answer = send(&rig, &whole);
    assert!(
        answer.len() > 128 + 24,
        "a session is answered: {}",
        answer.len()
    );
    let mut numbers = Numbers(1);
    for round in 0..150 {
        let mut bytes = whole.clone();
        match round % 4 {
            0 => bytes.truncate(numbers.below(bytes.len() as u64) as usize),
            1 => {
                bytes = (0..numbers.below(3000))
                    .map(|_| numbers.below(256) as u8)
                    .collect()
            }
            _ => {
                for _ in 0..=numbers.below(4) {
                    let at = numbers.below(bytes.len().min(1400) as u64) as usize;
                    bytes[at] = numbers.below(256) as u8;
                }
            }
        }
        send(&rig, &bytes);
    }
    assert_eq!(client.read(7, 1).expect("served"), vec![7; 4096]);
}

#[test]
fn connections_that_never_speak_keep_nobody_out() {
    let rig = Rig::new();
    let silent: Vec<TcpStream> = (0..1000)
        .filter_map(|_| TcpStream::connect(rig.address).ok())
        .collect();
    assert!(silent.len() > 500);
    let mut client = rig.client();
    client.write(1, &[1; 4096]).expect("served");
    assert_eq!(client.read(1, 1).expect("served"), vec![1; 4096]);
}

#[test]
fn half_open_connections_are_few_and_the_oldest_go_first() {
    let limits = Limits {
        half_open: 8,
        ..Limits::default()
    };
    let rig = Rig::limited(limits);
    let mut silent: Vec<TcpStream> = (0..400)
        .filter_map(|_| TcpStream::connect(rig.address).ok())
        .collect();
    assert!(silent.len() > 300);
    let mut client = rig.client();
    client.write(1, &[1; 4096]).expect("served");
    let newest = silent.split_off(silent.len() - 4);
    let old = silent.len() - 8;
    for stream in &mut silent[..old] {
        stream
            .set_read_timeout(Some(Duration::from_secs(3)))
            .expect("a time");
        assert!(
            matches!(stream.read(&mut [0]), Ok(0) | Err(_)),
            "nothing was sent"
        );
    }
    for mut stream in newest {
        stream
            .set_read_timeout(Some(Duration::from_millis(20)))
            .expect("a time");
        let error = stream.read(&mut [0]).expect_err("still open");
        assert!(
            matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
            "{error}"
        );
    }
}

#[test]
fn a_peer_that_stops_reading_is_cut() {
    let limits = Limits {
        send_within: Duration::from_millis(300),
        ..Limits::default()
    };
    let rig = Rig::limited(limits);
    let mut greedy = rig.client();
    let mut sqe = entry(io::READ, 1);
    sqe.cdw12 = RwCdw12::new().with_nlb_z(255).into_bits();
    let asked = greedy
        .queue(|queue| (0..60).try_for_each(|_| queue.send_only(&Call::receiving(sqe, 1 << 20))));
    asked.expect("sent");
    let began = Instant::now();
    while !rig
        .lines
        .0
        .lock()
        .expect("nothing fails here")
        .iter()
        .any(|line| line.contains("dropped"))
    {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "it is waited for"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_peer_that_does_not_read_is_not_waited_for_by_others() {
    let rig = Rig::new();
    let mut greedy = rig.client();
    let mut client = rig.client();
    // Requests far more than the sockets hold, and reads nothing.
    let mut sqe = entry(io::READ, 1);
    sqe.cdw12 = RwCdw12::new().with_nlb_z(255).into_bits();
    let asked = greedy.queue(|queue| {
        for _ in 0..60 {
            queue.send_only(&Call::receiving(sqe, 1 << 20))?;
        }
        Ok(())
    });
    asked.expect("sent");
    let began = Instant::now();
    for block in 0..100 {
        client.write(block, &[3; 4096]).expect("served");
    }
    assert!(
        began.elapsed() < Duration::from_secs(8),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn more_commands_than_the_queue_has_entries_end_the_connection() {
    let rig = Rig::new();
    let mut client = rig.client();
    let mut sqe = entry(io::WRITE, 1);
    sqe.cdw12 = RwCdw12::new().with_nlb_z(255).into_bits();
    let result = client.queue(|queue| {
        for _ in 0..400 {
            // Too large for the capsule: each waits for its data to be requested, and they are
            // never sent.
            queue.send_only(&Call::sending(sqe, &vec![0; 1 << 20]))?;
        }
        queue.call("read", &Call::new(entry(io::FLUSH, 1)))
    });
    assert!(matches!(
        result,
        Err(ClientError::Io(_) | ClientError::Protocol(_))
    ));
    assert!(client.flush().is_ok(), "on a new connection");
}

#[test]
fn a_host_that_is_not_allowed_is_told_so() {
    use remap_ssd_nvme::tcp::server::Server;
    use remap_ssd_nvme::tcp::target::{Allowed, Port, Who};
    let device = kit::device(32 << 20, false);
    let subsystem = kit::subsystem(device, &[]);
    let allowed = Allowed {
        hosts: vec![Who::Name("nqn.2026-11.test:friend".into()).into()],
        ..Allowed::default()
    };
    let port = Port::new(std::sync::Arc::new(subsystem), allowed);
    let server = Server::bind(
        "127.0.0.1:0".parse().expect("an address"),
        port,
        Box::new(kit::Lines::default()),
    );
    let server = server.expect("a free port");
    let (address, stopper) = (
        server.address().expect("bound"),
        server.stopper().expect("bound"),
    );
    let thread = std::thread::spawn(|| server.run());
    let connect = |name: &str| {
        let options = Options {
            hostnqn: name.into(),
            subnqn: Some(kit::NQN.into()),
            ..Options::default()
        };
        remap_ssd_nvme::tcp::client::Client::connect(address, options)
    };
    assert!(connect("nqn.2026-11.test:friend").is_ok());
    let refused = connect("nqn.2026-11.test:stranger").err().expect("refused");
    assert!(refused.to_string().contains("not allowed"), "{refused}");
    assert!(
        Queue::open(address, &Options::default()).is_ok(),
        "who asks no more than the version is told it"
    );
    stopper.stop();
    thread.join().expect("no panic").expect("the device works");
}
