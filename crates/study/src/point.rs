//! One combination of a grid's values: its comparison, and the hash that identifies its result.
//!
//! Invariants: a key is a hash of everything that determines the run: options, contents of trace,
//! job and device file, the sources of the simulator; the same point has the same key from a file,
//! from Python, and with its options in any order. Absent: making the combinations (`grid`), running
//! them.

use crate::field::{Kind, text_of};
use crate::{ComparisonSpec, OptionDef, comparison, typed_option};
use remap_ssd_device::DeviceConfig;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Version of the key: incremented when the meaning of a point changes.
const FORMAT: u32 = 3;

/// The scheme of a point that names neither a scheme nor a device file, which has one.
const DEFAULT_SCHEME: &str = "remap-ssd";

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
    /// What determines the run: all values, with absolute paths and a scheme.
    pub given: Map<String, Value>,
    /// The path or address of its trace, and the digest of its content.
    pub trace: Option<(String, String)>,
    /// Its device and the scale of that.
    pub device: String,
    /// Its comparison.
    pub spec: ComparisonSpec,
    /// Estimated memory in bytes; 0 if its device is unknown before the trace is read.
    pub memory_bytes: u64,
}

impl Point {
    /// Its name: its values of the grid.
    pub fn title(&self) -> String {
        let value = |(name, value): &(String, String)| format!("{name}={value}");
        let values: Vec<String> = self.of_grid.iter().map(value).collect();
        values.join(" ")
    }
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

/// Returns true for the address of an object, which the Python package reads.
pub(crate) fn is_address(path: &str) -> bool {
    path.contains("://")
}

/// Returns the digest of the object at an address.
pub type Fetch<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// What a point needs of an option's file.
#[derive(Clone)]
struct PointFile {
    /// Its absolute path, or its address.
    path: String,
    /// A digest of its content.
    digest: String,
    /// The scheme of a device file.
    scheme: Option<String>,
}

/// Files of options, each read once.
pub(crate) struct Files<'a> {
    folder: &'a Path,
    fetch: Option<Fetch<'a>>,
    known: HashMap<(String, String), Result<PointFile, String>>,
}

impl<'a> Files<'a> {
    /// For files relative to a folder, unless their path is absolute.
    pub(crate) fn new(folder: &'a Path, fetch: Option<Fetch<'a>>) -> Self {
        Self {
            folder,
            fetch,
            known: HashMap::new(),
        }
    }

