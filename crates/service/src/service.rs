//! Serves a device to unmodified programs: on the network, as files, and on a PCI Express bus.
//!
//! Invariants: it listens on loopback addresses by default, on others only for hosts that
//! authenticate, or on demand for those on a list; this also holds for a socket passed by a
//! supervisor. A stop finishes commands in progress and compacts the image; any other end is a
//! power cut, which the image survives. A shutdown is clean only if the device was closed.

use crate::error::ServiceError;
use crate::fronts::{Bound, Fronts, Handle, Tick};
use crate::kept::{ReservationFolder, SavedHealth, ServiceFile};
use crate::namespaces::NamespaceFolder;
use crate::nqn::random;
use crate::recording::{Recording, Unserved};
use crate::relearn::{self, Relearn};
use crate::spec::{Backing, Spec};
use crate::writeback::Writeback;
use remap_ssd_device::{Device, DeviceConfig, OpenError};
use remap_ssd_media::image_file::ImageError;
use remap_ssd_nvme::controller::{CutReport, Health, Latency, Subsystem, statistics};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A device with its transports. If it is dropped without `serve`, an image is left as after a
/// power cut.
pub struct Service {
    subsystem: Arc<Subsystem>,
    fronts: Fronts,
    nqn: String,
    spec: Spec,
    recording: Unserved,
    /// Background threads that use the device.
    beside: (Option<Writeback>, Option<Relearn>),
    began: Instant,
}

impl Service {
    /// Opens a device and its transports except FUSE. Hosts, guests and operators can connect, and
    /// wait for [`serve`](Self::serve).
    ///
    /// # Errors
    /// The device cannot be opened or served as described.
    pub fn open(spec: Spec) -> Result<Self, ServiceError> {
        // All checks of the description, and of its sockets, come before the device is opened:
        // its recovery may take minutes.
        spec.check()?;
        let bound = Bound::of(&spec)?;
        let recording = spec.record.as_deref().map(Recording::create).transpose()?;
        let recording = Unserved(recording);

        // Read before the device is opened: damaged reservations must not cost an unclean shutdown.
        let reservations = spec.backing.dir().cloned().map(ReservationFolder);
        let reservations = reservations.map(|folder| {
            let all = folder.load()?;
            Ok::<_, ServiceError>((folder, all))
        });
        let reservations = reservations.transpose()?;
        let (mut device, file, kept) = open(&spec)?;
        if let Some((folder, _)) = &reservations {
            folder.witness()?;
        }
        file.keep_apart(&mut device);

        // Counted now: if this process dies, the cycle still counts.
        let health = Health {
            power_cycles: kept.health.power_cycles + 1,
            ..kept.health
        };
        let config = device.config().clone();
        let mut subsystem = subsystem(&spec, device, &file, health)?;
        if let Some((folder, all)) = reservations {
            subsystem = subsystem.with_reservations(all, Box::new(folder));
        }

        // Its first line describes the device, so that a replay can use the same.
        if let Some(recording) = &recording.0 {
            recording.device(&config);
            subsystem = subsystem.recorded(Box::new(recording.clone()));
        }
        let subsystem = Arc::new(subsystem);

        finish_clearing(&subsystem)?;
        let began = Instant::now();
        let image = spec.backing.dir();
        let writeback = image
            .map(|dir| Writeback::start(dir, Arc::downgrade(&subsystem)))
            .transpose()?;
        let relearn = Relearn::start_if_needed(image.map(PathBuf::as_path), &subsystem)?;
        let fronts = Fronts::open(&spec, &subsystem, bound)?;

        Ok(Self {
            subsystem,
            fronts,
            nqn: file.nqn,
            spec,
            recording,
            beside: (writeback, relearn),
            began,
        })
    }

    /// Controls the service from other threads.
    pub fn handle(&self) -> Handle {
        self.fronts.handle()
    }

    /// NVMe qualified name of the subsystem.
    pub fn nqn(&self) -> &str {
        &self.nqn
    }

