//! Expands an experiment's grids to runs: every combination, each with all parameters that
//! determine its result.
//!
//! Invariants: an impossible run is reported here, before any runs; equal runs of different
//! experiments have equal keys and are run once; a scheme whose remapping metadata has no
//! configurable size is run once, not once per size. Absent: execution (`perform`).

use crate::LabError;
use crate::config::{Experiment, Fill, Form, Grid, Paper, RunKind, RunLength, Setup};
use crate::recordings;
use remap_ssd_device::{DeviceConfig, DeviceConfigError, Setting, parse_scale};
use remap_ssd_ftl::{GcPolicy, Medium, SchemeKind};
use remap_ssd_sim::workload::{ContentModel, NamedWorkload};
use serde::{Deserialize, Serialize};

/// Minimum NVRAM segment after scaling.
const SEGMENT_BYTES_MIN: u32 = 128;

/// Prefix of a workload that is a trace: its path follows.
pub(crate) const TRACE: &str = "trace:";

/// Arrivals of a closed loop.
const CLOSED: &str = "closed";

/// One run of an experiment, by its place in the grid: all parameters that determine its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GridRun {
    /// Kind of the run: a workload, a recovery, single commands or host software.
    pub kind: RunKind,
    /// Name of the paper whose table of parameters it uses.
    pub paper: String,
    /// Name of the paper's setup.
    pub setup: String,
    /// Name of the remapping scheme, such as `remap-ssd`.
    pub scheme: String,
    /// Garbage collection policy by name.
    pub gc: String,
    /// Workload; empty if there is none.
    pub workload: String,
    /// Digest of the recording's bytes, if it is one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub recording: String,
    /// Contents; empty if there are none.
    pub content: String,
    /// Content model of aging's writes.
    pub aging_content: String,
    /// Remapping metadata in MiB before scaling; for a scheme without limit, the size that its
    /// aging imitates, or 0.
    pub log_mib: f64,
    /// NVRAM segments before scaling, bytes.
    pub segment_bytes: u32,
    /// Fraction of the setup's size.
    pub scale: f64,
    /// Pages submitted in the measured part.
    pub pages: u64,
    /// Arrival times of requests; empty for a closed loop.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub arrivals: String,
    /// True if page lifetimes are tracked (slower).
    pub survival: bool,
    /// How the device is filled.
    pub fill: Fill,
    /// Fraction of the remapping metadata in use after aging.
    pub nvram_used: f64,
    /// Fraction of that which is valid.
    pub nvram_valid: f64,
    /// Maximum pages written before the measurement, until the load is steady.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub warm_up: f64,
    /// Seed of all random draws.
    pub seed: u64,
    /// The device with all overrides applied, scaled.
    pub device: DeviceConfig,
}

impl GridRun {
    /// Key of its result: equal for equal runs, distinct for all others.
    pub fn key(&self) -> String {
        // This text includes all parameters that determine the result, also the device. 96 bits of
        // its hash rule out accidental collisions.
        let text = serde_json::to_string(self).expect("a run can be written as JSON");
        blake3::hash(text.as_bytes()).to_hex()[..24].to_owned()
    }

    /// One-line name of the run for messages and tables.
    pub fn title(&self) -> String {
        let mut text = self.scheme.clone();
        let mut add = |word: &str| {
            if !word.is_empty() {
                text.push(' ');
                text.push_str(word);
            }
        };
        add(&self.workload);
        add(&self.content);
        add(&self.gc);
        add(&self.arrivals);
        if self.log_mib > 0.0 {
            add(&format!("{} MiB", self.log_mib));
        }
        text
    }

    /// Approximate peak memory.
    pub fn memory_bytes(&self) -> u64 {
        let pages = u64::from(self.device.geometry.pages());
        let page =
            if self.device.firmware.dedup { 44 } else { 24 } + if self.survival { 12 } else { 0 };
        let twice = if self.kind == RunKind::Recovery { 2 } else { 1 };
        (pages * page + self.device.firmware.log_bytes) * twice + self.host_bytes() + (64 << 20)
    }

