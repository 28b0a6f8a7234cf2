//! FAST'21 figure 8: SQLite's write-ahead log, bandwidth over time and flash writes.
//!
//! Bandwidth counts data written or remapped by the host, as in the paper; the recordings have no
//! reads. Times and sizes that grow with the device are shown for full size. "After collection
//! begins" is the same part of the recording for all schemes, so that an earlier start is no
//! advantage.

use super::{Findings, least, mean, one_panel};
use crate::LabError;
use crate::plot::{Lines, MarkKind, Plot};
use crate::table::{Ask, Row, Table};
use serde_json::Value;

const REMAPPING: [&str; 4] = ["flog", "nlog", "remap-ssd", "opt"];
const TESTS: [(&str, char); 2] = [("fillrandom", 'a'), ("fillseq", 'b')];
/// Bytes of Remap-SSD's entry for a remapped page.
const ENTRY_BYTES: f64 = 16.0;
/// Maximum points of a line.
const POINTS: usize = 60;
/// Number of stretches of the time from a scheme's first collection to its end, for the comparison
/// with NoRemap.
const STRETCHES: usize = 10;

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    let mut found = Findings::default();
    let mut groups = Vec::new();
    for (test, letter) in TESTS {
        let arm = Arm::of(table, test, "remap")?;
        groups.push((test.to_owned(), flash_pages(test, &arm, &mut found)?));
        bandwidth(test, letter, &arm, &mut found)?;
    }

    let all = |name: &str| -> Vec<f64> {
        found
            .measures
            .iter()
            .filter(|(known, _)| known.starts_with(name))
            .map(|(_, value)| *value)
            .collect()
    };
    let means = ["saved", "over_flog", "over_nlog"]
        .map(|name| (name.to_owned(), mean(&all(&format!("{name} ")))));
    // Fraction of the schemes.
    let shares = ["slower_at_first", "faster_at_last"].map(|name| {
        let of = |scheme| found.measures[&format!("{name} {scheme} fillseq")];
        (format!("{name} fillseq"), mean(&REMAPPING.map(of)))
    });
    means
        .into_iter()
        .chain(shares)
        .for_each(|(name, mean)| found.measure(name, mean));
    largest_group(table, "remap", "", &mut found)?;
    with_headers(table, &mut found)?;
    found.plots.push(Plot {
        name: "fig8c".into(),
        title: "Flash page writes".into(),
        reading: "Over those of SQLite as it is, on a device that does not remap.".into(),
        y: "share of NoRemap's".into(),
        shape: one_panel("", groups, Some(1.0)),
    });
    Ok(found)
}

/// Runs of one test whose pages are remapped, beside that of SQLite as it is.
struct Arm<'a> {
    stock: &'a Row,
    /// One of each scheme in `REMAPPING`.
    rows: Vec<&'a Row>,
    courses: Vec<Course>,
    /// MiB written when the last of the schemes starts to collect: from there on, the same part of the
    /// recording for all.
    begun: f64,
}

impl<'a> Arm<'a> {
    fn of(table: &'a Table, test: &str, arm: &str) -> Result<Self, LabError> {
        let rows = REMAPPING
            .iter()
            .map(|scheme| table.row(of(test, arm, scheme).ask()))
            .collect::<Result<Vec<_>, _>>()?;
        let courses = rows
            .iter()
            .map(|row| Course::of(row))
            .collect::<Result<Vec<_>, _>>()?;
        let begun = courses
            .iter()
            .map(|course| course.begun)
            // A scheme that never collected has NaN, which `max` leaves out.
            .fold(0.0, f64::max);

        Ok(Self {
            stock: table.row(of(test, "stock", "none").ask())?,
            rows,
            courses,
            begun,
        })
    }

    /// Flash pages of each scheme, as shares of NoRemap's.
    fn shares(&self) -> Result<Vec<f64>, LabError> {
        let share = |row: &&Row| Ok(row.number("flash_pages")? / self.stock.number("flash_pages")?);
        self.rows.iter().map(share).collect()
    }

    /// Bandwidth of each scheme once all collect.
    fn rates(&self) -> [f64; 4] {
        [0, 1, 2, 3].map(|index| self.courses[index].rate_after(self.begun))
    }
}