    /// The addresses on which it listens for NVMe/TCP.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.fronts.addresses()
    }

    /// The address on which it listens for operators.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.fronts.http_address()
    }

    /// Serves hosts until it is stopped, the last transport ends on its own, or the device fails;
    /// then closes the device.
    ///
    /// # Errors
    /// A transport could not begin, or the device, the disk under it or a transport has failed.
    pub fn serve(self) -> Result<(), ServiceError> {
        let Self {
            subsystem,
            mut fronts,
            spec,
            recording,
            ..
        } = self;
        let kept = |clean: bool| {
            let mut health = subsystem.health();
            health.power_on_seconds += self.began.elapsed().as_secs();
            SavedHealth { health, clean }
        };
        let keep = |kept: SavedHealth| {
            let dir = spec.backing.dir();
            dir.into_iter().for_each(|dir| kept.try_save(dir));
        };

        // 1. not clean until the end, so that after any other end the next start knows  2. hosts,
        // guests and operators can act. Cut between: the next start counts one unsafe shutdown of a
        // device that was not used.
        keep(kept(false));
        if let Err(error) = fronts.begin(&spec, &subsystem, &self.nqn) {
            drop((fronts, self.beside));
            // The device still works: a mistake in the description is no unsafe shutdown.
            let clean = kept(true);
            match end(subsystem, &spec) {
                Ok(()) => keep(clean),
                Err(also) => tracing::error!("{also}"),
            }
            return Err(error);
        }
        let recording = recording.served();

        let served = fronts.serve(&subsystem, |tick| match tick {
            // After a crash the SMART counters may be some seconds old.
            Tick::Keep => {
                keep(kept(false));
                recording.iter().for_each(Recording::flush);
            }
            Tick::Tell => tell(&subsystem),
            Tick::CutPower if subsystem.loses_writes() => {
                // Entries before the cut must reach the file before the cut.
                recording.iter().for_each(Recording::flush);
                cut_power(&subsystem, spec.cut_seed.unwrap_or_else(random));
            }
            Tick::CutPower => {}
        });

        // Threads that use the device end first; then it can be closed.
        drop(self.beside);
        recording.iter().for_each(Recording::flush);
        let clean = kept(true);

        if served.is_err() && subsystem.is_broken() {
            return served;
        }

        // Even if a transport has failed: what was acknowledged must not stay in a volatile buffer.
        let ended = end(subsystem, &spec);
        served?;
        ended?;

        // 1. close the device  2. record that it was closed. Cut between: the next start counts one
        // unsafe shutdown too many.
        keep(clean);
        tracing::info!("shut down cleanly");
        Ok(())
    }
}

/// Checks that the device can be served as described.
fn check_device(spec: &Spec, config: &DeviceConfig) -> Result<(), ServiceError> {
    if spec.latency == Latency::Emulated {
        let known = config.check_known_ends();
        known.map_err(|error| ServiceError::usage(error.to_string()))?;
    }
    // It writes pages back one by one: a unit that cannot be read could then never be written whole.
    if spec.volatile_cache.is_some() && config.geometry.host_pages() > 1 {
        return Err(ServiceError::usage(
            "--volatile-cache: this device has indirection units larger than 4 KiB, and the cache has pages of 4 KiB",
        ));
    }
    // Its cache counts what is on the device as safe once it is synced; there, it could be in the buffer.
    if spec.volatile_cache.is_some() && config.firmware.has_volatile_buffer() {
        return Err(ServiceError::usage(
            "--volatile-cache: this device has a volatile write buffer of its own (firmware.write_buffer_bytes without \
             firmware.power_loss_protection), which power cuts empty; omit the option",
        ));
    }
    Ok(())
}

