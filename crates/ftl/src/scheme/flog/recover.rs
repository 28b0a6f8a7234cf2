//! Recovery of the log and the two buffers, and rebuilding of unreadable entries.
//!
//! Log pages come first, oldest superblock first; then the buffers saved by the capacitor, which
//! are programmed before hosts are served.
//!
//! Invariants: recovery fails if a log page cannot be read or rebuilt, since its entries are stored
//! nowhere else; entries of aborted commands become no witnesses, and their superblocks are
//! rewritten. Absent: which witness wins (`witnesses`).

use super::{BUFFER_WORDS, FLog, superblocks_needed};
use crate::contract::{Recover, Remapping};
use crate::core::Core;
use crate::error::RecoveryError;
use crate::mapping::tables::Tables;
use crate::recovery::witnesses::Witnesses;
use crate::scheme::device_log::{DeviceLog, LogMedium, add_witness};
use crate::scheme::index::OwnerIndex;
use crate::scheme::log_entry::{ENTRIES_PER_PAGE, LogEntry};
use crate::scheme::log_pages;
use crate::superblock::Superblocks;
use remap_ssd_media::{After, Media, MediaError};
use std::collections::BTreeSet;
use zerocopy::FromBytes;

impl Recover for DeviceLog<FLog> {
    fn replay(&mut self, core: &mut Core, witnesses: &mut Witnesses) -> Result<(), RecoveryError> {
        let Self {
            medium: log, index, ..
        } = self;
        // Oldest superblock first, so that pages and the index are in the order in which they were
        // written.
        for sb in core.blocks.logs_by_age() {
            log.superblocks.push(sb);
            let found = log_pages::read(
                &core.blocks,
                &mut core.media,
                core.config.guards,
                sb,
                &mut witnesses.report.log_pages,
            );
            // Its entries may be the newest of any LPN, and are stored nowhere else.
            if let Some(page) = found.lost {
                return Err(RecoveryError::LogDamaged { page: page.0 });
            }
            for at in found.pages {
                log.pages.push(at.page);
                for entry in at.bytes.chunks_exact(16) {
                    let first = u64::read_from_bytes(&entry[..8]).expect("8 bytes");
                    let second = u64::read_from_bytes(&entry[8..]).expect("8 bytes");
                    if !add_witness(core, index, witnesses, [first, second]) {
                        log.aborted.insert(sb);
                    }
                }
            }
        }

        let mut saved: Vec<[u64; 2]> = Vec::new();
        for word in (log.base..log.base + BUFFER_WORDS).step_by(2) {
            let words = [core.media.load(word), core.media.load(word + 1)];
            let [Ok(first), Ok(second)] = words else {
                LogEntry::doubt(&core.blocks, &core.config, witnesses, words)
                    .map_err(|_| RecoveryError::NvramDamaged { word })?;
                continue;
            };
            if first | second != 0 {
                saved.push([first, second]);
            }
        }

        // Entries of aborted commands are not written to flash: their numbers vanish with the
        // buffers.
        saved.retain(|words| add_witness(core, index, witnesses, *words));
        log.saved = saved.concat();
        Ok(())
    }

    fn resume(&mut self, core: &mut Core) -> bool {
        self.fullest = core.blocks.remapped_max();
        let Self {
            medium: log, index, ..
        } = self;
        index.sort();

        // The saved entries go to flash. Their page may have been programmed already: duplicates
        // are harmless.
        let saved = std::mem::take(&mut log.saved);
        // The buffers survive power loss as they are. Nothing is lost; remaps are refused until
        // there is space.
        if core.clock.is_used_up() || !log.page_is_secured(&core.blocks) {
            log.stuck = !saved.is_empty();
            return true;
        }

        // Cuts during reclaiming leave both logs, one more each time. The only remedy is to rewrite
        // everything.
        let crowded =
            log.superblocks.len() > superblocks_needed(&core.config, &core.geometry) as usize;
        let is_programmed = if crowded || log.pages.len() + 2 > log.pages_max {
            log.rewrite(core, index, true)
        } else {
            let mut pages = saved.chunks(log.slots * 2);
            pages.all(|words| log.program(core, words).is_some())
        };
        if !is_programmed {
            log.stuck = true;
            return true;
        }

        // 1. the pages of the saved entries  2. zeroes, after everything. Cut between: both have
        // the same content.
        log.clears = [0, 1].map(|buffer| {
            core.media
                .clear_capacitor(log.word(buffer, 0), ENTRIES_PER_PAGE * 2, After::ALL)
        });

        true
    }

    fn drop_aborted(&mut self, core: &mut Core) {
        let Self {
            medium: log, index, ..
        } = self;
        log.aborted.retain(|sb| log.superblocks.contains(sb));
        if !log.aborted.is_empty() && log.can_reclaim(core) {
            log.rewrite(core, index, true);
        }
    }
}

impl FLog {
    /// Rebuilds buffered entries with unreadable words from the tables; an entry that is no longer
    /// in force becomes zeroes. Several entries may match the readable part, since those of an
    /// atomic command share one number: the one that is nowhere else in the log is meant.
    #[cold]
    pub(super) fn make_up_for(
        &self,
        index: &OwnerIndex,
        tables: &Tables,
        blocks: &Superblocks,
        media: &mut Media,
        words: &mut [u64],
        damaged: &[(usize, [Result<u64, MediaError>; 2])],
    ) {
        // The entries elsewhere in the log are known only from reading it.
        self.charge_scan(media);
        let mut logged: BTreeSet<[u64; 2]> = words
            .chunks_exact(2)
            .map(|entry| [entry[0], entry[1]])
            .collect();
        for bytes in self
            .pages
            .iter()
            .filter_map(|page| media.meta_uncharged(*page).ok())
        {
            let (entries, _) = bytes.as_chunks::<16>();
            logged.extend(
                entries
                    .iter()
                    .map(|entry| -> [u64; 2] { zerocopy::transmute!(*entry) }),
            );
        }

        for &(slot, found) in damaged {
            let [first, second] =
                found.map(|word| word.map(|word| LogEntry::from_words([word, word])));
            let fits = |known: &Remapping| {
                first.map_or(true, |first| first.wsn() == known.wsn)
                    && second.map_or(true, |second| {
                        (second.lpn(), second.ppn()) == (known.lpn, known.ppn.0)
                    })
                    && tables.is_in_force(known.lpn, known.ppn, known.wsn)
                    && !logged.contains(&LogEntry::of(blocks, tables.geometry, known).words())
            };
            if let Some(meant) = index
                .iter(tables.geometry)
                .filter(fits)
                .max_by_key(|known| known.wsn)
            {
                let meant = LogEntry::of(blocks, tables.geometry, &meant).words();
                words[slot..slot + 2].copy_from_slice(&meant);
                logged.insert(meant);
            }
        }
    }
}
