//! All transports that serve a device, from opening to closing.
//!
//! Invariants: either all requested transports are open, or none is and a sentence says why; when
//! serving has ended no host can use the device. All share one clock, since the timing model has
//! one.

use super::access::{Access, Listen, Reload};
use super::args::Args;
use super::log::LogLevel;
use super::supervisor::{self, Supervisor};
use crate::failure::Failure;
use crate::watch::served::Served;
use remap_ssd_fuse::{MountError, Mounted, file_name};
use remap_ssd_http::{Limits as HttpLimits, Server as HttpServer, Token};
use remap_ssd_nvme::controller::{Gate, Subsystem};
use remap_ssd_nvme::tcp::server::{ConnectionLabel, Limits, Log, Server, Stopper};
use remap_ssd_nvme::tcp::target::Port;
use remap_ssd_vfio::{Service, ServiceError};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Interval for checking that the device still works.
const TICK: Duration = Duration::from_secs(1);
/// Ticks between two saves of the SMART counters.
const KEEP_TICKS: u32 = 10;

/// Events that the serving thread waits for.
enum ServiceEvent {
    /// SIGTERM, SIGINT or SIGQUIT; SIGHUP if there is nothing to reload and no supervisor.
    Stop,
    /// Any other SIGHUP: reload the keys and the list of hosts.
    Reload,
    /// SIGUSR1: log the counters.
    Tell,
    /// SIGUSR2: cut the power.
    CutPower,
    /// A transport has ended on its own.
    Ended(&'static str),
}

/// Periodic work while the device is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tick {
    /// Save the SMART counters.
    Keep,
    /// Log the statistics.
    Tell,
    /// Cut the power.
    CutPower,
}

/// All open transports of a device.
pub(super) struct Fronts {
    tcp: Option<(Stopper, JoinHandle<io::Result<()>>)>,
    fuse: Option<Mounted>,
    vfio: Option<Service>,
    http: Option<(HttpServer, Arc<Gate>)>,
    reload: Option<Arc<Reload>>,
    events: Receiver<ServiceEvent>,
    signals: signal_hook::iterator::Handle,
    supervisor: Supervisor,
}

struct Lines;

impl Log for Lines {
    fn connection(&self, connection: &ConnectionLabel<'_>, text: &str) {
        let ConnectionLabel { number, peer, host } = connection;
        let host = host.map(tracing::field::display);
        tracing::info!(connection = number, host, %peer, "{text}");
    }
    fn server(&self, text: &str) {
        tracing::warn!("{text}");
    }
}

impl Fronts {
    /// Opens all transports that the arguments request: NVMe/TCP by default.
    ///
    /// # Errors
    /// A transport cannot be opened; one sentence with a remedy.
    pub(super) fn open(
        args: &Args,
        subsystem: &Arc<Subsystem>,
        nqn: &str,
        access: Access,
        log: LogLevel,
    ) -> Result<Self, Failure> {
        let token = args.http_token.as_deref().map(token).transpose()?;

        // One clock for all: the timing model has one.
        let epoch = Instant::now();
        let (sender, events) = channel();

        // Before any host can connect: an unknown namespace number is more often a mistake than a
        // plan.
        access.tell_unknown(subsystem);
        let port = Port::new(subsystem.clone(), access.allowed.clone())
            .advertised(args.advertise)
            .authenticated(access.keyring.clone());
        let limits = Limits {
            memory_bytes: args.memory_limit as usize,
            ..Limits::default()
        };

        let (listen, reloadable) = access.split();
        let server = bind(epoch, listen, port, limits)?;
        let port = server.as_ref().map(Server::port);
        let reload = port
            .and_then(|port| reloadable.of_port(&port))
            .map(Arc::new);

        let vfio = args
            .vfio_user
            .as_deref()
            .map(|path| attach(epoch, path, subsystem))
            .transpose()?;

        let roster = server.as_ref().map(Server::roster);
        let http = args
            .http
            .map(|address| {
                let gate = Arc::new(Gate::new(subsystem.clone()));
                let image = args.image.as_deref();
                let served = Served::new(gate.clone(), epoch, image, nqn, roster, log);
                watch(address, served, token).map(|server| (server, gate))
            })
            .transpose()?;

        // From here on errors must clean up: the mount must be undone.
        let supervisor = Supervisor::from_env();
        let reloads = reload.is_some() || supervisor.is_there();
        let signals = heed_signals(sender.clone(), reloads).map_err(Failure::failed)?;

        // Mounted second to last: a mount is visible to others, and must be undone.
        let fuse = args
            .fuse
            .as_deref()
            .map(|folder| mount(epoch, folder, subsystem, sender.clone()))
            .transpose()?;
        let tcp = server.map(|server| run(server, nqn, sender)).transpose()?;

        Ok(Self {
            tcp,
            fuse,
            vfio,
            http,
            reload,
            events,
            signals,
            supervisor,
        })
    }

