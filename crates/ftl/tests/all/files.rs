//! The file map: the cost of its commands, their refusals, and the effects of damage and of many
//! resets.

use crate::kit::{self, content, device, recovered, small_config, small_geometry};
use remap_ssd_ftl::{Config, FileBlock, FilePage, FileStatus, Ftl, Lpn, Refusal, SchemeKind};
use remap_ssd_media::{After, Media, Op, OpKind, Page, Purpose};

const FILES: u32 = 3;
const BLOCKS: u32 = 10;

fn config() -> Config {
    Config {
        fs_files: FILES,
        fs_blocks: BLOCKS,
        dedup: false,
        ..small_config(SchemeKind::RemapSsd)
    }
}

fn mapped() -> Ftl {
    device(small_geometry(), &config())
}

fn page(inode: u32, offset: u32) -> FilePage {
    FilePage { inode, offset }
}

fn ops_of<R>(ftl: &mut Ftl, act: impl FnOnce(&mut Ftl) -> R) -> (Vec<Op>, R) {
    ftl.media_mut().ops.clear();
    let result = act(ftl);
    (std::mem::take(&mut ftl.media_mut().ops), result)
}

fn bytes(ops: &[Op], kind: OpKind) -> u32 {
    ops.iter()
        .filter(|op| op.kind == kind)
        .map(|op| op.amount)
        .sum()
}

/// First word of the map, which ends where the scheme's region (8 KiB at the end of NVRAM) begins,
/// at a multiple of 8.
fn base(ftl: &Ftl) -> usize {
    let words = 1 + 2 * 2 * FILES as usize + 4 * BLOCKS as usize;
    let scheme = ftl.media().nvram_words() - (8 << 10) / 8;
    (0..8)
        .map(|spare| scheme - spare - words)
        .find(|at| ftl.media().peek(*at) == 1)
        .expect("generation 1")
}

// The program of a write; 32 bytes that the acknowledgement waits for, and links that it does not
// wait for.
#[test]
fn a_noted_write_costs_the_write_an_entry_and_its_links() {
    let mut ftl = mapped();
    ftl.write(Lpn(0), &content(1)).unwrap(); // Opens a superblock.
    for (index, links) in [(0, 16), (1, 8 + 8), (2, 8 + 8)] {
        let (plain, _) = ops_of(&mut ftl, |ftl| {
            ftl.write(Lpn(1 + index), &content(2)).unwrap()
        });
        let (noted, status) = ops_of(&mut ftl, |ftl| {
            ftl.fs_write(Lpn(11 + index), &content(3), page(7, index))
                .unwrap()
        });
        assert_eq!(status, FileStatus::Recorded);
        let programs = |ops: &[Op]| ops.iter().filter(|op| op.kind == OpKind::Program).count();
        assert_eq!((programs(&plain), programs(&noted)), (1, 1));
        let program = noted
            .iter()
            .find(|op| op.kind == OpKind::Program)
            .unwrap()
            .page;
        let of = |purpose| {
            noted
                .iter()
                .filter(move |op| op.kind == OpKind::NvWrite && op.purpose == purpose)
        };
        let entry: Vec<_> = of(Purpose::Host)
            .map(|op| (op.amount, op.after_page))
            .collect();
        assert_eq!(entry, [(32, program)], "after its page");
        assert_eq!(of(Purpose::Meta).map(|op| op.amount).sum::<u32>(), links);
        assert_eq!(
            (
                bytes(&plain, OpKind::NvWrite),
                bytes(&noted, OpKind::NvRead)
            ),
            (0, 16),
            "one slot is looked at"
        );
    }

    let (ops, list) = ops_of(&mut ftl, |ftl| ftl.fs_map(7).unwrap());
    assert_eq!(
        list,
        [0, 1, 2].map(|offset| FileBlock {
            offset,
            lpn: Lpn(11 + offset)
        })
    );
    assert_eq!(bytes(&ops, OpKind::NvRead), 16 + 3 * 32);

    let (ops, files) = ops_of(&mut ftl, |ftl| ftl.fs_files().unwrap());
    assert_eq!(
        (files, bytes(&ops, OpKind::NvRead)),
        (vec![7], 2 * FILES * 16)
    );

    let (ops, ()) = ops_of(&mut ftl, |ftl| ftl.fs_reset().unwrap());
    assert_eq!(
        (bytes(&ops, OpKind::NvWrite), ops.len()),
        (8, 1),
        "a reset is one store"
    );
    assert_eq!(
        (ftl.fs_files().unwrap(), ftl.fs_map(7).unwrap()),
        (vec![], vec![])
    );
}

