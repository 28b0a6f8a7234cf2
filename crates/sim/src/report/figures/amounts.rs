//! Figures of amounts: one bar per run, whole or in parts.
//!
//! Invariants: parts are drawn in the order of their legend; a bar whose parts do not add up to its
//! total says so. Absent: time; see `curves`.

use maud::Markup;

use super::{Figure, Series};
use crate::plot::bars::{Bar, BarChart, Part};
use crate::plot::paint::{Fill, Paint};
use crate::plot::{Size, fluid};
use crate::report::format::{compact, exact, number, percent, ratio, share};
use crate::report::metrics::{BASELINE, attempted, demoted, speedup, speedup_half};
use crate::report::palette::PARTS;
use crate::summary::RunSummary;

/// What the error bars mean.
const INTERVALS: &str = " Error bars are 95 % confidence intervals; a transient run has none.";

impl<'a> Series<'a> {
    /// Bandwidth as a multiple of the baseline's, or absolute.
    pub(super) fn bandwidth(&self) -> Figure {
        let compared = self
            .runs
            .iter()
            .any(|run| speedup(self.runs, run).is_some());

        let bars = self.bars(|run, paint| {
            let mib_s = run.bandwidth_mib_s;
            let times = speedup(self.runs, run);

            // Relative to the baseline if there is one; else absolute.
            let (value, half) = if compared {
                let half = speedup_half(self.runs, run);
                (times.unwrap_or(0.0), half.unwrap_or(f64::NAN))
            } else {
                (mib_s, run.ci95.bandwidth_mib_s)
            };

            let note = match times {
                Some(times) => format!("{} ({} MiB/s)", ratio(times), number(mib_s)),
                None => format!("{} MiB/s", number(mib_s)),
            };

            let part = Part {
                name: note.clone(),
                value: positive(value),
                color: paint.color,
                fill: paint.fill,
            };

            (note, vec![part], half)
        });

        let (title, reading) = if compared {
            (
                "bandwidth relative to none",
                format!(
                    "A bar past the dashed line is faster than the same device without remapping ({BASELINE} = 1); longer is better.{INTERVALS}"
                ),
            )
        } else {
            (
                "bandwidth, MiB/s",
                format!("Host bandwidth of each run in virtual time; longer is better.{INTERVALS}"),
            )
        };

        Figure {
            title: "Bandwidth",
            reading,
            picture: self.bar_chart(title, &[], bars, compared.then_some(1.0)),
        }
    }

    /// Flash pages per host page, by purpose of the program.
    pub(super) fn amplification(&self) -> Figure {
        const NAMES: [&str; 4] = ["host data", "garbage collection", "metadata", "other"];

        let mut others = false;

        let bars = self.bars(|run, _| {
            let host = run.host_pages as f64;
            let known = [run.host_programs, run.gc_pages, run.metadata_pages];

            // Unclassified pages are shown too: the length of a bar is all pages programmed.
            let sum = known
                .iter()
                .fold(0u64, |sum, pages| sum.saturating_add(*pages));

            let other = run.flash_pages.saturating_sub(sum);
            others |= other > 0;

            let parts = [known[0], known[1], known[2], other]
                .into_iter()
                .enumerate()
                .map(|(i, pages)| {
                    let value = share(pages as f64, host).unwrap_or(0.0);
                    let name = format!("{} {}, {} pages", NAMES[i], number(value), exact(pages));
                    Part {
                        name,
                        value,
                        color: PARTS[i].color,
                        fill: Fill::Solid,
                    }
                })
                .collect();

            let total = share(run.flash_pages as f64, host);
            let mut note = total.map_or_else(|| "no host pages".to_owned(), number);

            if let Some(parts) = share(sum as f64, host).filter(|_| sum > run.flash_pages) {
                // A bar drawn longer than its annotated value says so.
                note.push_str(&format!(" (parts: {})", number(parts)));
            }

            (note, parts, run.ci95.write_amplification)
        });

        // The fourth part is in the legend only if some run has it.
        let shown = if others { 4 } else { 3 };
        Figure {
            title: "Write amplification",
            reading: format!(
                "A bar's length is how many flash pages were programmed for each page the host \
                wrote or remapped, its colours are why; shorter is better, and below 1 remapping \
                or deduplication saved more than upkeep cost.{INTERVALS}"
            ),
            picture: self.bar_chart(
                "flash pages programmed per host page",
                &NAMES[..shown],
                bars,
                None,
            ),
        }
    }

