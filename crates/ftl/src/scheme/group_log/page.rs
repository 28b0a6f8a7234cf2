//! A page of entries on flash that belongs to one superblock of data, byte by byte.
//!
//! 16 bytes of header, then up to 255 entries of Table 2, whose page offsets refer to the owner.
//! Invariant: a page counts while its owner has the incarnation named in the header, and no page of
//! the group supersedes it. Absent: the location of pages.

use crate::scheme::entry::RmmEntry;
use bitfield_struct::bitfield;
use remap_ssd_media::SbId;
use zerocopy::IntoBytes;

/// Entries in a page, besides the header.
pub(in crate::scheme) const ENTRIES_MAX: usize =
    remap_ssd_media::geometry::PAGE_BYTES / ENTRY_BYTES - 1;
const ENTRY_BYTES: usize = 16;

/// First word of the header: the owner of the entries.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub(super) struct GroupOwner {
    /// Superblock that the entries' offsets refer to.
    #[bits(21)]
    pub superblock: u32,
    #[bits(21)]
    pub incarnation: u32,
    #[bits(22)]
    __: u32,
}

/// Second word: the page's position in the group.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub(super) struct GroupPlace {
    /// Number of the page in the group, from 0; kept when the page moves.
    pub number: u32,
    /// The group's pages with smaller numbers are superseded; 0 except in the last page of a
    /// rewriting.
    pub base: u32,
}

pub(super) struct GroupPageHeader {
    pub owner: GroupOwner,
    pub place: GroupPlace,
}

fn word(bytes: &[u8], index: usize) -> Option<u64> {
    let bytes = bytes.get(index * 8..index * 8 + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().expect("8 bytes")))
}

/// Bytes of a page with `entries` entries.
pub(super) fn bytes_of(entries: usize) -> usize {
    (1 + entries) * ENTRY_BYTES
}

/// Encodes a page.
pub(super) fn encode(owner: GroupOwner, place: GroupPlace, entries: &[[u64; 2]], bytes: &mut [u8]) {
    let (header, rest) = bytes.split_at_mut(ENTRY_BYTES);
    header.copy_from_slice([owner.into_bits(), place.into_bits()].as_bytes());
    rest.copy_from_slice(entries.as_bytes());
}

impl GroupPageHeader {
    /// The header of a page that is long enough to have one.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            owner: word(bytes, 0)?.into(),
            place: word(bytes, 1)?.into(),
        })
    }

    pub(super) fn sb(&self) -> SbId {
        SbId(self.owner.superblock())
    }
}

/// The words of a page's entries, including torn ones.
pub(super) fn words(bytes: &[u8]) -> impl ExactSizeIterator<Item = [u64; 2]> + '_ {
    let pairs = bytes.as_chunks::<8>().0.as_chunks::<2>().0;
    let pairs = pairs.get(1..).unwrap_or_default().iter();
    pairs.map(|[first, second]| [u64::from_le_bytes(*first), u64::from_le_bytes(*second)])
}

/// The entries of a page.
pub(super) fn entries(bytes: &[u8]) -> impl Iterator<Item = RmmEntry> + '_ {
    let entries = words(bytes).map(|[first, second]| RmmEntry::from_words(first, second));
    entries.filter(|entry| entry.is_intact())
}
