//! What strangers can send before they are known: a TLS handshake, and the identity in
//! it.
//!
//! ```text
//! tls      which (1 byte) | the rest
//! which    0  bytes of a connection, from its first one on
//!          1  an identity, as a handshake names it
//! ```
//! Checked beside panics: no handshake succeeds, since nothing here answers the server's part of it;
//! an identity finds a key only if it is one of the two that the key has. Absent: what follows a
//! handshake (`nvme::session`).

use remap_ssd_nvme::auth::{Claim, Derivation, Keyring, Keys, TlsKey};
use remap_ssd_nvme::tls::{ClientContext, ServerContext, TlsStream};
use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

const HOST: &str = "nqn.2026-11.fuzz:host";
const KEY: &str = "NVMeTLSkey-1:01:ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8qDMNU:";

/// A server that shakes hands with every client.
struct HandshakeServer {
    listener: TcpListener,
    context: ServerContext,
    keyring: Arc<Keyring>,
}

thread_local! {
    static SERVER: RefCell<Option<HandshakeServer>> = const { RefCell::new(None) };
}

impl HandshakeServer {
    fn new() -> Self {
        let keys = Keys::parse(&format!("{HOST} {KEY}")).expect("a line in order");
        Self {
            listener: TcpListener::bind("127.0.0.1:0").expect("a free port"),
            context: ServerContext::new().expect("OpenSSL works"),
            keyring: Arc::new(Keyring::new(keys)),
        }
    }

    fn shake_hands(&self, bytes: &[u8]) {
        let address = self.listener.local_addr().expect("bound");
        let mut host = TcpStream::connect(address).expect("it listens");
        let (stream, _) = self.listener.accept().expect("it connects");
        let timeout = Some(Duration::from_millis(20));
        stream.set_read_timeout(timeout).expect("a time");
        host.write_all(bytes).expect("the socket takes that much");
        host.shutdown(Shutdown::Write).expect("it is connected");

        let subsystems = vec![crate::nvme::NQN.to_owned()];
        let tls = TlsStream::server(&self.context, self.keyring.clone(), subsystems, stream);
        let mut tls = tls.expect("OpenSSL works");
        // One step for each time that nothing more was there.
        for _ in 0..4 {
            match tls.handshake() {
                Ok(false) => {}
                Ok(true) => panic!("the server was never answered"),
                Err(_) => return,
            }
        }
    }
}

/// What a stranger sends: a handshake, or an identity. The first byte says which.
pub fn tls(bytes: &[u8]) {
    let Some((which, bytes)) = bytes.split_first() else {
        return;
    };
    SERVER.with_borrow_mut(|server| {
        let server = server.get_or_insert_with(HandshakeServer::new);
        match which % 2 {
            0 => server.shake_hands(&bytes[..bytes.len().min(64 << 10)]),
            _ => identity(&server.keyring, bytes),
        }
    });
}

fn identity(keyring: &Keyring, bytes: &[u8]) {
    let found = keyring.find_psk(bytes, &[crate::nvme::NQN]);
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    let claim = Claim::parse(text);
    if found.is_ok() {
        let key = TlsKey::parse(KEY).expect("in order");
        let claim = claim.expect("what is found was named");
        let ours = Derivation::ALL.map(|way| key.psk(claim.hostnqn, claim.subnqn, way).identity);
        assert!(ours.iter().any(|ours| ours == text), "{text}");
    }
}

/// What a host of ours says first.
fn hello(key: &str) -> Vec<u8> {
    let key = TlsKey::parse(key).expect("in order");
    let psk = key.psk(HOST, crate::nvme::NQN, Derivation::Standard);
    let context = ClientContext::new(psk).expect("OpenSSL works");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    let timeout = Some(Duration::from_millis(20));
    stream.set_read_timeout(timeout).expect("a time");
    let (mut server, _) = listener.accept().expect("it connects");
    let mut tls = TlsStream::client(&context, stream).expect("OpenSSL works");
    assert!(!tls.handshake().expect("nothing is wrong yet"));
    drop(tls);
    let mut bytes = Vec::new();
    server.read_to_end(&mut bytes).expect("it has ended");
    bytes
}

/// The corpus: what well-behaved hosts say first.
pub fn make() -> Vec<(String, Vec<u8>)> {
    let with = |which: u8, bytes: &[u8]| [&[which], bytes].concat();
    let long =
        "NVMeTLSkey-1:02:ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8BI0VniavN7wEjRWeJq83vsm4Jtg==:";
    let psk = TlsKey::parse(KEY).expect("in order");
    let psk = psk.psk(HOST, crate::nvme::NQN, Derivation::Libnvme);
    vec![
        ("tls/hello".into(), with(0, &hello(KEY))),
        ("tls/hello-long".into(), with(0, &hello(long))),
        ("tls/identity".into(), with(1, psk.identity.as_bytes())),
    ]
}
