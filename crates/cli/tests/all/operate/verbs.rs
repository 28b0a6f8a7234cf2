//! The verbs: each takes effect on a served device and reports it.

use crate::kit::{file, run, run_with};
use crate::served::{serve_http, serve_openly};
use remap_ssd_nvme::tcp::client::{Client, Options};
use serde_json::json;

const FIRST: &str = "nqn.2026-11.test:first";

fn pattern(pages: u32, salt: u32) -> Vec<u8> {
    (0..pages * 1024)
        .flat_map(|word| (word ^ salt << 20).to_le_bytes())
        .collect()
}

#[test]
fn a_host_that_is_dropped_loses_its_connections_and_nobody_else_does() {
    let served = serve_http("--memory 32MiB");
    let mut host = Client::connect(
        served.nvme.as_str(),
        Options {
            hostnqn: FIRST.into(),
            ..Options::default()
        },
    )
    .expect("it connects");
    let options = Options {
        hostnqn: "nqn.2026-11.test:other".into(),
        ..Default::default()
    };
    let other = Client::connect(served.nvme.as_str(), options);
    let mut other = other.expect("it connects");
    let firsts = served.connections(FIRST);
    let others = served.connections("nqn.2026-11.test:other");
    assert_eq!((firsts.len(), others.len()), (2, 2));

    let done = served.ctl("drop nqn.2026-11.test:other").ok().json();
    assert_eq!(done, json!({ "connections_ended": 2 }));
    assert!(served.left(&others), "the dropped host's connections go on");
    let left = served.connections("nqn.2026-11.test:other");
    assert!(left.is_empty(), "{left:?}");
    // Its client reconnects on its own, which is not forbidden.
    other.read(0, 1).expect("it is served again");
    assert_eq!(
        served.connections(FIRST),
        firsts,
        "the other host was not dropped"
    );
    host.read(0, 1).expect("the other one is served");
    served
        .ctl("drop nqn.nobody")
        .fails_in_one_line(1, &["not connected"]);
    served.stop();
}

#[test]
fn what_was_acknowledged_survives_a_power_cut_that_an_operator_asks_for() {
    let dir = tempfile::tempdir().expect("a folder");
    let (memory, folder) = (["--memory", "32MiB"], dir.path().join("disk"));
    let folder = folder.to_str().expect("text");
    run(&["image", "create", folder, "--size", "32MiB"]).ok();

    for device in [memory, ["--image", folder]] {
        let served = serve_http(&device);
        let data = pattern(200, 3);
        let source = file(dir.path(), "data", &data);
        let back = file(dir.path(), "back", b"");
        served.io(&["write", "--lba", "0", "--file", &source]).ok();
        served.io("copy --from 0 --to 3000 --blocks 200").ok();
        served.io("trim --lba 0 --blocks 50").ok();
        let mut host = served.host();
        let before: Vec<u64> = served
            .numbers()
            .into_iter()
            .map(|(_, number)| number)
            .collect();

        let done = served.ctl("power-cut").ok().json();
        assert_eq!(done["connections_ended"], 2, "{done}");
        assert_eq!(done["recovery"]["mapped"], 350, "{done}");
        assert!(served.left(&before), "a cut ends connections");
        host.read(0, 1).expect("its client connects again");

        served
            .io(&["read", "--lba", "3000", "--blocks", "200", "--file", &back])
            .ok();
        assert!(std::fs::read(&back).expect("read") == data);
        served
            .io(&["read", "--lba", "0", "--blocks", "50", "--file", &back])
            .ok();
        assert!(
            std::fs::read(&back)
                .expect("read")
                .iter()
                .all(|byte| *byte == 0)
        );
        let smart = &served.io("stat --json").ok().json()["smart"];
        assert_eq!(
            (&smart["power_cycles"], &smart["unsafe_shutdowns"]),
            (&json!(2), &json!(1))
        );
        // The device continues, and shuts down cleanly.
        served
            .io(&["write", "--lba", "100", "--file", &source])
            .ok();
        assert_eq!(served.json("/api/live")["power_cuts"], 1);
        served.stop();
    }
    assert_eq!(run(&["image", "check", folder]).code, 0);
}