#[test]
fn a_full_map_says_so_and_the_data_is_written() {
    let mut ftl = mapped();
    for inode in 0..FILES {
        assert_eq!(
            ftl.fs_write(Lpn(inode), &content(1), page(inode, 0)),
            Ok(FileStatus::Recorded)
        );
    }

    assert_eq!(
        ftl.fs_write(Lpn(100), &content(50), page(99, 0)),
        Ok(FileStatus::FilesFull)
    );

    for offset in 1..=BLOCKS - FILES {
        assert_eq!(
            ftl.fs_write(Lpn(offset), &content(2), page(1, offset)),
            Ok(FileStatus::Recorded)
        );
    }

    assert_eq!(
        ftl.fs_write(Lpn(101), &content(51), page(1, 77)),
        Ok(FileStatus::BlocksFull)
    );
    assert_eq!(
        (ftl.read(Lpn(100)), ftl.read(Lpn(101))),
        (Ok(Page::Identity(50)), Ok(Page::Identity(51)))
    );

    let (mut ftl, _) = recovered(ftl);
    assert_eq!(
        (ftl.fs_files().unwrap(), ftl.fs_map(1).unwrap().len()),
        (vec![0, 1, 2], 8)
    );
    assert_eq!(
        ftl.fs_write(Lpn(102), &content(52), page(1, 78)),
        Ok(FileStatus::BlocksFull)
    );

    ftl.fs_reset().unwrap();
    assert_eq!(
        ftl.fs_write(Lpn(102), &content(53), page(99, 1)),
        Ok(FileStatus::Recorded)
    );

    let (mut ftl, _) = recovered(ftl);
    assert_eq!(
        ftl.fs_map(99),
        Ok(vec![FileBlock {
            offset: 1,
            lpn: Lpn(102)
        }])
    );
    assert_eq!(ftl.fs_files(), Ok(vec![99]));
}

#[test]
fn what_cannot_be_noted_is_refused_and_not_noted() {
    let mut ftl = mapped();
    assert_eq!(
        ftl.fs_write(Lpn(600), &content(1), page(1, 1)),
        Err(Refusal::OutOfRange)
    );
    assert_eq!(ftl.fs_files(), Ok(vec![]));

    let mut none = kit::small(SchemeKind::RemapSsd);
    assert_eq!(
        none.fs_write(Lpn(0), &content(1), page(1, 1)),
        Err(Refusal::NoFileMap)
    );
    assert_eq!(
        (none.fs_map(1), none.fs_files(), none.fs_reset()),
        (
            Err(Refusal::NoFileMap),
            Err(Refusal::NoFileMap),
            Err(Refusal::NoFileMap)
        )
    );

    assert_eq!(none.read(Lpn(0)), Ok(Page::Zeroes));
    for (fs_files, fs_blocks) in [(0, 1), (1, 0), (1, u32::MAX), (u32::MAX, 1)] {
        let text = Config {
            fs_files,
            fs_blocks,
            ..config()
        }
        .check(&small_geometry())
        .unwrap_err()
        .to_string();
        assert!(text.contains("fs_files = "), "{text}");
    }
}

/// After 2^32 resets the generations wrap around: everything is zeroed once.
#[test]
fn generations_start_over() {
    let mut ftl = mapped();
    let at = base(&ftl);
    ftl.media_mut()
        .store(at, u32::MAX.into(), Purpose::Meta, After::NOTHING);
    let (mut ftl, _) = recovered(ftl);
    ftl.fs_write(Lpn(1), &content(1), page(1, 1)).unwrap();
    let (mut ftl, _) = recovered(ftl);
    assert_eq!(ftl.fs_files(), Ok(vec![1]), "the last generation counts");
    ftl.fs_reset().unwrap();
    assert_eq!((ftl.media().peek(at), ftl.fs_files()), (1, Ok(vec![])));
    ftl.fs_write(Lpn(2), &content(2), page(2, 2)).unwrap();
    let (mut ftl, _) = recovered(ftl);
    assert_eq!(ftl.fs_files(), Ok(vec![2]));
    // A cut after the first step.
    ftl.media_mut().store(at, 0, Purpose::Meta, After::NOTHING);
    let (mut ftl, _) = recovered(ftl);
    assert_eq!((ftl.media().peek(at), ftl.fs_files()), (1, Ok(vec![])));
}

