//! Recovery of commit records, and finding the pages they refer to.
//!
//! A record refers to the newest page that was written under its source for its target before the
//! record. A record is kept as long as a home needs it, once for each superblock with such a page.
//!
//! Invariants: a record without a torn bit, or of an aborted command, remaps nothing; an unreadable
//! one puts every home in doubt that it may have named. Absent: which witness wins (`witnesses`).

use super::record::{CommitRecord, SLOT_WORDS};
use super::{StoredCommit, Wal};
use crate::config::guard::{Guard, Guards};
use crate::contract::Recover;
use crate::core::Core;
use crate::error::RecoveryError;
use crate::mapping::tables::Tables;
use crate::recovery::witnesses::{HintedPage, Witnesses};
use remap_ssd_media::{ClearId, Lpn, Ppn, SbId};

impl Recover for Wal {
    fn replay(&mut self, core: &mut Core, witnesses: &mut Witnesses) -> Result<(), RecoveryError> {
        witnesses.charge_scan(&mut core.media, self.records.len() * SLOT_WORDS);

        // Sorted by LPN and number, as `page_meant` requires.
        let mut hinted = std::mem::take(&mut witnesses.hinted);
        hinted.sort_unstable();
        self.free.clear();

        let (mut torn, mut damaged) = (Vec::new(), Vec::new());
        for slot in 0..self.records.len() as u32 {
            let at = self.word(slot);
            let words = [core.media.load(at), core.media.load(at + 1)];
            let [Ok(first), Ok(second)] = words else {
                self.damaged.push(slot);
                let torn_bits = core.config.guards.has(Guard::TornBits);
                // A readable word without its torn bit shows that the record was never complete.
                if !(torn_bits && words.iter().flatten().any(|word| word & 1 == 0)) {
                    damaged.push(words);
                }
                continue;
            };

            if first | second == 0 {
                self.free.push_back((slot, ClearId::default()));
                continue;
            }

            let commit = CommitRecord::from_words([first, second]);
            let in_range = |from: Lpn| {
                u64::from(from) + u64::from(commit.len()) <= u64::from(core.config.lpns)
            };
            let intact = commit.is_intact() || !core.config.guards.has(Guard::TornBits);
            if !intact
                || !in_range(commit.target())
                || !in_range(commit.source())
                || witnesses.is_aborted(commit.wsn())
            {
                torn.push(slot);
                continue;
            }

            for (home, lpn) in commit.pairs() {
                if let Some(ppn) = page_meant(self.guards, &hinted, home, lpn, commit.wsn()) {
                    witnesses.remap(core, home, ppn, commit.wsn(), None);
                }
            }
            witnesses.saw(commit.wsn());
            self.records[slot as usize] = Some(StoredCommit { commit, places: 0 });
        }

        self.release(&mut core.media, torn);
        for [first, second] in damaged {
            let first = first.map(|first| CommitRecord::from_words([first, 0]));
            doubt(
                &core.tables,
                core.config.guards,
                witnesses,
                &hinted,
                first.ok(),
                second
                    .ok()
                    .map(|second| CommitRecord::from_words([0, second])),
            );
        }
        Ok(())
    }

    fn resume(&mut self, core: &mut Core) -> bool {
        // Zeroed after everything else, including the pages that mark the LPNs in doubt.
        let mut gone = std::mem::take(&mut self.damaged);
        for slot in 0..self.records.len() as u32 {
            let Some(record) = &mut self.records[slot as usize] else {
                continue;
            };
            let mut places: Vec<SbId> =
                Self::needed_in(&core.tables, &core.media, record.commit).collect();
            places.sort_unstable();
            places.dedup();
            record.places = places.len() as u32;
            places
                .iter()
                .for_each(|sb| self.groups[sb.0 as usize].push(slot));
            if places.is_empty() {
                gone.push(slot);
            }
        }

        self.release(&mut core.media, gone);
        true
    }
}

/// The newest page written under `lpn` for `home` before the record; of copies the one in the
/// younger superblock.
fn page_meant(
    guards: Guards,
    hinted: &[HintedPage],
    home: Lpn,
    lpn: Lpn,
    before: u64,
) -> Option<Ppn> {
    let from = hinted.partition_point(|page| page.lpn < lpn);
    let to = hinted.partition_point(|page| (page.lpn, page.wsn) < (lpn, before));
    let mut meant = hinted[from..to].iter().filter(|page| page.home == home);
    let newest = if guards.has(Guard::RecordNewest) {
        meant.next_back()
    } else {
        meant.next()
    };
    newest.map(|page| page.ppn)
}

/// Reports the homes in doubt because of a record with an unreadable word. Without the first word
/// these are the homes from the record's first one on for which pages were written; without the
/// second, all homes with a page waiting at that time.
fn doubt(
    tables: &Tables,
    guards: Guards,
    witnesses: &mut Witnesses,
    hinted: &[HintedPage],
    first: Option<CommitRecord>,
    second: Option<CommitRecord>,
) {
    let newest = first.map_or(u64::MAX, |first| first.wsn());
    if first.is_some_and(|first| witnesses.is_aborted_number(first.wsn())) {
        return;
    }

    for pages in hinted.chunk_by(|a, b| a.lpn == b.lpn) {
        for page in pages {
            let is_meant = second.is_none_or(|second| {
                page.lpn >= second.source()
                    && page.home.0.checked_sub(second.target().0)
                        == page.lpn.0.checked_sub(second.source().0)
            });

            // It was the newest page for its home, and was remapped while the LPN it was written
            // under still mapped to it.
            let is_possible = first.is_none_or(|_| {
                page_meant(guards, hinted, page.home, page.lpn, newest) == Some(page.ppn)
                    && !witnesses.is_between(page.lpn, page.wsn, newest)
            });

            if is_meant
                && is_possible
                && tables
                    .map
                    .get(page.home)
                    .is_none_or(|mapping| mapping.ppn != page.ppn)
            {
                witnesses.doubt(page.home, newest);
            }
        }
    }
}
