//! FAST'21 section 4.6: cost of the NVRAM relative to the flash it saves, and its lifetime relative
//! to that flash.
//!
//! Every valid entry saves a flash page. PCRAM costs five times as much per bit as flash. For
//! comparison, the needs of Copyless Copy: DRAM, saved with a capacitor's energy to flash reserved
//! for it. No paper gives a price of DRAM or of a capacitor, so the result is the maximum that they
//! may cost.

use super::{BarGroup, Findings, least, mean, one_panel};
use crate::LabError;
use crate::plot::Plot;
use crate::table::{Ask, Table};

const PCRAM_OVER_FLASH: f64 = 5.0;
// Bytes of an entry of remapping metadata, and of the page that it saves.
const ENTRY: f64 = 16.0;
const PAGE: f64 = 4096.0;

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    let mut found = Findings::default();

    // Cost of one entry relative to the page it saves, from the sizes alone.
    found.measure("entry_over_page_cost", ENTRY * PCRAM_OVER_FLASH / PAGE);
    found.measure("rmm_mib_per_gib", 1024.0 / PAGE * ENTRY);

    // Its cost in runs: only a part of the NVRAM is used, and only a part of that is valid.
    let (mut paid, mut whole, mut lives) = (Vec::new(), Vec::new(), Vec::new());
    let (mut cost_groups, mut life_groups) = (Vec::new(), Vec::new());

    for log in table.logs() {
        let (mut costs, mut life) = (Vec::new(), Vec::new());
        for row in table.rows(Ask {
            scheme: Some("remap-ssd"),
            log_mib: Some(log),
            ..Ask::default()
        }) {
            let saved = row.number("usage.valid_bytes")? / ENTRY * PAGE;
            let (used, capacity) = (
                row.number("usage.used_bytes")?,
                row.number("usage.capacity_bytes")?,
            );
            paid.push(used * PCRAM_OVER_FLASH / saved);
            whole.push(capacity * PCRAM_OVER_FLASH / saved);

            let name = super::content_name(&row.run.content);
            costs.push((
                format!("{} {name}", row.run.workload),
                whole[whole.len() - 1] * 100.0,
            ));

            // Years of NVRAM per year of flash, both at the rate of this run; without erases, flash
            // does not wear.
            if let (Ok(nvram), Ok(flash)) =
                (row.number("nvram_life_years"), row.number("lifetime_years"))
            {
                lives.push(nvram / flash);
                life.push((format!("{} {name}", row.run.workload), nvram / flash));
            }
        }

        cost_groups.push((format!("{log} MiB"), costs));
        life_groups.push((format!("{log} MiB"), life));
    }

    found.measure("used_nvram_over_saved_flash", mean(&paid));
    found.measure("all_nvram_over_saved_flash", mean(&whole));
    found.measure("nvram_life_over_flash_life_least", least(&lives));
    found.measure("nvram_life_over_flash_life_mean", mean(&lives));

    copyless_copy(table, &mut found)?;

    found.plots.push(figure(
        "cost",
        "Cost of the NVRAM against the flash it saves",
        "% of the saved flash's cost",
        cost_groups,
    ));
    found.plots.push(figure(
        "life",
        "Life of the NVRAM against the flash's, at the run's rate",
        "times the flash's",
        life_groups,
    ));
    Ok(found)
}

fn figure(name: &str, title: &str, y: &str, groups: Vec<BarGroup>) -> Plot {
    Plot {
        name: name.into(),
        title: title.into(),
        reading: "Remap-SSD, a bar for each workload and content, a group for each size of NVRAM."
            .into(),
        y: y.into(),
        shape: one_panel("NVRAM", groups, None),
    }
}

/// DRAM, energy and reserved flash of Copyless Copy.
fn copyless_copy(table: &Table, found: &mut Findings) -> Result<(), LabError> {
    let (mut dram, mut reserved, mut shares, mut prices) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());

    for row in table.rows(Ask {
        scheme: Some("shadow-oob"),
        ..Ask::default()
    }) {
        let saved = row.number("usage.valid_bytes")? / ENTRY * PAGE;
        let (capacity, flash) = (
            row.number("usage.capacity_bytes")?,
            row.number("usage.reserved_bytes")?,
        );
        let pages = row.number("usage.power_loss_pages")?;

        dram.push(capacity / saved);
        reserved.push(flash / saved);
        shares.push(pages * PAGE / capacity);
        // The same size of PCRAM costs PCRAM_OVER_FLASH a byte; here the flash is paid for in
        // addition to the DRAM.
        prices.push(PCRAM_OVER_FLASH - flash / capacity);

        found.measure(
            format!("shadow_power_loss_pages {}", row.run.log_mib),
            pages,
        );
        found.measure(
            format!("shadow_reserved_mib {}", row.run.log_mib),
            flash / f64::from(1 << 20),
        );
    }

    found.measure("shadow_dram_over_saved_flash", mean(&dram));
    found.measure("shadow_reserved_over_saved_flash", mean(&reserved));
    found.measure("shadow_saved_pages_over_dram", mean(&shares));
    found.measure("shadow_dram_price_at_most", least(&prices));
    Ok(())
}
