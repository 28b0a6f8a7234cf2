//! State shared by all connections: the device, its namespaces, its health.
//!
//! Invariants: namespaces do not overlap and lie within the device; the holder of a `DeviceTurn`
//! has exclusive access to the device. Absent: hosts (`association`), the order of turns (`turn`).

use super::association::Association;
use super::durable::Durable;
use super::faults::FaultInjector;
use super::namespaces::{NamespaceSpec, Namespaces};
use super::portals::Portals;
use super::record::Recorder;
use super::reservations::Reservations;
use super::telemetry::Telemetry;
use super::turn::{DeviceTurn, Turnstile};
use super::volatile::VolatileCache;
use super::witness::Witness;
use remap_ssd_device::Device;
use remap_ssd_media::geometry::PAGE_BYTES;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

/// log2 of the size of a flash page.
pub(super) const PAGE_SHIFT: u8 = PAGE_BYTES.trailing_zeros() as u8;

/// When completions are due: at once, or with the timing of real flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Latency {
    /// As soon as the command has been executed.
    None,
    /// At the time given by the timing model.
    Emulated,
}

/// SMART counters, over all power cycles if the caller keeps them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Health {
    /// Blocks of 512 bytes read by hosts.
    pub sectors_read: u64,
    /// Blocks of 512 bytes written by hosts.
    pub sectors_written: u64,
    /// Read and Compare commands served.
    pub read_commands: u64,
    /// Write commands served.
    pub write_commands: u64,
    /// Number of power-ons.
    pub power_cycles: u64,
    /// Power cycles that did not end in a clean shutdown.
    pub unsafe_shutdowns: u64,
    /// Commands answered with a media error.
    pub media_errors: u64,
    /// Seconds in service, over all starts.
    pub power_on_seconds: u64,
}

/// A counter that only the holder of the device's turn changes, so adding needs no locked
/// instruction. Any thread may read it.
#[derive(Default)]
pub(super) struct TurnCounter(AtomicU64);

