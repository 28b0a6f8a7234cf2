//! Translation pages: the mapping table on flash, for controllers whose DRAM holds a part of it (DFTL, ASPLOS'09).
//!
//! A command looks its LPNs up first. An entry that is not cached costs a read of its translation page, for which
//! the command waits. Entries that collection changes are cached too, after reads that delay no command. At the
//! beginning of a command, or of a piece of one, the entries beyond the capacity leave; if one of them is
//! dirty, its translation page is read, merged with all cached changes and programmed. Translation pages have
//! superblocks of their own: nearly all of their pages are garbage soon, and collecting them moves little. What is moved goes
//! where collection puts other pages.
//!
//! Translation pages are internal LPNs, like bitmaps of deallocations: their newest version is found by the same rule as
//! any page, and collection moves them. They are no witnesses. After a power cut L2P is rebuilt from the witnesses
//! as ever, and entries that differ from the translation pages become dirty.
//!
//! Invariant: a translation page is programmed only where a page may be reclaimed: between pieces of commands.
//! Absent: which entries are cached (`mapping::cache`).

use crate::core::Core;
use crate::error::{Contradiction, Refusal};
use crate::ftl::Ftl;
use crate::mapping::cache::{Eviction, MappingCache, TRANSLATION_ENTRIES};
use crate::mapping::map::Map;
use crate::recovery::witnesses::RecoveryReport;
use crate::superblock::{AllocatedPage, Stream};
use remap_ssd_media::{Lpn, Purpose, StoredPage};
use std::sync::Arc;

impl Core {
    /// The LPNs of a translation page's entries.
    fn entries_of(&self, page: u32) -> impl Iterator<Item = Lpn> + use<> {
        let first = page * TRANSLATION_ENTRIES;
        Lpn::range(
            Lpn(first),
            TRANSLATION_ENTRIES.min(self.config.lpns - first),
        )
    }

    /// The content of a translation page as L2P is now.
    fn translation_page(&self, page: u32) -> Arc<[u8]> {
        let words = self
            .entries_of(page)
            .map(|lpn| self.tables.map.word(lpn).to_le_bytes());
        words.flatten().collect()
    }

    /// The LPNs whose entries differ from those on flash, of one translation page.
    fn outdated(&self, page: u32) -> Vec<Lpn> {
        let stored = self
            .tables
            .map
            .get(self.config.translation_lpn(page))
            .and_then(|mapping| self.media.meta_uncharged(mapping.ppn).ok());
        let word = |index: usize| {
            let bytes = stored.and_then(|bytes| bytes.get(4 * index..4 * index + 4));
            bytes.map_or(Map::UNMAPPED, |bytes| {
                u32::from_le_bytes(bytes.try_into().expect("four bytes"))
            })
        };
        self.entries_of(page)
            .enumerate()
            .filter(|(index, lpn)| word(*index) != self.tables.map.word(*lpn))
            .map(|(_, lpn)| lpn)
            .collect()
    }

    /// A command needs the entry of an LPN: its later operations wait until it is cached.
    #[inline(always)]
    pub(crate) fn look_up(&mut self, lpn: Lpn) {
        if self.tables.map.cache.is_some() {
            self.look_up_cached(lpn);
        }
    }

    #[cold]
    #[inline(never)]
    fn look_up_cached(&mut self, lpn: Lpn) {
        if let Some(cache) = &mut self.tables.map.cache {
            cache.touch(lpn, false);
        }
        self.read_missed(Purpose::Host);
    }

    /// Reads the translation pages of entries that were not cached.
    #[inline(always)]
    pub(crate) fn read_missed(&mut self, purpose: Purpose) {
        if self.tables.map.cache.is_some() {
            self.read_all_missed(purpose);
        }
    }

    #[cold]
    #[inline(never)]
    fn read_all_missed(&mut self, purpose: Purpose) {
        let cache = self.tables.map.cache.as_mut();
        if let Some(mut pages) = cache.and_then(|cache| cache.take_missed()) {
            // Collection knows all owners of a stretch of pages before it moves them.
            if purpose == Purpose::Gc {
                pages.sort_unstable();
                pages.dedup();
            }
            for page in pages {
                self.read_translation_page(page, purpose);
            }
        }
    }

    fn read_translation_page(&mut self, page: u32, purpose: Purpose) {
        // One that was never programmed has no mapped entry.
        if let Some(mapping) = self.tables.map.get(self.config.translation_lpn(page)) {
            self.media.charge_table_read(mapping.ppn, purpose);
            self.stats.table_reads += 1;
        }
    }

    /// A translation page cannot be read: its entries take the place of the page.
    #[cold]
    pub(crate) fn lose_translation_page(&mut self, lpn: Lpn) {
        self.read_missed(Purpose::Gc);
        self.unlink(lpn);
        let page = lpn.offset_from(self.config.translation_lpn(0));
        let entries: Vec<Lpn> = self
            .entries_of(page)
            .filter(|lpn| self.tables.map.word(*lpn) != Map::UNMAPPED)
            .collect();
        if let Some(cache) = &mut self.tables.map.cache {
            entries.into_iter().for_each(|lpn| cache.touch(lpn, true));
            cache.take_missed();
        }
    }
}

