//! The memory that TLS takes is charged to its host.

use super::*;
use remap_ssd_nvme::tcp::server::MEMORY_BYTES_MIN;
use remap_ssd_nvme::tls::CONNECTION_BYTES;

/// Buffers of a connection, besides those of TLS.
const QUEUE_BYTES: usize = 258 << 10;

/// Clients of one host, of two connections each, until the server refuses one.
fn clients_until_full(key: Option<TlsKey>) -> usize {
    let limits = Limits {
        memory_bytes: MEMORY_BYTES_MIN,
        ..Limits::default()
    };
    // Without a key, the server asks for none.
    let rig = match &key {
        Some(key) => Rig::guarded(&keyring(&line(HOST, key, "")), limits),
        None => Rig::limited(limits),
    };

    let mut clients = Vec::new();
    while let Ok(client) = Client::connect(rig.address, options(key.clone())) {
        clients.push(client);
        assert!(clients.len() < 100, "no limit is in force");
    }
    rig.logged(&["refused: queue", HOST, "memory"]);

    let count = clients.len();
    drop(clients);
    rig.stop();
    count
}

/// A host may use half of the memory. By TLS it has fewer connections, since each takes more.
/// Output that waits is charged too, so that there may be room for fewer still.
#[test]
fn the_buffers_of_tls_count_towards_the_memory_of_a_host() {
    let room_for = |bytes: usize| MEMORY_BYTES_MIN / 2 / (2 * bytes);
    let by_tls = room_for(QUEUE_BYTES + CONNECTION_BYTES);
    let in_clear = clients_until_full(None);
    assert!(
        in_clear > by_tls && in_clear <= room_for(QUEUE_BYTES),
        "{in_clear} clients without TLS"
    );

    let found = clients_until_full(Some(key(1)));
    assert!(found > 0 && found <= by_tls, "{found} of {by_tls} clients");
}
