//! The order in which threads get the device.
//!
//! There are two queues of waiting threads, each first come, first served: light threads, whose last
//! turn was short, and heavy ones. Light ones go first, but after `LIGHT_IN_A_ROW` of them a heavy
//! one does. A thread that arrives while the device is free may pass waiting threads that are just
//! waking up, `PASSES` times: otherwise two threads with turns of a few microseconds would wait for
//! the scheduler between any two turns.
//!
//! Invariant: a waiting thread gets the device after at most `PASSES` turns and those ahead of it in
//! its queue. Absent: the length of turns (`turn`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

/// Light turns after which a heavy one is due.
const LIGHT_IN_A_ROW: u32 = 8;
/// Maximum turns that may pass a woken thread.
const PASSES: u32 = 8;

/// The weight of a thread's turns, which selects its queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weight {
    /// The last turn was short.
    #[default]
    Light,
    /// The last turn was long.
    Heavy,
}

struct Waiter {
    thread: Thread,
    granted: AtomicBool,
    /// It was woken, and has not checked yet.
    woken: AtomicBool,
}

#[derive(Default)]
struct WaitQueues {
    taken: bool,
    waiting: [VecDeque<Arc<Waiter>>; 2],
    /// Turns taken without waiting since the last one that waited.
    passed: u32,
    light_in_a_row: u32,
    slices: u64,
}

impl WaitQueues {
    fn is_anybody_waiting(&self) -> bool {
        self.waiting.iter().any(|queue| !queue.is_empty())
    }

    /// The queue to serve next.
    fn next_queue(&self) -> usize {
        // Heavy threads wait after light ones, but never starve.
        let heavy_is_due = self.light_in_a_row >= LIGHT_IN_A_ROW && !self.waiting[1].is_empty();
        usize::from(heavy_is_due || self.waiting[0].is_empty())
    }

    /// Removes the next thread from its queue.
    fn dequeue(&mut self) -> Option<Arc<Waiter>> {
        let queue = self.next_queue();
        let next = self.waiting[queue].pop_front()?;
        self.light_in_a_row = if queue == 0 {
            self.light_in_a_row + 1
        } else {
            0
        };
        // The next waiters have not been passed yet.
        self.passed = 0;
        Some(next)
    }

    fn remove(&mut self, waiter: &Arc<Waiter>) {
        for queue in &mut self.waiting {
            queue.retain(|other| !Arc::ptr_eq(other, waiter));
        }
        self.passed = 0;
    }
}

/// The order in which threads get the device.
#[derive(Default)]
pub(super) struct Turnstile(Mutex<WaitQueues>);

impl Turnstile {
    fn queues(&self) -> MutexGuard<'_, WaitQueues> {
        // No operation under this lock can fail halfway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if a thread is waiting.
    pub(super) fn is_waited_for(&self) -> bool {
        self.queues().is_anybody_waiting()
    }

    pub(super) fn enter(&self, weight: Weight) {
        let mut queues = self.queues();
        // A free device is taken at once, unless the waiters have been passed too often.
        if !queues.taken && (!queues.is_anybody_waiting() || queues.passed < PASSES) {
            queues.taken = true;
            queues.passed += 1;
            return;
        }

        // Count from the first thread that can be passed.
        if !queues.is_anybody_waiting() {
            queues.passed = 0;
        }

        let [granted, woken] = [false, false].map(AtomicBool::new);
        let waiter = Arc::new(Waiter {
            thread: std::thread::current(),
            granted,
            woken,
        });
        queues.waiting[weight as usize].push_back(waiter.clone());

        // If the device is free, a thread ahead is waking up and will take it; the end of a turn
        // wakes the next one.
        drop(queues);
        loop {
            std::thread::park();
            // Checked twice, without and with the lock: the turn may be granted between the two.
            if waiter.granted.load(Ordering::Acquire) {
                return;
            }
            let mut queues = self.queues();
            if waiter.granted.load(Ordering::Acquire) {
                return;
            }

            // It checks for itself now, so the next end of a turn has to wake it again.
            waiter.woken.store(false, Ordering::Relaxed);
            if !queues.taken {
                queues.taken = true;
                queues.remove(&waiter);
                return;
            }
        }
    }

    /// Waits until the current slice has ended.
    pub(super) fn pass(&self) {
        self.enter(Weight::Light);
        self.leave(false);
    }

    /// Ends a turn. If it was long, or the waiting threads have been passed often enough, the
    /// device is handed directly to the next one.
    pub(super) fn leave(&self, slice_used_up: bool) {
        let mut queues = self.queues();
        queues.slices += u64::from(slice_used_up);

        if !queues.is_anybody_waiting() {
            queues.taken = false;
            return;
        }

        // Handed over with `taken` still set, so no other thread can take it in between.
        if slice_used_up || queues.passed >= PASSES {
            if let Some(next) = queues.dequeue() {
                drop(queues);
                next.granted.store(true, Ordering::Release);
                next.thread.unpark();
            }
            return;
        }

        // No direct handover: the first in the queue is woken, and competes for the device.
        queues.taken = false;
        let queue = queues.next_queue();
        let first = queues.waiting[queue]
            .front()
            .filter(|first| !first.woken.swap(true, Ordering::Relaxed))
            .cloned();

        drop(queues);
        if let Some(first) = first {
            first.thread.unpark();
        }
    }

    /// Notes a slice that was used up while no thread waited.
    pub(super) fn count_slice(&self) {
        self.queues().slices += 1;
    }

    /// Number of threads that wait now.
    pub(super) fn waiting(&self) -> usize {
        self.queues().waiting.iter().map(VecDeque::len).sum()
    }

    /// Number of slices used up.
    pub(super) fn slices(&self) -> u64 {
        self.queues().slices
    }
}