    /// Memory of host software: its tables, and the data written.
    fn host_bytes(&self) -> u64 {
        match self.kind {
            RunKind::Host => self.device.addressable_lpns() * 30 + self.pages * 1000,
            _ => 0,
        }
    }

    /// Estimated duration, in arbitrary units.
    pub(crate) fn weight(&self) -> f64 {
        let pages = f64::from(self.device.geometry.pages());
        match self.kind {
            RunKind::Workload | RunKind::Micro | RunKind::Order => {
                0.4 * pages + if self.scheme == "none" { 0.7 } else { 1.0 } * self.pages as f64
            }
            // Hashing takes most of it.
            RunKind::Host => 0.2 * pages + 20.0 * self.pages as f64,
            RunKind::Recovery => 1.2 * pages,
        }
    }
}

/// Returns all runs of an experiment at one size, each once, in the order of the grids.
///
/// # Errors
/// One sentence: the impossible value.
pub(crate) fn runs(
    name: &str,
    experiment: &Experiment,
    paper: &Paper,
    form: Form,
    settings: &[Setting],
) -> Result<Vec<GridRun>, LabError> {
    let mut all: Vec<GridRun> = Vec::new();
    for grid in &experiment.runs {
        for run in combine(name, &experiment.paper, grid, paper, form, settings)? {
            // Grids of one experiment may overlap; the first occurrence of a run counts.
            if !all.contains(&run) {
                all.push(run);
            }
        }
    }
    Ok(all)
}

fn combine(
    name: &str,
    paper_name: &str,
    grid: &Grid,
    paper: &Paper,
    form: Form,
    settings: &[Setting],
) -> Result<Vec<GridRun>, LabError> {
    let about = format!("{name}/experiment.toml");
    let wrong = |what: &dyn std::fmt::Display| LabError::wrong(&about, what);

    let setup = paper.setup.get(&grid.setup).ok_or_else(|| {
        let known = paper
            .setup
            .keys()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(", ");
        wrong(&format_args!(
            "papers/{paper_name}.toml has no setup `{}`; there are {known}",
            grid.setup
        ))
    })?;
    check_lists(grid).map_err(|error| wrong(&error))?;

    let base = device(setup)
        .map_err(|error| LabError::wrong(format_args!("papers/{paper_name}.toml"), error))?;

    // An override of a value that the grid sets would have no effect.
    if let Some(setting) = settings.iter().find(|one| grid.chooses(one.key.path)) {
        let path = setting.key.path;
        return Err(wrong(&format_args!("the experiment chooses {path} itself")));
    }
    let base = base.with(settings).map_err(|error| wrong(&error))?;

    let context = GridContext {
        about: &about,
        paper: paper_name,
        grid,
        setup,
        length: setup.length(form),
        warm_up: match form {
            Form::Smoke => 0.0,
            Form::Full | Form::Quick => setup.warm_up,
        },
        base: &base,
    };
    cells(grid, &base, paper.seed)
        .iter()
        .map(|cell| context.run(cell))
        .collect()
}

/// Checks that the lists needed by the kind of runs are not empty.
fn check_lists(grid: &Grid) -> Result<(), &'static str> {
    if grid.scheme.is_empty() {
        return Err("a grid of runs needs at least one scheme");
    }
    match grid.kind {
        RunKind::Micro | RunKind::Order if grid.workload.is_empty() => {
            Err("runs of this kind need `workload`")
        }
        RunKind::Workload | RunKind::Host
            if grid.workload.is_empty() || grid.content.is_empty() =>
        {
            Err("runs under a workload need `workload` and `content`")
        }
        _ => Ok(()),
    }
}

