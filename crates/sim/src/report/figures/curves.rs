//! Figures of curves: one line per run, over time or over latency.
//!
//! Invariants: the runs of a figure share its axes; a series too dense to follow gets a trend line.
//! Absent: thinning and drawing; see `series` and `lines`.

use super::{Figure, Series};
use crate::plot::axis::{Axis, time_unit};
use crate::plot::lines::{ChartLine, LineChart, LinePanel};
use crate::plot::series::{Point, finite, staircase, trend};
use crate::plot::{Size, fluid};
use crate::report::format::si;
use crate::report::progress::Progress;
use crate::summary::{RunSummary, Sample};

impl Series<'_> {
    /// Host bandwidth over time.
    pub(super) fn bandwidth_over_time(&self) -> Figure {
        self.over_time(
            "Bandwidth over the run",
            "Higher and steadier is better; dips are what garbage collection and log reclaiming cost the host.",
            "MiB/s",
            |sample| sample.bandwidth_mib_s,
        )
    }

    /// Pages moved by GC over time.
    pub(super) fn gc_over_time(&self) -> Figure {
        self.over_time(
            "Garbage collection over the run",
            "Pages that garbage collection moved; lower is better, and tall spikes delay what the host has queued.",
            "pages moved per second",
            |sample| sample.gc_pages_s,
        )
    }

    /// Fill level of the remapping metadata over time.
    pub(super) fn room_over_time(&self) -> Figure {
        let mut figure = self.over_time(
            "Room for remapping metadata",
            "How much of the room a scheme has for its remaps is in use; near 100 % remaps start to become copies.",
            "% in use",
            |sample| sample.nvram_used * 100.0,
        );

        // If nothing is ever used, a text says so: a line at zero would look like free space.
        let used = |run: &RunSummary| run.samples.iter().any(|sample| sample.nvram_used > 0.0);
        if figure.picture.is_ok() && !self.runs.iter().any(used) {
            figure.picture = Err("No remapping metadata was kept.");
        }
        figure
    }

    /// Number of waiting requests over time.
    pub(super) fn backlog_over_time(&self) -> Figure {
        self.over_time(
            "Backlog over the run",
            "Requests that had arrived and not ended; a line that rises to the end is a device that cannot keep up.",
            "requests",
            |sample| sample.backlog.unwrap_or(0) as f64,
        )
    }

    /// Capacity of a device that wears out, by data written.
    pub(super) fn capacity_over_writes(&self) -> Figure {
        const GIB: f64 = (1u64 << 30) as f64;
        const PAGE_BYTES: f64 = 4096.0;

        let mut curves: Vec<Vec<Point>> = self
            .runs
            .iter()
            .map(|run| {
                // Writes before the measurement have worn the blocks too.
                let total = run.wear_out.host_bytes as f64 / GIB;
                let mut before_s = 0.0;
                let mut written: Vec<f64> = Vec::new();
                for sample in &run.samples {
                    // A rate holds since the previous sample.
                    let more = sample.written_mib_s * (sample.at_s - before_s) / 1024.0;
                    written.push(written.last().unwrap_or(&0.0) + more);
                    before_s = sample.at_s;
                }

                let before = (total - written.last().unwrap_or(&0.0)).max(0.0);
                let capacity = run
                    .samples
                    .iter()
                    .map(|sample| sample.usable_pages as f64 * PAGE_BYTES / GIB);
                finite(written.into_iter().map(|gib| gib + before).zip(capacity))
            })
            .collect();

        // The unit follows the longest curve, so that labels stay short.
        let longest = largest(&curves, |point| point.0);
        let (divisor, unit) = if longest >= 1024.0 {
            (1024.0, "TiB")
        } else {
            (1.0, "GiB")
        };
        curves
            .iter_mut()
            .flatten()
            .for_each(|point| point.0 /= divisor);

        let axes = (
            Axis::upto(largest(&curves, |point| point.0)),
            Axis::rounded(largest(&curves, |point| point.1)),
        );
        self.line_figure(
            "Capacity over writes",
            "What the device has room for as its blocks wear out, by what the host has written or remapped, aging included; a line ends where the device became read-only, and further right is better.".to_owned(),
            (&format!("written by the host, {unit}"), "GiB usable"),
            axes,
            curves,
            Vec::new(),
        )
    }

    fn over_time(
        &self,
        title: &'static str,
        reading: &str,
        y_title: &'static str,
        value: impl Fn(&Sample) -> f64,
    ) -> Figure {
        /// Curves with more points look like a band; a trend line is drawn over them.
        const CROWDED: usize = 150;
        const STRETCHES: usize = 75;

        // Position, value, and the seconds since the sample before.
        let timed: Vec<Vec<(f64, f64, f64)>> = self
            .runs
            .iter()
            .map(|run| {
                let mut before_s = 0.0;
                let at = self.progress.of(&run.samples).into_iter();
                let timed = at.zip(&run.samples).map(|(at, sample)| {
                    let held = sample.at_s - before_s;
                    before_s = sample.at_s;
                    (at, value(sample), held)
                });
                timed
                    .filter(|(at, y, _)| at.is_finite() && y.is_finite())
                    .collect()
            })
            .collect();
        let points =
            |timed: &Vec<(f64, f64, f64)>| timed.iter().map(|(at, y, _)| (*at, *y)).collect();
        let mut curves: Vec<Vec<Point>> = timed.iter().map(points).collect();

        let longest = largest(&curves, |point| point.0);
        let (divisor, x_title) = match self.progress {
            Progress::Time => {
                let (divisor, unit) = time_unit(longest);
                (divisor, format!("virtual time, {unit}"))
            }
            Progress::HostPages => match si(longest) {
                (divisor, "") => (divisor, "host pages".to_owned()),
                (divisor, "k") => (divisor, "host pages, thousands".to_owned()),
                (divisor, "M") => (divisor, "host pages, millions".to_owned()),
                (divisor, _) => (divisor, "host pages, thousand millions".to_owned()),
            },
        };
        curves
            .iter_mut()
            .flatten()
            .for_each(|point| point.0 /= divisor);

        let crowded = curves.iter().any(|curve| curve.len() > CROWDED);
        let mut reading = reading.to_owned();
        if crowded {
            reading.push_str(" Bold lines are means over short stretches, faint ones the samples.");
        }

        let axes = (
            Axis::upto(largest(&curves, |point| point.0)),
            Axis::rounded(largest(&curves, |point| point.1)),
        );

        let trends = timed.into_iter().map(|mut timed| {
            timed.iter_mut().for_each(|point| point.0 /= divisor);
            (timed.len() > CROWDED).then(|| trend(&timed, STRETCHES))
        });
        let trends = trends.collect();
        self.line_figure(title, reading, (&x_title, y_title), axes, curves, trends)
    }

    /// The distribution of write latency.
    pub(super) fn latency(&self) -> Figure {
        let mut curves = self.distributions();
        curves
            .iter_mut()
            .flatten()
            .for_each(|point| point.1 *= 100.0);
        let axes = (latency_axis(&curves), Axis::rounded(100.0));
        self.line_figure(
            "Write latency",
            "The height of a line is the share of writes that took no longer than the time below; further left is better.".to_owned(),
            ("write latency", "% of writes"),
            axes,
            curves,
            Vec::new(),
        )
    }

    /// The same distribution, with its tail magnified.
    pub(super) fn latency_tail(&self) -> Figure {
        const RAREST: f64 = 1e-4;

        let mut curves = self.distributions();
        curves
            .iter_mut()
            .flatten()
            .for_each(|point| point.1 = (1.0 - point.1) * 100.0);

        let slower = curves
            .iter()
            .flatten()
            .map(|point| point.1)
            .filter(|y| *y > RAREST);
        // Down to the rarest measured, so that the axis ends with the curves.
        let rarest = slower.fold(10.0, f64::min);

        let axes = (
            latency_axis(&curves),
            Axis::logarithmic([rarest, 100.0], mark),
        );

        self.line_figure(
            "Slowest writes",
            "The height of a line is the share of writes that took longer than the time below: where it crosses 1 % is p99, at 0.1 % p99.9; further left is better.".to_owned(),
            ("write latency", "% of writes that took longer"),
            axes,
            curves,
            Vec::new(),
        )
    }

    fn distributions(&self) -> Vec<Vec<Point>> {
        self.runs
            .iter()
            .map(|run| staircase(&run.latency_cdf))
            .collect()
    }

    fn line_figure(
        &self,
        title: &'static str,
        reading: String,
        (x_title, y_title): (&str, &'static str),
        (x, y): (Axis, Axis),
        curves: Vec<Vec<Point>>,
        mut trends: Vec<Option<Vec<Point>>>,
    ) -> Figure {
        // A figure without data says so instead of showing an empty plot.
        let empty = curves.iter().all(Vec::is_empty);

        trends.resize(curves.len(), None);
        let lines = self
            .names
            .iter()
            .zip(&self.paints)
            .zip(curves.into_iter().zip(trends))
            .map(|((label, &paint), (points, trend))| ChartLine {
                label,
                paint,
                trend,
                points,
                certainties: Vec::new(),
            })
            .collect();

        let description = format!(
            "{title}: lines of {y_title} against {x_title} for {}",
            self.names.join(", ")
        );

        let chart = LineChart {
            description,
            x_title: x_title.to_owned(),
            y_title,
            x,
            y,
            panels: LinePanel::alone(lines),
            heading: None,
            dots: false,
        };

        Figure {
            title,
            reading,
            picture: if empty {
                Err("Nothing was recorded.")
            } else {
                Ok(fluid(Size::Column, title, |size, alone| {
                    chart.draw(size, alone)
                }))
            },
        }
    }
}

fn latency_axis(curves: &[Vec<Point>]) -> Axis {
    Axis::logarithmic(
        curves.iter().flatten().map(|point| point.0),
        |us| match us {
            // Below the round figures: computed values may be slightly smaller.
            us if us < 0.9 => format!("{} ns", mark(us * 1e3)),
            us if us < 900.0 => format!("{} µs", mark(us)),
            us if us < 900_000.0 => format!("{} ms", mark(us * 1e-3)),
            us => format!("{} s", mark(us * 1e-6)),
        },
    )
}

/// Formats a tick of a logarithmic axis, without rounding noise.
fn mark(value: f64) -> String {
    let decimals = (-value.log10()).ceil().max(0.0) as usize;
    format!("{value:.decimals$}")
}

fn largest(curves: &[Vec<Point>], of: impl Fn(&Point) -> f64) -> f64 {
    curves.iter().flatten().map(of).fold(0.0, f64::max)
}
