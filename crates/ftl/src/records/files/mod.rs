//! The file map: which pages of which files were written since the host's last checkpoint
//! (MEMSYS'17 §4.2.2).
//!
//! `fs_write` writes a page and records in NVRAM which page of which file it is. A log-structured
//! file system then need not write its index blocks before its next checkpoint. It resets the map
//! after the checkpoint, and reads it back during its recovery. A hash table maps an inode to the
//! list of its pages; lists only grow; a reset is one atomic store, because every word carries its
//! generation.
//!
//! Invariants: pages acknowledged since the last reset are listed, in order; the data of a listed
//! page is durable. The entries alone are authoritative: table and links only serve lookups, and
//! recovery repairs them (`recover`). Absent: the host's use of the map. A listed page may have
//! been overwritten or deallocated since.

mod record;
mod recover;

use crate::config::Config;
use crate::config::guard::{Guard, Guards};
use crate::config::layout::NvramLayout;
use crate::error::ConfigError;
use crate::error::Contradiction;
use crate::mapping::tables::Tables;
use record::{ENTRY_WORDS, FileMapRegion, ListEnds, NONE, SLOT_WORDS, TaggedValue};
pub(crate) use recover::FileMapScan;
use remap_ssd_media::{After, ClearId, Lpn, Media, MediaError, Purpose};

/// A page of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePage {
    /// The file, by the host's inode number.
    pub inode: u32,
    /// Page offset within the file.
    pub offset: u32,
}

/// A page in a file's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileBlock {
    /// Page offset within the file.
    pub offset: u32,
    /// Logical page written for it.
    pub lpn: Lpn,
}

/// Outcome of an `fs_write`. In each case the data is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileStatus {
    /// The page is in its file's list.
    Recorded,
    /// Not listed: the table of files is full.
    FilesFull,
    /// Not listed: the room for pages is full.
    BlocksFull,
    /// Not listed: the map's NVRAM is damaged. A reset repairs it.
    MapDamaged,
}

/// DRAM state of the file map.
pub(crate) struct FileMap {
    guards: Guards,
    /// Writes of several pages are atomic: a page counts only once its write has ended.
    has_untorn: bool,
    region: FileMapRegion,
    generation: u32,
    /// Entry slots used since the last reset, including torn ones.
    used: u32,
    /// Files with a list.
    files: u32,
    pub(crate) damaged: bool,
    /// The zeroing that new entries must wait for.
    clear: ClearId,
}

/// Checks the parameters of the file map.
pub(crate) fn check(config: &Config) -> Result<(), ConfigError> {
    let (files, blocks) = (config.fs_files, config.fs_blocks);
    if (files == 0) != (blocks == 0) || files > 1 << 28 || blocks == NONE {
        return Err(ConfigError(format!(
            "fs_files = {files} and fs_blocks = {blocks} must both be 0, or fs_files 1 to {} and fs_blocks 1 to {}",
            1 << 28,
            NONE - 1
        )));
    }
    Ok(())
}

impl FileMap {
    pub(crate) fn new(config: &Config, layout: &NvramLayout) -> Self {
        Self {
            guards: config.guards,
            has_untorn: config.untorn_bytes > 0,
            region: FileMapRegion::of(config, layout),
            generation: 0,
            used: 0,
            files: 0,
            damaged: false,
            clear: ClearId::default(),
        }
    }

    /// Formats the file map's region of NVRAM.
    pub(crate) fn format(&mut self, media: &mut Media) {
        if self.region.files() > 0 {
            self.generation = 1;
            media.store(self.region.base, 1, Purpose::Meta, After::NOTHING);
        }
    }

