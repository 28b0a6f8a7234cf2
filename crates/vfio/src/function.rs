//! The function as the monitor sees it: configuration space, registers, doorbells, memory,
//! interrupts.
//!
//! Doorbells are atomics read by the function's thread (`worker`); all other state has one lock,
//! which the thread holds for a burst of commands. Invariants: memory unmapped by the monitor is
//! not used afterwards; a controller that is reset has no queues, and earlier commands are not
//! completed to its successor; closing gives the device back. Absent: vfio-user messages
//! (`socket`), and execution of commands (`commands`).

use crate::completions::DelayedCompletions;
use crate::memory::Memory;
use crate::pci::{BAR_BYTES, Config, VECTORS};
use crate::prp::PAGE;
use crate::queues::{QueueMemory, Queues};
use remap_ssd_nvme::controller::{Association, IO_QUEUES_MAX, Outcome, Subsystem, Weight};
use remap_ssd_nvme::spec::bus::{Aqa, register};
use remap_ssd_nvme::spec::command::Sqe;
use remap_ssd_nvme::spec::fabrics::{Cc, property};
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::Instant;

/// A tail and a head for each queue, including the admin queues.
const DOORBELLS: usize = 2 * (IO_QUEUES_MAX as usize + 1);

/// An executed command that waits until it is durable.
pub(crate) struct AwaitingSync {
    pub sqid: u16,
    pub sqe: Sqe,
    pub outcome: Outcome,
}

/// The state protected by the lock.
pub(crate) struct FunctionState {
    pub association: Arc<Association>,
    pub memory: Memory,
    pub config: Config,
    pub queues: Queues,
    /// Sizes and addresses of the admin queues; they take effect when the controller is enabled.
    pub aqa: u32,
    pub asq: u64,
    pub acq: u64,
    /// Interrupts: an event file descriptor for each vector that the monitor has set.
    pub vectors: Vec<Option<File>>,
    pub delayed: DelayedCompletions,
    /// Executed commands that are completed only once they are durable.
    pub awaiting_sync: Vec<AwaitingSync>,
    /// Weight of the last turn.
    pub weight: Weight,
}

/// State shared by the thread and the socket.
pub(crate) struct FunctionShared {
    pub state: Mutex<Option<FunctionState>>,
    /// Even indices are tails of submission queues, odd ones heads of completion queues.
    pub doorbells: [AtomicU32; DOORBELLS],
    pub stop: AtomicBool,
    pub epoch: Instant,
    pub thread: OnceLock<Thread>,
}

/// A PCI Express function with an NVMe controller.
pub(crate) struct Function {
    shared: Arc<FunctionShared>,
    thread: Option<JoinHandle<()>>,
}

impl Function {
    /// A function for a subsystem; times count from `epoch`.
    ///
    /// # Errors
    /// The thread cannot be created.
    pub(crate) fn start(subsystem: &Arc<Subsystem>, epoch: Instant) -> std::io::Result<Self> {
        let state = FunctionState {
            association: Association::on_bus(subsystem),
            memory: Memory::default(),
            config: Config::default(),
            queues: Queues::default(),
            aqa: 0,
            asq: 0,
            acq: 0,
            vectors: (0..VECTORS).map(|_| None).collect(),
            delayed: DelayedCompletions::default(),
            awaiting_sync: Vec::new(),
            weight: Weight::default(),
        };

        let shared = Arc::new(FunctionShared {
            state: Mutex::new(Some(state)),
            doorbells: [const { AtomicU32::new(0) }; DOORBELLS],
            stop: AtomicBool::new(false),
            epoch,
            thread: OnceLock::new(),
        });

        let thread = std::thread::Builder::new()
            .name("nvme function".into())
            .spawn({
                let shared = shared.clone();
                move || shared.run()
            })?;
        let _ = shared.thread.set(thread.thread().clone());
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// The same function for another thread; only the original closes it.
    pub(crate) fn handle(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            thread: None,
        }
    }

