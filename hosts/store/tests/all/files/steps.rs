//! Steps on a store and on a model: files that are bytes by name.

use proptest::prelude::*;
use remap_ssd_store::{Create, FileId, FileWrite, OpenOptions, Share, Store, StoreError};
use remap_ssd_testkit::{PAGE, contents, discard, tagged, write};
use std::collections::BTreeMap;

pub const NAMES: [&str; 4] = ["database", "database-wal", "database-journal", "other"];
pub const BYTES: u64 = 32 << 20;
/// Bytes of a file that the steps use.
pub const SPAN: usize = 40 * PAGE;

#[derive(Clone, Copy, Debug)]
pub enum Step {
    Open {
        name: usize,
        create: Create,
    },
    Delete {
        name: usize,
    },
    Rename {
        from: usize,
        to: usize,
    },
    Write {
        name: usize,
        offset: usize,
        bytes: usize,
    },
    /// Ranges of this many bytes, with this distance from one to the next.
    WriteAll {
        name: usize,
        offset: usize,
        bytes: usize,
        pieces: usize,
        gap: usize,
    },
    SetSize {
        name: usize,
        size: usize,
    },
    Discard {
        name: usize,
        offset: usize,
        bytes: usize,
    },
    Share {
        from: usize,
        from_offset: usize,
        to: usize,
        to_offset: usize,
        bytes: usize,
        pieces: usize,
    },
    Sync {
        name: usize,
    },
    SyncAll,
}

/// An offset, mostly page-aligned.
pub fn place() -> impl Strategy<Value = usize> {
    prop_oneof![3 => (0..SPAN / PAGE).prop_map(|page| page * PAGE), 1 => 0..SPAN]
}

pub fn length() -> impl Strategy<Value = usize> {
    prop_oneof![3 => (0..12usize).prop_map(|pages| pages * PAGE), 1 => 0..6 * PAGE]
}

pub fn step() -> impl Strategy<Value = Step> {
    let name = || 0..NAMES.len();
    let create = prop_oneof![
        Just(Create::Never),
        Just(Create::IfAbsent),
        Just(Create::New)
    ];
    prop_oneof![
        3 => (name(), create).prop_map(|(name, create)| Step::Open { name, create }),
        1 => name().prop_map(|name| Step::Delete { name }),
        1 => (name(), name()).prop_map(|(from, to)| Step::Rename { from, to }),
        6 => (name(), place(), length()).prop_map(|(name, offset, bytes)| Step::Write { name, offset, bytes }),
        4 => (name(), place(), length(), 0..4usize, length()).prop_map(
            |(name, offset, bytes, pieces, gap)| Step::WriteAll { name, offset, bytes, pieces, gap: gap / 3 }
        ),
        2 => (name(), place()).prop_map(|(name, size)| Step::SetSize { name, size }),
        2 => (name(), place(), length()).prop_map(|(name, offset, bytes)| Step::Discard { name, offset, bytes }),
        5 => (name(), place(), name(), place(), length(), 1..4usize).prop_map(
            |(from, from_offset, to, to_offset, bytes, pieces)| {
                Step::Share { from, from_offset, to, to_offset, bytes, pieces }
            }
        ),
        1 => name().prop_map(|name| Step::Sync { name }),
        1 => Just(Step::SyncAll),
    ]
}

/// Ranges of a list of shares: each after the one before, so that later ones may read what earlier
/// ones wrote.
pub fn ranges(step: &Step) -> Vec<(usize, usize, usize)> {
    let Step::Share {
        from_offset,
        to_offset,
        bytes,
        pieces,
        ..
    } = *step
    else {
        return Vec::new();
    };
    (0..pieces)
        .map(|piece| {
            (
                from_offset + piece * bytes,
                to_offset + piece * bytes,
                bytes,
            )
        })
        .collect()
}

pub fn file(store: &dyn Store, name: usize) -> Option<FileId> {
    store.open(NAMES[name], OpenOptions::default()).ok()
}

