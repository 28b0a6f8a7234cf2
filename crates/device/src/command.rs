//! Page commands as numbers, small enough for long queues.
//!
//! Workloads are lists of these. A content is an identity, not bytes, and a remap represents a
//! whole command.
//!
//! Invariants: a page's kind takes 8 bytes and a command 24. Absent: the execution of commands
//! (`device`, `halves`), and its time.

use remap_ssd_ftl::{Lpn, Remap};

/// A host's operation on one logical page, or on a range if it is a remap.
///
/// ```
/// use remap_ssd_device::{Lpn, PageKind};
/// let copy = PageKind::Remap { source: Lpn(0), len: 8, relocate: false, atomic: false };
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
        /// The LPN that will get the page.
        home: Lpn,
    },
    /// A sub-page or unaligned write: the device reads the page, then writes it with a new content
    /// that no other page has.
    ReadModifyWrite,
    /// Deallocates one page, as a trim does.
    Trim,
    /// A whole remap command, whose targets begin at the command's page. No data crosses the link.
    Remap {
        /// First LPN whose mapping is read.
        source: Lpn,
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
const _: () = assert!(size_of::<PageKind>() == 8);

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
    /// Logical page; the first one of a remap's targets.
    pub lpn: Lpn,
    /// The operation on the page.
    pub kind: PageKind,
}

const _: () = assert!(size_of::<PageCommand>() == 24);

impl PageCommand {
    /// The firmware's command, if it is a remap.
    #[inline]
    pub(crate) fn as_remap(&self) -> Option<Remap> {
        match self.kind {
            PageKind::Remap {
                source,
                len,
                relocate,
                atomic,
            } => Some(Remap {
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
