//! Counters of I/O commands for an operator, by kind: number, latency, failures.
//!
//! The transport knows the time and reports how long its commands took (`observe`); one call may
//! cover a batch of them, so that the clock is read once per batch. Buckets are powers of two of a
//! microsecond: the index is a count of leading zeros, and an observation is two relaxed additions.
//! Invariants: counters never decrease; a reading may miss concurrent additions, but nothing else.
//! Absent: clocks, external names (`remap-ssd-http`), and SMART counters (`counters`).

use super::request::IoRequest;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Buckets with an upper bound: 1 µs, 2 µs, and so on to 8.4 s.
pub(crate) const BUCKETS: usize = 24;

/// Kinds of I/O commands that are counted separately.
#[allow(missing_docs, reason = "the commands' names")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum CommandKind {
    Read = 0,
    Write,
    Flush,
    Deallocate,
    WriteZeroes,
    Copy,
    Remap,
    Compare,
    Verify,
    /// The vendor's file map: FsWrite, FsMap, FsReset.
    FileMap,
}

impl CommandKind {
    /// Names, in the order of the kinds.
    pub const NAMES: [&str; 10] = [
        "read",
        "write",
        "flush",
        "deallocate",
        "write_zeroes",
        "copy",
        "remap",
        "compare",
        "verify",
        "file_map",
    ];
    /// Number of kinds.
    pub(crate) const COUNT: usize = Self::NAMES.len();

    /// The kind of a command.
    #[inline]
    pub fn of(request: &IoRequest) -> Self {
        match request {
            IoRequest::Flush => Self::Flush,
            IoRequest::Read { .. } => Self::Read,
            IoRequest::Write { .. } | IoRequest::WriteThrough { .. } => Self::Write,
            IoRequest::Compare { .. } => Self::Compare,
            IoRequest::Verify { .. } => Self::Verify,
            IoRequest::WriteZeroes { .. } => Self::WriteZeroes,
            IoRequest::DatasetManagement { .. } => Self::Deallocate,
            IoRequest::Copy { .. } => Self::Copy,
            IoRequest::Remap { .. } => Self::Remap,
            IoRequest::FsWrite { .. } | IoRequest::FsMap { .. } | IoRequest::FsReset => {
                Self::FileMap
            }
        }
    }
}

/// Commands by kind, of one connection, that took equally long.
#[derive(Default)]
pub(crate) struct Batch {
    /// The kinds present, one bit each: the loop over them usually takes one step.
    kinds: Cell<u16>,
    counts: [Cell<u32>; CommandKind::COUNT],
}

impl Batch {
    /// Counts one more command.
    #[inline]
    pub(crate) fn add(&self, kind: CommandKind) {
        let count = &self.counts[kind as usize];
        count.set(count.get() + 1);
        self.kinds.set(self.kinds.get() | 1 << kind as usize);
    }

    /// Returns true if no command was counted.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.kinds.get() == 0
    }

    /// Reports all commands, each with this duration, and empties the batch. Returns their number.
    #[inline]
    pub(crate) fn observe(&self, telemetry: &Telemetry, ns: u64) -> u64 {
        // Visits only the kinds that were counted, lowest bit first.
        let (mut kinds, mut total) = (self.kinds.take(), 0);
        while kinds != 0 {
            let kind = kinds.trailing_zeros() as usize;
            kinds &= kinds - 1;
            let count = self.counts[kind].take();
            telemetry.count(kind, count, ns);
            total += u64::from(count);
        }
        total
    }
}

#[derive(Default)]
struct OfKind {
    /// The last one is for durations above the last bound.
    buckets: [AtomicU64; BUCKETS + 1],
    sum_ns: AtomicU64,
    failed: AtomicU64,
}

/// Counters of commands, over all transports.
#[derive(Default)]
pub struct Telemetry([OfKind; CommandKind::COUNT]);

/// The counters of one kind, as read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KindReading {
    /// Commands by bucket, not cumulative; the last one is for durations above the last bound.
    pub buckets: [u64; BUCKETS + 1],
    /// Sum of their durations.
    pub sum_ns: u64,
    /// Commands that ended with an error.
    pub failed: u64,
}

#[inline]
fn bucket_of(ns: u64) -> usize {
    // Minus one, so that a bound belongs to the bucket below it.
    let microseconds_z = ns.saturating_sub(1) / 1000;
    (u64::BITS - microseconds_z.leading_zeros()).min(BUCKETS as u32) as usize
}

impl Telemetry {
    /// Counts `count` commands of one kind, each of which took `ns`.
    #[inline]
    pub fn observe(&self, kind: CommandKind, count: u32, ns: u64) {
        self.count(kind as usize, count, ns);
    }

    #[inline]
    fn count(&self, kind: usize, count: u32, ns: u64) {
        let of = &self.0[kind];
        of.buckets[bucket_of(ns)].fetch_add(count.into(), Relaxed);
        of.sum_ns
            .fetch_add(ns.saturating_mul(count.into()), Relaxed);
    }

    /// Counts a command that ended with an error.
    #[cold]
    pub(super) fn failed(&self, kind: CommandKind) {
        self.0[kind as usize].failed.fetch_add(1, Relaxed);
    }

    /// All kinds, in their order.
    pub fn read(&self) -> [KindReading; CommandKind::COUNT] {
        std::array::from_fn(|kind| {
            let of = &self.0[kind];
            KindReading {
                buckets: std::array::from_fn(|bucket| of.buckets[bucket].load(Relaxed)),
                sum_ns: of.sum_ns.load(Relaxed),
                failed: of.failed.load(Relaxed),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upper bound of a bucket, inclusive, in nanoseconds.
    const fn bound_ns(bucket: usize) -> u64 {
        1000 << bucket
    }

    #[test]
    fn a_time_is_counted_in_the_first_bucket_whose_bound_it_does_not_pass() {
        assert_eq!([0, 1, 1000].map(bucket_of), [0; 3]);
        assert_eq!(
            [1001, 2000, 2001, 4000, 4001].map(bucket_of),
            [1, 1, 2, 2, 3]
        );
        for bucket in 0..BUCKETS {
            assert_eq!(bucket_of(bound_ns(bucket)), bucket);
            assert_eq!(bucket_of(bound_ns(bucket) + 1), bucket + 1);
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS);
    }

    #[test]
    fn a_batch_counts_each_of_its_commands() {
        let telemetry = Telemetry::default();
        let batch = Batch::default();
        assert!(batch.is_empty());
        for kind in [CommandKind::Read, CommandKind::Write, CommandKind::Read] {
            batch.add(kind);
        }

        assert_eq!(batch.observe(&telemetry, 3000), 3);
        assert!(batch.is_empty());
        assert_eq!(batch.observe(&telemetry, 9000), 0);
        telemetry.observe(CommandKind::Read, 1, 500);

        let read = telemetry.read();
        let of = |kind: CommandKind| &read[kind as usize];
        assert_eq!(
            (
                of(CommandKind::Read).buckets.iter().sum::<u64>(),
                of(CommandKind::Read).sum_ns
            ),
            (3, 6500)
        );
        assert_eq!(of(CommandKind::Write).buckets[2], 1);
        assert_eq!(of(CommandKind::Flush), &KindReading::default());
    }
}