    /// The file of an option.
    fn find(&mut self, option: &str, path: &str) -> Result<PointFile, String> {
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

fn address(option: &str, path: &str, fetch: Option<Fetch<'_>>) -> Result<PointFile, String> {
    match fetch {
        Some(fetch) if option == "trace" => Ok(PointFile {
            path: path.into(),
            digest: fetch(path)?,
            scheme: None,
        }),
        Some(_) => Err(format!("{option} = {path}: only traces may be elsewhere")),
        None => Err(format!(
            "{option} = {path}: the Python package reads it: give --scheduler, or use remap_ssd.sweep"
        )),
    }
}

fn file(option: &str, path: &Path) -> Result<PointFile, String> {
    // Names the option, since a grid may have several files.
    let about = |error: &dyn std::fmt::Display| format!("{option} = {}: {error}", path.display());
    let path_whole: PathBuf = std::path::absolute(path).map_err(|error| about(&error))?;
    let (digest, scheme) = match option {
        // A device is identified by the described values: comments in the file do not matter.
        "config" => {
            let text = std::fs::read_to_string(path).map_err(|error| about(&error))?;
            let device = DeviceConfig::from_toml(&text).map_err(|error| about(&error))?;
            let digest = blake3::hash(device.to_toml().as_bytes());
            let scheme = device.firmware.scheme.to_string();
            (digest.to_hex().to_string(), Some(scheme))
        }
        _ => (digest(path).map_err(|error| about(&error))?, None),
    };

    Ok(PointFile {
        path: path_whole.to_string_lossy().into_owned(),
        digest,
        scheme,
    })
}

/// Makes a point from its values.
///
/// # Errors
/// The message of `compare`, in one sentence.
pub(crate) fn point(
    options: &[(String, Value)],
    of_grid: &[(String, Value)],
    files: &mut Files<'_>,
) -> Result<Point, String> {
    let values: Vec<(String, Value)> = options.iter().chain(of_grid).cloned().collect();
    let as_words = |values: &[(String, Value)]| -> Vec<(String, String)> {
        let words = values.iter().map(|(name, value)| {
            let word = text_of(value).expect("values have been looked at");
            (name.clone(), word)
        });
        words.collect()
    };
    let said_of_all = as_words(&values);

    // A column of whole numbers has 64 bits with a sign.
    for (name, text) in &said_of_all {
        let typed = typed_option(name, text).map(|(_, value)| value);
        if typed.is_some_and(|value| value.is_u64() && !value.is_i64()) {
            return Err(format!("{name} = {text}: at most 2^63 - 1 in a table"));
        }
    }

    // Everything that determines the result, by name: the order in a file must not matter.
    let mut decides: BTreeMap<&str, String> = BTreeMap::new();
    let (mut given, mut trace, mut own_scheme) = (Vec::new(), None, None);
    for ((name, value), text) in values.iter().zip(said_of_all.iter().map(|(_, text)| text)) {
        if OptionDef::find(name).is_ok_and(|option| option.kind == Kind::Path) {
            // Files are identified by their content.
            let file = files.find(name, text)?;
            given.push((name.clone(), file.path.clone().into()));
            decides.insert(name, file.digest.clone());
            trace = trace.or((name == "trace").then_some((file.path, file.digest)));
            own_scheme = own_scheme.or(file.scheme);
        } else {
            given.push((name.clone(), value.clone()));
            decides.insert(name, text.clone());
        }
    }

    // A point without a scheme uses its device file's, or the default, and has the same key as with
    // that scheme given.
    if !decides.contains_key("scheme") {
        let scheme = own_scheme.unwrap_or_else(|| DEFAULT_SCHEME.into());
        given.push(("scheme".into(), scheme.clone().into()));
        decides.insert("scheme", scheme);
    }

    let mut spec = read(&given)?;
    let (memory_bytes, device) = foreseen(&spec)?;

    // Points run concurrently: one thread each.
    spec.threads = Some(1);
    let words = given.iter().filter_map(|(name, value)| said(name, value));
    spec.command = ["remap-ssd".into(), "compare".into()]
        .into_iter()
        .chain(words)
        .collect();

    // The format and the sources are part of the key: other sources may give other results.
    let key = json!([FORMAT, env!("CARGO_PKG_VERSION"), SOURCES, decides]);
    Ok(Point {
        name: Name {
            key: blake3::hash(key.to_string().as_bytes()).to_hex()[..32].to_owned(),
            scheme: spec.scheme[0].to_string(),
            options: said_of_all,
        },
        of_grid: as_words(of_grid),
        values,
        given: given.into_iter().collect(),
        trace,
        device,
        spec,
        memory_bytes,
    })
}

/// An option as a word of the command line; none for a switch that is off.
fn said(name: &str, value: &Value) -> Option<String> {
    let text = text_of(value)?;
    let option = name.replace('_', "-");
    match (name, &text[..]) {
        (name, value) if name.contains('.') => Some(format!("--set={name}={value}")),
        ("dedup", "true") => Some("--dedup=on".into()),
        ("dedup", "false") => Some("--dedup=off".into()),
        (_, "false") => None,
        (_, "true") => Some(format!("--{option}")),
        _ => Some(format!("--{option}={text}")),
    }
}

fn read(given: &[(String, Value)]) -> Result<ComparisonSpec, String> {
    let spec = ComparisonSpec::from_values(given.iter().map(|(name, value)| (&name[..], value)))
        // In one sentence: it is a line of a list.
        .map_err(|error| error.to_string().replace('\n', " "))?;
    if spec.scheme.len() != 1 || spec.gc.len() > 1 || spec.mapping.len() > 1 {
        return Err(
            "a point has one scheme, one policy and one mapping: lists belong into [grid]".into(),
        );
    }
    Ok(spec)
}

/// Checks that a point can run, without reading its trace; returns its memory estimate and its device.
fn foreseen(spec: &ComparisonSpec) -> Result<(u64, String), String> {
    let own_device = spec.preset.is_none() && spec.config.is_none();
    // Trace and device would have to be read first, which is part of the run.
    if spec.trace.is_some() && own_device {
        return Ok((0, "that of the trace".into()));
    }
    let mut spec = spec.clone();
    spec.threads = Some(1);
    if spec.trace.is_some() {
        spec.without_trace();
    }
    comparison::foresee(&spec).map_err(|error| error.to_string())
}
