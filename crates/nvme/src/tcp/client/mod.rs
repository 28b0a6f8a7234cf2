//! The host's side of NVMe/TCP: one admin queue and one I/O queue.
//!
//! Invariants: a command is sent again only if its connection broke before it was answered. All
//! commands are idempotent, and may be sent again, except relocations and copies that overlap
//! themselves, whose failure is reported instead. A child of `fork` neither reads nor writes its
//! parent's connections: it gets an error. Absent: caching.

mod authenticate;
mod copies;
mod disk;
mod error;
mod exclusive;
mod file_map;
mod namespaces;
mod queue;
mod remaps;
mod secure;
mod spin;
mod waits;
mod writes;

pub use error::ClientError;
pub use namespaces::SeenNamespaces;
pub use queue::{Answer, Arrivals, Call, Queue, entry};

use crate::auth::{Credentials, HostKeys, TlsKey};
use crate::controller::{COPY_FORMAT_NAMESPACES, statistics};
use crate::process::Process;
use crate::spec::command::{DsmCdw10, DsmCdw11, DsmRange, RemapCdw12, RemapResult, RwCdw12, Sqe};
use crate::spec::identify::{Controller, Namespace, cns};
use crate::spec::log::{Smart, lid};
use crate::spec::opcode::{admin, io as opcode};
use crate::spec::status::Status;
use error::broken;
use exclusive::Exclusive;
use remap_ssd_device::HolderId;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;
use zerocopy::{FromBytes, IntoBytes};

/// Parameters of a connection: names, target, protection.
#[derive(Clone, Debug)]
pub struct Options {
    /// The subsystem; found by discovery if not given.
    pub subnqn: Option<String>,
    /// Name (NQN) of this host.
    pub hostnqn: String,
    /// The host identifier, by which reservations tell hosts apart.
    pub hostid: [u8; 16],
    /// Connect as this holder, whose identifier is new: `Disk::hold` then needs no other
    /// connection. Determines `hostid` and `keep_alive_ms`.
    pub holder: Option<HolderId>,
    /// Keep-alive time: silence after which the controller ends; 0: never.
    pub keep_alive_ms: u32,
    /// Use digests of headers and data.
    pub digests: bool,
    /// Entries of the I/O queue.
    pub entries: u16,
    /// Maximum data of one PDU that we send; less than the target's limit is slower.
    pub pdu_bytes_max: usize,
    /// Number of the namespace for commands.
    pub nsid: u32,
    /// Maximum time for an answer.
    pub timeout: Duration,
    /// Enable copies from other namespaces, if the device supports them.
    pub copy_across: bool,
    /// Our secrets, for targets that require authentication.
    pub credentials: Option<Arc<Credentials>>,
    /// Our TLS key: with one we connect only by TLS.
    pub tls: Option<Arc<TlsKey>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            subnqn: None,
            hostnqn: "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-72656d617073".into(),
            hostid: [0x72; 16],
            holder: None,
            keep_alive_ms: 60_000,
            digests: false,
            entries: 128,
            pdu_bytes_max: usize::MAX,
            nsid: 1,
            timeout: Duration::from_secs(30),
            copy_across: false,
            credentials: None,
            tls: None,
        }
    }
}

impl Options {
    /// The options with these keys.
    #[must_use]
    pub fn with_keys(mut self, keys: HostKeys) -> Self {
        (self.credentials, self.tls) = (keys.credentials, keys.tls);
        self
    }

    fn be_holder(&mut self, holder: HolderId) {
        self.hostid = holder;
        // A holder may be idle without limit. TCP notices machines that are gone.
        self.keep_alive_ms = 0;
    }
}

/// A host connected to one namespace.
pub struct Client {
    address: SocketAddr,
    options: Options,
    subnqn: String,
    cntlid: u16,
    queues: Option<(Queue, Queue)>,
    controller: Controller,
    namespace: Namespace,
    exclusive: Exclusive,
    /// True if the namespace is released on drop.
    lets_go: bool,
    /// The process that opened the connection.
    process: Process,
}

impl Client {
    /// Connects to the subsystem at an address.
    ///
    /// # Errors
    /// The target is not listening, is no such target, or refuses this host.
    pub fn connect(address: impl ToSocketAddrs, mut options: Options) -> Result<Self, ClientError> {
        if let Some(holder) = options.holder {
            options.be_holder(holder);
        }

        // A name is looked up by blocking calls, which a signal may interrupt (`waits`).
        let address = loop {
            match address.to_socket_addrs() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                addresses => break addresses?.next(),
            }
        };
        let address = address.ok_or_else(|| io::Error::other("the name has no address"))?;

        let subnqn = match &options.subnqn {
            Some(subnqn) => subnqn.clone(),
            None => discover(address, &options)?,
        };