/// The product of all lists: the last one varies fastest.
fn cells<'a>(grid: &'a Grid, base: &DeviceConfig, seed: u64) -> Vec<Cell<'a>> {
    let mut cells = vec![Cell {
        capacity: 1.0,
        addressable: base.addressable,
        workload: "",
        content: "",
        gc: base.firmware.gc_policy,
        log_mib: base.firmware.log_bytes as f64 / f64::from(1 << 20),
        segment_bytes: base.firmware.segment_bytes,
        arrivals: CLOSED,
        queue_depth: base.queue_depth,
        seed,
        scheme: "",
    }];

    times(&mut cells, &grid.capacity, |cell, value| {
        cell.capacity = *value
    });
    times(&mut cells, &grid.addressable, |cell, value| {
        cell.addressable = *value
    });
    times(&mut cells, &grid.workload, |cell, value| {
        cell.workload = value
    });
    times(&mut cells, &grid.content, |cell, value| {
        cell.content = value
    });

    times(&mut cells, &grid.log_mib, |cell, value| {
        cell.log_mib = *value
    });
    times(&mut cells, &grid.segment_bytes, |cell, value| {
        cell.segment_bytes = *value
    });
    times(&mut cells, &grid.arrivals, |cell, value| {
        cell.arrivals = value
    });
    times(&mut cells, &grid.queue_depth, |cell, value| {
        cell.queue_depth = *value
    });
    times(&mut cells, &grid.seed, |cell, value| cell.seed = *value);
    times(&mut cells, &grid.gc, |cell, value| cell.gc = *value);
    times(&mut cells, &grid.scheme, |cell, value| cell.scheme = value);
    cells
}

/// Combines every cell with every value; unchanged if there are no values.
fn times<'a, C: Copy, T>(cells: &mut Vec<C>, values: &'a [T], set: impl Fn(&mut C, &'a T)) {
    if values.is_empty() {
        return;
    }
    let with = |cell: &C, value: &'a T| {
        let mut cell = *cell;
        set(&mut cell, value);
        cell
    };
    *cells = cells
        .iter()
        .flat_map(|cell| {
            values
                .iter()
                .map(|value| with(cell, value))
                .collect::<Vec<_>>()
        })
        .collect();
}

/// Returns the setup's device as published.
fn device(setup: &Setup) -> Result<DeviceConfig, DeviceConfigError> {
    let mut table = setup.device.clone();
    table.insert("preset".into(), setup.preset.clone().into());
    DeviceConfig::from_toml(&table.to_string())
}

/// One combination of a grid's values.
#[derive(Clone, Copy)]
struct Cell<'a> {
    capacity: f64,
    addressable: f64,
    workload: &'a str,
    content: &'a str,
    gc: GcPolicy,
    log_mib: f64,
    segment_bytes: u32,
    arrivals: &'a str,
    queue_depth: u32,
    seed: u64,
    scheme: &'a str,
}

struct GridContext<'a> {
    about: &'a str,
    paper: &'a str,
    grid: &'a Grid,
    setup: &'a Setup,
    length: &'a RunLength,
    warm_up: f64,
    base: &'a DeviceConfig,
}

