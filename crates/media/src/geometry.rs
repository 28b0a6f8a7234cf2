//! Addresses of pages, blocks, dies, channels and superblocks.
//!
//! A superblock is the block of one index on every die of a *group*: all dies, unless the groups
//! are narrower. Superblock `s` is in group `s mod groups`. A physical page number counts pages
//! superblock by superblock and, within one, word line by word line across its dies. If each page has a
//! word line of its own, `ppn = superblock * pages_per_superblock + row * dies + die`; else the pages of a
//! word line follow each other. Invariant: `Geometry` is validated on construction; all its products
//! fit in 31 bits.
//!
//! A page is the firmware's indirection unit: 4 KiB unless `indirection_bytes` is larger. Device files give all sizes in
//! pages of 4 KiB.

pub use crate::word_line::PAGE_BYTES;
use crate::word_line::WordLine;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;

/// Number of a logical page of the firmware: an indirection unit, of 4 KiB unless it is larger. Numbers after the
/// host's are internal pages of the firmware.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[repr(transparent)]
pub struct Lpn(pub u32);

impl Lpn {
    /// The first logical page: the start of the host's address range.
    pub const ZERO: Self = Self(0);

    /// The page this many pages later.
    #[inline(always)]
    pub const fn offset(self, pages: u32) -> Self {
        Self(self.0 + pages)
    }

    /// The page this many pages earlier, which must exist.
    #[inline(always)]
    pub const fn back(self, pages: u32) -> Self {
        Self(self.0 - pages)
    }

    /// The page this many pages later, or `None` on overflow.
    #[inline(always)]
    pub fn checked_offset(self, pages: u32) -> Option<Self> {
        self.0.checked_add(pages).map(Self)
    }

    /// Distance to another page in pages, whichever of them comes first.
    #[inline(always)]
    pub const fn abs_diff(self, other: Self) -> u32 {
        self.0.abs_diff(other.0)
    }

    /// Distance from an earlier page `first`.
    #[inline(always)]
    pub const fn offset_from(self, first: Self) -> u32 {
        self.0 - first.0
    }

    /// Returns true for the first `len` pages.
    #[inline(always)]
    pub const fn is_below(self, len: u32) -> bool {
        self.0 < len
    }

    /// Its index in a table of all logical pages.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The pages of an extent, in order.
    #[inline(always)]
    pub fn range(
        first: Self,
        len: u32,
    ) -> impl DoubleEndedIterator<Item = Self> + ExactSizeIterator + Clone + use<> {
        Self::between(first..first.offset(len))
    }

    /// The pages of a range, in order.
    #[inline(always)]
    pub fn between(
        range: Range<Self>,
    ) -> impl DoubleEndedIterator<Item = Self> + ExactSizeIterator + Clone + use<> {
        (range.start.0..range.end.0).map(Self)
    }

    /// The bits of a persisted record's field.
    #[inline(always)]
    pub const fn into_bits(self) -> u32 {
        self.0
    }

    /// The page of a persisted record's field.
    #[inline(always)]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }
}

impl fmt::Display for Lpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Lpn> for u64 {
    #[inline(always)]
    fn from(lpn: Lpn) -> Self {
        lpn.0.into()
    }
}

/// Number of a physical flash page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ppn(pub u32);

/// Superblock number: with one group of dies, the index of its blocks on each die.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SbId(pub u32);

/// Flash block number: `superblock * dies + die`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// A page to program. The caller allocates pages in order and has computed its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSlot {
    /// The page, by its number on the device.
    pub ppn: Ppn,
    /// The erase block that holds it.
    pub block: BlockId,
    /// Its row in the block.
    pub row: u32,
    /// Die of the superblock that holds it.
    pub die: u32,
}

/// Largest number of dies of a superblock: one bit of a 64-bit NVRAM word marks one bad block.
pub const SUPERBLOCK_DIES_MAX: u32 = 64;

/// Largest number of dies of a device.
pub const DIES_MAX: u32 = 256;

