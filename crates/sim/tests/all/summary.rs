//! Summaries: every figure that a run can measure is measured by some run, and figures that belong
//! together agree.

use remap_ssd_device::{Device, DeviceConfig, HostLpn, Setting};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_sim::run::{RunOptions, run, warm_up};
use remap_ssd_sim::source::{HostPage, PageKind, Source, SourceError};
use remap_ssd_sim::summary::RunSummary;
use remap_ssd_sim::workload::{ContentModel, NamedWorkload};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Requests of all kinds, with duplicates, as many as given.
struct Mixed {
    at: u64,
    end: u64,
    addressable: u64,
}

impl Mixed {
    fn on(device: &Device, requests: u64) -> Self {
        Self {
            at: 0,
            end: requests,
            addressable: device.config().addressable_lpns(),
        }
    }

    /// A number from a position, the same in every run.
    fn draw(&self, below: u64) -> HostLpn {
        let mixed = (self.at ^ 0x5bd1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        HostLpn::new(((mixed >> 32) * below) >> 32)
    }
}

impl Source for Mixed {
    fn fill(&mut self, out: &mut Vec<HostPage>, want: usize) -> Result<bool, SourceError> {
        let end = self.end.min(self.at + want as u64);
        let some = self.at < end;
        while self.at < end {
            // Now and then the first half of a block of 16 pages, in order.
            let (run, in_block) = (self.at / 4096, self.at % 4096);
            let hot = self.draw(64);
            let remap = PageKind::Remap {
                source: hot,
                len: 1,
                relocate: false,
                atomic: false,
            };

            // Every content but those of the first writes is unique or one of a few.
            let (kind, content) = match self.at % 16 {
                _ if self.at < self.addressable => (PageKind::Write, 1000 + self.at),
                _ if in_block < 8 => (PageKind::Write, 1000 + self.at),
                0 | 1 => (PageKind::Read, 0),
                2 | 3 => (remap, 0),
                4 => (PageKind::ReadModifyWrite, 1000 + self.at),
                5 => (PageKind::Write, 1 + self.at % 100),
                6 => (PageKind::WriteFor { home: hot }, 1000 + self.at),
                7 if self.at % 1024 == 7 => (PageKind::Trim, 0),
                7 if self.at % 1024 == 23 => (PageKind::Flush, 0),
                _ => (PageKind::Write, 1000 + self.at),
            };
            let lpn = if self.at < self.addressable {
                HostLpn::new(self.at)
            } else if in_block < 8 {
                HostLpn::new(run * 16 % (self.addressable - 16) / 16 * 16 + in_block)
            } else {
                self.draw(self.addressable)
            };
            out.push(HostPage {
                at_ns: self.at * 20_000,
                content,
                lpn,
                kind,
                last: true,
            });
            self.at += 1;
        }
        Ok(some)
    }

