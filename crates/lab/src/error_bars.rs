//! Confidence intervals of measures, computed from those of their runs.
//!
//! A measure is a function of many runs' figures. Each figure is moved by half of its interval's width,
//! one after the other, and the analysis is made again: the measure's interval is the root of the sum of
//! the squared changes (the delta method, with differences for derivatives). The runs of an experiment
//! draw the same requests, so that ratios of them vary less than this says.
//!
//! Absent: runs without intervals (recoveries, single commands, host software), recordings, which are replayed
//! whole, runs that were not steady, whose spread is their trend, and figures that are no speed, amplification or latency.

use crate::LabError;
use crate::analysis::Findings;
use crate::claim::Measures;
use crate::recordings;
use crate::table::{Row, Table};
use serde_json::Value;

/// The figures that are moved together, since they are the same quantity in other units.
const MOVES: [fn(&mut Row) -> Option<()>; 4] = [speed, amplification, write_latency, read_latency];

/// Latencies that have intervals.
const LATENCIES: [&str; 2] = ["latency_us", "read_latency_us"];
const PERCENTILES: [&str; 5] = ["mean", "p50", "p90", "p99", "p999"];

/// Half widths of the 95 % intervals of the measures that depend on runs with intervals.
///
/// # Errors
/// The analysis fails.
pub(crate) fn half_widths(
    table: &Table,
    analyse: &dyn Fn(&Table) -> Result<Findings, LabError>,
    measures: &Measures,
) -> Result<Measures, LabError> {
    let mut table = table.clone();
    let mut squares = Measures::new();

    for index in 0..table.rows.len() {
        let row = &table.rows[index];
        let state = row.result.pointer("/steady/is_steady");
        let is_steady = state == Some(&Value::Bool(true));
        if row.run.workload.starts_with(recordings::PREFIX) {
            continue;
        }
        if !is_steady {
            suppose_intervals(&mut table.rows[index]);
        }
        for move_figures in MOVES {
            let whole = table.rows[index].result.clone();
            if move_figures(&mut table.rows[index]).is_some() {
                for (name, moved) in analyse(&table)?.measures {
                    let change = moved - measures.get(&name).copied().unwrap_or(moved);
                    // A limit, such as a count of at least one, may hide a figure.
                    if change.is_finite() && change != 0.0 {
                        // What depends on one that was not steady has no interval at all.
                        let square = if is_steady { change * change } else { f64::NAN };
                        *squares.entry(name).or_default() += square;
                    }
                }
            }
            table.rows[index].result = whole;
        }
    }

    Ok(squares
        .into_iter()
        .filter(|(_, sum)| sum.is_finite())
        .map(|(name, sum)| (name, sum.sqrt()))
        .collect())
}

/// Gives a run intervals of a hundredth, to see which measures depend on it.
fn suppose_intervals(row: &mut Row) {
    let latencies = LATENCIES
        .iter()
        .flat_map(|table| PERCENTILES.iter().map(move |part| (*table, Some(*part))));
    let rates = ["iops", "bandwidth_mib_s", "write_amplification"];
    for (name, part) in rates.map(|name| (name, None)).into_iter().chain(latencies) {
        let whole = part.map_or(name.to_owned(), |part| format!("{name}.{part}"));
        if let Ok(value) = row.number(&whole) {
            let half = &mut row.result["ci95"][name];
            match part {
                Some(part) => half[part] = Value::from(value / 100.0),
                None => *half = Value::from(value / 100.0),
            }
        }
    }
}

fn half(row: &Row, name: &str) -> Option<f64> {
    let found = row.number(&format!("ci95.{name}")).ok();
    found.filter(|half| half.is_finite() && *half > 0.0)
}

fn add(row: &mut Row, name: &str, by: f64) -> Option<()> {
    let mut path = name.split('.');
    let first = row.result.get_mut(path.next()?)?;
    let value = path.try_fold(first, |value, part| value.get_mut(part))?;
    *value = Value::from(value.as_f64()? + by);
    Some(())
}

