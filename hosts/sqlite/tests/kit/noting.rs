//! A store that logs changes of its files, and fails on request.

use remap_ssd_store::{FileId, FileInfo, OpenOptions, Share, Statistics, Store, StoreError};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A change of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Write { offset: u64, data: Vec<u8> },
    SetSize(u64),
}

pub struct Noting<S> {
    store: S,
    changes: Mutex<Vec<Change>>,
    /// Number of reads.
    pub reads: AtomicUsize,
    /// Number of writes done before all fail.
    pub writes_left: Mutex<Option<usize>>,
    /// Deletes each file right after its opening, as another process may do.
    pub deletes_opened: AtomicBool,
}

impl<S: Store> Noting<S> {
    pub fn new(store: S) -> Arc<Self> {
        Arc::new(Self {
            store,
            changes: Mutex::default(),
            reads: AtomicUsize::new(0),
            writes_left: Mutex::default(),
            deletes_opened: AtomicBool::new(false),
        })
    }

    /// The changes since the last call.
    pub fn changes(&self) -> Vec<Change> {
        std::mem::take(&mut self.changes.lock().expect("nothing fails here"))
    }

    /// Offset and length of the writes since the last call.
    pub fn writes(&self) -> Vec<(u64, usize)> {
        let writes = self
            .changes()
            .into_iter()
            .filter_map(|change| match change {
                Change::Write { offset, data } => Some((offset, data.len())),
                Change::SetSize(_) => None,
            });
        writes.collect()
    }

    fn note(&self, change: Change) {
        self.changes
            .lock()
            .expect("nothing fails here")
            .push(change);
    }
}

impl<S: Store> Store for Noting<S> {
    fn identity(&self) -> Option<[u8; 16]> {
        self.store.identity()
    }

    fn open(&self, name: &str, options: OpenOptions) -> Result<FileId, StoreError> {
        let file = self.store.open(name, options)?;
        if self.deletes_opened.load(Ordering::Relaxed) {
            self.store.delete(name)?;
        }
        Ok(file)
    }

    fn close(&self, file: FileId) {
        self.store.close(file);
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.store.delete(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StoreError> {
        self.store.rename(from, to)
    }

    fn list(&self) -> Result<Vec<FileInfo>, StoreError> {
        self.store.list()
    }

    fn size(&self, file: FileId) -> Result<u64, StoreError> {
        self.store.size(file)
    }

    fn set_size(&self, file: FileId, size: u64) -> Result<(), StoreError> {
        self.note(Change::SetSize(size));
        self.store.set_size(file, size)
    }

    fn read(&self, file: FileId, offset: u64, into: &mut [u8]) -> Result<usize, StoreError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.store.read(file, offset, into)
    }

    fn write(&self, file: FileId, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        if let Some(left) = &mut *self.writes_left.lock().expect("nothing fails here") {
            *left = left
                .checked_sub(1)
                .ok_or(StoreError::Full { needed: 1, free: 0 })?;
        }
        self.note(Change::Write {
            offset,
            data: data.into(),
        });
        self.store.write(file, offset, data)
    }

    fn discard(&self, file: FileId, offset: u64, bytes: u64) -> Result<(), StoreError> {
        self.store.discard(file, offset, bytes)
    }

    fn share_all(&self, shares: &[Share]) -> Result<(), StoreError> {
        self.store.share_all(shares)
    }

    fn sync(&self, file: FileId) -> Result<(), StoreError> {
        self.store.sync(file)
    }

    fn sync_all(&self) -> Result<(), StoreError> {
        self.store.sync_all()
    }

    fn sync_names(&self) -> Result<(), StoreError> {
        self.store.sync_names()
    }

    fn statistics(&self) -> Statistics {
        self.store.statistics()
    }
}
