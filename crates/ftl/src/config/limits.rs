//! Requirements of a configuration on a device, and its validation.
//!
//! Each part knows its own limits; the catalogue knows the scheme's. Invariant: a `Config` that
//! passed `check` leaves garbage collection enough room to always gain space. Absent: the
//! parameters (`config`).

use crate::config::layout::NvramLayout;
use crate::config::{ATOMIC_PAGES_MAX, Config};
use crate::contract::FlashNeed;
use crate::error::ConfigError;
use crate::scheme::catalogue::spec;
use remap_ssd_media::Geometry;
use remap_ssd_media::geometry::PAGE_BYTES;

/// Bytes of the smallest mapping cache.
const CACHE_BYTES_MIN: u64 = 64;
/// Pages of the smallest write buffer.
const BUFFER_SLOTS_MIN: u64 = 2;
/// Bytes of the largest one: its slots have numbers of 31 bits.
const BUFFER_BYTES_MAX: u64 = (u32::MAX / 2) as u64 * PAGE_BYTES as u64;
/// Largest share of the superblocks in SLC mode.
const SLC_SHARE_MAX: f64 = 0.5;

impl Config {
    /// Words of NVRAM that the media must have.
    pub fn nvram_words(&self, geometry: &Geometry) -> usize {
        NvramLayout::new(self, geometry).scheme + (spec(self.scheme).nvram_words)(self, geometry)
    }

    /// Bytes of mapping tables that the scheme keeps in NVRAM; `log_bytes` must be at least as
    /// large.
    pub fn tables_bytes(&self, geometry: &Geometry) -> u64 {
        (spec(self.scheme).tables_bytes)(self, geometry)
    }

    /// Superblocks that the scheme takes from the space for data.
    fn flash_need(&self, geometry: &Geometry) -> FlashNeed {
        (spec(self.scheme).flash_need)(self, geometry)
    }

    /// Superblocks kept free so that garbage collection and a flash log can always make progress: a
    /// victim's pages may open one in every zone before the victim is erased, an atomic command
    /// takes two without collecting, translation pages take one, and folding may have opened one in every zone:
    /// all of this in every group of dies.
    pub(crate) fn reserve(&self, geometry: &Geometry) -> u32 {
        let opens = 2 + self.gc_opens() as u32 + self.table_opens() + self.fold_opens();
        geometry.groups() * opens + self.flash_need(geometry).spare
    }

    /// Free superblocks at which garbage collection starts.
    pub fn gc_start(&self, geometry: &Geometry) -> u32 {
        let superblocks = geometry.superblocks() - self.slc_superblocks(geometry);
        ((f64::from(superblocks) * self.gc_free) as u32).max(self.reserve(geometry) + 1)
    }

    /// Free superblocks in SLC mode at which folding begins while the host writes.
    pub(crate) fn fold_start(&self, geometry: &Geometry) -> u32 {
        (f64::from(self.slc_most(geometry)) * self.slc_fold_free) as u32
    }

    /// Checks that the parameters are consistent.
    ///
    /// # Errors
    /// One sentence: the problem and what would work.
    pub fn check(&self, geometry: &Geometry) -> Result<(), ConfigError> {
        let fail = |text: String| Err(ConfigError(text));
        if self.lpns == 0 || self.lpns >= 1 << 31 {
            return fail(format!("lpns = {} must be 1 to 2147483647", self.lpns));
        }

        if self.gc_choices == 0 {
            return fail("gc_choices = 0 must be at least 1".into());
        }

        for key in self.scheme.facts().keys {
            let value = self.own(key);
            if !(key.least..=key.most).contains(&value) {
                let (name, least, most) = (key.name, key.least, key.most);
                return fail(format!("{name} = {value} must be {least} to {most}"));
            }
        }

        if geometry.pages_per_superblock() < self.metadata_pages(geometry) + 3 {
            return fail(format!(
                "a superblock of {} pages is too small for its head, {} tail pages and data: use more dies or pages per block",
                geometry.pages_per_superblock(),
                self.tail_pages(geometry)
            ));
        }

        self.check_protection(geometry)?;
        let pads = self.pads_most(geometry);
        if self.data_pages(geometry) <= pads {
            return fail(format!(
                "a superblock of {} pages of data is too small for garbage collection, which fills word lines up with {pads} pages: use more dies or pages per block",
                self.data_pages(geometry)
            ));
        }

        self.check_slc(geometry)?;
        self.check_mapping(geometry)?;
        self.check_room(geometry)?;
        self.check_ranges()?;
        self.check_refresh(geometry)?;
        self.check_mapping_cache()?;
        self.check_write_buffer(geometry)?;
        self.check_untorn()?;
        crate::records::files::check(self)?;
        (spec(self.scheme).check)(self, geometry)?;
        self.check_nvram(geometry)
    }

