//! State shared by all connections: the device, its namespaces, its health.
//!
//! Invariants: namespaces do not overlap and lie within the device; the holder of a `DeviceTurn`
//! has exclusive access to the device. Absent: hosts (`association`), the order of turns
//! (`turnstile`).

use super::blocks::{LBA_SHIFTS, Namespace, NamespaceSpec, PAGE_SHIFT};
use super::controllers::Controllers;
use super::counters::{Counters, Health};
use super::error::SubsystemError;
use super::faults::FaultInjector;
use super::issuer::Outcome;
use super::namespaces::{Attachment, KeptNamespaces, NamespaceStore, Namespaces};
use super::observer::Observer;
use super::portals::{AnaState, Portal, Portals};
use super::record::Recorder;
use super::reservations::rules::{NamespaceReservations, Notices};
use super::reservations::{AllReservations, ReservationStore, Reservations};
use super::standing::Standing;
use super::telemetry::Telemetry;
use super::turn::{DeviceTurn, SharedDevice};
use super::turnstile::Weight;
use super::volatile::VolatileCache;
use crate::spec::status::Status;
use remap_ssd_device::Device;
use remap_ssd_media::folder::HistoryPosition;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// When completions are due: at once, or with the timing of real flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Latency {
    /// As soon as the command has been executed.
    None,
    /// At the time given by the timing model.
    Emulated,
}

impl FromStr for Latency {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "none" => Ok(Self::None),
            "emulated" => Ok(Self::Emulated),
            _ => Err("none or emulated"),
        }
    }
}

/// An NVM subsystem: a device, its namespaces and its controllers.
pub struct Subsystem {
    pub(super) device: SharedDevice,
    pub(super) namespaces: Namespaces,
    nqn: String,
    serial: String,
    /// Bytes that namespace identifiers depend on besides their names; empty if the data outlives
    /// the process.
    incarnation: Vec<u8>,
    /// True if completions are due when the timing model says.
    pub(super) emulated: AtomicBool,
    volatile_cache: bool,
    /// True if the device has a volatile write buffer of its own.
    has_buffer: bool,
    /// Number of commands executed; gives each its number.
    pub(super) commands: AtomicU64,
    before: Health,
    telemetry: Telemetry,
    pub(super) counters: Counters,
    pub(super) controllers: Controllers,
    capacity_bytes: u64,
    /// Pages of the device's indirection unit.
    pub(super) unit_pages: u32,
    /// Blocks of the largest write that the device leaves whole or absent: of pages, and of 512 bytes.
    untorn_blocks: [u32; 2],
    recorder: Option<Box<dyn Recorder>>,
    /// Armed by others, who also ask it which commands failed.
    faults: Option<Arc<dyn FaultInjector>>,
    pub(super) reservations: Reservations,
    pub(super) portals: Portals,
}

impl Subsystem {
    /// A subsystem over a device. Without specs: one namespace of 4 KiB blocks over all pages.
    /// Completions are due at once, until `set_latency`.
    ///
    /// # Errors
    /// Namespaces that do not fit, or a device that does not store bytes.
    pub fn new(
        mut device: Device,
        nqn: &str,
        specs: &[NamespaceSpec],
    ) -> Result<Self, SubsystemError> {
        let lpns = device.config().host_lpns();
        let unit_pages = device.config().geometry.host_pages();
        let untorn_blocks =
            LBA_SHIFTS.map(|shift| (device.untorn_bytes_max(1 << shift) >> shift) as u32);

        // A device that keeps identities of contents instead of bytes has no data that a host could
        // read.
        if device.config().content != remap_ssd_media::ContentMode::Bytes {
            return Err(SubsystemError::new(
                "a device that hosts use must store bytes: content = \"bytes\"".into(),
            ));
        }

        // The specification's limit. Fields have room for 256 bytes.
        if nqn.is_empty() || nqn.len() > 223 || !nqn.starts_with("nqn.") {
            return Err(SubsystemError::new(format!(
                "`{nqn}` is no NVMe qualified name: it begins with `nqn.` and has at most 223 bytes"
            )));
        }

        let namespaces = Namespaces::new(specs, lpns, unit_pages)?;
        let has_buffer = device.config().firmware.has_volatile_buffer();

        // Without emulation completion times are not used, and modelling them costs time.
        device.keep_time(false);

        // The same name gives the same serial number.
        let serial = format!("RMP{:013}", u64::from(crc32c::crc32c(nqn.as_bytes())));

        Ok(Self {
            device: SharedDevice::new(device),
            namespaces,
            nqn: nqn.into(),
            serial,
            incarnation: Vec::new(),
            emulated: AtomicBool::new(false),
            volatile_cache: true,
            has_buffer,
            commands: AtomicU64::new(0),
            before: Health::default(),
            telemetry: Telemetry::default(),
            counters: Counters::default(),
            controllers: Controllers::default(),
            capacity_bytes: u64::from(lpns) << PAGE_SHIFT,
            unit_pages,
            untorn_blocks,
            recorder: None,
            faults: None,
            reservations: Reservations::default(),
            portals: Portals::default(),
        })
    }

