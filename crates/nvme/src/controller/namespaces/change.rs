//! Creation, deletion, reformatting, attachment and detachment of namespaces.
//!
//! ```text
//! delete    saved as "to be deleted" ─► hidden from hosts ─► every page deallocated, durably ─► removed from the list: its pages are free
//! reformat  saved as "to be emptied" ─► not usable ─► every page deallocated, durably ─► saved with the new block size: in use
//! create    saved as "to be deleted" ─► every page deallocated, durably, and no reservation ─► saved: exists, attached to no host
//! ```
//! Each arrow waits until the step before it is durable. Crash argument: a cut (1) before the first
//! arrow leaves all unchanged; (2) between the first and the last finds a namespace saved as half
//! emptied, which the next start empties (`finish_clearing`) before any host sees it: the result is
//! that of the last arrow, or for a creation the state before the first; (3) after the last finds
//! it done. No host gets a page that another namespace's host wrote: pages become free only when
//! all of them are deallocated durably, and a creation does not rely on that. A power cut requested
//! by an operator may undo deallocations, so cuts are counted and the deallocations repeated.
//! Absent: the commands that request changes (`commands`).

use super::Namespaces;
use super::kept::{Attachment, Clearing, KeptNamespace, KeptNamespaces};
use crate::controller::blocks::{Namespace, NamespaceSpec};
use crate::controller::format::deallocations;
use crate::controller::host::HostController;
use crate::controller::issuer::Issuer;
use crate::controller::request::IoCommand;
use crate::controller::rights::Access;
use crate::controller::subsystem::Subsystem;
use crate::controller::turn::SharedDevice;
use crate::spec::status::Status;
use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

/// Maximum host names stored with a namespace.
const NAMED_HOSTS_MAX: usize = 1024;

/// A namespace is being emptied by one thread until this is dropped.
struct BeingEmptied<'a> {
    namespaces: &'a Namespaces,
    nsid: u32,
}

impl<'a> BeingEmptied<'a> {
    /// # Errors
    /// Format in Progress: another thread is emptying it.
    fn begin(namespaces: &'a Namespaces, nsid: u32) -> Result<Self, Status> {
        let mut numbers = namespaces
            .being_emptied
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if numbers.insert(nsid) {
            Ok(Self { namespaces, nsid })
        } else {
            Err(Status::FORMAT_IN_PROGRESS)
        }
    }
}

impl Drop for BeingEmptied<'_> {
    fn drop(&mut self) {
        let being_emptied = &self.namespaces.being_emptied;
        let mut numbers = being_emptied.lock().unwrap_or_else(PoisonError::into_inner);
        numbers.remove(&self.nsid);
    }
}

impl Namespaces {
    /// Changes the list. The caller must not have the device.
    ///
    /// # Errors
    /// The error of `change`, without any effect; or Internal Error, if the list could not be
    /// saved.
    fn change<R>(
        &self,
        device: &SharedDevice,
        change: impl FnOnce(&mut KeptNamespaces) -> Result<R, Status>,
    ) -> Result<R, Status> {
        // One change at a time: of two that start from the same list, the first would be lost.
        let changing = self.changing.lock();
        let _one = changing.unwrap_or_else(PoisonError::into_inner);
        let mut kept = self.table.load().kept();
        let result = change(&mut kept)?;

        // 1. the new list is durable  2. it is in force
        if let Some(store) = &self.store {
            store.save(&kept).map_err(|_| Status::INTERNAL)?;
        }

        // No command is within a step: one checked against the old list is checked again.
        let turn = device.turn();
        self.put_in_force(kept);
        drop(turn);
        Ok(result)
    }

    /// A namespace by its number, even one that is being deleted.
    fn numbered(&self, nsid: u32) -> Result<Namespace, Status> {
        let table = self.table.load();
        let entry = table.get(nsid).ok_or(Status::INVALID_NAMESPACE)?;
        Ok(entry.namespace)
    }
}