    /// Serves until a signal arrives, the last transport ends on its own, or the device fails.
    /// Calls `tick` periodically.
    ///
    /// # Errors
    /// The firmware or the disk under it has failed.
    pub(super) fn serve(
        mut self,
        subsystem: &Subsystem,
        mut tick: impl FnMut(Tick),
    ) -> Result<(), Failure> {
        supervisor::ready();

        let (mut ticks, mut next_tick) = (0, Instant::now() + TICK);

        let mut open = [self.tcp.is_some(), self.fuse.is_some(), self.vfio.is_some()]
            .map(u32::from)
            .iter()
            .sum::<u32>();

        while open > 0 && !subsystem.is_broken() {
            // Notifies the supervisor only from this loop: if it hangs, the watchdog expires.
            self.supervisor.alive(subsystem);
            let left = next_tick.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(self.supervisor.patience(left)) {
                Ok(ServiceEvent::Stop) => break,
                Ok(ServiceEvent::Reload) => self.reload(),
                Ok(ServiceEvent::Tell) => tick(Tick::Tell),
                Ok(ServiceEvent::CutPower) => tick(Tick::CutPower),
                Ok(ServiceEvent::Ended(what)) => {
                    tracing::info!("{what} has ended");
                    open -= 1;
                }
                // A wake-up for the watchdog is no tick.
                Err(_) if Instant::now() < next_tick => {}
                Err(_) => {
                    next_tick = Instant::now() + TICK;
                    ticks += 1;
                    if ticks % KEEP_TICKS == 0 {
                        tick(Tick::Keep);
                    }
                }
            }
        }

        self.close(subsystem)
    }

    /// Starts a reload of keys and names; the supervisor is notified at its start and end.
    fn reload(&self) {
        supervisor::reloading();
        if let Some(reload) = &self.reload {
            reload.start(supervisor::ready);
        } else {
            tracing::info!("nothing to load again: there are neither keys nor a list of hosts");
            supervisor::ready();
        }
    }

    /// Closes all transports, after commands in progress.
    fn close(&mut self, subsystem: &Subsystem) -> Result<(), Failure> {
        // First, so that the supervisor does not count the shutdown as silence.
        supervisor::stopping();
        self.signals.close();

        // HTTP first: a backup ends here, and no request needs the device while it closes.
        if let Some((server, gate)) = self.http.take() {
            gate.close();
            drop(server);
        }

        // Files next: a program with an open file may wait for its response.
        let fuse = self.fuse.take().map(|mounted| {
            let folder = mounted.mountpoint().display().to_string();
            match mounted.unmount() {
                Ok(true) => Ok(()),
                Ok(false) => {
                    tracing::warn!("{folder} was in use: programs that have its files open get errors, since the device is gone");
                    Ok(())
                }
                Err(error) => Err(Failure::about(folder, error)),
            }
        });

        let tcp = self.tcp.take().map(|(stopper, thread)| {
            stopper.stop();
            match thread.join() {
                Ok(result) => result.map_err(Failure::failed),
                Err(_) => Err(Failure::failed("a thread of the service has failed")),
            }
        });

        let vfio = self
            .vfio
            .take()
            .map(|service| service.close().map_err(Failure::failed));

        // A failed device is the error to report, before any other.
        if subsystem.is_broken() {
            let what = match subsystem.disk_failure() {
                Some(why) => format!("the disk under the image has failed: {why}"),
                None => "the firmware has failed".into(),
            };
            tracing::error!("{what}; nothing was acknowledged or written since");
            return Err(Failure::failed(what));
        }

        // The first failure is reported; all of them were closed.
        fuse.into_iter().chain(tcp).chain(vfio).collect()
    }
}

