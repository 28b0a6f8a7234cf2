//! A volume on an image that this process has closed, with what it knows of both.
//!
//! Opening an image reads its tables, and the volume's list of files: for a program that opens a
//! database for each request that is most of the work. A resting volume keeps all that in memory,
//! and neither locks nor files. It is resumed only if nothing has happened to the image since
//! (`remap_ssd_media::folder::RestingFolder` has the argument), and then the list of files is as it
//! was, since the volume is on that image.
//!
//! Absent: pages of files, which the next opening reads where they are mapped.

use super::cache::Cache;
use super::coordination::Coordination;
use super::format::Superblock;
use super::state::VolumeState;
use super::table::Table;
use super::tenancy::{Membership, Processes};
use super::{CACHE_BYTES_DEFAULT, Volume};
use crate::Statistics;
use crate::image::{ImageDisk, ImageError, RestingImage};
use std::sync::Mutex;

/// A closed volume, for the process that has closed it.
pub struct RestingVolume {
    image: RestingImage,
    superblock: Superblock,
    coordination: Coordination,
    table: Table,
}

impl RestingVolume {
    /// Bytes of memory that it takes, about.
    pub fn bytes(&self) -> u64 {
        self.image.bytes()
    }

    /// Opens the volume again; `None` if the image has changed, or is gone.
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
    /// When the volume is closed, `keep` gets what the process knows of it, unless the image
    /// deduplicates or cannot be written out.
    #[must_use]
    pub fn resting(mut self, keep: impl FnOnce(RestingVolume) + Send + Sync + 'static) -> Self {
        self.rest = Some(Box::new(|state: VolumeState<ImageDisk>| {
            let is_changing = !state.changing.is_empty() || !state.generation().is_multiple_of(2);
            // A change failed: what is known of the volume may not be what is there.
            if is_changing {
                drop(state.leave());
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
    // Nobody can be told of an error here. What was not written out is recovered at the next opening.
    let image = disk.rest_here().ok().flatten()?;
    Some(RestingVolume {
        image,
        superblock,
        coordination,
        table,
    })
}