impl Subsystem {
    /// Creates a namespace, attached to no host, and returns its number.
    ///
    /// # Errors
    /// The status to answer.
    pub(super) fn create_namespace(&self, spec: NamespaceSpec) -> Result<u32, Status> {
        let lpns = self.namespaces.lpns;
        self.must_take_writes()?;
        let (nsid, _alone) = self.namespaces.change(&self.device, |all| {
            let nsid = all.number().ok_or(Status::NAMESPACE_NUMBERS)?;
            let alone = BeingEmptied::begin(&self.namespaces, nsid)?;
            let first_lpn = all.place(spec.pages, lpns, self.namespaces.unit);
            all.made += 1;
            all.add(KeptNamespace {
                nsid,
                first_lpn: first_lpn.ok_or(Status::NAMESPACE_CAPACITY)?,
                pages: spec.pages,
                lba_shift: spec.lba_shift,
                serial: all.made,
                clearing: Some(Clearing::ThenDelete),
                attachment: Attachment::NOBODY,
            });
            Ok((nsid, alone))
        })?;

        // Free pages may hold data if an operator once accepted an older copy of the list.
        let made = self.forget(nsid).and_then(|()| {
            self.namespaces.change(&self.device, |all| {
                let one = all.get_mut(nsid).ok_or(Status::INVALID_NAMESPACE)?;
                one.clearing = None;
                Ok(nsid)
            })
        });
        if made.is_err() {
            // If this fails too, the next start finishes it.
            let _ = self.namespaces.change(&self.device, |all| {
                all.list.retain(|one| one.nsid != nsid);
                Ok(())
            });
        }
        made
    }

    /// Removes everything of a namespace: pages, registrations, reservation.
    fn forget(&self, nsid: u32) -> Result<(), Status> {
        let namespace = self.namespaces.numbered(nsid)?;
        self.empty(&namespace)?;
        self.reservations
            .forget(&self.device, &self.namespaces, &namespace)
    }

    /// Deletes a namespace: its pages are free when this returns.
    ///
    /// # Errors
    /// The status to answer. If the device failed in the meantime, repeating the command or the
    /// next start finishes the deletion.
    pub(super) fn delete_namespace(&self, nsid: u32) -> Result<(), Status> {
        let _alone = BeingEmptied::begin(&self.namespaces, nsid)?;
        self.must_take_writes()?;
        // Its hosts are notified once it is gone.
        let seeing: Vec<_> = self.controllers_that_see(nsid);

        self.namespaces.change(&self.device, |all| {
            let one = all.get_mut(nsid).ok_or(Status::INVALID_NAMESPACE)?;
            one.clearing = Some(Clearing::ThenDelete);
            Ok(())
        })?;
        seeing
            .iter()
            .for_each(|controller| controller.note_changed(vec![nsid]));
        self.finish(nsid, Clearing::ThenDelete)
    }

    /// Empties a namespace and changes its block size.
    ///
    /// # Errors
    /// The status to answer. If the device failed in the meantime, repeating the command or the
    /// next start finishes the format.
    pub(in crate::controller) fn reformat_namespace(
        &self,
        nsid: u32,
        lba_shift: u8,
    ) -> Result<(), Status> {
        let _alone = BeingEmptied::begin(&self.namespaces, nsid)?;
        self.must_take_writes()?;
        self.namespaces.change(&self.device, |all| {
            let one = all.get_mut(nsid).ok_or(Status::INVALID_NAMESPACE)?;
            one.clearing = Some(Clearing::ThenUse);
            one.lba_shift = lba_shift;
            Ok(())
        })?;
        self.finish(nsid, Clearing::ThenUse)?;

        self.controllers_that_see(nsid)
            .iter()
            .for_each(|controller| controller.note_changed(vec![nsid]));
        Ok(())
    }