    /// Tells hosts that no acknowledged write waits for a flush, unless one does: the device is in
    /// memory, and its data end with this process. Otherwise writes may be lost if this machine
    /// crashes.
    pub fn in_memory(mut self) -> Self {
        self.volatile_cache = self.loses_writes();
        self
    }

    /// Continues the counters of health from those of earlier services of the device.
    pub fn with_health(self, before: Health) -> Self {
        Self { before, ..self }
    }

    /// Loads saved namespaces; `store` keeps all later changes. Namespaces left half emptied by a
    /// power cut are emptied by `finish_clearing`.
    ///
    /// # Errors
    /// They do not fit on this device.
    pub fn with_namespaces(
        mut self,
        kept: KeptNamespaces,
        store: Box<dyn NamespaceStore>,
    ) -> Result<Self, SubsystemError> {
        self.namespaces = self.namespaces.kept(kept, store)?;
        Ok(self)
    }

    /// Loads saved reservations; `store` keeps all later changes.
    pub fn with_reservations(
        mut self,
        kept: AllReservations,
        store: Box<dyn ReservationStore>,
    ) -> Self {
        self.reservations = Reservations::kept(kept, store);
        self
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
    ///
    /// # Panics
    /// The device has a volatile write buffer: the cache would take pages for durable that are in it.
    pub fn with_cache(mut self, bytes: u64) -> Self {
        assert!(!self.has_buffer, "a device has one volatile cache");
        self.device.cache = Some(Mutex::new(VolatileCache::new(bytes)));
        self.volatile_cache = true;
        self
    }

    /// Blocks of the largest write that a power cut, or a failure, leaves whole or absent, wherever it begins. In a volatile cache, pages
    /// are lost one by one.
    pub(crate) fn untorn_blocks(&self, lba_shift: u8) -> u32 {
        match (&self.device.cache, lba_shift) {
            (Some(_), _) => 1,
            (None, PAGE_SHIFT) => self.untorn_blocks[0],
            _ => self.untorn_blocks[1],
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

    /// Reports the changes of commands to an observer. Commands are then never paused, so that those
    /// with the same blocks have one order.
    pub fn observed(mut self, observer: Box<dyn Observer>) -> Self {
        self.device.observer = Some(observer);
        self
    }

    /// The observer of changes, if there is one.
    #[inline]
    pub(crate) fn observer(&self) -> Option<&dyn Observer> {
        self.device.observer.as_deref()
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
    pub(crate) fn fault_injector(&self) -> Option<&dyn FaultInjector> {
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
    /// Returns true if acknowledged writes may be in this process, and not only in the machine's memory: a power cut, or the end of
    /// the process, loses them.
    pub fn loses_writes(&self) -> bool {
        self.device.cache.is_some() || self.has_buffer
    }
    /// Returns true if the device has a volatile write buffer.
    pub(super) fn has_buffer(&self) -> bool {
        self.has_buffer
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

    /// All namespaces, in the order of their numbers.
    pub fn namespaces(&self) -> Vec<Namespace> {
        self.namespaces.all()
    }

    /// A namespace by its number.
    pub fn namespace(&self, nsid: u32) -> Option<Namespace> {
        self.namespaces.get(nsid)
    }

    /// The hosts that see a namespace.
    pub fn attachment(&self, nsid: u32) -> Option<Attachment> {
        self.namespaces.attachment(nsid)
    }

    /// The reservations of a namespace, for an operator.
    pub fn reservations_of(&self, nsid: u32) -> NamespaceReservations {
        self.reservations.of(nsid)
    }

    /// Changes the reservations of a namespace. The caller must not have the device.
    ///
    /// # Errors
    /// As `Reservations::change`.
    pub(super) fn change_reservations(
        &self,
        namespace: &Namespace,
        change: impl FnOnce(&mut NamespaceReservations) -> Result<Notices, Status>,
    ) -> Result<(), Status> {
        let Self {
            device, namespaces, ..
        } = self;
        self.reservations
            .change(device, namespaces, namespace, change)
    }

    /// Adds a portal.
    pub(crate) fn add_portal(&self, address: SocketAddr) {
        self.portals.add(address);
    }

    /// All portals, in the order in which they were opened.
    pub fn portals(&self) -> Vec<Arc<Portal>> {
        self.portals.all()
    }

    /// The portal of a connection with this local address.
    pub(crate) fn portal_of(&self, local: SocketAddr) -> Arc<Portal> {
        self.portals.of(local)
    }

    /// Sets the state of a portal, or of all without an address. Returns the number of portals set.
    pub fn set_ana_state(&self, address: Option<SocketAddr>, state: AnaState) -> usize {
        self.portals.set(address, state)
    }

    /// Waits for the device. Panics if an assertion in the firmware has failed before.
    pub fn device(&self) -> DeviceTurn<'_> {
        self.device.turn()
    }

    /// Like `device`, for a thread whose last turn had this weight.
    pub fn turn(&self, weight: Weight) -> DeviceTurn<'_> {
        DeviceTurn::begin(&self.device, weight, None)
    }

    /// Like `turn`, for commands of a queue. None has an effect once the queue may not go on.
    pub(crate) fn turn_of(&self, weight: Weight, standing: Standing) -> DeviceTurn<'_> {
        DeviceTurn::begin(&self.device, weight, Some(standing))
    }

    /// Number of threads that wait for the device now.
    pub fn waiting(&self) -> usize {
        self.device.turnstile.waiting()
    }

    /// Number of slices used up: after each of them others could go first.
    pub fn slices(&self) -> u64 {
        self.device.turnstile.slices()
    }

    /// Waits until everything before a position is durable. The caller must not have the device.
    ///
    /// # Errors
    /// Write Fault: the disk has failed, and no command may be acknowledged any more. Commands
    /// Aborted due to Power Loss Notification: the power of the volatile cache was cut in the
    /// meantime.
    pub fn make_durable(&self, wanted: HistoryPosition) -> Result<(), Status> {
        self.device.make_durable(wanted)
    }

    /// Waits until a command's position is durable, and returns the outcome to acknowledge. The
    /// caller must not hold the device.
    pub fn wait_until_durable(&self, outcome: Outcome) -> Outcome {
        let Some(wanted) = outcome.sync_to else {
            return outcome;
        };
        match self.make_durable(wanted) {
            Ok(()) => Outcome {
                sync_to: None,
                ..outcome
            },
            // The command's own status does not matter if its effect may be lost.
            Err(status) => Outcome {
                sync_to: None,
                status,
                result: 0,
                failed_block: None,
                ..outcome
            },
        }
    }

    /// Number of commits so far.
    pub fn commits(&self) -> u64 {
        self.device.durable.commits()
    }

    /// The system's error message when the disk under the device failed, if it did.
    pub fn disk_failure(&self) -> Option<&str> {
        self.device.disk_failure()
    }

    /// Returns true if the firmware or the disk under it has failed.
    pub fn is_broken(&self) -> bool {
        self.device.is_broken()
    }

    /// Flash pages programmed since power-on, as of the last turn.
    pub fn pages_programmed(&self) -> u64 {
        self.device.pages_programmed()
    }

    /// Gives the device back; `None` if a thread panicked while holding it.
    pub fn into_device(self) -> Option<Device> {
        self.device.into_device()
    }

    /// Commands denied to hosts that lack the rights.
    pub fn denied(&self) -> u64 {
        self.counters.denied.load(Ordering::Relaxed)
    }

    /// The SMART counters, including previous power cycles.
    pub fn health(&self) -> Health {
        self.counters.since(&self.before)
    }
}
