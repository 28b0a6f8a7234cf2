//! Disk faults during a workload, other than power loss: unreadable blocks, slow requests, a full
//! disk, a write-protected disk.
//!
//! Faults are active only during the workload: the file system is made, and checks run, without
//! them. A failing request changes nothing and is not recorded. One model serves both kinds of disk
//! and returns NVMe status codes: requests on a file ask it in `faulty`, commands over NVMe/TCP at
//! their execution. Invariant: the affected blocks and requests depend on the seed alone. Absent:
//! how a program must handle an error (its check knows).

use crate::array::DiskGeometry;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::{SplitMix64, Xoshiro256PlusPlus};
use remap_ssd_nvme::controller::{BlockAccess, FaultInjector};
use remap_ssd_nvme::spec::status::Status;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum bytes written before a disk is full or read-only, if drawn at random.
const BYTES_MAX: u64 = 16 << 20;

/// A fault, as on the command line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Each block is unreadable with this probability, until it is written.
    ReadError(f64),
    /// A request takes this long, with this probability.
    Latency(Duration, f64),
    /// The disk is full after this number of bytes written; none: drawn at random.
    Full(Option<u64>),
    /// The disk becomes read-only after this number of bytes written; none: drawn at random.
    ReadOnly(Option<u64>),
}

/// The text is not a fault.
#[derive(Debug, thiserror::Error)]
#[error(
    "a fault is read-error:P, latency:MILLISECONDS@P, full[:BYTES] or read-only[:BYTES]; P is a chance from 0 to 1"
)]
pub struct NoFault;

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes = |bytes: &Option<u64>| bytes.map_or(String::new(), |bytes| format!(":{bytes}"));
        match self {
            Self::ReadError(chance) => write!(f, "read-error:{chance}"),
            Self::Latency(time, chance) => write!(f, "latency:{}@{chance}", time.as_millis()),
            Self::Full(after) => write!(f, "full{}", bytes(after)),
            Self::ReadOnly(after) => write!(f, "read-only{}", bytes(after)),
        }
    }
}

impl std::str::FromStr for Fault {
    type Err = NoFault;

    fn from_str(text: &str) -> Result<Self, NoFault> {
        let (name, value) = match text.split_once(':') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };

        let chance = |text: &str| {
            let chance: Option<f64> = text.parse().ok();
            chance
                .filter(|chance| (0.0..=1.0).contains(chance))
                .ok_or(NoFault)
        };

        let bytes = || {
            value
                .map(|text| text.parse().map_err(|_| NoFault))
                .transpose()
        };

        match (name, value) {
            ("read-error", Some(value)) => Ok(Self::ReadError(chance(value)?)),
            ("latency", Some(value)) => {
                let (time, share) = value.split_once('@').ok_or(NoFault)?;
                let milliseconds = time.parse().map_err(|_| NoFault)?;
                Ok(Self::Latency(
                    Duration::from_millis(milliseconds),
                    chance(share)?,
                ))
            }
            ("full", _) => Ok(Self::Full(bytes()?)),
            ("read-only", _) => Ok(Self::ReadOnly(bytes()?)),
            _ => Err(NoFault),
        }
    }
}

/// Decides which requests of a disk fail or take longer.
pub(crate) struct FaultModel {
    shape: DiskGeometry,
    faults: Vec<Fault>,
    seed: u64,
    armed: AtomicBool,
    failed: AtomicBool,
    state: Mutex<FaultState>,
}

struct FaultState {
    random: Xoshiro256PlusPlus,
    written_bytes: u64,
    /// Bad blocks written since the workload began: they are readable.
    written: BTreeSet<u64>,
    /// A write would have passed the limit of a disk that becomes read-only; it stays read-only.
    is_past_limit: bool,
}

impl FaultState {
    /// Returns true if a disk with this limit has become read-only.
    fn takes_no_more(&self, after: u64) -> bool {
        self.is_past_limit || self.written_bytes >= after
    }
}

impl FaultModel {
    pub(crate) fn new(shape: DiskGeometry, faults: &[Fault], seed: u64) -> Self {
        // Missing values are drawn, so that the seed decides them.
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut drawn = || Some(random.random_range(0..BYTES_MAX));

        let faults = faults.iter().map(|fault| match *fault {
            Fault::Full(None) => Fault::Full(drawn()),
            Fault::ReadOnly(None) => Fault::ReadOnly(drawn()),
            other => other,
        });
        let faults = faults.collect();

        Self {
            shape,
            faults,
            seed,
            armed: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            state: Mutex::new(FaultState {
                random,
                written_bytes: 0,
                written: BTreeSet::new(),
                is_past_limit: false,
            }),
        }
    }

    /// Returns true if any faults are configured.
    fn is_any(&self) -> bool {
        !self.faults.is_empty()
    }

    /// Enables or disables faults.
    pub(crate) fn arm(&self, armed: bool) {
        self.armed.store(armed, Ordering::Relaxed);
    }

