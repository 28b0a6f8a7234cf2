//! The namespaces of a subsystem, their location on the device, and the hosts that see them.
//!
//! ```text
//! table     lookup by commands, without a lock
//! kept      the saved form, and allocation of space for a new namespace
//! change    creating, deleting, reformatting and attaching, in steps
//! commands  Namespace Management and Namespace Attachment
//! ```
//! Invariants: namespaces do not overlap and lie within the device; a page outside all namespaces
//! is deallocated, so that a new namespace reads as zeroes; the table changes only in a turn at the
//! device, and a command that was checked against another version of its namespace is refused when
//! it is executed, and after each of its pauses. So no command in progress reaches pages that now
//! belong to another namespace. Absent: access rights (`rights`), and storage of the list
//! (`NamespaceStore`).

mod change;
pub(super) mod commands;
mod kept;

pub use kept::{Attachment, Clearing, KeptNamespace, KeptNamespaces, NamespaceStore};

use super::blocks::{Namespace, NamespaceSpec, PAGE_SHIFT};
use super::error::SubsystemError;
use super::issuer::{Actor, Issuer};
use super::rights::HostRights;
use crate::spec::status::Status;
use arc_swap::ArcSwap;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// An entry of the table.
#[derive(Clone, Debug)]
struct Entry {
    namespace: Namespace,
    kept: KeptNamespace,
}

impl Entry {
    /// False for a namespace being deleted, which only the service uses, to empty it.
    fn exists(&self) -> bool {
        self.kept.clearing != Some(Clearing::ThenDelete)
    }

    /// Returns true if a host sees it.
    #[inline]
    fn is_seen_by(&self, host: Option<&str>) -> bool {
        self.exists() && self.kept.attachment.includes(host)
    }
}

/// All namespaces.
#[derive(Debug, Default)]
struct Table {
    /// By number minus one.
    entries: Vec<Option<Entry>>,
    /// Number of namespaces created since the image was.
    made: u32,
}

impl Table {
    #[inline]
    fn get(&self, nsid: u32) -> Option<&Entry> {
        self.entries.get((nsid as usize).checked_sub(1)?)?.as_ref()
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().flatten()
    }

    /// The saved form.
    fn kept(&self) -> KeptNamespaces {
        KeptNamespaces {
            list: self.entries().map(|entry| entry.kept.clone()).collect(),
            made: self.made,
        }
    }
}

/// The namespaces of a subsystem.
pub(super) struct Namespaces {
    table: ArcSwap<Table>,
    store: Option<Box<dyn NamespaceStore>>,
    /// Locked until a change is durable.
    changing: Mutex<()>,
    /// The last version assigned to a namespace.
    versions: AtomicU32,
    /// Numbers of namespaces being emptied now.
    being_emptied: Mutex<BTreeSet<u32>>,
    /// Pages of the device.
    lpns: u32,
    /// Pages of its indirection unit: no two namespaces have pages of the same one.
    unit: u32,
}

impl Namespaces {
    /// Lays namespaces out in sequence on a device of `lpns` pages; without specs, one takes it
    /// all.
    ///
    /// # Errors
    /// They do not fit.
    pub(super) fn new(
        specs: &[NamespaceSpec],
        lpns: u32,
        unit: u32,
    ) -> Result<Self, SubsystemError> {
        let whole = [NamespaceSpec {
            pages: lpns,
            lba_shift: PAGE_SHIFT,
        }];
        let specs = if specs.is_empty() { &whole } else { specs };
        Self::of(KeptNamespaces::one_after_the_other(specs)?, lpns, unit)
    }

    /// Loads a saved list.
    ///
    /// # Errors
    /// They do not fit on a device of `lpns` pages.
    fn of(kept: KeptNamespaces, lpns: u32, unit: u32) -> Result<Self, SubsystemError> {
        kept.check(lpns)?;
        kept.check_units(unit)?;
        let namespaces = Self {
            table: ArcSwap::default(),
            store: None,
            changing: Mutex::new(()),
            versions: AtomicU32::new(0),
            being_emptied: Mutex::default(),
            lpns,
            unit,
        };
        namespaces.put_in_force(kept);
        Ok(namespaces)
    }

