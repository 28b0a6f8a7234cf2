//! `serve`: exports the device to unmodified programs: on the network, as files, and on a PCI
//! Express bus.
//!
//! Invariants: it listens on loopback addresses by default, on others only for hosts that
//! authenticate, or on demand for those on a list; this also holds for a socket passed by a
//! supervisor. SIGTERM, SIGINT, SIGQUIT and, without keys or a list to reload, SIGHUP finish
//! commands in progress and compact the image; any other end is a power cut, which the image
//! survives. A shutdown is clean only if the device was closed.

use super::access::Access;
pub use super::args::Args;
use super::fronts::{Fronts, Tick};
use super::kept::{ReservationFolder, SavedHealth, Service};
use super::log::start_log;
use super::namespaces::NamespaceFolder;
use super::recording::Recording;
use super::relearn::{self, Relearn};
use super::shape::random;
use super::writeback::Writeback;
use crate::failure::Failure;
use remap_ssd_device::{Device, OpenError};
use remap_ssd_media::image_file::ImageError;
use remap_ssd_nvme::controller::{CutReport, Health, Subsystem, statistics};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Runs `serve`.
///
/// # Errors
/// The device cannot be opened or served as asked, or it failed in service.
pub fn command(args: &Args) -> Result<(), Failure> {
    // All checks of the arguments come before the device is opened.
    let access = Access::of(args)?;
    let log = start_log(args.json_log);

    // Read before the device is opened: damaged reservations must not cost an unclean shutdown.
    let folder = args.image.clone().map(ReservationFolder);
    let kept_reservations = folder.map(|folder| {
        let all = folder.load()?;
        Ok::<_, Failure>((folder, all))
    });
    let kept_reservations = kept_reservations.transpose()?;
    let (mut device, service, kept) = open(args)?;
    if let Some((folder, _)) = &kept_reservations {
        folder.witness()?;
    }
    service.keep_apart(&mut device);

    // Counted now: if this process dies, the cycle still counts.
    let health = Health {
        power_cycles: kept.health.power_cycles + 1,
        ..kept.health
    };
    let config = device.config().clone();
    let subsystem = Subsystem::new(
        device,
        &service.nqn,
        // An image's namespaces are in its file.
        &match args.image {
            Some(_) => Vec::new(),
            None => service.specs(),
        },
        args.latency,
        args.image.is_some(),
        health,
    );
    let subsystem = subsystem.map_err(Failure::failed)?;

    // A restarted device in memory is empty, so it must not look like the previous one.
    let subsystem = match args.image {
        Some(_) => subsystem,
        None => subsystem.of_incarnation(random()),
    };

    let subsystem = match args.volatile_cache {
        Some(bytes) => subsystem.with_cache(bytes),
        None => subsystem,
    };

    let subsystem = match kept_reservations {
        Some((folder, all)) => subsystem.with_reservations(all, Box::new(folder)),
        None => subsystem,
    };

    let subsystem = match &args.image {
        Some(dir) => {
            let kept = service.kept_namespaces().map_err(Failure::failed)?;
            let store = NamespaceFolder::new(dir.clone(), service.clone());
            let subsystem = subsystem.with_namespaces(kept, Box::new(store));
            subsystem.map_err(Failure::failed)?
        }
        None => subsystem,
    };

    // Its first line describes the device, so that a replay can use the same.
    let recording = args.record.as_deref().map(Recording::create).transpose()?;
    recording
        .iter()
        .for_each(|recording| recording.device(&config));
    let subsystem = Arc::new(match &recording {
        Some(recording) => subsystem.recorded(Box::new(recording.clone())),
        None => subsystem,
    });

    finish_clearing(&subsystem)?;
    let began = Instant::now();
    let kept = |clean: bool| {
        let mut health = subsystem.health();
        health.power_on_seconds += began.elapsed().as_secs();
        SavedHealth { health, clean }
    };

    let keep = |kept: SavedHealth| args.image.iter().for_each(|dir| kept.try_save(dir));
    let writeback = args
        .image
        .as_ref()
        .map(|dir| Writeback::start(dir, Arc::downgrade(&subsystem)))
        .transpose()?;
    let relearn = Relearn::start_if_needed(args.image.as_deref(), &subsystem)?;
    let fronts = Fronts::open(args, &subsystem, &service.nqn, access, log);

    // An empty recording is removed, so that the next start finds its name free.
    let fronts = fronts.inspect_err(|_| recording.iter().for_each(Recording::discard))?;

    // Not clean until the end: after any other end the next start knows.
    keep(kept(false));

    let served = fronts.serve(&subsystem, |tick| match tick {
        // After a crash the SMART counters may be some seconds old.
        Tick::Keep => {
            keep(kept(false));
            recording.iter().for_each(Recording::flush);
        }
        Tick::Tell => tell(&subsystem),
        Tick::CutPower if args.volatile_cache.is_some() => {
            // Entries before the cut must reach the file before the cut.
            recording.iter().for_each(Recording::flush);
            cut_power(&subsystem, args.cut_seed.unwrap_or_else(random));
        }
        Tick::CutPower => {}
    });

    // Threads that use the device end first; then it can be closed.
    drop((writeback, relearn));
    recording.iter().for_each(Recording::flush);
    let clean = kept(true);
    served?;

    // A clean shutdown is no power cut: the cache is drained.
    if args.volatile_cache.is_some() {
        subsystem.drain().map_err(|status| {
            Failure::failed(format_args!(
                "the volatile cache could not be written back: {status:?}"
            ))
        })?;
    }
    close(subsystem)?;

    // 1. close the device  2. record that it was closed. Cut between: the next start counts one
    // unsafe shutdown too many.
    keep(clean);
    tracing::info!("ended in good order");
    Ok(())
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

/// Cuts the power: the volatile cache loses data as it may, and this process ends while it holds
/// the device exclusively. The next start recovers the rest, as after a killed server.
fn cut_power(subsystem: &Subsystem, seed: u64) {
    let Err(status) = subsystem.cut_power(seed, |_, report| {
        tell_cut(&report);
        std::process::exit(0);
    });
    tracing::error!("the device did not take what survives the power cut: {status:?}");
    std::process::exit(1);
}

/// Logs the losses of a power cut, page by page up to a limit.
fn tell_cut(report: &CutReport) {
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
        "the power was cut"
    );
}

