//! The device under a cut: replays a recording into firmware, which loses power together with the
//! cache.
//!
//! The cache is the model's (`cut`): blocks that become durable there are written to the device and
//! flushed. At the cut the survivors of the cache are being written to flash, and the media lose
//! what power loss allows: pages and words are torn or absent. Then the firmware recovers, as at
//! each power-on, and its tables are checked.
//!
//! Invariants: a recording, a firmware and a cut always give the same device; after recovery each
//! block has a permitted version, or `Played::wrong` names one that does not. Absent: time, and
//! which cuts are tried (`campaign`).

use crate::array::{Array, DiskGeometry};
use crate::cut::{Choice, Cut, DiskState, Lost, Replay};
use crate::error::TortureError;
use crate::record::Recording;
use remap_ssd_crash::cut::Cutter;
use remap_ssd_device::{Device, DeviceConfig, Lpn, Setting};
use remap_ssd_ftl::{SchemeKind, UnknownChoice};
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_media::{Image, Media, PageView, Payload};
use std::collections::BTreeSet;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Firmware for replaying the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Firmware {
    /// Remapping scheme.
    pub scheme: SchemeKind,
    /// Stores equal pages once.
    pub dedup: bool,
}

const DEDUP: &str = "+dedup";

impl std::fmt::Display for Firmware {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.scheme, if self.dedup { DEDUP } else { "" })
    }
}

impl std::str::FromStr for Firmware {
    type Err = UnknownChoice;

    fn from_str(text: &str) -> Result<Self, UnknownChoice> {
        let (scheme, dedup) = match text.strip_suffix(DEDUP) {
            Some(scheme) => (scheme, true),
            None => (text, false),
        };
        let scheme: SchemeKind = scheme.parse()?;
        Ok(Self { scheme, dedup })
    }
}

/// A device after a cut.
pub(crate) struct Played {
    pub array: FirmwareDisk,
    /// Fault of the device: no program is to blame.
    pub wrong: Option<String>,
}

/// A recording, replayed into a device up to the start of its workload.
pub(crate) struct Player<'a> {
    recording: &'a Recording,
    config: DeviceConfig,
    start: Image,
    at_start: Replay<'a>,
}

pub(crate) fn broken(what: impl std::fmt::Display) -> TortureError {
    TortureError::Io(io::Error::other(format!("the device: {what}")))
}

impl<'a> Player<'a> {
    /// Creates a preconditioned device: all its flash holds garbage, so that garbage collection
    /// runs from the beginning.
    ///
    /// # Errors
    /// There is no such device.
    pub(crate) fn new(
        recording: &'a Recording,
        firmware: Firmware,
        settings: &[Setting],
        at_start: Replay<'a>,
    ) -> Result<Self, TortureError> {
        recording
            .shape
            .require_device_blocks("a device below the cache")?;
        let Firmware { scheme, dedup } = firmware;
        let missing = |error: &dyn std::fmt::Display| TortureError::Missing(error.to_string());

        // A scheme that loses its remaps on power loss is no disk.
        if !scheme.is_durable() {
            return Err(TortureError::Missing(format!(
                "{scheme} keeps nothing over a power cut: choose another --scheme"
            )));
        }
        let config = DeviceConfig::for_service(recording.shape.bytes(), scheme, dedup)
            .and_then(|config| config.with(settings))
            .map_err(|error| missing(&error))?;
        config.check().map_err(|error| missing(&error))?;

        // Untimed: a cut has no clock.
        let mut device = Device::format(config.clone()).map_err(|error| missing(&error))?;
        device.keep_time(false);
        use_up(&mut device)?;

        // The device holds the disk's initial contents before the first cut.
        let mut line = PlayedDevice::new(device, recording, at_start.clone());
        line.write_pages(&line.every_page())?;
        line.flush()?;
        Ok(Self {
            recording,
            config,
            start: line.device.into_media().to_image(),
            at_start,
        })
    }

