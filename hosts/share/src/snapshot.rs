//! Snapshots: a point-in-time image of a namespace, in another namespace of the same device.
//!
//! The snapshot's namespace holds the source's pages at the same positions, so that it can be
//! mounted and read like the source, and a record in its last page. The record announces each
//! operation before it begins:
//!
//! *Create*: 1. record "being made"  2. flush  3. the pages are shared  4. flush  5. record
//! "complete"  6. flush. Cut before the end of 2: the namespace is vacant, and empty. Cut before
//! the end of 5: "being made", which is no snapshot; the next create or delete removes its pages.
//! Once the record says "complete" the pages are durable because of 4.
//!
//! *Delete*: 1. record "being deleted"  2. flush  3. the pages are deallocated  4. flush  5. record
//! "vacant"  6. flush. Cut before the end of 1: a complete snapshot, since nothing is deallocated
//! before 2 has ended. Cut later: no snapshot, and the next create or delete continues with 3. A
//! vacant namespace is empty because of 4.
//!
//! *Roll back*: 1. record "being rolled back to"  2. flush  3. the source's pages are shared from
//! the snapshot  4. flush  5. record "complete"  6. flush. Cut before the end of 1: the source is
//! unchanged, since it does not change before 2 has ended. Cut from there to the end of 5: each
//! page of the source is old or the snapshot's, and the record says so; the snapshot has not
//! changed, so the rollback can be repeated from 1. While a record says that a source is being
//! rolled back, no other operation uses it: a snapshot of it would be a mixture.
//!
//! *The instant.* A shared device has no command that covers all pages at once. So the device's
//! counts of pages written and deallocated are read before and after 3. If they differ by more than
//! our own pages, another host has written, and the snapshot is abandoned. Otherwise the source did
//! not change in between: the snapshot holds all writes acknowledged before it began, and none
//! submitted after it ended. A rollback during which another host wrote stays "being rolled back
//! to".
//!
//! Invariant: a complete snapshot never changes, unless a host writes to its namespace. Absent: the
//! contents of the namespaces: a mounted file system is captured as after a power cut.

use crate::Progress;
use crate::copy::{counted, first_written, share};
use crate::namespaces::{NamespacePage, Namespaces, ShareError, ShareReport};
pub use crate::record::SnapshotState;
use crate::record::{LastPage, Record, check_name};
use remap_ssd_media::geometry::PAGE_BYTES;

/// Pages deallocated per call: 1 GiB.
const TRIM_PAGES: u64 = 1 << 18;

/// A snapshot, complete or interrupted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its name, by which commands find it.
    pub name: String,
    /// Number of the namespace that holds it.
    pub nsid: u32,
    /// Number of the source namespace.
    pub source: u32,
    /// Number of pages of the source.
    pub pages: u64,
    /// Time of creation: seconds since 1970.
    pub made_at: u64,
    /// State of the snapshot.
    pub state: SnapshotState,
}

impl Snapshot {
    /// The snapshot as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "name": self.name, "namespace": self.nsid, "of_namespace": self.source, "pages": self.pages,
            "bytes": self.pages * PAGE_BYTES as u64, "made_at": self.made_at, "state": self.state.described(),
            // During a rollback the snapshot is complete: only the rollback is not.
            "usable": matches!(self.state, SnapshotState::Complete | SnapshotState::RollingBack),
        })
    }
}

/// All snapshot namespaces of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// Complete and interrupted snapshots, by namespace.
    pub snapshots: Vec<Snapshot>,
    /// Namespaces reserved for snapshots that hold none.
    pub vacant: Vec<u32>,
    /// Namespaces whose last page is empty: usable for snapshots if all of their pages are.
    pub blank: Vec<u32>,
    /// Damage found, in sentences.
    pub damage: Vec<String>,
}

impl Listed {
    /// Returns an unfinished rollback of `source`, which excludes other operations on it.
    fn rollback_of(&self, source: u32) -> Option<&Snapshot> {
        self.snapshots
            .iter()
            .find(|one| one.source == source && one.state == SnapshotState::RollingBack)
    }

    fn find(&self, name: &str) -> Result<&Snapshot, ShareError> {
        // A damaged record may be the one sought, so the error names the damage too.
        let found = self.snapshots.iter().find(|one| one.name == name);
        found.ok_or_else(|| match self.damage.first() {
            Some(why) => ShareError::Refused(format!("there is no snapshot {name}, but {why}")),
            None => ShareError::Refused(format!("there is no snapshot {name}")),
        })
    }
}