/// Shape of the NAND array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "GeometryFields", into = "GeometryFields")]
pub struct Geometry {
    shape: Shape,
    groups: u32,
    pages_per_superblock: u32,
    word_line: WordLine,
    /// Pages of a word line: consecutive pages of a die.
    stripe: u32,
    /// log2 where the value is a power of two, else `NOT_POWER`: division is on the hot path.
    superblock_shift: u8,
    dies_shift: u8,
    /// For [`quotient`]s by the pages of a superblock, and of a word line.
    superblock_inverse: u64,
    stripe_inverse: u64,
}

const NOT_POWER: u8 = u8::MAX;

/// What [`quotient`] needs for a divisor above 1: 2^64 / `divisor`, rounded up.
const fn inverse(divisor: u32) -> u64 {
    (u64::MAX / divisor as u64).wrapping_add(1)
}

/// A number divided by that of `inverse`, with one multiplication. Exact for all numbers of 32 bits (Lemire, Kaser and Kurz,
/// "Faster remainder by direct computation", 2019).
#[inline(always)]
const fn quotient(number: u32, inverse: u64) -> u32 {
    ((number as u128 * inverse as u128) >> 64) as u32
}

/// The four numbers of a geometry with one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Channels; dies are assigned to them round-robin.
    pub channels: u32,
    /// Dies of a superblock.
    pub dies: u32,
    /// Number of superblocks in the device.
    pub superblocks: u32,
    /// Number of pages in a block.
    pub pages_per_block: u32,
}

/// A geometry as in device files: its pages are of 4 KiB, whatever the indirection unit.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GeometryFields {
    channels: u32,
    dies: u32,
    superblocks: u32,
    pages_per_block: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    superblock_dies: u32,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    planes: u32,
    #[serde(default = "page_bytes", skip_serializing_if = "is_page_bytes")]
    page_bytes: u32,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    cell_bits: u32,
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    one_shot: bool,
    #[serde(default = "page_bytes", skip_serializing_if = "is_page_bytes")]
    indirection_bytes: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn one() -> u32 {
    1
}

fn is_one(number: &u32) -> bool {
    *number == 1
}

fn page_bytes() -> u32 {
    PAGE_BYTES as u32
}

fn is_page_bytes(bytes: &u32) -> bool {
    *bytes == page_bytes()
}

fn yes() -> bool {
    true
}

fn is_yes(flag: &bool) -> bool {
    *flag
}

/// Why a shape cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("geometry: {0}")]
pub struct GeometryError(pub String);

impl Geometry {
    /// Checks a shape.
    ///
    /// # Errors
    /// One sentence: the impossible number, and possible ones.
    pub fn new(shape: Shape) -> Result<Self, GeometryError> {
        Self::grouped(shape, 1)
    }

    /// Checks a shape whose superblocks are distributed over this number of groups of dies.
    ///
    /// # Errors
    /// One sentence: the impossible number, and possible ones.
    pub fn grouped(shape: Shape, groups: u32) -> Result<Self, GeometryError> {
        let fail = |text: String| Err(GeometryError(text));
        if shape.dies == 0 || shape.dies > SUPERBLOCK_DIES_MAX {
            return fail(format!(
                "dies = {} must be 1 to {SUPERBLOCK_DIES_MAX}, or up to {DIES_MAX} with superblock_dies",
                shape.dies
            ));
        }

        let dies = u64::from(shape.dies) * u64::from(groups);
        if groups == 0 || dies > u64::from(DIES_MAX) || !shape.superblocks.is_multiple_of(groups) {
            return fail(format!(
                "{groups} groups of {} dies: at most {DIES_MAX} dies, and all groups alike",
                shape.dies
            ));
        }

        if shape.channels == 0 || u64::from(shape.channels) > dies {
            return fail(format!(
                "channels = {} must be 1 to dies = {dies}",
                shape.channels
            ));
        }

        // Persisted records have 21 bits for a superblock number.
        if shape.superblocks == 0 || shape.superblocks >= 1 << 21 {
            return fail(format!(
                "superblocks = {} must be 1 to 2097151",
                shape.superblocks
            ));
        }

        let per_superblock = u64::from(shape.dies) * u64::from(shape.pages_per_block);
        if !(4..=1 << 21).contains(&per_superblock) {
            return fail(format!(
                "dies x pages_per_block = {per_superblock} must be 4 to 2097152 (a remapping entry has 21 bits for it)"
            ));
        }

        // An L2P cell uses its top bit for "remapped", so a page number has 31.
        if per_superblock * u64::from(shape.superblocks) >= 1 << 31 {
            return fail(
                "more than 2^31 - 1 flash pages: use fewer superblocks or pages per block, or a larger indirection unit".into(),
            );
        }

        // Dividing by a power of two is a shift; every command needs these divisions.
        let shift = |n: u32| {
            if n.is_power_of_two() {
                n.trailing_zeros() as u8
            } else {
                NOT_POWER
            }
        };

        let pages_per_superblock = per_superblock as u32;
        Ok(Self {
            shape,
            groups,
            pages_per_superblock,
            word_line: WordLine::SINGLE,
            stripe: 1,
            superblock_shift: shift(pages_per_superblock),
            dies_shift: shift(shape.dies),
            superblock_inverse: inverse(pages_per_superblock),
            stripe_inverse: inverse(1),
        })
    }

