//! `image`: devices in folders: creating them with all the space they will ever need, checking,
//! repairing, and renaming copies.
//!
//! Invariant: only `repair --accept-loss` gives up data, and it says which. Absent: what counts as
//! damage (`media::folder`).

use super::kept::{SERVICE, Service};
use crate::failure::Failure;
use crate::numbers;
use crate::output::{self, pairs};
use crate::settings;
use remap_ssd_device::{Device, DeviceConfig, FolderCheck};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_media::Media;
use remap_ssd_media::folder::Damage;
use remap_ssd_sim::report::format::{bytes, exact};
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};

/// Creates, checks and repairs the images that `serve` serves, and renames copies of them.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Creates a new, empty device in a folder.
    ///
    /// Its space is reserved, so that a full disk is an error now, not in service.
    Create(Create),
    /// Looks for damage and reads every page, without changing anything. Exit code 1 if anything is
    /// damaged.
    Check(Check),
    /// Drops what is damaged so that the image opens again. Without --accept-loss, only lists what
    /// would be lost.
    Repair(Repair),
    /// Gives a copy of an image its own name and serial number, so that hosts can tell it from the
    /// original.
    Adopt(Adopt),
}

/// What to check.
#[derive(Debug, clap::Args)]
pub struct Check {
    /// Folder of the device.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Print the findings as JSON.
    #[arg(long)]
    pub json: bool,
}

/// What to repair.
#[derive(Debug, clap::Args)]
pub struct Repair {
    /// Folder of the device.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Repair the image. Replaced files are kept in a new folder `before-repair-N` in DIR.
    #[arg(long)]
    pub accept_loss: bool,
    /// Print the findings and the repairs as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Which image to adopt.
#[derive(Debug, clap::Args)]
pub struct Adopt {
    /// Folder of the device.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// New NVMe qualified name [default: a new unique name].
    #[arg(long, value_name = "NQN", conflicts_with = "keep_name")]
    pub nqn: Option<String>,
    /// Keep the old name: the image was moved, and the original is gone.
    #[arg(long)]
    pub keep_name: bool,
}

/// What to make.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Create {
    /// Folder to create the device in: new, or empty.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// What it is like.
    #[command(flatten)]
    pub shape: Shape,
    /// Print the created device as JSON.
    #[arg(long)]
    pub json: bool,
}

const EXAMPLES: &str = "\
Examples:
  remap-ssd image create disk --size 2GiB
  remap-ssd image create disk --size 2GiB --scheme flog --dedup on
  remap-ssd serve --image disk";

const PAGE_BYTES: u64 = 4096;
/// Namespaces that a device can have.
const NAMESPACES_MAX: u32 = 128;

/// What a device for service is like.
#[derive(Debug, clap::Args)]
pub struct Shape {
    /// Size of the device, as hosts see it.
    #[arg(long, value_name = "SIZE", value_parser = numbers::size, help_heading = "New device")]
    pub size: Option<u64>,
    /// Remapping scheme [default: remap-ssd].
    #[arg(long, help_heading = "New device")]
    pub scheme: Option<SchemeKind>,
    /// Deduplicate writes in the device [default: off].
    #[arg(long, value_name = "on|off", value_parser = on_off, action = clap::ArgAction::Set, help_heading = "New device")]
    pub dedup: Option<bool>,
    /// Any other value of the device: --set firmware.gc_free=0.2.
    ///
    /// May be repeated, or several with commas. The configuration reference (docs/configuration.md)
    /// lists the keys.
    #[arg(
        long,
        value_name = "KEY=VALUE",
        value_delimiter = ',',
        help_heading = "New device"
    )]
    pub set: Vec<String>,
    /// Size of NVRAM, or of the log on flash, for remaps.
    ///
    /// Default: 0.5 % of the device's size.
    #[arg(long, value_name = "SIZE", value_parser = numbers::size, hide_short_help = true, help_heading = "New device")]
    pub log_size: Option<u64>,
    /// Maximum number of files in the file map, which vendor commands use.
    ///
    /// Default: no file map.
    #[arg(
        long,
        value_name = "N",
        requires = "fs_blocks",
        hide_short_help = true,
        help_heading = "New device"
    )]
    pub fs_files: Option<u32>,
    /// Maximum number of pages in all lists of the file map.
    #[arg(
        long,
        value_name = "N",
        hide_short_help = true,
        help_heading = "New device"
    )]
    pub fs_blocks: Option<u32>,
    /// Logical block size in bytes [default: 4096].
    #[arg(long, value_name = "BYTES", value_parser = clap::builder::PossibleValuesParser::new(["512", "4096"]).map(|text| text.parse::<u32>().unwrap_or(4096)), hide_short_help = true, help_heading = "New device")]
    pub block: Option<u32>,
    /// Number of namespaces, of equal size [default: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=128), hide_short_help = true, help_heading = "New device")]
    pub namespaces: Option<u32>,
    /// Additional namespaces for snapshots of the others [default: none].
    ///
    /// `share snapshot` takes them. They come on top of the size.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=127), hide_short_help = true, help_heading = "New device")]
    pub snapshots: Option<u32>,
    /// Number of a namespace whose pages are never shared.
    ///
    /// No deduplication, and remaps become copies. For hosts that keep data twice on purpose. May be
    /// repeated, or a list with commas.
    #[arg(long, value_name = "NSID", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=128), hide_short_help = true, help_heading = "New device")]
    pub unshared: Vec<u32>,
    /// NVMe qualified name [default: a new unique name].
    #[arg(
        long,
        value_name = "NQN",
        hide_short_help = true,
        help_heading = "New device"
    )]
    pub nqn: Option<String>,
}