/// A cut leaves a slot of the table, but neither the reset before it nor the entry. With the next
/// reset the slot would name pages that were never recorded, and a file that was never listed.
#[test]
fn a_slot_of_a_reset_that_did_not_happen_does_not_come_alive_with_the_next() {
    let mut ftl = mapped();
    ftl.fs_write(Lpn(1), &content(1), page(1, 1)).unwrap();
    let slots = base(&ftl) + 1;

    for (slot, inode) in (0..2 * FILES as usize).zip([7, 8, 9, 10, 11, 12]) {
        if ftl.media().peek(slots + 2 * slot) == 0 {
            ftl.media_mut().store(
                slots + 2 * slot,
                2 | inode << 32,
                Purpose::Meta,
                After::NOTHING,
            );
        }
    }

    let (mut ftl, _) = recovered(ftl);
    assert_eq!(
        ftl.fs_files(),
        Ok(vec![1]),
        "the generation before is in force"
    );

    ftl.fs_reset().unwrap();
    assert_eq!(ftl.fs_files(), Ok(vec![]));
    for inode in 1..=FILES {
        assert_eq!(
            ftl.fs_write(Lpn(inode), &content(2), page(inode, 0)),
            Ok(FileStatus::Recorded)
        );
    }

    assert_eq!(
        ftl.fs_write(Lpn(9), &content(2), page(9, 0)),
        Ok(FileStatus::FilesFull)
    );
    ftl.check().unwrap();
}

/// The recorded pages cannot be determined any more: the map reports this until the host resets it,
/// and the data is intact.
#[test]
fn a_damaged_map_is_a_media_error_until_it_is_reset() {
    let mut ftl = mapped();
    for offset in 0..4 {
        ftl.fs_write(
            Lpn(offset),
            &content(u64::from(offset) + 1),
            page(1, offset),
        )
        .unwrap();
    }

    let entry = base(&ftl) + 1 + 2 * 2 * FILES as usize + 4;
    ftl.media_mut().plant(|faults| {
        faults.flips.insert(entry, 0b11);
    });
    assert_eq!(ftl.fs_map(1), Err(Refusal::MediaError));

    let config = ftl.config().clone();
    let (mut ftl, _) = Ftl::recover(ftl.into_media(), config).unwrap();
    assert_eq!(
        (ftl.fs_map(1), ftl.fs_files()),
        (Err(Refusal::MediaError), Err(Refusal::MediaError))
    );
    assert_eq!(
        ftl.fs_write(Lpn(9), &content(9), page(1, 9)),
        Ok(FileStatus::MapDamaged)
    );

    assert_eq!(
        (ftl.read(Lpn(1)), ftl.read(Lpn(9))),
        (Ok(Page::Identity(2)), Ok(Page::Identity(9)))
    );

    ftl.fs_reset().unwrap();
    assert_eq!(
        ftl.fs_write(Lpn(9), &content(10), page(1, 9)),
        Ok(FileStatus::Recorded)
    );

    let (mut ftl, _) = recovered(ftl);
    assert_eq!(
        ftl.fs_map(1),
        Ok(vec![FileBlock {
            offset: 9,
            lpn: Lpn(9)
        }])
    );
}

/// Any word of the map is damaged, or two adjacent ones: after each power-on the lists are correct
/// or media errors. No list from before the reset comes back.
#[test]
fn a_damaged_map_stays_so_over_power_cycles() {
    for noted in [0, 1, 2] {
        let mut ftl = mapped();
        let first = base(&ftl);
        for offset in 0..3 {
            ftl.fs_write(Lpn(offset), &content(1), page(1, offset))
                .unwrap();
        }
        ftl.fs_reset().unwrap();
        for offset in 0..noted {
            ftl.fs_write(Lpn(offset), &content(2), page(2, offset))
                .unwrap();
        }

        let files = if noted == 0 { vec![] } else { vec![2] };
        let list: Vec<FileBlock> = (0..noted)
            .map(|offset| FileBlock {
                offset,
                lpn: Lpn(offset),
            })
            .collect();
        let words = 1 + 2 * 2 * FILES as usize + 4 * BLOCKS as usize;
        let image = ftl.media().to_image();

        for (word, damaged) in (first..first + words).flat_map(|word| [(word, 1), (word, 2)]) {
            let mut media = Media::from_image(&image);
            media.plant(|faults| {
                for word in word..word + damaged {
                    faults.flips.insert(word, 0b11);
                }
            });

            for cycle in 1..=3 {
                let mut ftl = Ftl::recover(media, config()).unwrap().0;
                let at = format!("{noted} noted, {damaged} words from {word}, cycle {cycle}");
                let found = (ftl.fs_files(), ftl.fs_map(1), ftl.fs_map(2));
                let is_lost = found.0 == Err(Refusal::MediaError);
                assert!(
                    is_lost || found == (Ok(files.clone()), Ok(vec![]), Ok(list.clone())),
                    "{at}: {found:?}"
                );
                media = ftl.into_media();
            }

            let mut ftl = Ftl::recover(media, config()).unwrap().0;
            ftl.fs_reset().unwrap();
            let mut ftl = recovered(ftl).0;
            assert_eq!(ftl.fs_files(), Ok(vec![]), "{damaged} words from {word}");
        }
    }
}