    /// The same flash, with superblocks that span this number of dies.
    ///
    /// # Errors
    /// Unequal groups, or superblocks that are too small.
    pub fn with_superblock_dies(&self, dies: u32) -> Result<Self, GeometryError> {
        let all = self.dies_total();
        if dies == 0 || !all.is_multiple_of(dies) {
            return Err(GeometryError(format!(
                "superblock_dies = {dies} must divide the {all} dies"
            )));
        }

        let superblocks = self.blocks_per_die() * (all / dies);
        Self::grouped(
            Shape {
                dies,
                superblocks,
                ..self.shape
            },
            all / dies,
        )?
        .with_word_line(self.word_line)
    }

    /// The same flash, with another number of pages per block.
    ///
    /// # Errors
    /// Blocks that are too small or too large.
    pub fn with_pages_per_block(&self, pages_per_block: u32) -> Result<Self, GeometryError> {
        Self::grouped(
            Shape {
                pages_per_block,
                ..self.shape
            },
            self.groups,
        )?
        .with_word_line(self.word_line)
    }

    /// The same dies, with word lines of this kind.
    ///
    /// # Errors
    /// A word line that no die has, or blocks that do not consist of whole ones.
    pub fn with_word_line(&self, word_line: WordLine) -> Result<Self, GeometryError> {
        let fail = |text: String| Err(GeometryError(text));
        if let Some(problem) = word_line.problem() {
            return fail(problem);
        }

        let stripe = word_line.pages();
        let Shape {
            dies,
            pages_per_block,
            ..
        } = self.shape;
        if !pages_per_block.is_multiple_of(stripe) {
            return fail(format!(
                "pages_per_block = {pages_per_block} must be a multiple of the {stripe} pages of a word line (planes x page_bytes / indirection_bytes x cell_bits)"
            ));
        }

        if pages_per_block / stripe * dies < 4 {
            return fail(format!(
                "a superblock of {} word lines is too small: its head and its tail take one each",
                pages_per_block / stripe * dies
            ));
        }

        Ok(Self {
            word_line,
            stripe,
            stripe_inverse: inverse(stripe),
            ..*self
        })
    }

    /// The word lines of its dies.
    pub fn word_line(&self) -> WordLine {
        self.word_line
    }
    /// Host pages of 4 KiB in a page of this geometry: above 1 with a larger indirection unit.
    #[inline]
    pub fn host_pages(&self) -> u32 {
        self.word_line.host_pages()
    }
    /// Bytes of a page of this geometry.
    #[inline]
    pub fn page_bytes(&self) -> usize {
        self.word_line.indirection_bytes as usize
    }
    /// Pages of a word line, which follow each other.
    #[inline(always)]
    pub fn stripe(&self) -> u32 {
        self.stripe
    }