use clap::builder::TypedValueParser;

fn on_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("on or off".into()),
    }
}

impl Shape {
    /// The device of `size` bytes.
    ///
    /// # Errors
    /// Invalid device configuration.
    pub fn config(&self, size: u64) -> Result<DeviceConfig, Failure> {
        let (scheme, dedup) = (self.scheme.unwrap_or_default(), self.dedup.unwrap_or(false));
        let (namespaces, snapshots) = (self.namespaces.unwrap_or(1), self.snapshots.unwrap_or(0));
        if namespaces + snapshots > NAMESPACES_MAX {
            return Err(Failure::usage(format_args!(
                "{namespaces} namespaces and {snapshots} for snapshots: at most {NAMESPACES_MAX} are possible"
            )));
        }

        // What snapshots need is added, so that `--size` stays what hosts can use.
        let pages = size.div_ceil(PAGE_BYTES);
        let for_snapshots = u64::from(snapshots) * (pages / u64::from(namespaces) + 1);
        let size = if snapshots > 0 {
            (pages + for_snapshots).saturating_mul(PAGE_BYTES)
        } else {
            size
        };
        let config = DeviceConfig::for_service_with_log(size, scheme, dedup, self.log_size);
        let mut config = config.map_err(Failure::usage)?;
        let firmware = &mut config.firmware;
        (firmware.fs_files, firmware.fs_blocks) =
            (self.fs_files.unwrap_or(0), self.fs_blocks.unwrap_or(0));
        let config = config
            // `--set` comes last: it may change what options have chosen.
            .with(&settings::parse(&self.set)?)
            .map_err(Failure::usage)?;
        config.check().map_err(Failure::usage)?;

        // A namespace that is not there would be kept apart in vain.
        if let Some(nsid) = self.unshared.iter().find(|nsid| **nsid > namespaces) {
            return Err(Failure::usage(format_args!(
                "--unshared {nsid}: there are {namespaces} namespaces (--namespaces)"
            )));
        }
        Ok(config)
    }

    /// The name and the namespaces that it is made with.
    pub fn service(&self, config: &DeviceConfig) -> Service {
        let nqn = self.nqn.clone().unwrap_or_else(new_nqn);
        let (namespaces, snapshots) = (self.namespaces.unwrap_or(1), self.snapshots.unwrap_or(0));
        let pages = pages_without_snapshots(config.firmware.lpns, namespaces, snapshots);
        Service::new(
            nqn,
            pages,
            namespaces,
            self.block.unwrap_or(4096),
            &self.unshared,
        )
        .with_snapshots(snapshots)
    }

