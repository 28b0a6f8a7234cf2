//! Pages that list LPNs in doubt, where the deallocation log has too few free slots for them.
//!
//! A record of the deallocation log names the page that was programmed last, and each page names the one before it. The pages count
//! as long as the record does. Absent: when recovery programs them (`recovery::doubts`).

use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_media::{Lpn, Ppn};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The first 8 bytes of a page.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct DoubtsHeader {
    /// The page programmed before this one plus one; 0 if this is the first.
    previous_plus_one: u32,
    /// Number of runs in this page.
    runs: u32,
}

/// LPNs in doubt that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct DoubtRun {
    /// First LPN.
    pub lpn: u32,
    /// Number of LPNs.
    pub len: u32,
}

const _: () = assert!(size_of::<DoubtsHeader>() == size_of::<DoubtRun>());

/// Runs in a page.
pub(crate) const RUNS_MAX: usize = PAGE_BYTES / size_of::<DoubtRun>() - 1;

/// The content of a page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DoubtList {
    /// The page before this one.
    pub previous: Option<Ppn>,
    /// The LPNs in doubt.
    pub runs: Vec<DoubtRun>,
}

impl DoubtRun {
    /// The runs of LPNs that are in ascending order.
    pub(crate) fn all_of(lpns: &[Lpn]) -> Vec<Self> {
        lpns.chunk_by(|a, b| a.offset(1) == *b)
            .map(|run| Self {
                lpn: run[0].0,
                len: run.len() as u32,
            })
            .collect()
    }
}

/// The bytes of a page with these runs.
pub(crate) fn encode(previous: Option<Ppn>, runs: &[DoubtRun]) -> Box<[u8]> {
    let header = DoubtsHeader {
        previous_plus_one: previous.map_or(0, |page| page.0 + 1),
        runs: runs.len() as u32,
    };
    [header.as_bytes(), runs.as_bytes()].concat().into()
}

/// The content of a page. `None` if these are not the bytes of one.
pub(crate) fn decode(bytes: &[u8]) -> Option<DoubtList> {
    let (header, rest) = DoubtsHeader::read_from_prefix(bytes).ok()?;
    let previous = header.previous_plus_one.checked_sub(1).map(Ppn);
    let (chunks, _) = rest.as_chunks::<{ size_of::<DoubtRun>() }>();
    let runs = chunks.get(..header.runs as usize)?;
    let runs = runs.iter().map(|run| DoubtRun::read_from_bytes(run).ok());
    Some(DoubtList {
        previous,
        runs: runs.collect::<Option<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_page_returns_its_runs_and_the_page_before() {
        let runs: Vec<DoubtRun> = (0..RUNS_MAX as u32)
            .map(|lpn| DoubtRun {
                lpn: 3 * lpn,
                len: 2,
            })
            .collect();
        for (previous, runs) in [(None, &runs[..]), (Some(Ppn(0)), &runs[..1])] {
            let bytes = encode(previous, runs);
            assert!(bytes.len() <= PAGE_BYTES);
            let runs = runs.to_vec();
            assert_eq!(decode(&bytes), Some(DoubtList { previous, runs }));
            assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
        }
        assert_eq!(encode(None, &runs).len(), PAGE_BYTES);
    }
}
