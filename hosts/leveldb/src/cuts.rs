//! Disks in memory whose power a C++ program cuts (`cuts.cc`), with the feature `cuts`.
//!
//! A medium remembers every operation. A cut makes another medium: the contents after a number of
//! operations, of which those since the last flush survive by chance, page by page.
//!
//! Absent: what the program checks.

use crate::Files;
use crate::c::{boxed, guarded};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_store::{NewVolume, Processes, Volume};
use remap_ssd_testkit::{MemDisk, kept};
use std::collections::HashMap;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::Arc;

const FILES_MAX: u32 = 256;

/// A disk in memory, with its history.
pub(crate) struct Medium {
    disk: MemDisk,
    pages: u64,
}

/// A medium of this many MiB with a new volume; null on an error.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn remap_medium_new(mib: u64) -> *mut Medium {
    guarded(
        |_| null_mut(),
        || {
            let pages = mib << 8;
            let disk = MemDisk::new(pages);
            let new = NewVolume {
                files_max: FILES_MAX,
                ..NewVolume::default()
            };
            drop(Volume::create(
                disk.clone(),
                &Processes::One,
                &new,
                &mut |_, _| {},
            )?);
            Ok(boxed(Medium { disk, pages }))
        },
    )
}

/// Opens the files of its volume.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn remap_medium_files(medium: &Medium, files: &mut *mut Files) -> c_int {
    guarded(
        |code| code,
        || {
            let volume = Volume::open(medium.disk.clone(), &Processes::One)?;
            *files = boxed(Files::open(Arc::new(volume))?);
            Ok(0)
        },
    )
}

/// Number of operations so far.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn remap_medium_operations(medium: &Medium) -> u64 {
    medium.disk.medium().log.len() as u64
}

/// The medium as it may be after a cut that follows this number of operations.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn remap_medium_cut(
    medium: &Medium,
    operations: u64,
    seed: u64,
) -> *mut Medium {
    guarded(
        |_| null_mut(),
        || {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            // Nothing, everything, or a part of what is not flushed.
            let share = [0.0, 1.0, random.random()][random.random_range(0..3)];
            let log = &medium.disk.medium().log[..operations as usize];
            let now = kept(&HashMap::new(), log, |_| random.random_bool(share));
            Ok(boxed(Medium {
                disk: MemDisk::holding(medium.pages, now),
                pages: medium.pages,
            }))
        },
    )
}

/// Frees a medium.
///
/// # Safety
/// It came from one of these functions, and is freed once.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remap_medium_free(medium: *mut Medium) {
    // SAFETY: it came from `boxed`, and is not used again.
    drop(unsafe { Box::from_raw(medium) });
}