    /// Checks that the options match what the image was created with; none of them can change
    /// later.
    ///
    /// # Errors
    /// An option differs; the message says what the image has.
    pub fn must_be(&self, config: &DeviceConfig, service: &Service) -> Result<(), Failure> {
        let firmware = &config.firmware;
        let (snapshots, snapshot_pages) = service.snapshots();

        // As hosts see it: without what is set aside for snapshots.
        let namespaces = service.namespaces.len() - snapshots as usize;
        let size = u64::from(firmware.lpns.saturating_sub(snapshot_pages)) * 4096;
        let block = service
            .namespaces
            .first()
            .map_or(4096, |share| share.block_bytes);
        let unshared = service.unshared();
        let on = |on: bool| if on { "on" } else { "off" }.to_owned();

        // For each option whether it agrees, and what the image has. Options that were not given
        // agree.
        let asked = [
            (
                "--size",
                self.size.map(|asked| asked.next_multiple_of(4096) == size),
                bytes(size),
            ),
            (
                "--scheme",
                self.scheme.map(|asked| asked == firmware.scheme),
                firmware.scheme.to_string(),
            ),
            (
                "--dedup",
                self.dedup.map(|asked| asked == firmware.dedup),
                on(firmware.dedup),
            ),
            (
                "--log-size",
                self.log_size.map(|asked| asked == firmware.log_bytes),
                bytes(firmware.log_bytes),
            ),
            (
                "--fs-files",
                self.fs_files.map(|asked| asked == firmware.fs_files),
                firmware.fs_files.to_string(),
            ),
            (
                "--fs-blocks",
                self.fs_blocks.map(|asked| asked == firmware.fs_blocks),
                firmware.fs_blocks.to_string(),
            ),
            (
                "--block",
                self.block.map(|asked| asked == block),
                block.to_string(),
            ),
            (
                "--namespaces",
                self.namespaces.map(|asked| asked as usize == namespaces),
                namespaces.to_string(),
            ),
            (
                "--snapshots",
                self.snapshots.map(|asked| asked == snapshots),
                snapshots.to_string(),
            ),
            (
                "--unshared",
                has_unshared(&self.unshared, &unshared),
                numbers_of(&unshared),
            ),
            (
                "--nqn",
                self.nqn.as_ref().map(|asked| *asked == service.nqn),
                service.nqn.clone(),
            ),
        ];

        match asked.iter().find(|(_, is_so, _)| *is_so == Some(false)) {
            None => Ok(()),
            Some((option, _, is)) => Err(Failure::usage(format_args!(
                "{option}: the image was created with {is}, which cannot be changed; omit the option, or create another image"
            ))),
        }
    }
}

/// Pages of all namespaces but those for snapshots, each of which has one page more than one of the
/// others.
fn pages_without_snapshots(lpns: u32, namespaces: u32, snapshots: u32) -> u32 {
    let all = |pages: u64| pages + u64::from(snapshots) * (pages / u64::from(namespaces) + 1);
    // Solved for the pages of the others, then rounded up as long as it fits.
    let share = u64::from(lpns.saturating_sub(snapshots)) * u64::from(namespaces)
        / u64::from(namespaces + snapshots);
    // Rounding may have left a few.
    let pages = (share..=u64::from(lpns))
        .take_while(|pages| all(*pages) <= u64::from(lpns))
        .last();
    pages.unwrap_or(0) as u32
}

/// Are these the unshared namespaces of an image? `None` if nothing was said.
fn has_unshared(asked: &[u32], unshared: &[u32]) -> Option<bool> {
    let asked: BTreeSet<u32> = asked.iter().copied().collect();
    (!asked.is_empty()).then(|| asked.iter().eq(unshared))
}

fn numbers_of(unshared: &[u32]) -> String {
    let numbers: Vec<String> = unshared.iter().map(u32::to_string).collect();
    if numbers.is_empty() {
        "none".into()
    } else {
        numbers.join(",")
    }
}

/// A number that does not come again, from the system's randomness.
pub fn random() -> u64 {
    std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish()
}

/// A name nobody else has: a random UUID.
fn new_nqn() -> String {
    let (a, b) = (random(), random());
    let version = (a & 0x0fff) | 0x4000;
    let variant = (b >> 48 & 0x3fff) | 0x8000;
    let (first, second, last) = (a >> 32, a >> 16 & 0xffff, b & 0xffff_ffff_ffff);
    format!(
        "nqn.2014-08.org.nvmexpress:uuid:{first:08x}-{second:04x}-{version:04x}-{variant:04x}-{last:012x}"
    )
}

