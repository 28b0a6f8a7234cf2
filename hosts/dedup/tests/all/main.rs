//! The integration tests of dedup, in one program.

mod cuts;
mod disks;
mod kit;
