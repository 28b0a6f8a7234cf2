//! Recovery time against capacity and remapped volume, and the cost of a lookup during collection
//! (FAST'21 section 3.3).
//!
//! Recovered runs are the points up to 256 GiB; the model continues to 4 TiB with the same
//! superblock geometry.

use super::{Findings, least, mean, most};
use crate::LabError;
use crate::plot::{Lines, MarkKind, Plot};
use crate::recovery::{Reads, model};
use crate::table::{Ask, Table};
use remap_ssd_device::DeviceConfig;

const GIB: f64 = (1u64 << 30) as f64;
/// Size of a global log's entry and a local one's, bytes (FAST'21 sections 3.3 and 4.3).
const GLOBAL_ENTRY: f64 = 12.0;
const LOCAL_ENTRY: f64 = 16.0;

type Points = Vec<(f64, f64)>;

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    let mut found = Findings::default();
    measured(table, &mut found)?;
    let base =
        DeviceConfig::preset("fast21-256g").map_err(|error| LabError::Failed(error.to_string()))?;
    capacities(&base, &mut found);
    lookups(&base, &mut found);
    Ok(found)
}

/// Devices that were really recovered, and the accuracy of the model.
fn measured(table: &Table, found: &mut Findings) -> Result<(), LabError> {
    let (mut lines, mut bytes) = (Vec::new(), Vec::new());
    let mut errors = Vec::new();

    for scheme in table.distinct(|run| run.scheme.as_str()) {
        let (mut times, mut volumes) = (Points::new(), Points::new());

        for row in table.rows(Ask {
            scheme: Some(scheme),
            ..Ask::default()
        }) {
            let capacity = row.number("logical_bytes")? / GIB;
            let (seconds, read) = (row.number("seconds")?, row.number("bytes")?);
            errors.push(row.number("model_seconds")? / seconds);
            times.push((capacity, seconds));
            volumes.push((
                row.number("remapped_bytes")? / GIB,
                read / f64::from(1 << 20),
            ));

            found.measure(
                format!(
                    "recovery_s {scheme} {:.0} GiB {} MiB",
                    capacity, row.run.log_mib
                ),
                seconds,
            );
        }

        times.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        // The largest of several log sizes at a capacity: it has the most to read.
        times.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            if same {
                earlier.1 = earlier.1.max(later.1);
            }
            same
        });

        volumes.sort_by(|a, b| a.0.total_cmp(&b.0));
        lines.push((scheme.to_owned(), times));
        bytes.push((scheme.to_owned(), volumes));
    }

    found.measure("model_over_real", mean(&errors));
    found.measure("model_over_real_least", least(&errors));
    found.measure("model_over_real_most", most(&errors));

    found.plots.push(Plot {
        name: "recovery-time".into(),
        title: "Recovery of aged devices, really done".into(),
        reading: "Time to read what recovery needs; both axes in powers of ten.".into(),
        y: "seconds".into(),
        shape: MarkKind::Lines(Lines {
            x: "logical capacity, GiB".into(),
            logarithmic: true,
            lines,
            points: Vec::new(),
        }),
    });

    found.plots.push(Plot {
        name: "recovery-bytes".into(),
        title: "What recovery reads, against the volume that is remapped".into(),
        reading: "A global log or NVRAM is read whole: the room for remaps decides, not how many are valid.".into(),
        y: "MiB read".into(),
        shape: MarkKind::Lines(Lines { x: "remapped, GiB".into(), logarithmic: true, lines: bytes, points: Vec::new() }),
    });

    Ok(())
}

/// A device like the preset with another capacity, and log space for the remapped share of it.
fn sized(base: &DeviceConfig, gib: f64, share: f64, scheme: &str) -> DeviceConfig {
    let mut device = base.clone();
    let pages = gib * GIB / 4096.0;
    let entry = if scheme == "remap-ssd" {
        LOCAL_ENTRY
    } else {
        GLOBAL_ENTRY
    };
    device.firmware.log_bytes = (pages * share * entry) as u64;
    device.firmware.scheme = scheme.parse().expect("a scheme that there is");
    device
}

/// The same superblocks, in another number.
fn reads(device: &DeviceConfig, base_gib: f64, gib: f64) -> Reads {
    // Leaving the log out separates the part that grows with the number of superblocks.
    let log_free = DeviceConfig {
        firmware: remap_ssd_ftl::Config {
            log_bytes: 0,
            ..device.firmware.clone()
        },
        ..device.clone()
    };
    let (all, without) = (model(device), model(&log_free));
    Reads {
        flash_pages: without.flash_pages * gib / base_gib + (all.flash_pages - without.flash_pages),
        nvram_bytes: all.nvram_bytes,
    }
}

