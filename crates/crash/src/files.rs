//! Reference model of the file map: the lists that a host may find. `fs_write` and its reset are
//! judged by it.
//!
//! All commands on the map since it was last read, in order of submission. After a cut the lists
//! are those since some reset: no reset older than an acknowledged one, or than one before an
//! acknowledged page. Pages between it and the next reset are listed in order if acknowledged, and
//! listed or not otherwise; a listed page has its data. Invariant: `submit` sees every command on
//! the map. Absent: contents of pages (the oracle's).

use crate::oracle::{CommandId, Oracle};
use remap_ssd_ftl::{Config, FileBlock, FilePage, FileStatus, Ftl, Lpn};
use std::collections::{BTreeMap, BTreeSet};

/// The firmware's lists: files and their pages, in order.
pub(crate) type Listing = BTreeMap<u32, Vec<FileBlock>>;

#[derive(Clone, Copy, Debug)]
enum FileMapOp {
    Page { page: FilePage, lpn: Lpn },
    Reset,
}

#[derive(Clone, Copy, Debug)]
struct FileMapEvent {
    id: CommandId,
    op: FileMapOp,
    acknowledged: bool,
}

/// Outcome of the commands in flight at a cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileVerdict {
    /// Pages listed although not acknowledged.
    pub kept: u64,
    /// Pages neither acknowledged nor listed.
    pub dropped: u64,
    /// Resets in flight that took effect.
    pub resets_kept: u64,
    /// Resets in flight that did not.
    pub resets_dropped: u64,
}

/// Model of the file map: the lists allowed after a cut.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileModel {
    events: Vec<FileMapEvent>,
    /// A cut since the last reset may have left slots that are not reused.
    leaky: bool,
}

impl FileModel {
    /// Records that a page was written for a file.
    ///
    /// # Errors
    /// The firmware's status cannot be right.
    pub(crate) fn submit(
        &mut self,
        id: CommandId,
        (page, lpn): (FilePage, Lpn),
        status: FileStatus,
        config: &Config,
    ) -> Result<(), String> {
        let live = self.live();
        let blocks = live.values().map(Vec::len).sum::<usize>();
        let files_full = !live.contains_key(&page.inode) && live.len() == config.fs_files as usize;
        let full = blocks >= config.fs_blocks as usize;

        let right = match status {
            FileStatus::Recorded => !full && !files_full,
            FileStatus::FilesFull => files_full,
            // A slot spoilt by a torn entry is used up; only the firmware knows their number.
            FileStatus::BlocksFull => full || self.leaky,
            FileStatus::MapDamaged => false,
        };

        if !right {
            return Err(format!(
                "{page:?} ends with {status:?}, with {} files and {blocks} pages listed",
                live.len()
            ));
        }

        if status == FileStatus::Recorded {
            self.events.push(FileMapEvent {
                id,
                op: FileMapOp::Page { page, lpn },
                acknowledged: false,
            });
        }

        Ok(())
    }

    /// Records a reset of the map.
    pub(crate) fn reset(&mut self, id: CommandId) {
        self.events.push(FileMapEvent {
            id,
            op: FileMapOp::Reset,
            acknowledged: false,
        });
        self.leaky = false;
    }

    /// The host saw the acknowledgement of a command.
    pub(crate) fn acknowledge(&mut self, id: CommandId) {
        self.events
            .iter_mut()
            .filter(|event| event.id == id)
            .for_each(|event| event.acknowledged = true);
    }

    /// The lists while power is on.
    pub(crate) fn live(&self) -> Listing {
        let start = self
            .events
            .iter()
            .rposition(|event| matches!(event.op, FileMapOp::Reset))
            .map_or(0, |at| at + 1);
        listing(&self.events[start..])
    }

    /// Decides whether a cut now, followed by a recovery, may leave these lists on a device that
    /// reads as `read`.
    ///
    /// # Errors
    /// Why it may not.
    pub(crate) fn judge(
        &self,
        found: &Listing,
        oracle: &Oracle,
        read: &[u64],
    ) -> Result<FileVerdict, String> {
        let is_reset = |event: &FileMapEvent| matches!(event.op, FileMapOp::Reset);
        let resets: Vec<usize> = (0..self.events.len())
            .filter(|at| is_reset(&self.events[*at]))
            .collect();

        // A reset certainly took effect if it or a later page was acknowledged: that page is listed
        // only in the map begun by the reset.
        let certain = |at: &&usize| {
            self.events[**at].acknowledged
                || self.events[**at..]
                    .iter()
                    .any(|e| e.acknowledged && !is_reset(e))
        };

        let earliest = resets.iter().rfind(certain).map_or(0, |at| at + 1);
        let starts = std::iter::once(0)
            .chain(resets.iter().map(|at| at + 1))
            .filter(|start| *start >= earliest);

        let mut why = String::new();
        // Each reset in flight may have taken effect or not, so each may have begun the lists. The
        // first one that explains them is accepted.
        for start in starts {
            let end = resets
                .iter()
                .copied()
                .find(|at| *at >= start)
                .unwrap_or(self.events.len());
            match explain(&self.events[start..end], found) {
                Ok((kept, dropped)) => {
                    // The lists fit; a page listed without an acknowledgement must also have its
                    // data.
                    self.has_data(&kept, oracle, read)?;
                    let open = |at: &&usize| !self.events[**at].acknowledged;
                    let happened =
                        resets.iter().filter(open).filter(|at| **at < start).count() as u64;
                    let all = resets.iter().filter(open).count() as u64;
                    return Ok(FileVerdict {
                        kept: kept.len() as u64,
                        dropped,
                        resets_kept: happened,
                        resets_dropped: all - happened,
                    });
                }
                Err(text) => why = text,
            }
        }

        Err(why)
    }

