//! Identify: the properties of the device. All values hold for the firmware below.

use super::association::Association;
use super::blocks::{LBA_SHIFTS, NSID_MAX, Namespace, PAGE_SHIFT};
use super::features::{KEEP_ALIVE_STEP_MS, WARNING_TEMPERATURE_K};
use super::host::{ERRORS, EVENTS_MAX, VERSION};
use super::portals::{GROUP, TRANSITION_SECONDS, Transport};
use super::rights::Access;
use super::subsystem::Subsystem;
use super::{
    COPY_FORMAT_NAMESPACES, COPY_RANGES_MAX, DEALLOCATE_BYTES_MAX, IN_CAPSULE_BYTES, MDTS,
    QUEUE_ENTRIES_MAX, VSL, copy_blocks_max, copy_range_blocks_max,
};
use crate::spec::NSID_ALL;
use crate::spec::ana::anacap;
use crate::spec::command::{IdentifyCdw10, Sqe};
use crate::spec::fabrics::DISCOVERY_NQN;
use crate::spec::identify::{
    Controller, IndependentNamespace, LbaFormat, Namespace as IdentifyNamespace, NvmController,
    OAES_NAMESPACES, blank, cmic, cns, ctratt, fna, nidt, oacs, oaes, oncs, sgls, text,
};
use crate::spec::management::put_controller_list;
use crate::spec::reservation::rescap;
use crate::spec::status::Status;
use zerocopy::IntoBytes;

pub(super) const IDENTIFY_BYTES: usize = 4096;

impl Association {
    pub(super) fn identify(&self, sqe: &Sqe, out: &mut Vec<u8>) -> Result<(), Status> {
        let wanted = IdentifyCdw10::from_bits(sqe.cdw10).cns();
        // Command set identifier, bits 31:24.
        let csi = (sqe.cdw11 >> 24) as u8;
        let subsystem = &*self.subsystem;

        if wanted == cns::CONTROLLER {
            out.extend_from_slice(self.identify_controller().as_bytes());
            return Ok(());
        }

        // A discovery controller has no namespaces and no command set.
        if self.discovery {
            return Err(Status::INVALID_FIELD);
        }

        // A namespace that its host does not see does not exist for it.
        let namespace = || self.namespace(sqe.nsid).ok_or(Status::INVALID_NAMESPACE);
        let command_set = || {
            if csi == 0 {
                Ok(())
            } else {
                Err(Status::INVALID_FIELD)
            }
        };
        let (rescap, group) = match self.transport {
            Transport::Fabrics => (rescap::ALL, GROUP),
            // On a bus hosts have no identifiers, and there is one path to the device.
            Transport::Bus => (0, 0),
        };
        let start = out.len();

        match wanted {
            // Properties of a namespace to be created.
            cns::NAMESPACE if sqe.nsid == NSID_ALL => {
                out.extend_from_slice(common_namespace().as_bytes());
            }
            cns::NAMESPACE => {
                out.extend_from_slice(self.about(&namespace()?, rescap, group).as_bytes());
            }
            cns::ACTIVE_NAMESPACES => self.active(sqe.nsid, out)?,
            cns::NAMESPACE_DESCRIPTORS => descriptors(subsystem, &namespace()?, out),
            cns::COMMAND_SET_NAMESPACE => {
                command_set()?;
                // Only the base structure: no protection, no storage tags.
                namespace()?;
            }
            cns::COMMAND_SET_CONTROLLER => {
                command_set()?;
                out.extend_from_slice(limits().as_bytes());
            }
            cns::COMMAND_SET_NAMESPACES => {
                command_set()?;
                self.active(sqe.nsid, out)?;
            }
            cns::INDEPENDENT_NAMESPACE => {
                namespace()?;
                let independent = self.independent(sqe.nsid, rescap, group);
                out.extend_from_slice(independent.as_bytes());
            }

            cns::ALLOCATED_NAMESPACES => put_numbers(&self.allocated(), sqe.nsid, out)?,
            cns::ALLOCATED_NAMESPACE => {
                let mut allocated = self.allocated().into_iter();
                let namespace = allocated.find(|one| one.nsid == sqe.nsid);
                let namespace = namespace.ok_or(Status::INVALID_NAMESPACE)?;
                out.extend_from_slice(self.about(&namespace, rescap, group).as_bytes());
            }
            cns::ATTACHED_CONTROLLERS | cns::CONTROLLERS => {
                out.extend(self.controllers_listed(sqe)?);
            }

            // Only the NVM command set.
            cns::COMMAND_SETS => out.extend_from_slice(&1u64.to_le_bytes()),
            _ => return Err(Status::INVALID_FIELD),
        }

        out.resize(start + IDENTIFY_BYTES, 0);
        Ok(())
    }