    /// Ends the thread after commands in progress, and gives the device back. `false` if the thread
    /// had failed.
    pub(crate) fn close(&mut self) -> bool {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.wake();
        let well = self
            .thread
            .take()
            .is_none_or(|thread| thread.join().is_ok());
        // Only now: the thread's last turns complete commands in progress.
        drop(self.shared.lock().take());
        well
    }

    /// Reads a part of configuration space.
    pub(crate) fn config_read(&self, offset: u64, to: &mut [u8]) {
        if let Some(state) = &*self.shared.lock() {
            state.config.read(offset, to);
        }
    }

    /// Writes a part of configuration space.
    pub(crate) fn config_write(&self, offset: u64, from: &[u8]) {
        if let Some(state) = &mut *self.shared.lock() {
            state.config.write(offset, from);
        }
    }

    /// Reads BAR 0; bytes outside registers are zero.
    pub(crate) fn bar_read(&self, offset: u64, to: &mut [u8]) {
        to.fill(0);
        let guard = self.shared.lock();
        let Some(state) = &*guard else { return };

        // Doorbells are write-only: they read as zeroes.
        for (at, byte) in (offset..offset.max(register::DOORBELLS.into())).zip(to) {
            *byte = state.register(at as u32 & !7).to_le_bytes()[(at & 7) as usize];
        }
    }

    /// Writes BAR 0, by dwords; other writes are ignored.
    pub(crate) fn bar_write(&self, offset: u64, from: &[u8]) {
        if !offset.is_multiple_of(4) || offset >= BAR_BYTES {
            return;
        }
        for (index, dword) in from.as_chunks::<4>().0.iter().enumerate() {
            let (at, value) = (offset + index as u64 * 4, u32::from_le_bytes(*dword));
            match at.checked_sub(u64::from(register::DOORBELLS)) {
                Some(doorbell) if doorbell / 4 < DOORBELLS as u64 => {
                    // Without the lock: a guest rings at every command, and the thread holds the
                    // lock for a burst.
                    self.shared.doorbells[(doorbell / 4) as usize].store(value, Ordering::Release);
                    self.shared.wake();
                }

                // A queue that does not exist, or the MSI-X table, which the monitor keeps itself.
                Some(_) => {}
                None => self.shared.write_register(at as u32, value),
            }
        }
    }

    /// Maps a part of a file as guest memory at `address`.
    ///
    /// # Errors
    /// It overlaps, is not within its file, or the system's reason.
    pub(crate) fn map(
        &self,
        address: u64,
        len: u64,
        file: File,
        offset: u64,
        writable: bool,
    ) -> std::io::Result<()> {
        match &mut *self.shared.lock() {
            Some(state) => state.memory.map(address, len, file, offset, writable),
            None => Err(std::io::ErrorKind::NotConnected.into()),
        }
    }

    /// Unmaps guest memory; all of it for `None`.
    pub(crate) fn unmap(&self, range: Option<(u64, u64)>) {
        if let Some(state) = &mut *self.shared.lock() {
            match range {
                Some((address, len)) => state.memory.unmap(address, len),
                None => state.memory.clear(),
            }
        }
    }

    /// Sets the event file descriptors of vectors from `start` on. Vectors past the last are
    /// ignored.
    pub(crate) fn set_vectors(&self, start: u32, files: impl IntoIterator<Item = Option<File>>) {
        if let Some(state) = &mut *self.shared.lock() {
            let vectors = state.vectors.iter_mut().skip(start as usize);
            vectors.zip(files).for_each(|(vector, file)| *vector = file);
        }
    }

    /// Removes the event file descriptors of all vectors.
    pub(crate) fn clear_vectors(&self) {
        self.set_vectors(0, (0..VECTORS).map(|_| None));
    }

