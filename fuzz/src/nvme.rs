//! What hosts can send: PDUs, commands, whole sessions.
//!
//! ```text
//! pdu      agreement (1 byte: bit 0 header digests, bit 1 data digests) | a stream
//! command  namespace (1 byte) | entry (64 bytes), its data, and again
//! session  device (1 byte: bit 0 deduplication, bit 1 emulated latency) | frames
//! frame    connection (1 byte) | bytes (2) | what it sends
//! ```
//! Checked beside panics: commands move no more than they may and what they said they would,
//! whatever is sent back is a stream of whole PDUs and bounded, and the firmware's tables agree in
//! the end. Absent: sockets.

use crate::sound;
use remap_ssd_device::{Device, DeviceConfig, PRESETS};
use remap_ssd_ftl::Config;
use remap_ssd_media::geometry::Shape;
use remap_ssd_media::{ContentMode, Geometry};
use remap_ssd_nvme::controller::{
    InMemory, IoCommand, IoRequest, Issuer, Latency, NamespaceSpec, Subsystem, TRANSFER_BYTES_MAX,
    Transfer,
};
use remap_ssd_nvme::spec::command::{Cqe, Sqe};
use remap_ssd_nvme::spec::pdu::{Ic, kind};
use remap_ssd_nvme::tcp::target::{Allowed, Connection, Output, PDU_BYTES_MAX, Port};
use remap_ssd_nvme::tcp::wire::{self, Agreement};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use zerocopy::FromBytes;

/// Name of the subsystem that every fuzzed host connects to.
pub const NQN: &str = "nqn.2026-11.fuzz:remap-ssd";
/// Pages of each of the two namespaces: the first has blocks of 4096 bytes, the second of 512.
pub const NAMESPACE_PAGES: u32 = 50;
/// Connections of a session: their bytes come in any order.
pub const CONNECTIONS: usize = 3;
/// Output of one call: what is there when no more is executed, and the largest answer.
const OUT_MAX: usize = 4 << 20;

fn subsystem(dedup: bool, latency: Latency) -> Subsystem {
    let shape = Shape {
        channels: 1,
        dies: 2,
        superblocks: 24,
        pages_per_block: 8,
    };

    let firmware = Config {
        lpns: 2 * NAMESPACE_PAGES,
        log_bytes: 24 * 128,
        segment_bytes: 128,
        entry: remap_ssd_ftl::EntrySize::Bytes24,
        dedup,
        dealloc_slots: 8,
        fs_files: 3,
        fs_blocks: 10,
        ..Config::default()
    };

    let geometry = Geometry::new(shape).expect("valid");
    let config = DeviceConfig {
        content: ContentMode::Bytes,
        geometry,
        firmware,
        ..PRESETS[0].config()
    };

    let device = Device::format(config).expect("such a device works");

    let spec = |lba_shift| NamespaceSpec {
        pages: NAMESPACE_PAGES,
        lba_shift,
    };

    let subsystem = Subsystem::new(device, NQN, &[spec(12), spec(9)]).expect("they fit");
    subsystem.set_latency(latency);
    subsystem
}

/// A stream of PDUs; the first byte says which digests were agreed on.
pub fn pdu(bytes: &[u8]) {
    let Some((digests, mut stream)) = bytes.split_first() else {
        return;
    };
    let agreed = Agreement::new(digests & 3, 0);
    while let Ok(Some((pdu, len))) = wire::next_pdu(stream, agreed, PDU_BYTES_MAX) {
        assert!(len <= stream.len() && pdu.data.len() < len && pdu.data.len() <= PDU_BYTES_MAX);
        again(&pdu, agreed);
        stream = &stream[len..];
    }
}

/// What was cut out, put together and cut out again, is the same.
fn again(pdu: &wire::Pdu<'_>, agreed: Agreement) {
    let mut out = Vec::new();

    let put = |out: &mut Vec<u8>| {
        macro_rules! put {
            ($header:ty) => {{
                let header: $header = pdu.parse()?;
                if pdu.data.is_empty() {
                    wire::put(out, pdu.common.kind, pdu.common.flags, &header, agreed)
                } else {
                    let (kind, flags) = (pdu.common.kind, pdu.common.flags);
                    wire::put_data(out, kind, flags, &header, agreed, pdu.data);
                }
            }};
        }

        match pdu.common.kind {
            kind::CAPSULE_CMD => put!(Sqe),
            kind::H2C_DATA | kind::C2H_DATA | kind::R2T => put!(remap_ssd_nvme::spec::pdu::Data),
            kind::CAPSULE_RESP => put!(Cqe),
            // These have neither digests nor, as we put them, data.
            _ => return None,
        }
        Some(())
    };

    if put(&mut out).is_some() {
        let (other, len) = wire::next_pdu(&out, agreed, PDU_BYTES_MAX)
            .expect("what we put is right")
            .expect("and whole");
        assert!(len == out.len() && other.header == pdu.header && other.data == pdu.data);
    }
}