    /// Replaces the table. The caller has the device, unless the subsystem is not yet shared.
    fn put_in_force(&self, kept: KeptNamespaces) {
        let before = self.table.load();
        let entry = |one: KeptNamespace| {
            let mut namespace = Namespace {
                nsid: one.nsid,
                first_lpn: one.first_lpn,
                pages: one.pages,
                lba_shift: one.lba_shift,
                serial: one.serial,
                version: 0,
            };

            // An unchanged namespace keeps its version, and its commands in progress go on.
            let same = before.get(one.nsid).filter(|before| {
                let version = before.namespace.version;
                let unchanged = before.namespace
                    == (Namespace {
                        version,
                        ..namespace
                    });
                unchanged && before.kept.clearing == one.clearing
            });
            namespace.version = match same {
                Some(same) => same.namespace.version,
                None => self.versions.fetch_add(1, Relaxed) + 1,
            };
            Entry {
                namespace,
                kept: one,
            }
        };

        let mut entries = Vec::new();
        for one in kept.list {
            // Numbers ascend, with gaps.
            entries.resize(one.nsid as usize - 1, None);
            entries.push(Some(entry(one)));
        }
        let made = kept.made;
        self.table.store(Arc::new(Table { entries, made }));
    }

    /// Numbers in use, including those of half-deleted namespaces.
    fn numbers(&self) -> Vec<u32> {
        let table = self.table.load();
        table.entries().map(|entry| entry.namespace.nsid).collect()
    }

    /// Bytes that belong to no namespace.
    pub(super) fn free_bytes(&self) -> u64 {
        u64::from(self.table.load().kept().free_pages(self.lpns, self.unit)) << PAGE_SHIFT
    }

    /// Loads a saved list; `store` keeps all later changes.
    ///
    /// # Errors
    /// They do not fit on this device.
    pub(super) fn kept(
        &self,
        kept: KeptNamespaces,
        store: Box<dyn NamespaceStore>,
    ) -> Result<Self, SubsystemError> {
        Ok(Self {
            store: Some(store),
            ..Self::of(kept, self.lpns, self.unit)?
        })
    }

    /// All namespaces, in the order of their numbers.
    pub(super) fn all(&self) -> Vec<Namespace> {
        let table = self.table.load();
        let there = table.entries().filter(|entry| entry.exists());
        there.map(|entry| entry.namespace).collect()
    }

    /// A namespace by its number.
    pub(super) fn get(&self, nsid: u32) -> Option<Namespace> {
        let table = self.table.load();
        let there = table.get(nsid).filter(|entry| entry.exists());
        there.map(|entry| entry.namespace)
    }

    /// The hosts that see a namespace.
    pub(super) fn attachment(&self, nsid: u32) -> Option<Attachment> {
        let table = self.table.load();
        let there = table.get(nsid).filter(|entry| entry.exists());
        there.map(|entry| entry.kept.attachment.clone())
    }

    /// A namespace, if it is attached to a host. Does not check rights.
    #[inline]
    pub(super) fn attached(&self, nsid: u32, rights: &HostRights) -> Option<Namespace> {
        let table = self.table.load();
        let seen = table.get(nsid)?;
        seen.is_seen_by(rights.host()).then_some(seen.namespace)
    }

    /// All namespaces attached to a host. Does not check rights.
    pub(super) fn all_attached(&self, rights: &HostRights) -> Vec<Namespace> {
        let table = self.table.load();
        let seen = table
            .entries()
            .filter(|entry| entry.is_seen_by(rights.host()));
        seen.map(|entry| entry.namespace).collect()
    }

    /// A namespace that a command uses, if it is still the one that the command was checked
    /// against. The caller has the device.
    ///
    /// # Errors
    /// The status to answer.
    #[inline(always)]
    pub(super) fn unchanged(
        &self,
        nsid: u32,
        version: u32,
        issuer: &Issuer<'_>,
    ) -> Result<Namespace, Status> {
        let table = self.table.load();
        let entry = table.get(nsid).ok_or(Status::INVALID_NAMESPACE)?;

        // The service itself empties namespaces that no host may use.
        if issuer.actor != Actor::Service {
            if !entry.is_seen_by(issuer.rights.host()) {
                return Err(Status::INVALID_NAMESPACE);
            }
            if entry.kept.clearing.is_some() {
                return Err(Status::FORMAT_IN_PROGRESS);
            }
        }
        if entry.namespace.version == version {
            Ok(entry.namespace)
        } else {
            Err(Status::INVALID_NAMESPACE)
        }
    }

    /// Returns true if a namespace is being emptied, or still has to be after a device failure.
    pub(super) fn is_being_emptied(&self, nsid: u32) -> bool {
        let table = self.table.load();
        table
            .get(nsid)
            .is_some_and(|entry| entry.kept.clearing.is_some())
    }

    /// Checks that a namespace is unchanged. The caller has the device.
    ///
    /// # Errors
    /// Invalid Namespace or Format.
    pub(super) fn must_be_unchanged(&self, nsid: u32, version: u32) -> Result<(), Status> {
        let table = self.table.load();
        match table.get(nsid) {
            Some(entry) if entry.namespace.version == version => Ok(()),
            _ => Err(Status::INVALID_NAMESPACE),
        }
    }
}
