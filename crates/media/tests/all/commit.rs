//! Commits concurrent with use of the device: after any crash of the machine, everything they
//! covered is there.

use crate::kit::folder::{
    CONTENTS, FILES, JOURNALS, SECTOR, blank, create, files, latest_of, operate, put_files,
};
use crate::kit::numbers::Numbers;
use crate::kit::tiny;
use remap_ssd_media::folder::FolderCommit;
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_media::{After, Lpn, Media, Oob, Purpose, SbId, StoredPage};
use std::sync::Arc;

/// Never full: a new state would make everything durable.
const JOURNAL_BYTES: u64 = 256 << 10;

/// Progress of a commit.
enum Stage {
    None,
    Begun(FolderCommit),
    Written(FolderCommit),
    Vouched(FolderCommit),
}

#[test]
fn a_commit_keeps_what_was_before_it_whatever_comes_while_it_is_made() {
    let (live, copy) = (
        tempfile::tempdir().expect("a folder"),
        tempfile::tempdir().expect("a folder"),
    );
    let mut folder = create(live.path(), JOURNAL_BYTES);
    let mut twin = blank();
    let mut numbers = Numbers(5);

    // Since the last whole sync: the files, the image, and the block erased by each step.
    let mut versions = vec![(files(live.path()), twin.to_image(), None)];
    // The oldest version that each file's sectors can have, the coverage of the commit in progress,
    // and that of the last one.
    let (mut oldest, mut begun, mut kept) = ([0; FILES.len()], 0, 0);
    let mut stage = Stage::None;
    let (mut commits, mut needed) = (0, 0);
    for step in 0..250 {
        let syncs = folder.syncs();
        let erased = operate(&mut numbers, &mut folder, &mut twin);
        if folder.syncs() != syncs {
            versions.clear();
            (oldest, begun, kept) = ([0; FILES.len()], 0, 0);
        }
        versions.push((files(live.path()), twin.to_image(), erased));

        let last = versions.len() - 1;
        stage = match (stage, numbers.below(3)) {
            (stage, 0) => stage,
            (Stage::None, _) => {
                begun = last;
                Stage::Begun(
                    folder
                        .begin_commit()
                        .expect("the disk works")
                        .expect("it has files"),
                )
            }
            (Stage::Begun(commit), _) => {
                commit.write_contents().expect("the disk works");
                oldest[CONTENTS] = last;
                Stage::Written(commit)
            }
            (Stage::Written(mut commit), _) => {
                folder.vouch(&mut commit).expect("the disk works");
                versions.push((files(live.path()), twin.to_image(), None));
                Stage::Vouched(commit)
            }
            (Stage::Vouched(commit), _) => {
                commit.write_journal().expect("the disk works");
                JOURNALS.iter().for_each(|file| oldest[*file] = last);
                kept = begun;
                commits += 1;
                Stage::None
            }
        };

        let mixed: Vec<Vec<u8>> = (0..FILES.len())
            .map(|file| {
                let range = (versions.len() - oldest[file]) as u64;
                let pick = |(sector, bytes): (usize, &[u8])| {
                    let version = &versions[oldest[file] + numbers.below(range) as usize].0[file];
                    version[sector * SECTOR..][..bytes.len()].to_vec()
                };
                versions[versions.len() - 1].0[file]
                    .chunks(SECTOR)
                    .enumerate()
                    .flat_map(pick)
                    .collect()
            })
            .collect();
        put_files(copy.path(), &mixed);
        let (found, _) = Media::open_folder(copy.path()).expect("a prefix is whole");

        let found = found.to_image();
        let prefix = latest_of(
            &found,
            versions.iter().map(|(_, image, erased)| (image, *erased)),
        );
        let prefix =
            prefix.unwrap_or_else(|| panic!("step {step}: not a prefix of the operations"));
        assert!(
            prefix >= kept,
            "step {step}: {prefix} of the {kept} versions that a commit covered"
        );
        needed += u64::from(prefix < versions.len() - 1 && kept > 0);
    }
    assert!(
        commits > 25 && needed > 30,
        "{commits} commits, {needed} times something else was lost"
    );
}

#[test]
fn a_commit_behind_which_nothing_was_done_reaches_the_end_of_the_history() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut folder = create(dir.path(), JOURNAL_BYTES);
    let commit = |folder: &mut Media, meanwhile: &dyn Fn(&mut Media)| {
        let mut commit = folder
            .begin_commit()
            .expect("the disk works")
            .expect("it has files");
        commit.write_contents().expect("the disk works");
        meanwhile(folder);
        folder.vouch(&mut commit).expect("the disk works");
        commit.write_journal().expect("the disk works")
    };

    let store = |folder: &mut Media| folder.store(3, 4, Purpose::Host, After::NOTHING);
    let program = |folder: &mut Media| {
        let stored = StoredPage::Bytes(Arc::new([7; PAGE_BYTES]));
        let ppn = tiny().page(SbId(0), 0);
        folder
            .program(
                ppn,
                Oob::new(Lpn(1), 1, 1),
                stored,
                Purpose::Host,
                After::NOTHING,
            )
            .expect("no fault is planted");
    };

    store(&mut folder);
    let until = commit(&mut folder, &|_| {});
    assert_eq!(folder.position(), Some(until));
    assert_eq!(
        Some(commit(&mut folder, &store)),
        folder.position(),
        "words are in the journal alone"
    );
    assert!(
        Some(commit(&mut folder, &program)) < folder.position(),
        "a page's contents came too late"
    );
}
