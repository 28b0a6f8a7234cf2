//! The six effects on the media, as one type.
//!
//! The same effect is *done* to the cells (`media/apply.rs`), is *pending* on the power rail
//! (`rail.rs`), and is *written down* in a folder's journal (`folder/journal.rs`). Each of them
//! represents two parts differently; these are the parameters of [`MediaEffect`]:
//!
//! ```text
//!                contents of a program             the words of a store
//! done           PageSource: where they are        a slice
//! pending        Stored: owned                     one word, since each lands separately
//! written down   PageSum: kind and checksum        a slice
//! ```
//! Invariant: cells change by [`MediaEffect::change`], in live media as in replay. Absent: cost of
//! an operation, and whether it fails (the verbs in `media`).

use crate::array::{NandArray, StoredPage};
use crate::content::ContentMode;
use crate::geometry::{BlockId, Geometry, Ppn};
use crate::oob::Oob;
use crate::op::{After, ClearId};
use std::ops::Range;
use std::sync::Arc;

/// One change of the media.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum MediaEffect<P, W> {
    /// A page is programmed whole, together with its OOB.
    Program { ppn: Ppn, oob: Oob, contents: P },
    /// A program failed, or was cut: the page is used up, and unreadable.
    TornProgram { ppn: Ppn },
    /// A block is erased: its pages can be programmed again, from the first one.
    Erase { block: BlockId },
    /// An erase failed, or was cut: the block holds neither the old pages nor erased ones.
    SpoiledErase { block: BlockId },
    /// Words of NVRAM are stored, each atomically.
    Store { word: usize, values: W },
    /// A range of NVRAM is zeroed. A cut may leave any subset of it zeroed.
    Clear { start: usize, len: usize },
}

/// An effect to apply.
pub(crate) type NewEffect<'a> = MediaEffect<PageSource<'a>, &'a [u64]>;

/// Source of a program's contents. Bytes stay in place until the page takes them.
#[derive(Clone, Debug)]
pub(crate) enum PageSource<'a> {
    Stored(StoredPage),
    /// Host data, in its buffer.
    Bytes(&'a [u8]),
    /// Another data page of the mapped file, whose bytes have this CRC.
    CopyOf {
        from: Ppn,
        crc: u32,
    },
}

/// Ordering of an effect, and the commands that wait for it.
#[derive(Clone, Default)]
pub(crate) struct EffectOrder {
    pub after: After,
    /// The page that a program copies: it lands after that page's own program.
    pub copied: Option<Ppn>,
    /// The record that a store changes: it lands after all earlier stores to these words.
    pub record: Option<Range<usize>>,
    /// True if the command's acknowledgement waits for it.
    pub critical: bool,
    /// ID of a clearing, or of the erases of a superblock.
    pub clear_id: ClearId,
}

impl PageSource<'_> {
    /// Returns the contents as an owned value.
    fn to_stored(&self, nand: &NandArray) -> StoredPage {
        match self {
            Self::Stored(stored) => stored.clone(),
            // A device without contents also accepts bytes: a trace of bytes can run on it.
            Self::Bytes(_) if nand.mode() == ContentMode::None => StoredPage::Nothing,
            Self::Bytes(bytes) => StoredPage::Bytes(Arc::from(*bytes)),
            Self::CopyOf { from, .. } => nand.stored(*from),
        }
    }
}

impl<P, W: Copy> MediaEffect<P, W> {
    /// The same effect, with another representation of the page's contents.
    #[inline(always)]
    pub(crate) fn map_page<Q>(&self, terms: impl FnOnce(&P) -> Q) -> MediaEffect<Q, W> {
        match *self {
            Self::Program {
                ppn,
                oob,
                ref contents,
            } => MediaEffect::Program {
                ppn,
                oob,
                contents: terms(contents),
            },
            Self::TornProgram { ppn } => MediaEffect::TornProgram { ppn },
            Self::Erase { block } => MediaEffect::Erase { block },
            Self::SpoiledErase { block } => MediaEffect::SpoiledErase { block },
            Self::Store { word, values } => MediaEffect::Store { word, values },
            Self::Clear { start, len } => MediaEffect::Clear { start, len },
        }
    }
}

impl<P, W> MediaEffect<P, W> {
    /// The block whose effects land in order of issue; NVRAM has none.
    pub(crate) fn block(&self, geometry: Geometry) -> Option<BlockId> {
        match *self {
            Self::Program { ppn, .. } | Self::TornProgram { ppn } => Some(geometry.slot(ppn).block),
            Self::Erase { block } | Self::SpoiledErase { block } => Some(block),
            Self::Store { .. } | Self::Clear { .. } => None,
        }
    }

    /// Returns true if it discards the contents of a block.
    #[inline]
    pub(crate) fn is_erase(&self) -> bool {
        matches!(self, Self::Erase { .. } | Self::SpoiledErase { .. })
    }
}

impl<'a> NewEffect<'a> {
    /// The effect with owned contents, so that it can outlive the command.
    pub(crate) fn to_owned_page(&self, nand: &NandArray) -> MediaEffect<StoredPage, &'a [u64]> {
        self.map_page(|contents| contents.to_stored(nand))
    }

    /// Changes the cells of flash or the words of NVRAM, at once and completely.
    #[inline(always)]
    pub(crate) fn change(self, nand: &mut NandArray, nvram: &mut [u64]) {
        match self {
            Self::Program { ppn, oob, contents } => match contents {
                PageSource::Stored(stored) => nand.put(ppn, oob, stored),
                PageSource::Bytes(bytes) => nand.put_bytes(nand.geometry.slot(ppn), oob, bytes),
                PageSource::CopyOf { from, .. } => {
                    nand.put_copy(from, nand.geometry.slot(ppn), oob)
                }
            },
            Self::TornProgram { ppn } => nand.tear(ppn),
            Self::Erase { block } => nand.erase(block),
            Self::SpoiledErase { block } => nand.spoil(block),
            Self::Store { word, values } => {
                nvram[word..word + values.len()].copy_from_slice(values)
            }
            Self::Clear { start, len } => nvram[start..start + len].fill(0),
        }
    }
}
