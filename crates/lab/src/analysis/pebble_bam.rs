//! PebbleSSD section 6.5: arithmetic of the metadata in NVRAM.

use super::Found;
use crate::LabError;
use crate::plot::{Panel, Plot, Shape};
use crate::table::Table;

const GIB: f64 = (1u64 << 30) as f64;
const MIB: f64 = (1u64 << 20) as f64;
const BAM: f64 = 2.0 * GIB;
/// Pages of 512 GB of flash.
const PAGES: f64 = 512.0 * GIB / 4096.0;
/// Bytes of an entry of L2P and of P2L, and of one of the file offset table.
const MAPPING: f64 = 4.0;
const OFFSET: f64 = 8.0;
/// "Approximately 16 MB" for a million open files.
const INODES: f64 = 16.0 * MIB;

pub fn analyse(_: &Table) -> Result<Found, LabError> {
    let mut found = Found::default();
    let l2p = PAGES * MAPPING;
    let mut bars = Vec::new();
    for (name, bytes, paper) in [
        ("conventional", l2p, 0.35),
        ("remap", l2p + PAGES * MAPPING, 0.60),
        ("fs_write", l2p + PAGES * OFFSET + INODES, 0.80),
    ] {
        found.measure(name, bytes / BAM);
        found.measure(format!("remainder_{name}"), paper - bytes / BAM);
        found.measure(format!("remainder_{name}_mib"), (paper * BAM - bytes) / MIB);
        let pair = vec![("derived".to_owned(), bytes / BAM * 100.0), ("paper".to_owned(), paper * 100.0)];
        bars.push((name.to_owned(), pair));
    }
    found.plots.push(Plot {
        name: "bam".into(),
        title: "Use of 2 GB of BAM for 512 GB of flash".into(),
        reading: "What the sizes in the text add up to, and what the paper says is used.".into(),
        y: "% of 2 GB".into(),
        shape: Shape::Bars(vec![Panel { title: "system".into(), groups: bars }], None),
    });
    Ok(found)
}
