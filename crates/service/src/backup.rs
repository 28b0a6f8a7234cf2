//! A copy of an image while it is served: its state as if the power had been cut at one instant.
//!
//! Contents are copied while hosts continue, superblock by superblock, and again where pages were
//! programmed or erased in between. When little is left, the device is locked: 1. all data are made
//! durable  2. the contents that changed since they were copied  3. the journal and the state  4.
//! the lists of namespaces and reservations. So 2 to 4 are of one instant, and opening the copy
//! replays 3 over 2 as after a cut. Superblocks with the same erase counts and written rows have
//! the same contents: no other operation changes contents. Invariants: the copy is not an image
//! before it is complete (`device.toml` comes last); a failed copy is removed. Absent: a new name
//! for the copy (`image adopt`).

use crate::kept;
use remap_ssd_device::Device;
use remap_ssd_media::SbId;
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_nvme::controller::Gate;
use serde::Serialize;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

/// Superblocks compared per lock of the device.
const STRETCH: u32 = 256;
/// Maximum passes over the contents while hosts continue.
const PASSES_MAX: u32 = 8;
/// Maximum pages of 4 KiB copied while hosts wait: 4 MiB.
const HELD_PAGES_MAX: u64 = 1 << 10;
/// Bytes of contents per read and write.
const PIECE_BYTES: usize = 1 << 20;

const CONTENTS: &str = "contents";
const CONFIG: &str = "device.toml";
const STATES: [&str; 4] = ["state.0", "state.1", "journal.0", "journal.1"];

/// Size of a copy, and the time that hosts waited.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Copied {
    /// Bytes of contents copied, including those copied again.
    pub bytes: u64,
    /// Passes over the contents while hosts continued.
    pub passes: u32,
    /// Pages of 4 KiB of contents copied while hosts waited.
    pub held_pages: u64,
    /// Time that hosts waited.
    pub held_seconds: f64,
    /// Total time in seconds.
    pub seconds: f64,
}

/// Version of a superblock's contents: equal versions have equal contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SuperblockVersion {
    erases: u64,
    rows: u64,
    /// Minimum and maximum number of programmed rows over all dies.
    rows_min: u32,
    rows_max: u32,
}

impl SuperblockVersion {
    fn of(device: &Device, sb: SbId) -> Self {
        let media = device.ftl().media();
        let geometry = media.geometry();

        // A minimum over all dies, so it starts with the largest number.
        let mut version = Self {
            rows_min: u32::MAX,
            ..Self::default()
        };
        for die in 0..geometry.dies() {
            let block = geometry.block(sb, die);
            let rows = media.next_row(block);
            version.erases += u64::from(media.erase_count(block));
            version.rows += u64::from(rows);
            version.rows_min = version.rows_min.min(rows);
            version.rows_max = version.rows_max.max(rows);
        }
        version
    }

    /// The rows to copy, given the version at the last copy: those of whole word lines of `stripe` rows, since the pages of a
    /// word line follow each other in the file.
    fn rows_since(&self, before: &Self, stripe: u32) -> std::ops::Range<u32> {
        let same = self.erases == before.erases;
        let from = if same { before.rows_min } else { 0 };
        if from >= self.rows_max {
            return from..from;
        }
        from / stripe * stripe..self.rows_max.next_multiple_of(stripe)
    }
}

struct Copier<'a> {
    gate: &'a Gate,
    from: File,
    to: File,
    versions: Vec<SuperblockVersion>,
    dies: u32,
    /// Rows of a word line.
    stripe: u32,
    pages_per_superblock: u32,
    /// Bytes of a flash page: of the indirection unit.
    page_bytes: u64,
    piece: Vec<u8>,
    copied: Copied,
}

/// Copies the image in `image`, which is served through `gate`, into a new folder.
///
/// # Errors
/// One sentence; the folder is removed.
pub(crate) fn copy(gate: &Gate, image: &Path, to: &Path) -> Result<Copied, String> {
    let about = |error: io::Error| format!("{}: {error}", to.display());
    std::fs::create_dir(to).map_err(about)?;
    fill(gate, image, to).map_err(|error| {
        let _ = std::fs::remove_dir_all(to);
        about(error)
    })
}

