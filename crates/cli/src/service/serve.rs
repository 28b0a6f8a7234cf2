//! `serve`: the device on the network, as NVMe/TCP.
//!
//! Invariants: it listens on the loopback unless told otherwise, and then only to hosts on a list; SIGTERM finishes what
//! is under way and leaves the image in its shortest form; any other end is a power cut, which the image survives.

use super::image::Shape;
use super::kept::{Kept, Service};
use crate::failure::Failure;
use crate::numbers;
use remap_ssd_device::Device;
use remap_ssd_nvme::controller::{Health, Latency, Subsystem};
use remap_ssd_nvme::tcp::server::{Log, Server};
use remap_ssd_nvme::tcp::target::{Allowed, Port};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Serves a device over NVMe/TCP: unmodified Linux connects with `nvme connect`.
///
/// What is acknowledged survives the end of this process at any instant, and a crash of the machine up to the last flush.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A device that `image create` made.
    #[arg(long, value_name = "DIR", conflicts_with = "memory", required_unless_present = "memory")]
    pub image: Option<PathBuf>,
    /// A new device in memory, gone when the service ends.
    #[arg(long, value_name = "SIZE", value_parser = numbers::size)]
    pub memory: Option<u64>,
    /// Where to listen.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:4420")]
    pub listen: SocketAddr,
    /// Completions as fast as the machine goes, or when the flash would have done it.
    #[arg(long, value_name = "none|emulated", default_value = "none", value_parser = latency)]
    pub latency: Latency,
    /// A host that may connect: its address, or its name (NQN). May be given several times.
    #[arg(long, value_name = "HOST")]
    pub allow: Vec<String>,
    /// One JSON object a line instead of text.
    #[arg(long)]
    pub json_log: bool,
    /// What it is like.
    #[command(flatten)]
    pub shape: Shape,
}

const EXAMPLES: &str = "\
Examples:
  remap-ssd image create disk --size 2GiB && remap-ssd serve --image disk
  remap-ssd serve --memory 1GiB --latency emulated
  remap-ssd serve --image disk --listen 0.0.0.0:4420 --allow 192.168.1.7

On a Linux host:
  modprobe nvme-tcp
  nvme discover -t tcp -a 127.0.0.1 -s 4420
  nvme connect-all -t tcp -a 127.0.0.1 -s 4420";

fn latency(text: &str) -> Result<Latency, String> {
    match text {
        "none" => Ok(Latency::None),
        "emulated" => Ok(Latency::Emulated),
        _ => Err("none or emulated".into()),
    }
}

struct Lines;

impl Log for Lines {
    fn connection(&self, peer: SocketAddr, text: &str) {
        tracing::info!(%peer, "{text}");
    }
}

fn allowed(args: &Args) -> Result<Allowed, Failure> {
    if args.allow.is_empty() {
        if !args.listen.ip().is_loopback() {
            return Err(Failure::usage(format_args!(
                "{} can be reached from elsewhere: say who may connect, with --allow ADDRESS or --allow NQN",
                args.listen
            )));
        }
        return Ok(Allowed { anybody: true, ..Allowed::default() });
    }
    let mut allowed = Allowed::default();
    for host in &args.allow {
        match host.parse::<IpAddr>() {
            Ok(address) => allowed.addresses.push(address),
            Err(_) if host.starts_with("nqn.") => allowed.names.push(host.clone()),
            Err(_) => return Err(Failure::usage(format_args!("`{host}` is neither an address nor an NQN"))),
        }
    }
    Ok(allowed)
}

fn start_log(args: &Args) {
    let log = tracing_subscriber::fmt().with_writer(std::io::stderr).with_target(false);
    // Fails only if there is a log already.
    let _ = if args.json_log { log.json().try_init() } else { log.with_ansi(false).try_init() };
}

/// Runs `serve`.
///
/// # Errors
/// The device cannot be opened, the address is in use, or the device failed in service.
pub fn command(args: &Args) -> Result<(), Failure> {
    let allowed = allowed(args)?;
    start_log(args);
    let (device, service, kept) = open(args)?;
    let health = Health { power_cycles: kept.health.power_cycles + 1, ..kept.health };
    let subsystem = Subsystem::new(device, &service.nqn, &service.specs(), args.latency, args.image.is_some(), health);
    let subsystem = Arc::new(subsystem.map_err(Failure::failed)?);
    let began = Instant::now();
    let keep = |clean: bool| match &args.image {
        Some(dir) => {
            let mut health = subsystem.health();
            health.power_on_seconds += began.elapsed().as_secs();
            Kept { health, clean }.save(dir)
        }
        None => Ok(()),
    };
    let port = Port::new(subsystem.clone(), allowed);
    let server = Server::bind(args.listen, port, Box::new(Lines));
    let server = server.map_err(|error| cannot_listen(args.listen, &error))?;
    let (address, stopper) = (server.address().map_err(Failure::failed)?, server.stopper().map_err(Failure::failed)?);
    keep(false)?;
    tracing::info!(%address, nqn = %service.nqn, "serving");
    let mut signals = signal_hook::iterator::Signals::new([signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT])
        .map_err(Failure::failed)?;
    let handle = signals.handle();
    let result = std::thread::scope(|scope| {
        scope.spawn(move || {
            if signals.forever().next().is_some() {
                stopper.stop();
            }
        });
        let ended = std::sync::mpsc::channel::<()>();
        let (end, wait) = ended;
        let keep = &keep;
        scope.spawn(move || {
            while wait.recv_timeout(Duration::from_secs(10)) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                // What SMART counts may be some seconds old after a crash; the next one to ask gets an error, if any.
                let _ = keep(false);
            }
        });
        let result = server.run();
        drop(end);
        handle.close();
        result
    });
    result.map_err(Failure::failed)?;
    keep(true)?;
    if let Some(device) = Arc::into_inner(subsystem).and_then(Subsystem::into_device) {
        device.close().map_err(Failure::failed)?;
    }
    tracing::info!("ended in good order");
    Ok(())
}

fn cannot_listen(address: SocketAddr, error: &std::io::Error) -> Failure {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            Failure::about(address, "the address is in use; stop what listens there, or choose another with --listen")
        }
        _ => Failure::about(address, error),
    }
}

fn open(args: &Args) -> Result<(Device, Service, Kept), Failure> {
    if let Some(dir) = &args.image {
        return open_image(dir);
    }
    let size = args.memory.or(args.shape.size).unwrap_or(0);
    let config = args.shape.config(size)?;
    let service = args.shape.service(&config);
    Ok((Device::format(config).map_err(Failure::failed)?, service, Kept { clean: true, ..Kept::default() }))
}

fn open_image(dir: &Path) -> Result<(Device, Service, Kept), Failure> {
    let about = |error: &dyn std::fmt::Display| Failure::about(dir.display(), error);
    let began = Instant::now();
    let (device, report) = Device::open_in_folder(dir).map_err(|error| about(&error))?;
    device.ftl().check().map_err(|error| about(&error))?;
    let service = Service::load(dir)?;
    let mut kept = Kept::load(dir)?;
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
    Ok((device, service, kept))
}