    /// Records a page that has just been written to `lpn`.
    pub(crate) fn append(
        &mut self,
        media: &mut Media,
        tables: &Tables,
        lpn: Lpn,
        page: FilePage,
    ) -> Result<FileStatus, MediaError> {
        let region = self.region;
        if self.damaged {
            return Ok(FileStatus::MapDamaged);
        }

        // Checked before anything is stored. A full table is a status, not an error: the data is
        // written in any case.
        let slot = self.find(media, page.inode, Purpose::Host)?;
        if self.used == region.blocks {
            return Ok(FileStatus::BlocksFull);
        }

        let Some((slot, ends)) = slot else {
            return Ok(FileStatus::FilesFull);
        };
        if ends.is_none() && self.files == region.files() {
            return Ok(FileStatus::FilesFull);
        }

        // 1. the data: its page, and the entry of its remap if there is one, and the
        // end of an untorn write that it belongs to (fence)  2. the entry's
        // words, in any order. Cut before 2 or during it: some word has another generation and the
        // page is not listed.
        let mapping = tables.map.get(lpn).expect("it has just been written");
        let data = After::page(mapping.ppn).and(if mapping.remapped || self.has_untorn {
            After::FENCE
        } else {
            After::NOTHING
        });

        let after = self.guards.waits(Guard::FsAfterData, data);

        let index = self.used;
        let words = [lpn.into_bits(), page.offset, page.inode, NONE]
            .map(|value| TaggedValue::of(self.generation, value));
        media.store_record(
            region.entry(index),
            &words,
            Purpose::Host,
            after.and(After::clear(self.clear)),
        );

        self.used += 1;
        // Links, which recovery does not rely on: from the previous entry, and to the last one.
        let ends = match ends {
            Some(ListEnds { head, tail }) => {
                let link = TaggedValue::of(self.generation, index);
                media.store(region.entry(tail) + 3, link, Purpose::Meta, After::NOTHING);
                ListEnds { head, tail: index }
            }
            None => {
                self.files += 1;
                let name = TaggedValue::of(self.generation, page.inode);
                media.store(region.slot(slot), name, Purpose::Meta, After::NOTHING);
                ListEnds {
                    head: index,
                    tail: index,
                }
            }
        };

        media.store(
            region.slot(slot) + 1,
            ends.into(),
            Purpose::Meta,
            After::NOTHING,
        );
        Ok(FileStatus::Recorded)
    }

    /// The slot of a file with the ends of its list, or the slot it would get; `None` if the table
    /// is full.
    fn find(
        &self,
        media: &mut Media,
        inode: u32,
        purpose: Purpose,
    ) -> Result<Option<(u32, Option<ListEnds>)>, MediaError> {
        let region = self.region;
        let (mut found, mut probes) = (None, 0);
        for slot in region.probe(inode) {
            probes += 1;
            let name = TaggedValue::from_bits(media.load(region.slot(slot))?);
            // A free slot ends the search: files are never removed within a generation.
            if name.generation() != self.generation {
                found = Some((slot, None));
                break;
            }
            if name.value() == inode {
                found = Some((
                    slot,
                    Some(ListEnds::from(media.load(region.slot(slot) + 1)?)),
                ));
                break;
            }
        }

        media.charge_loads(probes * SLOT_WORDS, purpose);
        Ok(found)
    }

    pub(crate) fn list(&self, media: &mut Media, inode: u32) -> Result<Vec<FileBlock>, MediaError> {
        if self.damaged {
            return Err(MediaError::Uncorrectable);
        }

        let region = self.region;
        let Some((_, Some(ends))) = self.find(media, inode, Purpose::Host)? else {
            return Ok(Vec::new());
        };
        let (mut blocks, mut next) = (Vec::new(), ends.head);
        // Damage may corrupt links. The number of entries bounds the walk, so that it ends even in
        // a cycle.
        while next != NONE && blocks.len() < self.used as usize {
            let at = region.entry(next);
            let mut value = |word| {
                media
                    .load(at + word)
                    .map(|bits| TaggedValue::from_bits(bits).value())
            };
            blocks.push(FileBlock {
                lpn: Lpn::from_bits(value(0)?),
                offset: value(1)?,
            });
            next = if next == ends.tail { NONE } else { value(3)? };
        }

        media.charge_loads(blocks.len() * ENTRY_WORDS, Purpose::Host);
        Ok(blocks)
    }

