//! What a disk does to a workload besides losing power: blocks that cannot be read, requests that
//! take long, no room, no writes.
//!
//! Faults begin with the workload and end with it: the file system is made, and checks run, without
//! them. A request that fails changes nothing and is not recorded. Invariants: which blocks and
//! which requests are concerned follows from the seed alone; an error of ours is told from the
//! machine's. Absent: what a program makes of an error (its check knows).

use crate::array::{Array, DiskGeometry};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::{SplitMix64, Xoshiro256PlusPlus};
use remap_ssd_fuse::DiskError;
use remap_ssd_nvme::spec::status::Status;
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes written before a disk is full or read-only, unless they are given: drawn up to this.
const BYTES_MAX: u64 = 16 << 20;

/// A fault, as on the command line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Each block cannot be read with this chance, until it is written.
    ReadError(f64),
    /// A request takes this long, with this chance.
    Latency(Duration, f64),
    /// There is no room after so many bytes were written; none: a number that is drawn.
    Full(Option<u64>),
    /// Nothing can be written after so many bytes were written; none: a number that is drawn.
    ReadOnly(Option<u64>),
}

/// A text that is none.
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

/// An error that was wanted.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("a fault of the disk: {0:?}")]
struct Injected(DiskError);

/// What an error of ours is for whoever asked; none if it is the machine's.
pub(crate) fn answer(error: &io::Error) -> Option<DiskError> {
    let injected: &Injected = error.get_ref()?.downcast_ref()?;
    Some(injected.0)
}

/// A disk that fails as configured.
pub(crate) struct Faulty {
    inner: Arc<dyn Array>,
    faults: Vec<Fault>,
    seed: u64,
    armed: AtomicBool,
    failed: AtomicBool,
    state: Mutex<DiskState>,
}

struct DiskState {
    random: Xoshiro256PlusPlus,
    written_bytes: u64,
    /// Blocks written since the workload began: they can be read.
    written: BTreeSet<u64>,
}

impl Faulty {
    pub fn new(inner: Arc<dyn Array>, faults: &[Fault], seed: u64) -> Self {
        // What is not given is drawn, so that the seed decides it.
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut drawn = || Some(random.random_range(0..BYTES_MAX));

        let faults = faults.iter().map(|fault| match *fault {
            Fault::Full(None) => Fault::Full(drawn()),
            Fault::ReadOnly(None) => Fault::ReadOnly(drawn()),
            other => other,
        });
        let faults = faults.collect();

        Self {
            inner,
            faults,
            seed,
            armed: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            state: Mutex::new(DiskState {
                random,
                written_bytes: 0,
                written: BTreeSet::new(),
            }),
        }
    }

    /// From now on requests fail, or not any more.
    pub fn arm(&self, armed: bool) {
        self.armed.store(armed, Ordering::Relaxed);
    }

    /// Whether a request has failed.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, DiskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_active(&self) -> bool {
        !self.faults.is_empty() && self.armed.load(Ordering::Relaxed)
    }

    fn fail(&self, error: DiskError) -> io::Error {
        self.failed.store(true, Ordering::Relaxed);
        io::Error::other(Injected(error))
    }

    fn blocks(&self, offset: u64, len: u64) -> Range<u64> {
        let (first, count, _) = self.shape().cover(offset, len);
        first..first + count
    }

    /// Can a block never be read, until it is written? Depends on seed and block alone.
    fn is_bad(&self, block: u64, chance: f64) -> bool {
        let number = self.seed ^ block.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        SplitMix64::seed_from_u64(number).random_bool(chance)
    }

    fn before_any(&self) {
        let delay: Duration = {
            let mut state = self.state();
            let delays = self.faults.iter().filter_map(|fault| match fault {
                Fault::Latency(time, chance) => state.random.random_bool(*chance).then_some(*time),
                _ => None,
            });
            delays.sum()
        };
        // Outside the lock: requests of several threads are late side by side.
        std::thread::sleep(delay);
    }

    fn before_read(&self, offset: u64, len: u64) -> io::Result<()> {
        if !self.is_active() {
            return Ok(());
        }
        self.before_any();
        for fault in &self.faults {
            let Fault::ReadError(chance) = fault else {
                continue;
            };
            let state = self.state();
            let mut blocks = self.blocks(offset, len);

            // A bad block can be read again once it was written, as on a real disk.
            if blocks.any(|block| self.is_bad(block, *chance) && !state.written.contains(&block)) {
                return Err(self.fail(DiskError::Device(Status::UNRECOVERED_READ)));
            }
        }
        Ok(())
    }

    fn before_write(&self, offset: u64, len: u64) -> io::Result<()> {
        if !self.is_active() {
            return Ok(());
        }

        self.before_any();

        let mut state = self.state();
        // Counted with this write: the limit is reached by the first that passes it.
        let written = state.written_bytes + len;

        for fault in &self.faults {
            match fault {
                Fault::Full(Some(after)) if written > *after => {
                    return Err(self.fail(DiskError::Range));
                }
                Fault::ReadOnly(Some(after)) if written > *after => {
                    return Err(self.fail(DiskError::Device(Status::WRITE_PROTECTED)));
                }
                _ => {}
            }
        }

        // A write that failed has changed nothing and is not counted.
        state.written_bytes = written;
        let blocks = self.blocks(offset, len);
        state.written.extend(blocks);

        Ok(())
    }
}

impl Array for Faulty {
    fn shape(&self) -> DiskGeometry {
        self.inner.shape()
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.before_read(offset, into.len() as u64)?;
        self.inner.read(offset, into)
    }

    fn write(&self, offset: u64, data: &[u8], through: bool) -> io::Result<()> {
        self.before_write(offset, data.len() as u64)?;
        self.inner.write(offset, data, through)
    }

    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        // Counted as no bytes: zeroes take no room.
        self.before_write(offset, 0)?;
        self.inner.zero(offset, len)
    }

    fn flush(&self) -> io::Result<()> {
        if self.is_active() {
            self.before_any();
        }
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Recorder;

    fn disk(fault: &str) -> Faulty {
        let shape = DiskGeometry {
            block_bytes: 4096,
            blocks: 256,
        };
        let faults = [fault.parse().unwrap()];
        let disk = Faulty::new(Arc::new(Recorder::new(shape).unwrap()), &faults, 1);
        disk.arm(true);
        disk
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
        let disk_1 = disk("read-error:0.1");
        let found = bad(&disk_1);
        assert!((10..45).contains(&found.len()), "{}", found.len());
        assert_eq!(found, bad(&disk("read-error:0.1")));

        disk_1.write(found[0] * 4096, &[1; 4096], false).unwrap();
        assert_eq!(bad(&disk_1), found[1..]);
        disk_1.arm(false);
        assert!(bad(&disk_1).is_empty());
    }

    #[test]
    fn a_full_disk_and_a_read_only_one_take_no_more_and_say_which() {
        for (fault, wanted) in [
            ("full:8192", DiskError::Range),
            ("read-only:8192", DiskError::Device(Status::WRITE_PROTECTED)),
        ] {
            let disk = disk(fault);
            disk.write(0, &[1; 8192], false).unwrap();
            assert!(!disk.has_failed());
            let error = disk.write(8192, &[1; 4096], false).unwrap_err();
            assert_eq!(answer(&error), Some(wanted));
            assert!(disk.has_failed() && disk.flush().is_ok());
        }
        assert_eq!(answer(&io::Error::other("another")), None);
    }
}
