//! What a device was asked by real programs, recorded once: built into the program, for experiments to replay.
//!
//! Each is a compressed session (`remap_ssd_sim::trace`), without times and contents. `rig/sqlite-figures` makes them.
//! Invariant: replayed from front to back, with its flushes. Absent: other traces (`trace:FILE`).

use remap_ssd_sim::trace::{Format, TraceOptions, TraceReader};

/// How a workload that is a recording begins.
pub const PREFIX: &str = "recording:";

macro_rules! built_in {
    ($($name:literal),*,) => {
        const ALL: &[(&str, &[u8])] = &[$((
            $name,
            include_bytes!(concat!("../../../experiments/recordings/", $name, ".xz")),
        )),*];
    };
}

built_in! {
    "sqlite-wal-fillrandom-stock",
    "sqlite-wal-fillrandom-remap",
    "sqlite-wal-fillseq-stock",
    "sqlite-wal-fillseq-remap",
    "sqlite-rollback-100-off-stock",
    "sqlite-rollback-100-off-copyless",
    "sqlite-rollback-100-off-nojournal",
    "sqlite-rollback-100-off-writeback",
    "sqlite-rollback-100-full-stock",
    "sqlite-rollback-100-full-copyless",
    "sqlite-rollback-100-full-nojournal",
    "sqlite-rollback-1000-off-stock",
    "sqlite-rollback-1000-off-copyless",
    "sqlite-rollback-1000-off-nojournal",
    "sqlite-rollback-1000-off-writeback",
    "sqlite-rollback-1000-full-stock",
    "sqlite-rollback-1000-full-copyless",
    "sqlite-rollback-1000-full-nojournal",
    "sqlite-rollback-10000-off-stock",
    "sqlite-rollback-10000-off-copyless",
    "sqlite-rollback-10000-off-nojournal",
    "sqlite-rollback-10000-off-writeback",
    "sqlite-rollback-10000-full-stock",
    "sqlite-rollback-10000-full-copyless",
    "sqlite-rollback-10000-full-nojournal",
}

/// A recording.
#[derive(Clone, Copy, Debug)]
pub struct Recording {
    name: &'static str,
    bytes: &'static [u8],
}

/// The recording of that name.
///
/// # Errors
/// Lists the names there are.
pub fn find(wanted: &str) -> Result<Recording, String> {
    match ALL.iter().find(|one| one.0 == wanted) {
        Some((name, bytes)) => Ok(Recording { name, bytes }),
        None => {
            let known = names().collect::<Vec<_>>().join(", ");
            Err(format!("no recording is named `{wanted}`; there are {known}"))
        }
    }
}

/// The names there are.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|one| one.0)
}

impl Recording {
    /// Names its bytes: another name for any other.
    pub fn digest(&self) -> String {
        crate::store::digest(self.bytes)
    }

    /// From its first request on.
    ///
    /// # Errors
    /// It is no session.
    pub fn replay(&self, options: TraceOptions) -> Result<TraceReader, String> {
        let options = TraceOptions { flushes: true, ..options };
        let reader = TraceReader::of_bytes(self.name, self.bytes, Some(Format::Session), options);
        reader.map_err(|error| error.to_string())
    }
}
