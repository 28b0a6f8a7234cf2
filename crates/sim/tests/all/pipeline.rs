//! A run on two threads is identical to the run on one: bit for bit, for every scheme and any load.

use remap_ssd_device::{Device, DeviceConfig, HostLpn, Lpn};
use remap_ssd_ftl::{GcPolicy, SchemeKind};
use remap_ssd_media::ContentMode;
use remap_ssd_sim::aging::{AgingOptions, age};
use remap_ssd_sim::run::{RunError, RunOptions, run};
use remap_ssd_sim::source::{HostPage, PageKind, Source, SourceError};
use remap_ssd_sim::workload::{ContentModel, NamedWorkload, Pattern, Workload, WorkloadConfig};
use std::ops::ControlFlow;

pub(crate) const PAPERS: ContentModel = ContentModel::Papers {
    duplicate_ratio: 0.3,
    exponent: 0.2,
};

pub(crate) fn config(scheme: SchemeKind, dedup: bool) -> DeviceConfig {
    let mut config = DeviceConfig::preset("fast21-32g").unwrap();
    config.firmware.scheme = scheme;
    config.firmware.dedup = dedup;
    config.content = if dedup {
        ContentMode::Identity
    } else {
        ContentMode::None
    };
    let tables = config.firmware.tables_bytes(&config.geometry);
    config.firmware.log_bytes = config.firmware.log_bytes.max(tables);
    config.scale(1.0 / 128.0).unwrap()
}

fn aged(config: &DeviceConfig) -> Device {
    let mut device = Device::format(config.clone()).unwrap();
    let mut writes = Workload::new(WorkloadConfig {
        pattern: Pattern::Random,
        read_percent: 0,
        request_pages: 1,
        content: PAPERS,
        addressable: config.addressable_lpns(),
        seed: 5,
        content_base: 0,
    })
    .unwrap();
    age(&mut device, &mut writes, &AgingOptions::default()).unwrap();
    device
}

/// All results of a run: its summary as JSON without the wall clock, the state of the device, and
/// the next pages of the source.
fn traces(
    mut device: Device,
    source: &mut dyn Source,
    options: &RunOptions,
    threads: u32,
) -> String {
    let options = RunOptions {
        threads,
        ..options.clone()
    };
    let result = run(&mut device, source, &options, &mut |_| {
        ControlFlow::Continue(())
    });
    let mut summary = result.unwrap_or_else(|error| panic!("{error}"));
    summary.wall_s = 0.0;
    let mut next = Vec::new();
    source.fill(&mut next, 3).unwrap();
    next.truncate(3);
    format!(
        "{}\n{:?}\n{:?}\n{:?}\n{}\n{next:?}",
        serde_json::to_string(&summary).unwrap(),
        device.ftl().stats(),
        device.ftl().usage(),
        device.ftl().media().counts,
        device.timing().busy_until(),
    )
}

fn are_the_same(
    what: &str,
    config: &DeviceConfig,
    options: &RunOptions,
    mut source: impl FnMut() -> Box<dyn Source>,
) {
    let [one, two] = [1, 2].map(|threads| traces(aged(config), &mut *source(), options, threads));
    let differs = one
        .char_indices()
        .zip(two.chars())
        .find(|((_, a), b)| a != b);
    let at = differs.map_or(0, |((at, _), _)| at.saturating_sub(100));
    assert!(
        one == two,
        "{what}: ...{}\nand with two threads ...{}",
        &one[at..one.len().min(at + 300)],
        &two[at..two.len().min(at + 300)],
    );
}

fn options(pages: u64, queue_depth: u32) -> RunOptions {
    RunOptions {
        pages: Some(pages),
        queue_depth,
        // Short, so that readings fall on many different requests.
        sample_interval_ns: 300_000,
        samples: 150,
        ..RunOptions::default()
    }
}

fn named(text: &str, config: &DeviceConfig, seed: u64) -> Box<dyn Source> {
    let workload: NamedWorkload = text.parse().unwrap();
    workload
        .source(PAPERS, config.addressable_lpns(), seed, 0)
        .unwrap()
}

