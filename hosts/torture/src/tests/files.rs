//! Recordings in files: loading returns the saved recording or a reason; never a panic.

use crate::array::{Array, DiskGeometry};
use crate::error::TortureError;
use crate::file::{id, load, save};
use crate::record::{About, Event, Recorder, Recording};
use std::path::Path;

fn recording() -> Recording {
    let recorder = Recorder::new(DiskGeometry {
        block_bytes: 512,
        blocks: 64,
    })
    .unwrap();
    recorder.write(0, &[1; 4096], false).unwrap();
    recorder.note(Event::Start).unwrap();
    for number in 0..20u8 {
        recorder
            .write(
                u64::from(number) * 512,
                &[number; 1024],
                number.is_multiple_of(3),
            )
            .unwrap();
        recorder.flush().unwrap();
        recorder.mark(format!("mark {number}").as_bytes());
        recorder.zero(u64::from(number) * 512, 512).unwrap();
    }
    recorder.note(Event::End).unwrap();
    let fs = Some("ext4".into());
    recorder.finish(About {
        fs,
        workload: "w".into(),
        check: "c".into(),
        mount_options: None,
        nvme_tcp: true,
        faults: vec!["full".into()],
    })
}

fn same(one: &Recording, other: &Recording) -> bool {
    let parts = |r: &Recording| {
        (
            r.shape,
            r.about.clone(),
            r.events.clone(),
            r.words.clone(),
            r.marks.clone(),
        )
    };
    parts(one) == parts(other) && id(one).unwrap() == id(other).unwrap()
}

#[test]
fn what_is_loaded_is_what_was_saved() {
    let folder = tempfile::tempdir().unwrap();
    let (path, saved) = (folder.path().join("r"), recording());
    save(&saved, &path).unwrap();
    let loaded = load(&path).unwrap();
    assert!(same(&saved, &loaded));
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        1,
        "nothing is left beside it"
    );
}

#[test]
fn damaged_and_truncated_files_are_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r");
    let saved = recording();
    save(&saved, &path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let refused = |path: &Path| {
        matches!(
            load(path),
            Err(TortureError::NotARecording(_) | TortureError::Io(_))
        )
    };

    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x41;
        std::fs::write(&path, &damaged).unwrap();
        // Some bits of a compressed stream are unused; then the recording is intact.
        let harmless = load(&path).is_ok_and(|loaded| same(&loaded, &saved));
        assert!(refused(&path) || harmless, "byte {at}");

        std::fs::write(&path, &bytes[..at]).unwrap();
        assert!(refused(&path), "{at} bytes");
    }
}
