//! The integration tests of share, in one program.

mod branches;
mod compaction_cuts;
mod copies;
mod file_cuts;
mod images;
mod kit;
mod snapshot_cuts;
