//! Power cuts of a disk with a volatile cache: each unflushed page is kept or lost independently.
//!
//! A script of changes is run once, and every operation on the disk is logged. Then for every
//! prefix of these operations, and for many subsets of the unflushed ones in it, the disk is
//! reconstructed and the volume opened: it must open, no page may be claimed twice, synced data
//! must be there, and each unsynced page has the file's old or new contents. Then the volume is
//! used: another file's data must not appear in new pages. The same campaign with a guard off must
//! fail.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_store::guard::Guard;
use remap_ssd_store::{Create, FileWrite, NewVolume, OpenOptions, Processes, Share, Store, Volume};
use remap_ssd_testkit::{
    Content, MemDisk, Op, PAGE, contents, discard, kept, subsets, tagged, write,
};
use std::collections::{BTreeMap, HashMap};

/// So few that pages are soon reused, and enough for files to ask for pages in advance.
const PAGES: u64 = 300;
const SLOTS: u32 = 6;
const NAMES: [&str; 4] = ["a", "b", "c", "wal"];

/// The expected state of a file.
#[derive(Clone)]
struct Known {
    /// Number of the file among all that have been created.
    id: usize,
    bytes: Vec<u8>,
}

type Files = BTreeMap<&'static str, Known>;

/// The expected state after a step.
struct Moment {
    /// Operations on the disk until then.
    operations: usize,
    files: Files,
    /// Files synced by the step.
    synced: Vec<usize>,
}

fn options(name: &str) -> OpenOptions {
    OpenOptions {
        create: Create::IfAbsent,
        open_end: name == "wal",
        written_next: name == "wal",
    }
}

fn guarded(volume: Volume<MemDisk>, without: Option<Guard>) -> Volume<MemDisk> {
    match without {
        Some(guard) => volume.without(guard),
        None => volume,
    }
}

/// Frequency of defragmentation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Defragment {
    /// As often as other changes.
    AtTimes,
    /// The file of each step, after it.
    Always,
}