/// The device with its namespaces, as hosts see it.
fn subsystem(
    spec: &Spec,
    device: Device,
    file: &ServiceFile,
    health: Health,
) -> Result<Subsystem, ServiceError> {
    let dir = spec.backing.dir();
    // An image's namespaces are in its file.
    let specs = if dir.is_some() {
        Vec::new()
    } else {
        file.specs()
    };
    let subsystem = Subsystem::new(device, &file.nqn, &specs);
    let mut subsystem = subsystem.map_err(ServiceError::failed)?.with_health(health);
    subsystem.set_latency(spec.latency);
    if let Some(bytes) = spec.volatile_cache {
        subsystem = subsystem.with_cache(bytes);
    }

    let Some(dir) = dir else {
        // A restarted device in memory is empty, so it must not look like the previous one.
        return Ok(subsystem.in_memory().of_incarnation(random()));
    };
    let kept = file.kept_namespaces().map_err(ServiceError::failed)?;
    let store = NamespaceFolder::new(dir.clone(), file.clone());
    subsystem
        .with_namespaces(kept, Box::new(store))
        .map_err(ServiceError::failed)
}

/// Logs the counters.
fn tell(subsystem: &Subsystem) {
    let health = subsystem.health();
    let values = statistics::read(&subsystem.device());
    let counters: Vec<String> = statistics::NAMES
        .iter()
        .zip(values)
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    tracing::info!(
        sectors_read = health.sectors_read,
        sectors_written = health.sectors_written,
        media_errors = health.media_errors,
        counters = counters.join(", "),
        "statistics"
    );
}

/// Cuts the power: the volatile cache loses data as it may, the device's own write buffer loses all it holds, and this process ends while it holds
/// the device exclusively. The next start recovers the rest, as after a killed server.
fn cut_power(subsystem: &Subsystem, seed: u64) {
    let Err(status) = subsystem.cut_power(seed, |device, report| {
        let is_volatile = device.config().firmware.has_volatile_buffer();
        let units = is_volatile.then(|| device.ftl().buffered_pages());
        let buffered = units.map(|units| units * device.config().geometry.host_pages());
        tell_cut(&report, buffered.unwrap_or(0));
        std::process::exit(0);
    });
    tracing::error!("the device did not take what survives the power cut: {status:?}");
    std::process::exit(1);
}

/// Logs the losses of a power cut, page by page up to a limit.
fn tell_cut(report: &CutReport, buffered_pages: u32) {
    const PAGES: usize = 64;
    for lost in report.lost.iter().take(PAGES) {
        tracing::info!(
            lpn = lost.lpn.0,
            blocks = lost.blocks,
            versions = lost.versions,
            "lost"
        );
    }
    tracing::info!(
        seed = report.seed,
        blocks_cached = report.blocks_cached,
        blocks_awaiting_sync = report.blocks_awaiting_sync,
        blocks_lost = report.blocks_lost,
        blocks_lost_awaiting_sync = report.blocks_lost_awaiting_sync,
        pages = report.lost.len(),
        buffered_pages_lost = buffered_pages,
        "the power was cut"
    );
}

/// Shuts the device down.
fn end(subsystem: Arc<Subsystem>, spec: &Spec) -> Result<(), ServiceError> {
    // A clean shutdown is no power cut: the cache is drained.
    if spec.volatile_cache.is_some() {
        subsystem.drain().map_err(|status| {
            ServiceError::failed(format_args!(
                "the volatile cache could not be written back: {status:?}"
            ))
        })?;
    }
    close(subsystem)
}

/// Maximum wait for threads that still hold the device.
const CLOSING: Duration = Duration::from_secs(5);

