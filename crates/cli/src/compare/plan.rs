//! What `compare` is going to do: devices, what they are fed, how long.
//!
//! Invariants: a plan can be run, as far as can be told beforehand; every scheme gets the same stream of pages, if
//! the devices have the same size. Absent: running it (`job`).

use super::args::{Args, Switch};
use super::replay::TraceFacts;
use crate::failure::Failure;
use crate::output;
use remap_ssd_device::{DeviceConfig, DeviceConfigError};
use remap_ssd_ftl::{GcPolicy, Granularity, SchemeKind};
use remap_ssd_media::ContentMode;
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_sim::arrivals::Arrivals;
use remap_ssd_sim::trace::TraceOptions;
use remap_ssd_sim::workload::{ContentModel, NamedWorkload};
use std::path::{Path, PathBuf};

/// Everything decided.
#[derive(Debug)]
pub struct Plan {
    /// The schemes, in order.
    pub jobs: Vec<Start>,
    /// What is measured.
    pub feed: Feed,
    /// What aging writes.
    pub aging_content: ContentModel,
    /// The share of the given device that they have, where that is known.
    pub scale: Option<f64>,
}

/// Where a scheme's device comes from.
#[derive(Debug)]
pub enum Start {
    /// A new one, aged unless told otherwise; saved then if there is a name.
    New {
        /// What it is made of.
        config: Box<DeviceConfig>,
        /// Age it?
        aged: bool,
        /// Where to save it.
        save: Option<PathBuf>,
    },
    /// An image.
    Image(PathBuf),
}

/// What is measured.
#[derive(Debug)]
pub enum Feed {
    /// A synthetic workload.
    Synthetic {
        /// Its addresses.
        spec: NamedWorkload,
        /// Its contents.
        content: ContentModel,
        /// Pages; twice the addressable ones if not given.
        pages: Option<u64>,
    },
    /// A trace.
    Trace(TraceFacts),
}

/// Flash pages that a preset is scaled to.
const PAGES_DEFAULT: f64 = 1_200_000.0;

/// Flash pages below which a short trace does not shrink the device.
const PAGES_MIN: f64 = 70_000.0;

/// Decides everything.
///
/// # Errors
/// What does not fit together, or cannot be read.
pub fn plan(args: &Args) -> Result<Plan, Failure> {
    let feed = match &args.trace {
        Some(path) => Feed::Trace(TraceFacts::read(args, path)?),
        None => {
            let content = content(args).unwrap_or_else(|| args.workload.content_default());
            Feed::Synthetic {
                spec: args.workload,
                content,
                pages: args.writes,
            }
        }
    };
    let aging_content = content(args).unwrap_or(match feed {
        Feed::Synthetic {
            content: content @ ContentModel::Papers { .. },
            ..
        } => content,
        _ => ContentModel::Unique,
    });
    let (jobs, scale) = match &args.age {
        Some(image) => (images(args, image)?, None),
        None => {
            let (base, scale) = base(args, &feed)?;
            (new_devices(args, &base, scale)?, Some(scale))
        }
    };
    check_workload(&jobs, &feed, args.seed, args.arrivals())?;
    Ok(Plan {
        jobs,
        feed,
        aging_content,
        scale,
    })
}

fn content(args: &Args) -> Option<ContentModel> {
    let papers = |duplicate_ratio| ContentModel::Papers {
        duplicate_ratio,
        exponent: ContentModel::PAPERS_EXPONENT,
    };
    args.content.or(args.duplicates.map(papers))
}

