//! The killed program, and the expected contents of its database.
//!
//! Each writer counts its transactions in a row of its own, and a transaction adds rows, whose
//! number and bytes follow from writer and count, and deletes those of an old one. So a transaction
//! that is partial, repeated or missing is detected.

use crate::kills::processes::say;
use crate::kit::engine::{Db, Failure, Value, start};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

/// Number of transactions whose rows stay in the database.
const KEPT: u64 = 20;

/// A writing process's task.
#[derive(Clone, Debug)]
pub struct Job {
    pub address: SocketAddr,
    pub mode: String,
    pub synchronous: String,
    pub writer: usize,
}

impl Job {
    /// As text without spaces within.
    pub fn words(&self) -> String {
        format!(
            "{} {} {} {}",
            self.address, self.mode, self.synchronous, self.writer
        )
    }

    pub fn from_words(mut next: impl FnMut() -> String) -> Self {
        let address = next().parse().expect("an address");
        let (mode, synchronous) = (next(), next());
        Self {
            address,
            mode,
            synchronous,
            writer: next().parse().expect("a number"),
        }
    }

    pub fn uri(&self) -> String {
        format!("file:app.db?vfs=remap&device={}", self.address)
    }

    /// Creates the database shared by the writers.
    pub fn make(&self, writers: usize) {
        let db = self.open().expect("the device is served");
        db.run("BEGIN").expect("possible");
        db.run("CREATE TABLE w(writer INTEGER PRIMARY KEY, number INTEGER)")
            .expect("possible");
        db.run("CREATE TABLE t(writer, number, at, v, PRIMARY KEY(writer, number, at))")
            .expect("possible");
        for writer in 0..writers {
            db.run(&format!("INSERT INTO w VALUES({writer}, 0)"))
                .expect("possible");
        }
        db.run("COMMIT").expect("possible");
    }

    fn open(&self) -> Result<Db, Failure> {
        let db = Db::open(&self.uri())?;
        db.wait_for_locks();
        db.run(&format!("PRAGMA journal_mode={}", self.mode))?;
        db.run(&format!("PRAGMA synchronous={}", self.synchronous))?;
        // Large transactions spill; some checkpoints are left to the last close.
        db.run("PRAGMA cache_size=8")?;
        db.run(&format!(
            "PRAGMA wal_autocheckpoint={}",
            [20, 100, 1000][self.writer % 3]
        ))?;
        Ok(db)
    }
}

/// The number of rows of a transaction, and the bytes of one.
fn rows_of(writer: usize, number: u64) -> u64 {
    if number.is_multiple_of(7) {
        40
    } else {
        1 + (number + writer as u64) % 4
    }
}

fn bytes_of(writer: usize, number: u64, at: u64) -> Vec<u8> {
    let word = |at: u64| {
        (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (number << 8 | writer as u64).rotate_left(32)
    };
    let words = 20 + (number * 31 + at * 17) % 200;
    (0..words)
        .flat_map(|next| word(at << 16 | next).to_le_bytes())
        .collect()
}

/// Writes until it is killed.
pub fn write(job: &Job, extension: &str) {
    start();
    let loader = Db::open(":memory:").expect("possible");
    loader
        .load_extension(extension)
        .unwrap_or_else(|failure| panic!("{extension}: {failure}"));
    let mut acknowledged = 0;
    loop {
        let Err(failure) = work(job, &mut acknowledged);
        // The device or another writer is gone: SQLite has rolled back.
        let expected = failure.is_busy() || failure.is_io() || failure.cannot_open();
        if !expected {
            say(&format!("wrong: writer {}: {failure}", job.writer));
        }
        std::thread::sleep(Duration::from_millis(20));
        say("connected again");
    }
}

fn work(job: &Job, acknowledged: &mut u64) -> Result<Infallible, Failure> {
    let db = job.open()?;
    let writer = job.writer;
    let mut taken_back = 0;
    loop {
        db.run("BEGIN IMMEDIATE")?;
        let number = db
            .value(&format!("SELECT number FROM w WHERE writer={writer}"))?
            .integer() as u64;
        if number < *acknowledged {
            say(&format!(
                "wrong: writer {writer} has transaction {acknowledged}, and sees {number}"
            ));
        }
        let number = number + 1;
        for at in 0..rows_of(writer, number) {
            let values = [writer as u64, number, at].map(|value| Value::Integer(value as i64));
            let values = [&values[..], &[Value::Blob(bytes_of(writer, number, at))]].concat();
            db.rows("INSERT INTO t VALUES(?, ?, ?, ?)", &values)?;
        }
        let old = number.saturating_sub(KEPT);
        db.run(&format!(
            "DELETE FROM t WHERE writer={writer} AND number<={old}"
        ))?;
        db.run(&format!(
            "UPDATE w SET number={number} WHERE writer={writer}"
        ))?;

        // Some are rolled back, after the cache has spilled.
        if number.is_multiple_of(7) && std::mem::replace(&mut taken_back, number) != number {
            db.run("ROLLBACK")?;
            continue;
        }
        db.run("COMMIT")?;
        *acknowledged = number;
        say(&format!("acknowledged {number}"));
    }
}

/// Compares the database with the acknowledged transactions. Returns the number of transactions.
///
/// # Errors
/// A description of the violation.
pub fn check(db: &Db, acknowledged: &[u64]) -> Result<u64, String> {
    db.wait_for_locks();
    let rows = |sql: &str| {
        db.rows(sql, &[])
            .map_err(|failure| format!("{sql}: {failure}"))
    };
    rows("BEGIN")?;
    let verdict = rows("PRAGMA integrity_check")?;
    if verdict != [[Value::Text("ok".into())]] {
        return Err(format!("integrity_check: {verdict:?}"));
    }

    let mut all = 0;
    for (writer, acknowledged) in acknowledged.iter().enumerate() {
        let number =
            rows(&format!("SELECT number FROM w WHERE writer={writer}"))?[0][0].integer() as u64;
        if number < *acknowledged {
            return Err(format!(
                "writer {writer}: {acknowledged} was acknowledged, and {number} is there"
            ));
        }
        all += number;
        let first = number.saturating_sub(KEPT) + 1;
        let expected = (first..=number).flat_map(|number| {
            (0..rows_of(writer, number)).map(move |at| (number, at, bytes_of(writer, number, at)))
        });
        let found = rows(&format!(
            "SELECT number, at, v FROM t WHERE writer={writer} ORDER BY number, at"
        ))?;
        let found = found.into_iter().map(|row| {
            let [number, at, Value::Blob(bytes)] = &row[..] else {
                return (0, 0, Vec::new());
            };
            (number.integer() as u64, at.integer() as u64, bytes.clone())
        });
        if !expected.eq(found) {
            return Err(format!(
                "writer {writer}: of the transactions {first} to {number} some are there in part"
            ));
        }
    }
    rows("COMMIT")?;
    Ok(all)
}
