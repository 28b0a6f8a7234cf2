//! `image`, `serve` and `io` as a user has them: processes, ports and files.

use crate::kit::{Ran, run};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub struct Served {
    child: Child,
    address: String,
    /// What it has said since it serves.
    said: Arc<Mutex<Vec<String>>>,
    /// What it said before.
    pub opening: Vec<String>,
}

/// Starts a server on a free port and waits until it says that it serves.
pub fn serve(args: &[&str]) -> Served {
    let mut child = Command::new(env!("CARGO_BIN_EXE_remap-ssd"))
        .arg("serve")
        .args(args)
        .args(["--listen", "127.0.0.1:0", "--json-log"])
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let mut opening = Vec::new();
    let address = lines
        .by_ref()
        .map_while(Result::ok)
        .inspect(|line| opening.push(line.clone()))
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(&line).ok())
        .find_map(|line| Some(line["fields"]["address"].as_str()?.to_owned()));
    let address = address.unwrap_or_else(|| panic!("it does not serve: {}", opening.join("\n")));
    let said = Arc::new(Mutex::new(Vec::new()));
    let to = said.clone();
    // Somebody must read what it says.
    std::thread::spawn(move || {
        lines
            .map_while(Result::ok)
            .for_each(|line| to.lock().expect("whole").push(line))
    });
    Served {
        child,
        address,
        said,
        opening,
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // A test that has failed leaves nobody behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Served {
    pub fn address(&self) -> &str {
        &self.address
    }
    pub fn io(&self, args: &[&str]) -> Ran {
        run(&[&["io", "--connect", &self.address], args].concat())
    }
    pub fn stat(&self, name: &str) -> u64 {
        let value = self.io(&["stat", "--json"]).ok().json();
        value[name]
            .as_u64()
            .unwrap_or_else(|| panic!("no {name} in {value}"))
    }
    pub fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }
    /// SIGTERM; it must end well.
    pub fn stop(self) {
        self.stop_with("TERM");
    }
    /// A signal that ends it; it must end well.
    pub fn stop_with(mut self, signal: &str) {
        self.signal(signal);
        assert!(
            self.child.wait().expect("it ends").success(),
            "SIG{signal}: {:?}",
            self.said.lock()
        );
    }
    pub fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill")
            .args([&format!("-{signal}"), &pid])
            .status();
        assert!(sent.expect("kill").success());
    }
    /// Waits until it says something.
    pub fn says(&self, word: &str) {
        let said = || {
            self.said
                .lock()
                .expect("whole")
                .iter()
                .any(|line| line.contains(word))
        };
        let waited = (0..500).find(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            said()
        });
        assert!(
            waited.is_some(),
            "it never said `{word}`: {:?}",
            self.said.lock()
        );
    }
}

fn file(dir: &Path, name: &str, bytes: &[u8]) -> String {
    let path = dir.join(name);
    std::fs::write(&path, bytes).expect("room for it");
    path.to_str().expect("text").to_owned()
}