    fn skipped(&self) -> u64 {
        3
    }
}

fn device(scheme: SchemeKind, settings: &[&str]) -> Device {
    let settings: Vec<Setting> = settings
        .iter()
        .map(|setting| setting.parse().expect("a setting"))
        .collect();
    let mut config = DeviceConfig::preset("fast21-32g")
        .and_then(|preset| preset.with(&settings))
        .expect("a device");
    config.firmware.scheme = scheme;
    config.firmware.log_bytes = config
        .firmware
        .log_bytes
        .max(config.firmware.tables_bytes(&config.geometry));
    let mut device = Device::format(config.scale(1.0 / 256.0).expect("small")).expect("works");
    device.untimed(|ftl| ftl.watch_survival());
    device
}

fn measured(device: &mut Device, source: &mut dyn Source, options: &RunOptions) -> RunSummary {
    run(device, source, options, &mut |_| ControlFlow::Continue(())).expect("it runs")
}

/// Notes for each figure whether this value has been measured. Elements of a list count together.
fn note(found: &mut BTreeMap<String, bool>, name: &str, value: &Value) {
    let is_measured = match value {
        Value::Object(parts) => {
            for (part, value) in parts {
                note(found, &format!("{name}.{part}"), value);
            }
            !parts.is_empty()
        }
        Value::Array(elements) => {
            elements
                .iter()
                .for_each(|element| note(found, &format!("{name}[]"), element));
            !elements.is_empty()
        }
        Value::Null => false,
        Value::Bool(is_so) => *is_so,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
    };
    *found.entry(name.to_owned()).or_default() |= is_measured;
}

#[test]
fn every_figure_of_a_summary_is_measured_by_some_run() {
    let mut found = BTreeMap::new();
    let mut add = |summary: &RunSummary| {
        note(
            &mut found,
            "",
            &serde_json::to_value(summary).expect("JSON"),
        );
    };

    let all = SchemeKind::ALL.into_iter().map(|scheme| (scheme, &[][..]));
    let hybrid = [
        "firmware.mapping=hybrid",
        "firmware.block_pages=16",
        "firmware.lpns=6000000",
    ];
    // Little room for entries, with a low and a high watermark; and a policy that keeps shared
    // pages apart.
    let special: [(SchemeKind, &[&str]); 4] = [
        (SchemeKind::RemapSsd, &hybrid),
        (
            SchemeKind::RemapSsd,
            &["firmware.log_bytes=4194304", "firmware.watermark=0.2"],
        ),
        (
            SchemeKind::RemapSsd,
            &["firmware.log_bytes=4194304", "firmware.watermark=1.0"],
        ),
        (SchemeKind::RemapSsd, &["firmware.gc_policy=cagc"]),
    ];
    for (scheme, settings) in all.chain(special) {
        let mut device = device(scheme, settings);
        let mut source = Mixed::on(&device, 200_000);
        add(&measured(&mut device, &mut source, &RunOptions::default()));
    }

    // Too few readings to call it a transient, which would have no intervals.
    let mut brief = device(SchemeKind::RemapSsd, &[]);
    let options = RunOptions {
        samples: 8,
        ..RunOptions::default()
    };
    let mut source = Mixed::on(&brief, 200_000);
    add(&measured(&mut brief, &mut source, &options));

    // A run like any other from begin to end, after a warm-up.
    let mut steady = device(SchemeKind::None, &[]);
    let addressable = steady.config().addressable_lpns();
    let writes: NamedWorkload = "randwrite".parse().expect("a workload");
    let mut source = writes
        .source(ContentModel::Unique, addressable, 1, 0)
        .expect("it fits");
    let warm_up_pages = warm_up(&mut steady, &mut *source, 20_000, 1_000_000, &mut |_| {
        ControlFlow::Continue(())
    });
    let options = RunOptions {
        pages: Some(100_000),
        ..RunOptions::default()
    };
    let mut summary = measured(&mut steady, &mut *source, &options);
    summary.steady.warm_up_pages = warm_up_pages.expect("it runs");
    summary.steady.is_precise = Some(true);
    add(&summary);

    // Requests that arrive faster than they are served.
    let mut crowded = device(SchemeKind::None, &[]);
    let options = RunOptions {
        open_loop: true,
        bound: Some(100),
        ..RunOptions::default()
    };
    let mut source = Mixed::on(&crowded, 200_000);
    add(&measured(&mut crowded, &mut source, &options));

    // Blocks that are read often.
    let mut read = device(SchemeKind::None, &["firmware.refresh_reads=1000"]);
    let mut source = Mixed::on(&read, 60_000);
    add(&measured(&mut read, &mut source, &RunOptions::default()));

    // Few entries of the mapping table are in DRAM.
    let mut little = device(SchemeKind::RemapSsd, &["firmware.mapping_cache_bytes=4096"]);
    let mut source = Mixed::on(&little, 60_000);
    add(&measured(&mut little, &mut source, &RunOptions::default()));

    // Writes are acknowledged in a buffer, and remaps are executed there.
    let buffer = [
        "firmware.write_buffer_bytes=4GiB",
        "firmware.buffered_remaps=name",
    ];
    let mut buffering = device(SchemeKind::RemapSsd, &buffer);
    let mut source = Mixed::on(&buffering, 60_000);
    add(&measured(
        &mut buffering,
        &mut source,
        &RunOptions::default(),
    ));

    // An SLC cache, of which superblocks are folded.
    let cells = [
        "geometry.cell_bits=2",
        "geometry.one_shot=true",
        "timing.engine=nand",
        "background.lookup_stalls_dies=false",
        "firmware.lpns=6000000",
        "firmware.slc_share=0.1",
    ];
    let mut cached = device(SchemeKind::RemapSsd, &cells);
    // Only its own figures: this engine has others, which `nand` tests.
    let of_cache = |summary: &RunSummary| RunSummary {
        slc: summary.slc,
        ..RunSummary::default()
    };
    let mut source = Mixed::on(&cached, 500);
    let new = measured(&mut cached, &mut source, &RunOptions::default());
    add(&of_cache(&new));
    let mut source = Mixed::on(&cached, 60_000);
    let summary = measured(&mut cached, &mut source, &RunOptions::default());
    let slc = summary.slc.expect("it has a cache");
    assert_eq!(slc.host_pages + slc.past_pages, summary.host_programs);
    assert!(slc.folded_pages < summary.gc_pages);
    add(&of_cache(&summary));

    // Indirection units of four pages, written page by page and whole.
    let units = [
        "geometry.page_bytes=16384",
        "geometry.indirection_bytes=16384",
    ];
    let mut large = device(SchemeKind::RemapSsd, &units);
    let mut source = Mixed::on(&large, 60_000);
    add(&measured(&mut large, &mut source, &RunOptions::default()));
    let with_buffer = [&units[..], &["firmware.write_buffer_bytes=4GiB"]].concat();
    let mut merging = device(SchemeKind::RemapSsd, &with_buffer);
    let mut source = Mixed::on(&merging, 10_000);
    add(&measured(&mut merging, &mut source, &RunOptions::default()));
    let in_order: NamedWorkload = "seqwrite,pages=8".parse().expect("a workload");
    let addressable = large.config().addressable_lpns();
    let mut source = in_order
        .source(ContentModel::Unique, addressable, 1, 0)
        .expect("it fits");
    let options = RunOptions {
        pages: Some(10_000),
        ..RunOptions::default()
    };
    add(&measured(&mut large, &mut *source, &options));

    // Blocks that wear out.
    let mut worn = device(SchemeKind::None, &["flash.endurance=4"]);
    let options = RunOptions {
        until_worn_out: true,
        ..RunOptions::default()
    };
    let mut source = Mixed::on(&worn, 10_000_000);
    add(&measured(&mut worn, &mut source, &options));

    let missing: Vec<_> = found
        .iter()
        .filter(|(_, is)| !**is)
        .map(|(name, _)| name)
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// What the room for remapping metadata has is for entries or for heads.
#[test]
fn the_room_for_metadata_is_that_of_entries_and_of_heads() {
    for scheme in SchemeKind::ALL {
        let mut device = device(scheme, &[]);
        let mut source = Mixed::on(&device, 100);
        let summary = measured(&mut device, &mut source, &RunOptions::default());
        let entries = device.ftl().usage().entry_room_bytes;
        let parts = entries + summary.nvram_heads_bytes;
        assert_eq!(summary.nvram_room_bytes, parts, "{scheme}");
    }
}
