//! The plan of a comparison: its description as runs.
//!
//! Invariants: a plan has passed all checks that need no run; every scheme gets the same stream of
//! pages, if the devices have the same size. After a warm-up it is measured from where it is steady. Absent: executing a run (`remap_ssd_sim::study`).

use crate::numbers::fraction;
use crate::reading::{self, Follow};
use crate::{ComparisonSpec, Error, settings};
use remap_ssd_device::{DeviceConfig, DeviceConfigError, DeviceFile, PRESETS, Setting};
use remap_ssd_ftl::{GcPolicy, Granularity, SchemeKind};
use remap_ssd_media::ContentMode;
use remap_ssd_sim::aging::AgingSpec;
use remap_ssd_sim::study::{Length, Lifetimes, NewDevice, Requests, RunSpec, Start};
use remap_ssd_sim::workload::ContentModel;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// All decisions made before the first run.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The runs, in order; they have the same requests.
    pub runs: Vec<RunSpec>,
    /// How new devices are aged, with the contents.
    pub aging: AgingSpec,
    /// Scale of the given device, if known.
    pub scale: Option<f64>,
    /// The scale at which the device is simulated: larger, if its blocks would be smaller than a word line.
    pub device_scale: Option<f64>,
    /// Schemes that cannot run, and the reasons.
    pub refused: Vec<(String, Error)>,
    /// What a user should know before the runs.
    pub notes: Vec<String>,
}

impl Plan {
    /// The requests of all runs.
    pub(crate) fn requests(&self) -> &Requests {
        // A plan without a run is an error.
        &self.runs[0].requests
    }
}

/// Flash pages to which a preset is scaled.
const PAGES_DEFAULT: f64 = 600_000.0;

/// Flash pages below which a short trace does not shrink the device.
const PAGES_MIN: f64 = 70_000.0;

/// Makes the plan.
///
/// # Errors
/// Incompatible arguments, or an unreadable file; with the notes about a trace that was read.
pub(crate) fn plan(spec: &ComparisonSpec, follow: Follow) -> Result<Plan, Error> {
    let mut notes = Vec::new();
    match planned(spec, follow, &mut notes) {
        Ok(plan) => Ok(Plan { notes, ..plan }),
        Err(error) => Err(error.with_notes(&notes)),
    }
}

/// The plan, with its notes apart.
fn planned(spec: &ComparisonSpec, follow: Follow, notes: &mut Vec<String>) -> Result<Plan, Error> {
    spec.check_together()?;
    let requests = match (&spec.requests, &spec.trace) {
        (Some(own), _) => Requests::Recording(Arc::clone(own)),
        (None, Some(path)) => Requests::Trace(reading::trace(spec, path, follow, notes)?),
        (None, None) => Requests::Workload {
            workload: spec.workload(),
            content: spec
                .content()
                .unwrap_or_else(|| spec.workload().content_default()),
        },
    };

    let mut aging = spec.aging();
    aging.content = aging.content.or(Some(ContentModel::Unique));

    let (starts, scale, device_scale) = match &spec.age {
        Some(image) => (images(spec, image)?, None, None),
        None => {
            let Base {
                config: base,
                scale,
                file_scale,
            } = base(spec, &requests, notes)?;
            notes.extend(settings_without_effect(spec, &base));
            notes.extend(base.reads_slower_than_programs().map(as_note));
            // A preset's own scale may be below it: the heading says which one is used.
            notes.extend(spec.scale.and_then(|scale| raised_scale(scale, &base)));
            let used = scale.max(base.scale_least());
            let starts = new_devices(spec, &base, &aging, used, notes);
            let device_scale = file_scale * used;
            (starts, Some(scale), Some(device_scale))
        }
    };

    // Each scheme on its own: an impossible one must not keep the others from running.
    let (mut runs, mut refused) = (Vec::new(), Vec::new());
    for (scheme, start) in starts {
        let checked = start.and_then(|start| {
            let run = run(spec, &requests, start);
            // An image's scheme is known when it is loaded.
            if let Some(new) = run.new_device() {
                run.check_scheme(new.config.firmware.scheme)?;
            }
            Ok(run)
        });
        match checked {
            Ok(run) => runs.push(run),
            Err(failure) => refused.push((scheme, failure)),
        }
    }

    // No scheme can run: the first reason is the command's.
    if runs.is_empty() {
        return Err(refused.swap_remove(0).1);
    }

    // Checked before the first run: a comparison may take hours to reach the one that fails.
    for run in &runs {
        run.check_requests()?;
    }

    Ok(Plan {
        runs,
        aging,
        scale,
        device_scale,
        refused,
        notes: Vec::new(),
    })
}

