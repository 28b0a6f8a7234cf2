//! Namespaces as they are kept: where each lies, who sees it, and what was begun with it.

use super::{NSID_MAX, NamespaceSpec};
use crate::controller::subsystem::SubsystemError;
use remap_ssd_device::Lpn;
use std::collections::BTreeSet;
use std::io;

/// What was begun with a namespace: it is emptied, and nobody may use it until that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clearing {
    /// Then it is used again, with blocks of another size.
    ThenUse,
    /// Then its pages and its number are free.
    ThenDelete,
}

/// Which hosts see a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Whether hosts that are not named do.
    pub others: bool,
    /// Names (NQN) of the hosts for which the contrary holds.
    pub except: BTreeSet<String>,
}

impl Attachment {
    /// To every host.
    pub const EVERYBODY: Self = Self::same(true);
    /// To no host.
    pub const NOBODY: Self = Self::same(false);

    const fn same(others: bool) -> Self {
        Self {
            others,
            except: BTreeSet::new(),
        }
    }

    /// Whether a host sees the namespace. Whoever is on this machine (`None`) sees all.
    #[inline]
    pub fn includes(&self, host: Option<&str>) -> bool {
        if self.others && self.except.is_empty() {
            return true;
        }
        host.is_none_or(|host| self.others != self.except.contains(host))
    }

    /// From now on a host sees it, or does not.
    pub(super) fn set(&mut self, host: &str, sees: bool) {
        if sees == self.others {
            self.except.remove(host);
        } else {
            self.except.insert(host.to_owned());
        }
    }
}

/// A namespace as it is kept.
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
    /// 0 if it was made with the image, otherwise the how manieth it was after that.
    pub serial: u32,
    /// What was begun with it, if anything was.
    pub clearing: Option<Clearing>,
    /// Which hosts see it.
    pub attachment: Attachment,
}

impl KeptNamespace {
    fn end(&self) -> u64 {
        u64::from(self.first_lpn.0) + u64::from(self.pages)
    }
}

/// All namespaces, as they are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptNamespaces {
    /// In the order of their numbers.
    pub list: Vec<KeptNamespace>,
    /// How many have been made since the image was.
    pub made: u32,
}

/// Where namespaces are kept.
pub trait NamespaceStore: Send + Sync {
    /// Keeps these instead of those from before; they are durable then.
    ///
    /// # Errors
    /// The system's reason; those from before are kept.
    fn save(&self, all: &KeptNamespaces) -> io::Result<()>;
}

impl KeptNamespaces {
    /// These, from the first page of the device on.
    ///
    /// # Errors
    /// They are more than any device has pages for.
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

            // The sizes are an operator's, and their sum may not fit into 32 bits.
            let end = first.checked_add(spec.pages);
            first = end.ok_or_else(|| {
                SubsystemError::new(format!("namespace {nsid} does not fit on any device"))
            })?;
        }
        Ok(Self { list, made: 0 })
    }

    /// Whether a device of `lpns` pages can have them.
    ///
    /// # Errors
    /// What cannot be.
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
            if !super::LBA_SHIFTS.contains(&one.lba_shift) {
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

    /// In the order of their places.
    fn placed(&self) -> Vec<&KeptNamespace> {
        let mut placed: Vec<_> = self.list.iter().collect();
        placed.sort_by_key(|one| one.first_lpn);
        placed
    }

    /// The stretches of pages that no namespace has: first page and length.
    fn free(&self, lpns: u32) -> impl Iterator<Item = (u32, u32)> {
        let starts = self.placed().into_iter().map(|one| one.first_lpn.0);
        let ends = self.placed().into_iter().map(|one| one.end() as u32);

        // From the end of each to the start of the next: before the first and behind the last too.
        let from = std::iter::once(0).chain(ends);
        let to = starts.chain(std::iter::once(lpns));
        from.zip(to)
            .map(|(from, to)| (from, to - from))
            .filter(|(_, pages)| *pages > 0)
    }

    /// The pages that no namespace has.
    pub(super) fn free_pages(&self, lpns: u32) -> u32 {
        self.free(lpns).map(|(_, pages)| pages).sum()
    }

    /// Where a namespace of this size fits: the smallest stretch that is large enough.
    pub(super) fn place(&self, pages: u32, lpns: u32) -> Option<Lpn> {
        let large_enough = self.free(lpns).filter(|(_, free)| *free >= pages);
        let best = large_enough.min_by_key(|(_, free)| *free);
        best.map(|(first, _)| Lpn(first))
    }

    /// The smallest number that no namespace has.
    pub(super) fn number(&self) -> Option<u32> {
        (1..=NSID_MAX).find(|nsid| self.get(*nsid).is_none())
    }

    pub(super) fn get(&self, nsid: u32) -> Option<&KeptNamespace> {
        self.list.iter().find(|one| one.nsid == nsid)
    }

    pub(super) fn get_mut(&mut self, nsid: u32) -> Option<&mut KeptNamespace> {
        self.list.iter_mut().find(|one| one.nsid == nsid)
    }

    /// Adds one, in the order of the numbers.
    pub(super) fn add(&mut self, one: KeptNamespace) {
        let at = self.list.partition_point(|other| other.nsid < one.nsid);
        self.list.insert(at, one);
    }
}
