//! The two files of the folder: the disk, and marks.
//!
//! Invariant: the disk of a served file can be exchanged ([`Slot`]). Absent: how a disk stores its
//! blocks (`array`).

use crate::array::{Array, DiskGeometry};
use crate::faulty::answer;
use remap_ssd_fuse::{Bytes, DiskError};
use std::io;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// A holder for an exchangeable disk; clones share it.
#[derive(Clone)]
pub(crate) struct Slot {
    shape: DiskGeometry,
    array: Arc<RwLock<Option<Arc<dyn Array>>>>,
    /// First failure of a request: its caller learns only that it failed.
    failure: Arc<Mutex<Option<io::Error>>>,
}

impl Slot {
    /// Creates an empty slot for disks of this size.
    pub(crate) fn new(shape: DiskGeometry) -> Self {
        Self {
            shape,
            array: Arc::default(),
            failure: Arc::default(),
        }
    }

    /// Puts a disk into the slot, replacing the previous one. `None`: requests fail.
    pub(crate) fn put(&self, array: Option<Arc<dyn Array>>) {
        assert!(
            array
                .as_ref()
                .is_none_or(|array| array.shape() == self.shape),
            "all disks of a place have one size"
        );
        *self.array.write().unwrap_or_else(PoisonError::into_inner) = array;
    }

    fn with<R>(&self, work: impl FnOnce(&dyn Array) -> io::Result<R>) -> Result<R, DiskError> {
        // Not under the lock: requests run concurrently.
        let array = self
            .array
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();

        work(&*array.ok_or(DiskError::Gone)?).map_err(|error| {
            // An injected error is returned as such. Any other is a failure of ours, which ends the
            // run.
            if let Some(answer) = answer(&error) {
                return answer;
            }
            self.failure
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert(error);
            DiskError::Failed
        })
    }

    /// Takes the first failure since the last call.
    pub(crate) fn take_failure(&self) -> Option<io::Error> {
        self.failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    fn fitting(&self, offset: u64, len: u64) -> u64 {
        len.min(self.shape.bytes().saturating_sub(offset))
    }
}

/// Receiver of the bytes written to the marks file.
pub(crate) type MarkSink = Box<dyn Fn(&[u8]) + Send + Sync>;

/// The two files of the folder.
pub(crate) enum Served {
    Disk(Slot),
    /// Receives lines that become marks of the recording.
    Marks(MarkSink),
}

/// Name of the disk's file.
pub(crate) const DISK: &str = "disk";
/// Name of the file for marks.
pub(crate) const MARKS: &str = "marks";

impl Bytes for Served {
    fn name(&self) -> String {
        match self {
            Self::Disk(_) => DISK.into(),
            Self::Marks(_) => MARKS.into(),
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Disk(slot) => slot.shape.bytes(),
            Self::Marks(_) => 0,
        }
    }

    fn read(&self, offset: u64, len: u32) -> Result<(Vec<u8>, u64), DiskError> {
        let Self::Disk(slot) = self else {
            return Ok((Vec::new(), 0));
        };
        let mut data = vec![0; slot.fitting(offset, len.into()) as usize];
        if !data.is_empty() {
            slot.with(|array| array.read(offset, &mut data))?;
        }
        Ok((data, 0))
    }

    fn write(&self, offset: u64, data: &[u8], through: bool) -> Result<(u32, u64), DiskError> {
        let len = match self {
            Self::Disk(slot) => {
                // Like a block device: a write across the end is truncated, one beyond it is
                // refused.
                let len = slot.fitting(offset, data.len() as u64) as usize;
                match (data.len(), len) {
                    (0, _) => {}
                    (_, 0) => return Err(DiskError::Range),
                    _ => slot.with(|array| array.write(offset, &data[..len], through))?,
                }
                len
            }
            Self::Marks(mark) => {
                mark(data);
                data.len()
            }
        };

        Ok((len as u32, 0))
    }

    fn zero(&self, offset: u64, len: u64) -> Result<u64, DiskError> {
        if let Self::Disk(slot) = self {
            let len = slot.fitting(offset, len);
            if len > 0 {
                slot.with(|array| array.zero(offset, len))?;
            }
        }
        Ok(0)
    }

    fn flush(&self) -> Result<u64, DiskError> {
        if let Self::Disk(slot) = self {
            slot.with(|array| array.flush())?;
        }
        Ok(0)
    }

    fn copy(&self, _: u64, _: &Self, _: u64, _: u64) -> Result<(u64, u64), DiskError> {
        // The kernel then copies by reading and writing.
        Err(DiskError::Alignment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk whose temporary file is full.
    struct Full(DiskGeometry);

    impl Array for Full {
        fn shape(&self) -> DiskGeometry {
            self.0
        }
        fn read(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
            Ok(())
        }
        fn write(&self, _: u64, _: &[u8], _: bool) -> io::Result<()> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn zero(&self, _: u64, _: u64) -> io::Result<()> {
            Err(io::ErrorKind::Other.into())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_reason_of_the_first_request_that_failed_is_kept() {
        let shape = DiskGeometry {
            block_bytes: 512,
            blocks: 8,
        };
        let slot = Slot::new(shape);
        slot.put(Some(Arc::new(Full(shape))));
        let disk = Served::Disk(slot.clone());

        assert!(disk.read(0, 512).is_ok() && slot.take_failure().is_none());
        assert_eq!(
            disk.write(0, &[1; 512], false).err(),
            Some(DiskError::Failed)
        );
        assert_eq!(disk.zero(0, 512).err(), Some(DiskError::Failed));
        assert_eq!(
            slot.take_failure().map(|error| error.kind()),
            Some(io::ErrorKind::StorageFull)
        );
        assert!(slot.take_failure().is_none());
    }
}
