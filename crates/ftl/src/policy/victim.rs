//! What a policy may know of a superblock, and the one choice that all policies share: levelling
//! wear.

use remap_ssd_media::SbId;

/// What a policy may know of a closed superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VictimCandidate {
    /// Which superblock it is, by number.
    pub sb: SbId,
    /// Pages that it can hold.
    pub capacity: u32,
    /// Pages that at least one LPN owns.
    pub live: u32,
    /// Erases of its blocks so far.
    pub erases: u32,
    /// WSN when it was opened.
    pub opened: u64,
}

impl VictimCandidate {
    /// Pages that collecting it gains.
    pub fn garbage(&self) -> u32 {
        // References without room count as live pages, so that there may be more than it can hold.
        self.capacity.saturating_sub(self.live)
    }
}

/// Static wear levelling: the least worn superblock, if it is `gap` erases or more below the mean;
/// its cold data moves away and it takes part in the wear again.
pub fn least_worn(
    candidates: impl Iterator<Item = VictimCandidate>,
    mean_erases: f64,
    gap: u32,
) -> Option<VictimCandidate> {
    candidates
        .min_by_key(|candidate| (candidate.erases, candidate.sb))
        .filter(|candidate| gap > 0 && f64::from(candidate.erases) + f64::from(gap) <= mean_erases)
}
