//! Small devices for tests, random commands for them, and an oracle of the contents that may be
//! read.

#![allow(dead_code)]

pub mod bench;
#[path = "../../../media/tests/kit/numbers.rs"]
pub mod numbers;

use numbers::Numbers;
use remap_ssd_device::{Device, DeviceConfig, Lpn};
use remap_ssd_ftl::{Refusal, Remap, SchemeKind};
use remap_ssd_media::geometry::{PAGE_BYTES, Shape};
use remap_ssd_media::{ContentMode, Geometry, Page, Payload};
use std::path::Path;

pub const FILES: [&str; 5] = ["contents", "state.0", "state.1", "journal.0", "journal.1"];

/// The smallest device of `lpns` logical pages that suits the scheme, with at least
/// `superblocks_min` superblocks.
pub fn tiny(scheme: SchemeKind, dedup: bool, lpns: u32, superblocks_min: u32) -> DeviceConfig {
    let config = |superblocks, log_bytes| {
        let shape = Shape {
            channels: 1,
            dies: 2,
            superblocks,
            pages_per_block: 8,
        };
        let mut config = DeviceConfig::preset("fast21-32g").expect("a preset");
        config.geometry = Geometry::new(shape).expect("valid");
        config.content = ContentMode::Bytes;
        config.addressable = 1.0;

        let firmware = &mut config.firmware;
        (firmware.lpns, firmware.scheme, firmware.dedup) = (lpns, scheme, dedup);
        (
            firmware.log_bytes,
            firmware.segment_bytes,
            firmware.dealloc_slots,
        ) = (log_bytes, 128, 8);
        config
    };

    let sizes = (superblocks_min..60)
        .flat_map(|superblocks| [4096, 16_384, 65_536].map(|log| (superblocks, log)));
    let mut configs = sizes.map(|(superblocks, log_bytes)| config(superblocks, log_bytes));
    configs
        .find(|config| config.check().is_ok())
        .unwrap_or_else(|| panic!("{scheme} suits none of these"))
}

pub fn files(dir: &Path) -> Vec<Vec<u8>> {
    FILES
        .iter()
        .map(|name| std::fs::read(dir.join(name)).expect("the file is there"))
        .collect()
}

/// A page with this content.
pub fn page(content: u64) -> [u8; PAGE_BYTES] {
    let mut page = [0; PAGE_BYTES];
    page.as_chunks_mut::<8>()
        .0
        .iter_mut()
        .for_each(|word| *word = content.to_le_bytes());
    page
}

/// Content of a page, 0 for zeroes; an error if it cannot be read.
pub fn try_read(device: &mut Device, lpn: u32) -> Result<u64, Refusal> {
    match device.read(0, Lpn(lpn)).1? {
        Page::Zeroes => Ok(0),
        Page::Bytes(bytes) => Ok(u64::from_le_bytes(
            *bytes.first_chunk().expect("a page has more than 8 bytes"),
        )),
        other => panic!("{other:?}"),
    }
}

pub fn read(device: &mut Device, lpn: u32) -> u64 {
    try_read(device, lpn).expect("readable")
}

pub fn write(device: &mut Device, lpn: u32, content: u64) -> Result<(), Refusal> {
    device
        .write(0, Lpn(lpn), &Payload::Bytes(&page(content)))
        .result
}

/// Remaps one page at time 0; the source keeps it.
pub fn remap(device: &mut Device, target: u32, source: u32) -> Result<(), Refusal> {
    device
        .remap(
            0,
            &Remap {
                target: Lpn(target),
                source: Lpn(source),
                len: 1,
                relocate: false,
                atomic: false,
            },
        )
        .result
}

/// The possible contents of each page: all those since the last sync, the newest last.
pub struct Oracle(pub Vec<Vec<u64>>);

impl Oracle {
    /// The oracle of a new device, whose pages are all zeroes: content 0.
    pub fn new(lpns: u32) -> Self {
        Self(vec![vec![0]; lpns as usize])
    }

    pub fn lpns(&self) -> u32 {
        self.0.len() as u32
    }

    pub fn now(&self, lpn: u32) -> u64 {
        *self.0[lpn as usize].last().expect("never empty")
    }

    pub fn set(&mut self, lpn: u32, content: u64) {
        self.0[lpn as usize].push(content);
    }

    pub fn synced(&mut self) {
        self.0
            .iter_mut()
            .for_each(|held| drop(held.drain(..held.len() - 1)));
    }
}

/// A random write, remap or trim, on the device and in the oracle.
pub fn command(device: &mut Device, oracle: &mut Oracle, numbers: &mut Numbers) {
    let lpns = oracle.lpns();
    let lpn = numbers.below(u64::from(lpns)) as u32;
    let len = (1 + numbers.below(6) as u32).min(lpns - lpn);
    let source = numbers.below(u64::from(lpns - len + 1)) as u32;

    match numbers.below(10) {
        0..6 => {
            let repeats = numbers.below(3) == 0;
            let content = 1 + numbers.below(if repeats { 20 } else { 1 << 40 });
            write(device, lpn, content).expect("there is room");
            oracle.set(lpn, content);
        }
        6..9 => {
            let remap = Remap {
                target: Lpn(lpn),
                source: Lpn(source),
                len,
                relocate: false,
                atomic: false,
            };
            device.remap(0, &remap).result.expect("there is room");
            let contents: Vec<u64> = (0..len).map(|index| oracle.now(source + index)).collect();
            (lpn..)
                .zip(contents)
                .for_each(|(lpn, content)| oracle.set(lpn, content));
        }
        _ => {
            device
                .deallocate(0, Lpn(lpn), len)
                .result
                .expect("there is room");
            (lpn..lpn + len).for_each(|lpn| oracle.set(lpn, 0));
        }
    }
}
