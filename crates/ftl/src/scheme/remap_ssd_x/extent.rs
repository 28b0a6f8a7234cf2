//! An extent, bit by bit: consecutive LPNs remapped to consecutive pages of one superblock.
//!
//! It is Table 2's entry with a use for bits that are null there: an entry without a source LPN
//! stores the number of pages in that field. So an entry of one page is identical to Table 2's, bit
//! for bit. A relocation of several pages is followed by a second slot with its first source.
//!
//! Invariants: a slot counts only if both its torn bits are 1, and a slot of sources only directly
//! after the extent with its number. The pages of an extent have consecutive numbers starting with
//! the entry's, or all have the entry's. Absent: the location of slots, and when an extent grows.

use crate::scheme::entry::{EntryPlace, RmmEntry};
use bitfield_struct::bitfield;
use remap_ssd_media::Lpn;

pub(super) const SLOT_WORDS: usize = 2;

/// Maximum number of pages of an extent.
pub(super) const PAGES_MAX: u32 = 256;

/// Second word of a slot, where Table 2's remapping flag is 0.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub(super) struct ExtentSpan {
    pub torn: bool,
    /// Bits 65-95: first target LPN; in a slot of sources, the first source.
    #[bits(31)]
    pub first: Lpn,
    /// Bit 96: Table 2's remapping flag. If it is 1, the rest is the source LPN of a single page.
    pub flag: bool,
    /// Bits 97-104: number of pages minus one.
    pub pages_z: u8,
    /// Bit 105: all pages have the entry's number.
    pub one_number: bool,
    /// Bit 106: the sources have lost the pages; they are in the next slot.
    pub relocates: bool,
    /// Bit 107: this slot holds the sources of the previous extent.
    pub is_sources: bool,
    #[bits(20)]
    __: u32,
}

const _: () = assert!(size_of::<ExtentSpan>() == 8 && PAGES_MAX == 1 << 8);

/// Contents of one or two slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RemapExtent {
    /// First LPN that was remapped to the run.
    pub lpn: Lpn,
    /// First page offset in the superblock.
    pub offset: u32,
    pub pages: u32,
    /// WSN of the first page.
    pub wsn: u64,
    /// True if all pages have this WSN.
    pub one_number: bool,
    /// First LPN that lost its page, for a relocation.
    pub source: Option<Lpn>,
}

/// Contents of one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExtentSlot {
    /// An extent; true if the next slot must hold its sources.
    Extent(RemapExtent, bool),
    /// Sources of the previous extent, if that has this number.
    Sources(Lpn, u64),
}

impl RemapExtent {
    /// Number of slots it takes: one or two.
    pub(super) fn slots(&self) -> u32 {
        1 + u32::from(self.source.is_some() && self.pages > 1)
    }

    /// WSN of its page `index`.
    pub(super) fn wsn_of(&self, index: u32) -> u64 {
        self.wsn + if self.one_number { 0 } else { u64::from(index) }
    }

    /// The LPN that lost page `index`.
    pub(super) fn source_of(&self, index: u32) -> Option<Lpn> {
        self.source.map(|source| source.offset(index))
    }

    /// Second word of its first slot.
    pub(super) fn span(&self) -> u64 {
        match self.source {
            Some(source) if self.pages == 1 => RmmEntry::second_of(self.lpn, Some(source)),
            _ => self
                .span_from(self.lpn)
                .with_relocates(self.source.is_some())
                .into(),
        }
    }

    fn span_from(&self, first: Lpn) -> ExtentSpan {
        let several = self.pages > 1;
        ExtentSpan::new()
            .with_torn(true)
            .with_first(first)
            .with_pages_z((self.pages - 1) as u8)
            .with_one_number(several && self.one_number)
    }

    /// Its words; the last two are used only if it takes two slots.
    pub(super) fn words(&self) -> [u64; 2 * SLOT_WORDS] {
        let when = EntryPlace::new().with_torn(true).with_wsn(self.wsn);
        let sources = self
            .span_from(self.source.unwrap_or(Lpn::ZERO))
            .with_is_sources(true);
        [
            when.with_offset(self.offset).into(),
            self.span(),
            when.into(),
            sources.into(),
        ]
    }

