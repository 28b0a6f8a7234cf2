//! What an operator writes: a file of keys, and the rights in it. An operator may be mistaken, and a
//! file may come from elsewhere.
//!
//! Checked beside panics: a key or a secret has one text; rights have a text that means the same,
//! and joining them with what is more or less changes nothing. Absent: who may read the file.

use remap_ssd_nvme::auth::{HostKeys, Keys, Secret, TlsKey};
use remap_ssd_nvme::controller::Rights;

const HOST: &str = "nqn.2026-11.fuzz:host";
const TLS: &str = "NVMeTLSkey-1:01:ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8qDMNU:";
const TLS_LONG: &str =
    "NVMeTLSkey-1:02:ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8BI0VniavN7wEjRWeJq83vsm4Jtg==:";

/// A file of keys, read as each of the two kinds; every key that is read prints as it was.
pub fn keys(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let _ = Keys::parse(text);
    let _ = HostKeys::parse(text);

    for word in text.split_whitespace() {
        if let Ok(key) = TlsKey::parse(word) {
            assert_eq!(*key.reveal(), word, "a key has one text");
        }
        if let Ok(secret) = Secret::parse(word) {
            assert_eq!(*secret.reveal(), word, "a secret has one text");
        }
    }
}

/// What two hosts may do, a line each.
pub fn rights(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let parsed = text.lines().map(Rights::parse);
    let all: Vec<Rights> = parsed.filter_map(Result::ok).take(4).collect();
    all.iter().for_each(check);
    for (one, other) in all.iter().zip(all.iter().skip(1)) {
        check_joined(one, other);
    }
}

/// Rights have a text that means the same, but for none at all; none are added by halves.
fn check(rights: &Rights) {
    let text = rights.to_string();
    if text != "none" {
        let again = Rights::parse(&text).expect("its own text");
        for nsid in numbers(rights, &again) {
            assert_eq!(again.access(nsid), rights.access(nsid), "{text}: {nsid}");
        }
        assert_eq!(again.is_all(), rights.is_all(), "{text}");
    }
    assert_eq!(rights.and(rights), *rights);
    assert_eq!(rights.or(&Rights::NONE), *rights);
}

/// What both allow is the less of the two, and what either allows the more.
fn check_joined(one: &Rights, other: &Rights) {
    let (both, either) = (one.and(other), one.or(other));
    for nsid in numbers(one, other) {
        let (a, b) = (one.access(nsid), other.access(nsid));
        assert_eq!(both.access(nsid), a.min(b), "{one} and {other}: {nsid}");
        assert_eq!(either.access(nsid), a.max(b), "{one} or {other}: {nsid}");
    }
}

/// Namespaces that either has a word about, and some others.
fn numbers(one: &Rights, other: &Rights) -> Vec<u32> {
    let listed = one.listed().chain(other.listed());
    listed.chain([1, 2, 0xffff_fffd]).collect()
}

/// The corpus: files and rights that are in order.
pub fn make() -> Vec<(String, Vec<u8>)> {
    let secret = Secret::new(None, &[7; 32]).expect("long enough").reveal();
    let controller = Secret::new(None, &[9; 48]).expect("long enough").reveal();

    let tls = format!("# a host\n{HOST} {TLS_LONG} until=2027-06-30\n");
    let limited = format!("{HOST} {TLS} namespaces=all:ro,1:rw,27:ro\n");
    let both_ways = format!(
        "{HOST} {} controller={} hash=sha384 group=ffdhe3072\n",
        *secret, *controller
    );
    let host = format!("{TLS}\n{}\ncontroller={}\n", *secret, *controller);

    let text = |name: &str, text: &str| (name.to_owned(), text.as_bytes().to_vec());
    vec![
        text("keys/tls", &tls),
        text("keys/limited", &limited),
        text("keys/both-ways", &both_ways),
        text("keys/host", &host),
        text("rights/listed", "1:rw,2:ro\n2:rw,3:ro\n"),
        text("rights/others", "all:ro,1:rw,27:ro\nall:rw,4294967293:ro\n"),
    ]
}
