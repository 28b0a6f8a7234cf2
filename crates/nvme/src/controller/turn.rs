//! Scheduling of the device: one thread at a time, in turns, which long commands divide into
//! slices.
//!
//! A turn begins with the first use of the device and ends when it is dropped. Its work is counted
//! in units of about a microsecond. Between pages a command checks whether the slice is used up
//! (`DeviceTurn::must_pause`); then the others go first. There are two queues of waiting threads,
//! each first come, first served: light threads, whose last turn was short, and heavy ones. Light
//! ones go first, but after `LIGHT_IN_A_ROW` of them a heavy one does. A thread that arrives while
//! the device is free may pass waiting threads that are just waking up, `PASSES` times: otherwise
//! two threads with turns of a few microseconds would wait for the scheduler between any two turns.
//!
//! Invariants: a waiting thread gets the device after at most `PASSES` turns and those ahead of it
//! in its queue; no thread keeps it for more than a slice and one step of a few pages, except for
//! internal work of the firmware: moving 256 pages of a victim, or the disk wait before an erase.
//! Absent: clocks, and the work done in a turn.

use super::execute::Job;
use super::faults::FaultInjector;
use super::reservations::Reservations;
use super::standing::Standing;
use super::subsystem::Subsystem;
use super::volatile::VolatileCache;
use super::witness::Ticket;
use crate::spec::status::Status;
use remap_ssd_device::Device;
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

/// Units of one slice: less than a millisecond, unless the firmware collects garbage or waits for
/// the disk.
pub const SLICE_UNITS: u32 = 1000;
/// Maximum units of a light turn: a dozen pages written, or fifty read.
const LIGHT_UNITS: u32 = 150;
/// Light turns after which a heavy one is due.
const LIGHT_IN_A_ROW: u32 = 8;
/// Pages programmed but not durable after which a long command waits for the disk: 4 MiB.
const UNWRITTEN_MAX: u64 = 1 << 10;
/// Only slices that program at least this many pages wait: a slice of remaps programs hardly any,
/// and need not wait for pages of other commands.
const PROGRAMMED_MIN: u64 = 32;
/// Maximum turns that may pass a woken thread.
const PASSES: u32 = 8;

/// Cost of one page in units; a high estimate, as if its mapping were not cached.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// Read a page, and move its bytes.
    Read,
    /// Look a page up without moving its bytes.
    Look,
    Write,
    /// Remap this many pages, each of which may turn into a copy.
    Remap(u32),
    Deallocate(u32),
    /// List this many entries of the file map.
    List(usize),
}

impl Step {
    fn units(self) -> u32 {
        match self {
            Self::Look => 1,
            Self::Read => 2,
            Self::Write => 10,
            Self::Remap(pages) => pages.saturating_mul(4),
            Self::Deallocate(pages) => pages.div_ceil(16),
            Self::List(entries) => u32::try_from(entries / 32).unwrap_or(u32::MAX),
        }
    }
}

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
    fn is_waited_for(&self) -> bool {
        self.queues().is_anybody_waiting()
    }

    fn enter(&self, weight: Weight) {
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
    pub fn pass(&self) {
        self.enter(Weight::Light);
        self.leave(false);
    }

    /// Ends a turn. If it was long, or the waiting threads have been passed often enough, the
    /// device is handed directly to the next one.
    fn leave(&self, slice_used_up: bool) {
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
}

/// Exclusive use of the device by one thread, until this is dropped.
pub struct DeviceTurn<'a> {
    subsystem: &'a Subsystem,
    device: Option<MutexGuard<'a, Device>>,
    /// Standing of the queue whose commands it executes; `None` if it is for no queue.
    standing: Option<Standing>,
    /// Why commands of the queue may not be executed, as of the last entry to the device.
    standing_lost: Option<Status>,
    /// Units since the turn began or was last paused, and in total.
    slice: u32,
    units: u32,
    /// Pages programmed by the device before the slice began.
    programs: u64,
    /// True if the turn may be paused when the slice is used up.
    divisible: bool,
    /// Changes reported to the witness in this turn, and not completed.
    pub(super) tickets: Vec<Ticket>,
}

impl<'a> DeviceTurn<'a> {
    pub(super) fn begin(
        subsystem: &'a Subsystem,
        weight: Weight,
        standing: Option<Standing>,
    ) -> Self {
        let mut turn = Self {
            subsystem,
            device: None,
            standing,
            standing_lost: None,
            slice: 0,
            units: 0,
            programs: 0,
            // A witness must see commands with the same blocks one after the other.
            divisible: subsystem.witness().is_none(),
            tickets: Vec::new(),
        };
        turn.enter(weight);
        turn
    }

    /// Makes the turn indivisible, for commands that belong together.
    pub fn undivided(mut self) -> Self {
        self.divisible = false;
        self
    }

    fn enter(&mut self, weight: Weight) {
        let Subsystem {
            turnstile, device, ..
        } = self.subsystem;
        turnstile.enter(weight);
        match device.lock() {
            Ok(device) => {
                // This holds while the device is held: a thread that ends queues waits for the
                // slice (`standing`).
                self.standing_lost = self.why_not();
                self.programs = device.ftl().media().counts.programs;
                self.device = Some(device);
            }
            Err(_) => {
                // If the firmware has failed, the next thread must still be woken.
                turnstile.leave(true);
                panic!("the firmware has not failed");
            }
        }
    }

    fn leave(&mut self) {
        let Some(device) = self.device.take() else {
            return;
        };
        // Read by others without a turn, so published while the device is still held.
        self.subsystem.publish(&device);
        drop(device);
        self.subsystem.turnstile.leave(self.slice >= SLICE_UNITS);
    }