/// The run that starts with a device.
fn run(spec: &ComparisonSpec, requests: &Requests, start: Start) -> RunSpec {
    RunSpec {
        start,
        requests: requests.clone(),
        arrivals: spec.arrivals,
        queue_depth: spec.queue_depth(),
        warm_up: spec.warm_up(),
        length: match (spec.until_death, spec.precision, spec.pages()) {
            (true, ..) => Length::UntilWornOut,
            (false, Some(precision), _) => Length::Precise(precision),
            (false, None, Some(pages)) => Length::Pages(pages),
            (false, None, None) => Length::Usual,
        },
        lifetimes: if spec.survival {
            Lifetimes::OfAll
        } else {
            Lifetimes::Untracked
        },
        timeline: spec.pictured(),
        seed: spec.seed(),
    }
}

/// The device as described.
struct Base {
    config: DeviceConfig,
    /// Its scale in the simulation.
    scale: f64,
    /// The scale in its file, at which it is already.
    file_scale: f64,
}

/// The device as described, and its scales.
fn base(
    spec: &ComparisonSpec,
    requests: &Requests,
    notes: &mut Vec<String>,
) -> Result<Base, Error> {
    let recorded = match requests {
        Requests::Trace(trace) => trace.decoded.device(),
        Requests::Workload { .. } | Requests::Recording(_) => None,
    };

    // In this order: a file, a preset by name, the device recorded in the trace, and the default
    // preset.
    let mut file_scale = 1.0;
    let mut config = match (&spec.config, &spec.preset, recorded) {
        (Some(path), ..) => {
            let file = read_config(path)?;
            file_scale = file.scale;
            notes.extend(file.note.map(as_note));
            file.config
        }
        (None, Some(name), _) => DeviceConfig::preset(name).map_err(Error::usage)?,
        (None, None, Some(device)) => simulated(device),
        (None, None, None) => PRESETS[0].config(),
    };

    // Specific options first, then `--set`, which can override everything.
    let firmware = &mut config.firmware;
    firmware.log_bytes = spec.log_size.unwrap_or(firmware.log_bytes);

    if let Some(is_on) = spec.dedup {
        firmware.dedup = is_on;
        // Deduplication needs identities of contents.
        if firmware.dedup && config.content == ContentMode::None {
            config.content = ContentMode::Identity;
        }
    }

    let settings = settings::parse(&spec.set)?;
    let before = config;
    let config = before.with(&settings).map_err(Error::usage)?;
    let gives_size = |setting: &Setting| setting.key.path == "firmware.lpns";
    if !settings.iter().any(gives_size) {
        notes.extend(config.keeps_size_of(&before).map(as_note));
    }

    // A user's own device is simulated at full size; a preset is only as large as the run needs.
    let is_whole = spec.config.is_some() || (spec.preset.is_none() && recorded.is_some());

    let scale = match spec.scale {
        Some(scale) => scale,
        None if is_whole => 1.0,
        None => preset_scale(&config, requests),
    };

    Ok(Base {
        config,
        scale,
        file_scale,
    })
}

fn as_note(text: String) -> String {
    format!("note: {text}")
}

/// Converts a recorded device for simulation: traces have identities of contents, not bytes.
fn simulated(device: &DeviceConfig) -> DeviceConfig {
    let mut device = device.clone();
    if device.content == ContentMode::Bytes {
        device.content = ContentMode::Identity;
    }
    device
}

/// The largest power of two at which the device has at most `PAGES_DEFAULT` pages, and at which a
/// trace writes the addressable pages once, as long as `PAGES_MIN` pages remain.
fn preset_scale(config: &DeviceConfig, requests: &Requests) -> f64 {
    let pages = f64::from(config.geometry.pages());
    let addressable = config.addressable_lpns() as f64;
    let written = match requests {
        Requests::Trace(trace) => trace.pages_written() as f64,
        Requests::Workload { .. } | Requests::Recording(_) => f64::INFINITY,
    };
    let mut scale = 1.0;

    // Halved until it fits, or until a trace fills it once; a device below the minimum has little
    // informative value.
    while pages * scale > PAGES_DEFAULT
        || (addressable * scale > written && pages * scale / 2.0 >= PAGES_MIN)
    {
        scale /= 2.0;
    }
    scale
}