    /// Triggers interrupts at the monitor's request.
    pub(crate) fn trigger(&self, start: u32, count: u32) {
        if let Some(state) = &*self.shared.lock() {
            state
                .vectors
                .iter()
                .skip(start as usize)
                .take(count as usize)
                .flatten()
                .for_each(interrupt);
        }
    }

    /// Returns to the state after power-on; memory stays mapped.
    pub(crate) fn reset(&self) {
        if let Some(state) = &mut *self.shared.lock() {
            self.shared.disable(state, 0);
            state.config = Config::default();
            (state.aqa, state.asq, state.acq) = (0, 0, 0);
        }
    }
}

pub(crate) fn interrupt(mut event: &File) {
    // A full counter means that an interrupt is already pending.
    let _ = event.write_all(&1u64.to_ne_bytes());
}

impl FunctionState {
    fn register(&self, offset: u32) -> u64 {
        // In units of eight bytes: two 4-byte registers share one, and missing registers are zero.
        let pair = |low: u64, high: u64| low & 0xffff_ffff | high << 32;
        match offset {
            property::CAP => self.association.register(property::CAP),
            property::VS => pair(self.association.register(property::VS), 0),
            0x10 => pair(0, self.association.configuration().into_bits().into()),
            0x18 => pair(0, self.association.status().into_bits().into()),
            0x20 => pair(0, self.aqa.into()),
            register::ASQ => self.asq,
            register::ACQ => self.acq,
            property::CRTO => pair(self.association.register(property::CRTO), 0),
            _ => 0,
        }
    }
}

impl FunctionShared {
    /// Also after a panic: a failed thread leaves the queues as they were, and the device below
    /// protects itself.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<FunctionState>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
    pub(crate) fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    fn write_register(&self, offset: u32, value: u32) {
        let mut guard = self.lock();
        let Some(state) = &mut *guard else { return };

        // A host may write a 64-bit register in two halves.
        let low = |old: u64| old & !0xffff_ffff | u64::from(value);
        let high = |old: u64| old & 0xffff_ffff | u64::from(value) << 32;
        match offset {
            property::CC => self.configure(state, value),
            register::AQA => state.aqa = value,
            // Bits within a page are reserved.
            register::ASQ => state.asq = low(state.asq) & !(PAGE - 1),
            register::ACQ => state.acq = low(state.acq) & !(PAGE - 1),
            offset if offset == register::ASQ + 4 => state.asq = high(state.asq),
            offset if offset == register::ACQ + 4 => state.acq = high(state.acq),
            _ => {}
        }
    }

    fn configure(&self, state: &mut FunctionState, value: u32) {
        let (before, after) = (state.association.configuration(), Cc::from_bits(value));

        if before.en() && !after.en() {
            return self.disable(state, value);
        }

        if !before.en() && after.en() {
            let aqa = Aqa::from_bits(state.aqa);
            let place = |base: u64, entries_z: u16| QueueMemory {
                base,
                entries: entries_z + 1,
            };

            let (submission, completion) = (
                place(state.asq, aqa.asqs_z()),
                place(state.acq, aqa.acqs_z()),
            );

            // A doorbell left by the last controller would be taken for new commands.
            self.clear_doorbells();
            state.queues = Queues::of_admin(submission, completion);
            state.association.configure(value);

            // An admin queue has at least two entries (NVMe 2.0 §3.1.3.8).
            if aqa.asqs_z() == 0 || aqa.acqs_z() == 0 {
                state.association.set_fatal();
            }
            return;
        }

        state.association.configure(value);
    }

    /// A controller reset: no queues, no commands in progress.
    fn disable(&self, state: &mut FunctionState, cc: u32) {
        state.association.configure(cc & !1);
        state.queues = Queues::default();
        state.delayed.clear();
        state.awaiting_sync.clear();
        self.clear_doorbells();
    }

    fn clear_doorbells(&self) {
        self.doorbells
            .iter()
            .for_each(|doorbell| doorbell.store(0, Ordering::Release));
    }
}
