//! The function: registers, doorbells, interrupts, and the thread that fetches and completes commands.
//!
//! Doorbells are numbers that the thread looks at; everything else is behind one lock, which the thread holds for a
//! burst of commands. Invariants: memory that the monitor takes away is not used after it was told so; a controller that
//! is reset has no queue, and nothing that was under way is completed to its successor; closed, the device is given
//! back. Absent: vfio-user's messages (`socket`).

use crate::completions::{Due, HeldCompletions};
use crate::memory::{Access, Memory, OutOfReach};
use crate::pci::{BAR_BYTES, Config, VECTORS};
use crate::prp::{GuestData, PAGE, segments};
use crate::queues::{Place, Queues};
use remap_ssd_nvme::controller::telemetry::CommandKind;
use remap_ssd_nvme::controller::{
    AdminOutcome, Association, HostData, IO_QUEUES_MAX, Job, Latency, Outcome, QUEUE_ENTRIES_MAX,
    Subsystem, Transfer, Weight, admin_transfer,
};
use remap_ssd_nvme::spec::bus::{Aqa, register};
use remap_ssd_nvme::spec::command::Sqe;
use remap_ssd_nvme::spec::fabrics::{Cc, property};
use remap_ssd_nvme::spec::opcode::admin;
use remap_ssd_nvme::spec::status::Status;
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// Commands executed before the lock is let go.
const BURST: usize = 64;
/// How often the clock alone is a reason to look.
const TICK: Duration = Duration::from_millis(250);
/// Sleeping ends this much before a completion is due.
const SPIN: Duration = Duration::from_micros(60);
const DOORBELLS: usize = 2 * (IO_QUEUES_MAX as usize + 1);

struct State {
    association: Association,
    memory: Memory,
    config: Config,
    queues: Queues,
    aqa: u32,
    asq: u64,
    acq: u64,
    vectors: Vec<Option<File>>,
    held: HeldCompletions,
    /// Executed commands that are completed only once they are durable, with their queues.
    unsettled: Vec<(u16, Sqe, Outcome)>,
    /// Weight of the last turn.
    weight: Weight,
}

/// What the thread and the socket share.
struct Shared {
    state: Mutex<Option<State>>,
    doorbells: [AtomicU32; DOORBELLS],
    stop: AtomicBool,
    epoch: Instant,
    thread: OnceLock<Thread>,
}

