//! `REMAP_SSD_LOG`: the reasons of failures, for programs that do not use SQLite's log. The
//! variable is per process, so each test runs this binary again with its own.

use crate::kit::engine::{Db, start_with_vfs};
use std::path::Path;
use std::process::{Command, Output};

/// The folder, which is no image, and the number of openings that fail.
const PART: &str = "SQLITE_LOG_LINES_PART";

/// Opens a database in a missing image, several times.
#[test]
#[ignore = "the other tests start this one, in processes of their own"]
fn process() {
    let part = std::env::var(PART).expect("another test starts this one");
    let (times, image) = part.split_once(' ').expect("two words");
    start_with_vfs();
    for _ in 0..times.parse().expect("a number") {
        let failure = Db::open(&format!("file:app.db?vfs=remap&image={image}")).err();
        assert!(failure.expect("there is no image").cannot_open());
    }
}

fn opening(times: usize, image: &Path, log: Option<&str>) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("it runs"));
    command
        .args([
            "--exact",
            "log_lines::process",
            "--ignored",
            "--nocapture",
            "--quiet",
        ])
        .env(PART, format!("{times} {}", image.display()))
        .env_remove("REMAP_SSD_LOG");
    if let Some(place) = log {
        command.env("REMAP_SSD_LOG", place);
    }
    command
}

/// Checks that the process passed, independent of the lines' destination.
fn ended(mut command: Command) -> Output {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    output
}

/// Returns true if it is one complete line: the process, the reason, and the code.
fn is_whole(line: &str, image: &Path) -> bool {
    let Some(rest) = line.strip_prefix("remap-ssd: process ") else {
        return false;
    };
    let Some((process, reason)) = rest.split_once(": ") else {
        return false;
    };
    process.parse::<u32>().is_ok()
        && reason.contains(&image.display().to_string())
        && reason.ends_with("(SQLite result 14)")
}

fn missing_image(folder: &Path) -> std::path::PathBuf {
    folder.join("no-such-image")
}

#[test]
fn each_failed_opening_adds_a_line_with_its_reason_to_the_file() {
    let folder = tempfile::tempdir().expect("room");
    let (image, log) = (missing_image(folder.path()), folder.path().join("log"));
    std::fs::write(&log, "what was there\n").expect("room");

    let place = log.to_str().expect("UTF-8");
    let output = ended(opening(3, &image, Some(place)));

    let text = std::fs::read_to_string(&log).expect("it is there");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!((lines.len(), lines[0]), (4, "what was there"), "{text}");
    assert!(
        lines[1..].iter().all(|line| is_whole(line, &image)),
        "{text}"
    );
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn the_word_stderr_sends_the_lines_there_and_makes_no_file() {
    let folder = tempfile::tempdir().expect("room");
    let image = missing_image(folder.path());
    let mut command = opening(2, &image, Some("stderr"));
    command.current_dir(folder.path());
    let output = ended(command);

    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.lines().all(|line| is_whole(line, &image)), "{text}");
    assert!(!folder.path().join("stderr").exists());
}

#[test]
fn nothing_is_written_if_the_variable_is_unset_or_empty() {
    let folder = tempfile::tempdir().expect("room");
    let image = missing_image(folder.path());
    for log in [None, Some("")] {
        let output = ended(opening(1, &image, log));
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{log:?}");
    }
}

#[test]
fn a_log_that_cannot_be_written_changes_no_result() {
    let folder = tempfile::tempdir().expect("room");
    let image = missing_image(folder.path());
    let nowhere = folder.path().join("no-such-folder/log");
    for place in [&nowhere, folder.path()] {
        let output = ended(opening(1, &image, place.to_str()));
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{place:?}");
    }
}

#[test]
fn a_reason_with_a_line_break_is_one_line() {
    let folder = tempfile::tempdir().expect("room");
    let image = folder.path().join("no\nsuch\r\nimage");
    let output = ended(opening(1, &image, Some("stderr")));

    let text = String::from_utf8_lossy(&output.stderr);
    let shown = folder.path().join("no such  image");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(is_whole(text.trim_end(), &shown), "{text}");
}

#[test]
fn lines_of_several_processes_stay_whole() {
    const PROCESSES: usize = 4;
    const LINES: usize = 50;
    let folder = tempfile::tempdir().expect("room");
    let (image, log) = (missing_image(folder.path()), folder.path().join("log"));

    let place = log.to_str().expect("UTF-8");
    let children: Vec<_> = (0..PROCESSES)
        .map(|_| {
            opening(LINES, &image, Some(place))
                .spawn()
                .expect("it starts")
        })
        .collect();
    for mut child in children {
        assert!(child.wait().expect("it was started").success());
    }

    let text = std::fs::read_to_string(&log).expect("it is there");
    assert_eq!(text.lines().count(), PROCESSES * LINES);
    for line in text.lines() {
        assert!(is_whole(line, &image), "{line}");
    }
}