    pub(crate) fn inodes(&self, media: &mut Media) -> Result<Vec<u32>, MediaError> {
        if self.damaged {
            return Err(MediaError::Uncorrectable);
        }

        let region = self.region;
        media.charge_loads(region.slots as usize * SLOT_WORDS, Purpose::Host);

        let mut inodes = Vec::new();
        for slot in 0..region.slots {
            let name = TaggedValue::from_bits(media.load(region.slot(slot))?);
            if name.generation() == self.generation {
                inodes.push(name.value());
            }
        }

        inodes.sort_unstable();
        Ok(inodes)
    }

    pub(crate) fn reset(&mut self, media: &mut Media) {
        let region = self.region;
        // Damaged words belong to generations that end here.
        let damaged = std::mem::take(&mut self.damaged);
        (self.used, self.files) = (0, 0);
        if self.generation == u32::MAX {
            return self.start_over(media);
        }

        // One store. Entries of earlier generations never count again; one of the new generation
        // that lands before this store proves that the reset happened.
        self.generation += 1;
        media.store(
            region.base,
            self.generation.into(),
            Purpose::Host,
            After::clear(self.clear),
        );

        // After the reset, so that a cut leaves either all lists or none.
        if damaged {
            self.clear = media.clear(region.base + 1, region.words() - 1, After::FENCE);
        }
    }

    /// Restarts at generation 1 when all generations have been used.
    fn start_over(&mut self, media: &mut Media) {
        // 1. generation 0: nothing counts  2. zeroes  3. generation 1  4. entries (fence). Cut
        // before 1: as if not reset. After 1: reset, and recovery continues with 2.
        let region = self.region;
        media.store(region.base, 0, Purpose::Host, After::NOTHING);
        self.clear = media.clear(region.base + 1, region.words() - 1, After::FENCE);
        media.store(region.base, 1, Purpose::Meta, After::clear(self.clear));
        media.fence();
        self.generation = 1;
    }

    /// Compares table, links and entries.
    pub(crate) fn check(&self, media: &Media) -> Result<(), Contradiction> {
        if self.region.files() == 0 || self.damaged {
            return Ok(());
        }

        let region = self.region;
        let word = |at: usize| TaggedValue::from_bits(media.peek(at));
        let (mut listed, mut files) = (0, 0);
        for slot in 0..region.slots {
            let name = word(region.slot(slot));
            if name.generation() != self.generation {
                continue;
            }

            files += 1;
            let ListEnds { head, tail } = ListEnds::from(media.peek(region.slot(slot) + 1));
            let (mut at, mut last) = (head, None);
            while at != NONE {
                let entry = |index| word(region.entry(at) + index);
                let whole =
                    || (0..ENTRY_WORDS).all(|index| entry(index).generation() == self.generation);
                let follows = at < self.used && last.is_none_or(|last| at > last);
                if !follows || !whole() || entry(2).value() != name.value() {
                    return Err(Contradiction(format!(
                        "entry {at} of file {} is not one of its entries",
                        name.value()
                    )));
                }
                listed += 1;
                last = Some(at);
                at = entry(3).value();
            }

            if last != Some(tail) {
                return Err(Contradiction(format!(
                    "the list of file {} ends at {last:?} and not at {tail}",
                    name.value()
                )));
            }
        }

        let whole = |index: &u32| {
            (0..4).all(|at| word(region.entry(*index) + at).generation() == self.generation)
        };
        let entries = (0..self.used).filter(whole).count();
        if files != self.files || listed != entries {
            return Err(Contradiction(format!(
                "{files} files list {listed} of {entries} pages, and {} files are counted",
                self.files
            )));
        }

        Ok(())
    }
}
