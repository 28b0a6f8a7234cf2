//! The integration tests of sqlite, in one program; those that need a program of their own are beside
//! it. Each of the others has a store with a name of its own.

mod branches;
mod checkpoints;
mod faults;
mod full_of_files;
mod kills;
#[path = "../kit/mod.rs"]
mod kit;
mod log_lines;
mod pairs;
mod pending;
mod processes;
mod recorded;
mod refusals;
mod sharing;
mod sqlite_cuts;
