//! A store that logs writes, real SQLite, and the disks that it is given.

#![allow(dead_code)]

pub mod disks;
pub mod engine;
pub mod noting;
pub mod served;