impl GridContext<'_> {
    fn wrong(&self, what: impl std::fmt::Display) -> LabError {
        LabError::wrong(self.about, what)
    }

    fn run(&self, cell: &Cell<'_>) -> Result<GridRun, LabError> {
        let (grid, setup) = (self.grid, self.setup);
        let (device, sizing) = self.scaled_device(cell)?;
        let content = self.content(cell)?;

        // The published model's contents already exist when the measured run begins; others are the
        // run's own.
        let aging_content = match setup.aging_content.as_deref() {
            None | Some("own") if content.starts_with("papers:") => content.clone(),
            None | Some("own") => "unique".into(),
            Some(model) => model.into(),
        };
        aging_content
            .parse::<ContentModel>()
            .map_err(|error| self.wrong(error))?;

        let pages = match grid.kind {
            RunKind::Workload | RunKind::Micro | RunKind::Host | RunKind::Order => {
                (device.addressable_lpns() as f64 * self.length.rounds) as u64
            }
            RunKind::Recovery => 0,
        };

        let recording = match cell.workload.strip_prefix(recordings::PREFIX) {
            Some(name) => recordings::find(name)
                .map_err(|error| self.wrong(error))?
                .digest(),
            None => String::new(),
        };

        let arrivals = match cell.arrivals {
            CLOSED => "",
            other => other,
        };

        Ok(GridRun {
            kind: grid.kind,
            paper: self.paper.into(),
            setup: grid.setup.clone(),
            scheme: cell.scheme.into(),
            gc: cell.gc.to_string(),
            workload: cell.workload.into(),
            recording,
            content,
            aging_content,
            log_mib: if sizing.sized { cell.log_mib } else { 0.0 },
            segment_bytes: if sizing.limited {
                cell.segment_bytes
            } else {
                0
            },
            scale: sizing.scale,
            pages,
            arrivals: arrivals.into(),
            survival: grid.survival,
            fill: setup.fill,
            nvram_used: setup.nvram_used,
            nvram_valid: setup.nvram_valid,
            warm_up: self.warm_up,
            seed: cell.seed,
            device,
        })
    }

    /// The base device with the cell's scheme and sizes, scaled.
    fn scaled_device(&self, cell: &Cell<'_>) -> Result<(DeviceConfig, Sizing), LabError> {
        let (grid, scheme) = (self.grid, cell.scheme);
        let kind: SchemeKind = scheme.parse().map_err(|error| self.wrong(error))?;
        let mut device = self.base.clone();
        (device.firmware.scheme, device.firmware.gc_policy) = (kind, cell.gc);
        device.addressable = cell.addressable;
        device.queue_depth = cell.queue_depth;

        let tables = device.firmware.tables_bytes(&device.geometry);
        let limited = is_limited(kind) && tables == 0;
        if tables > 0 {
            // More than they need, until their size at that scale is known.
            device.firmware.log_bytes = tables + tables / 4;
        }

        // Aging remaps a fraction of the metadata's capacity. A scheme without limit is aged like
        // one with a limit, so that each size is compared from the same mappings.
        let alike = !grid.log_mib.is_empty()
            && self.setup.nvram_used > 0.0
            && kind.facts().remaps
            && tables == 0;
        let sized = limited || alike;
        if sized {
            device.firmware.log_bytes = (cell.log_mib * f64::from(1 << 20)) as u64;
            device.firmware.segment_bytes = cell.segment_bytes;
        }

        let impossible = |error| self.wrong(format_args!("scheme {scheme}: {error}"));
        let scale = parse_scale(&self.length.scale).map_err(|error| self.wrong(error))?;
        let scale = scale * cell.capacity;
        let mut device = device.scale(scale).map_err(impossible)?;
        if tables > 0 {
            device.firmware.log_bytes = device.firmware.tables_bytes(&device.geometry);
        }

        if limited && !grid.segment_bytes.is_empty() {
            // In experiments on segment size, segments keep their proportion to a superblock's
            // entries.
            let wanted = (f64::from(cell.segment_bytes) * scale) as u32;
            device.firmware.segment_bytes = wanted.max(SEGMENT_BYTES_MIN).min(cell.segment_bytes);
            // Whole segments only.
            device.firmware.log_bytes -=
                device.firmware.log_bytes % u64::from(device.firmware.segment_bytes);
            device.check().map_err(impossible)?;
        }

        let sizing = Sizing {
            scale,
            limited,
            sized,
        };
        Ok((device, sizing))
    }

    /// The cell's content; "own" is the workload's, and of a trace or recording nothing.
    fn content(&self, cell: &Cell<'_>) -> Result<String, LabError> {
        if cell.content != "own" {
            return Ok(cell.content.to_owned());
        }
        let is_recorded = |prefix| cell.workload.starts_with(prefix);
        if is_recorded(TRACE) || is_recorded(recordings::PREFIX) {
            return Ok(String::new());
        }
        let workload: NamedWorkload = cell.workload.parse().map_err(|error| self.wrong(error))?;
        Ok(workload.content_default().to_string())
    }
}

/// How a run's device got its size.
struct Sizing {
    scale: f64,
    /// The scheme keeps remapping metadata of a configurable size.
    limited: bool,
    /// The size of the log is the cell's.
    sized: bool,
}

fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

/// Returns true if the scheme keeps remapping metadata.
fn is_limited(scheme: SchemeKind) -> bool {
    scheme.facts().medium != Medium::Nowhere
}
