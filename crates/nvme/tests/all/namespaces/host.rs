//! A host without a network, and a store for its namespaces.

use crate::kit::raw::{connect, enabled, property_set};
use crate::kit::specified::{cns, property};
use crate::kit::{self, NQN};
use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_nvme::controller::{
    AdminOutcome, Association, InMemory, IoCommand, KeptNamespaces, NamespaceStore, Rights,
    Subsystem,
};
use remap_ssd_nvme::spec::command::{FormatCdw10, Sqe};
use remap_ssd_nvme::spec::fabrics::ConnectData;
use remap_ssd_nvme::spec::identify::{Controller, Namespace};
use remap_ssd_nvme::spec::management::{NewNamespace, sel};
use remap_ssd_nvme::spec::opcode::{admin, io};
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_nvme::tcp::client::entry;
use std::io as std_io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

pub const PAGE: usize = 4096;
/// Logical block formats: 4,096 and 512 bytes.
pub const FORMATS: [usize; 2] = [4096, 512];

/// The last saved list, the number of saves, and the one that fails.
#[derive(Default)]
pub struct Saved {
    pub last: Option<KeptNamespaces>,
    pub count: usize,
    pub fails_at: Option<usize>,
}

/// Stores namespaces as long as the test runs.
#[derive(Clone, Default)]
pub struct Store(pub Arc<Mutex<Saved>>);

impl NamespaceStore for Store {
    fn save(&self, all: &KeptNamespaces) -> std_io::Result<()> {
        let mut saved = self.0.lock().expect("nothing fails here");
        if saved.fails_at == Some(saved.count) {
            return Err(std_io::Error::other("the test wants it so"));
        }
        saved.count += 1;
        saved.last = Some(all.clone());
        Ok(())
    }
}

pub fn device(bytes: u64) -> Device {
    let config = DeviceConfig::for_service(bytes, SchemeKind::RemapSsd, true);
    Device::in_memory(config.expect("possible")).expect("there is room")
}

/// A subsystem on a device, with the last saved list.
pub fn subsystem(device: Device, store: &Store) -> Subsystem {
    let subsystem = kit::subsystem(device, &[]);
    let kept = store.0.lock().expect("nothing fails here").last.clone();
    let whole = kept.unwrap_or_else(|| KeptNamespaces {
        list: Vec::new(),
        made: 0,
    });
    subsystem
        .with_namespaces(whole, Box::new(store.clone()))
        .expect("they fit")
}

/// A host with a controller of its own, without a network.
pub struct Host(pub Arc<Association>);

impl Host {
    pub fn of(subsystem: &Arc<Subsystem>, name: &str) -> Self {
        let hostnqn = format!("nqn.2026-11.test:{name}");
        let data = ConnectData::new([1; 16], 0xffff, NQN, &hostnqn);
        let address: SocketAddr = "127.0.0.1:4420".parse().expect("an address");
        let connected = Association::connect(subsystem, &connect(0), &data, address, 0);
        let host = Self(connected.expect("it may connect").0);
        host.0.grant(Rights::ALL);
        let status = host
            .admin(property_set(property::CC, enabled()), &[])
            .map(drop);
        assert_eq!(status, Ok(()));
        host
    }

    /// Executes an admin command; returns its result and data.
    pub fn admin(&self, sqe: Sqe, data: &[u8]) -> Result<(u64, Vec<u8>), Status> {
        let mut sent = Vec::new();
        match self.0.admin(&sqe, data, &mut sent) {
            AdminOutcome::Done(Status::SUCCESS, result) => Ok((result, sent)),
            AdminOutcome::Done(status, _) => Err(status),
            AdminOutcome::Waits => panic!("only event requests wait"),
        }
    }

    pub fn create_as(&self, new: &NewNamespace) -> Result<u32, Status> {
        let sqe = Sqe {
            cdw10: sel::CREATE.into(),
            ..entry(admin::NAMESPACE_MANAGEMENT, 0)
        };
        let (nsid, _) = self.admin(sqe, new.as_bytes())?;
        Ok(nsid as u32)
    }

    /// Creates a namespace of `pages` pages.
    pub fn create(&self, pages: u32, format: usize) -> Result<u32, Status> {
        self.create_as(&new_namespace(pages, format))
    }

    pub fn delete(&self, nsid: u32) -> Result<(), Status> {
        let sqe = Sqe {
            cdw10: sel::DELETE.into(),
            ..entry(admin::NAMESPACE_MANAGEMENT, nsid)
        };
        self.admin(sqe, &[]).map(drop)
    }

    pub fn attach(&self, nsid: u32, to: &[&Self], attach: bool) -> Result<(), Status> {
        let mut numbers: Vec<u16> = to.iter().map(|host| host.0.cntlid()).collect();
        numbers.sort_unstable();
        self.attach_list(nsid, &numbers, attach)
    }

