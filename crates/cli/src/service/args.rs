//! The arguments of `serve`.
//!
//! Absent: checks of several arguments together (`remap_ssd_service`).

use super::log::Log;
use super::shape::DeviceShape;
use crate::failure::Failure;
use crate::manual::Completed;
use crate::numbers;
use remap_ssd_nvme::controller::{CACHE_BYTES_MIN, Latency};
use remap_ssd_nvme::tcp::server::MEMORY_BYTES_MIN;
use remap_ssd_nvme::tcp::target::Advertised;
use remap_ssd_service::{Backing, ListenAt, Spec};
use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// Serves a device: over NVMe/TCP, where unmodified Linux connects with `nvme connect`, as files in
/// a folder, or as a PCI Express function of a virtual machine; any of them at once.
///
/// Acknowledged data survive the end of this process at any instant, and a crash of the machine if
/// they were flushed. With --volatile-cache they survive the end of the process only if they were
/// flushed or written with FUA; so it is with a device whose write buffer has no power-loss protection.
///
/// Signals: SIGTERM, SIGINT and SIGQUIT shut the service down cleanly; SIGHUP loads the keys (--keys) again
/// and resolves names (--allow) again, without dropping hosts; SIGUSR1 logs statistics; SIGUSR2 cuts the power with
/// --volatile-cache or such a device, and is ignored otherwise.
///
/// Exit code 0 after a clean shutdown or a power cut, 1 if the device or the disk under it failed,
/// 2 for invalid arguments.
#[derive(Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("device").required(true),
    after_help = EXAMPLES_SHORT,
    after_long_help = EXAMPLES
)]
pub(crate) struct Args {
    /// Folder of a device that `image create` made.
    #[arg(long, value_name = "DIR", group = "device")]
    pub image: Option<PathBuf>,
    /// Serve a new device in memory, lost when the server ends.
    #[arg(long, value_name = "SIZE", value_parser = numbers::size, group = "device")]
    pub memory: Option<u64>,

    /// Listen here for NVMe/TCP; may be repeated [default: 127.0.0.1:4420].
    ///
    /// An address, or a name, which stands for all of its addresses. Each is a portal to the same
    /// device: hosts with multipath switch to another one when a portal fails or `ctl ana` makes it
    /// inaccessible. With --fuse or --vfio-user there is no default.
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Connections")]
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
    /// Required for addresses other than loopback. `ctl` finds it without an option as
    /// ~/.config/remap-ssd/token.
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
    /// `NVMeTLSkey-1:...` from `remap-ssd key --tls`, must connect with TLS 1.3; one with a secret,
    /// `DHHC-1:...` from `remap-ssd key`, must authenticate (DH-HMAC-CHAP). Options after the
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
    #[arg(long, conflicts_with = "keys", hide_short_help = true, help_heading = "Hosts")]
    pub insecure: bool,

    /// Complete commands at once, or when flash would.
    ///
    /// `none` adds no latency; `emulated` completes a command when flash would have completed it.
    #[arg(
        long,
        value_name = "none|emulated",
        value_parser = Completed(str::parse::<Latency>, || ["none", "emulated"].map(str::to_owned).to_vec()),
        hide_possible_values = true,
        default_value = "none",
        help_heading = "Behaviour"
    )]
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

impl Args {
    /// The service that they describe, with a log.
    ///
    /// # Errors
    /// Invalid settings.
    pub(super) fn spec(&self, log: Log) -> Result<Spec, Failure> {
        let backing = match &self.image {
            Some(dir) => Backing::Image(dir.clone()),
            None => Backing::Memory(self.memory.unwrap_or(0)),
        };

        Ok(Spec {
            backing,
            shape: self.shape.shape()?,
            listen: self.listen.clone(),
            fuse: self.fuse.clone(),
            vfio_user: self.vfio_user.clone(),
            http: self.http,
            http_token: self.http_token.clone(),
            advertise: self.advertise,
            memory_limit: self.memory_limit,
            supervised: true,
            keys: self.keys.clone(),
            allow: self.allow.clone(),
            insecure: self.insecure,
            latency: self.latency,
            record: self.record.clone(),
            volatile_cache: self.volatile_cache,
            cut_seed: self.cut_seed,
            log: Arc::new(log),
        })
    }
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
  echo \"nqn.2026-11.com.example:db1 $(remap-ssd key)\" > keys; chmod 600 keys
  remap-ssd serve --image disk --listen 0.0.0.0:4420 --keys keys          # kill -HUP loads the keys again
  nvme connect-all -t tcp -a 192.168.1.2 -s 4420 -q nqn.2026-11.com.example:db1 --dhchap-secret DHHC-1:...

Encrypted, by TLS:
  echo \"nqn.2026-11.com.example:db1 $(remap-ssd key --tls)\" > keys; chmod 600 keys; cut -d ' ' -f 2 keys > db1.key
  remap-ssd serve --image disk --listen 0.0.0.0:4420 --keys keys
  remap-ssd io --connect 192.168.1.2:4420 --hostnqn nqn.2026-11.com.example:db1 --secret db1.key id

In a network in which every host is trusted:
  remap-ssd serve --image disk --listen 0.0.0.0:4420 --insecure --allow 192.168.1.0/24
  remap-ssd serve --image disk --listen disk1:4420 --insecure --allow db1 --allow 'backup namespaces=all:ro'

Two portals, between which a Linux host with multipath changes:
  remap-ssd serve --image disk --listen 127.0.0.1:4420 --listen 127.0.0.1:4421
  nvme connect-all -t tcp -a 127.0.0.1 -s 4420

Metrics, a page to look at, and verbs:
  mkdir -p ~/.config/remap-ssd; (umask 077; head -c 24 /dev/urandom | base64 > ~/.config/remap-ssd/token)
  remap-ssd serve --image disk --http 127.0.0.1:9420 --http-token ~/.config/remap-ssd/token
  remap-ssd ctl hosts

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

fn memory_limit(text: &str) -> Result<u64, Box<dyn Error + Send + Sync>> {
    let bytes = numbers::size(text)?;
    match usize::try_from(bytes) {
        Ok(bytes) if bytes >= MEMORY_BYTES_MIN => Ok(bytes as u64),
        _ => Err(format!("at least {} MiB", MEMORY_BYTES_MIN >> 20).into()),
    }
}

fn cache_size(text: &str) -> Result<u64, Box<dyn Error + Send + Sync>> {
    match numbers::size(text)? {
        bytes if bytes >= CACHE_BYTES_MIN => Ok(bytes),
        _ => Err(format!("at least {} KiB", CACHE_BYTES_MIN >> 10).into()),
    }
}