    /// Groups of dies among which superblocks are distributed.
    #[inline]
    pub fn groups(&self) -> u32 {
        self.groups
    }
    /// Group of dies that holds a superblock.
    #[inline]
    pub fn group(&self, sb: SbId) -> u32 {
        if self.groups == 1 {
            0
        } else {
            sb.0 % self.groups
        }
    }
    /// Dies in the whole device.
    pub fn dies_total(&self) -> u32 {
        self.shape.dies * self.groups
    }
    /// Number of blocks of a die.
    pub fn blocks_per_die(&self) -> u32 {
        self.shape.superblocks / self.groups
    }
    /// Device-wide index of die `die` of a superblock.
    #[inline(always)]
    pub fn die_of(&self, sb: SbId, die: u32) -> u32 {
        if self.groups == 1 {
            die
        } else {
            sb.0 % self.groups * self.shape.dies + die
        }
    }

    /// The shape from which it was built.
    pub fn shape(&self) -> Shape {
        self.shape
    }
    /// Channels that connect the dies.
    pub fn channels(&self) -> u32 {
        self.shape.channels
    }
    /// Number of dies of a superblock.
    #[inline]
    pub fn dies(&self) -> u32 {
        self.shape.dies
    }
    /// Superblocks of the whole array.
    #[inline]
    pub fn superblocks(&self) -> u32 {
        self.shape.superblocks
    }
    /// Number of pages in a block.
    #[inline]
    pub fn pages_per_block(&self) -> u32 {
        self.shape.pages_per_block
    }
    /// Number of pages in a superblock.
    #[inline]
    pub fn pages_per_superblock(&self) -> u32 {
        self.pages_per_superblock
    }
    /// Number of flash pages in the device.
    pub fn pages(&self) -> u32 {
        self.pages_per_superblock * self.shape.superblocks
    }
    /// Number of flash blocks in the device.
    pub fn blocks(&self) -> u32 {
        self.shape.dies * self.shape.superblocks
    }

    /// Superblock that holds a page.
    #[inline]
    pub fn superblock(&self, ppn: Ppn) -> SbId {
        SbId(if self.superblock_shift == NOT_POWER {
            quotient(ppn.0, self.superblock_inverse)
        } else {
            ppn.0 >> self.superblock_shift
        })
    }
    /// Page offset within its superblock ("PPO", FAST'21 figure 4).
    #[inline]
    pub fn offset(&self, ppn: Ppn) -> u32 {
        if self.superblock_shift == NOT_POWER {
            ppn.0 - quotient(ppn.0, self.superblock_inverse) * self.pages_per_superblock
        } else {
            ppn.0 & (self.pages_per_superblock - 1)
        }
    }
    /// Page at an offset of a superblock.
    #[inline]
    pub fn page(&self, sb: SbId, offset: u32) -> Ppn {
        Ppn(sb.0 * self.pages_per_superblock + offset)
    }
    /// Number of the word line that holds an offset.
    #[inline]
    fn line_of(&self, offset: u32) -> u32 {
        if self.stripe == 1 {
            offset
        } else {
            quotient(offset, self.stripe_inverse)
        }
    }
    /// Die of an offset within a superblock.
    #[inline]
    pub fn die_of_offset(&self, offset: u32) -> u32 {
        let line = self.line_of(offset);
        if self.dies_shift == NOT_POWER {
            line % self.shape.dies
        } else {
            line & (self.shape.dies - 1)
        }
    }
    /// Row (page number within its block) of an offset.
    #[inline]
    pub fn row_of_offset(&self, offset: u32) -> u32 {
        if self.stripe == 1 {
            self.line_row(offset)
        } else {
            let line = self.line_of(offset);
            self.line_row(line) * self.stripe + (offset - line * self.stripe)
        }
    }
    /// Row of a word line, counted in word lines.
    #[inline]
    fn line_row(&self, line: u32) -> u32 {
        if self.dies_shift == NOT_POWER {
            line / self.shape.dies
        } else {
            line >> self.dies_shift
        }
    }
    /// Offset of a page, from its row and its die.
    #[inline]
    pub fn offset_of(&self, row: u32, die: u32) -> u32 {
        if self.stripe == 1 {
            row * self.shape.dies + die
        } else {
            (row / self.stripe * self.shape.dies + die) * self.stripe + row % self.stripe
        }
    }
    /// Offset of the first page of the word line that holds an offset.
    #[inline]
    pub fn line_start(&self, offset: u32) -> u32 {
        self.line_of(offset) * self.stripe
    }
    /// Block of a superblock on a die.
    #[inline]
    pub fn block(&self, sb: SbId, die: u32) -> BlockId {
        BlockId(sb.0 * self.shape.dies + die)
    }
    /// The place of a page.
    #[inline(always)]
    pub fn slot(&self, ppn: Ppn) -> PageSlot {
        let offset = self.offset(ppn);
        let die = self.die_of_offset(offset);
        PageSlot {
            ppn,
            block: self.block(self.superblock(ppn), die),
            row: self.row_of_offset(offset),
            die,
        }
    }
    /// Superblock and die of a block.
    pub fn place_of_block(&self, block: BlockId) -> (SbId, u32) {
        (SbId(block.0 / self.shape.dies), block.0 % self.shape.dies)
    }
    /// Channel of a die, by its number in the device: dies are dealt to channels in turn.
    pub fn channel_of_die(&self, die: u32) -> u32 {
        die % self.shape.channels
    }
}

