//! Figures of other simulators and of closed forms, with the runs that correspond to them.
//!
//! MQSim is its commit 7ec40e3 without collection, and without caches where none is named; NVMeVirt is the transfer model of its commit
//! 61c90f7 with the configuration of a 970 Pro, without the host's time. The event model is of the same
//! rules as MQSim, with which it agrees within 0.4 % up to 64 requests in flight; it also has what MQSim has
//! not: suspension, and commands before data. M/D/1 is Crommelin's distribution of waits at a server of fixed times.
//!
//! Invariant: a figure is as its source gives it, with the unit alone changed. Absent: ours.

/// Figures of one source under growing load.
pub(super) struct Series {
    /// The figures of a group have the same tolerance, or none.
    pub group: &'static str,
    pub source: &'static str,
    pub case: &'static str,
    pub setup: &'static str,
    pub workload: &'static str,
    pub figure: Figure,
    /// The largest difference that the project claims.
    pub within: Option<f64>,
    pub values: &'static [(Load, f64)],
}

/// What a figure measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    /// Thousands of requests a second.
    Thousands,
    /// 10^6 bytes a second.
    MegabytesPerS,
    /// Latency of reads in microseconds: `mean`, or a percentile.
    Read(&'static str),
    /// Mean latency of writes in microseconds.
    Write,
    /// Percentage of written pages that a write buffer absorbed, because they were written again while they were there.
    Absorbed,
    /// Time at a die beyond the service, in services: `mean`, or a percentile.
    Wait(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Load {
    /// Requests in flight.
    Depth(u32),
    /// Share of a die's time that is taken; the run's rate of arrivals.
    Share(f64, &'static str),
}

use Figure::{Absorbed, MegabytesPerS, Read, Thousands, Wait, Write};
use Load::{Depth, Share};

const NVMEVIRT: &str = "NVMeVirt 61c90f7";
const MQSIM: &str = "MQSim 7ec40e3";
/// `done = max(now, die is free) + t`, of FEMU's commit 99ce4fb: an idle die, the bound of 64 dies, and closed loops of
/// 400,000 reads on dies drawn at random.
const FEMU: &str = "formula of FEMU 99ce4fb";
const MODEL: &str = "event model";
/// MQSim knows a channel's time in whole nanoseconds, so that 800 MT/s and more are not what they are called: the formula of its
/// other rates, with the exact time. A miss of its mapping cache moves one sector of the table: the formula with a whole page, and
/// with as many misses as the table has entries outside the cache. A write into its cache while there is room.
const BOUND: &str = "formula of MQSim";
const MD1: &str = "M/D/1";
/// A buffer of B pages that all P pages reach alike has the next one with a probability of B/P.
const UNIFORM: &str = "closed form";

const fn series(
    (group, source, within): (&'static str, &'static str, Option<f64>),
    case: &'static str,
    (setup, workload): (&'static str, &'static str),
    figure: Figure,
    values: &'static [(Load, f64)],
) -> Series {
    Series {
        group,
        source,
        case,
        setup,
        workload,
        figure,
        within,
        values,
    }
}

const LOADS: [Load; 4] = [
    Share(0.3, "rate:96000"),
    Share(0.5, "rate:160000"),
    Share(0.8, "rate:256000"),
    Share(0.9, "rate:288000"),
];

pub(super) const ALL: &[Series] = &[
    series(
        ("NVMeVirt, up to 64 in flight", NVMEVIRT, Some(0.02)),
        "970 Pro, random reads of 4 KiB",
        ("970pro", "randread"),
        Thousands,
        &[
            (Depth(1), 15.8),
            (Depth(4), 60.6),
            (Depth(16), 195.0),
            (Depth(32), 284.0),
            (Depth(64), 341.0),
        ],
    ),
    series(
        ("NVMeVirt, more in flight", NVMEVIRT, Some(0.05)),
        "970 Pro, random reads of 4 KiB",
        ("970pro", "randread"),
        Thousands,
        &[(Depth(128), 368.0), (Depth(256), 378.0)],
    ),
    series(
        ("NVMeVirt, up to 64 in flight", NVMEVIRT, Some(0.02)),
        "970 Pro, random reads of 4 KiB",
        ("970pro", "randread"),
        Read("mean"),
        &[(Depth(1), 63.276), (Depth(32), 112.6)],
    ),
    series(
        ("NVMeVirt, more in flight", NVMEVIRT, Some(0.05)),
        "970 Pro, random reads of 4 KiB",
        ("970pro", "randread"),
        Read("p99"),
        &[(Depth(32), 313.0)],
    ),
    series(
        ("NVMeVirt, up to 64 in flight", NVMEVIRT, Some(0.02)),
        "970 Pro, sequential reads of 128 KiB",
        ("970pro", "seqread,pages=32"),
        MegabytesPerS,
        &[(Depth(32), 3520.0)],
    ),
    series(
        ("NVMeVirt, up to 64 in flight", NVMEVIRT, Some(0.02)),
        "970 Pro, sequential writes of 128 KiB",
        ("970pro", "seqwrite,pages=32"),
        MegabytesPerS,
        &[(Depth(32), 2341.5)],
    ),
    series(
        ("NVMeVirt, another layout", NVMEVIRT, None),
        "970 Pro, sequential reads of 128 KiB",
        ("970pro", "seqread,pages=32"),
        MegabytesPerS,
        &[(Depth(1), 1065.0), (Depth(4), 3520.0)],
    ),
    series(
        ("NVMeVirt, another layout", NVMEVIRT, None),
        "970 Pro, sequential reads of 16 KiB",
        ("970pro", "seqread,pages=4"),
        MegabytesPerS,
        &[(Depth(1), 243.6), (Depth(32), 1612.0)],
    ),
    series(
        ("NVMeVirt, up to 64 in flight", NVMEVIRT, Some(0.02)),
        "970 Pro, random writes of 4 KiB",
        ("970pro", "randwrite"),
        Write,
        &[(Depth(1), 5.612)],
    ),
    series(
        ("NVMeVirt, its firmware's time of a page", NVMEVIRT, None),
        "970 Pro, sequential writes of 128 KiB",
        ("970pro", "seqwrite,pages=32"),
        Write,
        &[(Depth(1), 55.584)],
    ),
    series(
        ("MQSim, random reads", MQSIM, Some(0.01)),
        "64 dies, random reads of 4 KiB, data first",
        ("mqsim-64", "randread"),
        Thousands,
        &[
            (Depth(1), 13.531),
            (Depth(4), 51.887),
            (Depth(16), 175.572),
            (Depth(256), 374.617),
        ],
    ),
    series(
        ("MQSim, random reads", MQSIM, Some(0.01)),
        "64 dies, random reads of 4 KiB, data first",
        ("mqsim-64", "randread"),
        Read("mean"),
        &[
            (Depth(1), 73.906),
            (Depth(4), 77.082),
            (Depth(16), 91.08),
            (Depth(256), 667.139),
        ],
    ),
    series(
        ("percentiles", MQSIM, None),
        "64 dies, random reads of 4 KiB, data first",
        ("mqsim-64", "randread"),
        Read("p50"),
        &[
            (Depth(4), 73.906),
            (Depth(16), 78.154),
            (Depth(256), 479.265),
        ],
    ),
    series(
        ("percentiles", MQSIM, None),
        "64 dies, random reads of 4 KiB, data first",
        ("mqsim-64", "randread"),
        Read("p99"),
        &[
            (Depth(4), 140.258),
            (Depth(16), 210.487),
            (Depth(256), 2699.848),
        ],
    ),
    series(
        ("percentiles", MQSIM, None),
        "64 dies, random reads of 4 KiB, data first",
        ("mqsim-64", "randread"),
        Read("p999"),
        &[
            (Depth(4), 157.484),
            (Depth(16), 299.927),
            (Depth(256), 3429.102),
        ],
    ),
    series(
        ("MQSim, random reads", MODEL, Some(0.03)),
        "64 dies, random reads of 4 KiB, commands first",
        ("mqsim-64-commands", "randread"),
        Thousands,
        &[(Depth(16), 182.646), (Depth(256), 619.205)],
    ),
    series(
        ("MQSim, random reads", MODEL, Some(0.03)),
        "64 dies, random reads of 4 KiB, commands first",
        ("mqsim-64-commands", "randread"),
        Read("mean"),
        &[(Depth(16), 87.6), (Depth(256), 412.032)],
    ),
    series(
        ("reads beside programs", MODEL, Some(0.03)),
        "8 dies, 70 % reads, reads first",
        ("beside", "randrw:70"),
        Read("mean"),
        &[(Depth(4), 155.0), (Depth(16), 355.6)],
    ),
    series(
        ("reads beside programs", MODEL, Some(0.03)),
        "8 dies, 70 % reads, reads first",
        ("beside", "randrw:70"),
        Read("p99"),
        &[(Depth(4), 679.5), (Depth(16), 708.4)],
    ),
    series(
        ("reads beside programs", MODEL, Some(0.03)),
        "8 dies, 70 % reads, reads first",
        ("beside", "randrw:70"),
        Write,
        &[(Depth(4), 619.4), (Depth(16), 833.3)],
    ),
    series(
        ("reads beside programs", MODEL, Some(0.03)),
        "8 dies, 70 % reads, reads first",
        ("beside", "randrw:70"),
        Thousands,
        &[(Depth(4), 13.577), (Depth(16), 32.048)],
    ),
    series(
        ("reads beside programs", MODEL, Some(0.03)),
        "8 dies, 70 % reads, programs suspended",
        ("beside-suspended", "randrw:70"),
        Read("mean"),
        &[(Depth(4), 85.3), (Depth(16), 110.5)],
    ),
    series(
        ("reads beside programs", MODEL, Some(0.03)),
        "8 dies, 70 % reads, programs suspended",
        ("beside-suspended", "randrw:70"),
        Read("p99"),
        &[(Depth(4), 161.3), (Depth(16), 217.8)],
    ),
    series(
        ("reads beside programs", MODEL, Some(0.03)),
        "8 dies, 70 % reads, programs suspended",
        ("beside-suspended", "randrw:70"),
        Write,
        &[(Depth(4), 671.3), (Depth(16), 1406.8)],
    ),
    series(
        ("reads beside programs", MODEL, Some(0.03)),
        "8 dies, 70 % reads, programs suspended",
        ("beside-suspended", "randrw:70"),
        Thousands,
        &[(Depth(4), 15.297), (Depth(16), 31.987)],
    ),
    series(
        ("reads beside programs", MODEL, Some(0.03)),
        "8 dies, 70 % reads, suspended once",
        ("beside-once", "randrw:70"),
        Read("mean"),
        &[(Depth(4), 102.5), (Depth(16), 213.1)],
    ),
    series(
        ("reads beside programs", MODEL, Some(0.03)),
        "8 dies, 70 % reads, suspended once",
        ("beside-once", "randrw:70"),
        Read("p99"),
        &[(Depth(4), 536.1), (Depth(16), 660.0)],
    ),
    series(
        ("reads beside programs", MODEL, Some(0.03)),
        "8 dies, 70 % reads, suspended once",
        ("beside-once", "randrw:70"),
        Write,
        &[(Depth(4), 655.5), (Depth(16), 1151.6)],
    ),
    series(
        ("reads beside programs", MODEL, Some(0.03)),
        "8 dies, 70 % reads, suspended once",
        ("beside-once", "randrw:70"),
        Thousands,
        &[(Depth(4), 14.884), (Depth(16), 32.306)],
    ),
    series(
        ("FEMU, idle", FEMU, Some(0.005)),
        "64 dies, random reads of 4 KiB",
        ("femu", "randread"),
        Read("mean"),
        &[(Depth(1), 40.0)],
    ),
    series(
        ("FEMU, idle", FEMU, Some(0.005)),
        "64 dies, sequential reads of 128 KiB",
        ("femu", "seqread,pages=32"),
        Read("mean"),
        &[(Depth(1), 40.0)],
    ),
    series(
        ("FEMU, idle", FEMU, Some(0.005)),
        "64 dies, random writes of 4 KiB",
        ("femu-written", "randwrite"),
        Write,
        &[(Depth(1), 200.0)],
    ),
    series(
        ("FEMU, idle", FEMU, Some(0.005)),
        "64 dies, sequential writes of 128 KiB",
        ("femu-written", "seqwrite,pages=32"),
        Write,
        &[(Depth(1), 200.0)],
    ),
    series(
        ("FEMU, closed loops", FEMU, Some(0.01)),
        "64 dies, random reads of 4 KiB",
        ("femu", "randread"),
        Thousands,
        &[
            (Depth(4), 97.63),
            (Depth(16), 353.8),
            (Depth(64), 943.8),
            (Depth(256), 1405.2),
        ],
    ),
    series(
        ("FEMU, closed loops", FEMU, Some(0.01)),
        "64 dies, random reads of 4 KiB",
        ("femu", "randread"),
        Read("mean"),
        &[
            (Depth(4), 40.97),
            (Depth(16), 45.22),
            (Depth(64), 67.81),
            (Depth(256), 182.18),
        ],
    ),
    series(
        ("FEMU, closed loops", FEMU, Some(0.01)),
        "64 dies, sequential reads of 4 KiB",
        ("femu", "seqread"),
        Thousands,
        &[(Depth(64), 1600.0), (Depth(256), 1600.0)],
    ),
    series(
        ("FEMU, closed loops", FEMU, Some(0.01)),
        "64 dies, sequential writes of 4 KiB",
        ("femu-written", "seqwrite"),
        Thousands,
        &[(Depth(64), 320.0), (Depth(256), 320.0)],
    ),
    series(
        ("M/D/1, mean", MD1, Some(0.03)),
        "16 dies, random reads, Poisson arrivals",
        ("waits", "randread"),
        Wait("mean"),
        &[
            (LOADS[0], 0.2143),
            (LOADS[1], 0.5),
            (LOADS[2], 2.0),
            (LOADS[3], 4.5),
        ],
    ),
    series(
        ("M/D/1, percentiles", MD1, Some(0.04)),
        "16 dies, random reads, Poisson arrivals",
        ("waits", "randread"),
        Wait("p90"),
        &[
            (LOADS[0], 0.84),
            (LOADS[1], 1.51),
            (LOADS[2], 4.99),
            (LOADS[3], 10.7),
        ],
    ),
    series(
        ("M/D/1, percentiles", MD1, Some(0.04)),
        "16 dies, random reads, Poisson arrivals",
        ("waits", "randread"),
        Wait("p99"),
        &[
            (LOADS[0], 1.88),
            (LOADS[1], 3.33),
            (LOADS[2], 10.3),
            (LOADS[3], 21.6),
        ],
    ),
    series(
        ("percentiles", MD1, None),
        "16 dies, random reads, Poisson arrivals",
        ("waits", "randread"),
        Wait("p999"),
        &[
            (LOADS[0], 3.02),
            (LOADS[1], 5.14),
            (LOADS[2], 15.6),
            (LOADS[3], 31.4),
        ],
    ),
    series(
        ("MQSim, idle", MQSIM, Some(0.001)),
        "one die, 4 KiB of 16 KiB, SLC",
        ("one", "randread"),
        Read("mean"),
        &[(Depth(1), 53.906)],
    ),
    series(
        ("MQSim, idle, MLC", MQSIM, Some(0.005)),
        "one die, 4 KiB of 16 KiB, MLC",
        ("one-mlc", "randread"),
        Read("mean"),
        &[(Depth(1), 73.906)],
    ),
    series(
        ("MQSim, idle, several pages", MQSIM, Some(0.01)),
        "one die, 8 KiB of 16 KiB, SLC",
        ("one", "randread,pages=2"),
        Read("mean"),
        &[(Depth(1), 67.442)],
    ),
    series(
        ("MQSim, idle, several pages", MQSIM, Some(0.01)),
        "one die, 8 KiB of 16 KiB, MLC",
        ("one-mlc", "randread,pages=2"),
        Read("mean"),
        &[(Depth(1), 87.442)],
    ),
    series(
        ("MQSim, idle, several pages", MQSIM, Some(0.01)),
        "one die, 16 KiB of 16 KiB, SLC",
        ("one", "randread,pages=4"),
        Read("mean"),
        &[(Depth(1), 94.514)],
    ),
    series(
        ("MQSim, idle, several pages", MQSIM, Some(0.01)),
        "one die, 16 KiB of 16 KiB, MLC",
        ("one-mlc", "randread,pages=4"),
        Read("mean"),
        &[(Depth(1), 114.514)],
    ),
    series(
        ("MQSim, idle, several pages", MQSIM, Some(0.01)),
        "one die, 16 KiB, SLC",
        ("one-written", "seqwrite,pages=4"),
        Write,
        &[(Depth(1), 454.573)],
    ),
    series(
        ("MQSim, idle, several pages", MQSIM, Some(0.01)),
        "one die, sequential reads of 16 KiB",
        ("one", "seqread,pages=4"),
        MegabytesPerS,
        &[(Depth(1), 173.3)],
    ),
    series(
        ("MQSim, sequential reads", MQSIM, Some(0.005)),
        "one die, sequential reads of 16 KiB",
        ("one", "seqread,pages=4"),
        MegabytesPerS,
        &[(Depth(8), 183.1)],
    ),
    series(
        ("MQSim, sequential writes", MQSIM, Some(0.02)),
        "one die, sequential writes of 16 KiB",
        ("one-written", "seqwrite,pages=4"),
        MegabytesPerS,
        &[(Depth(1), 36.0), (Depth(8), 36.45)],
    ),
    series(
        ("MQSim, idle, several pages", MQSIM, Some(0.01)),
        "one die of 2 planes, sequential reads of 32 KiB",
        ("one-two-planes", "seqread,pages=8"),
        MegabytesPerS,
        &[(Depth(1), 219.5)],
    ),
    series(
        ("MQSim, sequential reads", MQSIM, Some(0.005)),
        "one die of 2 planes, sequential reads of 32 KiB",
        ("one-two-planes", "seqread,pages=8"),
        MegabytesPerS,
        &[(Depth(8), 235.2)],
    ),
    series(
        ("MQSim, sequential writes", MQSIM, Some(0.02)),
        "one die of 2 planes, sequential writes of 32 KiB",
        ("one-two-planes-written", "seqwrite,pages=8"),
        MegabytesPerS,
        &[(Depth(1), 64.3), (Depth(8), 65.6)],
    ),
    series(
        ("MQSim, sequential reads", MQSIM, Some(0.005)),
        "4 chips on a channel of 333 MT/s, sequential reads of 16 KiB",
        ("four-333", "seqread,pages=4"),
        MegabytesPerS,
        &[(Depth(16), 276.6)],
    ),
    series(
        ("MQSim, sequential writes", MQSIM, Some(0.02)),
        "4 chips on a channel of 333 MT/s, sequential writes of 16 KiB",
        ("four-333-written", "seqwrite,pages=4"),
        MegabytesPerS,
        &[(Depth(16), 145.6)],
    ),
    series(
        ("MQSim, sequential reads", MQSIM, Some(0.005)),
        "4 chips on a channel of 400 MT/s, sequential reads of 16 KiB",
        ("four-400", "seqread,pages=4"),
        MegabytesPerS,
        &[(Depth(16), 382.4)],
    ),
    series(
        ("MQSim, sequential writes", MQSIM, Some(0.02)),
        "4 chips on a channel of 400 MT/s, sequential writes of 16 KiB",
        ("four-400-written", "seqwrite,pages=4"),
        MegabytesPerS,
        &[(Depth(16), 151.2)],
    ),
    series(
        ("MQSim, sequential reads", BOUND, Some(0.005)),
        "4 chips on a channel of 800 MT/s, sequential reads of 16 KiB",
        ("four-800", "seqread,pages=4"),
        MegabytesPerS,
        &[(Depth(16), 536.2)],
    ),
    series(
        ("MQSim, sequential reads", MQSIM, Some(0.005)),
        "4 chips on a channel of 1000 MT/s, sequential reads of 16 KiB",
        ("four-1000", "seqread,pages=4"),
        MegabytesPerS,
        &[(Depth(16), 619.0)],
    ),
    series(
        ("MQSim, sequential writes", MQSIM, Some(0.02)),
        "4 chips on a channel of 1000 MT/s, sequential writes of 16 KiB",
        ("four-1000-written", "seqwrite,pages=4"),
        MegabytesPerS,
        &[(Depth(16), 157.2)],
    ),
    series(
        ("MQSim, sequential reads", BOUND, Some(0.005)),
        "4 chips on a channel of 1200 MT/s, sequential reads of 16 KiB",
        ("four-1200", "seqread,pages=4"),
        MegabytesPerS,
        &[(Depth(16), 690.4)],
    ),
    series(
        ("MQSim, write cache", MQSIM, Some(0.001)),
        "16 dies, random writes to 4,876 pages, no cache",
        ("unbuffered", "randwrite,span=0.019504"),
        Write,
        &[(Depth(1), 413.965)],
    ),
    series(
        ("MQSim, write cache", MQSIM, Some(0.001)),
        "16 dies, random writes to 4,876 pages, a cache of 64 MiB",
        ("buffered", "randwrite,span=0.019504"),
        Absorbed,
        &[(Depth(1), 90.248)],
    ),
    series(
        ("MQSim, write cache", BOUND, Some(0.001)),
        "16 dies, random writes to 4,876 pages, a cache of 64 MiB",
        ("buffered", "randwrite,span=0.019504"),
        Write,
        &[(Depth(1), 1.982)],
    ),
    series(
        ("MQSim, waits for room in its cache", MQSIM, None),
        "16 dies, random writes to 4,876 pages, a cache of 64 MiB",
        ("buffered", "randwrite,span=0.019504"),
        Write,
        &[(Depth(1), 5.349)],
    ),
    series(
        ("write buffer", UNIFORM, Some(0.02)),
        "16 dies, random writes to 25,000 pages, of which a buffer keeps 12,500",
        ("half-buffered", "randwrite,span=0.1"),
        Absorbed,
        &[(Depth(1), 50.0)],
    ),
    series(
        ("MQSim, mapping cache", MQSIM, Some(0.02)),
        "16 dies, random reads of 4 KiB, the whole table cached",
        ("mapped", "randread"),
        Read("mean"),
        &[(Depth(1), 73.906)],
    ),
    series(
        ("MQSim, mapping cache", MQSIM, Some(0.02)),
        "16 dies, random reads of 4 KiB, the whole table cached",
        ("mapped", "randread"),
        Thousands,
        &[(Depth(16), 109.137)],
    ),
    series(
        ("MQSim, mapping cache", BOUND, Some(0.02)),
        "16 dies, random reads of 4 KiB, a tenth of the table cached",
        ("tenth-mapped", "randread"),
        Read("mean"),
        &[(Depth(1), 139.244)],
    ),
    series(
        ("MQSim, reads a sector of the table", MQSIM, None),
        "16 dies, random reads of 4 KiB, a tenth of the table cached",
        ("tenth-mapped", "randread"),
        Read("mean"),
        &[(Depth(1), 127.261)],
    ),
];
