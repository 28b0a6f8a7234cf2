//! MOVE: data goes from one logical page to another (MEMSYS'17 §6.2, figure 6; claim PB6).
//!
//! With remap the device moves it in one command; without, the host reads and writes it. Sources
//! are in the lower half of the addressable pages, targets in the upper one, in order, as a cleaner
//! processes a segment. Scattered sources cost more: each has a deallocation record, and when the
//! log of those is full, a bitmap for every 32,768 pages that contain one of them. Absent: a trim
//! of the source after a write, which the paper's baseline does not issue either.

use super::{FRESH, Measured, Step, closed_loop};
use remap_ssd_device::Device;
use remap_ssd_ftl::{Lpn, Refusal, Remap};
use remap_ssd_media::{Page, Payload};
use serde::Serialize;
use std::collections::BTreeMap;

/// The commands that move pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum MoveHow {
    /// One remap command with flag 1.
    Remap,
    /// A read and a write by the host.
    ReadWrite,
}

/// Moves `count` pages, one per command, with `threads` in parallel. The device must hold data: see
/// `precondition`.
///
/// # Errors
/// The device refuses, or `count` is more than half of its addressable pages (`OutOfRange`).
pub fn moves(
    device: &mut Device,
    how: MoveHow,
    threads: u32,
    count: u64,
) -> Result<Measured, Refusal> {
    let half = device.config().addressable_units() / 2;
    // Sources and targets must not overlap.
    if count > u64::from(half) {
        return Err(Refusal::OutOfRange);
    }

    // Pages read by the host and not written yet.
    let mut with_host = BTreeMap::new();

    closed_loop(device, threads, count, |device, now, n, step| {
        let (source, target) = (Lpn(n as u32), Lpn(half + n as u32));
        match (how, step) {
            (MoveHow::Remap, _) => {
                let remap = Remap {
                    target,
                    source,
                    len: 1,
                    relocate: true,
                    atomic: false,
                };

                let moved = device.remap(now, &remap);
                moved.result.map(|()| Step::Done(moved.done_at))
            }
            (MoveHow::ReadWrite, 0) => {
                let (done_at, page) = device.read(now, source);
                with_host.insert(n, page?);
                Ok(Step::Next(done_at))
            }

            // The second step of the same move.
            (MoveHow::ReadWrite, _) => {
                let page = with_host.remove(&n).expect("it has been read");
                let payload = match &page {
                    Page::Bytes(bytes) => Payload::Bytes(bytes),
                    Page::Identity(identity) => Payload::Identity(*identity),
                    Page::Zeroes | Page::Unknown => Payload::Identity(FRESH + n),
                };

                let written = device.write(now, target, &payload);
                written.result.map(|()| Step::Done(written.done_at))
            }
        }
    })
}
