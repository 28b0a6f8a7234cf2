//! A life: a program's use of its databases until it ends, and the durability promised to it.
//!
//! Every transaction has a number, writes it to each database that it changes, and changes rows
//! whose contents follow from the model. So the number in a database identifies its last
//! transaction, and the model has the expected contents.
//!
//! Left out: `ROLLBACK TO` after a cache spill into a write-ahead log. Stock SQLite itself
//! loses commits after it.

use crate::kit::engine::{Db, Failure, Value};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_testkit::MemDisk;
use std::collections::{BTreeMap, BTreeSet};

pub type Random = Xoshiro256PlusPlus;

/// Databases: one, and one attached to it.
pub const NAMES: [&str; 2] = ["main", "aux"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Delete,
    Truncate,
    Persist,
    Wal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Synchronous {
    Off,
    Normal,
    Full,
    Extra,
}

/// A life's settings.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub mode: Mode,
    pub synchronous: Synchronous,
    pub page_bytes: u32,
    /// Pages have room for a frame header.
    pub reserve: bool,
    pub auto_vacuum: u8,
    pub exclusive: bool,
    pub attached: bool,
}

pub const MODES: [Mode; 4] = [Mode::Wal, Mode::Delete, Mode::Truncate, Mode::Persist];

impl Setting {
    /// Modes and levels in turn, the rest at random.
    pub fn of(seed: u64, levels: &[Synchronous], random: &mut Random) -> Self {
        let turn = seed as usize;
        Self {
            mode: MODES[turn % 4],
            synchronous: levels[turn / 4 % levels.len()],
            page_bytes: [4096, 8192, 4096, 16384, 1024][random.random_range(0..5)],
            reserve: random.random(),
            auto_vacuum: random.random_range(0..3),
            exclusive: random.random_ratio(1, 6),
            attached: random.random_ratio(1, 2),
        }
    }

    pub fn databases(&self) -> usize {
        1 + usize::from(self.attached)
    }
}

/// Per row, the tag that determines its bytes, and their number.
pub type Rows = BTreeMap<i64, (u64, u32)>;

/// The contents of a database; number 0 has no tables yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    pub number: u64,
    pub rows: Rows,
}

/// From some operation of the disk on: the durability promised, and the transactions that may be
/// there.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub operations: usize,
    /// The last transaction of each database that must be there.
    pub floor: [u64; 2],
    /// The last one acknowledged.
    pub acknowledged: [u64; 2],
    /// The last one begun.
    pub begun: u64,
}

#[derive(Default)]
pub struct History {
    pub models: [BTreeMap<u64, Model>; 2],
    pub moments: Vec<Moment>,
    /// Transactions that are in both databases or in none.
    pub atomic: BTreeSet<u64>,
}

/// The bytes of a row.
pub fn blob(tag: u64, bytes: u32) -> Vec<u8> {
    let word = |at: u64| {
        (tag + at)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(23)
            .wrapping_mul(0xd6e8_feb8_6659_fd93)
    };
    (0..u64::from(bytes).div_ceil(8))
        .flat_map(|at| word(at).to_le_bytes())
        .take(bytes as usize)
        .collect()
}

pub fn uri(store: &str, database: usize) -> String {
    format!("file:{}.db?vfs=remap&store={store}", NAMES[database])
}

pub struct Life<'a> {
    setting: Setting,
    /// The present journal mode.
    mode: Mode,
    store: String,
    disk: MemDisk,
    random: &'a mut Random,
    connections: Vec<Option<Db>>,
    /// Holds a snapshot of a database in WAL mode.
    reader: Option<Db>,
    now: [Model; 2],
    next: u64,
    pub history: History,
}

impl<'a> Life<'a> {
    /// A life that begins with these databases.
    pub fn new(
        setting: Setting,
        store: &str,
        disk: MemDisk,
        found: [Model; 2],
        random: &'a mut Random,
    ) -> Self {
        let models = found
            .clone()
            .map(|model| BTreeMap::from([(model.number, model)]));
        let next = found.iter().map(|model| model.number).max().unwrap_or(0) + 1;
        let [main, aux] = &found;
        let numbers = [main.number, aux.number];
        let moment = Moment {
            operations: 0,
            floor: numbers,
            acknowledged: numbers,
            begun: next - 1,
        };
        let history = History {
            models,
            moments: vec![moment],
            atomic: BTreeSet::new(),
        };
        let connections = if setting.exclusive {
            vec![None]
        } else {
            vec![None, None]
        };
        Self {
            setting,
            mode: setting.mode,
            store: store.into(),
            disk,
            random,
            connections,
            reader: None,
            now: found,
            next,
            history,
        }
    }

