//! The NVRAM layout, in 8-byte words.
//!
//! ```text
//! 0                     superblock lives     3 words each       (life)
//! lives                 atomic slot          1 word             (atomic)
//! + 1                   aborted commands     64 words, or 192   (atomic)
//! + aborted commands    open writes          none, or 64 words  (open_writes)
//! + open writes         deallocation log     2 halves x slots x 2 words (dealloc)
//! + 2 halves            file map             1 word, 2 slots x 2 words a file, 4 words an entry (files)
//! + file map            write buffer         2 words and its bytes a page (buffer)
//! rest                  the scheme's own
//! ```
//! Invariant: a function of the configuration and the geometry alone.

use crate::config::Config;
use remap_ssd_media::Geometry;

/// Words of a superblock's life record.
pub(crate) const LIFE_WORDS: usize = 3;
/// Capacity of the list of aborted atomic commands.
const ABORTED_SLOTS: usize = 64;
/// The same, on a device whose writes of several pages are atomic.
const ABORTED_WRITES: usize = 192;
/// Such writes in flight.
const OPEN_WRITES: usize = 64;
/// Words of a deallocation record.
pub(crate) const DEALLOC_WORDS: usize = 2;

/// Words of a slot of the write buffer before its content: its owner and its number.
pub(crate) const BUFFER_HEADER_WORDS: usize = 2;

/// Words of a slot of the write buffer with the bytes of a page.
pub(crate) fn buffer_slot_words(geometry: &Geometry) -> usize {
    BUFFER_HEADER_WORDS + geometry.page_bytes() / 8
}

/// Words of a slot of the file map's table.
pub(crate) const FILE_SLOT_WORDS: usize = 2;
/// Words of an entry of the file map.
pub(crate) const FILE_ENTRY_WORDS: usize = 4;

/// Words of a file map with `slots` slots and `entries` entries.
pub(crate) fn file_map_words(slots: u32, entries: u32) -> usize {
    match slots {
        0 => 0,
        slots => 1 + slots as usize * FILE_SLOT_WORDS + entries as usize * FILE_ENTRY_WORDS,
    }
}

/// Word addresses of the regions.
#[derive(Clone, Copy, Debug)]
pub struct NvramLayout {
    /// First word of the atomic slot.
    pub atomic: usize,
    /// First word of the list of aborted commands.
    pub aborted: usize,
    /// Its words.
    pub aborted_slots: usize,
    /// First word of those that name writes in progress.
    pub open: usize,
    /// Their number.
    pub open_words: usize,
    /// First word of the deallocation log.
    pub dealloc: usize,
    /// Slots in each half of the log.
    pub dealloc_slots: usize,
    /// First word of the file map.
    pub files: usize,
    /// First word of the write buffer.
    pub buffer: usize,
    /// First word of the scheme's region, which extends to the end.
    pub scheme: usize,
}

impl NvramLayout {
    /// Lays out the regions in order.
    pub fn new(config: &Config, geometry: &Geometry) -> Self {
        let atomic = geometry.superblocks() as usize * LIFE_WORDS;
        let aborted = atomic + 1;
        let (aborted_slots, open_words) = match config.untorn_bytes {
            0 => (ABORTED_SLOTS, 0),
            _ => (ABORTED_WRITES, OPEN_WRITES),
        };
        let open = aborted + aborted_slots;
        let dealloc = open + open_words;
        let dealloc_slots = config.dealloc_slots as usize;

        // The scheme's region is aligned to 64 bytes, like its segments.
        let files = dealloc + 2 * dealloc_slots * DEALLOC_WORDS;
        let file_map = file_map_words(config.fs_files.saturating_mul(2), config.fs_blocks);
        let buffer = files + file_map;
        let slots = config.saved_buffer_slots(geometry);
        let buffer_words = slots as usize * buffer_slot_words(geometry);
        let scheme = (buffer + buffer_words).next_multiple_of(8);
        Self {
            atomic,
            aborted,
            aborted_slots,
            open,
            open_words,
            dealloc,
            dealloc_slots,
            files,
            buffer,
            scheme,
        }
    }
}