/// The device as described, and the share of it that is simulated.
fn base(args: &Args, feed: &Feed) -> Result<(DeviceConfig, f64), Failure> {
    let mut config = match &args.config {
        Some(path) => read_config(path)?,
        None => DeviceConfig::preset(&args.preset).map_err(Failure::usage)?,
    };
    let firmware = &mut config.firmware;
    firmware.log_bytes = args.log_size.unwrap_or(firmware.log_bytes);
    firmware.block_pages = args.block_pages.unwrap_or(firmware.block_pages);
    firmware.extension = args.extension.unwrap_or(firmware.extension);
    firmware.gc_free = args.gc_free.unwrap_or(firmware.gc_free);
    if let Some(dies) = args.superblock_dies {
        config.geometry = config
            .geometry
            .with_superblock_dies(dies)
            .map_err(Failure::usage)?;
    }
    config.flash.endurance = args.endurance.unwrap_or(config.flash.endurance);
    if let Some(switch) = args.dedup {
        firmware.dedup = switch == Switch::On;
        if firmware.dedup && config.content == ContentMode::None {
            config.content = ContentMode::Identity;
        }
    }
    let scale = match (args.scale, &args.config) {
        (Some(scale), _) => scale,
        (None, Some(_)) => 1.0,
        (None, None) => preset_scale(&config, feed),
    };
    Ok((config, scale))
}

/// The largest power of two at which the device has at most `PAGES_DEFAULT` pages, and at which a trace writes the
/// addressable pages once, as far as that leaves `PAGES_MIN`.
fn preset_scale(config: &DeviceConfig, feed: &Feed) -> f64 {
    let pages = f64::from(config.geometry.pages());
    let addressable = f64::from(config.addressable_lpns());
    let written = match feed {
        Feed::Synthetic { .. } => f64::INFINITY,
        Feed::Trace(facts) => facts.pages_written() as f64,
    };
    let mut scale = 1.0;
    while pages * scale > PAGES_DEFAULT
        || (addressable * scale > written && pages * scale / 2.0 >= PAGES_MIN)
    {
        scale /= 2.0;
    }
    scale
}

fn read_config(path: &Path) -> Result<DeviceConfig, Failure> {
    let about = |error: &dyn std::fmt::Display| Failure::about(path.display(), error);
    let text = std::fs::read_to_string(path).map_err(|error| about(&error))?;
    DeviceConfig::from_toml(&text).map_err(|error| about(&error))
}

