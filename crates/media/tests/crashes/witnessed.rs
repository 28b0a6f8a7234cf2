//! Files that the service keeps beside a device, replaced on a machine that crashes: the result is
//! the old file or the new one, it is never refused, and once acknowledged it is the new one. The
//! disk is a model (`kit/disk.rs`).

use crate::disk;
use crate::kit::folder::{JOURNAL_BYTES, create};
use crate::kit::numbers::Numbers;
use crate::kit::tiny;
use remap_ssd_media::Media;
use remap_ssd_media::folder::{
    FileVersion, WitnessedFile, checksum, newest_version, replace_file, replace_witnessed,
    witness_version,
};
use std::path::Path;
use tempfile::TempDir;

const OF: [(WitnessedFile, &str); 2] = [
    (WitnessedFile::Service, "service.json"),
    (WitnessedFile::Reservations, "reservations.json"),
];
/// Random draws per moment.
const DRAWS: usize = 40;

/// The text of a version, longer than a sector, and its version number and checksum.
fn text(serial: u64) -> (Vec<u8>, FileVersion) {
    let text = format!("{serial} ").repeat(400).into_bytes();
    let crc = checksum(&text);
    (text, FileVersion { serial, crc })
}

fn newest(dir: &Path, of: WitnessedFile) -> FileVersion {
    let newest = newest_version(dir, &tiny(), of);
    newest.expect("it can be read").expect("it has the page")
}

fn save(dir: &Path, of: (WitnessedFile, &str), serial: u64) {
    let (text, version) = text(serial);
    let geometry = tiny();
    replace_witnessed(dir, &geometry, of.0, of.1, &text, version).expect("the disk works");
}

/// The serial number of the file found, which must be whole and not refused.
fn found(dir: &Path, (of, name): (WitnessedFile, &str)) -> u64 {
    Media::look_into_folder(dir).expect("the device opens");
    let bytes = std::fs::read(dir.join(name)).expect("there was one");
    let serial = String::from_utf8_lossy(&bytes);
    let serial = serial.split(' ').next().and_then(|text| text.parse().ok());
    let (text, version) = text(serial.unwrap_or(0));
    assert!(bytes == text, "it is whole");
    assert!(!version.is_older_than(newest(dir, of)), "it is not refused");
    version.serial
}

#[test]
fn a_crash_at_each_step_leaves_the_old_file_or_the_new_one_and_neither_is_refused() {
    for of in OF {
        let dir = tempfile::tempdir().expect("a folder");
        let mut numbers = Numbers(11);
        drop(create(dir.path(), JOURNAL_BYTES));
        disk::attach(dir.path());
        save(dir.path(), of, 1);

        for serial in 2..6 {
            let moments = disk::moments(|| save(dir.path(), of, serial));
            // Its contents, its name, and the record.
            assert_eq!(moments.len(), 4, "one before each sync, and the end");

            let end = moments.len() - 1;
            let mut left = [0; 2];
            for (at, moment) in moments.iter().enumerate() {
                for _ in 0..DRAWS {
                    let elsewhere = tempfile::tempdir().expect("a folder");
                    moment.crash(elsewhere.path(), |end| numbers.below(end));
                    let found = found(elsewhere.path(), of);
                    assert!(found == serial || at < end && found == serial - 1);
                    left[usize::from(found == serial)] += 1;

                    // An older copy of the file does not undo an acknowledged version.
                    let (older, version) = text(serial - 1);
                    std::fs::write(elsewhere.path().join(of.1), older).expect("there is room");
                    let newest = newest(elsewhere.path(), of.0);
                    assert!(at < end || version.is_older_than(newest));

                    // The next version is accepted after any cut.
                    save(elsewhere.path(), of, serial + 1);
                    assert_eq!(self::found(elsewhere.path(), of), serial + 1);
                }
            }
            assert!(left.iter().all(|count| *count > DRAWS / 2), "{left:?}");
        }
    }
}

