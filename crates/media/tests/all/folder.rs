//! Devices in folders: after the process dies, after the machine crashes, and with a damaged file.

use crate::kit::folder::{
    CONTENTS, FILES, JOURNAL_BYTES, JOURNALS, SECTOR, STATES, WORDS, blank, create, files,
    latest_of, operate, put_files,
};
use crate::kit::numbers::Numbers;
use crate::kit::tiny;
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_media::image_file::ImageError;
use remap_ssd_media::{After, BlockId, Image, Media, Purpose, SbId};
use std::path::Path;

/// A device in this folder, and an equal one in memory.
fn twins(dir: &Path) -> (Media, Media) {
    (create(dir, JOURNAL_BYTES), blank())
}

#[test]
fn a_process_that_dies_leaves_every_operation_behind() {
    let (live, copy) = (
        tempfile::tempdir().expect("a folder"),
        tempfile::tempdir().expect("a folder"),
    );
    let (mut folder, mut twin) = twins(live.path());
    let mut numbers = Numbers(1);
    for step in 0..3000 {
        operate(&mut numbers, &mut folder, &mut twin);
        if step % 37 == 0 {
            // The files seen by other processes now are those that SIGKILL would leave.
            put_files(copy.path(), &files(live.path()));
            let (found, report) = Media::open_folder(copy.path()).expect("the files are whole");
            assert_eq!(report.dropped, 0);
            assert_eq!(
                found.to_image().digest(),
                twin.to_image().digest(),
                "after {step} operations"
            );
            assert_eq!(found.erase_counts(), twin.erase_counts());
        }
    }

    // Longer than the longest record of the journal.
    for media in [&mut folder, &mut twin] {
        media.store_record(0, &[7; WORDS], Purpose::Host, After::NOTHING);
    }
    drop(folder);

    let (mut again, _) = Media::open_folder(live.path()).expect("the files are whole");
    for _ in 0..100 {
        operate(&mut numbers, &mut again, &mut twin);
    }
    again.tidy().expect("the disk works");
    drop(again);

    let (again, report) = Media::open_folder(live.path()).expect("the files are whole");
    assert_eq!((report.records, report.dropped), (0, 0));
    assert_eq!(again.to_image().digest(), twin.to_image().digest());
}

/// The files at one moment, the device's image, and the block erased by the last operation.
type Version = (Vec<Vec<u8>>, Image, Option<BlockId>);

/// A mixture of the sectors of some versions of the files. A file that is `held` is as in the
/// versions before the last, and so is the page of witnesses, which waits for that file.
fn mixed(versions: &[Version], held: Option<usize>, numbers: &mut Numbers) -> Vec<Vec<u8>> {
    let mix = |file: usize| {
        let last = &versions[versions.len() - 1].0[file];
        let mut pick = |(sector, bytes): (usize, &[u8])| {
            let is_witness = file == CONTENTS && sector * SECTOR + PAGE_BYTES >= last.len();
            let is_held = held == Some(file) || held.is_some() && is_witness;
            let among = (versions.len() - usize::from(is_held)) as u64;
            let version = &versions[numbers.below(among) as usize].0[file];
            version[sector * SECTOR..][..bytes.len()].to_vec()
        };
        last.chunks(SECTOR)
            .enumerate()
            .flat_map(&mut pick)
            .collect()
    };
    (0..FILES.len()).map(mix).collect()
}

/// The journal begun between two versions, whose state was durable before.
fn begun(before: &[Vec<u8>], after: &[Vec<u8>]) -> Option<usize> {
    JOURNALS
        .into_iter()
        .find(|file| before[*file][..16] != after[*file][..16])
}

/// The files during a sync of the journal: the last record, which confirms it, is not there yet.
fn cut_in_sync(before: &[Vec<u8>], after: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut cut = after.to_vec();
    for (before, cut) in before.iter().zip(&mut cut).skip(3) {
        let last = (0..cut.len())
            .step_by(8)
            .rev()
            .find(|at| before[*at..at + 8] != cut[*at..at + 8]);
        last.into_iter()
            .for_each(|at| cut[at..at + 8].copy_from_slice(&before[at..at + 8]));
    }
    cut
}

/// Number of the versions' operations found, at most; they must be a prefix.
fn prefix(found: &Image, versions: &[Version]) -> Option<usize> {
    latest_of(
        found,
        versions.iter().map(|(_, image, erased)| (image, *erased)),
    )
}

