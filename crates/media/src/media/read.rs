//! Reading flash: data, metadata, OOB areas.
//!
//! Invariant: an unreadable page is an error; data is never made up. In a folder, every read and
//! copy verifies the checksums of data pages. Absent: the time of retries.

use super::{Media, MetaPage};
use crate::array::PageContents;
use crate::content::{Page, PageView};
use crate::fault::MediaError;
use crate::geometry::{Ppn, SbId};
use crate::oob::{OOB_BYTES, Oob, SECOND_BYTES, SecondOwner};
use crate::op::{After, Op, OpKind, Purpose, ReadOutcome};
use crate::slab::{LINE_BYTES, prefetch};
use std::sync::Arc;

impl Media {
    /// Reads a data page.
    ///
    /// # Errors
    /// `Uncorrectable`.
    #[inline]
    pub fn read(&mut self, ppn: Ppn, purpose: Purpose) -> Result<Page, MediaError> {
        self.begin_read(ppn, purpose)?;
        Ok(self.page(ppn))
    }

    /// Reads a data page, for a following `view`.
    ///
    /// # Errors
    /// `Uncorrectable`.
    #[inline]
    pub fn begin_read(&mut self, ppn: Ppn, purpose: Purpose) -> Result<(), MediaError> {
        // Charged first: a failed read has taken its time.
        self.charge_data_read(ppn, purpose)?;
        self.check_readable(ppn)?;
        if self.nand.is_whole(ppn) {
            Ok(())
        } else {
            Err(MediaError::Uncorrectable)
        }
    }

    /// Returns a data page that has been read.
    #[inline]
    pub fn page(&self, ppn: Ppn) -> Page {
        self.nand.page(ppn)
    }

