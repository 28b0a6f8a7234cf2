//! A closed volume on an image, with the cached state of both.
//!
//! Opening an image reads its tables, and the volume's list of files: most of the work of a program
//! that opens a database per request. A resting volume keeps all that in memory, and holds neither
//! locks nor descriptors. It is resumed only if the image has not changed since
//! (`remap_ssd_media::folder::RestingFolder` has the argument); then the volume's list of files has
//! not changed either, since the volume is on that image.
//!
//! Absent: pages of files, which the next opening reads through its mapping.

use super::cache::Cache;
use super::coordination::Coordination;
use super::format::Superblock;
use super::state::VolumeState;
use super::table::Table;
use super::tenancy::{Membership, Processes};
use super::{CACHE_BYTES_DEFAULT, Volume, leave};
use crate::Statistics;
use crate::image::{ImageDisk, ImageError, RestingImage};
use std::sync::Mutex;

/// A closed volume, kept by the process that has closed it.
pub struct RestingVolume {
    image: RestingImage,
    superblock: Superblock,
    coordination: Coordination,
    table: Table,
}

impl RestingVolume {
    /// Approximate memory use in bytes.
    pub fn bytes(&self) -> u64 {
        self.image.bytes()
    }

    /// Reopens the volume; `None` if the image has changed or is gone.
    ///
    /// # Errors
    /// The image is in use.
    pub fn resume(self) -> Result<Option<Volume<ImageDisk>>, ImageError> {
        let Some(mut disk) = self.image.resume()? else {
            return Ok(None);
        };
        let membership = Membership::join(&Processes::One, &mut disk, false)?;
        Ok(Some(Volume {
            state: Some(Mutex::new(VolumeState {
                disk,
                superblock: self.superblock,
                membership,
                coordination: self.coordination,
                table: self.table,
                cache: Cache::new(CACHE_BYTES_DEFAULT),
                changing: Vec::new(),
                statistics: Statistics::default(),
                without: None,
            })),
            notes: Vec::new(),
            rest: None,
        }))
    }
}

impl Volume<ImageDisk> {
    /// Passes the cached state to `keep` when the volume is closed, unless the image deduplicates
    /// or cannot be written out.
    #[must_use]
    pub fn resting(mut self, keep: impl FnOnce(RestingVolume) + Send + Sync + 'static) -> Self {
        self.rest = Some(Box::new(|state: VolumeState<ImageDisk>| {
            let is_changing = !state.changing.is_empty() || !state.generation().is_multiple_of(2);
            // A change failed: the cached state may differ from the disk.
            if is_changing {
                drop(leave(state));
            } else if let Some(resting) = rest(state) {
                keep(resting);
            }
        }));
        self
    }
}

fn rest(state: VolumeState<ImageDisk>) -> Option<RestingVolume> {
    let VolumeState {
        mut disk,
        superblock,
        mut membership,
        mut coordination,
        table,
        ..
    } = state;

    membership.leave(&mut disk, |_| Ok(()), |disk| disk);
    coordination.forget_lock_files();

    // The error cannot be reported here. Data not written out is recovered at the next opening.
    let image = disk.rest_keeping_tables().ok().flatten()?;

    Some(RestingVolume {
        image,
        superblock,
        coordination,
        table,
    })
}
