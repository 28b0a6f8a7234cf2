//! The order of a file's pages across dies: the file is written in order, something changes that order, and it
//! is read in order.
//!
//! ```text
//! fresh              written in order                                     after that, nothing
//! overwritten        every page again, in a random order, beside random writes of other data
//! remapped           written in a random order elsewhere, and remapped to its place (a checkpoint)
//! deduplicated:0.5   half of the pages have the contents of random pages of other data
//! collected          written beside other data, page by page; these are overwritten until the file was moved
//! ```
//! `,run=N`: pages stay together in runs of N. The file is a quarter of the addressable pages, the other data are
//! another half. Each request reads 128 KiB; the file is read whole with each of `DEPTHS` requests in flight.
//!
//! Invariants: changes take no time, and the device is idle when reading begins; the same seed gives the same layout.
//! Absent: the host's reading ahead beyond these depths; file systems, whose own fragments come on top.

use crate::RunError;
use crate::grid::GridRun;
use remap_ssd_device::{Device, Lpn};
use remap_ssd_ftl::{Ftl, Refusal, Remap};
use remap_ssd_media::Payload;
use remap_ssd_sim::run::{RunOptions, run};
use remap_ssd_sim::workload::{ContentModel, Pattern, Workload, WorkloadConfig};
use serde_json::{Value, json};
use std::ops::ControlFlow;

/// Requests in flight, each read of the whole file.
pub(crate) const DEPTHS: [u32; 3] = [1, 4, 32];
/// Pages of a request: 128 KiB.
const REQUEST_PAGES: u32 = 32;
/// Pages written beside the file until collection has moved it, in multiples of the device's.
const COLLECTED_ROUNDS: u64 = 4;

/// What happened to the file.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Past {
    Fresh,
    Overwritten,
    Remapped,
    Deduplicated(f64),
    Collected,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct OrderSpec {
    past: Past,
    /// Pages that stay together.
    run: u32,
}

/// Parses a run's workload.
///
/// # Errors
/// One sentence: the valid names.
pub(crate) fn parse(text: &str) -> Result<OrderSpec, RunError> {
    let wrong = || {
        format!(
            "unknown past of a file `{text}`: fresh, overwritten, remapped, deduplicated:SHARE or collected, `,run=N` with 1, 2, 4, 8, 16 or 32 pages"
        )
    };

    let (name, run) = match text.split_once(",run=") {
        Some((name, run)) => (name, run.parse().map_err(|_| wrong())?),
        None => (text, 1),
    };

    let past = match (name, name.strip_prefix("deduplicated:")) {
        ("fresh", _) => Past::Fresh,
        ("overwritten", _) => Past::Overwritten,
        ("remapped", _) => Past::Remapped,
        ("collected", _) => Past::Collected,
        (_, Some(share)) => Past::Deduplicated(share.parse().map_err(|_| wrong())?),
        _ => return Err(wrong().into()),
    };

    // The file is a multiple of a request, and whole runs fill it.
    if !REQUEST_PAGES.is_multiple_of(run) {
        return Err(wrong().into());
    }
    Ok(OrderSpec { past, run })
}

/// Writes the file, changes its order and reads it.
///
/// # Errors
/// The device refuses a command.
pub(crate) fn measured(of: &GridRun, mut device: Device) -> Result<Value, RunError> {
    let spec = parse(&of.workload)?;
    let addressable = device.config().addressable_units();
    // Whole requests and whole runs.
    let file = addressable / 4 / REQUEST_PAGES * REQUEST_PAGES;
    let mut host = Host {
        device: &mut device,
        file,
        others: 2 * file,
        content: 1 << 40,
        state: of.seed,
    };
    host.prepare(spec)?;
    let before = device.ftl().stats();

    let mut result = json!({
        "file_pages": file,
        "remaps": before.remaps,
        "gc_pages": before.gc_programs,
    });

    for depth in DEPTHS {
        let mut reads = Workload::new(WorkloadConfig {
            pattern: Pattern::Sequential,
            read_percent: 100,
            request_pages: REQUEST_PAGES,
            content: ContentModel::Unique,
            addressable: file.into(),
            seed: of.seed,
            content_base: 0,
        })?;
        let options = RunOptions {
            pages: Some(file.into()),
            queue_depth: depth,
            ..RunOptions::default()
        };
        let go_on = &mut |_: &_| ControlFlow::Continue(());
        let summary = run(&mut device, &mut reads, &options, go_on)?;
        result[format!("depth_{depth}")] = json!({
            "mib_s": summary.bandwidth_mib_s,
            "latency_us": summary.read_latency_us,
        });
    }
    Ok(result)
}

