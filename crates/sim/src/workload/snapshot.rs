//! Volumes that are updated and cloned by long Copy commands: the use case of UN-type remapping.
//!
//! Source: the applications of FAST'21 §3.2 (file copy, snapshot); no published parameters. 40
//! volumes of 256 MiB on a device of 32 GiB, each with the last two of its clones: all of them
//! together fill the device to 94 % by addresses.
//!
//! The volumes are written once, in order. Then follow requests of 64 KiB at random in a random
//! volume; whenever they have written a quarter of a volume's pages, the next volume is cloned over
//! its older clone, by Copy commands of 4 MiB. So four of five pages served are copies, and a page
//! is shared by at most three LPNs, until one of them is written.
//!
//! Invariants: a command's source and target do not overlap, and all of its sources have been
//! written.

use rand_xoshiro::Xoshiro256PlusPlus;

use super::WorkloadError;
use super::draw::below;
use super::script::{Scale, Script, Steps};
use super::space::PageExtent;

pub(super) const ABOUT: &str = "40 volumes of 256 MiB, 64 KiB random writes; cloned in turn by Copy commands of 4 MiB (file copy \
     and snapshot of FAST'21 3.2; parameters are ours)";

const VOLUMES: u32 = 40;
const CLONES: u32 = 2;
const VOLUME_PAGES: f64 = 65_536.0;
const WRITE_PAGES: u32 = 16;
const COPY_PAGES: u32 = 1024;
/// A volume is cloned whenever one in `SHARE` of its pages has been written.
const SHARE: u32 = 4;

pub(super) struct Snapshot {
    volume_pages: u32,
    /// Pages written at the beginning.
    begun: u32,
    /// Pages written since the last clone.
    since: u32,
    /// Clones made, and pages copied of the current one.
    clones: u32,
    copied: u32,
    rng: Xoshiro256PlusPlus,
}

impl Snapshot {
    pub(super) fn new(scale: &Scale) -> Result<Self, WorkloadError> {
        let volume_pages = scale.of(VOLUME_PAGES / f64::from(WRITE_PAGES), 4) * WRITE_PAGES;
        scale.needs(u64::from(VOLUMES * (1 + CLONES)) * u64::from(volume_pages))?;
        Ok(Self {
            volume_pages,
            begun: 0,
            since: 0,
            clones: 0,
            copied: volume_pages,
            rng: scale.rng.clone(),
        })
    }

    fn copy(&mut self, steps: &mut Steps) {
        // Volume after volume, and over the older of its clones.
        let volume = self.clones % VOLUMES;
        let older = self.clones / VOLUMES % CLONES;
        let len = COPY_PAGES.min(self.volume_pages - self.copied);
        let source = volume * self.volume_pages + self.copied;

        // After the volumes come all first clones, then all second ones.
        let first = source + (1 + older) * VOLUMES * self.volume_pages;
        steps.remap(PageExtent { first, len }, source);
        self.copied += len;
        self.clones += u32::from(self.copied == self.volume_pages);
    }
}

impl Script for Snapshot {
    fn step(&mut self, steps: &mut Steps) {
        // The volumes come first, in order: a clone of unwritten pages would be empty.
        if self.begun < VOLUMES * self.volume_pages {
            steps.write(PageExtent {
                first: self.begun,
                len: WRITE_PAGES,
            });
            self.begun += WRITE_PAGES;
            return;
        }

        // The current clone is finished before the next update.
        if self.copied < self.volume_pages {
            return self.copy(steps);
        }

        let first = below(VOLUMES * self.volume_pages / WRITE_PAGES, &mut self.rng) * WRITE_PAGES;
        steps.write(PageExtent {
            first,
            len: WRITE_PAGES,
        });

        self.since += WRITE_PAGES;
        // Enough has changed for the next snapshot.
        if self.since >= self.volume_pages / SHARE {
            (self.since, self.copied) = (0, 0);
        }
    }
}