// Every scheme, on the workload of its device: garbage collection, reclaiming of metadata and all.
#[test]
fn every_scheme_gives_the_same_on_two_threads() {
    for (index, scheme) in SchemeKind::ALL.into_iter().enumerate() {
        for dedup in [false, true] {
            let config = config(scheme, dedup);
            let workload = if scheme.uses_hints() {
                "journal"
            } else {
                "randwrite"
            };
            let options = options(40_000, 1 + 13 * (index as u32 % 4));
            are_the_same(&format!("{scheme}"), &config, &options, || {
                named(workload, &config, index as u64)
            });
        }
    }
}

#[test]
fn every_workload_gives_the_same_on_two_threads() {
    let config = config(SchemeKind::RemapSsd, true);
    for (seed, workload) in [
        "zipf:0.99",
        "zipfrw:0.9:50,pages=7",
        "fileserver",
        "oltp",
        "ycsb",
        "tpcc",
        "sysbench",
        "fiu-mail",
        "journal",
        "snapshot",
    ]
    .into_iter()
    .enumerate()
    {
        are_the_same(workload, &config, &options(20_000, 32), || {
            named(workload, &config, seed as u64)
        });
    }
}

#[test]
fn every_policy_of_collection_gives_the_same_on_two_threads() {
    for policy in GcPolicy::ALL {
        let mut config = config(SchemeKind::RemapSsd, true);
        config.firmware.gc_policy = policy;
        are_the_same(&format!("{policy}"), &config, &options(40_000, 64), || {
            named("zipf:0.9", &config, 9)
        });
    }
}

/// Requests of all kinds and lengths, some of them refused, in random order.
struct Anything {
    state: u64,
    addressable: u64,
    left: usize,
}

impl Anything {
    fn below(&mut self, limit: u32) -> u32 {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        ((self.state >> 33) % u64::from(limit)) as u32
    }
}

impl Source for Anything {
    fn fill(&mut self, out: &mut Vec<HostPage>, want: usize) -> Result<bool, SourceError> {
        let full = out.len() + want;
        let begin = out.len();
        while out.len() < full && self.left > 0 {
            self.left -= 1;
            let len = 1 + self.below(9) * self.below(2) + 40 * u32::from(self.below(50) == 0);
            let which = self.below(16);
            let lpn = self.below(self.addressable as u32 - 64);
            for index in 0..len {
                let gap = u32::from(index > 2);
                let kind = match which {
                    0..=6 => PageKind::Write,
                    7 | 8 => PageKind::Read,
                    9 | 10 => PageKind::Trim,
                    11 => PageKind::Flush,
                    12 if index == 0 => PageKind::ReadModifyWrite,
                    12 => PageKind::Write,
                    13 => PageKind::WriteFor {
                        home: Lpn(lpn / 2).into(),
                    },
                    // A target out of range is refused.
                    14 if self.below(3) == 0 => PageKind::Remap {
                        source: HostLpn::new((1 << 34) - 9),
                        len: 3,
                        relocate: false,
                        atomic: false,
                    },
                    _ => PageKind::Remap {
                        source: Lpn(lpn / 2).into(),
                        len: 1 + self.below(5) as u16,
                        relocate: which == 15,
                        atomic: false,
                    },
                };
                out.push(HostPage {
                    at_ns: 0,
                    content: 1 + u64::from(self.below(5000)),
                    lpn: Lpn(lpn + index + gap).into(),
                    kind,
                    last: index + 1 == len,
                });
            }
        }
        Ok(out.len() > begin)
    }
}

#[test]
fn requests_of_every_kind_give_the_same_on_two_threads() {
    for (seed, scheme) in [
        SchemeKind::RemapSsd,
        SchemeKind::None,
        SchemeKind::Opt,
        SchemeKind::WalSsd,
    ]
    .into_iter()
    .enumerate()
    {
        let mut config = config(scheme, true);
        if scheme != SchemeKind::None {
            config.controller.firmware_ns = 20_000;
            config.controller.page_ns = 3_000;
            config.controller.cores = 3;
            config.flash.flush_ns = 90_000;
        }
        for (depth, pages) in [(1, None), (7, Some(9_000)), (32, Some(3_001)), (256, None)] {
            let options = RunOptions {
                pages,
                ..options(0, depth)
            };
            are_the_same(
                &format!("{scheme}, depth {depth}"),
                &config,
                &options,
                || {
                    Box::new(Anything {
                        state: seed as u64 * 77 + u64::from(depth),
                        addressable: config.addressable_lpns(),
                        left: 8_000,
                    })
                },
            );
        }
    }
}

