//! `volume` as users see it: files are imported and exported, and mistakes are sentences.

use crate::kit::{Ran, Words, bytes, path, run};
use crate::served::{Served, serve};
use remap_ssd_nvme::tcp::client::{Client, Options};
use remap_ssd_store::{Processes, Store, Volume};
use std::path::Path;

fn volume<W: Words + ?Sized>(args: &W, place: &[&str]) -> Ran {
    run(&"volume".and(args).and(place))
}

/// The rest of a volume's life, in any place.
fn carries_files(dir: &Path, place: &[&str]) {
    volume("list", place).fails_in_one_line(1, &["no volume here", "blank"]);
    volume("create --files 8", place).ok();
    volume("create", place).fails_in_one_line(1, &["not blank", "--force"]);
    assert_eq!(volume("list", place).ok().out, "no files\n");

    // Unaligned sizes, an empty file, and whole pages.
    for (index, len) in [0, 1, 4095, 4096, 123_457, 3 << 20].into_iter().enumerate() {
        let (name, data) = (format!("file {index}"), bytes(index as u64, len));
        let (local, back) = (path(dir, &name), path(dir, "back"));
        std::fs::write(&local, &data).expect("room for it");
        for how in [&["import", &local][..], &["import", &local, "--force"]] {
            volume(how, place).ok();
            volume(&["export", "--force", &name, &back], place).ok();
            assert!(std::fs::read(&back).expect("written") == data, "{how:?}");
            volume(&["import", &local], place).fails_in_one_line(1, &[&name, "--force"]);
        }
        let list = volume("list --json", place).ok().json();
        assert_eq!(
            (&list[index]["name"], &list[index]["bytes"]),
            (&name.as_str().into(), &len.into())
        );
    }
    volume(
        &["import", &path(dir, "file 0"), "--name", "another name"],
        place,
    )
    .ok();
    let before = volume("stat --json", place).ok().json();
    assert_eq!(
        (&before["files"], &before["files_max"]),
        (&7.into(), &8.into())
    );

    // The maximum number of files: the list says how to make room.
    assert_eq!(volume("list", place).ok().err, "");
    let import = |name| volume(&["import", &path(dir, "file 0"), "--name", name], place);
    import("the last one").ok();
    let words = ["maximum of 8 files", "volume create --files"];
    let said = volume("list", place).ok().err;
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
    import("one too many").fails_in_one_line(1, &words);
    volume(&["delete", "the last one"], place).ok();

    // A file that does not fit leaves no remains.
    let large = path(dir, "large");
    std::fs::write(&large, bytes(9, 40 << 20)).expect("room for it");
    volume(&["import", &large], place).fails_in_one_line(1, &["full", "pages are needed"]);
    assert_eq!(volume("stat --json", place).ok().json(), before);

    volume(&["export", "nothing", &path(dir, "nothing")], place)
        .fails_in_one_line(1, &["no file nothing"]);
    assert!(!dir.join("nothing").exists());
    volume(&["import", &path(dir, "nowhere")], place)
        .fails_in_one_line(1, &["nowhere", "No such file"]);
    volume(&["import", &large, "--name", ""], place)
        .fails_in_one_line(2, &["cannot be a file's name"]);
    volume("create --force --files 0", place).fails_in_one_line(2, &["1 to 65536 files"]);
    volume("create --force", place).ok();
    assert_eq!(volume("list", place).ok().out, "no files\n");
    volume("list --nsid 7", place).fails_in_one_line(1, &[place[1]]);
}

fn served(args: &[&str]) -> (Served, Vec<String>) {
    let served = serve(args);
    let place = vec!["--connect".to_owned(), served.nvme.clone()];
    (served, place)
}