    /// Runs steps until one fails.
    pub fn run(&mut self, steps: usize) -> Result<(), Failure> {
        for step in 0..steps {
            let which = self.random.random_range(0..self.connections.len());
            if step == 0 {
                self.create(which)?;
            }
            let action = self.random.random_range(0..24);
            let is_wal = self.mode == Mode::Wal;
            match action {
                0..3 if is_wal => self.checkpoint(which)?,
                3 if is_wal => self.toggle_reader(which)?,
                3 if self.setting.auto_vacuum == 2 => {
                    self.connection(which)?
                        .rows("PRAGMA incremental_vacuum(7)", &[])?;
                }
                4 => self.vacuum(which)?,
                5 => self.switch_mode(which)?,
                6 => self.connections[which] = None,
                7 => self.transaction(which, false)?,
                _ => self.transaction(which, true)?,
            }
            if self.connections.iter().all(Option::is_none) && self.reader.is_none() {
                self.promise();
            }
        }
        Ok(())
    }

    /// Records that everything acknowledged is durable: the last connection has closed, or a
    /// checkpoint was complete.
    fn promise(&mut self) {
        let last = *self.last();
        if self.setting.synchronous > Synchronous::Off {
            self.note(Moment {
                floor: last.acknowledged,
                ..last
            });
        }
    }

    fn last(&self) -> &Moment {
        self.history.moments.last().expect("there is a first one")
    }

    fn note(&mut self, moment: Moment) {
        let operations = self.disk.medium().log.len();
        self.history.moments.push(Moment {
            operations,
            ..moment
        });
    }

    fn connection(&mut self, which: usize) -> Result<&Db, Failure> {
        if self.connections[which].is_none() {
            self.connections[which] = Some(self.open()?);
        }
        Ok(self.connections[which].as_ref().expect("it is open now"))
    }

    fn open(&mut self) -> Result<Db, Failure> {
        let Setting {
            page_bytes,
            auto_vacuum,
            synchronous,
            ..
        } = self.setting;
        let db = Db::open(&uri(&self.store, 0))?;
        if self.setting.attached {
            db.run(&format!("ATTACH '{}' AS aux", uri(&self.store, 1)))?;
        }
        for name in &NAMES[..self.setting.databases()] {
            // These apply to new databases only. Setting the size resets the reserved bytes.
            db.run(&format!("PRAGMA {name}.page_size={page_bytes}"))?;
            db.run(&format!("PRAGMA {name}.auto_vacuum={auto_vacuum}"))?;
            db.run(&format!("PRAGMA {name}.synchronous={}", synchronous as u8))?;
            db.run(&format!("PRAGMA {name}.cache_size=5"))?;
        }
        if self.setting.reserve {
            db.reserve(32);
        }
        db.run("PRAGMA temp_store=MEMORY")?;
        if self.setting.exclusive {
            db.run("PRAGMA locking_mode=EXCLUSIVE")?;
        }
        self.set_mode(&db)?;
        db.run(&format!(
            "PRAGMA wal_autocheckpoint={}",
            [0, 8, 40, 1000][self.random.random_range(0..4)]
        ))?;
        Ok(db)
    }

    fn set_mode(&self, db: &Db) -> Result<(), Failure> {
        db.run(&format!("PRAGMA journal_mode={:?}", self.mode))
    }

    /// The first transaction creates missing tables.
    fn create(&mut self, which: usize) -> Result<(), Failure> {
        let number = self.next;
        let databases: Vec<usize> = (0..self.setting.databases())
            .filter(|at| self.now[*at].number == 0)
            .collect();
        if databases.is_empty() {
            return Ok(());
        }
        self.connection(which)?.run("BEGIN")?;
        for &at in &databases {
            let name = NAMES[at];
            let db = self.connection(which)?;
            db.run(&format!(
                "CREATE TABLE {name}.t(id INTEGER PRIMARY KEY, tag INTEGER, v BLOB)"
            ))?;
            db.run(&format!("CREATE INDEX {name}.i ON t(tag)"))?;
            db.run(&format!("CREATE TABLE {name}.k(number INTEGER)"))?;
            db.run(&format!("INSERT INTO {name}.k VALUES({number})"))?;
            self.now[at].number = number;
        }
        self.commit(which, self.now.clone(), &databases)
    }

    fn transaction(&mut self, which: usize, commits: bool) -> Result<(), Failure> {
        let databases = match self.random.random_range(0..4) {
            0 if self.setting.attached => vec![1],
            1 | 2 if self.setting.attached => vec![0, 1],
            _ => vec![0],
        };
        let is_wal = self.mode == Mode::Wal;
        let savepoint = self.random.random_range(0..6);
        let rolls_back_to = savepoint == 1;
        let number = self.next;
        let before = self.now.clone();

        let db = self.connection(which)?;
        db.run(if is_wal && rolls_back_to {
            "PRAGMA cache_spill=OFF"
        } else {
            "PRAGMA cache_spill=ON"
        })?;
        db.run("BEGIN IMMEDIATE")?;
        for &at in &databases {
            self.change(which, at)?;
            let sql = format!("UPDATE {}.k SET number={number}", NAMES[at]);
            self.connection(which)?.run(&sql)?;
            self.now[at].number = number;
        }
        if savepoint < 2 {
            self.connection(which)?.run("SAVEPOINT s")?;
            let there = self.now.clone();
            self.change(which, databases[0])?;
            if rolls_back_to {
                self.connection(which)?.run("ROLLBACK TO s")?;
                self.now = there;
                self.change(which, databases[0])?;
            }
            self.connection(which)?.run("RELEASE s")?;
        }

        let after = std::mem::replace(&mut self.now, before);
        if !commits {
            self.next += 1;
            return self.connection(which)?.run("ROLLBACK");
        }
        self.commit(which, after, &databases)
    }

