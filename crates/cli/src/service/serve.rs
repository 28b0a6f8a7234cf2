//! `serve`: exports the device to unmodified programs: on the network, as files, and on a PCI
//! Express bus.
//!
//! Invariants: it listens on loopback addresses by default, on others only for hosts that
//! authenticate, or on demand for those on a list; this also holds for a socket passed by a
//! supervisor. SIGTERM, SIGINT, SIGQUIT and, without keys or a list to reload, SIGHUP finish
//! commands in progress and compact the image; any other end is a power cut, which the image
//! survives. A shutdown is clean only if the device was closed.

use super::access::{Access, ListenAt};
use super::fronts::{Fronts, Tick};
use super::kept::{ReservationFolder, SavedHealth, Service};
use super::log::start_log;
use super::namespaces::NamespaceFolder;
use super::recording::Recording;
use super::relearn::{self, Relearn};
use super::shape::{DeviceShape, random};
use super::writeback::Writeback;
use crate::failure::Failure;
use crate::numbers;
use remap_ssd_device::{Device, OpenError};
use remap_ssd_media::image_file::ImageError;
use remap_ssd_nvme::controller::{
    CACHE_BYTES_MIN, CutReport, Health, Latency, Subsystem, statistics,
};
use remap_ssd_nvme::tcp::server::MEMORY_BYTES_MIN;
use remap_ssd_nvme::tcp::target::Advertised;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Serves a device: over NVMe/TCP, where unmodified Linux connects with `nvme connect`, as files in
/// a folder, or as a PCI Express function of a virtual machine; any of them at once.
///
/// Acknowledged data survive the end of this process at any instant, and a crash of the machine if
/// they were flushed. With --volatile-cache they survive the end of the process only if they were
/// flushed or written with FUA.
///
/// Signals: SIGTERM, SIGINT, SIGQUIT and SIGHUP shut the service down cleanly (SIGHUP is ignored
/// under `nohup`); with --keys or --allow, or under systemd, SIGHUP reloads the keys and resolves
/// names again, without dropping hosts; SIGUSR1 logs statistics; SIGUSR2 cuts the power with
/// --volatile-cache, and is ignored without.
///
/// Exit code 0 after a clean shutdown or a power cut, 1 if the device or the disk under it failed,
/// 2 for invalid arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES_SHORT, after_long_help = EXAMPLES)]
pub struct Args {
    /// Folder of a device that `image create` made.
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with = "memory",
        required_unless_present = "memory"
    )]
    pub image: Option<PathBuf>,
    /// Serve a new device in memory, lost when the server ends.
    #[arg(long, value_name = "SIZE", value_parser = numbers::size)]
    pub memory: Option<u64>,

    /// Listen here for NVMe/TCP; may be repeated [default: 127.0.0.1:4420].
    ///
    /// An address, or a name, which stands for all of its addresses. Each is a portal to the same
    /// device: hosts with multipath switch to another one when a portal fails or `ctl ana` makes it
    /// inaccessible. With --fuse or --vfio-user there is no default.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = ListenAt::parse, help_heading = "Connections")]
    pub listen: Vec<ListenAt>,
    /// Empty folder to mount with FUSE.
    ///
    /// The namespaces appear as files `n1`, `n2`, ... in it.
    #[arg(long, value_name = "FOLDER", help_heading = "Connections")]
    pub fuse: Option<PathBuf>,
    /// Socket to create for vfio-user.
    ///
    /// A virtual machine sees the device as PCI Express NVMe.
    #[arg(long, value_name = "SOCKET", help_heading = "Connections")]
    pub vfio_user: Option<PathBuf>,
    /// Listen here for HTTP: metrics, health, a live page, `ctl`.
    ///
    /// Metrics are for Prometheus. Port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Connections")]
    pub http: Option<SocketAddr>,
    /// File of mode 600 with a token that authorizes the verbs of `ctl`.
    ///
    /// Required for addresses other than loopback.
    #[arg(
        long,
        value_name = "FILE",
        requires = "http",
        hide_short_help = true,
        help_heading = "Connections"
    )]
    pub http_token: Option<PathBuf>,
    /// Address that discovery announces to hosts.
    ///
    /// For address translation, where it differs from --listen.
    #[arg(
        long,
        value_name = "ADDRESS[:PORT]",
        value_parser = advertised,
        hide_short_help = true,
        help_heading = "Connections"
    )]
    pub advertise: Option<Advertised>,
    /// Memory for the buffers of NVMe/TCP connections.
    ///
    /// Does not include the device itself. One host may use half of it; beyond that, commands wait
    /// for memory, and fail after 20 s with a status that asks the host to retry.
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "512MiB",
        value_parser = memory_limit,
        hide_short_help = true,
        help_heading = "Connections"
    )]
    pub memory_limit: u64,

    /// File with the keys that hosts must prove: TLS, DH-HMAC-CHAP.
    ///
    /// A file of mode 600 with a line per host, `NQN KEY...`. A host with a TLS key,
    /// `NVMeTLSkey-1:...` from `nvme gen-tls-key`, must connect with TLS 1.3; one with a secret,
    /// `DHHC-1:...` from `nvme gen-dhchap-key`, must authenticate (DH-HMAC-CHAP). Options after the
    /// key: until=YYYY-MM-DD; namespaces=1:rw,2:ro (it sees only these, and may only read the
    /// second; all:rw by default); for secrets also controller=DHHC-1:... (the server proves itself
    /// to hosts that request it), hash=sha256|sha384|sha512 and group=null|ffdhe2048|...|ffdhe8192
    /// (the weakest allowed; by default sha256 and ffdhe2048).
    #[arg(long, value_name = "FILE", help_heading = "Hosts")]
    pub keys: Option<PathBuf>,
    /// Accept only this host; may be repeated.
    ///
    /// By address, network (192.168.1.0/24), DNS name, or NQN. With --keys, hosts must authenticate
    /// as well. The same argument may restrict the host's namespaces after its name, 'HOST
    /// namespaces=1:rw,2:ro'; all by default. SIGHUP resolves names again.
    #[arg(long, value_name = "HOST", help_heading = "Hosts")]
    pub allow: Vec<String>,
    /// Listen on addresses other than loopback without authentication.
    ///
    /// The identity claimed by hosts on the list (--allow) is trusted.
    #[arg(
        long,
        conflicts_with = "keys",
        hide_short_help = true,
        help_heading = "Hosts"
    )]
    pub insecure: bool,

    /// Complete commands at once, or when flash would.
    ///
    /// `none` adds no latency; `emulated` completes a command when flash would have completed it.
    #[arg(long, value_name = "none|emulated", default_value = "none", value_parser = latency, help_heading = "Behaviour")]
    pub latency: Latency,
    /// Record all commands here; `compare --trace` replays them.
    ///
    /// It must be a new file.
    #[arg(long, value_name = "FILE", help_heading = "Behaviour")]
    pub record: Option<PathBuf>,
    /// A volatile write cache, to see what hosts lose.
    ///
    /// It holds writes that were neither flushed nor FUA. On power loss each block independently
    /// keeps any version since its last durable one; if the server is killed, the durable one.
    #[arg(long, value_name = "SIZE", value_parser = cache_size, hide_short_help = true, help_heading = "Behaviour")]
    pub volatile_cache: Option<u64>,
    /// Seed for the losses of the volatile cache at SIGUSR2.
    ///
    /// Default: a random one, which is logged.
    #[arg(
        long,
        value_name = "N",
        requires = "volatile_cache",
        hide_short_help = true,
        help_heading = "Behaviour"
    )]
    pub cut_seed: Option<u64>,
    /// Log one JSON object per line instead of text.
    #[arg(long, hide_short_help = true, help_heading = "Behaviour")]
    pub json_log: bool,

    /// Scheme, size and settings of a new device.
    #[command(flatten)]
    pub shape: DeviceShape,
}