impl Ftl {
    /// Creates the mapping cache at power-on. Entries that differ from the translation pages are dirty.
    pub(crate) fn load_mapping_cache(&mut self, report: &mut RecoveryReport) {
        let core = &mut self.core;
        if !core.config.caches_mapping() {
            return;
        }
        let mut cache = MappingCache::new(core.config.lpns, core.config.mapping_cache_bytes);
        for page in 0..cache.pages() {
            if let Some(mapping) = core.tables.map.get(core.config.translation_lpn(page)) {
                core.media.charge_table_read(mapping.ppn, Purpose::Meta);
                report.translation_pages += 1;
            }
            core.outdated(page)
                .into_iter()
                .for_each(|lpn| cache.restore(lpn));
        }
        core.tables.map.cache = Some(Box::new(cache));
    }

    /// Largest size of the mapping cache since power-on, in bytes: commands and collection may exceed its capacity
    /// until the next command. 0 if the whole table is in DRAM.
    pub fn mapping_cache_peak_bytes(&self) -> u64 {
        let cache = self.core.tables.map.cache.as_ref();
        cache.map_or(0, |cache| cache.peak_bytes())
    }

    /// Lets entries leave the mapping cache until its capacity is met. Called where pages may be reclaimed.
    #[inline]
    pub(crate) fn make_cache_room(&mut self) -> Result<(), Refusal> {
        match &self.core.tables.map.cache {
            Some(cache) if cache.is_over() && !self.paused => self.evict_entries(),
            _ => Ok(()),
        }
    }

    #[cold]
    fn evict_entries(&mut self) -> Result<(), Refusal> {
        // Collection for translation pages may change entries in turn. The next command continues.
        let mut left = 2 * self.core.config.translation_pages();
        while let Some(cache) = &mut self.core.tables.map.cache {
            match cache.evict() {
                Eviction::Program(page) if left > 0 => self.program_translation_page(page)?,
                Eviction::Program(_) | Eviction::Done => break,
            }
            left -= 1;
        }
        Ok(())
    }

    /// Programs a translation page as L2P is now.
    fn program_translation_page(&mut self, page: u32) -> Result<(), Refusal> {
        let lpn = self.core.config.translation_lpn(page);
        loop {
            let taken = self.take_table_page()?;
            let core = &mut self.core;
            core.read_translation_page(page, Purpose::Meta);
            core.stats.meta_programs += 1;
            core.stats.table_programs += 1;
            // Its number only tells versions of this page apart, so it waits for nothing.
            let oob = taken.oob(lpn, core.clock.tick());
            let stored = StoredPage::Meta(core.translation_page(page));
            if core
                .media
                .program(taken.ppn(), oob, stored, Purpose::Meta, taken.after)
                .is_err()
            {
                core.fail_block_of(taken.ppn());
                continue;
            }
            core.programmed(taken.ppn(), Purpose::Meta);
            core.relink(lpn, taken.ppn(), false);
            if let Some(cache) = &mut core.tables.map.cache {
                cache.programmed(page);
            }
            return Ok(());
        }
    }

    /// Allocates a page for a translation page, collecting garbage if it is time.
    fn take_table_page(&mut self) -> Result<AllocatedPage, Refusal> {
        self.pace()?;
        loop {
            if let Some(taken) = self.core.blocks.take(Stream::Table) {
                return Ok(taken);
            }
            self.close(Stream::Table);
            self.collect_now()?;
            let core = &mut self.core;
            let (blocks, media) = (&mut core.blocks, &mut core.media);
            if !blocks.open_next(media, Stream::Table, &mut core.clock) {
                return Err(self.end_of_life());
            }
        }
    }

    /// Checks that every entry which differs from its translation page is cached and dirty.
    ///
    /// # Errors
    /// The first that is not.
    pub(crate) fn check_translation_pages(&self) -> Result<(), Contradiction> {
        let Some(cache) = &self.core.tables.map.cache else {
            return Ok(());
        };
        let is_readable = |page: &u32| {
            let place = self
                .core
                .tables
                .map
                .get(self.core.config.translation_lpn(*page));
            place.is_none_or(|mapping| self.core.media.is_readable(mapping.ppn))
        };
        let pages = (0..cache.pages()).filter(is_readable);
        let outdated = pages.flat_map(|page| self.core.outdated(page));
        match outdated.into_iter().find(|lpn| !cache.is_dirty(*lpn)) {
            Some(lpn) => Err(Contradiction(format!(
                "the entry of LPN {lpn} differs from its translation page, and is not dirty"
            ))),
            None => Ok(()),
        }
    }
}
