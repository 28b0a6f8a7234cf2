//! Lifetimes of pages, by the largest number of LPNs that shared them (Coldmap, section III).
//!
//! A page is born when it is programmed with a host's data and dies with its last reference; a copy
//! made by garbage collection is the same page. Time is the device's own: sequence numbers.
//! Recorded only on request.
//!
//! Invariant: a record belongs to the content of its page and moves with it. Absent: pages written
//! before the recording started. Pages still alive are counted separately.

use remap_ssd_media::Ppn;
use remap_ssd_media::slab::Slab;
use serde::{Deserialize, Serialize};

/// Number of classes by reference count; the last one includes all larger counts.
pub(crate) const CLASSES: usize = 16;
const MAX_BITS: u32 = 6;
const MAX_MASK: u64 = (1 << MAX_BITS) - 1;

/// Pages with the same largest number of references.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SurvivalClass {
    /// Largest number of references at once.
    pub references: u32,
    /// Pages that lost their last reference.
    pub died: u64,
    /// Sum of their lifetimes, in sequence numbers.
    pub lived: u64,
    /// Sum of their lifetimes since the second reference.
    pub lived_shared: u64,
    /// Pages still alive.
    pub alive: u64,
    /// Sum of their ages.
    pub alive_age: u64,
}

/// Lifetimes of flash pages, by number of references.
pub struct Survival {
    /// Birth, with the largest number of references in the low bits; 0 if unknown.
    born: Slab<u64>,
    /// Time from birth to the second reference.
    shared: Slab<u32>,
    classes: [SurvivalClass; CLASSES],
}

impl Survival {
    pub(crate) fn new(pages: u32) -> Self {
        let mut classes = [SurvivalClass::default(); CLASSES];
        classes
            .iter_mut()
            .enumerate()
            .for_each(|(index, class)| class.references = index as u32 + 1);
        Self {
            born: Slab::zeroed(pages as usize),
            shared: Slab::zeroed(pages as usize),
            classes,
        }
    }

    /// Bytes of memory per page.
    pub const BYTES_PER_PAGE: usize = size_of::<u64>() + size_of::<u32>();

    #[cold]
    pub(crate) fn gained(&mut self, ppn: Ppn, count: u32, now: u64) {
        let record = &mut self.born[ppn.0 as usize];
        // A first reference is a birth, even if an earlier content has left a record.
        if count == 1 {
            *record = now << MAX_BITS | 1;
        } else if *record != 0 && u64::from(count) > *record & MAX_MASK {
            if *record & MAX_MASK == 1 {
                // Saturates: beyond 2^32 numbers a page counts as shared late, which it was.
                self.shared[ppn.0 as usize] =
                    (now - (*record >> MAX_BITS)).min(u32::MAX.into()) as u32;
            }
            *record = *record & !MAX_MASK | u64::from(count).min(MAX_MASK);
        }
    }

    #[cold]
    pub(crate) fn died(&mut self, ppn: Ppn, now: u64) {
        let record = std::mem::take(&mut self.born[ppn.0 as usize]);
        if record != 0 {
            let class = &mut self.classes[class_of(record)];
            let life = now - (record >> MAX_BITS);
            class.died += 1;
            class.lived += life;
            if class.references > 1 {
                class.lived_shared += life - u64::from(self.shared[ppn.0 as usize]).min(life);
            }
        }
    }

    #[cold]
    pub(crate) fn moved(&mut self, from: Ppn, to: Ppn) {
        self.born[to.0 as usize] = std::mem::take(&mut self.born[from.0 as usize]);
        self.shared[to.0 as usize] = self.shared[from.0 as usize];
    }

    /// The lifetimes recorded until `now`.
    pub(crate) fn classes(&self, now: u64) -> [SurvivalClass; CLASSES] {
        let mut classes = self.classes;
        for record in self.born.iter().filter(|record| **record != 0) {
            let class = &mut classes[class_of(*record)];
            class.alive += 1;
            class.alive_age += now - (record >> MAX_BITS);
        }
        classes
    }
}

fn class_of(record: u64) -> usize {
    ((record & MAX_MASK) as usize).clamp(1, CLASSES) - 1
}