fn speed(row: &mut Row) -> Option<()> {
    let share = half(row, "iops")? / row.number("iops").ok()?;
    add(row, "iops", half(row, "iops")?)?;
    add(row, "bandwidth_mib_s", half(row, "bandwidth_mib_s")?)?;
    let requests = row.number("requests_per_s").ok()?;
    add(row, "requests_per_s", requests * share)
}

fn amplification(row: &mut Row) -> Option<()> {
    let half = half(row, "write_amplification")?;
    let pages = half * row.number("host_pages").ok()?;
    add(row, "write_amplification", half)?;
    add(row, "write_amplification_data", half)?;
    add(row, "flash_pages", pages)
}

fn write_latency(row: &mut Row) -> Option<()> {
    latencies(row, LATENCIES[0])
}

fn read_latency(row: &mut Row) -> Option<()> {
    latencies(row, LATENCIES[1])
}

fn latencies(row: &mut Row, table: &str) -> Option<()> {
    let mut is_moved = false;
    for part in PERCENTILES {
        let name = format!("{table}.{part}");
        if let Some(half) = half(row, &name) {
            is_moved |= add(row, &name, half).is_some();
        }
    }
    is_moved.then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::built_in;
    use crate::{Form, Study};
    use serde_json::json;

    fn ratio(table: &Table) -> Result<Findings, LabError> {
        let mut found = Findings::default();
        let speed = |index: usize| table.rows[index].number("iops");
        found.measure("ratio", speed(0)? / speed(1)?);
        found.measure("amplification", table.rows[0].amplification_of_data()?);
        found.measure("alone", table.rows[2].number("iops")?);
        let slower = |index: usize| table.rows[index].number("latency_us.p99");
        found.measure("slower", slower(0)? / slower(1)?);
        Ok(found)
    }

    // (200 +-6) / (100 +-4) is 2 +-0.1: 3 % and 4 % make 5 %, with the curve of 1/x in the second.
    #[test]
    fn a_ratio_has_the_interval_of_both_runs_and_an_exact_figure_has_none() {
        let study = Study::plan(&built_in(), &["fast21-fig6".into()], Form::Smoke).unwrap();
        let result = |iops: f64, half: Option<f64>| {
            json!({
                "steady": { "is_steady": true }, "iops": iops, "bandwidth_mib_s": iops / 10.0, "requests_per_s": iops,
                "flash_pages": 300, "metadata_pages": 0, "host_pages": 100, "write_amplification": 3.0, "write_amplification_data": 3.0,
                "latency_us": { "p99": 100.0 },
                "ci95": { "latency_us": { "p99": half }, "iops": half, "bandwidth_mib_s": half.map(|half| half / 10.0), "write_amplification": half.map(|half| half / 100.0) },
            })
        };
        let results = [
            result(200.0, Some(6.0)),
            result(100.0, Some(4.0)),
            result(50.0, None),
        ];
        let rows = study.planned[0].runs.iter().zip(results);
        let table = Table {
            rows: rows
                .map(|(run, result)| Row {
                    run: run.clone(),
                    result,
                })
                .collect(),
        };

        let measures = ratio(&table).unwrap().measures;
        let half = half_widths(&table, &ratio, &measures).unwrap();
        assert!((half["ratio"] - 0.1).abs() < 0.004, "{half:?}");
        assert!((half["amplification"] - 0.06).abs() < 1e-9, "{half:?}");
        assert!(!half.contains_key("alone"), "{half:?}");

        // Ratios with a run that was not steady, which has no intervals.
        assert!(half["slower"] > 0.0);
        let mut table = table;
        table.rows[1].result["steady"]["is_steady"] = json!(false);
        table.rows[1].result["ci95"] = json!({ "iops": null, "latency_us": { "p99": null } });
        let half = half_widths(&table, &ratio, &measures).unwrap();
        assert_eq!(half.keys().collect::<Vec<_>>(), ["amplification"]);
    }
}
