//! Executes runs on all cores, as many at a time as memory allows.
//!
//! The longest runs begin first, so that no core is left with one at the end. A run begins when its
//! memory fits in addition to that of the running ones; one that exceeds the limit runs alone.
//! Invariants: results do not depend on the order; after a failure nothing new begins, and running
//! jobs are finished and kept. Absent: the contents of a run.

use remap_ssd_sim::cores::Cores;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Resources needed by a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    /// Memory in bytes.
    pub memory: u64,
    /// Duration, in a unit common to all jobs.
    pub weight: f64,
}

/// Resources available to all jobs.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum concurrent jobs.
    pub threads: usize,
    /// Memory of all running jobs, in bytes; a larger job runs alone.
    pub memory: u64,
}

struct QueueState {
    /// Jobs not begun, the longest last.
    waiting: Vec<usize>,
    memory: u64,
    running: usize,
    failed: bool,
}

/// Executes every job with `work`, which may borrow threads that no job needs. Returns the first
/// failure, in the order of the jobs.
///
/// # Errors
/// The error of `work`.
pub(crate) fn run_all<E: Send>(
    demands: &[Demand],
    limits: Limits,
    work: impl Fn(usize, &Cores) -> Result<(), E> + Sync,
) -> Result<(), E> {
    // Workers take from the end: the heaviest first, and of equals the one given first.
    let mut waiting: Vec<usize> = (0..demands.len()).collect();
    waiting.sort_by(|a, b| {
        demands[*a]
            .weight
            .total_cmp(&demands[*b].weight)
            .then(b.cmp(a))
    });

    let state = Mutex::new(QueueState {
        waiting,
        memory: 0,
        running: 0,
        failed: false,
    });
    let changed = Condvar::new();
    let failures: Mutex<Vec<(usize, E)>> = Mutex::default();

    let workers = limits.threads.clamp(1, demands.len().max(1));
    // Threads in excess of the jobs are lent to jobs that can use a second one.
    let cores = Cores::new(limits.threads.saturating_sub(workers) as u32);

    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(job) = begin(demands, limits, &state, &changed) {
                    let result = work(job, &cores);
                    let mut now = locked(&state);
                    now.running -= 1;
                    now.memory -= demands[job].memory;

                    if let Err(error) = result {
                        now.failed = true;
                        locked(&failures).push((job, error));
                    }
                    changed.notify_all();
                }
                // No job is left to begin: this thread's core goes to a run that can use two.
                cores.add();
            });
        }
    });

    let mut failures = failures
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    failures.sort_by_key(|(job, _)| *job);
    failures
        .into_iter()
        .next()
        .map_or(Ok(()), |(_, error)| Err(error))
}

/// Waits for and returns the longest waiting job that fits; `None` if none is left.
fn begin(
    demands: &[Demand],
    limits: Limits,
    state: &Mutex<QueueState>,
    changed: &Condvar,
) -> Option<usize> {
    let mut now = locked(state);
    loop {
        if now.failed || now.waiting.is_empty() {
            return None;
        }

        let fits =
            |job: &usize| now.running == 0 || now.memory + demands[*job].memory <= limits.memory;
        // A light job may begin before a heavy one that does not fit yet: memory is not left
        // unused.
        if let Some(at) = now.waiting.iter().rposition(fits) {
            let job = now.waiting.remove(at);
            now.memory += demands[job].memory;
            now.running += 1;
            return Some(job);
        }

        now = changed.wait(now).unwrap_or_else(PoisonError::into_inner);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    proptest! {
        #[test]
        fn every_job_is_done_once_and_memory_stays_within_its_limit(
            sizes in proptest::collection::vec(1u64..10, 0..40),
            threads in 1usize..6,
        ) {
            let demands: Vec<Demand> =
                sizes.iter().map(|size| Demand { memory: *size, weight: *size as f64 }).collect();
            let (used, most) = (AtomicU64::new(0), AtomicU64::new(0));
            let done: Vec<AtomicU64> = sizes.iter().map(|_| AtomicU64::new(0)).collect();

            let result: Result<(), ()> = run_all(&demands, Limits { threads, memory: 12 }, |job, _| {
                let now = used.fetch_add(sizes[job], Ordering::SeqCst) + sizes[job];
                most.fetch_max(now, Ordering::SeqCst);
                std::thread::yield_now();
                used.fetch_sub(sizes[job], Ordering::SeqCst);
                done[job].fetch_add(1, Ordering::SeqCst);
                Ok(())
            });

            prop_assert!(result.is_ok());
            prop_assert!(done.iter().all(|count| count.load(Ordering::SeqCst) == 1));
            prop_assert!(most.load(Ordering::SeqCst) <= 12);
        }
    }

    #[test]
    fn a_job_larger_than_the_limit_runs_alone_and_a_failure_stops_what_has_not_begun() {
        let demands = [Demand {
            memory: 100,
            weight: 1.0,
        }; 8];

        let begun = AtomicU64::new(0);
        let result = run_all(
            &demands,
            Limits {
                threads: 4,
                memory: 10,
            },
            |job, _| {
                begun.fetch_add(1, Ordering::SeqCst);
                if job == 3 { Err(job) } else { Ok(()) }
            },
        );

        assert_eq!(result, Err(3));
        assert_eq!(
            begun.load(Ordering::SeqCst),
            4,
            "the jobs are equally long: they begin in order"
        );
    }
}
