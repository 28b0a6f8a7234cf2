//! The namespaces of one device, local or served, and the cost of sharing between them.
//!
//! Invariant: the counts are the device's own, so that a copy that it had to program is never
//! reported as shared. Absent: the contents of the namespaces.

use remap_ssd_device::Device;
use remap_ssd_media::geometry::PAGE_BYTES;
use std::error::Error;
use std::ops::Sub;

/// A page of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespacePage {
    /// Namespace number, from 1.
    pub nsid: u32,
    /// Page number in the namespace, from 0.
    pub page: u64,
}

/// A device's counters since power-on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pages written or remapped by hosts.
    pub host_pages: u64,
    /// Pages deallocated by hosts.
    pub host_deallocations: u64,
    /// Pages remapped rather than copied.
    pub remaps: u64,
    /// Remaps without effect: target and source shared a flash page already.
    pub no_effect: u64,
    /// Pages copied because the page's owner counter was full.
    pub copied_counter_full: u64,
    /// Pages copied because remapping metadata had no room.
    pub copied_metadata_full: u64,
    /// Pages copied for another reason: the scheme does not remap, or not here, or the namespace shares nothing.
    pub copied_otherwise: u64,
    /// Flash pages programmed with host data.
    pub flash_data: u64,
    /// Flash pages programmed by garbage collection.
    pub flash_gc: u64,
    /// Flash pages programmed with metadata.
    pub flash_metadata: u64,
}

impl Counts {
    /// Counters of a device in this process.
    pub fn of_device(device: &Device) -> Self {
        let stats = device.stats();
        Self {
            host_pages: stats.host_writes,
            host_deallocations: stats.host_deallocations,
            remaps: stats.remaps,
            no_effect: stats.no_effect,
            copied_counter_full: stats.demoted_counter_full,
            copied_metadata_full: stats.demoted_nvram_full + stats.demoted_watermark,
            copied_otherwise: stats.demoted_degree_full
                + stats.demoted_unhinted
                + stats.copies
                + device.indirection_counts().demoted(),
            flash_data: stats.host_programs,
            flash_gc: stats.gc_programs,
            flash_metadata: stats.meta_programs,
        }
    }

    /// Counters of a served device, by the names of its log page.
    pub(crate) fn of_statistics(values: &[(&'static str, u64)]) -> Self {
        let of = |name: &str| {
            values
                .iter()
                .find(|(known, _)| *known == name)
                .map_or(0, |(_, value)| *value)
        };

        Self {
            host_pages: of("host_pages"),
            host_deallocations: of("host_deallocations"),
            remaps: of("remaps"),
            no_effect: of("no_effect"),
            copied_counter_full: of("demoted_counter_full"),
            copied_metadata_full: of("demoted_nvram_full") + of("demoted_watermark"),
            copied_otherwise: [
                "copies",
                "demoted_degree_full",
                "demoted_unhinted",
                "demoted_units",
            ]
            .into_iter()
            .map(of)
            .sum(),
            flash_data: of("data_pages"),
            flash_gc: of("gc_pages"),
            flash_metadata: of("metadata_pages"),
        }
    }
}

impl Sub for Counts {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        // A device that was powered on in between counts from 0 again.
        let less = u64::saturating_sub;
        Self {
            host_pages: less(self.host_pages, earlier.host_pages),
            host_deallocations: less(self.host_deallocations, earlier.host_deallocations),
            remaps: less(self.remaps, earlier.remaps),
            no_effect: less(self.no_effect, earlier.no_effect),
            copied_counter_full: less(self.copied_counter_full, earlier.copied_counter_full),
            copied_metadata_full: less(self.copied_metadata_full, earlier.copied_metadata_full),
            copied_otherwise: less(self.copied_otherwise, earlier.copied_otherwise),
            flash_data: less(self.flash_data, earlier.flash_data),
            flash_gc: less(self.flash_gc, earlier.flash_gc),
            flash_metadata: less(self.flash_metadata, earlier.flash_metadata),
        }
    }
}

/// Result and cost of sharing. Includes the effects of other hosts on the device during the call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShareReport {
    /// Pages to be shared.
    pub pages: u64,
    /// Change in the device's counters during the call.
    pub counts: Counts,
}

impl ShareReport {
    /// Pages that share a flash page with their source.
    pub fn shared(&self) -> u64 {
        // "No effect" means that both pages shared a flash page before.
        self.counts.remaps + self.counts.no_effect
    }

