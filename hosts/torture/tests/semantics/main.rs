//! What a power cut can leave, against a definition that shares nothing with the cutter; and
//! recordings in files.

mod disks;
mod files;
mod kit;
mod reachable;
mod rules;
