//! Sections on flash: wear, and lifetimes of pages.
//!
//! Invariant: lifetimes are sums over classes of pages, so a class is weighted by its pages.
//! Absent: flash programs (`details`).

use super::super::format::{MISSING, bytes, exact, number, ratio, share};
use super::{Section, optional};
use crate::summary::RunSummary;
use remap_ssd_ftl::SurvivalClass;
use remap_ssd_media::geometry::PAGE_BYTES;

pub(super) fn wear(run: &RunSummary) -> Section {
    Section {
        title: "Flash wear",
        rows: vec![
            ("blocks erased", exact(run.erases)),
            ("erases per block, mean", number(run.erase_mean)),
            ("erases per block, max", exact(run.erase_max)),
            ("erases per block, spread", exact(run.erase_spread)),
            (
                "terabytes written until worn out",
                format!(
                    "{} at {} cycles",
                    number(run.life_tb_written),
                    exact(run.endurance_cycles)
                ),
            ),
            (
                "drive writes a day for 5 years",
                number(run.drive_writes_per_day),
            ),
            (
                "since power-on: blocks erased",
                exact(run.wear_out.block_erases),
            ),
            ("host data written", bytes(run.wear_out.host_bytes)),
            (
                "before the first block was retired",
                run.wear_out
                    .first_retired_bytes
                    .map_or(MISSING.into(), bytes),
            ),
            ("blocks retired", exact(run.wear_out.blocks_retired)),
            (
                "room for data left",
                bytes(run.wear_out.usable_pages * PAGE_BYTES as u64),
            ),
            (
                "read-only",
                if run.wear_out.read_only { "yes" } else { "no" }.into(),
            ),
        ],
    }
}

/// Use and wear of the SLC cache, if there is one.
pub(super) fn slc(run: &RunSummary) -> Option<Section> {
    let cost = run.slc?;
    Some(Section {
        title: "SLC cache",
        rows: vec![
            ("room for data", bytes(cost.room_pages * PAGE_BYTES as u64)),
            (
                "superblocks free at the end",
                format!(
                    "{} of {}",
                    exact(cost.free_superblocks),
                    exact(cost.superblocks)
                ),
            ),
            ("pages of the host programmed in it", exact(cost.host_pages)),
            ("programmed past it", exact(cost.past_pages)),
            ("pages folded", exact(cost.folded_pages)),
            ("dead before they were folded", exact(cost.died_pages)),
            ("superblocks erased", exact(cost.erases)),
            (
                "erases per block in SLC mode, mean",
                number(cost.erase_mean),
            ),
            (
                "erases per other block, mean",
                number(cost.other_erase_mean),
            ),
        ],
    })
}

/// Pages with one reference, and pages with several.
pub(super) fn survival(run: &RunSummary) -> Section {
    let single = Lives::of(run.survival.iter().filter(|class| class.references == 1));

    let shared = Lives::of(run.survival.iter().filter(|class| class.references > 1));

    let longer = single
        .mean()
        .zip(shared.mean())
        .map(|(single, shared)| shared / single);

    Section {
        title: "Survival of flash pages, sequence numbers",
        rows: vec![
            ("never shared: pages that died", exact(single.died)),
            ("mean life", optional(single.mean(), number)),
            ("still alive", exact(single.alive)),
            ("shared: pages that died", exact(shared.died)),
            ("mean life", optional(shared.mean(), number)),
            (
                "mean life since shared",
                optional(
                    share(shared.lived_shared as f64, shared.died as f64),
                    number,
                ),
            ),
            ("still alive", exact(shared.alive)),
            ("shared pages live", optional(longer, ratio)),
        ],
    }
}

#[derive(Default)]
struct Lives {
    died: u64,
    lived: u64,
    lived_shared: u64,
    alive: u64,
}

impl Lives {
    fn of<'a>(classes: impl Iterator<Item = &'a SurvivalClass>) -> Self {
        classes.fold(Self::default(), |sum, class| Self {
            died: sum.died + class.died,
            lived: sum.lived + class.lived,
            lived_shared: sum.lived_shared + class.lived_shared,
            alive: sum.alive + class.alive,
        })
    }

    fn mean(&self) -> Option<f64> {
        share(self.lived as f64, self.died as f64)
    }
}