    /// A namespace as its host sees it.
    fn about(&self, namespace: &Namespace, rescap: u8, group: u32) -> IdentifyNamespace {
        let mut id = identify_namespace(&self.subsystem, namespace);
        id.nsattr = self.attributes(namespace.nsid);

        // An inaccessible portal reports no space in use or allocated (Base 2.2 §8.1.1.6), but
        // keeps the size: otherwise hosts would think that the disk has shrunk.
        if self.must_be_accessible().is_err() {
            (id.nuse, id.nvmcap) = (0, [0; 16]);
        }
        (id.rescap, id.anagrpid) = (rescap, group);
        id
    }

    /// A namespace's properties for any command set.
    fn independent(&self, nsid: u32, rescap: u8, group: u32) -> IndependentNamespace {
        let mut id: IndependentNamespace = blank();
        // Shared by controllers, and ready.
        (id.nmic, id.nstat) = (1, 1);
        id.nsattr = self.attributes(nsid);
        (id.rescap, id.anagrpid) = (rescap, group);
        id
    }

    /// The namespaces that its host sees, after a number.
    fn active(&self, after: u32, out: &mut Vec<u8>) -> Result<(), Status> {
        put_numbers(&self.namespaces().collect::<Vec<_>>(), after, out)
    }

    /// The namespaces that its host has a right to, attached or not.
    fn allocated(&self) -> Vec<Namespace> {
        let all = self.subsystem.namespaces().into_iter();
        all.filter(|namespace| self.rights().access(namespace.nsid) > Access::None)
            .collect()
    }

    /// The controller list, from the command's controller ID on: all, or those that see a
    /// namespace.
    fn controllers_listed(&self, sqe: &Sqe) -> Result<Vec<u8>, Status> {
        let cdw10 = IdentifyCdw10::from_bits(sqe.cdw10);
        let by_namespace = cdw10.cns() == cns::ATTACHED_CONTROLLERS;
        if by_namespace && !self.allocated().iter().any(|one| one.nsid == sqe.nsid) {
            return Err(Status::INVALID_NAMESPACE);
        }

        // The names of other hosts are private: a host without all rights sees only its own
        // controllers.
        let sees_all = self.rights().get().is_all();
        let controllers = self.subsystem.controllers.all();
        let listed = controllers
            .iter()
            .filter(|one| one.cntlid() >= cdw10.cntid())
            .filter(|one| sees_all || one.hostnqn() == self.hostnqn())
            .filter(|one| !by_namespace || one.sees(&self.subsystem.namespaces, sqe.nsid));
        Ok(put_controller_list(listed.map(|one| one.cntlid())))
    }

    fn identify_controller(&self) -> Controller {
        let subsystem = &*self.subsystem;
        let mut id: Controller = blank();
        id.sn = text(subsystem.serial());
        id.mn = text("remap-ssd");
        id.fr = text(env!("CARGO_PKG_VERSION"));

        id.mdts = MDTS;
        id.cntlid = self.cntlid;
        id.ver = VERSION;
        id.cntrltype = if self.discovery { 2 } else { 1 };

        id.oaes = OAES_NAMESPACES;
        // The subsystem may have more than one controller.
        id.cmic = cmic::CONTROLLERS;
        id.acl_z = 3;
        id.aerl_z = EVENTS_MAX as u8 - 1;
        // One read-only firmware slot.
        id.frmw = 1 | 1 << 1;
        // Effects log, extended Get Log Page.
        id.lpa = 1 << 1 | 1 << 2;
        id.elpe_z = ERRORS as u8 - 1;
        (id.wctemp, id.cctemp) = (WARNING_TEMPERATURE_K, WARNING_TEMPERATURE_K + 10);
        id.tnvmcap = u128::from(subsystem.capacity_bytes()).to_le_bytes();
        id.maxcmd = QUEUE_ENTRIES_MAX;

        // The name that the host has connected to, as it expects.
        let nqn = if self.discovery {
            DISCOVERY_NQN
        } else {
            subsystem.nqn()
        };
        id.subnqn[..nqn.len()].copy_from_slice(nqn.as_bytes());

        if self.transport == Transport::Fabrics {
            // In units of 100 ms.
            id.kas = (KEEP_ALIVE_STEP_MS / 100) as u16;
            id.ctratt = ctratt::TRAFFIC_KEEPS_ALIVE | ctratt::HOST_ID_LONG;
            id.sgls = sgls::SUPPORTED | sgls::LONGER | sgls::OFFSETS;
            id.ioccsz = (64 + IN_CAPSULE_BYTES) / 16;
            id.iorcsz = 1;
            id.msdbd = 1;
            // Disconnect.
            id.ofcs = 1;
        }

        // A discovery controller has no I/O commands.
        if !self.discovery {
            self.add_io(&mut id);
        }
        id
    }

