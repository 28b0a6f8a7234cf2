//! `share snapshot`: of a namespace, or of the files of a volume.
//!
//! Absent: the state of a snapshot after a power cut (`remap_ssd_share::snapshot`,
//! `remap_ssd_share::files`).

use super::{on_namespaces, on_volume, show};
use crate::failure::Failure;
use crate::output;
use crate::place::NamespacePlace;
use crate::trace::Patience;
use remap_ssd_share::files::{self, FileSnapshot};
use remap_ssd_share::snapshot::{self, Listed, NewSnapshot, Snapshot};
use remap_ssd_share::volume::{Others, VolumeCounts};
use remap_ssd_sim::report::format::{bytes, exact};
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

const PAGE: u64 = 4096;

/// Arguments of `share snapshot`: one of its commands.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  remap-ssd image create disk --size 1GiB --snapshots 2     # a device with room for two snapshots
  remap-ssd share snapshot create monday --image disk
  remap-ssd share snapshot list --image disk
  remap-ssd share snapshot rollback monday --image disk
  remap-ssd share snapshot delete monday --image disk

Of the files of a volume, without namespaces for snapshots:
  remap-ssd share snapshot create monday --volume --image disk
  remap-ssd share snapshot create tuesday --file orders.db --file orders.log --image disk
  remap-ssd share snapshot rollback monday --volume --image disk

A snapshot of a namespace is a namespace: it can be read and mounted like the source. If another host writes while one is made on
a served device, it is given up. Unmount before a rollback. A rollback that was interrupted is finished by the same command.";

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Makes a snapshot.
    Create(Create),
    /// Lists snapshots, including remains of interrupted ones.
    List(On),
    /// Deletes a snapshot.
    Delete(SnapshotArgs),
    /// Restores the source to the state of the snapshot.
    Rollback(SnapshotArgs),
}

/// Arguments of `share snapshot create`.
#[derive(Debug, clap::Args)]
struct Create {
    /// Name of the snapshot.
    name: String,
    /// Namespace for the snapshot [default: a free one]. It must be at least one page larger than
    /// the source.
    #[arg(long, value_name = "NSID", conflicts_with_all = ["volume", "file"])]
    into: Option<u32>,
    /// Snapshot this file of the namespace's volume instead of the namespace. May be repeated.
    #[arg(long, value_name = "NAME")]
    file: Vec<String>,
    #[command(flatten)]
    on: On,
}

/// A snapshot by name, for the commands that need no more.
#[derive(Debug, clap::Args)]
struct SnapshotArgs {
    /// Name of the snapshot.
    name: String,
    #[command(flatten)]
    on: On,
}

