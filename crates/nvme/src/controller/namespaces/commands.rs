//! The Namespace Management and Namespace Attachment commands (Base 2.0 §5.20, §5.21).
//!
//! The host needs full access to all namespaces. Controllers are created at Connect, so a namespace
//! is attached to the host of the controller named, and thus to all present and future controllers
//! of that host. Absent: the steps (`change`).

use crate::controller::association::Association;
use crate::controller::blocks::{LBA_SHIFTS, NamespaceSpec, PAGE_SHIFT};
use crate::controller::portals::GROUP;
use crate::controller::request::Transfer;
use crate::controller::rights::Need;
use crate::spec::NSID_ALL;
use crate::spec::command::Sqe;
use crate::spec::management::{MANAGEMENT_BYTES, NewNamespace, controller_list, sel};
use crate::spec::opcode::admin;
use crate::spec::status::Status;
use std::collections::BTreeSet;
use zerocopy::FromBytes;

/// Data transfer of one of the two commands; `None` for any other command.
pub(in crate::controller) fn management_transfer(sqe: &Sqe) -> Option<Transfer> {
    let has_data = match sqe.head().opcode() {
        admin::NAMESPACE_MANAGEMENT => selected(sqe) == sel::CREATE,
        admin::NAMESPACE_ATTACHMENT => true,
        _ => return None,
    };
    Some(if has_data {
        Transfer::FromHost(MANAGEMENT_BYTES as u32)
    } else {
        Transfer::None
    })
}

/// SEL: the operation selected.
fn selected(sqe: &Sqe) -> u8 {
    sqe.cdw10 as u8 & 0xf
}

impl Association {
    /// Creates or deletes a namespace; returns the number of a new one.
    ///
    /// # Errors
    /// The status to answer.
    pub(in crate::controller) fn manage_namespaces(
        &self,
        sqe: &Sqe,
        data: &[u8],
    ) -> Result<u64, Status> {
        self.must_manage()?;
        match selected(sqe) {
            sel::CREATE => {
                // Command set identifier, bits 31:24: only the NVM command set exists.
                if sqe.cdw11 >> 24 != 0 {
                    return Err(Status::COMMAND_SET);
                }
                let new = NewNamespace::read_from_bytes(data).map_err(|_| Status::SGL_LENGTH)?;
                self.subsystem.create_namespace(spec(&new)?).map(u64::from)
            }
            sel::DELETE => self.delete_namespaces(sqe.nsid).map(|()| 0),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    fn delete_namespaces(&self, nsid: u32) -> Result<(), Status> {
        let subsystem = &self.subsystem;
        let mut deleted = subsystem.namespaces.numbers();
        if nsid != NSID_ALL {
            deleted.retain(|one| *one == nsid);
            if deleted.is_empty() {
                return Err(Status::INVALID_NAMESPACE);
            }
        }

        // Check all first: if one of several must not be deleted, none is.
        for nsid in &deleted {
            self.must_not_be_reserved(*nsid)?;
        }
        for nsid in deleted {
            subsystem.delete_namespace(nsid)?;
        }
        Ok(())
    }

    /// Attaches a namespace to the hosts of controllers, or detaches it.
    ///
    /// # Errors
    /// The status to answer.
    pub(in crate::controller) fn attach_namespaces(
        &self,
        sqe: &Sqe,
        data: &[u8],
    ) -> Result<(), Status> {
        self.must_manage()?;
        let attach = match selected(sqe) {
            sel::ATTACH => true,
            sel::DETACH => false,
            _ => return Err(Status::INVALID_FIELD),
        };
        if self.subsystem.namespace(sqe.nsid).is_none() {
            return Err(Status::INVALID_NAMESPACE);
        }

        let numbers = controller_list(data).ok_or(Status::CONTROLLER_LIST)?;
        let controllers = self.subsystem.controllers.all();
        let host = |cntlid: &u16| {
            let named = controllers.iter().find(|one| one.cntlid() == *cntlid);
            named.map(|one| one.hostnqn().to_owned())
        };
        let hosts: Option<BTreeSet<String>> = numbers.iter().map(host).collect();
        let hosts = hosts.ok_or(Status::CONTROLLER_LIST)?;
        self.subsystem.attach_namespace(sqe.nsid, &hosts, attach)
    }

    /// Checks that its host may create and delete namespaces.
    fn must_manage(&self) -> Result<(), Status> {
        if self.discovery {
            return Err(Status::INVALID_OPCODE);
        }
        self.rights().check_all(Need::WriteAll)
    }
}

/// Decodes and validates the host's specification.
fn spec(new: &NewNamespace) -> Result<NamespaceSpec, Status> {
    // Bits 3:0 and 6:5 are the format's number; bit 4 would be metadata.
    let format = usize::from(new.flbas & 0xf | new.flbas >> 1 & 0x30);
    let lba_shift = *LBA_SHIFTS.get(format).ok_or(Status::INVALID_FORMAT)?;
    if new.flbas & 1 << 4 != 0 || new.dps != 0 {
        return Err(Status::INVALID_FORMAT);
    }

    // Any host may have it attached. Sets, endurance groups and other ANA groups do not exist.
    let (group, set, endurance) = (new.anagrpid, new.nvmsetid, new.endgid);
    if group != 0 && group != GROUP {
        return Err(Status::ANA_GROUP);
    }
    if set != 0 || endurance != 0 {
        return Err(Status::INVALID_FIELD);
    }

    let (size, capacity) = (new.nsze, new.ncap);
    if size != capacity {
        return Err(Status::THIN_PROVISIONING);
    }

    // Whole pages, and at least one. A size beyond 32 bits fits no device.
    let page_blocks = 1u64 << (PAGE_SHIFT - lba_shift);
    if size == 0 || !size.is_multiple_of(page_blocks) {
        return Err(Status::INVALID_FIELD);
    }
    let pages = u32::try_from(size / page_blocks).map_err(|_| Status::NAMESPACE_CAPACITY)?;
    Ok(NamespaceSpec { pages, lba_shift })
}