    /// Returns the device after a cut.
    ///
    /// # Errors
    /// The device refuses a command, or cannot be recovered.
    pub(crate) fn play(&self, cut: &Cut, lost: &[Lost]) -> Result<Played, TortureError> {
        let mut media = Media::from_image(&self.start);
        // The power rail decides which recent operations survive a cut.
        media.attach_rail();
        let (mut device, _) = Device::recover(media, self.config.clone()).map_err(broken)?;
        device.keep_time(false);
        device.untimed(|ftl| ftl.media_mut().settle_all());

        // A cut before the workload is replayed from the workload's start; its losses apply anyway.
        let mut line = PlayedDevice::new(device, self.recording, self.at_start.clone());
        line.play_until(cut.instant)?;
        let state = line.replay.clone().into_state();
        let survivors = state.after(lost);
        line.write_survivors(&state, &survivors)?;

        let media = line.device.ftl().media();
        let image = match &cut.choice {
            Choice::Drawn(number) => {
                // Seeded by the cut's own number, so that a code gives one device.
                let mut cutter = Cutter::new(*number, media.pending());
                media.cut_by(|kind| cutter.outcome(kind))
            }
            // The losses are listed; the device loses no more.
            Choice::Lost(_) => {
                line.device.untimed(|ftl| ftl.media_mut().settle_all());
                line.device.ftl().media().to_image()
            }
        };

        let (mut device, _) =
            Device::recover(Media::from_image(&image), self.config.clone()).map_err(broken)?;
        device.keep_time(false);

        // Tables first: with inconsistent tables any block could be wrong.
        let wrong = match device.ftl().check() {
            Err(reason) => Some(format!("the firmware's tables after recovery: {reason}")),
            Ok(()) => wrong_block(&mut device, self.recording, &state)?,
        };
        Ok(Played {
            array: FirmwareDisk::new(device, self.recording.shape),
            wrong,
        })
    }
}

/// Programs all flash, and deallocates everything.
fn use_up(device: &mut Device) -> Result<(), TortureError> {
    let lpns = device.config().host_lpns();
    let mut page = [0; PAGE_BYTES];

    // Each page has distinct content, so that deduplication finds none.
    for lpn in Lpn::range(Lpn::ZERO, lpns) {
        page[..4].copy_from_slice(&(lpn.0 + 1).to_le_bytes());
        let written = device.write(0, lpn, &Payload::Bytes(&page));
        written
            .result
            .map_err(|refusal| broken(format_args!("{refusal:?}")))?;
    }
    let given_back = device.deallocate(0, Lpn::ZERO, lpns).result;
    given_back.map_err(|refusal| broken(format_args!("{refusal:?}")))
}

/// A device into which a recording is replayed.
struct PlayedDevice<'a> {
    device: Device,
    recording: &'a Recording,
    replay: Replay<'a>,
}

impl<'a> PlayedDevice<'a> {
    fn new(device: Device, recording: &'a Recording, replay: Replay<'a>) -> Self {
        Self {
            device,
            recording,
            replay,
        }
    }

    fn blocks_per_page(&self) -> u64 {
        PAGE_BYTES as u64 / u64::from(self.recording.shape.block_bytes)
    }

    /// Replays forward; blocks that become durable are written and flushed.
    fn play_until(&mut self, instant: usize) -> Result<(), TortureError> {
        while self.replay.played() < instant {
            let replay = std::mem::replace(&mut self.replay, Replay::new(self.recording));
            let next = replay.played() + 1;
            self.replay = replay.until(next);

            // Pages of newly durable blocks, each written once.
            let settled = self.replay.take_settled();
            if !settled.is_empty() {
                let per_page = self.blocks_per_page();
                let pages: BTreeSet<u64> = settled.iter().map(|block| block / per_page).collect();
                self.write_pages(&pages.into_iter().collect::<Vec<_>>())?;
                self.flush()?;
            }
        }
        Ok(())
    }

    fn every_page(&self) -> Vec<u64> {
        let per_page = self.blocks_per_page() as usize;
        let blocks = self.replay.durable();
        (0..)
            .zip(blocks.chunks(per_page))
            .filter(|(_, page)| page.iter().any(|id| *id != crate::contents::ZEROES))
            .map(|(page, _)| page)
            .collect()
    }

    fn write_pages(&mut self, pages: &[u64]) -> Result<(), TortureError> {
        let blocks = self.replay.durable().to_vec();
        self.write_from(&blocks, pages)
    }

    /// Writes the survivors of the cache, in their own order and without a flush.
    fn write_survivors(
        &mut self,
        state: &DiskState,
        survivors: &[crate::contents::ContentId],
    ) -> Result<(), TortureError> {
        let per_page = self.blocks_per_page();
        let pages: BTreeSet<u64> = state
            .pending
            .keys()
            // Only blocks that differ from the device's.
            .filter(|block| survivors[**block as usize] != state.durable[**block as usize])
            .map(|block| block / per_page)
            .collect();
        self.write_from(survivors, &pages.into_iter().collect::<Vec<_>>())
    }

