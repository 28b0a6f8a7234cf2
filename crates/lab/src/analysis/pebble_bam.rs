//! PebbleSSD section 6.5: size of its metadata in NVRAM.

use super::{Findings, one_panel};
use crate::LabError;
use crate::plot::Plot;
use crate::table::Table;
use remap_ssd_sim::micro::bam::{NVRAM_BYTES, bam_use};

pub(super) fn analyse(_: &Table) -> Result<Findings, LabError> {
    let mut found = Findings::default();
    let mut groups = Vec::new();

    for (name, device) in ["conventional", "remap", "fs_write"]
        .into_iter()
        .zip(bam_use())
    {
        found.measure(name, device.derived());
        found.measure(format!("remainder_{name}"), device.unexplained());
        found.measure(
            format!("remainder_{name}_mib"),
            device.unexplained() * NVRAM_BYTES as f64 / f64::from(1 << 20),
        );

        let pair = vec![
            ("derived".to_owned(), device.derived() * 100.0),
            ("paper".to_owned(), device.paper * 100.0),
        ];
        groups.push((name.to_owned(), pair));
    }

    found.plots.push(Plot {
        name: "bam".into(),
        title: "Use of 2 GB of BAM for 512 GB of flash".into(),
        reading: "What the sizes in the text add up to, and what the paper says is used.".into(),
        y: "% of 2 GB".into(),
        shape: one_panel("system", groups, None),
    });

    Ok(found)
}
