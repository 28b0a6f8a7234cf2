//! `share defrag`: files of a volume, or a list of extents of a namespace.
//!
//! Absent: the order of writes (`remap_ssd_share::copy`, `remap_ssd_store`), and updating the file
//! system's own extents; the printed list serves that.

use super::{on_namespaces, on_volume, show};
use crate::failure::Failure;
use crate::output;
use crate::place::{self, NamespacePlace};
use crate::trace::Patience;
use remap_ssd_share::copy;
use remap_ssd_share::extents::{self, Gathered};
use remap_ssd_share::files::FilesError;
use remap_ssd_share::volume::Others;
use remap_ssd_sim::report::format::exact;
use remap_ssd_store::{DefragPlan, OpenOptions};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Arguments of `share defrag`: the files to make contiguous.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Files of the namespace's volume [default: all].
    #[arg(value_name = "FILE", conflicts_with = "extents")]
    files: Vec<String>,
    /// Show what would be done, without doing it.
    #[arg(long)]
    dry_run: bool,
    /// A list of extents of the namespace instead, or `-` for standard input: first page and number
    /// of pages per line, or the output of `filefrag -v -b4096`.
    #[arg(long, value_name = "LIST", requires = "to")]
    extents: Option<PathBuf>,
    /// With --extents: first page of the contiguous target.
    #[arg(long, value_name = "PAGE", requires = "extents")]
    to: Option<u64>,
    /// With --extents: overwrite existing data.
    #[arg(long, requires = "extents")]
    force: bool,
    #[command(flatten)]
    place: NamespacePlace,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  remap-ssd share defrag --dry-run --image disk
  remap-ssd share defrag orders.db --image disk
  filefrag -v -b4096 /mnt/big.file | remap-ssd share defrag --extents - --to 200000 --connect 127.0.0.1:4420

Files of a volume: if it is interrupted, a file has its old pages or its new ones, with the same contents.
A list of extents: the old pages stay as they are, and the new layout is printed for the file system's own tool.";

pub(super) fn command(args: &Args) -> Result<(), Failure> {
    match (&args.extents, args.to) {
        (Some(list), Some(to)) => gather(args, list, to),
        _ => files(args),
    }
}

/// Plan for a file, or the result.
struct Planned {
    name: String,
    plan: DefragPlan,
}

impl Planned {
    fn verdict(&self, is_done: bool) -> String {
        let DefragPlan {
            from,
            free_in_a_row,
            ..
        } = &self.plan;
        match (self.plan.is_gain(), is_done) {
            (true, true) => "done".into(),
            (true, false) => "to be done".into(),
            _ if from.len() < 2 => "contiguous".into(),
            _ => format!(
                "no room: at most {} free pages in a row",
                exact(*free_in_a_row)
            ),
        }
    }

    fn value(&self, is_done: bool) -> Value {
        json!({
            "name": self.name, "pages": self.plan.pages(), "from": self.plan.from, "to": self.plan.to,
            "free_in_a_row": self.plan.free_in_a_row, "gain": self.plan.is_gain(), "done": is_done && self.plan.is_gain(),
        })
    }
}

fn files(args: &Args) -> Result<(), Failure> {
    // A plan only reads; a change needs the volume exclusively.
    let others = match args.dry_run {
        true => Others::Allowed,
        false => Others::Refused,
    };
    let (planned, done) = Patience::during("defrag", |progress| {
        on_volume(&args.place, others, |volume| {
            let names = if args.files.is_empty() {
                volume.list()?.into_iter().map(|info| info.name).collect()
            } else {
                args.files.clone()
            };
            // All files are checked before the first is changed.
            let files = names
                .into_iter()
                .map(|name| Ok((volume.open(&name, OpenOptions::default())?, name)));
            let files: Vec<_> = files.collect::<Result<_, FilesError>>()?;
            let plan = |(file, name)| {
                let plan = if args.dry_run {
                    volume.defrag_plan(file)?
                } else {
                    volume.defrag(file, progress)?
                };
                Ok(Planned { name, plan })
            };
            files
                .into_iter()
                .map(plan)
                .collect::<Result<Vec<_>, FilesError>>()
        })
    })?;

    let is_done = !args.dry_run;
    let (rows, value) = show::of_files(&done);
    if args.json {
        let files: Vec<Value> = planned.iter().map(|one| one.value(is_done)).collect();
        let mut value = if is_done { value } else { json!({}) };
        value["files"] = files.into();
        value["dry_run"] = args.dry_run.into();
        return output::json(&value);
    }
    let row = |one: &Planned| {
        let count = |count: usize| exact(count as u64);
        let (from, to) = (count(one.plan.from.len()), count(one.plan.to.len()));
        vec![
            one.name.clone(),
            exact(one.plan.pages()),
            from,
            to,
            one.verdict(is_done),
        ]
    };
    let table: Vec<_> = planned.iter().map(row).collect();
    let head = ["file", "pages", "extents", "after", "verdict"];
    output::text(&output::table_or("no files", &head, &table))?;
    if is_done {
        output::text(&output::pairs(&rows))
    } else {
        Ok(())
    }
}

fn gather(args: &Args, list: &Path, to: u64) -> Result<(), Failure> {
    let pieces = extents::parse(&String::from_utf8_lossy(&place::read(list)?))
        .map_err(|why| Failure::about(list.display(), why))?;
    let nsid = args.place.nsid;

    let shared = Patience::during("defrag", |progress| {
        on_namespaces(&args.place, |device| {
            if args.dry_run {
                return copy::plan(device, nsid, &pieces, to).map(|_| None);
            }
            copy::gather(device, nsid, &pieces, to, args.force, progress).map(Some)
        })
    })?;

    let layout = extents::layout(&pieces, to);
    if args.json {
        let entry = |one: &Gathered| json!({ "offset": one.offset, "from": one.piece.first, "pages": one.piece.pages, "to": one.to });
        let mut value = shared
            .as_ref()
            .map_or_else(|| json!({}), |shared| shared.json());
        value["extents"] = layout.iter().map(entry).collect::<Vec<_>>().into();
        value["dry_run"] = args.dry_run.into();
        return output::json(&value);
    }
    let row = |one: &Gathered| {
        [one.offset, one.piece.first, one.to, one.piece.pages]
            .map(|number| number.to_string())
            .to_vec()
    };
    let rows: Vec<_> = layout.iter().map(row).collect();
    output::text(&output::table(&["offset", "from", "to", "pages"], &rows))?;
    shared.map_or(Ok(()), |shared| {
        output::text(&output::pairs(&show::rows(&shared)))
    })
}
