//! `image`: devices in folders: created, checked, repaired, and renamed as copies.
//!
//! Invariant: only `repair --accept-loss` gives up data, and it reports which. Absent: the work
//! (`remap_ssd_service::image`).

use super::shape::DeviceShape;
use crate::failure::Failure;
use crate::output::{self, pairs};
use remap_ssd_device::{DeviceConfig, FolderCheck};
use remap_ssd_service::ServiceFile;
use remap_ssd_service::image::{self, CopyName};
use remap_ssd_sim::report::format::{bytes, exact};
use std::path::{Path, PathBuf};

/// Creates, checks and repairs the images that `serve` serves, and renames copies of them.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
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
    /// Drops damaged data so that the image opens again. Without --accept-loss, only lists what
    /// would be lost.
    Repair(Repair),
    /// Gives a copy of an image its own name and serial number, so that hosts can tell it from the
    /// original.
    Adopt(Adopt),
}

/// Arguments of `image check`: the folder to check.
#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    /// Folder of the device.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Print the findings as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `image repair`: the folder to repair.
#[derive(Debug, clap::Args)]
pub(crate) struct Repair {
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

/// Arguments of `image adopt`: the folder to adopt.
#[derive(Debug, clap::Args)]
pub(crate) struct Adopt {
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

/// Arguments of `image create`: where, and which device.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Create {
    /// Folder to create the device in: new, or empty.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Scheme, size and settings of the new device.
    #[command(flatten)]
    pub shape: DeviceShape,
    /// Print the created device as JSON.
    #[arg(long)]
    pub json: bool,
}

const EXAMPLES: &str = "\
Examples:
  remap-ssd image create disk --size 2GiB
  remap-ssd image create disk --size 2GiB --scheme flog --dedup on
  remap-ssd serve --image disk";

/// Runs `image`.
///
/// # Errors
/// The device cannot be created (nothing is left in the folder), or it is damaged.
pub(crate) fn command(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Create(args) => create(args),
        Command::Check(args) => check(args),
        Command::Repair(args) => repair(args),
        Command::Adopt(args) => adopt(args),
    }
}

fn create(args: &Create) -> Result<(), Failure> {
    let shape = args.shape.shape()?;
    let (config, service) = image::create(&args.dir, &shape)?;
    if let Some(note) = shape.note(&config) {
        output::note(format_args!("note: {note}"));
    }
    show(args, &config, &service)
}

fn check(args: &Check) -> Result<(), Failure> {
    let found = image::check(&args.dir)?;
    report(&args.dir, &found, args.json, None)?;
    Failure::found_unless(found.is_clean())
}

fn repair(args: &Repair) -> Result<(), Failure> {
    let dir = &args.dir;
    let found = image::check(dir)?;
    if found.is_clean() {
        return report(dir, &found, args.json, None);
    }

    // Nothing is changed without consent, and nothing that cannot be repaired.
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

    let kept = image::repair(dir)?;
    report(dir, &found, args.json, Some(kept.as_deref()))
}

fn adopt(args: &Adopt) -> Result<(), Failure> {
    let name = match &args.nqn {
        Some(nqn) => CopyName::Given(nqn.clone()),
        None if args.keep_name => CopyName::Kept,
        None => CopyName::New,
    };
    let name = image::adopt(&args.dir, name)?;
    output::text(&pairs(&[
        ("image", args.dir.display().to_string()),
        ("name", name),
    ]))
}

/// Maximum number of findings shown as text.
const SHOWN: usize = 20;

/// Prints the damage; `repaired` says where the replaced files are.
fn report(
    dir: &Path,
    found: &FolderCheck,
    as_json: bool,
    repaired: Option<Option<&Path>>,
) -> Result<(), Failure> {
    // JSON has all of the damage, text a readable part.
    if as_json {
        return output::json(&serde_json::json!({
            "image": dir, "clean": found.is_clean(), "damage": found.damage,
            "beyond_repair": found.beyond, "mapped_pages": found.mapped, "given_up_pages": found.given_up,
            "pages_without_checksum": found.without_checksum, "repaired": repaired.is_some(),
            "kept": repaired.flatten(), "mapped_outside_namespaces": image::mapped_outside(dir, found),
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

    // The text also says how much was checked.
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

    let outside = image::mapped_outside(dir, found);
    if outside > 0 {
        text += &format!(
            ", {} of which are in no namespace (creating one over them empties them)",
            exact(outside)
        );
    }

    // The result ends the last sentence.
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

fn show(args: &Create, config: &DeviceConfig, service: &ServiceFile) -> Result<(), Failure> {
    let dir = &args.dir;
    let firmware = &config.firmware;
    let size = config.logical_pages() * 4096;

    if args.json {
        return output::json(&serde_json::json!({
            "image": dir, "nqn": service.nqn, "namespaces": service.namespaces, "size_bytes": size,
            "scheme": firmware.scheme, "dedup": firmware.dedup, "log_bytes": firmware.log_bytes,
        }));
    }

    let (image, dedup) = (dir.display(), if firmware.dedup { "on" } else { "off" });
    output::text(&pairs(&[
        ("image", image.to_string()),
        ("size", bytes(size)),
        ("scheme", firmware.scheme.to_string()),
        ("deduplication", dedup.into()),
        ("remapping metadata", bytes(firmware.log_bytes)),
        ("name", service.nqn.clone()),
        ("serve it", format!("remap-ssd serve --image {image}")),
    ]))
}
