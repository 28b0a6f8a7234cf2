//! Access to the service: listening addresses, the list of hosts, the keys.
//!
//! Names are resolved when the service starts, and those of the list again at a reload. Invariants:
//! all addresses of a name are checked for being reachable from elsewhere; a reload replaces
//! everything or nothing. Absent: hosts' rights to namespaces (`nvme::controller::Rights`).

use crate::address::{addresses_of, is_name};
use crate::error::ServiceError;
use crate::spec::Spec;
use crate::supervisor::passed_socket;
use remap_ssd_nvme::Escaped;
use remap_ssd_nvme::auth::{Keyring, Keys};
use remap_ssd_nvme::controller::{Rights, Subsystem};
use remap_ssd_nvme::tcp::target::{Allowed, AllowedHost, Network, Port, Who};
use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Default port of NVMe/TCP.
const PORT: u16 = 4420;

/// An entry of the list, as given.
struct AccessEntry {
    who: AllowedEntry,
    rights: Rights,
}

enum AllowedEntry {
    Known(Who),
    /// A DNS name.
    Named(String),
}

impl AccessEntry {
    /// Parses `HOST` or `HOST namespaces=...`.
    fn parse(text: &str) -> Result<Self, ServiceError> {
        let mut words = text.split_whitespace();
        let host = words.next().unwrap_or_default();
        let mut rights = Rights::ALL;
        if let Some(option) = words.next() {
            // One option, because an entry has only rights.
            let list = option.strip_prefix("namespaces=");
            let list = list.filter(|_| words.next().is_none()).ok_or_else(|| {
                ServiceError::usage(format_args!(
                    "--allow `{text}`: after the host only this may follow: namespaces=1:rw,2:ro"
                ))
            })?;
            rights = Rights::parse(list)
                .map_err(|why| ServiceError::usage(format_args!("--allow `{text}`: {why}")))?;
        }

        // The most specific forms first: a name may look like anything else.
        let who = if let Ok(address) = host.parse() {
            AllowedEntry::Known(Who::Address(address))
        } else if let Some(network) = Network::parse(host) {
            AllowedEntry::Known(Who::Network(network))
        } else if host.starts_with("nqn.") {
            AllowedEntry::Known(Who::Name(host.into()))
        } else if is_name(host) {
            AllowedEntry::Named(host.into())
        } else {
            return Err(ServiceError::usage(format_args!(
                "--allow `{host}`: no address, no network (192.168.1.0/24), no NQN, and no name"
            )));
        };
        Ok(Self { who, rights })
    }

    /// The hosts that the entry matches now.
    fn hosts(&self) -> Result<Vec<AllowedHost>, ServiceError> {
        let who = match &self.who {
            AllowedEntry::Known(who) => vec![who.clone()],
            AllowedEntry::Named(name) => {
                let found = addresses_of(name).map_err(|why| {
                    ServiceError::usage(format_args!(
                        "--allow {name}: {why}; an address, a network (192.168.1.0/24) or an NQN is needed otherwise"
                    ))
                })?;
                found.into_iter().map(Who::Address).collect()
            }
        };
        let host = |who| AllowedHost {
            who,
            rights: self.rights.clone(),
        };
        Ok(who.into_iter().map(host).collect())
    }
}

/// Listening sockets, admitted hosts and their keys.
pub(crate) struct Access {
    /// The sockets that hosts connect to; none if only other transports were requested.
    pub listeners: Vec<TcpListener>,
    /// Hosts that may connect now.
    pub allowed: Allowed,
    /// The keys that hosts must prove.
    pub keyring: Option<Arc<Keyring>>,
    entries: Vec<AccessEntry>,
    keys: Option<PathBuf>,
}