/// Commands of one host, 64 bytes each; the first byte chooses the device.
pub fn command(bytes: &[u8]) {
    let Some((which, mut rest)) = bytes.split_first() else {
        return;
    };

    let subsystem = subsystem(which & 1 == 1, Latency::None);
    let mut now = 0;

    while let Some((entry, after)) = rest.split_first_chunk::<64>() {
        rest = after;
        now += 1000;

        let sqe = Sqe::read_from_bytes(entry).expect("64 bytes");
        let Some(namespace) = subsystem.namespace(sqe.nsid % 4) else {
            continue;
        };

        let Ok(request) = IoRequest::parse(&sqe, &namespace, 0b101) else {
            continue;
        };

        let transfer = request.transfer(namespace.lba_shift);
        let mut data = Vec::new();

        if let Transfer::FromHost(len) = transfer {
            assert!(len <= TRANSFER_BYTES_MAX);
            let taken = rest.len().min(len as usize);
            data.extend_from_slice(&rest[..taken]);
            rest = &rest[taken..];
            data.resize(len as usize, 0);
        }

        let command = IoCommand::new(request, &namespace);
        let issuer = Issuer {
            write_through: &AtomicBool::new(which & 2 != 0),
            ..Issuer::service()
        };

        let mut out = Vec::new();
        let device = &mut subsystem.device();
        let outcome = subsystem.execute(
            device,
            &command,
            &issuer,
            now,
            &mut InMemory {
                from_host: &data,
                to_host: &mut out,
            },
        );

        match transfer {
            Transfer::ToHost(len) if outcome.status.is_success() => {
                assert!(
                    len <= TRANSFER_BYTES_MAX && out.len() == len as usize,
                    "{request:?}: {} bytes",
                    out.len()
                );
            }
            Transfer::ToHost(_) => {}
            Transfer::None | Transfer::FromHost(_) => assert!(out.is_empty(), "{request:?}"),
        }
    }

    sound(subsystem.device().ftl(), "after commands");
}

/// One connection of a session.
struct SessionConnection {
    connection: Connection,
    input: Vec<u8>,
    output: Output,
    agreed: Agreement,
    /// Commands that have ended with success.
    done: usize,
}

impl SessionConnection {
    fn new(port: &Arc<Port>) -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 4420));
        let connection = Connection::new(port.clone(), address, address);
        Self {
            connection,
            input: Vec::new(),
            output: Output::default(),
            agreed: Agreement::default(),
            done: 0,
        }
    }

    /// Takes what it has to say: whole PDUs as they were agreed on.
    fn listen(&mut self) {
        assert!(
            self.output.len() <= OUT_MAX,
            "{} bytes at once",
            self.output.len()
        );

        let mut said = Vec::new();
        self.output
            .write_to(&mut said)
            .expect("a vector takes everything");

        let mut at = 0;
        while at < said.len() {
            let next = wire::next_pdu(&said[at..], self.agreed, OUT_MAX)
                .expect("the target keeps the protocol");
            let (pdu, len) = next.expect("the target says PDUs whole");
            assert!(pdu.common.kind & 1 == 1, "a host's PDU from a target");

            if pdu.common.kind == kind::IC_RESP {
                let ic: Ic = pdu.parse().expect("its size was checked");
                self.agreed = Agreement::new(ic.digest, ic.pda);
            }

            let response = (pdu.common.kind == kind::CAPSULE_RESP)
                .then(|| pdu.parse::<Cqe>())
                .flatten();
            self.done += usize::from(response.is_some_and(|cqe| cqe.status().is_success()));
            self.done +=
                usize::from(pdu.common.kind == kind::C2H_DATA && pdu.common.flags.success());

            at += len;
        }
    }

    /// As the server does; `false` when the connection is over.
    fn go_on(&mut self, now: u64) -> bool {
        loop {
            self.connection.due(now, &mut self.output);
            let received = self.connection.receive(now, &self.input, &mut self.output);
            let said = !self.output.is_empty();
            self.listen();
            match received {
                Ok(0) if !said => return self.input.len() <= 2 * PDU_BYTES_MAX,
                Ok(consumed) => drop(self.input.drain(..consumed)),
                Err(_) => return false,
            }
        }
    }
}

/// A session of a few connections.
pub fn session(bytes: &[u8]) {
    converse(bytes);
}

/// A session; how many commands were done on each connection that lasted.
pub fn converse(bytes: &[u8]) -> [usize; CONNECTIONS] {
    let mut done = [0; CONNECTIONS];
    let Some((which, mut frames)) = bytes.split_first() else {
        return done;
    };

    let latency = if which & 2 == 0 {
        Latency::None
    } else {
        Latency::Emulated
    };

    let subsystem = Arc::new(subsystem(which & 1 == 1, latency));
    let port = Arc::new(Port::new(
        subsystem.clone(),
        Allowed {
            anybody: true,
            ..Allowed::default()
        },
    ));

    let mut peers: [Option<SessionConnection>; CONNECTIONS] = [const { None }; CONNECTIONS];
    let mut now = 0;

    while let Some(([peer, low, high], rest)) = frames.split_first_chunk::<3>() {
        let len = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        let (sent, rest) = rest.split_at(len);
        frames = rest;

        now += 100_000;

        let peer = &mut peers[usize::from(*peer) % CONNECTIONS];
        let speaking = peer.get_or_insert_with(|| SessionConnection::new(&port));
        speaking.input.extend_from_slice(sent);
        let goes_on =
            speaking.go_on(now) && speaking.connection.tick(now, &mut speaking.output).is_ok();

        speaking.listen();
        if !goes_on {
            *peer = None;
        }
    }

    for (peer, done) in peers.iter_mut().zip(&mut done) {
        if let Some(peer) = peer {
            peer.go_on(u64::MAX);
            *done = peer.done;
        }
    }

    drop(peers);
    sound(subsystem.device().ftl(), "after a session");
    done
}