impl TurnCounter {
    /// Adds `by`, which may be negative to take back a count.
    #[inline]
    pub fn add(&self, _turn: &DeviceTurn<'_>, by: i64) {
        // The turn proves that no other thread adds. A load and a store are enough.
        let before = self.0.load(Ordering::Relaxed);
        self.0
            .store(before.wrapping_add_signed(by), Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
pub(super) struct Counters {
    pub sectors_read: TurnCounter,
    pub sectors_written: TurnCounter,
    pub read_commands: TurnCounter,
    pub write_commands: TurnCounter,
    pub media_errors: TurnCounter,
    /// Power cuts requested by an operator.
    pub power_cuts: AtomicU64,
    /// Commands denied to hosts that lack the rights.
    pub denied: Arc<AtomicU64>,
}

/// Why the subsystem cannot be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SubsystemError(String);

impl SubsystemError {
    pub(super) fn new(why: String) -> Self {
        Self(why)
    }
}

/// Controller IDs: 0 is not used, and those from 0xfff0 on are reserved.
const CNTLID_FIRST: u16 = 1;
const CNTLID_END: u16 = 0xfff0;

struct Cntlids {
    next: u16,
    /// IDs in use, with their controllers once those exist.
    taken: BTreeMap<u16, Weak<Association>>,
}

/// An NVM subsystem: a device, its namespaces and its controllers.
pub struct Subsystem {
    /// Locked only by the holder of the turn, hence never contended.
    pub(super) device: Mutex<Device>,
    pub(super) cache: Option<Mutex<VolatileCache>>,
    pub(super) turnstile: Turnstile,
    pub(super) durable: Durable,
    /// Readable without a turn: the device has failed.
    broken: AtomicBool,
    /// The system's error message when the disk failed.
    disk_failure: OnceLock<String>,
    programs: AtomicU64,
    pub(super) namespaces: Namespaces,
    nqn: String,
    serial: String,
    /// Bytes that namespace identifiers depend on besides their names; empty if the data outlives
    /// the process.
    incarnation: Vec<u8>,
    /// True if completions are due when the timing model says.
    pub(super) emulated: AtomicBool,
    volatile_cache: bool,
    /// Number of commands executed; gives each its number.
    pub(super) commands: AtomicU64,
    before: Health,
    telemetry: Telemetry,
    pub(super) counters: Counters,
    cntlids: Mutex<Cntlids>,
    capacity_bytes: u64,
    recorder: Option<Box<dyn Recorder>>,
    witness: Option<Box<dyn Witness>>,
    /// Armed by others, who also ask it which commands failed.
    faults: Option<Arc<dyn FaultInjector>>,
    pub(super) reservations: Reservations,
    pub(super) portals: Portals,
}

impl Subsystem {
    /// A subsystem over a device. `volatile_cache`: acknowledged writes may be lost if this machine
    /// crashes before a flush. Without specs: one namespace of 4 KiB blocks over all pages.
    ///
    /// # Errors
    /// Namespaces that do not fit, or a device that does not store bytes.
    pub fn new(
        mut device: Device,
        nqn: &str,
        specs: &[NamespaceSpec],
        latency: Latency,
        volatile_cache: bool,
        health: Health,
    ) -> Result<Self, SubsystemError> {
        let lpns = device.config().firmware.lpns;
        // A device that keeps identities of contents instead of bytes has no data that a host could
        // read.
        if device.config().content != remap_ssd_media::ContentMode::Bytes {
            return Err(SubsystemError(
                "a device that hosts use must store bytes: content = \"bytes\"".into(),
            ));
        }

        // The specification's limit. Fields have room for 256 bytes.
        if nqn.is_empty() || nqn.len() > 223 || !nqn.starts_with("nqn.") {
            return Err(SubsystemError(format!(
                "`{nqn}` is no NVMe qualified name: it begins with `nqn.` and has at most 223 bytes"
            )));
        }
        let namespaces = Namespaces::new(specs, lpns)?;

        // Without emulation completion times are not used, and modelling them costs time.
        device.keep_time(latency == Latency::Emulated);
        // The same name gives the same serial number.
        let serial = format!("RMP{:013}", u64::from(crc32c::crc32c(nqn.as_bytes())));

        Ok(Self {
            device: Mutex::new(device),
            cache: None,
            turnstile: Turnstile::default(),
            durable: Durable::default(),
            broken: AtomicBool::new(false),
            disk_failure: OnceLock::new(),
            programs: AtomicU64::new(0),
            namespaces,
            nqn: nqn.into(),
            serial,
            incarnation: Vec::new(),
            emulated: AtomicBool::new(latency == Latency::Emulated),
            volatile_cache,
            commands: AtomicU64::new(0),
            before: health,
            telemetry: Telemetry::default(),
            counters: Counters::default(),
            cntlids: Mutex::new(Cntlids {
                next: CNTLID_FIRST,
                taken: BTreeMap::new(),
            }),
            capacity_bytes: u64::from(lpns) << PAGE_SHIFT,
            recorder: None,
            witness: None,
            faults: None,
            reservations: Reservations::default(),
            portals: Portals::default(),
        })
    }

    /// Makes the namespaces' identifiers unique to this incarnation. A device in memory that starts
    /// again under the same name is empty: a host that reconnects must see another namespace, not
    /// its own with all data gone.
    pub fn of_incarnation(self, number: u64) -> Self {
        Self {
            incarnation: number.to_be_bytes().to_vec(),
            ..self
        }
    }

    /// Adds a volatile write cache of `bytes` bytes: writes that are neither flushed nor FUA are
    /// lost when the power is cut (`cut_power`) or the process ends, unless `drain` comes first.
    pub fn with_cache(self, bytes: u64) -> Self {
        Self {
            cache: Some(Mutex::new(VolatileCache::new(bytes))),
            volatile_cache: true,
            ..self
        }
    }

    /// Records the operations on the device.
    pub fn recorded(self, recorder: Box<dyn Recorder>) -> Self {
        Self {
            recorder: Some(recorder),
            ..self
        }
    }
    pub(super) fn recorder(&self) -> Option<&dyn Recorder> {
        self.recorder.as_deref()
    }

    /// Reports the changes of commands to a witness. Commands are then never paused, so that those
    /// with the same blocks have one order.
    pub fn witnessed(self, witness: Box<dyn Witness>) -> Self {
        Self {
            witness: Some(witness),
            ..self
        }
    }

    /// The witness of changes, if there is one.
    #[inline]
    pub fn witness(&self) -> Option<&dyn Witness> {
        self.witness.as_deref()
    }

    /// Lets an injector make commands fail or delay their answers.
    pub fn with_faults(self, injector: Arc<dyn FaultInjector>) -> Self {
        Self {
            faults: Some(injector),
            ..self
        }
    }

    /// The injector of faults, if there is one.
    #[inline]
    pub fn fault_injector(&self) -> Option<&dyn FaultInjector> {
        self.faults.as_deref()
    }

    /// Its name (NQN), by which hosts connect to it.
    pub fn nqn(&self) -> &str {
        &self.nqn
    }
    pub(super) fn serial(&self) -> &str {
        &self.serial
    }
    pub(super) fn incarnation(&self) -> &[u8] {
        &self.incarnation
    }
    pub(super) fn volatile_cache(&self) -> bool {
        self.volatile_cache
    }
    /// Returns true if there is a cache in this process, not only in the machine's memory.
    pub(super) fn has_cache(&self) -> bool {
        self.cache.is_some()
    }
    pub(super) fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }
    /// When completions are due: at once, or with the timing of real flash.
    #[inline]
    pub fn latency(&self) -> Latency {
        if self.emulated.load(Ordering::Relaxed) {
            Latency::Emulated
        } else {
            Latency::None
        }
    }
    /// Returns true if answers may have to wait until they are due: with the timing of real flash,
    /// or if faults delay them.
    #[inline]
    pub fn delays_answers(&self) -> bool {
        self.latency() == Latency::Emulated || self.faults.is_some()
    }
    /// Counters of commands, for an operator.
    pub fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }
    /// Allocates a controller ID; `None` if all are in use. `release_cntlid` frees it.
    pub(super) fn take_cntlid(&self) -> Option<u16> {
        let mut cntlids = self.cntlids();
        let Cntlids { next, taken } = &mut *cntlids;
        // Round robin, so that an ID is not reused soon after its controller is gone.
        let free = (*next..CNTLID_END)
            .chain(CNTLID_FIRST..*next)
            .find(|cntlid| !taken.contains_key(cntlid))?;
        *next = if free + 1 == CNTLID_END {
            CNTLID_FIRST
        } else {
            free + 1
        };
        taken.insert(free, Weak::new());
        Some(free)
    }
    pub(super) fn release_cntlid(&self, cntlid: u16) {
        self.cntlids().taken.remove(&cntlid);
    }
    /// Notes a new controller, under the ID that it has taken.
    pub(super) fn note_controller(&self, controller: &Arc<Association>) {
        let mut cntlids = self.cntlids();
        cntlids
            .taken
            .insert(controller.cntlid(), Arc::downgrade(controller));
    }
    /// The controllers of hosts, in the order of their IDs; not discovery controllers.
    pub(super) fn controllers(&self) -> Vec<Arc<Association>> {
        let taken: Vec<_> = self.cntlids().taken.values().cloned().collect();
        // Not under the lock: dropping the last reference ends a controller, which takes the lock.
        let there = taken.iter().filter_map(Weak::upgrade);
        there.filter(|one| !one.is_discovery()).collect()
    }
    fn cntlids(&self) -> MutexGuard<'_, Cntlids> {
        self.cntlids
            .lock()
            .expect("nothing under this lock can fail")
    }

