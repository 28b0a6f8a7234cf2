//! Hosts that a server admits, by their proofs, and their rights: keys, lists and rights, reloaded
//! by a signal.

use crate::kit::{SECRETS, file, private, run};
use crate::served::serve;

#[test]
fn who_is_refused_is_logged_with_its_name_and_the_reason() {
    let served = serve("--memory 32MiB --allow nqn.2026-11.test:friend");
    served.io("--hostnqn nqn.2026-11.test:friend id").ok();
    let stranger = "nqn.2026-11.test:stranger\n{\"forged\": true}";
    served
        .io(&["--hostnqn", stranger, "id"])
        .fails_in_one_line(1, &["not allowed"]);
    let messages: Vec<String> = served
        .logged("stranger")
        .iter()
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).expect("JSON, each line");
            let message = &line["fields"]["message"];
            message.as_str().unwrap_or_default().to_owned()
        })
        .collect();
    let refused = messages
        .iter()
        .find(|message| message.contains("stranger"))
        .expect("found");
    let name = r#"nqn.2026-11.test:stranger\n{\"forged\":\u{20}true}"#;
    assert!(
        refused.starts_with("refused: ") && refused.contains(name),
        "{refused}"
    );
    assert!(refused.ends_with("this host is not allowed"), "{refused}");
    let connected = |message: &String| message == "queue 1 connected by nqn.2026-11.test:friend";
    assert!(messages.iter().any(connected), "{messages:#?}");
    served.stop();
}

#[test]
fn keys_are_loaded_again_by_a_signal_and_drop_nobody() {
    let dir = tempfile::tempdir().expect("a folder");
    let [first, second, controller] = SECRETS;
    let name = "nqn.2026-11.test:friend";
    let keys = private(
        dir.path(),
        "keys",
        &format!("{name} {first} controller={controller}\n"),
    );
    let served = serve(&["--memory", "32MiB", "--keys", &keys]);
    let io = |secret: &str| served.io(&["--hostnqn", name, "--secret", secret, "id"]);
    let one = private(
        dir.path(),
        "one",
        &format!("{first} controller={controller}"),
    );
    let two = private(dir.path(), "two", second);
    io(&one).ok();
    served.logged("authenticated by sha256 and ffdhe2048, both ways");
    io(&two).fails_in_one_line(1, &["the secret is wrong"]);
    served.logged("its secret is wrong");
    served
        .io(&["--hostnqn", name, "id"])
        .fails_in_one_line(1, &["it has no secret"]);

    // An invalid file changes nothing.
    private(dir.path(), "keys", &format!("{name} {second}\nnonsense\n"));
    served.signal("HUP");
    served.logged("line 2: it begins with a host's NQN; what was loaded before stays in use");
    io(&one).ok();
    private(dir.path(), "keys", &format!("{name} {second}\n"));
    served.signal("HUP");
    served.logged("keys loaded again");
    io(&two).ok();
    io(&one).fails_in_one_line(1, &["authentication failed"]);
    served.stop();
}

/// Namespace 1 is writable, 2 read-only, and 3 invisible.
#[test]
fn a_host_uses_the_namespaces_of_its_line_and_a_signal_changes_them() {
    let dir = tempfile::tempdir().expect("a folder");
    let [first, second, _] = SECRETS;
    let (owner, guest) = ("nqn.2026-11.test:owner", "nqn.2026-11.test:guest");
    let lines = |rights: &str| format!("{owner} {first}\n{guest} {second} {rights}\n");
    let keys = private(dir.path(), "keys", &lines("namespaces=1:rw,2:ro,9:rw"));
    let served = serve(&["--memory", "32MiB", "--namespaces", "3", "--keys", &keys]);
    let unknown = "there is no namespace 9";
    assert!(
        served.opening.iter().any(|line| line.contains(unknown)),
        "{:?}",
        served.opening
    );

    let [one, two] =
        [("one", first), ("two", second)].map(|(name, key)| private(dir.path(), name, key));
    let page = file(dir.path(), "page", &[7; 4096]);
    let as_host = |name, key: &str, nsid: &str, verb: &[&str]| {
        served.io(&[&["--hostnqn", name, "--secret", key, "--nsid", nsid], verb].concat())
    };
    let write = ["write", "--lba", "0", "--file", &page];
    as_host(owner, &one, "3", &write).ok();
    as_host(guest, &two, "1", &write).ok();
    as_host(guest, &two, "2", &write).fails_in_one_line(1, &["0x020", "read-only"]);
    as_host(guest, &two, "2", &["id"]).ok();
    as_host(guest, &two, "3", &["id"]).fails_in_one_line(1, &["0x00b", "invalid namespace"]);
    as_host(guest, &two, "1", &["stat"]).fails_in_one_line(1, &["0x015", "lacks the rights"]);

    private(dir.path(), "keys", &lines("namespaces=3:rw"));
    served.signal("HUP");
    served.logged("keys loaded again");
    as_host(guest, &two, "3", &write).ok();
    as_host(guest, &two, "1", &["id"]).fails_in_one_line(1, &["0x00b"]);

    private(dir.path(), "keys", &lines("namespaces=1:all"));
    served.signal("HUP");
    served
        .logged("line 2: namespaces: a list like 1:rw,2:ro, or all:ro and what differs; what was");
    as_host(guest, &two, "3", &write).ok();
    served.stop();
}