    /// Pages that the device had to program again.
    pub fn copied(&self) -> u64 {
        self.counts.copied_counter_full
            + self.counts.copied_metadata_full
            + self.counts.copied_otherwise
    }

    /// Pages without a flash page: they read as zeroes.
    pub fn empty(&self) -> u64 {
        // Saturating: the counts include other hosts' remaps.
        self.pages.saturating_sub(self.shared() + self.copied())
    }

    /// The pages and their cost as JSON.
    pub fn json(&self) -> serde_json::Value {
        let Counts {
            copied_counter_full,
            copied_metadata_full,
            copied_otherwise,
            flash_data,
            flash_gc,
            flash_metadata,
            ..
        } = self.counts;

        serde_json::json!({
            "pages": self.pages,
            "shared": self.shared(),
            "copied": self.copied(),
            "copied_why": {
                "counter_full": copied_counter_full, "metadata_full": copied_metadata_full, "otherwise": copied_otherwise,
            },
            "empty": self.empty(),
            "flash_pages": {
                "data": flash_data, "gc": flash_gc, "metadata": flash_metadata,
                "total": flash_data + flash_gc + flash_metadata,
            },
        })
    }
}

/// Why sharing failed. Each message is a sentence.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    /// The device or the transport failed.
    #[error("{0}")]
    Device(Box<dyn Error + Send + Sync>),
    /// A move was interrupted by a device or transport error.
    #[error(
        "{error}; {done} of {pages} pages were moved and the rest is where it was: run it again with --resume"
    )]
    Moving {
        /// Cause of the interruption.
        error: Box<ShareError>,
        /// Pages moved before it.
        done: u64,
        /// Pages to be moved.
        pages: u64,
    },
    /// The request is invalid, regardless of the device's contents.
    #[error("{0}")]
    Usage(String),
    /// The current state does not allow the request.
    #[error("{0}")]
    Refused(String),
}

impl ShareError {
    /// Wraps any error of a device.
    pub fn device(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Device(error.into())
    }
}

/// The namespaces of a device. Pages have 4,096 bytes, for any block size of the namespaces.
pub trait Namespaces {
    /// Number of namespaces; they are numbered from 1.
    fn count(&self) -> u32;

    /// Size of a namespace in pages; 0 if it does not exist.
    fn pages(&self, nsid: u32) -> u64;

    /// Reads whole pages.
    ///
    /// # Errors
    /// An invalid range, a device error, or a transport error.
    fn read(&mut self, at: NamespacePage, into: &mut [u8]) -> Result<(), ShareError>;

    /// Writes a page.
    ///
    /// # Errors
    /// As `read`.
    fn write(&mut self, at: NamespacePage, page: &[u8; PAGE_BYTES]) -> Result<(), ShareError>;

    /// Deallocates pages.
    ///
    /// # Errors
    /// As `read`.
    fn trim(&mut self, at: NamespacePage, pages: u64) -> Result<(), ShareError>;

    /// Makes all completed operations, in all namespaces, durable.
    ///
    /// # Errors
    /// As `read`.
    fn flush(&mut self) -> Result<(), ShareError>;

    /// Lets target pages share the source's pages. The ranges do not overlap.
    ///
    /// # Errors
    /// As `read`, or the device has no such command.
    fn share(
        &mut self,
        from: NamespacePage,
        to: NamespacePage,
        pages: u64,
    ) -> Result<(), ShareError>;

    /// Reads the device's counters.
    ///
    /// # Errors
    /// As `read`, or the device does not count.
    fn counts(&mut self) -> Result<Counts, ShareError>;

    /// Checks that a range lies in its namespace.
    ///
    /// # Errors
    /// It does not.
    fn check(&self, at: NamespacePage, pages: u64) -> Result<(), ShareError> {
        // The sum may overflow: pages come from a command line.
        let NamespacePage { nsid, page } = at;
        match self.pages(nsid) {
            0 => Err(ShareError::Refused(format!(
                "there is no namespace {nsid}, only {}",
                self.count()
            ))),
            size if page.checked_add(pages).is_none_or(|end| end > size) => {
                Err(ShareError::Usage(format!(
                    "pages {page} to {page} + {pages} are not in namespace {nsid}, which has {size} pages"
                )))
            }
            _ => Ok(()),
        }
    }
}