    /// At the end of a turn, publishes values that are read without a turn.
    pub(super) fn publish(&self, device: &Device) {
        let media = device.ftl().media();
        self.programs
            .store(media.counts.programs, Ordering::Relaxed);
        if let Some(why) = media.broken() {
            self.disk_failure.get_or_init(|| why.to_owned());
            self.broken.store(true, Ordering::Relaxed);
        }
    }

    /// The system's error message when the disk under the device failed, if it did.
    pub fn disk_failure(&self) -> Option<&str> {
        self.disk_failure.get().map(String::as_str)
    }

    /// Returns true if the firmware or the disk under it has failed.
    pub fn is_broken(&self) -> bool {
        self.device.is_poisoned() || self.broken.load(Ordering::Relaxed)
    }

    /// Marks the device as failed: every later use is refused.
    pub(super) fn fail(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }

    /// Flash pages programmed since power-on, as of the last turn.
    pub fn pages_programmed(&self) -> u64 {
        self.programs.load(Ordering::Relaxed)
    }

    /// Gives the device back; `None` if a thread panicked while holding it.
    pub fn into_device(self) -> Option<Device> {
        self.device.into_inner().ok()
    }

    /// Commands denied to hosts that lack the rights.
    pub fn denied(&self) -> u64 {
        self.counters.denied.load(Ordering::Relaxed)
    }

    /// The SMART counters, including previous power cycles.
    pub fn health(&self) -> Health {
        let (before, now) = (&self.before, &self.counters);
        let power_cuts = now.power_cuts.load(Ordering::Relaxed);
        Health {
            sectors_read: before.sectors_read + now.sectors_read.get(),
            sectors_written: before.sectors_written + now.sectors_written.get(),
            read_commands: before.read_commands + now.read_commands.get(),
            write_commands: before.write_commands + now.write_commands.get(),
            media_errors: before.media_errors + now.media_errors.get(),
            power_cycles: before.power_cycles + power_cuts,
            unsafe_shutdowns: before.unsafe_shutdowns + power_cuts,
            ..*before
        }
    }
}
