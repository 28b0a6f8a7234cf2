//! Location of a command's data in the guest's memory: physical region pages (Base 2.0 §4.1.1).
//!
//! Invariants: lists are read once; the part read is bounded by the transfer; every segment is
//! checked to lie in the guest's memory before data move.

use crate::memory::{Access, Memory};
use remap_ssd_nvme::controller::HostData;
use remap_ssd_nvme::spec::status::Status;

/// Page size: CC.MPS is 0.
pub(crate) const PAGE: u64 = 4096;
const ENTRY: u64 = 8;

/// A piece of guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub address: u64,
    pub len: usize,
}

/// The segments of `len` bytes that two PRP entries describe, neighbours joined.
///
/// # Errors
/// The status to answer.
pub(crate) fn segments(
    memory: &Memory,
    prps: [u64; 2],
    len: usize,
    access: Access,
) -> Result<Vec<Segment>, Status> {
    let mut transfer = Transfer {
        memory,
        access,
        found: Vec::new(),
        rest: len,
    };
    if len == 0 {
        return Ok(transfer.found);
    }

    let [first, second] = prps;

    // Only the first entry may start within a page, and only at a dword.
    if !first.is_multiple_of(4) {
        return Err(Status::PRP_OFFSET);
    }
    transfer.add(first)?;

    match transfer.rest {
        0 => {}
        // With two pages the second entry is a page itself, not a list.
        rest if rest <= PAGE as usize => transfer.add_page(second)?,
        _ => transfer.add_list(second)?,
    }
    Ok(transfer.found)
}

/// A transfer whose segments are being located.
struct Transfer<'a> {
    memory: &'a Memory,
    access: Access,
    found: Vec<Segment>,
    /// Bytes still to be located.
    rest: usize,
}

impl Transfer<'_> {
    /// Adds memory from an address to the end of its page, or of the transfer.
    fn add(&mut self, address: u64) -> Result<(), Status> {
        let len = ((PAGE - address % PAGE) as usize).min(self.rest);
        self.memory
            .check(address, len, self.access)
            .map_err(|_| Status::DATA_TRANSFER)?;

        self.rest -= len;

        // Guests' pages often adjoin, and each segment is copied separately.
        match self.found.last_mut() {
            Some(last) if last.address + last.len as u64 == address => last.len += len,
            _ => self.found.push(Segment { address, len }),
        }
        Ok(())
    }

    /// Adds a page from its start.
    fn add_page(&mut self, address: u64) -> Result<(), Status> {
        if !address.is_multiple_of(PAGE) {
            return Err(Status::PRP_OFFSET);
        }
        self.add(address)
    }

    /// Adds the rest from a list, which may start anywhere in its page; the last entry of a page
    /// points to the next list page if more are needed.
    fn add_list(&mut self, mut list: u64) -> Result<(), Status> {
        while self.rest > 0 {
            if !list.is_multiple_of(ENTRY) {
                return Err(Status::PRP_OFFSET);
            }

            // Read no more than the transfer needs: a guest cannot make lists endless.
            let room = (PAGE - list % PAGE) / ENTRY;
            let needed = self.rest.div_ceil(PAGE as usize) as u64;
            let mut bytes = vec![0; (room.min(needed) * ENTRY) as usize];
            self.memory
                .read(list, &mut bytes)
                .map_err(|_| Status::DATA_TRANSFER)?;

            let mut entries = bytes
                .as_chunks::<8>()
                .0
                .iter()
                .map(|bytes| u64::from_le_bytes(*bytes));

            let data = if needed > room { room - 1 } else { needed };
            for entry in entries.by_ref().take(data as usize) {
                self.add_page(entry)?;
            }

            match entries.next() {
                // A list page with a single entry must point to the start of another one, so that
                // this terminates.
                Some(next) if self.rest > 0 && next.is_multiple_of(PAGE) => list = next,
                Some(_) if self.rest > 0 => return Err(Status::PRP_OFFSET),
                _ => {}
            }
        }
        Ok(())
    }
}