    fn write_from(
        &mut self,
        blocks: &[crate::contents::ContentId],
        pages: &[u64],
    ) -> Result<(), TortureError> {
        let per_page = self.blocks_per_page() as usize;
        let block_bytes = self.recording.shape.block_bytes as usize;
        for page in pages {
            let first = *page as usize * per_page;
            let of_page = &blocks[first..first + per_page];
            let lpn = Lpn(*page as u32);

            // A page of zeroes is deallocated, as a host would do.
            let result = if of_page.iter().all(|id| *id == crate::contents::ZEROES) {
                self.device.zero(0, lpn, 1).result
            } else {
                let mut bytes = [0; PAGE_BYTES];
                for (id, into) in of_page.iter().zip(bytes.chunks_mut(block_bytes)) {
                    self.recording.contents.get(*id, into)?;
                }
                self.device.write(0, lpn, &Payload::Bytes(&bytes)).result
            };
            result.map_err(|refusal| broken(format_args!("{refusal:?}")))?;
        }
        Ok(())
    }

    /// Makes everything written so far durable.
    fn flush(&mut self) -> Result<(), TortureError> {
        let flushed = self.device.flush(0).result;
        flushed.map_err(|refusal| broken(format_args!("{refusal:?}")))?;
        self.device.untimed(|ftl| ftl.media_mut().settle_all());
        Ok(())
    }
}

/// Finds a block that has none of its permitted versions.
fn wrong_block(
    device: &mut Device,
    recording: &Recording,
    state: &DiskState,
) -> Result<Option<String>, TortureError> {
    let block_bytes = recording.shape.block_bytes as usize;
    let per_page = PAGE_BYTES / block_bytes;
    let mut wanted = vec![0; block_bytes];

    for (lpn, durable) in (0..).map(Lpn).zip(state.durable.chunks(per_page)) {
        let (_, page) = device.view(0, lpn, |view| match view {
            PageView::Bytes(bytes) => Some(bytes.to_vec()),
            _ => None,
        });
        let page = match page {
            Ok(page) => page,
            Err(refusal) => return Ok(Some(format!("page {lpn} cannot be read: {refusal:?}"))),
        };

        for (index, durable) in durable.iter().enumerate() {
            let block = (lpn.index() * per_page + index) as u64;
            let found = page
                .as_ref()
                .map(|page| &page[index * block_bytes..(index + 1) * block_bytes]);
            let pending = state.pending.get(&block).into_iter().flatten();

            // Any version since the last durable one is permitted, and no other.
            let versions = pending.map(|version| version.content).chain([*durable]);

            let mut is_one = false;
            for version in versions {
                recording.contents.get(version, &mut wanted)?;
                is_one |= match found {
                    Some(bytes) => *bytes == wanted[..],
                    // An unmapped page reads as zeroes.
                    None => wanted.iter().all(|byte| *byte == 0),
                };
            }
            if !is_one {
                let at = block * block_bytes as u64;
                return Ok(Some(format!(
                    "byte {at} of the disk has none of the versions that it may have"
                )));
            }
        }
    }
    Ok(None)
}

/// A disk of blocks on a device.
pub(crate) struct FirmwareDisk {
    shape: DiskGeometry,
    pages: DiskGeometry,
    device: Mutex<Device>,
}

impl FirmwareDisk {
    fn new(device: Device, shape: DiskGeometry) -> Self {
        let pages = DiskGeometry {
            block_bytes: PAGE_BYTES as u32,
            blocks: shape.bytes() / PAGE_BYTES as u64,
        };
        Self {
            shape,
            pages,
            device: Mutex::new(device),
        }
    }

