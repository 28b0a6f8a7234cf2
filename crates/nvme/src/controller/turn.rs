//! The device that commands share: one thread at a time uses it, in turns, which long commands
//! divide into slices.
//!
//! A turn begins with the first use of the device and ends when it is dropped. Its work is counted
//! in units of about a microsecond. Between pages a command checks whether the slice is used up
//! (`DeviceTurn::must_pause`); then the others go first (`turnstile`).
//!
//! Invariants: no thread keeps the device for more than a slice and one step of a few pages, except
//! for internal work of the firmware: moving 256 pages of a victim, or the disk wait before an erase.
//! Absent: clocks, and the work done in a turn.

use super::durable::Durable;
use super::observer::{Observer, Ticket};
use super::standing::Standing;
use super::turnstile::{Turnstile, Weight};
use super::volatile::VolatileCache;
use crate::spec::status::Status;
use remap_ssd_device::Device;
use remap_ssd_media::folder::{FolderCommit, HistoryPosition};
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Units of one slice: less than a millisecond, unless the firmware collects garbage or waits for
/// the disk.
pub(crate) const SLICE_UNITS: u32 = 1000;
/// Maximum units of a light turn: a dozen pages written, or fifty read.
const LIGHT_UNITS: u32 = 150;
/// Pages programmed but not durable after which a long command waits for the disk: 4 MiB.
const UNWRITTEN_MAX: u64 = 1 << 10;
/// Only slices that program at least this many pages wait: a slice of remaps programs hardly any,
/// and need not wait for pages of other commands.
const PROGRAMMED_MIN: u64 = 32;

/// Cost of one page in units; a high estimate, as if its mapping were not cached.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// Read a page, and move its bytes.
    Read,
    /// Look a page up without moving its bytes.
    Look,
    Write,
    /// Write this many pages back from the device's volatile write buffer.
    WriteBack(u32),
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
            Self::WriteBack(pages) => pages.saturating_mul(10),
            Self::Remap(pages) => pages.saturating_mul(4),
            Self::Deallocate(pages) => pages.div_ceil(16),
            Self::List(entries) => u32::try_from(entries / 32).unwrap_or(u32::MAX),
        }
    }
}

/// The device, with all that may be used only in turns or changes at their ends.
pub(super) struct SharedDevice {
    /// Locked only by the holder of the turn, hence never contended.
    device: Mutex<Device>,
    /// Likewise.
    pub cache: Option<Mutex<VolatileCache>>,
    pub observer: Option<Box<dyn Observer>>,
    /// Commands with smaller numbers began before the last power cut. Changes only in a turn.
    cut_before: AtomicU64,
    pub(crate) turnstile: Turnstile,
    pub durable: Durable,
    /// Readable without a turn: the device has failed.
    broken: AtomicBool,
    /// The system's error message when the disk failed.
    disk_failure: OnceLock<String>,
    programs: AtomicU64,
}

impl SharedDevice {
    pub(super) fn new(device: Device) -> Self {
        Self {
            device: Mutex::new(device),
            cache: None,
            observer: None,
            cut_before: AtomicU64::new(0),
            turnstile: Turnstile::default(),
            durable: Durable::default(),
            broken: AtomicBool::new(false),
            disk_failure: OnceLock::new(),
            programs: AtomicU64::new(0),
        }
    }

    /// Waits for the device. Panics if an assertion in the firmware has failed before.
    pub(super) fn turn(&self) -> DeviceTurn<'_> {
        DeviceTurn::begin(self, Weight::Light, None)
    }

    /// Waits until everything before a position is durable. The caller must not have the device.
    ///
    /// # Errors
    /// As `Durable::wait`.
    pub(super) fn make_durable(&self, wanted: HistoryPosition) -> Result<(), Status> {
        self.durable.wait(wanted, || self.commit())
    }

    fn commit(&self) -> io::Result<Option<HistoryPosition>> {
        // The device is held only to take the changes out of it. Other commands run while they are
        // written.
        let begun = {
            let mut device = self.turn();
            let begun = match device.begin_commit() {
                // The placeholder of a device that has not recovered has nothing to write.
                Ok(None) if self.is_broken() => Err(io::Error::other("the device has failed")),
                begun => begun,
            };
            self.durable.begins(&device);
            begun
        };

        let until = match begun {
            Ok(None) => Ok(None),
            Ok(Some(commit)) => self.write_commit(commit).map(Some),
            Err(error) => Err(error),
        };

        // No command may be acknowledged from now on: the device's content may never become
        // durable.
        if let Err(error) = &until {
            self.turn().commit_failed(error);
        }
        until
    }

    fn write_commit(&self, mut commit: FolderCommit) -> io::Result<HistoryPosition> {
        // The device is held between the writes, never during them. A commit that ends before the
        // journal is written has no effect.
        commit.write_contents()?;
        self.turn().vouch(&mut commit)?;
        let until = commit.write_journal()?;
        self.note_durable(until);
        Ok(until)
    }

    /// Everything before a position is durable. The device and the volatile cache are updated in
    /// one turn, before any command that waits for it is acknowledged: so a power cut in another
    /// turn finds such a command either not acknowledged or with nothing left to lose.
    fn note_durable(&self, until: HistoryPosition) {
        let mut turn = self.turn();
        turn.finish_commit(until);
        if let Some(mut cache) = turn.cache() {
            cache.durable_until(until);
        }
    }

    /// Makes everything completed so far durable for the observer, without a host's flush.
    pub(super) fn observe_flush(&self) {
        if let Some(observer) = &self.observer {
            observer.ended(observer.begun());
        }
    }

    /// At the end of a turn, publishes values that are read without a turn.
    fn publish(&self, device: &Device) {
        let media = device.ftl().media();
        let unit = u64::from(device.config().geometry.host_pages());
        self.programs
            .store(media.counts.programs * unit, Ordering::Relaxed);
        if let Some(why) = media.broken() {
            self.disk_failure.get_or_init(|| why.to_owned());
            self.broken.store(true, Ordering::Relaxed);
        }
    }

    /// The system's error message when the disk under the device failed, if it did.
    pub(super) fn disk_failure(&self) -> Option<&str> {
        self.disk_failure.get().map(String::as_str)
    }

    /// Returns true if the firmware or the disk under it has failed.
    pub(super) fn is_broken(&self) -> bool {
        self.device.is_poisoned() || self.broken.load(Ordering::Relaxed)
    }

    /// Marks the device as failed: every later use is refused.
    pub(super) fn fail(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }

    /// Pages of 4 KiB programmed since power-on, as of the last turn.
    pub(super) fn pages_programmed(&self) -> u64 {
        self.programs.load(Ordering::Relaxed)
    }

    /// Gives the device back; `None` if a thread panicked while holding it.
    pub(super) fn into_device(self) -> Option<Device> {
        self.device.into_inner().ok()
    }
}

