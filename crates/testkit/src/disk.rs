//! A disk with a volatile cache that loses any subset of it, and fails as a test asks.

use crate::{PAGE, kept, pending};
use remap_ssd_device::{Disk, DiskRemap, DiskWrite, RemapAllError};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// The content of a page; `None` is zeroes.
pub type Content = Option<Arc<[u8; PAGE]>>;

/// An operation on a disk, page by page.
#[derive(Clone)]
pub enum Op {
    /// A page gets this content.
    Set(u64, Content),
    /// All before is durable.
    Flush,
}

/// A callback in the middle of an operation.
type Interruption = Box<dyn FnOnce() + Send>;

/// The contents of a disk, and what is going to fail.
#[derive(Default)]
pub struct Medium {
    now: HashMap<u64, Content>,
    /// The durable contents of pages that have changed since the last flush.
    durable: HashMap<u64, Content>,
    /// The operations so far.
    pub log: Vec<Op>,
    /// Number of commands that have written, a list being one.
    pub writes: usize,
    /// Number of commands that have read.
    pub reads: usize,
    /// Number of lists of remaps.
    pub remap_lists: usize,
    /// Run before the next write of a page in this range.
    pub before_write: Option<(Range<u64>, Interruption)>,
    /// Makes the disk refuse every remap.
    pub no_remap: bool,
    /// Refuses the next list of remaps after the remaps whose bits are set, in order from bit 0.
    pub refuses_list_after: Option<u32>,
    /// Number of commands that fail from the next remap on: a short loss of the connection.
    pub fails_from_remap: Option<u32>,
    failing: u32,
    /// Pages that cannot be read.
    pub unreadable: Range<u64>,
    /// Writes are done, and their responses lost.
    pub fails_after_write: bool,
    /// Number of writes that still succeed; the next one is done, and its response lost.
    pub answers_left: Option<u32>,
    /// Number of flushes that still succeed; the next one fails.
    pub flushes_left: Option<u32>,
}

/// A disk in memory; clones are connections to the same one.
#[derive(Clone)]
pub struct MemDisk {
    pages: u64,
    /// The identity that the disk reports.
    pub identity: Option<[u8; 16]>,
    /// What it holds.
    pub medium: Arc<Mutex<Medium>>,
    /// Number of page changes done before all commands fail.
    changes_left: Option<Arc<AtomicI64>>,
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct MemError(&'static str);

impl Medium {
    /// Changes a page.
    pub fn set(&mut self, page: u64, content: Content) {
        let before = self.now.insert(page, content.clone()).flatten();
        self.durable.entry(page).or_insert(before);
        self.log.push(Op::Set(page, content));
    }

    /// The present content of a page.
    pub fn content(&self, page: u64) -> Content {
        self.now.get(&page).cloned().flatten()
    }

    /// The contents of all written pages.
    pub fn contents(&self) -> HashMap<u64, Content> {
        self.now.clone()
    }

    /// Loses power: each page with unflushed changes is kept as after any of these changes, or as
    /// before.
    pub fn cut(&mut self, mut keep: impl FnMut() -> bool) {
        let lost = self.log.split_off(self.log.len() - pending(&self.log));
        self.now.extend(self.durable.drain());
        self.now = kept(&self.now, &lost, |_| keep());
    }
}

impl MemDisk {
    /// A disk of zeroes.
    pub fn new(pages: u64) -> Self {
        Self::holding(pages, HashMap::new())
    }

    /// A disk with these contents.
    pub fn holding(pages: u64, now: HashMap<u64, Content>) -> Self {
        let medium = Medium {
            now,
            ..Medium::default()
        };
        Self {
            pages,
            identity: None,
            medium: Arc::new(Mutex::new(medium)),
            changes_left: None,
        }
    }

    /// Another disk with the present contents of this one.
    pub fn copy(&self, identity: [u8; 16]) -> Self {
        Self {
            identity: Some(identity),
            ..Self::holding(self.pages, self.medium().contents())
        }
    }

    /// A connection to the same disk that is cut after `changes` page changes: later commands of
    /// its process have no effect.
    pub fn dying_after(&self, changes: i64) -> Self {
        Self {
            changes_left: Some(Arc::new(AtomicI64::new(changes))),
            ..self.clone()
        }
    }

    /// Locks what it holds.
    pub fn medium(&self) -> MutexGuard<'_, Medium> {
        self.medium.lock().expect("nothing fails here")
    }

    fn set(&self, medium: &mut Medium, page: u64, content: Content) -> Result<(), MemError> {
        if let Some(left) = &self.changes_left
            && left.fetch_sub(1, Ordering::Relaxed) <= 0
        {
            return Err(MemError("the connection is cut"));
        }
        medium.set(page, content);
        Ok(())
    }

    fn check(&self, page: u64, pages: u64) -> Result<(), MemError> {
        let left = self.changes_left.as_ref();
        if left.is_some_and(|left| left.load(Ordering::Relaxed) < 0) {
            return Err(MemError("the connection is cut"));
        }
        let failing = &mut self.medium().failing;
        if *failing > 0 {
            *failing -= 1;
            return Err(MemError("the way to the disk is down"));
        }
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
        let mut medium = self.medium();
        medium.reads += 1;
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
        if let Some((_, run)) = medium
            .before_write
            .take_if(|(range, _)| range.contains(&page))
        {
            drop(medium);
            run();
            medium = self.medium();
        }

        medium.writes += 1;
        for (page, piece) in (page..).zip(pieces) {
            self.set(&mut medium, page, Some(Arc::new(*piece)))?;
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
        let before = self.medium().writes;
        writes
            .iter()
            .rev()
            .try_for_each(|write| self.write(write.page, write.data))?;
        self.medium().writes = before + usize::from(!writes.is_empty());
        Ok(())
    }

    fn trim(&mut self, page: u64, pages: u64) -> Result<(), MemError> {
        self.check(page, pages)?;
        let mut medium = self.medium();
        (page..page + pages).try_for_each(|page| self.set(&mut medium, page, None))
    }

    fn flush(&mut self) -> Result<(), MemError> {
        self.check(0, 0)?;
        let mut medium = self.medium();
        let fails = medium.flushes_left == Some(0);
        medium.flushes_left = medium.flushes_left.and_then(|left| left.checked_sub(1));
        if fails {
            return Err(MemError("no answer"));
        }
        medium.log.push(Op::Flush);
        medium.durable.clear();
        Ok(())
    }

    fn remap(&mut self, remap: &DiskRemap) -> Result<(), MemError> {
        let commands = self.medium().fails_from_remap.take();
        if let Some(commands) = commands {
            self.medium().failing = commands;
        }
        let pages = u64::from(remap.pages);
        self.check(remap.source, pages)?;
        self.check(remap.target, pages)?;
        let mut medium = self.medium();
        if medium.no_remap {
            return Err(MemError("this disk cannot remap"));
        }

        let sources = remap.source..remap.source + pages;
        let contents: Vec<Content> = sources.clone().map(|page| medium.content(page)).collect();
        for (page, content) in (remap.target..).zip(contents) {
            self.set(&mut medium, page, content)?;
        }
        if remap.relocate {
            sources
                .into_iter()
                .try_for_each(|page| self.set(&mut medium, page, None))?;
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
