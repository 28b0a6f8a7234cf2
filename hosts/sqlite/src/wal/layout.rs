//! Layout of a write-ahead log in the store's file.
//!
//! ```text
//! SQLite:  32 bytes | 24 + page | 24 + page | ..
//! store:   page 0: the 32 bytes | header page, 170 x 24 bytes | 170 pages | header page | 170 pages | ..
//! ```
//!
//! Invariants: every page of a frame starts at a multiple of 4096 and shares no page of the disk
//! with other data. The 32 bytes are at the same place in both forms, and identify the form.
//! Absent: the choice of frames that use the header page (`gather`).

use crate::mark::HEADER_BYTES;
use remap_ssd_media::geometry::PAGE_BYTES;

/// The 24 bytes before a page.
pub(super) type Header = [u8; HEADER_BYTES];

/// Bytes before the first frame.
pub(super) const FILE_HEADER_BYTES: usize = 32;
/// Frames per group: the number of headers that fit in a page.
pub(super) const GROUP_FRAMES: u64 = (PAGE_BYTES / HEADER_BYTES) as u64;

const PAGE: u64 = PAGE_BYTES as u64;
const HEADER: u64 = HEADER_BYTES as u64;
const FILE_HEADER: u64 = FILE_HEADER_BYTES as u64;

/// Returns true if a frame ends a transaction: it has the size of the database, and is not
/// provisional.
pub(super) fn is_commit(header: &Header) -> bool {
    header[4..8] != [0; 4] && has_salts(header)
}

/// Returns true if a header is not provisional. SQLite writes zeroes for salts and checksum if it
/// is going to recompute checksums at the end of the transaction.
pub(super) fn has_salts(header: &Header) -> bool {
    header[8..16] != [0; 8]
}

/// The format of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// As SQLite writes it: its pages are smaller than the disk's.
    Plain,
    /// Pages at multiples of 4096.
    Aligned(Layout),
}

impl Form {
    /// The form given by the header of a log; `None` if it is invalid.
    pub(super) fn of(header: &[u8; FILE_HEADER_BYTES]) -> Option<Self> {
        let word = |at: usize| {
            header[at..]
                .first_chunk()
                .map(|bytes| u32::from_be_bytes(*bytes))
        };
        // The lowest bit is the byte order of the checksums.
        if word(0)? & !1 != 0x377f_0682 {
            return None;
        }
        let page_bytes = word(8)? as usize;
        let possible = page_bytes.is_power_of_two() && (512..=65536).contains(&page_bytes);
        let form = if page_bytes < PAGE_BYTES {
            Self::Plain
        } else {
            Self::Aligned(Layout { page_bytes })
        };
        possible.then_some(form)
    }
}

/// The places of frames, numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Bytes of a page of the database.
    pub page_bytes: usize,
}

impl Layout {
    /// Size of a frame in SQLite's format.
    pub(super) fn frame_bytes(self) -> usize {
        HEADER_BYTES + self.page_bytes
    }

    /// The frame of an offset after the file's header, and the offset in the frame.
    pub(super) fn locate(self, offset: u64) -> (u64, usize) {
        let behind = offset - FILE_HEADER;
        let frame_bytes = self.frame_bytes() as u64;
        (behind / frame_bytes, (behind % frame_bytes) as usize)
    }

    fn group_bytes(self) -> u64 {
        PAGE + GROUP_FRAMES * self.page_bytes as u64
    }

    /// Offset of a group's header page.
    pub(super) fn header_page(self, group: u64) -> u64 {
        PAGE + group * self.group_bytes()
    }

    /// Offset of a frame's header, unless its page carries it.
    pub(super) fn header(self, frame: u64) -> u64 {
        self.header_page(frame / GROUP_FRAMES) + frame % GROUP_FRAMES * HEADER
    }

    /// Offset of a frame's page.
    pub(super) fn page(self, frame: u64) -> u64 {
        self.header_page(frame / GROUP_FRAMES)
            + PAGE
            + frame % GROUP_FRAMES * self.page_bytes as u64
    }

    /// Size of a log with this many frames, as SQLite sees it.
    pub(super) fn log_bytes(self, frames: u64) -> u64 {
        FILE_HEADER + frames * self.frame_bytes() as u64
    }

    /// Size of the store's file with this many frames.
    pub(super) fn file_bytes(self, frames: u64) -> u64 {
        frames
            .checked_sub(1)
            .map_or(PAGE, |last| self.page(last) + self.page_bytes as u64)
    }

    /// Number of whole frames in a file of this size.
    pub(super) fn frames(self, file_bytes: u64) -> u64 {
        let behind = file_bytes.saturating_sub(PAGE);
        let pages = (behind % self.group_bytes()).saturating_sub(PAGE) / self.page_bytes as u64;
        behind / self.group_bytes() * GROUP_FRAMES + pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_aligned_and_apart_and_sizes_lead_back() {
        for page_bytes in [4096, 8192, 65536] {
            let layout = Layout { page_bytes };
            for frame in 0..3 * GROUP_FRAMES {
                assert!(layout.page(frame).is_multiple_of(PAGE));
                assert_eq!(
                    layout.header(frame) / PAGE * PAGE,
                    layout.header_page(frame / GROUP_FRAMES)
                );
                assert_eq!(
                    layout.header(frame) / PAGE,
                    (layout.header(frame) + HEADER - 1) / PAGE
                );
                let gap = layout.page(frame + 1) - layout.page(frame) - page_bytes as u64;
                assert_eq!(
                    gap,
                    if (frame + 1) % GROUP_FRAMES == 0 {
                        PAGE
                    } else {
                        0
                    }
                );

                assert_eq!(layout.frames(layout.file_bytes(frame)), frame);
                assert_eq!(
                    layout.frames(layout.file_bytes(frame + 1) - 1),
                    frame,
                    "a frame in part is none"
                );
                assert_eq!(layout.locate(layout.log_bytes(frame)), (frame, 0));
                assert_eq!(
                    layout.locate(layout.log_bytes(frame + 1) - 1),
                    (frame, layout.frame_bytes() - 1)
                );
            }
        }
    }
}
