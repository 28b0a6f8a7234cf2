//! Rights of hosts as operators see and change them, while the hosts are connected.

use crate::kit::{SECRETS, private};
use crate::served::serve_http;
use remap_ssd_nvme::auth::HostKeys;
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_nvme::tcp::client::{Client, ClientError, Options};
use serde_json::Value;
use std::path::Path;

const OWNER: &str = "nqn.2026-11.test:owner";
const GUEST: &str = "nqn.2026-11.test:guest";

/// Writes the file of keys, with the guest's rights; returns its path.
fn write_keys(dir: &Path, rights: &str) -> String {
    let [owner, guest, _] = SECRETS;
    private(
        dir,
        "keys",
        &format!("{OWNER} {owner}\n{GUEST} {guest} {rights}\n"),
    )
}

fn client(address: &str, name: &str, secret: &str) -> Client {
    let options = Options {
        hostnqn: name.into(),
        nsid: 2,
        ..Options::default()
    };
    let keys = HostKeys::parse(secret).expect("a secret");
    Client::connect(address, options.with_keys(keys)).expect("it may connect")
}

fn write(client: &mut Client) -> Option<Status> {
    match client.write(0, &[7; 4096]) {
        Ok(()) => None,
        Err(ClientError::Status { status, .. }) => Some(status),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn rights_are_shown_and_changed_while_a_host_is_connected() {
    let dir = tempfile::tempdir().expect("a folder");
    let keys = write_keys(dir.path(), "namespaces=1:rw,2:ro");
    let served = serve_http(&["--memory", "32MiB", "--namespaces", "3", "--keys", &keys]);
    let mut guest = client(&served.nvme, GUEST, SECRETS[1]);
    let mut owner = client(&served.nvme, OWNER, SECRETS[0]);
    assert_eq!(write(&mut owner), None);
    assert_eq!(write(&mut guest), Some(Status::WRITE_PROTECTED));

    // Each host's rights, and denied commands: JSON, `ctl hosts`, metrics.
    let of = |hosts: &Value, name: &str, field: &str| {
        let all = hosts.as_array().expect("a list").iter();
        let mut found = all.filter(|host| host["hostnqn"] == name && host["queue"] == 0);
        found.next().expect("it is connected")[field].clone()
    };
    for hosts in [served.json("/api/hosts"), served.ctl("hosts").ok().json()] {
        assert_eq!(of(&hosts, OWNER, "rights"), "all:rw");
        assert_eq!(of(&hosts, GUEST, "rights"), "1:rw,2:ro");
        assert_eq!(of(&hosts, OWNER, "denied"), 0);
        assert_eq!(of(&hosts, GUEST, "denied"), 1);
    }
    let metrics = served.get("/metrics").1;
    for line in [
        format!("remap_ssd_host_namespaces{{host=\"{OWNER}\",access=\"rw\"}} 3"),
        format!("remap_ssd_host_namespaces{{host=\"{GUEST}\",access=\"rw\"}} 1"),
        format!("remap_ssd_host_namespaces{{host=\"{GUEST}\",access=\"ro\"}} 1"),
        "remap_ssd_commands_denied_total 1".into(),
    ] {
        assert!(
            metrics.lines().any(|one| one == line),
            "{line} in {metrics}"
        );
    }

    // A connected host gets other rights without a new connection.
    let before = served.connections(GUEST);
    write_keys(dir.path(), "namespaces=2:rw");
    served.signal("HUP");
    let waited = (0..500).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        of(&served.json("/api/hosts"), GUEST, "rights") == "2:rw"
    });
    assert!(waited, "{}", served.json("/api/hosts"));
    assert_eq!(write(&mut guest), None);
    assert_eq!(served.connections(GUEST), before);

    drop((owner, guest));
    served.stop();
}