#[test]
fn a_machine_that_dies_leaves_what_was_synced_and_a_prefix_of_the_rest() {
    let (live, copy) = (
        tempfile::tempdir().expect("a folder"),
        tempfile::tempdir().expect("a folder"),
    );
    let (mut folder, mut twin) = twins(live.path());
    let mut numbers = Numbers(number("FOLDER_SEED").unwrap_or(2));

    // Since the last sync.
    let mut versions: Vec<Version> = vec![(files(live.path()), twin.to_image(), None)];
    let (mut shorter, mut dropped, mut states, mut cuts) = (0, 0, 0, 0);
    let steps = number("FOLDER_STEPS").unwrap_or(2500);

    for step in 0..steps {
        let syncs = folder.syncs();
        let erased = operate(&mut numbers, &mut folder, &mut twin);

        if numbers.below(25) == 0 {
            let (before, synced_before) = (files(live.path()), folder.syncs() != syncs);
            folder.sync().expect("the disk works");
            let after = files(live.path());
            // Only if no new state was written in between, and no erase had its own sync.
            if !synced_before && begun(&versions[versions.len() - 1].0, &after).is_none() {
                let cut = cut_in_sync(&before, &after);
                versions.push((cut, twin.to_image(), erased));

                let mut mixture = mixed(&versions, None, &mut numbers);
                // The contents were durable before the journal was written.
                mixture[0].clone_from(&before[0]);
                put_files(copy.path(), &mixture);
                let (found, _) = Media::open_folder(copy.path()).expect("a prefix is whole");
                assert!(
                    prefix(&found.to_image(), &versions).is_some(),
                    "step {step}: cut in a sync"
                );
                versions.pop();
                cuts += 1;
            }
        }

        let now = files(live.path());
        let begun = begun(&versions[versions.len() - 1].0, &now);
        if begun.is_none() && folder.syncs() != syncs {
            versions.clear();
        }
        versions.push((now, twin.to_image(), erased));
        if versions.len() < 2 || (step % 3 != 0 && begun.is_none()) {
            continue;
        }

        // A new state is durable before its journal is begun, and until then the machine may have
        // crashed at any moment.
        put_files(copy.path(), &mixed(&versions, begun, &mut numbers));
        let (found, report) = Media::open_folder(copy.path()).expect("a prefix is whole");
        dropped += u64::from(report.dropped > 0);
        let prefix = prefix(&found.to_image(), &versions);
        let prefix =
            prefix.unwrap_or_else(|| panic!("step {step}: not a prefix of the operations"));

        shorter += u64::from(prefix + 1 < versions.len());
        if begun.is_some() {
            states += 1;
            versions.drain(..versions.len() - 1);
        }
    }

    let enough =
        shorter > steps / 15 && dropped > steps / 60 && states > steps / 200 && cuts > steps / 50;
    assert!(
        enough,
        "{shorter} shorter prefixes, {dropped} for their contents, {states} new states, {cuts} cuts in syncs"
    );
}

#[allow(clippy::disallowed_methods, reason = "a longer run, or another one, by hand")]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number"))
    })
}

#[test]
fn an_erase_waits_for_what_came_before() {
    let dir = tempfile::tempdir().expect("a folder");
    let (mut folder, _) = twins(dir.path());
    folder.store(3, 4, Purpose::Host, After::NOTHING);
    let erase = |folder: &mut Media, die| {
        let id = folder.name_next();
        folder
            .erase(tiny().block(SbId(0), die), id, After::NOTHING)
            .expect("no fault is planted");
        folder.syncs()
    };

    assert_eq!(erase(&mut folder, 0), 1);
    assert_eq!(
        erase(&mut folder, 1),
        1,
        "nothing but erases happened since"
    );

    folder.store(3, 5, Purpose::Host, After::NOTHING);
    assert_eq!(erase(&mut folder, 0), 2);
}

#[test]
fn a_state_that_was_not_written_to_its_end_is_as_if_it_had_not_begun() {
    let (live, copy) = (
        tempfile::tempdir().expect("a folder"),
        tempfile::tempdir().expect("a folder"),
    );
    let (mut folder, mut twin) = twins(live.path());
    let mut numbers = Numbers(3);
    for _ in 0..200 {
        operate(&mut numbers, &mut folder, &mut twin);
    }

    let before = files(live.path());
    folder.tidy().expect("the disk works");
    let after = files(live.path());
    let changed = |file: &usize| before[*file] != after[*file];
    let (state, journal) = (
        STATES.into_iter().find(changed),
        JOURNALS.into_iter().find(changed),
    );
    let (state, journal) = (
        state.expect("one state is new"),
        journal.expect("its journal is new"),
    );

    for part in (0..after[state].len()).step_by(64) {
        let mut files = before.clone();
        files[state][..part].copy_from_slice(&after[state][..part]);
        put_files(copy.path(), &files);
        let (found, _) = Media::open_folder(copy.path()).expect("the older state is whole");
        assert_eq!(
            found.to_image().digest(),
            twin.to_image().digest(),
            "{part} bytes of the state"
        );
    }

    let mut files = before;
    files[state] = after[state].clone();
    assert_ne!(files[journal], after[journal]);
    put_files(copy.path(), &files);
    let (found, report) = Media::open_folder(copy.path()).expect("the newer state is whole");
    assert_eq!(found.to_image().digest(), twin.to_image().digest());
    assert_eq!(
        report.records, 0,
        "the journal belongs to another generation"
    );
}

#[test]
fn a_folder_in_use_or_damaged_is_refused_with_the_reason() {
    let (live, copy) = (
        tempfile::tempdir().expect("a folder"),
        tempfile::tempdir().expect("a folder"),
    );
    let (folder, _) = twins(live.path());
    let refusal = |dir: &Path| Media::open_folder(dir).err().expect("refused");
    assert!(matches!(refusal(live.path()), ImageError::InUse));
    drop(folder);

    let whole = files(live.path());
    for (file, name) in FILES.iter().enumerate() {
        for len in [0, 63, whole[file].len() / 2] {
            let mut files = whole.clone();
            files[file].truncate(len);
            put_files(copy.path(), &files);
            let opened = Media::open_folder(copy.path());
            // The older state may be damaged in any way.
            assert!(opened.is_err() || file == 1, "{name} of {len} bytes");
        }
    }

    // With any bytes: a device or a reason.
    let mut numbers = Numbers(4);
    for _ in 0..500 {
        let mut files = whole.clone();
        let file = 1 + numbers.below(4) as usize;
        for _ in 0..=numbers.below(4) {
            let at = numbers.below(files[file].len().min(4096) as u64) as usize;
            files[file][at] ^= 1 << numbers.below(8);
        }
        put_files(copy.path(), &files);
        let _ = Media::open_folder(copy.path());
    }
}
