//! The corpus and mutations of it, on a stable compiler.
//!
//! `FUZZ_SECONDS=600 cargo test` looks longer, `FUZZ_MUTANTS=80000` at more mutants; `FUZZ_SEED=N`
//! and `FUZZ_FIRST=MUTANT` start elsewhere. A finding prints the number of its mutant; `FUZZ_KEEP=folder` keeps the bytes there
//! as `target-number`, and `FUZZ_REPLAY=folder/target-number` runs them again with a backtrace.
//! Findings go to `corpus/found` under such names once they are mended. `UPDATE_CORPUS=1` writes
//! the rest of the corpus anew.

use remap_ssd_fuzz::{auth, corpus, file, keys, mutate, nvme, recover, seal, tls, trace};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

/// Mutants of each target, unless `FUZZ_MUTANTS` or a time is given.
const MUTANTS: u64 = 3_000;

fn files(kind: &str) -> Vec<(String, Vec<u8>)> {
    let folder = corpus::folder().join(kind);
    let mut files: Vec<(String, Vec<u8>)> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| {
            panic!(
                "{}: {error}; UPDATE_CORPUS=1 writes the corpus",
                folder.display()
            )
        })
        .map(|entry| entry.expect("a readable folder").path())
        .map(|path| {
            (
                path.display().to_string(),
                std::fs::read(&path).expect("a readable file"),
            )
        })
        .collect();

    files.sort();
    assert!(!files.is_empty());
    files
}

/// A number from the environment.
fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number"))
    })
}

/// Feeds mutants of `seeds` to a target; every distinct panic is reported once.
fn hunt(name: &str, seeds: &[Vec<u8>], target: fn(&[u8])) {
    let seed = setting("FUZZ_SEED").unwrap_or(1);
    let first = seed << 32;
    let until =
        setting("FUZZ_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut found: Vec<(String, u64)> = Vec::new();
    let begin = setting("FUZZ_FIRST").unwrap_or(0);
    let mutants = setting("FUZZ_MUTANTS").unwrap_or(MUTANTS);
    let mut number = begin;

    while until.map_or(number - begin < mutants, |until| Instant::now() < until) {
        let bytes = &seeds[number as usize % seeds.len()];
        let other = &seeds[(number as usize / seeds.len()) % seeds.len()];
        let mutant = mutate::mutant(first + number, bytes, other);
        if let Err(text) = quietly(|| target(&mutant))
            && !found.iter().any(|(known, _)| *known == text)
        {
            keep(name, number, &mutant);
            found.push((text, number));
        }
        number += 1;
    }

    println!("{name}: {} mutants", number - begin);
    let lines: Vec<String> = found
        .iter()
        .map(|(text, number)| format!("mutant {number}: {text}"))
        .collect();
    assert!(
        found.is_empty(),
        "{name}: {} findings\n{}",
        found.len(),
        lines.join("\n")
    );
}

/// Where and why it panicked.
fn quietly(act: impl FnOnce()) -> Result<(), String> {
    use std::cell::RefCell;
    thread_local!(static WHERE: RefCell<String> = const { RefCell::new(String::new()) });
    static HOOK: std::sync::Once = std::sync::Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let place = info.location().map(ToString::to_string).unwrap_or_default();
            if place.contains("tests/corpus.rs") {
                usual(info)
            } else {
                WHERE.with(|at| *at.borrow_mut() = place)
            }
        }));
    });

    catch_unwind(AssertUnwindSafe(act)).map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text
            .or_else(|| payload.downcast_ref::<&str>().copied())
            .unwrap_or("a panic");
        // Numbers differ from mutant to mutant; the place and the words do not.
        let words: String = text.chars().filter(|c| !c.is_ascii_digit()).collect();
        format!("{}: {words}", WHERE.with(|at| at.borrow().clone()))
    })
}