#[test]
fn blocks_that_were_made_unreadable_are_media_errors_until_the_faults_are_taken_back() {
    let served = serve_http("--memory 32MiB");
    let dir = tempfile::tempdir().expect("a folder");
    let source = file(dir.path(), "data", &pattern(100, 1));
    served.io(&["write", "--lba", "0", "--file", &source]).ok();

    let inject = ["inject", "read-error", "--lba", "10", "--blocks", "5"];
    assert_eq!(served.ctl(&inject).ok().json(), json!({ "places": 5 }));
    let read = |lba: &str| {
        served
            .io(&["read", "--lba", lba, "--file", "/dev/null"])
            .code
    };
    assert_eq!(
        (read("9"), read("10"), read("14"), read("15")),
        (0, 1, 1, 0)
    );
    assert_eq!(served.json("/api/live")["media_errors"], 2);
    served.ctl("inject none").ok();
    assert_eq!(read("10"), 0);

    assert_eq!(
        served.ctl("inject nvram-flip --word 0 --bit 3").ok().json()["places"],
        1
    );
    served
        .ctl("inject nvram-flip --word 99999999")
        .fails_in_one_line(1, &["NVRAM has"]);
    served
        .ctl("inject read-error --lba 99999999")
        .fails_in_one_line(1, &["are not there"]);
    served
        .ctl("inject read-error --nsid 7 --lba 0")
        .fails_in_one_line(1, &["no namespace 7"]);
    served.stop();
}

#[test]
fn latency_and_deduplication_are_switched_while_hosts_are_served() {
    let served = serve_http("--memory 32MiB --dedup on");
    let dir = tempfile::tempdir().expect("a folder");
    let [one, other] = [1, 2].map(|salt| file(dir.path(), &format!("{salt}"), &pattern(50, salt)));
    let write = |lba: &str, data: &str| {
        let before = served.stat("dedup_hits");
        served.io(&["write", "--lba", lba, "--file", data]).ok();
        served.stat("dedup_hits") - before
    };
    assert_eq!((write("0", &one), write("100", &one)), (0, 50));
    served.ctl("dedup off").ok();
    assert_eq!(
        (
            write("200", &one),
            write("300", &other),
            write("400", &other)
        ),
        (0, 0, 0)
    );
    served.ctl("dedup on").ok();
    assert_eq!(write("500", &one), 50, "what was known before is known");

    let sum = || {
        let live = served.json("/api/live");
        let commands = live["commands"].as_array().expect("a list").clone();
        let read = commands
            .into_iter()
            .find(|command| command["name"] == "read");
        read.expect("reads")["sum_ns"].as_u64().expect("a number")
    };
    served.ctl("latency emulated").ok();
    assert_eq!(served.json("/api/config")["latency"], "emulated");
    let before = sum();
    served.io("read --lba 300 --file /dev/null").ok();
    assert!(
        sum() - before >= 20_000,
        "a flash page is read in no less than 20 µs"
    );
    served.ctl("latency none").ok();
    assert_eq!(served.json("/api/config")["latency"], "none");
    served
        .ctl("latency some")
        .code
        .eq(&2)
        .then_some(())
        .expect("usage");
    served.stop();

    let plain = serve_http("--memory 32MiB");
    plain
        .ctl("dedup on")
        .fails_in_one_line(1, &["made without deduplication"]);
    plain.stop();
}

#[test]
fn statistics_count_from_their_reset_on_and_metrics_go_on() {
    let served = serve_http("--memory 32MiB");
    let dir = tempfile::tempdir().expect("a folder");
    let source = file(dir.path(), "data", &pattern(100, 1));
    served.io(&["write", "--lba", "0", "--file", &source]).ok();
    served.ctl("stats reset").ok();
    assert_eq!(served.ctl("statistics").ok().json()["host_pages"], 0);
    served.io(&["write", "--lba", "0", "--file", &source]).ok();
    std::thread::sleep(std::time::Duration::from_millis(300));
    let since = served.ctl("statistics").ok().json();
    assert_eq!(
        (&since["host_pages"], &since["data_pages"]),
        (&json!(100), &json!(100))
    );
    assert_eq!(since["free_superblocks"], served.stat("free_superblocks"));
    assert_eq!(served.stat("host_pages"), 200);

    served.ctl("log debug").ok();
    assert_eq!(served.json("/api/config")["log_level"], "debug");
    served.stop();
}

