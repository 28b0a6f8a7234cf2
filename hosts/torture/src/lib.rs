//! Power cuts for any program: one run is recorded, and cut as often as needed.
//!
//! ```text
//! array     the disk of blocks that backs the served file
//! served    the two files of the folder: the disk, which can be exchanged, and marks
//! contents  contents of written blocks, each stored once
//! record    requests on a disk, in one order
//! cut       the states that a power cut can leave
//! atomic    writes that a cut keeps or loses as a whole
//! image     the disk after a cut
//! firmware  the device under a cut: a recording replayed into firmware that loses power too
//! faults    which requests of a workload fail or are late, for both kinds of disk
//! faulty    a file-backed disk with these faults
//! code      a cut as text
//! file      a recording in a file
//! child     user commands, in process groups that are ended
//! stage     FUSE, loop device, file system: made, mounted, and taken away again
//! target    the disk over NVMe/TCP: served, recorded, and served again after a cut
//! marks     the pipe for the acknowledgements of a workload over NVMe/TCP
//! shrink    minimizes a failing cut
//! run       a run of a workload, recorded
//! campaign  one recorded run, cut many times
//! results   rounds and replays of a campaign, counted by outcome
//! difference  lost blocks in words
//! own       mounts that end with this process
//! ```
//! Invariants: a cut leaves only states that a disk with a volatile write cache could leave; a
//! recording and a code always give the same disk. Absent: what programs promise (their checks
//! know), and how the firmware works.
//!
//! From a Rust test:
//!
//! ```
//! use remap_ssd_torture::{Campaign, DiskGeometry, RecordingSpec, TortureError, record};
//! # use std::sync::atomic::AtomicBool;
//! # use std::time::Duration;
//!
//! let stop = AtomicBool::new(false);
//! let run = RecordingSpec {
//!     shape: DiskGeometry { block_bytes: 4096, blocks: 256 },
//!     fs: None, // The workload writes to the disk itself.
//!     nvme_tcp: false,
//!     workload: "printf one | dd of=$FILE conv=notrunc,fsync status=none; echo one > $MARKS".into(),
//!     limit: None,
//!     writeback: None,
//!     seed: 1,
//!     faults: Vec::new(),
//! };
//! let check = "! grep -q one $MARKS || head -c 3 $FILE | grep -q one";
//!
//! let recording = match record(&run, check, &stop) {
//!     Err(TortureError::Missing(_)) => return, // This machine has no FUSE.
//!     other => other.unwrap(),
//! };
//! let mut campaign = Campaign::new(&recording, check, Duration::from_secs(60), &stop).unwrap();
//! for round in 0..10 {
//!     let cut = campaign.cut(1, round);
//!     assert!(campaign.try_cut(&cut).unwrap().passed(), "{cut:?}");
//! }
//! ```

#![warn(unreachable_pub)]

mod array;
mod atomic;
mod campaign;
mod child;
mod code;
mod contents;
mod cut;
mod difference;
mod error;
mod faults;
mod faulty;
mod file;
mod firmware;
mod image;
mod marks;
mod own;
mod record;
mod results;
mod run;
mod served;
mod shrink;
mod stage;
mod target;
#[cfg(test)]
mod tests;

pub use array::DiskGeometry;
pub use campaign::{Campaign, Finding, Smallest, Verdict};
pub use child::Ending;
pub use code::{Code, NoCode};
pub use cut::Cut;
pub use error::TortureError;
pub use faults::{Fault, NoFault};
pub use file::{id, load, save};
pub use firmware::Firmware;
pub use own::private_mounts;
pub use record::{Event, Recording};
pub use results::{Failed, Progress, Results, Rounds, file_name, last_lines};
pub use run::{RecordingSpec, record};
pub use stage::{FileSystem, require};