/// Flash pages programmed: bars over NoRemap's.
fn flash_pages(
    test: &str,
    arm: &Arm<'_>,
    found: &mut Findings,
) -> Result<Vec<(String, f64)>, LabError> {
    found.measure(
        format!("wa none {test}"),
        arm.stock.number("write_amplification")?,
    );

    let mut bars = vec![("none".to_owned(), 1.0)];
    for ((scheme, row), share) in REMAPPING.iter().zip(&arm.rows).zip(arm.shares()?) {
        found.measure(format!("saved {scheme} {test}"), 1.0 - share);
        found.measure(
            format!("wa {scheme} {test}"),
            row.number("write_amplification")?,
        );
        found.measure(format!("demoted {scheme} {test}"), row.demoted()?);
        found.measure(
            format!("remapped_share {scheme} {test}"),
            row.number("remaps")? / row.number("host_programs")?,
        );

        bars.push(((*scheme).to_owned(), share));
    }

    Ok(bars)
}

/// Bandwidth over time, and after collection has begun.
fn bandwidth(
    test: &str,
    letter: char,
    arm: &Arm<'_>,
    found: &mut Findings,
) -> Result<(), LabError> {
    let stock = Course::of(arm.stock)?;
    let mut lines = vec![("none".to_owned(), stock.line())];
    lines.extend(
        REMAPPING
            .iter()
            .zip(&arm.courses)
            .map(|(scheme, course)| ((*scheme).to_owned(), course.line())),
    );

    let [flog, nlog, remap, opt] = arm.rates();
    found.measure(format!("over_flog {test}"), remap / flog);
    found.measure(format!("over_nlog {test}"), remap / nlog);
    found.measure(format!("below_opt {test}"), 1.0 - remap / opt);
    found.measure(
        format!("left_when_collection_begins {test}"),
        1.0 - arm.begun / arm.courses[2].written(),
    );
    for (scheme, course) in REMAPPING.iter().zip(&arm.courses) {
        inversion(&format!("{scheme} {test}"), &stock, course, found);
    }
    found.plots.push(Plot {
        name: format!("fig8{letter}"),
        title: format!("SSD bandwidth under {test}"),
        reading:
            "What SQLite has the device write or remap, over time; the recordings have no reads."
                .into(),
        y: "MiB/s".into(),
        shape: MarkKind::Lines(Lines {
            x: "seconds, as at full size".into(),
            logarithmic: false,
            lines,
            points: Vec::new(),
        }),
    });
    Ok(())
}

/// Workload and scheme that identify a run.
struct RunName {
    workload: String,
    scheme: &'static str,
}

fn of(test: &str, arm: &str, scheme: &'static str) -> RunName {
    RunName {
        workload: format!("recording:sqlite-wal-{test}-{arm}"),
        scheme,
    }
}

impl RunName {
    fn ask(&self) -> Ask<'_> {
        Ask {
            workload: Some(&self.workload),
            scheme: Some(self.scheme),
            ..Ask::default()
        }
    }
}

/// Compares a scheme with NoRemap at the same times, after the scheme's first collection: slower at
/// the beginning, faster at the end.
fn inversion(which: &str, none: &Course, remap: &Course, found: &mut Findings) {
    let from = remap.when(remap.begun);
    let step = (remap.seconds() - from) / STRETCHES as f64;
    let at = |stretch: usize| from + stretch as f64 * step;
    let ratio = |stretch| {
        remap.rate(at(stretch), at(stretch + 1)) / none.rate(at(stretch), at(stretch + 1))
    };
    let ratios: Vec<f64> = (0..STRETCHES).map(ratio).collect();

    let slower = ratios.iter().take_while(|ratio| **ratio < 1.0).count();
    let yes = |so: bool| f64::from(u8::from(so));
    found.measure(format!("slower_at_first {which}"), yes(slower > 0));
    found.measure(
        format!("faster_at_last {which}"),
        yes(ratios[STRETCHES - 1] > 1.0),
    );
    found.measure(format!("slower_from_s {which}"), from);
    found.measure(format!("slower_until_s {which}"), at(slower));
    found.measure(format!("lowest_over_none {which}"), least(&ratios));
    found.measure(format!("last_over_none {which}"), ratios[STRETCHES - 1]);
}

/// The largest segment group of both tests, at full size.
fn largest_group(
    table: &Table,
    arm: &str,
    suffix: &str,
    found: &mut Findings,
) -> Result<(), LabError> {
    let mut largest: f64 = 0.0;
    for (test, _) in TESTS {
        let row = table.row(of(test, arm, "remap-ssd").ask())?;
        // A segment group grows with its superblock.
        largest = largest.max(row.number("largest_group_bytes")? / row.run.scale);

        let pages = f64::from(row.run.device.geometry.pages_per_superblock());
        found.measure(
            "group_possible_kb",
            ENTRY_BYTES * pages / row.run.scale / 1e3,
        );
    }

    found.measure(format!("largest_group_kb{suffix}"), largest / 1e3);

    // RS8b: the paper's largest group has 117 KB.
    found.measure(
        format!("largest_group_over_117_kb{suffix}"),
        largest / 117e3,
    );
    Ok(())
}

