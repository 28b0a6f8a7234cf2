//! The types of a run's figures, and the columns of a sweep's files.
//!
//! They are those of the records that are written as JSON (`RunSummary` and its parts): `fields` finds
//! them. Invariants: every file has every column, with the same type, whatever was given or measured;
//! a number of the JSON is a column, under its name with dots. Absent: values (`kept`), and lists and
//! maps of numbers, which are in the column `run` alone.

use crate::field::on_off;
use crate::fields::{Type, type_of};
use crate::{Error, OPTIONS, OptionDef, numbers};
use remap_ssd_device::keys::{self, DeviceKey, KEYS, KeyKind, did_you_mean};
use remap_ssd_device::nand::CellTimes;
use remap_ssd_ftl::RecoveryReport;
use remap_ssd_sim::aging::AgingReport;
use remap_ssd_sim::summary::RunSummary;
use serde_json::Value;

/// Execution and output options of a run: no part of a point.
pub(crate) const NO_PART: [&str; 14] = [
    "memory",
    "threads",
    "report",
    "report_x",
    "timeline",
    "timeline_window",
    "table",
    "show",
    "out",
    "json",
    "details",
    "save_aged",
    "age",
    "set",
];

/// The type of a run in `compare --json`.
pub fn run_type() -> Type {
    let Type::Record(name, mut fields) = type_of::<RunSummary>() else {
        unreachable!("a summary is a record");
    };

    // As in the JSON: no real time, and how the device was prepared.
    fields.retain(|(name, _)| *name != "wall_s");
    fields.push(("aging", type_of::<Option<AgingReport>>()));
    fields.push(("recovery", type_of::<Option<RecoveryReport>>()));
    Type::Record(name, fields)
}

/// The columns of every file, in order. Only those without `Optional` are never null.
pub fn columns() -> Vec<(String, Type)> {
    let mut columns: Vec<(String, Type)> = ["key", "program_version", "sources"]
        .map(|name| (name.into(), Type::Text))
        .into();

    let options = OPTIONS.iter().filter(|option| is_of_points(option));
    columns.extend(options.map(|option| column_of(option.name, option.column_type())));
    let keys = KEYS.iter().filter(|key| key.path.contains('.'));
    columns.extend(keys.map(|key| column_of(key.path, type_of_key(key))));

    flat("", &run_type(), &mut columns);
    columns.push(("run".into(), Type::Text));
    columns
}

/// Returns true for an option that is a part of a point.
pub(crate) fn is_of_points(option: &OptionDef) -> bool {
    !NO_PART.contains(&option.name)
}

/// Figures with short names.
const SHORT: [(&str, &str); 10] = [
    ("wa", "write_amplification"),
    ("bw", "bandwidth_mib_s"),
    ("iops", "iops"),
    ("req", "requests_per_s"),
    ("p50", "latency_us.p50"),
    ("p99", "latency_us.p99"),
    ("p999", "latency_us.p999"),
    ("read_p50", "read_latency_us.p50"),
    ("read_p99", "read_latency_us.p99"),
    ("tbw", "life_tb_written"),
];

/// The name in the JSON of a figure with a short name; any other name as it is.
pub(crate) fn long_name(name: &str) -> &str {
    let long = SHORT.iter().find(|(short, _)| *short == name);
    long.map_or(name, |(_, long)| long)
}