#[test]
fn a_list_of_hosts_says_what_each_may_and_its_names_are_looked_up_again() {
    let (owner, guest) = ("nqn.2026-11.test:owner", "nqn.2026-11.test:guest");
    let rights = format!("{guest} namespaces=all:ro");
    let served = serve(&["--memory", "32MiB", "--allow", owner, "--allow", &rights]);
    let dir = tempfile::tempdir().expect("a folder");
    let page = file(dir.path(), "page", &[7; 4096]);
    let write = |name| served.io(&["--hostnqn", name, "write", "--lba", "0", "--file", &page]);
    write(owner).ok();
    write(guest).fails_in_one_line(1, &["0x020"]);
    served.signal("HUP");
    served.logged("list of hosts looked up again");
    write(owner).ok();
    served.stop();

    // A name that the machine can resolve stands for its addresses.
    let served = serve(&["--memory", "32MiB", "--allow", "localhost namespaces=1:ro"]);
    served.io("id").ok();
    served
        .io(&["write", "--lba", "0", "--file", &page])
        .fails_in_one_line(1, &["0x020"]);
    served.stop();
}

#[cfg(not(feature = "tls"))]
#[test]
fn a_program_built_without_tls_refuses_its_keys_and_says_how_to_have_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let key = "NVMeTLSkey-1:01:ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8qDMNU:";
    let keys = private(dir.path(), "keys", &format!("nqn.2026-11.test:one {key}\n"));
    let hint = "cargo install --path crates/cli --features tls";
    run(&["serve", "--memory", "32MiB", "--keys", &keys])
        .fails_in_one_line(1, &["line 1", hint, "libssl-dev"]);
    run("bench --service --quick --memory --tls").fails_in_one_line(2, &[hint]);

    // A file without TLS keys is accepted, and a TLS key added later is refused without harm.
    let [secret, ..] = SECRETS;
    let chap = format!("nqn.2026-11.test:one {secret}\n");
    let keys = private(dir.path(), "keys", &chap);
    let served = serve(&["--memory", "32MiB", "--keys", &keys]);
    private(
        dir.path(),
        "keys",
        &format!("{chap}nqn.2026-11.test:two {key}\n"),
    );
    served.signal("HUP");
    served.logged("what was loaded before stays in use");
    let one = private(dir.path(), "one", secret);
    served
        .io(&["--hostnqn", "nqn.2026-11.test:one", "--secret", &one, "id"])
        .ok();
    let tls = private(dir.path(), "tls", key);
    served
        .io(&["--hostnqn", "nqn.2026-11.test:two", "--secret", &tls, "id"])
        .fails_in_one_line(1, &[hint]);
    served.stop();
}

#[cfg(feature = "tls")]
#[test]
fn a_host_connects_by_tls_with_a_key_from_a_file_and_no_other_way() {
    let dir = tempfile::tempdir().expect("a folder");
    let name = "nqn.2026-11.test:friend";
    // As generated by `nvme gen-tls-key`.
    let key = "NVMeTLSkey-1:01:ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8qDMNU:";
    let other = "NVMeTLSkey-1:01:yUPYcFaxCTEy8NO9khsuaBgdHNUNTZ68tJg//hcz6kv4Mod7:";

    let keys = private(dir.path(), "keys", &format!("{name} {key}\n"));
    let served = serve(&["--memory", "32MiB", "--keys", &keys]);
    let io = |secret: &str| served.io(&["--hostnqn", name, "--secret", secret, "id"]);
    let right = private(dir.path(), "right", key);
    let wrong = private(dir.path(), "wrong", other);
    io(&right).ok();
    served.logged("over TLS_AES_128_GCM_SHA256");
    io(&wrong).fails_in_one_line(1, &["refused the TLS handshake", "another key"]);
    served
        .io(&["--hostnqn", name, "id"])
        .fails_in_one_line(1, &["not allowed"]);
    served.logged("has connected without TLS");
    let beside = private(
        dir.path(),
        "beside",
        &format!("{key} controller={}", SECRETS[0]),
    );
    io(&beside).fails_in_one_line(1, &["line 1", "goes with a secret"]);

    private(dir.path(), "keys", &format!("{name} {other}\n"));
    served.signal("HUP");
    served.logged("keys loaded again");
    io(&wrong).ok();
    io(&right).fails_in_one_line(1, &["refused the TLS handshake"]);
    served.stop();
}

#[test]
fn files_with_secrets_that_others_can_read_are_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let open = file(dir.path(), "keys", b"nqn.a x");
    run(&["serve", "--memory", "32MiB", "--keys", &open])
        .fails_in_one_line(1, &[&open, "chmod 600"]);
    run(&["io", "--connect", "127.0.0.1:1", "--secret", &open, "id"])
        .fails_in_one_line(1, &[&open, "chmod 600"]);
    let wrong = private(dir.path(), "wrong", "nqn.a DHHC-1:01:x:");
    run(&["serve", "--memory", "32MiB", "--keys", &wrong])
        .fails_in_one_line(1, &[&wrong, "line 1", "base 64"]);
    run(&["serve", "--memory", "32MiB", "--keys", &wrong, "--insecure"])
        .fails(2, &["cannot be used with"]);
}
