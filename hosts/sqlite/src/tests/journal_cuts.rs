//! Power cuts of a disk with a volatile cache under a small pager that uses its journal as SQLite
//! does.
//!
//! A script of transactions is run once. For every prefix of the operations on the disk, and
//! several subsets of the unflushed ones in it, the disk is reconstructed, the journal is replayed
//! as SQLite does it, and the database must be in the state before or after a transaction: after,
//! if its invalidation had returned. Then the next transaction is run and cut in the same way, over
//! the result of the first cut.

use crate::journal::Journal;
use crate::mark::Mark;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_store::{Create, FileId, NewVolume, OpenOptions, Processes, Store, Volume};
use remap_ssd_testkit::{Content, MemDisk, PAGE, kept, subsets};
use std::collections::HashMap;
use std::sync::Arc;

const PAGES: u64 = 1_500;
const SECTOR: usize = 512;
const MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];

/// The database, page by page, as SQLite sees it.
type State = Vec<Vec<u8>>;

struct Pager {
    store: Arc<dyn Store>,
    database: FileId,
    journal: Journal,
    page: usize,
    state: State,
}

/// SQLite's checksum, which covers every 200th byte.
fn checksum(nonce: u32, page: &[u8]) -> u32 {
    let samples =
        (1..page.len().div_ceil(200)).map(|step| u32::from(page[page.len() - 200 * step]));
    samples.fold(nonce, u32::wrapping_add)
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

impl Pager {
    /// Opens the database, and rolls back an unfinished transaction.
    fn open(disk: MemDisk, page: usize) -> Self {
        let volume = Volume::open(disk, &Processes::One).expect("a volume");
        let store: Arc<dyn Store> = Arc::new(volume);
        let open = |name| {
            store
                .open(name, OpenOptions::default())
                .expect("it is there")
        };
        let (database, file) = (open("db"), open("db-journal"));
        let mark = Mark::of(&store.identity().expect("a volume has one"));
        let journal = Journal::open(store.clone(), file, mark, Some(database));
        let mut pager = Self {
            store,
            database,
            journal,
            page,
            state: Vec::new(),
        };
        pager.recover();

        let bytes = remap_ssd_testkit::contents(&*pager.store, database);
        pager.state = bytes.chunks(page).map(<[u8]>::to_vec).collect();
        pager
    }

    fn change(&mut self, index: usize, bytes: &[u8]) {
        self.journal.flush().expect("possible");
        self.store
            .write(self.database, (index * self.page) as u64, bytes)
            .expect("there is room");
    }

    /// Replays a hot journal, as SQLite would.
    fn recover(&mut self) {
        let mut first = [0];
        if !self.journal.exists().expect("readable")
            || self.journal.read(0, &mut first).expect("readable") < 1
            || first == [0]
        {
            return;
        }
        let size = self.journal.size().expect("readable");
        let mut bytes = vec![0; size as usize];
        assert_eq!(
            self.journal.read(0, &mut bytes).expect("readable"),
            bytes.len()
        );

        let (record, mut at) = (self.page + 8, 0);
        'journal: while at + SECTOR <= bytes.len() && bytes[at..at + 8] == MAGIC {
            let nonce = number(&bytes, at + 12);
            let pages = number(&bytes, at + 16) as usize;
            if at == 0 {
                self.store
                    .set_size(self.database, (pages * self.page) as u64)
                    .expect("possible");
            }
            let count = match number(&bytes, at + 8) {
                u32::MAX => (bytes.len() - at - SECTOR) / record,
                count => count as usize,
            };
            at += SECTOR;
            for _ in 0..count {
                let Some(here) = bytes.get(at..at + record) else {
                    break 'journal;
                };
                let image = &here[4..4 + self.page];
                if number(here, 0) == 0 || checksum(nonce, image) != number(here, 4 + self.page) {
                    break 'journal;
                }
                let to = (number(here, 0) as usize - 1) * self.page;
                if to < pages * self.page {
                    self.store
                        .write(self.database, to as u64, image)
                        .expect("there is room");
                }
                at += record;
            }
            at = at.next_multiple_of(SECTOR);
        }
        self.store.sync(self.database).expect("possible");
        self.journal.write(0, &[0; 28]).expect("possible");
    }

    fn header(&mut self, at: usize, safe: bool, nonce: u32, pages: usize) {
        let mut header = vec![0; SECTOR];
        if safe {
            header[..8].copy_from_slice(&MAGIC);
            header[8..12].fill(0xff);
        }
        for (field, value) in [
            (12, nonce),
            (16, pages as u32),
            (20, SECTOR as u32),
            (24, self.page as u32),
        ] {
            header[field..field + 4].copy_from_slice(&value.to_be_bytes());
        }
        self.journal
            .write(at as u64, &header)
            .expect("there is room");
    }

    /// A transaction in one or several steps, each of which changes pages after its part of the
    /// journal is durable.
    fn transaction(&mut self, random: &mut Xoshiro256PlusPlus, end: &mut dyn FnMut(&State)) {
        let (safe, commits) = (random.random_bool(0.6), random.random_bool(0.9));
        let (before, nonce) = (self.state.clone(), random.random());
        let (mut at, mut header_at, mut records) = (SECTOR, 0, 0_u32);
        self.header(0, safe, nonce, before.len());

        let mut journalled = vec![false; before.len()];
        let steps = random.random_range(1..4);
        for step in 0..steps {
            let mut chosen: Vec<usize> = (0..before.len())
                .filter(|_| random.random_bool(0.35))
                .collect();
            chosen.retain(|index| !std::mem::replace(&mut journalled[*index], true));
            for &index in &chosen {
                let image = &before[index];
                self.journal
                    .write(at as u64, &(index as u32 + 1).to_be_bytes())
                    .expect("there is room");
                self.journal
                    .write(at as u64 + 4, image)
                    .expect("there is room");
                let sum = checksum(nonce, image).to_be_bytes();
                self.journal
                    .write((at + 4 + self.page) as u64, &sum)
                    .expect("there is room");
                at += self.page + 8;
                records += 1;
            }
            if !safe {
                self.journal.sync().expect("possible");
                let head = [&MAGIC[..], &records.to_be_bytes()].concat();
                self.journal
                    .write(header_at as u64, &head)
                    .expect("there is room");
            }
            self.journal.sync().expect("possible");

            for &index in &chosen {
                // A few bytes, none covered by SQLite's checksum.
                let mut page = self.state[index].clone();
                let spot =
                    page.len() - 200 * random.random_range(1..5) - random.random_range(1..100);
                page[spot] = random.random();
                page[random.random_range(0..8)] = random.random();
                self.change(index, &page);
                self.state[index] = page;
            }
            if step + 1 < steps && !safe {
                at = at.next_multiple_of(SECTOR);
                (header_at, records) = (at, 0);
                self.header(at, safe, nonce, before.len());
                at += SECTOR;
            }
        }
        if random.random_bool(0.2) {
            self.state.push(vec![random.random(); self.page]);
            let last = self.state.len() - 1;
            let page = self.state[last].clone();
            self.change(last, &page);
        }
        if commits {
            self.store.sync(self.database).expect("possible");
        } else {
            self.recover();
            self.state = before;
            return end(&self.state);
        }
        match random.random_range(0..3) {
            0 => self.journal.write(0, &[0; 28]).expect("possible"),
            1 => self.journal.truncate(0).expect("possible"),
            _ => self.journal.invalidate().expect("possible"),
        }
        end(&self.state);
    }
}

