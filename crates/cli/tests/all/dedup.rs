//! `dedup` as users see it: mistakes are sentences, and with FUSE the file deduplicates.

use crate::kit::{Ran, Words, run};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

fn image(dir: &Path, name: &str) -> String {
    let image = dir.join(name).to_str().expect("text").to_owned();
    run(&format!("image create {image} --size 32MiB --dedup off")).ok();
    image
}

fn dedup(scheme: &str, image: &str, folder: &str, more: &[&str]) -> Ran {
    run(&format!("dedup --scheme {scheme} --image {image} --fuse {folder}").and(more))
}

#[test]
fn what_cannot_be_served_is_said_in_a_line() {
    let dir = tempfile::tempdir().expect("a folder");
    let disk = image(dir.path(), "disk");
    let missing = dir
        .path()
        .join("missing")
        .to_str()
        .expect("text")
        .to_owned();
    dedup("zfs", &disk, &missing, &[]).fails(2, &["zfs", "ccaw or ordermerge"]);
    dedup("ccaw", &disk, &missing, &["--hash", "crc32"]).fails(2, &["crc32", "md5 or blake3"]);
    dedup("ccaw", "/nowhere/at/all", &missing, &[]).fails_in_one_line(1, &["/nowhere/at/all"]);

    // There is no such folder, or no FUSE; the disk was created before that.
    dedup("ccaw", &disk, &missing, &[]).fails_in_one_line(1, &[]);
    dedup("ordermerge", &disk, &missing, &[])
        .fails_in_one_line(1, &["made for scheme ccaw, not ordermerge"]);
    let made = dedup("ccaw", &disk, &missing, &["--hash", "blake3"]);
    assert!(
        made.err.contains("made with --hash md5") && made.code == 1,
        "{}",
        made.err
    );

    let volume = image(dir.path(), "volume");
    run(&["volume", "create", "--image", &volume]).ok();
    dedup("ordermerge", &volume, &missing, &[]).fails_in_one_line(1, &["not blank", "--force"]);
}

/// Serves, unless the kernel or the user's privileges do not allow it.
fn serve(scheme: &str, image: &str, folder: &str) -> Option<Child> {
    serve_at(scheme, ["--image", image], folder)
}

fn serve_at(scheme: &str, place: [&str; 2], folder: &str) -> Option<Child> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_remap-ssd"))
        .args(["dedup", "--scheme", scheme, "--fuse", folder])
        .args(place)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(child.stderr.take().expect("piped"))
        .lines()
        .map_while(Result::ok);
    let mut said = String::new();
    if lines
        .by_ref()
        .inspect(|line| said.push_str(line))
        .any(|line| line.starts_with("serving"))
    {
        std::thread::spawn(move || lines.for_each(drop));
        return Some(child);
    }
    child.wait().expect("it ends");
    let why = ["/dev/fuse", "mounting was refused"];
    assert!(why.iter().any(|why| said.contains(why)), "{said}");
    println!("skipped: {said}");
    None
}

/// Sends SIGTERM; returns the output.
fn stop(mut child: Child) -> String {
    assert!(
        Command::new("kill")
            .args(["-TERM", &child.id().to_string()])
            .status()
            .expect("kill")
            .success()
    );
    let mut said = String::new();
    child
        .stdout
        .take()
        .expect("piped")
        .read_to_string(&mut said)
        .expect("text");
    assert!(child.wait().expect("it ends").success(), "{said}");
    said
}

#[test]
fn a_file_is_there_again_after_a_restart_and_its_duplicates_are_counted() {
    for scheme in ["ccaw", "ordermerge"] {
        let dir = tempfile::tempdir().expect("a folder");
        let (disk, folder) = (image(dir.path(), "disk"), dir.path().join("folder"));
        std::fs::create_dir(&folder).expect("a new folder");
        let mountpoint = folder.to_str().expect("text");
        let Some(child) = serve(scheme, &disk, mountpoint) else {
            return;
        };

        let data: Vec<u8> = (0..100u32)
            .flat_map(|page| [page as u8 + 1; 4096])
            .collect();
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(folder.join("n1"))
            .expect("it is there");
        file.write_all_at(&data, 0).expect("it works");
        file.write_all_at(&data, 1 << 20).expect("it works");
        file.write_all_at(b"a few bytes", (2 << 20) - 5)
            .expect("it works");
        file.sync_all().expect("it works");
        drop(file);
        let said = stop(child);
        assert!(
            said.contains("duplicates") && said.contains("49."),
            "{said}"
        );

        let child = serve(scheme, &disk, mountpoint).expect("it worked before");
        let file = std::fs::File::open(folder.join("n1")).expect("it is there");
        let mut found = vec![0; data.len()];
        file.read_exact_at(&mut found, 1 << 20).expect("it works");
        assert!(found == data, "{scheme}");
        let mut found = [0; 13];
        file.read_exact_at(&mut found, (2 << 20) - 6)
            .expect("it works");
        assert_eq!(&found, b"\0a few bytes\0");
        drop(file);
        stop(child);
    }
}

#[test]
fn a_second_front_is_refused_until_the_first_one_has_ended_or_was_killed() {
    let dir = tempfile::tempdir().expect("a folder");
    let folders = ["one", "two"].map(|name| dir.path().join(name));
    for folder in &folders {
        std::fs::create_dir(folder).expect("a new folder");
    }
    let [one, two] = folders
        .each_ref()
        .map(|folder| folder.to_str().expect("text"));

    for scheme in ["ccaw", "ordermerge"] {
        let served = crate::served::serve("--memory 64MiB");
        let place = ["--connect", served.nvme.as_str()];
        let Some(first) = serve_at(scheme, place, one) else {
            return;
        };
        let again = |more: &[&str]| {
            let args = ["dedup", "--scheme", scheme, "--fuse", two];
            run(&[&args[..], &place, more].concat())
        };
        again(&[]).fails_in_one_line(1, &["in use by other processes"]);
        again(&["--force"]).fails_in_one_line(1, &["in use by other processes"]);
        run(&["volume", "create", "--force", place[0], place[1]])
            .fails_in_one_line(1, &["in use by other processes"]);
        stop(first);

        // A killed process releases nothing; the server detects that it is gone.
        let mut first = serve_at(scheme, place, one).expect("it was let go");
        first.kill().expect("it runs");
        first.wait().expect("it ends");
        let _ = Command::new("umount").args(["-l", one]).status();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let missing = dir.path().join("missing");
        loop {
            // Refused for another reason: there is no such folder.
            let args = ["dedup", "--scheme", scheme, "--fuse"];
            let ran = run(&[&args[..], &[missing.to_str().expect("text")], &place].concat());
            assert_eq!(ran.code, 1, "{}", ran.err);
            if !ran.err.contains("in use by other processes") {
                break;
            }
            assert!(std::time::Instant::now() < until, "{}", ran.err);
        }
        stop(serve_at(scheme, place, two).expect("a front that failed gives it back"));
        served.stop();
    }
}
