//! The saved form of namespaces: location, attachment, and changes in progress.

use crate::controller::blocks::{LBA_SHIFTS, NSID_MAX, NamespaceSpec};
use crate::controller::error::SubsystemError;
use remap_ssd_device::Lpn;
use std::collections::BTreeSet;
use std::io;

/// A change in progress: the namespace is being emptied, and not usable until that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clearing {
    /// Then it is used again, with another block size.
    ThenUse,
    /// Then its pages and its number become free.
    ThenDelete,
}

/// The hosts that see a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// True if hosts that are not listed see it.
    pub others: bool,
    /// Names (NQN) of the hosts for which the opposite holds.
    pub except: BTreeSet<String>,
}

impl Attachment {
    /// Attached to every host.
    pub(crate) const EVERYBODY: Self = Self::same(true);
    /// Attached to no host.
    pub(crate) const NOBODY: Self = Self::same(false);

    const fn same(others: bool) -> Self {
        Self {
            others,
            except: BTreeSet::new(),
        }
    }

    /// Returns true if a host sees the namespace. Local users (`None`) see all.
    #[inline]
    pub fn includes(&self, host: Option<&str>) -> bool {
        if self.others && self.except.is_empty() {
            return true;
        }
        host.is_none_or(|host| self.others != self.except.contains(host))
    }

    /// Makes it visible to a host, or hides it.
    pub(super) fn set(&mut self, host: &str, sees: bool) {
        if sees == self.others {
            self.except.remove(host);
        } else {
            self.except.insert(host.to_owned());
        }
    }
}

/// A namespace, as saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptNamespace {
    /// Its number, from 1.
    pub nsid: u32,
    /// First logical page of the device.
    pub first_lpn: Lpn,
    /// Its size in logical pages.
    pub pages: u32,
    /// log2 of the logical block size: 9 or 12.
    pub lba_shift: u8,
    /// 0 if it was created with the image, otherwise its place in the order of creation since.
    pub serial: u32,
    /// A change in progress, if there is one.
    pub clearing: Option<Clearing>,
    /// The hosts that see it.
    pub attachment: Attachment,
}

impl KeptNamespace {
    fn end(&self) -> u64 {
        u64::from(self.first_lpn.0) + u64::from(self.pages)
    }
}

/// All namespaces, as saved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptNamespaces {
    /// In the order of their numbers.
    pub list: Vec<KeptNamespace>,
    /// Number of namespaces created since the image was.
    pub made: u32,
}

/// Storage of namespaces.
pub trait NamespaceStore: Send + Sync {
    /// Replaces the saved list; it is durable on return.
    ///
    /// # Errors
    /// The system's reason; the previous list is kept.
    fn save(&self, all: &KeptNamespaces) -> io::Result<()>;
}

impl KeptNamespaces {
    /// Lays out the specified namespaces in sequence, from the first page of the device on.
    ///
    /// # Errors
    /// They need more pages than any device has.
    pub fn one_after_the_other(specs: &[NamespaceSpec]) -> Result<Self, SubsystemError> {
        let mut list = Vec::new();
        let mut first = 0u32;
        for (nsid, spec) in (1..).zip(specs) {
            list.push(KeptNamespace {
                nsid,
                first_lpn: Lpn(first),
                pages: spec.pages,
                lba_shift: spec.lba_shift,
                serial: 0,
                clearing: None,
                attachment: Attachment::EVERYBODY,
            });

            // The sizes come from an operator, and their sum may not fit into 32 bits.
            let end = first.checked_add(spec.pages);
            first = end.ok_or_else(|| {
                SubsystemError::new(format!("namespace {nsid} does not fit on any device"))
            })?;
        }
        Ok(Self { list, made: 0 })
    }

    /// Checks that the list fits a device of `lpns` pages.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self, lpns: u32) -> Result<(), SubsystemError> {
        let wrong = |one: &KeptNamespace, what: &str| {
            Err(SubsystemError::new(format!(
                "namespace {}: {what}",
                one.nsid
            )))
        };

