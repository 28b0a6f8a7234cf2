//! Parameters of the flash, as in a data sheet, and of the order in which a die works.

use remap_ssd_media::SlcArea;
use serde::{Deserialize, Serialize};

/// Times of the pages of a word line, one for each bit that a cell stores: a page's type follows from
/// its number within the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct CellTimes {
    times: [u64; Self::BITS_MAX],
    bits: u8,
}

/// In a file: a number, or a list of them.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    One(u64),
    Several(Vec<u64>),
}

impl From<CellTimes> for Written {
    fn from(times: CellTimes) -> Self {
        match times.times() {
            [one] => Self::One(*one),
            several => Self::Several(several.to_vec()),
        }
    }
}

impl TryFrom<Written> for CellTimes {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, Self::Error> {
        let times = match written {
            Written::One(one) => return Ok(Self::flat(one)),
            Written::Several(times) => times,
        };
        Self::new(&times).ok_or("1 to 4 times are possible, none less than the one before")
    }
}

impl CellTimes {
    /// Cells of at most four bits.
    pub(crate) const BITS_MAX: usize = 4;

    /// The times from the fastest page type to the slowest; `None` unless there are 1 to 4 of them,
    /// none less than the one before.
    pub fn new(times: &[u64]) -> Option<Self> {
        if let [time] = times {
            return Some(Self::flat(*time));
        }
        let bits = times.len();
        let mut all = [0; Self::BITS_MAX];
        all.get_mut(..bits)?.copy_from_slice(times);
        (bits > 0 && times.is_sorted()).then_some(Self {
            times: all,
            bits: bits as u8,
        })
    }

    /// The same time for all pages.
    pub const fn flat(time: u64) -> Self {
        Self {
            times: [time; Self::BITS_MAX],
            bits: 1,
        }
    }

    /// The times, one for each page type.
    pub fn times(&self) -> &[u64] {
        &self.times[..usize::from(self.bits)]
    }

    /// Mean of the page types.
    pub fn mean(&self) -> u64 {
        let times = self.times();
        times.iter().sum::<u64>() / times.len() as u64
    }

    /// Time of the flash page `row` of a block.
    #[inline]
    pub(crate) fn of_row(&self, row: u32) -> u64 {
        self.times[page_type(self.bits, row)]
    }
}

/// Type of a page by its number within the block: 0 is the fastest. Word line by word line; the longer runs of
/// fast pages with which some parts begin their blocks would be most of the short blocks of a scaled device.
#[inline]
fn page_type(bits: u8, row: u32) -> usize {
    (row % u32::from(bits)) as usize
}

/// Interruption of programs and erases by reads of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Suspension {
    /// From the command until the die can read, for programs and for erases.
    pub begin_ns: [u64; 2],
    /// Beyond the rest of the operation, when it resumes.
    pub resume_ns: u64,
    /// An operation with less than this left is not suspended.
    pub least_left_ns: u64,
    /// An operation that was resumed works at least this long before it is suspended again.
    pub least_progress_ns: u64,
    /// How often one program, and one erase, is suspended at most; 0 is never.
    pub most: [u32; 2],
}

impl Suspension {
    /// No operation is suspended.
    #[cfg(test)]
    pub(crate) const NEVER: Self = Self {
        begin_ns: [0; 2],
        resume_ns: 0,
        least_left_ns: 0,
        least_progress_ns: 0,
        most: [0; 2],
    };
}

/// Superblocks whose cells store one bit, and times of their flash pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlcSpec {
    pub area: SlcArea,
    pub read_ns: u64,
    pub program_ns: u64,
}

impl SlcSpec {
    /// There is no such superblock.
    #[cfg(test)]
    pub(crate) const NONE: Self = Self {
        area: SlcArea::NONE,
        read_ns: 0,
        program_ns: 0,
    };
}

/// Parameters of flash whose dies choose what to do next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NandSpec {
    /// Reading a page inside its die.
    pub read: CellTimes,
    /// Programming a page; with two steps, the coarse one and the fine one.
    pub program: CellTimes,
    /// Word lines are programmed in two steps.
    pub two_step: bool,
    /// The superblocks in SLC mode, and their times.
    pub slc: SlcSpec,
    /// Erasing a block, inside its die.
    pub erase_ns: u64,
    /// Moving a page over its channel: an indirection unit.
    pub transfer_ns: u64,
    /// Command and address cycles of a read, a program and an erase on the channel.
    pub command_ns: [u64; 3],
    /// Additional cycles for each plane after the first.
    pub plane_ns: [u64; 3],
    /// Planes read different flash pages at once.
    pub independent_planes: bool,
    /// A read of a single page of 4 KiB of a larger flash page is so much faster.
    pub part_saves_ns: u64,
    /// Program units that the controller's buffer holds for each die.
    pub buffer_units: u32,
    /// True if the buffer survives a power cut: a page is done once it is there. Otherwise it is done once it
    /// has been programmed.
    pub protected: bool,
    /// A free channel first moves data that was read, and then takes new commands.
    pub data_first: bool,
    /// Pages that a request reads cross the link together, when all are in the controller.
    pub whole_reads: bool,
    /// Dies of a chip, of which only one works at a time.
    pub dies_per_chip: u32,
    /// A die begins its next read while data that it has read wait for the channel, or cross it.
    pub cache_read: bool,
    /// A die takes the data of its next program while it programs.
    pub cache_program: bool,
    /// Moving data between the page register and the cache register.
    pub cache_busy_ns: u64,
    /// Copies of a page that may follow each other without crossing the channel.
    pub copybacks: u8,
    /// Suspension of programs and erases.
    pub suspension: Suspension,
    /// How much later a program of the host, an operation of collection and one of metadata may begin than
    /// reads of the host that became ready at the same time: a die takes the operation whose time plus
    /// patience is earliest. So reads are first, and the others do not starve.
    pub patience_ns: [u64; 3],
}
