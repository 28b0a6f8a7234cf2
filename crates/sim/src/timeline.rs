//! What dies did in a window of a run, with the engine `nand`, and its picture.
//!
//! Invariant: the window is within the run. Absent: the recording (the device's), and the drawing (`plot`).

use crate::plot::dies::{DieChart, Kind, Place, Span};
use crate::plot::{Size, file, fluid};
use crate::report::format::number;
use maud::Markup;
use remap_ssd_device::nand::{Activity, DieInterval, Timeline};
use std::str::FromStr;

/// Maximum number of intervals of a picture.
const INTERVALS_MAX: usize = 2_000;
/// Share of a run that is shown at its end.
const END: f64 = 1.0 / 50.0;

/// The window of a run that is shown, in nanoseconds since its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimelineWindow {
    /// A fiftieth of the run until its last request enters, or less if that is too much for a picture.
    #[default]
    End,
    /// From a time on, for a length.
    From(u64, u64),
}

impl FromStr for TimelineWindow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is not a window such as 1.5s+20ms: a beginning and a length in s, ms or us"
            )
        };
        let (from, length) = text.split_once('+').ok_or_else(wrong)?;
        let (from, length) = (
            time(from).ok_or_else(wrong)?,
            time(length).ok_or_else(wrong)?,
        );
        if length == 0 {
            return Err(wrong());
        }
        Ok(Self::From(from, length))
    }
}

/// A time in nanoseconds.
fn time(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| c.is_ascii_alphabetic())?;
    let factor = match &text[end..] {
        "s" => 1e9,
        "ms" => 1e6,
        "us" => 1e3,
        "ns" => 1.0,
        _ => return None,
    };
    let value: f64 = text[..end].trim().parse().ok()?;
    let ns = value * factor;
    (ns.is_finite() && (0.0..1e18).contains(&ns)).then_some(ns.round() as u64)
}

impl TimelineWindow {
    /// What the device keeps of a run that begins at `start`.
    pub(crate) fn keep(self, start: u64) -> Timeline {
        match self {
            Self::End => Timeline::of_end(INTERVALS_MAX),
            Self::From(from, length) => {
                let from = start.saturating_add(from);
                Timeline::of_window(from, from.saturating_add(length), 10 * INTERVALS_MAX)
            }
        }
    }
}

/// What dies did in a window of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct DieTimeline {
    /// Number of dies.
    pub dies: u32,
    /// The window, in nanoseconds since the run began.
    pub from: u64,
    /// Its end.
    pub until: u64,
    /// What dies did, in nanoseconds since the run began, within the window.
    pub intervals: Vec<DieInterval>,
}

impl DieTimeline {
    /// The window of a run from `start` to `end`.
    pub(crate) fn new(
        window: TimelineWindow,
        kept: &Timeline,
        dies: u64,
        (start, end): (u64, u64),
    ) -> Self {
        let (from, until) = match window {
            TimelineWindow::From(from, length) => {
                (start + from, (start + from).saturating_add(length).min(end))
            }
            TimelineWindow::End => {
                let length = ((end - start) as f64 * END) as u64;
                // From where on all that happened is known.
                let first = kept.intervals().next().map_or(start, |first| first.until);

                let known = if kept.intervals().len() < INTERVALS_MAX {
                    start
                } else {
                    first
                };
                (known.max(end - length), end)
            }
        };

        let shown = kept
            .intervals()
            .filter(|one| one.until > from && one.from < until);
        let intervals = shown.map(|one| DieInterval {
            from: one.from.max(from) - start,
            until: one.until.min(until) - start,
            ..*one
        });

        Self {
            dies: dies as u32,
            intervals: intervals.collect(),
            from: from - start,
            until: until.max(from) - start,
        }
    }

    /// The picture as an SVG file; `name` says of which run.
    pub fn svg(&self, name: &str) -> String {
        file(&self.draw(name, Size::Wide, true))
    }

    /// The picture for a page.
    pub(crate) fn fluid(&self, name: &str) -> Markup {
        let file = format!("dies-{name}");
        fluid(Size::Wide, &file, |size, alone| {
            self.draw(name, size, alone)
        })
    }

    /// What the picture shows, in a sentence.
    pub(crate) fn reading(&self) -> String {
        let (divisor, unit) = scale_of(self.until - self.from);
        format!(
            "A row for each die, {} {unit} from {} ms of the run on. While a program or an erase is suspended, its row is \
             striped at the bottom, and the reads for which it waits stand above.",
            number((self.until - self.from) as f64 / divisor),
            number(self.from as f64 / 1e6)
        )
    }

