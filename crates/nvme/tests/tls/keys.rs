//! Keys, identities and their lines.

use super::*;

#[test]
fn keys_and_identities_are_those_of_nvme_cli_and_of_the_standard() {
    // `nvme check-tls-key --identity=1` of nvme-cli 2.13 prints the second identity of each key,
    // libnvme's. The others, and the TLS PSKs, were calculated by a short Python program.
    for (text, way, identity, psk) in [
        (
            KEY_256,
            Derivation::Libnvme,
            "NVMe1R01 nqn.2026-11.test:host nqn.2026-11.test:remap-ssd MydcBcbkEAA3ni44aLkJN9GkSjeB6N24+GQxgtTyR9k=",
            "f48a86d14496ce3fd828f3ff8f40f28713145354ddd6eff9295c2c23a6d33567",
        ),
        (
            KEY_256,
            Derivation::Standard,
            "NVMe1R01 nqn.2026-11.test:host nqn.2026-11.test:remap-ssd ur6F9zfS2MQxUBWWMA2XNpXMebBMoZm0clKy3O0Fizs=",
            "c386d178f87f1866589f9f5fd77c9ba5f96b3db6c634de9bd8655fb967f05d03",
        ),
        (
            KEY_384,
            Derivation::Libnvme,
            "NVMe1R02 nqn.2026-11.test:host nqn.2026-11.test:remap-ssd 8CjfBtEL0cipNXPmCCWIhGanWYV68zWG+S9LKHZgzL03MP8FI/wdZrNsvPcX6f3j",
            "80a9bd8e58798746195ada667dd06941eaabbf2a6d89339332e2878acb8accd942ec16661c76c4742ae566b128af1b1c",
        ),
        (
            KEY_384,
            Derivation::Standard,
            "NVMe1R02 nqn.2026-11.test:host nqn.2026-11.test:remap-ssd PYgxWpAvJYdeD9bIMGpG4gRu4BpGWG7xOeXl/hEYPjIDGg60n0RAgxsBMP5YyQso",
            "add0f06cc8ff72dc0ab50e61b7725add76d840b26b6f01c2506dbc313a379a459572a6183a86c022cd68b9ae5c44a826",
        ),
    ] {
        let key = TlsKey::parse(text).expect("as nvme-cli makes them");
        assert_eq!(*key.reveal(), text);
        let made = key.psk(HOST, NQN, way);
        let hex: String = made.key.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!((made.identity.as_str(), hex.as_str()), (identity, psk));
        let claim = Claim::parse(&made.identity).expect("as we make them");
        assert_eq!((claim.hostnqn, claim.subnqn), (HOST, NQN));
    }
}

#[test]
fn a_line_with_a_wrong_tls_key_is_refused_with_its_number_and_the_reason() {
    let secret = secret(1).reveal().to_string();
    let changed = |from: &str, to: &str| format!("nqn.a {}", KEY_256.replace(from, to));
    for (text, why) in [
        ("nqn.a".into(), "TLS key"),
        (changed("key-1", "key-2"), "NVMeTLSkey-1:00"),
        (changed(":01:", ":03:"), "NVMeTLSkey-1:00"),
        (changed(":01:", ":02:"), "32 bytes, which does not go"),
        (changed("ABEi", "ABEj"), "CRC is wrong"),
        (changed("ABEi", "A*Ei"), "base 64"),
        (format!("nqn.a {KEY_256} {KEY_384}"), "one TLS key"),
        (
            format!("nqn.a {KEY_256} hash=sha384"),
            "hash goes with a secret",
        ),
        (
            format!("nqn.a {KEY_256} group=null"),
            "group goes with a secret",
        ),
        (
            format!("nqn.a {KEY_256} controller={secret}"),
            "controller goes with a secret",
        ),
        (format!("nqn.a {KEY_256} until=soon"), "a date like"),
        (format!("nqn.a {KEY_256} read-only"), "only controller="),
    ] {
        match Keys::parse(&text) {
            Err(KeysError::Line { line: 1, why: said }) => {
                assert!(said.contains(why), "{text}: {said}");
                assert!(!said.contains("ABE"), "no key in {said}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
    for text in [
        format!("nqn.a {KEY_256} until=2027-02-28"),
        format!("nqn.a {KEY_384} {secret} hash=sha384"),
        format!("nqn.a {secret} {KEY_256} group=null"),
        format!("nqn.a {}", KEY_256.replace(":01:", ":00:")),
    ] {
        let keys = Keys::parse(&text).expect("a line in order");
        assert!(!format!("{keys:?}").contains("ABE"), "keys are not shown");
    }
}
