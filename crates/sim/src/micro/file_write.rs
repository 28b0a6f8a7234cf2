//! fs_write against write (MEMSYS'17 §6.2, figure 5; claim PB5).
//!
//! Each thread writes its own file, page after page, to random logical pages; the map is reset
//! before. Absent: the index blocks that this saves (those are the file system's).

use super::{FRESH, Measured, Step, closed_loop};
use remap_ssd_device::Device;
use remap_ssd_ftl::{FilePage, FileStatus, Lpn, Refusal};
use remap_ssd_media::Payload;
use serde::Serialize;

/// The same writes, recorded in the file map or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct FileWrites {
    /// Throughput and latency of the calls.
    pub measured: Measured,
    /// Pages recorded in the file map.
    pub recorded: u64,
    /// Pages for which the map had no room.
    pub not_recorded: u64,
}

/// Writes `count` pages with `threads` in parallel, by `fs_write` if `noted`.
///
/// # Errors
/// The device refuses, for instance because it keeps no file map.
pub fn file_writes(
    device: &mut Device,
    noted: bool,
    threads: u32,
    count: u64,
) -> Result<FileWrites, Refusal> {
    let lpns = device.config().addressable_lpns();

    // Begins with an empty map: earlier entries would fill it.
    if noted {
        device.untimed(|ftl| ftl.fs_reset())?;
    }

    let (mut recorded, mut not_recorded) = (0, 0);
    let measured = closed_loop(device, threads, count, |device, now, n, _| {
        // A multiplicative hash spreads consecutive numbers over the device.
        let random = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
        let (lpn, payload) = (
            Lpn((random % lpns) as u32),
            Payload::Identity(2 * FRESH + n),
        );

        if !noted {
            let written = device.write(now, lpn, &payload);
            return written.result.map(|()| Step::Done(written.done_at));
        }

        // Each thread writes its own file in order.
        let page = FilePage {
            inode: n as u32 % threads,
            offset: n as u32 / threads,
        };

        let written = device.fs_write(now, lpn, &payload, page);
        match written.result? {
            FileStatus::Recorded => recorded += 1,
            FileStatus::FilesFull | FileStatus::BlocksFull | FileStatus::MapDamaged => {
                not_recorded += 1
            }
        }

        Ok(Step::Done(written.done_at))
    })?;

    Ok(FileWrites {
        measured,
        recorded,
        not_recorded,
    })
}