#[test]
fn a_file_goes_into_a_served_device_and_comes_out_byte_for_byte() {
    let dir = tempfile::tempdir().expect("a folder");
    let (served, place) = served(&["--memory", "32MiB"]);
    carries_files(
        dir.path(),
        &place.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    served.stop();
}

#[test]
fn a_file_goes_into_a_device_in_a_folder_and_is_there_when_it_is_served() {
    let dir = tempfile::tempdir().expect("a folder");
    let image = path(dir.path(), "disk");
    run(&format!("image create {image} --size 64MiB --namespaces 2")).ok();
    let place = ["--image", image.as_str()];
    carries_files(dir.path(), &place);

    // The other namespace is unchanged, and has room for its own volume.
    let second = ["--image", image.as_str(), "--nsid", "2"];
    volume("create --size 4MiB", &second).ok();
    let (local, back) = (path(dir.path(), "local"), path(dir.path(), "back"));
    std::fs::write(&local, bytes(5, 70_001)).expect("room for it");
    volume(&["import", &local], &second).ok();
    let (served, mut place) = served(&["--image", &image]);
    volume("list", &second).fails_in_one_line(1, &["in use"]);
    place.extend(["--nsid".to_owned(), "2".to_owned()]);
    let place: Vec<&str> = place.iter().map(String::as_str).collect();
    volume(&["export", "--force", "local", &back], &place).ok();
    assert!(std::fs::read(&back).expect("written") == bytes(5, 70_001));
    served.stop();
}

#[test]
fn a_file_that_a_program_has_open_is_neither_deleted_nor_replaced() {
    let dir = tempfile::tempdir().expect("a folder");
    let (served, place) = served(&["--memory", "64MiB"]);
    let place: Vec<&str> = place.iter().map(String::as_str).collect();
    volume("create", &place).ok();
    let local = path(dir.path(), "app.db");
    std::fs::write(&local, bytes(1, 70_001)).expect("room for it");
    volume(&["import", &local], &place).ok();

    let disk = Client::connect(place[1], Options::default()).expect("it serves");
    let program = Volume::open(disk, &Processes::local()).expect("the same user");
    let open = program.hold_file("app.db", false).expect("it is free");
    let refusal = ["app.db", "open in another process"];
    volume("delete app.db", &place).fails_in_one_line(1, &refusal);
    volume(&["import", &local, "--force"], &place).fails_in_one_line(1, &refusal);
    drop(open);
    volume(&["import", &local, "--force"], &place).ok();
    volume("delete app.db", &place).ok();

    // Another domain has the volume open: nothing is changed.
    drop(program);
    let disk = Client::connect(place[1], Options::default()).expect("it serves");
    let other = Processes::Several(dir.path().join("domain"));
    let other = Volume::open(disk, &other).expect("it is free");
    for args in [&["list"][..], &["import", &local], &["create", "--force"]] {
        volume(args, &place).fails_in_one_line(1, &["in use by other processes"]);
    }
    drop(other);
    volume(&["import", &local], &place).ok();
    served.stop();
}

#[test]
fn several_processes_bring_files_in_at_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let (served, place) = served(&["--memory", "64MiB"]);
    let place: Vec<&str> = place.iter().map(String::as_str).collect();
    volume("create", &place).ok();
    std::thread::scope(|scope| {
        for number in 0..4u64 {
            let (dir, place) = (dir.path(), &place);
            scope.spawn(move || {
                for round in 0..3u64 {
                    let (name, back) = (
                        format!("{number}-{round}"),
                        path(dir, &format!("back {number}")),
                    );
                    let data = bytes(number * 10 + round, 700_000 + 333 * round as usize);
                    std::fs::write(dir.join(&name), &data).expect("room for it");
                    volume(&["import", &path(dir, &name)], place).ok();
                    volume(&["export", "--force", &name, &back], place).ok();
                    assert!(std::fs::read(&back).expect("written") == data);
                }
            });
        }
    });
    let stat = volume("stat --json", &place).ok().json();
    assert_eq!(stat["files"], 12);
    // It fails if a page is claimed twice.
    volume("list", &place).ok();
    let back = path(dir.path(), "back");
    for number in 0..4u64 {
        for round in 0..3u64 {
            volume(
                &["export", "--force", &format!("{number}-{round}"), &back],
                &place,
            )
            .ok();
            let data = bytes(number * 10 + round, 700_000 + 333 * round as usize);
            assert!(std::fs::read(&back).expect("written") == data);
        }
    }
    served.stop();
}

#[test]
fn mistakes_with_volumes_are_sentences() {
    run("volume list --nqn nqn.nobody").fails_in_one_line(1, &["127.0.0.1:4420"]);
    run("volume list --connect 127.0.0.1:1 --image x").fails(2, &["--image"]);
    run("volume list --connect 127.0.0.1:1").fails_in_one_line(1, &["127.0.0.1:1"]);
    let dir = tempfile::tempdir().expect("a folder");
    run(&["volume", "list", "--image", &path(dir.path(), "")])
        .fails_in_one_line(1, &["not a device image", "device.toml"]);
    run(&["volume", "list", "--image", &path(dir.path(), "nothing")])
        .fails_in_one_line(1, &["nothing", "No such file", "`remap-ssd image create`"]);

    // Existing data of other software are not overwritten.
    let (served, place) = served(&["--memory", "32MiB"]);
    let place: Vec<&str> = place.iter().map(String::as_str).collect();
    let file = path(dir.path(), "file");
    std::fs::write(&file, bytes(1, 5000)).expect("room for it");
    served.io(&["write", "--lba", "777", "--file", &file]).ok();
    let hint = ["no volume here", "`remap-ssd volume create`"];
    volume("list", &place).fails_in_one_line(1, &hint);
    run(&"share snapshot list --volume".and(&place)).fails_in_one_line(1, &hint);
    volume("create", &place).fails_in_one_line(1, &["not blank", "page 777", "--force"]);
    volume("create --size 1GiB --force", &place).fails_in_one_line(2, &["does not fit"]);
    volume("create --force", &place).ok();

    // A log beside a database holds data that the file lacks.
    std::fs::write(path(dir.path(), "file-wal"), b"frames").expect("room for it");
    let ran = volume(&["import", &file], &place).ok();
    assert!(ran.err.contains("file-wal"), "{}", ran.err);

    // In a volume too: a database is exported completely, or not at all.
    let journal = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
    std::fs::write(path(dir.path(), "beside"), journal).expect("room for it");
    let back = path(dir.path(), "back");
    for beside in ["file-wal", "file-journal"] {
        let local = path(dir.path(), "beside");
        volume(&["import", &local, "--name", beside], &place).ok();
        volume(&["export", "file", &back], &place)
            .fails_in_one_line(1, &["file is not complete", beside, "wal_checkpoint"]);
        assert!(!Path::new(&back).exists(), "nothing is written");
        volume(&["delete", beside], &place).ok();
    }
    volume(&["export", "file", &back], &place).ok();

    // Local files are no worse off.
    std::fs::write(&back, b"precious").expect("room for it");
    volume(&["export", "file", &back], &place).fails_in_one_line(1, &[&back, "--force"]);
    assert_eq!(std::fs::read(&back).expect("there"), b"precious");
    volume(&["export", "--force", "file", &back], &place).ok();
    assert_eq!(std::fs::read(&back).expect("there"), bytes(1, 5000));
    served.stop();
}
