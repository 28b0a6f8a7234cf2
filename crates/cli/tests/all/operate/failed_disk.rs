//! A disk that fails under an image: the log has the file, and the system's error.

use crate::operate::kit::run;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// A file size limit simulates the disk: it accepts no contents beyond that.
#[test]
fn a_failed_disk_is_an_error_in_the_log_with_the_file_and_the_reason_of_the_system() {
    let dir = tempfile::tempdir().expect("a folder");
    let image = dir.path().join("disk");
    let image = image.to_str().expect("text");
    run(&["image", "create", image, "--size", "64MiB"]).ok();
    let program = env!("CARGO_BIN_EXE_remap-ssd");
    let script = format!(
        "ulimit -f 32768; exec {program} serve --image {image} --listen 127.0.0.1:0 --json-log"
    );
    let mut child = Command::new("sh")
        .args(["-c", &script])
        .stderr(Stdio::piped())
        .spawn()
        .expect("there is a shell");

    let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let mut lines = lines.map_while(Result::ok);
    let address = lines.by_ref().find_map(|line| {
        let value: Value = serde_json::from_str(&line).ok()?;
        value["fields"]["address"].as_str().map(str::to_owned)
    });
    let address = address.expect("it serves");

    // More than the disk can take; either the write fails, or the service has ended before it.
    let data = crate::operate::kit::file(dir.path(), "data", &vec![7; 60 << 20]);
    let write = [
        "io",
        "--connect",
        &address,
        "write",
        "--lba",
        "0",
        "--file",
        &data,
    ];
    assert_ne!(run(&write).code, 0);

    let said: Vec<String> = lines.collect();
    assert_eq!(child.wait().expect("it ended").code(), Some(1));
    let is_it = |line: &&String| {
        line.contains("ERROR") && line.contains("contents, byte ") && line.contains("os error 27")
    };
    assert!(said.iter().any(|line| is_it(&line)), "{said:#?}");
}
