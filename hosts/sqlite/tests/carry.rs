//! Files carried into a volume and out of it.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_sqlite::carry::{CarryError, Export, Import};
use remap_ssd_store::{Create, NewVolume, OpenOptions, Processes, Store, Volume};
use remap_ssd_testkit::{MemDisk, kept};
use std::collections::HashMap;
use std::io::{self, Read};

const PAGES: u64 = 500;

fn volume(disk: MemDisk) -> Volume<MemDisk> {
    let new = NewVolume {
        files_max: 8,
        ..NewVolume::default()
    };
    Volume::create(disk, &Processes::One, &new, &mut |_, _| {}).expect("possible")
}

fn import(volume: &dyn Store, mut data: &[u8], replace: bool) -> Result<u64, CarryError> {
    let expected = data.len() as u64;
    Import::begin(volume, "file", replace)?.copy(&mut data, expected, &mut |_, _| {})
}

fn export(volume: &dyn Store, name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let source = Export::open(volume, name).expect("it is there");
    source.copy(&mut out, &mut |_, _| {}).expect("readable");
    out
}

/// A source that fails after some bytes.
struct Failing(usize);

impl Read for Failing {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::Error::other("unplugged"));
        }
        let count = self.0.min(into.len());
        self.0 -= count;
        Ok(count)
    }
}

#[test]
fn a_name_is_replaced_on_request_and_only_by_a_complete_file() {
    let volume = volume(MemDisk::new(PAGES));
    let (old, new) = (vec![1; 9000], vec![2; 20_001]);
    assert_eq!(import(&volume, &old, false).expect("room"), 9000);

    let refused = import(&volume, &new, false);
    assert!(matches!(refused, Err(CarryError::Exists(_))));

    let unplugged = Import::begin(&volume, "file", true).expect("it may be replaced");
    let unplugged = unplugged.copy(&mut Failing(10_000), 10_000, &mut |_, _| {});
    assert!(matches!(unplugged, Err(CarryError::Local(_))));
    assert_eq!(export(&volume, "file"), old);
    assert_eq!(volume.list().expect("readable").len(), 1, "no remains");

    import(&volume, &new, true).expect("room");
    assert_eq!(export(&volume, "file"), new);
}

// Over an older file of that name, on a disk that keeps any part of the unflushed writes.
#[test]
fn an_import_that_is_cut_leaves_a_complete_file_old_or_new() {
    let disk = MemDisk::new(PAGES);
    let made = volume(disk.clone());
    let (old, new) = (vec![1; 9000], vec![2; 20_001]);
    import(&made, &old, false).expect("room");
    made.sync(made.open("file", OpenOptions::default()).expect("there"))
        .expect("possible");
    let from = disk.medium().log.len();
    import(&made, &new, true).expect("room");
    drop(made);

    let random = &mut Xoshiro256PlusPlus::seed_from_u64(1);
    let log = std::mem::take(&mut disk.medium().log);
    let mut found = [0; 3];
    for operations in from..=log.len() {
        for _ in 0..8 {
            let contents = kept(&HashMap::new(), &log[..operations], |_| {
                random.random_bool(0.5)
            });
            let disk = MemDisk::holding(PAGES, contents);
            let volume = Volume::open(disk, &Processes::One).expect("it opens");
            let names = volume.list().expect("readable");
            let there = names.iter().any(|info| info.name == "file");
            let content = export(&volume, if there { "file" } else { "file.part" });
            assert!(content == old || content == new, "at {operations}");
            let case = if !there {
                2
            } else {
                usize::from(content == new)
            };
            found[case] += 1;
        }
    }
    assert!(
        found[..2].iter().all(|count| *count > 0),
        "old, new, neither renamed: {found:?}"
    );
}

/// A source that takes the name of the import when it is read.
struct Taking<'a>(&'a dyn Store);

impl Read for Taking<'_> {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        let new = OpenOptions::from(Create::New);
        let taken = self.0.open("file", new);
        taken.map(|_| 0).map_err(io::Error::other)
    }
}

#[test]
fn an_import_that_cannot_be_renamed_says_where_the_file_is() {
    let volume = volume(MemDisk::new(PAGES));
    let import = Import::begin(&volume, "file", false).expect("a free name");
    let unnamed = import.copy(&mut Taking(&volume), 0, &mut |_, _| {});
    let Err(CarryError::Unnamed { part, .. }) = unnamed else {
        panic!("{unnamed:?}");
    };
    assert_eq!(export(&volume, &part), [0; 0]);
}