impl Access {
    /// Creates it from the description of the service. Hosts can connect from now on, and wait.
    ///
    /// # Errors
    /// A name without an address, an invalid file of keys, an address in use, or one that others
    /// can reach without keys or a list of hosts.
    pub(crate) fn of(spec: &Spec) -> Result<Self, ServiceError> {
        let entries = spec.allow.iter().map(|text| AccessEntry::parse(text));
        let entries: Vec<AccessEntry> = entries.collect::<Result<_, _>>()?;
        let allowed = allowed(&entries)?;

        // A supervisor's socket may listen on any address, so it is checked like one.
        let passed = if spec.supervised {
            passed_socket(!spec.listen.is_empty())?
        } else {
            None
        };
        let listeners = if let Some(socket) = passed {
            let address = socket.local_addr().map_err(ServiceError::failed)?;
            let given = address.ip().to_string();
            must_be_guarded(spec, &[(address, &given)])?;
            vec![socket]
        } else {
            let listen = listen_on(spec)?;
            if listen.is_empty() {
                spec.check_without_tcp()?;
            }
            must_be_guarded(spec, &listen)?;
            let bound = listen.into_iter().map(|(address, _)| bind(address));
            bound.collect::<Result<_, _>>()?
        };
        let keys = spec.keys.as_deref().map(load_keys).transpose()?;

        Ok(Self {
            listeners,
            allowed,
            keyring: keys.map(|keys| Arc::new(Keyring::new(keys))),
            entries,
            keys: spec.keys.clone(),
        })
    }

    /// Splits it into the listening sockets and the parts that are reloaded while the port is
    /// open.
    pub(crate) fn split(self) -> (Vec<TcpListener>, Reloadable) {
        let Self {
            listeners,
            keyring,
            entries,
            keys,
            ..
        } = self;
        let keys = keys.zip(keyring);
        (listeners, Reloadable { entries, keys })
    }

    /// Warns about namespaces in lists of rights that do not exist.
    pub(crate) fn tell_unknown(&self, subsystem: &Subsystem) {
        let by_keys = self
            .keyring
            .iter()
            .flat_map(|keys| keys.namespaces_listed());
        tell_unknown(subsystem, by_keys.chain(self.allowed.namespaces_listed()));
    }
}

/// All addresses to listen on, each with the text that it was given as.
fn listen_on(spec: &Spec) -> Result<Vec<(SocketAddr, &str)>, ServiceError> {
    let otherwise = spec.fuse.is_some() || spec.vfio_user.is_some();
    if spec.listen.is_empty() && !otherwise {
        return Ok(vec![((Ipv4Addr::LOCALHOST, PORT).into(), "127.0.0.1")]);
    }

    let mut listen = Vec::new();
    for at in &spec.listen {
        for address in at.addresses()? {
            let is_known = listen.iter().any(|(known, _)| *known == address);
            // Port 0 is a different one each time.
            if !is_known || address.port() == 0 {
                listen.push((address, at.host.as_str()));
            }
        }
    }
    Ok(listen)
}

/// Listens on an address.
fn bind(address: SocketAddr) -> Result<TcpListener, ServiceError> {
    // The two that an operator can fix get advice.
    TcpListener::bind(address).map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::AddrInUse => {
                ": stop what listens there, or choose another with --listen"
            }
            io::ErrorKind::AddrNotAvailable => ": it is no address of this machine (--listen)",
            _ => "",
        };
        ServiceError::about(address, format_args!("{error}{advice}"))
    })
}

/// Refuses addresses that others can reach if no host would be restricted there.
fn must_be_guarded(spec: &Spec, listen: &[(SocketAddr, &str)]) -> Result<(), ServiceError> {
    // Mapped IPv6 addresses count as IPv4: ::ffff:127.0.0.1 is a loopback address too.
    let mut elsewhere = listen
        .iter()
        .filter(|(address, _)| !address.ip().to_canonical().is_loopback());
    let Some((address, host)) = elsewhere.next().filter(|_| spec.keys.is_none()) else {
        return Ok(());
    };

    let of = if address.ip().to_string() == *host {
        String::new()
    } else {
        format!(", an address of {host},")
    };

    // Without authentication only on demand, and even then only with a list.
    if !spec.insecure {
        return Err(ServiceError::usage(format_args!(
            "{address}{of} can be reached from elsewhere: have hosts prove who they are with --keys FILE, or believe who they say \
             they are with --insecure and --allow HOST"
        )));
    }
    if spec.allow.is_empty() {
        return Err(ServiceError::usage(format_args!(
            "{address}{of} can be reached from elsewhere: say who may connect, with --allow ADDRESS, NETWORK or NQN"
        )));
    }
    Ok(())
}