#[test]
fn a_device_in_a_folder_serves_copies_without_programs_and_survives_the_end_of_its_server() {
    let dir = tempfile::tempdir().expect("a folder");
    let image = dir.path().join("disk");
    let image = image.to_str().expect("text");
    let made = run(&[
        "image", "create", image, "--size", "64MiB", "--dedup", "off", "--json",
    ])
    .ok()
    .json();
    assert_eq!(made["dedup"], false);
    run(&["image", "create", image, "--size", "64MiB"]).fails_in_one_line(1, &["not empty"]);
    let data: Vec<u8> = (0..300 * 4096u32)
        .map(|byte| (byte / 4096 + byte) as u8)
        .collect();
    let (source, back) = (
        file(dir.path(), "data", &data),
        file(dir.path(), "back", b""),
    );
    let served = serve(&["--image", image]);
    run(&["serve", "--image", image, "--listen", "127.0.0.1:0"]).fails_in_one_line(1, &["in use"]);
    served.io(&["write", "--lba", "10", "--file", &source]).ok();
    let before = served.stat("flash_pages");
    served
        .io(&["copy", "--from", "10", "--to", "5000", "--blocks", "300"])
        .ok();
    served
        .io(&[
            "remap",
            "--from",
            "5000",
            "--to",
            "9000",
            "--blocks",
            "300",
            "--relocate",
            "--atomic",
        ])
        .fails(1, &["atomic"]);
    let relocated = served
        .io(&[
            "remap",
            "--from",
            "5000",
            "--to",
            "9000",
            "--blocks",
            "200",
            "--relocate",
        ])
        .ok();
    assert_eq!(relocated.out, "0 pages copied instead\n");
    assert_eq!(served.stat("flash_pages"), before, "nothing was programmed");

    let onto = |target: u32| {
        let target = target.to_string();
        let args = ["remap", "--from", "10", "--to", &target];
        served.io(&args).ok().out
    };
    let said: Vec<String> = (12_000..12_014).map(onto).collect();
    assert_eq!(
        said.last().map(String::as_str),
        Some("1 page copied instead: reference counter full\n")
    );
    served.kill();
    let served = serve(&["--image", image]);
    let read = |lba: &str, blocks: &str| {
        served
            .io(&["read", "--lba", lba, "--blocks", blocks, "--file", &back])
            .ok();
        std::fs::read(&back).expect("written")
    };
    assert!(read("10", "300") == data);
    assert!(read("9000", "200") == data[..200 * 4096]);
    assert!(
        read("5000", "200").iter().all(|byte| *byte == 0),
        "relocated"
    );
    assert!(read("5200", "100") == data[200 * 4096..]);
    served.io(&["trim", "--lba", "10", "--blocks", "300"]).ok();
    served.io(&["flush"]).ok();
    assert!(read("10", "300").iter().all(|byte| *byte == 0));
    served
        .io(&["read", "--lba", "16384"])
        .fails_in_one_line(1, &["out of range"]);
    // Two Copies of 16 MiB, which is the limit, and another of a page.
    assert_eq!(
        served.io(&["id", "--json"]).ok().json()["copy_blocks_max"],
        4096
    );
    let long: Vec<u8> = (0..8193 * 1024u32)
        .flat_map(|number| (number / 1000).to_le_bytes())
        .collect();
    let written = file(dir.path(), "long", &long);
    served.io(&["write", "--lba", "0", "--file", &written]).ok();
    let before = served.stat("flash_pages");
    served
        .io(&["copy", "--from", "0", "--to", "8191", "--blocks", "8193"])
        .ok();
    assert_eq!(served.stat("flash_pages"), before, "nothing was programmed");
    assert!(read("8191", "8193") == long, "over two pages of the source");
    served.io(&["trim", "--lba", "0", "--blocks", "16384"]).ok();
    let smart = served.io(&["stat", "--json"]).ok().json();
    assert_eq!(
        (
            &smart["smart"]["power_cycles"],
            &smart["smart"]["unsafe_shutdowns"]
        ),
        (&2.into(), &1.into())
    );
    served.stop();
    run(&["inspect", image, "--json"]).ok().json();
    let served = serve(&["--image", image]);
    assert_eq!(served.stat("remaps"), 0, "counters are since power-on");
    served.stop();
}

#[test]
fn who_is_refused_is_logged_with_its_name_and_the_reason() {
    let served = serve(&["--memory", "32MiB", "--allow", "nqn.2026-11.test:friend"]);
    served
        .io(&["--hostnqn", "nqn.2026-11.test:friend", "id"])
        .ok();
    let stranger = "nqn.2026-11.test:stranger\n{\"forged\": true}";
    served
        .io(&["--hostnqn", stranger, "id"])
        .fails_in_one_line(1, &["not allowed"]);
    let until = Instant::now() + Duration::from_secs(10);
    let messages = loop {
        let lines = served.said.lock().expect("nothing fails here").clone();
        let parsed = lines
            .iter()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON, each line"));
        let messages: Vec<String> = parsed
            .map(|line| {
                line["fields"]["message"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            })
            .collect();
        if messages.iter().any(|message| message.contains("stranger")) {
            break messages;
        }
        assert!(Instant::now() < until, "{messages:#?}");
        std::thread::sleep(Duration::from_millis(20));
    };
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
    let ended =
        |message: &String| message.starts_with("discovery 0 of nqn.2026-11.test:friend ended");
    assert!(messages.iter().any(ended), "{messages:#?}");
    served.stop();
}

/// Secrets as `nvme gen-dhchap-key` makes them.
const SECRETS: [&str; 3] = [
    "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
    "DHHC-1:00:AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyAl7OaH:",
    "DHHC-1:01:CQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJyg+WyJc:",
];

/// A file of mode 600.
fn private(dir: &Path, name: &str, text: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = file(dir, name, text.as_bytes());
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&path, mode).expect("it is ours");
    path
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
    served.says("authenticated by sha256 and ffdhe2048, both ways");
    io(&two).fails_in_one_line(1, &["the secret is wrong"]);
    served.says("its secret is wrong");
    served
        .io(&["--hostnqn", name, "id"])
        .fails_in_one_line(1, &["it has no secret"]);

    // What is not in order changes nothing.
    private(dir.path(), "keys", &format!("{name} {second}\nnonsense\n"));
    served.signal("HUP");
    served.says("line 2: it begins with a host's NQN; what was loaded before stays in use");
    io(&one).ok();
    private(dir.path(), "keys", &format!("{name} {second}\n"));
    served.signal("HUP");
    served.says("keys loaded again");
    io(&two).ok();
    io(&one).fails_in_one_line(1, &["authentication failed"]);
    served.stop();
}

