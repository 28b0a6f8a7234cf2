//! A store that logs writes, real SQLite, and SQLite's side of a write-ahead log.

#![allow(dead_code)]

pub mod engine;
pub mod noting;
pub mod sqlite;
