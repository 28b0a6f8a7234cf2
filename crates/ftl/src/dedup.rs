//! The fingerprint store: which flash page already holds a content.
//!
//! Lines of one cache line: eight 32-bit tags, then their eight 32-bit page numbers. A tag only nominates a page: a hit
//! counts after the whole fingerprint is compared, which in identity mode is the identity itself and with real bytes
//! their BLAKE3 digest, so no collision can turn into wrong data. A MurmurHash3 digest proves nothing: the core compares
//! the contents as well.
//!
//! Invariants: bounded (eight slots for nine flash pages); a slot may be stale (its page garbage or reused), which the
//! comparison and the reference count find out. Lost at power-off, refilled by writes.
//! Absent: the hash unit's time (the device's).

use crate::counts::Counts;
use crate::murmur3::murmur3;
use remap_ssd_media::slab::{Slab, prefetch};
use remap_ssd_media::{ContentMode, Media, Payload, Ppn};
use serde::{Deserialize, Serialize};

const WAYS: usize = 8;

/// Apart, so that all tags are compared at once.
#[derive(Clone, Copy, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
#[repr(C, align(64))]
struct Line {
    tags: [u32; WAYS],
    /// Page numbers plus one; 0 is an empty slot.
    pages: [u32; WAYS],
}

const _: () = assert!(size_of::<Line>() == 64);

impl Line {
    /// The slots with this tag, empty ones among them: a bit each, and no branches.
    #[inline(always)]
    fn nominated(&self, tag: u32) -> u32 {
        let bits: [u32; WAYS] = std::array::from_fn(|slot| if self.tags[slot] == tag { 1 << slot } else { 0 });
        bits.iter().fold(0, |all, bit| all | bit)
    }

    /// The page of a slot.
    #[inline(always)]
    fn page(&self, slot: usize) -> Option<Ppn> {
        self.pages[slot % WAYS].checked_sub(1).map(Ppn)
    }
}

/// What a page's content is recognised by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum FingerprintKind {
    /// 256 bits that nobody can make collide: equal digests are equal contents.
    #[default]
    #[serde(rename = "blake3")]
    Blake3,
    /// 128 bits that are quick to compute and easy to make collide (Coldmap): each hit is verified by a read.
    #[serde(rename = "murmur3")]
    Murmur3,
}

impl FingerprintKind {
    /// Need hits not be verified?
    #[inline]
    pub fn is_trusted(self) -> bool {
        self == Self::Blake3
    }

    fn digest(self, bytes: &[u8]) -> [u8; 32] {
        match self {
            Self::Blake3 => *blake3::hash(bytes).as_bytes(),
            Self::Murmur3 => {
                let mut digest = [0; 32];
                let (parts, _) = digest.as_chunks_mut::<8>();
                for (part, half) in parts.iter_mut().zip(murmur3(bytes, 0)) {
                    *part = half.to_le_bytes();
                }
                digest
            }
        }
    }
}

/// A content's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fingerprint {
    /// The identity of the content.
    Identity(u64),
    /// Digest of its bytes.
    Digest([u8; 32]),
}

impl Fingerprint {
    /// The fingerprint of a payload.
    #[inline]
    pub fn of(payload: &Payload<'_>, kind: FingerprintKind) -> Self {
        match payload {
            Payload::Identity(identity) => Self::Identity(*identity),
            Payload::Bytes(bytes) => Self::Digest(kind.digest(&bytes[..])),
        }
    }

