//! A namespace in a device's file.
//!
//! Absent: the file (`kept`), and changes by hosts (`namespaces`).

use remap_ssd_device::Lpn;
use remap_ssd_nvme::controller::{Attachment, Clearing, KeptNamespace, NamespaceSpec};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A namespace in the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// Its size in flash pages.
    pub pages: u32,
    /// Bytes of a logical block.
    pub block_bytes: u32,
    /// Its pages are never shared, by deduplication or by remaps.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unshared: bool,
    /// It was made for a snapshot.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub snapshots: bool,
    /// Its position and its hosts, unless they follow from the order in the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
}

/// Position of a namespace, and the hosts that see it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// Its number.
    pub nsid: u32,
    /// First logical page of the device.
    pub first_page: u32,
    /// 0 if it was made with the image, otherwise its index among those created by hosts, from 1.
    pub serial: u32,
    /// Operation in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clearing: Option<Begun>,
    /// Visible to hosts that are not in `except`.
    pub attached: bool,
    /// Names of the hosts for which the opposite holds.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub except: BTreeSet<String>,
}

/// An operation in progress on a namespace, to be finished at the next start.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Begun {
    /// It is emptied, and then used again.
    Format,
    /// It is emptied, and then removed.
    Delete,
}

impl From<Begun> for Clearing {
    fn from(begun: Begun) -> Self {
        match begun {
            Begun::Format => Self::ThenUse,
            Begun::Delete => Self::ThenDelete,
        }
    }
}

impl From<Clearing> for Begun {
    fn from(clearing: Clearing) -> Self {
        match clearing {
            Clearing::ThenUse => Self::Format,
            Clearing::ThenDelete => Self::Delete,
        }
    }
}

impl Share {
    /// Its size, as the controller expects it.
    pub(crate) fn spec(&self) -> NamespaceSpec {
        NamespaceSpec {
            pages: self.pages,
            lba_shift: self.block_bytes.checked_ilog2().unwrap_or(0) as u8,
        }
    }

    /// It with its position.
    pub(crate) fn placed(&self, place: &Place) -> KeptNamespace {
        let NamespaceSpec { pages, lba_shift } = self.spec();
        KeptNamespace {
            nsid: place.nsid,
            first_lpn: Lpn(place.first_page),
            pages,
            lba_shift,
            serial: place.serial,
            clearing: place.clearing.map(Clearing::from),
            attachment: Attachment {
                others: place.attached,
                except: place.except.clone(),
            },
        }
    }
}