        let Connected {
            queues,
            cntlid,
            controller,
            namespace,
        } = connect(address, &options, &subnqn)?;

        Ok(Self {
            address,
            options,
            subnqn,
            cntlid,
            queues: Some(queues),
            controller,
            namespace,
            exclusive: Exclusive::No,
            lets_go: false,
            process: Process::current(),
        })
    }

    /// Name (NQN) of the subsystem that it is connected to.
    pub fn subnqn(&self) -> &str {
        &self.subnqn
    }
    /// Identify Controller.
    pub fn controller(&self) -> &Controller {
        &self.controller
    }
    /// Identify Namespace.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }
    /// log2 of the block size.
    pub fn lba_shift(&self) -> u8 {
        // The low four bits of FLBAS are the number of the current format.
        self.namespace.lbaf[usize::from(self.namespace.flbas & 15)].lbads
    }

    /// Calls `work` with the queues, once more on a new connection if the old one broke and
    /// `again`.
    fn with<R>(
        &mut self,
        again: bool,
        mut work: impl FnMut(&mut Queue, &mut Queue) -> Result<R, ClientError>,
    ) -> Result<R, ClientError> {
        if !self.process.is_current() {
            // Our descriptors are closed without sending: the parent's connections go on.
            self.queues = None;
            return Err(ClientError::Forked);
        }
        if self.exclusive == Exclusive::Lost {
            return Err(ClientError::HoldLost);
        }

        // At most twice: if a new connection breaks too, give up.
        for attempt in 0..2 {
            let (admin, io) = match &mut self.queues {
                Some(queues) => queues,
                None => {
                    // Another device with the same name would take our writes and answer our reads
                    // with foreign data.
                    let mut new = connect(self.address, &self.options, &self.subnqn)?;
                    if (new.namespace.nguid, new.namespace.nsze)
                        != (self.namespace.nguid, self.namespace.nsze)
                    {
                        return Err(ClientError::AnotherDevice(self.address));
                    }
                    // Before the first command: others may have held the namespace in between.
                    if self.exclusive == Exclusive::Held {
                        let held = exclusive::must_hold(&mut new.queues.0, self.options.nsid);
                        held.map_err(|error| self.exclusive.note(error))?;
                    }
                    (self.cntlid, self.controller, self.namespace) =
                        (new.cntlid, new.controller, new.namespace);
                    self.queues.insert(new.queues)
                }
            };

            // The caller knows whether a command may be sent again; the next iteration reconnects.
            match work(admin, io) {
                Err(ClientError::Io(_)) if again && attempt == 0 => self.queues = None,
                // After these errors the connection is unusable: later arrivals may belong to the
                // failed command.
                Err(error @ (ClientError::Io(_) | ClientError::Protocol(_))) => {
                    self.queues = None;
                    return Err(error);
                }
                result => return result.map_err(|error| self.exclusive.note(error)),
            }
        }

        Err(io::Error::from(io::ErrorKind::ConnectionAborted).into())
    }

    /// Maximum outstanding commands of the I/O queue.
    fn commands_at_once(&self) -> usize {
        // One entry stays free: a full queue would look like an empty one.
        usize::from(self.options.entries).saturating_sub(1).max(1)
    }

    fn io(
        &mut self,
        what: &'static str,
        again: bool,
        call: &Call<'_>,
    ) -> Result<Answer, ClientError> {
        self.with(again, |_, io| io.call(what, call))
    }

    /// An entry of a command with a range of blocks.
    pub fn rw(&self, opcode: u8, slba: u64, nlb_z: u16) -> Sqe {
        let mut sqe = entry(opcode, self.options.nsid);
        (sqe.cdw10, sqe.cdw11) = (slba as u32, (slba >> 32) as u32);
        sqe.cdw12 = RwCdw12::new().with_nlb_z(nlb_z).into_bits();
        sqe
    }

    /// Maximum data of one command, in bytes.
    pub(crate) fn transfer_bytes_max(&self) -> usize {
        // 0 means no limit. The buffer needs one anyway.
        match self.controller.mdts {
            0 => 1 << 20,
            mdts => (4096usize << mdts.min(16)).min(1 << 20),
        }
    }

    /// Reads blocks, with as many commands as the device's limit requires.
    ///
    /// # Errors
    /// The connection or the device failed.
    pub fn read(&mut self, slba: u64, blocks: u64) -> Result<Vec<u8>, ClientError> {
        // As many commands as needed, one after the other.
        let step = (self.transfer_bytes_max() >> self.lba_shift()) as u64;
        let mut data = Vec::new();
        let mut done = 0;

        while done < blocks {
            let count = (blocks - done).min(step);
            let sqe = self.rw(opcode::READ, slba + done, (count - 1) as u16);
            let receive = (count as usize) << self.lba_shift();
            let answer = self.io("read", true, &Call::receiving(sqe, receive))?;

            // Success with too few data: missing data must not pass for zeroes.
            if answer.data.len() != receive {
                return Err(broken("less data than asked for"));
            }
            data.extend_from_slice(&answer.data);
            done += count;
        }
        Ok(data)
    }

    /// Writes whole blocks; they are durable after the next flush.
    ///
    /// # Errors
    /// The connection or the device failed.
    pub fn write(&mut self, slba: u64, data: &[u8]) -> Result<(), ClientError> {
        self.write_by(slba, data, false)
    }

    /// Writes whole blocks durably (FUA).
    ///
    /// # Errors
    /// The connection or the device failed.
    pub fn write_through(&mut self, slba: u64, data: &[u8]) -> Result<(), ClientError> {
        self.write_by(slba, data, true)
    }

    fn write_by(&mut self, slba: u64, data: &[u8], fua: bool) -> Result<(), ClientError> {
        let mut slba = slba;

        // The limit is a multiple of 4 KiB, so that no block is split.
        for piece in data.chunks(self.transfer_bytes_max()) {
            let count = piece.len() >> self.lba_shift();
            let mut sqe = self.rw(opcode::WRITE, slba, (count - 1) as u16);
            sqe.cdw12 = RwCdw12::from_bits(sqe.cdw12).with_fua(fua).into_bits();
            self.io("write", true, &Call::sending(sqe, piece))?;
            slba += count as u64;
        }
        Ok(())
    }

    /// Remaps blocks by our vendor command, to copy or to relocate. Returns the pages copied
    /// instead.
    ///
    /// # Errors
    /// The connection or the device failed. A relocation, or a remap whose ranges overlap, may have
    /// been executed if the connection broke.
    pub fn remap(
        &mut self,
        from: u64,
        to: u64,
        blocks: u32,
        relocate: bool,
        atomic: bool,
    ) -> Result<RemapResult, ClientError> {
        let mut sqe = self.rw(opcode::REMAP, to, 0);
        sqe.cdw12 = RemapCdw12::new()
            .with_nlb_z(blocks - 1)
            .with_relocate(relocate)
            .with_atomic(atomic)
            .into_bits();
        (sqe.cdw14, sqe.cdw15) = (from as u32, (from >> 32) as u32);

        // Sources that lose their mappings, or are overwritten, cannot be remapped twice.
        let again = !relocate && from.abs_diff(to) >= u64::from(blocks);
        self.io("remap", again, &Call::new(sqe))
            .map(|answer| RemapResult::from_bits(answer.result))
    }

    /// Deallocates blocks, whose content is no longer needed.
    ///
    /// # Errors
    /// The connection or the device failed.
    pub fn trim(&mut self, slba: u64, blocks: u64) -> Result<(), ClientError> {
        let mut done = 0;
        while done < blocks {
            // The number of blocks of a range has 32 bits.
            let count = (blocks - done).min(u64::from(u32::MAX));
            let range = DsmRange {
                attributes: 0,
                blocks: count as u32,
                slba: slba + done,
            };

            let mut sqe = entry(opcode::DATASET_MANAGEMENT, self.options.nsid);
            sqe.cdw10 = DsmCdw10::new().with_nr_z(0).into_bits();
            sqe.cdw11 = DsmCdw11::new().with_ad(true).into_bits();

            self.io("trim", true, &Call::sending(sqe, range.as_bytes()))?;
            done += count;
        }
        Ok(())
    }

    /// Makes all acknowledged writes durable.
    ///
    /// # Errors
    /// The connection or the device failed.
    pub fn flush(&mut self) -> Result<(), ClientError> {
        let sqe = entry(opcode::FLUSH, self.options.nsid);
        self.io("flush", true, &Call::new(sqe)).map(drop)
    }

    /// Statistics of the translation layer.
    ///
    /// # Errors
    /// The connection failed, or the device has no statistics.
    pub fn statistics(&mut self) -> Result<Vec<(&'static str, u64)>, ClientError> {
        let page = self.with(true, |admin, _| {
            admin.log(lid::STATISTICS, statistics::PAGE_BYTES)
        })?;
        statistics::parse(&page).ok_or(broken("statistics"))
    }

    /// The SMART log page, of the whole controller.
    ///
    /// # Errors
    /// The connection failed.
    pub fn smart(&mut self) -> Result<Smart, ClientError> {
        let page = self.with(true, |admin, _| admin.log(lid::SMART, size_of::<Smart>()))?;
        Smart::read_from_bytes(&page).map_err(|_| broken("SMART"))
    }

    /// Keeps the association alive while idle.
    ///
    /// # Errors
    /// The connection failed.
    pub fn keep_alive(&mut self) -> Result<(), ClientError> {
        let call = Call::new(entry(admin::KEEP_ALIVE, 0));
        self.with(true, |admin, _| admin.call("keep alive", &call).map(drop))
    }

    /// Access to the admin queue, for custom commands.
    ///
    /// # Errors
    /// The connection failed.
    pub fn admin<R>(
        &mut self,
        mut work: impl FnMut(&mut Queue) -> Result<R, ClientError>,
    ) -> Result<R, ClientError> {
        self.with(false, |admin, _| work(admin))
    }

    /// Connects one more I/O queue, for separate use; queue 1 is ours. It ends with this client.
    ///
    /// # Errors
    /// The connection failed, or the device has no such queue.
    pub fn another_queue(&self, qid: u16) -> Result<Queue, ClientError> {
        if !self.process.is_current() {
            return Err(ClientError::Forked);
        }
        let mut queue = Queue::open_for(self.address, &self.options, &self.subnqn)?;
        queue.connect(
            qid,
            self.options.entries,
            self.cntlid,
            &self.options,
            &self.subnqn,
        )?;
        // The limits of the controller apply to all queues.
        queue.in_capsule = in_capsule(&self.controller).min(self.options.pdu_bytes_max);
        Ok(queue)
    }

    /// Access to the I/O queue, for custom commands.
    ///
    /// # Errors
    /// The connection failed.
    pub fn queue<R>(
        &mut self,
        mut work: impl FnMut(&mut Queue) -> Result<R, ClientError>,
    ) -> Result<R, ClientError> {
        self.with(false, |_, io| work(io))
    }
}

