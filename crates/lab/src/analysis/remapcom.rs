//! RemapCom: LevelDB's compaction shares the blocks that it does not change.
//!
//! Write amplification is that of the store and the device together: flash pages for a page of keys and values that the
//! program puts, with all metadata. Throughput is that of the same puts (and reads, under YCSB), by the device's time.

use super::{Findings, most, one_panel};
use crate::LabError;
use crate::plot::Plot;
use crate::table::{Ask, Row, Table};
use remap_ssd_sim::report::sheet::Sheet;

/// Loads, with the bytes of keys and values that they put, as `rig/leveldb record` prints them.
const LOADS: [(&str, &str, f64); 4] = [
    ("bench-1000", "db_bench, 1,000 B", 203_200_000.0),
    ("bench-4000", "db_bench, 4,000 B", 200_800_000.0),
    ("ycsb-1000", "YCSB A, 1,000 B", 153_822_208.0),
    ("ycsb-4000", "YCSB A, 4,000 B", 150_686_728.0),
];
/// Devices, by the ends of their setups' names; the first is the one of the claims.
const DEVICES: [(&str, &str); 5] = [
    ("", "setup A"),
    ("-unit-1", "flash that programs 1 page at a time"),
    ("-unit-12", "flash that programs 12 pages at a time"),
    ("-cache-10", "setup A, 10 % of the mapping table in DRAM"),
    ("-cache-2", "setup A, 2 % of the mapping table in DRAM"),
];
const PAGE_BYTES: f64 = 4096.0;

/// What one load costs on one device, with LevelDB as it is and with shared blocks.
struct Compared<'a> {
    stock: &'a Row,
    shared: &'a Row,
    bytes: f64,
}

impl<'a> Compared<'a> {
    fn of(
        table: &'a Table,
        device: &str,
        (load, _, bytes): (&str, &str, f64),
        scheme: &str,
    ) -> Result<Self, LabError> {
        let setup = format!("leveldb{device}");
        let row = |arm: &str, scheme: &str| {
            table.row(Ask {
                setup: Some(&setup),
                workload: Some(&format!("recording:leveldb-{load}-{arm}")),
                scheme: Some(scheme),
                ..Ask::default()
            })
        };

        Ok(Self {
            stock: row("stock", "none")?,
            shared: row("shared", scheme)?,
            bytes,
        })
    }

    /// Flash pages for a page that the program puts, of both arms.
    fn amplification(&self) -> Result<[f64; 2], LabError> {
        let of = |row: &Row| Ok(row.number("flash_pages")? * PAGE_BYTES / self.bytes);
        Ok([of(self.stock)?, of(self.shared)?])
    }

    /// Share of the flash pages that sharing saves.
    fn saved(&self) -> Result<f64, LabError> {
        let [stock, shared] = self.amplification()?;
        Ok(1.0 - shared / stock)
    }

    /// Throughput with sharing over that without.
    fn gain(&self) -> Result<f64, LabError> {
        let seconds = |row: &Row| row.number("seconds_simulated");
        Ok(seconds(self.stock)? / seconds(self.shared)?)
    }

    fn measure(&self, load: &str, found: &mut Findings) -> Result<(), LabError> {
        for (arm, row) in [("stock", self.stock), ("shared", self.shared)] {
            for name in ["reads", "writes", "remaps"] {
                let requests = row.number(&format!("requests.{name}"))?;
                found.measure(format!("{name} {arm} {load}"), requests);
            }
            found.measure(
                format!("ms {arm} {load}"),
                row.number("seconds_simulated")? * 1e3,
            );
        }
        let [stock, shared] = self.amplification()?;
        found.measure(format!("wa stock {load}"), stock);
        found.measure(format!("wa shared {load}"), shared);
        found.measure(format!("saved {load}"), self.saved()?);
        found.measure(format!("gain {load}"), self.gain()?);
        Ok(())
    }
}

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    let mut found = Findings::default();
    let (mut rows, mut bars) = (Vec::new(), Vec::new());
    for (device, title) in DEVICES {
        for load in LOADS {
            let compared = Compared::of(table, device, load, "remap-ssd")?;
            let [stock, shared] = compared.amplification()?;
            let (saved, gain) = (compared.saved()?, compared.gain()?);
            let cells = [
                title.to_owned(),
                load.1.to_owned(),
                format!("{stock:.2}"),
                format!("{shared:.2}"),
                format!("{:+.1} %", -100.0 * saved),
                format!("{:+.1} %", 100.0 * (gain - 1.0)),
            ];
            rows.push(cells.into());

            compared.measure(&format!("{}{device}", load.0), &mut found)?;
            if device.is_empty() {
                let arms = [("stock", stock), ("shared", shared)];
                let arms = arms.map(|(arm, amplification)| (arm.to_owned(), amplification));
                bars.push((load.1.to_owned(), arms.into()));
                let opt = Compared::of(table, device, load, "opt")?;
                found.measure(format!("gain opt {}", load.0), opt.gain()?);
            }
        }
    }

    for measure in ["saved", "gain"] {
        let of_loads = LOADS.map(|(load, ..)| found.measures[&format!("{measure} {load}")]);
        found.measure(measure, most(&of_loads));
    }
    let columns = [
        ("device", false),
        ("load", false),
        ("WA, stock", true),
        ("WA, shared", true),
        ("change", true),
        ("throughput", true),
    ];
    found.table = Some(Sheet::of_words(&columns, rows, Vec::new()));
    found.plots.push(Plot {
        name: "remapcom-write-amplification".into(),
        title: "Flash pages programmed for a page that the program puts".into(),
        reading: "LevelDB as it is, and with blocks shared by compaction, on setup A.".into(),
        y: "pages".into(),
        shape: one_panel("", bars, Some(1.0)),
    });
    Ok(found)
}
