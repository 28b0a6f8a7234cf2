//! What hosts can send to authenticate.
//!
//! ```text
//! auth     line (1 byte: bits 0 and 1 the hash, bit 2 the controller has a secret, bit 3 a group of 2048 bits) | frames
//! frame    bytes (2) | the payload of an Authentication Send, then an Authentication Receive
//! ```
//! The same bytes are what a target answers a host. Checked beside panics: answers are bounded, an
//! exchange that failed is over after its failure, and no host is proven that does not know the
//! secret. Absent: commands and connections (`nvme::session`).

use remap_ssd_nvme::auth::{
    Asker, Credentials, Exchange, HostExchange, Keyring, Keys, MESSAGE_BYTES_MAX, Secret, Step,
    parse,
};
use std::sync::Arc;

const HOST: &str = "nqn.2026-11.fuzz:host";
const SECRET: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
const CONTROLLER: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

fn keyring(which: u8) -> Arc<Keyring> {
    let hash = ["sha256", "sha384", "sha512", "sha256"][usize::from(which & 3)];
    let controller = match which & 4 {
        0 => String::new(),
        _ => format!("controller={CONTROLLER}"),
    };
    // Larger groups cost time and have no other code.
    let group = if which & 8 == 0 { "null" } else { "ffdhe2048" };
    let line = format!("{HOST} {SECRET} {controller} hash={hash} group={group}");
    Arc::new(Keyring::new(Keys::parse(&line).expect("a line in order")))
}

/// What a target answers to a host of ours that wants a proof.
fn answers(frames: &[u8]) {
    let secret = |text| Secret::parse(text).expect("in order");
    let known = Credentials {
        host: secret(SECRET),
        controller: Some(secret(CONTROLLER)),
    };
    let mut host = HostExchange::new(&known, HOST, crate::nvme::NQN);

    // The transaction is the host's own, which a target would repeat.
    let t_id = host.negotiate()[4..6].to_vec();
    for payload in frames.chunks(700) {
        let mut payload = payload.to_vec();
        if payload.len() > 6 {
            payload[4..6].copy_from_slice(&t_id);
        }
        let step = host.receive(&payload);
        assert!(
            !matches!(step, Ok(Step::Done | Step::Last(_))),
            "the controller's secret is unknown here"
        );
    }
}

/// Authentication payloads of one queue, in frames: two bytes of length each. The first byte
/// chooses the keys.
pub fn auth(bytes: &[u8]) {
    let Some((which, mut frames)) = bytes.split_first() else {
        return;
    };
    answers(frames);
    let mut exchange = Exchange::new(keyring(*which), HOST, crate::nvme::NQN);
    let asker = Asker {
        address: [127, 0, 0, 1].into(),
        has_ended: &|| false,
    };
    while let Some(([low, high], rest)) = frames.split_first_chunk::<2>() {
        let len = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        let (payload, rest) = rest.split_at(len);
        frames = rest;

        let _ = parse(payload);
        exchange.receive(payload, &asker);
        let answer = exchange.send(4096);
        assert!(answer.is_none_or(|answer| answer.len() <= MESSAGE_BYTES_MAX));
        assert!(exchange.proof().is_none(), "the secret is unknown here");
        if exchange.failed().is_some() {
            assert!(exchange.is_over() && exchange.send(4096).is_none());
            break;
        }
    }
}

/// The corpus: what a well-behaved host sends, but for the response, which needs the secret.
pub fn make() -> Vec<(String, Vec<u8>)> {
    let mut negotiate = vec![0, 0, 0, 0, 7, 0, 0, 1];
    let mut descriptor = [0; 64];
    descriptor[..7].copy_from_slice(&[1, 0, 3, 6, 1, 2, 3]);
    descriptor[34..40].copy_from_slice(&[0, 1, 2, 3, 4, 5]);
    negotiate.extend(descriptor);

    let reply = |hash_len: u8, challenges: u8, dh_len: u16| {
        let [low, high] = dh_len.to_le_bytes();
        let mut reply = vec![
            1, 2, 0, 0, 7, 0, hash_len, 0, challenges, 0, low, high, 1, 0, 0, 0,
        ];
        reply.resize(16 + 2 * usize::from(hash_len) + usize::from(dh_len), 5);
        reply
    };
    let mut success2 = vec![1, 4, 0, 0, 7, 0];
    success2.resize(16, 0);
    let failure2 = vec![0, 0xf0, 0, 0, 7, 0, 1, 1];

    let frames = |which: u8, payloads: &[&[u8]]| {
        let mut bytes = vec![which];
        for payload in payloads {
            bytes.extend((payload.len() as u16).to_le_bytes());
            bytes.extend(*payload);
        }
        bytes
    };
    // Of a target without a group, and its Success1: what a host gets.
    let mut challenge = vec![1, 1, 0, 0, 7, 0, 32, 0, 1, 0, 0, 0, 9, 0, 0, 0];
    challenge.resize(700, 3);
    challenge.extend([1, 3, 0, 0, 7, 0, 32, 0, 1]);
    challenge.resize(1400, 0);
    vec![
        ("auth/answers".into(), [vec![0], challenge].concat()),
        (
            "auth/null".into(),
            frames(0, &[&negotiate, &reply(32, 0, 0)]),
        ),
        (
            "auth/both-ways".into(),
            frames(5, &[&negotiate, &reply(48, 1, 0), &success2]),
        ),
        (
            "auth/group".into(),
            frames(8, &[&negotiate, &reply(32, 0, 256)]),
        ),
        ("auth/given-up".into(), frames(2, &[&negotiate, &failure2])),
    ]
}