    /// Checks that garbage collection finds room beside all logical pages.
    fn check_room(&self, geometry: &Geometry) -> Result<(), ConfigError> {
        let fail = |text: String| Err(ConfigError(text));
        let (needed_pages, data) = self.pages_needed(geometry);

        // Open superblocks (host, GC's zones) and the reserve hold no closed data; one more gives
        // GC space to gain. A log on flash takes more.
        let log = self.flash_need(geometry).held;
        let opens = 2 + self.gc_opens() as u32 + self.table_opens() + self.slc_opens();
        let open = u64::from(geometry.groups() * opens);
        let busy = u64::from(self.reserve(geometry) + log) + open;
        if self.scheme.keeps_entries_on_flash() && geometry.groups() > 1 {
            return fail(format!(
                "scheme {} keeps entries on flash, in superblocks across all {} dies: leave superblock_dies out",
                self.scheme,
                geometry.dies_total()
            ));
        }

        // Superblocks in SLC mode are no room for collected data.
        let superblocks = geometry.superblocks() - self.slc_superblocks(geometry);
        let needed = needed_pages.div_ceil(data) + busy;
        if needed > u64::from(superblocks) {
            let beside = needed_pages - u64::from(self.lpns) - u64::from(self.internal_lpns());
            let have = (u64::from(superblocks).saturating_sub(busy) * data).saturating_sub(beside);
            let most = have.saturating_sub(u64::from(self.internal_lpns()) + 1);
            if self.lpns > geometry.pages() {
                return fail(format!(
                    "lpns = {} is too much for {} flash pages ({} superblocks of {} dies with {} pages per block): use at most {most} \
                     logical pages",
                    self.lpns,
                    geometry.pages(),
                    geometry.superblocks(),
                    geometry.dies(),
                    geometry.pages_per_block()
                ));
            }
            return fail(format!(
                "over-provisioning is too small for garbage collection: {} logical pages need {needed} superblocks and \
                 there are {superblocks}; use at most {most} logical pages",
                self.lpns
            ));
        }
        Ok(())
    }

    /// Checks that nothing leaves word lines incomplete if the controller's buffer does not survive a cut.
    fn check_protection(&self, geometry: &Geometry) -> Result<(), ConfigError> {
        if self.power_loss_protection || geometry.stripe() == 1 {
            return Ok(());
        }
        if self.scheme.keeps_entries_on_flash() {
            return Err(ConfigError(format!(
                "scheme {} programs single pages of entries, which would each take a word line of {} pages: use power_loss_protection = true",
                self.scheme,
                geometry.stripe()
            )));
        }
        if self.die_by_lpn && geometry.groups() > 1 {
            return Err(ConfigError(
                "die_by_lpn leaves word lines of several dies incomplete, which a cut would damage: use power_loss_protection = true".into(),
            ));
        }
        Ok(())
    }

    /// Checks that refreshing the whole device takes fewer numbers than a superblock's age may reach. Otherwise
    /// refreshes alone would make superblocks due.
    fn check_refresh(&self, geometry: &Geometry) -> Result<(), ConfigError> {
        let least = u64::from(geometry.pages());
        if (1..least).contains(&self.refresh_writes) {
            return Err(ConfigError(format!(
                "refresh_writes = {} must be 0 or at least the {least} pages of the flash",
                self.refresh_writes
            )));
        }
        Ok(())
    }

