//! Microbenchmarks of single commands, in virtual time: each thread issues one operation after the
//! other.
//!
//! PebbleSSD (MEMSYS'17 §6.2) measures throughput with four threads and latency with one.
//! Invariant: the same device and the same number of operations give the same result. Absent: whole
//! workloads (`run`).

pub mod bam;
mod file_write;
mod moves;

pub use file_write::{FileWrites, file_writes};
pub use moves::{MoveHow, moves};

use remap_ssd_device::{Device, Lpn};
use remap_ssd_ftl::Refusal;
use remap_ssd_media::Payload;
use serde::Serialize;

/// Throughput and latency of a microbenchmark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Measured {
    /// Threads, each with one operation in flight.
    pub threads: u32,
    /// Total operations completed.
    pub operations: u64,
    /// Virtual seconds from the first submission to the last completion.
    pub seconds: f64,
    /// Operations per second of virtual time.
    pub per_second: f64,
    /// Latency of an operation, microseconds.
    pub latency_mean_us: f64,
    /// Latency of the slowest operation, in microseconds.
    pub latency_max_us: f64,
}

/// Result of a step of an operation.
enum Step {
    /// The next step of the same operation follows at this time.
    Next(u64),
    /// The operation completes at this time.
    Done(u64),
}

/// A thread and its operation.
#[derive(Clone, Copy)]
struct Thread {
    at: u64,
    began: u64,
    /// The operation's number, and the step.
    n: u64,
    step: u32,
}

/// Executes `operations` with `threads` in a closed loop; `one` executes a step of operation number
/// `n`.
fn closed_loop(
    device: &mut Device,
    threads: u32,
    operations: u64,
    mut one: impl FnMut(&mut Device, u64, u64, u32) -> Result<Step, Refusal>,
) -> Result<Measured, Refusal> {
    let start = device.busy_until();
    // Each command follows the host's time for it.
    let host_ns = device.config().host_ns;

    let first = |n| Thread {
        at: start + host_ns,
        began: start,
        n,
        step: 0,
    };

    // No more threads than operations.
    let mut running: Vec<Thread> = (0..u64::from(threads.max(1)).min(operations))
        .map(first)
        .collect();

    let (mut next, mut end, mut sum, mut max) = (running.len() as u64, start, 0, 0);

    // The thread that is free first continues; of several, the one with the older operation.
    while let Some(at) = (0..running.len()).min_by_key(|at| (running[*at].at, running[*at].n)) {
        let thread = &mut running[at];

        match one(device, thread.at, thread.n, thread.step)? {
            Step::Next(later) => (thread.at, thread.step) = (later + host_ns, thread.step + 1),
            Step::Done(done) => {
                end = end.max(done);
                sum += done - thread.began;
                max = max.max(done - thread.began);

                *thread = Thread {
                    at: done + host_ns,
                    began: done,
                    n: next,
                    step: 0,
                };

                // The thread continues with the next operation, unless all have begun.
                next += 1;
                if next > operations {
                    running.swap_remove(at);
                }
            }
        }
    }

    let seconds = (end - start) as f64 / 1e9;
    Ok(Measured {
        threads,
        operations,
        seconds,
        per_second: operations as f64 / seconds.max(f64::MIN_POSITIVE),
        latency_mean_us: sum as f64 / 1e3 / operations.max(1) as f64,
        latency_max_us: max as f64 / 1e3,
    })
}

/// Fills the device `times` over at random, outside the measured time: "filling it with random data
/// multiple times" (§6.1).
///
/// # Errors
/// The device refuses a page.
pub fn precondition(device: &mut Device, times: u32, seed: u64) -> Result<(), Refusal> {
    // Units are pages here.
    let lpns = device.config().addressable_units();

    device.untimed(|ftl| {
        let mut write = |lpn: Lpn, n: u64| {
            let result = ftl.write(lpn, &Payload::Identity(FRESH + n));

            // Not charged, so not kept: the list would grow with the device.
            ftl.media_mut().ops.clear();
            result
        };

        Lpn::range(Lpn::ZERO, lpns).try_for_each(|lpn| write(lpn, lpn.into()))?;

        // Knuth's MMIX generator; its high bits choose the page.
        let mut random = seed;
        for n in 0..u64::from(lpns) * u64::from(times.saturating_sub(1)) {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);

            write(
                Lpn(((u128::from(random) * u128::from(lpns)) >> 64) as u32),
                u64::from(lpns) + n,
            )?;
        }
        Ok(())
    })
}

/// First content identity written here, so that none is a duplicate.
const FRESH: u64 = 1 << 48;