/// Schemes to run: those asked for once each, or those of FAST'21.
fn schemes(args: &Args) -> Vec<SchemeKind> {
    let mut schemes: Vec<SchemeKind> = Vec::new();
    for scheme in &args.scheme {
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

fn new_devices(args: &Args, base: &DeviceConfig, scale: f64) -> Result<Vec<Start>, Failure> {
    let own = [base.firmware.gc_policy];
    let policies = if args.gc.is_empty() {
        &own
    } else {
        &args.gc[..]
    };
    let own_mapping = [base.firmware.mapping];
    let mappings = if args.mapping.is_empty() {
        &own_mapping
    } else {
        &args.mapping[..]
    };
    let mut devices: Vec<(SchemeKind, GcPolicy, Granularity)> = Vec::new();
    for scheme in schemes(args) {
        for policy in policies {
            devices.extend(mappings.iter().map(|mapping| (scheme, *policy, *mapping)));
        }
    }
    let several = devices.len() > 1;
    let one = |(scheme, policy, mapping): (SchemeKind, GcPolicy, Granularity)| {
        let mut config = base.clone();
        (
            config.firmware.scheme,
            config.firmware.gc_policy,
            config.firmware.mapping,
        ) = (scheme, policy, mapping);
        let config = config
            .scale(scale)
            .map_err(|error| refused(args, scheme, &error))?;
        let name = if policies.len() > 1 {
            format!("{scheme}.{policy}")
        } else {
            scheme.to_string()
        };
        let name = if mappings.len() > 1 {
            format!("{name}.{mapping}")
        } else {
            name
        };
        let mut save = args.save_aged.as_deref().map(|path| {
            if several {
                of_scheme(path, &name)
            } else {
                path.into()
            }
        });
        if several && save.is_some() && !scheme.is_durable() {
            output::note(format_args!(
                "note: `{scheme}` keeps its remaps in DRAM, its device is not saved"
            ));
            save = None;
        }
        Ok(Start::New {
            config: Box::new(config),
            aged: !args.no_aging,
            save,
        })
    };
    devices.into_iter().map(one).collect()
}

/// A device that cannot be: the file's fault, or that of the arguments.
fn refused(args: &Args, scheme: SchemeKind, error: &DeviceConfigError) -> Failure {
    match &args.config {
        Some(path) => Failure::about(path.display(), format_args!("scheme {scheme}: {error}")),
        None => Failure::usage(format_args!("scheme {scheme}: {error}")),
    }
}

/// `aged.img` of a scheme is `aged.nlog.img`.
fn of_scheme(path: &Path, scheme: &str) -> PathBuf {
    match path.extension() {
        Some(extension) => path.with_extension(format!("{scheme}.{}", extension.display())),
        None => path.with_extension(scheme),
    }
}

fn images(args: &Args, image: &Path) -> Result<Vec<Start>, Failure> {
    if image.exists() {
        if args.scheme.len() > 1 {
            return Err(Failure::usage(format_args!(
                "{} holds a device of one scheme",
                image.display()
            )));
        }
        return Ok(vec![Start::Image(image.into())]);
    }
    let found = |scheme: SchemeKind| {
        Some(of_scheme(image, scheme.name()))
            .filter(|path| !args.scheme.is_empty() || path.exists())
    };
    let starts: Vec<Start> = schemes(args)
        .into_iter()
        .filter_map(found)
        .map(Start::Image)
        .collect();
    match starts.is_empty() {
        false => Ok(starts),
        true => Err(Failure::about(
            image.display(),
            format_args!(
                "no such file, nor one of a scheme such as {}",
                of_scheme(image, SchemeKind::default().name()).display()
            ),
        )),
    }
}

/// A workload that cannot be on these devices is said before anything runs.
fn check_workload(
    jobs: &[Start],
    feed: &Feed,
    seed: u64,
    arrivals: Option<Arrivals>,
) -> Result<(), Failure> {
    for job in jobs {
        if let Start::New { config, .. } = job {
            check_homes(config.firmware.scheme, feed)?;
        }
    }
    let Feed::Synthetic { spec, content, .. } = feed else {
        return Ok(());
    };
    if let Some(arrivals) = arrivals {
        arrivals.check(spec).map_err(Failure::usage)?;
    }
    for job in jobs {
        if let Start::New { config, .. } = job {
            spec.source(*content, config.addressable_lpns(), seed, 0)
                .map_err(Failure::usage)?;
        }
    }
    Ok(())
}

/// A scheme that remaps only what was written for a home has nothing to do under a workload that names none.
///
/// # Errors
/// It is such a scheme, and such a workload.
pub fn check_homes(scheme: SchemeKind, feed: &Feed) -> Result<(), Failure> {
    let names_homes = matches!(feed, Feed::Synthetic { spec, .. } if spec.names_homes());
    match scheme.uses_hints() && !names_homes {
        false => Ok(()),
        true => Err(Failure::usage(format_args!(
            "scheme {scheme} remaps only pages that were written for a home, and this workload names none: use \
             --workload journal, or another scheme"
        ))),
    }
}

/// Pages measured of a workload, unless told otherwise.
pub fn pages_default(config: &DeviceConfig) -> u64 {
    2 * u64::from(config.addressable_lpns())
}

/// Pages after which a device that does not wear out is given up: a hundred times what its blocks endure.
pub fn pages_of_a_life(config: &DeviceConfig) -> u64 {
    100 * config.flash.endurance * u64::from(config.geometry.pages())
}

/// How a trace is read for a device.
pub fn trace_options(args: &Args, addressable: u32) -> TraceOptions {
    TraceOptions {
        fold: args.fold,
        skip_bad: args.skip_bad,
        content_base: OWN_CONTENTS,
        ..TraceOptions::new(addressable)
    }
}

/// Contents of a run that are not those of aging have identities above this one.
pub const OWN_CONTENTS: u64 = 1 << 40;

/// Bytes of logical pages.
pub fn logical_bytes(config: &DeviceConfig) -> u64 {
    u64::from(config.firmware.lpns) * PAGE_BYTES as u64
}