/// Maximum wait for threads that still hold the device.
const CLOSING: Duration = Duration::from_secs(5);

/// Powers the device off once no other thread holds it.
fn close(mut subsystem: Arc<Subsystem>) -> Result<(), Failure> {
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
        Failure::failed(
            "the device was not closed, since something still uses it; the next start recovers as after a power cut",
        )
    })?;

    relearn::tell_saved(&device.close().map_err(Failure::failed)?);
    Ok(())
}

fn open(args: &Args) -> Result<(Device, Service, SavedHealth), Failure> {
    // An image has its own shape; the options must agree with it.
    if let Some(dir) = &args.image {
        let opened = open_image(dir)?;
        args.shape.must_be(opened.0.config(), &opened.1)?;
        return Ok(opened);
    }

    // In memory --memory gives the size; --size may repeat it.
    let size = args.memory.unwrap_or(0);
    if args.shape.size.is_some_and(|asked| asked != size) {
        return Err(Failure::usage(
            "--size: the device in memory is as large as --memory says; leave one of them out",
        ));
    }

    let config = args.shape.config(size)?;
    let service = args.shape.service(&config);

    Ok((
        Device::in_memory(config).map_err(Failure::failed)?,
        service,
        SavedHealth {
            // Nothing was served before, so there was no unclean end.
            clean: true,
            ..SavedHealth::default()
        },
    ))
}

/// Finishes deletes and formats that a power cut interrupted.
fn finish_clearing(subsystem: &Subsystem) -> Result<(), Failure> {
    let finished = subsystem.finish_clearing().map_err(|status| {
        Failure::failed(format_args!(
            "a namespace was being deleted or formatted when the power was cut, and the device refuses to go on: status {:#x}",
            status.number()
        ))
    })?;
    if finished > 0 {
        tracing::info!(namespaces = finished, "finished deleting or formatting");
    }
    Ok(())
}

fn open_image(dir: &Path) -> Result<(Device, Service, SavedHealth), Failure> {
    let about = |error: &dyn std::fmt::Display| Failure::about(dir.display(), error);
    let began = Instant::now();
    let (device, report) = Device::open_in_folder(dir).map_err(|error| match error {
        OpenError::Image(ImageError::Damaged(_)) => about(&format_args!(
            "{error}; nothing was changed, and `remap-ssd image check` says what would be lost"
        )),
        error => about(&error),
    })?;

    // Checked before it is served: an inconsistency between tables would spread.
    device.ftl().check().map_err(|error| about(&error))?;
    let service = Service::load(dir, device.config().firmware.lpns)?;
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
