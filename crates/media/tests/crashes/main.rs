//! Devices in folders on a machine that crashes.
//!
//! A program of its own: the model of the disk replaces `fdatasync`, `fsync` and `msync` of the whole process.

#![cfg(target_os = "linux")]

mod commit_cuts;
#[path = "../kit/disk.rs"]
mod disk;
#[path = "../kit/mod.rs"]
mod kit;
mod machine;
mod witnessed;