fn keep(name: &str, number: u64, bytes: &[u8]) {
    if let Ok(folder) = std::env::var("FUZZ_KEEP") {
        let path = Path::new(&folder).join(format!("{name}-{number}"));
        std::fs::write(&path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

#[test]
fn a_finding_that_was_kept_runs_again() {
    let Ok(path) = std::env::var("FUZZ_REPLAY") else {
        return;
    };
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    run(&path, &bytes);
}

#[test]
fn what_was_found_once_is_not_found_again() {
    files("found")
        .iter()
        .for_each(|(path, bytes)| run(path, bytes));
}

/// Feeds bytes to the target that their file is named after.
fn run(path: &str, bytes: &[u8]) {
    let name = Path::new(path)
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    match name.split('-').next() {
        Some("file") => file(bytes),
        Some("recover") => recover(bytes),
        Some("trace") => trace(bytes),
        Some("auth") => auth::auth(bytes),
        Some("tls") => tls::tls(bytes),
        Some("keys") => keys::keys(bytes),
        Some("rights") => keys::rights(bytes),
        Some("pdu") => nvme::pdu(bytes),
        Some("command") => nvme::command(bytes),
        Some("session") => nvme::session(bytes),
        _ => panic!("{path} is not named after a target"),
    }
}

#[test]
fn the_corpus_is_small_and_complete() {
    let made = corpus::make();
    if std::env::var_os("UPDATE_CORPUS").is_some() {
        for (name, bytes) in &made {
            let path = corpus::folder().join(name);
            std::fs::create_dir_all(path.parent().expect("below the corpus"))
                .expect("a folder can be made");
            std::fs::write(path, bytes).expect("a file can be written");
        }
    }

    assert!(
        made.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() < 280_000,
        "the corpus stays small"
    );

    // Which bytes a device holds changes with the firmware; old ones are as good, as long as they
    // can be read.
    for (name, _) in &made {
        assert!(
            corpus::folder().join(name).exists(),
            "{name} is missing: run the tests with UPDATE_CORPUS=1"
        );
    }
}

#[test]
fn the_corpus_is_read_without_a_panic() {
    files("file").iter().for_each(|(_, bytes)| file(bytes));
    files("trace").iter().for_each(|(_, bytes)| trace(bytes));
    files("auth")
        .iter()
        .for_each(|(_, bytes)| auth::auth(bytes));
    files("tls").iter().for_each(|(_, bytes)| tls::tls(bytes));
    files("keys")
        .iter()
        .for_each(|(_, bytes)| keys::keys(bytes));

    files("rights")
        .iter()
        .for_each(|(_, bytes)| keys::rights(bytes));
    files("pdu").iter().for_each(|(_, bytes)| nvme::pdu(bytes));
    files("command")
        .iter()
        .for_each(|(_, bytes)| nvme::command(bytes));
    files("session")
        .iter()
        .for_each(|(_, bytes)| nvme::session(bytes));
}

#[test]
fn the_whole_images_recover_and_the_damaged_ones_do_not() {
    for (name, bytes) in files("file") {
        let is_damaged = name.contains("damaged") || name.contains("truncated");
        let read = remap_ssd_media::image_file::read(&bytes[..], remap_ssd_fuzz::LIMIT);
        assert_eq!(read.is_err(), is_damaged, "{name}");
        let Ok((image, config)) = read else { continue };
        let config =
            remap_ssd_device::DeviceConfig::from_toml(std::str::from_utf8(&config).expect("text"))
                .expect(&name);
        let media = remap_ssd_media::Media::from_image(&image);
        let (ftl, report) = remap_ssd_ftl::Ftl::recover(media, config.firmware)
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        ftl.check().expect(&name);
        assert!(report.mapped > 30, "{name}: {report:?}");
    }
}

#[test]
fn an_opened_image_seals_again() {
    for (name, bytes) in files("file") {
        if remap_ssd_media::image_file::read(&bytes[..], remap_ssd_fuzz::LIMIT).is_ok() {
            let sealed = seal::seal(&seal::open(&bytes).expect("unpacks")).expect("long enough");
            assert!(
                remap_ssd_media::image_file::read(&sealed[..], remap_ssd_fuzz::LIMIT).is_ok(),
                "{name}"
            );
        }
    }
}

#[test]
fn damaged_image_files_are_refused() {
    let seeds: Vec<Vec<u8>> = files("file").into_iter().map(|(_, bytes)| bytes).collect();
    hunt("file", &seeds, file);
}

#[test]
fn hostile_media_are_recovered_or_refused() {
    let seeds: Vec<Vec<u8>> = files("file")
        .iter()
        .filter_map(|(_, bytes)| seal::open(bytes))
        .collect();
    hunt("recover", &seeds, recover);
}

#[test]
fn damaged_traces_are_read_or_refused() {
    let seeds: Vec<Vec<u8>> = files("trace").into_iter().map(|(_, bytes)| bytes).collect();
    hunt("trace", &seeds, trace);
}

#[test]
fn sessions_that_are_not_damaged_are_served() {
    for (name, bytes) in files("session") {
        let [admin, one, two] = nvme::converse(&bytes);
        // Every step of the one that manages namespaces, and commands between.
        if name.ends_with("namespaces") {
            assert!(admin >= 25 + 13 && one >= 3, "{name}: {admin}, {one}");
            continue;
        }
        // The second queue's file commands come after the first one has forgotten the files; all
        // else is done twice.
        assert!(
            admin >= 25 && one >= 14 && two >= 14,
            "{name}: {admin}, {one}, {two}"
        );
    }
}

#[test]
fn nobody_is_authenticated_who_does_not_know_the_secret() {
    let seeds: Vec<Vec<u8>> = files("auth").into_iter().map(|(_, bytes)| bytes).collect();
    hunt("auth", &seeds, auth::auth);
}

#[test]
fn no_stranger_ends_a_handshake() {
    let seeds: Vec<Vec<u8>> = files("tls").into_iter().map(|(_, bytes)| bytes).collect();
    hunt("tls", &seeds, tls::tls);
}

#[test]
fn a_file_of_keys_is_read_or_refused() {
    let seeds: Vec<Vec<u8>> = files("keys").into_iter().map(|(_, bytes)| bytes).collect();
    hunt("keys", &seeds, keys::keys);
}

#[test]
fn rights_mean_what_their_text_says() {
    let seeds: Vec<Vec<u8>> = files("rights")
        .into_iter()
        .map(|(_, bytes)| bytes)
        .collect();
    hunt("rights", &seeds, keys::rights);
}

#[test]
fn streams_that_are_damaged_are_cut_or_refused() {
    let seeds: Vec<Vec<u8>> = files("pdu").into_iter().map(|(_, bytes)| bytes).collect();
    hunt("pdu", &seeds, nvme::pdu);
}

#[test]
fn whatever_is_asked_is_done_or_refused() {
    let seeds: Vec<Vec<u8>> = files("command")
        .into_iter()
        .map(|(_, bytes)| bytes)
        .collect();
    hunt("command", &seeds, nvme::command);
}

#[test]
fn hosts_that_break_the_protocol_break_nothing_else() {
    let seeds: Vec<Vec<u8>> = files("session")
        .into_iter()
        .map(|(_, bytes)| bytes)
        .collect();
    hunt("session", &seeds, nvme::session);
}
