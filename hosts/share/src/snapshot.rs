//! Snapshots: a namespace as it is at one instant, in another namespace of the same device.
//!
//! The snapshot's namespace holds the source's pages at the same places, so that it can be mounted
//! and read like the source, and a record in its last page. The record says what is under way
//! before it begins:
//!
//! *Create*: 1. record "being made"  2. flush  3. the pages are shared  4. flush  5. record "whole"  6. flush. Cut before the end
//! of 2: the namespace is vacant, and empty. Cut before the end of 5: "being made", which is no snapshot; what is there is
//! deleted by the next create or delete. Once the record says "whole" the pages are durable because of 4.
//!
//! *Delete*: 1. record "being deleted"  2. flush  3. the pages are deallocated  4. flush  5. record
//! "vacant"  6. flush. Cut before the end of 1: a whole snapshot, since nothing is deallocated
//! before 2 has ended. Cut later: no snapshot, and the next create or delete goes on with 3. A
//! namespace that is vacant is empty because of 4.
//!
//! *Roll back*: 1. record "being rolled back to"  2. flush  3. the source's pages are shared from
//! the snapshot  4. flush  5. record "whole"  6. flush. Cut before the end of 1: the source is as
//! it was, since it does not change before 2 has ended. Cut from there to the end of 5: each page
//! of the source is old or the snapshot's, and the record says so; the snapshot has not changed, so
//! the same rollback can be done again, from 1 on. Nothing else is done with a source while a
//! record says that it is being rolled back: a snapshot of it would be one of a mixture.
//!
//! *The instant.* A device that others may write has no command for all pages at once. So the
//! device's counts of pages written and deallocated are read before and after 3: if they are off by
//! anything but our own pages, somebody has written, and the snapshot is given up. If they are not,
//! the source was the same at every instant in between, and the snapshot is all that was
//! acknowledged before that, and nothing that was sent later. A rollback during which somebody has
//! written stays "being rolled back to".
//!
//! Invariant: a snapshot that is whole never changes, unless somebody writes to its namespace.
//! Absent: what is in the namespaces: a file system that is mounted is as it would be after a power
//! cut.

use crate::Progress;
use crate::copy::{counted, first_written, share};
use crate::namespaces::{NamespacePage, Namespaces, ShareError, ShareReport};
pub use crate::record::SnapshotState;
use crate::record::{LastPage, Record, check_name};
use remap_ssd_media::geometry::PAGE_BYTES;

/// Pages that are deallocated by one call: 1 GiB.
const TRIM_PAGES: u64 = 1 << 18;

/// A snapshot, or what is left of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its name, by which it is asked for.
    pub name: String,
    /// The namespace that it is in.
    pub nsid: u32,
    /// The namespace that it is of.
    pub source: u32,
    /// Number of pages of that namespace.
    pub pages: u64,
    /// When it was made: seconds since 1970.
    pub made_at: u64,
    /// Whole, or what is under way.
    pub state: SnapshotState,
}

/// All that a device has of snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// Complete and interrupted snapshots, by namespace.
    pub snapshots: Vec<Snapshot>,
    /// Namespaces that hold none, and are kept for some.
    pub vacant: Vec<u32>,
    /// Namespaces whose last page is empty: they may be kept for snapshots, if all of them is.
    pub blank: Vec<u32>,
    /// What is wrong, in sentences.
    pub damage: Vec<String>,
}

impl Listed {
    /// What is under way in a source: nothing else may be done with it.
    fn rollback_of(&self, source: u32) -> Option<&Snapshot> {
        self.snapshots
            .iter()
            .find(|one| one.source == source && one.state == SnapshotState::RollingBack)
    }

    fn find(&self, name: &str) -> Result<&Snapshot, ShareError> {
        // A damaged record may be the one that is looked for, so it is named together with the
        // refusal.
        let found = self.snapshots.iter().find(|one| one.name == name);
        found.ok_or_else(|| match self.damage.first() {
            Some(why) => ShareError::Refused(format!("there is no snapshot {name}, but {why}")),
            None => ShareError::Refused(format!("there is no snapshot {name}")),
        })
    }
}

