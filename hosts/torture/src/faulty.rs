//! A file-backed disk with injected faults: each request consults the fault model first.
//!
//! Invariants: a failing request does not reach the disk below; injected errors are distinguished
//! from real ones. Absent: which requests fail (`faults`).

use crate::array::{Array, DiskGeometry};
use crate::faults::FaultModel;
use remap_ssd_fuse::DiskError;
use remap_ssd_nvme::controller::{BlockAccess, FaultInjector};
use remap_ssd_nvme::spec::status::Status;
use std::io;
use std::sync::Arc;

/// An injected error.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("a fault of the disk: status {:#x}", .0.number())]
struct Injected(Status);

/// Translates an injected error for the caller; `None` for a real one.
pub(crate) fn answer(error: &io::Error) -> Option<DiskError> {
    let injected: &Injected = error.get_ref()?.downcast_ref()?;
    Some(injected.0.into())
}

/// A disk whose requests fail or take longer.
pub(crate) struct Faulty {
    inner: Arc<dyn Array>,
    model: Arc<FaultModel>,
}

impl Faulty {
    pub(crate) fn new(inner: Arc<dyn Array>, model: Arc<FaultModel>) -> Self {
        Self { inner, model }
    }

    /// Sleeps without blocking other requests.
    fn wait(&self) {
        std::thread::sleep(self.model.delay());
    }

    fn access(&self, access: BlockAccess, offset: u64, len: u64) -> io::Result<()> {
        self.wait();
        let found = self.model.access(access, offset..offset + len);
        found.map_err(|status| io::Error::other(Injected(status)))
    }
}

impl Array for Faulty {
    fn shape(&self) -> DiskGeometry {
        self.inner.shape()
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.access(BlockAccess::Read, offset, into.len() as u64)?;
        self.inner.read(offset, into)
    }

    fn write(&self, offset: u64, data: &[u8], through: bool) -> io::Result<()> {
        self.access(BlockAccess::Write, offset, data.len() as u64)?;
        self.inner.write(offset, data, through)
    }

    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        self.access(BlockAccess::Deallocate, offset, len)?;
        self.inner.zero(offset, len)
    }

    fn flush(&self) -> io::Result<()> {
        self.wait();
        self.inner.flush()
    }
}
