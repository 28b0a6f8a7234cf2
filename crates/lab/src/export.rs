//! Exports an experiment's runs as one table: CSV, and the same as Parquet.
//!
//! A column for each property of the runs and each number of their results; lists (series over
//! time) are left out, they are in the runs' own files. Invariants: every row has every column;
//! columns are sorted by name, the runs' first; both files hold the same values. Absent: figures.

use crate::table::Table;
use remap_ssd_study::parquet::{self, Column};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Extracts a number of a run.
type NumberOf = fn(&crate::grid::GridRun) -> f64;

/// Columns of text; all others are numbers.
const WORDS: [&str; 8] = [
    "key", "kind", "setup", "scheme", "gc", "workload", "content", "device",
];

/// The columns of a table.
pub(crate) fn columns(table: &Table) -> Vec<Column> {
    let word = |name: &str| -> Vec<String> {
        let of = |row: &crate::table::Row| match name {
            "key" => row.run.key(),
            "kind" => format!("{:?}", row.run.kind).to_lowercase(),
            "setup" => row.run.setup.clone(),
            "scheme" => row.run.scheme.clone(),
            "gc" => row.run.gc.clone(),
            "workload" => row.run.workload.clone(),
            "content" => row.run.content.clone(),
            _ => row.run.device.name.clone(),
        };
        table.rows.iter().map(of).collect()
    };

    let mut columns: Vec<Column> = WORDS
        .iter()
        .map(|name| Column::words(name, word(name)))
        .collect();

    let numbers: [(&str, NumberOf); 5] = [
        ("log_mib", |run| run.log_mib),
        ("segment_bytes", |run| run.segment_bytes.into()),
        ("scale", |run| run.scale),
        ("pages", |run| run.pages as f64),
        ("flash_pages_of_device", |run| {
            run.device.geometry.pages().into()
        }),
    ];

    for (name, of) in numbers {
        columns.push(Column::numbers(
            name,
            table.rows.iter().map(|row| of(&row.run)).collect(),
        ));
    }

    // A result's numbers are columns too; a run that lacks one has NaN there.
    let leaves: Vec<BTreeMap<String, f64>> = table
        .rows
        .iter()
        .map(|row| {
            let mut out = BTreeMap::new();
            leaves("", &row.result, &mut out);
            out
        })
        .collect();
    let names: BTreeSet<&String> = leaves.iter().flat_map(BTreeMap::keys).collect();

    for name in names {
        let values = leaves
            .iter()
            .map(|row| row.get(name).copied().unwrap_or(f64::NAN))
            .collect();
        columns.push(Column::numbers(&format!("result.{name}"), values));
    }

    columns
}

/// Collects the numbers of a result with their names.
fn leaves(name: &str, value: &Value, out: &mut BTreeMap<String, f64>) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                leaves(
                    &if name.is_empty() {
                        field.clone()
                    } else {
                        format!("{name}.{field}")
                    },
                    value,
                    out,
                );
            }
        }

        Value::Number(number) => {
            out.insert(name.into(), number.as_f64().unwrap_or(f64::NAN));
        }
        Value::Bool(yes) => {
            out.insert(name.into(), f64::from(u8::from(*yes)));
        }
        _ => {}
    }
}

/// Formats as CSV (RFC 4180); NaN is empty.
pub(crate) fn csv(columns: &[Column]) -> String {
    let quoted = |text: &str| {
        if text.contains([',', '"', '\n', '\r']) {
            format!("\"{}\"", text.replace('"', "\"\""))
        } else {
            text.to_owned()
        }
    };

    let rows = columns.first().map_or(0, Column::rows);
    let mut text = columns
        .iter()
        .map(|column| quoted(&column.name))
        .collect::<Vec<_>>()
        .join(",")
        + "\n";

    for row in 0..rows {
        let cells = columns.iter().map(|column| quoted(&column.cell(row)));
        text.push_str(&cells.collect::<Vec<_>>().join(","));
        text.push('\n');
    }
    text
}

/// The columns as a Parquet file, uncompressed.
pub(crate) fn parquet(columns: &[Column]) -> Vec<u8> {
    parquet::write(columns)
}