    fn draw(&self, name: &str, size: Size, alone: bool) -> Markup {
        let (divisor, unit) = scale_of(self.until - self.from);
        let at = |time: u64| (time - self.from) as f64 / divisor;

        let held = HELD.map(|(_, name, color)| Kind {
            name,
            color,
            place: Place::Below,
            boxes: Vec::new(),
        });
        let others = KINDS.map(|(_, name, color)| Kind {
            name,
            color,
            place: Place::Whole,
            boxes: Vec::new(),
        });
        let mut kinds: Vec<Kind<'_>> = held.into_iter().chain(others).collect();
        let of_held = |activity| HELD.iter().position(|(kind, ..)| *kind == activity);
        let of_others = |activity| KINDS.iter().position(|(kind, ..)| *kind == activity);

        for one in &self.intervals {
            let span = |place| Span {
                row: one.die as usize,
                from: at(one.from),
                until: at(one.until),
                place,
            };

            // A suspended operation has the lower half of the row, and the reads that go before it have the upper half.
            let kind = of_others(one.activity).expect("every activity has a kind");
            match one.suspended {
                None => kinds[HELD.len() + kind].boxes.push(span(Place::Whole)),
                Some(suspended) => {
                    let below = of_held(suspended).expect("a program or an erase is suspended");
                    kinds[below].boxes.push(span(Place::Below));
                    kinds[HELD.len() + kind].boxes.push(span(Place::Above));
                }
            }
        }

        let heading = format!("What dies did: {name}");
        let title = format!(
            "{unit} since {} ms of the run",
            number(self.from as f64 / 1e6)
        );
        let chart = DieChart {
            description: format!(
                "{heading}, {} intervals of {} dies",
                self.intervals.len(),
                self.dies
            ),
            heading: alone.then_some(&heading),
            title: &title,
            length: at(self.until).max(1e-3),
            rows: self.dies as usize,
            kinds,
        };
        chart.draw(size, alone)
    }
}

/// Nanoseconds of a unit in which a length is short, and its name.
fn scale_of(length: u64) -> (f64, &'static str) {
    match length {
        0..2_000_000 => (1e3, "µs"),
        2_000_000..2_000_000_000 => (1e6, "ms"),
        _ => (1e9, "s"),
    }
}

/// Names and colours, from the back to the front.
const KINDS: [(Activity, &str, &str); 8] = [
    (Activity::Erase, "erase", ERASE),
    (Activity::HostProgram, "host program", HOST_PROGRAM),
    (
        Activity::InternalProgram,
        "collection or metadata program",
        INTERNAL_PROGRAM,
    ),
    (Activity::HostRead, "host read", "var(--blue)"),
    (
        Activity::InternalRead,
        "collection or metadata read",
        "var(--sky)",
    ),
    (Activity::Transfer, "transfer", "var(--orange)"),
    (Activity::Wait, "waits for the channel", "var(--grey)"),
    (Activity::Suspension, "suspends or resumes", "var(--black)"),
];
/// The same of what is suspended.
const HELD: [(Activity, &str, &str); 3] = [
    (Activity::Erase, "suspended erase", ERASE),
    (
        Activity::HostProgram,
        "suspended host program",
        HOST_PROGRAM,
    ),
    (
        Activity::InternalProgram,
        "suspended collection or metadata program",
        INTERNAL_PROGRAM,
    ),
];
const ERASE: &str = "var(--vermilion)";
const HOST_PROGRAM: &str = "var(--green)";
const INTERNAL_PROGRAM: &str = "var(--moss)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_a_beginning_and_a_length() {
        assert_eq!(
            "1.5s+20ms".parse(),
            Ok(TimelineWindow::From(1_500_000_000, 20_000_000))
        );
        assert_eq!("0us + 3us".parse(), Ok(TimelineWindow::From(0, 3_000)));
        for wrong in [
            "", "1s", "1s+", "1s+0ms", "1+2", "-1s+1s", "1s+1h", "1e99s+1s", "s+ms",
        ] {
            let error = wrong.parse::<TimelineWindow>().unwrap_err();
            assert!(error.contains("1.5s+20ms"), "{error}");
        }
    }

    #[test]
    fn a_suspended_erase_goes_on_as_a_strip_below_its_reads() {
        let one = |activity, suspended, from, until| DieInterval {
            die: 1,
            activity,
            suspended,
            from,
            until,
        };
        let erase = Some(Activity::Erase);
        let timeline = DieTimeline {
            dies: 2,
            from: 1_000_000,
            until: 2_000_000,
            intervals: vec![
                one(Activity::Erase, None, 1_000_000, 1_200_000),
                one(Activity::HostRead, erase, 1_200_000, 1_700_000),
                one(Activity::Erase, None, 1_700_000, 2_000_000),
            ],
        };
        let picture = timeline.svg("none");
        let document = roxmltree::Document::parse(&picture).unwrap();
        let paths: Vec<_> = document
            .descendants()
            .filter(|node| node.has_tag_name("path") && node.attribute("class") != Some("stripes"))
            .map(|node| {
                (
                    node.attribute("class").unwrap(),
                    node.attribute("d").unwrap(),
                )
            })
            .collect();
        let [(held, strip), (erased, erases), (read, reads)] = paths[..] else {
            panic!("{paths:?}");
        };
        assert_eq!([held, erased, read], ["held", "dot", "dot"]);
        assert_eq!(erases.matches('z').count(), 2);
        let begins = |path: &str| path.split(' ').next().map(str::to_owned);
        assert_eq!(begins(strip), begins(reads), "the strip is below the read");
        assert!(picture.contains("µs since 1") && !picture.contains("waits for the channel"));

        // The legend names what is suspended, with the stripes of the picture.
        assert!(picture.contains("suspended erase") && !picture.contains("suspended host program"));
        assert_eq!(picture.matches("class=\"stripes\"").count(), 2);
    }
}