fn fill(gate: &Gate, image: &Path, to: &Path) -> io::Result<Copied> {
    let began = Instant::now();
    let from = File::open(image.join(CONTENTS))?;
    let contents = File::create_new(to.join(CONTENTS))?;

    // Full length from the start: pieces are written at their positions.
    contents.set_len(from.metadata()?.len())?;

    let geometry = gate
        .with(|subsystem| subsystem.device().ftl().media().geometry())
        .ok_or_else(ended)?;
    let mut copier = Copier {
        gate,
        from,
        to: contents,
        versions: vec![SuperblockVersion::default(); geometry.superblocks() as usize],
        dies: geometry.dies(),
        stripe: geometry.stripe(),
        pages_per_superblock: geometry.pages_per_superblock(),
        page_bytes: geometry.page_bytes() as u64,
        piece: vec![0; PIECE_BYTES],
        copied: Copied::default(),
    };

    // Passes continue while hosts write more during a pass than may be copied while they wait.
    loop {
        let changed = copier.pass()?;
        copier.copied.passes += 1;

        // Few enough to copy while hosts wait, or further passes do not help.
        if changed <= HELD_PAGES_MAX || copier.copied.passes >= PASSES_MAX {
            break;
        }
    }
    copier.hold(image, to)?;

    // All files are durable before the last one makes it an image.
    for entry in std::fs::read_dir(to)? {
        File::open(entry?.path())?.sync_all()?;
    }
    // 1. everything is durable  2. the configuration, without which a folder is no image.
    std::fs::copy(image.join(CONFIG), to.join(CONFIG))?;
    File::open(to.join(CONFIG))?.sync_all()?;
    File::open(to)?.sync_all()?;

    copier.copied.seconds = began.elapsed().as_secs_f64();
    Ok(copier.copied)
}

fn ended() -> io::Error {
    io::Error::other("the service ends")
}

impl Copier<'_> {
    /// Copies changed contents while hosts continue; returns the number of pages of 4 KiB.
    fn pass(&mut self) -> io::Result<u64> {
        let mut pages = 0;
        for first in (0..self.versions.len() as u32).step_by(STRETCH as usize) {
            let end = (first + STRETCH).min(self.versions.len() as u32);
            let gate = self.gate;

            // The device is locked for one stretch at a time: copying needs no lock.
            let now = gate
                .with(|subsystem| {
                    let device = subsystem.device();
                    let versions = (first..end).map(|sb| SuperblockVersion::of(&device, SbId(sb)));
                    versions.collect::<Vec<_>>()
                })
                .ok_or_else(ended)?;
            for (sb, version) in (first..end).zip(now) {
                pages += self.superblock(sb, version)?;
            }
        }
        Ok(pages)
    }

    /// Copies the changed contents of one superblock; returns the number of pages of 4 KiB.
    fn superblock(&mut self, sb: u32, now: SuperblockVersion) -> io::Result<u64> {
        // Set before the copy: later changes appear as another version in the next pass.
        let before = std::mem::replace(&mut self.versions[sb as usize], now);
        if before == now {
            return Ok(0);
        }
        let rows = now.rows_since(&before, self.stripe);
        // Word lines of a superblock are in order, one per die.
        let first = u64::from(sb) * u64::from(self.pages_per_superblock)
            + u64::from(rows.start) * u64::from(self.dies);
        let pages = u64::from(rows.len() as u32) * u64::from(self.dies);

        let (mut at, end) = (first * self.page_bytes, (first + pages) * self.page_bytes);
        while at < end {
            let len = ((end - at) as usize).min(PIECE_BYTES);
            let piece = &mut self.piece[..len];
            self.from.read_exact_at(piece, at)?;
            self.to.write_all_at(piece, at)?;
            at += len as u64;
        }
        let bytes = pages * self.page_bytes;
        self.copied.bytes += bytes;
        Ok(bytes / PAGE_BYTES as u64)
    }

    /// Copies the 4 KiB of the file from an offset on.
    fn page(&mut self, at: u64) -> io::Result<()> {
        let bytes = &mut self.piece[..PAGE_BYTES];
        self.from.read_exact_at(bytes, at)?;
        self.to.write_all_at(bytes, at)
    }

    /// Copies the rest while hosts wait.
    fn hold(&mut self, image: &Path, to: &Path) -> io::Result<()> {
        let gate = self.gate;
        let held = gate.with(|subsystem| {
            // Exclusive: no host writes between the sync and the copies.
            let mut device = subsystem.device().undivided();
            let began = Instant::now();
            device.sync()?;
            for sb in 0..self.versions.len() as u32 {
                let now = SuperblockVersion::of(&device, SbId(sb));
                self.copied.held_pages += self.superblock(sb, now)?;
            }
            // The witnesses of the other files' versions: of the same instant as these files.
            let pages = u64::from(device.ftl().media().geometry().pages());
            self.page(pages * self.page_bytes)?;
            for name in STATES {
                std::fs::copy(image.join(name), to.join(name))?;
            }
            copy_lists(image, to)?;
            self.copied.held_seconds = began.elapsed().as_secs_f64();
            Ok(())
        });
        held.unwrap_or_else(|| Err(ended()))
    }
}