    /// Checks that entries of L2P can be cached one by one.
    fn check_mapping_cache(&self) -> Result<(), ConfigError> {
        if !self.caches_mapping() {
            return Ok(());
        }
        let fail = |text: String| Err(ConfigError(text));
        let bytes = self.mapping_cache_bytes;
        if bytes < CACHE_BYTES_MIN {
            return fail(format!(
                "mapping_cache_bytes = {bytes} must be 0 or at least {CACHE_BYTES_MIN}"
            ));
        }
        if self.is_hybrid() {
            return fail("mapping_cache_bytes works with mapping = \"page\" only: a hybrid table is small enough for DRAM".into());
        }
        if self.scheme.facts().table_store_bytes > 0 {
            return fail(format!(
                "scheme {} keeps its mapping tables in NVRAM and has no use for mapping_cache_bytes",
                self.scheme
            ));
        }
        Ok(())
    }

    /// Checks the size of the write buffer, and that its pages may go to flash in any order.
    fn check_write_buffer(&self, geometry: &Geometry) -> Result<(), ConfigError> {
        let bytes = self.write_buffer_bytes;
        if bytes == 0 {
            return Ok(());
        }
        let fail = |text: String| Err(ConfigError(text));
        let least = BUFFER_SLOTS_MIN * geometry.page_bytes() as u64;
        if !(least..=BUFFER_BYTES_MAX).contains(&bytes) {
            return fail(match geometry.host_pages() {
                1 => format!(
                    "write_buffer_bytes = {bytes} must be 0 or {least} to {BUFFER_BYTES_MAX}"
                ),
                _ => format!(
                    "write_buffer_bytes = {bytes} must be 0 or {least} to {BUFFER_BYTES_MAX}, two indirection units or more: \
                     the buffer holds units of {} bytes",
                    geometry.page_bytes()
                ),
            });
        }
        if self.is_hybrid() {
            return fail("write_buffer_bytes works with mapping = \"page\" only: hybrid mapping puts blocks in the order in which they are written".into());
        }
        // What a capacitor saves is checked with the rest of the NVRAM.
        let flash = u64::from(geometry.pages()) * geometry.page_bytes() as u64;
        if self.has_volatile_buffer() && bytes > flash {
            return fail(format!(
                "write_buffer_bytes = {bytes} must be at most the {flash} bytes of the flash"
            ));
        }
        Ok(())
    }

    /// Checks the size of the largest write that a power cut must not tear.
    fn check_untorn(&self) -> Result<(), ConfigError> {
        let (bytes, most) = (
            self.untorn_bytes,
            u64::from(ATOMIC_PAGES_MAX) * PAGE_BYTES as u64,
        );
        if bytes > most || !bytes.is_multiple_of(PAGE_BYTES as u64) {
            return Err(ConfigError(format!(
                "untorn_bytes = {bytes} must be 0 to {most}, in steps of {PAGE_BYTES}"
            )));
        }
        Ok(())
    }

    /// Checks that cells can store fewer bits, and that a superblock has room for data then.
    fn check_slc(&self, geometry: &Geometry) -> Result<(), ConfigError> {
        let share = self.slc_share;
        let fail = |text: String| Err(ConfigError(text));
        if !(0.0..=SLC_SHARE_MAX).contains(&share) {
            return fail(format!("slc_share = {share} must be 0 to {SLC_SHARE_MAX}"));
        }
        for (name, share) in [
            ("slc_fold_free", self.slc_fold_free),
            ("slc_fold_garbage", self.slc_fold_garbage),
        ] {
            if !(0.0..=1.0).contains(&share) {
                return fail(format!("{name} = {share} must be 0 to 1"));
            }
        }
        let dynamic = self.slc_dynamic;
        if !(0.0..=1.0).contains(&dynamic) {
            return fail(format!("slc_dynamic = {dynamic} must be 0 to 1"));
        }
        let name = match (share > 0.0, dynamic > 0.0) {
            (false, false) => return Ok(()),
            (true, true) => {
                return fail(
                    "slc_share and slc_dynamic are two kinds of one cache: set one of them to 0"
                        .into(),
                );
            }
            (true, false) => "slc_share",
            (false, true) => "slc_dynamic",
        };
        let bits = geometry.word_line().bits;
        if bits == 1 {
            return fail(format!(
                "{name} needs geometry.cell_bits above 1: cells of one bit are always in SLC mode"
            ));
        }
        let area = self.slc_area(geometry);
        let line = area.line();
        let metadata = line + self.tail_pages(geometry).next_multiple_of(line);
        if geometry.dies() * area.rows() <= metadata {
            return fail(format!(
                "a superblock of {} pages in SLC mode is too small for its metadata of {metadata} pages: use more dies or pages per block",
                geometry.dies() * area.rows()
            ));
        }
        // A fold must gain space, with as many live pages as it may find.
        let most = geometry.dies() * area.rows() - metadata;
        let (pads, data) = (self.pads_most(geometry), self.data_pages(geometry));
        if dynamic > 0.0 && most + pads >= data {
            return fail(format!(
                "folding a superblock of {most} pages in SLC mode may take {pads} pads, and gains nothing with {data} pages of data: use more dies or pages per block"
            ));
        }
        Ok(())
    }