    #[inline]
    fn spread(&self) -> u64 {
        match self {
            Self::Identity(identity) => {
                let x = (identity ^ (identity >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
            }
            Self::Digest(digest) => u64::from_le_bytes(digest[..8].try_into().expect("8 bytes of 32")),
        }
    }
}

/// The store.
pub struct Dedup {
    lines: Slab<Line>,
    /// Whole digests by page, with real bytes only: identities are in the media already.
    digests: Vec<[u8; 32]>,
}

impl Dedup {
    /// An empty store for so many flash pages; `None` without contents to compare.
    pub fn new(pages: u32, mode: ContentMode) -> Option<Self> {
        let digests = match mode {
            ContentMode::None => return None,
            ContentMode::Identity => Vec::new(),
            ContentMode::Bytes => vec![[0; 32]; pages as usize],
        };
        Some(Self { lines: Slab::zeroed((pages as usize / 9).max(1)), digests })
    }

    #[inline]
    fn place(&self, fingerprint: &Fingerprint) -> (usize, u32) {
        let spread = fingerprint.spread();
        let line = ((spread >> 32) * self.lines.len() as u64) >> 32;
        (line as usize, spread as u32)
    }

    #[inline]
    fn same(&self, fingerprint: &Fingerprint, media: &Media, ppn: Ppn) -> bool {
        match fingerprint {
            Fingerprint::Identity(identity) => media.identity(ppn) == Some(*identity),
            Fingerprint::Digest(digest) => self.digests[ppn.0 as usize] == *digest,
        }
    }

    /// The live page that holds this content.
    #[inline]
    pub fn find(&self, fingerprint: &Fingerprint, media: &Media, counts: &Counts) -> Option<Ppn> {
        let (line, tag) = self.place(fingerprint);
        let line = &self.lines[line];
        let mut nominated = line.nominated(tag);
        while nominated != 0 {
            if let Some(ppn) = line.page(nominated.trailing_zeros() as usize)
                && self.same(fingerprint, media, ppn)
                && !counts.is_zero(ppn)
            {
                return Some(ppn);
            }
            nominated &= nominated - 1;
        }
        None
    }

    /// Remembers where a content was written. A slot with the same tag goes first (its page is stale, or full of
    /// references), then an empty one, then one that the tag picks.
    #[inline]
    pub fn insert(&mut self, fingerprint: &Fingerprint, ppn: Ppn) {
        if let Fingerprint::Digest(digest) = fingerprint {
            self.digests[ppn.0 as usize] = *digest;
        }
        let (line, tag) = self.place(fingerprint);
        let line = &mut self.lines[line];
        let at = match line.nominated(tag) {
            0 => line.pages.iter().position(|page| *page == 0).unwrap_or(tag as usize % WAYS),
            same => same.trailing_zeros() as usize,
        };
        (line.tags[at], line.pages[at]) = (tag, ppn.0 + 1);
    }

    /// These pages have been erased: what they will hold is not known by its digest.
    pub fn erased(&mut self, pages: std::ops::Range<usize>) {
        if !self.digests.is_empty() {
            self.digests[pages].fill([0; 32]);
        }
    }

    /// A page has moved.
    #[inline]
    pub fn moved(&mut self, media: &Media, from: Ppn, to: Ppn) {
        let fingerprint = match media.identity(to) {
            Some(identity) => Fingerprint::Identity(identity),
            None => {
                let digest = self.digests[from.0 as usize];
                self.digests[to.0 as usize] = digest;
                Fingerprint::Digest(digest)
            }
        };
        let (line, tag) = self.place(&fingerprint);
        let line = &mut self.lines[line];
        let mut nominated = line.nominated(tag);
        while nominated != 0 {
            let page = &mut line.pages[nominated.trailing_zeros() as usize];
            if *page == from.0 + 1 {
                *page = to.0 + 1;
                return;
            }
            nominated &= nominated - 1;
        }
    }

    /// Asks for the line of a content.
    #[inline]
    pub fn prefetch_line(&self, fingerprint: &Fingerprint) {
        prefetch(&self.lines, self.place(fingerprint).0);
    }

    /// Asks for what comparing the nominated page will touch; where it is, if a page is nominated.
    #[inline]
    pub fn prefetch_page(&self, fingerprint: &Fingerprint, media: &Media, counts: &Counts) -> Option<Ppn> {
        let (line, tag) = self.place(fingerprint);
        let line = &self.lines[line];
        let ppn = match line.nominated(tag) {
            0 => return None,
            nominated => line.page(nominated.trailing_zeros() as usize)?,
        };
        media.prefetch_identity(ppn);
        counts.prefetch(ppn);
        Some(ppn)
    }
}