    pub fn attach_list(&self, nsid: u32, numbers: &[u16], attach: bool) -> Result<(), Status> {
        let selected = if attach { sel::ATTACH } else { sel::DETACH };
        let sqe = Sqe {
            cdw10: selected.into(),
            ..entry(admin::NAMESPACE_ATTACHMENT, nsid)
        };
        let words = std::iter::once(numbers.len() as u16).chain(numbers.iter().copied());
        let mut list: Vec<u8> = words.flat_map(u16::to_le_bytes).collect();
        list.resize(4096, 0);
        self.admin(sqe, &list).map(drop)
    }

    pub fn format(&self, nsid: u32, format: usize) -> Result<(), Status> {
        let sqe = Sqe {
            cdw10: FormatCdw10::new().with_lbafl(format as u8).into_bits(),
            ..entry(admin::FORMAT, nsid)
        };
        self.admin(sqe, &[]).map(drop)
    }

    /// Enables copies from other namespaces.
    pub fn enable_copy_across(&self) {
        let mut behavior = [0; 512];
        // Format 2, in byte 4 and 5.
        behavior[4] = 1 << 2;
        let sqe = Sqe {
            cdw10: 0x16,
            ..entry(admin::SET_FEATURES, 0)
        };
        self.admin(sqe, &behavior).expect("there is such a feature");
    }

    pub fn identify(&self, wanted: u8, nsid: u32) -> Result<Vec<u8>, Status> {
        let sqe = Sqe {
            cdw10: wanted.into(),
            ..entry(admin::IDENTIFY, nsid)
        };
        Ok(self.admin(sqe, &[])?.1)
    }

    /// The numbers in a list of namespaces.
    pub fn numbers(&self, wanted: u8) -> Vec<u32> {
        let list = self.identify(wanted, 0).expect("a list");
        let numbers = list.as_chunks::<4>().0.iter().copied();
        let numbers = numbers.map(u32::from_le_bytes);
        numbers.take_while(|nsid| *nsid > 0).collect()
    }

    pub fn seen(&self) -> Vec<u32> {
        self.numbers(cns::ACTIVE_NAMESPACES)
    }

    pub fn namespace(&self, nsid: u32) -> Result<Namespace, Status> {
        let bytes = self.identify(cns::NAMESPACE, nsid)?;
        Ok(Namespace::read_from_bytes(&bytes).expect("whole"))
    }

    /// Bytes that belong to no namespace.
    pub fn free_bytes(&self) -> u64 {
        let bytes = self.identify(cns::CONTROLLER, 0).expect("always");
        let controller = Controller::read_from_bytes(&bytes).expect("whole");
        u128::from_le_bytes(controller.unvmcap) as u64
    }

    /// Checks an I/O command, as a transport does on arrival.
    pub fn check(&self, sqe: &Sqe) -> Result<IoCommand, Status> {
        self.0.io_command(sqe)
    }

    /// Executes a command checked earlier.
    pub fn execute(&self, command: &IoCommand, data: &[u8]) -> Result<Vec<u8>, Status> {
        let mut sent = Vec::new();
        let issuer = self.0.issuer();
        let mut data = InMemory {
            from_host: data,
            to_host: &mut sent,
        };
        let subsystem = self.0.subsystem();
        let outcome = subsystem.execute(&mut subsystem.device(), command, &issuer, 0, &mut data);
        match subsystem.wait_until_durable(outcome).status {
            Status::SUCCESS => Ok(sent),
            status => Err(status),
        }
    }

    pub fn io(&self, sqe: &Sqe, data: &[u8]) -> Result<Vec<u8>, Status> {
        self.execute(&self.check(sqe)?, data)
    }

    /// Writes blocks.
    pub fn write(&self, nsid: u32, slba: u64, blocks: u32, data: &[u8]) -> Result<(), Status> {
        self.io(&blocks_of(io::WRITE, nsid, slba, blocks), data)
            .map(drop)
    }

    /// Reads blocks.
    pub fn read(&self, nsid: u32, slba: u64, blocks: u32) -> Result<Vec<u8>, Status> {
        self.io(&blocks_of(io::READ, nsid, slba, blocks), &[])
    }

    pub fn flush(&self, nsid: u32) -> Result<(), Status> {
        self.io(&entry(io::FLUSH, nsid), &[]).map(drop)
    }
}

/// A command with this opcode for blocks.
pub fn blocks_of(opcode: u8, nsid: u32, slba: u64, blocks: u32) -> Sqe {
    Sqe {
        cdw10: slba as u32,
        cdw11: (slba >> 32) as u32,
        cdw12: blocks - 1,
        ..entry(opcode, nsid)
    }
}

/// The data to create a namespace of `pages` pages.
pub fn new_namespace(pages: u32, format: usize) -> NewNamespace {
    let mut new = NewNamespace::new_zeroed();
    let blocks = u64::from(pages) * (PAGE / FORMATS[format]) as u64;
    (new.nsze, new.ncap, new.flbas) = (blocks, blocks, format as u8);
    new
}
