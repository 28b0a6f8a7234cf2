//! Failing media: flash pages that become unreadable, and NVRAM words with more flipped bits than
//! ECC corrects.
//!
//! Damaged data may be lost: reads return media errors, or recovery refuses with an error that
//! names the damage. Reads never return older data, or another page's. After damage every LPN is in
//! doubt until a later command that writes it, and takes nothing from LPNs in doubt, has been
//! acknowledged: rewritten data is right. There are two exceptions. A device that deduplicates may
//! map a write to a damaged page with the same content, as long as no read has found the damage.
//! And a damaged word may hold the number of an entry; the next recovery cannot always determine
//! which LPNs were written after it, and removes it.
//!
//! Invariants: a page is damaged only where recovery can tell that it was programmed, which is in a
//! superblock with a whole tail or in a full log superblock; and only one of several redundant
//! records is damaged: one page of a superblock or one word of its life, and one word of NVRAM at a
//! time. Absent: the firmware's handling of damage.

use crate::content::Content;
use crate::oracle::CommandId;
use crate::script::ScriptCommand;
use rand::RngExt;
use remap_ssd_ftl::{Config, Lpn, RecoveryError, Remap};
use remap_ssd_media::{Faults, Image, Media, Oob, PageView, Ppn, SbId};
use std::collections::BTreeSet;
use std::ops::Range;

/// A command that is not acknowledged.
#[derive(Clone, Debug)]
struct PendingCommand {
    id: CommandId,
    /// The LPNs that it writes, and those that it unmaps.
    lpns: [Range<Lpn>; 2],
    /// True if its acknowledgement clears the doubt of all its LPNs.
    is_sound: bool,
}

const NONE: Range<Lpn> = Lpn::ZERO..Lpn::ZERO;

/// LPNs that may be media errors.
#[derive(Clone, Debug)]
pub(crate) struct DamageDoubts {
    of: Vec<bool>,
    /// The last command that left an LPN in doubt: earlier ones may be acknowledged after it.
    unsound: Vec<Option<CommandId>>,
    pending: Vec<PendingCommand>,
    /// Contents of damaged pages, to which writes may be deduplicated.
    shared: BTreeSet<Content>,
    /// A word has been damaged since the last recovery.
    has_word: bool,
}

impl DamageDoubts {
    /// No doubts, on a device of `lpns` pages.
    pub(crate) fn new(lpns: u32) -> Self {
        Self {
            of: vec![false; lpns as usize],
            unsound: vec![None; lpns as usize],
            pending: Vec::new(),
            shared: BTreeSet::new(),
            has_word: false,
        }
    }

    /// Returns true if this LPN may be a media error.
    pub(crate) fn may_be_lost(&self, lpn: Lpn) -> bool {
        self.of[lpn.index()]
    }

    /// Records damage: of a page, possibly with this content, or of a word.
    pub(crate) fn damaged(&mut self, held: Option<Content>, has_word: bool) {
        self.shared.extend(held);
        self.has_word |= has_word;
        // All LPNs, not only those of the page: which witnesses a page or word held is internal to
        // the firmware.
        self.of.fill(true);
        // Commands in flight may have been recorded in the damaged page or word.
        self.pending
            .iter_mut()
            .for_each(|pending| pending.is_sound = false);
    }

    /// Records the submission of a command.
    pub(crate) fn submit(&mut self, id: CommandId, command: &ScriptCommand) {
        let mut is_sound = true;
        let lpns = match *command {
            ScriptCommand::Write { lpn, content }
            | ScriptCommand::WriteFor { lpn, content, .. }
            | ScriptCommand::FileWrite { lpn, content, .. } => {
                is_sound = !self.shared.contains(&content);
                [lpn..lpn.offset(1), NONE]
            }
            ScriptCommand::WriteMany { lpn, len, .. } => {
                // Its repeated contents are chosen when the pages are written, not here.
                is_sound = self.shared.is_empty();
                [lpn..lpn.offset(len), NONE]
            }
            ScriptCommand::Deallocate { lpn, len } => [lpn..lpn.offset(len), NONE],
            ScriptCommand::Remap(Remap {
                target,
                source,
                len,
                relocate,
                ..
            }) if target != source => {
                // A remap inherits the doubt of its source.
                is_sound = Lpn::range(source, len).all(|lpn| !self.of[lpn.index()]);
                let sources = if relocate {
                    source..source.offset(len)
                } else {
                    NONE
                };
                [target..target.offset(len), sources]
            }
            ScriptCommand::Remap(_)
            | ScriptCommand::Flush
            | ScriptCommand::FileReset
            | ScriptCommand::Background { .. } => return,
        };

        if !is_sound {
            for lpn in Lpn::between(lpns[0].clone()) {
                self.of[lpn.index()] = true;
                self.unsound[lpn.index()] = Some(id);
            }
        }
        self.pending.push(PendingCommand { id, lpns, is_sound });
    }

    /// The host saw the acknowledgement of a command.
    pub(crate) fn acknowledge(&mut self, id: CommandId) {
        // Flushes and background work leave nothing in doubt and were not recorded.
        let Some(at) = self.pending.iter().position(|pending| pending.id == id) else {
            return;
        };
        let done = self.pending.remove(at);

        // While a word is damaged, an acknowledged command may have lost its witness.
        let is_sound = done.is_sound && !self.has_word;
        for lpn in done
            .lpns
            .into_iter()
            .flat_map(Lpn::between)
            .filter(|_| is_sound)
        {
            // The LPN may show a later command on it that is in flight.
            let is_touched = |later: &PendingCommand| {
                later.id > id && later.lpns.iter().any(|lpns| lpns.contains(&lpn))
            };
            let is_doubted_later = self.unsound[lpn.index()].is_some_and(|other| other > id);
            if !is_doubted_later && !self.pending.iter().any(is_touched) {
                self.of[lpn.index()] = false;
            }
        }
    }