    /// Returns true if a request has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, FaultState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_active(&self) -> bool {
        self.is_any() && self.armed.load(Ordering::Relaxed)
    }

    fn blocks(&self, bytes: &Range<u64>) -> Range<u64> {
        let (first, count, _) = self
            .shape
            .cover(bytes.start, bytes.end.saturating_sub(bytes.start));
        first..first + count
    }

    /// Returns true if a block is unreadable until written. Depends on seed and block alone.
    fn is_bad(&self, block: u64) -> bool {
        let number = self.seed ^ block.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.faults.iter().any(|fault| match fault {
            Fault::ReadError(chance) => SplitMix64::seed_from_u64(number).random_bool(*chance),
            _ => false,
        })
    }

    fn read(&self, bytes: &Range<u64>) -> Result<(), Status> {
        let state = self.state();
        let mut blocks = self.blocks(bytes);

        // As on a real disk, a bad block is readable after it is written.
        if blocks.any(|block| self.is_bad(block) && !state.written.contains(&block)) {
            return Err(Status::UNRECOVERED_READ);
        }
        Ok(())
    }

    /// Blocks are written, or deallocated (`new_bytes` is 0).
    fn change(&self, bytes: &Range<u64>, new_bytes: u64) -> Result<(), Status> {
        let mut state = self.state();
        // Includes this write: the first write that would pass the limit fails.
        let written = state.written_bytes + new_bytes;

        for fault in &self.faults {
            match fault {
                // Deallocated blocks need no room.
                Fault::Full(Some(after)) if written > *after => {
                    return Err(Status::CAPACITY_EXCEEDED);
                }
                Fault::ReadOnly(Some(after)) => {
                    state.is_past_limit |= written > *after;
                    if state.takes_no_more(*after) {
                        return Err(Status::WRITE_PROTECTED);
                    }
                }
                _ => {}
            }
        }

        // A failed write changed nothing and is not counted.
        state.written_bytes = written;
        let blocks = self.blocks(bytes).filter(|block| self.is_bad(*block));
        state.written.extend(blocks);

        Ok(())
    }
}

impl FaultInjector for FaultModel {
    fn delay(&self) -> Duration {
        if !self.is_active() {
            return Duration::ZERO;
        }
        let mut state = self.state();
        let delays = self.faults.iter().filter_map(|fault| match fault {
            Fault::Latency(time, chance) => state.random.random_bool(*chance).then_some(*time),
            _ => None,
        });
        delays.sum()
    }

    fn access(&self, access: BlockAccess, bytes: Range<u64>) -> Result<(), Status> {
        if !self.is_active() {
            return Ok(());
        }
        let found = match access {
            BlockAccess::Read => self.read(&bytes),
            BlockAccess::Write => self.change(&bytes, bytes.end - bytes.start),
            BlockAccess::Deallocate => self.change(&bytes, 0),
        };
        if found.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        found
    }

    fn is_read_only(&self) -> bool {
        let state = self.state();
        let is_read_only = |fault: &Fault| match fault {
            Fault::ReadOnly(Some(after)) => state.takes_no_more(*after),
            _ => false,
        };
        self.is_active() && self.faults.iter().any(is_read_only)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Array;
    use crate::faulty::{Faulty, answer};
    use crate::record::Recorder;
    use remap_ssd_fuse::DiskError;
    use std::io;
    use std::sync::Arc;

    const SHAPE: DiskGeometry = DiskGeometry {
        block_bytes: 4096,
        blocks: 256,
    };

    fn model(fault: &str) -> Arc<FaultModel> {
        let model = FaultModel::new(SHAPE, &[fault.parse().unwrap()], 1);
        model.arm(true);
        Arc::new(model)
    }

    fn disk(model: &Arc<FaultModel>) -> Faulty {
        Faulty::new(Arc::new(Recorder::new(SHAPE).unwrap()), model.clone())
    }

    #[test]
    fn faults_are_read_as_they_are_written() {
        for text in [
            "read-error:0.01",
            "latency:50@0.1",
            "full",
            "full:4096",
            "read-only:0",
        ] {
            assert_eq!(text.parse::<Fault>().unwrap().to_string(), text);
        }

        for text in [
            "",
            "read-error",
            "read-error:2",
            "latency:5",
            "full:x",
            "slow",
        ] {
            assert!(text.parse::<Fault>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_block_that_cannot_be_read_can_be_after_it_was_written() {
        let bad = |disk: &Faulty| -> Vec<u64> {
            let read = |block: &u64| disk.read(block * 4096, &mut [0; 4096]).is_err();
            (0..256).filter(read).collect()
        };
        let model_1 = model("read-error:0.1");
        let disk_1 = disk(&model_1);
        let found = bad(&disk_1);
        assert!((10..45).contains(&found.len()), "{}", found.len());
        assert_eq!(found, bad(&disk(&model("read-error:0.1"))));

        disk_1.write(found[0] * 4096, &[1; 4096], false).unwrap();
        disk_1.zero(found[1] * 4096, 4096).unwrap();
        assert_eq!(bad(&disk_1), found[2..]);
        model_1.arm(false);
        assert!(bad(&disk_1).is_empty());
    }

    #[test]
    fn a_full_disk_and_a_read_only_one_take_no_more_and_say_which() {
        for (fault, wanted, is_read_only) in [
            ("full:8192", Status::CAPACITY_EXCEEDED, false),
            ("read-only:8192", Status::WRITE_PROTECTED, true),
        ] {
            let model = model(fault);
            let disk = disk(&model);
            disk.write(0, &[1; 8192], false).unwrap();
            assert!(!model.has_failed());
            let error = disk.write(8192, &[1; 4096], false).unwrap_err();
            assert_eq!(answer(&error), Some(DiskError::Device(wanted)));
            assert!(model.has_failed() && disk.flush().is_ok());
            // Deallocated blocks need no room, but are changed.
            assert_eq!(disk.zero(0, 4096).is_err(), is_read_only);
            assert_eq!(model.is_read_only(), is_read_only);
        }
        assert_eq!(answer(&io::Error::other("another")), None);
    }

    // Even for writes that would still fit.
    #[test]
    fn a_disk_that_was_read_only_once_stays_so() {
        let model = model("read-only:8192");
        let disk = disk(&model);
        assert!(!model.is_read_only());
        assert!(disk.write(0, &[1; 12288], false).is_err());
        assert!(disk.write(0, &[1; 4096], false).is_err() && model.is_read_only());
    }
}