/// A machine that crashes repeatedly, and a version begun where the last one was cut.
#[test]
fn crashes_one_after_another_lose_no_version_that_was_acknowledged() {
    let of = OF[0];
    let mut numbers = Numbers(12);
    let mut dir = tempfile::tempdir().expect("a folder");
    drop(create(dir.path(), JOURNAL_BYTES));
    disk::attach(dir.path());
    save(dir.path(), of, 1);
    let mut acknowledged = 1;

    for _ in 0..300 {
        // As at a start of the service: the file found is witnessed.
        let serial = found(dir.path(), of);
        assert!(serial >= acknowledged, "{serial} and not {acknowledged}");
        let (_, version) = text(serial);
        witness_version(dir.path(), &tiny(), of.0, version).expect("the disk works");
        acknowledged = serial;

        let moments = disk::moments(|| save(dir.path(), of, serial + 1));
        let at = numbers.below(moments.len() as u64) as usize;
        if at == moments.len() - 1 {
            acknowledged = serial + 1;
        }
        let elsewhere: TempDir = tempfile::tempdir().expect("a folder");
        moments[at].crash(elsewhere.path(), |end| numbers.below(end));
        disk::attach(elsewhere.path());
        dir = elsewhere;
    }
    assert!(acknowledged > 50, "{acknowledged}");
}

#[test]
fn an_older_file_is_refused_and_so_is_another_one_with_the_number_of_the_newest() {
    let version = |serial, crc| FileVersion { serial, crc };
    let newest = version(5, 1);
    assert!(version(4, 1).is_older_than(newest));
    assert!(version(5, 2).is_older_than(newest));
    assert!(version(0, 0).is_older_than(newest), "none at all");
    assert!(!newest.is_older_than(newest));
    assert!(!version(6, 3).is_older_than(newest));
    assert!(!version(5, 2).is_older_than(FileVersion::default()));
}

/// Also within a sector: a torn record leaves the previous one valid.
#[test]
fn a_record_that_is_torn_at_any_byte_leaves_the_one_before_or_the_new_one() {
    let dir = tempfile::tempdir().expect("a folder");
    drop(create(dir.path(), JOURNAL_BYTES));
    let contents = dir.path().join("contents");
    for of in OF {
        save(dir.path(), of, 1);
        for serial in 2..5 {
            let before = std::fs::read(&contents).expect("it is there");
            save(dir.path(), of, serial);
            let after = std::fs::read(&contents).expect("it is there");
            let changed: Vec<usize> = (0..after.len())
                .filter(|at| before[*at] != after[*at])
                .collect();
            assert!(changed.len() > 4 && changed[changed.len() - 1] - changed[0] < 32);

            for cut in 0..=changed.len() {
                let mut torn = before.clone();
                changed[..cut].iter().for_each(|at| torn[*at] = after[*at]);
                std::fs::write(&contents, torn).expect("there is room");
                let found = newest(dir.path(), of.0);
                let expected = serial - u64::from(cut < changed.len());
                assert_eq!(found, text(expected).1, "{cut} bytes of it");
            }
        }
    }
}

/// Other files are replaced in the same way, without a record.
#[test]
fn a_file_that_is_replaced_is_the_old_one_or_the_new_one_after_a_crash() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut numbers = Numbers(13);
    disk::attach(dir.path());
    let name = "health.json";
    let replace = |serial| replace_file(dir.path(), name, &text(serial).0).expect("the disk works");
    replace(1);
    let moments = disk::moments(|| replace(2));
    assert_eq!(moments.len(), 3);
    for (at, moment) in moments.iter().enumerate() {
        for _ in 0..DRAWS {
            let elsewhere = tempfile::tempdir().expect("a folder");
            moment.crash(elsewhere.path(), |end| numbers.below(end));
            let bytes = std::fs::read(elsewhere.path().join(name)).expect("there was one");
            assert!(bytes == text(2).0 || at < 2 && bytes == text(1).0);
        }
    }
}