fn allowed(entries: &[AccessEntry]) -> Result<Allowed, ServiceError> {
    let hosts = entries.iter().map(AccessEntry::hosts);
    let hosts: Vec<Vec<AllowedHost>> = hosts.collect::<Result<_, _>>()?;
    Ok(Allowed {
        anybody: entries.is_empty(),
        hosts: hosts.concat(),
    })
}

/// Reads a file of keys.
fn load_keys(path: &Path) -> Result<Keys, ServiceError> {
    Keys::load(path).map_err(|error| ServiceError::about(path.display(), error))
}

/// An unknown namespace number is more often a mistake than a plan.
fn tell_unknown(subsystem: &Subsystem, listed: impl Iterator<Item = u32>) {
    let unknown: BTreeSet<u32> = listed
        .filter(|nsid| subsystem.namespace(*nsid).is_none())
        .collect();
    for nsid in unknown {
        tracing::warn!("namespaces={nsid}:...: there is no namespace {nsid}");
    }
}

/// Keys and list, before the port is open.
pub(crate) struct Reloadable {
    entries: Vec<AccessEntry>,
    keys: Option<(PathBuf, Arc<Keyring>)>,
}

impl Reloadable {
    /// Binds them to the open port; `None` if there is nothing to reload.
    pub(crate) fn of_port(self, port: &Arc<Port>) -> Option<Reload> {
        let has_more = self.keys.is_some() || !self.entries.is_empty();
        has_more.then(|| Reload {
            entries: self.entries,
            keys: self.keys,
            port: Arc::downgrade(port),
            turn: Mutex::new(()),
        })
    }
}

/// Keys and list, to be reloaded.
pub(crate) struct Reload {
    entries: Vec<AccessEntry>,
    keys: Option<(PathBuf, Arc<Keyring>)>,
    /// Weak: waiting for a name server must not keep the device open.
    port: Weak<Port>,
    turn: Mutex<()>,
}

impl Reload {
    /// Reloads the keys and resolves the names again, on its own thread, since a name server may be
    /// slow. If anything is invalid, nothing changes. Connected hosts stay, unless they may no
    /// longer connect. `done` is called at the end in any case.
    pub(crate) fn start(self: &Arc<Self>, done: impl Fn() + Clone + Send + 'static) {
        let (again, ended) = (self.clone(), done.clone());
        let thread = std::thread::Builder::new().name("reload".into());
        let started = thread.spawn(move || {
            again.run();
            ended();
        });
        if let Err(error) = started {
            tracing::error!("keys and names are not loaded again: {error}");
            done();
        }
    }

    fn run(&self) {
        // One reload at a time, so that the last one requested takes effect.
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = self.keys.as_ref().map(|(path, _)| load_keys(path));
        let loaded = loaded
            .transpose()
            .and_then(|keys| Ok((keys, allowed(&self.entries)?)));
        let (keys, allowed) = match loaded {
            Ok(loaded) => loaded,
            Err(failure) => {
                return tracing::error!("{failure}; what was loaded before stays in use");
            }
        };

        // The service may have ended during the lookups.
        let Some(port) = self.port.upgrade() else {
            return;
        };

        let by_keys = keys.iter().flat_map(Keys::namespaces_listed);
        tell_unknown(port.subsystem(), by_keys.chain(allowed.namespaces_listed()));

        // 1. rules for new connections  2. rights of connected hosts: no host escapes both  3. the
        // log message.
        let entries = allowed.hosts.len();
        port.replace_allowed(allowed);
        let mut hosts = 0;
        if let (Some(keys), Some((_, keyring))) = (keys, &self.keys) {
            hosts = keys.len();
            keyring.replace(keys);
        }
        for host in port.renew_rights() {
            let host = Escaped::name(&host).to_string();
            tracing::warn!(
                host,
                "this host may not connect any more: its connections end"
            );
        }
        if let Some((path, _)) = &self.keys {
            tracing::info!(keys = %path.display(), hosts, "keys loaded again");
        }
        if !self.entries.is_empty() {
            tracing::info!(entries, "list of hosts looked up again");
        }
    }
}