/// The name of a figure that is a number of every run, such as `latency_us.p99`, or `p99` for short.
///
/// ```
/// use remap_ssd_study::figure;
///
/// assert_eq!(figure("wa")?, "write_amplification");
/// assert_eq!(
///     figure("write_amplificaton").unwrap_err().to_string(),
///     "`write_amplificaton` is no figure of a run: did you mean `write_amplification`?"
/// );
/// # Ok::<(), remap_ssd_study::Error>(())
/// ```
///
/// # Errors
/// There is no such figure; with similar names.
pub fn figure(name: &str) -> Result<String, Error> {
    let name = long_name(name);
    let mut columns = Vec::new();
    flat("", &run_type(), &mut columns);
    let is_number = |(_, of): &(String, Type)| matches!(of, Type::Optional(of) if matches!(**of, Type::Integer | Type::Number));
    columns.retain(is_number);
    let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();

    // The reasons of refused requests are names that a run finds.
    if names.contains(&name) || name.starts_with("requests.refused.") {
        return Ok(name.to_owned());
    }
    let group = format!("{name}.");
    let of_group = names.iter().filter(|other| other.starts_with(&group));
    let hint = match &of_group.copied().collect::<Vec<_>>()[..] {
        [] => did_you_mean(
            name,
            names.iter().copied().chain(SHORT.map(|(short, _)| short)),
        ),
        of_group => format!(", but a group of them: {}", of_group.join(", ")),
    };
    Err(Error::usage(format_args!(
        "`{name}` is no figure of a run{hint}"
    )))
}

fn column_of(option: &str, one: Type) -> (String, Type) {
    (format!("option.{option}"), Type::Optional(Box::new(one)))
}

/// The columns of a record's numbers and texts: of no lists and maps.
fn flat(prefix: &str, of: &Type, columns: &mut Vec<(String, Type)>) {
    match of {
        Type::Record(_, fields) => {
            for (name, of) in fields {
                match prefix {
                    // The folder's name has it.
                    "" if *name == "scheme" => {}
                    "" => flat(name, of, columns),
                    _ => flat(&format!("{prefix}.{name}"), of, columns),
                }
            }
        }
        Type::Optional(of) => flat(prefix, of, columns),
        Type::List(_) | Type::Map(_) => {}
        one => columns.push((prefix.into(), Type::Optional(Box::new(one.clone())))),
    }
}

impl OptionDef {
    /// The type of one of its values in a table.
    pub(crate) fn column_type(&self) -> Type {
        match self.value {
            "N" | "SIZE" => Type::Integer,
            "FACTOR" | "SHARE" | "TIMES" => Type::Number,
            "" | "on|off" => Type::Boolean,
            _ => Type::Text,
        }
    }

    /// A value of it with its type: sizes and counts as numbers, shares and factors as fractions.
    fn typed(&self, text: &str) -> Option<Value> {
        Some(match (self.column_type(), self.value) {
            (Type::Boolean, _) => on_off(text).ok()?.into(),
            (Type::Integer, "SIZE") => numbers::size(text).ok()?.into(),
            (Type::Integer, _) => match text.parse::<u64>() {
                Ok(number) => number.into(),
                Err(_) => numbers::count(text).ok()?.into(),
            },
            (Type::Number, "FACTOR") => numbers::scale(text).ok()?.into(),
            (Type::Number, "SHARE") => numbers::share(text).ok()?.into(),
            (Type::Number, _) => text.parse::<f64>().ok()?.into(),
            _ => text.into(),
        })
    }
}

fn type_of_key(key: &DeviceKey) -> Type {
    match key.kind {
        KeyKind::Integer(..) | KeyKind::CellTimes => Type::Integer,
        KeyKind::Number(_) | KeyKind::Factor => Type::Number,
        KeyKind::Flag => Type::Boolean,
        KeyKind::Choice(_) | KeyKind::Text | KeyKind::Rates => Type::Text,
    }
}