    /// Returns a data page that has been read, by reference.
    #[inline]
    pub fn view(&self, ppn: Ppn) -> PageView<'_> {
        self.nand.view(ppn)
    }

    /// Reads a metadata page; `None` if the page is erased or holds none.
    ///
    /// # Errors
    /// `Uncorrectable`.
    pub fn read_meta(
        &mut self,
        ppn: Ppn,
        purpose: Purpose,
    ) -> Result<Option<MetaPage>, MediaError> {
        self.charge_read(ppn, purpose);
        if !self.nand.is_programmed(ppn) {
            return Ok(None);
        }
        // An erased page differs from an unreadable one: recovery ends its scan of a block at the
        // former, and continues past the latter.
        self.check_readable(ppn)?;
        Ok(self
            .nand
            .meta
            .get(&ppn.0)
            .map(|bytes| (self.nand.oob(ppn), bytes.clone())))
    }

    /// The bytes of a metadata page among many that are charged together (`charge`).
    ///
    /// # Errors
    /// `Uncorrectable`, also if the page holds no metadata.
    pub fn meta_uncharged(&self, ppn: Ppn) -> Result<&[u8], MediaError> {
        let bytes = self.nand.meta.get(&ppn.0).filter(|_| self.is_readable(ppn));
        bytes
            .map(|bytes| &bytes[..])
            .ok_or(MediaError::Uncorrectable)
    }

    /// The bytes of a metadata page that the firmware had in its buffers when it programmed the
    /// page; `None` if it holds none. Not a read: the page may be unreadable.
    pub fn meta_written(&self, ppn: Ppn) -> Option<&[u8]> {
        self.nand.meta.get(&ppn.0).map(|bytes| &bytes[..])
    }

    /// Returns the bytes of a metadata page to program: `fill` gets `len` bytes with arbitrary
    /// contents.
    pub fn meta_bytes(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Arc<[u8]> {
        self.nand.meta_bytes(len, fill)
    }

    /// Reads the OOB area of a page; `None` if the page is erased. Charged as a whole page read.
    ///
    /// # Errors
    /// `Uncorrectable`.
    pub fn read_oob(&mut self, ppn: Ppn, purpose: Purpose) -> Result<Option<Oob>, MediaError> {
        self.charge_read(ppn, purpose);
        if !self.nand.is_programmed(ppn) {
            return Ok(None);
        }
        self.check_readable(ppn)?;
        Ok(Some(self.nand.oob(ppn)))
    }

    /// Reads a page of tail metadata at `ppn`: the records of `len` pages from `first` on.
    ///
    /// # Errors
    /// `Uncorrectable`, also if the page is not a tail page.
    pub fn read_tail(&mut self, ppn: Ppn, first: Ppn, len: u32) -> Result<Vec<Oob>, MediaError> {
        self.charge_read(ppn, Purpose::Meta);
        if !self.nand.is_programmed(ppn) || self.nand.oob(ppn).lpn() != Oob::TAIL {
            return Err(MediaError::Uncorrectable);
        }

        self.check_readable(ppn)?;

        const EXTENDED: usize = OOB_BYTES + SECOND_BYTES;
        match self.nand.meta.get(&ppn.0) {
            // A tail that was durable at once is a view of the OOBs that it describes.
            None => Ok((first.0..first.0 + len)
                .map(|page| self.nand.oob(Ppn(page)))
                .collect()),
            Some(bytes) if bytes.len() == len as usize * OOB_BYTES => Ok(bytes
                .as_chunks::<OOB_BYTES>()
                .0
                .iter()
                .map(|bytes| Oob::from_bytes(*bytes))
                .collect()),
            Some(bytes) if bytes.len() == len as usize * EXTENDED => {
                let decode = |record: &[u8; EXTENDED]| {
                    let (oob, second) = record
                        .split_first_chunk::<OOB_BYTES>()
                        .expect("14 bytes begin with 10");
                    let second =
                        u32::from_le_bytes(second.try_into().expect("4 bytes are left of 14"));

                    Oob::from_bytes(*oob).with_second(SecondOwner::from_bits(second))
                };
                Ok(bytes.as_chunks::<EXTENDED>().0.iter().map(decode).collect())
            }
            Some(_) => Err(MediaError::Uncorrectable),
        }
    }

    /// The OOB record of a page that the firmware has in its buffers (it wrote or just read it);
    /// not charged.
    #[inline]
    pub fn oob(&self, ppn: Ppn) -> Oob {
        self.nand.oob(ppn)
    }

    /// The identity stored in a page, not charged: in identity mode it is also the page's
    /// fingerprint, which the dedup engine keeps in DRAM. `None` in other modes.
    #[inline]
    pub fn identity(&self, ppn: Ppn) -> Option<u64> {
        match &self.nand.contents {
            PageContents::Identity(cells) => Some(cells.get(ppn.0 as usize)),
            _ => None,
        }
    }

    /// Prefetches the cache lines of a page's identity.
    #[inline]
    pub fn prefetch_identity(&self, ppn: Ppn) {
        if let PageContents::Identity(cells) = &self.nand.contents {
            cells.prefetch(ppn.0 as usize);
        }
    }

    /// Prefetches the cache lines of the OOBs and identities of `len` pages from `first` on.
    #[inline]
    pub fn prefetch_run(&self, first: Ppn, len: u32) {
        let (first, len) = (first.0 as usize, len as usize);
        (first..first + len)
            // An OOB has ten bytes, so lines do not begin with one: every sixth touches each line.
            .step_by(LINE_BYTES / OOB_BYTES)
            .for_each(|page| prefetch(&self.nand.oob, page));
        if let PageContents::Identity(cells) = &self.nand.contents {
            (first..first + len)
                .step_by(cells.cells_per_line())
                .for_each(|page| cells.prefetch(page));
        }
    }

    /// Returns true if a page holds metadata bytes.
    #[inline]
    pub fn is_meta(&self, ppn: Ppn) -> bool {
        self.nand.is_meta(ppn)
    }

    /// Returns true if a page can be read: programmed, and neither torn nor damaged. Bit errors do not count.
    #[inline]
    pub fn is_readable(&self, ppn: Ppn) -> bool {
        self.nand.is_programmed(ppn)
            && !self.nand.is_damaged(ppn)
            && !(self.faulty && self.faults.read.contains(&ppn))
    }

    /// Returns true if a block is full and none of its pages can be read: so an interrupted erase leaves it.
    pub fn is_spoiled(&self, sb: SbId, die: u32) -> bool {
        let geometry = self.geometry();
        (0..geometry.pages_per_block())
            .map(|row| geometry.page(sb, geometry.offset_of(row, die)))
            .all(|page| self.is_programmed(page) && !self.is_readable(page))
    }

    /// Returns true if a page has been programmed since its block was erased, readable or not.
    #[inline]
    pub fn is_programmed(&self, ppn: Ppn) -> bool {
        self.nand.is_programmed(ppn)
    }

    #[inline]
    pub(super) fn check_readable(&self, ppn: Ppn) -> Result<(), MediaError> {
        // Sound media: the firmware reads only pages that it has programmed.
        if !self.faulty && self.nand.is_pristine() {
            debug_assert!(self.nand.is_programmed(ppn));
            return Ok(());
        }
        if self.is_readable(ppn) {
            Ok(())
        } else {
            Err(MediaError::Uncorrectable)
        }
    }

    /// Records a read of metadata, which soft decoding corrects at worst.
    fn charge_read(&mut self, ppn: Ppn, purpose: Purpose) {
        self.charge_metadata(OpKind::Read, ppn, purpose);
    }

    /// Records a read of a page of the mapping table, whose content the firmware has: the later operations of the
    /// command wait for it.
    pub fn charge_table_read(&mut self, ppn: Ppn, purpose: Purpose) {
        self.charge_metadata(OpKind::ReadTable, ppn, purpose);
    }

    fn charge_metadata(&mut self, kind: OpKind, ppn: Ppn, purpose: Purpose) {
        let outcome = match self.outcome(ppn) {
            ReadOutcome::Failed => ReadOutcome::Soft,
            corrected => corrected,
        };
        self.push_read(kind, ppn, purpose, outcome);
    }

    /// Records a read of a page whose bit errors may be too many.
    #[inline(always)]
    pub(super) fn charge_data_read(
        &mut self,
        ppn: Ppn,
        purpose: Purpose,
    ) -> Result<(), MediaError> {
        if self.faulty {
            return self.charge_faulty_read(ppn, purpose);
        }
        self.push_read(OpKind::Read, ppn, purpose, ReadOutcome::Retries(0));
        Ok(())
    }

    #[cold]
    fn charge_faulty_read(&mut self, ppn: Ppn, purpose: Purpose) -> Result<(), MediaError> {
        // Pages with owners may be metadata too: bitmaps, and what marks lost data.
        if self.nand.is_meta(ppn) {
            self.charge_read(ppn, purpose);
            return Ok(());
        }
        let outcome = self.outcome(ppn);
        self.push_read(OpKind::Read, ppn, purpose, outcome);
        match outcome {
            ReadOutcome::Failed => Err(MediaError::Uncorrectable),
            ReadOutcome::Retries(_) | ReadOutcome::Soft => Ok(()),
        }
    }

    fn outcome(&mut self, ppn: Ppn) -> ReadOutcome {
        match &mut self.bit_errors {
            Some(errors) => errors.read(ppn),
            None => ReadOutcome::Retries(0),
        }
    }

    #[inline(always)]
    fn push_read(&mut self, kind: OpKind, ppn: Ppn, purpose: Purpose, outcome: ReadOutcome) {
        self.counts.reads += 1;
        let mut op = Op::new(kind, purpose, After::NOTHING);
        let geometry = &self.nand.geometry;
        op.die = geometry.die_of(
            geometry.superblock(ppn),
            geometry.die_of_offset(geometry.offset(ppn)),
        ) as u16;
        op.page = ppn;
        op.outcome = outcome;
        self.record(op);
    }
}