fn read_config(path: &Path) -> Result<DeviceFile, Error> {
    let about = |error: &dyn std::fmt::Display| Error::about(path.display(), error);
    let text = std::fs::read_to_string(path).map_err(|error| about(&error))?;
    // A mistake in a description, wherever it is written.
    DeviceFile::read(&text)
        .map_err(|error| Error::usage(format_args!("{}: {error}", path.display())))
}

/// Schemes to run: the requested ones, without duplicates, or those of FAST'21.
fn schemes(spec: &ComparisonSpec) -> Vec<SchemeKind> {
    let mut schemes: Vec<SchemeKind> = Vec::new();
    for scheme in &spec.scheme {
        if !schemes.contains(scheme) {
            schemes.push(*scheme);
        }
    }
    if schemes.is_empty() {
        SchemeKind::FAST21.to_vec()
    } else {
        schemes
    }
}

/// The names of schemes, each with its device, or why it is impossible.
type Starts = Vec<(String, Result<Start, Error>)>;

/// Each scheme's device.
fn new_devices(
    spec: &ComparisonSpec,
    base: &DeviceConfig,
    aging: &AgingSpec,
    scale: f64,
    notes: &mut Vec<String>,
) -> Starts {
    let devices = combinations(spec, base);

    // Several devices cannot be saved in one file.
    let several = devices.len() > 1;

    let mut one = |(scheme, policy, mapping): (SchemeKind, GcPolicy, Granularity)| {
        let mut config = base.clone();
        (
            config.firmware.scheme,
            config.firmware.gc_policy,
            config.firmware.mapping,
        ) = (scheme, policy, mapping);

        let config = config
            .clone()
            .scale(scale)
            .map_err(|error| refused(spec, &config, scale, &error))?;

        let name = if spec.gc.len() > 1 {
            format!("{scheme}.{policy}")
        } else {
            scheme.to_string()
        };
        let name = if spec.mapping.len() > 1 {
            format!("{name}.{mapping}")
        } else {
            name
        };

        let mut save = spec.save_aged.as_deref().map(|path| {
            if several {
                of_scheme(path, &name)
            } else {
                path.into()
            }
        });

        // A device with its remaps in DRAM would be saved without them.
        if several && save.is_some() && !scheme.is_durable() {
            notes.push(format!(
                "note: `{scheme}` keeps its remaps in DRAM, its device is not saved"
            ));
            save = None;
        }

        Ok(Start::New(Box::new(NewDevice {
            config,
            aging: (!spec.no_aging).then_some(*aging),
            save,
        })))
    };

    devices
        .into_iter()
        .map(|device| (device.0.to_string(), one(device)))
        .collect()
}

/// A note for each setting of this comparison that changes nothing.
fn settings_without_effect(spec: &ComparisonSpec, config: &DeviceConfig) -> Vec<String> {
    let keys = config.keys_without_effect();
    let settings = settings::parse(&spec.set).into_iter().flatten();
    settings
        .filter_map(|setting| keys.iter().find(|(key, _)| *key == setting.key.path))
        .map(|(key, needs)| format!("note: `{key}` has no effect without {needs}"))
        .collect()
}

/// A note if the given scale is below the least one.
fn raised_scale(scale: f64, config: &DeviceConfig) -> Option<String> {
    let least = config.scale_least();
    (scale < least).then(|| {
        format!(
            "note: scale {} is below the least of this device, which leaves its superblocks room for data: {} is used",
            fraction(scale),
            fraction(least)
        )
    })
}

/// All combinations of the given values, or of the device's own, in the order of the schemes.
fn combinations(
    spec: &ComparisonSpec,
    base: &DeviceConfig,
) -> Vec<(SchemeKind, GcPolicy, Granularity)> {
    let own = [base.firmware.gc_policy];
    let policies = if spec.gc.is_empty() {
        &own
    } else {
        &spec.gc[..]
    };

    let own_mapping = [base.firmware.mapping];
    let mappings = if spec.mapping.is_empty() {
        &own_mapping
    } else {
        &spec.mapping[..]
    };

    let mut devices = Vec::new();
    for scheme in schemes(spec) {
        for policy in policies {
            devices.extend(mappings.iter().map(|mapping| (scheme, *policy, *mapping)));
        }
    }

    devices
}