/// Namespace 1 to write, 2 to read, and 3 not to see.
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
    served.says("keys loaded again");
    as_host(guest, &two, "3", &write).ok();
    as_host(guest, &two, "1", &["id"]).fails_in_one_line(1, &["0x00b"]);

    private(dir.path(), "keys", &lines("namespaces=1:all"));
    served.signal("HUP");
    served.says("line 2: namespaces: a list like 1:rw,2:ro, or all:ro and what differs; what was");
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
    served.says("list of hosts looked up again");
    write(owner).ok();
    served.stop();

    // A name that the machine has addresses for is a list of these.
    let served = serve(&["--memory", "32MiB", "--allow", "localhost namespaces=1:ro"]);
    served.io(&["id"]).ok();
    served
        .io(&["write", "--lba", "0", "--file", &page])
        .fails_in_one_line(1, &["0x020"]);
    served.stop();
}

#[test]
fn a_name_to_listen_on_is_all_its_addresses() {
    use std::net::{TcpListener, ToSocketAddrs};
    let found = "localhost:0".to_socket_addrs().expect("it has an address");
    let mut addresses: Vec<_> = found.map(|one| one.ip()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    // Those that this machine can listen on at all.
    if addresses
        .iter()
        .any(|one| TcpListener::bind((*one, 0)).is_err())
    {
        addresses.retain(std::net::IpAddr::is_ipv4);
        eprintln!("this machine has no IPv6: one address is tried");
    }

    let name = if addresses.len() > 1 {
        "localhost:0"
    } else {
        "127.0.0.1:0"
    };
    let served = serve(&[
        "--memory",
        "32MiB",
        "--listen",
        name,
        "--listen",
        "127.0.0.2:0",
    ]);
    served.says("127.0.0.2:");
    let said = served.said.lock().expect("whole").clone();
    let listening: Vec<String> = served
        .opening
        .iter()
        .chain(&said)
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|line| Some(line["fields"]["address"].as_str()?.to_owned()))
        .collect();
    // `serve` adds one of its own behind.
    for address in addresses
        .iter()
        .map(ToString::to_string)
        .chain(["127.0.0.2".into()])
    {
        let at = listening
            .iter()
            .find(|one| one.trim_start_matches('[').starts_with(&address));
        let at = at.unwrap_or_else(|| panic!("{address} in {listening:?}"));
        run(&["io", "--connect", at, "id"]).ok();
    }
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
    run(&["bench", "--service", "--quick", "--memory", "--tls"]).fails_in_one_line(2, &[hint]);

    // What has no key for TLS is served, and what is added later is refused without harm.
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
    served.says("the keys from before stay in use");
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
    // As `nvme gen-tls-key` has made them.
    let key = "NVMeTLSkey-1:01:ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8qDMNU:";
    let other = "NVMeTLSkey-1:01:yUPYcFaxCTEy8NO9khsuaBgdHNUNTZ68tJg//hcz6kv4Mod7:";

    let keys = private(dir.path(), "keys", &format!("{name} {key}\n"));
    let served = serve(&["--memory", "32MiB", "--keys", &keys]);
    let io = |secret: &str| served.io(&["--hostnqn", name, "--secret", secret, "id"]);
    let right = private(dir.path(), "right", key);
    let wrong = private(dir.path(), "wrong", other);
    io(&right).ok();
    served.says("over TLS_AES_128_GCM_SHA256");
    io(&wrong).fails_in_one_line(1, &["refused the TLS handshake", "another key"]);
    served
        .io(&["--hostnqn", name, "id"])
        .fails_in_one_line(1, &["not allowed"]);
    served.says("has connected without TLS");
    let beside = private(
        dir.path(),
        "beside",
        &format!("{key} controller={}", SECRETS[0]),
    );
    io(&beside).fails_in_one_line(1, &["line 1", "goes with a secret"]);

    private(dir.path(), "keys", &format!("{name} {other}\n"));
    served.signal("HUP");
    served.says("keys loaded again");
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

#[test]
fn mistakes_in_service_are_sentences() {
    run(&["serve"]).fails(2, &["--image"]);
    run(&["serve", "--memory", "32MiB", "--listen", "0.0.0.0:4420"])
        .fails_in_one_line(2, &["--keys", "--insecure"]);
    run(&[
        "serve",
        "--memory",
        "32MiB",
        "--listen",
        "0.0.0.0:4420",
        "--insecure",
    ])
    .fails_in_one_line(2, &["--allow"]);
    for host in ["192.168.1.7/24", "no*such*host", ""] {
        run(&["serve", "--memory", "32MiB", "--allow", host]).fails_in_one_line(2, &["no network"]);
    }
    // Of several addresses one that others can reach is enough.
    let both = ["--listen", "127.0.0.1:0", "--listen", "0.0.0.0:0"];
    run(&[&["serve", "--memory", "32MiB"], &both[..]].concat())
        .fails_in_one_line(2, &["0.0.0.0:0 can be reached", "--keys"]);
    for (host, why) in [
        ("nqn.a until=2027-06-30", "comes only namespaces="),
        ("nqn.a namespaces=1", "namespaces: a list like 1:rw,2:ro"),
        ("nqn.a namespaces=1:rw namespaces=2:rw", "comes only"),
    ] {
        run(&["serve", "--memory", "32MiB", "--allow", host]).fails_in_one_line(2, &[why, host]);
    }
    for (flag, value) in [
        ("--listen", "disk1.invalid:0"),
        ("--allow", "disk1.invalid"),
    ] {
        run(&["serve", "--memory", "32MiB", flag, value])
            .fails_in_one_line(2, &[&format!("{flag} disk1.invalid: "), "name"]);
    }
    for wrong in [
        "127.0.0.1",
        "::1:4420",
        "disk:",
        "disk:70000",
        "a b:1",
        ":1",
    ] {
        run(&["serve", "--memory", "32MiB", "--listen", wrong])
            .fails(2, &["[2001:db8::1]:4420, or a name and a port"]);
    }
    run(&[
        "serve",
        "--memory",
        "32MiB",
        "--listen",
        "192.0.2.1:0",
        "--allow",
        "nqn.a",
        "--insecure",
    ])
    .fails_in_one_line(1, &["192.0.2.1:0: ", "no address of this machine"]);
    run(&["io", "--connect", "127.0.0.1:1", "id"]).fails_in_one_line(1, &["127.0.0.1:1"]);
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().to_str().expect("text");
    run(&["serve", "--image", path]).fails_in_one_line(1, &["not a device image"]);
    let small = dir.path().join("x");
    run(&[
        "image", "create", path, "--size", "16MiB", "--dedup", "perhaps",
    ])
    .fails(2, &["on or off"]);
    run(&["serve", "--memory", "32MiB", "--advertise", "here"])
        .fails(2, &["an address, or an address and a port"]);
    run(&[
        "image",
        "create",
        small.to_str().expect("text"),
        "--size",
        "1MiB",
    ])
    .fails_in_one_line(2, &["16 MiB"]);
    let file = file(dir.path(), "file", b"not a socket");
    run(&["serve", "--memory", "32MiB", "--vfio-user", &file])
        .fails_in_one_line(1, &[&file, "not a socket"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound").to_string();
    run(&["serve", "--memory", "32MiB", "--listen", &address])
        .fails_in_one_line(1, &["in use", "--listen"]);
}