/// A snapshot to be made.
#[derive(Clone, Debug)]
pub struct NewSnapshot {
    /// Name of the snapshot that is meant.
    pub name: String,
    /// The namespace that it is of.
    pub source: u32,
    /// The namespace to put it in; one that is free, unless given.
    pub into: Option<u32>,
    /// The time: seconds since 1970.
    pub now: u64,
}

/// All snapshots of a device.
///
/// # Errors
/// The device, or the way to it.
pub fn list<N: Namespaces + ?Sized>(device: &mut N) -> Result<Listed, ShareError> {
    let mut listed = Listed::default();

    for nsid in 1..=device.count() {
        // A namespace that this host may not use has no pages here.
        let size = device.pages(nsid);
        if size == 0 {
            continue;
        }

        let mut page = [0; PAGE_BYTES];
        device.read(
            NamespacePage {
                nsid,
                page: size - 1,
            },
            &mut page,
        )?;

        // Only the last page is read: whether the rest is blank is asked when it matters.
        match Record::decode(&page, nsid, size) {
            LastPage::Other => {}
            LastPage::Blank => listed.blank.push(nsid),
            LastPage::Damaged(why) => {
                listed.damage.push(format!(
                    "the record in page {} of namespace {nsid} is damaged: {why}",
                    size - 1
                ));
            }
            LastPage::Record(Record {
                state: SnapshotState::Vacant,
                ..
            }) => listed.vacant.push(nsid),
            LastPage::Record(Record {
                state,
                name,
                source,
                pages,
                made_at,
            }) => {
                listed.snapshots.push(Snapshot {
                    name,
                    nsid,
                    source,
                    pages,
                    made_at,
                    state,
                });
            }
        }
    }

    Ok(listed)
}

/// Writes a namespace's record, durably.
fn record<N: Namespaces + ?Sized>(
    device: &mut N,
    nsid: u32,
    record: &Record,
) -> Result<(), ShareError> {
    let page = device.pages(nsid) - 1;
    device.write(NamespacePage { nsid, page }, &record.encode(nsid))?;
    device.flush()
}

fn record_of(snapshot: &Snapshot, state: SnapshotState) -> Record {
    let Snapshot {
        name,
        source,
        pages,
        made_at,
        ..
    } = snapshot.clone();
    Record {
        state,
        name,
        source,
        pages,
        made_at,
    }
}

/// Makes a snapshot.
///
/// # Errors
/// There is one of this name, no namespace for it, somebody wrote meanwhile, the device, or the way
/// to it. There is no snapshot then, and the source is as it was.
pub fn create<N: Namespaces + ?Sized>(
    device: &mut N,
    new: &NewSnapshot,
    progress: Progress<'_>,
) -> Result<(Snapshot, ShareReport), ShareError> {
    let NewSnapshot {
        name,
        source,
        into,
        now,
    } = new;

    // Everything that can be refused comes before the first change.
    check_name(name).map_err(ShareError::Usage)?;
    // 0 if there is no such namespace; `check` says that in words.
    let source_size = device.pages(*source);
    device.check(
        NamespacePage {
            nsid: *source,
            page: 0,
        },
        source_size,
    )?;
    let listed = list(device)?;
    check_source(&listed, *source)?;

    // A snapshot of this name that is not whole makes room for the new one.
    if let Some(old) = listed.snapshots.iter().find(|one| one.name == *name) {
        match old.state {
            SnapshotState::Creating | SnapshotState::Deleting => {
                empty(device, old, &mut |_, _| {})?
            }
            _ => {
                return Err(ShareError::Refused(format!(
                    "there is a snapshot {name} already, in namespace {}: choose another name, or delete it",
                    old.nsid
                )));
            }
        }
    }

    // Looked at again, since a namespace may have become vacant.
    let listed = list(device)?;
    let nsid = choose(device, &listed, *source, *into)?;
    let snapshot = Snapshot {
        name: name.clone(),
        nsid,
        source: *source,
        pages: source_size,
        made_at: *now,
        state: SnapshotState::Complete,
    };
    let (from, to) = (
        NamespacePage {
            nsid: *source,
            page: 0,
        },
        NamespacePage { nsid, page: 0 },
    );

    // What "create" above says.
    record(device, nsid, &record_of(&snapshot, SnapshotState::Creating))?;
    let shared = undisturbed(device, from, to, source_size, progress);
    let shared = match shared {
        Ok(shared) => shared,
        Err(error) => {
            // If this fails too, the record says that it is no snapshot; the first reason is the
            // one to report.
            let _ = empty(device, &snapshot, &mut |_, _| {});
            return Err(error);
        }
    };
    record(device, nsid, &record_of(&snapshot, SnapshotState::Complete))?;
    Ok((snapshot, shared))
}