#[test]
fn a_verb_of_a_client_is_one_line_of_the_log_and_the_others_are_details() {
    let served = serve_http("--memory 32MiB");
    let copy = || {
        let range = ["--from", "0", "--to", "100", "--pages", "50"];
        run(&[&["share", "copy", "--connect", &served.nvme], &range[..]].concat()).ok();
    };
    copy();
    let lines = served.logged("queue 1 connected by");
    assert_eq!(lines.len(), 1, "{lines:#?}");

    served.ctl("log debug").ok();
    copy();
    let lines = served.logged("queue 1 of");
    for words in [
        "discovery 0 connected by",
        "queue 0 connected by",
        " ended after ",
    ] {
        assert!(lines.iter().any(|line| line.contains(words)), "{lines:#?}");
    }
    assert!(
        lines
            .iter()
            .all(|line| line.contains("INFO") || line.contains("DEBUG"))
    );
    served.stop();
}

#[test]
fn a_client_finds_its_token_in_its_place_and_shows_values_with_their_units() {
    let served = serve_http("--memory 32MiB");
    let home = tempfile::tempdir().expect("a folder");
    let config = home.path().join("config");
    std::fs::create_dir_all(config.join("remap-ssd")).expect("a folder");
    let ctl = |verb: &str, variables: &[(&str, &str)]| {
        let args = format!("ctl --connect {} {verb}", served.http);
        run_with(home.path(), &args, variables)
    };
    let place = [("XDG_CONFIG_HOME", config.to_str().expect("text"))];
    ctl("latency emulated", &place).fails_in_one_line(1, &["--token"]);

    let (_, token) = served.token.as_ref().expect("with a token");
    std::fs::copy(token, config.join("remap-ssd/token")).expect("room for it");
    ctl("latency emulated", &place).ok();
    let shown = ctl("namespaces", &place).ok().out;
    assert!(
        shown.contains("32.0 MiB") && shown.contains("8,192"),
        "{shown}"
    );
    // Elsewhere, without such a file.
    ctl("latency none", &[("XDG_CONFIG_HOME", "/nowhere")]).fails_in_one_line(1, &["--token"]);
    served.stop();
}

// A reset notes the counters, and a cut invalidates the notes. There must be no deadlock between
// the two.
#[test]
fn a_reset_and_a_power_cut_at_once_both_end() {
    let served = serve_http("--memory 32MiB");
    std::thread::scope(|scope| {
        for verb in ["reset", "reset", "power-cut", "power-cut"] {
            let served = &served;
            scope.spawn(move || {
                for _ in 0..100 {
                    let (status, text) = served.post(verb);
                    assert_eq!(status, 200, "{verb}: {text}");
                }
            });
        }
    });
    served.stop();
}

#[test]
fn verbs_are_refused_without_the_token_and_with_a_wrong_one() {
    let served = serve_http("--memory 32MiB");
    let dir = tempfile::tempdir().expect("a folder");
    let wrong = file(dir.path(), "token", b"correct-horse-batterz");
    run(&[
        "ctl",
        "--connect",
        &served.http,
        "--token",
        &wrong,
        "power-cut",
    ])
    .fails_in_one_line(1, &["chmod 600"]);
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&wrong, std::fs::Permissions::from_mode(0o600)).expect("ours");
    for verb in ["power-cut", "hosts"] {
        run(&["ctl", "--connect", &served.http, "--token", &wrong, verb])
            .fails_in_one_line(1, &["token"]);
        run(&["ctl", "--connect", &served.http, verb]).fails_in_one_line(1, &["ctl --token"]);
    }
    assert_eq!(served.json("/api/live")["power_cuts"], 0);
    served.stop();

    let open = serve_openly("--memory 32MiB");
    run(&["ctl", "--connect", &open.http, "power-cut"]).fails_in_one_line(1, &["--http-token"]);
    assert_eq!(run(&["ctl", "--connect", &open.http, "hosts"]).code, 0);
    run("ctl --connect 127.0.0.1:1 hosts").fails_in_one_line(1, &["127.0.0.1:1"]);
    open.stop();
}

#[test]
fn namespaces_kept_apart_stay_so_after_a_power_cut() {
    let served = serve_http("--memory 32MiB --dedup on --namespaces 2 --unshared 2");
    let dir = tempfile::tempdir().expect("a folder");
    let source = file(dir.path(), "data", &pattern(50, 1));
    served.io(&["write", "--lba", "0", "--file", &source]).ok();
    served.ctl("power-cut").ok();

    let before = served.stat("data_pages");
    let write = ["--nsid", "2", "write", "--lba", "0", "--file", &source];
    served.io(&write).ok();
    served
        .io(&["--nsid", "2", "write", "--lba", "500", "--file", &source])
        .ok();
    assert_eq!(
        served.stat("data_pages") - before,
        100,
        "every page is programmed"
    );
    served.stop();
}