    /// Resets the commands in flight and the word damage after a recovery.
    pub(crate) fn adopt(&mut self) {
        self.pending.clear();
        self.has_word = false;
    }
}

/// Superblocks of which recovery knows every page: those with a whole tail, and full log
/// superblocks.
fn described(media: &Media, config: &Config) -> Vec<SbId> {
    let geometry = media.geometry();
    let tail_pages = config.tail_pages(&geometry) as usize;
    let is_described = |sb: &SbId| {
        let pages =
            || (0..geometry.pages_per_superblock()).map(|offset| geometry.page(*sb, offset));
        let is_readable = |page: &Ppn| media.is_readable(*page);
        let oobs: Vec<Oob> = pages()
            .filter(is_readable)
            .map(|page| media.oob(page))
            .collect();
        let Some(head) = oobs.iter().find(|oob| oob.lpn() == Oob::HEAD) else {
            return false;
        };

        // As in recovery: pages of another incarnation are of an earlier life.
        let mine = |oob: &&Oob| oob.incarnation() == head.incarnation();
        let tails = oobs
            .iter()
            .filter(mine)
            .filter(|oob| oob.lpn() == Oob::TAIL)
            .count();
        let logs = oobs
            .iter()
            .filter(mine)
            .filter(|oob| oob.lpn() == Oob::LOG)
            .count();
        tails == tail_pages || (logs > 0 && logs + 1 == geometry.pages_per_superblock() as usize)
    };

    (0..geometry.superblocks())
        .map(SbId)
        .filter(is_described)
        .collect()
}

/// Words of a superblock's life record; NVRAM begins with these records.
const LIFE_WORDS: usize = 3;

/// Superblocks with damage.
fn taken(media: &Media) -> BTreeSet<SbId> {
    let geometry = media.geometry();
    let of_word = |word: usize| SbId((word / LIFE_WORDS) as u32);
    let words = media.faults().flips.keys().map(|word| of_word(*word));
    media
        .faults()
        .read
        .iter()
        .map(|page| geometry.superblock(*page))
        .chain(words)
        .collect()
}

/// Draws a page that can be damaged, if there is one.
pub(crate) fn page(media: &Media, config: &Config, random: &mut impl RngExt) -> Option<Ppn> {
    let geometry = media.geometry();
    let taken = taken(media);
    let mut described = described(media, config);
    described.retain(|sb| !taken.contains(sb));
    if described.is_empty() {
        return None;
    }

    let sb = described[random.random_range(0..described.len() as u32) as usize];
    let page = geometry.page(sb, random.random_range(0..geometry.pages_per_superblock()));
    media.is_readable(page).then_some(page)
}

/// The content of a data page.
pub(crate) fn held(media: &Media, page: Ppn) -> Option<Content> {
    match media.view(page) {
        PageView::Identity(content) => Some(content),
        PageView::Bytes(bytes) => Some(Content::from_le_bytes(
            *bytes.first_chunk().expect("a page has 8 bytes"),
        )),
        PageView::Zeroes | PageView::Unknown => None,
    }
}

/// Draws a word to damage, with the bits to flip: mostly one that is not zero.
pub(crate) fn word(media: &Media, random: &mut impl RngExt) -> Option<(usize, u64)> {
    let (words, taken) = (media.nvram_words() as u32, taken(media));

    // Several draws; `None` if all words drawn are zero or taken.
    let mut draws = (0..40).map(|_| random.random_range(0..words) as usize);
    let word = draws.find(|word| {
        media.peek(*word) != 0 && !taken.contains(&SbId((word / LIFE_WORDS) as u32))
    })?;

    // Two different bits, the fewest that ECC does not correct.
    let (one, other) = (random.random_range(0..64u32), random.random_range(1..64u32));
    Some((word, 1 << one | 1 << ((one + other) % 64)))
}

/// The damage after a cut, including earlier damage whose overwrite the cut has undone.
pub(crate) fn left(before: &Image, damaged: &Faults, after: &Image, now: &Faults) -> Faults {
    let (before, after) = (Media::from_image(before), Media::from_image(after));
    // The damaged page is present again: not erased, and not reprogrammed.
    let is_same_page =
        |page: &Ppn| after.is_readable(*page) && after.oob(*page) == before.oob(*page);
    let mut left = now.clone();
    left.read
        .extend(damaged.read.iter().filter(|page| is_same_page(page)));
    let words = damaged
        .flips
        .iter()
        .filter(|(word, _)| before.peek(**word) == after.peek(**word));
    for (word, bits) in words {
        left.flips.entry(*word).or_insert(*bits);
    }
    left
}

/// Returns true if recovery may refuse for this reason, given these faults. Errors unrelated to
/// damage are never allowed.
pub(crate) fn is_documented(error: &RecoveryError, faults: &Faults) -> bool {
    let is_damaged = |word: &usize| {
        faults
            .flips
            .get(word)
            .is_some_and(|flips| flips.count_ones() > 1)
    };
    match error {
        RecoveryError::Config(_) | RecoveryError::Foreign(_) | RecoveryError::NoSpace => false,
        // The address may be the record's or its second word's.
        RecoveryError::NvramDamaged { word } => (*word..word + 3).any(|word| is_damaged(&word)),
        // A page moved since then was replaced by one that marks its LPN as lost.
        _ => true,
    }
}

#[cfg(test)]
mod tests;