/// Runs a script; returns the operations on the disk, and the state after each step. The first
/// state is the new volume.
fn script(
    seed: u64,
    steps: usize,
    defragment: Defragment,
    without: Option<Guard>,
) -> (Vec<Op>, Vec<Moment>) {
    let random = &mut Xoshiro256PlusPlus::seed_from_u64(seed);
    let disk = MemDisk::new(PAGES);
    let new = NewVolume {
        files_max: SLOTS,
        ..NewVolume::default()
    };
    let volume =
        Volume::create(disk.clone(), &Processes::One, &new, &mut |_, _| {}).expect("possible");
    let volume = guarded(volume, without);
    let operations = || disk.medium().log.len();
    let mut files = Files::new();
    let mut made = 0;
    let mut moments = vec![Moment {
        operations: operations(),
        files: files.clone(),
        synced: Vec::new(),
    }];

    for step in 0..steps {
        let name = NAMES[random.random_range(0..NAMES.len())];
        let mut synced = Vec::new();
        let place = |random: &mut Xoshiro256PlusPlus, len: usize| match random.random_range(0..3) {
            0 => len,
            1 => random.random_range(0..=len / PAGE) * PAGE,
            _ => random.random_range(0..=len),
        };
        match random.random_range(0..24) {
            0..8 => {
                let file = volume.open(name, options(name)).expect("possible");
                if !files.contains_key(name) {
                    made += 1;
                    files.insert(
                        name,
                        Known {
                            id: made,
                            bytes: Vec::new(),
                        },
                    );
                    moments.push(Moment {
                        operations: operations(),
                        files: files.clone(),
                        synced: Vec::new(),
                    });
                }
                let known = files.get_mut(name).expect("it was made");
                let offset =
                    place(random, known.bytes.len()) + random.random_range(0..6) / 5 * 2 * PAGE;
                let bytes = random.random_range(1..5) * PAGE - random.random_range(0..2) * 100;
                let data = tagged(seed << 32 | step as u64, bytes);
                if known.bytes.len().max(offset + bytes) <= 24 * PAGE {
                    volume
                        .write(file, offset as u64, &data)
                        .expect("there is room");
                    write(&mut known.bytes, offset, &data);
                }
            }
            22.. if files.contains_key(name) => {
                let file = volume.open(name, options(name)).expect("it is there");
                let known = files.get_mut(name).expect("it is there");
                // Partly after the end, and sometimes with a gap.
                let first = random.random_range(0..=known.bytes.len() / PAGE + 2) * PAGE;
                let apart = random.random_range(1..4) * PAGE;
                let places = [first, first + apart, first + 2 * apart];
                if first + 2 * apart + PAGE <= 24 * PAGE {
                    let data = places
                        .map(|place| tagged(seed << 32 | (place as u64) << 12 | step as u64, PAGE));
                    let list: Vec<FileWrite<'_>> = places
                        .iter()
                        .zip(&data)
                        .map(|(at, data)| FileWrite {
                            offset: *at as u64,
                            data,
                        })
                        .collect();
                    volume.write_all(file, &list).expect("there is room");
                    places
                        .iter()
                        .zip(&data)
                        .for_each(|(place, data)| write(&mut known.bytes, *place, data));
                }
            }
            8..10 if files.contains_key(name) => {
                volume.delete(name).expect("it is there");
                files.remove(name);
                // Its pages, which the device may still have, go to another file immediately.
                if let Some(len) = files.get("wal").map(|known| known.bytes.len())
                    && len <= 12 * PAGE
                {
                    moments.push(Moment {
                        operations: operations(),
                        files: files.clone(),
                        synced: Vec::new(),
                    });
                    let data = tagged(seed << 32 | 1 << 31 | step as u64, 10 * PAGE);
                    let file = volume.open("wal", options("wal")).expect("it is there");
                    volume
                        .write(file, len as u64, &data)
                        .expect("there is room");
                    write(
                        &mut files.get_mut("wal").expect("it is there").bytes,
                        len,
                        &data,
                    );
                }
            }
            10 if files.contains_key(name) => {
                let to = NAMES[random.random_range(0..3)];
                if name != "wal" && !files.contains_key(to) {
                    volume.rename(name, to).expect("possible");
                    let known = files.remove(name).expect("it is there");
                    files.insert(to, known);
                    // The name is free for a new file immediately.
                    moments.push(Moment {
                        operations: operations(),
                        files: files.clone(),
                        synced: Vec::new(),
                    });
                    volume.open(name, options(name)).expect("possible");
                    made += 1;
                    files.insert(
                        name,
                        Known {
                            id: made,
                            bytes: Vec::new(),
                        },
                    );
                }
            }
            11..13 if files.contains_key(name) => {
                let known = files.get_mut(name).expect("it is there");
                let limit = if name == "wal" { 3 * PAGE } else { usize::MAX };
                let size = place(random, known.bytes.len()).min(limit);
                let file = volume.open(name, options(name)).expect("it is there");
                volume.set_size(file, size as u64).expect("possible");
                known.bytes.resize(size, 0);
            }
            13 if files.contains_key(name) => {
                let known = files.get_mut(name).expect("it is there");
                let offset = place(random, known.bytes.len());
                let file = volume.open(name, options(name)).expect("it is there");
                volume
                    .discard(file, offset as u64, 3 * PAGE as u64)
                    .expect("possible");
                discard(&mut known.bytes, offset, 3 * PAGE);
            }
            14..16 if files.contains_key("wal") && files.contains_key("a") => {
                let [from, to] =
                    ["wal", "a"].map(|name| volume.open(name, options(name)).expect("it is there"));
                let source = files["wal"].bytes.clone();
                let bytes = (source.len() / PAGE).min(4) * PAGE;
                let known = files.get_mut("a").expect("it is there");
                let to_offset = known.bytes.len().min(20 * PAGE) / PAGE * PAGE;
                let (from_offset, to_offset_u64) = (0, to_offset as u64);
                let share = Share {
                    from,
                    from_offset,
                    to,
                    to_offset: to_offset_u64,
                    bytes: bytes as u64,
                };
                volume.share(&share).expect("possible");
                write(&mut known.bytes, to_offset, &source[..bytes]);
            }
            16..19 if files.contains_key(name) => {
                let file = volume.open(name, options(name)).expect("it is there");
                volume.sync(file).expect("possible");
                synced.push(files[name].id);
            }
            19 => {
                volume.sync_all().expect("possible");
                synced.extend(files.values().map(|known| known.id));
            }
            20..22 if files.contains_key(name) => {
                let file = volume.open(name, options(name)).expect("it is there");
                volume.defrag(file, &mut |_, _| {}).expect("possible");
            }
            _ => {}
        }
        moments.push(Moment {
            operations: operations(),
            files: files.clone(),
            synced,
        });

        if defragment == Defragment::Always && files.contains_key(name) {
            let file = volume.open(name, options(name)).expect("it is there");
            volume.defrag(file, &mut |_, _| {}).expect("possible");
            moments.push(Moment {
                operations: operations(),
                files: files.clone(),
                synced: Vec::new(),
            });
        }
    }
    let log = std::mem::take(&mut disk.medium().log);
    (log, moments)
}