/// Copies the files beside the device, while the device is locked.
///
/// For a power cut the lists are of the same instant, because a change of namespaces or
/// reservations 1. replaces the file  2. locks the device to take effect  3. is acknowledged. While
/// the device is locked here, a change past 1 waits before 2: the copy has the file from before or
/// after 1, and a cut at this instant may leave either. No second change of the same list, and no
/// next step of the same command, can pass 1 in the meantime.
fn copy_lists(image: &Path, to: &Path) -> io::Result<()> {
    std::fs::copy(image.join(kept::SERVICE), to.join(kept::SERVICE))?;

    // A device without reservations has no such file.
    for name in [kept::HEALTH, kept::RESERVATIONS] {
        match std::fs::copy(image.join(name), to.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => drop(other?),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::SuperblockVersion;
    use remap_ssd_media::geometry::Shape;
    use remap_ssd_media::{Geometry, WordLine};
    use std::ops::Range;

    fn version(erases: u64, rows: Range<u32>) -> SuperblockVersion {
        SuperblockVersion {
            erases,
            rows_min: rows.start,
            rows_max: rows.end,
            ..SuperblockVersion::default()
        }
    }

    #[test]
    fn a_superblock_that_was_erased_meanwhile_is_copied_from_its_first_row() {
        let before = version(4, 10..12);
        assert_eq!(version(4, 20..21).rows_since(&before, 1), 10..21);
        // It is longer than before, and all of it is new.
        assert_eq!(version(5, 20..21).rows_since(&before, 1), 0..21);
        assert!(version(5, 0..0).rows_since(&before, 1).is_empty());
    }

    // Four dies that are at different rows of word lines of three: the pages of a word line follow each other in the file.
    #[test]
    fn all_new_pages_of_word_lines_are_copied() {
        let shape = Shape {
            channels: 2,
            dies: 4,
            superblocks: 8,
            pages_per_block: 24,
        };
        let word_line = WordLine {
            bits: 3,
            ..WordLine::SINGLE
        };
        let geometry = Geometry::new(shape).expect("valid");
        let geometry = geometry.with_word_line(word_line).expect("valid");

        let (before, now) = ([4, 5, 5, 8], [7, 5, 10, 8]);
        let rows = version(1, 5..10).rows_since(&version(1, 4..8), geometry.stripe());
        let copied = rows.start * geometry.dies()..rows.end * geometry.dies();
        for die in 0..geometry.dies() {
            let new = before[die as usize]..now[die as usize];
            for offset in new.map(|row| geometry.offset_of(row, die)) {
                assert!(
                    copied.contains(&offset),
                    "die {die}: {offset} of {copied:?}"
                );
            }
        }
    }
}
