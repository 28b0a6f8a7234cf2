//! A disk that loses any subset of unflushed changes, a store that logs writes, real SQLite, and
//! SQLite's side of a write-ahead log.

#![allow(dead_code)]

pub mod disk;
pub mod engine;
pub mod noting;
pub mod sqlite;

pub const PAGE: usize = 4096;