/// Maximum in-capsule data of commands on I/O queues.
fn in_capsule(controller: &Controller) -> usize {
    // IOCCSZ counts units of 16 bytes, and a capsule begins with an entry of 64.
    (controller.ioccsz as usize * 16).saturating_sub(64)
}

/// The first subsystem listed by the discovery service at an address.
fn discover(address: SocketAddr, options: &Options) -> Result<String, ClientError> {
    let discovery = crate::spec::fabrics::DISCOVERY_NQN;
    let mut queue = Queue::open_for(address, options, discovery)?;
    queue.connect(0, 32, 0xffff, options, discovery)?;
    queue.enable()?;

    // Header and first entry: one subsystem is enough.
    let page = queue.log(lid::DISCOVERY, 2048)?;

    // The first entry follows a header of 1,024 bytes.
    let entry = crate::spec::fabrics::DiscoveryEntry::read_from_bytes(
        page.get(1024..2048).unwrap_or_default(),
    );
    let entry = entry.map_err(|_| broken("a discovery log"))?;

    // Names are padded with zeroes.
    let len = entry
        .subnqn
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(entry.subnqn.len());
    String::from_utf8(entry.subnqn[..len].to_vec())
        .map_err(|_| broken("a name in the discovery log"))
}

/// A server that was started again after the admin queue had connected does not know the controller: both
/// connections are lost, as if the second had been reset.
fn without_its_controller(error: ClientError) -> ClientError {
    match error {
        ClientError::Status { status, .. } if status == Status::CONNECT_INVALID => {
            ClientError::Io(io::Error::new(
                io::ErrorKind::ConnectionReset,
                "connection reset: the server was started again while this host connected",
            ))
        }
        error => error,
    }
}

