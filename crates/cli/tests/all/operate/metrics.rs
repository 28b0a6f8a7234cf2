//! Metrics, health and JSON agree with the device.

use crate::kit::{file, path, run};
use crate::served::{serve_http, serve_openly};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

/// Sends a request as text, and returns the response as text.
fn raw(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

fn scrape(address: &str, accept: &str) -> String {
    raw(
        address,
        &format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nAccept: {accept}\r\n\r\n"),
    )
}

/// The samples of a scrape, by the text before the value.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let body = text.split_once("\r\n\r\n").expect("a body").1;
    let lines = body.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("a sample");
            (name.to_owned(), value.parse().expect("a number"))
        })
        .collect()
}

/// An image's mapped pages are no leak, and are distinguished from the process's own memory.
#[test]
fn memory_of_files_is_counted_apart() {
    let dir = tempfile::tempdir().expect("a folder");
    let image = path(dir.path(), "disk");
    let image = image.as_str();
    run(&["image", "create", image, "--size", "64MiB"]).ok();
    let served = serve_openly(&["--image", image]);
    let data = vec![7; 16 << 20];
    let source = file(dir.path(), "data", &data);
    served.io(&["write", "--lba", "0", "--file", &source]).ok();
    served
        .io("read --lba 0 --blocks 4096 --file /dev/null")
        .ok();

    let samples = samples(&scrape(&served.http, "*/*"));
    let of = |what: &str| samples[&format!("remap_ssd_resident_{what}memory_bytes")];
    let (all, own, files) = (of(""), of("anonymous_"), of("file_"));
    assert_eq!(all, own + files);
    // The pages read are in the mapped file.
    assert!(files > data.len() as f64 && own > 0.0, "{own} and {files}");
    served.stop();
}

#[test]
fn pages_in_the_write_buffer_are_counted() {
    let dir = tempfile::tempdir().expect("a folder");
    let source = file(dir.path(), "data", &[7; 5 * 4096]);
    let set = "firmware.write_buffer_bytes=1MiB,firmware.power_loss_protection=false";
    let served = serve_openly(&["--memory", "32MiB", "--set", set]);
    served.io(&["write", "--lba", "0", "--file", &source]).ok();
    let used = || {
        let samples = samples(&scrape(&served.http, "*/*"));
        let of = |part| samples[&format!("remap_ssd_write_buffer_bytes{{part=\"{part}\"}}")];
        assert_eq!(of("capacity"), f64::from(1 << 20));
        of("used")
    };
    // The device is read at most five times a second, so a scrape may find the figures of the one before.
    let becomes = |bytes: f64| {
        let found = (0..1000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            used() == bytes
        });
        assert!(found, "{} and not {bytes}", used());
    };
    becomes(5.0 * 4096.0);
    served.io("flush").ok();
    becomes(0.0);
    served.stop();

    let served = serve_openly("--memory 32MiB");
    assert!(!scrape(&served.http, "*/*").contains("write_buffer"));
    served.stop();
}

#[test]
fn metrics_are_what_io_stat_says_in_both_formats() {
    let served = serve_openly("--memory 32MiB");
    let dir = tempfile::tempdir().expect("a folder");
    let data: Vec<u8> = (0..300 * 4096u32)
        .map(|byte| (byte / 4096 + byte) as u8)
        .collect();
    let source = file(dir.path(), "data", &data);
    served.io(&["write", "--lba", "0", "--file", &source]).ok();
    served.io("copy --from 0 --to 4000 --blocks 300").ok();
    served
        .io("read --lba 4000 --blocks 300 --file /dev/null")
        .ok();
    served
        .io("read --lba 900000")
        .fails_in_one_line(1, &["out of range"]);

    let open = scrape(&served.http, "application/openmetrics-text; version=1.0.0");
    assert!(open.contains("Content-Type: application/openmetrics-text; version=1.0.0"));
    assert!(open.ends_with("# EOF\n"), "{open}");
    assert!(open.contains("# UNIT remap_ssd_command_duration_seconds seconds\n"));
    let text = scrape(&served.http, "*/*");
    assert!(text.contains("Content-Type: text/plain; version=0.0.4"));

    for samples in [samples(&open), samples(&text)] {
        let of = |name: &str| {
            samples
                .get(name)
                .copied()
                .unwrap_or_else(|| panic!("no {name}"))
        };
        for name in [
            "host_pages",
            "flash_pages",
            "remaps",
            "host_reads",
            "data_pages",
            "erases",
        ] {
            let metric = of(&format!("remap_ssd_{name}_total"));
            assert_eq!(metric, served.stat(name) as f64, "{name}");
        }
        assert_eq!(of("remap_ssd_remaps_total"), 300.0);
        assert_eq!(of("remap_ssd_host_written_bytes_total"), data.len() as f64);
        assert_eq!(
            of("remap_ssd_superblocks{state=\"free\"}"),
            served.stat("free_superblocks") as f64
        );

        // Two writes of 1 MiB at most, one Copy; each is in its histogram once, and buckets never
        // shrink.
        let count = |kind: &str| {
            of(&format!(
                "remap_ssd_command_duration_seconds_count{{command=\"{kind}\"}}"
            ))
        };
        assert_eq!(
            (count("write"), count("copy"), count("read")),
            (2.0, 1.0, 2.0)
        );
        let mut buckets: Vec<(f64, f64)> = samples
            .iter()
            .filter(|(name, _)| name.contains("_bucket{") && name.contains("\"write\""))
            .map(|(name, value)| {
                let bound = name
                    .split("le=\"")
                    .nth(1)
                    .expect("a bound")
                    .split('"')
                    .next();
                let bound = bound.map(|bound| bound.replace("+Inf", "inf"));
                (bound.expect("closed").parse().expect("a number"), *value)
            })
            .collect();
        buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
        assert!(
            buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1),
            "{buckets:?}"
        );
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, 2.0)));
        assert_eq!(buckets.len(), 25);
    }
    served.stop();
}