    fn has_data(
        &self,
        kept: &[(CommandId, FilePage, Lpn)],
        oracle: &Oracle,
        read: &[u64],
    ) -> Result<(), String> {
        match kept
            .iter()
            .find(|(id, _, lpn)| !oracle.shows_since(*lpn, *id, read[lpn.index()]))
        {
            Some((id, page, lpn)) => Err(format!(
                "#{id}: {page:?} is listed at LPN {lpn}, and its data is not there"
            )),
            None => Ok(()),
        }
    }

    /// Makes the lists found after a recovery definite.
    pub(crate) fn adopt(&mut self, found: &Listing) {
        self.events.clear();
        self.leaky = true;

        for (inode, blocks) in found {
            self.events.extend(blocks.iter().map(|block| {
                let page = FilePage {
                    inode: *inode,
                    offset: block.offset,
                };
                FileMapEvent {
                    id: 0,
                    op: FileMapOp::Page {
                        page,
                        lpn: block.lpn,
                    },
                    acknowledged: true,
                }
            }));
        }
    }
}

fn listing(events: &[FileMapEvent]) -> Listing {
    let mut listing = Listing::new();
    for event in events {
        if let FileMapOp::Page { page, lpn } = event.op {
            listing.entry(page.inode).or_default().push(FileBlock {
                offset: page.offset,
                lpn,
            });
        }
    }
    listing
}

/// An unacknowledged page of a file that is listed, and the LPN of its data.
type KeptPage = (CommandId, FilePage, Lpn);

/// Checks that these lists can result from these pages. Returns the unacknowledged pages that are
/// listed, and the number of those that are not.
fn explain(pages: &[FileMapEvent], found: &Listing) -> Result<(Vec<KeptPage>, u64), String> {
    let inodes: BTreeSet<u32> = listing(pages)
        .into_keys()
        .chain(found.keys().copied())
        .collect();

    let (mut kept, mut dropped) = (Vec::new(), 0);
    for inode in inodes {
        let mut listed = found
            .get(&inode)
            .map_or(&[][..], |blocks| blocks)
            .iter()
            .copied()
            .peekable();
        // The listed pages must be a subsequence of those submitted, with all acknowledged ones.
        for event in pages {
            let FileMapOp::Page { page, lpn } = event.op else {
                continue;
            };
            if page.inode != inode {
                continue;
            }

            let is_next = listed.peek()
                == Some(&FileBlock {
                    offset: page.offset,
                    lpn,
                });
            if is_next {
                listed.next();
            }

            match (is_next, event.acknowledged) {
                (true, false) => kept.push((event.id, page, lpn)),
                (false, true) => {
                    return Err(format!(
                        "#{}: {page:?}, acknowledged, is not listed in its place",
                        event.id
                    ));
                }
                (false, false) => dropped += 1,
                (true, true) => {}
            }
        }
        if let Some(block) = listed.next() {
            return Err(format!(
                "file {inode} lists {block:?}, which was never written, or not there"
            ));
        }
    }

    Ok((kept, dropped))
}

/// Reads all of the firmware's lists.
///
/// # Errors
/// The file map cannot be read.
pub(crate) fn observe(ftl: &mut Ftl) -> Result<Listing, String> {
    let mut found = Listing::new();
    if ftl.config().fs_files == 0 {
        return Ok(found);
    }
    let cannot = |refusal| format!("the file map cannot be read: {refusal}");
    for inode in ftl.fs_files().map_err(cannot)? {
        let blocks = ftl.fs_map(inode).map_err(cannot)?;
        if blocks.is_empty() {
            return Err(format!("file {inode} is listed and has no pages"));
        }
        found.insert(inode, blocks);
    }
    ftl.media_mut().ops.clear();
    Ok(found)
}