    /// Remaps that became copies, by cause.
    pub(super) fn demotions(&self) -> Figure {
        const NAMES: [&str; 7] = [
            "reference counter full",
            "NVRAM full",
            "watermark",
            "slots full",
            "not programmed for the new owner",
            "other places in their units",
            "parts of a unit",
        ];
        let has_units = self.runs.iter().any(|run| run.indirection.is_some());
        let names = if has_units { &NAMES[..] } else { &NAMES[..5] };

        let bars = self.bars(|run, _| {
            let tried = attempted(run) as f64;
            let d = &run.demotions;

            let causes = [
                d.counter_full,
                d.nvram_full,
                d.watermark,
                d.degree_full,
                d.unhinted,
                d.unaligned,
                d.partial_unit,
            ];
            let parts = causes
                .into_iter()
                .take(names.len())
                .enumerate()
                .map(|(i, pages)| {
                    let of_tried = share(pages as f64, tried).unwrap_or(0.0);
                    let name =
                        format!("{} {}, {} pages", NAMES[i], percent(of_tried), exact(pages));
                    Part {
                        name,
                        value: of_tried * 100.0,
                        color: PARTS[i].color,
                        fill: Fill::Solid,
                    }
                })
                .collect();

            let note = match share(demoted(d) as f64, tried) {
                None => "no remaps".to_owned(),
                Some(part) => format!("{} of {}", percent(part), compact(attempted(run))),
            };

            (note, parts, f64::NAN)
        });

        // An empty chart would look like an error.
        let none = self.runs.iter().all(|run| demoted(&run.demotions) == 0);
        let picture = if none && !self.runs.is_empty() {
            Err("No remap became a copy.")
        } else {
            self.bar_chart("% of the pages that were to be remapped", names, bars, None)
        };

        Figure {
            title: "Remaps that became copies",
            reading:
                "A remap never fails, but it may become a physical copy; a bar shows how many \
                of those tried did, its colours why; shorter is better."
                    .to_owned(),
            picture,
        }
    }

    /// A bar for each run: the note after it, its parts, and half of its interval.
    pub(super) fn bars(
        &self,
        mut bar: impl FnMut(&RunSummary, Paint) -> (String, Vec<Part>, f64),
    ) -> Vec<Bar<'a>> {
        self.runs
            .iter()
            .zip(self.names)
            .zip(&self.paints)
            .map(|((run, label), &paint)| {
                let (note, parts, half) = bar(run, paint);
                Bar {
                    label,
                    note,
                    parts,
                    half,
                }
            })
            .collect()
    }

    fn bar_chart(
        &self,
        title: &str,
        parts: &[&str],
        bars: Vec<Bar>,
        reference: Option<f64>,
    ) -> Result<Markup, &'static str> {
        let legend = parts.iter().copied().zip(PARTS).collect();
        self.stacked_bars(title, legend, bars, reference)
    }

    pub(super) fn stacked_bars(
        &self,
        title: &str,
        legend: Vec<(&str, Paint)>,
        bars: Vec<Bar>,
        reference: Option<f64>,
    ) -> Result<Markup, &'static str> {
        if bars.is_empty() {
            return Err("There are no runs.");
        }

        let values: Vec<_> = bars
            .iter()
            .map(|bar| format!("{} {}", bar.label, bar.note))
            .collect();
        let description = format!("{title}: {}", values.join("; "));

        let chart = BarChart {
            description,
            title,
            bars,
            legend,
            reference,
        };
        Ok(fluid(Size::Column, title, |size, alone| {
            chart.draw(size, alone)
        }))
    }
}

fn positive(value: f64) -> f64 {
    if value.is_finite() {
        value.max(0.0)
    } else {
        0.0
    }
}