/// Commands of the host, which take no time.
struct Host<'a> {
    device: &'a mut Device,
    /// Pages of the file, from page 0.
    file: u32,
    /// Pages of other data, after the file.
    others: u32,
    /// The next content that exists nowhere.
    content: u64,
    /// SplitMix64.
    state: u64,
}

impl Host<'_> {
    fn prepare(&mut self, spec: OrderSpec) -> Result<(), Refusal> {
        let (file, others) = (self.file, self.others);
        match spec.past {
            Past::Fresh => {
                self.write_all(file..file + others)?;
                self.write_all(0..file)
            }
            Past::Overwritten => {
                self.write_all(file..file + others)?;
                self.write_all(0..file)?;

                for first in self.shuffled(spec.run) {
                    self.write_all(first..first + spec.run)?;
                    // As many on average, but not in turn: every second page would be on half of the dies.
                    while self.below(spec.run + 1) < spec.run {
                        let other = file + self.below(others);
                        self.write(other)?;
                    }
                }
                Ok(())
            }
            Past::Remapped => {
                self.write_all(file..file + others)?;
                // The second half of the other data is a log of the file's pages.
                let log = file + others / 2;
                let order = self.shuffled(spec.run);
                self.write_all(log..log + file)?;

                let places = (log..).step_by(spec.run as usize);
                for (first, source) in order.into_iter().zip(places) {
                    self.do_in_no_time(|ftl| {
                        ftl.remap(&Remap {
                            target: Lpn(first),
                            source: Lpn(source),
                            len: spec.run,
                            relocate: false,
                            atomic: false,
                        })
                    })?;
                }
                Ok(())
            }
            Past::Deduplicated(share) => {
                let contents = self.content;
                self.write_all(file..file + others)?;

                for first in (0..file).step_by(spec.run as usize) {
                    let is_known = f64::from(self.below(1 << 24)) < share * f64::from(1 << 24);
                    // The other data were written first: their contents follow each other from here on.
                    let known = contents + u64::from(self.below(others - spec.run));
                    for page in 0..spec.run {
                        if is_known {
                            self.write_content(first + page, known + u64::from(page))?;
                        } else {
                            self.write(first + page)?;
                        }
                    }
                }
                Ok(())
            }
            Past::Collected => {
                self.write_all(file + file..file + others)?;

                // In turn with pages that die later: superblocks hold half of each, so that collection moves the file.
                for page in 0..file {
                    self.write(page)?;
                    self.write(file + page)?;
                }

                let pages = u64::from(self.device.config().geometry.pages());
                for _ in 0..COLLECTED_ROUNDS * pages {
                    let other = file + self.below(others);
                    self.write(other)?;
                }
                Ok(())
            }
        }
    }

    fn do_in_no_time(
        &mut self,
        work: impl FnOnce(&mut Ftl) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        self.device.untimed(work)
    }

    fn write(&mut self, lpn: u32) -> Result<(), Refusal> {
        self.content += 1;
        self.write_content(lpn, self.content - 1)
    }

    fn write_content(&mut self, lpn: u32, content: u64) -> Result<(), Refusal> {
        self.do_in_no_time(|ftl| ftl.write(Lpn(lpn), &Payload::Identity(content)))
    }

    fn write_all(&mut self, lpns: std::ops::Range<u32>) -> Result<(), Refusal> {
        lpns.into_iter().try_for_each(|lpn| self.write(lpn))
    }

    /// The file's runs by their first pages, in a random order.
    fn shuffled(&mut self, run: u32) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.file).step_by(run as usize).collect();
        for at in (1..order.len()).rev() {
            let other = self.below(at as u32 + 1) as usize;
            order.swap(at, other);
        }
        order
    }

    fn below(&mut self, limit: u32) -> u32 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        ((u128::from(mixed) * u128::from(limit)) >> 64) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_past_is_named_with_its_options() {
        let spec = |past, run| OrderSpec { past, run };
        assert_eq!(parse("remapped,run=8").unwrap(), spec(Past::Remapped, 8));
        assert_eq!(
            parse("deduplicated:0.5").unwrap(),
            spec(Past::Deduplicated(0.5), 1)
        );
        for wrong in ["old", "fresh,run=0", "remapped,run=33", "deduplicated:x"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