/// Handles signals that would end the process by default without an intended power cut.
///
/// With keys or a list of hosts, SIGHUP requests a reload, even under `nohup`. A supervisor's
/// SIGHUP never means that a terminal is gone.
fn heed_signals(
    events: Sender<ServiceEvent>,
    reloads: bool,
) -> io::Result<signal_hook::iterator::Handle> {
    // With this signal at its default a write beyond the file size limit would end the process,
    // instead of failing like one to a full disk.
    let mut heeded = vec![SIGTERM, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGXFSZ];

    // A shell's `nohup` ignores it already; that is kept unless it requests a reload here.
    if reloads || !is_ignored(SIGHUP) {
        heeded.push(SIGHUP);
    }

    let mut signals = signal_hook::iterator::Signals::new(heeded)?;
    let handle = signals.handle();

    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                let _ = match signal {
                    SIGUSR1 => events.send(ServiceEvent::Tell),
                    SIGUSR2 => events.send(ServiceEvent::CutPower),
                    // Only caught: the write fails with an error, which the service handles.
                    SIGXFSZ => Ok(()),
                    SIGHUP if reloads => events.send(ServiceEvent::Reload),
                    _ => events.send(ServiceEvent::Stop),
                };
            }
        })?;

    Ok(handle)
}

/// Returns true if the signal was ignored when the program started, as under `nohup`.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.unwrap_or(0) >> (signal - 1) & 1 == 1
}

/// Listens on the requested addresses, if any.
fn bind(
    epoch: Instant,
    listen: Listen,
    port: Port,
    limits: Limits,
) -> Result<Option<Server>, Failure> {
    let bound = match listen {
        // Without an address the service uses other transports.
        Listen::At(addresses) if addresses.is_empty() => return Ok(None),
        Listen::At(addresses) => {
            Server::bind_since(epoch, &addresses, port, Box::new(Lines), limits)
        }
        Listen::On(socket) => Server::on(epoch, vec![socket], port, Box::new(Lines), limits),
    };

    // The two that an operator can fix get advice.
    bound.map(Some).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => Failure::failed(format_args!(
            "{error}: stop what listens there, or choose another with --listen"
        )),
        io::ErrorKind::AddrNotAvailable => Failure::failed(format_args!(
            "{error}: it is no address of this machine (--listen)"
        )),
        _ => Failure::failed(error),
    })
}

fn token(file: &Path) -> Result<Token, Failure> {
    Token::load(file).map_err(|error| Failure::about(file.display(), error))
}

/// Starts the HTTP server for operators.
fn watch(address: SocketAddr, served: Served, token: Option<Token>) -> Result<HttpServer, Failure> {
    let limits = HttpLimits::default();
    let started = HttpServer::start(address, Arc::new(served), token, limits);
    let server = started.map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => Failure::usage(format_args!(
            "{address} can be reached from elsewhere: say who may ask, with --http-token FILE"
        )),
        io::ErrorKind::AddrInUse => Failure::about(
            address,
            "the address is in use; stop what listens there, or choose another with --http",
        ),
        _ => Failure::about(address, error),
    })?;
    tracing::info!(http = %format_args!("http://{}/", server.address()), "serving");
    Ok(server)
}

fn run(
    server: Server,
    nqn: &str,
    events: Sender<ServiceEvent>,
) -> Result<(Stopper, JoinHandle<io::Result<()>>), Failure> {
    let (addresses, stopper) = (
        server.addresses().map_err(Failure::failed)?,
        server.stopper().map_err(Failure::failed)?,
    );

    let spawned = std::thread::Builder::new()
        .name("nvme/tcp".into())
        .spawn(move || {
            let result = server.run();
            // Tells the service that this transport ended; the result of the thread says why.
            let _ = events.send(ServiceEvent::Ended("NVMe/TCP"));
            result
        });

    for address in addresses {
        tracing::info!(%address, %nqn, "serving");
    }

    Ok((stopper, spawned.map_err(Failure::failed)?))
}

fn mount(
    epoch: Instant,
    folder: &Path,
    subsystem: &Arc<Subsystem>,
    events: Sender<ServiceEvent>,
) -> Result<Mounted, Failure> {
    let ended = move || drop(events.send(ServiceEvent::Ended("the mount")));
    let mounted = Mounted::mount(Gate::new(subsystem.clone()), folder, epoch, ended);
    let mounted = mounted.map_err(|error: MountError| Failure::about(folder.display(), error))?;
    for namespace in subsystem.namespaces() {
        let file = mounted.mountpoint().join(file_name(namespace.nsid));
        tracing::info!(file = %file.display(), "serving");
    }
    Ok(mounted)
}

fn attach(epoch: Instant, path: &Path, subsystem: &Arc<Subsystem>) -> Result<Service, Failure> {
    let log = Box::new(|text: &str| tracing::info!("vfio-user: {text}"));
    let service = Service::start(subsystem, path, epoch, log);
    let service = service.map_err(|error: ServiceError| Failure::about(path.display(), error))?;
    tracing::info!(socket = %path.display(), "serving");
    Ok(service)
}