/// Runs `image`.
///
/// # Errors
/// The device cannot be created, and nothing is left behind; or what is damaged.
pub fn command(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Create(args) => create(args),
        Command::Check(args) => check(args),
        Command::Repair(args) => repair(args),
        Command::Adopt(args) => adopt(args),
    }
}

fn create(args: &Create) -> Result<(), Failure> {
    let Some(size) = args.shape.size else {
        return Err(Failure::usage(
            "how large shall it be? For example: --size 2GiB",
        ));
    };

    let config = args.shape.config(size)?;
    let service = args.shape.service(&config);
    let dir = &args.dir;
    let about = |error: &dyn std::fmt::Display| Failure::about(dir.display(), error);

    // Only a folder that this command has made may be removed again.
    let existed = dir.exists();
    let device =
        Device::create_in_folder(dir, config.clone(), None).map_err(|error| about(&error))?;

    let done = service
        .save(dir)
        .and_then(|()| device.close().map_err(|error| about(&error)));

    // Nothing is left of a device that could not be made whole.
    if let Err(error) = done {
        let files = Device::folder_files(dir)
            .into_iter()
            .chain([dir.join(SERVICE)]);
        files.for_each(|file| drop(std::fs::remove_file(file)));

        if !existed {
            let _ = std::fs::remove_dir(dir);
        }

        return Err(error);
    }

    show(args, dir, &config, &service)
}

/// Looks for damage, in `service.json` too.
fn look(dir: &Path) -> Result<FolderCheck, Failure> {
    // Two parts: the device's own files, and the one that names it.
    let mut found =
        Device::check_folder(dir).map_err(|error| Failure::about(dir.display(), error))?;
    // Namespaces are checked against the device's size where that is known.
    let pages = Device::folder_config(dir).map_or(u32::MAX, |config| config.firmware.lpns);
    if let Err(error) = Service::read(dir, pages) {
        found.damage.push(Damage {
            file: SERVICE.into(),
            offset: 0,
            what: error.to_string(),
            lost: "the name and the namespaces, if the file cannot be read: a new name, and one namespace".into(),
        });
    }
    Ok(found)
}

fn check(args: &Check) -> Result<(), Failure> {
    let found = look(&args.dir)?;
    report(&args.dir, &found, args.json, None)?;
    if found.is_clean() {
        Ok(())
    } else {
        Err(Failure::Found)
    }
}

fn repair(args: &Repair) -> Result<(), Failure> {
    let dir = &args.dir;
    let found = look(dir)?;
    if found.is_clean() {
        return report(dir, &found, args.json, None);
    }

    // Nothing is changed without consent, and never what cannot be repaired.
    if !args.accept_loss || found.beyond.is_some() {
        report(dir, &found, args.json, None)?;
        return Err(if found.beyond.is_some() {
            Failure::about(dir.display(), "it cannot be repaired; nothing was changed")
        } else {
            Failure::about(
                dir.display(),
                "nothing was changed; --accept-loss goes on without what is lost",
            )
        });
    }

    let about = |error: &dyn std::fmt::Display| Failure::about(dir.display(), error);
    let (_, kept) = Device::repair_folder(dir).map_err(|error| about(&error))?;
    let config = Device::folder_config(dir).map_err(|error| about(&error))?;

    if Service::read(dir, config.firmware.lpns).is_err() {
        let file = dir.join(SERVICE);
        // `repair_folder` keeps a copy, unless nothing else was damaged.
        if kept.is_none() && file.exists() {
            std::fs::copy(&file, dir.join(format!("{SERVICE}.damaged")))
                .map_err(|error| about(&error))?;
        }

        // What can still be read is kept, even without its checksum: a name is worth more than a
        // new one.
        Service::unsigned(dir, config.firmware.lpns)
            .unwrap_or_else(|| Service::new(new_nqn(), config.firmware.lpns, 1, 4096, &[]))
            .save(dir)?;
    }

    report(dir, &found, args.json, Some(kept.as_deref()))
}

