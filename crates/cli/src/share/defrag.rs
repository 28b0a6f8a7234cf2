//! `share defrag`: files of a volume, or a list of extents of a namespace.
//!
//! A list of extents has one extent per line: its first page and its number of pages, or a line of
//! `filefrag -v`; in the order of the file.
//!
//! Absent: updating the file system's own extents; the printed list serves that.

use super::{Others, on_namespaces, on_volume, show};
use crate::failure::Failure;
use crate::output;
use crate::place::NamespacePlace;
use crate::trace::Patience;
use remap_ssd_share::copy::{self, Piece};
use remap_ssd_share::files::FilesError;
use remap_ssd_sim::report::format::exact;
use remap_ssd_store::{DefragPlan, Extent, OpenOptions};
use serde_json::{Value, json};
use std::io::Read;
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
        let extents = |extents: &[Extent]| -> Vec<Value> {
            extents
                .iter()
                .map(|extent| json!({ "first": extent.first, "pages": extent.pages }))
                .collect()
        };
        json!({
            "name": self.name, "pages": self.plan.pages(), "from": extents(&self.plan.from), "to": extents(&self.plan.to),
            "free_in_a_row": self.plan.free_in_a_row, "gain": self.plan.is_gain(), "done": is_done && self.plan.is_gain(),
        })
    }
}

fn files(args: &Args) -> Result<(), Failure> {
    let mut patience = None;
    // A plan only reads; a change needs the volume exclusively.
    let planned = on_volume(
        &args.place,
        if args.dry_run {
            Others::Allowed
        } else {
            Others::Refused
        },
        |volume| {
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
            let plan = |file, name: String| {
                let plan = if args.dry_run {
                    volume.defrag_plan(file)?
                } else {
                    volume.defrag(file, &mut |done, all| {
                        patience
                            .get_or_insert_with(|| Patience::new("defrag", Some(all)))
                            .at(done);
                    })?
                };
                Ok(Planned { name, plan })
            };
            let mut plan = plan;
            files
                .into_iter()
                .map(|(file, name)| plan(file, name))
                .collect::<Result<Vec<_>, FilesError>>()
        },
    );
    drop(patience);
    let (planned, done) = planned?;

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
    output::text(&if table.is_empty() {
        "no files\n".to_owned()
    } else {
        output::table(&head, &table)
    })?;
    if is_done {
        output::text(&output::pairs(&rows))
    } else {
        Ok(())
    }
}

fn gather(args: &Args, list: &Path, to: u64) -> Result<(), Failure> {
    let pieces = parse(&read(list)?).map_err(|why| Failure::about(list.display(), why))?;
    let nsid = args.place.nsid;

    // Position of each extent in the file, and its target: the targets are contiguous from `to`.
    let layout = |pieces: &[Piece]| -> Vec<(u64, Piece, u64)> {
        let starts = pieces.iter().scan(0, |at, piece| {
            *at += piece.pages;
            Some(*at - piece.pages)
        });
        starts
            .zip(pieces)
            .map(|(offset, piece)| (offset, *piece, to + offset))
            .collect()
    };

    let mut patience = None;
    let shared = on_namespaces(&args.place, |device| {
        if args.dry_run {
            return copy::plan(device, nsid, &pieces, to).map(|_| None);
        }
        let progress = &mut |done, all| {
            patience
                .get_or_insert_with(|| Patience::new("defrag", Some(all)))
                .at(done)
        };
        copy::gather(device, nsid, &pieces, to, args.force, progress).map(Some)
    });
    drop(patience);
    let shared = shared?;

    let layout = layout(&pieces);
    if args.json {
        let entry = |(offset, piece, to): &(u64, Piece, u64)| json!({ "offset": offset, "from": piece.first, "pages": piece.pages, "to": to });
        let mut value = shared.as_ref().map_or_else(|| json!({}), show::value);
        value["extents"] = layout.iter().map(entry).collect::<Vec<_>>().into();
        value["dry_run"] = args.dry_run.into();
        return output::json(&value);
    }
    let row = |(offset, piece, to): &(u64, Piece, u64)| {
        [*offset, piece.first, *to, piece.pages]
            .map(|number| number.to_string())
            .to_vec()
    };
    let rows: Vec<_> = layout.iter().map(row).collect();
    output::text(&output::table(&["offset", "from", "to", "pages"], &rows))?;
    shared.map_or(Ok(()), |shared| {
        output::text(&output::pairs(&show::rows(&shared)))
    })
}

fn read(list: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = if list.as_os_str() == "-" {
        std::io::stdin().lock().read_to_string(&mut text)
    } else {
        std::fs::File::open(list).and_then(|mut file| file.read_to_string(&mut text))
    };
    read.map_err(|error| Failure::about(list.display(), error))?;
    Ok(text)
}

/// Parses a list of extents.
fn parse(text: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();

    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        // `filefrag` also writes lines that are no extents.
        let heading = ["Filesystem type", "File size", "ext:"]
            .iter()
            .any(|begin| line.starts_with(begin));

        if line.is_empty() || line.starts_with('#') || heading || line.ends_with("found") {
            continue;
        }

        // The `filefrag` format first: two numbers could be the beginning of such a line.
        let piece = of_filefrag(line).or_else(|| of_numbers(line));

        let wrong = || {
            format!(
                "line {} is not an extent: expected a first page and a number of pages, or a line of `filefrag -v`",
                index + 1
            )
        };
        pieces.push(piece.ok_or_else(wrong)?);
    }

    Ok(pieces)
}

/// Parses two numbers: the first page of an extent, and its number of pages.
fn of_numbers(line: &str) -> Option<Piece> {
    let mut numbers = line.split_whitespace().map(|word| word.parse::<u64>().ok());
    let piece = Piece {
        first: numbers.next()??,
        pages: numbers.next()??,
    };
    numbers.next().is_none().then_some(piece)
}

/// `0:        0..     255:      34816..     35071:    256:             last,eof`.
fn of_filefrag(line: &str) -> Option<Piece> {
    let mut fields = line.split(':').map(str::trim);
    fields.next()?.parse::<u64>().ok()?;
    fields.next()?;
    let first = fields.next()?.split_once("..")?.0.trim().parse().ok()?;
    let pages = fields.next()?.parse().ok()?;
    Some(Piece { first, pages })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_extents_is_numbers_or_what_filefrag_prints() {
        let piece = |first, pages| Piece { first, pages };

        assert_eq!(
            parse("# of a file\n10 3\n\n 20\t4 \n"),
            Ok(vec![piece(10, 3), piece(20, 4)])
        );

        let filefrag = "\
Filesystem type is: ef53
File size of big is 1052672 (257 blocks of 4096 bytes)
 ext:     logical_offset:        physical_offset: length:   expected: flags:
   0:        0..     255:      34816..     35071:    256:
   1:      256..     256:      40000..     40000:      1:      35072: last,eof
big: 2 extents found
";

        assert_eq!(
            parse(filefrag),
            Ok(vec![piece(34816, 256), piece(40000, 1)])
        );

        for wrong in ["10", "10 3 4", "ten 3", "10 -3", "0: 1..2: 3"] {
            assert!(
                parse(wrong).is_err_and(|why| why.contains("line 1")),
                "{wrong}"
            );
        }
    }
}
