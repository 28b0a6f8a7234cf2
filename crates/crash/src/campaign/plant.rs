//! Faults of the medium: blocks that fail, bits that flip, pages and words that become unreadable.
//!
//! Invariants: pages and words become unreadable only while nothing is in flight, or in a cut; one
//! word at a time has more wrong bits than ECC corrects; the content of a damaged page is reported
//! to the doubts. Absent: which pages and words may be damaged (`damage`).

use super::Campaign;
use super::power::CutSurvivor;
use crate::damage;
use crate::dut::{DeviceUnderTest, Failure};
use crate::history::DeviceEvent;
use rand::RngExt;
use remap_ssd_media::{Faults, Media, Ppn};

impl Campaign<'_> {
    /// Damage between commands, on an idle device: commands in flight might still be undone.
    fn damage(&mut self, dut: &mut DeviceUnderTest) -> Result<(), Failure> {
        if !self.setup.media_faults || !self.chance(30) {
            return Ok(());
        }

        dut.catch_up(&mut self.history)?;
        let media = dut.ftl.media();
        let page = damage::page(media, &self.setup.config, &mut self.random);
        let word = self
            .random
            .random_ratio(1, 4)
            .then(|| damage::word(media, &mut self.random))
            .flatten();

        // Writes may be mapped to a damaged page of the same content, so the doubts need its
        // content.
        let held = page
            .filter(|_| self.setup.config.dedup)
            .and_then(|page| damage::held(media, page));
        dut.ftl
            .media_mut()
            .plant(|faults| self.add_damage(faults, page, word));
        dut.doubts.damaged(held, word.is_some());
        Ok(())
    }

    /// Damage during a cut.
    pub(super) fn damage_left(&mut self, survivor: &mut CutSurvivor) {
        if !self.setup.media_faults || !self.chance(2) {
            return;
        }

        let mut media = Media::from_image(&survivor.image);
        // With the existing faults, so that no second record of one superblock is chosen.
        media.plant(|faults| *faults = survivor.faults.clone());
        let page = damage::page(&media, &self.setup.config, &mut self.random);
        let word = self
            .random
            .random_ratio(1, 2)
            .then(|| damage::word(&media, &mut self.random))
            .flatten();
        let held = page
            .filter(|_| self.setup.config.dedup)
            .and_then(|page| damage::held(&media, page));
        self.add_damage(&mut survivor.faults, page, word);
        survivor.doubts.damaged(held, word.is_some());
    }

    fn add_damage(&mut self, faults: &mut Faults, page: Option<Ppn>, word: Option<(usize, u64)>) {
        // A page and a life record drawn together could belong to one superblock.
        let is_apart = |page: &Ppn| {
            word.is_none_or(|(word, _)| word as u32 / 3 != self.setup.geometry.superblock(*page).0)
        };
        if let Some(page) = page.filter(is_apart) {
            self.end.marks.pages_damaged += 1;
            self.history.push(DeviceEvent::PageDamaged(page.0));
            faults.read.insert(page);
        }
        if let Some((word, bits)) = word {
            self.end.marks.words_damaged += 1;
            self.history.push(DeviceEvent::WordDamaged(word as u32));
            // One uncorrectable word at a time: most records have only one redundant copy.
            faults.flips.retain(|_, bits| bits.count_ones() == 1);
            faults.flips.insert(word, bits);
        }
    }

    pub(super) fn plant(&mut self, dut: &mut DeviceUnderTest) -> Result<(), Failure> {
        self.damage(dut)?;

        let geometry = self.setup.geometry;

        // A device tolerates only some failed blocks before its end of life.
        if dut.faults_left > 0 && self.chance(30) {
            dut.faults_left -= 1;
            self.end.marks.faults_planted += 1;
            let block = remap_ssd_media::BlockId(self.random.random_range(0..geometry.blocks()));
            let row = self.random.random_range(0..geometry.pages_per_block());
            let erase = self.random.random_ratio(1, 3);
            self.history
                .push(DeviceEvent::Planted(block.0, (!erase).then_some(row)));
            dut.ftl.media_mut().plant(|faults| {
                if erase {
                    faults.erase.insert(block);
                } else {
                    faults.program.insert(block, row);
                }
            });
        }

        let words = dut.ftl.media().nvram_words() as u32;
        // Single flips are more frequent than faults: ECC corrects them, so they must stay
        // invisible.
        if words > 0 && self.chance(50) {
            let word = self.random.random_range(0..words) as usize;
            let bit = self.random.random_range(0..64);
            dut.ftl.media_mut().plant(|faults| {
                faults.flips.insert(word, 1 << bit);
            });
        }
        Ok(())
    }
}
