//! Real SQLite on a disk that loses power, and in processes that are killed.
//!
//! A *life* is a program's use of one or two databases: small and large transactions, savepoints,
//! rollbacks, checkpoints, VACUUM, changes of the journal's mode, readers. It is run once, and
//! every change of the disk is logged. For many of these changes the power is cut right after it:
//! the disk is reconstructed from the flushed changes and any subset of the rest, SQLite opens the
//! databases, and they must be whole, with all that was promised and no partial transaction. Then
//! the power is cut once more during their recovery, and a new life begins on the result.
//!
//! For kills the process ends at some change of the disk, which keeps its contents; nothing
//! acknowledged may be missing, at any level of `synchronous`.
//!
//! `SQLITE_CUTS=N` runs N lives instead of a few, `SQLITE_SEED=S` begins with another one; a
//! violation is reported with the seed of its life. SQLite draws random numbers of its own, so a
//! repeated life has the same operations, but not the same bytes.

mod judge;
mod life;

use crate::kit::engine::start_with_vfs;
use judge::judge;
use life::{History, Life, Model, Moment, Random, Setting, Synchronous};
use rand::{RngExt, SeedableRng};
use remap_ssd_store::{NewVolume, Processes, Store, Volume};
use remap_ssd_testkit::{Content, MemDisk, Op, kept, pending};
use std::collections::HashMap;
use std::sync::Arc;

const PAGES: u64 = 30_000;
/// Number of cuts per life.
const CUTS: usize = 40;

type Pages = HashMap<u64, Content>;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number"))
    })
}

fn seeds(few: u64) -> std::ops::Range<u64> {
    let first = number("SQLITE_SEED").unwrap_or(0);
    first..first + number("SQLITE_CUTS").unwrap_or(few)
}

/// A volume without files.
struct Blank {
    disk: MemDisk,
}

impl Blank {
    fn new(processes: &Processes) -> Self {
        let disk = MemDisk::new(PAGES);
        let new = NewVolume {
            files_max: 16,
            ..NewVolume::default()
        };
        let volume =
            Volume::create(disk.clone(), processes, &new, &mut |_, _| {}).expect("possible");
        drop(volume);
        Self { disk }
    }

    fn pages(&self) -> Pages {
        self.disk.medium().contents()
    }
}

/// The result of a life: its operations on the disk, and the durability promised.
struct Lived {
    before: Pages,
    log: Vec<Op>,
    history: History,
}

fn live(
    before: Pages,
    found: [Model; 2],
    setting: Setting,
    steps: usize,
    seed: u64,
    random: &mut Random,
) -> Lived {
    let disk = MemDisk::holding(PAGES, before.clone());
    let volume: Arc<dyn Store> =
        Arc::new(Volume::open(disk.clone(), &Processes::One).expect("it was made"));
    let store = format!("life{seed}");
    let mounted = remap_ssd_sqlite::mount(&store, volume).expect("the name is free");
    let mut life = Life::new(setting, &store, disk.clone(), found, random);
    life.run(steps)
        .unwrap_or_else(|failure| panic!("seed {seed}, {setting:?}: {failure}"));

    let history = std::mem::take(&mut life.history);
    drop(life);
    drop(mounted);
    let log = std::mem::take(&mut disk.medium().log);
    Lived {
        before,
        log,
        history,
    }
}

impl Lived {
    /// The promises after a number of operations.
    fn moment(&self, operations: usize) -> &Moment {
        let after = self
            .history
            .moments
            .partition_point(|moment| moment.operations <= operations);
        &self.history.moments[after - 1]
    }

    /// The disk after a cut: all, nothing, all but one, or half of the unflushed changes.
    fn cut(&self, operations: usize, random: &mut Random) -> Pages {
        let log = &self.log[..operations];
        let pending = pending(log);
        let kind = random.random_range(0..6);
        let one = random.random_range(0..pending.max(1));
        let share = random.random_range(0.05..0.95);
        kept(&self.before, log, |index| match kind {
            0 => true,
            1 => false,
            2 => index != one,
            3 => index == one,
            _ => random.random_bool(share),
        })
    }
}

