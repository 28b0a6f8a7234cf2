//! Tests of the log and of the journal below SQLite: the bytes that SQLite would write, in its order.

mod host;
mod journal;
mod journal_cuts;
#[allow(dead_code, unreachable_pub, reason = "integration tests share it")]
#[path = "../../tests/kit/noting.rs"]
mod noting;
mod wal;
mod wal_cuts;
