//! Power cuts at every point of scripts that make, change, merge and delete branches: each step has
//! happened or not, a list of branches is not there without its first ones, and a parent that has
//! changed is known to have changed.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_store::guard::Guard;
use remap_ssd_store::{Create, NewBranch, NewVolume, OpenOptions, Processes, Store, Volume};
use remap_ssd_testkit::{Content, MemDisk, Op, PAGE, contents, kept, subsets, tagged, write};
use std::collections::{BTreeMap, HashMap};

/// So few that pages are soon used again.
const PAGES: u64 = 120;
const SLOTS: u32 = 8;
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

#[derive(Clone, PartialEq, Eq)]
struct Known {
    bytes: Vec<u8>,
    /// The parent of a branch, and its bytes when the branch was made.
    parent: Option<(&'static str, Vec<u8>)>,
}

type Files = BTreeMap<&'static str, Known>;

#[derive(Clone, Debug)]
enum Step {
    Write(&'static str),
    /// The branches of a list: parent and name.
    Branch(Vec<(&'static str, &'static str)>),
    Merge(&'static str),
    Delete(&'static str),
}

/// State before a step, the step, and the number of operations by its end.
struct Moment {
    files: Files,
    step: Step,
    operations: usize,
}

fn branch(files: &mut Files, from: &'static str, to: &'static str) {
    let bytes = files[from].bytes.clone();
    let parent = Some((from, bytes.clone()));
    files.insert(to, Known { bytes, parent });
}

/// Children of a file that is gone have no parent any more.
fn forget_parent(files: &mut Files, gone: &str) {
    for known in files.values_mut() {
        known.parent = known.parent.take().filter(|(name, _)| *name != gone);
    }
}

/// Merges `name` in the model, if it has a parent.
fn merge(files: &mut Files, name: &str) {
    let branch = files.remove(name).expect("it is there");
    let (parent, _) = branch.parent.expect("it is a branch");
    files.get_mut(parent).expect("it is there").bytes = branch.bytes;
    forget_parent(files, name);
}

fn choose(random: &mut Xoshiro256PlusPlus, files: &Files) -> Option<Step> {
    let there: Vec<&'static str> = files.keys().copied().collect();
    let free: Vec<&'static str> = NAMES
        .into_iter()
        .filter(|name| !files.contains_key(name))
        .collect();
    let any = |random: &mut Xoshiro256PlusPlus| there[random.random_range(0..there.len())];
    if there.is_empty() {
        return Some(Step::Write("a"));
    }
    match random.random_range(0..8) {
        0..3 => Some(Step::Write(any(random))),
        3..5 if !free.is_empty() => Some(Step::Branch(vec![(any(random), free[0])])),
        5 if free.len() > 1 => {
            let list = vec![(any(random), free[0]), (any(random), free[1])];
            Some(Step::Branch(list))
        }
        6 => {
            let is_branch = |name: &&&str| files[**name].parent.is_some();
            there.iter().find(is_branch).map(|name| Step::Merge(name))
        }
        7 => Some(Step::Delete(any(random))),
        _ => None,
    }
}

fn perform(
    volume: &Volume<MemDisk>,
    files: &mut Files,
    step: &Step,
    random: &mut Xoshiro256PlusPlus,
    tag: u64,
) {
    match step {
        Step::Write(name) => {
            let file = volume.open(name, Create::IfAbsent.into());
            let file = file.expect("there is room");
            let known = files.entry(name).or_insert(Known {
                bytes: Vec::new(),
                parent: None,
            });
            let offset = random.random_range(0..=known.bytes.len().min(4 * PAGE));
            let data = tagged(tag, random.random_range(1..3 * PAGE));
            volume
                .write(file, offset as u64, &data)
                .expect("there is room");
            volume.sync(file).expect("possible");
            write(&mut known.bytes, offset, &data);
        }
        Step::Branch(list) => {
            let new: Vec<NewBranch<'_>> = list
                .iter()
                .map(|(from, to)| NewBranch { from, to })
                .collect();
            volume.branch(&new, tag).expect("there is room");
            list.iter().for_each(|(from, to)| branch(files, from, to));
        }
        Step::Merge(name) => {
            volume.merge(name, true).expect("its parent is there");
            merge(files, name);
        }
        Step::Delete(name) => {
            volume.delete(name).expect("it is there");
            files.remove(name);
            forget_parent(files, name);
        }
    }
}

fn guarded(volume: Volume<MemDisk>, without: Option<Guard>) -> Volume<MemDisk> {
    match without {
        Some(guard) => volume.without(guard),
        None => volume,
    }
}

fn script(seed: u64, steps: usize, without: Option<Guard>) -> (Vec<Op>, usize, Vec<Moment>) {
    let random = &mut Xoshiro256PlusPlus::seed_from_u64(seed);
    let disk = MemDisk::new(PAGES);
    let new = NewVolume {
        files_max: SLOTS,
        ..NewVolume::default()
    };
    let volume = Volume::create(disk.clone(), &Processes::One, &new, &mut |_, _| {});
    let volume = guarded(volume.expect("possible"), without);
    let begin = disk.medium().log.len();
    let (mut files, mut moments) = (Files::new(), Vec::new());
    for number in 0..steps as u64 {
        let Some(step) = choose(random, &files) else {
            continue;
        };
        let before = files.clone();
        perform(&volume, &mut files, &step, random, seed << 32 | number);
        moments.push(Moment {
            files: before,
            step,
            operations: disk.medium().log.len(),
        });
    }
    moments.push(Moment {
        files,
        step: Step::Write("a"),
        operations: disk.medium().log.len(),
    });
    let log = std::mem::take(&mut disk.medium().log);
    (log, begin, moments)
}

fn found(volume: &Volume<MemDisk>) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let mut found = BTreeMap::new();
    for info in volume.list().map_err(|error| error.to_string())? {
        let file = volume.open(&info.name, OpenOptions::default());
        let file = file.map_err(|error| error.to_string())?;
        found.insert(info.name, contents(volume, file));
    }
    Ok(found)
}

/// Returns true if a file's size and each of its pages come from one of two states.
fn is_old_or_new(is: &[u8], states: [&[u8]; 2]) -> bool {
    let size_fits = states.iter().any(|state| state.len() == is.len());
    size_fits
        && is.chunks(PAGE).enumerate().all(|(page, there)| {
            states.iter().any(|state| {
                let mut bytes = [0; PAGE];
                let part = state.get(page * PAGE..).unwrap_or_default();
                let part = &part[..part.len().min(PAGE)];
                bytes[..part.len()].copy_from_slice(part);
                bytes[..there.len()] == *there
            })
        })
}

/// Checks the files after a cut in the step between two states.
fn check_files(is: &BTreeMap<String, Vec<u8>>, now: &Moment, next: &Files) -> Result<(), String> {
    let plain = |files: &Files| -> BTreeMap<String, Vec<u8>> {
        let plain = files.iter();
        plain
            .map(|(name, known)| ((*name).to_owned(), known.bytes.clone()))
            .collect()
    };
    let mut allowed = vec![plain(&now.files), plain(next)];
    match &now.step {
        Step::Branch(list) if list.len() > 1 => {
            let mut first = now.files.clone();
            branch(&mut first, list[0].0, list[0].1);
            allowed.push(plain(&first));
        }
        // Within a write each page is old or new, and the file may be there already.
        Step::Write(name) => {
            let mut rest = is.clone();
            let there = rest.remove(*name).unwrap_or_default();
            let bytes = |files: &Files| {
                files
                    .get(name)
                    .map_or(Vec::new(), |known| known.bytes.clone())
            };
            let (old, new) = (bytes(&now.files), bytes(next));
            if !there.is_empty() && !is_old_or_new(&there, [&old, &new]) {
                return Err(format!("{name} was never like this"));
            }
            if there.is_empty() && !old.is_empty() {
                return Err(format!("{name} is gone or empty"));
            }
            allowed[0].remove(*name);
            return (rest == allowed[0])
                .then_some(())
                .ok_or_else(|| format!("a write to {name} changed another file"));
        }
        _ => {}
    }
    allowed
        .contains(is)
        .then_some(())
        .ok_or_else(|| "the files are not those before or after the step".into())
}

fn judge(
    pages: HashMap<u64, Content>,
    now: &Moment,
    next: &Files,
    without: Option<Guard>,
) -> Result<(), String> {
    let said = |error: &dyn std::fmt::Display| error.to_string();
    let disk = MemDisk::holding(PAGES, pages);
    let volume = Volume::open(disk.clone(), &Processes::One).map_err(|error| said(&error))?;
    let volume = guarded(volume, without);
    let damage = volume.damage().map_err(|error| said(&error))?;
    if !damage.is_empty() {
        return Err(damage.join("; "));
    }
    let mut is = found(&volume)?;
    check_files(&is, now, next)?;

    // A parent that has changed must be known to have.
    let list = volume.list().map_err(|error| said(&error))?;
    for info in &list {
        let known = [&now.files, next].map(|files| files.get(info.name.as_str()));
        let then = known
            .into_iter()
            .flatten()
            .find_map(|known| known.parent.as_ref());
        let (Some(branch), Some((parent, then))) = (&info.branch, then) else {
            continue;
        };
        if branch.parent.as_deref() == Some(*parent)
            && !branch.parent_changed
            && is[*parent] != *then
        {
            return Err(format!("{parent} has changed since {} was made", info.name));
        }
    }

    // Use continues: every branch is merged, the last made first, and a new file shows nothing old.
    let mut branches: Vec<_> = list.iter().filter(|info| info.branch.is_some()).collect();
    branches.sort_by_key(|info| info.branch.as_ref().map(|branch| u64::MAX - branch.made_at));
    for info in branches {
        let Ok(parent) = volume.merge(&info.name, true) else {
            continue; // Its parent was deleted, or merged.
        };
        let bytes = is.remove(&info.name).expect("it was there");
        is.insert(parent, bytes);
    }
    let later = volume.open("later", Create::New.into());
    let later = later.map_err(|error| said(&error))?;
    volume
        .set_size(later, 8 * PAGE as u64)
        .map_err(|error| said(&error))?;
    volume.sync(later).map_err(|error| said(&error))?;
    is.insert("later".into(), vec![0; 8 * PAGE]);
    drop(volume);
    let volume = Volume::open(disk, &Processes::One).map_err(|error| said(&error))?;
    if found(&volume)? != is {
        return Err("after merges the files are not those of the branches".into());
    }
    Ok(())
}

/// Every prefix of a script's operations, with several subsets of the unflushed ones.
fn campaign(seeds: std::ops::Range<u64>, without: Option<Guard>) -> Result<usize, String> {
    let mut cuts = 0;
    for seed in seeds {
        let random = &mut Xoshiro256PlusPlus::seed_from_u64(seed ^ 0xb4a7c4);
        let (log, mut begin, moments) = script(seed, 30, without);
        for pair in moments.windows(2) {
            let [now, next] = pair else {
                unreachable!("windows of two")
            };
            for operations in begin..=now.operations {
                let log = &log[..operations];
                for subset in subsets(log, random) {
                    let pages = kept(&HashMap::new(), log, |index| subset[index]);
                    judge(pages, now, &next.files, without).map_err(|error| {
                        format!(
                            "seed {seed}, {:?}, after {operations} operations, {subset:?}: {error}",
                            now.step
                        )
                    })?;
                    cuts += 1;
                }
            }
            begin = now.operations;
        }
    }
    Ok(cuts)
}

#[test]
fn every_cut_of_a_step_of_branches_leaves_the_state_before_or_after_it() {
    let cuts = campaign(0..25, None).unwrap_or_else(|error| panic!("{error}"));
    assert!(cuts > 10_000, "{cuts}");
}

#[test]
fn each_flush_of_branches_is_missed_if_it_is_left_out() {
    for guard in Guard::ALL
        .into_iter()
        .filter(|guard| guard.is_of_branches())
    {
        assert!(
            campaign(0..25, Some(guard)).is_err(),
            "{guard:?} protects nothing that this test would notice"
        );
    }
}
