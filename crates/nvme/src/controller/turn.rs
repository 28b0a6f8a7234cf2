//! Who has the device when: turns, one thread at a time, and slices of long ones.
//!
//! A turn begins with the first use of the device and ends when it is dropped. Its work is counted in units of about a
//! microsecond. A command asks between pages whether the slice is used up (`DeviceTurn::must_pause`); then the others go first.
//! Those that wait are two lines, first come, first served in each: the light ones, whose last turn was short, and the heavy
//! ones. Light ones go first, but after `LIGHT_IN_A_ROW` of them a heavy one does. A thread that comes while the device is
//! free may pass those that are just waking up, `PASSES` times: two threads that take turns of a few microseconds would
//! otherwise wait for the system's scheduler between any two.
//!
//! Invariants: a thread that waits gets the device after at most `PASSES` turns and those in front of it in its line; nobody
//! keeps it for more than a slice and one step, which is some pages, but for what the firmware does for itself: moving a
//! stretch of pages, or waiting for the disk before an erase. Absent: clocks, and what is done in a turn.

use super::subsystem::Subsystem;
use remap_ssd_device::Device;
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

/// Units of one slice: less than a millisecond, unless the firmware collects garbage or the disk is waited for.
pub const SLICE_UNITS: u32 = 1000;
/// Turns up to this are light: a dozen pages written, or fifty read.
const LIGHT_UNITS: u32 = 150;
/// Light turns after which a heavy one is due.
const LIGHT_IN_A_ROW: u32 = 8;
/// Pages programmed and not made durable, after which a long command has them written: 4 MiB.
const UNWRITTEN_MAX: u64 = 1 << 10;
/// Pages that a slice of such a command programs at least: a slice of remaps programs hardly any, and need not wait for what
/// others have written.
const PROGRAMMED_MIN: u64 = 32;
/// Turns that may pass one that has been woken.
const PASSES: u32 = 8;

/// What one page takes, in units; on the high side, as if its mapping were cold.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// A page is read, and its bytes are moved.
    Read,
    /// A page is found, and no more.
    Look,
    /// A page is written.
    Write,
    /// So many pages are remapped, each of which may turn out to be copied.
    Remap(u32),
    /// So many pages are deallocated.
    Deallocate(u32),
    /// So many entries of the file map are listed.
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

/// How heavy somebody's turns are: in which line to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weight {
    /// The last turn was short.
    #[default]
    Light,
    /// It was not.
    Heavy,
}

struct Waiter {
    thread: Thread,
    /// The device is its own.
    granted: AtomicBool,
    /// It was woken to look for itself, and has not looked yet.
    woken: AtomicBool,
}

#[derive(Default)]
struct Lines {
    taken: bool,
    /// Light and heavy.
    waiting: [VecDeque<Arc<Waiter>>; 2],
    /// Turns since the last one that somebody had waited for.
    passed: u32,
    light_in_a_row: u32,
    /// Slices used up.
    slices: u64,
}

impl Lines {
    fn anybody(&self) -> bool {
        self.waiting.iter().any(|line| !line.is_empty())
    }

    /// The line whose turn it is.
    fn line(&self) -> usize {
        let heavy_is_due = self.light_in_a_row >= LIGHT_IN_A_ROW && !self.waiting[1].is_empty();
        usize::from(heavy_is_due || self.waiting[0].is_empty())
    }

    /// Takes the next one out of its line.
    fn next(&mut self) -> Option<Arc<Waiter>> {
        let line = self.line();
        let next = self.waiting[line].pop_front()?;
        self.light_in_a_row = if line == 0 { self.light_in_a_row + 1 } else { 0 };
        self.passed = 0;
        Some(next)
    }

    fn remove(&mut self, waiter: &Arc<Waiter>) {
        for line in &mut self.waiting {
            line.retain(|other| !Arc::ptr_eq(other, waiter));
        }
        self.passed = 0;
    }
}

/// The order in which threads have the device.
#[derive(Default)]
pub(super) struct Turnstile(Mutex<Lines>);

impl Turnstile {
    fn lines(&self) -> MutexGuard<'_, Lines> {
        // Nothing under this lock can fail half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does somebody wait?
    fn is_waited_for(&self) -> bool {
        self.lines().anybody()
    }

    fn enter(&self, weight: Weight) {
        let mut lines = self.lines();
        if !lines.taken && (!lines.anybody() || lines.passed < PASSES) {
            lines.taken = true;
            lines.passed += 1;
            return;
        }

        if !lines.anybody() {
            lines.passed = 0;
        }

        let [granted, woken] = [false, false].map(AtomicBool::new);
        let waiter = Arc::new(Waiter { thread: std::thread::current(), granted, woken });
        lines.waiting[weight as usize].push_back(waiter.clone());

        // If the device is free, one in front is waking up and will have it, and who ends a turn wakes the next.
        drop(lines);
        loop {
            std::thread::park();
            if waiter.granted.load(Ordering::Acquire) {
                return;
            }
            let mut lines = self.lines();
            if waiter.granted.load(Ordering::Acquire) {
                return;
            }
            waiter.woken.store(false, Ordering::Relaxed);
            if !lines.taken {
                lines.taken = true;
                lines.remove(&waiter);
                return;
            }
        }
    }