/// A page of a file, zero-filled.
fn page_of(bytes: &[u8], page: usize) -> [u8; PAGE] {
    let mut out = [0; PAGE];
    if let Some(there) = bytes.get(page * PAGE..) {
        let len = there.len().min(PAGE);
        out[..len].copy_from_slice(&there[..len]);
    }
    out
}

/// Checks the result of a cut after `operations`.
fn judge(
    pages: HashMap<u64, Content>,
    operations: usize,
    moments: &[Moment],
    without: Option<Guard>,
) -> Result<(), String> {
    let disk = MemDisk::holding(PAGES, pages);
    let volume = Volume::open(disk.clone(), &Processes::One)
        .map_err(|error| format!("it does not open: {error}"))?;
    let volume = guarded(volume, without);
    let damage = volume.damage().map_err(|error| error.to_string())?;
    if !damage.is_empty() {
        return Err(damage.join("; "));
    }

    // The completed steps, and the one in progress.
    let over = moments
        .iter()
        .rposition(|moment| moment.operations <= operations)
        .expect("the volume was there");
    let last = if moments[over].operations == operations {
        over
    } else {
        (over + 1).min(moments.len() - 1)
    };
    let since = |id: usize| {
        let synced = moments[..=over]
            .iter()
            .rposition(|moment| moment.synced.contains(&id));
        &moments[synced.unwrap_or(0)..=last]
    };
    let states = |id: usize| {
        since(id)
            .iter()
            .flat_map(|moment| moment.files.iter())
            .filter(move |(_, known)| known.id == id)
    };

    let list = volume.list().map_err(|error| error.to_string())?;
    for pair in list.windows(2) {
        if pair[0].name == pair[1].name {
            return Err(format!("two files have the name {}", pair[0].name));
        }
    }
    for info in &list {
        // Candidates for the file: those of that name in the last states.
        let candidates: Vec<usize> = moments[over..=last]
            .iter()
            .filter_map(|moment| moment.files.get(info.name.as_str()).map(|known| known.id))
            .collect();
        let file = volume
            .open(&info.name, OpenOptions::default())
            .map_err(|error| error.to_string())?;
        let found = contents(&volume, file);
        let fits = |id: usize| {
            let size_fits =
                info.open_end || states(id).any(|(_, known)| known.bytes.len() == found.len());
            let wrong = (0..found.len().div_ceil(PAGE)).find(|&page| {
                let there = page_of(&found, page);
                // If the file was truncated within a page, the rest of the page is not visible.
                let len = found.len().min((page + 1) * PAGE) - page * PAGE;
                !states(id).any(|(_, known)| page_of(&known.bytes, page)[..len] == there[..len])
            });
            match (size_fits, wrong) {
                (false, _) => Err(format!("{} has {} bytes", info.name, found.len())),
                (_, Some(page)) => Err(format!("page {page} of {} was never in it", info.name)),
                _ => Ok(()),
            }
        };
        let mut verdict = Err(format!("{} was deleted, or never made", info.name));
        for id in candidates {
            verdict = verdict.or_else(|_| fits(id));
        }
        verdict?;
    }
    for name in NAMES {
        let always = moments[over..=last]
            .iter()
            .all(|moment| moment.files.contains_key(name));
        if always && !list.iter().any(|info| info.name == name) {
            return Err(format!("{name} is gone"));
        }
    }

    // Use continues: a file whose end is open shows all of its pages after the next crash.
    let before: Vec<Vec<u8>> = list
        .iter()
        .map(|info| {
            contents(
                &volume,
                volume
                    .open(&info.name, OpenOptions::default())
                    .expect("it was there"),
            )
        })
        .collect();
    let open = OpenOptions {
        create: Create::New,
        open_end: true,
        written_next: true,
    };
    let later = volume
        .open("later", open)
        .map_err(|error| error.to_string())?;
    volume
        .write(later, 0, &[7; PAGE])
        .map_err(|error| error.to_string())?;
    volume.sync(later).map_err(|error| error.to_string())?;
    drop(volume);
    let volume = Volume::open(disk, &Processes::One).map_err(|error| error.to_string())?;
    for (info, before) in list.iter().zip(before) {
        let file = volume
            .open(&info.name, OpenOptions::default())
            .map_err(|error| error.to_string())?;
        if contents(&volume, file) != before {
            return Err(format!("{} changed when another file grew", info.name));
        }
    }
    let later = contents(
        &volume,
        volume
            .open("later", OpenOptions::default())
            .map_err(|error| error.to_string())?,
    );
    let shown = later
        .chunks(PAGE)
        .enumerate()
        .skip(1)
        .find(|(_, bytes)| bytes.iter().any(|byte| *byte != 0));
    shown.map_or(Ok(()), |(page, _)| {
        Err(format!(
            "page {page} of a new file shows what another one held"
        ))
    })
}

