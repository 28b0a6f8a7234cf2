//! All transports that serve a device, from opening to closing.
//!
//! Invariants: no host, guest or operator can act before `begin`; if a transport cannot be opened
//! or begun, none stays open and a sentence says why; when serving has ended no host can use the
//! device. All share one clock, since the timing model has one.

use crate::access::{Access, Reload};
use crate::error::ServiceError;
use crate::served::Served;
use crate::spec::Spec;
use crate::supervisor::Supervisor;
use remap_ssd_fuse::{MountError, Mounted, file_name};
use remap_ssd_http::{Bound as HttpBound, Limits as HttpLimits, Server as HttpServer, Token};
use remap_ssd_nvme::controller::{Gate, Subsystem};
use remap_ssd_nvme::tcp::server::{ConnectionLabel, Limits, Log, Server, Stopper};
use remap_ssd_nvme::tcp::target::Port;
use remap_ssd_vfio::{Bound as VfioBound, Service as VfioService};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
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
    Stop,
    Reload,
    Tell,
    CutPower,
    /// A transport has ended on its own.
    Ended(&'static str),
}

/// Controls a service from other threads, e.g. one that waits for signals. After the end of the
/// service it has no effect.
#[derive(Clone)]
pub struct Handle(Sender<ServiceEvent>);

impl Handle {
    /// Ends the service after commands in progress.
    pub fn stop(&self) {
        self.send(ServiceEvent::Stop);
    }

    /// Loads the keys again and resolves the names of hosts again. If anything is invalid, nothing
    /// changes. Connected hosts stay, unless they may no longer connect.
    pub fn reload(&self) {
        self.send(ServiceEvent::Reload);
    }

    /// Logs the firmware's counters and SMART.
    pub fn log_statistics(&self) {
        self.send(ServiceEvent::Tell);
    }

    /// Cuts the power of a service with a volatile cache, or a device whose write buffer is volatile: these lose data as they may, and
    /// **this process ends**, so that the next start recovers: with exit code 0, or with 1 if the
    /// device did not take what survives. Without either it has no effect.
    pub fn cut_power(&self) {
        self.send(ServiceEvent::CutPower);
    }

    fn send(&self, event: ServiceEvent) {
        let _ = self.0.send(event);
    }
}

/// Periodic work while the device is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tick {
    /// Save the SMART counters.
    Keep,
    /// Log the statistics.
    Tell,
    /// Cut the power.
    CutPower,
}

/// All open transports of a device.
pub(crate) struct Fronts {
    epoch: Instant,
    /// Bound, and not yet running; hosts, guests and operators that connect wait.
    server: Option<Server>,
    vfio_bound: Option<VfioBound>,
    http_bound: Option<HttpBound>,
    tcp: Option<(Stopper, JoinHandle<io::Result<()>>)>,
    fuse: Option<Mounted>,
    vfio: Option<VfioService>,
    http: Option<(HttpServer, Arc<Gate>)>,
    reload: Option<Arc<Reload>>,
    events: Receiver<ServiceEvent>,
    sender: Sender<ServiceEvent>,
    supervisor: Supervisor,
}

/// Sockets, bound before the device is opened: what is in use is reported before a recovery begins.
pub(crate) struct Bound {
    access: Access,
    vfio: Option<VfioBound>,
    http: Option<HttpBound>,
}

impl Bound {
    /// Binds all sockets. Connections wait for [`Fronts::begin`].
    ///
    /// # Errors
    /// A socket cannot be bound, or every host on the network would have access; one sentence with a remedy.
    pub(crate) fn of(spec: &Spec) -> Result<Self, ServiceError> {
        let access = Access::of(spec)?;
        let token = spec.http_token.as_deref().map(token).transpose()?;
        let vfio = spec.vfio_user.as_deref().map(|path| {
            VfioBound::bind(path).map_err(|error| ServiceError::about(path.display(), error))
        });
        let http = spec.http.map(|address| bind_http(address, token));
        Ok(Self {
            access,
            vfio: vfio.transpose()?,
            http: http.transpose()?,
        })
    }
}

struct Lines;

impl Log for Lines {
    fn connection(&self, connection: &ConnectionLabel<'_>, text: &str) {
        let ConnectionLabel { number, peer, host } = connection;
        let host = host.map(tracing::field::display);
        tracing::info!(connection = number, host, %peer, "{text}");
    }
    fn detail(&self, connection: &ConnectionLabel<'_>, text: &str) {
        let ConnectionLabel { number, peer, host } = connection;
        let host = host.map(tracing::field::display);
        tracing::debug!(connection = number, host, %peer, "{text}");
    }
    fn server(&self, text: &str) {
        tracing::warn!("{text}");
    }
}