    /// Attaches a namespace to hosts, or detaches it.
    ///
    /// # Errors
    /// The status to answer.
    pub(super) fn attach_namespace(
        &self,
        nsid: u32,
        hosts: &BTreeSet<String>,
        attach: bool,
    ) -> Result<(), Status> {
        self.namespaces.change(&self.device, |all| {
            let one = all.get_mut(nsid).ok_or(Status::INVALID_NAMESPACE)?;
            if one.clearing == Some(Clearing::ThenDelete) {
                return Err(Status::INVALID_NAMESPACE);
            }

            // Check all hosts first: a list that is wrong in part changes nothing.
            let is_so_already = |host: &String| one.attachment.includes(Some(host)) == attach;
            if hosts.iter().any(is_so_already) {
                return Err(if attach {
                    Status::ALREADY_ATTACHED
                } else {
                    Status::NOT_ATTACHED
                });
            }
            hosts
                .iter()
                .for_each(|host| one.attachment.set(host, attach));
            // Hosts choose their names: without a limit they could grow the list without bound.
            if one.attachment.except.len() > NAMED_HOSTS_MAX {
                return Err(Status::CONTROLLER_LIST);
            }
            Ok(())
        })?;

        // After the change: a host that reads at once sees the new state. Hosts without a right to
        // the namespace are not notified.
        let controllers = self.controllers.all().into_iter();
        let concerned = controllers.filter(|one| {
            hosts.contains(one.hostnqn()) && one.rights().access(nsid) > Access::None
        });
        concerned.for_each(|controller| controller.note_changed(vec![nsid]));
        Ok(())
    }

    /// Finishes changes interrupted by a power cut, before the subsystem is used. Returns the
    /// number of half-emptied namespaces.
    ///
    /// # Errors
    /// The device refuses, or the list cannot be saved.
    pub fn finish_clearing(&self) -> Result<usize, Status> {
        let kept = self.namespaces.table.load().kept();
        let half_emptied = kept.list.iter();
        let half_emptied =
            half_emptied.filter_map(|one| one.clearing.map(|clearing| (one.nsid, clearing)));

        let mut finished = 0;
        for (nsid, clearing) in half_emptied {
            let _alone = BeingEmptied::begin(&self.namespaces, nsid)?;
            self.finish(nsid, clearing)?;
            finished += 1;
        }
        Ok(finished)
    }

    /// Empties a namespace saved as to be emptied, then completes its deletion or reformatting.
    fn finish(&self, nsid: u32, clearing: Clearing) -> Result<(), Status> {
        match clearing {
            // The next namespace with this number must not inherit its reservations.
            Clearing::ThenDelete => self.forget(nsid)?,
            Clearing::ThenUse => self.empty(&self.namespaces.numbered(nsid)?)?,
        }

        self.namespaces.change(&self.device, |all| {
            match clearing {
                Clearing::ThenDelete => all.list.retain(|one| one.nsid != nsid),
                Clearing::ThenUse => {
                    let one = all.get_mut(nsid).ok_or(Status::INVALID_NAMESPACE)?;
                    one.clearing = None;
                }
            }
            Ok(())
        })
    }

    /// Refuses changes on a worn-out device, which could not finish them.
    ///
    /// # Errors
    /// Namespace is Write Protected.
    fn must_take_writes(&self) -> Result<(), Status> {
        let is_worn_out = self.device().ftl().is_read_only();
        let is_kept_from_it = || self.fault_injector().is_some_and(|it| it.is_read_only());
        if is_worn_out || is_kept_from_it() {
            Err(Status::WRITE_PROTECTED)
        } else {
            Ok(())
        }
    }

    /// Deallocates every page of a namespace, durably.
    fn empty(&self, namespace: &Namespace) -> Result<(), Status> {
        loop {
            let cuts_before = self.power_cuts();

            match self.empty_once(namespace) {
                // A cut between two slices of a deallocation.
                Err(Status::POWER_LOSS) => {}
                Err(status) => return Err(status),
                // Deallocations before a cut may have been in a volatile cache only.
                Ok(()) if self.power_cuts() == cuts_before => return Ok(()),
                Ok(()) => {}
            }
        }
    }

    fn empty_once(&self, namespace: &Namespace) -> Result<(), Status> {
        for request in deallocations(namespace, self.unit_pages) {
            let command = IoCommand::new(request, namespace);
            self.execute_alone(&command, &Issuer::service())?;
        }
        self.device.observe_flush();
        self.drain()
    }

    /// The controllers whose hosts see a namespace.
    fn controllers_that_see(&self, nsid: u32) -> Vec<Arc<HostController>> {
        let all = self.controllers.all().into_iter();
        all.filter(|controller| controller.sees(&self.namespaces, nsid))
            .collect()
    }
}
