//! The inputs of victim selection, and the one choice that all policies share: wear levelling.

use remap_ssd_media::SbId;

/// The properties of a closed superblock that a policy may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VictimCandidate {
    /// Superblock number.
    pub sb: SbId,
    /// Pages it can hold.
    pub capacity: u32,
    /// Pages with at least one owner.
    pub live: u32,
    /// Erase count of its blocks.
    pub erases: u32,
    /// WSN when it was opened.
    pub opened: u64,
}

impl VictimCandidate {
    /// Pages gained by collecting it.
    pub(crate) fn garbage(&self) -> u32 {
        // References without room count as live pages, so `live` may exceed the capacity.
        self.capacity.saturating_sub(self.live)
    }
}

/// Static wear levelling: the least worn superblock, if it is at least `gap` erases below the mean.
/// Its cold data moves away and it takes part in the wear again.
pub fn least_worn(
    candidates: impl Iterator<Item = VictimCandidate>,
    mean_erases: f64,
    gap: u32,
) -> Option<VictimCandidate> {
    candidates
        .min_by_key(|candidate| (candidate.erases, candidate.sb))
        .filter(|candidate| gap > 0 && f64::from(candidate.erases) + f64::from(gap) <= mean_erases)
}
