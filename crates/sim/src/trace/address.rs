//! Conversion of byte addresses to logical pages, for all formats: cutting at page boundaries, then
//! folding.
//!
//! **Cutting.** A page is `byte address / 4096`. A read becomes one read of every page it touches.
//! A write becomes a write of every page it covers whole and a read-modify-write of those that it
//! covers in part. A deallocation affects whole pages only.
//!
//! **Folding.** A trace's disk is larger than the simulated one, or mostly empty. [`Fold::Modulo`]
//! keeps distances: `lpn = page mod addressable`, with all devices of a trace mapped to the same
//! range. [`Fold::Compact`] keeps identity: pages get numbers in the order of their first touch,
//! different for pages of different devices, until the addressable range is full; from then on new
//! pages wrap around and share numbers with old ones.
//!
//! Invariants: the pages of one extent ascend by one and cover it; a folded number is below
//! `addressable`; the same page of the same device always folds to the same number.

use remap_ssd_device::HostLpn;
use std::fmt;
use std::str::FromStr;

use rustc_hash::FxHashMap;

use super::names::UnknownName;

/// Bytes of a logical page.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// A page of the traced disk, and its coverage by an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Byte address divided by the page size, before folding.
    pub page: u64,
    /// True if all 4096 bytes are covered.
    pub whole: bool,
}

/// The pages that `len` bytes from byte `offset` touch, ascending.
///
/// ```
/// use remap_ssd_sim::trace::{Cut, cut};
/// let pages: Vec<Cut> = cut(512, 8192).collect();
/// let expected = [(0, false), (1, true), (2, false)].map(|(page, whole)| Cut { page, whole });
/// assert_eq!(pages, expected);
/// ```
///
/// # Panics
/// If the extent ends beyond `u64::MAX`.
pub fn cut(offset: u64, len: u64) -> impl Iterator<Item = Cut> {
    let end = offset
        .checked_add(len)
        .expect("the extent ends within 64 bits");
    (offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES)).map(move |page| {
        let start = page * PAGE_BYTES;
        Cut {
            page,
            whole: start >= offset && end - start >= PAGE_BYTES,
        }
    })
}

/// Mapping of pages of the traced disk to the simulated device's; see the module documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fold {
    /// `lpn = page mod addressable`: keeps distances, and maps all devices to the same range.
    #[default]
    Modulo,
    /// Numbers in order of first touch, devices apart, wrapping around when the range is full. A
    /// deallocation of pages never touched before is dropped.
    Compact,
}

impl fmt::Display for Fold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Fold::Modulo => "modulo",
            Fold::Compact => "compact",
        })
    }
}

impl FromStr for Fold {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        match name {
            "modulo" => Ok(Fold::Modulo),
            "compact" => Ok(Fold::Compact),
            other => Err(UnknownName::new("fold", other, "modulo, compact")),
        }
    }
}

/// A page of one of the traced devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DevicePage {
    /// The device number of the trace.
    pub device: u64,
    /// Byte address divided by the page size.
    pub page: u64,
}

/// Folds pages; compacting stores the numbers assigned.
#[derive(Debug)]
pub struct Folder {
    addressable: u64,
    /// Numbers assigned so far, when compacting.
    numbers: Option<FxHashMap<DevicePage, HostLpn>>,
}

impl Folder {
    /// Folds pages into `0..addressable`.
    ///
    /// # Panics
    /// If `addressable` is 0, or more than the pages of the largest device.
    pub fn new(fold: Fold, addressable: u64) -> Self {
        assert!(addressable > 0, "there is at least one page to fold into");
        assert!(
            addressable <= HostLpn::PAGES_MAX,
            "no device has {addressable} pages"
        );
        let numbers = (fold == Fold::Compact).then(FxHashMap::default);
        Self {
            addressable,
            numbers,
        }
    }

    /// Returns the logical page number of a page that is read or written.
    pub fn fold(&mut self, page: DevicePage) -> HostLpn {
        let addressable = self.addressable;
        match &mut self.numbers {
            None => modulo(page.page, addressable),
            Some(numbers) => {
                // After the last number of the range, numbers begin again, and pages share them.
                let next = modulo(numbers.len() as u64, addressable);
                *numbers.entry(page).or_insert(next)
            }
        }
    }

    /// Returns the logical page number of a page that is deallocated; `None` if it never had one.
    pub fn folded(&self, page: DevicePage) -> Option<HostLpn> {
        match &self.numbers {
            // Every page has a number, touched or not.
            None => Some(modulo(page.page, self.addressable)),
            Some(numbers) => numbers.get(&page).copied(),
        }
    }
}

fn modulo(page: u64, addressable: u64) -> HostLpn {
    HostLpn::new(page % addressable)
}