    fn check_ranges(&self) -> Result<(), ConfigError> {
        let fail = |text: String| Err(ConfigError(text));
        if self.count_max < 2 {
            return fail(format!("count_max = {} must be 2 to 65535", self.count_max));
        }

        if !(0.0..=1.0).contains(&self.watermark) || !(0.0..0.9).contains(&self.gc_free) {
            return fail("watermark must be 0 to 1 and gc_free 0 to 0.9".into());
        }

        if !(0.0..1.0).contains(&self.gc_garbage) {
            return fail(format!(
                "gc_garbage = {} must be 0 to below 1",
                self.gc_garbage
            ));
        }

        if self.dealloc_slots < 4 {
            return fail(format!(
                "dealloc_slots = {} must be at least 4",
                self.dealloc_slots
            ));
        }

        Ok(())
    }

    /// Checks that NVRAM is no larger than the flash: all of it is allocated, and no log needs
    /// more.
    ///
    /// # Errors
    /// One sentence: what is too large.
    fn check_nvram(&self, geometry: &Geometry) -> Result<(), ConfigError> {
        let nvram = self.nvram_words(geometry) as u64 * 8;
        let flash = u64::from(geometry.pages()) * geometry.page_bytes() as u64;
        if nvram <= flash {
            return Ok(());
        }

        let Self {
            log_bytes,
            dealloc_slots,
            fs_files,
            fs_blocks,
            ..
        } = self;
        let map = match fs_files {
            0 => String::new(),
            _ => format!(", fs_files = {fs_files}, fs_blocks = {fs_blocks}"),
        };
        let buffer = match self.write_buffer_bytes {
            bytes if bytes > 0 && self.power_loss_protection => {
                format!(", write_buffer_bytes = {bytes}")
            }
            _ => String::new(),
        };
        Err(ConfigError(format!(
            "the device has {flash} bytes of flash and would need {nvram} bytes of NVRAM: \
             use less of log_bytes = {log_bytes}, dealloc_slots = {dealloc_slots}{map}{buffer}"
        )))
    }

    /// Checks the requirements of hybrid mapping.
    ///
    /// # Errors
    /// One sentence: the problem and what would work.
    fn check_mapping(&self, geometry: &Geometry) -> Result<(), ConfigError> {
        let fail = |text: String| Err(ConfigError(text));
        if !(0.0..=1.0).contains(&self.extension) {
            return fail(format!("extension = {} must be 0 to 1", self.extension));
        }
        if !self.is_hybrid() {
            return Ok(());
        }

        if let Some(why) = self.scheme.needs_pages() {
            return fail(format!(
                "scheme {} {why} and works with mapping = page only",
                self.scheme
            ));
        }
        if self.gc_policy.zones() > 1 {
            return fail(format!(
                "gc_policy = {} sorts pages into zones, and hybrid mapping puts them in order: use greedy, cost-benefit or d-choices",
                self.gc_policy
            ));
        }
        if geometry.stripe() > 1 {
            return fail(
                "hybrid mapping puts blocks in order page by page: leave planes, page_bytes and cell_bits out".into(),
            );
        }
        if geometry.groups() > 1 {
            return fail(
                "hybrid mapping puts blocks in order in one superblock at a time: leave superblock_dies out".into(),
            );
        }

        // A block must fit in a superblock that has lost some of its blocks.
        let most = (self.data_pages(geometry) / 2).min(4096);
        if !(2..=most).contains(&self.block_pages) {
            return fail(format!(
                "block_pages = {} must be 2 to {most}: half of the data pages of a superblock, 4096 at most",
                self.block_pages
            ));
        }
        Ok(())
    }
}