    /// Takes the device out, for a target to serve.
    pub(crate) fn into_device(self) -> Device {
        self.device
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn device(&self) -> MutexGuard<'_, Device> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refused(refusal: impl std::fmt::Debug) -> io::Error {
    io::Error::other(format!("the device refused: {refusal:?}"))
}

fn read_page(device: &mut Device, lpn: u64, into: &mut [u8]) -> io::Result<()> {
    let (_, read) = device.view(0, Lpn(lpn as u32), |view| match view {
        PageView::Bytes(bytes) => into.copy_from_slice(bytes),
        _ => into.fill(0),
    });
    read.map_err(refused)
}

impl Array for FirmwareDisk {
    fn shape(&self) -> DiskGeometry {
        self.shape
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let (first, count, before) = self.pages.cover(offset, into.len() as u64);
        let mut pages = vec![0; count as usize * PAGE_BYTES];
        let mut device = self.device();
        for (lpn, bytes) in (first..).zip(pages.chunks_mut(PAGE_BYTES)) {
            read_page(&mut device, lpn, bytes)?;
        }
        into.copy_from_slice(&pages[before..before + into.len()]);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8], _through: bool) -> io::Result<()> {
        // FUA needs no action: there is no cut while a check runs.
        let mut device = self.device();
        let (first, whole) = self
            .pages
            .whole(offset, data, |lpn, into| read_page(&mut device, lpn, into))?;
        for (lpn, page) in (first..).zip(whole.as_chunks::<PAGE_BYTES>().0) {
            let written = device.write(0, Lpn(lpn as u32), &Payload::Bytes(page));
            written.result.map_err(refused)?;
        }
        Ok(())
    }

    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        let (parts, pages) = self.pages.split(offset, len);
        for part in parts {
            let zeroes = vec![0; (part.end - part.start) as usize];
            self.write(part.start, &zeroes, false)?;
        }
        if pages.is_empty() {
            return Ok(());
        }
        let count = (pages.end - pages.start) as u32;
        let zeroed = self.device().zero(0, Lpn(pages.start as u32), count);
        zeroed.result.map_err(refused)
    }

    fn flush(&self) -> io::Result<()> {
        self.device().flush(0).result.map_err(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{About, Event, Recorder};
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// A run of random requests on few pages of a small disk, so that the firmware runs garbage
    /// collection and remaps.
    fn recording(block_bytes: u32, seed: u64) -> Recording {
        const BYTES: u64 = 16 << 20;
        let shape = DiskGeometry {
            block_bytes,
            blocks: BYTES / u64::from(block_bytes),
        };
        let recorder = Recorder::new(shape).unwrap();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        recorder.note(Event::Start).unwrap();

        for _ in 0..400 {
            let page = random.random_range(0..512u64) * PAGE_BYTES as u64;
            match random.random_range(0..12u32) {
                0 => recorder.flush().unwrap(),
                1 => recorder.zero(page, 4 * PAGE_BYTES as u64).unwrap(),
                kind => {
                    // Few contents, so that deduplication finds some again.
                    let content = random.random_range(1..40u8);
                    let blocks = random.random_range(1..60);
                    let data = vec![content; blocks * block_bytes as usize];
                    recorder.write(page, &data, kind == 2).unwrap();
                }
            }
        }
        recorder.note(Event::End).unwrap();
        recorder.finish(About::default())
    }

    #[test]
    fn whatever_a_cut_takes_the_device_has_only_what_it_may_have() {
        let firmwares = [
            "remap-ssd",
            "remap-ssd+dedup",
            "nlog+dedup",
            "remap-ssd-x+dedup",
        ];
        let mut distinct = BTreeSet::new();
        for (firmware, block_bytes) in firmwares.into_iter().zip([4096, 512, 4096, 512]) {
            let recording = recording(block_bytes, 3);
            let start = Replay::new(&recording).until(recording.instants().start);
            let player = Player::new(&recording, firmware.parse().unwrap(), &[], start).unwrap();
            let mut random = Xoshiro256PlusPlus::seed_from_u64(4);

            for _ in 0..25 {
                let instant = random.random_range(recording.instants());
                let choice = Choice::Drawn(random.random());
                let cut = Cut { instant, choice };
                let state = DiskState::at(&recording, instant);
                let lost = state.lost(&cut.choice);
                let [played, again] = [0, 0].map(|_| player.play(&cut, &lost).unwrap());
                assert_eq!(played.wrong, None, "{firmware}, {cut:?}");

                let [disk, same] = [played, again].map(|played| {
                    let mut bytes = vec![0; recording.shape.bytes() as usize];
                    played.array.read(0, &mut bytes).unwrap();
                    blake3::hash(&bytes)
                });
                assert_eq!(disk, same, "a cut is the same disk each time");
                distinct.insert(*disk.as_bytes());
            }
        }
        assert!(distinct.len() > 60, "{} disks", distinct.len());
    }

    #[test]
    fn a_scheme_that_keeps_nothing_is_refused() {
        let recording = recording(4096, 1);
        let start = Replay::new(&recording).until(recording.instants().start);
        let refused = Player::new(&recording, "opt".parse().unwrap(), &[], start);
        assert!(matches!(refused.err(), Some(TortureError::Missing(_))));
    }
}
