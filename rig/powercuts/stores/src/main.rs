//! redb and sled under rig/torture: `stores load|check redb|sled sync|nosync`, as programs.py
//! describes it.

use redb::{Database, Durability, ReadableTable, TableDefinition};
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

type Failure = Box<dyn Error>;

const TRANSACTIONS: u64 = 120;
/// Older ones are deleted.
const KEPT: u64 = 40;
const PACE: Duration = Duration::from_millis(8);
const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("t");

/// The bytes of a number, unique to it.
fn content(number: u64) -> Vec<u8> {
    let mut state = number ^ 0x9e37_79b9_7f4a_7c15;
    let mut bytes = Vec::with_capacity(1200);
    while bytes.len() < 1200 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        bytes.extend(state.to_le_bytes());
    }
    bytes
}

fn variable(name: &str) -> PathBuf {
    std::env::var_os(name).expect("torture sets it").into()
}

fn mark(number: u64) -> Result<(), Failure> {
    std::fs::write(variable("MARKS"), format!("{number}\n"))?;
    std::thread::sleep(PACE);
    Ok(())
}

fn acknowledged() -> u64 {
    let marks = std::fs::read_to_string(variable("MARKS")).unwrap_or_default();
    let numbers = marks.lines().filter_map(|line| line.parse().ok());
    numbers.max().unwrap_or(0)
}

/// The verdict for the numbers found.
fn compare(present: &[u64]) -> String {
    let last = present.last().copied().unwrap_or(0);
    if present.len() as u64 != last.min(KEPT) {
        return "corrupt: keys of different transactions".into();
    }
    match acknowledged().saturating_sub(last) {
        0 => "ok".into(),
        1 => "last: the last acknowledged one is missing".into(),
        more => format!("tail: {more} acknowledged ones are missing"),
    }
}

fn load_redb(sync: bool) -> Result<(), Failure> {
    let db = Database::create(variable("DIR").join("db"))?;
    for number in 1..=TRANSACTIONS {
        let mut transaction = db.begin_write()?;
        // Without: nothing is durable before the next transaction that is.
        transaction.set_durability(if sync { Durability::Immediate } else { Durability::None });
        {
            let mut table = transaction.open_table(TABLE)?;
            table.insert(number, content(number).as_slice())?;
            table.remove(number.saturating_sub(KEPT))?;
        }
        transaction.commit()?;
        mark(number)?;
    }
    Ok(())
}

fn check_redb() -> Result<String, Failure> {
    let path = variable("DIR").join("db");
    if acknowledged() == 0 || std::fs::metadata(&path).map_or(0, |about| about.len()) == 0 {
        return Ok(compare(&[]));
    }
    let mut db = Database::open(path)?;
    if !db.check_integrity()? {
        return Ok("corrupt: check_integrity".into());
    }
    let transaction = db.begin_read()?;
    let table = match transaction.open_table(TABLE) {
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(compare(&[])),
        other => other?,
    };
    let mut present = Vec::new();
    for row in table.iter()? {
        let (number, bytes) = row?;
        if bytes.value() != content(number.value()) {
            return Ok("corrupt: a value that was never written".into());
        }
        present.push(number.value());
    }
    Ok(compare(&present))
}

fn sled(sync: bool) -> Result<sled::Db, Failure> {
    let interval = if sync { None } else { Some(100) };
    Ok(sled::Config::new()
        .path(variable("DIR").join("db"))
        .segment_size(64 << 10)
        .flush_every_ms(interval)
        .open()?)
}

fn load_sled(sync: bool) -> Result<(), Failure> {
    let db = sled(sync)?;
    for number in 1..=TRANSACTIONS {
        let mut batch = sled::Batch::default();
        batch.insert(&number.to_be_bytes(), content(number));
        batch.remove(&number.saturating_sub(KEPT).to_be_bytes());
        db.apply_batch(batch)?;
        if sync {
            db.flush()?;
        }
        mark(number)?;
    }
    Ok(())
}

fn check_sled(sync: bool) -> Result<String, Failure> {
    if acknowledged() == 0 {
        return Ok("ok".into());
    }
    let db = sled(sync)?;
    let mut present = Vec::new();
    for row in db.iter() {
        let (key, bytes) = row?;
        let number = u64::from_be_bytes((&*key).try_into()?);
        if *bytes != content(number) {
            return Ok("corrupt: a value that was never written".into());
        }
        present.push(number);
    }
    Ok(compare(&present))
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [verb, store, option] = &words[..] else {
        eprintln!("usage: stores load|check redb|sled sync|nosync");
        return ExitCode::from(2);
    };
    let sync = option == "sync";
    let result = match (verb.as_str(), store.as_str()) {
        ("load", "redb") => load_redb(sync).map(|()| "ok".into()),
        ("load", _) => load_sled(sync).map(|()| "ok".into()),
        (_, "redb") => check_redb(),
        _ => check_sled(sync),
    };
    match (result, verb.as_str()) {
        (Err(error), "load") => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
        (Err(error), _) => {
            let text = error.to_string();
            println!("corrupt: {}", text.lines().next().unwrap_or("an error"));
            ExitCode::FAILURE
        }
        (Ok(found), _) => {
            println!("{found}");
            ExitCode::from(u8::from(found != "ok"))
        }
    }
}