    /// Ends a turn. If it was long, or those that wait have been passed often enough, the next one has the device at once.
    fn leave(&self, slice_used_up: bool) {
        let mut lines = self.lines();
        lines.slices += u64::from(slice_used_up);
        if !lines.anybody() {
            lines.taken = false;
            return;
        }
        if slice_used_up || lines.passed >= PASSES {
            if let Some(next) = lines.next() {
                drop(lines);
                next.granted.store(true, Ordering::Release);
                next.thread.unpark();
            }
            return;
        }
        lines.taken = false;
        let line = lines.line();
        let first = lines.waiting[line].front().filter(|first| !first.woken.swap(true, Ordering::Relaxed)).cloned();
        drop(lines);
        if let Some(first) = first {
            first.thread.unpark();
        }
    }
}

/// The device, for one thread, until this is dropped.
pub struct DeviceTurn<'a> {
    subsystem: &'a Subsystem,
    device: Option<MutexGuard<'a, Device>>,
    /// Units since the turn or its last pause began, and in all.
    slice: u32,
    units: u32,
    /// Pages that the device had programmed when the slice began.
    programs: u64,
    /// Others may go first when the slice is used up.
    divisible: bool,
}

impl<'a> DeviceTurn<'a> {
    pub(super) fn begin(subsystem: &'a Subsystem, weight: Weight) -> Self {
        let mut turn = Self { subsystem, device: None, slice: 0, units: 0, programs: 0, divisible: true };
        turn.enter(weight);
        turn
    }

    /// The same, but nobody goes first until it ends: for commands that belong together.
    pub fn undivided(mut self) -> Self {
        self.divisible = false;
        self
    }

    fn enter(&mut self, weight: Weight) {
        let Subsystem { turnstile, device, .. } = self.subsystem;
        turnstile.enter(weight);
        match device.lock() {
            Ok(device) => {
                self.programs = device.ftl().media().counts.programs;
                self.device = Some(device);
            }
            Err(_) => {
                // Nobody may wait for ever behind one that finds the firmware failed.
                turnstile.leave(true);
                panic!("the firmware has not failed");
            }
        }
    }

    fn leave(&mut self) {
        let Some(device) = self.device.take() else { return };
        self.subsystem.publish(&device);
        drop(device);
        self.subsystem.turnstile.leave(self.slice >= SLICE_UNITS);
    }

    /// Counts work.
    #[inline]
    pub(super) fn spend(&mut self, step: Step) {
        let units = step.units();
        self.slice = self.slice.saturating_add(units);
        self.units = self.units.saturating_add(units);
    }

    /// Is the slice used up?
    #[inline]
    pub fn is_used_up(&self) -> bool {
        self.slice >= SLICE_UNITS
    }

    /// Is it time to let others go first? Then `let_others` follows, when nothing is left half done.
    #[inline]
    pub(super) fn must_pause(&self) -> bool {
        self.divisible && self.is_used_up()
    }

    /// Waits behind those that wait; and for the disk, if the command is a `long` one that programs, and the disk has much to
    /// write. Before an erase the device waits for the disk with everybody behind it, and that is to be short: whose command makes the device
    /// program so much waits alone.
    pub(super) fn let_others(&mut self, long: bool) {
        let programs = self.ftl().media().counts.programs;
        let programs_much = programs.saturating_sub(self.programs) >= PROGRAMMED_MIN;
        let behind = long && programs_much && self.subsystem.pages_unwritten(self) > UNWRITTEN_MAX;
        if self.subsystem.turnstile.is_waited_for() || behind {
            let position = self.ftl().media().position();
            self.leave();
            if let Some(position) = position.filter(|_| behind) {
                // If the disk has failed the command will find that out.
                let _ = self.subsystem.make_durable(position);
            }
            self.enter(Weight::Heavy);
        } else {
            self.subsystem.turnstile.lines().slices += 1;
            self.programs = programs;
        }
        self.slice = 0;
    }

    /// The line to wait in after this turn.
    pub fn weight(&self) -> Weight {
        if self.units <= LIGHT_UNITS { Weight::Light } else { Weight::Heavy }
    }
}

impl Deref for DeviceTurn<'_> {
    type Target = Device;
    fn deref(&self) -> &Device {
        self.device.as_ref().expect("a turn that has not ended has the device")
    }
}

impl DerefMut for DeviceTurn<'_> {
    fn deref_mut(&mut self) -> &mut Device {
        self.device.as_mut().expect("a turn that has not ended has the device")
    }
}

impl Drop for DeviceTurn<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Subsystem {
    /// The device, for one thread at a time. A firmware that has failed an assertion serves nobody any more.
    pub fn device(&self) -> DeviceTurn<'_> {
        self.turn(Weight::Light)
    }

    /// The same, for somebody whose last turn was of this weight.
    pub fn turn(&self, weight: Weight) -> DeviceTurn<'_> {
        DeviceTurn::begin(self, weight)
    }

    /// Slices that were used up: after each of them others could go first.
    pub fn slices(&self) -> u64 {
        self.turnstile.lines().slices
    }
}
