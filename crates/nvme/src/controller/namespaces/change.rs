//! Namespaces are created, deleted, reformatted, attached and detached.
//!
//! ```text
//! delete    kept as to be deleted ─► nobody sees it ─► every page deallocated, durably ─► not kept any more: its pages are free
//! reformat  kept as to be emptied ─► nobody may use it ─► every page deallocated, durably ─► kept with the new blocks: in use
//! create    kept as to be deleted ─► every page deallocated, durably, and no reservation ─► kept: there, attached to nobody
//! ```
//! Each arrow waits until what is before it is durable. Crash argument: a cut (1) before the first
//! arrow leaves all as it was; (2) between the first and the last finds a namespace that is kept as
//! half emptied, which the next start empties (`finish_clearing`) before anybody sees it, and so
//! comes out as after the last arrow, or of a creation as before the first; (3) behind the last
//! finds it done. No host gets a page that another namespace's host wrote: pages become free only
//! when all of them are deallocated durably, and a creation does not rely on that.
//! A power cut that an operator asks for may take the deallocations back, so they are counted and
//! repeated. Absent: the commands that ask for it (`commands`).

use super::kept::{Attachment, Clearing, KeptNamespace, KeptNamespaces};
use super::{Namespace, NamespaceSpec};
use crate::controller::association::Association;
use crate::controller::execute::Job;
use crate::controller::format::deallocations;
use crate::controller::reservations::Actor;
use crate::controller::rights::{Access, LOCAL};
use crate::controller::subsystem::Subsystem;
use crate::spec::status::Status;
use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

/// Hosts whose names are kept with a namespace.
const NAMED_HOSTS_MAX: usize = 1024;

/// One namespace is being emptied, by one thread, until this is dropped.
struct BeingEmptied<'a> {
    subsystem: &'a Subsystem,
    nsid: u32,
}

impl<'a> BeingEmptied<'a> {
    /// # Errors
    /// Format in Progress: another one is at it.
    fn begin(subsystem: &'a Subsystem, nsid: u32) -> Result<Self, Status> {
        let being_emptied = &subsystem.namespaces.being_emptied;
        let mut numbers = being_emptied.lock().unwrap_or_else(PoisonError::into_inner);
        if numbers.insert(nsid) {
            Ok(Self { subsystem, nsid })
        } else {
            Err(Status::FORMAT_IN_PROGRESS)
        }
    }
}

impl Drop for BeingEmptied<'_> {
    fn drop(&mut self) {
        let being_emptied = &self.subsystem.namespaces.being_emptied;
        let mut numbers = being_emptied.lock().unwrap_or_else(PoisonError::into_inner);
        numbers.remove(&self.nsid);
    }
}

impl Subsystem {
    /// Changes the list of namespaces. The caller must not have the device.
    ///
    /// # Errors
    /// What `change` says, and then nothing has changed; or Internal Error, if it could not be kept.
    fn change_namespaces<R>(
        &self,
        change: impl FnOnce(&mut KeptNamespaces) -> Result<R, Status>,
    ) -> Result<R, Status> {
        let namespaces = &self.namespaces;
        // One change at a time: of two that begin from the same list the first would be lost.
        let changing = namespaces.changing.lock();
        let _one = changing.unwrap_or_else(PoisonError::into_inner);
        let mut kept = namespaces.table.load().kept();
        let result = change(&mut kept)?;

        // 1. the new list is durable  2. it is in force
        if let Some(store) = &namespaces.store {
            store.save(&kept).map_err(|_| Status::INTERNAL)?;
        }

        // Nobody is within a step of a command: what was checked against the old list asks again.
        let turn = self.device();
        namespaces.put_in_force(kept);
        drop(turn);
        Ok(result)
    }

