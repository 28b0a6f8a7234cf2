//! A simulation being played: the same device as `compare` measures, at the speed that the page
//! requests.

use crate::kit::{Words, run};
use remap_ssd_http::client;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const TINY: [&str; 4] = ["--scheme", "remap-ssd", "--scale", "1/64"];

struct Played {
    child: Child,
    address: String,
}

impl Drop for Played {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn watch(args: &[&str]) -> Played {
    let mut child = Command::new(env!("CARGO_BIN_EXE_remap-ssd"))
        .args(["watch", "--http", "127.0.0.1:0"])
        .args(args)
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
        Some(
            line.split_once("http://")?
                .1
                .trim_end_matches('/')
                .to_owned(),
        )
    });
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
    Played {
        child,
        address: address.expect("it says where"),
    }
}

impl Played {
    fn ask(&self, path: &str, body: Option<&[u8]>) -> (u16, Value) {
        let answer = client::ask(&self.address, path, body, None, Duration::from_secs(60));
        let answer = answer.expect("an answer");
        (
            answer.status,
            serde_json::from_slice(&answer.body).unwrap_or_default(),
        )
    }

    fn live(&self) -> Value {
        self.ask("/api/live", None).1
    }
}

#[test]
fn what_is_played_to_its_end_is_what_compare_measures() {
    let common = [&TINY[..], &["--no-aging", "--writes", "20000"]].concat();
    let ends = ["--http", "127.0.0.1:0", "--speed", "1000000", "--end"];
    let played = run(&[&["watch"], &common[..], &ends].concat());
    assert_eq!(played.code, 0, "{}", played.err);
    let played: Value = serde_json::from_str(&played.out).expect("JSON");

    let compared = run(&"compare --json".and(&common)).ok().json();
    let counters = &compared["runs"][0];
    let find = |name: &str| find(counters, name).unwrap_or_else(|| panic!("no {name}: {compared}"));
    assert_eq!(played["host_pages"], 20000);
    for name in ["host_pages", "flash_pages", "remaps"] {
        assert_eq!(&played[name], find(name), "{name}");
    }
}

/// The first number with this name, at any depth.
fn find<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    match value {
        Value::Object(fields) => fields
            .get(name)
            .filter(|found| found.is_number())
            .or_else(|| fields.values().find_map(|one| find(one, name))),
        Value::Array(values) => values.iter().find_map(|one| find(one, name)),
        _ => None,
    }
}

#[test]
fn the_page_pauses_a_simulation_and_lets_it_go_on_at_another_speed() {
    let played = watch(
        &[
            &TINY[..],
            &["--no-aging", "--writes", "20000", "--speed", "0"],
        ]
        .concat(),
    );
    let still = || {
        played.live()["counters"]["host_pages"]
            .as_u64()
            .expect("a number")
    };
    assert_eq!(still(), 0);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(still(), 0, "it is paused");

    for wrong in [
        "{\"speed\":-1}",
        "{\"speed\":1e9}",
        "{}",
        "{\"speed\":\"x\"}",
    ] {
        assert_eq!(
            played.ask("/api/play", Some(wrong.as_bytes())).0,
            400,
            "{wrong}"
        );
    }
    assert_eq!(played.ask("/api/play", Some(b"{\"speed\":1000000}")).0, 200);
    let ended = (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        played.live()["playing"]["ended"] == true
    });
    assert!(ended, "{}", played.live());
    let live = played.live();
    assert_eq!(
        (&live["simulated"], &live["playing"]["done"]),
        (&true.into(), &1.0.into())
    );
    assert_eq!(still(), 20000);
    let cells = played.ask("/api/map", None).1;
    let valid: u64 = cells["valid"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(Value::as_u64)
        .sum();
    assert!(valid > 0, "{cells}");
    assert_eq!(played.ask("/api/ctl/power-cut", Some(b"")).0, 403);
}

#[test]
fn mistakes_in_playing_are_sentences() {
    run("watch --http 0.0.0.0:0").fails_in_one_line(2, &["loopback"]);
    run("watch --speed -1")
        .code
        .eq(&2)
        .then_some(())
        .expect("usage");
    run("watch --scheme flog,nlog").fails_in_one_line(2, &["one scheme"]);
    run("watch --trace /nowhere").fails_in_one_line(1, &["/nowhere"]);
}
