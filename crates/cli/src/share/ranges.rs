//! `share copy` and `share move`.
//!
//! Absent: how ranges are copied and moved (`remap_ssd_share::copy`).

use super::{on_namespaces, on_volume, show};
use crate::failure::Failure;
use crate::place::NamespacePlace;
use crate::trace::Patience;
use remap_ssd_share::copy::{self, Empty};
use remap_ssd_share::volume::Others;
use remap_ssd_share::{NamespacePage as At, files};

/// Arguments of `share copy`: the range to copy, and its target.
#[derive(Debug, clap::Args)]
#[command(after_help = COPY)]
pub(super) struct Copy {
    #[command(flatten)]
    what: PagesOrFile,
    #[command(flatten)]
    place: NamespacePlace,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

const COPY: &str = "\
Examples:
  remap-ssd share copy --from 0 --to 100000 --pages 5000 --connect 127.0.0.1:4420
  remap-ssd share copy --from 0 --to 0 --pages 5000 --to-nsid 2 --image disk
  remap-ssd share copy --file orders.db --as orders-copy.db --image disk

If it is interrupted, each page of the target is the old or the new one, and the same command can be run again.";

/// Arguments of `share move`: the range to move, and its target.
#[derive(Debug, clap::Args)]
#[command(after_help = MOVE)]
pub(super) struct Move {
    #[command(flatten)]
    what: PagesOrFile,
    #[command(flatten)]
    place: NamespacePlace,
    /// Finish an interrupted move: keep targets whose sources are already empty.
    #[arg(long, conflicts_with_all = ["force", "file"])]
    resume: bool,
    /// Allow empty sources: their targets become empty.
    #[arg(long, conflicts_with = "file")]
    force: bool,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

const MOVE: &str = "\
Examples:
  remap-ssd share move --from 0 --to 100000 --pages 5000 --connect 127.0.0.1:4420
  remap-ssd share move --from 0 --to 100000 --pages 5000 --connect 127.0.0.1:4420 --resume

Sources are deallocated when their copies are durable. If it is interrupted, each page is in at least one of its places, and
--resume finishes it.";

/// Pages of the device, by number or as a file.
#[derive(Debug, clap::Args)]
struct PagesOrFile {
    /// First page of the source, of 4096 bytes.
    #[arg(long, value_name = "PAGE", required_unless_present = "file", conflicts_with = "file", requires_all = ["to", "pages"])]
    from: Option<u64>,
    /// First page of the target.
    #[arg(long, value_name = "PAGE")]
    to: Option<u64>,
    /// Number of pages.
    #[arg(long, value_name = "N")]
    pages: Option<u64>,
    /// Namespace of the target [default: the source's, --nsid].
    #[arg(long, value_name = "N", conflicts_with = "file")]
    to_nsid: Option<u32>,
    /// A file of the namespace's volume, instead of pages.
    #[arg(long, value_name = "NAME", requires = "as_name")]
    file: Option<String>,
    /// Name of the new file.
    #[arg(long = "as", id = "as_name", value_name = "NAME", requires = "file")]
    as_name: Option<String>,
}

impl PagesOrFile {
    /// First pages of source and target, and the number of pages; all three options are needed.
    fn range(&self, place: &NamespacePlace) -> Result<(At, At, u64), Failure> {
        let (Some(from), Some(to), Some(pages)) = (self.from, self.to, self.pages) else {
            return Err(Failure::usage(
                "which pages? --from PAGE --to PAGE --pages N",
            ));
        };
        let at = |nsid, page| At { nsid, page };
        let to_nsid = self.to_nsid.unwrap_or(place.nsid);
        Ok((at(place.nsid, from), at(to_nsid, to), pages))
    }

    fn names(&self) -> Option<(&str, &str)> {
        self.file.as_deref().zip(self.as_name.as_deref())
    }
}

pub(super) fn copy(args: &Copy) -> Result<(), Failure> {
    // Names are files of a volume, numbers are pages of a namespace.
    if let Some((from, to)) = args.what.names() {
        let copied = on_volume(&args.place, Others::Refused, |volume| {
            files::copy(volume.as_store(), from, to)
        });
        let (bytes, done) = copied?;
        return show::done(&done, &[("bytes", bytes.into())], args.json);
    }
    let (from, to, pages) = args.what.range(&args.place)?;
    let shared = Patience::during("copy", |progress| {
        on_namespaces(&args.place, |device| {
            copy::copy(device, from, to, pages, progress)
        })
    });
    show::shared(&shared?, &[], args.json)
}

pub(super) fn relocate(args: &Move) -> Result<(), Failure> {
    if let Some((from, to)) = args.what.names() {
        let ((), done) = on_volume(&args.place, Others::Refused, |volume| {
            Ok(volume.rename(from, to)?)
        })?;
        return show::done(&done, &[], args.json);
    }

    let (from, to, pages) = args.what.range(&args.place)?;
    // Resuming skips empty sources, because they were moved before.
    let empty = match (args.resume, args.force) {
        (true, _) => Empty::Leave,
        (_, true) => Empty::Take,
        _ => Empty::Refuse,
    };

    let shared = Patience::during("move", |progress| {
        on_namespaces(&args.place, |device| {
            copy::relocate(device, from, to, pages, empty, progress)
        })
    });
    show::shared(&shared?, &[], args.json)
}