/// A PCI Express function with an NVMe controller.
pub struct Function {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Function {
    /// A function in front of a subsystem; times count from `epoch`.
    ///
    /// # Errors
    /// There can be no thread.
    pub fn start(subsystem: &Arc<Subsystem>, epoch: Instant) -> std::io::Result<Self> {
        let state = State {
            association: Association::on_bus(subsystem),
            memory: Memory::default(),
            config: Config::default(),
            queues: Queues::default(),
            aqa: 0,
            asq: 0,
            acq: 0,
            vectors: (0..VECTORS).map(|_| None).collect(),
            held: HeldCompletions::default(),
            unsettled: Vec::new(),
            weight: Weight::default(),
        };

        let shared = Arc::new(Shared {
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

    /// The same function for another thread; closing is left to this one.
    pub fn handle(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            thread: None,
        }
    }

    /// Ends the thread after the commands under way, and gives the device back. `false` if the thread had failed.
    pub fn close(&mut self) -> bool {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.wake();
        let well = self
            .thread
            .take()
            .is_none_or(|thread| thread.join().is_ok());
        drop(self.shared.lock().take());
        well
    }

    /// Reads a part of configuration space.
    pub fn config_read(&self, offset: u64, to: &mut [u8]) {
        if let Some(state) = &*self.shared.lock() {
            state.config.read(offset, to);
        }
    }

    /// Writes a part of configuration space.
    pub fn config_write(&self, offset: u64, from: &[u8]) {
        if let Some(state) = &mut *self.shared.lock() {
            state.config.write(offset, from);
        }
    }

    /// Reads BAR 0; what is no register is zero.
    pub fn bar_read(&self, offset: u64, to: &mut [u8]) {
        to.fill(0);
        let guard = self.shared.lock();
        let Some(state) = &*guard else { return };
        for (at, byte) in (offset..offset.max(register::DOORBELLS.into())).zip(to) {
            *byte = state.register(at as u32 & !7).to_le_bytes()[(at & 7) as usize];
        }
    }

    /// Writes BAR 0, by dwords; anything else than whole dwords is ignored.
    pub fn bar_write(&self, offset: u64, from: &[u8]) {
        if !offset.is_multiple_of(4) || offset >= BAR_BYTES {
            return;
        }
        for (index, dword) in from.as_chunks::<4>().0.iter().enumerate() {
            let (at, value) = (offset + index as u64 * 4, u32::from_le_bytes(*dword));
            match at.checked_sub(u64::from(register::DOORBELLS)) {
                Some(doorbell) if doorbell / 4 < DOORBELLS as u64 => {
                    self.shared.doorbells[(doorbell / 4) as usize].store(value, Ordering::Release);
                    self.shared.wake();
                }
                Some(_) => {}
                None => self.shared.write_register(at as u32, value),
            }
        }
    }

    /// Makes guest memory reachable.
    ///
    /// # Errors
    /// It overlaps, is not in its file, or the system's reason.
    pub fn map(
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

    /// Guest memory goes; none of it for `None`.
    pub fn unmap(&self, range: Option<(u64, u64)>) {
        if let Some(state) = &mut *self.shared.lock() {
            match range {
                Some((address, len)) => state.memory.unmap(address, len),
                None => state.memory.clear(),
            }
        }
    }

    /// Says how to interrupt: event file descriptors of vectors from `start` on. Vectors past the last are ignored.
    pub fn set_vectors(&self, start: u32, files: impl IntoIterator<Item = Option<File>>) {
        if let Some(state) = &mut *self.shared.lock() {
            let vectors = state.vectors.iter_mut().skip(start as usize);
            vectors.zip(files).for_each(|(vector, file)| *vector = file);
        }
    }

    /// Removes the eventfds of all vectors.
    pub fn clear_vectors(&self) {
        self.set_vectors(0, (0..VECTORS).map(|_| None));
    }

    /// Triggers interrupts as the monitor asks.
    pub fn trigger(&self, start: u32, count: u32) {
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

    /// As after power-on; memory stays mapped.
    pub fn reset(&self) {
        if let Some(state) = &mut *self.shared.lock() {
            self.shared.disable(state, 0);
            state.config = Config::default();
            (state.aqa, state.asq, state.acq) = (0, 0, 0);
        }
    }
}

fn interrupt(mut event: &File) {
    // A full counter means that the guest has been told.
    let _ = event.write_all(&1u64.to_ne_bytes());
}

impl State {
    fn register(&self, offset: u32) -> u64 {
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

impl Shared {
    /// A thread that failed leaves queues as they were; the device below looks after itself.
    fn lock(&self) -> MutexGuard<'_, Option<State>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
    fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    fn write_register(&self, offset: u32, value: u32) {
        let mut guard = self.lock();
        let Some(state) = &mut *guard else { return };
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

    fn configure(&self, state: &mut State, value: u32) {
        let (before, after) = (state.association.configuration(), Cc::from_bits(value));

        if before.en() && !after.en() {
            return self.disable(state, value);
        }

        if !before.en() && after.en() {
            let aqa = Aqa::from_bits(state.aqa);
            let place = |base: u64, entries_z: u16| Place {
                base,
                entries: entries_z + 1,
            };

            let (submission, completion) = (
                place(state.asq, aqa.asqs_z()),
                place(state.acq, aqa.acqs_z()),
            );

            self.quiet();
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

    /// A controller reset: no queues, nothing under way.
    fn disable(&self, state: &mut State, cc: u32) {
        state.association.configure(cc & !1);
        state.queues = Queues::default();
        state.held.clear();
        state.unsettled.clear();
        self.quiet();
    }

    fn quiet(&self) {
        self.doorbells
            .iter()
            .for_each(|doorbell| doorbell.store(0, Ordering::Release));
    }

    fn run(&self) {
        let mut tick = Instant::now() + TICK;
        loop {
            let mut guard = self.lock();
            let Some(state) = &mut *guard else { return };
            let mut worked = self
                .burst(state)
                .and_then(|worked| self.settle(state).map(|()| worked));

            if Instant::now() >= tick {
                tick = Instant::now() + TICK;
                if state.association.subsystem().is_broken() {
                    return;
                }
                worked = worked.and_then(|worked| Ok(self.report(state)? || worked));
            }

            let worked = worked.unwrap_or_else(|OutOfReach| {
                state.association.set_fatal();
                state.queues = Queues::default();
                state.held.clear();
                state.unsettled.clear();
                false
            });

            let State {
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
                .held
                .next()
                .map(|at| self.epoch + Duration::from_nanos(at));
            drop(guard);

            if self.stop.load(Ordering::SeqCst) && !worked && due.is_none() {
                return;
            }
            if !worked {
                sleep(due.map_or(tick, |due| due.min(tick)));
            }
        }
    }

    /// Answers an asynchronous event request if there is something to report; `true` if so.
    fn report(&self, state: &mut State) -> Result<bool, OutOfReach> {
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

    /// Completes what is due and executes commands, some of each queue in turns; `true` if there may be more.
    fn burst(&self, state: &mut State) -> Result<bool, OutOfReach> {
        let now = self.now();
        let mut worked = false;
        while let Some(due) = state.held.take(now) {
            state.queues.complete(
                due.sqid,
                due.cid,
                Status::from_bits(due.status),
                due.result,
                &state.memory,
            )?;
            worked = true;
        }

        if !state.association.is_enabled() || state.association.status().cfs() {
            return Ok(worked);
        }

        let mut left = BURST;
        loop {
            let before = left;
            let doorbell = |index: usize| {
                u16::try_from(self.doorbells[index].load(Ordering::Acquire)).unwrap_or(u16::MAX)
            };
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

    fn command(&self, state: &mut State, sqid: u16, sqe: &Sqe) -> Result<(), OutOfReach> {
        let cid = sqe.head().cid();

        let unsettled = || {
            state
                .unsettled
                .iter()
                .any(|(other, sqe, _)| (*other, sqe.head().cid()) == (sqid, cid))
        };

        let event = || sqid == 0 && state.association.has_event_request(cid);
        let in_use = state.held.has(sqid, cid) || unsettled() || event();

        let outcome = if in_use {
            Some(at_once(Status::ID_CONFLICT, 0))
        } else if sqe.head().psdt() != 0 {
            // PRPs alone: Identify says that there are no SGLs.
            Some(at_once(Status::INVALID_FIELD, 0))
        } else if sqid == 0 {
            self.admin(state, sqe)
                .map(|(status, result)| at_once(status, result))
        } else {
            Some(self.io(state, sqe))
        };

        let Some(outcome) = outcome else {
            return Ok(());
        };

        if outcome.owes.is_some() {
            state.unsettled.push((sqid, *sqe, outcome));
            return Ok(());
        }

        self.complete(state, sqid, sqe, outcome)
    }

    /// Makes durable and completes all commands of a burst that wait for it, together.
    fn settle(&self, state: &mut State) -> Result<(), OutOfReach> {
        let Some(wanted) = state
            .unsettled
            .iter()
            .filter_map(|(.., outcome)| outcome.owes)
            .max()
        else {
            return Ok(());
        };

        let settled = state.association.subsystem().make_durable(wanted);

        for (sqid, sqe, outcome) in std::mem::take(&mut state.unsettled) {
            let outcome = match settled {
                Ok(()) => outcome,
                Err(status) => Outcome {
                    status,
                    result: 0,
                    ..outcome
                },
            };
            self.complete(state, sqid, &sqe, outcome)?;
        }
        Ok(())
    }

    fn complete(
        &self,
        state: &mut State,
        sqid: u16,
        sqe: &Sqe,
        outcome: Outcome,
    ) -> Result<(), OutOfReach> {
        let cid = sqe.head().cid();

        let Outcome {
            status,
            result,
            done_at,
            ..
        } = outcome;

        if !status.is_success() && sqid > 0 {
            state.association.log_error(sqid, sqe, status);
        }

        // In emulated time the host gets its answer when the device would have given it.
        if state.association.subsystem().latency() == Latency::Emulated && done_at > self.now() {
            state
                .held
                .put(Due::new(done_at, (sqid, cid), status.into_bits(), result));
            return Ok(());
        }

        state
            .queues
            .complete(sqid, cid, status, result, &state.memory)
    }

    fn io(&self, state: &mut State, sqe: &Sqe) -> Outcome {
        let checked = state
            .association
            .io_request(sqe)
            .and_then(|(request, transfer)| {
                let (len, access) = moved(transfer);
                Ok((request, segments(&state.memory, sqe.prps(), len, access)?))
            });

        let (request, found) = match checked {
            Ok(checked) => checked,
            Err(status) => return at_once(status, 0),
        };

        let mut data = GuestData::new(&state.memory, &found);
        let subsystem = state.association.subsystem().clone();
        let cache_enabled = state.association.cache_enabled();

        let job = Job {
            nsid: sqe.nsid,
            request: &request,
            now: self.now(),
            cache_enabled,
        };

        let mut device = subsystem.turn(state.weight);
        let outcome = subsystem.execute(&mut device, &job, &mut data);
        let failed = data.failed();
        state.weight = device.weight();
        drop(device);

        let took_ns = outcome.done_at.max(self.now()).saturating_sub(job.now);
        subsystem
            .telemetry()
            .observe(CommandKind::of(&request), 1, took_ns);

        if outcome.status.is_success() && failed {
            return Outcome {
                status: Status::DATA_TRANSFER,
                ..outcome
            };
        }

        outcome
    }

    /// Creates or deletes a queue, and resets its doorbell; `None` for any other command.
    fn queue_command(&self, state: &mut State, sqe: &Sqe) -> Option<Status> {
        let qids = state.association.io_queues();
        let made = match sqe.head().opcode() {
            admin::CREATE_CQ => state
                .queues
                .create_cq(sqe, qids)
                .map(|qid| usize::from(qid) * 2 + 1),
            admin::CREATE_SQ => state
                .queues
                .create_sq(sqe, qids)
                .map(|qid| usize::from(qid) * 2),
            admin::DELETE_CQ => state
                .queues
                .delete_cq(sqe)
                .map(|qid| usize::from(qid) * 2 + 1),
            admin::DELETE_SQ => {
                // Guest memory out of reach is detected again at the next command.
                let _ = self.settle(state);
                self.complete_all(state, sqe);
                state.queues.delete_sq(sqe).map(|qid| usize::from(qid) * 2)
            }
            // For networks.
            admin::FABRICS => Err(Status::INVALID_OPCODE),
            _ => return None,
        };

        Some(match made {
            Ok(doorbell) => {
                state.association.queue_made();
                self.doorbells[doorbell].store(0, Ordering::Release);
                Status::SUCCESS
            }
            Err(status) => {
                state.association.log_error(0, sqe, status);
                status
            }
        })
    }

    /// Executes an admin command; `None` if it waits.
    fn admin(&self, state: &mut State, sqe: &Sqe) -> Option<(Status, u64)> {
        if let Some(status) = self.queue_command(state, sqe) {
            return Some((status, 0));
        }

        let transfer = admin_transfer(sqe).and_then(|transfer| {
            let (len, access) = moved(transfer);
            Ok((
                transfer,
                len,
                segments(&state.memory, sqe.prps(), len, access)?,
            ))
        });
        let (transfer, len, found) = match transfer {
            Ok(transfer) => transfer,
            Err(status) => return Some((status, 0)),
        };

        let mut guest = GuestData::new(&state.memory, &found);
        let mut sent = Vec::new();
        while matches!(transfer, Transfer::FromHost(_)) && sent.len() < len {
            match guest.take(len - sent.len()) {
                [] => return Some((Status::DATA_TRANSFER, 0)),
                taken => sent.extend_from_slice(taken),
            }
        }

        let mut page = Vec::new();
        match state.association.admin(sqe, &sent, &mut page) {
            AdminOutcome::Waits => {
                // It may wait for ever, and keeps no other command from being fetched.
                state.queues.forgo(0);
                None
            }
            AdminOutcome::Done(status, result) => {
                if status.is_success() {
                    guest.put(&page);
                }
                let status = if guest.failed() {
                    Status::DATA_TRANSFER
                } else {
                    status
                };
                Some((status, result))
            }
        }
    }

    /// Completes at once what of a queue that goes is not due yet.
    fn complete_all(&self, state: &mut State, sqe: &Sqe) {
        let qid = remap_ssd_nvme::spec::bus::QueueCdw10::from_bits(sqe.cdw10).qid();
        for due in state.held.take_queue(qid) {
            let status = Status::from_bits(due.status);
            // Guest memory out of reach is detected again at the next command.
            let _ = state
                .queues
                .complete(due.sqid, due.cid, status, due.result, &state.memory);
        }
    }
}

/// Completed, with nothing to wait for.
fn at_once(status: Status, result: u64) -> Outcome {
    Outcome {
        status,
        result,
        done_at: 0,
        owes: None,
    }
}

/// How many bytes, and how guest memory is accessed.
fn moved(transfer: Transfer) -> (usize, Access) {
    match transfer {
        Transfer::None => (0, Access::Read),
        Transfer::FromHost(bytes) => (bytes as usize, Access::Read),
        Transfer::ToHost(bytes) => (bytes as usize, Access::Write),
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
