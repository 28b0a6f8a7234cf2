//! Creates a device in a folder, fills a database on it, and prints the cost of a checkpoint.
//!
//! `cargo run --manifest-path hosts/sqlite/rusqlite/Cargo.toml -- /tmp/disk`

use remap_ssd_rusqlite_example::{create, open, statistics};
use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!(
            "usage: remap-ssd-rusqlite-example FOLDER\n\nFOLDER is made, and holds the device"
        );
        std::process::exit(2);
    };
    create(&folder, 64 << 20)?;

    let mut database = open(&folder, "app.db")?;
    database.pragma_update(None, "journal_mode", "wal")?;
    database.execute_batch("CREATE TABLE notes (id INTEGER PRIMARY KEY, text BLOB)")?;

    for _ in 0..100 {
        let transaction = database.transaction()?;
        transaction.execute("INSERT INTO notes (text) VALUES (randomblob(12000))", [])?;
        transaction.commit()?;
    }
    database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;

    println!("{:#}", statistics(&database)?);
    Ok(())
}