/// Error for an impossible device: caused by the file, or by the options. Names the options for
/// the values that it mentions.
fn refused(
    spec: &ComparisonSpec,
    config: &DeviceConfig,
    scale: f64,
    error: &DeviceConfigError,
) -> Error {
    let firmware = &config.firmware;
    let (scheme, mut text) = (firmware.scheme, error.to_string());

    // The message uses the device's terms. Users who typed options look for these.
    let mut flags: Vec<String> = Vec::new();
    if let Some(bytes) = spec.log_size.filter(|_| text.contains("log_bytes")) {
        flags.push(format!("--log-size {}", flag_size(bytes)));
    }
    for setting in settings::parse(&spec.set).into_iter().flatten() {
        if text.contains(setting.key.name()) {
            flags.push(format!("--set {}={}", setting.key.path, setting.value));
        }
    }
    if !flags.is_empty() {
        text.push_str(&format!(" (given: {})", flags.join(", ")));
    }
    if text.starts_with("log_bytes") {
        let tables = firmware.tables_bytes(&config.geometry);
        // The message is about the scaled device; sizes are typed as before --scale.
        let least = least_of(&text).map(|bytes| (bytes as f64 / scale).ceil() as u64);
        let wanted = if firmware.log_bytes < tables {
            Some(tables)
        } else {
            least
        };
        if let Some(bytes) = wanted {
            text.push_str(&format!("; --log-size {} will do", flag_size_above(bytes)));
        }
    }

    let is_of_scaled = !config.check().is_err_and(|whole| whole == *error);
    if scale < 1.0 && is_of_scaled && !text.starts_with("scale ") {
        text.push_str(&format!(
            " (after scaling by {}: sizes are those of the scaled device; a larger --scale may do)",
            fraction(scale)
        ));
    }

    match &spec.config {
        // A mistake in a description, as when the file alone is wrong.
        Some(path) => Error::usage(format_args!("{}: scheme {scheme}: {text}", path.display())),
        None => Error::usage(format_args!("scheme {scheme}: {text}")),
    }
}

/// Extracts the number from `use at least N`.
fn least_of(text: &str) -> Option<u64> {
    let (_, after) = text.split_once("use at least ")?;
    let digits = after
        .split(|letter: char| !letter.is_ascii_digit())
        .next()?;
    digits.parse().ok()
}

/// Formats a size for an option.
fn flag_size(bytes: u64) -> String {
    match bytes {
        bytes if bytes > 0 && bytes.is_multiple_of(1 << 20) => format!("{}MiB", bytes >> 20),
        bytes if bytes > 0 && bytes.is_multiple_of(1 << 10) => format!("{}KiB", bytes >> 10),
        bytes => bytes.to_string(),
    }
}

/// The next larger round size.
fn flag_size_above(bytes: u64) -> String {
    let unit = if bytes > 10 << 20 { 1 << 20 } else { 1 << 10 };
    flag_size(bytes.next_multiple_of(unit))
}

/// `aged.img` becomes `aged.nlog.img` for a scheme.
pub(crate) fn of_scheme(path: &Path, scheme: &str) -> PathBuf {
    match path.extension() {
        Some(extension) => path.with_extension(format!("{scheme}.{}", extension.display())),
        None => path.with_extension(scheme),
    }
}

fn images(spec: &ComparisonSpec, image: &Path) -> Result<Starts, Error> {
    let start = |path: PathBuf| (path.display().to_string(), Ok(Start::Image(path)));
    // An existing file is one device; otherwise the name is a prefix for one file per scheme.
    if image.exists() {
        if spec.scheme.len() > 1 {
            return Err(Error::usage(format_args!(
                "{} holds a device of one scheme",
                image.display()
            )));
        }
        return Ok(vec![start(image.into())]);
    }

    let found = |scheme: SchemeKind| {
        Some(of_scheme(image, scheme.name()))
            // Without `--scheme`, all existing files; with it, a missing file is an error later.
            .filter(|path| !spec.scheme.is_empty() || path.exists())
    };

    let starts: Starts = schemes(spec)
        .into_iter()
        .filter_map(found)
        .map(start)
        .collect();

    if starts.is_empty() {
        Err(Error::about(
            image.display(),
            format_args!(
                "no such file, nor one of a scheme such as {}",
                of_scheme(image, SchemeKind::default().name()).display()
            ),
        ))
    } else {
        Ok(starts)
    }
}