/// Exclusive use of the device by one thread, until this is dropped.
pub struct DeviceTurn<'a> {
    shared: &'a SharedDevice,
    device: Option<MutexGuard<'a, Device>>,
    /// Standing of the queue whose commands it executes; `None` if it is for no queue.
    standing: Option<Standing>,
    /// Why commands may not be executed, as of the last entry to the device.
    standing_lost: Option<Status>,
    /// Units since the turn began or was last paused, and in total.
    slice: u32,
    units: u32,
    /// Pages programmed by the device before the slice began.
    programs: u64,
    /// True if the turn may be paused when the slice is used up.
    divisible: bool,
    /// Changes reported to the observer in this turn, and not completed.
    pub(super) tickets: Vec<Ticket>,
}

impl<'a> DeviceTurn<'a> {
    pub(super) fn begin(
        shared: &'a SharedDevice,
        weight: Weight,
        standing: Option<Standing>,
    ) -> Self {
        let mut turn = Self {
            shared,
            device: None,
            standing,
            standing_lost: None,
            slice: 0,
            units: 0,
            programs: 0,
            // An observer must see commands with the same blocks one after the other.
            divisible: shared.observer.is_none(),
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
        let SharedDevice {
            turnstile, device, ..
        } = self.shared;
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
        self.shared.publish(&device);
        drop(device);
        self.shared.turnstile.leave(self.slice >= SLICE_UNITS);
    }

    /// The volatile write cache, exclusive to the holder of the turn.
    pub(super) fn cache(&self) -> Option<MutexGuard<'a, VolatileCache>> {
        let cache = self.shared.cache.as_ref()?;
        Some(cache.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Checks the device, and the standing of the commands' queue, as of the beginning of the slice.
    ///
    /// # Errors
    /// Write Fault: the device has failed. Command Aborted due to SQ Deletion; Command Sequence Error after a shutdown.
    #[inline]
    pub(super) fn queue_must_stand(&self) -> Result<(), Status> {
        self.standing_lost.map_or(Ok(()), Err)
    }

    /// Why commands may not be executed now, if that is so.
    #[inline]
    fn why_not(&self) -> Option<Status> {
        let standing = self.standing.as_ref().map_or(Ok(()), Standing::must_be);
        let is_broken = self.shared.broken.load(Ordering::Relaxed);
        standing.err().or(is_broken.then_some(Status::WRITE_FAULT))
    }

    /// Returns true if a power cut came after a command with this number began.
    pub(super) fn is_cut_since(&self, command: u64) -> bool {
        command < self.shared.cut_before.load(Ordering::Relaxed)
    }

    /// The power is cut now: all commands so far had numbers below `commands`.
    pub(super) fn note_cut(&mut self, commands: u64) {
        self.shared.cut_before.store(commands, Ordering::Relaxed);
    }

    pub(super) fn has_cache(&self) -> bool {
        self.shared.cache.is_some()
    }

    #[inline]
    pub(super) fn spend(&mut self, step: Step) {
        let units = step.units();
        self.slice = self.slice.saturating_add(units);
        self.units = self.units.saturating_add(units);
    }

    /// Returns true if the slice is used up.
    #[inline]
    pub(crate) fn is_used_up(&self) -> bool {
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
        let unit = u64::from(self.config().geometry.host_pages());
        let programs_much = programs.saturating_sub(self.programs) * unit >= PROGRAMMED_MIN;

        // No wait for short commands, those that program little, or while the disk keeps up.
        let behind =
            long && programs_much && self.shared.durable.pages_unwritten(self) > UNWRITTEN_MAX;
        if self.shared.turnstile.is_waited_for() || behind {
            let position = self.ftl().media().position();
            self.leave();
            if let Some(position) = position.filter(|_| behind) {
                // If the disk has failed, the command's next access fails.
                let _ = self.shared.make_durable(position);
            }
            self.enter(Weight::Heavy);
        } else {
            // No thread waits: the slice is over, and the turn goes on.
            self.shared.turnstile.count_slice();
            self.programs = programs;
            self.standing_lost = self.why_not();
        }
        self.slice = 0;
        self.queue_must_stand()
    }

    /// The changes reported to the observer since the last call; the caller reports their
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
        if let Some(observer) = &self.shared.observer {
            let tickets = self.take_tickets();
            tickets.for_each(|ticket| observer.ended(ticket));
        }
        self.leave();
    }
}