/// The possible states of the database from this number of operations on.
struct Moment {
    operations: usize,
    state: State,
}

fn new_disk(page: usize) -> MemDisk {
    let disk = MemDisk::new(PAGES);
    let new = NewVolume {
        files_max: 4,
        ..NewVolume::default()
    };
    let volume =
        Volume::create(disk.clone(), &Processes::One, &new, &mut |_, _| {}).expect("possible");
    let open = |name, open_end| {
        volume
            .open(
                name,
                OpenOptions {
                    create: Create::New,
                    open_end,
                    written_next: false,
                },
            )
            .expect("possible")
    };
    let (database, _) = (open("db", false), open("db-journal", true));
    for index in 0..10 {
        // Pages that differ in few bytes, so that a wrong one is not detected by luck.
        let mut bytes = vec![0x11; page];
        bytes[0] = index as u8;
        volume
            .write(database, (index * page) as u64, &bytes)
            .expect("there is room");
    }
    volume.sync_all().expect("possible");
    disk
}

fn run(
    disk: &MemDisk,
    page: usize,
    transactions: usize,
    random: &mut Xoshiro256PlusPlus,
) -> Vec<Moment> {
    disk.medium().log.clear();
    let mut pager = Pager::open(disk.clone(), page);
    let mut moments = vec![Moment {
        operations: 0,
        state: pager.state.clone(),
    }];
    for _ in 0..transactions {
        pager.transaction(random, &mut |state| {
            moments.push(Moment {
                operations: disk.medium().log.len(),
                state: state.clone(),
            });
        });
    }
    moments
}

