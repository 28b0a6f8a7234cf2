//! Damage to the files of a device in a folder, under the real firmware: it is refused with the
//! file's name and a place, or pages read as media errors, or it has no effect. No page is ever
//! older than its last flush.

use crate::kit::{self, remap, try_read, write};
use remap_ssd_device::{Device, Lpn};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_media::geometry::PAGE_BYTES;
use std::path::{Path, PathBuf};

const LPNS: u32 = 90;
const FILES: [&str; 6] = [
    "contents",
    "state.0",
    "state.1",
    "journal.0",
    "journal.1",
    "device.toml",
];

/// A folder whose device was written, remapped, trimmed and flushed, and then not closed.
struct Rig {
    dir: tempfile::TempDir,
    held: Vec<u64>,
    good: Vec<Vec<u8>>,
}

impl Rig {
    fn new(scheme: SchemeKind) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let config = kit::tiny(scheme, false, LPNS, 20);
        let mut device =
            Device::create_in_folder(dir.path(), config, Some(64 << 10)).expect("room for it");

        let mut held = vec![0u64; LPNS as usize];
        for n in 0..600u64 {
            let lpn = (n * 7 % u64::from(LPNS)) as u32;
            if n % 5 == 3 {
                let source = (lpn + 11) % (LPNS - 4);
                let target = lpn.min(LPNS - 4);
                remap(&mut device, target, source).expect("there is room");
                held[target as usize] = held[source as usize];
            } else if n % 40 == 7 {
                device
                    .deallocate(0, Lpn(lpn), 1)
                    .result
                    .expect("there is room");
                held[lpn as usize] = 0;
            } else {
                write(&mut device, lpn, n + 1).expect("there is room");
                held[lpn as usize] = n + 1;
            }
            if n % 50 == 0 {
                device.sync().expect("the disk works");
            }
        }
        device.sync().expect("the disk works");
        drop(device);

        let mut rig = Self {
            dir,
            held,
            good: Vec::new(),
        };
        rig.good = rig.files();
        rig
    }

    fn path(&self, file: usize) -> PathBuf {
        self.dir.path().join(FILES[file])
    }
    fn files(&self) -> Vec<Vec<u8>> {
        (0..FILES.len())
            .map(|file| std::fs::read(self.path(file)).expect("there"))
            .collect()
    }
    fn restore(&self) {
        (0..FILES.len()).for_each(|file| {
            std::fs::write(self.path(file), &self.good[file]).expect("room for it")
        });
    }
    fn flip(&self, file: usize, at: usize) {
        let mut bytes = std::fs::read(self.path(file)).expect("there");
        bytes[at] ^= 1 << (at % 8);
        std::fs::write(self.path(file), bytes).expect("room for it");
    }
    /// LPNs that read as media errors; the others must be right.
    fn errors(&self, device: &mut Device, what: &str) -> Vec<u32> {
        let mut errors = Vec::new();
        for lpn in 0..LPNS {
            match try_read(device, lpn) {
                Ok(content) => assert_eq!(content, self.held[lpn as usize], "{what}: LPN {lpn}"),
                Err(_) => errors.push(lpn),
            }
        }
        errors
    }
}

fn newest(dir: &Path) -> usize {
    let generation = |file: &str| {
        let bytes = std::fs::read(dir.join(file)).expect("there");
        u64::from_le_bytes(bytes[48..56].try_into().expect("8 bytes"))
    };
    usize::from(generation("state.1") > generation("state.0"))
}