    /// Adds the properties of I/O commands and namespaces.
    fn add_io(&self, id: &mut Controller) {
        let subsystem = &*self.subsystem;

        // Required and maximum entry sizes as powers of two: 64 bytes in, 16 bytes out.
        (id.sqes, id.cqes) = (0x66, 0x44);
        (id.oacs, id.fna) = (oacs::FORMAT | oacs::NAMESPACES, fna::NO_BROADCAST);
        (id.nn, id.mnan) = (NSID_MAX, NSID_MAX);
        id.unvmcap = u128::from(subsystem.namespaces.free_bytes()).to_le_bytes();
        id.oncs = oncs::COMPARE
            | oncs::DATASET_MANAGEMENT
            | oncs::WRITE_ZEROES
            | oncs::FEATURE_SELECT
            | oncs::VERIFY
            | oncs::COPY;

        // A network has several hosts and several paths. A bus has one of each, so it promises
        // neither.
        if self.transport == Transport::Fabrics {
            id.oncs |= oncs::RESERVATIONS;
            id.cmic |= cmic::PORTS | cmic::ANA;
            id.oaes |= oaes::ANA_CHANGE;
            id.anatt = TRANSITION_SECONDS;
            id.anacap = anacap::OPTIMIZED
                | anacap::NON_OPTIMIZED
                | anacap::INACCESSIBLE
                | anacap::STATIC_GROUPS;
            (id.anagrpmax, id.nanagrpid) = (GROUP, 1);
        }

        // Flush of all namespaces is supported; present only if a crash of the machine can lose
        // acknowledged writes.
        id.vwc = 3 << 1 | u8::from(subsystem.volatile_cache());
        // What holds for every namespace, in its blocks: that of 4 KiB ones is the same number of pages, and more bytes than any other. Writes have
        // the device one after the other. 0's based.
        let untorn = subsystem.untorn_blocks(PAGE_SHIFT) as u16;
        (id.awun_z, id.awupf_z) = (untorn - 1, untorn - 1);
        id.ocfs = 1 | 1 << COPY_FORMAT_NAMESPACES;
    }
}

/// Appends the numbers after `after`, as many as there is room for.
fn put_numbers(all: &[Namespace], after: u32, out: &mut Vec<u8>) -> Result<(), Status> {
    // The two largest numbers mean all namespaces, so none can follow them.
    if after >= NSID_ALL - 1 {
        return Err(Status::INVALID_NAMESPACE);
    }
    let larger = all.iter().filter(|one| one.nsid > after);
    // 4,096 bytes hold 1,024 numbers; a host with more asks again, after the last one.
    larger
        .take(IDENTIFY_BYTES / 4)
        .for_each(|one| out.extend(one.nsid.to_le_bytes()));
    Ok(())
}

/// Limits of the NVM command set. Write Zeroes and the number of Dataset Management ranges are
/// unlimited.
fn limits() -> NvmController {
    let mut limits: NvmController = blank();
    limits.vsl = VSL;
    // The limit is in blocks of any namespace: assume the larger ones.
    let blocks = DEALLOCATE_BYTES_MAX.map(|bytes| bytes >> PAGE_SHIFT);
    (limits.dmrsl, limits.dmsl) = (blocks[0] as u32, blocks[1]);
    limits
}

/// Properties of every namespace.
fn common_namespace() -> IdentifyNamespace {
    let mut id: IdentifyNamespace = blank();
    id.nlbaf_z = LBA_SHIFTS.len() as u8 - 1;
    for (at, lba_shift) in LBA_SHIFTS.into_iter().enumerate() {
        id.lbaf[at] = LbaFormat {
            ms: 0,
            lbads: lba_shift,
            // Partial pages need read-modify-write.
            rp: if lba_shift == PAGE_SHIFT { 0 } else { 2 },
        };
    }

    // Several controllers may use it at once.
    id.nmic = 1;
    // Deallocated blocks read as zeroes, by Write Zeroes too.
    id.dlfeat = 1 | 1 << 3;
    id
}

