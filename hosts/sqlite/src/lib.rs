//! SQLite on a device that can remap: a checkpoint and a rollback journal write nothing twice.

pub mod journal;
pub mod mark;
pub mod wal;
