//! Persistent reservations, across a killed server; and an operator who ends them.

use crate::kit::run;
use crate::served::serve_http;
use remap_ssd_nvme::spec::command::Sqe;
use remap_ssd_nvme::spec::opcode::io;
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_nvme::tcp::client::{Call, Client, Options, entry};
use serde_json::{Value, json};

fn host(address: &str, name: &str) -> Client {
    let options = Options {
        hostnqn: format!("nqn.2026-11.test:{name}"),
        ..Options::default()
    };
    Client::connect(address, options).expect("it connects")
}

/// A reservation command with its current key and another one.
fn ask(client: &mut Client, opcode: u8, cdw10: u32, keys: [u64; 2]) -> Status {
    let send = keys.map(u64::to_le_bytes).concat();
    let sqe = Sqe {
        cdw10,
        ..entry(opcode, 1)
    };
    let call = Call::sending(sqe, &send);
    let answers = client.queue(|queue| queue.calls(&[call]));
    answers.expect("connected")[0].status
}

#[test]
fn a_reservation_that_persists_outlives_a_server_that_is_killed_until_an_operator_ends_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("disk");
    let image = folder.to_str().expect("text");
    run(&["image", "create", image, "--size", "32MiB"]).ok();

    let served = serve_http(&["--image", image]);
    let mut owner = host(&served.nvme, "owner");
    let persist = 3 << 30;
    let registered = ask(&mut owner, io::RESERVATION_REGISTER, persist, [0, 7]);
    assert_eq!(registered, Status::SUCCESS);
    let acquired = ask(&mut owner, io::RESERVATION_ACQUIRE, 1 << 8, [7, 0]);
    assert_eq!(acquired, Status::SUCCESS);
    // Killed at the end of this block: nothing is closed.
    drop((owner, served));

    let served = serve_http(&["--image", image]);
    let mut other = host(&served.nvme, "other");
    assert!(other.write(0, &[1; 4096]).is_err());
    other.read(0, 1).expect("writes alone are excluded");
    host(&served.nvme, "owner")
        .write(0, &[2; 4096])
        .expect("it still holds it");

    let expected = json!({
        "type": "write-exclusive",
        "holder": "nqn.2026-11.test:owner",
        "registered": ["nqn.2026-11.test:owner"],
        "persists": true,
    });
    let namespaces = served.ctl("namespaces").ok().json();
    assert_eq!(namespaces[0]["reservation"], expected);

    // A copy is like the state after a power cut: it excludes the same hosts as the device.
    let copy = dir.path().join("copy");
    let copy = copy.to_str().expect("text");
    served.ctl(&["snapshot", copy]).ok();
    run(&["image", "adopt", copy]).ok();
    let restored = serve_http(&["--image", copy]);
    let refused = host(&restored.nvme, "other").write(0, &[1; 4096]);
    refused.expect_err("the owner holds it there too");
    restored.stop();

    served
        .ctl("release 9")
        .fails_in_one_line(1, &["no namespace 9"]);
    let released = served.ctl("release 1").ok().json();
    assert_eq!(released, json!({ "hosts_unregistered": 1 }));
    other.write(0, &[1; 4096]).expect("it is free");
    let namespaces = served.ctl("namespaces").ok().json();
    assert_eq!(namespaces[0]["reservation"], Value::Null);
    drop(other);
    served.stop();

    // A damaged file does not admit excluded hosts.
    let file = folder.join("reservations.json");
    let text = std::fs::read_to_string(&file).expect("it was kept");
    std::fs::write(&file, text.replace("true", "false")).expect("room");
    let start = ["serve", "--image", image, "--listen", "127.0.0.1:0"];
    run(&start).fails_in_one_line(1, &["image repair"]);

    // Neither does a missing one.
    std::fs::remove_file(&file).expect("it is there");
    run(&start).fails_in_one_line(1, &["it is missing"]);
    assert_eq!(run(&["image", "check", image]).code, 1);
    run(&["image", "repair", image, "--accept-loss"]).ok();
    serve_http(&["--image", image]).stop();
}