fn identify_namespace(subsystem: &Subsystem, namespace: &Namespace) -> IdentifyNamespace {
    let mut id = common_namespace();
    let blocks = namespace.size_blocks();

    // Thin provisioning is not reported: every block counts as in use.
    (id.nsze, id.ncap, id.nuse) = (blocks, blocks, blocks);

    // Writes of whole indirection units save the device a read, and so do deallocations of whole ones. Namespaces begin with one.
    let unit_blocks = (subsystem.unit_pages as u16) << (PAGE_SHIFT - namespace.lba_shift);
    // Preferred sizes are reported, and atomic ones: without a boundary, since a write may begin anywhere.
    id.nsfeat = 1 << 4 | 1 << 1;
    let untorn = subsystem.untorn_blocks(namespace.lba_shift) as u16;
    (id.nawun_z, id.nawupf_z) = (untorn - 1, untorn - 1);
    (id.npwg_z, id.npwa_z) = (unit_blocks - 1, unit_blocks - 1);
    (id.npdg_z, id.npda_z) = (unit_blocks - 1, unit_blocks - 1);
    // The optimal write size is a multiple of the granularity.
    id.nows_z = unit_blocks - 1;

    let format = LBA_SHIFTS.iter().position(|it| *it == namespace.lba_shift);
    id.flbas = format.unwrap_or(0) as u8;

    id.nvmcap = (u128::from(namespace.pages) << PAGE_SHIFT).to_le_bytes();

    id.mssrl = copy_range_blocks_max(namespace.lba_shift);
    id.mcl = copy_blocks_max(namespace.lba_shift);
    id.msrc_z = (COPY_RANGES_MAX - 1) as u8;

    (id.nguid, id.eui64) = names(subsystem, namespace);

    id
}

/// Inputs of a namespace's identifiers besides the subsystem's name and its number; empty if it was
/// created with an image.
fn birth(subsystem: &Subsystem, namespace: &Namespace) -> Vec<u8> {
    // A returning host must not take it for a previous namespace with its number.
    let serial = Some(namespace.serial.to_be_bytes()).filter(|_| namespace.serial > 0);
    let mut birth = subsystem.incarnation().to_vec();
    birth.extend(serial.into_iter().flatten());
    birth
}

/// Identifiers that depend only on the subsystem's name and incarnation and on the namespace's
/// number and serial number.
fn names(subsystem: &Subsystem, namespace: &Namespace) -> ([u8; 16], [u8; 8]) {
    let digest = |salt: u8| {
        let crc = crc32c::crc32c(subsystem.nqn().as_bytes());
        crc32c::crc32c_append(
            crc,
            &[
                &namespace.nsid.to_be_bytes()[..],
                &[salt],
                &birth(subsystem, namespace),
            ]
            .concat(),
        )
        .to_be_bytes()
    };

    // Each part has its own salt: otherwise the four checksums would be equal.
    let mut nguid = [0; 16];
    nguid
        .as_chunks_mut::<4>()
        .0
        .iter_mut()
        .zip(0..)
        .for_each(|(bytes, salt)| *bytes = digest(salt));

    // The shorter identifier is a part of the longer one, so both change together.
    let mut eui64 = [0; 8];
    eui64.copy_from_slice(&nguid[8..]);

    (nguid, eui64)
}

/// A UUID from the same inputs (RFC 9562, version 8): their 128-bit FNV-1a hash.
fn uuid(subsystem: &Subsystem, namespace: &Namespace) -> [u8; 16] {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

    // A zero separates name and number: without it two pairs could give the same text.
    let bytes = subsystem
        .nqn()
        .bytes()
        .chain([0])
        .chain(namespace.nsid.to_be_bytes());
    let bytes = bytes.chain(birth(subsystem, namespace));
    let mut uuid = bytes
        .fold(BASIS, |hash, byte| {
            (hash ^ u128::from(byte)).wrapping_mul(PRIME)
        })
        .to_be_bytes();

    // Version 8 and the variant: a vendor-specific UUID.
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

fn descriptors(subsystem: &Subsystem, namespace: &Namespace, out: &mut Vec<u8>) {
    let (nguid, eui64) = names(subsystem, namespace);
    let mut put = |kind: u8, bytes: &[u8]| {
        out.extend_from_slice(&[kind, bytes.len() as u8, 0, 0]);
        out.extend_from_slice(bytes);
    };
    put(nidt::EUI64, &eui64);
    put(nidt::NGUID, &nguid);
    put(nidt::UUID, &uuid(subsystem, namespace));
    put(nidt::CSI, &[0]);
}
