//! A storage backend for the database redb on a file of a volume, which shares the pages that a
//! compaction moves.
//!
//! redb is copy-on-write: a change writes new pages, and a compaction rewrites pages from the end
//! of the file at its beginning. A leaf that only moves keeps its bytes. While `sharing` is on, the
//! backend indexes pages by content, so that a write of content that a page already has becomes a
//! remap of that page.
//!
//! Invariants: a remap has the effect of the write that it replaces, so redb's order of writes and
//! syncs is kept; a page is removed from the index before it is written. Absent: redb's own logic.

use redb::StorageBackend;
use remap_ssd_store::{FileId, Share, Store};
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

pub const PAGE: usize = 4096;

/// Index of the file's pages by content, while sharing is on.
#[derive(Default)]
struct Contents {
    by_hash: HashMap<[u8; 32], u64>,
    hashes: HashMap<u64, [u8; 32]>,
}

impl Contents {
    fn forget(&mut self, page: u64) {
        if let Some(hash) = self.hashes.remove(&page)
            && self.by_hash.get(&hash) == Some(&page)
        {
            self.by_hash.remove(&hash);
        }
    }

    fn note(&mut self, page: u64, hash: [u8; 32]) {
        self.forget(page);
        self.hashes.insert(page, hash);
        self.by_hash.insert(hash, page);
    }
}

/// Requests to the backend.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// Whole pages that redb wrote.
    pub pages: u64,
    /// Of those, pages that were shared instead.
    pub shared: u64,
}

struct Inner<S> {
    store: S,
    file: FileId,
    contents: Mutex<(Option<Contents>, Asked)>,
}

/// A file of a store, for redb; clones are the same file.
pub struct Backend<S>(Arc<Inner<S>>);

impl<S> Clone for Backend<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S> std::fmt::Debug for Backend<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a file of a volume")
    }
}

impl<S: Store + 'static> Backend<S> {
    pub fn new(store: S, file: FileId) -> Self {
        Self(Arc::new(Inner {
            store,
            file,
            contents: Mutex::default(),
        }))
    }

    /// Switches sharing on, reading every page once, or off.
    pub fn share(&self, on: bool) -> io::Result<()> {
        let mut contents = on.then(Contents::default);
        if let Some(contents) = &mut contents {
            let mut bytes = [0; PAGE];
            for page in 0..self.len()? / PAGE as u64 {
                StorageBackend::read(self, page * PAGE as u64, &mut bytes)?;
                if bytes != [0; PAGE] {
                    contents.note(page, *blake3::hash(&bytes).as_bytes());
                }
            }
        }
        let mut state = self
            .0
            .contents
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *state = (contents, Asked::default());
        Ok(())
    }

    /// Requests since `share`.
    pub fn asked(&self) -> Asked {
        self.0
            .contents
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .1
    }

    fn write_page(&self, page: u64, bytes: &[u8]) -> io::Result<()> {
        let Inner {
            store,
            file,
            contents,
        } = &*self.0;
        let mut state = contents.lock().unwrap_or_else(PoisonError::into_inner);
        let (contents, asked) = &mut *state;
        asked.pages += 1;
        let offset = page * PAGE as u64;
        let Some(contents) = contents else {
            return store.write(*file, offset, bytes).map_err(io::Error::other);
        };

        let hash = *blake3::hash(bytes).as_bytes();
        let source = contents.by_hash.get(&hash).copied();
        contents.forget(page);
        match source {
            Some(source) if source == page => {}
            Some(source) => {
                let from_offset = source * PAGE as u64;
                let share = Share {
                    from: *file,
                    from_offset,
                    to: *file,
                    to_offset: offset,
                    bytes: PAGE as u64,
                };
                store.share(&share).map_err(io::Error::other)?;
                asked.shared += 1;
            }
            None => store
                .write(*file, offset, bytes)
                .map_err(io::Error::other)?,
        }
        contents.note(page, hash);
        Ok(())
    }
}

impl<S: Store + 'static> StorageBackend for Backend<S> {
    fn len(&self) -> io::Result<u64> {
        self.0.store.size(self.0.file).map_err(io::Error::other)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match self
            .0
            .store
            .read(self.0.file, offset, out)
            .map_err(io::Error::other)?
        {
            read if read == out.len() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self
            .0
            .contents
            .lock()
            .unwrap_or_else(PoisonError::into_inner);

        if let Some(contents) = &mut state.0 {
            let beyond: Vec<u64> = contents
                .hashes
                .keys()
                .copied()
                .filter(|page| (page + 1) * PAGE as u64 > len)
                .collect();
            beyond.into_iter().for_each(|page| contents.forget(page));
        }

        self.0
            .store
            .set_size(self.0.file, len)
            .map_err(io::Error::other)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.store.sync(self.0.file).map_err(io::Error::other)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if !offset.is_multiple_of(PAGE as u64) || !data.len().is_multiple_of(PAGE) {
            let mut state = self
                .0
                .contents
                .lock()
                .unwrap_or_else(PoisonError::into_inner);

            if let Some(contents) = &mut state.0 {
                let end = offset + data.len() as u64;
                (offset / PAGE as u64..end.div_ceil(PAGE as u64))
                    .for_each(|page| contents.forget(page));
            }

            return self
                .0
                .store
                .write(self.0.file, offset, data)
                .map_err(io::Error::other);
        }

        (offset / PAGE as u64..)
            .zip(data.chunks(PAGE))
            .try_for_each(|(page, bytes)| self.write_page(page, bytes))
    }
}