struct Connected {
    queues: (Queue, Queue),
    cntlid: u16,
    controller: Controller,
    namespace: Namespace,
}

fn connect(address: SocketAddr, options: &Options, subnqn: &str) -> Result<Connected, ClientError> {
    let mut admin = Queue::open_for(address, options, subnqn)?;

    // 0xffff: any controller of the subsystem.
    let cntlid = admin.connect(0, 32, 0xffff, options, subnqn)?;
    admin.enable()?;

    // Capabilities are read once, before the first command depends on them.
    let controller = admin.identify(cns::CONTROLLER, 0)?;
    let controller =
        Controller::read_from_bytes(&controller).map_err(|_| broken("a controller"))?;
    let namespace = admin.identify(cns::NAMESPACE, options.nsid)?;
    let namespace = Namespace::read_from_bytes(&namespace).map_err(|_| broken("a namespace"))?;

    if options.copy_across && controller.ocfs & 1 << COPY_FORMAT_NAMESPACES != 0 {
        admin.enable_copy_across()?;
    }

    // A separate connection: the admin queue stays free for commands that must not wait for data.
    let mut io = Queue::open_for(address, options, subnqn)?;
    io.connect(1, options.entries, cntlid, options, subnqn)
        .map_err(without_its_controller)?;
    io.in_capsule = in_capsule(&controller).min(options.pdu_bytes_max);
    Ok(Connected {
        queues: (admin, io),
        cntlid,
        controller,
        namespace,
    })
}