/// One cut, perhaps another one during recovery, and the result.
fn cut(
    lived: &Lived,
    operations: usize,
    databases: usize,
    seed: u64,
    random: &mut Random,
) -> Result<(Pages, [Model; 2]), String> {
    let moment = lived.moment(operations);
    let store = format!("cut{seed}");
    let before = lived.cut(operations, random);
    let disk = MemDisk::holding(PAGES, before.clone());
    let found = judge(
        &disk,
        &Processes::One,
        &store,
        (&lived.history, moment),
        databases,
        random,
    )?;

    let log = std::mem::take(&mut disk.medium().log);
    if !log.is_empty() {
        let moments = vec![*moment];
        let history = History {
            models: lived.history.models.clone(),
            moments,
            atomic: lived.history.atomic.clone(),
        };
        let recovery = Lived {
            before,
            log,
            history,
        };
        let at = random.random_range(0..=recovery.log.len());
        let disk = MemDisk::holding(PAGES, recovery.cut(at, random));
        let again = judge(
            &disk,
            &Processes::One,
            &store,
            (&lived.history, moment),
            databases,
            random,
        )
        .map_err(|error| format!("cut again {at} operations into the recovery: {error}"))?;
        if again != found {
            let numbers = [&found, &again].map(|found| [found[0].number, found[1].number]);
            return Err(format!(
                "cut again {at} operations into the recovery: {numbers:?}"
            ));
        }
    }
    let pages = disk.medium().contents();
    Ok((pages, found))
}

/// Runs lives, with cuts in each.
fn campaign(seeds: std::ops::Range<u64>, levels: &[Synchronous]) -> usize {
    start_with_vfs();
    let mut cuts = 0;
    for seed in seeds {
        let random = &mut Random::seed_from_u64(seed);
        let setting = Setting::of(seed, levels, random);
        let blank = Blank::new(&Processes::One);
        let lived = live(blank.pages(), Default::default(), setting, 40, seed, random);
        let databases = setting.databases();
        for nth in 0..CUTS {
            let operations = random.random_range(0..=lived.log.len());
            let blame = |what: &str, error| {
                panic!(
                    "seed {seed}, cut {nth} after {operations} operations{what}: {error}; {setting:?}"
                )
            };
            let (pages, found) = cut(&lived, operations, databases, seed, random)
                .unwrap_or_else(|error| blame("", error));
            cuts += 1;
            if nth % 4 > 0 {
                continue;
            }

            // The recovered disk serves as well as a new one.
            let later = live(pages, found, setting, 6, seed, random);
            let operations = random.random_range(0..=later.log.len());
            cut(&later, operations, databases, seed, random).unwrap_or_else(|error| {
                blame(&format!(", {operations} of the life after it"), error)
            });
            cuts += 1;
        }
    }
    cuts
}

#[test]
fn what_synchronous_promises_survives_power_cuts() {
    use Synchronous::{Extra, Full, Normal};
    let seeds = seeds(24);
    let cuts = campaign(seeds.clone(), &[Normal, Full, Extra]);
    println!("{cuts} power cuts in the lives {seeds:?}");
}

/// A life that ends at some change of the disk, and another process that opens the databases then.
fn kill(seed: u64) {
    use Synchronous::{Extra, Full, Normal, Off};
    let random = &mut Random::seed_from_u64(seed ^ 0x6b69_6c6c);
    let setting = Setting::of(seed, &[Off, Normal, Full, Extra], random);
    let folder = tempfile::tempdir().expect("a folder");
    let processes = Processes::Several(folder.path().into());
    let blank = Blank::new(&processes);

    let mut found = <[Model; 2]>::default();
    for round in 0..4 {
        let changes = [200, 3000][random.random_range(0..2)];
        let disk = blank.disk.dying_after(random.random_range(0..changes));
        let store = format!("kill{seed}");
        let history = match Volume::open(disk.clone(), &processes) {
            Ok(volume) => {
                let mounted =
                    remap_ssd_sqlite::mount(&store, Arc::new(volume)).expect("the name is free");
                let mut life = Life::new(setting, &store, disk, found.clone(), random);
                // It ends by an error, or after the last step.
                let _ = life.run(30);
                let history = std::mem::take(&mut life.history);
                drop(life);
                drop(mounted);
                history
            }
            Err(_) => Life::new(setting, &store, disk, found.clone(), random).history,
        };

        let last = *history.moments.last().expect("there is a first one");
        let moment = Moment {
            floor: last.acknowledged,
            ..last
        };
        found = judge(
            &blank.disk,
            &processes,
            &store,
            (&history, &moment),
            setting.databases(),
            random,
        )
        .unwrap_or_else(|error| panic!("seed {seed}, round {round}: {error}; {setting:?}"));
    }
}

#[test]
fn what_was_acknowledged_survives_a_killed_process_at_every_level() {
    start_with_vfs();
    let seeds = seeds(32);
    seeds.clone().for_each(kill);
    println!(
        "{} kills in the lives {seeds:?}",
        4 * (seeds.end - seeds.start)
    );
}