/// Every prefix of a script's operations, with several subsets of the unflushed ones.
fn campaign(
    seeds: std::ops::Range<u64>,
    steps: usize,
    defragment: Defragment,
    without: Option<Guard>,
) -> Result<usize, String> {
    let mut cuts = 0;
    for seed in seeds {
        let random = &mut Xoshiro256PlusPlus::seed_from_u64(seed ^ 0xc0ffee);
        let (log, moments) = script(seed, steps, defragment, without);
        for operations in moments[0].operations..=log.len() {
            let log = &log[..operations];
            // The last operation is often the record of a change.
            for subset in subsets(log, random) {
                judge(
                    kept(&HashMap::new(), log, |index| subset[index]),
                    operations,
                    &moments,
                    without,
                )
                .map_err(|error| {
                    format!("seed {seed}, after {operations} operations, {subset:?}: {error}")
                })?;
                cuts += 1;
            }
        }
    }
    Ok(cuts)
}

#[test]
fn what_was_synced_survives_every_cut_and_no_file_shows_what_another_one_held() {
    let cuts =
        campaign(0..30, 40, Defragment::AtTimes, None).unwrap_or_else(|error| panic!("{error}"));
    assert!(cuts > 20_000, "{cuts}");
}

// Each change leaves a file fragmented, and it is defragmented at once, so that a cut meets a
// defragmentation of synced pages.
#[test]
fn a_file_survives_every_cut_while_its_pieces_are_brought_together() {
    let cuts =
        campaign(0..8, 40, Defragment::Always, None).unwrap_or_else(|error| panic!("{error}"));
    assert!(cuts > 5_000, "{cuts}");
}

// Only a second process can detect that a claim is not durable when its pages are written: see
// `a_claim_is_durable_before_its_pages_are_written` in `processes.rs`.
#[test]
fn each_flush_and_trim_is_missed_if_it_is_left_out() {
    // `branch_cuts.rs` has those of branches.
    for guard in Guard::ALL
        .into_iter()
        .filter(|guard| !guard.is_of_branches() && *guard != Guard::FlushClaimed)
    {
        assert!(
            campaign(0..40, 40, Defragment::AtTimes, Some(guard)).is_err(),
            "{guard:?} protects nothing that this test would notice"
        );
    }
}

#[test]
fn a_cut_while_a_volume_is_made_leaves_one_or_none() {
    let new = NewVolume {
        files_max: SLOTS,
        force: true,
        ..NewVolume::default()
    };
    let random = &mut Xoshiro256PlusPlus::seed_from_u64(5);
    // Over a volume with a file, none of whose data may appear in the new one.
    let disk = MemDisk::new(PAGES);
    let old =
        Volume::create(disk.clone(), &Processes::One, &new, &mut |_, _| {}).expect("possible");
    let file = old.open("old", options("old")).expect("possible");
    old.write(file, 0, &tagged(3, 20 * PAGE))
        .expect("there is room");
    old.sync(file).expect("possible");
    let before = old.info().expect("possible").uuid;
    drop(old);
    let from = disk.medium().log.len();
    Volume::create(disk.clone(), &Processes::One, &new, &mut |_, _| {}).expect("it was asked for");
    let log = std::mem::take(&mut disk.medium().log);

    let mut found = [0; 3];
    for operations in from..=log.len() {
        for _ in 0..20 {
            let disk = MemDisk::holding(
                PAGES,
                kept(&HashMap::new(), &log[..operations], |_| {
                    random.random_bool(0.5)
                }),
            );
            let Ok(volume) = Volume::open(disk, &Processes::One) else {
                found[0] += 1;
                continue;
            };
            if let Ok(info) = volume.info()
                && info.uuid != before
            {
                assert!(
                    volume.list().expect("possible").is_empty(),
                    "files of the old volume"
                );
                found[1] += 1;
            } else {
                found[2] += 1;
            }
        }
    }
    assert!(
        found.iter().all(|count| *count > 0),
        "none, new, old: {found:?}"
    );
}