/// Whether snapshots can be made of a namespace.
fn check_source(listed: &Listed, source: u32) -> Result<(), ShareError> {
    // A namespace in the middle of a rollback is of two times.
    if let Some(rollback) = listed.rollback_of(source) {
        return Err(unfinished(rollback));
    }
    let is_snapshot =
        listed.snapshots.iter().any(|one| one.nsid == source) || listed.vacant.contains(&source);
    if is_snapshot {
        Err(ShareError::Refused(format!(
            "namespace {source} is for snapshots itself"
        )))
    } else {
        Ok(())
    }
}

fn unfinished(rollback: &Snapshot) -> ShareError {
    let Snapshot { name, source, .. } = rollback;
    ShareError::Refused(format!(
        "a rollback of namespace {source} to snapshot {name} was interrupted: first finish it with `share snapshot rollback {name}`"
    ))
}

/// The namespace for a snapshot.
fn choose<N: Namespaces + ?Sized>(
    device: &mut N,
    listed: &Listed,
    source: u32,
    into: Option<u32>,
) -> Result<u32, ShareError> {
    // One page more, for the record.
    let needed = device.pages(source) + 1;
    let is_blank = |device: &mut N, nsid: u32| {
        let pages = device.pages(nsid);
        first_written(
            device,
            NamespacePage { nsid, page: 0 },
            pages,
            &mut |_, _| {},
        )
    };

    // A namespace that was asked for is taken or refused, with the reason.
    if let Some(nsid) = into {
        device.check(NamespacePage { nsid, page: 0 }, 1)?;
        if nsid == source || device.pages(nsid) < needed {
            let pages = device.pages(nsid);
            return Err(ShareError::Refused(format!(
                "namespace {nsid} has {pages} pages, and a snapshot of namespace {source} needs another one of {needed} \
                 (`image create --snapshots N` makes such)"
            )));
        }
        if listed.vacant.contains(&nsid) {
            return Ok(nsid);
        }
        let what = match listed.snapshots.iter().find(|one| one.nsid == nsid) {
            Some(other) => format!("snapshot {} is in it", other.name),
            None => match is_blank(device, nsid)? {
                Some(page) => format!("something is in page {page}"),
                None => return Ok(nsid),
            },
        };
        return Err(ShareError::Refused(format!(
            "namespace {nsid} is not empty: {what}"
        )));
    }

    // Those that were kept for snapshots first; then larger ones that nobody has used.
    if let Some(nsid) = listed
        .vacant
        .iter()
        .find(|nsid| device.pages(**nsid) >= needed)
    {
        return Ok(*nsid);
    }
    for nsid in &listed.blank {
        if *nsid != source && device.pages(*nsid) >= needed && is_blank(device, *nsid)?.is_none() {
            return Ok(*nsid);
        }
    }

    // How many there are that would not do, because that is what can be changed.
    let free = listed
        .vacant
        .iter()
        .chain(&listed.blank)
        .filter(|nsid| **nsid != source)
        .count();
    Err(ShareError::Refused(format!(
        "there is no free namespace of {needed} pages for a snapshot of namespace {source} ({free} smaller ones): delete a \
         snapshot, or make the device with `image create --snapshots N`"
    )))
}