/// The disk after a prefix of the operations, keeping only some of those since the last flush.
fn contents(disk: &MemDisk) -> HashMap<u64, Content> {
    let medium = disk.medium();
    (0..PAGES)
        .map(|page| (page, medium.content(page)))
        .collect()
}

fn judge(
    pages: HashMap<u64, Content>,
    page: usize,
    operations: usize,
    moments: &[Moment],
) -> Result<(), String> {
    let over = moments
        .iter()
        .rposition(|moment| moment.operations <= operations)
        .unwrap_or(0);
    let found = Pager::open(MemDisk::holding(PAGES, pages), page).state;
    let allowed = &moments[over..moments.len().min(over + 2)];
    if allowed.iter().any(|moment| moment.state == found) {
        return Ok(());
    }
    let differ = |state: &State| {
        (0..found.len())
            .filter(|index| state.get(*index) != found.get(*index))
            .collect::<Vec<_>>()
    };
    Err(format!(
        "pages {:?} are not as before",
        allowed
            .iter()
            .map(|moment| differ(&moment.state))
            .collect::<Vec<_>>()
    ))
}

/// Cuts a script everywhere, and continues from some of the cuts `deeper` times.
fn cut_everywhere(
    before: &HashMap<u64, Content>,
    page: usize,
    transactions: usize,
    deeper: usize,
    random: &mut Xoshiro256PlusPlus,
) -> usize {
    let disk = MemDisk::holding(PAGES, before.clone());
    let moments = run(&disk, page, transactions, random);
    let log = std::mem::take(&mut disk.medium().log);
    let mut cuts = 0;
    for operations in 0..=log.len() {
        let log = &log[..operations];
        for subset in subsets(log, random) {
            let pages = kept(before, log, |index| subset[index]);
            judge(pages.clone(), page, operations, &moments).unwrap_or_else(|error| {
                panic!("pages of {page} bytes, after {operations} operations, {subset:?}: {error}")
            });
            cuts += 1;
            if deeper > 0 && random.random_bool(0.01) {
                cuts += cut_everywhere(&pages, page, 1, deeper - 1, random);
            }
        }
    }
    cuts
}

#[test]
fn after_any_cut_the_database_is_as_before_or_after_a_transaction() {
    let mut cuts = 0;
    for (seed, page) in [
        (1, PAGE),
        (2, PAGE),
        (3, PAGE),
        (4, PAGE),
        (5, 2 * PAGE),
        (6, 2 * PAGE),
        (7, 1_024),
        (8, 1_024),
    ] {
        let random = &mut Xoshiro256PlusPlus::seed_from_u64(seed);
        cuts += cut_everywhere(&contents(&new_disk(page)), page, 5, 2, random);
    }
    assert!(cuts > 5_000, "{cuts}");
}
