//! Replays a journal on top of its state, and tells a torn end from damage.
//!
//! Records up to the last proof of durability are applied regardless of the contents: a page with a
//! wrong checksum reads as a media error. The first later program whose contents do not match their
//! CRC ends the history. Absent: headers, and other damage (`weigh`).

use super::damage::DamageFindings;
use super::files::JOURNALS;
use super::journal::{
    Durability, Journal, JournalRecord, PageContentKind, PageSum, RecordedEffect,
};
use super::slot;
use super::weigh::{FoundWitness, JournalHeaders};
use crate::array::{NandArray, PageContents, StoredPage};
use crate::effect::{MediaEffect, PageSource};
use crate::geometry::Ppn;
use crate::image_file::ImageError;

/// Result of replaying a folder's journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayReport {
    /// Records of the journal that were applied.
    pub records: u64,
    /// Records dropped: those from the first one with contents that were not durable.
    pub dropped: u64,
    /// Generation of the state that the replay began with.
    pub generation: u64,
    /// True if the last journal ended when everything was durable, with no records after its end.
    pub(super) is_at_rest: bool,
}

/// Applies journals to their state.
pub(super) struct JournalReplay<'a> {
    pub(super) nand: &'a mut NandArray,
    pub(super) nvram: &'a mut [u64],
    /// Metadata pages with a wrong checksum.
    pub(super) suspects: &'a mut Vec<Ppn>,
}