    fn commit(
        &mut self,
        which: usize,
        after: [Model; 2],
        databases: &[usize],
    ) -> Result<(), Failure> {
        let number = self.next;
        self.next += 1;
        for &at in databases {
            self.history.models[at].insert(number, after[at].clone());
        }
        let level = self.setting.synchronous;
        if databases.len() == 2 && self.mode != Mode::Wal && level > Synchronous::Off {
            self.history.atomic.insert(number);
        }
        let last = *self.last();
        self.note(Moment {
            begun: number,
            ..last
        });
        self.connection(which)?.run("COMMIT")?;

        self.now = after;
        let mut moment = *self.last();
        for &at in databases {
            moment.acknowledged[at] = number;
            // At NORMAL a log is not synced; a journal's end is durable at every level that syncs
            // at all.
            let durable = level >= Synchronous::Full
                || level == Synchronous::Normal && self.mode != Mode::Wal;
            if durable {
                moment.floor[at] = number;
            }
        }
        self.note(moment);
        Ok(())
    }

    /// Changes rows: a few, or enough to spill the cache.
    fn change(&mut self, which: usize, at: usize) -> Result<(), Failure> {
        let (rows, longest) = match self.random.random_range(0..5) {
            0 => (self.random.random_range(20..60), 3000),
            1 => (self.random.random_range(1..4), 30_000),
            _ => (self.random.random_range(1..5), 600),
        };
        for _ in 0..rows {
            let id = self.random.random_range(0..80);
            let name = NAMES[at];
            if self.random.random_ratio(1, 4) {
                self.connection(which)?
                    .run(&format!("DELETE FROM {name}.t WHERE id={id}"))?;
                self.now[at].rows.remove(&id);
                continue;
            }
            let (tag, bytes) = (
                self.random.random_range(0..1 << 40),
                self.random.random_range(0..longest),
            );
            let values = [
                Value::Integer(id),
                Value::Integer(tag),
                Value::Blob(blob(tag as u64, bytes)),
            ];
            let sql = format!("INSERT OR REPLACE INTO {name}.t VALUES(?, ?, ?)");
            self.connection(which)?.rows(&sql, &values)?;
            self.now[at].rows.insert(id, (tag as u64, bytes));
        }
        Ok(())
    }

    fn checkpoint(&mut self, which: usize) -> Result<(), Failure> {
        let kind = ["PASSIVE", "FULL", "RESTART", "TRUNCATE"][self.random.random_range(0..4)];
        let mut complete = true;
        for name in &NAMES[..self.setting.databases()] {
            let sql = format!("PRAGMA {name}.wal_checkpoint({kind})");
            let answer = &self.connection(which)?.rows(&sql, &[])?[0];
            complete &= answer[0].integer() == 0 && answer[1] == answer[2];
        }
        if complete {
            self.promise();
        }
        Ok(())
    }

    fn toggle_reader(&mut self, which: usize) -> Result<(), Failure> {
        // Ensures that the database is in WAL mode.
        self.connection(which)?;
        if self.setting.exclusive || self.reader.take().is_some() {
            return Ok(());
        }
        let reader = Db::open(&uri(&self.store, 0))?;
        reader.run("BEGIN")?;
        reader.value("SELECT count(*) FROM t")?;
        self.reader = Some(reader);
        Ok(())
    }

    fn vacuum(&mut self, which: usize) -> Result<(), Failure> {
        let at = self.random.random_range(0..self.setting.databases());
        let reserves = self.setting.reserve;
        let db = self.connection(which)?;
        if reserves {
            db.reserve(32);
        }
        db.run(&format!("VACUUM {}", NAMES[at]))
    }

    /// Changes the journal mode; to leave WAL mode, this must be the only connection.
    fn switch_mode(&mut self, which: usize) -> Result<(), Failure> {
        self.reader = None;
        self.connection(which)?;
        for other in (0..self.connections.len()).filter(|other| *other != which) {
            self.connections[other] = None;
        }
        let was_wal = self.mode == Mode::Wal;
        self.mode = MODES[self.random.random_range(0..4)];
        if let Some(db) = &self.connections[which] {
            self.set_mode(db)?;
        }
        if was_wal && self.mode != Mode::Wal {
            self.promise();
        }
        Ok(())
    }
}