/// The name of an option or of a setting as in the columns, and its value with its type: 20 for `20`,
/// 20971520 for `20MiB`, 0.25 for `1/4`; none if there is no such option.
pub fn typed_option(name: &str, text: &str) -> Option<(&'static str, Value)> {
    if !name.contains('.') {
        let option = OptionDef::find(name).ok()?;
        return Some((option.name, option.typed(text)?));
    }

    let key = keys::find(name)?;
    let value = match type_of_key(key) {
        // A choice may look like a number: the sizes of entries.
        Type::Text => text.trim().trim_matches('"').into(),
        // Several times, one for each page type: their mean.
        _ => match key.value(text.trim()) {
            Value::Array(times) => {
                let times: Option<Vec<u64>> = times.iter().map(Value::as_u64).collect();
                CellTimes::new(&times?)?.mean().into()
            }
            value => value,
        },
    };
    Some((key.path, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn columns_have_names_of_their_own_and_types_of_tables() {
        let columns = columns();
        let mut names: Vec<&String> = columns.iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), columns.len());

        let find = |name: &str| columns.iter().find(|(other, _)| other == name);
        let of = |name: &str| find(name).map(|(_, of)| of.clone());
        let optional = |of: Type| Some(Type::Optional(Box::new(of)));
        for (name, expected) in [
            ("key", Some(Type::Text)),
            ("sources", Some(Type::Text)),
            ("option.seed", optional(Type::Integer)),
            ("option.log_size", optional(Type::Integer)),
            ("option.writes", optional(Type::Integer)),
            ("option.scale", optional(Type::Number)),
            ("option.dedup", optional(Type::Boolean)),
            ("option.no_aging", optional(Type::Boolean)),
            ("option.workload", optional(Type::Text)),
            ("option.firmware.gc_free", optional(Type::Number)),
            ("option.threads", None),
            ("scheme", None),
            ("host_pages", optional(Type::Integer)),
            ("read_latency_us.p99", optional(Type::Number)),
            ("arrivals.response_us.mean", optional(Type::Number)),
            ("wear_out.read_only", optional(Type::Boolean)),
            ("recovery.mapped", optional(Type::Integer)),
            ("samples", None),
            ("wall_s", None),
        ] {
            assert_eq!(of(name), expected, "{name}");
        }
    }

    #[test]
    fn a_figure_is_a_number_of_a_run() {
        for (name, long) in [
            ("p99", "latency_us.p99"),
            ("ci95.iops", "ci95.iops"),
            ("host_pages", "host_pages"),
        ] {
            assert_eq!(figure(name).as_deref(), Ok(long));
        }
        for (name, reason) in [
            ("latency_us.p98", "did you mean `latency_us.p99`?"),
            ("Bandwidth", "did you mean `bandwidth_mib_s`?"),
            (
                "demotions",
                "a group of them: demotions.counter_full, demotions.nvram_full",
            ),
            ("scheme", "`scheme` is no figure of a run"),
            ("samples", "`samples` is no figure of a run"),
        ] {
            let error = figure(name).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn each_option_of_a_point_has_the_type_of_its_values() {
        let of = |wanted: Type| -> Vec<&str> {
            let options = OPTIONS.iter().filter(|option| is_of_points(option));
            let named = options.filter(|option| option.column_type() == wanted);
            named.map(|option| option.name).collect()
        };
        assert_eq!(
            of(Type::Integer),
            ["log_size", "repeat", "writes", "seed", "queue_depth"]
        );
        assert_eq!(of(Type::Number), ["scale", "duplicates", "steady"]);
        let switches = [
            "dedup",
            "skip_bad",
            "flushes",
            "no_aging",
            "until_death",
            "survival",
        ];
        assert_eq!(of(Type::Boolean), switches);
    }

    #[test]
    fn values_of_options_are_numbers_where_they_mean_numbers() {
        let typed = |name, text| typed_option(name, text).map(|(_, value)| value);
        for (name, text, value) in [
            ("log-size", "20MiB", json!(20 << 20)),
            ("writes", "200k", json!(200_000)),
            ("seed", "0", json!(0)),
            ("scale", "1/64", json!(1.0 / 64.0)),
            ("duplicates", "30%", json!(0.3)),
            ("dedup", "off", json!(false)),
            ("no_aging", "true", json!(true)),
            ("workload", "oltp", json!("oltp")),
            ("firmware.log_bytes", "40MiB", json!(40 << 20)),
            ("firmware.gc_free", "0.2", json!(0.2)),
            ("firmware.entry", "16", json!("16")),
            ("firmware.gc_at_once", "true", json!(true)),
        ] {
            assert_eq!(typed(name, text), Some(value), "{name} = {text}");
        }
        assert_eq!(typed_option("log-size", "1k").unwrap().0, "log_size");
        assert_eq!((typed("sed", "1"), typed("seed", "x")), (None, None));
    }
}