fn capacities(base: &DeviceConfig, found: &mut Findings) {
    let base_gib = f64::from(base.firmware.lpns) * 4096.0 / GIB;

    let mut lines = Vec::new();
    for scheme in ["none", "remap-ssd", "nlog", "flog"] {
        // The shares of remapped data for which FAST'21 gives the size of a global log.
        for share in if scheme == "none" {
            vec![0.0]
        } else {
            vec![0.05, 0.20]
        } {
            let mut points = Vec::new();
            for power in 0..=12 {
                let gib = f64::from(1u32 << power);

                let device = sized(base, gib, share, scheme);
                let seconds = reads(&device, base_gib, gib).seconds(&device);
                points.push((gib, seconds));

                if power == 12 {
                    found.measure(
                        format!("model_4tib_s {scheme} {:.0}%", share * 100.0),
                        seconds,
                    );
                }
            }

            let name = if share > 0.0 {
                format!("{scheme}, {:.0} % remapped", share * 100.0)
            } else {
                scheme.to_owned()
            };
            lines.push((name, points));
        }
    }

    found.plots.push(Plot {
        name: "recovery-model".into(),
        title: "Recovery by the model, 1 GiB to 4 TiB".into(),
        reading: "Heads, tails and remapping metadata, read by 32 dies and one NVRAM port.".into(),
        y: "seconds".into(),
        shape: MarkKind::Lines(Lines {
            x: "logical capacity, GiB".into(),
            logarithmic: true,
            lines,
            points: Vec::new(),
        }),
    });
}

/// Data read by one collection to find the owners in its victim.
fn lookups(base: &DeviceConfig, found: &mut Findings) {
    let (dies, read_s, port_s) = (
        f64::from(base.geometry.dies_total()),
        base.flash.read_ns.mean() as f64 / 1e9,
        base.nvram.read_ns as f64 / 1e9,
    );
    let superblock_pages = f64::from(base.geometry.pages_per_superblock());
    let pages = f64::from(base.geometry.pages());

    let mut lines: [(&str, Points); 3] =
        [("flog", vec![]), ("nlog", vec![]), ("remap-ssd", vec![])];

    for power in 4..=12 {
        let mib = f64::from(1u32 << power);
        let bytes = mib * f64::from(1 << 20);

        let flog = bytes / 4096.0 / dies * read_s;
        // NVRAM is read in lines of 64 bytes, one after the other.
        let nlog = bytes / 64.0 * port_s;
        // A superblock's share of the entries in a log of this size.
        let local = bytes * superblock_pages / pages / 64.0 * port_s;

        for (line, seconds) in lines.iter_mut().zip([flog, nlog, local]) {
            line.1.push((mib, seconds * 1e3));
        }
    }

    // 4 TB of 4 KB pages, 5 % and 20 % of them remapped, 12 bytes each (section 3.3).
    for share in [0.05, 0.20] {
        let bytes = 4.0 * 1024.0 * GIB / 4096.0 * share * GLOBAL_ENTRY;
        found.measure(
            format!("log_4tib_mib {:.0}%", share * 100.0),
            bytes / f64::from(1 << 20),
        );
        let round = if share < 0.1 { 600.0 } else { 2400.0 };
        found.measure(
            format!("log_over_{round}mib"),
            bytes / f64::from(1 << 20) / round,
        );
        found.measure(
            format!("nlog_lookup_4tib_s {:.0}%", share * 100.0),
            bytes / 64.0 * port_s,
        );
    }

    let hundreds: f64 = 200.0 * f64::from(1 << 20) / 64.0 * port_s;
    found.measure("nlog_lookup_200mib_s", hundreds);
    let last = |line: &(&str, Points)| line.1.last().map_or(f64::NAN, |point| point.1);
    found.measure("lookup_nlog_over_local", last(&lines[1]) / last(&lines[2]));

    found.plots.push(Plot {
        name: "lookup".into(),
        title: "What one collection reads to find a victim's owners".into(),
        reading: "A global log is scanned whole at each collection, a segment group is the victim's share of it."
            .into(),
        y: "milliseconds".into(),
        shape: MarkKind::Lines(Lines {
            x: "log or NVRAM, MiB".into(),
            logarithmic: true,
            lines: lines.into_iter().map(|(name, points)| (name.to_owned(), points)).collect(), points: Vec::new() }),
    });
}
