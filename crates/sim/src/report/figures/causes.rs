//! What requests waited for: a bar for each run, with the causes of its mean latency.
//!
//! Invariant: the parts of a bar add up to the mean. Absent: runs on the other engine, which knows no causes.

use super::{Figure, Series};
use crate::plot::bars::Part;
use crate::plot::paint::{Fill, Paint};
use crate::report::format::{number, percent, share};
use crate::report::palette::PARTS;
use crate::summary::{LatencyCauses, RunSummary};

impl Series<'_> {
    /// The causes of the latency of writes; `None` if no run knows them.
    pub(super) fn write_causes(&self) -> Option<Figure> {
        self.causes("What writes waited for", "mean write latency, µs", |run| {
            run.latency_causes_us.as_ref()
        })
    }

    /// The same for reads.
    pub(super) fn read_causes(&self) -> Option<Figure> {
        self.causes("What reads waited for", "mean read latency, µs", |run| {
            run.read_latency_causes_us.as_ref()
        })
    }

    fn causes(
        &self,
        title: &'static str,
        axis: &str,
        of: impl Fn(&RunSummary) -> Option<&LatencyCauses>,
    ) -> Option<Figure> {
        let known: Vec<_> = self.runs.iter().filter_map(&of).collect();
        let names = known.first()?.parts().map(|(name, _)| name);
        let is_shown = |at: &usize| known.iter().any(|causes| causes.parts()[*at].1 > 0.0);
        let shown: Vec<usize> = (0..names.len()).filter(is_shown).collect();

        let bars = self.bars(|run, _| match of(run) {
            None => ("unknown".to_owned(), Vec::new(), f64::NAN),
            Some(causes) => {
                let parts = causes.parts();
                let part = |at: &usize| {
                    let (name, us) = parts[*at];
                    let of_all = share(us, causes.total).unwrap_or(0.0);
                    Part {
                        name: format!("{name} {} µs, {}", number(us), percent(of_all)),
                        value: us,
                        color: PARTS[*at].color,
                        fill: Fill::Solid,
                    }
                };
                let note = format!("{} µs", number(causes.total));
                (note, shown.iter().map(part).collect(), f64::NAN)
            }
        });
        let legend: Vec<(&str, Paint)> = shown.iter().map(|at| (names[*at], PARTS[*at])).collect();

        Some(Figure {
            title,
            reading: "A bar's length is the mean latency, its colours are the causes along each request's critical path, \
                      from the operation that ended last back to the request's entry; shorter is better."
                .to_owned(),
            picture: self.stacked_bars(axis, legend, bars, None),
        })
    }
}