/// Does one step on a store and on the model; both must agree if it is possible.
pub fn perform(store: &dyn Store, files: &mut BTreeMap<&str, Vec<u8>>, index: usize, step: &Step) {
    match *step {
        Step::Open { name, create } => {
            let name = NAMES[name];
            let opened = store.open(name, create.into());
            match (files.contains_key(name), create) {
                (true, Create::New) => assert!(matches!(opened, Err(StoreError::Exists(_)))),
                (false, Create::Never) => assert!(matches!(opened, Err(StoreError::NotFound(_)))),
                _ => {
                    store.close(opened.expect("possible"));
                    files.entry(name).or_default();
                }
            }
        }
        Step::Delete { name } => match files.remove(NAMES[name]) {
            Some(_) => store.delete(NAMES[name]).expect("possible"),
            None => assert!(matches!(
                store.delete(NAMES[name]),
                Err(StoreError::NotFound(_))
            )),
        },
        Step::Rename { from, to } => {
            let done = store.rename(NAMES[from], NAMES[to]);
            if files.contains_key(NAMES[from]) && (from == to || !files.contains_key(NAMES[to])) {
                done.expect("possible");
                let bytes = files.remove(NAMES[from]).expect("it is there");
                files.insert(NAMES[to], bytes);
            } else {
                assert!(matches!(
                    done,
                    Err(StoreError::NotFound(_) | StoreError::Exists(_))
                ));
            }
        }
        Step::Write {
            name,
            offset,
            bytes,
        } => {
            let Some(known) = files.get_mut(NAMES[name]) else {
                return;
            };
            let file = file(store, name).expect("it is there");
            let data = tagged(index as u64, bytes);
            store.write(file, offset as u64, &data).expect("possible");
            write(known, offset, &data);
            store.close(file);
        }
        Step::WriteAll {
            name,
            offset,
            bytes,
            pieces,
            gap,
        } => {
            let Some(known) = files.get_mut(NAMES[name]) else {
                return;
            };
            let file = file(store, name).expect("it is there");
            let places: Vec<usize> = (0..pieces)
                .map(|piece| offset + piece * (bytes + gap))
                .collect();
            let data: Vec<Vec<u8>> = places
                .iter()
                .map(|place| tagged((index + place) as u64, bytes))
                .collect();
            let writes: Vec<FileWrite<'_>> = places
                .iter()
                .zip(&data)
                .map(|(place, data)| FileWrite {
                    offset: *place as u64,
                    data,
                })
                .collect();
            store.write_all(file, &writes).expect("possible");
            places
                .iter()
                .zip(&data)
                .filter(|_| bytes > 0)
                .for_each(|(place, data)| write(known, *place, data));
            store.close(file);
        }
        Step::SetSize { name, size } => {
            let Some(known) = files.get_mut(NAMES[name]) else {
                return;
            };
            let file = file(store, name).expect("it is there");
            store.set_size(file, size as u64).expect("possible");
            known.resize(size, 0);
            store.close(file);
        }
        Step::Discard {
            name,
            offset,
            bytes,
        } => {
            let Some(known) = files.get_mut(NAMES[name]) else {
                return;
            };
            let file = file(store, name).expect("it is there");
            store
                .discard(file, offset as u64, bytes as u64)
                .expect("possible");
            discard(known, offset, bytes);
            store.close(file);
        }
        Step::Share { from, to, .. } => {
            let (Some(source), Some(target)) = (file(store, from), file(store, to)) else {
                return;
            };
            let mut possible = true;
            for (from_offset, to_offset, bytes) in ranges(step) {
                let known = &files[NAMES[from]];
                possible = bytes == 0 || from_offset + bytes <= known.len();
                if !possible {
                    break; // Earlier ranges have been done.
                }
                let taken = if bytes == 0 {
                    Vec::new()
                } else {
                    known[from_offset..from_offset + bytes].to_vec()
                };
                write(
                    files.get_mut(NAMES[to]).expect("it is there"),
                    to_offset,
                    &taken,
                );
            }
            let shares: Vec<Share> = ranges(step)
                .iter()
                .map(|&(from_offset, to_offset, bytes)| Share {
                    from: source,
                    from_offset: from_offset as u64,
                    to: target,
                    to_offset: to_offset as u64,
                    bytes: bytes as u64,
                })
                .collect();
            let done = store.share_all(&shares);
            assert_eq!(done.is_ok(), possible, "{step:?}: {done:?}");
            if !possible {
                // The list may have been done in part.
                files.insert(NAMES[to], contents(store, target));
            }
            store.close(source);
            store.close(target);
        }
        Step::Sync { name } => {
            if let Some(file) = file(store, name) {
                store.sync(file).expect("possible");
                store.close(file);
            }
        }
        Step::SyncAll => store.sync_all().expect("possible"),
    }
}

pub fn compare(store: &dyn Store, files: &BTreeMap<&str, Vec<u8>>, what: &str) {
    let list = store.list().expect("possible");
    let known: Vec<(&str, u64)> = files
        .iter()
        .map(|(name, bytes)| (*name, bytes.len() as u64))
        .collect();
    let found: Vec<(&str, u64)> = list
        .iter()
        .map(|info| (info.name.as_str(), info.bytes))
        .collect();
    assert_eq!(found, known, "{what}");
    for (name, bytes) in files {
        let file = store
            .open(name, OpenOptions::default())
            .expect("it is there");
        assert!(contents(store, file) == *bytes, "{name} {what}");
        // A range that begins and ends within pages, and one that reaches beyond the end.
        let (first, mut part) = (bytes.len() / 3, vec![1; 5000]);
        let read = store.read(file, first as u64, &mut part).expect("possible");
        assert!(
            part[..read] == bytes[first..(first + 5000).min(bytes.len())],
            "{name} {what}"
        );
        assert_eq!(
            store
                .read(file, bytes.len() as u64, &mut part)
                .expect("possible"),
            0
        );
        store.close(file);
    }
}

pub fn run(store: &dyn Store, steps: &[Step], what: &str) {
    // Left by an earlier run that failed.
    store
        .list()
        .expect("possible")
        .iter()
        .for_each(|info| store.delete(&info.name).expect("it is there"));
    let mut files = BTreeMap::new();
    // Start with two files, so that there is data to share.
    for name in 0..2 {
        perform(
            store,
            &mut files,
            0,
            &Step::Open {
                name,
                create: Create::New,
            },
        );
        perform(
            store,
            &mut files,
            1000 + name,
            &Step::Write {
                name,
                offset: 0,
                bytes: 30 * PAGE,
            },
        );
    }
    for (index, step) in steps.iter().enumerate() {
        perform(store, &mut files, index, step);
    }
    compare(store, &files, what);
    files
        .keys()
        .for_each(|name| store.delete(name).expect("it is there"));
}
