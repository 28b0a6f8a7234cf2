//! `share branch`: writable copies of files of a volume, with their lineage.
//!
//! Absent: how a branch is made and merged (`remap_ssd_share::branches`).

use super::snapshot::now;
use super::{on_volume, show};
use crate::failure::Failure;
use crate::output;
use crate::place::NamespacePlace;
use crate::trace::Patience;
use remap_ssd_share::branches::{self, Branch, Difference};
use remap_ssd_share::volume::Others;
use remap_ssd_sim::report::format::{bytes, exact};
use remap_ssd_store::PageRun;
use serde_json::json;

/// Arguments of `share branch`: one of its commands.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  remap-ssd share branch create trial.db --file orders.db --image disk
  remap-ssd share branch create test --file orders.db --count 1000 --image disk   # test-1 to test-1000
  remap-ssd share branch list --image disk
  remap-ssd share branch diff trial.db --image disk
  remap-ssd share branch merge trial.db --image disk      # orders.db gets its contents
  remap-ssd share branch delete test-1 --image disk

A branch is a file of the volume like any other: it can be opened, changed, and be the parent of branches. It shares the pages of
its parent until one of the two is written. The log (-wal) or journal of a database is branched with it.";

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Makes branches of a file.
    Create {
        /// Name of the branch.
        name: String,
        /// The file of the namespace's volume of which it is a branch.
        #[arg(long, value_name = "NAME")]
        file: String,
        /// Make N branches, from NAME-1 to NAME-N.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
        count: Option<u32>,
        #[command(flatten)]
        on: On,
    },
    /// Lists branches, with their parents and the space that only they use.
    List(On),
    /// Lists the pages that a branch does not share with its parent, without reading them.
    Diff {
        /// Name of the branch.
        name: String,
        /// Compare with this file instead of the parent; NAME may then be any file.
        #[arg(long, value_name = "FILE")]
        with: Option<String>,
        #[command(flatten)]
        on: On,
    },
    /// Gives the parent the contents of the branch, which is gone afterwards.
    Merge {
        /// Name of the branch.
        name: String,
        /// Merge even if the parent has changed since the branch was made; its changes are lost.
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        on: On,
    },
    /// Deletes a branch. Branches of it live on.
    Delete {
        /// Name of the branch.
        name: String,
        #[command(flatten)]
        on: On,
    },
}

/// Where the volume is.
#[derive(Debug, clap::Args)]
struct On {
    #[command(flatten)]
    place: NamespacePlace,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn command(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Create {
            name,
            file,
            count,
            on,
        } => create(name, file, *count, on),
        Command::List(on) => list(on),
        Command::Diff { name, with, on } => diff(name, with.as_deref(), on),
        Command::Merge { name, force, on } => merge(name, *force, on),
        Command::Delete { name, on } => delete(name, on),
    }
}

fn create(name: &str, file: &str, count: Option<u32>, on: &On) -> Result<(), Failure> {
    let names: Vec<String> = match count {
        None => vec![name.to_owned()],
        Some(count) => (1..=count)
            .map(|number| format!("{name}-{number}"))
            .collect(),
    };
    let ((), done) = Patience::during("branch", |progress| {
        on_volume(&on.place, Others::Refused, |volume| {
            branches::create(volume.as_store(), file, &names, now(), progress)
        })
    })?;
    let more = [
        ("branch", json!(name)),
        ("of", json!(file)),
        ("branches", json!(names.len())),
    ];
    show::done(&done, &more, on.json)
}

fn list(on: &On) -> Result<(), Failure> {
    let (branches, _) = on_volume(&on.place, Others::Allowed, branches::list)?;
    if on.json {
        return output::json(&json!({ "branches": branches }));
    }

    let row = |one: &Branch| {
        let origin = &one.origin;
        let space = one.space.map(|space| show::pages(space.alone));
        vec![
            one.name.clone(),
            origin.parent.clone().unwrap_or_else(|| "(gone)".into()),
            if origin.parent_changed { "yes" } else { "no" }.into(),
            bytes(one.bytes),
            space.unwrap_or_else(|| "unknown".into()),
            show::time(origin.made_at),
        ]
    };
    let rows: Vec<_> = branches.iter().map(row).collect();
    let head = [
        "name",
        "branch of",
        "that has changed",
        "size",
        "pages of its own",
        "made",
    ];
    output::text(&output::table_or("no branches", &head, &rows))
}

fn diff(name: &str, with: Option<&str>, on: &On) -> Result<(), Failure> {
    let (found, _) = on_volume(&on.place, Others::Allowed, |volume| {
        branches::diff(volume, name, with)
    })?;

    let pages = found.pages();
    if on.json {
        let mut value = json!(found);
        value["pages"] = pages.into();
        return output::json(&value);
    }
    let Difference { file, with, runs } = found;
    let differ = format!("{file} and {with} differ in {}\n", show::pages(pages));
    let row = |run: &PageRun| vec![exact(run.first), exact(run.pages)];
    let rows: Vec<_> = runs.iter().map(row).collect();
    let table = match &rows[..] {
        [] => String::new(),
        rows => output::table(&["from page", "pages"], rows),
    };
    output::text(&(differ + &table))
}

fn merge(name: &str, force: bool, on: &On) -> Result<(), Failure> {
    let (parent, done) = on_volume(&on.place, Others::Refused, |volume| {
        branches::merge(volume, name, force)
    })?;
    let more = [("branch", json!(name)), ("merged into", json!(parent))];
    show::done(&done, &more, on.json)
}

fn delete(name: &str, on: &On) -> Result<(), Failure> {
    on_volume(&on.place, Others::Refused, |volume| {
        branches::delete(volume.as_store(), name)
    })?;
    show::deleted(name, on.json)
}