#[test]
fn health_and_json_say_who_is_connected_to_what() {
    let served = serve_http("--memory 32MiB --namespaces 2");
    let host = served.host();
    assert_eq!(served.get("/healthz").0, 200);
    assert_eq!(served.get("/readyz"), (200, "ok\n".into()));

    let namespaces = served.json("/api/namespaces");
    assert_eq!(namespaces.as_array().expect("a list").len(), 2);
    assert_eq!(namespaces[1]["size_bytes"], 16 << 20);
    let queues = |hosts: &serde_json::Value| -> Vec<u64> {
        let hosts = hosts.as_array().expect("a list").iter();
        // A client queries discovery first, and disconnects.
        let hosts = hosts.filter(|host| host["discovery"] == false);
        hosts
            .map(|host| host["queue"].as_u64().expect("a number"))
            .collect()
    };
    let until = |wanted: &[u64]| {
        (0..500).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            queues(&served.json("/api/hosts")) == wanted
        })
    };
    assert!(until(&[0, 1]), "{}", served.json("/api/hosts"));
    assert!(served.json("/api/live")["connections"].as_u64() >= Some(2));
    let config = served.json("/api/config");
    assert_eq!(config["latency"], "none");
    assert_eq!(config["device"]["firmware"]["scheme"], "remap-ssd");

    drop(host);
    assert!(until(&[]), "a host that has left is not listed any more");
    served.stop();
}

#[test]
fn the_map_counts_every_page_that_is_mapped() {
    let served = serve_openly("--memory 64MiB");
    let dir = tempfile::tempdir().expect("a folder");
    let data: Vec<u8> = (0..500 * 4096u32)
        .map(|byte| (byte / 4096 * 7 + byte) as u8)
        .collect();
    let source = file(dir.path(), "data", &data);
    served.io(&["write", "--lba", "0", "--file", &source]).ok();
    served.io("copy --from 0 --to 8000 --blocks 200").ok();
    served
        .io(&["write", "--lba", "300", "--file", &source])
        .ok();

    let sum = |cells: &serde_json::Value, name: &str| -> u64 {
        let each = cells[name].as_array().expect("a list").iter();
        each.map(|value| value.as_u64().expect("a number")).sum()
    };
    for path in ["/api/map", "/api/map?cells=7", "/api/map?cells=1"] {
        let (status, text) = served.get(path);
        assert_eq!(status, 200, "{text}");
        let cells: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        // 500 and 500 were written, 200 of the first were overwritten, and none of those is shared.
        assert_eq!(sum(&cells, "valid"), 800, "{path}");
        assert_eq!(sum(&cells, "remapped"), 200, "{path}");
        assert_eq!(sum(&cells, "garbage"), 200, "{path}");
    }
    assert_eq!(served.get("/api/map?cells=x").0, 400);

    // One lock reads a bounded number of superblocks, for any size of the device.
    let live = served.json("/api/live");
    let superblocks = live["superblocks"].as_object().expect("states");
    let all: u64 = ["free", "open", "closed", "retired"]
        .iter()
        .map(|state| superblocks[*state].as_u64().expect("a number"))
        .sum();
    let holds = &live["holds"];
    assert!(all > 256, "{live}");
    assert!(holds["superblocks_max"].as_u64() <= Some(256), "{holds}");
    served.stop();
}

#[test]
fn wrong_paths_methods_and_hosts_are_refused_with_a_status() {
    let served = serve_openly("--memory 32MiB");
    let here = served.http.clone();
    let status = |request: &str| -> u16 {
        let answer = raw(&here, request);
        answer
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .expect("a status")
    };
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: {here}\r\n\r\n");
    for path in [
        "/../../etc/passwd",
        "/page.css/../../token",
        "//metrics",
        "/metrics/",
        "/api",
        "/%6detrics",
    ] {
        assert_eq!(status(&get(path)), 404, "{path}");
    }
    let with =
        |method: &str, path: &str| format!("{method} {path} HTTP/1.1\r\nHost: {here}\r\n\r\n");
    for (method, path, code) in [
        ("POST", "/metrics", 405),
        ("DELETE", "/api/hosts", 405),
        ("GET", "/api/ctl/power-cut", 405),
        ("POST", "/api/ctl/power-cut", 403),
        ("POST", "/", 405),
        ("HEAD", "/", 200),
    ] {
        assert_eq!(status(&with(method, path)), code, "{method} {path}");
    }
    let elsewhere = "GET /metrics HTTP/1.1\r\nHost: rebound.example\r\n\r\n";
    assert_eq!(
        status(elsewhere),
        421,
        "a page elsewhere whose name means this machine"
    );
    assert_eq!(status("hello\r\n\r\n"), 400);
    served.stop();
}

#[test]
fn an_address_that_others_reach_needs_a_token_that_others_cannot_read() {
    let refused = |args: &str| run(&format!("serve --memory 32MiB --listen 127.0.0.1:0 {args}"));
    refused("--http 0.0.0.0:0").fails_in_one_line(2, &["--http-token"]);
    let dir = tempfile::tempdir().expect("a folder");
    let open = file(dir.path(), "token", b"0123456789abcdef");
    refused(&format!("--http 127.0.0.1:0 --http-token {open}"))
        .fails_in_one_line(1, &["chmod 600"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound").to_string();
    refused(&format!("--http {address}")).fails_in_one_line(1, &["in use"]);
}
