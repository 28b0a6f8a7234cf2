//! A disk of host software behind bytes is an array of bytes.

use proptest::prelude::*;
use remap_ssd_device::{Device, DeviceConfig, Disk, DiskRemap, LocalDisk, LocalDiskError};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_fuse::{Bytes, DiskError, Pages};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

fn pages() -> Pages<LocalDisk> {
    let config =
        DeviceConfig::for_service(16 << 20, SchemeKind::RemapSsd, false).expect("possible");
    let disk = LocalDisk::new(Device::in_memory(config).expect("possible"));
    Pages::new(disk, "n1", |error| panic!("{error}"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn bytes_are_what_was_written_copied_or_zeroed_last(
        ops in prop::collection::vec((0..4u8, 0..30u64, 0..3u64, 1..20_000u64, any::<u8>()), 1..60),
    ) {
        let file = pages();
        let end = 40 * 4096;
        let mut model = vec![0u8; end];
        for (kind, page, shift, len, seed) in ops {
            let offset = page * 4096 + shift * 700;
            let range = offset as usize..(offset + len) as usize;
            match kind {
                0 => {
                    let data: Vec<u8> = (0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect();
                    prop_assert_eq!(file.write(offset, &data, seed < 9), Ok((len as u32, 0)));
                    model[range].copy_from_slice(&data);
                }
                1 => {
                    prop_assert_eq!(file.zero(offset, len), Ok(0));
                    model[range].fill(0);
                }
                2 => {
                    let source = u64::from(seed % 30) * 4096;
                    let whole = len / 4096 * 4096;
                    if source.abs_diff(offset) < len {
                        continue;
                    }
                    match file.copy(offset, &file.clone(), source, len) {
                        Ok((copied, _)) => {
                            prop_assert!(shift == 0 && copied == whole);
                            model.copy_within(source as usize..(source + whole) as usize, offset as usize);
                        }
                        Err(error) => {
                            prop_assert_eq!(error, DiskError::Alignment);
                            prop_assert!(shift > 0 || whole == 0);
                        }
                    }
                }
                _ => {
                    let found = file.read(offset, len as u32).expect("it works").0;
                    prop_assert!(found == model[range]);
                }
            }
        }
        prop_assert!(file.read(0, end as u32).expect("it works").0 == model);
    }
}

#[test]
fn what_lies_behind_the_end_is_left_out_and_a_disk_that_was_taken_is_gone() {
    let file = pages();
    let end = file.bytes();
    assert_eq!(file.write(end - 10, &[1; 100], false), Ok((10, 0)));
    assert_eq!(file.write(end, &[1], false), Err(DiskError::Range));
    assert_eq!(file.read(end - 10, 100).expect("it works").0, [1; 10]);
    assert_eq!(file.zero(end - 5, u64::MAX - end), Ok(0));
    assert_eq!(
        file.read(end - 10, 100).expect("it works").0,
        [1, 1, 1, 1, 1, 0, 0, 0, 0, 0]
    );
    let disk = file.take().expect("it was there");
    assert_eq!(file.write(0, &[1], false), Err(DiskError::Gone));
    assert_eq!(
        (file.flush(), file.take().is_none()),
        (Err(DiskError::Gone), true)
    );
    drop(disk);
}

/// A disk that counts its flushes, and fails if it is told to.
struct Counting(LocalDisk, Arc<AtomicU32>);

impl Disk for Counting {
    type Error = LocalDiskError;

    fn pages(&self) -> u64 {
        self.0.pages()
    }
    fn read(&mut self, page: u64, into: &mut [u8]) -> Result<(), LocalDiskError> {
        self.0.read(page, into)
    }
    fn write(&mut self, page: u64, data: &[u8]) -> Result<(), LocalDiskError> {
        self.0.write(page, data)
    }
    fn trim(&mut self, page: u64, pages: u64) -> Result<(), LocalDiskError> {
        self.0.trim(page, pages)
    }
    fn flush(&mut self) -> Result<(), LocalDiskError> {
        match self.1.fetch_add(1, Ordering::Relaxed) {
            3 => Err(LocalDiskError::NoContents),
            _ => self.0.flush(),
        }
    }
    fn remap(&mut self, remap: &DiskRemap) -> Result<(), LocalDiskError> {
        self.0.remap(remap)
    }
}

#[test]
fn what_is_written_through_is_flushed_and_errors_are_said_in_words() {
    let disk = pages().take().expect("it was there");
    let (flushes, words) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let told = words.clone();
    let file = Pages::new(Counting(disk, flushes.clone()), "n1", move |error| {
        assert!(error.contains("contents"), "{error}");
        told.fetch_add(1, Ordering::Relaxed);
    });
    let flushed = || flushes.load(Ordering::Relaxed);
    assert_eq!(
        (file.write(10, &[1; 5000], false), flushed()),
        (Ok((5000, 0)), 0)
    );
    assert_eq!(
        (file.write(10, &[1; 5000], true), flushed()),
        (Ok((5000, 0)), 1)
    );
    assert_eq!((file.flush(), flushed()), (Ok(0), 2));
    assert_eq!((file.write(0, &[1], true), flushed()), (Ok((1, 0)), 3));
    assert_eq!(file.flush(), Err(DiskError::Failed));
    assert_eq!(words.load(Ordering::Relaxed), 1);
}
