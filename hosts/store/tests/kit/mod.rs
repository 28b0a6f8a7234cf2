//! A disk with a volatile cache that loses any subset of it, and a model of files.

#![allow(dead_code)]

use remap_ssd_device::{Disk, DiskRemap, DiskWrite, RemapAllError};
use remap_ssd_store::{FileId, Store};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

pub const PAGE: usize = 4096;

/// The content of a page; `None` is zeroes.
pub type Content = Option<Arc<[u8; PAGE]>>;

/// An operation on a disk, page by page.
#[derive(Clone)]
pub enum Op {
    Set(u64, Content),
    Flush,
}

/// A callback in the middle of an operation.
pub type Interruption = Box<dyn FnOnce() + Send>;

#[derive(Default)]
pub struct Medium {
    now: HashMap<u64, Content>,
    durable: HashMap<u64, Content>,
    pub log: Vec<Op>,
    /// Run before the next write of a page in this range.
    pub before_write: Option<(std::ops::Range<u64>, Interruption)>,
    /// Makes the disk refuse every remap.
    pub no_remap: bool,
    /// Number of lists of remaps.
    pub remap_lists: usize,
    /// Refuses the next list of remaps after the remaps whose bits are set, in order from bit 0.
    pub refuses_list_after: Option<u32>,
    /// Pages that cannot be read.
    pub unreadable: std::ops::Range<u64>,
    /// Writes are done, and their responses lost.
    pub fails_after_write: bool,
    /// Number of writes that still succeed; the next one is done, and its response lost.
    pub answers_left: Option<u32>,
}

/// A disk in memory; clones are connections to the same one.
#[derive(Clone)]
pub struct MemDisk {
    pages: u64,
    /// The identity that the disk reports.
    pub identity: Option<[u8; 16]>,
    pub medium: Arc<Mutex<Medium>>,
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct MemError(&'static str);

impl Medium {
    pub fn set(&mut self, page: u64, content: Content) {
        self.now.insert(page, content.clone());
        self.log.push(Op::Set(page, content));
    }

    pub fn content(&self, page: u64) -> Content {
        self.now.get(&page).cloned().flatten()
    }

    /// Loses power: each page with unflushed changes is kept as after any of these changes, or as
    /// before.
    pub fn cut(&mut self, mut keep: impl FnMut() -> bool) {
        let flushed = self
            .log
            .iter()
            .rposition(|op| matches!(op, Op::Flush))
            .map_or(0, |at| at + 1);
        self.now = self.durable.clone();
        for op in self.log.split_off(flushed) {
            if let Op::Set(page, content) = op
                && keep()
            {
                self.now.insert(page, content);
            }
        }
        self.durable = self.now.clone();
    }
}

impl MemDisk {
    pub fn new(pages: u64) -> Self {
        Self {
            pages,
            identity: None,
            medium: Arc::default(),
        }
    }

    /// A disk with these contents.
    pub fn holding(pages: u64, now: HashMap<u64, Content>) -> Self {
        let medium = Medium {
            durable: now.clone(),
            now,
            ..Medium::default()
        };
        Self {
            pages,
            identity: None,
            medium: Arc::new(Mutex::new(medium)),
        }
    }

    /// Another disk with the present contents of this one.
    pub fn copy(&self, identity: [u8; 16]) -> Self {
        let now = self.medium().now.clone();
        Self {
            identity: Some(identity),
            ..Self::holding(self.pages, now)
        }
    }

    pub fn medium(&self) -> MutexGuard<'_, Medium> {
        self.medium.lock().expect("nothing fails here")
    }

    fn check(&self, page: u64, pages: u64) -> Result<(), MemError> {
        match page.checked_add(pages) {
            Some(end) if end <= self.pages => Ok(()),
            _ => Err(MemError("beyond the end")),
        }
    }
}

impl Disk for MemDisk {
    type Error = MemError;

    fn pages(&self) -> u64 {
        self.pages
    }

    fn identity(&self) -> Option<[u8; 16]> {
        self.identity
    }