    /// The volatile write cache, exclusive to the holder of the turn.
    pub(super) fn cache(&self) -> Option<MutexGuard<'a, VolatileCache>> {
        let cache = self.subsystem.cache.as_ref()?;
        Some(cache.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The reservations; they change in turns only.
    pub(super) fn reservations(&self) -> &Reservations {
        &self.subsystem.reservations
    }

    /// Checks that a command's namespace is unchanged and still visible to its host; that changes
    /// in turns only.
    ///
    /// # Errors
    /// The status to answer.
    pub(super) fn namespace_must_be(&self, job: &Job<'_>) -> Result<(), Status> {
        self.subsystem.namespace_of(job).map(drop)
    }

    /// Checks the standing of the commands' queue, as of the beginning of the slice.
    ///
    /// # Errors
    /// Command Aborted due to SQ Deletion; Command Sequence Error after a shutdown.
    #[inline]
    pub(super) fn queue_must_stand(&self) -> Result<(), Status> {
        self.standing_lost.map_or(Ok(()), Err)
    }

    /// Why commands of the queue may not be executed now, if that is so.
    #[inline]
    fn why_not(&self) -> Option<Status> {
        self.standing.as_ref()?.must_be().err()
    }

    pub(super) fn has_cache(&self) -> bool {
        self.subsystem.cache.is_some()
    }

    #[inline]
    pub(super) fn fault_injector(&self) -> Option<&dyn FaultInjector> {
        self.subsystem.fault_injector()
    }

    #[inline]
    pub(super) fn spend(&mut self, step: Step) {
        let units = step.units();
        self.slice = self.slice.saturating_add(units);
        self.units = self.units.saturating_add(units);
    }

    /// Returns true if the slice is used up.
    #[inline]
    pub fn is_used_up(&self) -> bool {
        self.slice >= SLICE_UNITS
    }

    /// Returns true if others should go first. The caller then calls `let_others` at a point where
    /// nothing is half done.
    #[inline]
    pub(super) fn must_pause(&self) -> bool {
        self.divisible && self.is_used_up()
    }

    /// Goes to the end of the queue. A `long` command that programs also waits for the disk if the
    /// disk has much to write. Reason: before an erase the device itself waits for the disk, and so
    /// does every host queued for it; that wait must be short. So the command that programs much
    /// waits alone, earlier.
    ///
    /// # Errors
    /// Command Aborted due to SQ Deletion: its queue is gone by now. Command Sequence Error: its
    /// controller is shut down.
    pub(super) fn let_others(&mut self, long: bool) -> Result<(), Status> {
        let programs = self.ftl().media().counts.programs;
        let programs_much = programs.saturating_sub(self.programs) >= PROGRAMMED_MIN;

        // No wait for short commands, those that program little, or while the disk keeps up.
        let behind = long && programs_much && self.subsystem.pages_unwritten(self) > UNWRITTEN_MAX;
        if self.subsystem.turnstile.is_waited_for() || behind {
            let position = self.ftl().media().position();
            self.leave();
            if let Some(position) = position.filter(|_| behind) {
                // If the disk has failed, the command's next access fails.
                let _ = self.subsystem.make_durable(position);
            }
            self.enter(Weight::Heavy);
        } else {
            // No thread waits: the slice is over, and the turn goes on.
            self.subsystem.turnstile.queues().slices += 1;
            self.programs = programs;
            self.standing_lost = self.why_not();
        }
        self.slice = 0;
        self.queue_must_stand()
    }

    /// The changes reported to the witness since the last call; the caller reports their
    /// completion.
    pub(crate) fn take_tickets(&mut self) -> impl Iterator<Item = Ticket> + use<> {
        std::mem::take(&mut self.tickets).into_iter()
    }

    /// The queue to wait in after this turn.
    pub fn weight(&self) -> Weight {
        // The whole turn counts, not the last slice: a command that was paused is still heavy.
        if self.units <= LIGHT_UNITS {
            Weight::Light
        } else {
            Weight::Heavy
        }
    }
}

impl Deref for DeviceTurn<'_> {
    type Target = Device;
    fn deref(&self) -> &Device {
        self.device
            .as_ref()
            .expect("a turn that has not ended has the device")
    }
}

impl DerefMut for DeviceTurn<'_> {
    fn deref_mut(&mut self) -> &mut Device {
        self.device
            .as_mut()
            .expect("a turn that has not ended has the device")
    }
}

impl Drop for DeviceTurn<'_> {
    fn drop(&mut self) {
        // Not taken by a caller: the changes are completed with the turn.
        if let Some(witness) = self.subsystem.witness() {
            let tickets = self.take_tickets();
            tickets.for_each(|ticket| witness.completed(ticket));
        }
        self.leave();
    }
}

impl Subsystem {
    /// Waits for the device. Panics if an assertion in the firmware has failed before.
    pub fn device(&self) -> DeviceTurn<'_> {
        self.turn(Weight::Light)
    }

    /// Like `device`, for a thread whose last turn had this weight.
    pub fn turn(&self, weight: Weight) -> DeviceTurn<'_> {
        DeviceTurn::begin(self, weight, None)
    }

    /// Like `turn`, for commands of a queue. None has an effect once the queue may not go on.
    pub fn turn_of(&self, weight: Weight, standing: Standing) -> DeviceTurn<'_> {
        DeviceTurn::begin(self, weight, Some(standing))
    }

    /// Number of threads that wait for the device now.
    pub fn waiting(&self) -> usize {
        self.turnstile
            .queues()
            .waiting
            .iter()
            .map(VecDeque::len)
            .sum()
    }

    /// Number of slices used up: after each of them others could go first.
    pub fn slices(&self) -> u64 {
        self.turnstile.queues().slices
    }
}
