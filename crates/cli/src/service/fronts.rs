//! Everything a device is served through at once, from the first to the last moment.
//!
//! Invariants: either all ways of serving that were asked for are open, or none and a sentence says
//! why; when serving has ended nobody is left who could use the device. All have one clock, since
//! the timing model has one.

use super::access::{Access, Listen, Reload};
use super::log::LogLevel;
use super::serve::Args;
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

/// How often it is looked whether the device still works.
const TICK: Duration = Duration::from_secs(1);
/// Ticks between two times of keeping what SMART counts.
const KEEP_TICKS: u32 = 10;

/// What the thread that serves waits for.
enum ServiceEvent {
    /// SIGTERM, SIGINT or SIGQUIT; SIGHUP if there is neither something to load again nor a
    /// supervisor.
    Stop,
    /// SIGHUP otherwise: keys and the list of hosts are to be loaded again.
    Reload,
    /// SIGUSR1: what is counted is to be logged.
    Tell,
    /// SIGUSR2: the power is to be cut.
    CutPower,
    /// A way of serving has ended by itself.
    Ended(&'static str),
}

/// Periodic work while the device is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tick {
    /// The counters of SMART are to be saved.
    Keep,
    /// Statistics are due in the log.
    Tell,
    /// The power is to be cut.
    CutPower,
}

/// All ways in which a device is served.
pub struct Fronts {
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
    /// Opens all that the arguments ask for: NVMe/TCP if they ask for nothing else.
    ///
    /// # Errors
    /// Something cannot be, in one sentence with what to do.
    pub fn open(
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

        // Before anybody can connect: a number that names no namespace is more often a mistake than
        // a plan.
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

        // From here on nothing is left behind: what is mounted must be unmounted.
        let supervisor = Supervisor::from_env();
        let reloads = reload.is_some() || supervisor.is_there();
        let signals = heed_signals(sender.clone(), reloads).map_err(Failure::failed)?;

        // Mounted last but one: a mount is seen by others, and must be undone.
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

    /// Serves until a signal comes, the last way of serving ends by itself, or the device fails.
    /// `tick` is called now and then.
    ///
    /// # Errors
    /// The firmware or the disk under it has failed.
    pub fn serve(
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
            // Shown to the supervisor only from this loop: if it hangs, the watchdog finds out.
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
                // Waking up for the watchdog is no tick.
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

    /// Has keys and names loaded again; the supervisor is told when that begins and ends.
    fn reload(&self) {
        supervisor::reloading();
        if let Some(reload) = &self.reload {
            reload.start(supervisor::ready);
        } else {
            tracing::info!("nothing to load again: there are neither keys nor a list of hosts");
            supervisor::ready();
        }
    }

    /// Ends all, after what is under way.
    fn close(&mut self, subsystem: &Subsystem) -> Result<(), Failure> {
        // Said first, so that the supervisor does not count the time it takes as silence.
        supervisor::stopping();
        self.signals.close();

        // Operators first: a backup ends here, and nobody asks for the device while it closes.
        if let Some((server, gate)) = self.http.take() {
            gate.close();
            drop(server);
        }

        // Who has a file open may wait for its answer: the files first.
        let fuse = self.fuse.take().map(|mounted| {
            let folder = mounted.mountpoint().display().to_string();
            match mounted.unmount() {
                Ok(true) => Ok(()),
                Ok(false) => {
                    tracing::warn!("{folder} was in use: whoever has its files open is told that the device is gone");
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

        // A device that has failed is the reason that counts, whatever else went wrong.
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

/// Signals that would end the process by default although nobody meant to cut the power.
///
/// With keys or a list of hosts, SIGHUP asks for them to be loaded again: whoever started this under
/// `nohup` may send it too. A supervisor's never means that a terminal is gone.
fn heed_signals(
    events: Sender<ServiceEvent>,
    reloads: bool,
) -> io::Result<signal_hook::iterator::Handle> {
    // Without this signal a write beyond the file size limit fails like one to a full disk.
    let mut heeded = vec![SIGTERM, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGXFSZ];

    // A shell's `nohup` has it ignored already, which is left so unless it means something here.
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

/// Whether the signal was already ignored when the program started, as under `nohup`.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.unwrap_or(0) >> (signal - 1) & 1 == 1
}

/// Listens where it was asked to, if anywhere.
fn bind(
    epoch: Instant,
    listen: Listen,
    port: Port,
    limits: Limits,
) -> Result<Option<Server>, Failure> {
    let bound = match listen {
        // No address is a way of serving, too: by a socket, or by a bus.
        Listen::At(addresses) if addresses.is_empty() => return Ok(None),
        Listen::At(addresses) => {
            Server::bind_since(epoch, &addresses, port, Box::new(Lines), limits)
        }
        Listen::On(socket) => Server::on(epoch, vec![socket], port, Box::new(Lines), limits),
    };

    // The two that an operator can do something about say what.
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

/// Answers operators who ask by HTTP.
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
            // The service learns here that it has ended, and why when it joins the thread.
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