/// The same claims if each transaction writes a page of frame headers, which is never remapped.
fn with_headers(table: &Table, found: &mut Findings) -> Result<(), LabError> {
    const ARM: &str = "remap+headers";
    const SUFFIX: &str = " with headers";
    largest_group(table, ARM, SUFFIX, found)?;

    let (mut saved, mut over_flog, mut over_nlog) = (Vec::new(), Vec::new(), Vec::new());
    for (test, _) in TESTS {
        let arm = Arm::of(table, test, ARM)?;
        saved.extend(arm.shares()?.iter().map(|share| 1.0 - share));
        let [flog, nlog, remap, _] = arm.rates();
        over_flog.push(remap / flog);
        over_nlog.push(remap / nlog);
    }

    for (name, values) in [
        ("saved", saved),
        ("over_flog", over_flog),
        ("over_nlog", over_nlog),
    ] {
        found.measure(format!("{name}{SUFFIX}"), mean(&values));
    }
    Ok(())
}

/// Progress of a run, scaled to full size.
struct Course {
    /// Seconds, and the total MiB written or remapped.
    points: Vec<(f64, f64)>,
    /// MiB written when the first superblock was collected.
    begun: f64,
}

impl Course {
    fn of(row: &Row) -> Result<Self, LabError> {
        let wrong = || LabError::Failed(format!("run `{}` has no series", row.run.title()));

        let samples = row
            .result
            .get("samples")
            .and_then(Value::as_array)
            .ok_or_else(wrong)?;

        let (mut points, mut begun) = (vec![(0.0, 0.0)], None);
        let (mut at_s, mut written) = (0.0, 0.0);
        for sample in samples {
            let number = |name: &str| sample.get(name).and_then(Value::as_f64).ok_or_else(wrong);

            // The curve bends where collection begins.
            if number("gc_runs")? > 0.0 {
                begun.get_or_insert(written / row.run.scale);
            }

            let until = number("at_s")?;
            written += number("written_mib_s")? * (until - at_s);
            at_s = until;
            points.push((at_s / row.run.scale, written / row.run.scale));
        }

        Ok(Self {
            points,
            begun: begun.unwrap_or(f64::NAN),
        })
    }

    fn written(&self) -> f64 {
        self.points[self.points.len() - 1].1
    }

    fn seconds(&self) -> f64 {
        self.points[self.points.len() - 1].0
    }

    /// Interpolates between two points: the other coordinate where `by` has this value.
    fn between(&self, value: f64, by: fn(&(f64, f64)) -> (f64, f64)) -> f64 {
        let after = self
            .points
            .partition_point(|point| by(point).0 < value)
            .clamp(1, self.points.len() - 1);
        let (from, to) = (by(&self.points[after - 1]), by(&self.points[after]));
        // Two samples may have the same value; then the later one counts.
        let share = if to.0 > from.0 {
            ((value - from.0) / (to.0 - from.0)).clamp(0.0, 1.0)
        } else {
            1.0
        };
        from.1 + share * (to.1 - from.1)
    }

    /// Time at which this amount had been written.
    fn when(&self, written: f64) -> f64 {
        self.between(written, |point| (point.1, point.0))
    }

    /// Amount written by this time.
    fn by(&self, seconds: f64) -> f64 {
        self.between(seconds, |point| *point)
    }

    /// Bandwidth in MiB/s from the time when this amount had been written to the end.
    fn rate_after(&self, written: f64) -> f64 {
        (self.written() - written) / (self.seconds() - self.when(written))
    }

    /// Bandwidth in MiB/s between two times.
    fn rate(&self, from: f64, to: f64) -> f64 {
        (self.by(to) - self.by(from)) / (to - from)
    }

    /// Bandwidth over time, smoothed.
    fn line(&self) -> Vec<(f64, f64)> {
        let at = |index: usize| index as f64 * self.seconds() / POINTS as f64;
        (0..POINTS)
            .map(|index| {
                (
                    (at(index) + at(index + 1)) / 2.0,
                    self.rate(at(index), at(index + 1)),
                )
            })
            .collect()
    }
}