const EXAMPLES_SHORT: &str = "\
Examples:
  remap-ssd serve --memory 1GiB --latency emulated
  remap-ssd image create disk --size 2GiB && remap-ssd serve --image disk
  nvme connect-all -t tcp -a 127.0.0.1 -s 4420

--help shows all options (tokens, limits, namespaces, volatile cache, ...) and examples of TLS,
authentication, files and virtual machines.";

const EXAMPLES: &str = "\
Examples:
  remap-ssd image create disk --size 2GiB && remap-ssd serve --image disk
  remap-ssd serve --memory 1GiB --latency emulated

For other machines, whose hosts must know a secret:
  echo \"nqn.2026-11.com.example:db1 $(nvme gen-dhchap-key -m 1 -n nqn.2026-11.com.example:db1)\" > keys; chmod 600 keys
  remap-ssd serve --image disk --listen 0.0.0.0:4420 --keys keys          # kill -HUP loads the keys again
  nvme connect-all -t tcp -a 192.168.1.2 -s 4420 -q nqn.2026-11.com.example:db1 --dhchap-secret DHHC-1:...

Encrypted, by TLS:
  echo \"nqn.2026-11.com.example:db1 $(nvme gen-tls-key -m 1)\" > keys; chmod 600 keys; cut -d ' ' -f 2 keys > db1.key
  remap-ssd serve --image disk --listen 0.0.0.0:4420 --keys keys
  remap-ssd io --connect 192.168.1.2:4420 --hostnqn nqn.2026-11.com.example:db1 --secret db1.key id