        for one in &self.list {
            if !(1..=NSID_MAX).contains(&one.nsid) {
                return wrong(one, &format!("the numbers are 1 to {NSID_MAX}"));
            }
            if one.pages == 0 || one.end() > u64::from(lpns) {
                return wrong(one, &format!("it does not fit on {lpns} pages"));
            }
            if !LBA_SHIFTS.contains(&one.lba_shift) {
                return wrong(one, "blocks of 512 or 4096 bytes are possible");
            }
            if one.serial > self.made {
                return wrong(one, "it is younger than the last one that was made");
            }
        }

        let numbers: Vec<u32> = self.list.iter().map(|one| one.nsid).collect();
        if let Some(at) = numbers.windows(2).position(|pair| pair[0] >= pair[1]) {
            return wrong(&self.list[at + 1], "its number is not above the one before");
        }

        let placed = self.placed();
        if let Some(pair) = placed
            .windows(2)
            .find(|pair| pair[0].end() > u64::from(pair[1].first_lpn.0))
        {
            return wrong(pair[1], &format!("it overlaps namespace {}", pair[0].nsid));
        }
        Ok(())
    }

    /// Checks that each namespace begins with an indirection unit of `unit` pages, so that no two have pages of the same one.
    ///
    /// # Errors
    /// The first that does not.
    pub(super) fn check_units(&self, unit: u32) -> Result<(), SubsystemError> {
        let begins = |one: &&KeptNamespace| !one.first_lpn.0.is_multiple_of(unit);
        match self.list.iter().find(begins) {
            None => Ok(()),
            Some(one) => Err(SubsystemError::new(format!(
                "namespace {}: it must begin with an indirection unit, at a multiple of {unit} pages",
                one.nsid
            ))),
        }
    }

    /// In the order of their locations.
    fn placed(&self) -> Vec<&KeptNamespace> {
        let mut placed: Vec<_> = self.list.iter().collect();
        placed.sort_by_key(|one| one.first_lpn);
        placed
    }

    /// The free ranges of pages, from a multiple of `unit` on: first page and length.
    fn free(&self, lpns: u32, unit: u32) -> impl Iterator<Item = (u32, u32)> {
        let starts = self.placed().into_iter().map(|one| one.first_lpn.0);
        let ends = self.placed().into_iter().map(|one| one.end() as u32);

        // From the end of each to the start of the next, including before the first and after the
        // last.
        let from = std::iter::once(0).chain(ends);
        let to = starts.chain(std::iter::once(lpns));
        from.zip(to)
            .map(move |(from, to)| (from.next_multiple_of(unit), to))
            .map(|(from, to)| (from, to.saturating_sub(from)))
            .filter(|(_, pages)| *pages > 0)
    }

    /// Number of pages that belong to no namespace.
    pub(super) fn free_pages(&self, lpns: u32, unit: u32) -> u32 {
        self.free(lpns, unit).map(|(_, pages)| pages).sum()
    }

    /// The place for a namespace of this size (best fit: the smallest free range large enough).
    pub(super) fn place(&self, pages: u32, lpns: u32, unit: u32) -> Option<Lpn> {
        let large_enough = self.free(lpns, unit).filter(|(_, free)| *free >= pages);
        let best = large_enough.min_by_key(|(_, free)| *free);
        best.map(|(first, _)| Lpn(first))
    }

    /// The smallest unused number.
    pub(super) fn number(&self) -> Option<u32> {
        (1..=NSID_MAX).find(|nsid| self.get(*nsid).is_none())
    }

    pub(super) fn get(&self, nsid: u32) -> Option<&KeptNamespace> {
        self.list.iter().find(|one| one.nsid == nsid)
    }

    pub(super) fn get_mut(&mut self, nsid: u32) -> Option<&mut KeptNamespace> {
        self.list.iter_mut().find(|one| one.nsid == nsid)
    }

    /// Adds a namespace, in the order of numbers.
    pub(super) fn add(&mut self, one: KeptNamespace) {
        let at = self.list.partition_point(|other| other.nsid < one.nsid);
        self.list.insert(at, one);
    }
}
