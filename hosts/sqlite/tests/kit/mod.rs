//! A store that logs writes, and real SQLite.

#![allow(dead_code)]

pub mod engine;
pub mod noting;