/// Kind of snapshot: of the namespace, or of the files of its volume.
#[derive(Debug, clap::Args)]
struct On {
    /// Snapshots of the files of the namespace's volume, instead of the namespace.
    #[arg(long)]
    volume: bool,
    #[command(flatten)]
    place: NamespacePlace,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn command(args: &Args) -> Result<(), Failure> {
    match &args.command {
        // Only a volume has files, so --file implies --volume.
        Command::Create(args) if args.on.volume || !args.file.is_empty() => create_of_files(args),
        Command::Create(args) => create(args),
        Command::List(on) if on.volume => list_of_files(on),
        Command::List(on) => list(on),
        Command::Delete(args) if args.on.volume => delete_of_files(args),
        Command::Delete(args) => delete(args),
        Command::Rollback(args) if args.on.volume => rollback_of_files(args),
        Command::Rollback(args) => rollback(args),
    }
}

/// The present time: seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

fn create(args: &Create) -> Result<(), Failure> {
    let Create { name, into, on, .. } = args;

    let new = NewSnapshot {
        name: name.clone(),
        source: on.place.nsid,
        into: *into,
        now: now(),
    };

    let (made, shared) = Patience::during("snapshot", |progress| {
        on_namespaces(&on.place, |device| snapshot::create(device, &new, progress))
    })?;

    let more = [
        ("snapshot", json!(made.name)),
        ("namespace", json!(made.nsid)),
        ("of namespace", json!(made.source)),
    ];

    show::shared(&shared, &more, on.json)
}

fn rollback(args: &SnapshotArgs) -> Result<(), Failure> {
    let done = Patience::during("rollback", |progress| {
        on_namespaces(&args.on.place, |device| {
            snapshot::rollback(device, &args.name, progress)
        })
    });
    let (snapshot, shared) = done?;
    let more = [
        ("snapshot", json!(snapshot.name)),
        ("of namespace", json!(snapshot.source)),
    ];
    show::shared(&shared, &more, args.on.json)
}

fn delete(args: &SnapshotArgs) -> Result<(), Failure> {
    let done = Patience::during("delete", |progress| {
        on_namespaces(&args.on.place, |device| {
            snapshot::delete(device, &args.name, progress)
        })
    });
    done?;
    show::deleted(&args.name, args.on.json)
}

fn list(on: &On) -> Result<(), Failure> {
    let Listed {
        snapshots,
        vacant,
        blank,
        damage,
    } = on_namespaces(&on.place, |device| snapshot::list(device))?;
    damage
        .iter()
        .for_each(|why| output::note(format_args!("error: {why}")));

    if on.json {
        let snapshots: Vec<Value> = snapshots.iter().map(Snapshot::json).collect();
        output::json(
            &json!({ "snapshots": snapshots, "vacant": vacant, "blank": blank, "damage": damage }),
        )?;
    } else {
        let row = |one: &Snapshot| {
            vec![
                one.name.clone(),
                one.nsid.to_string(),
                one.source.to_string(),
                bytes(one.pages * PAGE),
                show::time(one.made_at),
                one.state.described().to_owned(),
            ]
        };
        let rows: Vec<_> = snapshots.iter().map(row).collect();
        let head = ["name", "namespace", "of namespace", "size", "made", "state"];
        output::text(&output::table_or("no snapshots", &head, &rows))?;
        if !vacant.is_empty() {
            let numbers: Vec<String> = vacant.iter().map(u32::to_string).collect();
            output::text(&format!(
                "free for snapshots: namespace {}\n",
                numbers.join(", ")
            ))?;
        }
    }

    // Damage is a finding: the list is printed anyway.
    Failure::found_unless(damage.is_empty())
}

fn create_of_files(args: &Create) -> Result<(), Failure> {
    let Create { name, file, on, .. } = args;

    let (made, done) = Patience::during("snapshot", |progress| {
        on_volume(&on.place, Others::Refused, |volume| {
            files::create(volume.as_store(), name, file, now(), progress)
        })
    })?;
    of_files(&made, &done, on.json)
}

fn rollback_of_files(args: &SnapshotArgs) -> Result<(), Failure> {
    let (snapshot, done) = Patience::during("rollback", |progress| {
        on_volume(&args.on.place, Others::Refused, |volume| {
            files::rollback(volume.as_store(), &args.name, progress)
        })
    })?;
    of_files(&snapshot, &done, args.on.json)
}

fn of_files(snapshot: &FileSnapshot, done: &VolumeCounts, as_json: bool) -> Result<(), Failure> {
    let files = json!(snapshot.files.len());
    let more = [("snapshot", json!(snapshot.name)), ("files", files)];
    show::done(done, &more, as_json)
}

fn delete_of_files(args: &SnapshotArgs) -> Result<(), Failure> {
    on_volume(&args.on.place, Others::Refused, |volume| {
        files::delete(volume.as_store(), &args.name)
    })?;
    show::deleted(&args.name, args.on.json)
}

fn list_of_files(on: &On) -> Result<(), Failure> {
    let (snapshots, _) = on_volume(&on.place, Others::Allowed, |volume| {
        files::list(volume.as_store())
    })?;

    if on.json {
        let snapshots: Vec<Value> = snapshots.iter().map(FileSnapshot::json).collect();
        return output::json(&json!({ "snapshots": snapshots }));
    }

    let row = |one: &FileSnapshot| {
        let files = exact(one.files.len() as u64);
        vec![
            one.name.clone(),
            files,
            bytes(one.bytes()),
            show::time(one.made_at),
            one.state.described().to_owned(),
        ]
    };

    let rows: Vec<_> = snapshots.iter().map(row).collect();
    let head = ["name", "files", "size", "made", "state"];
    output::text(&output::table_or("no snapshots", &head, &rows))
}