    /// Decodes a slot. Returns `None` if a torn bit is missing and `torn_bits` is set.
    pub(super) fn read(first: u64, second: u64, torn_bits: bool) -> Option<ExtentSlot> {
        let (when, span) = (EntryPlace::from_bits(first), ExtentSpan::from_bits(second));
        if torn_bits && !(when.torn() && span.torn()) {
            return None;
        }
        if !span.flag() && span.is_sources() {
            return Some(ExtentSlot::Sources(span.first(), when.wsn()));
        }

        let entry = RmmEntry::from_words(first, second);
        let (pages, one_number) = named(second);
        let extent = Self {
            lpn: entry.target(),
            offset: entry.offset(),
            pages,
            wsn: entry.wsn(),
            one_number,
            source: entry.relocated_source(),
        };

        Some(ExtentSlot::Extent(extent, !span.flag() && span.relocates()))
    }
}

/// The LPNs named in a slot's second word, regardless of its first word.
pub(super) fn lpns_named(second: u64) -> std::ops::Range<Lpn> {
    let span = ExtentSpan::from_bits(second);
    span.first()..span.first().offset(named(second).0)
}

fn named(second: u64) -> (u32, bool) {
    let span = ExtentSpan::from_bits(second);
    if span.flag() {
        (1, false)
    } else {
        (u32::from(span.pages_z()) + 1, span.one_number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Remapping;
    use remap_ssd_media::Ppn;

    fn read(extent: &RemapExtent) -> (Option<ExtentSlot>, Option<ExtentSlot>) {
        let [a, b, c, d] = extent.words();
        (RemapExtent::read(a, b, true), RemapExtent::read(c, d, true))
    }

    #[test]
    fn an_extent_of_one_page_is_the_entry_of_table_2() {
        for source in [None, Some(Lpn(0x7fff_fff0))] {
            let remapping = Remapping {
                lpn: Lpn(0x1234_5678),
                ppn: Ppn(77),
                wsn: 1 << 41,
                source,
                atomic: None,
            };

            let extent = RemapExtent {
                lpn: remapping.lpn,
                offset: 77,
                pages: 1,
                wsn: 1 << 41,
                one_number: false,
                source,
            };

            assert_eq!(extent.words()[..2], RmmEntry::of(&remapping, 77).words());
            assert_eq!(
                (read(&extent).0, extent.slots()),
                (Some(ExtentSlot::Extent(extent, false)), 1)
            );
        }
    }

    #[test]
    fn extents_of_any_length_read_back_as_they_were_written() {
        for (pages, one_number, source) in [
            (2, false, None),
            (256, true, None),
            (17, true, Some(Lpn(5))),
            (256, false, Some(Lpn(9))),
        ] {
            let extent = RemapExtent {
                lpn: Lpn(0x7fff_ff00),
                offset: 0x1f_ff00,
                pages,
                wsn: 99,
                one_number,
                source,
            };

            let (first, second) = read(&extent);
            assert_eq!(
                first,
                Some(ExtentSlot::Extent(
                    RemapExtent {
                        source: None,
                        ..extent
                    },
                    source.is_some()
                ))
            );

            if let Some(source) = source {
                assert_eq!(
                    (second, extent.slots()),
                    (Some(ExtentSlot::Sources(source, 99)), 2)
                );
            }

            let numbers = [extent.wsn_of(0), extent.wsn_of(pages - 1)];
            assert_eq!(
                numbers,
                [
                    99,
                    if one_number {
                        99
                    } else {
                        98 + u64::from(pages)
                    }
                ]
            );

            assert_eq!(
                lpns_named(extent.span()),
                extent.lpn..extent.lpn.offset(pages)
            );
        }
    }

    #[test]
    fn a_slot_with_a_torn_bit_missing_does_not_count() {
        let [a, b, ..] = RemapExtent {
            lpn: Lpn(1),
            offset: 2,
            pages: 3,
            wsn: 4,
            one_number: false,
            source: None,
        }
        .words();
        for (a, b) in [(0, b), (a, 0), (a & !1, b), (a, b & !1)] {
            assert_eq!(RemapExtent::read(a, b, true), None);
        }
    }
}
