//! Rights of hosts: every command supported by the controller against every right, by misbehaving
//! hosts.

mod commands;
mod given;
mod shown;

use crate::kit::raw::{Answer, Peer, in_capsule, transport, with_cid};
use crate::kit::specified::{cns, lid, property};
use crate::kit::{self, Rig, Setup, allowed, device, keyring, secret};
use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_nvme::auth::{Credentials, Keys};
use remap_ssd_nvme::controller::{
    Association, InMemory, IoCommand, IoRequest, NamespaceSpec, Rights,
};
use remap_ssd_nvme::spec::command::{CopyCdw12, CopyRange, DsmRange, RemapCdw12, Sqe};
use remap_ssd_nvme::spec::identify::{Controller, IndependentNamespace, Namespace};
use remap_ssd_nvme::spec::management::controller_list;
use remap_ssd_nvme::spec::opcode::{admin, io};
use remap_ssd_nvme::spec::pdu::{Flags, Ic, kind};
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_nvme::tcp::client::{Client, ClientError, Options, entry};
use remap_ssd_nvme::tcp::server::Limits;
use remap_ssd_nvme::tcp::target::{Allowed, AllowedHost, Connection, Output, Port, Who};
use remap_ssd_nvme::tcp::wire::{self, Agreement};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use zerocopy::{FromBytes, IntoBytes};

const OWNER: &str = "nqn.2026-11.test:owner";
const GUEST: &str = "nqn.2026-11.test:guest";
/// Write access to the first of three namespaces, read access to the second, none to the third.
const GUESTS: &str = "1:rw,2:ro";
const PAGE: usize = 4096;
const HIDDEN: Status = Status::INVALID_NAMESPACE;
const PROTECTED: Status = Status::WRITE_PROTECTED;
const DENIED: Status = Status::OPERATION_DENIED;

const EVENTS: u32 = 0x0b;
const HOST_BEHAVIOR: u32 = 0x16;

fn namespaces() -> [NamespaceSpec; 3] {
    [NamespaceSpec {
        pages: 500,
        lba_shift: 12,
    }; 3]
}

fn rig() -> Rig {
    let hosts = [(OWNER, "all:rw"), (GUEST, GUESTS)];
    Setup::of(kit::subsystem(mapped(), &namespaces()))
        .hosts(&hosts)
        .start()
}

/// A device with a map of files.
fn mapped() -> Device {
    let config = DeviceConfig::for_service(32 << 20, SchemeKind::RemapSsd, false);
    let mut config = config.expect("possible");
    (config.firmware.fs_files, config.firmware.fs_blocks) = (64, 64);
    Device::format(config).expect("possible")
}

/// A host with an admin queue and an I/O queue.
struct Host {
    admin: Peer,
    io: Peer,
}

impl Host {
    fn of(rig: &Rig, name: &str) -> Self {
        let (mut admin, cntlid) = Peer::admin_of(rig.address, name);
        let mut behavior = [0; 512];
        behavior[4] = 1 << 2;
        let sqe = Sqe {
            cdw10: HOST_BEHAVIOR,
            ..entry(admin::SET_FEATURES, 0)
        };
        let set = admin.call(in_capsule(sqe, 512), &behavior);
        assert_eq!(set.cqe.status(), Status::SUCCESS, "copies across");
        let io = Peer::io_of(rig.address, name, cntlid, 1, 0);
        Self { admin, io }
    }

    fn read(&mut self, nsid: u32, slba: u32) -> Result<Vec<u8>, Status> {
        let sqe = Sqe {
            cdw10: slba,
            ..entry(io::READ, nsid)
        };
        data_of(self.io.call(transport(sqe, PAGE as u32), &[]))
    }

    fn write(&mut self, nsid: u32, slba: u32, byte: u8) -> Status {
        let sqe = Sqe {
            cdw10: slba,
            ..entry(io::WRITE, nsid)
        };
        let data = [byte; PAGE];
        self.io
            .call(in_capsule(sqe, PAGE as u32), &data)
            .cqe
            .status()
    }

    fn identify(&mut self, wanted: u8, nsid: u32) -> Result<Vec<u8>, Status> {
        let sqe = Sqe {
            cdw10: wanted.into(),
            ..entry(admin::IDENTIFY, nsid)
        };
        data_of(self.admin.call(transport(sqe, PAGE as u32), &[]))
    }

    fn log(&mut self, page: u8, bytes: u32, retain: bool) -> Result<Vec<u8>, Status> {
        let sqe = Sqe {
            cdw10: u32::from(page) | u32::from(retain) << 15 | (bytes / 4 - 1) << 16,
            ..entry(admin::GET_LOG_PAGE, u32::MAX)
        };
        data_of(self.admin.call(transport(sqe, bytes), &[]))
    }

    fn active(&mut self) -> Vec<u32> {
        numbers(&self.identify(cns::ACTIVE_NAMESPACES, 0).expect("a list"))
    }

    fn attributes(&mut self, nsid: u32) -> [u8; 2] {
        let common = self.identify(cns::NAMESPACE, nsid).expect("it is seen");
        let other = self
            .identify(cns::INDEPENDENT_NAMESPACE, nsid)
            .expect("it is seen");
        let common = Namespace::read_from_bytes(&common).expect("its size");
        let other = IndependentNamespace::read_from_bytes(&other).expect("its size");
        [common.nsattr, other.nsattr]
    }
}

fn data_of(answer: Answer) -> Result<Vec<u8>, Status> {
    match answer.cqe.status() {
        Status::SUCCESS => Ok(answer.data),
        status => Err(status),
    }
}

/// The numbers of a list that ends with zeroes.
fn numbers(list: &[u8]) -> Vec<u32> {
    let words = list
        .as_chunks::<4>()
        .0
        .iter()
        .map(|bytes| u32::from_le_bytes(*bytes));
    words.take_while(|nsid| *nsid != 0).collect()
}