impl TryFrom<GeometryFields> for Geometry {
    type Error = GeometryError;
    fn try_from(described: GeometryFields) -> Result<Self, GeometryError> {
        let GeometryFields {
            channels,
            dies,
            superblocks,
            pages_per_block,
            superblock_dies,
            planes,
            page_bytes,
            cell_bits: bits,
            one_shot,
            indirection_bytes,
        } = described;

        let word_line = WordLine {
            planes,
            page_bytes,
            bits,
            one_shot,
            indirection_bytes,
        };
        if let Some(problem) = word_line.problem() {
            return Err(GeometryError(problem));
        }

        // Files count 4 KiB; the geometry counts indirection units, of which a block has a whole number.
        let unit = word_line.host_pages();
        if !pages_per_block.is_multiple_of(unit) {
            return Err(GeometryError(format!(
                "pages_per_block = {pages_per_block} must be a multiple of the {unit} pages of an indirection unit"
            )));
        }

        // Superblocks may span fewer dies.
        let narrow = if superblock_dies == 0 {
            dies
        } else {
            superblock_dies
        };
        if narrow > dies || !dies.is_multiple_of(narrow) {
            return Err(GeometryError(format!(
                "superblock_dies = {narrow} must divide the {dies} dies"
            )));
        }

        // Zero dies reach `grouped`, which refuses them in its own words; here they must not divide. A file gives superblocks as
        // blocks of a die: each group has one of every index.
        let groups = dies / narrow.max(1);
        let shape = Shape {
            channels,
            dies: narrow,
            superblocks: superblocks.saturating_mul(groups.max(1)),
            pages_per_block: pages_per_block / unit,
        };
        Self::grouped(shape, groups.max(1))?.with_word_line(word_line)
    }
}

impl From<Geometry> for GeometryFields {
    fn from(geometry: Geometry) -> Self {
        let Shape {
            channels,
            dies,
            pages_per_block,
            ..
        } = geometry.shape;
        let WordLine {
            planes,
            page_bytes,
            bits: cell_bits,
            one_shot,
            indirection_bytes,
        } = geometry.word_line;

        // The inverse of `try_from`: sizes in pages of 4 KiB, superblocks per die, and 0 where superblocks span all dies.
        Self {
            channels,
            dies: geometry.dies_total(),
            superblocks: geometry.blocks_per_die(),
            pages_per_block: pages_per_block * geometry.host_pages(),
            superblock_dies: if geometry.groups == 1 { 0 } else { dies },
            planes,
            page_bytes,
            cell_bits,
            one_shot,
            indirection_bytes,
        }
    }
}