    /// Creates a namespace, attached to nobody; its number.
    ///
    /// # Errors
    /// The status to answer.
    pub(super) fn create_namespace(&self, spec: NamespaceSpec) -> Result<u32, Status> {
        let lpns = self.namespaces.lpns;
        self.must_take_writes()?;
        let (nsid, _alone) = self.change_namespaces(|all| {
            let nsid = all.number().ok_or(Status::NAMESPACE_NUMBERS)?;
            let alone = BeingEmptied::begin(self, nsid)?;
            let first_lpn = all.place(spec.pages, lpns);
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

        // Free pages may hold data if the list was once an older copy, which an operator accepted.
        let made = self.forget(nsid).and_then(|()| {
            self.change_namespaces(|all| {
                let one = all.get_mut(nsid).ok_or(Status::INVALID_NAMESPACE)?;
                one.clearing = None;
                Ok(nsid)
            })
        });
        if made.is_err() {
            // If this fails too, the next start does it.
            let _ = self.change_namespaces(|all| {
                all.list.retain(|one| one.nsid != nsid);
                Ok(())
            });
        }
        made
    }

    /// Nothing of a namespace is left: no page, no registration, no reservation.
    fn forget(&self, nsid: u32) -> Result<(), Status> {
        let namespace = self.namespace_numbered(nsid)?;
        self.empty(&namespace)?;
        self.forget_reservations(&namespace)
    }

    fn namespace_numbered(&self, nsid: u32) -> Result<Namespace, Status> {
        let table = self.namespaces.table.load();
        let entry = table.get(nsid).ok_or(Status::INVALID_NAMESPACE)?;
        Ok(entry.namespace)
    }

    /// Deletes a namespace: its pages are free when this returns.
    ///
    /// # Errors
    /// The status to answer. If the device failed meanwhile, the same command again finishes it, or
    /// the next start does.
    pub(super) fn delete_namespace(&self, nsid: u32) -> Result<(), Status> {
        let _alone = BeingEmptied::begin(self, nsid)?;
        self.must_take_writes()?;
        // Whoever saw it is told, once it is gone.
        let seeing: Vec<_> = self.controllers_that_see(nsid);

        self.change_namespaces(|all| {
            let one = all.get_mut(nsid).ok_or(Status::INVALID_NAMESPACE)?;
            one.clearing = Some(Clearing::ThenDelete);
            Ok(())
        })?;
        seeing
            .iter()
            .for_each(|association| association.note_changed(vec![nsid]));
        self.finish(nsid, Clearing::ThenDelete)
    }

    /// Empties a namespace, and gives it blocks of another size.
    ///
    /// # Errors
    /// The status to answer. If the device failed meanwhile, the same command again finishes it, or
    /// the next start does.
    pub(in crate::controller) fn reformat_namespace(
        &self,
        nsid: u32,
        lba_shift: u8,
    ) -> Result<(), Status> {
        let _alone = BeingEmptied::begin(self, nsid)?;
        self.must_take_writes()?;
        self.change_namespaces(|all| {
            let one = all.get_mut(nsid).ok_or(Status::INVALID_NAMESPACE)?;
            one.clearing = Some(Clearing::ThenUse);
            one.lba_shift = lba_shift;
            Ok(())
        })?;
        self.finish(nsid, Clearing::ThenUse)?;

        self.controllers_that_see(nsid)
            .iter()
            .for_each(|association| association.note_changed(vec![nsid]));
        Ok(())
    }

    /// Lets hosts see a namespace, or no longer.
    ///
    /// # Errors
    /// The status to answer.
    pub(super) fn attach_namespace(
        &self,
        nsid: u32,
        hosts: &BTreeSet<String>,
        attach: bool,
    ) -> Result<(), Status> {
        self.change_namespaces(|all| {
            let one = all.get_mut(nsid).ok_or(Status::INVALID_NAMESPACE)?;
            if one.clearing == Some(Clearing::ThenDelete) {
                return Err(Status::INVALID_NAMESPACE);
            }

            // All of them are checked first: a list that is wrong in part changes nothing.
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
            // Hosts choose their names: without a limit they could make the list as long as they like.
            if one.attachment.except.len() > NAMED_HOSTS_MAX {
                return Err(Status::CONTROLLER_LIST);
            }
            Ok(())
        })?;

        // Behind the change: a host that reads at once finds what is new. Nobody hears of a namespace
        // that it has no right to.
        let controllers = self.controllers().into_iter();
        let concerned = controllers.filter(|one| {
            hosts.contains(one.hostnqn()) && one.rights().access(nsid) > Access::None
        });
        concerned.for_each(|association| association.note_changed(vec![nsid]));
        Ok(())
    }

    /// Finishes what a power cut has interrupted, before anybody uses the subsystem; how many
    /// namespaces were half emptied.
    ///
    /// # Errors
    /// The device refuses, or the list cannot be kept.
    pub fn finish_clearing(&self) -> Result<usize, Status> {
        let kept = self.namespaces.table.load().kept();
        let half_emptied = kept.list.iter();
        let half_emptied =
            half_emptied.filter_map(|one| one.clearing.map(|clearing| (one.nsid, clearing)));

        let mut finished = 0;
        for (nsid, clearing) in half_emptied {
            let _alone = BeingEmptied::begin(self, nsid)?;
            self.finish(nsid, clearing)?;
            finished += 1;
        }
        Ok(finished)
    }

    /// Empties a namespace that is kept as to be emptied, and then what is to come then.
    fn finish(&self, nsid: u32, clearing: Clearing) -> Result<(), Status> {
        match clearing {
            // The next namespace of this number must not begin with its reservations.
            Clearing::ThenDelete => self.forget(nsid)?,
            Clearing::ThenUse => self.empty(&self.namespace_numbered(nsid)?)?,
        }

        self.change_namespaces(|all| {
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

    /// A device that is worn out keeps what it has: nothing is begun that it could not finish.
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

            for request in deallocations(namespace) {
                self.execute_alone(&Job {
                    nsid: namespace.nsid,
                    version: namespace.version,
                    request: &request,
                    now: 0,
                    cache_enabled: true,
                    rights: &LOCAL,
                    actor: Actor::Service,
                })?;
            }
            self.witness_flush();
            self.drain()?;

            // What was deallocated before a cut may have been in the volatile cache alone.
            if self.power_cuts() == cuts_before {
                return Ok(());
            }
        }
    }

    /// The controllers whose hosts see a namespace.
    fn controllers_that_see(&self, nsid: u32) -> Vec<Arc<Association>> {
        let all = self.controllers().into_iter();
        all.filter(|association| association.sees(nsid)).collect()
    }
}