/// A command's data in the guest's memory, moved front to back.
pub(crate) struct GuestData<'a> {
    memory: &'a Memory,
    segments: &'a [Segment],
    /// Bytes of the first segment already moved.
    at: usize,
    /// The last bytes taken: a copy, since the guest may write to the original.
    taken: Vec<u8>,
    failed: bool,
}

impl<'a> GuestData<'a> {
    pub(crate) fn new(memory: &'a Memory, segments: &'a [Segment]) -> Self {
        Self {
            memory,
            segments,
            at: 0,
            taken: Vec::new(),
            failed: false,
        }
    }

    /// Returns true if some memory was inaccessible or not described.
    pub(crate) fn failed(&self) -> bool {
        self.failed
    }

    /// The next piece of at most `len` bytes.
    fn next(&mut self, len: usize) -> Option<Segment> {
        let segment = *self.segments.first()?;
        let len = len.min(segment.len - self.at);
        let piece = Segment {
            address: segment.address + self.at as u64,
            len,
        };
        self.at += len;
        if self.at == segment.len {
            (self.segments, self.at) = (&self.segments[1..], 0);
        }
        Some(piece)
    }
}

impl HostData for GuestData<'_> {
    fn take(&mut self, len: usize) -> &[u8] {
        let mut taken = std::mem::take(&mut self.taken);
        taken.resize(len, 0);

        let mut filled = 0;

        while filled < len {
            let Some(piece) = self.next(len - filled) else {
                break;
            };
            if self
                .memory
                .read(piece.address, &mut taken[filled..filled + piece.len])
                .is_err()
            {
                self.failed = true;
                break;
            }
            filled += piece.len;
        }

        taken.truncate(filled);
        self.taken = taken;
        &self.taken
    }

    fn put(&mut self, bytes: &[u8]) {
        let mut bytes = bytes;
        while !bytes.is_empty() {
            let written = self.next(bytes.len()).and_then(|piece| {
                let (now, later) = bytes.split_at(piece.len);
                self.memory.write(piece.address, now).ok()?;
                Some(later)
            });
            let Some(later) = written else {
                self.failed = true;
                return;
            };
            bytes = later;
        }
    }

    fn put_zeroes(&mut self, len: usize) {
        const ZEROES: [u8; PAGE as usize] = [0; PAGE as usize];
        let mut len = len;
        while len > 0 {
            let now = len.min(ZEROES.len());
            self.put(&ZEROES[..now]);
            len -= now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    /// 16 pages of memory at 0x10000, and its file.
    fn memory() -> (Memory, std::fs::File) {
        let file = tempfile::tempfile().expect("a file");
        (&file)
            .write_all(&vec![0; 16 * PAGE as usize])
            .expect("room");
        let mut memory = Memory::default();
        memory
            .map(
                0x10000,
                16 * PAGE,
                file.try_clone().expect("a handle"),
                0,
                true,
            )
            .expect("possible");
        (memory, file)
    }

    fn list(file: &std::fs::File, address: u64, entries: &[u64]) {
        let bytes: Vec<u8> = entries
            .iter()
            .flat_map(|entry| entry.to_le_bytes())
            .collect();
        file.write_all_at(&bytes, address - 0x10000).expect("room");
    }

    #[test]
    fn two_entries_reach_two_pages() {
        let (memory, _) = memory();
        let of = |prps, len| segments(&memory, prps, len, Access::Write);

        assert_eq!(
            of([0x10010, 0], 100),
            Ok(vec![Segment {
                address: 0x10010,
                len: 100
            }])
        );

        assert_eq!(
            of([0x10010, 0x14000], 4096),
            Ok(vec![
                Segment {
                    address: 0x10010,
                    len: 4080
                },
                Segment {
                    address: 0x14000,
                    len: 16
                }
            ])
        );

        assert_eq!(
            of([0x10000, 0x11000], 8192),
            Ok(vec![Segment {
                address: 0x10000,
                len: 8192
            }])
        );

        assert_eq!(of([0x10011, 0], 100), Err(Status::PRP_OFFSET));
        assert_eq!(of([0x10000, 0x11008], 8192), Err(Status::PRP_OFFSET));
        assert_eq!(of([0x0f000, 0], 100), Err(Status::DATA_TRANSFER));
        assert_eq!(of([0x1fffc, 0x20000], 100), Err(Status::DATA_TRANSFER));
        assert_eq!(of([u64::MAX - 3, 0], 100), Err(Status::DATA_TRANSFER));
    }

    #[test]
    fn lists_lead_on_and_end() {
        let (memory, file) = memory();
        let of = |prps, len| segments(&memory, prps, len, Access::Read);

        list(&file, 0x1f000, &[0x12000, 0x14000, 0x16000]);
        assert_eq!(
            of([0x10000, 0x1f000], 4 * 4096).map(|found| found.len()),
            Ok(4)
        );

        // Two entries fit after the offset: one page, and the next list.
        list(&file, 0x1eff0, &[0x12000, 0x1f000]);
        assert_eq!(
            of([0x10000, 0x1eff0], 5 * 4096).map(|found| found.len()),
            Ok(5)
        );

        // A list that points to itself.
        list(&file, 0x1eff8, &[0x1eff8]);
        assert_eq!(of([0x10000, 0x1eff8], 5 * 4096), Err(Status::PRP_OFFSET));

        list(&file, 0x1f000, &[0x12000, 0x14008, 0x16000]);
        assert_eq!(of([0x10000, 0x1f000], 4 * 4096), Err(Status::PRP_OFFSET));

        list(&file, 0x1f000, &[0x12000, 0xdead_b000, 0x16000]);
        assert_eq!(of([0x10000, 0x1f000], 4 * 4096), Err(Status::DATA_TRANSFER));

        assert_eq!(
            of([0x10000, 0xdead_b000], 4 * 4096),
            Err(Status::DATA_TRANSFER)
        );
        assert_eq!(of([0x10000, 0x1f004], 4 * 4096), Err(Status::PRP_OFFSET));
    }

    #[test]
    fn data_move_through_segments_in_order() {
        let (memory, file) = memory();

        let found = [
            Segment {
                address: 0x10ff0,
                len: 32,
            },
            Segment {
                address: 0x15000,
                len: 16,
            },
        ];

        let mut data = GuestData::new(&memory, &found);
        data.put(&[7; 40]);
        data.put_zeroes(8);
        assert!(!data.failed());

        data.put(&[1]);
        assert!(data.failed(), "there was no more room");

        let mut bytes = [1; 16];
        file.read_exact_at(&mut bytes, 0x5000).expect("there");
        assert_eq!(bytes, [7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 0, 0, 0, 0, 0, 0]);

        let mut data = GuestData::new(&memory, &found);
        assert_eq!(data.take(40), [7; 40]);
        assert_eq!(data.take(40), [0; 8]);
    }

    #[test]
    fn mappings_neither_overlap_nor_reach_past_their_files() {
        let (mut memory, file) = memory();

        let again = || file.try_clone().expect("a handle");
        memory
            .map(0x1f000, 0x2000, again(), 0, true)
            .expect_err("overlaps");
        memory
            .map(0xf000, 0x2000, again(), 0, true)
            .expect_err("overlaps");
        memory
            .map(0x30000, 17 * PAGE, again(), 0, true)
            .expect_err("after the end of the file");
        memory
            .map(0x30000, PAGE, again(), u64::MAX, true)
            .expect_err("after the end of the file");
        memory
            .map(u64::MAX, PAGE, again(), 0, true)
            .expect_err("no such addresses");

        memory
            .map(0x20000, PAGE, again(), 0, false)
            .expect("adjoins");

        memory
            .read(0x1ff00, &mut [0; 512])
            .expect("through two mappings");
        assert!(
            memory.write(0x1ff00, &[0; 512]).is_err(),
            "the second is for reading"
        );

        memory.unmap(0x20000, PAGE);
        assert!(memory.read(0x1ff00, &mut [0; 512]).is_err());

        memory.clear();
        assert!(memory.read(0x10000, &mut [0; 1]).is_err());
    }
}
