//! A disk with a volatile cache that loses any subset of it.

use super::PAGE;
use remap_ssd_device::{Disk, DiskRemap, DiskWrite};
use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// The content of a page; `None` is zeroes.
pub type Content = Option<Arc<[u8; PAGE]>>;

/// An operation on a disk, page by page.
#[derive(Clone)]
pub enum Op {
    Set(u64, Content),
    Flush,
}

#[derive(Default)]
pub struct Medium {
    now: HashMap<u64, Content>,
    pub log: Vec<Op>,
    /// Number of commands that have written, a list being one.
    pub writes: usize,
    /// Number of commands that have read.
    pub reads: usize,
    /// Number of commands that fail from the next remap on: a short loss of the connection.
    pub fails_from_remap: Option<u32>,
    failing: u32,
}

/// A disk in memory; clones are connections to the same one.
#[derive(Clone)]
pub struct MemDisk {
    pages: u64,
    pub medium: Arc<Mutex<Medium>>,
    /// Number of page changes done before all commands fail.
    changes_left: Option<Arc<AtomicI64>>,
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct MemError(&'static str);

impl Medium {
    pub fn set(&mut self, page: u64, content: Content) {
        self.now.insert(page, content.clone());
        self.log.push(Op::Set(page, content));
    }

    /// The contents of all written pages.
    pub fn contents(&self) -> HashMap<u64, Content> {
        self.now.clone()
    }

    pub fn content(&self, page: u64) -> Content {
        self.now.get(&page).cloned().flatten()
    }
}

impl MemDisk {
    pub fn new(pages: u64) -> Self {
        Self {
            pages,
            medium: Arc::default(),
            changes_left: None,
        }
    }

    /// A disk with these contents.
    pub fn holding(pages: u64, now: HashMap<u64, Content>) -> Self {
        let medium = Medium {
            now,
            ..Medium::default()
        };
        Self {
            pages,
            medium: Arc::new(Mutex::new(medium)),
            changes_left: None,
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

    fn set(&self, medium: &mut Medium, page: u64, content: Content) -> Result<(), MemError> {
        if let Some(left) = &self.changes_left
            && left.fetch_sub(1, Ordering::Relaxed) <= 0
        {
            return Err(MemError("the connection is cut"));
        }
        medium.set(page, content);
        Ok(())
    }

    pub fn medium(&self) -> MutexGuard<'_, Medium> {
        self.medium.lock().expect("nothing fails here")
    }

    fn check(&self, page: u64, pages: u64) -> Result<(), MemError> {
        if self
            .changes_left
            .as_ref()
            .is_some_and(|left| left.load(Ordering::Relaxed) < 0)
        {
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

    fn read(&mut self, page: u64, into: &mut [u8]) -> Result<(), MemError> {
        self.check(page, (into.len() / PAGE) as u64)?;
        let mut medium = self.medium();
        medium.reads += 1;
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
        medium.writes += 1;
        for (page, piece) in (page..).zip(pieces) {
            self.set(&mut medium, page, Some(Arc::new(*piece)))?;
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
        self.medium().log.push(Op::Flush);
        Ok(())
    }

    fn remap(&mut self, remap: &DiskRemap) -> Result<(), MemError> {
        let commands = self.medium().fails_from_remap.take();
        if let Some(commands) = commands {
            self.medium().failing = commands;
        }
        self.check(remap.source, remap.pages.into())?;
        self.check(remap.target, remap.pages.into())?;
        let mut medium = self.medium();
        let sources: Vec<Content> = (0..u64::from(remap.pages))
            .map(|page| medium.content(remap.source + page))
            .collect();
        for (page, content) in (remap.target..).zip(sources) {
            self.set(&mut medium, page, content)?;
        }
        if remap.relocate {
            let sources = remap.source..remap.source + u64::from(remap.pages);
            sources
                .into_iter()
                .try_for_each(|page| self.set(&mut medium, page, None))?;
        }
        Ok(())
    }
}

/// The contents of a disk after these operations, where `keep` selects the surviving unflushed
/// ones.
pub fn kept(log: &[Op], keep: impl FnMut(usize) -> bool) -> HashMap<u64, Content> {
    kept_on(HashMap::new(), log, keep)
}

/// `kept` on a disk with previous contents.
pub fn kept_on(
    mut pages: HashMap<u64, Content>,
    log: &[Op],
    mut keep: impl FnMut(usize) -> bool,
) -> HashMap<u64, Content> {
    let flushed = log
        .iter()
        .rposition(|op| matches!(op, Op::Flush))
        .map_or(0, |at| at + 1);
    for (index, op) in log.iter().enumerate() {
        if let Op::Set(page, content) = op
            && (index < flushed || keep(index - flushed))
        {
            pages.insert(*page, content.clone());
        }
    }
    pages
}
