//! The states that a power cut can leave, against a definition that shares no code with the cutter;
//! and recordings in files.

mod atomic;
mod campaign;
mod disks;
mod draws;
mod files;
mod kit;
mod reachable;
mod rules;
