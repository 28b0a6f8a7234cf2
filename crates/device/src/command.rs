//! Page commands as numbers, small enough for long queues.
//!
//! Workloads are lists of these. A content is an identity, not bytes, and a remap represents a
//! whole command. Addresses are those of the host: pages of 4 KiB.
//!
//! Invariants: a page's kind takes 10 bytes and a command 24. Absent: the execution of commands
//! (`device`, `halves`), and its time.

use crate::host_lpn::HostLpn;
use remap_ssd_ftl::Remap;

/// A host's operation on one logical page, or on a range if it is a remap.
///
/// ```
/// use remap_ssd_device::{HostLpn, PageKind};
/// let copy = PageKind::Remap { source: HostLpn::ZERO, len: 8, relocate: false, atomic: false };
/// assert_eq!((copy.pages(), copy.writes()), (8, false));
/// assert_eq!((PageKind::Write.pages(), PageKind::Write.writes()), (1, true));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// Reads one page of 4 KiB.
    Read,
    /// Writes one page of 4 KiB.
    Write,
    /// Writes one page that will later be remapped to `home`, such as a journal's.
    WriteFor {
        /// The page of the host that will get the page.
        home: HostLpn,
    },
    /// A sub-page or unaligned write: the device reads the page, then writes it with a new content
    /// that no other page has.
    ReadModifyWrite,
    /// Deallocates one page, as a trim does.
    Trim,
    /// A whole remap command, whose targets begin at the command's page. No data crosses the link.
    Remap {
        /// First page whose mapping is read.
        source: HostLpn,
        /// Number of pages.
        len: u16,
        /// The sources lose their pages.
        relocate: bool,
        /// After a power cut all pages are remapped, or none.
        atomic: bool,
    },
    /// Makes everything acknowledged durable; the page is ignored.
    Flush,
}

// Commands wait in long queues.
const _: () = assert!(size_of::<PageKind>() == 10);

impl PageKind {
    /// Number of logical pages that it reads, writes, deallocates or maps.
    #[inline]
    pub fn pages(self) -> u64 {
        match self {
            Self::Remap { len, .. } => len.into(),
            Self::Flush => 0,
            _ => 1,
        }
    }

    /// Returns true if it carries a content.
    #[inline]
    pub fn writes(self) -> bool {
        matches!(
            self,
            Self::Write | Self::WriteFor { .. } | Self::ReadModifyWrite
        )
    }
}

/// One page of a host request, with its content as an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageCommand {
    /// Identity of the content written; meaningless for other kinds.
    pub content: u64,
    /// Page of the host; the first one of a remap's targets.
    pub lpn: HostLpn,
    /// The operation on the page.
    pub kind: PageKind,
}

const _: () = assert!(size_of::<PageCommand>() == 24);

impl PageCommand {
    /// The host's remap, if it is one.
    #[inline]
    pub(crate) fn as_remap(&self) -> Option<HostRemap> {
        match self.kind {
            PageKind::Remap {
                source,
                len,
                relocate,
                atomic,
            } => Some(HostRemap {
                target: self.lpn,
                source,
                len: len.into(),
                relocate,
                atomic,
            }),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn identity(&self) -> Option<u64> {
        self.kind.writes().then_some(self.content)
    }
}

/// A remap of pages of the host.
#[derive(Clone, Copy)]
pub(crate) struct HostRemap {
    pub target: HostLpn,
    pub source: HostLpn,
    pub len: u32,
    pub relocate: bool,
    pub atomic: bool,
}

impl From<&Remap> for HostRemap {
    fn from(remap: &Remap) -> Self {
        let Remap {
            target,
            source,
            len,
            relocate,
            atomic,
        } = *remap;
        Self {
            target: target.into(),
            source: source.into(),
            len,
            relocate,
            atomic,
        }
    }
}

impl HostRemap {
    /// The firmware's command, of units of 2^`shift` pages that it has as a whole.
    #[inline]
    pub(crate) fn units(&self, shift: u32) -> Remap {
        Remap {
            target: self.target.unit(shift),
            source: self.source.unit(shift),
            len: self.len >> shift,
            relocate: self.relocate,
            atomic: self.atomic,
        }
    }
}