/// Parameters of a new snapshot.
#[derive(Clone, Debug)]
pub struct NewSnapshot {
    /// Name of the snapshot.
    pub name: String,
    /// Number of the source namespace.
    pub source: u32,
    /// Number of the namespace to hold it; chosen if not given.
    pub into: Option<u32>,
    /// Time of creation: seconds since 1970.
    pub now: u64,
}

/// Lists all snapshots of a device.
///
/// # Errors
/// A device or transport error.
pub fn list<N: Namespaces + ?Sized>(device: &mut N) -> Result<Listed, ShareError> {
    let mut listed = Listed::default();

    for nsid in 1..=device.count() {
        // Namespaces that this host may not use report no pages.
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

        // Only the last page is read: the rest is checked for blankness when needed.
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
/// The name is taken, no namespace is free, another host wrote during the call, or a device or
/// transport error. Then there is no snapshot, and the source is unchanged.
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

    // All checks come before the first change.
    check_name(name).map_err(ShareError::Usage)?;
    // 0 if there is no such namespace; `check` reports that.
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

    // An incomplete snapshot of this name is deleted first.
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

    // Listed again, since a namespace may have become vacant.
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

    // Steps of "Create", above.
    record(device, nsid, &record_of(&snapshot, SnapshotState::Creating))?;
    let shared = undisturbed(device, from, to, source_size, progress);
    let shared = match shared {
        Ok(shared) => shared,
        Err(error) => {
            // If this fails too, the record says that it is no snapshot. The first error is
            // reported.
            let _ = empty(device, &snapshot, &mut |_, _| {});
            return Err(error);
        }
    };
    record(device, nsid, &record_of(&snapshot, SnapshotState::Complete))?;
    Ok((snapshot, shared))
}

/// Checks that snapshots of a namespace are allowed.
fn check_source(listed: &Listed, source: u32) -> Result<(), ShareError> {
    // A namespace in the middle of a rollback mixes two points in time.
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

/// Chooses the namespace for a snapshot.
fn choose<N: Namespaces + ?Sized>(
    device: &mut N,
    listed: &Listed,
    source: u32,
    into: Option<u32>,
) -> Result<u32, ShareError> {
    // One extra page, for the record.
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

    // A requested namespace is used, or refused with the reason.
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

    // Namespaces reserved for snapshots first; then larger, unused ones.
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

    // The message counts the unsuitable namespaces, because the user can change those.
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

/// Shares all pages durably, and fails if another host wrote in between.
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

    // The difference is other hosts' writes: sharing itself writes `pages`. Fewer than ours means
    // that the device was powered on again in between, which restarts its counters.
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
    // The record stays until the deallocation is durable, so that an interruption is detected.
    let nsid = snapshot.nsid;
    // Steps of "Delete", above.
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

/// Deletes a snapshot, complete or interrupted.
///
/// # Errors
/// No such snapshot, an unfinished rollback to it, or a device or transport error.
pub fn delete<N: Namespaces + ?Sized>(
    device: &mut N,
    name: &str,
    progress: Progress<'_>,
) -> Result<(), ShareError> {
    let listed = list(device)?;
    let snapshot = listed.find(name)?;
    // The source is a mixture now, and only this snapshot can restore it.
    if snapshot.state == SnapshotState::RollingBack {
        return Err(unfinished(snapshot));
    }
    empty(device, snapshot, progress)
}

/// Rolls a namespace back to a snapshot; also continues an interrupted rollback.
///
/// # Errors
/// No such snapshot, a write by another host during the call, or a device or transport error. If
/// the rollback had begun, its record says so, and the same call finishes it.
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

    // Only a complete snapshot can be rolled back to.
    match snapshot.state {
        SnapshotState::Creating | SnapshotState::Deleting | SnapshotState::Vacant => {
            return Err(ShareError::Refused(format!(
                "snapshot {name} is not whole: it was interrupted while it was made or deleted; delete it"
            )));
        }
        SnapshotState::Complete | SnapshotState::RollingBack => {}
    }

    // One rollback per namespace at a time.
    if let Some(other) = listed
        .rollback_of(source)
        .filter(|other| other.nsid != nsid)
    {
        return Err(unfinished(other));
    }
    // The namespace was recreated with another size: it is not the snapshot's source.
    if device.pages(source) != pages {
        return Err(ShareError::Refused(format!(
            "snapshot {name} is of {pages} pages, and namespace {source} has {}",
            device.pages(source)
        )));
    }

    // Steps of "Roll back", above.
    record(
        device,
        nsid,
        &record_of(&snapshot, SnapshotState::RollingBack),
    )?;
    // An error leaves the record at "being rolled back to"; repeating the call finishes it.
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