#[test]
fn no_flipped_bit_makes_a_flushed_page_older() {
    for scheme in [SchemeKind::RemapSsd, SchemeKind::FLog] {
        let rig = Rig::new(scheme);
        let state = 1 + newest(rig.dir.path());
        let (mut refused, mut errors) = ([0; FILES.len()], 0);

        for (file, name) in FILES.iter().enumerate() {
            let len = rig.good[file].len();
            let used = rig.good[file]
                .iter()
                .rposition(|byte| *byte != 0)
                .map_or(0, |at| at + 1);
            // One byte per page of the contents.
            let step = if file == 0 {
                PAGE_BYTES
            } else {
                (used / 150).max(1) | 1
            };
            // Metadata are shorter than their pages.
            let first = if file == 0 { 3 } else { step / 3 };

            for at in (first..used.max(step).min(len)).step_by(step) {
                rig.flip(file, at);
                let what = format!("{scheme}, {name}, byte {at}");

                match Device::open_in_folder(rig.dir.path()) {
                    Ok((mut device, _)) => {
                        device.ftl().check().expect("consistent");
                        errors += rig.errors(&mut device, &what).len();
                    }
                    Err(error) => {
                        let error = error.to_string();
                        assert!(
                            error.contains(name) || error.contains("state."),
                            "{what}: {error}"
                        );
                        refused[file] += 1;
                    }
                }
                rig.restore();
            }
        }

        assert!(
            refused[state] > 100 && refused[state + 2] > 100,
            "{scheme}: {refused:?} refused"
        );
        // Pages of live metadata.
        assert!(refused[0] > 5, "{scheme}: {refused:?} refused");
        assert!(
            refused[5] > 100 && errors > 50,
            "{scheme}: {refused:?} refused, {errors} media errors"
        );
    }
}

#[test]
fn checking_says_what_is_damaged_and_changes_nothing_and_repairing_gives_up_no_more() {
    let rig = Rig::new(SchemeKind::RemapSsd);
    let dir = rig.dir.path();
    let check = Device::check_folder(dir).expect("a device");
    assert!(check.is_clean() && check.mapped > 50, "{check:?}");
    assert_eq!((check.without_checksum, check.given_up), (0, 0));

    // A mapped page, and the configuration.
    let mut found = None;
    for page in 0.. {
        rig.flip(0, page * PAGE_BYTES + 9);
        let check = Device::check_folder(dir).expect("a device");
        let only = check.damage.len() == 1 && check.damage[0].lost.contains("LPN");
        if only && Device::open_in_folder(dir).is_ok() {
            rig.restore();
            rig.flip(0, page * PAGE_BYTES + 9);
            found = Some(check);
            break;
        }
        rig.restore();
    }
    let check = found.expect("some page is mapped once");
    assert!(
        check.damage[0].to_string().starts_with("contents, byte "),
        "{}",
        check.damage[0]
    );

    rig.flip(5, 20);
    let before = rig.files();
    let check = Device::check_folder(dir).expect("a device");
    assert!(!check.is_clean());
    assert!(before == rig.files(), "checking changes nothing");
    if check.beyond.is_some() {
        // The flip has made the configuration invalid: it cannot be reconstructed.
        assert!(Device::repair_folder(dir).is_err() && before == rig.files());
        std::fs::write(rig.path(5), &rig.good[5]).expect("room for it");
    }

    let (check, kept) = Device::repair_folder(dir).expect("it can be repaired");
    let kept = kept.expect("copies are kept");
    assert!(kept.join("state.0").exists() && kept.join("device.toml").exists());

    let (mut device, _) = Device::open_in_folder(dir).expect("it opens");
    let errors = rig.errors(&mut device, "repaired");
    assert_eq!(
        errors.len(),
        check
            .damage
            .iter()
            .filter(|damage| damage.file == "contents")
            .count()
    );

    // It stays a media error until it is rewritten.
    for lpn in &errors {
        write(&mut device, *lpn, 5).expect("there is room");
        assert_eq!(try_read(&mut device, *lpn), Ok(5));
    }
    device.close().expect("the disk works");
    assert!(Device::check_folder(dir).expect("a device").is_clean());
}

#[test]
fn a_damaged_record_is_repaired_to_the_newest_moment_of_which_all_is_known() {
    let rig = Rig::new(SchemeKind::RemapSsd);
    let dir = rig.dir.path();
    let journal = 3 + newest(dir);
    rig.flip(journal, 16 + 40);

    let refused = Device::open_in_folder(dir)
        .err()
        .expect("refused")
        .to_string();
    assert!(
        refused.contains(FILES[journal]) && refused.contains(", byte "),
        "{refused}"
    );

    let before = rig.files();
    let check = Device::check_folder(dir).expect("a device");
    assert!(
        check.damage[0].lost.contains("flushes") && check.beyond.is_none(),
        "{check:?}"
    );
    assert!(before == rig.files(), "checking changes nothing");

    Device::repair_folder(dir).expect("it can be repaired");
    let check = Device::check_folder(dir).expect("a device");
    assert!(check.is_clean(), "{check:?}");

    let (device, _) = Device::open_in_folder(dir).expect("it opens");
    device.ftl().check().expect("consistent");
}
