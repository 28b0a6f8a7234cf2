//! One combination of a grid's values: its arguments for `compare`, and the hash that identifies
//! its result.
//!
//! Invariants: a key is a hash of everything that determines the run: options, contents of trace
//! and device file, the sources of the simulator; the same point has the same key from a file, from
//! Python, and with its options in any order. Absent: making the combinations (`grid`), running
//! them.

use crate::compare::{self, Args as CompareArgs};
use clap::{CommandFactory, Parser};
use remap_ssd_device::DeviceConfig;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Version of the key: incremented when the meaning of a point changes.
const FORMAT: u32 = 2;

/// A digest of the sources that determine the results.
pub const SOURCES: &str = env!("REMAP_SSD_SOURCES");

/// Identity of a point's result, and the data written beside it.
#[derive(Clone, Debug)]
pub struct Name {
    /// A hash of everything that determines the run.
    pub key: String,
    /// The scheme that it simulates.
    pub scheme: String,
    /// All its options as text.
    pub options: Vec<(String, String)>,
}

/// One combination of the grid's values.
#[derive(Debug)]
pub struct Point {
    /// Its identity.
    pub name: Name,
    /// All its values as given, those of the grid last.
    pub values: Vec<(String, Value)>,
    /// The values of the grid as text, in its order.
    pub of_grid: Vec<(String, String)>,
    /// The equivalent options of `compare`.
    pub words: Vec<String>,
    /// The path or address of its trace, and the digest of its content.
    pub trace: Option<(String, String)>,
    /// The parsed arguments for `compare`.
    pub args: CompareArgs,
    /// Estimated memory in bytes; 0 if its device is unknown before the trace is read.
    pub memory_bytes: u64,
}

#[derive(Parser)]
#[command(name = "compare", no_binary_name = true, disable_help_flag = true)]
struct PointCommand {
    #[command(flatten)]
    args: CompareArgs,
}

/// The digest of a file's content.
///
/// # Errors
/// It cannot be read.
pub fn digest(path: &Path) -> std::io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(path)?)?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// The names of the options of `compare`, with `_`.
pub(super) fn options() -> Vec<String> {
    PointCommand::command()
        .get_arguments()
        .filter_map(|arg| Some(arg.get_long()?.replace('-', "_")))
        .collect()
}

/// A value as text for the command line; none for tables, lists and dates.
pub(super) fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(is_so) => Some(is_so.to_string()),
        // The shortest text that parses to the same number, for TOML, JSON and Python alike: 1.0 is
        // 1.
        Value::Number(number) if number.is_f64() => {
            number.as_f64().map(|number| number.to_string())
        }
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Returns true for the address of an object, which the Python package reads.
pub(super) fn is_address(path: &str) -> bool {
    path.contains("://")
}

/// Returns the digest of the object at an address.
pub type Fetch<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// Digests of files, each read once.
pub(super) struct Files<'a> {
    folder: &'a Path,
    fetch: Option<Fetch<'a>>,
    known: HashMap<(String, String), Result<(String, String), String>>,
}

impl<'a> Files<'a> {
    /// For files relative to a folder, unless their path is absolute.
    pub(super) fn new(folder: &'a Path, fetch: Option<Fetch<'a>>) -> Self {
        Self {
            folder,
            fetch,
            known: HashMap::new(),
        }
    }

    /// The absolute path of an option's file, and a digest of its content.
    fn find(&mut self, option: &str, path: &str) -> Result<(String, String), String> {
        let (folder, fetch) = (self.folder, self.fetch);
        self.known
            .entry((option.into(), path.into()))
            .or_insert_with(|| {
                if is_address(path) {
                    address(option, path, fetch)
                } else {
                    file(option, &folder.join(path))
                }
            })
            .clone()
    }
}

fn address(option: &str, path: &str, fetch: Option<Fetch<'_>>) -> Result<(String, String), String> {
    match fetch {
        Some(fetch) if option == "trace" => Ok((path.into(), fetch(path)?)),
        Some(_) => Err(format!("{option} = {path}: only traces may be elsewhere")),
        None => Err(format!(
            "{option} = {path}: the Python package reads it: give --scheduler, or use remap_ssd.sweep"
        )),
    }
}

