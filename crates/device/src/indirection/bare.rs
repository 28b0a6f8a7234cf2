//! The layer over a firmware without a device, for tests that cut the power: operations stay in the media's list.
//!
//! Absent: times.

use super::{Extent, Indirection};
use crate::command::{HostRemap, PageKind};
use remap_ssd_ftl::{Ftl, Lpn, Refusal, Remap};
use remap_ssd_media::{Page, Payload};

/// Indirection units of several pages, over a firmware whose pages are units.
///
/// ```
/// use remap_ssd_device::{DeviceConfig, IndirectionUnits, Lpn, Payload};
/// use remap_ssd_ftl::Ftl;
/// use remap_ssd_media::Media;
/// let config = DeviceConfig::from_toml(
///     "preset = \"fast21-32g\"\nscale = \"1/64\"\ncontent = \"bytes\"\n\
///      [geometry]\npage_bytes = 16384\nindirection_bytes = 16384",
/// )?;
/// let media = Media::in_memory(config.geometry, config.firmware.nvram_words(&config.geometry))?;
/// let mut ftl = Ftl::format(media, config.firmware.clone())?;
/// let mut units = IndirectionUnits::of(&ftl).ok_or("units are pages")?;
/// units.write(&mut ftl, Lpn(5), &Payload::Bytes(&[1; 4096]), None, false)?;
/// units.zero(&mut ftl, Lpn(4), 1)?;
/// assert_eq!(ftl.stats().host_programs, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct IndirectionUnits(Box<Indirection>);

impl IndirectionUnits {
    /// The layer of a firmware; `None` if its pages have 4 KiB.
    pub fn of(ftl: &Ftl) -> Option<Self> {
        let media = ftl.media();
        Indirection::new(&media.geometry(), media.mode()).map(Self)
    }

    /// Reads a page.
    ///
    /// # Errors
    /// The firmware's.
    pub fn read(&mut self, ftl: &mut Ftl, lpn: Lpn) -> Result<Page, Refusal> {
        let found = self.0.find_page(ftl, lpn.into(), &mut |_, _| {})?;
        Ok(self.0.read_found(ftl, found, lpn.into()))
    }

    /// Writes a page, with its home if it has one. `goes_on`: the next call continues the command.
    ///
    /// # Errors
    /// The firmware's.
    pub fn write(
        &mut self,
        ftl: &mut Ftl,
        lpn: Lpn,
        payload: &Payload<'_>,
        home: Option<Lpn>,
        goes_on: bool,
    ) -> Result<(), Refusal> {
        let kind = home.map_or(PageKind::Write, |home| PageKind::WriteFor {
            home: home.into(),
        });
        self.0
            .write_page(ftl, (lpn.into(), kind), payload, goes_on, &mut |_, _| {})
    }

    /// Announces a write of several pages, which a power cut leaves whole or absent.
    ///
    /// # Errors
    /// The firmware's.
    pub fn begin_write(&mut self, ftl: &mut Ftl, lpn: Lpn, len: u32) -> Result<(), Refusal> {
        self.0.begin_write(ftl, lpn.into(), len)
    }

    /// Deallocates pages exactly: they read as zeroes.
    ///
    /// # Errors
    /// The firmware's.
    pub fn zero(&mut self, ftl: &mut Ftl, lpn: Lpn, len: u32) -> Result<(), Refusal> {
        self.0
            .deallocate(ftl, lpn.into(), len, Extent::Pages, &mut |_, _| {})
    }

    /// Remaps pages.
    ///
    /// # Errors
    /// The firmware's, and `AtomicPartial`.
    pub fn remap(&mut self, ftl: &mut Ftl, remap: &Remap) -> Result<(), Refusal> {
        self.0.remap(ftl, &HostRemap::from(remap), &mut |_, _| {})
    }
}
