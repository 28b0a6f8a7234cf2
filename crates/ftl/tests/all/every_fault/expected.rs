//! Faults, and their permitted effects according to FORMAT.md: failed recovery, or LPNs in doubt.
//!
//! Absent: the firmware's own layout code. The addresses of words are computed here independently.

use remap_ssd_ftl::{Config, EntrySize, Ftl, Lpn, SchemeKind, Stream, SuperblockState};
use remap_ssd_media::{Geometry, Media, Oob, Ppn};

/// One word of NVRAM with two flipped bits, or one unreadable page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Word(usize),
    Page(Ppn),
}

impl Fault {
    pub fn plant(self, media: &mut Media) {
        media.plant(|faults| {
            match self {
                Self::Word(word) => faults.flips.insert(word, 0b11 << (word % 60)).is_none(),
                Self::Page(page) => faults.read.insert(page),
            };
        });
    }
}

/// The effects of damage according to FORMAT.md.
pub struct ExpectedDamage {
    pub config: Config,
    pub geometry: Geometry,
}

impl ExpectedDamage {
    /// The reason why recovery may fail with a fault, if it may.
    pub fn refuses(&self, ftl_words: usize, fault: Fault, oob: Oob) -> Option<&'static str> {
        let config = &self.config;
        let word = match fault {
            Fault::Page(_) => {
                return (Lpn(config.lpns)..Lpn(1 << 31))
                    .contains(&oob.lpn())
                    .then_some("a bitmap");
            }
            Fault::Word(word) => word,
        };

        let aborted = self.geometry.superblocks() as usize * 3 + 1;
        let dealloc = aborted + 64;
        let scheme = first_of_scheme(config, &self.geometry);

        if word + 1 == aborted {
            return (config.entry == EntrySize::Bytes24).then_some("the slot of atomic commands");
        }
        if word < aborted {
            return None;
        }
        if word < dealloc {
            return None;
        }
        if word < scheme {
            return ((word - dealloc) % 2 == 1).then_some("which LPNs were deallocated");
        }

        let (at, is_second) = (word - scheme, (word - scheme) % 2 == 1);
        let in_segment = at % (config.segment_bytes as usize / 8);
        match config.scheme {
            SchemeKind::RemapSsd | SchemeKind::RemapSsdLh if config.entry == EntrySize::Bytes24 => {
                None
            }
            SchemeKind::RemapSsd | SchemeKind::RemapSsdLh | SchemeKind::RemapSsdX => {
                (is_second && in_segment > 1).then_some("the LPN of an entry")
            }
            SchemeKind::NLog | SchemeKind::FLog | SchemeKind::LocalFlash => {
                is_second.then_some("the LPN of an entry")
            }
            SchemeKind::Pebble => (at >= self.geometry.superblocks() as usize).then_some("a slot"),
            SchemeKind::ShadowOob => {
                let slots = config.log_bytes as usize / 16 * 2;
                let first = ftl_words - scheme - slots;
                let in_slots = at.checked_sub(first);
                in_slots.map_or(Some("where DRAM is saved"), |at| {
                    (at % 2 == 1).then_some("the LPN of an entry")
                })
            }
            _ => None,
        }
    }

    /// Maximum number of LPNs that one damaged word may leave in doubt.
    pub fn doubt_max(&self, word: usize) -> usize {
        let lives = self.geometry.superblocks() as usize * 3;
        let slots = self.config.segment_bytes as usize / 16;
        match word {
            word if word < lives => 0,
            // Every home with a page written for it is possible.
            _ if self.config.scheme == SchemeKind::WalSsd => self.config.lpns as usize / 2,
            // The pages of an atomic command, or of a deallocation, or of an extent; the entries of
            // a segment or a room.
            _ => 8
                .max(slots)
                .max(self.geometry.pages_per_superblock() as usize * 2),
        }
    }
}

/// First word of the scheme's region.
pub fn first_of_scheme(config: &Config, geometry: &Geometry) -> usize {
    let dealloc = geometry.superblocks() as usize * 3 + 1 + 64;
    (dealloc + 4 * config.dealloc_slots as usize).next_multiple_of(8)
}

/// Returns true for pages with no other record of their contents: they cannot be distinguished from
/// pages torn by a cut. They are in superblocks that are being filled, or that were closed without
/// a tail.
pub fn is_unvouched(ftl: &Ftl, page: Ppn) -> bool {
    let geometry = ftl.media().geometry();
    let sb_id = geometry.superblock(page);
    let sb = ftl
        .superblocks()
        .find(|(id, _)| *id == sb_id)
        .expect("there")
        .1;

    let is_present = |page: &Ppn| {
        ftl.media().is_programmed(*page)
            && ftl.media().oob(*page).incarnation() == sb.life.incarnation() & 63
    };
    let oob = ftl.media().oob(page);
    let is_metadata = [Oob::HEAD, Oob::TAIL, Oob::PARITY].contains(&oob.lpn());
    if is_metadata || !matches!(sb.state, SuperblockState::Open | SuperblockState::Closed) {
        return false;
    }

    let kind = if sb.stream == Stream::Log {
        Oob::PARITY
    } else {
        Oob::TAIL
    };

    let pages = (0..geometry.pages_per_superblock()).map(|offset| geometry.page(sb_id, offset));
    !pages
        .filter(is_present)
        .any(|page| ftl.media().oob(page).lpn() == kind)
}