// The capacity of such a device changes with single pages: the counters of each request must show
// it.
#[test]
fn a_device_that_wears_out_meanwhile_gives_the_same_on_two_threads() {
    let mut config = config(SchemeKind::RemapSsd, false);
    config.flash.endurance = 5;
    let options = options(150_000, 32);
    are_the_same("worn", &config, &options, || named("randwrite", &config, 3));

    let device = &mut aged(&config);
    let mut source = named("randwrite", &config, 3);
    let two = RunOptions {
        threads: 2,
        ..options
    };
    let summary = run(device, &mut *source, &two, &mut |_| {
        ControlFlow::Continue(())
    })
    .unwrap();
    let usable = |index: usize| summary.samples[index].usable_pages;
    assert!(
        usable(summary.samples.len() - 1) < usable(0),
        "no block was worn out"
    );
}

// If time affects the firmware, only one thread is used, even if more are allowed.
#[test]
fn open_loops_and_whole_lives_do_not_depend_on_threads() {
    let mut config = config(SchemeKind::RemapSsd, true);
    for bound in [None, Some(4)] {
        let options = RunOptions {
            open_loop: true,
            bound,
            ..options(5_000, 32)
        };
        are_the_same("open loop", &config, &options, || {
            named("randwrite", &config, 4)
        });
    }
    config.flash.endurance = 14;
    let life = RunOptions {
        until_worn_out: true,
        ..options(10_000_000, 32)
    };
    are_the_same("a life", &config, &life, || named("randwrite", &config, 4));
}

/// A source of the given pages.
struct Fixed(Vec<HostPage>);

impl Source for Fixed {
    fn fill(&mut self, out: &mut Vec<HostPage>, _want: usize) -> Result<bool, SourceError> {
        let some = !self.0.is_empty();
        out.append(&mut self.0);
        Ok(some)
    }
}

/// Fails after this number of pages.
struct Failing(u64);

impl Source for Failing {
    fn fill(&mut self, out: &mut Vec<HostPage>, want: usize) -> Result<bool, SourceError> {
        let page = HostPage {
            at_ns: 0,
            content: 1,
            lpn: Lpn(1).into(),
            kind: PageKind::Write,
            last: true,
        };
        if self.0 == 0 {
            return Err(SourceError::Unusable {
                file: "here".into(),
                reason: "it broke".into(),
            });
        }
        let pages = self.0.min(want as u64);
        self.0 -= pages;
        out.extend((0..pages).map(|_| page));
        Ok(true)
    }
}

#[test]
fn errors_are_the_same_on_two_threads_and_nothing_hangs() {
    let config = config(SchemeKind::RemapSsd, true);
    let page = |lpn, last| HostPage {
        at_ns: 0,
        content: 1,
        lpn,
        kind: PageKind::Write,
        last,
    };
    for threads in [1, 2] {
        let go = |source: &mut dyn Source, stop_after: u64| {
            let mut device = Device::format(config.clone()).unwrap();
            let options = RunOptions {
                threads,
                ..RunOptions::default()
            };
            let mut tells = 0;
            run(&mut device, source, &options, &mut |_| {
                tells += 1;
                if tells > stop_after {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            })
        };
        let nothing = go(&mut Fixed(Vec::new()), u64::MAX);
        assert!(matches!(nothing, Err(RunError::Nothing)), "{threads}");

        let unfinished = go(
            &mut Fixed(vec![page(Lpn(0).into(), true), page(Lpn(1).into(), false)]),
            u64::MAX,
        );
        assert!(matches!(unfinished, Err(RunError::Unfinished)), "{threads}");

        for pages in [0, 1, 5_000, 50_000] {
            let failed = go(&mut Failing(pages), u64::MAX);
            assert!(matches!(failed, Err(RunError::Source(_))), "{threads}");
        }

        let stopped = go(&mut Failing(u64::MAX), 7);
        assert!(matches!(stopped, Err(RunError::Stopped)), "{threads}");
    }
}