/// Shares all pages, durably, and makes sure that nobody has written meanwhile.
fn undisturbed<N: Namespaces + ?Sized>(
    device: &mut N,
    from: NamespacePage,
    to: NamespacePage,
    pages: u64,
    progress: Progress<'_>,
) -> Result<ShareReport, ShareError> {
    let shared = counted(device, pages, |device| {
        share(device, from, to, pages, &mut |done| progress(done, pages))?;
        device.flush()
    })?;

    // The device has counted what others wrote: sharing itself writes `pages`.
    // Fewer than ours means that the device was powered on again in between: the counts restarted.
    let others = shared.counts.host_pages.abs_diff(pages) + shared.counts.host_deallocations;
    match others {
        0 => Ok(shared),
        _ => Err(ShareError::Refused(format!(
            "another host wrote {others} pages to the device meanwhile: let it stop (unmount, or fsfreeze), then run this again"
        ))),
    }
}

/// Makes the namespace of a snapshot vacant.
fn empty<N: Namespaces + ?Sized>(
    device: &mut N,
    snapshot: &Snapshot,
    progress: Progress<'_>,
) -> Result<(), ShareError> {
    // The record stays until everything is deallocated and durable: an interruption is found.
    let nsid = snapshot.nsid;
    // What "delete" above says.
    record(device, nsid, &record_of(snapshot, SnapshotState::Deleting))?;
    let pages = device.pages(nsid) - 1;
    for page in (0..pages).step_by(TRIM_PAGES as usize) {
        let count = TRIM_PAGES.min(pages - page);
        device.trim(NamespacePage { nsid, page }, count)?;
        progress(page + count, pages);
    }
    device.flush()?;
    record(device, nsid, &Record::vacant())
}

/// Deletes a snapshot, or what is left of one.
///
/// # Errors
/// There is none of this name, its source is being rolled back to it, the device, or the way to it.
pub fn delete<N: Namespaces + ?Sized>(
    device: &mut N,
    name: &str,
    progress: Progress<'_>,
) -> Result<(), ShareError> {
    let listed = list(device)?;
    let snapshot = listed.find(name)?;
    // Its source is a mixture now, and only this snapshot can make it whole.
    if snapshot.state == SnapshotState::RollingBack {
        return Err(unfinished(snapshot));
    }
    empty(device, snapshot, progress)
}

/// Makes a namespace what it was when the snapshot was made; also goes on with a rollback that was
/// interrupted.
///
/// # Errors
/// There is no such snapshot, somebody wrote meanwhile, the device, or the way to it. If the
/// rollback had begun, its record says so, and the same call finishes it.
pub fn rollback<N: Namespaces + ?Sized>(
    device: &mut N,
    name: &str,
    progress: Progress<'_>,
) -> Result<(Snapshot, ShareReport), ShareError> {
    let listed = list(device)?;
    let snapshot = listed.find(name)?.clone();
    let Snapshot {
        nsid,
        source,
        pages,
        ..
    } = snapshot;

    // Only what is whole can be rolled back to.
    match snapshot.state {
        SnapshotState::Creating | SnapshotState::Deleting | SnapshotState::Vacant => {
            return Err(ShareError::Refused(format!(
                "snapshot {name} is not whole: it was interrupted while it was made or deleted; delete it"
            )));
        }
        SnapshotState::Complete | SnapshotState::RollingBack => {}
    }

    // One rollback of a namespace at a time.
    if let Some(other) = listed
        .rollback_of(source)
        .filter(|other| other.nsid != nsid)
    {
        return Err(unfinished(other));
    }
    // The namespace was made anew with another size: this is no longer the one of the snapshot.
    if device.pages(source) != pages {
        return Err(ShareError::Refused(format!(
            "snapshot {name} is of {pages} pages, and namespace {source} has {}",
            device.pages(source)
        )));
    }

    // What "roll back" above says.
    record(
        device,
        nsid,
        &record_of(&snapshot, SnapshotState::RollingBack),
    )?;
    // An error leaves the record at "being rolled back to"; the same call, made again, finishes it.
    let shared = undisturbed(
        device,
        NamespacePage { nsid, page: 0 },
        NamespacePage {
            nsid: source,
            page: 0,
        },
        pages,
        progress,
    )?;
    record(device, nsid, &record_of(&snapshot, SnapshotState::Complete))?;
    Ok((
        Snapshot {
            state: SnapshotState::Complete,
            ..snapshot
        },
        shared,
    ))
}