impl JournalReplay<'_> {
    /// Applies the journals that the state lacks, and compares their end with the durable one.
    pub(super) fn all(
        &mut self,
        journals: &mut [Journal; 2],
        headers: &JournalHeaders,
        witness: &FoundWitness,
        findings: &mut DamageFindings,
    ) -> Result<ReplayReport, ImageError> {
        let mut all = ReplayReport {
            generation: headers.own,
            ..ReplayReport::default()
        };
        let mut end = 0;
        for generation in headers.replayed() {
            let journal = &mut journals[slot(generation)];
            // A journal followed by another one was durable to its end.
            let until = if generation == headers.last {
                witness.durable_until(generation)
            } else {
                u64::MAX
            };

            let one = self.run(journal, generation, until, findings)?;
            all.records += one.records;
            all.dropped += one.dropped;
            all.is_at_rest = one.is_at_rest;
            end = journal.end() as u64;
        }
        witness.compare(headers, end, findings)?;
        Ok(all)
    }

    /// Applies the journal of a generation, which was durable up to offset `until`.
    fn run(
        &mut self,
        journal: &mut Journal,
        generation: u64,
        until: u64,
        findings: &mut DamageFindings,
    ) -> Result<ReplayReport, ImageError> {
        let name = JOURNALS[slot(generation)];
        let mut offsets = journal.read(generation);
        let end = journal.end();

        let after_end = journal.records_after_end();
        if let Some(proof) = journal.proof_in(&after_end) {
            let what = format!(
                "a record does not have its checksum, and was durable (byte {proof} was written after it)"
            );
            let lost = format!("what was recorded after it: {}", journal.count_behind());
            findings.add(name, end as u64, what, lost)?;
        }

        let mut values = Vec::new();
        let senseless = || {
            (
                "a record that makes no sense".to_owned(),
                "it, and all after it".to_owned(),
            )
        };

        // Up to the last sync all contents were durable: those pages need no comparison.
        let mut durable_until = until;
        for (index, at) in offsets.iter().enumerate() {
            match journal.record(*at, &mut values) {
                Some(JournalRecord::Durability(Durability::Synced | Durability::Vouched)) => {
                    durable_until = durable_until.max(*at as u64);
                }
                // A commit made the contents durable before this record was stored.
                Some(JournalRecord::Durability(Durability::Durable { until })) => {
                    durable_until = durable_until.max(until);
                }
                Some(_) => {}
                None => {
                    let (what, lost) = senseless();
                    findings.add(name, *at as u64, what, lost)?;
                    offsets.truncate(index);
                    break;
                }
            }
        }

        let mut report = ReplayReport {
            generation,
            // A record that a crash has left after a gap would count again once the gap is filled.
            is_at_rest: journal.has_ended(&offsets) && after_end.is_empty(),
            ..ReplayReport::default()
        };
        for (index, at) in offsets.iter().enumerate() {
            let record = journal
                .record(*at, &mut values)
                .expect("it made sense a moment ago");

            if let JournalRecord::Effect(effect) = record {
                let durable = (*at as u64) < durable_until;
                if !durable && !self.has_contents(&effect) {
                    report.dropped = (offsets.len() - index) as u64;
                    break;
                }
                if !self.replay(&effect) {
                    let (what, lost) = senseless();
                    findings.add(name, *at as u64, what, lost)?;
                    break;
                }
            }
            report.records += 1;
        }
        Ok(report)
    }

    /// Returns true if the contents match a program's record; also if the page number is
    /// impossible, which replaying the record detects.
    fn has_contents(&self, effect: &RecordedEffect<'_>) -> bool {
        let MediaEffect::Program { ppn, contents, .. } = *effect else {
            return true;
        };
        let PageContents::Mapped(pages) = &self.nand.contents else {
            unreachable!("a folder's contents are mapped")
        };
        let bytes = match contents.kind {
            PageContentKind::DATA => self.nand.geometry.page_bytes(),
            PageContentKind::NOTHING => 0,
            kind => kind.meta_bytes().unwrap_or(0),
        };
        ppn.0 >= self.nand.geometry.pages()
            || crc32c::crc32c(&pages.page(ppn.0 as usize)[..bytes]) == contents.crc
    }

    /// Redoes an effect, if it is possible.
    fn replay(&mut self, effect: &RecordedEffect<'_>) -> bool {
        if !self.is_possible(effect) {
            return false;
        }

        // The contents are already in the file.
        let change = effect.map_page(|_| PageSource::Stored(StoredPage::Nothing));
        change.change(self.nand, self.nvram);

        if let MediaEffect::Program { ppn, contents, .. } = effect {
            self.adopt_contents(*ppn, *contents);
        }
        true
    }

    /// Returns false if the effect is impossible: a record that no firmware can have written is
    /// invalid, even with a correct CRC.
    fn is_possible(&self, effect: &RecordedEffect<'_>) -> bool {
        let geometry = self.nand.geometry;
        // A program must be the next one of its block.
        let is_next = |ppn: Ppn| {
            ppn.0 < geometry.pages() && {
                let (block, row) = self.nand.block_of(ppn);
                self.nand.next_row[block.0 as usize] == row
            }
        };
        let has_words = |word: usize, len: usize| {
            word.checked_add(len)
                .is_some_and(|end| end <= self.nvram.len())
        };

        match *effect {
            MediaEffect::Program { ppn, contents, .. } => {
                let is_kind = matches!(
                    contents.kind,
                    PageContentKind::DATA | PageContentKind::NOTHING
                ) || contents.kind.meta_bytes().is_some();
                is_kind && is_next(ppn)
            }
            MediaEffect::TornProgram { ppn } => is_next(ppn),
            MediaEffect::Erase { block } | MediaEffect::SpoiledErase { block } => {
                block.0 < geometry.blocks()
            }
            MediaEffect::Store { word, values } => has_words(word, values.len()),
            MediaEffect::Clear { start, len } => has_words(start, len),
        }
    }

    /// Assigns the contents in the file to a programmed page.
    fn adopt_contents(&mut self, ppn: Ppn, PageSum { kind, crc }: PageSum) {
        let PageContents::Mapped(pages) = &mut self.nand.contents else {
            unreachable!("a folder's contents are mapped")
        };
        let at = ppn.0 as usize;
        if kind != PageContentKind::NOTHING {
            pages.set_sum(at, crc);
        }

        // Data are compared when they are read. Metadata move to memory, where nothing would compare them again.
        let Some(bytes) = kind.meta_bytes() else {
            return;
        };
        if pages.is_intact(at, bytes) {
            let bytes = pages.page(at)[..bytes].into();
            self.nand.adopt_meta(ppn.0, bytes);
        } else {
            self.nand.torn.insert(ppn.0);
            self.suspects.push(ppn);
        }
    }
}
