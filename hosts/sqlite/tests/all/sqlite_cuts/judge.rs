//! Checks the databases after a crash.

use crate::kit::engine::{Db, Value};
use crate::sqlite_cuts::life::{History, Model, Moment, NAMES, Random, blob, uri};
use rand::RngExt;
use remap_ssd_store::{Processes, Store, Volume};
use remap_ssd_testkit::MemDisk;
use std::sync::Arc;

/// Opens the databases on a disk as a program does after a crash, and checks them.
///
/// # Errors
/// A description of the violation.
pub fn judge(
    disk: &MemDisk,
    processes: &Processes,
    store: &str,
    (history, moment): (&History, &Moment),
    databases: usize,
    random: &mut Random,
) -> Result<[Model; 2], String> {
    let volume = Volume::open(disk.clone(), processes)
        .map_err(|error| format!("the volume does not open: {error}"))?;
    let damage = volume
        .damage()
        .map_err(|error| format!("the volume: {error}"))?;
    if !damage.is_empty() {
        return Err(damage.join("; "));
    }
    let volume: Arc<dyn Store> = Arc::new(volume);
    let mounted = remap_ssd_sqlite::mount(store, volume).map_err(|error| error.to_string())?;

    // The first one to open rolls a partial transaction back, in its own database at least.
    if databases == 2 && random.random() {
        Db::open(&uri(store, 1))
            .and_then(|db| db.run("SELECT * FROM sqlite_schema"))
            .map_err(|error| error.to_string())?;
    }
    let mut found = <[Model; 2]>::default();
    {
        let db = Db::open(&uri(store, 0)).map_err(|error| error.to_string())?;
        if databases == 2 {
            db.run(&format!("ATTACH '{}' AS aux", uri(store, 1)))
                .map_err(|error| error.to_string())?;
        }
        for at in 0..databases {
            found[at] = contents(&db, at).map_err(|error| format!("{}: {error}", NAMES[at]))?;
        }
    }
    drop(mounted);

    for (at, found) in found.iter().enumerate().take(databases) {
        fits(found, at, history, moment)?;
    }
    let torn = history
        .atomic
        .iter()
        .find(|number| (found[0].number >= **number) != (found[1].number >= **number));
    if databases == 2
        && let Some(number) = torn
    {
        return Err(format!(
            "transaction {number} is in one of two databases: {} and {}",
            found[0].number, found[1].number
        ));
    }
    Ok(found)
}

fn fits(found: &Model, at: usize, history: &History, moment: &Moment) -> Result<(), String> {
    let (name, number, floor, begun) = (NAMES[at], found.number, moment.floor[at], moment.begun);
    if number < floor {
        return Err(format!(
            "{name}: transaction {floor} was promised, and {number} is the last that is there"
        ));
    }
    let known = history.models[at].get(&number).filter(|_| number <= begun);
    let Some(known) = known else {
        return Err(format!(
            "{name}: {number} was not begun; the last one was {begun}"
        ));
    };
    if known.rows != found.rows {
        let wrong = known
            .rows
            .iter()
            .find(|(id, row)| found.rows.get(id) != Some(row));
        return Err(format!(
            "{name}: transaction {number} is torn: row {wrong:?}, of {} rows",
            known.rows.len()
        ));
    }
    Ok(())
}

/// The contents of a database, which must pass the integrity check.
fn contents(db: &Db, at: usize) -> Result<Model, String> {
    let name = NAMES[at];
    let rows = |sql: &str| db.rows(sql, &[]).map_err(|error| format!("{sql}: {error}"));
    let verdict = rows(&format!("PRAGMA {name}.integrity_check"))?;
    if verdict != [[Value::Text("ok".into())]] {
        return Err(format!("integrity_check: {verdict:?}"));
    }
    if rows(&format!(
        "SELECT 1 FROM {name}.sqlite_schema WHERE name = 'k'"
    ))?
    .is_empty()
    {
        return Ok(Model::default());
    }

    let number = rows(&format!("SELECT number FROM {name}.k"))?[0][0].integer() as u64;
    let mut model = Model {
        number,
        ..Model::default()
    };
    for row in rows(&format!("SELECT id, tag, v FROM {name}.t"))? {
        let [id, tag, Value::Blob(bytes)] = &row[..] else {
            return Err(format!("a row is {row:?}"));
        };
        let (id, tag) = (id.integer(), tag.integer() as u64);
        if *bytes != blob(tag, bytes.len() as u32) {
            return Err(format!("row {id} has bytes that were never in it"));
        }
        model.rows.insert(id, (tag, bytes.len() as u32));
    }
    Ok(model)
}
