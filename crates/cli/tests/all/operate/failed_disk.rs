//! A disk that fails under an image: the log has the file, and the system's error.

use crate::kit::{file, path, run};
use crate::served::Served;
use std::process::Command;

/// A file size limit simulates the disk: it accepts no contents beyond that.
#[test]
fn a_failed_disk_is_an_error_in_the_log_with_the_file_and_the_reason_of_the_system() {
    let dir = tempfile::tempdir().expect("a folder");
    let image = path(dir.path(), "disk");
    run(&["image", "create", &image, "--size", "64MiB"]).ok();
    let program = env!("CARGO_BIN_EXE_remap-ssd");
    let script = format!(
        "ulimit -f 32768; exec {program} serve --image {image} --listen 127.0.0.1:0 --json-log"
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]);
    let served = Served::start(command, false);

    // More than the disk can take; either the write fails, or the service has ended before it.
    let data = file(dir.path(), "data", &vec![7; 60 << 20]);
    let write = format!("write --lba 0 --file {data}");
    assert_ne!(served.io(&write).code, 0);

    let said = served.logged("os error 27");
    let is_it = |line: &String| {
        line.contains("ERROR") && line.contains("contents, byte ") && line.contains("os error 27")
    };
    assert!(said.iter().any(is_it), "{said:#?}");
    assert_eq!(served.ended().code(), Some(1));
}
