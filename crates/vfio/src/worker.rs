//! The function's thread: fetches, executes and completes commands, and interrupts the guest.
//!
//! Invariants: the lock is held for at most `BURST` commands; unreachable guest memory makes the
//! controller fail, with no other effect. Absent: execution (`commands`).

use crate::function::{FunctionShared, FunctionState, interrupt};
use crate::memory::OutOfReach;
use crate::queues::Queues;
use remap_ssd_nvme::controller::QUEUE_ENTRIES_MAX;
use remap_ssd_nvme::spec::status::Status;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Maximum commands executed before the lock is released.
const BURST: usize = 64;
/// Interval of periodic checks.
const TICK: Duration = Duration::from_millis(250);
/// Sleeping ends this long before a completion is due.
const SPIN: Duration = Duration::from_micros(60);

impl FunctionShared {
    /// Serves the function until it is closed or the device has failed.
    pub(crate) fn run(&self) {
        let mut tick = Instant::now() + TICK;
        loop {
            let mut guard = self.lock();
            let Some(state) = &mut *guard else { return };

            // Commands of the burst that must be durable share one sync before they are completed.
            let mut worked = self
                .burst(state)
                .and_then(|worked| self.acknowledge_synced(state).map(|()| worked));

            // Periodically even without commands: the device may have failed, or have an event.
            if Instant::now() >= tick {
                tick = Instant::now() + TICK;
                if state.association.subsystem().is_broken() {
                    return;
                }
                worked = worked.and_then(|worked| Ok(self.report(state)? || worked));
            }

            // Queues outside the guest's memory: fatal status, until the host resets the
            // controller.
            let worked = worked.unwrap_or_else(|OutOfReach| {
                state.association.set_fatal();
                state.queues = Queues::default();
                state.delayed.clear();
                state.awaiting_sync.clear();
                false
            });

            // One interrupt per vector for all completions of the burst.
            let FunctionState {
                queues, vectors, ..
            } = state;
            for vector in queues.interrupts() {
                vectors
                    .get(usize::from(vector))
                    .into_iter()
                    .flatten()
                    .for_each(interrupt);
            }

            let due = state
                .delayed
                .next()
                .map(|at| self.epoch + Duration::from_nanos(at));
            // Sleep without the lock: register accesses need it.
            drop(guard);

            // A stop waits for commands in progress, including delayed completions.
            if self.stop.load(Ordering::SeqCst) && !worked && due.is_none() {
                return;
            }
            if !worked {
                sleep(due.map_or(tick, |due| due.min(tick)));
            }
        }
    }

    /// Answers an asynchronous event request if there is something to report; `true` if so.
    fn report(&self, state: &mut FunctionState) -> Result<bool, OutOfReach> {
        // An event request has released its completion entry.
        if !state.queues.has_room(0) {
            return Ok(false);
        }
        let Some((cid, result)) = state.association.event() else {
            return Ok(false);
        };
        state
            .queues
            .complete(0, cid, Status::SUCCESS, result, &state.memory)?;
        Ok(true)
    }

    /// Completes due commands and executes new ones, from each queue in turn; `true` if there may
    /// be more.
    fn burst(&self, state: &mut FunctionState) -> Result<bool, OutOfReach> {
        let now = self.now();
        let mut worked = false;
        while let Some(due) = state.delayed.take(now) {
            state.queues.complete(
                due.sqid,
                due.cid,
                Status::from_bits(due.status),
                due.result,
                &state.memory,
            )?;
            worked = true;
        }

        // A failed controller fetches nothing until it is reset.
        if !state.association.is_enabled() || state.association.status().cfs() {
            return Ok(worked);
        }

        // One command of each queue in turn: a long queue does not starve the others.
        let mut left = BURST;
        loop {
            let before = left;
            let doorbell = |index: usize| {
                u16::try_from(self.doorbells[index].load(Ordering::Acquire)).unwrap_or(u16::MAX)
            };

            // Heads first: room just made by the host is used at once.
            state
                .queues
                .take(|cqid| doorbell(usize::from(cqid) * 2 + 1));

            for qid in state.queues.submission_ids() {
                let tail = doorbell(usize::from(qid) * 2);
                let Some(sqe) = state.queues.fetch(qid, tail, &state.memory)? else {
                    continue;
                };
                self.command(state, qid, &sqe)?;
                worked = true;
                left -= 1;
                if left == 0 {
                    return Ok(true);
                }
            }

            if left == before {
                return Ok(worked);
            }
        }
    }
}

fn sleep(until: Instant) {
    let left = until.saturating_duration_since(Instant::now());
    if left > SPIN {
        std::thread::park_timeout(left - SPIN);
    } else {
        std::hint::spin_loop();
    }
}

const _: () = assert!(
    QUEUE_ENTRIES_MAX <= 1 << 15,
    "sums of two queue positions fit in 16 bits"
);
