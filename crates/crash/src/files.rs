//! What the host may find in the file map: the model that `fs_write` and its reset are judged by.
//!
//! All commands on the map since it was last looked at, in order of submission. After a cut the
//! lists are those that some reset began: none that is older than an acknowledged reset, or than
//! one before an acknowledged page. What was acknowledged between it and the next one is listed, in
//! order; what was not is listed or not; a page listed has its data. Invariant: `submit` sees every
//! command on the map. Absent: what pages hold (the oracle's).

use crate::oracle::{CommandId, Oracle};
use remap_ssd_ftl::{Config, FileBlock, FilePage, FileStatus, Ftl, Lpn};
use std::collections::{BTreeMap, BTreeSet};

/// What the firmware lists: files and their pages, in order.
pub type Listing = BTreeMap<u32, Vec<FileBlock>>;

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

/// How the commands under way at a cut ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileVerdict {
    /// Pages listed although not acknowledged.
    pub kept: u64,
    /// Pages neither acknowledged nor listed.
    pub dropped: u64,
    /// Resets under way that happened.
    pub resets_kept: u64,
    /// Resets under way that did not.
    pub resets_dropped: u64,
}

/// Model of the file map: what may be listed after a cut.
#[derive(Clone, Debug, Default)]
pub struct FileModel {
    events: Vec<FileMapEvent>,
    /// A cut since the last reset may have left places that are not used again.
    leaky: bool,
}

impl FileModel {
    /// A page was written for a file.
    ///
    /// # Errors
    /// The firmware's answer cannot be right.
    pub fn submit(
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
            // A place that a torn entry has spoilt is used up, and how many there are only the
            // firmware knows.
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

    /// Notes that the map was reset.
    pub fn reset(&mut self, id: CommandId) {
        self.events.push(FileMapEvent {
            id,
            op: FileMapOp::Reset,
            acknowledged: false,
        });
        self.leaky = false;
    }

    /// The host saw the acknowledgement of a command.
    pub fn acknowledge(&mut self, id: CommandId) {
        self.events
            .iter_mut()
            .filter(|event| event.id == id)
            .for_each(|event| event.acknowledged = true);
    }

    /// What is listed while power is on.
    pub fn live(&self) -> Listing {
        let start = self
            .events
            .iter()
            .rposition(|event| matches!(event.op, FileMapOp::Reset))
            .map_or(0, |at| at + 1);
        listing(&self.events[start..])
    }

    /// May a cut now, with a recovery after it, leave these lists, on a device that reads like
    /// `read`?
    ///
    /// # Errors
    /// What cannot be.
    pub fn judge(
        &self,
        found: &Listing,
        oracle: &Oracle,
        read: &[u64],
    ) -> Result<FileVerdict, String> {
        let is_reset = |event: &FileMapEvent| matches!(event.op, FileMapOp::Reset);
        let resets: Vec<usize> = (0..self.events.len())
            .filter(|at| is_reset(&self.events[*at]))
            .collect();

        // A reset certainly happened if it was acknowledged, or if a page after it was: the page is
        // listed only in the map that the reset began.
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
        // Each reset under way may have happened or not, so each may have begun the lists. The
        // first that explains them is as good as any.
        for start in starts {
            let end = resets
                .iter()
                .copied()
                .find(|at| *at >= start)
                .unwrap_or(self.events.len());
            match explain(&self.events[start..end], found) {
                Ok((kept, dropped)) => {
                    // The lists fit; a page that is listed without an acknowledgement must have
                    // its data, too.
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

    /// What is listed after a recovery becomes the truth.
    pub fn adopt(&mut self, found: &Listing) {
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

/// A page of a file that is listed though not acknowledged, and where its data is.
type KeptPage = (CommandId, FilePage, Lpn);

/// Are these lists what is left of these pages? Which of those not acknowledged are listed, and how
/// many are not?
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
        // What is listed must be a subsequence of what was submitted, with all that was
        // acknowledged.
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
                "file {inode} lists {block:?}, which nobody wrote, or not there"
            ));
        }
    }

    Ok((kept, dropped))
}

/// Everything that the firmware lists.
///
/// # Errors
/// It cannot say.
pub fn observe(ftl: &mut Ftl) -> Result<Listing, String> {
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