In a network in which every host is trusted:
  remap-ssd serve --image disk --listen 0.0.0.0:4420 --insecure --allow 192.168.1.0/24
  remap-ssd serve --image disk --listen disk1:4420 --insecure --allow db1 --allow 'backup namespaces=all:ro'

Two portals, between which a Linux host with multipath changes:
  remap-ssd serve --image disk --listen 127.0.0.1:4420 --listen 127.0.0.1:4421
  nvme connect-all -t tcp -a 127.0.0.1 -s 4420

Metrics, a page to look at, and verbs:
  (umask 077; head -c 24 /dev/urandom | base64 > token)
  remap-ssd serve --image disk --http 127.0.0.1:9420 --http-token token
  remap-ssd ctl --connect 127.0.0.1:9420 --token token hosts

On a Linux host:
  modprobe nvme-tcp
  nvme discover -t tcp -a 127.0.0.1 -s 4420
  nvme connect-all -t tcp -a 127.0.0.1 -s 4420

As a file, without NVMe modules:
  mkdir folder && remap-ssd serve --image disk --fuse folder
  losetup --find --show --direct-io=on --sector-size 4096 folder/n1     # then mkfs, mount, fstrim

What hosts lose when the power fails:
  remap-ssd serve --image disk --volatile-cache 64MiB --cut-seed 7 & ...; kill -USR2 %1

What a host does, on other schemes:
  remap-ssd serve --memory 1GiB --record session.trace
  remap-ssd compare --trace session.trace

As a PCI Express function of a virtual machine, with QEMU 10.1 or newer:
  remap-ssd serve --image disk --vfio-user /tmp/nvme.sock
  qemu-system-x86_64 -m 2G -object memory-backend-memfd,id=mem,size=2G,share=on -machine memory-backend=mem \\
    -device '{\"driver\":\"vfio-user-pci\",\"socket\":{\"path\":\"/tmp/nvme.sock\",\"type\":\"unix\"}}' ...";

fn latency(text: &str) -> Result<Latency, String> {
    match text {
        "none" => Ok(Latency::None),
        "emulated" => Ok(Latency::Emulated),
        _ => Err("none or emulated".into()),
    }
}

fn memory_limit(text: &str) -> Result<u64, String> {
    let bytes = numbers::size(text)?;
    match usize::try_from(bytes) {
        Ok(bytes) if bytes >= MEMORY_BYTES_MIN => Ok(bytes as u64),
        _ => Err(format!("at least {} MiB", MEMORY_BYTES_MIN >> 20)),
    }
}

fn cache_size(text: &str) -> Result<u64, String> {
    match numbers::size(text)? {
        bytes if bytes >= CACHE_BYTES_MIN => Ok(bytes),
        _ => Err(format!("at least {} KiB", CACHE_BYTES_MIN >> 10)),
    }
}

fn advertised(text: &str) -> Result<Advertised, String> {
    let whole = text.parse::<SocketAddr>().map(|whole| Advertised {
        address: whole.ip(),
        port: Some(whole.port()),
    });
    let address = || {
        text.parse().map(|address| Advertised {
            address,
            port: None,
        })
    };
    whole
        .or_else(|_| address())
        .map_err(|_| "an address, or an address and a port".into())
}

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