impl Fronts {
    /// Opens all transports except FUSE on their sockets. Connections wait for `begin`.
    ///
    /// # Errors
    /// A transport cannot be opened.
    pub(crate) fn open(
        spec: &Spec,
        subsystem: &Arc<Subsystem>,
        bound: Bound,
    ) -> Result<Self, ServiceError> {
        // One clock for all: the timing model has one.
        let epoch = Instant::now();
        let (sender, events) = channel();
        let Bound { access, vfio, http } = bound;

        // Before any host can connect: an unknown namespace number is more often a mistake than a
        // plan.
        access.tell_unknown(subsystem);
        let port = Port::new(subsystem.clone(), access.allowed.clone())
            .advertised(spec.advertise)
            .authenticated(access.keyring.clone());
        let limits = Limits {
            memory_bytes: usize::try_from(spec.memory_limit).unwrap_or(usize::MAX),
            ..Limits::default()
        };

        let (listeners, reloadable) = access.split();
        // Without an address the service uses other transports.
        let server = match &listeners[..] {
            [] => None,
            _ => Some(Server::on(epoch, listeners, port, Box::new(Lines), limits)),
        };
        let server = server.transpose().map_err(ServiceError::failed)?;
        let port = server.as_ref().map(Server::port);
        let reload = port
            .and_then(|port| reloadable.of_port(&port))
            .map(Arc::new);

        Ok(Self {
            epoch,
            server,
            vfio_bound: vfio,
            http_bound: http,
            tcp: None,
            fuse: None,
            vfio: None,
            http: None,
            reload,
            events,
            sender,
            supervisor: Supervisor::from_env(spec.supervised),
        })
    }

    /// Mounts the files, and serves on all transports from now on.
    ///
    /// # Errors
    /// The folder cannot be mounted, or a thread cannot be started; one sentence with a remedy. All
    /// transports are closed.
    pub(crate) fn begin(
        &mut self,
        spec: &Spec,
        subsystem: &Arc<Subsystem>,
        nqn: &str,
    ) -> Result<(), ServiceError> {
        let begun = self.begin_all(spec, subsystem, nqn);
        begun.inspect_err(|_| drop(self.close(subsystem)))
    }

    fn begin_all(
        &mut self,
        spec: &Spec,
        subsystem: &Arc<Subsystem>,
        nqn: &str,
    ) -> Result<(), ServiceError> {
        let epoch = self.epoch;
        // First, since it is the most likely to fail: nothing else has begun then.
        if let Some(folder) = &spec.fuse {
            self.fuse = Some(mount(epoch, folder, subsystem, self.sender.clone())?);
        }

        if let (Some(bound), Some(path)) = (self.vfio_bound.take(), &spec.vfio_user) {
            self.vfio = Some(attach(bound, epoch, path, subsystem)?);
        }

        if let Some(bound) = self.http_bound.take() {
            let gate = Arc::new(Gate::new(subsystem.clone()));
            let image = spec.backing.dir().map(PathBuf::as_path);
            let roster = self.server.as_ref().map(Server::roster);
            let served = Served::new(gate.clone(), epoch, image, nqn, roster, spec.log.clone());
            self.http = Some((watch(bound, served)?, gate));
        }

        if let Some(server) = self.server.take() {
            self.tcp = Some(run(server, nqn, self.sender.clone())?);
        }
        Ok(())
    }

    pub(crate) fn handle(&self) -> Handle {
        Handle(self.sender.clone())
    }

