//! Executes the rows of a trace on one device.
//!
//! Invariant: rows are submitted in their order; with times each at its own, counted from the time at
//! which the replay begins. Absent: folding: a page beyond the device is refused.

use crate::device::{PoweredDevice, ended, write_pages};
use crate::stop::StopSign;
use crate::trace::Columns;
use pyo3::prelude::*;
use remap_ssd_device::Device;
use remap_ssd_ftl::{Lpn, Refusal, Remap};
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_media::{ContentMode, Payload};

/// Contents without a fingerprint have numbers from here on: all differ.
pub(crate) const FRESH: u64 = 1 << 62;

/// Rows between two looks for signals.
const LOOK_EVERY: usize = 1 << 10;

/// Start and end of each row in ns, and the rows that the device refused, with its reasons.
pub(crate) struct Replayed {
    pub(crate) starts: Vec<u64>,
    pub(crate) ends: Vec<u64>,
    pub(crate) refused: Vec<(usize, String)>,
}

/// Executes all rows and waits for their ends. Without times, `queue_depth` rows are in flight, the device's own by default;
/// with times, `queue_depth` is their maximum, if given.
pub(crate) fn replay(
    powered: &mut PoweredDevice,
    columns: &Columns<'_>,
    queue_depth: Option<u32>,
    sign: StopSign,
) -> PyResult<Replayed> {
    let own = powered.device.config().queue_depth;
    let depth = match (queue_depth, columns.times) {
        (Some(depth), _) => depth,
        (None, Some(_)) => u32::MAX,
        (None, None) => own,
    };
    let mut replayed = Replayed {
        starts: Vec::with_capacity(columns.verbs.len()),
        ends: Vec::with_capacity(columns.verbs.len()),
        refused: Vec::new(),
    };
    let begin = powered.now;
    let mut contents = Contents {
        written: 0,
        fresh: powered.fresh,
    };

    for row in 0..columns.verbs.len() {
        if row.is_multiple_of(LOOK_EVERY) {
            Python::attach(|py| sign.check(py))?;
        }
        if let Some(times) = columns.times {
            powered.idle_until(begin.saturating_add(times.at(row)));
        }
        powered.make_room(depth as usize);

        let ((start, end), result) = powered.submit(false, |device, now| {
            execute(device, now, columns, row, &mut contents)
        });
        powered.fresh = contents.fresh;
        replayed.starts.push(start);
        replayed.ends.push(end);
        if let Err(refusal) = result {
            replayed.refused.push((row, refusal.to_string()));
        }
    }
    powered.make_room(1);
    Ok(replayed)
}

/// The contents of the next pages.
struct Contents {
    /// Pages written so far that may have a fingerprint.
    written: usize,
    /// Number of the next content that no other page has.
    fresh: u64,
}

impl Contents {
    fn fresh(&mut self) -> u64 {
        self.fresh += 1;
        self.fresh
    }

    fn next(&mut self, columns: &Columns<'_>) -> u64 {
        self.written += 1;
        match columns.fingerprints {
            // A content's number is at least 1.
            Some(own) => own.at(self.written - 1) % FRESH + 1,
            None => self.fresh(),
        }
    }
}

/// Executes one row.
fn execute(
    device: &mut Device,
    now: u64,
    columns: &Columns<'_>,
    row: usize,
    contents: &mut Contents,
) -> (u64, Result<(), Refusal>) {
    // A page beyond the numbers of pages is beyond the device as well.
    let page = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let (lpn, count) = (page(columns.pages.at(row)), page(columns.counts.at(row)));
    let source = columns.sources.map_or(0, |sources| page(sources.at(row)));
    let remap = |relocate| Remap {
        target: Lpn(lpn),
        source: Lpn(source),
        len: count,
        relocate,
        atomic: false,
    };

    match columns.verbs[row] {
        b'W' => {
            let numbers: Vec<u64> = (0..count).map(|_| contents.next(columns)).collect();
            write(device, now, lpn, &numbers)
        }
        b'P' => {
            let (read, _) = device.read(now, Lpn(lpn));
            write(device, read, lpn, &[contents.fresh()])
        }
        b'D' => ended(device.deallocate(now, Lpn(lpn), count)),
        b'C' => ended(device.remap(now, &remap(false)).into()),
        b'M' => ended(device.remap(now, &remap(true)).into()),
        b'F' => ended(device.flush(now)),
        _ => {
            let (mut end, mut result) = (now, Ok(()));
            // The first page beyond the device returns the error for the rest.
            let within = device.config().firmware.lpns.saturating_sub(lpn);
            for at in 0..count.min(within.saturating_add(1)) {
                let (done, page) = device.read(now, Lpn(lpn.saturating_add(at)));
                end = end.max(done);
                result = result.and(page.map(|_| ()));
            }
            (end, result)
        }
    }
}

/// Writes pages by the numbers of their contents; on a device that stores bytes, the numbers' bytes
/// and zeroes.
fn write(device: &mut Device, now: u64, lpn: u32, numbers: &[u64]) -> (u64, Result<(), Refusal>) {
    if device.config().content != ContentMode::Bytes {
        let payloads: Vec<Payload<'_>> =
            numbers.iter().map(|own| Payload::Identity(*own)).collect();
        return write_pages(device, now, lpn, &payloads, None);
    }
    let mut bytes = vec![0; numbers.len() * PAGE_BYTES];
    let (pages, _) = bytes.as_chunks_mut::<PAGE_BYTES>();
    for (page, own) in pages.iter_mut().zip(numbers) {
        page[..size_of::<u64>()].copy_from_slice(&own.to_le_bytes());
    }
    let payloads: Vec<Payload<'_>> = pages.iter().map(|page| Payload::Bytes(&page[..])).collect();
    write_pages(device, now, lpn, &payloads, None)
}