fn adopt(args: &Adopt) -> Result<(), Failure> {
    let dir = &args.dir;
    let about = |error: &dyn std::fmt::Display| Failure::about(dir.display(), error);

    let config = Device::folder_config(dir).map_err(|error| about(&error))?;
    // Locked: a service that runs would go on under the old name.
    let _lock = Media::lock_folder(dir).map_err(|error| about(&error))?;

    let mut service = Service::read(dir, config.firmware.lpns)?;

    service.nqn = match (&args.nqn, args.keep_name) {
        (Some(nqn), _) if !nqn.starts_with("nqn.") || nqn.len() > 223 => {
            return Err(Failure::usage(format_args!(
                "`{nqn}` is no NQN: it begins with `nqn.` and has at most 223 bytes"
            )));
        }
        (Some(nqn), _) => nqn.clone(),
        (None, true) => service.nqn.clone(),
        (None, false) => new_nqn(),
    };

    service.save(dir)?;

    output::text(&pairs(&[
        ("image", dir.display().to_string()),
        ("name", service.nqn),
    ]))
}

/// Findings shown as text, at most.
const SHOWN: usize = 20;

/// Shows what is damaged; `repaired` says where the replaced files are.
fn report(
    dir: &Path,
    found: &FolderCheck,
    as_json: bool,
    repaired: Option<Option<&Path>>,
) -> Result<(), Failure> {
    if as_json {
        let entry = |damage: &Damage| {
            serde_json::json!({
                "file": damage.file, "offset": damage.offset, "what": damage.what, "lost": damage.lost,
            })
        };
        return output::json(&serde_json::json!({
            "image": dir, "clean": found.is_clean(), "damage": found.damage.iter().map(entry).collect::<Vec<_>>(),
            "beyond_repair": found.beyond, "mapped_pages": found.mapped, "given_up_pages": found.given_up,
            "pages_without_checksum": found.without_checksum, "repaired": repaired.is_some(),
            "kept": repaired.flatten(),
        }));
    }

    let mut text = String::new();
    for damage in found.damage.iter().take(SHOWN) {
        text += &format!(
            "{damage}\n    {}: {}\n",
            if repaired.is_some() {
                "lost"
            } else {
                "would be lost"
            },
            damage.lost
        );
    }
    if found.damage.len() > SHOWN {
        text += &format!(
            "... and {} more; --json lists all\n",
            found.damage.len() - SHOWN
        );
    }
    if let Some(why) = &found.beyond {
        text += &format!("beyond repair: {why}\n");
    }

    text += &format!("{} mapped pages read", exact(found.mapped));
    if found.given_up > 0 {
        text += &format!(", {} of which were given up before", exact(found.given_up));
    }
    if found.without_checksum > 0 {
        text += &format!(
            ", {} pages have no checksum yet",
            exact(found.without_checksum)
        );
    }

    text += match (found.is_clean(), repaired) {
        (true, _) => "; nothing is damaged\n",
        (false, None) => "; the image is damaged\n",
        (false, Some(_)) => "; repaired\n",
    };
    if let Some(Some(kept)) = repaired {
        text += &format!("the files as they were: {}\n", kept.display());
    }
    output::text(&text)
}

fn show(
    args: &Create,
    dir: &Path,
    config: &DeviceConfig,
    service: &Service,
) -> Result<(), Failure> {
    let firmware = &config.firmware;
    let size = u64::from(firmware.lpns) * 4096;

    if args.json {
        return output::json(&serde_json::json!({
            "image": dir, "nqn": service.nqn, "namespaces": service.namespaces, "size_bytes": size,
            "scheme": firmware.scheme, "dedup": firmware.dedup, "log_bytes": firmware.log_bytes,
        }));
    }

    output::text(&pairs(&[
        ("image", dir.display().to_string()),
        ("size", bytes(size)),
        ("scheme", firmware.scheme.to_string()),
        (
            "deduplication",
            if firmware.dedup { "on" } else { "off" }.into(),
        ),
        ("remapping metadata", bytes(firmware.log_bytes)),
        ("name", service.nqn.clone()),
        (
            "serve it",
            format!("remap-ssd serve --image {}", dir.display()),
        ),
    ]))
}