fn file(option: &str, path: &Path) -> Result<(String, String), String> {
    // Names the option, since a grid may have several files.
    let about = |error: &dyn std::fmt::Display| format!("{option} = {}: {error}", path.display());
    let path_whole: PathBuf = std::path::absolute(path).map_err(|error| about(&error))?;
    let digest = match option {
        // A device is identified by the described values: comments in the file do not matter.
        "config" => {
            let text = std::fs::read_to_string(path).map_err(|error| about(&error))?;
            let device = DeviceConfig::from_toml(&text).map_err(|error| about(&error))?;
            blake3::hash(device.to_toml().as_bytes())
                .to_hex()
                .to_string()
        }
        _ => digest(path).map_err(|error| about(&error))?,
    };
    Ok((path_whole.to_string_lossy().into_owned(), digest))
}

/// Makes a point from its values.
///
/// # Errors
/// The message of `compare`, in one sentence.
pub(super) fn point(
    options: &[(String, Value)],
    of_grid: &[(String, Value)],
    files: &mut Files<'_>,
) -> Result<Point, String> {
    let values: Vec<(String, Value)> = options.iter().chain(of_grid).cloned().collect();
    let as_words = |values: &[(String, Value)]| -> Vec<(String, String)> {
        let words = values.iter().map(|(name, value)| {
            let word = word(value).expect("values have been looked at");
            (name.clone(), word)
        });
        words.collect()
    };
    let said_of_all = as_words(&values);

    // Everything that determines the result, by name: the order in a file must not matter.
    let mut decides: BTreeMap<&str, String> = BTreeMap::from([("scheme", "remap-ssd".into())]);
    let (mut words, mut trace) = (Vec::new(), None);
    for (name, value) in &said_of_all {
        if ["trace", "config"].contains(&name.as_str()) {
            // Files are identified by their content.
            let (path, digest) = files.find(name, value)?;
            words.extend(said(name, &path));
            decides.insert(name, digest.clone());
            trace = trace.or((name == "trace").then_some((path, digest)));
        } else {
            words.extend(said(name, value));
            decides.insert(name, value.clone());
        }
    }

    // A point without a scheme uses the default scheme, and has the same key as with that scheme
    // given.
    if !words.iter().any(|word| word.starts_with("--scheme=")) {
        words.push("--scheme=remap-ssd".into());
    }

    // Parsed by the command line's own parser, so that points accept everything that it accepts.
    let mut args = read(&words)?;
    let memory_bytes = foreseen(&args)?;

    // Points run concurrently: one thread each.
    args.threads = Some(1);
    args.command = [vec!["remap-ssd".into(), "compare".into()], words.clone()].concat();

    // The format and the sources are part of the key: other sources may give other results.
    let key = serde_json::json!([FORMAT, env!("CARGO_PKG_VERSION"), SOURCES, decides]);
    Ok(Point {
        name: Name {
            key: blake3::hash(key.to_string().as_bytes()).to_hex()[..32].to_owned(),
            scheme: args.scheme[0].to_string(),
            options: said_of_all,
        },
        of_grid: as_words(of_grid),
        values,
        words,
        trace,
        args,
        memory_bytes,
    })
}

/// An option as text for the command line; none for a switch that is off.
fn said(name: &str, value: &str) -> Option<String> {
    let option = name.replace('_', "-");
    match (name, value) {
        (name, value) if name.contains('.') => Some(format!("--set={name}={value}")),
        ("dedup", "true") => Some("--dedup=on".into()),
        ("dedup", "false") => Some("--dedup=off".into()),
        (_, "false") => None,
        (_, "true") => Some(format!("--{option}")),
        _ => Some(format!("--{option}={value}")),
    }
}

fn read(words: &[String]) -> Result<CompareArgs, String> {
    let line = PointCommand::try_parse_from(words).map_err(|error| {
        // The first sentence of clap's message: the rest is about a command line that the user did
        // not type.
        let text = error.render().to_string();
        let sentence = text.split("\n\n").next().unwrap_or_default().trim_end();
        sentence
            .strip_prefix("error: ")
            .unwrap_or(sentence)
            .replace('\n', " ")
    })?;
    let args = line.args;
    if args.scheme.len() != 1 || args.gc.len() > 1 || args.mapping.len() > 1 {
        return Err(
            "a point has one scheme, one policy and one mapping: lists belong into [grid]".into(),
        );
    }
    Ok(args)
}

/// Checks that a point can run, without reading its trace; returns its memory estimate.
fn foreseen(args: &CompareArgs) -> Result<u64, String> {
    let own_device = args.preset.is_none() && args.config.is_none();
    // Trace and device would have to be read first, which is part of the run.
    if args.trace.is_some() && own_device {
        return Ok(0);
    }
    let mut args = args.clone();
    args.threads = Some(1);
    if args.trace.is_some() {
        (args.trace, args.arrivals) = (None, None);
    }
    compare::foresee(&args).map_err(|failure| failure.to_string())
}