/// Powers the device off once no other thread holds it.
fn close(mut subsystem: Arc<Subsystem>) -> Result<(), ServiceError> {
    let began = Instant::now();

    let device = loop {
        // Threads that send a last response hold it for some milliseconds more.
        match Arc::try_unwrap(subsystem) {
            Ok(subsystem) => break subsystem.into_device(),
            Err(_) if began.elapsed() > CLOSING => break None,
            Err(shared) => {
                subsystem = shared;
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    };

    let device = device.ok_or_else(|| {
        ServiceError::failed(
            "the device was not closed, since something still uses it; the next start recovers as after a power cut",
        )
    })?;

    relearn::tell_saved(&device.close().map_err(ServiceError::failed)?);
    Ok(())
}

fn open(spec: &Spec) -> Result<(Device, ServiceFile, SavedHealth), ServiceError> {
    let size = match &spec.backing {
        // An image has its own shape; the description must agree with it.
        Backing::Image(dir) => {
            check_image(dir, spec)?;
            return open_image(dir);
        }
        Backing::Memory(size) => *size,
    };

    // The size of the shape may repeat it.
    if spec.shape.size.is_some_and(|asked| asked != size) {
        return Err(ServiceError::usage(
            "--size: the device in memory is as large as --memory says; leave one of them out",
        ));
    }

    let config = spec.shape.config(size)?;
    check_device(spec, &config)?;
    let file = spec.shape.service(&config)?;
    if let Some(note) = spec.shape.note(&config) {
        tracing::warn!("{note}");
    }

    Ok((
        Device::in_memory(config).map_err(ServiceError::failed)?,
        file,
        SavedHealth {
            // Nothing was served before, so there was no unclean end.
            clean: true,
            ..SavedHealth::default()
        },
    ))
}

/// Finishes deletes and formats that a power cut interrupted.
fn finish_clearing(subsystem: &Subsystem) -> Result<(), ServiceError> {
    let finished = subsystem.finish_clearing().map_err(|status| {
        ServiceError::failed(format_args!(
            "a namespace was being deleted or formatted when the power was cut, and the device refuses to go on: status {:#x}",
            status.number()
        ))
    })?;
    if finished > 0 {
        tracing::info!(namespaces = finished, "finished deleting or formatting");
    }
    Ok(())
}

/// Checks that an image is the described one, before its recovery.
fn check_image(dir: &Path, spec: &Spec) -> Result<(), ServiceError> {
    if !dir.exists() {
        return Err(ServiceError::about(
            dir.display(),
            "there is no such folder; `remap-ssd image create` makes an image",
        ));
    }
    // Opening it reports damage, with more detail.
    let Ok(config) = Device::folder_config(dir) else {
        return Ok(());
    };
    check_device(spec, &config)?;
    match ServiceFile::read(dir, config.host_lpns()) {
        Ok(service) => spec.shape.must_be(&config, &service),
        Err(_) => Ok(()),
    }
}

fn open_image(dir: &Path) -> Result<(Device, ServiceFile, SavedHealth), ServiceError> {
    let about = |error: &dyn std::fmt::Display| ServiceError::about(dir.display(), error);
    let began = Instant::now();
    let (device, report) = Device::open_in_folder(dir).map_err(|error| match error {
        OpenError::Image(ImageError::Damaged(_)) => about(&format_args!(
            "{error}; nothing was changed, and `remap-ssd image check` says what would be lost"
        )),
        error => about(&error),
    })?;

    // Checked before it is served: an inconsistency between tables would spread.
    device.ftl().check().map_err(|error| about(&error))?;
    let service = ServiceFile::load(dir, device.config().host_lpns())?;
    if service.is_of_another(dir) {
        tracing::warn!(
            image = %dir.display(),
            nqn = %service.nqn,
            "a copy of another image, with its name and serial number: hosts that reach both take them for one device. \
             `remap-ssd image adopt` gives it its own, or keeps them (--keep-name) if the other one is gone"
        );
    }

    let mut kept = SavedHealth::load(dir);
    // The last service did not end cleanly.
    if !kept.clean {
        kept.health.unsafe_shutdowns += 1;
    }

    tracing::info!(
        image = %dir.display(),
        records = report.records,
        seconds = began.elapsed().as_secs_f64(),
        clean = kept.clean,
        "recovered"
    );
    relearn::tell_recalled(&device);
    Ok((device, service, kept))
}