    /// The addresses of NVMe/TCP; none once it runs.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        let addresses = self.server.as_ref().map(Server::addresses);
        addresses.and_then(Result::ok).unwrap_or_default()
    }

    /// The address of HTTP; none once it runs.
    pub(crate) fn http_address(&self) -> Option<SocketAddr> {
        self.http_bound.as_ref().map(HttpBound::address)
    }

    /// Serves until it is stopped, the last transport ends on its own, or the device fails.
    /// Calls `tick` periodically.
    ///
    /// # Errors
    /// The firmware or the disk under it has failed.
    pub(crate) fn serve(
        mut self,
        subsystem: &Subsystem,
        mut tick: impl FnMut(Tick),
    ) -> Result<(), ServiceError> {
        self.supervisor.ready();

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
        self.supervisor.reloading();
        if let Some(reload) = &self.reload {
            let supervisor = self.supervisor.clone();
            reload.start(move || supervisor.ready());
        } else {
            tracing::info!("nothing to load again: there are neither keys nor a list of hosts");
            self.supervisor.ready();
        }
    }

    /// Closes all transports, after commands in progress.
    fn close(&mut self, subsystem: &Subsystem) -> Result<(), ServiceError> {
        // Bound sockets that never began.
        self.vfio_bound = None;
        self.http_bound = None;
        self.server = None;

        // First, so that the supervisor does not count the shutdown as silence.
        self.supervisor.stopping();

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
                Err(error) => Err(ServiceError::about(folder, error)),
            }
        });

        let tcp = self.tcp.take().map(|(stopper, thread)| {
            stopper.stop();
            match thread.join() {
                Ok(result) => result.map_err(ServiceError::failed),
                Err(_) => Err(ServiceError::failed("a thread of the service has failed")),
            }
        });

        let vfio = self
            .vfio
            .take()
            .map(|service| service.close().map_err(ServiceError::failed));

        // A failed device is the error to report, before any other.
        if subsystem.is_broken() {
            let what = match subsystem.disk_failure() {
                Some(why) => format!("the disk under the image has failed: {why}"),
                None => "the firmware has failed".into(),
            };
            tracing::error!("{what}; nothing was acknowledged or written since");
            return Err(ServiceError::failed(what));
        }

        // The first failure is reported; all of them were closed.
        fuse.into_iter().chain(tcp).chain(vfio).collect()
    }
}

fn token(file: &Path) -> Result<Token, ServiceError> {
    Token::load(file).map_err(|error| ServiceError::about(file.display(), error))
}

/// Listens for operators.
fn bind_http(address: SocketAddr, token: Option<Token>) -> Result<HttpBound, ServiceError> {
    HttpBound::bind(address, token).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => ServiceError::usage(format_args!(
            "{address} can be reached from elsewhere: say who may ask, with --http-token FILE"
        )),
        io::ErrorKind::AddrInUse => ServiceError::about(
            address,
            "the address is in use; stop what listens there, or choose another with --http",
        ),
        _ => ServiceError::about(address, error),
    })
}

/// Starts the HTTP server for operators.
fn watch(bound: HttpBound, served: Served) -> Result<HttpServer, ServiceError> {
    let address = bound.address();
    let started = bound.start(Arc::new(served), HttpLimits::default());
    let server = started.map_err(|error| ServiceError::about(address, error))?;
    tracing::info!(http = %format_args!("http://{}/", server.address()), "serving");
    Ok(server)
}

fn run(
    server: Server,
    nqn: &str,
    events: Sender<ServiceEvent>,
) -> Result<(Stopper, JoinHandle<io::Result<()>>), ServiceError> {
    let (addresses, stopper) = (
        server.addresses().map_err(ServiceError::failed)?,
        server.stopper().map_err(ServiceError::failed)?,
    );

    let spawned = std::thread::Builder::new()
        .name("nvme/tcp".into())
        .spawn(move || {
            let result = server.run();
            // Tells the service that this transport ended; the result of the thread says why.
            let _ = events.send(ServiceEvent::Ended("NVMe/TCP"));
            result
        });

    // An unspecified address is none to connect to.
    let known = addresses.iter().find(|one| !one.ip().is_unspecified());
    if let Some(address) = known {
        let (ip, port) = (address.ip(), address.port());
        tracing::info!("hosts connect with: nvme connect -t tcp -a {ip} -s {port} -n {nqn}");
    }
    for address in addresses {
        tracing::info!(%address, %nqn, "serving");
    }

    Ok((stopper, spawned.map_err(ServiceError::failed)?))
}

fn mount(
    epoch: Instant,
    folder: &Path,
    subsystem: &Arc<Subsystem>,
    events: Sender<ServiceEvent>,
) -> Result<Mounted, ServiceError> {
    let ended = move || drop(events.send(ServiceEvent::Ended("the mount")));
    let mounted = Mounted::mount(Gate::new(subsystem.clone()), folder, epoch, ended);
    let mounted =
        mounted.map_err(|error: MountError| ServiceError::about(folder.display(), error))?;
    for namespace in subsystem.namespaces() {
        let file = mounted.mountpoint().join(file_name(namespace.nsid));
        tracing::info!(file = %file.display(), "serving");
    }
    Ok(mounted)
}

fn attach(
    bound: VfioBound,
    epoch: Instant,
    path: &Path,
    subsystem: &Arc<Subsystem>,
) -> Result<VfioService, ServiceError> {
    let log = Box::new(|text: &str| tracing::info!("vfio-user: {text}"));
    let service = bound
        .start(subsystem, epoch, log)
        .map_err(|error| ServiceError::about(path.display(), error))?;
    tracing::info!(socket = %path.display(), "serving");
    Ok(service)
}