    fn read(&mut self, page: u64, into: &mut [u8]) -> Result<(), MemError> {
        let pages = (into.len() / PAGE) as u64;
        self.check(page, pages)?;
        let medium = self.medium();
        if medium.unreadable.start < page + pages && page < medium.unreadable.end {
            return Err(MemError("it cannot be read"));
        }
        for (page, into) in (page..).zip(into.as_chunks_mut::<PAGE>().0) {
            *into = medium.content(page).map_or([0; PAGE], |content| *content);
        }
        Ok(())
    }

    fn write(&mut self, page: u64, data: &[u8]) -> Result<(), MemError> {
        let (pieces, rest) = data.as_chunks::<PAGE>();
        assert!(rest.is_empty(), "whole pages");
        self.check(page, pieces.len() as u64)?;
        let mut medium = self.medium();
        if medium
            .before_write
            .as_ref()
            .is_some_and(|(range, _)| range.contains(&page))
            && let Some((_, run)) = medium.before_write.take()
        {
            drop(medium);
            run();
            medium = self.medium();
        }
        for (page, piece) in (page..).zip(pieces) {
            medium.set(page, Some(Arc::new(*piece)));
        }
        let is_lost = medium.answers_left == Some(0);
        medium.answers_left = medium.answers_left.and_then(|left| left.checked_sub(1));
        if medium.fails_after_write || is_lost {
            return Err(MemError("no answer"));
        }
        Ok(())
    }

    /// Outstanding writes are executed in any order: here the last one first.
    fn write_all(&mut self, writes: &[DiskWrite<'_>]) -> Result<(), MemError> {
        writes
            .iter()
            .rev()
            .try_for_each(|write| self.write(write.page, write.data))
    }

    fn trim(&mut self, page: u64, pages: u64) -> Result<(), MemError> {
        self.check(page, pages)?;
        let mut medium = self.medium();
        (page..page + pages).for_each(|page| medium.set(page, None));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), MemError> {
        let mut medium = self.medium();
        medium.log.push(Op::Flush);
        medium.durable = medium.now.clone();
        Ok(())
    }

    fn remap(&mut self, remap: &DiskRemap) -> Result<(), MemError> {
        self.check(remap.source, remap.pages.into())?;
        self.check(remap.target, remap.pages.into())?;
        let mut medium = self.medium();
        if medium.no_remap {
            return Err(MemError("this disk cannot remap"));
        }
        let sources: Vec<Content> = (0..u64::from(remap.pages))
            .map(|page| medium.content(remap.source + page))
            .collect();
        for (page, content) in (remap.target..).zip(sources) {
            medium.set(page, content);
        }
        Ok(())
    }

    fn remap_all(&mut self, remaps: &[DiskRemap]) -> Result<(), RemapAllError<MemError>> {
        self.medium().remap_lists += 1;
        let refused_after = self.medium().refuses_list_after.take();
        for (index, remap) in remaps.iter().enumerate() {
            if refused_after.is_none_or(|done| done >> index & 1 == 1) {
                self.remap(remap)
                    .map_err(|error| RemapAllError { index, error })?;
            }
        }

        match refused_after {
            Some(_) => Err(RemapAllError {
                index: 0,
                error: MemError("this list is refused"),
            }),
            None => Ok(()),
        }
    }
}

/// Bytes unique to the tag.
pub fn tagged(tag: u64, bytes: usize) -> Vec<u8> {
    let tag = tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    tag.to_le_bytes().into_iter().cycle().take(bytes).collect()
}

/// The whole contents of a file.
pub fn contents(store: &dyn Store, file: FileId) -> Vec<u8> {
    let mut bytes = vec![1; store.size(file).expect("it is open") as usize];
    assert_eq!(
        store.read(file, 0, &mut bytes).expect("readable"),
        bytes.len()
    );
    bytes
}

/// The model of the store's operations on bytes.
pub fn write(bytes: &mut Vec<u8>, offset: usize, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    bytes.resize(bytes.len().max(offset + data.len()), 0);
    bytes[offset..offset + data.len()].copy_from_slice(data);
}

pub fn discard(bytes: &mut [u8], offset: usize, count: usize) {
    let end = (offset + count).min(bytes.len());
    if offset < end {
        bytes[offset..end].fill(0);
    }
}
